# The maintenance worker makes, archives and drops partitions. No partition is archived or dropped
# before its events are delivered, also not by pg_partman. DROP EXTENSION leaves no object.
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

my $node = start_node('main',
	conf => "outbox.maintenance_interval = '1h'\noutbox.archive_retention = -1\nautovacuum = off\n"
	  . "max_worker_processes = 16\n");

sub sql
{
	return $node->safe_psql('postgres', @_);
}

sub status
{
	my ($component) = @_;
	return sql("SELECT ok, detail FROM outbox_status() WHERE component = '$component'");
}

sub held_partitions
{
	return sql("SELECT string_agg(DISTINCT partition || ' ' || consumer || ' ' || reason, '; ') "
		. "FROM outbox_held_partitions()");
}

set_up_age($node);
sql('SELECT outbox_setup()');
ok(wait_until(sub {
	sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox maintenance'") == 0
	  && relay_pid($node) }), 'a relay runs, and no maintenance worker');

# At the start of the server, and then at its interval.
sql(old_event(40));
$node->restart;
comes_to($node, 40, 'archive',
	'maintenance at the start of the server moves an old event to a partition and archives that');
is(status('default partition'), 't|empty', 'outbox_status() shows the default partition as empty');
my $last = sql('SELECT partition FROM _outbox.partitions() '
	. 'ORDER BY upper_bound DESC NULLS LAST LIMIT 1');
sql("DROP TABLE $last");
settings($node, maintenance_interval => '1s');
ok(wait_until(sub { sql("SELECT to_regclass('$last') IS NOT NULL") eq 't' }),
	'maintenance runs at its new interval after a reload, and makes partitions ahead');

# A partition is not archived before every consumer has settled its events.
sql("SELECT outbox_create_consumer(name) FROM unnest('{reads,pauses,works}'::text[]) name; "
	. "SELECT outbox_pause('pauses')");
my $before = -s $node->logfile;
sql(old_event(30) . old_event(31) x 3);
sql("SELECT outbox_ack(max(lock_token)) FROM outbox_claim('reads', 10)");
my $token = sql("SELECT max(lock_token) FROM outbox_claim('works', 10, lease => '1 hour')");
comes_to($node, 31, 'log', 'old events are moved to partitions of their own');
my $rows = "SELECT md5(string_agg(ctid || ' ' || xmin || ' ' || m::text, ',' "
  . "ORDER BY id)), (SELECT relfilenode FROM pg_class WHERE relname = age.partition(31))";
my $in_log = sql("$rows FROM outbox_messages m WHERE occurred_at = age.noon(31)");
whole_run($node);
is(place($node, 30) . place($node, 31), 'loglog',
	'a partition with unread events stays in the log after hot_retention');
my ($p30, $p31) = map { partition($node, $_) } 30, 31;
my $all = join '; ',
  map { ("$_ pauses paused, and has yet to read it", "$_ works has not settled all of it") } $p31,
  $p30;
is(held_partitions(), $all,
	'outbox_held_partitions() returns the consumers that hold a partition back, with reasons');
is(sql("SELECT bool_and(since = date_trunc('day', age.noon(30)) + interval '8 days' "
	. "AND bytes = pg_total_relation_size(partition)) FROM outbox_held_partitions() "
	. "WHERE partition::text = '$p30'"),
	't', 'outbox_held_partitions() returns since when a partition is due, and its size');
my $paused_holds = 'held back by pauses \(paused, and has yet to read it\)';
like(status('archive'),
	qr/^f\|2 partitions of \d+ kB should .*$paused_holds, works \(has not settled all of it\)$/,
	'outbox_status() names the consumers that hold partitions back');
logged($node, $before,
	qr/LOG:  outbox: maintenance, archive: public.$p31: $paused_holds, works/,
	'the server log names the consumers that hold partitions back');
sql("SELECT outbox_ack($token)");
whole_run($node);
is(place($node, 30) . place($node, 31), 'loglog', 'a paused consumer holds a partition back');
sql("SELECT outbox_resume('pauses')");
is(sql("SELECT count(*) FROM outbox_claim('pauses', 10, lease => '1 hour')"), 4,
	'a resumed consumer gets every event');
whole_run($node);
is(held_partitions(), join('; ', map { "$_ pauses has not settled all of it" } $p31, $p30),
	'a lease holds a partition back');
is(place($node, 30) . place($node, 31), 'loglog', 'partitions with leased events stay in the log');
sql("SELECT outbox_ack(max(token)) FROM _outbox.leases WHERE acked_at IS NULL");
comes_to($node, 31, 'archive',
	'a partition is archived once every consumer has settled its events');
