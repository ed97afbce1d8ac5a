# The audit log: every committed row enters the hash chain, audit_verify() detects tampering, and
# retention, dump and restore keep the chain valid.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use OutboxReceiver qw(wait_until);
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $conf = "outbox.relay = off\nautovacuum = off\nmax_connections = 40\n"
  . "max_prepared_transactions = 20\n";
my $node = start_node('main', conf => $conf);
sub sql { return $node->safe_psql('postgres', join ';', @_) }
sub chain { return sql(q{SELECT count(*) FROM _outbox.run_step('audit_chain')}) }

# Rows of the table without an entry of the chain, entries without a row, and whether there are any
# rows.
my $unmatched = q{SELECT count(*) FILTER (WHERE c.id IS NULL), count(*) FILTER (WHERE a.id IS NULL),
	count(*) > 0
	FROM audit_log a FULL JOIN (SELECT id FROM _outbox.audit_chain WHERE id IS NOT NULL) c
	USING (id)};

# Writers of seven kinds run while the chain is extended repeatedly. No writer waits for it.
sql(q{SELECT audit_record('setup', 'begin', 'Test', '1')});
my %scripts = (
	short => q{SELECT audit_record('short', 'a', 'Order', ':client_id', NULL, '{"n": 1}');},
	long => q{BEGIN; SELECT audit_record('long', 'a', 'Order', ':client_id'); \sleep 150 ms
SELECT audit_record('long', 'b', 'Order', ':client_id'); \sleep 150 ms
COMMIT;},
	aborted => q{BEGIN; SELECT audit_record('aborted', 'a', 'Order', ':client_id'); \sleep 20 ms
ROLLBACK;},
	savepoint => q{BEGIN; SELECT audit_record('savepoint', 'a', 'Order', ':client_id'); SAVEPOINT s;
		SELECT audit_record('aborted', 'a', 'Order', ':client_id');
ROLLBACK TO s; \sleep 10 ms
SAVEPOINT t; SELECT audit_record('savepoint', 'b', 'Order', ':client_id'); RELEASE t; COMMIT;},
	idle => q{BEGIN; SELECT pg_current_xact_id(); \sleep 100 ms
SELECT audit_record('idle', 'a', 'Order', ':client_id'); COMMIT;},
	prepared => q{BEGIN; SELECT audit_record('prepared', 'a', 'Order', ':client_id');
		PREPARE TRANSACTION 'audit:client_id'; \sleep 120 ms
COMMIT PREPARED 'audit:client_id';},
	direct => q{INSERT INTO audit_log (actor, action, entity_type, entity_id)
		VALUES ('direct', 'a', 'Order', 'x');});
my @running;
my $dir = PostgreSQL::Test::Utils::tempdir('scripts');
for my $name (sort keys %scripts)
{
	PostgreSQL::Test::Utils::append_to_file("$dir/$name.sql", "$scripts{$name}\n");
	my @rate = $name eq 'short' || $name eq 'direct' ? ('-R', 200) : ();
	push @running,
	  IPC::Run::start([ 'pgbench', '-n', '-c', 2, '-T', 4, @rate, '-h', $node->host, '-p',
		$node->port, '-f', "$dir/$name.sql", 'postgres' ], '>', '/dev/null', '2>', \my $errors);
}
my ($rounds, $until, @wrong) = (0, time + 5);
while (time < $until || ($rounds <= 10 && time < $until + 30))
{
	chain();
	my $state = sql('SELECT count(*) FILTER (WHERE NOT ok), max(problem), max(broken_id) '
		. 'FROM audit_verify()');
	push @wrong, $state unless $state =~ /^0\|/;
	++$rounds;
}
is(scalar(grep { !$_->finish } @running), 0, 'no writer fails while the chain is extended');
is("@wrong", '', "audit_verify() finds no problem while writers run ($rounds calls)");
cmp_ok($rounds, '>', 10, 'the chain is extended more than 10 times while writers run');
chain() for 1 .. 2;
is(sql($unmatched), '0|0|t', 'the chain has each committed row once and nothing else');
is(sql(q{SELECT string_agg(DISTINCT actor, ' ' ORDER BY actor) FROM audit_log}),
	'direct idle long prepared savepoint setup short',
	'the audit log has rows of every committed writer and none that was rolled back');
