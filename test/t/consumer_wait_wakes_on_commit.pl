# outbox_wait() returns within milliseconds of a commit, and holds no snapshot while it waits.
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

# A psql process in the background.
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

# Returns the output, and the seconds until the process ended.
sub finish
{
	my ($self) = @_;
	my $start = Time::HiRes::time();
	IPC::Run::finish($self->{harness});
	return ($self->{out} . $self->{err}, Time::HiRes::time() - $start);
}

package main;
use IPC::Run;

sub start_wait
{
	my ($node, $timeout) = @_;
	return Waiting->new($node, "CALL outbox_wait('c', '$timeout', NULL);");
}

# Starts a wait, and returns once it is in progress.
sub start_wait_in_progress
{
	my ($node, $timeout) = @_;
	my $waiting = start_wait($node, $timeout);
	$node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity "
		  . "WHERE query LIKE 'CALL%' AND wait_event_type = 'Extension'")
	  or die 'no session is in outbox_wait()';
	return $waiting;
}

my $node = start_node('preloaded');
$node->safe_psql('postgres', "SELECT outbox_setup(); SELECT outbox_create_consumer('c')");

my $waiting = start_wait_in_progress($node, '60 s');
is($node->safe_psql('postgres',
		"SELECT backend_xmin IS NULL AND backend_xid IS NULL FROM pg_stat_activity "
		  . "WHERE query LIKE 'CALL%' AND pid <> pg_backend_pid()"),
	't', 'outbox_wait() holds no snapshot and no transaction id');

my %waits = ('client backend' => 'OutboxWait', 'outbox launcher' => 'OutboxLauncher',
	'outbox relay' => 'OutboxRelay');
is_shown_to_wait($node, $_, $waits{$_}) for sort keys %waits;
$node->safe_psql('postgres', 'BEGIN; ' . enqueue(1) . ' ROLLBACK');
$node->safe_psql('postgres', 'BEGIN; ' . enqueue(1) . " SELECT pg_sleep(0.3); COMMIT");
my ($said, $took) = $waiting->finish;
is($said, "t\n", 'a commit wakes outbox_wait()');
cmp_ok($took, '<', 0.25, 'a commit wakes outbox_wait() within 250 ms');

is($node->safe_psql('postgres', "CALL outbox_wait('c', '60 s', NULL)"), 't',
	'outbox_wait() returns at once if an event is there');
$node->safe_psql('postgres', "SELECT count(*) FROM outbox_consume('c')");
my $idle = elapsed(sub {
	is($node->safe_psql('postgres', "CALL outbox_wait('c', '0.4 s', NULL)"), 'f',
		'outbox_wait() returns false if no event arrives') });
cmp_ok($idle, '>', 0.35, 'outbox_wait() waits for its whole timeout if no event arrives');

# Latency from the commit to the end of the wait.
my @latency;
for my $round (1 .. 15)
{
	my $one = start_wait_in_progress($node, '10 s');
	$node->safe_psql('postgres', enqueue($round));
	my $committed = time;
	$one->finish;
	push @latency, time - $committed;
	$node->safe_psql('postgres', "SELECT count(*) FROM outbox_consume('c')");
}
@latency = sort { $a <=> $b } @latency;
note sprintf('from the return of the producer to the return of the waiter: median %.1f ms',
	$latency[7] * 1000);
cmp_ok($latency[7], '<', 0.1,
	'the median wake-up takes less than 100 ms, including start and end of psql');

# Other wake-ups: INSERT into the log, a release, an expired lease, a due retry.
$waiting = start_wait_in_progress($node, '10 s');
$node->safe_psql('postgres',
	"INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload) "
	  . "VALUES ('T', '1', 'E', '{}')");
($said, $took) = $waiting->finish;
ok($said eq "t\n" && $took < 0.25, 'an INSERT into the log wakes outbox_wait()');
my ($token, $id) = split /\|/,
  $node->safe_psql('postgres', "SELECT lock_token, id FROM outbox_claim('c', lease => '2 s')");
$waiting = start_wait_in_progress($node, '10 s');
$node->safe_psql('postgres', "SELECT outbox_release($token)");
($said, $took) = $waiting->finish;
ok($said eq "t\n" && $took < 0.25, 'a released batch wakes outbox_wait()');
($token, $id) = split /\|/,
  $node->safe_psql('postgres', "SELECT lock_token, id FROM outbox_claim('c', lease => '1 s')");
($said, $took) = start_wait($node, '10 s')->finish;
ok($said eq "t\n" && $took < 1.5, 'an expired lease ends outbox_wait()');
($token, $id) = split /\|/,
  $node->safe_psql('postgres', "SELECT lock_token, id FROM outbox_claim('c')");
$node->safe_psql('postgres', "SELECT outbox_fail($token, $id, 'later', retry_in => '0.7 s')");
($said, $took) = start_wait($node, '10 s')->finish;
ok($said eq "t\n" && $took < 1.2, 'a due retry ends outbox_wait()');
($token, $id) = split /\|/,
  $node->safe_psql('postgres', "SELECT lock_token, id FROM outbox_claim('c')");
$node->safe_psql('postgres', "SELECT outbox_ack($token)");

