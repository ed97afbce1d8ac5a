# The worker makes partitions, archives and drops them; nothing goes before it was delivered, also not through pg_partman; and
# DROP EXTENSION leaves nothing.
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

my $node = start_node('main', conf => "outbox.maintenance_interval = '1h'\noutbox.archive_retention = -1\nautovacuum = off\nmax_worker_processes = 16\n");

sub sql
{
	return $node->safe_psql('postgres', @_);
}

sub status
{
	my ($component) = @_;
	return sql("SELECT ok, detail FROM outbox_status() WHERE component = '$component'");
}

sub held
{
	return sql("SELECT string_agg(DISTINCT partition || ' ' || consumer || ' ' || reason, '; ') FROM outbox_held_partitions()");
}

set_up_age($node);
sql('SELECT outbox_setup()');
ok(wait_until(sub { sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox maintenance'") == 0 && relay_pid($node) }), 'a relay runs, and no maintenance');

# At start, and then at its interval.
sql(old_event(40));
$node->restart;
comes_to($node, 40, 'archive', 'maintenance runs when the server starts: a stray gets a partition of its own, and without consumers that is archived');
is(status('default partition'), 't|empty', 'the default partition is empty');
my $last = sql('SELECT partition FROM _outbox.partitions() ORDER BY upper_bound DESC NULLS LAST LIMIT 1');
sql("DROP TABLE $last");
settings($node, maintenance_interval => '1s');
ok(wait_until(sub { sql("SELECT to_regclass('$last') IS NOT NULL") eq 't' }), 'after a reload it runs every second, and makes partitions ahead');

# Not before every consumer has passed it.
sql("SELECT outbox_create_consumer(name) FROM unnest('{reads,pauses,works}'::text[]) name; SELECT outbox_pause('pauses')");
my $before = -s $node->logfile;
sql(old_event(30) . old_event(31) x 3);
sql("SELECT outbox_ack(max(lock_token)) FROM outbox_claim('reads', 10)");
my $token = sql("SELECT max(lock_token) FROM outbox_claim('works', 10, lease => '1 hour')");
comes_to($node, 31, 'log', 'partitions are made for strays');
my $rows = "SELECT md5(string_agg(ctid || ' ' || xmin || ' ' || m::text, ',' ORDER BY id)), (SELECT relfilenode FROM pg_class WHERE relname = age.partition(31))";
my $in_log = sql("$rows FROM outbox_messages m WHERE occurred_at = age.noon(31)");
whole_run($node);
is(place($node, 30) . place($node, 31), 'loglog', 'what a consumer has yet to read stays in the log, though it is old');
my ($p30, $p31) = map { partition($node, $_) } 30, 31;
my $all = join '; ', map { ("$_ pauses paused, and has yet to read it", "$_ works has not settled all of it") } $p31, $p30;
is(held(), $all, 'outbox_held_partitions() says who holds it back, and why');
is(sql("SELECT bool_and(since = date_trunc('day', age.noon(30)) + interval '8 days' AND bytes = pg_total_relation_size(partition)) FROM outbox_held_partitions() WHERE partition::text = '$p30'"),
	't', 'since when, and how large it is');
like(status('archive'), qr/^f\|2 partitions of \d+ kB should .*held back by pauses \(paused, and has yet to read it\), works \(has not settled all of it\)$/, 'as outbox_status() does');
logged($node, $before, qr/LOG:  outbox: maintenance, archive: public.$p31: held back by pauses \(paused, and has yet to read it\), works/, 'and the server log');
sql("SELECT outbox_ack($token)");
whole_run($node);
is(place($node, 30) . place($node, 31), 'loglog', 'one that is paused is enough');
sql("SELECT outbox_resume('pauses')");
is(sql("SELECT count(*) FROM outbox_claim('pauses', 10, lease => '1 hour')"), 4, 'it gets all');
whole_run($node);
is(held(), join('; ', map { "$_ pauses has not settled all of it" } $p31, $p30), 'then its lease holds them back');
is(place($node, 30) . place($node, 31), 'loglog', 'and they stay');
sql("SELECT outbox_ack(max(token)) FROM _outbox.leases WHERE acked_at IS NULL");
comes_to($node, 31, 'archive', 'once it has settled the rest, they are archived');
comes_to($node, 30, 'archive', 'all of them');
is(sql("$rows FROM outbox_messages_archive m WHERE occurred_at = age.noon(31)"), $in_log, 'no row was written anew');
is(sql('SELECT count(*) FROM outbox_messages'), 0, 'the log has them no more');
is(held() . status('archive'), 't|3 partitions', 'nothing is held back');
is(sql("SELECT partition, upper_bound - lower_bound = '1 day', lower_bound = date_trunc('day', age.noon(31)), last_id - first_id FROM _outbox.archived_partitions WHERE partition = age.partition(31)"),
	"$p31|t|t|2", '_outbox.archived_partitions has what is where');
logged($node, $before, qr/LOG:  outbox: maintenance, archive: public.$p31: archived/, 'the server log says what was done');

# A transaction that commits when all consumers have gone past it; and one that is in the way of the default partition.
my $all_consume = "SELECT string_agg(aggregate_id, ' ' ORDER BY name, id) FROM outbox_consumers c, outbox_consume(c.name, 10)";
sql("SELECT outbox_pause('pauses');" . old_event(32));
comes_to($node, 32, 'log', 'a day with something that one has yet to read');
sql('BEGIN; ' . old_event(32, 'late') . "PREPARE TRANSACTION 'late'");
sql('BEGIN; ' . old_event(33, 'stray') . "PREPARE TRANSACTION 'stray'");
sql("SELECT outbox_resume('pauses');" . enqueue('after'));
is(sql($all_consume), join(' ', ('32 after') x 3), 'all read what is committed, and go on');
whole_run($node);
is(place($node, 32) . place($node, 33), 'loggone', 'while transactions are open, nothing moves');
sql("COMMIT PREPARED 'late'");
whole_run($node);
is(place($node, 32), 'log', 'what was committed late stays in the log');
my $p32 = partition($node, 32);
is(held(), join('; ', map { "$p32 $_ has yet to read it" } qw(pauses reads works)), 'because all have yet to read it');
is(sql($all_consume), join(' ', ('late') x 3), 'they do');
sql("COMMIT PREPARED 'stray'");
comes_to($node, 32, 'archive', 'and it goes, now that nobody is in the way');
comes_to($node, 33, 'log', 'the stray gets its partition');
is(sql($all_consume), join(' ', ('stray') x 3), 'everybody reads it');
comes_to($node, 33, 'archive', 'and it goes, too');

# A replay of what is archived keeps it from being dropped.
is(place($node, 40), 'archive', 'archive_retention = -1 keeps what is old');
sql("SELECT outbox_seek('reads', age.noon(40)), outbox_pause('reads')");
settings($node, archive_retention => '35d');
whole_run($node);
is(place($node, 40), 'archive', 'what a consumer reads again is not dropped');
is(held(), partition($node, 40) . ' reads paused, and has yet to read it', 'it is held back');
sql("SELECT outbox_resume('reads')");
is(sql("SELECT string_agg(aggregate_id, ' ' ORDER BY id) FROM outbox_consume('reads', 10)"), '40 30 31 31 31 32 late stray after', 'a replay reads the archive');
comes_to($node, 40, 'gone', 'then it is dropped, because it is older than archive_retention');
is(place($node, 30) . place($node, 31), 'archivearchive', 'others are not');
is(sql('SELECT string_agg(partition, \' \' ORDER BY partition) FROM _outbox.archived_partitions'), join(' ', partition($node, 33), $p32, $p31, $p30), 'nor forgotten');

# The record of deliveries and what else is old. What is open is not, however long it has been.
sql(enqueue('open') . enqueue('done'));
my $open = sql("SELECT max(lock_token) FROM outbox_claim('works', 1, lease => '1 hour')");
sql("SELECT outbox_ack(max(lock_token)) FROM outbox_claim('works', 1)");
sql("SELECT count(*) FROM unnest('{reads,pauses}'::text[]) c, outbox_consume(c, 10)");
settings($node, delivery_retention => '0', hot_retention => '1d');
sql("INSERT INTO _outbox.dedup_keys (tenant_id, expires_at, tracking_id, dedup_key) VALUES (0, now() - interval '1 s', gen_random_uuid(), 'old'), (0, now() + interval '1 h', gen_random_uuid(), 'new')");
ok(wait_until(sub { sql("SELECT string_agg(dedup_key, ' ') FROM _outbox.dedup_keys") eq 'new' }), 'dedup keys go when they have expired');
ok(wait_until(sub { sql("SELECT n_tup_del FROM pg_stat_user_tables WHERE relname = 'dedup_keys'") == 1 }), 'and autovacuum hears of it');
# Who takes over keys that have expired, and goes on, holds nobody up.
sub expired_keys
{
	my ($name) = @_;
	return "INSERT INTO _outbox.dedup_keys (tenant_id, expires_at, tracking_id, dedup_key) VALUES (0, now() - interval '1 s', gen_random_uuid(), '$name');
		INSERT INTO _outbox.idempotency_keys (tenant_id, token, expires_at, begun_at, failed, request_hash, scope, key)
		VALUES (0, 1, now() - interval '1 s', now(), false, sha256(''), 's', '$name')";
}
sub expired_keys_there { my ($name) = @_; return sql("SELECT (SELECT count(*) FROM _outbox.dedup_keys WHERE dedup_key = '$name') + (SELECT count(*) FROM idempotency_keys WHERE key = '$name')") }
my ($taker, $keeper) = map { $node->background_psql('postgres') } 1 .. 2;
$keeper->query_safe('BEGIN; LOCK TABLE _outbox.maintenance_state IN SHARE UPDATE EXCLUSIVE MODE'); # until then there is no maintenance
sql(expired_keys('taken'));
$taker->query_safe(q{BEGIN; SELECT outbox_enqueue('Order', 1, 'OrderConfirmed', '{}', dedup_key => 'taken'); SELECT FROM idempotency_begin('s', 'taken', '{}')});
$keeper->query_safe('ROLLBACK');
# Nor does who removes some by hand, and goes on.
$keeper->query_safe('BEGIN; SELECT idempotency_expire()');
sql(expired_keys('other'));
ok(wait_until(sub { expired_keys_there('other') == 0 }), 'others\' keys go while a transaction that has taken over an expired one goes on');
is(expired_keys_there('taken'), 2, 'and what is being used stays');
$taker->query_safe('ROLLBACK');
ok(wait_until(sub { expired_keys_there('taken') == 0 }), 'until that ends');
$_->quit for $taker, $keeper;
ok(wait_until(sub { sql('SELECT count(*) FROM _outbox.batches') == 4 }), 'of settled deliveries the newest of each consumer stays, which is its cursor');
is(sql("SELECT outbox_ack($open)"), 1, 'and a batch that is open');
sql(enqueue('next'));
is(sql("SELECT string_agg(aggregate_id, ' ') FROM unnest('{reads,pauses,works}'::text[]) c, outbox_consume(c, 10)"), 'next next next', 'so all go on where they were');
ok(wait_until(sub { sql('SELECT count(*) FROM _outbox.batches') == 3 }), 'and what is settled goes');

# pg_partman cannot be made to drop what is not delivered.
my $partman = sql("SELECT _outbox.schema_of('pg_partman')");
my $set = "UPDATE $partman.part_config SET retention = '7 days', retention_keep_table = false WHERE parent_table = 'public.outbox_messages'";
like(refusal($node, $set), qr/ERROR:  55000: pg_partman must not have a retention for the log.*HINT:  Set outbox.hot_retention/s, 'a retention of pg_partman\'s own is refused');
like(refusal($node, "SET session_replication_role = replica; $set"), qr/55000/, 'also to those who switch triggers off');
like(refusal($node, "BEGIN; DELETE FROM $partman.part_config; INSERT INTO $partman.part_config (parent_table, control, partition_type, partition_interval, retention) VALUES ('public.outbox_messages', 'occurred_at', 'native', '1 day', '7 days')"),
	qr/55000/, 'also by INSERT');
like(refusal($node, "BEGIN; UPDATE $partman.part_config SET parent_table = 'x.y'; UPDATE $partman.part_config SET retention = '7 days'; UPDATE $partman.part_config SET parent_table = 'public.outbox_messages'"),
	qr/55000/, 'also in two steps');
sql('CREATE TABLE other (at timestamptz NOT NULL) PARTITION BY RANGE (at)');
my ($kind, $width) = sql("SELECT extversion < '5' FROM pg_extension WHERE extname = 'pg_partman'") eq 't' ? ('native', 'daily') : ('range', '1 day');
sql("SELECT $partman.create_parent(p_parent_table := 'public.other', p_control := 'at', p_type := '$kind', p_interval := '$width'); UPDATE $partman.part_config SET retention = '7 days' WHERE parent_table = 'public.other'");
pass('other tables may have one');
sql("SELECT outbox_create_consumer('late', start_at => 'latest'); SELECT outbox_pause('late')");
sql(old_event(20));
comes_to($node, 20, 'log', 'something that nobody has read');
sql("SELECT $partman.run_maintenance(); SELECT $partman.run_maintenance('public.outbox_messages')");
is(place($node, 20), 'log', 'pg_partman\'s own maintenance leaves it alone');
$before = -s $node->logfile;
# In one transaction, so that maintenance finds both at once.
sql("BEGIN; ALTER TABLE $partman.part_config DISABLE TRIGGER outbox_forbid_retention; $set; COMMIT");
ok(wait_until(sub { sql("SELECT retention IS NULL FROM $partman.part_config WHERE parent_table = 'public.outbox_messages'") eq 't' }), 'a superuser\'s retention is taken back');
logged($node, $before, qr/WARNING:  outbox: removed pg_partman's retention of 7 days/, 'which the server log tells');
like(refusal($node, $set), qr/55000/, 'and refused again');
like(status('pg_partman'), qr/^t/, 'outbox_status() is content');
is(place($node, 20), 'log', 'nothing was lost');
sql("SELECT outbox_drop_consumer('late'); SELECT count(*) FROM outbox_consumers c, outbox_consume(c.name, 10)");

# By hand, and by whom.
sql("CREATE ROLE boss LOGIN; CREATE ROLE producer LOGIN; CREATE ROLE worker LOGIN; CREATE ROLE stranger LOGIN;
	SELECT outbox_grant('boss', 'admin'), outbox_grant('producer', 'producer'), outbox_grant('worker', 'consumer')");
settings($node, maintenance_interval => '1h');
sleep 3; # the next time by the interval of before is over
ok(wait_until(sub { sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox maintenance'") == 0 }), 'no worker is at it');
ok(wait_until(sub { sql('SELECT count(*) FROM outbox_maintain()') == 0 }), 'nor anything left to do');
sql(old_event(15));
sql("SELECT count(*) FROM outbox_consumers c, outbox_consume(c.name, 10)");
my $p15 = partition($node, 15);
is($node->safe_psql('postgres', q{SELECT * FROM outbox_maintain() WHERE step <> 'prune'}, extra_params => [ '-U', 'boss' ]),
	"partitions|public.$p15|created for 1 events from the default partition|t\narchive|public.$p15|archived|t", 'outbox_maintain() does the same by hand, for an admin, and returns what it did');
is(sql("SELECT * FROM outbox_maintain() WHERE step <> 'prune'"), '', 'a second time there is nothing to do');
my %calls = ('outbox_maintain()' => '', 'outbox_held_partitions()' => '', "outbox_restore_partition('x')" => '22023');
for my $call (sort keys %calls)
{
	my $says = refusal($node, "SELECT * FROM $call", '-U', 'boss');
	$calls{$call} ? like($says, qr/ERROR:  $calls{$call}/, "an admin may call $call") : is($says, '', "an admin may call $call");
	like(refusal($node, "SELECT * FROM $call", '-U', $_), qr/ERROR:  42501: permission denied for function/, "a $_ may not")
	  for 'producer', 'worker', 'stranger';
}
like(refusal($node, "SELECT _outbox.drop_partition('$p15')", '-U', 'boss'), qr/42501/, 'nor an admin what is internal');

# By what is there now, and one at a time.
for my $isolation ('REPEATABLE READ', 'SERIALIZABLE')
{
	like(refusal($node, "BEGIN ISOLATION LEVEL $isolation; SELECT outbox_maintain()"), qr/ERROR:  25001: maintenance cannot run/, "not under $isolation");
}
settings($node, maintenance_interval => '1h');
my $another = $node->background_psql('postgres');
$another->query_safe('BEGIN; SELECT count(*) FROM outbox_maintain()');
is(sql('SELECT detail, changed FROM outbox_maintain()'), 'another session is running maintenance|f', 'two cannot do it at once');
$another->query_safe('ROLLBACK');
$another->quit;
settings($node, maintenance_interval => '1s');

# Limits that a database sets to statements and, from version 17 on, to transactions are not for its workers.
my @limits = split /\n/, sql(q{SELECT name FROM pg_settings WHERE name IN ('statement_timeout', 'transaction_timeout')});
sql('CREATE DATABASE hasty');
sql("ALTER DATABASE hasty SET $_ = '1ms'") for @limits;
$before = -s $node->logfile;
{
	local $ENV{PGOPTIONS} = join ' ', map { "-c $_=0" } @limits;
	my $receiver = OutboxReceiver->start('hasty');
	$node->safe_psql('hasty', 'SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE; SELECT outbox_setup()');
	create_sink($node, 'hasty', { url => $receiver->url('/hasty') }, undef, 'hasty');
	$node->safe_psql('hasty', "SELECT count(outbox_enqueue('Order', i, 'OrderConfirmed', '{}')) FROM generate_series(1, 1000) i");
	ok(wait_until(sub { $receiver->accepted_ids('/hasty') >= 1000 }, 30), 'where transactions are to be short the relay delivers all the same');
	ok(eval { whole_run($node, 'hasty'); 1 }, 'and maintenance is done');
}
unlike(substr(slurp_file($node->logfile), $before), qr/canceling statement due to|terminating connection due to transaction timeout/, 'neither is interrupted');
sql('DROP DATABASE hasty');

# A partition is made so that the archive need not look at its rows, and vacuum freezes them early.
is(sql(q{SELECT count(*) FROM _outbox.partitions() p JOIN pg_class c ON c.oid = p.partition WHERE NOT is_default AND NOT (
	c.reloptions @> '{autovacuum_freeze_min_age=0,autovacuum_vacuum_insert_scale_factor=0.05}'
	AND EXISTS (SELECT FROM pg_constraint WHERE conrelid = c.oid AND conname = 'outbox_bounds' AND convalidated))}), 0, 'every partition is dressed');

# DROP EXTENSION.
my $left = "SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'outbox%') + (SELECT count(*) FROM pg_proc WHERE proname LIKE 'outbox%' OR proname LIKE 'idempotency%')
	+ (SELECT count(*) FROM pg_event_trigger) + (SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal)";
sql(old_event(14));
sql('SELECT * FROM outbox_maintain()');
is(place($node, 15) . place($node, 14), 'archivelog', 'there is something in the archive and something in the log');
sql('DROP EXTENSION outbox');
is(sql("$left + (SELECT count(*) FROM $partman.part_config WHERE parent_table <> 'public.other')"), 0, 'DROP EXTENSION leaves nothing: no table, no partition, no trigger, no configuration');
is(sql("SELECT count(*) FROM pg_extension WHERE extname = 'pg_partman'"), 1, 'pg_partman stays');
sql("CREATE SCHEMA box; CREATE EXTENSION outbox SCHEMA box");
sql('SET search_path = box, public, pg_catalog; SELECT outbox_setup(); ' . old_event(15) . 'SELECT * FROM outbox_maintain(); ' . old_event(14) . 'SELECT * FROM outbox_maintain()');
is(place($node, 15), 'archive', 'in a schema of its own, too');
sql('SET client_min_messages = warning; DROP SCHEMA box CASCADE');
is(sql($left), 0, 'DROP SCHEMA … CASCADE leaves no table, no partition and no trigger');
sql('CREATE EXTENSION outbox; SELECT outbox_setup()');
is(sql("SELECT string_agg(parent_table, ' ' ORDER BY parent_table) FROM $partman.part_config"), 'box.outbox_messages public.other public.outbox_messages', 'its configuration is left, and in nobody\'s way');
sql("SELECT $partman.run_maintenance()");

$node->stop;
done_testing();
