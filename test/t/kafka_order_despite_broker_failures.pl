# Brokers are down, change leaders or refuse an event: every acceptable event arrives in order, and
# only an unacceptable event becomes a dead letter.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use IPC::Run;
use OutboxKafka;
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

need_kafka();

my $kills = $ENV{OUTBOX_SOAK} ? 10 : 1;
# Memory beyond outbox.relay_memory: a backend, its libraries and their threads.
my ($relay_memory, $allowance) = (8 * 1024, 40 * 1024);

my $kafka = OutboxKafka->start('one', 'auto.create.topics.enable=false');
my $node = start_node('main',
	conf => "outbox.backoff_base = '100ms'\noutbox.backoff_max = '500ms'\n"
	  . "outbox.immediate_retries = 1\nautovacuum = off\n"
	  . "outbox.relay_memory = '${relay_memory}kB'\n");
$node->safe_psql('postgres', q{SELECT outbox_setup();
	-- Text of that many bytes that does not compress.
	CREATE FUNCTION noise(bytes int) RETURNS text LANGUAGE sql AS $$
	SELECT left(string_agg(encode(sha256(random()::text::bytea), 'base64'), ''), bytes)
	FROM generate_series(0, bytes / 44) $$;
	-- Events of ten aggregates, numbered per aggregate; those with an index in `large` are large.
	CREATE FUNCTION enqueue(type text, events int, bytes int, large int[] = '{}',
	large_bytes int = 0) RETURNS bigint LANGUAGE sql AS $$
		SELECT count(outbox_enqueue('Order', (i % 10)::text, type, jsonb_build_object('n', i / 10,
		'noise', noise(CASE WHEN i = ANY (large) THEN large_bytes ELSE bytes END))))
		FROM generate_series(10, events + 9) i $$});

sub sql
{
	return $node->safe_psql('postgres', @_);
}

