# Brokers that are away, change their minds or refuse an event: what can arrive arrives, in order, and
# only an event that no broker would take is given up.
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
# Beside what outbox.relay_memory bounds: a backend, its libraries and their threads.
my ($relay_memory, $allowance) = (8 * 1024, 40 * 1024);

my $kafka = OutboxKafka->start('one', 'auto.create.topics.enable=false');
my $node = start_node('main',
	conf => "outbox.backoff_base = '100ms'\noutbox.backoff_max = '500ms'\noutbox.immediate_retries = 1\nautovacuum = off\noutbox.relay_memory = '${relay_memory}kB'\n");
$node->safe_psql('postgres', q{SELECT outbox_setup();
	-- So many bytes that do not compress.
	CREATE FUNCTION noise(bytes int) RETURNS text LANGUAGE sql AS $$ SELECT left(string_agg(encode(sha256(random()::text::bytea), 'base64'), ''), bytes) FROM generate_series(0, bytes / 44) $$;
	-- Events of ten aggregates, each with numbers of its own; the n-th of all of them is large.
	CREATE FUNCTION enqueue(type text, events int, bytes int, large int[] = '{}', large_bytes int = 0) RETURNS bigint LANGUAGE sql AS $$
		SELECT count(outbox_enqueue('Order', (i % 10)::text, type, jsonb_build_object('n', i / 10, 'noise', noise(CASE WHEN i = ANY (large) THEN large_bytes ELSE bytes END))))
		FROM generate_series(10, events + 9) i $$});

sub sql
{
	return $node->safe_psql('postgres', @_);
}

