# The test moves the clock of the server through months in seconds: partitions are made, archived
# and dropped, and no event is archived or dropped before it is delivered.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $days = $ENV{OUTBOX_SOAK} ? 200 : 120;
my $events = $ENV{OUTBOX_SOAK} ? 20 : 6;
my $many = $ENV{OUTBOX_SOAK} ? 10 : 3;
my $per_day = $events + $many;

my ($faketime) = glob('/usr/lib/*/faketime/libfaketime.so.1');
die 'libfaketime is missing' unless $faketime;
my $clock = "${PostgreSQL::Test::Utils::tmp_check}/clock";

# Day 0 is tomorrow. The clock starts at noon of each day, so that no step of the test reaches
# midnight.
my $to_noon = 86400 + 43200 - time % 86400;

sub set_clock
{
	my ($day, $hour) = @_;
	open(my $file, '>', "$clock.new") or die $!;
	printf $file "+%d\n", $to_noon + $day * 86400 + ($hour // 0) * 3600;
	close $file;
	rename("$clock.new", $clock) or die $!;
}

# Runs code with the moved clock, for processes that it starts.
sub on_that_clock
{
	my ($start) = @_;
	local %ENV = (%ENV,
		LD_PRELOAD => $faketime,
		FAKETIME_TIMESTAMP_FILE => $clock,
		FAKETIME_NO_CACHE => 1,
		FAKETIME_DONT_FAKE_MONOTONIC => 1);
	return $start->();
}

# Background workers would not notice that the clock has moved, and timeouts do not fire while a
# process waits, so no step may wait for a lock.
set_clock(0);
my $node = on_that_clock(sub { start_node('main', no_extension => 1,
	conf => "outbox.relay = off\nautovacuum = off\njit = off\n") });
my $database = 'postgres';

sub sql
{
	return $node->safe_psql($database, join(";\n", @_), timeout => 60);
}

# The ledger of the test: enqueued, delivered and failed events, and functions that compare it with
# log and archive.
sub set_up_ledger
{
	my ($unit, $hot, $cold) = @_;
	sql(qq{
	SET client_min_messages = warning;
	CREATE EXTENSION outbox CASCADE;
	SELECT outbox_setup();

	CREATE TABLE ledger (n bigserial PRIMARY KEY, tracking_id uuid NOT NULL UNIQUE,
	                     since timestamptz NOT NULL DEFAULT date_trunc('$unit', clock_timestamp()));
	CREATE TABLE deliveries (n bigserial PRIMARY KEY, consumer text NOT NULL,
	tracking_id uuid NOT NULL);
	CREATE TABLE failures (consumer text NOT NULL, tracking_id uuid NOT NULL);

	CREATE FUNCTION enqueue(events int, many int) RETURNS void LANGUAGE sql AS \$\$
	    INSERT INTO ledger (tracking_id)
	    SELECT outbox_enqueue('Order', i % 3, 'OrderConfirmed', '{}')
	FROM generate_series(1, events) i;
	    INSERT INTO ledger (tracking_id)
	    SELECT unnest(outbox_enqueue_many((SELECT jsonb_agg(jsonb_build_object(
	               'aggregate_type', 'Order', 'aggregate_id', i::text, 'event_type',
	'OrderConfirmed',
	               'payload', '{}'::jsonb)) FROM generate_series(1, many) i))) WHERE many > 0;
	\$\$;

	-- Claims and acks up to `batches` batches.
	CREATE FUNCTION take(consumer text, batch_size int, batches int DEFAULT 100000) RETURNS void
	LANGUAGE plpgsql AS \$\$
	DECLARE
	    token bigint;
	BEGIN
	    FOR i IN 1 .. batches LOOP
	        WITH batch AS MATERIALIZED (SELECT * FROM outbox_claim(consumer, batch_size)),
	             noted AS (INSERT INTO deliveries (consumer, tracking_id)
	SELECT take.consumer, tracking_id FROM batch)
	        SELECT max(lock_token) INTO token FROM batch;
	        EXIT WHEN token IS NULL;
	        PERFORM outbox_ack(token);
	    END LOOP;
	END \$\$;

	-- Of each new batch one event becomes a dead letter, one is retried soon and one late; the
	-- others are acked.
	CREATE FUNCTION take_badly(consumer text) RETURNS void LANGUAGE plpgsql AS \$\$
	DECLARE
	    token bigint;
	    bad   bigint[];
	BEGIN
	    CREATE TEMPORARY TABLE batch AS SELECT * FROM outbox_claim(consumer) WITH NO DATA;
	    LOOP
	        INSERT INTO batch SELECT * FROM outbox_claim(consumer, 1000);
	        SELECT max(lock_token), array_agg(id
	ORDER BY id) FILTER (WHERE attempts = 1) INTO token, bad FROM batch;
	        EXIT WHEN token IS NULL;
	        INSERT INTO failures SELECT take_badly.consumer, tracking_id FROM batch
	WHERE id = ANY (bad[1:3]);
	        INSERT INTO deliveries (consumer, tracking_id)
	        SELECT take_badly.consumer, tracking_id FROM batch
	WHERE id = ANY (bad[1:3]) IS NOT TRUE;
	        IF bad IS NOT NULL THEN
	            PERFORM outbox_fail(token, bad[1], 'never', dead => true);
	            PERFORM outbox_fail(token, bad[2], 'soon', retry_in => '3 days');
	            PERFORM outbox_fail(token, bad[3], 'late', retry_in => '105 days');
	        END IF;
	        PERFORM outbox_ack(token);
	        TRUNCATE batch;
	    END LOOP;
	    DROP TABLE batch;
	END \$\$;

	-- Repeats outbox_maintain() while steps wait for their turn. Only partitions held back by a
	-- consumer may stay undone.
	CREATE PROCEDURE maintain() LANGUAGE plpgsql AS \$\$
	DECLARE
	    waits  boolean;
	    failed text;
	BEGIN
	    FOR i IN 1 .. 50 LOOP
	        SELECT bool_or(step IN ('archive', 'drop') AND (changed
	OR detail ~ '^(postponed to the next transaction|stays, because)')),
	               string_agg(detail, '; ') FILTER (WHERE NOT changed AND detail !~ '^held back by')
	          INTO waits, failed FROM outbox_maintain();
	        COMMIT;
	        EXIT WHEN waits IS NOT TRUE;
	        PERFORM pg_sleep(0.001 * i);
	    END LOOP;
	    IF failed IS NOT NULL THEN
	        RAISE 'maintenance could not do all: %', failed;
	    END IF;
	END \$\$;

	CREATE FUNCTION table_of(since timestamptz) RETURNS text LANGUAGE sql AS
	    \$\$ SELECT 'outbox_messages_p' || to_char(since, suffix)
	FROM _outbox.partition_width() \$\$;

	-- The partitions that each consumer needs by the ledger. A consumer that fails an event has a
	-- copy of it.
	CREATE VIEW needs AS
	SELECT DISTINCT l.since, c.name AS consumer FROM ledger l CROSS JOIN outbox_consumers c
	 WHERE c.name <> 'picky'
	   AND NOT EXISTS (SELECT FROM deliveries d
	WHERE d.consumer = c.name AND d.tracking_id = l.tracking_id)
	   AND NOT EXISTS (SELECT FROM failures f
	WHERE f.consumer = c.name AND f.tracking_id = l.tracking_id);

	-- Differences between ledger and database: events in the log, in the archive, or gone.
	-- Partitions that were archived before a consumer was reset to them stay in the archive.
	CREATE FUNCTION surprises(archived timestamptz DEFAULT '-infinity') RETURNS SETOF text LANGUAGE
	sql AS \$\$
	    WITH need AS MATERIALIZED (SELECT * FROM needs),
	    place AS (
	        SELECT l.since, l.tracking_id, l.since < archived AS before,
	               l.since + '1 $unit' <= clock_timestamp() - interval '$hot' AS due,
	               l.since + '1 $unit' <= clock_timestamp() - interval '$cold' AS expired,
	               l.since IN (SELECT n.since FROM need n) AS needed
	          FROM ledger l),
	    expected AS (
	        SELECT CASE WHEN before THEN 'archive' WHEN needed
	OR NOT due THEN 'log' ELSE 'archive' END AS place,
	               tracking_id, table_of(since) AS partition
	          FROM place WHERE needed OR NOT expired),
	    actual AS (
	        SELECT 'log', tracking_id, tableoid::regclass::text FROM outbox_messages
	         UNION ALL
	        SELECT 'archive', tracking_id, tableoid::regclass::text FROM outbox_messages_archive),
	    held AS (
	        SELECT DISTINCT n.consumer, table_of(n.since) FROM need n JOIN place p USING (since)
	         WHERE CASE WHEN before THEN expired ELSE due END),
	    holding AS (
	        SELECT h.consumer, h.partition::text FROM outbox_held_partitions() h)
	    (SELECT 'missing ' || e::text FROM (SELECT * FROM expected EXCEPT ALL SELECT *
	FROM actual) e ORDER BY 1 LIMIT 10)
	    UNION ALL
	    (SELECT 'not expected ' || e::text FROM (SELECT * FROM actual EXCEPT ALL SELECT *
	FROM expected) e ORDER BY 1 LIMIT 10)
	    UNION ALL
	    (SELECT 'not held ' || e::text FROM (SELECT * FROM held EXCEPT ALL SELECT * FROM holding) e
	ORDER BY 1 LIMIT 10)
	    UNION ALL
	    (SELECT 'held ' || e::text FROM (SELECT * FROM holding EXCEPT ALL SELECT * FROM held) e
	ORDER BY 1 LIMIT 10)
	    UNION ALL
	    SELECT 'status: ' || s::text FROM outbox_status() s
	     WHERE component = 'archive' AND (ok = EXISTS (SELECT FROM held)
	        OR EXISTS (SELECT FROM held h WHERE detail NOT LIKE '%' || h.consumer || ' (%'))
	    UNION ALL
	    SELECT 'stray table ' || relname FROM pg_class c
	     WHERE relkind = 'r' AND relname ~ '^outbox_messages_p[0-9]' AND NOT EXISTS (SELECT
	FROM pg_inherits WHERE inhrelid = c.oid)
	    UNION ALL
	    SELECT 'archived partition ' || coalesce(a.partition, i.inhrelid::regclass::name)
	      FROM _outbox.archived_partitions a
	      FULL JOIN (SELECT * FROM pg_inherits
	WHERE inhparent = 'outbox_messages_archive'::regclass) i
	           ON i.inhrelid = to_regclass(a.partition)
	     WHERE a.partition IS NULL OR i.inhrelid IS NULL
	    UNION ALL
	    SELECT 'default partition' WHERE _outbox.default_partition_has_rows()
	\$\$;

	-- Events that a consumer did not get exactly once.
	CREATE FUNCTION wrong_deliveries(consumers text[]) RETURNS SETOF text LANGUAGE sql AS \$\$
	    SELECT format('%s: %s events %s times', c.name, count(*), g.times)
	      FROM unnest(consumers) AS c(name) CROSS JOIN ledger l
	      LEFT JOIN (SELECT consumer, tracking_id, count(*) AS times FROM deliveries
	GROUP BY 1, 2) g
	           ON g.consumer = c.name AND g.tracking_id = l.tracking_id
	     WHERE g.times IS DISTINCT FROM 1 GROUP BY c.name, g.times
	    UNION ALL
	    SELECT format('%s: an event that was never enqueued', consumer) FROM deliveries d
	     WHERE NOT EXISTS (SELECT FROM ledger l WHERE l.tracking_id = d.tracking_id)
	\$\$;
	});
}

set_up_ledger('day', '7 days', '90 days');

sql(q{SELECT outbox_create_consumer('fast')},
	q{SELECT outbox_create_consumer('slow', ordered => true)},
	q{SELECT outbox_create_consumer('paused', partitions => 2)},
	q{SELECT outbox_create_consumer('dead')},
	q{SELECT outbox_create_consumer('picky', event_types => '{OrderLost}')},
	q{SELECT outbox_create_consumer('shaky')});
my $all = "'{fast,slow,paused,shaky}'";
my $fast = q{INSERT INTO deliveries (consumer, tracking_id) SELECT 'fast', tracking_id
	FROM outbox_consume('fast', 1000)};
my @others = ("SELECT take('slow', $per_day, 2)", q{SELECT take('paused', 100)},
	q{SELECT take('shaky', 1000)});
my %events_on = (
	5 => q{SELECT outbox_pause('paused')},
	30 => q{SELECT count(*) FROM outbox_claim('dead', 1000)},
	60 => q{BEGIN; SELECT enqueue(1, 3); PREPARE TRANSACTION 'long'},
	62 => q{COMMIT PREPARED 'long'},
	100 => q{SELECT outbox_resume('paused')});

# Runs one day of producers, consumers and maintenance; returns the differences after it.
sub run_day
{
	my ($day) = @_;
	my @work = ("SELECT enqueue($events, $many)");
	if ($day % 10 == 0)
	{
		push @work,
		  "INSERT INTO ledger (tracking_id) "
		  . "SELECT outbox_enqueue('Order', 'key', 'OrderConfirmed', '{}', "
		  . "dedup_key => 'day $day')",
		  q{SELECT inbox_accept('fast', tracking_id) FROM ledger ORDER BY n DESC LIMIT 1},
		  "SELECT idempotency_finish('s', 'day $day', token, 200, '{}'::jsonb) "
		  . "FROM idempotency_begin('s', 'day $day', '{}'::jsonb)";
	}
	push @work, $events_on{$day} if $events_on{$day};
	push @work, q{SELECT take('dead', 1000)} if $day < 30;
	push @work, $fast;
	if ($day > 60) { push @work, @others }
	else
	{
		push @work, "SELECT take('slow', $per_day / 2, 1)", q{SELECT take('paused', 100)},
		  $day <= 10 ? q{SELECT take_badly('shaky')} : q{SELECT take('shaky', 1000)};
	}
	set_clock($day);
	sql(@work, 'CALL maintain()');
	return $ENV{OUTBOX_SOAK} || $day % 4 == 0 || $day > $days ? surprises() : '';
}

sub surprises
{
	return sql('SELECT surprises(' . ($_[0] // '') . ')');
}

my %surprises;
for my $day (1 .. $days)
{
	my $surprise = run_day($day);
	$surprises{$day} = $surprise if $surprise;
	last if $surprise;
	next unless $day == 50;
	is( sql(q{SELECT consumer, reason, CASE WHEN consumer <> 'slow' THEN count(*) END
		FROM outbox_held_partitions() GROUP BY 1, 2 ORDER BY 1, 2}),
		"dead|has not settled all of it|1\ndead|has yet to read it|12\n"
		  . "paused|paused, and has yet to read it|38\nslow|has yet to read it|",
		'outbox_held_partitions() lists the consumers that lag behind, with reasons');
	like( sql(q{SELECT ok, detail FROM outbox_status() WHERE component = 'archive'}),
		qr/^f\|38 partitions .* held back by dead .*, paused \(paused, and .*, slow /,
		'outbox_status() names the consumers that hold partitions back');
}
is_deeply(\%surprises, {},
	'every event is in its place every day, and consumers that hold partitions back are named')
  or die 'later steps depend on this one';

is(sql(q{SELECT wrong_deliveries('{fast,slow,paused}')}), '', 'every event is delivered once');
is(sql(q{SELECT count(*) FROM outbox_retries}), 0,
	'failed events are retried after their partition is dropped');
is( sql(q{SELECT count(*), count(m), count(a) FROM outbox_messages_dlq d
	LEFT JOIN outbox_messages m USING (id) LEFT JOIN outbox_messages_archive a USING (id)}),
	'10|0|0', 'dead letters outlive their partitions');
is(sql(q{SELECT outbox_redrive('shaky')}, q{SELECT take('shaky', 1000)},
	"SELECT wrong_deliveries($all)"), "10\n",
	'outbox_redrive() delivers dead letters whose partition is dropped');
is( sql(qq{SELECT count(*), count(*) - count(m) FROM ledger l
	LEFT JOIN (SELECT tracking_id AS m FROM outbox_messages UNION ALL SELECT tracking_id
	FROM outbox_messages_archive) m ON m = tracking_id
	WHERE NOT EXISTS (SELECT FROM deliveries d
	WHERE d.consumer = 'dead' AND d.tracking_id = l.tracking_id)}),
	join('|', ($days - 29) * $per_day + $days / 10 - 2 + 4, 0),
	'events that the dead consumer has not read or not settled are kept');

my $sizes = q{
	SELECT count(DISTINCT tableoid), date_trunc('day', clock_timestamp() - min(occurred_at))
	FROM outbox_messages;
	SELECT count(DISTINCT tableoid), date_trunc('day', clock_timestamp() - min(occurred_at))
	FROM outbox_messages_archive};
sql(q{SELECT outbox_drop_consumer('dead')}, 'CALL maintain()');
is(surprises(), '', 'partitions are archived and dropped once the dead consumer is dropped');
is(sql($sizes), "8|7 days\n83|90 days", 'the log has 7 days, and log and archive together have 90');
is( sql(q{SELECT string_agg(dedup_key, ' ') FROM _outbox.dedup_keys},
	q{SELECT count(*) FROM _outbox.inbox}, q{SELECT string_agg(key, ' ') FROM idempotency_keys}),
	"day $days\n3\nday $days", 'expired keys are removed, and others are kept');
my $record = q{SELECT max(count) FROM (SELECT count(*) FROM _outbox.batches
	GROUP BY consumer_id) c};
cmp_ok(sql($record), '<=', 5, 'batches that are no longer needed are removed');
cmp_ok(sql(q{SELECT count(*) FROM _outbox.leases}), '<=', 20,
	'leases that are no longer needed are removed');
is(sql(q{SELECT component, detail FROM outbox_status() WHERE NOT ok AND component <> 'relay'}), '',
	'outbox_status() shows every component but the relay as ok');

my $today = $days;
is(run_day(++$today), '', 'every event is in its place after another day') for (1 .. 2);
is(sql($sizes), "8|7 days\n83|90 days", 'log and archive keep their sizes from day to day');

# Replay: archived events are read from the archive, and stay there until they are read.
sub day_to_time
{
	return sprintf("(SELECT date_trunc('day', clock_timestamp()) - interval '%d days')",
		$today - $_[0]);
}
my $start = sql('SELECT ' . day_to_time($today - 60));
my $archived = sql('SELECT ' . day_to_time($today - 7));
sql("SELECT outbox_seek('fast', timestamptz '$start')",
	"UPDATE deliveries d SET consumer = 'fast, the first time' FROM ledger l "
	  . "WHERE d.tracking_id = l.tracking_id AND consumer = 'fast' AND l.since >= '$start'",
	"SELECT take('fast', $per_day, 20)", 'CALL maintain()');
is(surprises("'$archived'"), '', 'every event is in its place after the start of a replay');
$today += 100;
set_clock($today);
sql('CALL maintain()');
is(surprises("'$archived'"), '',
	'events that a replay has yet to read are kept for a hundred days, and no others');
cmp_ok(sql(q{SELECT count(*) FROM _outbox.archived_partitions}), '>', 30,
	'partitions of the archive are kept for a replay');
sql(q{SELECT take('fast', 50)});
is( sql("SELECT string_agg(l.n::text, ' ' ORDER BY d.n) FROM deliveries d JOIN ledger l "
	. "USING (tracking_id) WHERE consumer = 'fast' AND since >= '$start'"),
	sql("SELECT string_agg(n::text, ' ' ORDER BY n) FROM ledger WHERE since >= '$start'"),
	'a replay delivers every event in the order of the log');
is(run_day($today), '', 'partitions that a replay has read are archived or dropped');
is(sql($sizes), "1|00:00:00\n0|", 'log and archive have only today after the replay');

# The server is down for 30 days, and maintenance does not run for one more.
is(run_day(++$today), '', 'every event is in its place before the server stops');
$node->stop;
$today += 30;
set_clock($today);
on_that_clock(sub { $node->start });
my $from_default = q{FROM outbox_messages m WHERE tableoid = 'outbox_messages_default'::regclass};
sql("SELECT enqueue($events, $many)",
	"BEGIN; SELECT enqueue(2, $many); PREPARE TRANSACTION 'late'");
is(sql("SELECT count(*) $from_default"), $per_day,
	'events without a partition go to the default partition');
# Some consumers have read these events. One has a cursor with the open transaction.
sql($fast, "SELECT take('slow', 2, 1)");
sql(q{COMMIT PREPARED 'late'});
set_clock(++$today);
sql("SELECT enqueue($events, $many)");
my $token = sql(q{SELECT max(lock_token) FROM outbox_claim('shaky', 5)});
my $rows = "SELECT m.* FROM outbox_messages m "
  . "WHERE occurred_at > clock_timestamp() - interval '2 days' ORDER BY id";
is(sql("SELECT count(*) $from_default"), 2 * $per_day + 2 + $many,
	'events of two days are in the default partition');
my $before = sql($rows);
sql('CALL maintain()');
is(sql($rows), $before, 'maintenance moves rows of the default partition unchanged');
# pg_partman rounds the time of day, so seven or eight partitions are ahead.
like( sql(q{SELECT string_agg((lower_bound::date - (SELECT max(since)::date FROM ledger))::text, ' '
	ORDER BY lower_bound) FROM _outbox.partitions()}),
	qr/^-1 0 1 2 3 4 5 6 7( 8)?$/,
	'maintenance makes partitions for days with events and for the days ahead');
sql("INSERT INTO deliveries (consumer, tracking_id) SELECT 'shaky', tracking_id "
	. "FROM outbox_messages m, _outbox.leases l, _outbox.batches b "
	. "WHERE l.token = $token AND b.token = l.token AND b.ids @> m.id",
	"SELECT outbox_ack($token)", $fast, @others, @others, 'CALL maintain()');
is(surprises(), '', 'every event is in its place after the default partition is emptied');
is(sql("SELECT wrong_deliveries($all)"), '',
	'every event is delivered once after the default partition is emptied');

# The clock is set back by three days, and later to a day that is archived.
%surprises = map { $_ => run_day($_) } $today + 1 .. $today + 4;
$today += 4;
$surprises{"$_ again"} = run_day($_) for ($today - 3, $today);
is(join('', values %surprises), '',
	'every event is in its place after the clock is set back by three days');
is(sql("SELECT wrong_deliveries($all)"), '',
	'every event is delivered once after the clock is set back by three days');
run_day($_) for ($today + 1 .. $today + 5);
$today += 5;
my $then = $today - 9;
is( sql("SELECT count(*) FROM _outbox.archived_partitions WHERE partition = table_of("
	. day_to_time($then) . ')'),
	1, 'the day to which the clock is set back is archived');
set_clock($then);
sql("SELECT enqueue($events, $many)", $fast, 'CALL maintain()');
is(sql("SELECT count(*) $from_default"), $per_day,
	'events of an archived day go to the default partition');
set_clock(++$today);
sql(@others, @others, 'CALL maintain()');
is(sql("SELECT count(*) $from_default"), $per_day,
	'events of an archived day stay in the default partition');
is(sql("SELECT wrong_deliveries($all)"), '', 'events of an archived day are delivered once');
set_clock($today += 100);
sql('CALL maintain()', 'CALL maintain()');
is(surprises(), '', 'events of an archived day are moved, archived and dropped later');

# Other partition intervals, with retentions of three and eight intervals.
my %step = (hour => 3600, week => 7 * 86400, month => 30.5 * 86400);
for my $unit (sort keys %step)
{
	my ($interval, $step) = ($unit . 'ly', $step{$unit});
	my ($hot, $cold) = map { "$_ seconds" } 3 * $step, 8 * $step;
	$node->safe_psql('postgres',
		"ALTER SYSTEM SET outbox.partition_interval = '$interval'; "
		  . "ALTER SYSTEM SET outbox.hot_retention = '@{[ 3 * $step ]}s';
		ALTER SYSTEM SET outbox.archive_retention = '@{[ 8 * $step ]}s'");
	$node->reload;
	$database = $interval;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	set_up_ledger($unit, $hot, $cold);
	sql(q{SELECT outbox_create_consumer('fast')}, q{SELECT outbox_create_consumer('slow')});
	%surprises = ();
	# Maintenance does not run between 14 and 30.
	for my $n (1 .. 14, 30 .. 36)
	{
		set_clock($today, $n * $step / 3600);
		sql('SELECT enqueue(2, 3)', $fast, $n < 10 ? q{SELECT take('slow', 2, 1)}
			: q{SELECT take('slow', 100)}, 'CALL maintain()');
		$surprises{$n} = surprises();
	}
	is(join('', values %surprises), '', "$interval: every event is in its place");
	is(sql(q{SELECT wrong_deliveries('{fast,slow}')}), '',
		"$interval: every event is delivered once");
	cmp_ok(sql(q{SELECT count(*) FROM _outbox.archived_partitions}), '>', 1,
		"$interval: the archive has several partitions");
	$today += 40 * $step / 86400;
}

$node->stop;
done_testing();
