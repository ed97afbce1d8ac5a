# A partition is attached while a session builds its partition descriptor. The relation cache of the
# server then lacks the partition until the next invalidation. Claims and appends must still see it.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use OutboxReceiver;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_node('main', conf => "outbox.relay = off\nautovacuum = off\n");
$node->safe_psql('postgres', q{SELECT outbox_setup(), _outbox.audit_setup(),
	outbox_create_consumer('worker', start_at => 'earliest')});
my $mover = $node->background_psql('postgres');

# Starts a session whose relation cache lacks partitions that were made for rows of the default
# partition.
sub misled_session
{
	my ($table, $strays) = @_;
	my $reader = $node->background_psql('postgres');
	# The session caches all relations of the lookup. GRANT invalidates the partitions of the table.
	$reader->query_safe("SELECT count(*) FROM $table");
	$node->safe_psql('postgres', qq{DO \$\$ BEGIN
		EXECUTE (SELECT string_agg(format('GRANT SELECT ON %s TO pg_monitor', relid), ';')
		FROM pg_partition_tree('$table'));
		END \$\$});
	$reader->query_safe("SELECT count(*) FROM ONLY $table");
	$mover->query_safe('BEGIN; LOCK TABLE pg_class IN ACCESS EXCLUSIVE MODE');

	# The session has the list of partitions and waits for pg_class to look them up one by one,
	# while partitions are added.
	$reader->query_until(qr/begun/, "\\echo begun\nSELECT count(*) FROM $table;\n");
	ok(wait_until(sub {
		$mover->query_safe(q{SELECT count(*) FROM pg_locks
			WHERE relation = 'pg_class'::regclass AND NOT granted}) == 1 }),
		"$table: the reader waits for pg_class during its lookup of partitions");
	# One partition per call.
	my @moved = map { $mover->query_safe("SELECT sum(events) "
		. "FROM _outbox.move_default_rows('$table')") } 1 .. $strays;
	is("@moved", join(' ', (1) x $strays),
		"$table: rows of the default partition are moved to new partitions");
	$mover->query_safe('COMMIT');
	return $reader;
}

sub old_event
{
	return qq{INSERT INTO outbox_messages (occurred_at, aggregate_type, aggregate_id, event_type,
		payload) VALUES ('$_[0]', 'Order', '1', 'Stray', '{}')};
}

$node->safe_psql('postgres', old_event('2020-02-29'));
# The partition of today is dropped, too.
$node->safe_psql('postgres', enqueue(1));
$node->safe_psql('postgres', q{DO $$ BEGIN EXECUTE format('DROP TABLE %s',
	(SELECT tableoid::regclass FROM outbox_messages WHERE event_type <> 'Stray')); END $$});
$node->safe_psql('postgres', enqueue(2));
my $reader = misled_session('outbox_messages', 2);
my $claim = q{SELECT string_agg(event_type, ' and ' ORDER BY id) FROM outbox_claim('worker', 10)};
like($reader->query_safe($claim), qr/Stray and OrderConfirmed/,
	'a claim reads partitions that the relation cache lacks, in the order of the log');
$reader->query_safe(q{SELECT count(outbox_ack(token)) FROM (SELECT DISTINCT lock_token AS token
	FROM outbox_deliveries WHERE consumer_name = 'worker') b});
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox_claim('worker', 10)}), 0,
	'a claim leaves no event of partitions that the relation cache lacks');
$reader->query_safe(q{SELECT outbox_seek('worker', '2020-01-01')});
like($node->safe_psql('postgres', $claim), qr/Stray and OrderConfirmed/,
	'outbox_seek() finds events of partitions that the relation cache lacks');
$reader->quit;

$node->safe_psql('postgres', q{DO $$ BEGIN EXECUTE format('DROP TABLE %s',
	(SELECT tableoid::regclass FROM outbox_messages WHERE event_type <> 'Stray')); END $$});
$node->safe_psql('postgres', enqueue(3));
$reader = misled_session('outbox_messages', 1);
like($reader->query_safe(q{SELECT outbox_enqueue('Order', 1, 'Late', '{}') IS NOT NULL}), qr/t$/,
	'an append succeeds while the relation cache lacks its partition');
is($node->safe_psql('postgres', q{SELECT tableoid <> 'outbox_messages_default'::regclass
	FROM outbox_messages WHERE event_type = 'Late'}),
	't', 'an append goes to a partition that the relation cache lacks');
$reader->quit;

# A partition that the session has cached is detached and locked by another session. A claim does
# not wait for it.
$reader = $node->background_psql('postgres');
$reader->query_safe($claim);
my $detached = $node->safe_psql('postgres',
	'SELECT partition FROM _outbox.partitions() ORDER BY upper_bound DESC NULLS LAST LIMIT 1');
