# A database that was dumped and restored into another cluster: nothing is archived or dropped there before somebody says that
# the restore is complete. Then consumers get what they had not got, and nothing else.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use OutboxAge;
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

my $cold = PostgreSQL::Test::Utils::tempdir('cold');
my $conf = "outbox.maintenance_interval = '1s'\noutbox.hot_retention = '7d'\noutbox.archive_retention = '60d'\noutbox.cold_storage_dir = '$cold'\nautovacuum = off\nmax_worker_processes = 16\n";
my $source = start_node('source', conf => $conf);
set_up_age($source);

# Gone to cold storage, in the archive, in the log because a consumer needs it, and new. A consumer with something of everything.
$source->safe_psql('postgres', "SELECT outbox_setup(); SELECT outbox_create_consumer(name) FROM unnest('{reads,pauses}'::text[]) name;" . old_event(70) . old_event(50));
$source->safe_psql('postgres', "SELECT count(*) FROM outbox_consumers c, outbox_consume(c.name, 10)");
comes_to($source, 50, 'archive', 'something is in the archive');
ok(wait_until(sub { place($source, 70) eq 'gone' && $source->safe_psql('postgres', 'SELECT count(*) FROM outbox_cold_files WHERE stored_at IS NOT NULL') }), 'something in cold storage');
$source->safe_psql('postgres', "SELECT outbox_pause('pauses');" . join('', map { old_event(20, "old-$_") } 1 .. 4) . join('', map { enqueue("new-$_") } 1 .. 5));
$source->safe_psql('postgres', "SELECT outbox_ack(max(lock_token)) FROM outbox_claim('reads', 2);
	SELECT outbox_fail(max(lock_token), max(id), 'later', retry_in => '1 second') FROM outbox_claim('reads', 1);
	SELECT outbox_fail(max(lock_token), max(id), 'never', dead => true) FROM outbox_claim('reads', 1);
	SELECT count(*) FROM outbox_claim('reads', 2, lease => '1 day')");
comes_to($source, 20, 'log', 'something that is due, and that a paused consumer needs');

my $everything = join ';', map { "SELECT '$_', count(*), md5(string_agg(t::text, '|' ORDER BY t::text)) FROM $_ t" }
  qw(outbox_messages outbox_messages_archive _outbox.archived_partitions outbox_cold_files outbox_consumers _outbox.batches _outbox.leases outbox_retries outbox_messages_dlq);
$source->safe_psql('postgres', 'SELECT outbox_release_due()');
my $before = $source->safe_psql('postgres', $everything);
my $dump = "${PostgreSQL::Test::Utils::tmp_check}/dump";
command_ok([ 'pg_dump', '-Fc', '-d', $source->connstr('postgres'), '-f', $dump ], 'pg_dump');
$source->stop;

my $target = start_node('target', conf => $conf, no_extension => 1);
$target->safe_psql('postgres', 'CREATE DATABASE shop');
sub shop
{
	return $target->safe_psql('shop', @_);
}
# In the order of pg_dump's sections, and slowly: the worker finds each of them.
for my $section ('pre-data', 'data', 'post-data')
{
	command_ok([ 'pg_restore', '-d', $target->connstr('shop'), "--section=$section", $dump ], "pg_restore, $section");
	sleep 1.5;
}
ok(relay_pid($target, 'shop'), 'the database is served');
is(shop($everything), $before, 'log, archive, cursors, leases, retries and dead letters are all there');
is(place($target, 20, 'shop') . place($target, 50, 'shop'), 'logarchive', 'partitions are where they were');
my $status = q{SELECT ok, detail, hint FROM outbox_status() WHERE component = 'maintenance'};
is(shop($status), 'f|not started, because this database was restored|Once the restore is complete, run SELECT outbox_maintain().', 'outbox_status() says that maintenance waits');
# Also when nobody would hold it back.
shop("SELECT outbox_resume('pauses')");
is(shop("SELECT string_agg(aggregate_id, ' ' ORDER BY id) FROM outbox_consume('pauses', 100)"), 'old-1 old-2 old-3 old-4 new-1 new-2 new-3 new-4 new-5', 'a consumer that was paused gets all that it had not got');
shop('SELECT outbox_ack(token) FROM _outbox.leases WHERE acked_at IS NULL');
is(shop("SELECT string_agg(aggregate_id, ' ' ORDER BY id) FROM outbox_consume('reads', 100)"), 'old-3', 'one that had failed an event gets it again');
is(shop("SELECT string_agg(aggregate_id, ' ' ORDER BY id) FROM outbox_consume('reads', 100)"), 'new-3 new-4 new-5', 'and what it had not got');
is(shop("SELECT count(*) FROM outbox_consumers c, outbox_consume(c.name, 100)"), 0, 'nobody gets anything twice');
is(shop("SELECT m.aggregate_id FROM outbox_messages_dlq JOIN outbox_messages m USING (id)"), 'old-4', 'a dead letter is still one');
sleep 2.5;
is(place($target, 20, 'shop') . place($target, 50, 'shop'), 'logarchive', 'nothing is archived or dropped meanwhile');
is(shop('SELECT count(*) FROM _outbox.archived_partitions'), 1, 'nor forgotten');

like(shop("SELECT string_agg(step || ' ' || detail, ', ') FROM outbox_maintain() WHERE step IN ('archive', 'drop')"), qr/^archive archived$/, 'outbox_maintain() begins it');
like(shop($status), qr/^t\|since /, 'outbox_status() is content');
shop(old_event(21));
shop("SELECT count(*) FROM outbox_consumers c, outbox_consume(c.name, 100)");
comes_to($target, 21, 'archive', 'and the worker goes on', 'shop');
shop(enqueue('after'));
is(shop("SELECT string_agg(aggregate_id, ' ') FROM outbox_consumers c, outbox_consume(c.name, 100)"), 'after after', 'new events come to all');
shop("SELECT outbox_seek('reads', age.noon(50))");
is(shop("SELECT aggregate_id FROM outbox_consume('reads', 1)"), '50', 'a replay reads the archive');
my $file = shop('SELECT file FROM outbox_cold_files');
shop("SELECT outbox_restore_partition('$file')");
is(shop('SELECT aggregate_id FROM outbox_messages_archive ORDER BY occurred_at LIMIT 1'), '70', 'and cold storage gives back what it has');

$target->stop;
done_testing();
