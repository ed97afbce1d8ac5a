# Waiting for events: awake within milliseconds of a commit, and nothing held back meanwhile.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use OutboxTest;
use Test::More;
use Time::HiRes qw(time sleep);

sub elapsed
{
	my ($code) = @_;
	my $start = time;
	$code->();
	return time - $start;
}

# A psql in the background.
package Waiting;

sub new
{
	my ($class, $node, $sql) = @_;
	my %self = (out => '', err => '');
	$self{harness} = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', $sql ],
		'>', \$self{out}, '2>', \$self{err});
	return bless \%self, $class;
}

# What it printed, and how long that took from now.
sub finish
{
	my ($self) = @_;
	my $start = Time::HiRes::time();
	IPC::Run::finish($self->{harness});
	return ($self->{out} . $self->{err}, Time::HiRes::time() - $start);
}

package main;
use IPC::Run;

sub called
{
	my ($node, $timeout) = @_;
	return Waiting->new($node, "CALL outbox_wait('c', '$timeout', NULL);");
}

# It does wait when this returns.
sub waiting
{
	my ($node, $timeout) = @_;
	my $waiting = called($node, $timeout);
	$node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'CALL%' AND wait_event_type = 'Extension'")
	  or die 'nobody waits';
	return $waiting;
}

my $node = start_node('preloaded');
$node->safe_psql('postgres', "SELECT outbox_setup(); SELECT outbox_create_consumer('c')");

my $waiting = waiting($node, '60 s');
is($node->safe_psql('postgres',
		"SELECT backend_xmin IS NULL AND backend_xid IS NULL FROM pg_stat_activity WHERE query LIKE 'CALL%' AND pid <> pg_backend_pid()"),
	't', 'who waits holds no snapshot and no transaction id');

my %waits = ('client backend' => 'OutboxWait', 'outbox launcher' => 'OutboxLauncher', 'outbox relay' => 'OutboxRelay');
is_shown_to_wait($node, $_, $waits{$_}) for sort keys %waits;
$node->safe_psql('postgres', 'BEGIN; ' . enqueue(1) . ' ROLLBACK');
$node->safe_psql('postgres', 'BEGIN; ' . enqueue(1) . " SELECT pg_sleep(0.3); COMMIT");
my ($said, $took) = $waiting->finish;
is($said, "t\n", 'a commit wakes who waits');
cmp_ok($took, '<', 0.25, 'at once');

is($node->safe_psql('postgres', "CALL outbox_wait('c', '60 s', NULL)"), 't', 'what is there already is not waited for');
$node->safe_psql('postgres', "SELECT count(*) FROM outbox_consume('c')");
my $idle = elapsed(sub {
	is($node->safe_psql('postgres', "CALL outbox_wait('c', '0.4 s', NULL)"), 'f', 'nothing comes: it says so') });
cmp_ok($idle, '>', 0.35, 'after the time that it was given');

# Latency, from commit to awake, the way the relay will have it.
my @latency;
for my $round (1 .. 15)
{
	my $one = waiting($node, '10 s');
	$node->safe_psql('postgres', enqueue($round));
	my $committed = time;
	$one->finish;
	push @latency, time - $committed;
	$node->safe_psql('postgres', "SELECT count(*) FROM outbox_consume('c')");
}
@latency = sort { $a <=> $b } @latency;
note sprintf('from the return of the producer to the return of the waiter: median %.1f ms', $latency[7] * 1000);
cmp_ok($latency[7], '<', 0.1, 'the median wake-up takes less than 100 ms, with starting and ending psql');

# A direct INSERT wakes, too; so do a retry that is due, a lease that expires, and a release.
$waiting = waiting($node, '10 s');
$node->safe_psql('postgres', "INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload) VALUES ('T', '1', 'E', '{}')");
($said, $took) = $waiting->finish;
ok($said eq "t\n" && $took < 0.25, 'a direct INSERT wakes who waits');
my ($token, $id) = split /\|/, $node->safe_psql('postgres', "SELECT lock_token, id FROM outbox_claim('c', lease => '2 s')");
$waiting = waiting($node, '10 s');
$node->safe_psql('postgres', "SELECT outbox_release($token)");
($said, $took) = $waiting->finish;
ok($said eq "t\n" && $took < 0.25, 'a batch that is handed back wakes who waits');
($token, $id) = split /\|/, $node->safe_psql('postgres', "SELECT lock_token, id FROM outbox_claim('c', lease => '1 s')");
($said, $took) = called($node, '10 s')->finish;
ok($said eq "t\n" && $took < 1.5, 'a lease that runs out ends the wait');
($token, $id) = split /\|/, $node->safe_psql('postgres', "SELECT lock_token, id FROM outbox_claim('c')");
$node->safe_psql('postgres', "SELECT outbox_fail($token, $id, 'later', retry_in => '0.7 s')");
($said, $took) = called($node, '10 s')->finish;
ok($said eq "t\n" && $took < 1.2, 'a retry that falls due ends the wait');
($token, $id) = split /\|/, $node->safe_psql('postgres', "SELECT lock_token, id FROM outbox_claim('c')");
$node->safe_psql('postgres', "SELECT outbox_ack($token)");

