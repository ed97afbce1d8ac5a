# The server is killed at random moments under full load. After each recovery, and at the end, the
# judge compares the database, the receiver and Kafka with the ledger, which the clients write
# outside of the server. State that a crash would hide is checked before the crash. The short form
# ends with trials under OUTBOX_SELFTEST: each fault breaks a promise, and the judge must find it.
# Other tests cover these promises of src/README.md in more depth:
#   no transaction while a request hangs   http_requests_follow_wire_format.pl
#   sinks that delay each other            http_responses_decide_retries.pl
#   bad input                              api_generated_calls_fail_cleanly.pl
#   privileges                             security_*.pl
#   dumps                                  ops_dump_restore_keeps_everything.pl
#   producers that wait                    lifecycle_producers_do_not_wait.pl
#   no disk, memory or files               ops_scarcity_fails_cleanly.pl
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use IO::Handle;
use IPC::Open2;
use JSON::PP;
use OutboxAge qw(settings);
use OutboxKafka;
use OutboxKill;
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

need_kafka();

my $minutes = $ENV{OUTBOX_TORTURE_MINUTES};
my $long = $minutes || $ENV{OUTBOX_SOAK};
my $patience = $long ? 600 : 60;

# Processes to kill. The short form kills the first four below.
my %victims = (
	relay => qr/outbox relay/, maintenance => qr/outbox maintenance/,
	launcher => qr/outbox launcher/,
	backend => qr/\[local\]/, 'WAL writer' => qr/walwriter/, checkpointer => qr/checkpointer/);
my @first = ('server', 'maintenance', 'server', 'relay');

my $dir = PostgreSQL::Test::Utils::tempdir('torture');
mkdir "$dir/cold" or die $!;
my $kafka = OutboxKafka->start('broker');
$kafka->topic('torture', 6);
my $receiver = OutboxReceiver->start('receiver');
# Asynchronous commits stay in memory as long as possible; short intervals make everything else
# happen soon.
my $node = start_node('main', conf => qq{
	wal_writer_delay = '10s'
	wal_writer_flush_after = '1GB'
	max_wal_size = '64MB'
	restart_after_crash = on
	deadlock_timeout = '100ms'
	max_connections = 60
	log_statement = none
	log_min_duration_statement = -1
	outbox.lease = '2s'
	outbox.backoff_base = '50ms'
	outbox.backoff_max = '200ms'
	outbox.relay_interval = '500ms'
	outbox.maintenance_interval = '1s'
	outbox.archive_retention = '100d'
	outbox.delivery_retention = '2s'
	outbox.cold_storage_dir = '$dir/cold'
});

sub sql
{
	return $node->safe_psql('postgres', @_);
}

sql('SELECT outbox_setup();' . slurp_file("$FindBin::RealBin/lib/torture/tables.sql"));
sql(q{SELECT outbox_create_consumer('plain', fair => true),
		outbox_create_consumer('parted', partitions => 4),
	outbox_create_consumer('ordered', ordered => true, partitions => 4),
	outbox_create_consumer('books')});
create_sink($node, 'hook', { url => $receiver->url('/hook'), timeout => seconds(5) });
create_kafka_sink($node, $kafka, 'stream', { topic => 'torture', timeout => seconds(5) });
$receiver->control({ status => 400, probability => 0.01 }, { status => 503, probability => 0.005 },
	{ do => 'reset', probability => 0.005 });

# The Python process ends when its input does, which is when this process ends.
sub start_python
{
	my (@arguments) = @_;
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATABASE} = 'postgres';
	my $python = {};
	# Debian's interpreter has Debian's packages of Python modules.
	$python->{pid} = open2($python->{out}, $python->{in}, '/usr/bin/python3',
		"$FindBin::RealBin/lib/torture", @arguments);
	return $python;
}

sub order
{
	my ($python, $order) = @_;
	$python->{in}->printflush("$order\n");
}

