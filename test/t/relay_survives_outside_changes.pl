# A relay among concurrent changes: sessions that seek, cancel or settle, rows of another cluster,
# busy receivers, and interrupted tests of sinks.
use strict;
use warnings;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use OutboxReceiver;
use OutboxTest;

my $receiver = OutboxReceiver->start('receiver');
my $node = start_node('main', conf => "outbox.relay_interval = '1s'\noutbox.backoff_base = '20ms'\n"
	. "outbox.backoff_max = '50ms'\n");
$node->safe_psql('postgres', 'SELECT outbox_setup(); CREATE ROLE worker LOGIN');
$node->safe_psql('postgres', q{SELECT outbox_grant('worker', 'consumer')});

sub sql { return $node->safe_psql('postgres', @_) }

# CPU clock ticks that a process has used.
sub ticks
{
	my ($pid) = @_;
	my @fields = split / /, slurp_file("/proc/$pid/stat") =~ s/^.*\) //sr;
	return $fields[11] + $fields[12];
}

# A busy receiver, which answers 429.
create_sink($node, 'busy', { url => $receiver->url('/busy') }, 'max_attempts => 2');
$receiver->control({ path => '/busy', probability => 0.7, do => 'status', status => 429 });
sql("SELECT count(outbox_enqueue('Order', i::text, 'OrderConfirmed', '{}'))
		FROM generate_series(1, 40) i");
ok(wait_until(sub { scalar($receiver->accepted_ids('/busy')) >= 40 }, 30),
	'messages that a receiver was too busy for are delivered in the end');
is(sql('SELECT count(*) FROM outbox_messages_dlq'), 0, 'a busy receiver leads to no dead letters');
sql("SELECT outbox_drop_sink('busy')");

# Only the relay settles its messages.
$receiver->control({ path => '/mine', do => 'hang' });
create_sink($node, 'mine', { url => $receiver->url('/mine') });
my $id = sql("SELECT outbox_enqueue('Order', 'mine', 'OrderConfirmed', '{}')");
wait_until(sub { $receiver->records('/mine') });
my $token = sql('SELECT max(token) FROM _outbox.leases');
for my $call ("outbox_ack($token)", "outbox_release($token)", "outbox_heartbeat($token)",
	"outbox_fail($token, 1, 'no')")
{
	my ($status, undef, $error) =
		$node->psql('postgres', "SET ROLE worker; \\set VERBOSITY verbose\nSELECT $call");
	like($error, qr/OB002/, "$call is refused for a batch of the relay");
}

# A request has no response, and more messages are waiting than may be in flight.
sql("SELECT count(outbox_enqueue('Order', 'mine', 'OrderConfirmed', '{}'))
		FROM generate_series(1, 12000)");
sleep 2;
my $pid = relay_pid($node, 'postgres');
my $before = ticks($pid);
sleep 3;
cmp_ok(ticks($pid) - $before, '<', 60, 'a relay that waits for a response uses no CPU');
$receiver->control();
$receiver->drop_connections;
ok(wait_until(sub { scalar($receiver->accepted_ids('/mine')) >= 12001 }, 60),
	'the relay delivers the waiting messages afterwards');
sql("SELECT outbox_drop_sink('mine')");

# A due scheduled event that another session has locked for outbox_cancel().
my $scheduled = sql("SELECT outbox_enqueue('Order', 'later', 'OrderConfirmed', '{}',
		available_at => clock_timestamp() + interval '1 second')");
my $session = IPC::Run::start([ 'psql', '-XqAt', '-d', $node->connstr('postgres'), '-c',
	"BEGIN; SELECT outbox_cancel('$scheduled'); SELECT pg_sleep(4.5); ROLLBACK" ]);
sleep 2;
$before = ticks($pid);
sleep 2;
cmp_ok(ticks($pid) - $before, '<', 60,
	'a relay does not poll for a scheduled event that is locked');
$session->finish;
ok(wait_until(sub { sql("SELECT count(*) FROM outbox_messages WHERE tracking_id = '$scheduled'") },
		10), 'a scheduled event is released when its lock is');

# Rows with transaction ids of another cluster.
create_sink($node, 'restored', { url => $receiver->url('/restored') });
my $foreign =
	sql("INSERT INTO outbox_messages (xid, aggregate_type, aggregate_id, event_type, payload)
	VALUES ('5000000', 'Order', 'foreign', 'OrderConfirmed', '{}') RETURNING tracking_id");
my $own = sql("SELECT outbox_enqueue('Order', 'own', 'OrderConfirmed', '{}')");
ok(wait_until(sub { my %ids = map { $_ => 1 } $receiver->accepted_ids('/restored');
			$ids{$foreign} && $ids{$own} }, 20),
	'an event with a transaction id of another cluster is delivered, and later events are');

# Messages blocked behind a retry follow it without a delay.
$receiver->control({ path => '/restored', contains => '"n": 1}', times => 1, status => 400 });
my $started = time;
sql("SELECT count(outbox_enqueue('Order', 'chain', 'OrderConfirmed', jsonb_build_object('n', i)))
		FROM generate_series(1, 100) i");
ok(wait_until(sub { scalar(grep { header($_, 'ce-partitionkey') eq 'chain'
				&& $_->{answer} eq '200' } $receiver->records('/restored')) >= 100 }, 30),
	'a chain of events behind a failed event is delivered');
my @order = map { $_->{body} =~ /(\d+)/ } grep { header($_, 'ce-partitionkey') eq 'chain'
	&& $_->{answer} eq '200' } $receiver->records('/restored');
is_deeply(\@order, [ 1 .. 100 ], 'a chain of events behind a failed event is delivered in order');

# outbox_seek() on a sink with messages in flight.
create_sink($node, 'elsewhere', { url => $receiver->url('/elsewhere') });
$receiver->control({ path => '/elsewhere', delay => [ 1, 1 ] });
my $since = sql('SELECT clock_timestamp()');
my @moved = split /\n/, sql("SELECT outbox_enqueue('Order', i::text, 'OrderConfirmed', '{}')
		FROM generate_series(1, 3) i");
ok(wait_until(sub { $receiver->count('/elsewhere') == 3 }), 'three events are in flight');
sql("SELECT outbox_seek('elsewhere', timestamptz '$since')");
ok(wait_until(sub { my %times; $times{ $_->{id} }++
			for grep { $_->{answer} eq '200' } $receiver->records('/elsewhere');
			3 == grep { ($times{$_} // 0) == 2 } @moved }),
	'outbox_seek() leads to another delivery of messages in flight');

# outbox_test_sink() is interrupted by a timeout.
$receiver->control({ path => '/restored', do => 'hang' });
$node->psql('postgres', "SET statement_timeout = '500ms'; CALL outbox_test_sink('restored')");
$receiver->control();
$receiver->drop_connections;
sleep 1;
like(sql("CALL outbox_test_sink('restored', NULL, NULL)"), qr/^t\|/,
	'an interrupted test of a sink does not prevent other tests');

# A late response to an interrupted test is not the result of another test.
$receiver->control({ path => '/slow', delay => [ 3, 3 ], status => 500 });
create_sink($node, 'asked', { url => $receiver->url('/slow') });
$node->psql('postgres', "SET statement_timeout = '500ms';
		CALL outbox_test_sink('asked', NULL, NULL)");
is($receiver->count('/slow'), 0, 'a test of a sink is interrupted before the request arrives');
sql(sprintf q{SELECT outbox_alter_sink('asked', config => '{"url": "%s"}')},
	$receiver->url('/mended'));
like(sql("CALL outbox_test_sink('asked', NULL, NULL)"), qr/^t\|/,
	'a test of an altered sink returns its own result');
is($receiver->count('/slow'), 1, 'the request of the interrupted test arrived before');

$node->stop;
done_testing();
