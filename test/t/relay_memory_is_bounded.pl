# The relay's memory stays within outbox.relay_memory for a backlog of large events.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my ($events, $size) = (200, 500_000);
# Memory beside outbox.relay_memory: a backend with its libraries (10 MB), three copies of the event
# that is being read (as stored, decompressed, as text), and free memory of the allocator.
my $allowance = 40 * 1024;

my $receiver = OutboxReceiver->start('receiver', body_limit => 100);
my $node = start_node('main', conf => "autovacuum = off\n");
$node->safe_psql('postgres', 'SELECT outbox_setup()');
my ($limit) = $node->safe_psql('postgres',
	"SELECT pg_size_bytes(current_setting('outbox.relay_memory')) / 1024");
is($limit, 64 * 1024, 'outbox.relay_memory is 64 MB by default');

create_sink($node, 'sink', { url => $receiver->url('/sink') });
$node->safe_psql('postgres', enqueue('small'));
is(scalar(my @small = $receiver->wait_for(1)), 1, 'a small event arrives');
my $pid = relay_pid($node);
my $memory =
	sub { slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+)/m ? $1 : die "no worker $pid" };
my $at_rest = $memory->();

# The backlog. Its payloads compress badly, so that they are about as large in every copy.
$node->safe_psql('postgres', "SELECT outbox_pause('sink')");
$receiver->control({ delay => 0.4 });
$node->safe_psql('postgres', qq{
	WITH large AS MATERIALIZED (SELECT string_agg(md5(i::text), '') AS text
	FROM generate_series(1, $size / 32) i)
	SELECT count(outbox_enqueue('Order', n % 50, 'Large', jsonb_build_object('n', n, 'text', text)))
	FROM large, generate_series(1, $events) n});
$node->safe_psql('postgres', "SELECT outbox_resume('sink')");

my $most = 0;
my $all = wait_until(sub {
	my $now = $memory->();
	$most = $now if $now > $most;
	return $receiver->count >= $events + 1;
}, 120);
ok($all, "$events events of $size bytes arrive");
my ($bytes, %numbers) = (0);
for my $record (grep { header($_, 'ce-type') eq 'Large' } $receiver->records)
{
	$bytes += $record->{bytes};
	$numbers{$record->{id}}++;
}
is(scalar keys %numbers, $events, 'each large event arrives');
cmp_ok($bytes, '>=', $events * $size, 'large events arrive complete');
is(relay_pid($node), $pid, 'one relay process delivers the backlog');
cmp_ok($most, '<=', $limit + $allowance,
	"the relay has at most $most kB of its own, $at_rest kB at rest");

# A smaller limit.
$node->append_conf('postgresql.conf', "outbox.relay_memory = '8MB'\n");
$node->reload;
$node->poll_query_until('postgres', "SELECT current_setting('outbox.relay_memory') = '8MB'");
my $started = $pid;
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
wait_until(sub { $pid = relay_pid($node); $pid && $pid ne $started }) or die 'no worker';
my $seen = $receiver->count;
$receiver->control({ delay => 0.05 });
drop_sinks($node, 'sink');
create_sink($node, 'again', { url => $receiver->url('/again') }, "start_at => 'earliest'");
$most = 0;
ok(wait_until(sub {
		my $now = $memory->();
		$most = $now if $now > $most;
		return $receiver->count >= $seen + $events + 1;
	}, 60), 'the backlog arrives with a limit of 8 MB');
cmp_ok($most, '<=', 8 * 1024 + $allowance,
	"the relay with a limit of 8 MB has at most $most kB of its own");

$node->stop;
done_testing();