# A sink with a filter for one event type, and a topic, of its own name.
sub sink
{
	my ($name, $config, $options) = @_;
	create_kafka_sink($node, $kafka, $name, { topic => $name, %{ $config // {} } },
		"event_types => ARRAY['$name']" . ($options ? ", $options" : ''));
}

sub dead
{
	my ($name, $what) = @_;
	return sql("SELECT $what FROM outbox_messages_dlq JOIN outbox_consumers USING (consumer_id) "
		. "WHERE name = '$name'");
}

# Every event of a type that is no dead letter has arrived, in the order of its aggregate.
sub arrived
{
	my ($cluster, $name, $promise, $timeout) = @_;
	my $wanted = sql("SELECT count(*) FROM outbox_messages "
		. "WHERE event_type = '$name'") - dead($name, 'count(*)');
	my ($records, $again, $numbers);
	wait_until(sub {
		($records, $again, $numbers) = $cluster->counted($name);
		$records - $again >= $wanted }, $timeout // 30);
	is($records - $again, $wanted, "$name: $promise");
	my @disordered = grep {
		my $last = 0;
		grep { my $before = $last; $last = $_; $_ <= $before } @{ $numbers->{$_} }
	} sort keys %$numbers;
	is("@disordered", '', "$name: events of an aggregate arrive in order"
		. ($again ? "; $again repeats" : ''));
}

# Unacceptable events: too large for the topic, alone or in a batch; too large for the client; or
# with an aggregate type that cannot be in the name of a topic.
$kafka->topic($_, 1, 'max.message.bytes=20000') for 'large', 'many', 'both', 'often';
$kafka->topic($_, 3) for 'client', 'name.Order', 'away';
sink('large', undef, 'max_attempts => 1');
sink('many', undef, 'max_attempts => 1');
sink('both', undef, 'max_attempts => 1');
sink('often', undef, 'max_attempts => 3');
sink('client', { 'message.max.bytes' => 10000 }, 'max_attempts => 1');
sink('name', { topic => 'name.{aggregate_type}' }, 'max_attempts => 2');
sink('missing', { 'topic.metadata.propagation.max.ms' => 500 });
sql(q{SELECT enqueue('large', 200, 10, '{105}', 60000);
	SELECT enqueue('many', 2000, 300);
	SELECT enqueue('both', 2000, 300, '{900, 1001, 1500}', 60000);
	SELECT enqueue('often', 60, 10, '{35}', 60000);
	SELECT enqueue('client', 200, 10, '{105}', 20000);
	SELECT enqueue('missing', 100, 10);
	SELECT enqueue('name', 50, 10);
	SELECT outbox_enqueue(t, 1, 'name', '{}') FROM unnest('{Café, a b, a/b}'::text[]) t;
	SELECT outbox_enqueue('Order', 'last', 'name', '{}')});
my $started = time;
ok(wait_until(sub { dead('large', 'count(*)') == 1 }),
	'large: an event that is too large for its topic becomes a dead letter');
is(dead('large', "aggregate_id || ' ' || (payload ->> 'n')"), '5 10',
	'large: no other event becomes a dead letter');
like(dead('large', 'last_error'), qr/too large/i, 'large: last_error gives the reason');
arrived($kafka, 'large', 'every other event arrives');
arrived($kafka, 'many', 'events that are too large only as a batch arrive');
is(dead('many', 'count(*)'), 0, 'many: no event becomes a dead letter');
ok(wait_until(sub { dead('both', 'count(*)') >= 3 }),
	'both: events that are too large become dead letters');
is(dead('both', "string_agg(aggregate_id || ' ' || (payload ->> 'n'), ', ' ORDER BY id)"),
	'0 90, 1 100, 0 150', 'both: no other event becomes a dead letter');
arrived($kafka, 'both', 'every other event arrives');
cmp_ok(time - $started, '<', 10, 'large, many and both: the sinks need less than 10 s');
ok(wait_until(sub { dead('often', 'attempts') eq 3 }),
	'often: an event that is too large has max_attempts attempts');
arrived($kafka, 'often', 'events blocked behind a dead letter arrive');
ok(wait_until(sub { dead('client', 'count(*)') == 1 }),
	'client: an event larger than message.max.bytes becomes a dead letter');
is(dead('client', "aggregate_id || ' ' || (payload ->> 'n')"), '5 10',
	'client: no other event becomes a dead letter');
like(dead('client', 'last_error'), qr/too large/i, 'client: last_error gives the reason');
arrived($kafka, 'client', 'every other event arrives');
ok(wait_until(sub { dead('name', 'count(*)') == 3 }),
	'name: events whose topic would have an invalid name become dead letters');
is(dead('name', "string_agg(aggregate_type, ', ' ORDER BY id)"), 'Café, a b, a/b',
	'name: no other event becomes a dead letter');
like(dead('name', 'min(last_error)'), qr/name of its topic/i, 'name: last_error gives the reason');
is(scalar(my @named = $kafka->wait_for('name.Order', 51)), 51, 'name: every other event arrives');
my @accepting = ('large', 'many', 'both', 'often', 'client', 'name');
like(wait_for_status($node, $_, qr/^t/, 5), qr/^t/,
	"outbox_status() shows sink $_ as ok after its dead letters") for @accepting;
my $accepting = join '|', @accepting;
is(join("\n", grep { /sink "($accepting)" is in trouble/ } split /\n/, slurp_file($node->logfile)),
	'', 'a refused event does not put its sink into trouble');

# A missing topic.
like(wait_for_status($node, 'missing', qr/^f\|.*unknown topic/i), qr/^f\|.*unknown topic/i,
	'a missing topic puts the sink into trouble, and outbox_status() gives the reason');
is(sql("SELECT count(*) FROM outbox_retries") . dead('missing', 'count(*)'), '00',
	'a missing topic leads to no retry and no dead letter');
$kafka->topic('missing', 3);
arrived($kafka, 'missing', 'every event arrives once the topic is created');
like(wait_for_status($node, 'missing', qr/^t/), qr/^t/,
	'outbox_status() shows the sink as ok once the topic is created');
sql("SELECT outbox_drop_sink(name, true) FROM outbox_consumers WHERE kind = 'kafka'");

# While a broker is down, events wait in the log, not in the memory of the relay.
sink('away');
sql("SELECT enqueue('away', 100, 2500)");
arrived($kafka, 'away', 'every event arrives before the broker is killed');
my $pid = relay_pid($node);
my $memory = sub { slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+)/m ? $1
	: die "no worker $pid" };
my ($at_rest, $most) = ($memory->(), 0);
$kafka->kill;
for my $round (1 .. 10)
{
	sql("SELECT count(outbox_enqueue('Order', (i % 10)::text, 'away', jsonb_build_object('n', "
		. "1 + i / 10, 'noise', repeat('?', 2500))))
		FROM generate_series($round * 3000, $round * 3000 + 2999) i");
	my $now = $memory->();
	$most = $now if $now > $most;
}
like(wait_for_status($node, 'away', qr/^f/), qr/^f\|.*(refused|down|disconnected)/i,
	'outbox_status() shows that the broker is down');
# The soak test goes on for minutes.
for (my $end = time + ($ENV{OUTBOX_SOAK} ? 240 : 0); time < $end; sleep 1)
{
	my $now = $memory->();
	$most = $now if $now > $most;
}
$kafka->run;
ok(wait_until(sub {
	my $now = $memory->();
	$most = $now if $now > $most;
	sink_status($node, 'away') =~ /^t/ }, 30),
	'outbox_status() shows the sink as ok after a restart of the broker');
arrived($kafka, 'away', 'every event that was enqueued while the broker was down arrives', 60);
is(relay_pid($node), $pid, 'the relay keeps its process while the broker is down');
$ENV{OUTBOX_SANITIZED}
  ? note('the memory of the relay is not measured: AddressSanitizer keeps freed memory')
  : cmp_ok($most, '<=', $relay_memory + $allowance,
	"the relay keeps to outbox.relay_memory while the broker is down (at most $most kB, "
	  . "at rest $at_rest kB)");
is(sql('SELECT (SELECT count(*) FROM outbox_retries) + (SELECT count(*) FROM outbox_messages_dlq)'),
	0, 'a broker that is down leads to no retry and no dead letter');
drop_sinks($node, 'away');
$kafka->kill;

# Leaders of partitions change while events flow.
my $three = OutboxKafka->start('three', '--nodes', 3);
$three->topic('leaders', 3);
create_kafka_sink($node, $three, 'leaders', { topic => 'leaders' },
	"event_types => ARRAY['leaders']");
sql(q{CREATE PROCEDURE produce(events int, pause float) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. events LOOP
			PERFORM outbox_enqueue('Order', (i % 20)::text, 'leaders', jsonb_build_object('n',
			1 + i / 20));
			COMMIT;
			PERFORM pg_sleep(pause);
		END LOOP;
	END $$});
my $writer = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c',
	"CALL produce(4000 * $kills, 0.001)" ]);
for my $partition (map { $_ % 3 } 1 .. $kills)
{
	my $seen = ($three->counted('leaders'))[0];
	ok(wait_until(sub { ($three->counted('leaders'))[0] >= $seen + 100 }),
		'100 more events arrive before the leader is killed');
	my $leader = ($three->describe('leaders'))[$partition]{leader};
	$three->kill($leader);
	# The size of a partition is unknown while it has no leader.
	ok(wait_until(sub {
		my $now = eval { ($three->describe('leaders'))[$partition]{leader} } // $leader;
		$now > 0 && $now != $leader }),
		"another node leads the partition after node $leader is killed");
	$three->run('--node', $leader);
}
$writer->finish;
arrived($three, 'leaders', 'every event arrives although leaders are killed', 60);
like(wait_for_status($node, 'leaders', qr/^t/), qr/^t/,
	'outbox_status() shows the sink as ok after leaders were killed');

$node->stop;
done_testing();
