# The audit log: every row gets into the chain, whatever its transaction does; whoever tampers is found out; retention, dump and
# restore leave it whole.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use OutboxReceiver qw(wait_until);
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $conf = "outbox.relay = off\nautovacuum = off\nmax_connections = 40\nmax_prepared_transactions = 20\n";
my $node = start_node('main', conf => $conf);
sub sql { return $node->safe_psql('postgres', join ';', @_) }
sub chain { return sql(q{SELECT count(*) FROM _outbox.run_step('audit_chain')}) }

# Of what is in the table: is it in the chain, once? And the other way round.
my $amiss = q{SELECT count(*) FILTER (WHERE c.id IS NULL), count(*) FILTER (WHERE a.id IS NULL), count(*) > 0
	FROM audit_log a FULL JOIN (SELECT id FROM _outbox.audit_chain WHERE id IS NOT NULL) c USING (id)};

# Writers of all kinds, while the chain is made again and again. None of them waits for it.
sql(q{SELECT audit_record('setup', 'begin', 'Test', '1')});
my %scripts = (
	short => q{SELECT audit_record('short', 'a', 'Order', ':client_id', NULL, '{"n": 1}');},
	long => q{BEGIN; SELECT audit_record('long', 'a', 'Order', ':client_id'); \sleep 150 ms
SELECT audit_record('long', 'b', 'Order', ':client_id'); \sleep 150 ms
COMMIT;},
	aborted => q{BEGIN; SELECT audit_record('aborted', 'a', 'Order', ':client_id'); \sleep 20 ms
ROLLBACK;},
	savepoint => q{BEGIN; SELECT audit_record('savepoint', 'a', 'Order', ':client_id'); SAVEPOINT s; SELECT audit_record('aborted', 'a', 'Order', ':client_id');
ROLLBACK TO s; \sleep 10 ms
SAVEPOINT t; SELECT audit_record('savepoint', 'b', 'Order', ':client_id'); RELEASE t; COMMIT;},
	idle => q{BEGIN; SELECT pg_current_xact_id(); \sleep 100 ms
SELECT audit_record('idle', 'a', 'Order', ':client_id'); COMMIT;},
	prepared => q{BEGIN; SELECT audit_record('prepared', 'a', 'Order', ':client_id'); PREPARE TRANSACTION 'audit:client_id'; \sleep 120 ms
COMMIT PREPARED 'audit:client_id';},
	direct => q{INSERT INTO audit_log (actor, action, entity_type, entity_id) VALUES ('direct', 'a', 'Order', 'x');});
my @running;
my $dir = PostgreSQL::Test::Utils::tempdir('scripts');
for my $name (sort keys %scripts)
{
	PostgreSQL::Test::Utils::append_to_file("$dir/$name.sql", "$scripts{$name}\n");
	my @rate = $name eq 'short' || $name eq 'direct' ? ('-R', 200) : ();
	push @running, IPC::Run::start([ 'pgbench', '-n', '-c', 2, '-T', 4, @rate, '-h', $node->host, '-p', $node->port, '-f', "$dir/$name.sql", 'postgres' ], '>', '/dev/null', '2>', \my $errors);
}
my ($rounds, $until, @wrong) = (0, time + 5);
while (time < $until || ($rounds <= 10 && time < $until + 30))
{
	chain();
	my $state = sql('SELECT count(*) FILTER (WHERE NOT ok), max(problem), max(broken_id) FROM audit_verify()');
	push @wrong, $state unless $state =~ /^0\|/;
	++$rounds;
}
is(scalar(grep { !$_->finish } @running), 0, 'all writers are through');
is("@wrong", '', "nothing was out of place in $rounds looks");
cmp_ok($rounds, '>', 10, 'there were many');
chain() for 1 .. 2;
is(sql($amiss), '0|0|t', 'every committed row is in the chain, once, and nothing else');
is(sql(q{SELECT string_agg(DISTINCT actor, ' ' ORDER BY actor) FROM audit_log}), 'direct idle long prepared savepoint setup short', 'of each kind, and nothing that was rolled back');
cmp_ok(sql(q{SELECT count(*) FROM (SELECT id < lag(id) OVER (PARTITION BY period ORDER BY position) AS late FROM _outbox.audit_chain) c WHERE late}), '>', 0, 'some came late');
like(sql(q{SELECT ok, rows_checked = (SELECT count(*) FROM audit_log), not_yet_chained FROM audit_verify()}), qr/^t\|t\|0$/, 'audit_verify() is content');
is(sql(q{SELECT settled_id = (SELECT last_value FROM _outbox.audit_log_id_seq) FROM _outbox.audit_progress}), 't', 'and all is settled');

