# Kills processes of a server with SIGKILL: all at once, or one.
package OutboxKill;

use strict;
use warnings;
use Exporter 'import';
use OutboxReceiver qw(wait_until);
use PostgreSQL::Test::Utils ();
use Test::More;
use Time::HiRes qw(sleep);

our @EXPORT = qw(kill_server kill_process log_has_only);

# Returns state, parent and title of a process; nothing if it does not exist.
sub process
{
	my ($pid) = @_;
	open my $file, '<', "/proc/$pid/stat" or return;
	my ($state, $parent) = (<$file> // '') =~ /\) (\S) (\d+) / or return;
	open $file, '<', "/proc/$pid/cmdline" or return;
	return { state => $state, parent => $parent, title => <$file> // '' };
}

sub postmaster
{
	my ($node) = @_;
	return (split /\n/,
		PostgreSQL::Test::Utils::slurp_file($node->data_dir . '/postmaster.pid'))[0];
}

# The child processes of a postmaster: pid => title.
sub children
{
	my ($node) = @_;
	my $postmaster = postmaster($node);
	my %children;
	for my $pid (map { m{(\d+)$} } glob '/proc/[0-9]*')
	{
		my $process = process($pid);
		$children{$pid} = $process->{title}
		  if $process && $process->{parent} == $postmaster && $process->{state} ne 'Z';
	}
	return %children;
}

# Simulates a power failure: the postmaster is stopped first, so that no process can react to the
# end of another.
sub kill_server
{
	my ($node) = @_;
	my $postmaster = postmaster($node);
	kill 'STOP', $postmaster;
	wait_until(sub { process($postmaster)->{state} eq 'T' }) or die 'the postmaster does not stop';
	my %children = children($node);
	kill 'KILL', keys %children;
	$node->kill9;
	# Wait until the orphans' new parents have reaped them: a server does not start while the pid of
	# its predecessor exists.
	wait_until(sub { !grep { -e "/proc/$_" } $postmaster, keys %children }, 60)
	  or die 'killed processes remain';
}

# Kills a process whose title matches, and waits for it to start if it is short-lived. The
# postmaster then restarts all processes. Returns 0 if no process was killed.
sub kill_process
{
	my ($node, $title) = @_;
	my $ready = times_ready($node);
	for (1 .. 2000)
	{
		my %children = children($node);
		my @chosen = grep { $children{$_} =~ $title } keys %children;
		my $chosen = $chosen[ rand @chosen ];
		# The process may end by itself before the signal; then the log has no line about it, and
		# the loop goes on.
		if ($chosen && kill('KILL', $chosen) && wait_until(sub {
					slurp_log($node) =~ /\(PID $chosen\) was terminated by signal 9/ }, 3))
		{
			wait_until(sub { times_ready($node) > $ready }, 60)
			  or die 'the server does not come back';
			return 1;
		}
		sleep 0.001;
	}
	return 0;
}

sub slurp_log
{
	my ($node) = @_;
	return PostgreSQL::Test::Utils::slurp_file($node->logfile);
}

sub times_ready
{
	my ($node) = @_;
	return scalar(my @times =
			slurp_log($node) =~ /database system is ready to accept connections/g);
}

# Tests that the log's alarming lines all match the pattern, and are at least this many. Renames the
# log afterwards, because test/run searches all logs for crashes.
sub log_has_only
{
	my ($node, $expected, $times, $promise) = @_;
	my @bad = grep {
		/leak:|leaked|don't own a lock|resource was not closed|PANIC:|TRAP:|runtime error:|terminated by signal/ }
	  split /\n/, slurp_log($node);
	my @strange = grep { !/$expected/ } @bad;
	ok(!@strange && @bad >= $times, $promise)
	  or return diag("@bad" ? join "\n", @strange : 'nothing');
	rename $node->logfile, $node->logfile . '.seen' or die $!;
}

1;