comes_to($node, 30, 'archive', 'the other partition is archived, too');
is(sql("$rows FROM outbox_messages_archive m WHERE occurred_at = age.noon(31)"), $in_log,
	'archiving rewrites no row');
is(sql('SELECT count(*) FROM outbox_messages'), 0, 'the log has no archived event');
is(held_partitions() . status('archive'), 't|3 partitions',
	'no partition is held back once every event is settled');
is(sql("SELECT partition, upper_bound - lower_bound = '1 day', lower_bound = date_trunc('day', "
	. "age.noon(31)), last_id - first_id FROM _outbox.archived_partitions "
	. "WHERE partition = age.partition(31)"),
	"$p31|t|t|2", '_outbox.archived_partitions has bounds and ids of a partition');
logged($node, $before, qr/LOG:  outbox: maintenance, archive: public.$p31: archived/,
	'the server log reports an archived partition');

# A late commit behind the cursors of all consumers, and an open transaction with a row in the
# default partition.
my $all_consume = "SELECT string_agg(aggregate_id, ' ' ORDER BY name, id) "
  . "FROM outbox_consumers c, outbox_consume(c.name, 10)";
sql("SELECT outbox_pause('pauses');" . old_event(32));
comes_to($node, 32, 'log', 'a partition with an unread event stays in the log');
sql('BEGIN; ' . old_event(32, 'late') . "PREPARE TRANSACTION 'late'");
sql('BEGIN; ' . old_event(33, 'stray') . "PREPARE TRANSACTION 'stray'");
sql("SELECT outbox_resume('pauses');" . enqueue('after'));
is(sql($all_consume), join(' ', ('32 after') x 3), 'every consumer reads the committed events');
whole_run($node);
is(place($node, 32) . place($node, 33), 'loggone',
	'no partition is archived and no row moved while their transactions are open');
sql("COMMIT PREPARED 'late'");
whole_run($node);
is(place($node, 32), 'log', 'a partition with a late commit stays in the log');
my $p32 = partition($node, 32);
is(held_partitions(), join('; ', map { "$p32 $_ has yet to read it" } qw(pauses reads works)),
	'a late commit holds its partition back for every consumer');
is(sql($all_consume), join(' ', ('late') x 3), 'every consumer reads a late commit');
sql("COMMIT PREPARED 'stray'");
comes_to($node, 32, 'archive', 'a partition is archived once its late commit is read');
comes_to($node, 33, 'log', 'a row of the default partition is moved once its transaction commits');
is(sql($all_consume), join(' ', ('stray') x 3), 'every consumer reads a moved row');
comes_to($node, 33, 'archive', 'a partition with a moved row is archived once it is read');

# A replay of archived events keeps their partitions.
is(place($node, 40), 'archive', 'archive_retention = -1 keeps partitions');
sql("SELECT outbox_seek('reads', age.noon(40)), outbox_pause('reads')");
settings($node, archive_retention => '35d');
whole_run($node);
is(place($node, 40), 'archive', 'a partition that a replay has yet to read is not dropped');
is(held_partitions(), partition($node, 40) . ' reads paused, and has yet to read it',
	'outbox_held_partitions() lists a partition that a replay has yet to read');
sql("SELECT outbox_resume('reads')");
is(sql("SELECT string_agg(aggregate_id, ' ' ORDER BY id) FROM outbox_consume('reads', 10)"),
	'40 30 31 31 31 32 late stray after', 'a replay reads the archive');
comes_to($node, 40, 'gone',
	'a partition older than archive_retention is dropped once the replay has read it');
is(place($node, 30) . place($node, 31), 'archivearchive',
	'partitions within archive_retention are kept');
is(sql('SELECT string_agg(partition, \' \' ORDER BY partition) FROM _outbox.archived_partitions'),
	join(' ', partition($node, 33), $p32, $p31, $p30),
	'partitions within archive_retention stay recorded');

# Pruning of settled batches and expired keys. Open batches are kept.
sql(enqueue('open') . enqueue('done'));
my $open = sql("SELECT max(lock_token) FROM outbox_claim('works', 1, lease => '1 hour')");
sql("SELECT outbox_ack(max(lock_token)) FROM outbox_claim('works', 1)");
sql("SELECT count(*) FROM unnest('{reads,pauses}'::text[]) c, outbox_consume(c, 10)");
settings($node, delivery_retention => '0', hot_retention => '1d');
sql("INSERT INTO _outbox.dedup_keys (tenant_id, expires_at, tracking_id, dedup_key) "
	. "VALUES (0, now() - interval '1 s', gen_random_uuid(), 'old'), (0, now() + interval '1 h', "
	. "gen_random_uuid(), 'new')");