cmp_ok(sql(q{SELECT count(*) FROM (SELECT id < lag(id) OVER (PARTITION BY period
	ORDER BY position) AS late FROM _outbox.audit_chain) c WHERE late}), '>', 0,
	'late commits are appended to the chain behind higher ids');
like(sql(q{SELECT ok, rows_checked = (SELECT count(*) FROM audit_log), not_yet_chained
	FROM audit_verify()}), qr/^t\|t\|0$/, 'audit_verify() checks every row and finds no problem');
is(sql(q{SELECT settled_id = (SELECT last_value FROM _outbox.audit_log_id_seq)
	FROM _outbox.audit_progress}), 't', 'audit_progress reaches the last id that was drawn');

# An open transaction delays the chain, but no writer.
sql('BEGIN', q{SELECT audit_record('prepared', 'late', 'Order', '1')},
	q{PREPARE TRANSACTION 'holder'});
sql(q{SELECT audit_record('short', 'behind', 'Order', '1')});
chain() for 1 .. 3;
is(sql(q{SELECT not_yet_chained, ok FROM audit_verify()}), '1|t',
	'a row behind an open transaction is not chained yet');
$node->restart;
sql(q{COMMIT PREPARED 'holder'});
chain() for 1 .. 2;
is(sql(q{SELECT not_yet_chained, ok FROM audit_verify()}) . ' ' . sql($unmatched), '0|t 0|0|t',
	'a row behind a prepared transaction is chained after its end, also across a restart');
# The chain in portions.
sql(map { "SELECT audit_record('short', 'portion', 'Order', '$_')" } 1 .. 10);
is(join(' ', map { sql('SELECT _outbox.audit_chain_rows(4)') } 1 .. 4), '4 4 2 0',
	'audit_chain_rows() chains at most the given number of rows');
is(sql($unmatched), '0|0|t', 'portions of the chain leave no row out');
# A rolled-back maintenance run changes nothing. A run in a writer's transaction leaves out the row
# of that transaction.
sql(q{SELECT audit_record('short', 'undone', 'Order', '1')}, 'BEGIN',
	q{SELECT count(*) FROM _outbox.run_step('audit_chain')}, 'ROLLBACK');
sql('BEGIN', q{SELECT audit_record('own', 'a', 'Order', '1')},
	q{SELECT count(*) FROM outbox_maintain()}, 'COMMIT');
is(sql(q{SELECT ok, not_yet_chained FROM audit_verify()}), 't|1',
	'maintenance does not chain a row of its own transaction');
chain() for 1 .. 2;
is(sql($unmatched), '0|0|t', 'the next maintenance run chains that row');
# A row of the audit log does not wake outbox_wait().
sql(q{SELECT outbox_create_consumer('waits')});
my $waiting = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c',
	"CALL outbox_wait('waits', '2 seconds')" ], '>', \my $woken);
ok(wait_until(sub {
	sql(q{SELECT count(*) FROM pg_stat_activity
		WHERE query LIKE 'CALL outbox_wait%' AND wait_event_type = 'Extension'}) }, 10),
		'outbox_wait() waits for the consumer');
sql(q{SELECT audit_record('short', 'unheard', 'Order', '1')});
$waiting->finish;
is($woken, "f\n", 'a row of the audit log does not wake outbox_wait()');
chain() for 1 .. 2;