$node->safe_psql('postgres', "ALTER TABLE outbox_messages DETACH PARTITION $detached");
$mover->query_safe("BEGIN; LOCK TABLE $detached");
$node->safe_psql('postgres', enqueue(4));
my $started = time;
like($reader->query_safe("SET statement_timeout = '20s'; $claim"), qr/OrderConfirmed/,
	'a claim succeeds while another session has locked a detached partition');
cmp_ok(time - $started, '<', 10, 'a claim does not wait for a detached partition');
$mover->query_safe("ROLLBACK");
$reader->quit;

# A failed lookup of partitions is not cached as complete.
$reader = $node->background_psql('postgres', on_error_stop => 0);
$reader->query_safe($claim);
$node->safe_psql('postgres', old_event('2019-02-28'));
is($mover->query_safe(q{SELECT sum(events) FROM _outbox.move_default_rows('outbox_messages')}), 1,
	'another row of the default partition is moved to a new partition');
$mover->query_safe('BEGIN; LOCK TABLE pg_inherits IN ACCESS EXCLUSIVE MODE');
$reader->query("SET statement_timeout = '300ms'; $claim");
like(slurp_file($node->logfile), qr/canceling statement due to statement timeout/,
	'a claim fails while pg_inherits is locked');
$mover->query_safe('ROLLBACK');
like(scalar $reader->query("SET statement_timeout = 0; $claim"), qr/Stray/,
	'a repeated claim gets the events of a new partition after a failed lookup');
$reader->quit;

# A row that the chain of the audit log passes over would never be chained.
$node->safe_psql('postgres', q{INSERT INTO audit_log (occurred_at, actor, action, entity_type,
	entity_id) VALUES ('2020-02-29', 'she', 'a', 't', '1')});
$reader = misled_session('audit_log', 1);
$reader->query_safe('SELECT _outbox.audit_chain_rows(1000)') for 1 .. 2;
is($node->safe_psql('postgres', 'SELECT ok, rows_checked, not_yet_chained FROM audit_verify()'),
	't|1|0', 'audit_chain_rows() chains rows of a partition that the relation cache lacks');
$_->quit for $reader, $mover;
$node->stop;

# Rows of a new partition become visible shortly before other sessions process its invalidation; the
# pause prolongs that time. There is no default partition, because readers would wait for its lock.
my ($partitions, $events) = (40, 80);
$node = start_node('pauses', stage => $ENV{OUTBOX_PAUSES_CONF},
	conf => "outbox.relay = off\nautovacuum = off\n");
$node->safe_psql('postgres', q{SELECT outbox_setup(), outbox_create_consumer('worker',
	start_at => 'earliest');
	ALTER TABLE outbox_messages DETACH PARTITION outbox_messages_default;
	CREATE TABLE seen (id bigint)});
my $readers = $node->background_psql('postgres');
$readers->query_until(qr/begun/, qq{\\echo begun
	DO \$\$ BEGIN
		WHILE to_regclass('done') IS NULL LOOP
			INSERT INTO seen SELECT id FROM outbox_consume('worker', 100);
			COMMIT;
		END LOOP;
	END \$\$;
});
$node->safe_psql('postgres', qq{SET outbox.test_pauses = 'commit';
	DO \$\$ BEGIN
		FOR i IN 1 .. $partitions LOOP
			PERFORM _outbox.create_partition('public.late_' || i,
			'2020-01-01'::timestamptz + i * '1 day'::interval,
			'2020-01-01'::timestamptz + (i + 1) * '1 day'::interval, 'outbox_messages');
			EXECUTE format(\$f\$INSERT INTO late_%s (occurred_at, aggregate_type, aggregate_id,
			event_type, payload)
				VALUES (%L, 'Order', '1', 'Late', '{}')\$f\$, i,
				'2020-01-01 12:00'::timestamp + i * '1 day'::interval);
			EXECUTE format('ALTER TABLE outbox_messages ATTACH PARTITION late_%s
				FOR VALUES FROM (%L) TO (%L)',
				i, '2020-01-01'::timestamptz + i * '1 day'::interval,
				'2020-01-01'::timestamptz + (i + 1) * '1 day'::interval);
			-- A claim of this event moves the cursor past the one in the new partition.
			PERFORM outbox_enqueue('Order', i, 'OrderConfirmed', '{}');
			COMMIT;
		END LOOP;
	END \$\$;
	CREATE TABLE done ()});
$readers->quit;
$node->safe_psql('postgres', q{INSERT INTO seen SELECT id FROM outbox_consume('worker', 100)});
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM seen'), "$events|$events",
	'a consumer skips no event of a partition that is attached with its rows');
$node->stop;

done_testing();
