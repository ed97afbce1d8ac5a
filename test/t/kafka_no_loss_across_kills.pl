# Broker, relay and server are killed while events flow: each committed event is in the topic, and
# events of an aggregate are in the order of their commits, apart from repeats.
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

my $soak = $ENV{OUTBOX_SOAK};
my ($events, $kills, $crashes) = $soak ? (1_000_000, 12, 3) : (20_000, 2, 1);
my ($aggregates, $writers) = (50, 4);
my $patience = $soak ? 600 : 60;

my $kafka = OutboxKafka->start('broker');
$kafka->topic('counted', 6);
my $node = start_node('main',
	conf => "outbox.lease = '5s'\noutbox.backoff_base = '50ms'\noutbox.backoff_max = '500ms'\n"
	  . "log_statement = none\nlog_min_duration_statement = -1\nmax_wal_size = '4GB'\n");
# A writer locks the counter of its aggregate until its commit, so numbers are in the order of
# commits.
$node->safe_psql('postgres', "SELECT outbox_setup();
	CREATE TABLE counters (id int PRIMARY KEY, n int NOT NULL) WITH (fillfactor = 20);
	INSERT INTO counters SELECT i, 0 FROM generate_series(1, $aggregates) i");
# The timeout is short: the sink gives up while the broker is down, and sends its events again.
create_kafka_sink($node, $kafka, 'sink', { topic => 'counted', timeout => 1 });
my $script = PostgreSQL::Test::Utils::tempdir() . '/count.sql';
append_to_file($script, "\\set a random(1, $aggregates)
WITH counted AS (UPDATE counters SET n = n + 1 WHERE id = :a RETURNING n)
SELECT outbox_enqueue('Order', :a, 'Counted', jsonb_build_object('n', n)) FROM counted;\n");

sub sql
{
	return $node->safe_psql('postgres', @_);
}

sub enqueued
{
	return sql('SELECT sum(n) FROM counters');
}

# Writers in the background; a crash of the server ends them.
sub start_writers
{
	my ($count, $rate) = @_;
	my $each = int($count / $writers) + 1;
	my $load = { out => '' };
	$load->{process} = IPC::Run::start([ 'pgbench', '-n', '-M', 'prepared', '-c', $writers, '-j', 2,
		'-t', $each, $rate ? ('-R', $rate) : (),
			'-f', $script, $node->connstr('postgres') ], '<', \undef, '>', \$load->{out}, '2>&1');
	return $load;
}

sub end_relay
{
	wait_until(sub { relay_pid($node) }, 30) or die 'no worker';
	return sql('SELECT count(*) FROM (SELECT pg_terminate_backend(pid) AS ended '
		. 'FROM pg_stat_activity WHERE backend_type = \'outbox relay\') e WHERE ended');
}

sub first_difference
{
	my ($key, $numbers, $wanted) = @_;
	my ($at) = grep { ($numbers->[$_] // 0) != $_ + 1 } 0 .. $wanted;
	my @around = grep { defined } @$numbers[ ($at > 2 ? $at - 2 : 0) .. $at + 5 ];
	return "aggregate $key, which has 1 to $wanted: " . @$numbers . " came, among them @around";
}

# While events flow, the broker is killed and restarted. In every second round the relay is
# terminated while the broker is down, and in every round after the restart.
my ($relay_ends, $rate) = (0, $soak ? 4000 : 2000);
for my $round (1 .. $kills)
{
	my $load = start_writers(0.8 * $events / $kills, $rate);
	sleep 0.5 + rand 0.5;
	$kafka->kill;
	sleep rand 0.5;
	$relay_ends += end_relay() if $round % 2 == 0;
	$kafka->run;
	sleep 0.2 + rand 0.5;
	$relay_ends += end_relay();
	$load->{process}->finish;
}
# The server crashes, which ends its clients.
for my $round (1 .. $crashes)
{
	my $load = start_writers(0.1 * $events / $crashes, $rate);
	sleep 0.3 + rand 0.4;
	$node->stop('immediate');
	$load->{process}->finish;
	$node->start;
}
start_writers($events - enqueued())->{process}->finish;
$relay_ends += end_relay();

my $total = enqueued();
cmp_ok($total, '>=', $events, "at least $events events are committed ($total)");
is(sql('SELECT count(*) FROM outbox_messages'), $total, 'every committed event is in the log');
cmp_ok($relay_ends, '>', $kills,
	"the relay ended $relay_ends times, the broker was killed $kills times, "
	  . "and the server crashed $crashes times");

my ($records, $again, $numbers);
wait_until(sub { $kafka->size('counted') >= $total }, $patience);
wait_until(sub {
	($records, $again, $numbers) = $kafka->counted('counted');
	$records - $again >= $total }, $patience);
is($total - ($records - $again), 0,
	"no event of $total is lost; $again of $records records are repeats");
my %wanted = map { split /\|/ } split /\n/, sql('SELECT id, n FROM counters WHERE n > 0');
my @wrong = grep { my $key = $_; "@{ $numbers->{$key} // [] }" ne join ' ', 1 .. $wanted{$key} }
  sort { $a <=> $b } keys %wanted;
is(scalar @wrong, 0,
	'each aggregate has all its events in the order of their commits, apart from repeats')
  or diag(join "\n", map { first_difference($_, $numbers->{$_} // [], $wanted{$_}) }
	grep { defined } @wrong[ 0 .. 2 ]);
is(scalar keys %$numbers, scalar keys %wanted, 'the topic has records of every aggregate');
ok(wait_until(sub {
	sql('SELECT count(*) FROM _outbox.leases WHERE acked_at IS NULL AND superseded_by IS NULL')
	  == 0 }, $patience), 'the sink settles every batch')
  or diag(sink_status($node, 'sink'));
is(sql('SELECT (SELECT count(*) FROM outbox_retries) + (SELECT count(*) FROM outbox_messages_dlq)'),
	0, 'kills lead to no retry and no dead letter');

$node->stop;
done_testing();