# COMMIT PREPARED wakes no session: the poll interval finds its events.
$waiting = start_wait_in_progress($node, '10 s');
$node->safe_psql('postgres', 'BEGIN; ' . enqueue(1) . " PREPARE TRANSACTION 'p'");
$node->safe_psql('postgres', "COMMIT PREPARED 'p'");
($said, $took) = $waiting->finish;
ok($said eq "t\n" && $took < 1.5, 'outbox_wait() finds the events of COMMIT PREPARED within 1.5 s');

# A session that holds the consumer lock leaves nothing to claim for others.
my $claimer = Waiting->new($node,
	"BEGIN; SELECT count(*) FROM outbox_claim('c'); SELECT pg_sleep(1); ROLLBACK;");
$node->poll_query_until('postgres',
	"SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory'");
is($node->safe_psql('postgres', "CALL outbox_wait('c', '0.2 s', NULL)"), 'f',
	'outbox_wait() returns false while another session claims');
($said, $took) = start_wait($node, '10 s')->finish;
ok($said eq "t\n", 'outbox_wait() returns true after another session has rolled its claim back');
$claimer->finish;
$node->safe_psql('postgres', "SELECT count(*) FROM outbox_consume('c')");

# outbox_wait() does not report what a claim would not get: an unassigned batch that another session
# has just taken, or an expired one that another session is acking.
for my $ordered ('false', 'true')
{
	$node->safe_psql('postgres',
		"SELECT outbox_create_consumer('dealt', ordered => $ordered, partitions => 2)");
	$node->safe_psql('postgres', enqueue(1) . enqueue(1));
	my $picker = Waiting->new($node,
		"BEGIN; SELECT count(*) FROM outbox_claim('dealt', 1); COMMIT; BEGIN; SELECT count(*) "
		  . "FROM outbox_claim('dealt', 1);"
		. " SELECT pg_sleep(1.5); ROLLBACK;");
	$node->poll_query_until('postgres',
		"SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
	is($node->safe_psql('postgres', "CALL outbox_wait('dealt', '0.3 s', NULL)"), 'f',
		"outbox_wait() ignores a batch that another session has claimed (ordered: $ordered)");
	$picker->finish;
	$node->safe_psql('postgres', "SELECT outbox_drop_consumer('dealt')");
}
($token, $id) = split /\|/,
  $node->safe_psql('postgres',
	enqueue(1) . "SELECT lock_token, id FROM outbox_claim('c', lease => '1 s')") =~ s/.*\n//r;
sleep 1.1;
my $acker = Waiting->new($node, "BEGIN; SELECT outbox_ack($token); SELECT pg_sleep(1.5); COMMIT;");
$node->poll_query_until('postgres',
	"SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
is($node->safe_psql('postgres', "CALL outbox_wait('c', '0.3 s', NULL)"), 'f',
	'outbox_wait() ignores an expired batch that another session is acking');
$acker->finish;

# Cancellation.
$waiting = start_wait_in_progress($node, '60 s');
$node->safe_psql('postgres',
	"SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
	  . "WHERE query LIKE 'CALL%' AND pid <> pg_backend_pid()");
($said, $took) = $waiting->finish;
ok($said =~ /canceling statement/ && $took < 1, 'pg_cancel_backend() ends outbox_wait()');
my ($status, undef, $error) = $node->psql('postgres',
	"SET statement_timeout = '300ms'; CALL outbox_wait('c', '60 s', NULL)");
ok($status != 0 && $error =~ /statement timeout/, 'statement_timeout ends outbox_wait()');

# From PL/pgSQL, in a procedure that is called outside of a transaction.
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
is($node->safe_psql('postgres', 'CALL wait_twice(NULL)'), 'false true',
	'a PL/pgSQL procedure can call outbox_wait() twice');

# A claim waits for the consumer lock of another claim, and then delivers the rest. On a busy
# machine one round may miss that overlap, so there are 30.
$node->safe_psql('postgres', "SELECT outbox_create_consumer('parts', partitions => 2)");
my ($first, $watcher) = map { $node->background_psql('postgres') } 1 .. 2;
my $left = 0;
for (1 .. 30)
{
	$node->safe_psql('postgres',
		"SELECT count(outbox_enqueue('T', i::text, 'E', '{}'::jsonb)) "
		  . "FROM generate_series(1, 20) i");
	$first->query_safe("BEGIN; SELECT count(*) FROM outbox_claim('parts', 1)");
	my $second = Waiting->new($node, "SELECT count(*) FROM outbox_claim('parts', 100)");
	my ($waits, $until) = ('f', time + 1);
	$waits = $watcher->query_safe("SELECT count(*) > 0 FROM pg_locks "
		. "WHERE locktype = 'advisory' AND NOT granted") while $waits eq 'f' && time < $until;
	$first->query_safe('COMMIT');
	($left) = $second->finish;
	last if $waits eq 't' && $left > 0;
	$left = 0;
}
cmp_ok($left, '>', 0, 'a claim that has waited for another claim delivers the rest');
$_->quit for $first, $watcher;
$node->stop;

# Without shared memory outbox_wait() polls.
my $plain = start_node('plain', no_preload => 1);
$plain->safe_psql('postgres', "SELECT outbox_setup(); SELECT outbox_create_consumer('c')");
$waiting = start_wait_in_progress($plain, '10 s');
$plain->safe_psql('postgres', enqueue(1));
($said, $took) = $waiting->finish;
ok($said eq "t\n" && $took < 1, 'outbox_wait() polls if the library is not preloaded');
$plain->stop;

done_testing();