sub answer
{
	my ($python) = @_;
	return decode_json(readline($python->{out})
		// '{"unexpected": ["no answer"], "wrong": {"no answer": [1]}}');
}

sub finish
{
	my ($python) = @_;
	close $python->{in};
	waitpid $python->{pid}, 0;
}

sub findings
{
	my ($verdict) = @_;
	return map { "$_: @{ $verdict->{wrong}{$_} }" } grep {
		$verdict->{wrong}{$_}[0] } sort keys %{ $verdict->{wrong} };
}

sub no_findings
{
	my ($verdict) = @_;
	is($verdict->{wrong}{$_}[0], 0, $_) or diag(join "\n", @{ $verdict->{wrong}{$_} })
	  for sort keys %{ $verdict->{wrong} };
}

append_to_file("$dir/ledger", '');
my $load = start_python('load', $dir, '--consumers', 'plain,parted,ordered',
	'--patience', $patience);
my $clients = answer($load)->{clients};
my $judge = start_python('judge', $dir, '--record', $receiver->{record});

sub ask_judge
{
	order($judge, @_);
	return answer($judge);
}

# The number of kills of the whole server that a long run must reach.
my $many = 200;
my (%killed, @wrong);
my ($started, $rounds) = (time, 0);

sub enough
{
	return time >= $started + 60 * $minutes if $minutes;
	return $long ? ($killed{server} // 0) >= $many : $rounds >= @first;
}

until (@wrong || enough())
{
	# In every fourth round all commits are asynchronous, so that only publication flushes the WAL.
	order($load, $rounds % 4 == 2 ? 'asynchronous' : 'mixed');
	sleep 0.3 + rand 1.5;
	# The judge's check takes a while and is remembered; the pause keeps the kill independent of it.
	ask_judge('before');
	sleep rand 0.3;
	my $victim = $first[$rounds]
	  // (rand() < 0.6 ? 'server' : (sort keys %victims)[ rand keys %victims ]);
	if ($victim eq 'server')
	{
		kill_server($node);
		$node->start;
	}
	else
	{
		kill_process($node, $victims{$victim}) or next;
	}
	++$rounds;
	++$killed{$victim};
	@wrong = findings(ask_judge('recovered'));
}
is("@wrong", '', "the ledger agrees with the system before and after each of $rounds crashes");

$receiver->control();
order($load, 'finish');
my $report = answer($load);
is(encode_json($report->{unexpected}), '[]',
	'clients had no errors but lost connections and leases');
finish($load);

# No background work during the last check.
settings($node, maintenance_interval => '1h');
ok(wait_until(sub { sql("SELECT count(*) FROM pg_stat_activity
				WHERE backend_type = 'outbox maintenance'") == 0 }), 'maintenance has stopped');
my $kafka_file = $kafka->kcat('torture', '-f', "%k\t%s\t%h\n");
my $last = ask_judge("over $kafka_file");
no_findings($last);
finish($judge);

command_ok([ 'pg_amcheck', '--install-missing', '--heapallindexed', '-d', 'postgres', '-h',
		$node->host, '-p', $node->port, '-t', 'public.*' ], 'pg_amcheck finds no corruption');

# A trial reads everything again for each fault, which takes too long after a long run.
my $tried = {};
if ($ENV{OUTBOX_SELFTEST} && !$long)
{
	my $trial = start_python('trial', $dir, '--record', $receiver->{record},
		'--kafka', $kafka_file);
	$tried = answer($trial);
	no_findings($tried);
	finish($trial);
}

my %counts = (%{ $report->{counts} }, %{ $last->{counts} }, %{ $tried->{counts} // {} });
note(sprintf '%d kills, %d of them of the whole server (%s), %d s; %d clients', $rounds,
	$killed{server}, join(', ', map { "$_ $killed{$_}" } sort keys %killed),
	time - $started, $clients);
note(join ', ', map { "$counts{$_} $_" } sort keys %counts);
cmp_ok($killed{server}, '>', 0.4 * $rounds, 'more than 40 % of the kills hit the whole server');
cmp_ok($killed{server}, '>=', $many, "at least $many kills hit the whole server")
  if $minutes ? $minutes >= 60 : $long;
my @work = ('commits', 'asynchronous commits', 'commits of prepared transactions', 'rolled back',
	'batches', 'ack', 'dedup keys', 'idempotency keys', 'audit rows');
push @work, 'fail', 'dead', 'release', 'heartbeats', 'deaths', 'leases lost', 'acks sent again',
  'repeats to workers', 'commits without an answer',
  'asynchronous commits that crashes took back', 'repeats by HTTP', 'repeats in Kafka',
    'events in the archive', 'events in cold storage', 'dead letters' if $long;
is(join(', ', grep { !$counts{$_} } @work), '', 'every kind of work and trouble occurred');
$node->stop;
my $others = $rounds - ($killed{server} // 0);
log_has_only($node, qr/terminated by signal 9/, $others,
	'the server log has the kills and no other trouble');
done_testing();
