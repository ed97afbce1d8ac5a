# Sinks deliver events in the requested version; a bad upcaster affects only the events that need
# it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use JSON::PP;
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $receiver = OutboxReceiver->start('receiver');
my $node = start_node('main',
	conf => "outbox.backoff_base = '50ms'\noutbox.backoff_max = '100ms'\n"
	  . "outbox.immediate_retries = 0\noutbox.upcaster_timeout = '100ms'\n");

sub sql
{
	return $node->safe_psql('postgres', @_);
}

sub event
{
	my ($type, $aggregate, $payload) = @_;
	return sql("SELECT outbox_enqueue('Order', '$aggregate', '$type', '$payload')");
}

# The version and the payload of a delivered event; empty if it is not delivered.
sub arrival
{
	my ($path, $id, $timeout) = @_;
	my $found;
	wait_until(sub { ($found) = grep { $_->{id} eq $id } $receiver->records($path);
			$found }, $timeout);
	return $found ? join ' ', header($found, 'ce-eventversion'),
	  JSON::PP->new->canonical->encode(field($found)) : '';
}

sub last_error
{
	my ($id) = @_;
	return sql("SELECT last_error FROM (SELECT tracking_id, last_error FROM outbox_retries
		UNION ALL SELECT tracking_id, last_error FROM outbox_messages_dlq) AS e
		WHERE tracking_id = '$id'");
}

