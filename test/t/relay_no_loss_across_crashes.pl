# A receiver gets every committed event and no other, across restarts, kills, crashes and
# promotions.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use IPC::Run;
use OutboxReceiver;
use OutboxTest;
use Test::More;
use Time::HiRes qw(sleep);

my $soak = $ENV{OUTBOX_SOAK};
my $crashes = $soak ? 20 : 2;
my $kills = $soak ? 50 : 4;
my $restarts = $soak ? 20 : 2;
# Short leases: messages of a crashed relay are soon available.
my $conf = "outbox.lease = '2s'\noutbox.backoff_base = '50ms'\n"
  . "outbox.backoff_max = '200ms'\nautovacuum = off\n";
my $produce = q{CREATE PROCEDURE produce(events int, pause float) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. events LOOP
			PERFORM outbox_enqueue('Order', (random() * 20)::int, 'OrderConfirmed',
			jsonb_build_object('n', i));
			IF i % 7 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
			PERFORM pg_sleep(pause);
		END LOOP;
	END $$};

# A writer in the background, which may fail in a crash.
sub writer
{
	my ($node, $settings, $events, $pause) = @_;
	return IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c',
			"SET application_name = 'writer'; $settings",
			'-c', "CALL produce($events, $pause)" ], '<', \undef, '>', \my $out, '2>', \my $error);
}

sub logged
{
	my ($node) = @_;
	return split /\n/, $node->safe_psql('postgres', 'SELECT tracking_id FROM outbox_messages');
}

# Compares the log with the events that the receiver got. Returns the number of repeated deliveries.
sub compare_with_log
{
	my ($node, $receiver, $promise) = @_;
	my @log = logged($node);
	my $missing = sub { my %came = map { $_ => 1 } $receiver->accepted_ids;
		return grep { !$came{$_} } @log };
	wait_until(sub { !$missing->() }, $soak ? 300 : 30);
	my @lost = $missing->();
	is(scalar @lost, 0, "$promise: of " . @log . ' committed events none is lost')
	  or diag("@lost[0 .. ($#lost > 4 ? 4 : $#lost)]");
	my %logged = map { $_ => 1 } @log;
	is(scalar(grep { !$logged{$_} } $receiver->ids), 0,
		"$promise: every delivered event is committed");
	my %times;
	$times{$_}++ for $receiver->ids;
	my $repeated = 0;
	$repeated += $_ - 1 for values %times;
	return $repeated;
}

my $receiver = OutboxReceiver->start('receiver');
my $node = start_node('main', conf => $conf);
$node->safe_psql('postgres', "SELECT outbox_setup(); $produce");
create_sink($node, 'sink', { url => $receiver->url('/sink'), timeout => seconds(5) });

# The receiver restarts, and then resets 30 % of its connections.
my $writer = writer($node, '', 250 * $restarts, 0.004);
for my $round (1 .. $restarts)
{
	my $seen = $receiver->count;
	$receiver->wait_for($seen + 20);
	$receiver->stop($round % 2 ? 'TERM' : 'KILL');
	sleep 0.2;
	$receiver->run;
}
$writer->finish;
compare_with_log($node, $receiver, 'a receiver that restarts');
$receiver->control({ do => 'reset', probability => 0.3 }, { delay => [ 0, 0.01 ] });
writer($node, '', 300, 0)->finish;
my $resets = sub { scalar grep { /^\{"answer": "reset"/ } $receiver->lines };
compare_with_log($node, $receiver, 'a receiver that resets connections');
cmp_ok($resets->(), '>', 30, $resets->() . ' requests were reset');
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM outbox_retries) + (SELECT count(*)
			FROM outbox_messages_dlq)'),
	0, 'failures of a receiver lead to no retries or dead letters of single messages');

# The relay is terminated at random times.
$receiver->control({ delay => [ 0, 0.02 ] });
my $duplicates = compare_with_log($node, $receiver, 'before the relay is terminated');
my %workers;
for my $round (1 .. $kills)
{
	$writer = writer($node, '', 120, 0.002);
	sleep rand 0.3;
	wait_until(sub { relay_pid($node) }, 30) or die "round $round: no worker";
	my $pid = relay_pid($node);
	$workers{$pid}++ if $node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)") eq 't';
	$writer->finish;
}
my $repeated = compare_with_log($node, $receiver,
	"a relay that is terminated $kills times") - $duplicates;
is(scalar keys %workers, $kills, 'each termination hits a new process');
cmp_ok($repeated, '<=', 100 * $kills,
	"$repeated events are delivered again, at most those in flight");

