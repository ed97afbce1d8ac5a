# Sinks get events in the version that they ask for; a bad upcaster is nobody's trouble but its events'.
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
	conf => "outbox.backoff_base = '50ms'\noutbox.backoff_max = '100ms'\noutbox.immediate_retries = 0\noutbox.upcaster_timeout = '100ms'\n");

sub sql
{
	return $node->safe_psql('postgres', @_);
}

sub event
{
	my ($type, $aggregate, $payload) = @_;
	return sql("SELECT outbox_enqueue('Order', '$aggregate', '$type', '$payload')");
}

# The version and the payload in which an event has come; nothing if it does not come.
sub arrival
{
	my ($path, $id, $timeout) = @_;
	my $found;
	wait_until(sub { ($found) = grep { $_->{id} eq $id } $receiver->records($path); $found }, $timeout);
	return $found ? join ' ', header($found, 'ce-eventversion'), JSON::PP->new->canonical->encode(field($found)) : '';
}

sub last_error
{
	my ($id) = @_;
	return sql("SELECT last_error FROM (SELECT tracking_id, last_error FROM outbox_retries
		UNION ALL SELECT tracking_id, last_error FROM outbox_messages_dlq) AS e WHERE tracking_id = '$id'");
}

sql(q{
	SELECT outbox_setup();
	CREATE SCHEMA shop;
	CREATE FUNCTION shop.up1(jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$ SELECT $1 || '{"currency": "EUR"}' $$;
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
create_sink($node, 'latest', { url => $receiver->url('/latest') }, "event_types => '{Up, Plain}', max_attempts => 3");
create_sink($node, 'second', { url => $receiver->url('/second') }, q(payload_versions => '{"Up": 2}'));
create_sink($node, 'stored', { url => $receiver->url('/stored') }, q(payload_versions => '{"Up": "stored"}'));

my $id = event('Up', 1, '{"n": 1}');
is(arrival('/latest', $id), '3 {"currency":"EUR","n":1,"up":2}', 'a sink gets the latest version');
is(arrival('/second', $id), '2 {"currency":"EUR","n":1}', 'or the one that it asks for');
is(arrival('/stored', $id), '1 {"n":1}', 'or what was written');
$id = event('Plain', 1, '{"n": 1}');
is(arrival('/latest', $id), '1 {"n":1}', 'a type without upcasters comes as it was written');
sql(q{SELECT outbox_alter_sink('second', payload_versions => '{"Up": 3}')});
$id = event('Up', 1, '{"n": 2}');
is(arrival('/second', $id), '3 {"currency":"EUR","n":2,"up":2}', 'a sink that is altered gets another version');
sql(q{SELECT outbox_alter_sink('second', payload_versions => '{"Up": 2}')});
like(refusal($node, q{SELECT outbox_alter_sink('second', payload_versions => '{"Up": 4}')}), qr/22023.*not to 4/, 'one that nothing leads to is refused');

# Failures.
my $bad = event('Up', 'failing', '{"bad": 1}');
my $behind = event('Plain', 'failing', '{"n": 1}');
my $beside = event('Up', 'beside', '{"n": 1}');
is(arrival('/latest', $beside), '3 {"currency":"EUR","n":1,"up":2}', 'others pass an event whose upcaster fails');
is(arrival('/latest', $behind), '1 {"n":1}', 'what is behind it has its turn when it is dead');
is(sql("SELECT attempts, event_version, payload, last_error FROM outbox_messages_dlq WHERE tracking_id = '$bad'"),
	'3|1|{"bad": 1}|upcaster shop.up2(jsonb) of Up 2: no such thing', 'as it was written, with the function that failed');
is(arrival('/second', $bad), '2 {"bad":1,"currency":"EUR"}', 'a sink that does not need that function has got it');
my ($at_behind, $at_bad) = map { my $one = $_; (grep { $_->{id} eq $one } $receiver->records('/latest'))[0] } $behind, $bad;
ok($at_behind && !$at_bad, 'it did not leave');
sql(q{
	ALTER FUNCTION shop.up2(jsonb) RENAME TO other;
	CREATE FUNCTION shop.up2(p jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT p || '{"mended": true}' $$;
	SELECT outbox_redrive('latest')});
is(arrival('/latest', $bad), '3 {"bad":1,"currency":"EUR","mended":true}', 'a redriven one goes through the function that was mended');
sql('DROP FUNCTION shop.up2(jsonb); ALTER FUNCTION shop.other(jsonb) RENAME TO up2');

# An aggregate waits behind the one that failed, and goes on in order.
sql(q{SELECT outbox_alter_sink('latest', max_attempts => 1000, backoff_base => '20ms', backoff_max => '20ms')});
my @chain = map { event('Up', 'chain', $_ == 2 ? '{"bad": 2}' : "{\"n\": $_}") } 1 .. 5;
wait_until(sub { sql("SELECT count(*) FROM outbox_retries r JOIN outbox_consumers USING (consumer_id) WHERE name = 'latest' AND aggregate_id = 'chain'") == 4 });
is(scalar(grep { my $one = $_; grep { $_->{id} eq $one } $receiver->records('/latest') } @chain), 1, 'what is behind one that fails waits');
sql(q{CREATE OR REPLACE FUNCTION shop.up2(p jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT p || '{"up": 2}' $$});
ok(arrival('/latest', $chain[4]), 'and comes when it is mended');
my %position = map { $chain[$_] => $_ } 0 .. 4;
is(join(' ', map { $position{ $_->{id} } // () } $receiver->records('/latest')), '0 1 2 3 4', 'in its order');

# One that fails while an earlier event is on its way, and works before that is refused: it waits.
sub claimed
{
	return sql(q{SELECT claimed FROM _outbox.sink_states() JOIN outbox_consumers USING (consumer_id) WHERE name = 'latest'});
}
$receiver->control({ path => '/latest', contains => 'slow', delay => 2, status => 422, times => 1 });
sql(q{CREATE OR REPLACE FUNCTION shop.up2(p jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT CASE WHEN p ? 'bad' THEN (1 / (p ->> 'bad')::int)::text::jsonb ELSE p END $$});
my @overtaking = (event('Up', 'overtaking', '{"slow": 1}'));
wait_until(sub { claimed() == 1 }) or diag('it is not on its way');
push @overtaking, event('Up', 'overtaking', '{"bad": 0}');
wait_until(sub { last_error($overtaking[1]) }) or diag('it has not failed');
sql(q{CREATE OR REPLACE FUNCTION shop.up2(p jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT p $$});
wait_until(sub { claimed() == 2 }) or diag('they do not meet');
ok(arrival('/latest', $overtaking[1]), 'an event that failed while an earlier one was on its way comes');
my %of = map { $overtaking[$_] => $_ } 0, 1;
is(join(' ', map { $of{ $_->{id} } // () } $receiver->records('/latest')), '0 0 1', 'but not before that one has come again');
$receiver->control;

# One that never ends.
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
	cmp_ok(time - $start, '<', 3, "$kind: another sink goes on");
	is(arrival('/latest', $healthy), '3 {"currency":"EUR","n":1,"up":2}', "$kind: events that it can handle arrive");
	wait_until(sub { sql("SELECT count(*) FROM outbox_messages_dlq WHERE payload ? '$kind'") == 2 });
	like(last_error($_), qr/^upcaster shop\.up2\(jsonb\) of Up 2: it took longer than outbox\.upcaster_timeout, 100 ms$/, "$kind: it was stopped")
	  for @stuck;
}
is(sql("SELECT count(*) FROM outbox_retries"), 0, 'nothing waits any more');

# A relay that is killed while an upcaster runs: its events come again, and nothing is lost.
sql(q{SELECT outbox_discard('latest', array_agg(id)) FROM outbox_messages_dlq});
my $pid = relay_pid($node);
$id = event('Up', 'crash', '{"loop": 1}');
wait_until(sub { sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid AND state = 'active'") > 0 }, 5);
$node->stop('immediate');
$node->start;
sql(q{CREATE OR REPLACE FUNCTION shop.up2(p jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT p || '{"up": 2}' $$});
sql(q{SELECT outbox_redrive('latest')});
is(arrival('/latest', $id), '3 {"currency":"EUR","loop":1,"up":2}', 'after a crash it is sent, by the function as it is then');

# Rights: as an admin who may do little else.
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
	[ "COPY (SELECT 1) TO PROGRAM 'true'" => 'permission denied to COPY to or from an external program' ])
{
	my ($do, $said) = @$_;
	$id = event('Nosy', 'nosy', JSON::PP->new->encode({ do => $do }) =~ s/'/''/gr);
	# As the server has said it until 15.
	is(arrival('/latest', $id) =~ s/must be superuser or have privileges of the pg_execute_server_program role/permission denied/r, '2 ' . JSON::PP->new->canonical->encode({ as => 'boss', said => $said }), "in the relay, too: $do");
}

# Dump and restore.
my $dump = "${PostgreSQL::Test::Utils::tmp_check}/dump.sql";
sql(q{SELECT outbox_create_consumer('reader', start_at => 'latest', payload_versions => '{"Up": 2}')});
event('Up', 'dumped', '{"n": 1}');
event('Nosy', 'dumped', '{"do": "SELECT 1"}');
sql('CREATE DATABASE target');
command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-f', $dump ], 'pg_dump');
command_ok([ 'psql', '-X', '-q', '-1', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('target'), '-f', $dump ], 'restore in one transaction');
is($node->safe_psql('target', 'SELECT event_type, from_version, function_schema, function_name, registered_by FROM _outbox.upcasters ORDER BY 1, 2'),
	"Nosy|1|shop|nosy|boss\nUp|1|shop|up1|postgres\nUp|2|shop|up2|postgres", 'the upcasters are there');
is($node->safe_psql('target', q{SELECT event_type, event_version, payload FROM outbox_claim('reader') ORDER BY id}),
	qq(Up|2|{"n": 1, "currency": "EUR"}\nNosy|2|{"as": "boss", "said": "1"}), 'and work');

$node->stop;
done_testing();
