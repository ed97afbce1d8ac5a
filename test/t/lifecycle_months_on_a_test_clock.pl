# A log lives through months in seconds, on a clock that the test moves: partitions come, are archived
# and go, and nothing goes before it was delivered.
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

# Day 0 is tomorrow. It is always noon, and no test is so slow that it becomes midnight.
my $to_noon = 86400 + 43200 - time % 86400;

sub set_clock
{
	my ($day, $hour) = @_;
	open(my $file, '>', "$clock.new") or die $!;
	printf $file "+%d\n", $to_noon + $day * 86400 + ($hour // 0) * 3600;
	close $file;
	rename("$clock.new", $clock) or die $!;
}

# The server's clock is moved, nobody else's.
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

# Background workers would not see the clock move, and no timer goes off while a process waits: nothing may wait for a lock.
set_clock(0);
my $node = on_that_clock(sub { start_node('main', no_extension => 1, conf => "outbox.relay = off\nautovacuum = off\njit = off\n") });
my $database = 'postgres';

sub sql
{
	return $node->safe_psql($database, join(";\n", @_), timeout => 60);
}

# The test's own books: what was enqueued, delivered, and given up for now; and what should be where.
sub keep_books
{
	my ($unit, $hot, $cold) = @_;
	sql(qq{
	SET client_min_messages = warning;
	CREATE EXTENSION outbox CASCADE;
	SELECT outbox_setup();

	CREATE TABLE ledger (n bigserial PRIMARY KEY, tracking_id uuid NOT NULL UNIQUE,
	                     since timestamptz NOT NULL DEFAULT date_trunc('$unit', clock_timestamp()));
	CREATE TABLE deliveries (n bigserial PRIMARY KEY, consumer text NOT NULL, tracking_id uuid NOT NULL);
	CREATE TABLE failures (consumer text NOT NULL, tracking_id uuid NOT NULL);

	CREATE FUNCTION enqueue(events int, many int) RETURNS void LANGUAGE sql AS \$\$
	    INSERT INTO ledger (tracking_id)
	    SELECT outbox_enqueue('Order', i % 3, 'OrderConfirmed', '{}') FROM generate_series(1, events) i;
	    INSERT INTO ledger (tracking_id)
	    SELECT unnest(outbox_enqueue_many((SELECT jsonb_agg(jsonb_build_object(
	               'aggregate_type', 'Order', 'aggregate_id', i::text, 'event_type', 'OrderConfirmed',
	               'payload', '{}'::jsonb)) FROM generate_series(1, many) i))) WHERE many > 0;
	\$\$;

	-- Claims and acks, up to so many batches.
	CREATE FUNCTION take(consumer text, batch_size int, batches int DEFAULT 100000) RETURNS void LANGUAGE plpgsql AS \$\$
	DECLARE
	    token bigint;
	BEGIN
	    FOR i IN 1 .. batches LOOP
	        WITH batch AS MATERIALIZED (SELECT * FROM outbox_claim(consumer, batch_size)),
	             noted AS (INSERT INTO deliveries (consumer, tracking_id) SELECT take.consumer, tracking_id FROM batch)
	        SELECT max(lock_token) INTO token FROM batch;
	        EXIT WHEN token IS NULL;
	        PERFORM outbox_ack(token);
	    END LOOP;
	END \$\$;

	-- Of each new batch one event is dead, one comes again soon and one late; the others are fine.
	CREATE FUNCTION take_badly(consumer text) RETURNS void LANGUAGE plpgsql AS \$\$
	DECLARE
	    token bigint;
	    bad   bigint[];
	BEGIN
	    CREATE TEMPORARY TABLE batch AS SELECT * FROM outbox_claim(consumer) WITH NO DATA;
	    LOOP
	        INSERT INTO batch SELECT * FROM outbox_claim(consumer, 1000);
	        SELECT max(lock_token), array_agg(id ORDER BY id) FILTER (WHERE attempts = 1) INTO token, bad FROM batch;
	        EXIT WHEN token IS NULL;
	        INSERT INTO failures SELECT take_badly.consumer, tracking_id FROM batch WHERE id = ANY (bad[1:3]);
	        INSERT INTO deliveries (consumer, tracking_id)
	        SELECT take_badly.consumer, tracking_id FROM batch WHERE id = ANY (bad[1:3]) IS NOT TRUE;
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

	-- Repeats while archiving or dropping goes on. Any other refusal must be a partition that is held back.
	CREATE PROCEDURE maintain() LANGUAGE plpgsql AS \$\$
	DECLARE
	    waits  boolean;
	    failed text;
	BEGIN
	    FOR i IN 1 .. 50 LOOP
	        SELECT bool_or(step IN ('archive', 'drop') AND (changed OR detail ~ '^(postponed to the next transaction|stays, because)')),
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
	    \$\$ SELECT 'outbox_messages_p' || to_char(since, suffix) FROM _outbox.partition_width() \$\$;

	-- Who needs which partition, by the books. A consumer that fails an event has a copy of it.
	CREATE VIEW needs AS
	SELECT DISTINCT l.since, c.name AS consumer FROM ledger l CROSS JOIN outbox_consumers c
	 WHERE c.name <> 'picky'
	   AND NOT EXISTS (SELECT FROM deliveries d WHERE d.consumer = c.name AND d.tracking_id = l.tracking_id)
	   AND NOT EXISTS (SELECT FROM failures f WHERE f.consumer = c.name AND f.tracking_id = l.tracking_id);

	-- Every event by the books and in fact: in the log, in the archive, or gone. What was archived before a
	-- consumer went back to it stays there.
	CREATE FUNCTION surprises(archived timestamptz DEFAULT '-infinity') RETURNS SETOF text LANGUAGE sql AS \$\$
	    WITH need AS MATERIALIZED (SELECT * FROM needs),
	    place AS (
	        SELECT l.since, l.tracking_id, l.since < archived AS before,
	               l.since + '1 $unit' <= clock_timestamp() - interval '$hot' AS due,
	               l.since + '1 $unit' <= clock_timestamp() - interval '$cold' AS expired,
	               l.since IN (SELECT n.since FROM need n) AS needed
	          FROM ledger l),
	    expected AS (
	        SELECT CASE WHEN before THEN 'archive' WHEN needed OR NOT due THEN 'log' ELSE 'archive' END AS place,
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
	    (SELECT 'missing ' || e::text FROM (SELECT * FROM expected EXCEPT ALL SELECT * FROM actual) e ORDER BY 1 LIMIT 10)
	    UNION ALL
	    (SELECT 'not expected ' || e::text FROM (SELECT * FROM actual EXCEPT ALL SELECT * FROM expected) e ORDER BY 1 LIMIT 10)
	    UNION ALL
	    (SELECT 'not held ' || e::text FROM (SELECT * FROM held EXCEPT ALL SELECT * FROM holding) e ORDER BY 1 LIMIT 10)
	    UNION ALL
	    (SELECT 'held ' || e::text FROM (SELECT * FROM holding EXCEPT ALL SELECT * FROM held) e ORDER BY 1 LIMIT 10)
	    UNION ALL
	    SELECT 'status: ' || s::text FROM outbox_status() s
	     WHERE component = 'archive' AND (ok = EXISTS (SELECT FROM held)
	        OR EXISTS (SELECT FROM held h WHERE detail NOT LIKE '%' || h.consumer || ' (%'))
	    UNION ALL
	    SELECT 'stray table ' || relname FROM pg_class c
	     WHERE relkind = 'r' AND relname ~ '^outbox_messages_p[0-9]' AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = c.oid)
	    UNION ALL
	    SELECT 'archived partition ' || coalesce(a.partition, i.inhrelid::regclass::name)
	      FROM _outbox.archived_partitions a
	      FULL JOIN (SELECT * FROM pg_inherits WHERE inhparent = 'outbox_messages_archive'::regclass) i
	           ON i.inhrelid = to_regclass(a.partition)
	     WHERE a.partition IS NULL OR i.inhrelid IS NULL
	    UNION ALL
	    SELECT 'default partition' WHERE _outbox.default_partition_has_rows()
	\$\$;

	-- What each consumer got of the events since then, if not each once.
	CREATE FUNCTION wrong_deliveries(consumers text[]) RETURNS SETOF text LANGUAGE sql AS \$\$
	    SELECT format('%s: %s events %s times', c.name, count(*), g.times)
	      FROM unnest(consumers) AS c(name) CROSS JOIN ledger l
	      LEFT JOIN (SELECT consumer, tracking_id, count(*) AS times FROM deliveries GROUP BY 1, 2) g
	           ON g.consumer = c.name AND g.tracking_id = l.tracking_id
	     WHERE g.times IS DISTINCT FROM 1 GROUP BY c.name, g.times
	    UNION ALL
	    SELECT format('%s: an event that was never enqueued', consumer) FROM deliveries d
	     WHERE NOT EXISTS (SELECT FROM ledger l WHERE l.tracking_id = d.tracking_id)
	\$\$;
	});
}

keep_books('day', '7 days', '90 days');

sql(q{SELECT outbox_create_consumer('fast')},
	q{SELECT outbox_create_consumer('slow', ordered => true)},
	q{SELECT outbox_create_consumer('paused', partitions => 2)},
	q{SELECT outbox_create_consumer('dead')},
	q{SELECT outbox_create_consumer('picky', event_types => '{OrderLost}')},
	q{SELECT outbox_create_consumer('shaky')});
my $all = "'{fast,slow,paused,shaky}'";
my $fast = q{INSERT INTO deliveries (consumer, tracking_id) SELECT 'fast', tracking_id FROM outbox_consume('fast', 1000)};
my @others = ("SELECT take('slow', $per_day, 2)", q{SELECT take('paused', 100)}, q{SELECT take('shaky', 1000)});
my %events_on = (
	5 => q{SELECT outbox_pause('paused')},
	30 => q{SELECT count(*) FROM outbox_claim('dead', 1000)},
	60 => q{BEGIN; SELECT enqueue(1, 3); PREPARE TRANSACTION 'long'},
	62 => q{COMMIT PREPARED 'long'},
	100 => q{SELECT outbox_resume('paused')});

# A day in the life; returns what is not as it should be in the end.
sub live
{
	my ($day) = @_;
	my @work = ("SELECT enqueue($events, $many)");
	if ($day % 10 == 0)
	{
		push @work,
		  "INSERT INTO ledger (tracking_id) SELECT outbox_enqueue('Order', 'key', 'OrderConfirmed', '{}', dedup_key => 'day $day')",
		  q{SELECT inbox_accept('fast', tracking_id) FROM ledger ORDER BY n DESC LIMIT 1},
		  "SELECT idempotency_finish('s', 'day $day', token, 200, '{}'::jsonb) FROM idempotency_begin('s', 'day $day', '{}'::jsonb)";
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
	my $surprise = live($day);
	$surprises{$day} = $surprise if $surprise;
	last if $surprise;
	next unless $day == 50;
	is( sql(q{SELECT consumer, reason, CASE WHEN consumer <> 'slow' THEN count(*) END FROM outbox_held_partitions() GROUP BY 1, 2 ORDER BY 1, 2}),
		"dead|has not settled all of it|1\ndead|has yet to read it|12\npaused|paused, and has yet to read it|38\nslow|has yet to read it|",
		'those who are behind hold back what they need');
	like( sql(q{SELECT ok, detail FROM outbox_status() WHERE component = 'archive'}),
		qr/^f\|38 partitions .* held back by dead .*, paused \(paused, and .*, slow /, 'and the status names them');
}
is_deeply(\%surprises, {}, 'every event is where it belongs, and whoever holds a partition back is named')
  or die 'nothing that follows would be any better';

is(sql(q{SELECT wrong_deliveries('{fast,slow,paused}')}), '', 'everything was delivered once');
is(sql(q{SELECT count(*) FROM outbox_retries}), 0, 'what failed was tried again, also when its partition was long gone');
is( sql(q{SELECT count(*), count(m), count(a) FROM outbox_messages_dlq d
	LEFT JOIN outbox_messages m USING (id) LEFT JOIN outbox_messages_archive a USING (id)}),
	'10|0|0', 'dead letters outlive their partitions');
is(sql(q{SELECT outbox_redrive('shaky')}, q{SELECT take('shaky', 1000)}, "SELECT wrong_deliveries($all)"), "10\n", 'and are redriven');
is( sql(qq{SELECT count(*), count(*) - count(m) FROM ledger l
	LEFT JOIN (SELECT tracking_id AS m FROM outbox_messages UNION ALL SELECT tracking_id FROM outbox_messages_archive) m ON m = tracking_id
	WHERE NOT EXISTS (SELECT FROM deliveries d WHERE d.consumer = 'dead' AND d.tracking_id = l.tracking_id)}),
	join('|', ($days - 29) * $per_day + $days / 10 - 2 + 4, 0),
	'what the dead consumer has not read or not settled is still there');

my $sizes = q{
	SELECT count(DISTINCT tableoid), date_trunc('day', clock_timestamp() - min(occurred_at)) FROM outbox_messages;
	SELECT count(DISTINCT tableoid), date_trunc('day', clock_timestamp() - min(occurred_at)) FROM outbox_messages_archive};
sql(q{SELECT outbox_drop_consumer('dead')}, 'CALL maintain()');
is(surprises(), '', 'when the dead consumer is dropped, everything goes where it belongs');
is(sql($sizes), "8|7 days\n83|90 days", 'a week is in the log, and with the archive it is 90 days');
is( sql(q{SELECT string_agg(dedup_key, ' ') FROM _outbox.dedup_keys}, q{SELECT count(*) FROM _outbox.inbox}, q{SELECT string_agg(key, ' ') FROM idempotency_keys}),
	"day $days\n3\nday $days", 'keys that have expired are gone, and others are not');
my $record = q{SELECT max(count) FROM (SELECT count(*) FROM _outbox.batches GROUP BY consumer_id) c};
cmp_ok(sql($record), '<=', 5, 'the record of deliveries is short');
cmp_ok(sql(q{SELECT count(*) FROM _outbox.leases}), '<=', 20, 'and so are the leases');
is(sql(q{SELECT component, detail FROM outbox_status() WHERE NOT ok AND component <> 'relay'}), '', 'the status has nothing to complain about');

my $today = $days;
is(live(++$today), '', 'another day is like the one before') for (1 .. 2);
is(sql($sizes), "8|7 days\n83|90 days", 'one day more is in the archive, and one is gone');

# Replay. What was archived before is read there, and waits there to be read.
sub day_to_time { return sprintf("(SELECT date_trunc('day', clock_timestamp()) - interval '%d days')", $today - $_[0]) }
my $start = sql('SELECT ' . day_to_time($today - 60));
my $archived = sql('SELECT ' . day_to_time($today - 7));
sql("SELECT outbox_seek('fast', timestamptz '$start')",
	"UPDATE deliveries d SET consumer = 'fast, the first time' FROM ledger l WHERE d.tracking_id = l.tracking_id AND consumer = 'fast' AND l.since >= '$start'",
	"SELECT take('fast', $per_day, 20)", 'CALL maintain()');
is(surprises("'$archived'"), '', 'a replay begins');
$today += 100;
set_clock($today);
sql('CALL maintain()');
is(surprises("'$archived'"), '', 'a hundred days later there is what it has yet to read, and nothing else');
cmp_ok(sql(q{SELECT count(*) FROM _outbox.archived_partitions}), '>', 30, 'in the archive, too');
sql(q{SELECT take('fast', 50)});
is( sql("SELECT string_agg(l.n::text, ' ' ORDER BY d.n) FROM deliveries d JOIN ledger l USING (tracking_id) WHERE consumer = 'fast' AND since >= '$start'"),
	sql("SELECT string_agg(n::text, ' ' ORDER BY n) FROM ledger WHERE since >= '$start'"),
	'the replay has brought everything since then, in the order of the log');
is(live($today), '', 'and when it is done, all that is gone');
is(sql($sizes), "1|00:00:00\n0|", 'only today is left');

# The server is down for 30 days, and nobody looks after it for another.
is(live(++$today), '', 'another day goes by');
$node->stop;
$today += 30;
set_clock($today);
on_that_clock(sub { $node->start });
my $strays = q{FROM outbox_messages m WHERE tableoid = 'outbox_messages_default'::regclass};
sql("SELECT enqueue($events, $many)", "BEGIN; SELECT enqueue(2, $many); PREPARE TRANSACTION 'late'");
is(sql("SELECT count(*) $strays"), $per_day, 'events go to the default partition');
# Some have read these, some have not. One has seen the transaction that was running.
sql($fast, "SELECT take('slow', 2, 1)");
sql(q{COMMIT PREPARED 'late'});
set_clock(++$today);
sql("SELECT enqueue($events, $many)");
my $token = sql(q{SELECT max(lock_token) FROM outbox_claim('shaky', 5)});
my $rows = "SELECT m.* FROM outbox_messages m WHERE occurred_at > clock_timestamp() - interval '2 days' ORDER BY id";
is(sql("SELECT count(*) $strays"), 2 * $per_day + 2 + $many, 'and wait there');
my $before = sql($rows);
sql('CALL maintain()');
is(sql($rows), $before, 'they are moved as they are');
# pg_partman rounds the time of day: there are seven or eight ahead.
like( sql(q{SELECT string_agg((lower_bound::date - (SELECT max(since)::date FROM ledger))::text, ' ' ORDER BY lower_bound) FROM _outbox.partitions()}),
	qr/^-1 0 1 2 3 4 5 6 7( 8)?$/, 'to partitions of their own; there are seven for days to come, and none for days gone by');
sql("INSERT INTO deliveries (consumer, tracking_id) SELECT 'shaky', tracking_id FROM outbox_messages m, _outbox.leases l, _outbox.batches b WHERE l.token = $token AND b.token = l.token AND b.ids @> m.id",
	"SELECT outbox_ack($token)", $fast, @others, @others, 'CALL maintain()');
is(surprises(), '', 'everything is where it belongs');
is(sql("SELECT wrong_deliveries($all)"), '', 'and was delivered once');

# The clock goes back for a moment, and later to a day that is archived.
%surprises = map { $_ => live($_) } $today + 1 .. $today + 4;
$today += 4;
$surprises{"$_ again"} = live($_) for ($today - 3, $today);
is(join('', values %surprises), '', 'when the clock goes back for three days, all goes on');
is(sql("SELECT wrong_deliveries($all)"), '', 'and everything is delivered once');
live($_) for ($today + 1 .. $today + 5);
$today += 5;
my $then = $today - 9;
is( sql("SELECT count(*) FROM _outbox.archived_partitions WHERE partition = table_of(" . day_to_time($then) . ')'),
	1, 'a day is archived');
set_clock($then);
sql("SELECT enqueue($events, $many)", $fast, 'CALL maintain()');
is(sql("SELECT count(*) $strays"), $per_day, 'when the clock goes back to it, events wait in the default partition');
set_clock(++$today);
sql(@others, @others, 'CALL maintain()');
is(sql("SELECT count(*) $strays"), $per_day, 'as long as it is archived');
is(sql("SELECT wrong_deliveries($all)"), '', 'and are delivered like others');
set_clock($today += 100);
sql('CALL maintain()', 'CALL maintain()');
is(surprises(), '', 'then they go the way of all');

# Other intervals: retentions of three and of eight.
my %step = (hour => 3600, week => 7 * 86400, month => 30.5 * 86400);
for my $unit (sort keys %step)
{
	my ($interval, $step) = ($unit . 'ly', $step{$unit});
	my ($hot, $cold) = map { "$_ seconds" } 3 * $step, 8 * $step;
	$node->safe_psql('postgres', "ALTER SYSTEM SET outbox.partition_interval = '$interval'; ALTER SYSTEM SET outbox.hot_retention = '@{[ 3 * $step ]}s';
		ALTER SYSTEM SET outbox.archive_retention = '@{[ 8 * $step ]}s'");
	$node->reload;
	$database = $interval;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	keep_books($unit, $hot, $cold);
	sql(q{SELECT outbox_create_consumer('fast')}, q{SELECT outbox_create_consumer('slow')});
	%surprises = ();
	# For a long time in between nobody looks.
	for my $n (1 .. 14, 30 .. 36)
	{
		set_clock($today, $n * $step / 3600);
		sql('SELECT enqueue(2, 3)', $fast, $n < 10 ? q{SELECT take('slow', 2, 1)} : q{SELECT take('slow', 100)}, 'CALL maintain()');
		$surprises{$n} = surprises();
	}
	is(join('', values %surprises), '', "$interval: every event is where it belongs");
	is(sql(q{SELECT wrong_deliveries('{fast,slow}')}), '', "$interval: everything was delivered once");
	cmp_ok(sql(q{SELECT count(*) FROM _outbox.archived_partitions}), '>', 1, "$interval: some are in the archive");
	$today += 40 * $step / 86400;
}

$node->stop;
done_testing();