# The server crashes at random times.
for my $round (1 .. $crashes)
{
	my $seen = $receiver->count;
	$writer = writer($node, '', 2000, 0.002);
	$receiver->wait_for($seen + 50);
	sleep rand 0.2;
	$node->stop('immediate');
	$writer->finish;
	$node->start;
}
my $before = $duplicates + $repeated;
$repeated = compare_with_log($node, $receiver, "a server that crashes $crashes times") - $before;
cmp_ok($repeated, '<=', 100 * $crashes,
	"$repeated events are delivered again, at most those in flight");
my @strange = grep {
	my ($id) = /"id": "([^"]+)"/;
	!defined $id || !/\["webhook-id", "$id"\]/i || !/\["idempotency-key", "\\"$id\\""\]/i
} $receiver->lines;
is(scalar @strange, 0, 'repeated deliveries have the same webhook-id and idempotency-key');
is($node->safe_psql('postgres', 'SELECT count(*) FROM outbox_messages_dlq'), 0,
	'a crash makes no dead letters');
$node->stop;
$receiver->stop;

# A crash can lose asynchronous commits; the relay must not have published those. Only WAL that is
# not yet written can be lost, and the server writes full pages soon, so the test enqueues few
# events at a time.
my $async_receiver = OutboxReceiver->start('async');
my $async = start_node('async', conf => "$conf\nwal_writer_delay = '10s'\n"
	. "wal_writer_flush_after = '1GB'\nsynchronous_commit = off\n");
$async->safe_psql('postgres', 'SELECT outbox_setup()');
create_sink($async, 'sink', { url => $async_receiver->url('/sink') });
$async->safe_psql('postgres', "SELECT outbox_pause('sink'); CHECKPOINT");

# The control: a crash does lose the commit while the sink is paused.
my ($taken_back, $given) = (0, '');
for my $round (1 .. 5)
{
	$given = $async->safe_psql('postgres', enqueue('taken back'));
	$async->stop('immediate');
	$async->start;
	$taken_back = 1 - $async->safe_psql('postgres', "SELECT count(*) FROM outbox_messages
			WHERE tracking_id = '$given'");
	last if $taken_back;
}
ok($taken_back, 'a crash loses an asynchronous commit');
$async->safe_psql('postgres', "SELECT outbox_resume('sink'); CHECKPOINT");
my $published = 0;
for my $round (1 .. $crashes + 2)
{
	my $seen = $async_receiver->count;
	$async->safe_psql('postgres', enqueue("$round a") . enqueue("$round b"));
	$async_receiver->wait_for($seen + 2);
	$async->stop('immediate');
	$async->start;
	$published += $async_receiver->count - $seen;
}
my %durable = map { $_ => 1 } logged($async);
is(scalar(grep { !$durable{$_} } $async_receiver->ids), 0,
	'every event published before a crash is in the log after it');
cmp_ok($published, '>=', 2 * ($crashes + 2), "all $published events are published");
is(scalar(grep { $_ eq $given } $async_receiver->ids), 0, 'a lost event was never published');
$async->stop;
$async_receiver->stop;

# A standby does not run a relay until it is promoted.
my $receiver_of_both = OutboxReceiver->start('both');
my $primary = start_node('primary', init => { allows_streaming => 1 },
	conf => $conf . "outbox.source = '/primary'\n");
$primary->safe_psql('postgres', 'SELECT outbox_setup()');
create_sink($primary, 'sink', { url => $receiver_of_both->url('/sink') });
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "outbox.source = '/standby'\n");
$standby->start;
my $from = sub { my ($source) = @_;
	return grep { header($_, 'ce-source') eq $source } $receiver_of_both->records };
$primary->safe_psql('postgres', join '', map { enqueue($_) } 1 .. 10);
is(scalar(my @first = $receiver_of_both->wait_for(10)), 10, 'the primary relays');
$receiver_of_both->control({ status => 503 });
my @pending = split /\n/, $primary->safe_psql('postgres', join '', map { enqueue($_) } 1 .. 20);
$receiver_of_both->wait_for(12);
$primary->wait_for_catchup($standby);
sleep 0.5;
is(scalar $from->('/standby'), 0, 'a standby relays nothing');
is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity
			WHERE backend_type = 'outbox relay'"), 0, 'a standby has no relay process');
$primary->stop('immediate');
$receiver_of_both->control();
$standby->promote;
my $all = sub { my %came = map { $_ => 1 } $receiver_of_both->accepted_ids;
	return !grep { !$came{$_} } @pending };
ok(wait_until($all, 30), 'a promoted standby relays the events that the primary had not');
$standby->safe_psql('postgres', enqueue('new'));
ok(wait_until(sub { grep { header($_, 'ce-partitionkey') eq 'new' } $from->('/standby') }),
	'a promoted standby relays new events');
my %logged = map { $_ => 1 } logged($standby);
is(scalar(grep { !$logged{$_} } $receiver_of_both->ids), 0,
	'every delivered event is in the log of the promoted standby');
$standby->stop;

done_testing();