# Who holds the chain up keeps nobody from writing.
sql('BEGIN', q{SELECT audit_record('prepared', 'late', 'Order', '1')}, q{PREPARE TRANSACTION 'holder'});
sql(q{SELECT audit_record('short', 'behind', 'Order', '1')});
chain() for 1 .. 3;
is(sql(q{SELECT not_yet_chained, ok FROM audit_verify()}), '1|t', 'rows behind an open transaction wait for the chain');
$node->restart;
sql(q{COMMIT PREPARED 'holder'});
chain() for 1 .. 2;
is(sql(q{SELECT not_yet_chained, ok FROM audit_verify()}) . ' ' . sql($amiss), '0|t 0|0|t', 'until it ends, a restart in between or not');
# In portions, too.
sql(map { "SELECT audit_record('short', 'portion', 'Order', '$_')" } 1 .. 10);
is(join(' ', map { sql('SELECT _outbox.audit_chain_rows(4)') } 1 .. 4), '4 4 2 0', 'the chain is made in portions');
is(sql($amiss), '0|0|t', 'without a gap between them');
# A maintenance that is rolled back leaves nothing, and one in the transaction of a writer leaves the writer's own row out.
sql(q{SELECT audit_record('short', 'undone', 'Order', '1')}, 'BEGIN', q{SELECT count(*) FROM _outbox.run_step('audit_chain')}, 'ROLLBACK');
sql('BEGIN', q{SELECT audit_record('own', 'a', 'Order', '1')}, q{SELECT count(*) FROM outbox_maintain()}, 'COMMIT');
is(sql(q{SELECT ok, not_yet_chained FROM audit_verify()}), 't|1', 'a row of the transaction that does maintenance waits');
chain() for 1 .. 2;
is(sql($amiss), '0|0|t', 'for the next one');
# Nobody who waits for events is called.
sql(q{SELECT outbox_create_consumer('waits')});
my $waiting = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', "CALL outbox_wait('waits', '2 seconds')" ], '>', \my $woken);
ok(wait_until(sub { sql(q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CALL outbox_wait%' AND wait_event_type = 'Extension'}) }, 10), 'a consumer waits');
sql(q{SELECT audit_record('short', 'unheard', 'Order', '1')});
$waiting->finish;
is($woken, "f\n", 'and waits for events, not for rows of the audit log');
chain() for 1 .. 2;

# Tampering, each in a transaction of its own that is rolled back.
sub tampered
{
	my ($name, $change, $expected, $known) = @_;
	my @lines = split /\n/, sql('BEGIN', 'ALTER TABLE _outbox.audit_chain DISABLE TRIGGER USER', 'ALTER TABLE audit_log DISABLE TRIGGER USER', $change,
		"SELECT ok, broken_id = coalesce((SELECT id FROM victim), broken_id), problem FROM audit_verify(known => '" . ($known // '{}') . "')", 'ROLLBACK');
	return like($lines[-1], $expected, $name);
}
# By their places in the chain, which are not in the order of their ids: of two, the first in the chain is the one that is found.
sql(map { "CREATE TABLE $_->[0] AS SELECT id FROM _outbox.audit_chain ORDER BY period, position OFFSET $_->[1] LIMIT 1" } [ victim => 50 ], [ other => 60 ]);
my $known = sql('SELECT jsonb_object_agg(month, last_hash) FROM audit_verify()');
my $victim = '(SELECT id FROM victim)';
tampered('untouched, all is well', 'SELECT 1', qr/^t\|\|$/, $known);
for my $change (q{actor = 'x'}, q{action = 'x'}, q{entity_type = 'x'}, q{entity_id = 'x2'}, q{before = '1'}, q{after = 'null'}, q{context = '{"a": 1}'}, 'tenant_id = 9', q{xid = '5'}, q{occurred_at = occurred_at + interval '1 microsecond'})
{
	tampered("a changed row is found: $change", "UPDATE audit_log SET $change WHERE id = $victim", qr/^f\|t\|the row was changed$/);
}
tampered('a removed row', "DELETE FROM audit_log WHERE id = $victim", qr/^f\|t\|the row is missing$/);
tampered('a row with an id that was never used', "DELETE FROM victim; INSERT INTO audit_log (id, actor, action, entity_type, entity_id) SELECT -1, 'x', 'a', 't', '1'", qr/^f\|t\|the row is not in the chain$/);
my $gap = sql('SELECT min(g) FROM generate_series(1, (SELECT max(id) FROM audit_log)) g WHERE NOT EXISTS (SELECT FROM audit_log WHERE id = g)');
tampered('a row with an old id', "UPDATE victim SET id = $gap; INSERT INTO audit_log (id, actor, action, entity_type, entity_id) SELECT $gap, 'x', 'a', 't', '1'", qr/^f\|t\|the row is not in the chain$/);
tampered('two rows swapped', "UPDATE audit_log SET id = -id WHERE id = $victim; UPDATE audit_log SET id = (SELECT id FROM victim) WHERE id = (SELECT id FROM other);
	UPDATE audit_log SET id = (SELECT id FROM other) WHERE id < 0", qr/^f\|t\|the row was changed$/);
tampered('an entry of the chain removed', "DELETE FROM _outbox.audit_chain WHERE id = $victim", qr/^f\|[tf]\|(the previous entry of the chain is missing|its entry in the chain was changed)$/);
tampered('row and entry removed', "DELETE FROM _outbox.audit_chain WHERE id = $victim; DELETE FROM audit_log WHERE id = $victim", qr/^f\|f\|the previous entry of the chain is missing$/);
tampered('row and entry changed', "UPDATE audit_log SET actor = 'x' WHERE id = $victim; UPDATE _outbox.audit_chain SET content = _outbox.audit_content(a) FROM audit_log a WHERE a.id = _outbox.audit_chain.id AND a.id = $victim", qr/^f\|t\|its entry in the chain was changed$/);
tampered('an entry with another time', "UPDATE _outbox.audit_chain SET chained_at = chained_at - interval '1 day' WHERE id = $victim", qr/^f\|t\|its entry in the chain was changed$/);
my $newest = '(SELECT max(position) FROM _outbox.audit_chain)';
my $cut_off = "DELETE FROM audit_log USING _outbox.audit_chain c WHERE c.id = audit_log.id AND c.position = $newest; DELETE FROM _outbox.audit_chain WHERE position = $newest";
tampered('the end cut off is not found', $cut_off, qr/^t\|\|$/);
tampered('unless its hash was kept elsewhere', $cut_off, qr/^f\|\|no entry of the chain has the known hash$/, $known);
tampered('nor a chain that was made anew', 'DELETE FROM _outbox.audit_chain; DELETE FROM _outbox.audit_progress; SELECT _outbox.audit_chain_rows(1000000)', qr/^t\|\|$/);
tampered('unless', 'DELETE FROM _outbox.audit_chain; DELETE FROM _outbox.audit_progress; SELECT _outbox.audit_chain_rows(1000000)', qr/^f\|\|no entry of the chain has the known hash$/, $known);
my $partition = sql(q{SELECT partition FROM _outbox.partitions('audit_log') WHERE lower_bound <= now() AND upper_bound > now()});
tampered('a partition dropped', "DROP TABLE $partition", qr/^f\|[tf]\|the row is missing$/);
# Maintenance does not cover it up.
sql('BEGIN', "INSERT INTO audit_log (id, actor, action, entity_type, entity_id) SELECT $gap, 'x', 'a', 't', '1'", 'COMMIT');
chain() for 1 .. 2;
is(sql("SELECT ok, broken_id = $gap, problem FROM audit_verify()"), 'f|t|the row is not in the chain', 'what was slipped in stays out of the chain');
sql("ALTER TABLE $partition DISABLE TRIGGER USER", "DELETE FROM audit_log WHERE id = $gap", "ALTER TABLE $partition ENABLE ALWAYS TRIGGER audit_forbid_change, ENABLE ALWAYS TRIGGER audit_refuse_truncate");
is(sql('SELECT ok FROM audit_verify()'), 't', 'all is well again');

# Retention. Rows from long ago come into the default partition, and maintenance gives them partitions of their own.
sub months_ago { return "(date_trunc('month', now(), 'UTC') - interval '$_[0] months' + interval '10 days')" }
sub old_row { my ($months, $type, $id) = @_; return "INSERT INTO audit_log (occurred_at, actor, action, entity_type, entity_id) VALUES (${\ months_ago($months)}, 'old', 'a', '$type', '$id')" }
sub month_ago { return sql("SELECT to_char(${\ months_ago($_[0])} AT TIME ZONE 'UTC', 'YYYY-MM')") }
sub verdict { return sql("SELECT ok, rows_checked, not_yet_chained, problem FROM audit_verify() WHERE month = '${\ month_ago($_[0])}'") }
sub types { return sql("SELECT coalesce(string_agg(entity_type || entity_id, ' ' ORDER BY id), '') FROM audit_log WHERE occurred_at = ${\ months_ago($_[0])}") }
sub maintain { return sql(q{SELECT string_agg(step || ' ' || detail, ', ') FROM outbox_maintain() WHERE step LIKE 'audit%' AND step <> 'audit_chain'}) }
for my $months (30, 26, 20)
{
	sql(map { old_row($months, @$_) } [ 'Order', 1 ], [ 'Login', 1 ], [ 'Order', 2 ], [ 'Contract', 1 ]);
}
sql(old_row(40, 'Order', 1));
chain() for 1 .. 2;
is(verdict(30), 't|4|0|', 'rows in the default partition are in the chain');
like(join('; ', map { maintain() } 1 .. 4),
	qr/^(audit_partitions created for [14] rows from the default partition, audit_partitions postponed to the next transaction[^;]*; ){3}audit_partitions created for [14] rows from the default partition(?!, audit_part)/,
	'they get partitions of their own, one at a time');
maintain() for 1 .. 5;
is(join(' ', map { verdict($_) . ':' . types($_) } 30, 26), 't|0|0|: t|0|0|:', 'what is older than two years is gone, and nothing is wrong');
is(verdict(20) . ':' . types(20), 't|4|0|:Order1 Login1 Order2 Contract1', 'what is not, is not');
is(sql(q{SELECT count(*) FROM _outbox.partitions('audit_log') WHERE upper_bound <= now() AND NOT is_default}), 1, 'partitions were dropped');
is(sql("SELECT count(*), bool_and(removed = '{(,)}') FROM _outbox.audit_chain WHERE period < now() - interval '25 months'"), '3|t', 'of each chain one entry is left');
$known = sql('SELECT jsonb_object_agg(month, last_hash) FROM audit_verify()');

sql(q{SELECT audit_set_retention('Login', '1 year')});
is(maintain(), 'audit_retention 1 rows removed', 'an entity type that goes earlier');
is(verdict(20) . ':' . types(20), 't|3|0|:Order1 Order2 Contract1', 'leaves the others, and a chain that is whole');
is(maintain(), '', 'once');
my $missing = sql('BEGIN', 'ALTER TABLE audit_log DISABLE TRIGGER USER', q{DELETE FROM audit_log WHERE entity_type = 'Contract'}, "SELECT ok, problem FROM audit_verify() WHERE month = '${\ month_ago(20)}'",
	q{SELECT audit_set_retention('Order', '1 year')}, q{SELECT detail FROM _outbox.run_step('audit_retention')}, 'ROLLBACK');
like($missing, qr/^f\|the row is missing\n\nstays, because row \d+ is missing from it/m, 'a row that somebody removed is found, and its partition is not dropped');
is(sql("SELECT bool_and(ok) FROM audit_verify(known => '$known')"), 't', 'hashes that were kept are still in the chain');
sql(q{SELECT audit_set_retention(t, '1 year') FROM unnest('{Order,Contract}'::text[]) t});
is(maintain(), 'audit_retention dropped', 'when all of it is due, the partition goes');
maintain();
is(verdict(20), 't|0|0|', 'which is in order');
sql(old_row(20, 'Contract', 7), 'ALTER SYSTEM SET outbox.audit_retention = -1', 'SELECT pg_reload_conf()', q{SELECT audit_set_retention('Contract', NULL)});
$node->poll_query_until('postgres', q{SELECT current_setting('outbox.audit_retention') = '-1'});
maintain() for 1 .. 2;
is(verdict(20) . ':' . types(20), 't|1|0|:Contract7', '-1 keeps for ever; a chain goes on behind what was dropped');
sql(q{INSERT INTO audit_log (occurred_at, actor, action, entity_type, entity_id) SELECT t, 'x', 'a', 't', '1' FROM unnest('{infinity,-infinity}'::timestamptz[]) t});
maintain() for 1 .. 2;
is(sql(q{SELECT string_agg(month || ' ' || ok || rows_checked, ', ' ORDER BY month) FROM audit_verify() WHERE month LIKE '%infinity'}), '-infinity true1, infinity true1', 'times without end do no harm');

# The maintenance worker does it by itself.
sql(q{ALTER SYSTEM SET outbox.relay = on}, q{ALTER SYSTEM SET outbox.maintenance_interval = '1s'}, 'SELECT pg_reload_conf()', q{SELECT audit_record('worker', 'a', 'Order', '1')});
ok(wait_until(sub { sql('SELECT sum(not_yet_chained) FROM audit_verify()') == 0 }, 15), 'the worker makes the chain');
sql(q{ALTER SYSTEM SET outbox.relay = off}, 'SELECT pg_reload_conf()');

# Dump and restore into another cluster, whose transactions have other numbers, with rows that are not in the chain yet.
# Keys that jsonb sorts in another order where the é is one byte.
sql(q{SELECT audit_record(U&'J\00FCrgen', 'a', 'Order', '1', '{"\u00e9": 1, "aa": [1.50, null, {"\u00fc": {}, "zz": [], "b": true}]}', '"\u00e9\n"', '{}')});
ok(wait_until(sub { chain(); sql('SELECT sum(not_yet_chained) FROM audit_verify()') == 0 }, 15), 'rows in letters of others are in the chain');
$known = sql('SELECT jsonb_object_agg(month, last_hash) FROM audit_verify()');
ok(wait_until(sub { sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'outbox%' AND datname = 'postgres'}) == 0 }, 15), 'the workers are gone');
sql(map { "SELECT audit_record('dump', 'a', 'Order', '$_')" } 1 .. 5);
my $everything = join ';', (map { "SELECT '$_', count(*), md5(string_agg(t::text, '|' ORDER BY t::text)) FROM $_ t" } qw(audit_log _outbox.audit_chain _outbox.audit_progress _outbox.audit_retention)),
  'SELECT last_value FROM _outbox.audit_log_id_seq', "SELECT count(*), string_agg(DISTINCT tgenabled::text, ' ') FROM pg_trigger WHERE tgname LIKE 'audit%' AND NOT tgisinternal";
my $before = sql($everything);
my $dump = "${PostgreSQL::Test::Utils::tmp_check}/audit.dump";
command_ok([ 'pg_dump', '-Fc', '-d', $node->connstr('postgres'), '-f', $dump ], 'pg_dump');
my $target = start_node('target', conf => $conf, no_extension => 1);
$target->safe_psql('postgres', q{CREATE DATABASE shop TEMPLATE template0});
command_ok([ 'pg_restore', '-d', $target->connstr('shop'), $dump ], 'pg_restore');
is($target->safe_psql('shop', $everything), $before, 'rows, chain, retention and triggers are all there');
is($target->safe_psql('shop', "SELECT bool_and(ok), sum(not_yet_chained) FROM audit_verify(known => '$known')"), 't|5', 'audit_verify() is content');
cmp_ok($target->safe_psql('shop', 'SELECT pg_current_xact_id()::text::bigint'), '<', sql("SELECT max(xid)::text::bigint FROM audit_log"), 'transactions are at lower numbers there');
$target->safe_psql('postgres', q{CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'});
command_ok([ 'pg_restore', '-d', $target->connstr('latin'), $dump ], 'pg_restore into another encoding');
is($target->safe_psql('latin', "SELECT bool_and(ok), sum(not_yet_chained) FROM audit_verify(known => '$known')"), 't|5', 'the hashes are the same there');
$target->safe_psql('shop', q{SELECT audit_record('target', 'a', 'Order', '1')});
$target->safe_psql('shop', 'BEGIN; SELECT audit_record(\'target\', \'late\', \'Order\', \'2\'); PREPARE TRANSACTION \'holder\'');
like($target->safe_psql('shop', q{SELECT detail FROM outbox_maintain() WHERE step = 'audit_chain'}), qr/lock timeout/, 'there the chain waits for whoever is writing, once');
$target->safe_psql('shop', q{COMMIT PREPARED 'holder'});
$target->safe_psql('shop', q{SELECT audit_record('target', 'b', 'Order', '1'); SELECT count(*) FROM outbox_maintain()});
is($target->safe_psql('shop', "SELECT bool_and(ok), sum(not_yet_chained) FROM audit_verify(known => '$known')"), 't|0', 'then it goes on, with what had not been in it and with what is new');
$target->safe_psql('shop', q{SELECT audit_record('target', 'c', 'Order', '1'); SELECT count(*) FROM outbox_maintain()});
is($target->safe_psql('shop', "SELECT bool_and(ok), sum(not_yet_chained) FROM audit_verify()"), 't|0', 'and on');
my ($code, $out, $err) = $target->psql('shop', "TRUNCATE $partition");
like($err, qr/append-only/, 'restored partitions are append-only');
$target->safe_psql('shop', 'DROP EXTENSION outbox');
is($target->safe_psql('shop', q{SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'audit%') + (SELECT count(*) FROM pg_proc WHERE proname LIKE 'audit%') + (SELECT count(*) FROM part_config)}), 0, 'DROP EXTENSION leaves nothing');

$target->stop;
$node->stop;
done_testing();