ok(wait_until(sub { sql("SELECT string_agg(dedup_key, ' ') FROM _outbox.dedup_keys") eq 'new' }),
	'expired dedup keys are removed');
ok(wait_until(sub {
	sql("SELECT n_tup_del FROM pg_stat_user_tables WHERE relname = 'dedup_keys'") == 1 }),
	'removed dedup keys are counted for autovacuum');
# An open transaction that has taken over expired keys does not delay the removal of others.
sub expired_keys
{
	my ($name) = @_;
	return "INSERT INTO _outbox.dedup_keys (tenant_id, expires_at, tracking_id, dedup_key) "
	  . "VALUES (0, now() - interval '1 s', gen_random_uuid(), '$name');
		INSERT INTO _outbox.idempotency_keys (tenant_id, token, expires_at, begun_at, failed, "
		  . "request_hash, scope, key)
		VALUES (0, 1, now() - interval '1 s', now(), false, sha256(''), 's', '$name')";
}
sub expired_keys_there
{
	my ($name) = @_;
	return sql("SELECT (SELECT count(*) FROM _outbox.dedup_keys "
		. "WHERE dedup_key = '$name') + (SELECT count(*) FROM idempotency_keys "
		. "WHERE key = '$name')");
}
my ($taker, $keeper) = map { $node->background_psql('postgres') } 1 .. 2;
$keeper->query_safe('BEGIN; LOCK TABLE _outbox.maintenance_state IN SHARE '
	. 'UPDATE EXCLUSIVE MODE'); # no maintenance until the ROLLBACK
sql(expired_keys('taken'));
$taker->query_safe(q{BEGIN; SELECT outbox_enqueue('Order', 1, 'OrderConfirmed', '{}',
	dedup_key => 'taken'); SELECT FROM idempotency_begin('s', 'taken', '{}')});
$keeper->query_safe('ROLLBACK');
# Neither does an open transaction that has called idempotency_expire().
$keeper->query_safe('BEGIN; SELECT idempotency_expire()');
sql(expired_keys('other'));
ok(wait_until(sub { expired_keys_there('other') == 0 }),
	'expired keys are removed beside an open transaction that has taken over others');
is(expired_keys_there('taken'), 2, 'expired keys that an open transaction has taken over are kept');
$taker->query_safe('ROLLBACK');
ok(wait_until(sub { expired_keys_there('taken') == 0 }),
	'expired keys are removed once the transaction with them has ended');
$_->quit for $taker, $keeper;
ok(wait_until(sub { sql('SELECT count(*) FROM _outbox.batches') == 4 }),
	'the newest settled batch of each consumer, which is its cursor, and an open batch are kept');
is(sql("SELECT outbox_ack($open)"), 1, 'an open batch can be acked after pruning');
sql(enqueue('next'));
is(sql("SELECT string_agg(aggregate_id, ' ') "
	. "FROM unnest('{reads,pauses,works}'::text[]) c, outbox_consume(c, 10)"), 'next next next',
	'every consumer continues at its cursor after pruning');
ok(wait_until(sub { sql('SELECT count(*) FROM _outbox.batches') == 3 }),
	'settled batches are removed');

# pg_partman must not drop undelivered events.
my $partman = sql("SELECT _outbox.schema_of('pg_partman')");
my $no_retention = 'pg_partman must not have a retention for the log';
my $set = "UPDATE $partman.part_config SET retention = '7 days', retention_keep_table = false "
  . "WHERE parent_table = 'public.outbox_messages'";
like(refusal($node, $set),
	qr/ERROR:  55000: $no_retention.*HINT:  Set outbox.hot_retention/s,
	'a retention of pg_partman for the log is refused');
like(refusal($node, "SET session_replication_role = replica; $set"), qr/55000/,
	'a retention of pg_partman is refused under session_replication_role = replica');
like(refusal($node,
	"BEGIN; DELETE FROM $partman.part_config; "
	  . "INSERT INTO $partman.part_config (parent_table, control, partition_type, "
	  . "partition_interval, retention) VALUES ('public.outbox_messages', 'occurred_at', 'native', "
	  . "'1 day', '7 days')"),
	qr/55000/, 'a retention of pg_partman is refused in an INSERT');
like(refusal($node,
	"BEGIN; UPDATE $partman.part_config SET parent_table = 'x.y'; "
	  . "UPDATE $partman.part_config SET retention = '7 days'; "
	  . "UPDATE $partman.part_config SET parent_table = 'public.outbox_messages'"),
	qr/55000/, 'a retention of pg_partman is refused in several steps');
sql('CREATE TABLE other (at timestamptz NOT NULL) PARTITION BY RANGE (at)');
my ($kind, $width) = sql("SELECT extversion < '5' FROM pg_extension WHERE extname = 'pg_partman'")
  eq 't' ? ('native', 'daily') : ('range', '1 day');
sql("SELECT $partman.create_parent(p_parent_table := 'public.other', p_control := 'at', "
	. "p_type := '$kind', p_interval := '$width'); "
	. "UPDATE $partman.part_config SET retention = '7 days' WHERE parent_table = 'public.other'");
pass('other tables may have a retention of pg_partman');
sql("SELECT outbox_create_consumer('late', start_at => 'latest'); SELECT outbox_pause('late')");
sql(old_event(20));
comes_to($node, 20, 'log', 'a partition with an unread event is in the log');
sql("SELECT $partman.run_maintenance(); SELECT $partman.run_maintenance('public.outbox_messages')");
is(place($node, 20), 'log', 'maintenance of pg_partman keeps a partition with an unread event');
$before = -s $node->logfile;
# One transaction, so that maintenance sees both changes at once.
sql("BEGIN; ALTER TABLE $partman.part_config DISABLE TRIGGER outbox_forbid_retention; "
	. "$set; COMMIT");
ok(wait_until(sub {
	sql("SELECT retention IS NULL FROM $partman.part_config "
		. "WHERE parent_table = 'public.outbox_messages'") eq 't' }),
		'maintenance resets a retention of pg_partman that a superuser has set');
logged($node, $before, qr/WARNING:  outbox: removed pg_partman's retention of 7 days/,
	'the server log reports the reset of a retention of pg_partman');
like(refusal($node, $set), qr/55000/, 'a retention of pg_partman is refused after its reset');
like(status('pg_partman'), qr/^t/, 'outbox_status() shows pg_partman as ok after the reset');
is(place($node, 20), 'log', 'a partition with an unread event survives a retention of pg_partman');
sql("SELECT outbox_drop_consumer('late'); SELECT count(*) "
	. "FROM outbox_consumers c, outbox_consume(c.name, 10)");

# Maintenance by hand, and the roles that may do it.
sql("CREATE ROLE boss LOGIN; CREATE ROLE producer LOGIN; CREATE ROLE worker LOGIN; "
	. "CREATE ROLE stranger LOGIN;
	SELECT outbox_grant('boss', 'admin'), outbox_grant('producer', 'producer'), "
	  . "outbox_grant('worker', 'consumer')");
settings($node, maintenance_interval => '1h');
sleep 3; # the former interval is over
ok(wait_until(sub {
	sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox maintenance'") == 0 }),
	'no maintenance worker runs');
ok(wait_until(sub { sql('SELECT count(*) FROM outbox_maintain()') == 0 }),
	'outbox_maintain() has no step left to do');
sql(old_event(15));
sql("SELECT count(*) FROM outbox_consumers c, outbox_consume(c.name, 10)");
my $p15 = partition($node, 15);
is($node->safe_psql('postgres', q{SELECT * FROM outbox_maintain() WHERE step <> 'prune'},
	extra_params => [ '-U', 'boss' ]),
	"partitions|public.$p15|created for 1 events from the default partition|t\n"
	  . "archive|public.$p15|archived|t",
	'outbox_maintain() of an admin does the steps of maintenance and returns them');
is(sql("SELECT * FROM outbox_maintain() WHERE step <> 'prune'"), '',
	'a second outbox_maintain() has no step to do');
my %calls = ('outbox_maintain()' => '', 'outbox_held_partitions()' => '',
	"outbox_restore_partition('x')" => '22023');
for my $call (sort keys %calls)
{
	my $says = refusal($node, "SELECT * FROM $call", '-U', 'boss');
	$calls{$call} ? like($says, qr/ERROR:  $calls{$call}/, "an admin may call $call")
	  : is($says, '', "an admin may call $call");
	like(refusal($node, "SELECT * FROM $call", '-U', $_),
		qr/ERROR:  42501: permission denied for function/, "a $_ may not call $call")
	  for 'producer', 'worker', 'stranger';
}
like(refusal($node, "SELECT _outbox.drop_partition('$p15')", '-U', 'boss'), qr/42501/,
	'an admin may not call an internal function');

# Maintenance needs READ COMMITTED, and runs in one session at a time.
for my $isolation ('REPEATABLE READ', 'SERIALIZABLE')
{
	like(refusal($node, "BEGIN ISOLATION LEVEL $isolation; SELECT outbox_maintain()"),
		qr/ERROR:  25001: maintenance cannot run/,
		"outbox_maintain() is refused under $isolation");
}
settings($node, maintenance_interval => '1h');
my $another = $node->background_psql('postgres');
$another->query_safe('BEGIN; SELECT count(*) FROM outbox_maintain()');
is(sql('SELECT detail, changed FROM outbox_maintain()'), 'another session is running maintenance|f',
	'outbox_maintain() returns without work while another session is in it');
$another->query_safe('ROLLBACK');
$another->quit;
settings($node, maintenance_interval => '1s');

# statement_timeout and, from version 17 on, transaction_timeout of a database do not apply to its
# workers.
my @limits = split /\n/,
  sql(q{SELECT name FROM pg_settings WHERE name IN ('statement_timeout', 'transaction_timeout')});
sql('CREATE DATABASE hasty');
sql("ALTER DATABASE hasty SET $_ = '1ms'") for @limits;
$before = -s $node->logfile;
{
	local $ENV{PGOPTIONS} = join ' ', map { "-c $_=0" } @limits;
	my $receiver = OutboxReceiver->start('hasty');
	$node->safe_psql('hasty',
		'SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE; '
		  . 'SELECT outbox_setup()');
	create_sink($node, 'hasty', { url => $receiver->url('/hasty') }, undef, 'hasty');
	$node->safe_psql('hasty',
		"SELECT count(outbox_enqueue('Order', i, 'OrderConfirmed', '{}')) "
		  . "FROM generate_series(1, 1000) i");
	ok(wait_until(sub { $receiver->accepted_ids('/hasty') >= 1000 }, 30),
		'the relay delivers in a database with short timeouts');
	ok(eval { whole_run($node, 'hasty'); 1 }, 'maintenance runs in a database with short timeouts');
}
unlike(substr(slurp_file($node->logfile), $before),
	qr/canceling statement due to|terminating connection due to transaction timeout/,
	'no worker is cancelled by timeouts of its database');
sql('DROP DATABASE hasty');

# Every partition has a validated CHECK constraint, which lets ATTACH PARTITION to the archive skip
# its scan, and settings for early freezing.
is(sql(q{SELECT count(*) FROM _outbox.partitions() p JOIN pg_class c ON c.oid = p.partition
	WHERE NOT is_default AND NOT (
	c.reloptions @> '{autovacuum_freeze_min_age=0,autovacuum_vacuum_insert_scale_factor=0.05}'
	AND EXISTS (SELECT FROM pg_constraint WHERE conrelid = c.oid AND conname = 'outbox_bounds'
	AND convalidated))}), 0,
	'every log partition has its bounds as CHECK constraint and freezes early');

# DROP EXTENSION.
my $left = "SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'outbox%') + (SELECT count(*) "
  . "FROM pg_proc WHERE proname LIKE 'outbox%' OR proname LIKE 'idempotency%')
	+ (SELECT count(*) FROM pg_event_trigger) + (SELECT count(*) FROM pg_trigger "
	  . "WHERE NOT tgisinternal)";
sql(old_event(14));
sql('SELECT * FROM outbox_maintain()');
is(place($node, 15) . place($node, 14), 'archivelog',
	'archive and log have a partition each before DROP EXTENSION');
sql('DROP EXTENSION outbox');
is(sql("$left + (SELECT count(*) FROM $partman.part_config WHERE parent_table <> 'public.other')"),
	0, 'DROP EXTENSION leaves no table, partition, trigger or configuration');
is(sql("SELECT count(*) FROM pg_extension WHERE extname = 'pg_partman'"), 1,
	'DROP EXTENSION keeps pg_partman');
sql("CREATE SCHEMA box; CREATE EXTENSION outbox SCHEMA box");
sql('SET search_path = box, public, pg_catalog; SELECT outbox_setup(); ' . old_event(15)
	. 'SELECT * FROM outbox_maintain(); ' . old_event(14) . 'SELECT * FROM outbox_maintain()');
is(place($node, 15), 'archive', 'maintenance archives in a schema of its own');
sql('SET client_min_messages = warning; DROP SCHEMA box CASCADE');
is(sql($left), 0, 'DROP SCHEMA … CASCADE leaves no table, no partition and no trigger');
sql('CREATE EXTENSION outbox; SELECT outbox_setup()');
is(sql("SELECT string_agg(parent_table, ' ' ORDER BY parent_table) FROM $partman.part_config"),
	'box.outbox_messages public.other public.outbox_messages',
	'configuration left by DROP SCHEMA … CASCADE does not prevent CREATE EXTENSION');
sql("SELECT $partman.run_maintenance()");

$node->stop;
done_testing();
