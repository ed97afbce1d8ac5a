# Maintenance of a database that was restored into another cluster archives and drops nothing before
# outbox_maintain() confirms that the restore is complete. Consumers get each undelivered event
# once.
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
my $conf = "outbox.maintenance_interval = '1s'\noutbox.hot_retention = '7d'\n"
  . "outbox.archive_retention = '60d'\noutbox.cold_storage_dir = '$cold'\nautovacuum = off\n"
  . "max_worker_processes = 16\n";
my $source = start_node('source', conf => $conf);
set_up_age($source);

# One event each in cold storage, in the archive, in the log because a consumer needs it, and new
# ones. A consumer has a batch, a retry and a dead letter.
$source->safe_psql('postgres',
	"SELECT outbox_setup(); SELECT outbox_create_consumer(name) "
	  . "FROM unnest('{reads,pauses}'::text[]) name;" . old_event(70) . old_event(50));
$source->safe_psql('postgres',
	"SELECT count(*) FROM outbox_consumers c, outbox_consume(c.name, 10)");
comes_to($source, 50, 'archive', 'a partition is archived before the dump');
ok(wait_until(sub { place($source, 70) eq 'gone'
	&& $source->safe_psql('postgres',
		'SELECT count(*) FROM outbox_cold_files WHERE stored_at IS NOT NULL') }),
		'a partition is in cold storage before the dump');
$source->safe_psql('postgres', "SELECT outbox_pause('pauses');"
	. join('', map { old_event(20, "old-$_") } 1 .. 4)
	  . join('', map { enqueue("new-$_") } 1 .. 5));
$source->safe_psql('postgres', "SELECT outbox_ack(max(lock_token)) FROM outbox_claim('reads', 2);
	SELECT outbox_fail(max(lock_token), max(id), 'later', retry_in => '1 second') "
	  . "FROM outbox_claim('reads', 1);
	SELECT outbox_fail(max(lock_token), max(id), 'never', dead => true) "
	  . "FROM outbox_claim('reads', 1);
	SELECT count(*) FROM outbox_claim('reads', 2, lease => '1 day')");
comes_to($source, 20, 'log',
	'a due partition that a paused consumer needs is in the log before the dump');

my $everything = join ';',
  map { "SELECT '$_', count(*), md5(string_agg(t::text, '|' ORDER BY t::text)) FROM $_ t" }
  qw(outbox_messages outbox_messages_archive _outbox.archived_partitions outbox_cold_files
	outbox_consumers _outbox.batches _outbox.leases outbox_retries outbox_messages_dlq);
$source->safe_psql('postgres', 'SELECT outbox_release_due()');
my $before = $source->safe_psql('postgres', $everything);
my $dump = "${PostgreSQL::Test::Utils::tmp_check}/dump";
command_ok([ 'pg_dump', '-Fc', '-d', $source->connstr('postgres'), '-f', $dump ],
	'pg_dump succeeds');
$source->stop;

my $target = start_node('target', conf => $conf, no_extension => 1);
$target->safe_psql('postgres', 'CREATE DATABASE shop');
sub shop
{
	return $target->safe_psql('shop', @_);
}
# Sections in the order of pg_dump, with pauses, so that the worker runs after each of them.
for my $section ('pre-data', 'data', 'post-data')
{
	command_ok([ 'pg_restore', '-d', $target->connstr('shop'), "--section=$section", $dump ],
		"pg_restore succeeds for section $section");
	sleep 1.5;
}
ok(relay_pid($target, 'shop'), 'a relay serves the restored database');
is(shop($everything), $before,
	'a restore keeps log, archive, cursors, leases, retries and dead letters');
is(place($target, 20, 'shop') . place($target, 50, 'shop'), 'logarchive',
	'a restore keeps partitions in log and archive');
my $status = q{SELECT ok, detail, hint FROM outbox_status() WHERE component = 'maintenance'};
is(shop($status),
	'f|not started, because this database was restored|Once the restore is complete, run '
	  . 'SELECT outbox_maintain().',
	'outbox_status() shows that maintenance waits for confirmation');
# Without a consumer that holds partitions back.
shop("SELECT outbox_resume('pauses')");
is(shop("SELECT string_agg(aggregate_id, ' ' ORDER BY id) FROM outbox_consume('pauses', 100)"),
	'old-1 old-2 old-3 old-4 new-1 new-2 new-3 new-4 new-5',
	'a paused consumer gets every undelivered event after a restore');
shop('SELECT outbox_ack(token) FROM _outbox.leases WHERE acked_at IS NULL');
is(shop("SELECT string_agg(aggregate_id, ' ' ORDER BY id) FROM outbox_consume('reads', 100)"),
	'old-3', 'a failed event is retried after a restore');
is(shop("SELECT string_agg(aggregate_id, ' ' ORDER BY id) FROM outbox_consume('reads', 100)"),
	'new-3 new-4 new-5', 'a consumer gets its undelivered events after a restore');
is(shop("SELECT count(*) FROM outbox_consumers c, outbox_consume(c.name, 100)"), 0,
	'no event is delivered twice after a restore');
is(shop("SELECT m.aggregate_id FROM outbox_messages_dlq JOIN outbox_messages m USING (id)"),
	'old-4', 'a restore keeps a dead letter');
sleep 2.5;
is(place($target, 20, 'shop') . place($target, 50, 'shop'), 'logarchive',
	'no partition is archived or dropped before the confirmation');
is(shop('SELECT count(*) FROM _outbox.archived_partitions'), 1,
	'archived partitions stay recorded before the confirmation');

like(shop("SELECT string_agg(step || ' ' || detail, ', ') FROM outbox_maintain() "
	. "WHERE step IN ('archive', 'drop')"), qr/^archive archived$/,
	'outbox_maintain() confirms the restore and archives');
like(shop($status), qr/^t\|since /,
	'outbox_status() shows maintenance as ok after the confirmation');
shop(old_event(21));
shop("SELECT count(*) FROM outbox_consumers c, outbox_consume(c.name, 100)");
comes_to($target, 21, 'archive', 'the maintenance worker archives after the confirmation', 'shop');
shop(enqueue('after'));
is(shop("SELECT string_agg(aggregate_id, ' ') "
	. "FROM outbox_consumers c, outbox_consume(c.name, 100)"), 'after after',
	'every consumer gets new events after a restore');
shop("SELECT outbox_seek('reads', age.noon(50))");
is(shop("SELECT aggregate_id FROM outbox_consume('reads', 1)"), '50',
	'a replay reads the archive after a restore');
my $file = shop('SELECT file FROM outbox_cold_files');
shop("SELECT outbox_restore_partition('$file')");
is(shop('SELECT aggregate_id FROM outbox_messages_archive ORDER BY occurred_at LIMIT 1'), '70',
	'a partition in cold storage can be restored after a restore of the database');

$target->stop;
done_testing();
