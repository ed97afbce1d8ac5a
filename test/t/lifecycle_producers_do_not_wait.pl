# Producers do not stall while partitions are made, archived and dropped, also behind a long
# transaction that has read the log.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use IPC::Run ();
use OutboxAge;
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

# Short retentions: old events are moved, archived and dropped at once.
my $node = start_node('main',
	conf => "outbox.maintenance_interval = '1h'\noutbox.hot_retention = '1d'\n"
	  . "outbox.archive_retention = '30d'\nautovacuum = off\nmax_worker_processes = 16\n");
set_up_age($node);

sub sql
{
	return $node->safe_psql('postgres', @_);
}

# The longest times that sessions of lib/stall.py saw while code ran.
sub measured
{
	my ($name, $code) = @_;
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATABASE} = 'postgres';
	my ($in, $out, $error) = ('', '', '');
	my $process = IPC::Run::start([ '/usr/bin/python3', "$FindBin::RealBin/lib/stall.py" ], '<pipe',
		\*CALLERS, '>', \$out, '2>', \$error);
	wait_until(sub { sql('SELECT count(*) > 50 FROM unrelated0') eq 't' }) or die 'no producers';
	$code->();
	close CALLERS;
	$process->finish or die $error;
	sql('TRUNCATE unrelated0');
	my %longest = $out =~ /(\w+) (\d+)/g;
	diag("$name: of $longest{count} enqueues the longest took $longest{enqueue} ms, "
		. "a plain insert $longest{insert} ms, a claim $longest{claim} ms");
	return \%longest;
}

# The machine can stall any session. So an enqueue may take as much longer as a plain insert into
# another table took in the same sessions at the same time.
sub no_stall
{
	my ($longest, $promise) = @_;
	cmp_ok($longest->{enqueue}, '<=', 100 + $longest->{insert},
		"$promise: no enqueue waits for more than 100 ms");
}

# Enqueues events of that many days without partitions.
my $day = 30;
sub old_events
{
	my ($days) = @_;
	sql(join '', map { old_event(++$day) } 1 .. $days);
}

my $done = sub {
	my ($what) = @_;
	return scalar(() = slurp_file($node->logfile) =~ /LOG:  outbox: maintenance, $what/g);
};

sql("SELECT outbox_setup(); SELECT outbox_create_consumer('reads'), "
	. "outbox_create_consumer('works')");
sql("CREATE TABLE unrelated$_ (i int)") for 0 .. 2;
my $partman = sql("SELECT _outbox.schema_of('pg_partman')");

no_stall(measured('without maintenance', sub { sleep 3 }), 'without maintenance');

no_stall(measured('with maintenance', sub {
	my $end = time + 6;
	while (time < $end)
	{
		old_events(2);
		# One more partition is made ahead.
		sql("UPDATE $partman.part_config SET premake = premake + 1 "
			. "WHERE parent_table = 'public.outbox_messages'; "
			. "SELECT _outbox.request_maintenance()");
		sleep 0.1;
	}
}), 'while partitions are made, archived and dropped');
my %came = map { $_ => $done->($_) } 'partitions: \S+: created for 1 events',
  'partitions: \S+: created\n', 'archive: \S+: archived', 'drop: \S+: dropped';
diag(join ', ', map { "$came{$_} x $_" } sort keys %came);
cmp_ok($came{$_}, '>=', 10, "maintenance logs at least 10 times: $_") for sort keys %came;

# Behind a long transaction.
my $reader = $node->background_psql('postgres');
my ($first, $last) = ($day + 1, $day + 5);
sql("SELECT outbox_create_consumer('late'); SELECT outbox_pause('late')");
old_events(5);
sql('SELECT _outbox.request_maintenance()');
comes_to($node, $last, 'log', 'due partitions are held back by a consumer');
no_stall(measured('behind a long transaction', sub {
	$reader->query_safe('BEGIN; SELECT count(*) FROM outbox_messages');
	sql("SELECT outbox_drop_consumer('late')");
	my $end = time + 4;
	while (time < $end)
	{
		sql('SELECT _outbox.request_maintenance()');
		sleep 0.2;
	}
	is(place($node, $first) . place($node, $last), 'loglog',
		'partitions stay in the log while a transaction that has read it is open');
	$reader->query_safe('COMMIT');
	# A run drops partitions that the previous run has archived.
	wait_until(sub { sql('SELECT _outbox.request_maintenance()'); place($node, $last) eq 'gone' },
		60);
	is(place($node, $first), 'gone',
		'due partitions are archived and dropped once the transaction has ended');
	is(place($node, $last), 'gone', 'the last due partition is dropped, too');
}), 'behind a long transaction');
$reader->quit;
is(sql("SELECT count(*) FROM outbox_messages WHERE occurred_at < now() - interval '1 day'"), 0,
	'the log has no old event');

$node->stop;
done_testing();