# A prepared transaction wakes nobody at its end; the timer finds it.
$waiting = waiting($node, '10 s');
$node->safe_psql('postgres', 'BEGIN; ' . enqueue(1) . " PREPARE TRANSACTION 'p'");
$node->safe_psql('postgres', "COMMIT PREPARED 'p'");
($said, $took) = $waiting->finish;
ok($said eq "t\n" && $took < 1.5, 'a prepared transaction is found within a second or so');

# While another holds the consumer's lock there is nothing to claim.
my $claimer = Waiting->new($node, "BEGIN; SELECT count(*) FROM outbox_claim('c'); SELECT pg_sleep(1); ROLLBACK;");
$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory'");
is($node->safe_psql('postgres', "CALL outbox_wait('c', '0.2 s', NULL)"), 'f', 'while another is claiming, nobody else is told to');
($said, $took) = called($node, '10 s')->finish;
ok($said eq "t\n", 'and when that one has given up, somebody is');
$claimer->finish;
$node->safe_psql('postgres', "SELECT count(*) FROM outbox_consume('c')");

# Nor while all that there is is in another's hands: a dealt batch that was picked up, an expired one
# that is being acked. Nobody is told to claim what a claim would not get.
for my $ordered ('false', 'true')
{
	$node->safe_psql('postgres', "SELECT outbox_create_consumer('dealt', ordered => $ordered, partitions => 2)");
	$node->safe_psql('postgres', enqueue(1) . enqueue(1));
	my $picker = Waiting->new($node, "BEGIN; SELECT count(*) FROM outbox_claim('dealt', 1); COMMIT; BEGIN; SELECT count(*) FROM outbox_claim('dealt', 1);"
		. " SELECT pg_sleep(1.5); ROLLBACK;");
	$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
	is($node->safe_psql('postgres', "CALL outbox_wait('dealt', '0.3 s', NULL)"), 'f', "what another has picked up is nothing to claim (ordered: $ordered)");
	$picker->finish;
	$node->safe_psql('postgres', "SELECT outbox_drop_consumer('dealt')");
}
($token, $id) = split /\|/, $node->safe_psql('postgres', enqueue(1) . "SELECT lock_token, id FROM outbox_claim('c', lease => '1 s')") =~ s/.*\n//r;
sleep 1.1;
my $acker = Waiting->new($node, "BEGIN; SELECT outbox_ack($token); SELECT pg_sleep(1.5); COMMIT;");
$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
is($node->safe_psql('postgres', "CALL outbox_wait('c', '0.3 s', NULL)"), 'f', 'nor is what another is just acking');
$acker->finish;

# It can be cancelled, and ended.
$waiting = waiting($node, '60 s');
$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL%' AND pid <> pg_backend_pid()");
($said, $took) = $waiting->finish;
ok($said =~ /canceling statement/ && $took < 1, 'a wait can be cancelled');
my ($status, undef, $error) = $node->psql('postgres', "SET statement_timeout = '300ms'; CALL outbox_wait('c', '60 s', NULL)");
ok($status != 0 && $error =~ /statement timeout/, 'and statement_timeout ends it');

# From PL/pgSQL, in a procedure that may end its transactions.
$node->safe_psql('postgres', <<'SQL');
CREATE PROCEDURE wait_twice(OUT answers text) LANGUAGE plpgsql AS $$
DECLARE
    ready boolean;
BEGIN
    CALL outbox_wait('c', '0.1 s', ready);
    answers := ready;
    PERFORM outbox_enqueue('T', '1', 'E', '{}'::jsonb);
    CALL outbox_wait('c', '5 s', ready);
    answers := answers || ' ' || ready;
END $$;
SQL
is($node->safe_psql('postgres', 'CALL wait_twice(NULL)'), 'false true', 'a procedure can wait, too');

# A claim waits for another, too, and goes on with what that has left. On a busy machine it may have waited in vain.
$node->safe_psql('postgres', "SELECT outbox_create_consumer('parts', partitions => 2)");
my ($first, $watcher) = map { $node->background_psql('postgres') } 1 .. 2;
my $left = 0;
for (1 .. 30)
{
	$node->safe_psql('postgres', "SELECT count(outbox_enqueue('T', i::text, 'E', '{}'::jsonb)) FROM generate_series(1, 20) i");
	$first->query_safe("BEGIN; SELECT count(*) FROM outbox_claim('parts', 1)");
	my $second = Waiting->new($node, "SELECT count(*) FROM outbox_claim('parts', 100)");
	my ($waits, $until) = ('f', time + 1);
	$waits = $watcher->query_safe("SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") while $waits eq 'f' && time < $until;
	$first->query_safe('COMMIT');
	($left) = $second->finish;
	last if $waits eq 't' && $left > 0;
	$left = 0;
}
cmp_ok($left, '>', 0, 'and hands out what was left');
$_->quit for $first, $watcher;
$node->stop;

# Without shared memory it polls.
my $plain = start_node('plain', no_preload => 1);
$plain->safe_psql('postgres', "SELECT outbox_setup(); SELECT outbox_create_consumer('c')");
$waiting = waiting($plain, '10 s');
$plain->safe_psql('postgres', enqueue(1));
($said, $took) = $waiting->finish;
ok($said eq "t\n" && $took < 1, 'without preloading it looks every now and then');
$plain->stop;

done_testing();