sql(q{
	SELECT outbox_setup();
	CREATE SCHEMA shop;
	CREATE FUNCTION shop.up1(jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
	SELECT $1 || '{"currency": "EUR"}' $$;
	CREATE FUNCTION shop.up2(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF p ? 'bad' THEN
			RAISE EXCEPTION 'no such thing';
		END IF;
		PERFORM pg_sleep(1000) WHERE p ? 'sleep';
		WHILE p ? 'loop' LOOP
		END LOOP;
		RETURN p || '{"up": 2}';
	END $$;
	SELECT outbox_register_upcaster('Up', 1, 'shop.up1(jsonb)');
	SELECT outbox_register_upcaster('Up', 2, 'shop.up2(jsonb)');});
create_sink($node, 'latest', { url => $receiver->url('/latest') },
	"event_types => '{Up, Plain}', max_attempts => 3");
create_sink($node, 'second', { url => $receiver->url('/second') },
	q(payload_versions => '{"Up": 2}'));
create_sink($node, 'stored', { url => $receiver->url('/stored') },
	q(payload_versions => '{"Up": "stored"}'));

my $id = event('Up', 1, '{"n": 1}');
is(arrival('/latest', $id), '3 {"currency":"EUR","n":1,"up":2}',
	'a sink delivers the latest version by default');
is(arrival('/second', $id), '2 {"currency":"EUR","n":1}',
	'a sink delivers the version in payload_versions');
is(arrival('/stored', $id), '1 {"n":1}',
	'a sink with payload version "stored" delivers the payload as written');
$id = event('Plain', 1, '{"n": 1}');
is(arrival('/latest', $id), '1 {"n":1}', 'an event type without upcasters is delivered as written');
sql(q{SELECT outbox_alter_sink('second', payload_versions => '{"Up": 3}')});
$id = event('Up', 1, '{"n": 2}');
is(arrival('/second', $id), '3 {"currency":"EUR","n":2,"up":2}',
	'an altered sink delivers the new version');
sql(q{SELECT outbox_alter_sink('second', payload_versions => '{"Up": 2}')});
like(refusal($node, q{SELECT outbox_alter_sink('second', payload_versions => '{"Up": 4}')}),
	qr/22023.*not to 4/, 'a version without an upcaster to it is refused');

# Upcasters that fail.
my $bad = event('Up', 'failing', '{"bad": 1}');
my $behind = event('Plain', 'failing', '{"n": 1}');
my $beside = event('Up', 'beside', '{"n": 1}');
is(arrival('/latest', $beside), '3 {"currency":"EUR","n":1,"up":2}',
	'an event whose upcaster fails does not block other aggregates');
is(arrival('/latest', $behind), '1 {"n":1}',
	'an event behind a failed upcast is delivered after the dead letter');
is(sql("SELECT attempts, event_version, payload, last_error FROM outbox_messages_dlq
			WHERE tracking_id = '$bad'"),
	'3|1|{"bad": 1}|upcaster shop.up2(jsonb) of Up 2: no such thing',
	'the dead letter has the payload as written and the error of the upcaster');
is(arrival('/second', $bad), '2 {"bad":1,"currency":"EUR"}',
	'a sink delivers the event if its version does not need the failing upcaster');
my ($at_behind, $at_bad) = map { my $one = $_;
	(grep { $_->{id} eq $one } $receiver->records('/latest'))[0] } $behind, $bad;
ok($at_behind && !$at_bad, 'an event whose upcaster fails is not sent');
sql(q{
	ALTER FUNCTION shop.up2(jsonb) RENAME TO other;
	CREATE FUNCTION shop.up2(p jsonb) RETURNS jsonb LANGUAGE sql AS $$
	SELECT p || '{"mended": true}' $$;
	SELECT outbox_redrive('latest')});
is(arrival('/latest', $bad), '3 {"bad":1,"currency":"EUR","mended":true}',
	'a redriven event is upcast by the replaced function');
sql('DROP FUNCTION shop.up2(jsonb); ALTER FUNCTION shop.other(jsonb) RENAME TO up2');

# Events of an aggregate are blocked behind a failed one, and delivered in order later.
sql(q{SELECT outbox_alter_sink('latest', max_attempts => 1000, backoff_base => '20ms',
		backoff_max => '20ms')});
my @chain = map { event('Up', 'chain', $_ == 2 ? '{"bad": 2}' : "{\"n\": $_}") } 1 .. 5;
wait_until(sub { sql("SELECT count(*) FROM outbox_retries r JOIN outbox_consumers
				USING (consumer_id) WHERE name = 'latest' AND aggregate_id = 'chain'") == 4 });
is(scalar(grep { my $one = $_; grep { $_->{id} eq $one } $receiver->records('/latest') } @chain), 1,
	'events behind a failed upcast are blocked');
sql(q{CREATE OR REPLACE FUNCTION shop.up2(p jsonb) RETURNS jsonb LANGUAGE sql AS $$
		SELECT p || '{"up": 2}' $$});
ok(arrival('/latest', $chain[4]), 'blocked events are delivered when the upcaster succeeds');
my %position = map { $chain[$_] => $_ } 0 .. 4;
is(join(' ', map { $position{ $_->{id} } // () } $receiver->records('/latest')), '0 1 2 3 4',
	'blocked events are delivered in order');

# An upcast fails while an earlier event of the aggregate is in flight, and succeeds before that one
# is rejected: the event must wait.
sub claimed
{
	return sql(q{SELECT claimed FROM _outbox.sink_states() JOIN outbox_consumers USING (consumer_id)
			WHERE name = 'latest'});
}
$receiver->control({ path => '/latest', contains => 'slow', delay => 2,
		status => 422, times => 1 });
sql(q{CREATE OR REPLACE FUNCTION shop.up2(p jsonb) RETURNS jsonb LANGUAGE sql AS $$
		SELECT CASE WHEN p ? 'bad' THEN (1 / (p ->> 'bad')::int)::text::jsonb ELSE p END $$});
my @overtaking = (event('Up', 'overtaking', '{"slow": 1}'));
wait_until(sub { claimed() == 1 }) or diag('the first event is not in flight');
push @overtaking, event('Up', 'overtaking', '{"bad": 0}');
wait_until(sub { last_error($overtaking[1]) }) or diag('the upcast has not failed');
sql(q{CREATE OR REPLACE FUNCTION shop.up2(p jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT p $$});
wait_until(sub { claimed() == 2 }) or diag('the two events are not both in hand');
ok(arrival('/latest', $overtaking[1]),
	'an event whose upcast failed behind an event in flight is delivered');
my %of = map { $overtaking[$_] => $_ } 0, 1;
is(join(' ', map { $of{ $_->{id} } // () } $receiver->records('/latest')), '0 0 1',
	'the event is delivered after the retry of the earlier one');
$receiver->control;

# Upcasters that do not return.
sql(q{
	CREATE OR REPLACE FUNCTION shop.up2(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_sleep(1000) WHERE p ? 'sleep';
		WHILE p ? 'loop' LOOP
		END LOOP;
		RETURN p || '{"up": 2}';
	END $$;
	SELECT outbox_alter_sink('latest', max_attempts => 2)});
for my $kind ('sleep', 'loop')
{
	my @stuck = map { event('Up', "$kind $_", "{\"$kind\": $_}") } 1 .. 2;
	my $healthy = event('Up', "not $kind", '{"n": 1}');
	my $start = time;
	my @other = map { event('Plain', 'other', '{"n": 1}') } 1 .. 5;
	arrival('/stored', $_, 5) for @other;
	cmp_ok(time - $start, '<', 3, "$kind: another sink delivers while an upcaster hangs");
	is(arrival('/latest', $healthy), '3 {"currency":"EUR","n":1,"up":2}',
		"$kind: events that the upcaster accepts are delivered");
	wait_until(sub { sql("SELECT count(*) FROM outbox_messages_dlq
					WHERE payload ? '$kind'") == 2 });
	like(last_error($_),
		qr/^upcaster shop\.up2\(jsonb\) of Up 2: it took longer than outbox\.upcaster_timeout, 100 ms$/,
		"$kind: outbox.upcaster_timeout stops the upcaster")
	  for @stuck;
}
is(sql("SELECT count(*) FROM outbox_retries"), 0, 'no retries are left');

# The server crashes while an upcaster runs: the event is delivered afterwards.
sql(q{SELECT outbox_discard('latest', array_agg(id)) FROM outbox_messages_dlq});
my $pid = relay_pid($node);
$id = event('Up', 'crash', '{"loop": 1}');
wait_until(sub { sql("SELECT count(*) FROM pg_stat_activity
				WHERE pid = $pid AND state = 'active'") > 0 }, 5);
$node->stop('immediate');
$node->start;
sql(q{CREATE OR REPLACE FUNCTION shop.up2(p jsonb) RETURNS jsonb LANGUAGE sql AS $$
		SELECT p || '{"up": 2}' $$});
sql(q{SELECT outbox_redrive('latest')});
is(arrival('/latest', $id), '3 {"currency":"EUR","loop":1,"up":2}',
	'an event is delivered after a crash in its upcaster, by the replaced function');

# An upcaster runs with the rights of an admin without other privileges.
sql(q{
	CREATE ROLE boss LOGIN;
	SELECT outbox_grant('boss', 'admin');
	CREATE TABLE shop.secret AS SELECT 'hidden' AS word;
	GRANT USAGE, CREATE ON SCHEMA shop TO boss;
	SET ROLE boss;
	CREATE FUNCTION shop.nosy(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	DECLARE
		said text := 'done';
	BEGIN
		BEGIN
			EXECUTE p ->> 'do' INTO said;
		EXCEPTION WHEN OTHERS THEN
			said := SQLERRM;
		END;
		RETURN jsonb_build_object('as', current_user, 'said', said);
	END $$;
	SELECT outbox_register_upcaster('Nosy', 1, 'shop.nosy(jsonb)');
	SELECT outbox_alter_sink('latest', event_types => '{Nosy, Up, Plain}')});
for (
	[ 'SELECT word FROM shop.secret' => 'permission denied for table secret' ],
	[ 'SET ROLE postgres' => 'cannot set parameter "role" within security-definer function' ],
	[ 'CREATE TABLE shop.mine ()' => 'cannot execute CREATE TABLE in a read-only transaction' ],
	[ "COPY (SELECT 1) TO PROGRAM 'true'" => 'permission denied to COPY to or from an '
		. 'external program' ])
{
	my ($do, $said) = @$_;
	$id = event('Nosy', 'nosy', JSON::PP->new->encode({ do => $do }) =~ s/'/''/gr);
	# Versions up to 15 have another wording.
	my $old = 'must be superuser or have privileges of the pg_execute_server_program role';
	is(arrival('/latest', $id) =~ s/$old/permission denied/r, '2 '
		  . JSON::PP->new->canonical->encode({ as => 'boss', said => $said }),
		"an upcaster has restricted rights in the relay: $do");
}

# Dump and restore.
my $dump = "${PostgreSQL::Test::Utils::tmp_check}/dump.sql";
sql(q{SELECT outbox_create_consumer('reader', start_at => 'latest',
		payload_versions => '{"Up": 2}')});
event('Up', 'dumped', '{"n": 1}');
event('Nosy', 'dumped', '{"do": "SELECT 1"}');
sql('CREATE DATABASE target');
command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-f', $dump ], 'pg_dump succeeds');
command_ok([ 'psql', '-X', '-q', '-1', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('target'),
		'-f', $dump ], 'the dump restores in one transaction');
is($node->safe_psql('target', 'SELECT event_type, from_version, function_schema, function_name,
			registered_by FROM _outbox.upcasters ORDER BY 1, 2'),
	"Nosy|1|shop|nosy|boss\nUp|1|shop|up1|postgres\nUp|2|shop|up2|postgres",
	'upcasters are in the dump');
is($node->safe_psql('target', q{SELECT event_type, event_version, payload
			FROM outbox_claim('reader') ORDER BY id}),
	qq(Up|2|{"n": 1, "currency": "EUR"}\nNosy|2|{"as": "boss", "said": "1"}),
	'restored upcasters work');

$node->stop;
done_testing();