# Each case of tampering has a transaction of its own that is rolled back.
sub tampered
{
	my ($name, $change, $expected, $known) = @_;
	my @lines = split /\n/,
	  sql('BEGIN', 'ALTER TABLE _outbox.audit_chain DISABLE TRIGGER USER',
		'ALTER TABLE audit_log DISABLE TRIGGER USER', $change,
		"SELECT ok, broken_id = coalesce((SELECT id FROM victim), broken_id), problem "
		  . "FROM audit_verify(known => '" . ($known // '{}') . "')", 'ROLLBACK');
	return like($lines[-1], $expected, $name);
}
# Victims are chosen by position in the chain, which differs from the order of ids: of two tampered
# rows audit_verify() reports the one with the lower position.
sql(map { "CREATE TABLE $_->[0] AS SELECT id FROM _outbox.audit_chain "
	. "ORDER BY period, position OFFSET $_->[1] LIMIT 1" } [ victim => 50 ], [ other => 60 ]);
my $known = sql('SELECT jsonb_object_agg(month, last_hash) FROM audit_verify()');
my $victim = '(SELECT id FROM victim)';
tampered('audit_verify() finds no problem in an untouched log', 'SELECT 1', qr/^t\|\|$/, $known);
for my $change (q{actor = 'x'}, q{action = 'x'}, q{entity_type = 'x'}, q{entity_id = 'x2'},
	q{before = '1'}, q{after = 'null'}, q{context = '{"a": 1}'}, 'tenant_id = 9', q{xid = '5'},
	q{occurred_at = occurred_at + interval '1 microsecond'})
{
	tampered("audit_verify() detects a changed row: $change",
		"UPDATE audit_log SET $change WHERE id = $victim", qr/^f\|t\|the row was changed$/);
}
tampered('audit_verify() detects a deleted row', "DELETE FROM audit_log WHERE id = $victim",
	qr/^f\|t\|the row is missing$/);
tampered('audit_verify() detects an inserted row with an unused id',
	"DELETE FROM victim; INSERT INTO audit_log (id, actor, action, entity_type, entity_id) "
	  . "SELECT -1, 'x', 'a', 't', '1'", qr/^f\|t\|the row is not in the chain$/);
my $gap = sql('SELECT min(g) FROM generate_series(1, (SELECT max(id) FROM audit_log)) g '
	. 'WHERE NOT EXISTS (SELECT FROM audit_log WHERE id = g)');
tampered('audit_verify() detects an inserted row with an old id',
	"UPDATE victim SET id = $gap; INSERT INTO audit_log (id, actor, action, entity_type, "
	  . "entity_id) SELECT $gap, 'x', 'a', 't', '1'", qr/^f\|t\|the row is not in the chain$/);
tampered('audit_verify() detects two rows with swapped ids',
	"UPDATE audit_log SET id = -id WHERE id = $victim; UPDATE audit_log SET id = (SELECT id "
	  . "FROM victim) WHERE id = (SELECT id FROM other);
	UPDATE audit_log SET id = (SELECT id FROM other) WHERE id < 0",
	qr/^f\|t\|the row was changed$/);
my $before_missing = 'the previous entry of the chain is missing';
my $entry_changed = 'its entry in the chain was changed';
tampered('audit_verify() detects a deleted entry of the chain',
	"DELETE FROM _outbox.audit_chain WHERE id = $victim",
	qr/^f\|[tf]\|($before_missing|$entry_changed)$/);
tampered('audit_verify() detects a row deleted together with its entry',
	"DELETE FROM _outbox.audit_chain WHERE id = $victim; DELETE FROM audit_log WHERE id = $victim",
	qr/^f\|f\|the previous entry of the chain is missing$/);
tampered('audit_verify() detects a row changed together with its entry',
	"UPDATE audit_log SET actor = 'x' WHERE id = $victim; "
	  . "UPDATE _outbox.audit_chain SET content = _outbox.audit_content(a) FROM audit_log a "
	  . "WHERE a.id = _outbox.audit_chain.id AND a.id = $victim",
	qr/^f\|t\|its entry in the chain was changed$/);
tampered('audit_verify() detects a changed time of chaining',
	"UPDATE _outbox.audit_chain SET chained_at = chained_at - interval '1 day' WHERE id = $victim",
	qr/^f\|t\|its entry in the chain was changed$/);
my $newest = '(SELECT max(position) FROM _outbox.audit_chain)';
my $cut_off = "DELETE FROM audit_log USING _outbox.audit_chain c "
  . "WHERE c.id = audit_log.id AND c.position = $newest; DELETE FROM _outbox.audit_chain "
  . "WHERE position = $newest";
tampered('audit_verify() cannot detect a truncated end of the chain without a known hash', $cut_off,
	qr/^t\|\|$/);
tampered('audit_verify() detects a truncated end of the chain by a known hash', $cut_off,
	qr/^f\|\|no entry of the chain has the known hash$/, $known);
tampered('audit_verify() cannot detect a rebuilt chain without a known hash',
	'DELETE FROM _outbox.audit_chain; DELETE FROM _outbox.audit_progress; '
	  . 'SELECT _outbox.audit_chain_rows(1000000)', qr/^t\|\|$/);
tampered('audit_verify() detects a rebuilt chain by a known hash',
	'DELETE FROM _outbox.audit_chain; DELETE FROM _outbox.audit_progress; '
	  . 'SELECT _outbox.audit_chain_rows(1000000)',
	qr/^f\|\|no entry of the chain has the known hash$/, $known);
my $partition = sql(q{SELECT partition FROM _outbox.partitions('audit_log')
	WHERE lower_bound <= now() AND upper_bound > now()});
tampered('audit_verify() detects a dropped partition', "DROP TABLE $partition",
	qr/^f\|[tf]\|the row is missing$/);
# Maintenance does not hide tampering.
sql('BEGIN',
	"INSERT INTO audit_log (id, actor, action, entity_type, entity_id) "
	  . "SELECT $gap, 'x', 'a', 't', '1'", 'COMMIT');
chain() for 1 .. 2;
is(sql("SELECT ok, broken_id = $gap, problem FROM audit_verify()"),
	'f|t|the row is not in the chain', 'maintenance does not chain a tampered row');
sql("ALTER TABLE $partition DISABLE TRIGGER USER", "DELETE FROM audit_log WHERE id = $gap",
	"ALTER TABLE $partition ENABLE ALWAYS TRIGGER audit_forbid_change, "
	  . "ENABLE ALWAYS TRIGGER audit_refuse_truncate");
is(sql('SELECT ok FROM audit_verify()'), 't',
	'audit_verify() finds no problem once the tampered row is deleted');

# Retention: old rows are inserted into the default partition, and maintenance moves them to
# partitions of their own.
sub months_ago
{
	return "(date_trunc('month', now(), 'UTC') - interval '$_[0] months' + interval '10 days')";
}
sub old_row
{
	my ($months, $type, $id) = @_;
	return "INSERT INTO audit_log (occurred_at, actor, action, entity_type, entity_id) "
	  . "VALUES (${\ months_ago($months)}, 'old', 'a', '$type', '$id')";
}
sub month_ago { return sql("SELECT to_char(${\ months_ago($_[0])} AT TIME ZONE 'UTC', 'YYYY-MM')") }
sub verdict
{
	return sql("SELECT ok, rows_checked, not_yet_chained, problem FROM audit_verify() "
		. "WHERE month = '${\ month_ago($_[0])}'");
}
sub types
{
	return sql("SELECT coalesce(string_agg(entity_type || entity_id, ' ' ORDER BY id), '') "
		. "FROM audit_log WHERE occurred_at = ${\ months_ago($_[0])}");
}
sub maintain
{
	return sql(q{SELECT string_agg(step || ' ' || detail, ', ') FROM outbox_maintain()
		WHERE step LIKE 'audit%' AND step <> 'audit_chain'});
}
for my $months (30, 26, 20)
{
	sql(map { old_row($months, @$_) } [ 'Order', 1 ], [ 'Login', 1 ], [ 'Order', 2 ],
		[ 'Contract', 1 ]);
}
sql(old_row(40, 'Order', 1));
chain() for 1 .. 2;
is(verdict(30), 't|4|0|', 'rows of the default partition are chained');
my $made = 'audit_partitions created for [14] rows from the default partition';
my $waits = 'audit_partitions postponed to the next transaction[^;]*';
like(join('; ', map { maintain() } 1 .. 4), qr/^($made, $waits; ){3}$made(?!, audit_part)/,
	'maintenance moves rows of the default partition to new partitions, one per call');
maintain() for 1 .. 5;
is(join(' ', map { verdict($_) . ':' . types($_) } 30, 26), 't|0|0|: t|0|0|:',
	'partitions beyond outbox.audit_retention are dropped, and their chains stay valid');
is(verdict(20) . ':' . types(20), 't|4|0|:Order1 Login1 Order2 Contract1',
	'a partition within outbox.audit_retention is kept');
is(sql(q{SELECT count(*) FROM _outbox.partitions('audit_log')
	WHERE upper_bound <= now() AND NOT is_default}), 1, 'only one partition of the past is left');
is(sql("SELECT count(*), bool_and(removed = '{(,)}') FROM _outbox.audit_chain "
	. "WHERE period < now() - interval '25 months'"), '3|t',
	'one entry of the chain is left for each dropped partition');
$known = sql('SELECT jsonb_object_agg(month, last_hash) FROM audit_verify()');

sql(q{SELECT audit_set_retention('Login', '1 year')});
is(maintain(), 'audit_retention 1 rows removed',
	'an entity type with a shorter retention is removed first');
is(verdict(20) . ':' . types(20), 't|3|0|:Order1 Order2 Contract1',
	'removal of one entity type keeps the other rows and a valid chain');
is(maintain(), '', 'rows of an entity type are removed once');
my $missing = sql('BEGIN', 'ALTER TABLE audit_log DISABLE TRIGGER USER',
	q{DELETE FROM audit_log WHERE entity_type = 'Contract'},
	"SELECT ok, problem FROM audit_verify() WHERE month = '${\ month_ago(20)}'",
	q{SELECT audit_set_retention('Order', '1 year')},
	q{SELECT detail FROM _outbox.run_step('audit_retention')}, 'ROLLBACK');
like($missing, qr/^f\|the row is missing\n\nstays, because row \d+ is missing from it/m,
	'a partition with a row deleted by hand is reported and not dropped');
is(sql("SELECT bool_and(ok) FROM audit_verify(known => '$known')"), 't',
	'known hashes stay valid after retention');
sql(q{SELECT audit_set_retention(t, '1 year') FROM unnest('{Order,Contract}'::text[]) t});
is(maintain(), 'audit_retention dropped', 'a partition is dropped once all of its rows are due');
maintain();
is(verdict(20), 't|0|0|', 'the chain of a dropped partition is valid');
sql(old_row(20, 'Contract', 7), 'ALTER SYSTEM SET outbox.audit_retention = -1',
	'SELECT pg_reload_conf()', q{SELECT audit_set_retention('Contract', NULL)});
$node->poll_query_until('postgres', q{SELECT current_setting('outbox.audit_retention') = '-1'});
maintain() for 1 .. 2;
is(verdict(20) . ':' . types(20), 't|1|0|:Contract7',
	'audit_retention = -1 keeps rows, and a chain continues after a dropped partition');
sql(q{INSERT INTO audit_log (occurred_at, actor, action, entity_type, entity_id)
	SELECT t, 'x', 'a', 't', '1' FROM unnest('{infinity,-infinity}'::timestamptz[]) t});
maintain() for 1 .. 2;
is(sql(q{SELECT string_agg(month || ' ' || ok || rows_checked, ', ' ORDER BY month)
	FROM audit_verify() WHERE month LIKE '%infinity'}), '-infinity true1, infinity true1',
	'rows with infinite times are chained and verified');

# The maintenance worker extends the chain.
sql(q{ALTER SYSTEM SET outbox.relay = on}, q{ALTER SYSTEM SET outbox.maintenance_interval = '1s'},
	'SELECT pg_reload_conf()', q{SELECT audit_record('worker', 'a', 'Order', '1')});
ok(wait_until(sub { sql('SELECT sum(not_yet_chained) FROM audit_verify()') == 0 }, 15),
	'the maintenance worker chains new rows');
sql(q{ALTER SYSTEM SET outbox.relay = off}, 'SELECT pg_reload_conf()');

# Dump and restore, with rows that are not chained yet, into another cluster with other xids.
# jsonb sorts these keys in another order in LATIN1, where the é is one byte.
sql(q{SELECT audit_record(U&'J\00FCrgen', 'a', 'Order', '1',
	'{"\u00e9": 1, "aa": [1.50, null, {"\u00fc": {}, "zz": [], "b": true}]}', '"\u00e9\n"', '{}')});
ok(wait_until(sub { chain(); sql('SELECT sum(not_yet_chained) FROM audit_verify()') == 0 }, 15),
	'rows with non-ASCII text are chained');
$known = sql('SELECT jsonb_object_agg(month, last_hash) FROM audit_verify()');
ok(wait_until(sub {
	sql(q{SELECT count(*) FROM pg_stat_activity
		WHERE backend_type LIKE 'outbox%' AND datname = 'postgres'}) == 0 }, 15),
		'the workers exit after outbox.relay is switched off');
sql(map { "SELECT audit_record('dump', 'a', 'Order', '$_')" } 1 .. 5);
my $everything = join ';',
  (map { "SELECT '$_', count(*), md5(string_agg(t::text, '|' ORDER BY t::text)) "
	. "FROM $_ "
	. "t" } qw(audit_log _outbox.audit_chain _outbox.audit_progress _outbox.audit_retention)),
  'SELECT last_value FROM _outbox.audit_log_id_seq',
  "SELECT count(*), string_agg(DISTINCT tgenabled::text, ' ') FROM pg_trigger "
  . "WHERE tgname LIKE 'audit%' AND NOT tgisinternal";
my $before = sql($everything);
my $dump = "${PostgreSQL::Test::Utils::tmp_check}/audit.dump";
command_ok([ 'pg_dump', '-Fc', '-d', $node->connstr('postgres'), '-f', $dump ], 'pg_dump succeeds');
my $target = start_node('target', conf => $conf, no_extension => 1);
$target->safe_psql('postgres', q{CREATE DATABASE shop TEMPLATE template0});
command_ok([ 'pg_restore', '-d', $target->connstr('shop'), $dump ], 'pg_restore succeeds');
is($target->safe_psql('shop', $everything), $before,
	'a restore keeps rows, chain, retention and triggers of the audit log');
is($target->safe_psql('shop',
	"SELECT bool_and(ok), sum(not_yet_chained) FROM audit_verify(known => '$known')"), 't|5',
	'audit_verify() finds no problem in a restored chain');
cmp_ok($target->safe_psql('shop', 'SELECT pg_current_xact_id()::text::bigint'), '<',
	sql("SELECT max(xid)::text::bigint FROM audit_log"),
	'the next xid of the target cluster is below those in the audit log');
$target->safe_psql('postgres', q{CREATE DATABASE latin TEMPLATE template0
	ENCODING 'LATIN1' LOCALE 'C'});
command_ok([ 'pg_restore', '-d', $target->connstr('latin'), $dump ],
	'pg_restore into another encoding succeeds');
is($target->safe_psql('latin',
	"SELECT bool_and(ok), sum(not_yet_chained) FROM audit_verify(known => '$known')"), 't|5',
	'hashes of the chain do not depend on the encoding');
$target->safe_psql('shop', q{SELECT audit_record('target', 'a', 'Order', '1')});
$target->safe_psql('shop',
	'BEGIN; SELECT audit_record(\'target\', \'late\', \'Order\', \'2\'); '
	  . 'PREPARE TRANSACTION \'holder\'');
like($target->safe_psql('shop', q{SELECT detail FROM outbox_maintain() WHERE step = 'audit_chain'}),
	qr/lock timeout/,
	'the first chaining after a restore waits for open transactions, up to lock_timeout');
$target->safe_psql('shop', q{COMMIT PREPARED 'holder'});
$target->safe_psql('shop', q{SELECT audit_record('target', 'b', 'Order', '1'); SELECT count(*)
	FROM outbox_maintain()});
is($target->safe_psql('shop',
	"SELECT bool_and(ok), sum(not_yet_chained) FROM audit_verify(known => '$known')"), 't|0',
	'the chain continues after a restore with unchained and new rows');
$target->safe_psql('shop', q{SELECT audit_record('target', 'c', 'Order', '1'); SELECT count(*)
	FROM outbox_maintain()});
is($target->safe_psql('shop', "SELECT bool_and(ok), sum(not_yet_chained) FROM audit_verify()"),
	't|0', 'a second maintenance run after a restore extends the chain');
my ($code, $out, $err) = $target->psql('shop', "TRUNCATE $partition");
like($err, qr/append-only/, 'a restored partition of the audit log refuses TRUNCATE');
$target->safe_psql('shop', 'DROP EXTENSION outbox');
is($target->safe_psql('shop', q{SELECT (SELECT count(*) FROM pg_class
	WHERE relname LIKE 'audit%') + (SELECT count(*) FROM pg_proc
	WHERE proname LIKE 'audit%') + (SELECT count(*) FROM part_config)}), 0,
	'DROP EXTENSION drops every table and function of the audit log');

$target->stop;
$node->stop;
done_testing();