# A sink that wants events of one type, its name, and sends them to a topic of that name.
sub sink
{
	my ($name, $config, $options) = @_;
	create_kafka_sink($node, $kafka, $name, { topic => $name, %{ $config // {} } }, "event_types => ARRAY['$name']" . ($options ? ", $options" : ''));
}

sub dead
{
	my ($name, $what) = @_;
	return sql("SELECT $what FROM outbox_messages_dlq JOIN outbox_consumers USING (consumer_id) WHERE name = '$name'");
}

# All of an event type have arrived, in order for each aggregate, but those that are dead letters.
sub arrived
{
	my ($cluster, $name, $promise, $timeout) = @_;
	my $wanted = sql("SELECT count(*) FROM outbox_messages WHERE event_type = '$name'") - dead($name, 'count(*)');
	my ($records, $again, $numbers);
	wait_until(sub {
		($records, $again, $numbers) = $cluster->counted($name);
		$records - $again >= $wanted }, $timeout // 30);
	is($records - $again, $wanted, "$name: $promise");
	my @disordered = grep { my $last = 0; grep { my $before = $last; $last = $_; $_ <= $before } @{ $numbers->{$_} } } sort keys %$numbers;
	is("@disordered", '', 'in order for each aggregate' . ($again ? "; $again came again" : ''));
}

# Too large: for the topic, alone or together with others; for the client; or for the name of a topic.
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
ok(wait_until(sub { dead('large', 'count(*)') == 1 }), 'an event that is too large for its topic is a dead letter');
is(dead('large', "aggregate_id || ' ' || (payload ->> 'n')"), '5 10', 'it, and no other');
like(dead('large', 'last_error'), qr/too large/i, 'with the reason');
arrived($kafka, 'large', 'all others arrive');
arrived($kafka, 'many', 'those that are too large only together arrive');
is(dead('many', 'count(*)'), 0, 'and none is a dead letter');
ok(wait_until(sub { dead('both', 'count(*)') >= 3 }), 'among many: those that are too large are dead letters');
is(dead('both', "string_agg(aggregate_id || ' ' || (payload ->> 'n'), ', ' ORDER BY id)"), '0 90, 1 100, 0 150', 'they, and no other');
arrived($kafka, 'both', 'all others arrive');
cmp_ok(time - $started, '<', 10, 'without much ado');
ok(wait_until(sub { dead('often', 'attempts') eq 3 }), 'an event that is too large has as many attempts as others');
arrived($kafka, 'often', 'what waited behind it arrives');
ok(wait_until(sub { dead('client', 'count(*)') == 1 }), 'an event that is larger than message.max.bytes is a dead letter');
is(dead('client', "aggregate_id || ' ' || (payload ->> 'n')"), '5 10', 'it, and no other');
like(dead('client', 'last_error'), qr/too large/i, 'with the reason');
arrived($kafka, 'client', 'all others arrive');
ok(wait_until(sub { dead('name', 'count(*)') == 3 }), 'events whose topic cannot have its name are dead letters');
is(dead('name', "string_agg(aggregate_type, ', ' ORDER BY id)"), 'Café, a b, a/b', 'they, and no others');
like(dead('name', 'min(last_error)'), qr/name of its topic/i, 'with the reason');
is(scalar(my @named = $kafka->wait_for('name.Order', 51)), 51, 'all others arrive');
my @blameless = ('large', 'many', 'both', 'often', 'client', 'name');
like(wait_for_status($node, $_, qr/^t/, 5), qr/^t/, "sink $_ is well") for @blameless;
my $blameless = join '|', @blameless;
is(join("\n", grep { /sink "($blameless)" is in trouble/ } split /\n/, slurp_file($node->logfile)), '', 'and was all the time');

# A topic that is not there.
like(wait_for_status($node, 'missing', qr/^f\|.*unknown topic/i), qr/^f\|.*unknown topic/i, 'a topic that is not there is trouble, and outbox_status() says so');
is(sql("SELECT count(*) FROM outbox_retries") . dead('missing', 'count(*)'), '00', 'no event is to blame');
$kafka->topic('missing', 3);
arrived($kafka, 'missing', 'when it is there everything arrives');
like(wait_for_status($node, 'missing', qr/^t/), qr/^t/, 'and the sink is well');
sql("SELECT outbox_drop_sink(name, true) FROM outbox_consumers WHERE kind = 'kafka'");

# A broker that is away: everything waits where it is safe, not in memory.
sink('away');
sql("SELECT enqueue('away', 100, 2500)");
arrived($kafka, 'away', 'before the broker goes away everything arrives');
my $pid = relay_pid($node);
my $memory = sub { slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+)/m ? $1 : die "no worker $pid" };
my ($at_rest, $most) = ($memory->(), 0);
$kafka->kill;
for my $round (1 .. 10)
{
	sql("SELECT count(outbox_enqueue('Order', (i % 10)::text, 'away', jsonb_build_object('n', 1 + i / 10, 'noise', repeat('?', 2500))))
		FROM generate_series($round * 3000, $round * 3000 + 2999) i");
	my $now = $memory->();
	$most = $now if $now > $most;
}
like(wait_for_status($node, 'away', qr/^f/), qr/^f\|.*(refused|down|disconnected)/i, 'while the broker is away, outbox_status() says so');
# For minutes, if there is time.
for (my $end = time + ($ENV{OUTBOX_SOAK} ? 240 : 0); time < $end; sleep 1)
{
	my $now = $memory->();
	$most = $now if $now > $most;
}
$kafka->run;
ok(wait_until(sub {
	my $now = $memory->();
	$most = $now if $now > $most;
	sink_status($node, 'away') =~ /^t/ }, 30), 'when it is back, the sink is well');
arrived($kafka, 'away', 'what was enqueued meanwhile arrives', 60);
is(relay_pid($node), $pid, 'through the same worker');
$ENV{OUTBOX_SANITIZED}
  ? note('its memory is not measured: AddressSanitizer keeps what is freed')
  : cmp_ok($most, '<=', $relay_memory + $allowance, "which had $most kB of its own at most, $at_rest kB at rest");
is(sql('SELECT (SELECT count(*) FROM outbox_retries) + (SELECT count(*) FROM outbox_messages_dlq)'), 0, 'and no event was to blame');
drop_sinks($node, 'away');
$kafka->kill;

# Leaders that change while events flow.
my $three = OutboxKafka->start('three', '--nodes', 3);
$three->topic('leaders', 3);
create_kafka_sink($node, $three, 'leaders', { topic => 'leaders' }, "event_types => ARRAY['leaders']");
sql(q{CREATE PROCEDURE produce(events int, pause float) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. events LOOP
			PERFORM outbox_enqueue('Order', (i % 20)::text, 'leaders', jsonb_build_object('n', 1 + i / 20));
			COMMIT;
			PERFORM pg_sleep(pause);
		END LOOP;
	END $$});
my $writer = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', "CALL produce(4000 * $kills, 0.001)" ]);
for my $partition (map { $_ % 3 } 1 .. $kills)
{
	my $seen = ($three->counted('leaders'))[0];
	ok(wait_until(sub { ($three->counted('leaders'))[0] >= $seen + 100 }), 'events flow');
	my $leader = ($three->describe('leaders'))[$partition]{leader};
	$three->kill($leader);
	# Nobody can say how much a partition has while nobody leads it.
	ok(wait_until(sub { my $now = eval { ($three->describe('leaders'))[$partition]{leader} } // $leader; $now > 0 && $now != $leader }), "node $leader is killed, and another leads");
	$three->run('--node', $leader);
}
$writer->finish;
arrived($three, 'leaders', 'all arrive although leaders were killed', 60);
like(wait_for_status($node, 'leaders', qr/^t/), qr/^t/, 'and the sink is well');

$node->stop;
done_testing();
