# A load of writers and claimers (lib/load), and the questions to ask when it is over.
package OutboxLoad;

use strict;
use warnings;
use Exporter 'import';
use IPC::Run ();
use PostgreSQL::Test::Utils ();
use Test::More;

our @EXPORT = qw(run_sql prepare_load start_load finish_load run_load end_prepared drain check_load happened);

my $dir = 't/lib/load';
my %happened;

# A file of SQL beside the load.
sub run_sql
{
	my ($node, $name) = @_;
	$node->safe_psql('postgres', PostgreSQL::Test::Utils::slurp_file("$dir/$name.sql"));
}

# Consumers are given as name => arguments of outbox_create_consumer(). They retry soon, so that a test need not wait.
sub prepare_load
{
	my ($node, %consumers) = @_;
	$node->safe_psql('postgres', 'SELECT outbox_setup()');
	run_sql($node, 'record');
	for my $name (sort keys %consumers)
	{
		$node->safe_psql('postgres', "SELECT outbox_create_consumer('$name', $consumers{$name});
			SELECT outbox_alter_consumer('$name', backoff_base => '50 ms', backoff_max => '200 ms')");
	}
}

sub start_load
{
	my ($node, @options) = @_;
	my $consumers = $node->safe_psql('postgres', q{SELECT string_agg(name, ',' ORDER BY name) FROM outbox_consumers});
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATABASE} = 'postgres';
	my $load = { out => '', err => '' };
	# Debian's, whose modules are Debian's packages.
	$load->{process} = IPC::Run::start([ '/usr/bin/python3', $dir, '--consumers', $consumers, @options ],
		'<', \undef, '>', \$load->{out}, '2>', \$load->{err});
	return $load;
}

sub finish_load
{
	my ($load, $promise) = @_;
	my $ok = ok($load->{process}->finish, $promise);
	$ok ? note($load->{out}) : diag($load->{out}, $load->{err});
	while ($load->{out} =~ /(\d+) ([a-z ]+)/g)
	{
		$happened{$2} += $1;
	}
}

# How often something happened in the loads so far.
sub happened
{
	my ($what) = @_;
	return $happened{$what} // 0;
}

sub run_load
{
	my ($node, $promise, @options) = @_;
	finish_load(start_load($node, @options), $promise);
}

# A writer may have been stopped before it came to that.
sub end_prepared
{
	my ($node) = @_;
	$node->safe_psql('postgres', "COMMIT PREPARED '$_'")
	  for split /\n/, $node->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts');
}

# Claims until nothing is left.
sub drain
{
	my ($node, @options) = @_;
	end_prepared($node);
	run_load($node, 'what is left is claimed without trouble', '--drain', '--seconds', $ENV{OUTBOX_SOAK} ? 3600 : 60, @options);
}

# The view names what must not be; up to three examples are shown.
sub nothing_is
{
	my ($node, $view, $promise) = @_;
	my $wrong = $node->safe_psql('postgres', "SELECT count(*) FROM $view");
	is($wrong, 0, $promise)
	  or diag($node->safe_psql('postgres', "SELECT v FROM $view v LIMIT 3"));
}

sub check_load
{
	my ($node) = @_;
	$node->safe_psql('postgres', 'ANALYZE');
	nothing_is($node, 'neither_or_both', 'an event is in the log if and only if its transaction committed');
	nothing_is($node, 'unsettled', 'every committed event was acked by each consumer, or is a dead letter');
	nothing_is($node, 'acked_and_dead', 'not both');
	nothing_is($node, 'phantoms', 'no event of a transaction that did not commit was handed out');
	nothing_is($node, 'handed_to_their_writer', 'nor to the transaction itself');
	nothing_is($node, 'claimed_after_the_end', 'nothing was handed out again after it was settled');
	nothing_is($node, 'in_two_leases', 'no message was in two live leases');
	nothing_is($node, 'settled_by_the_wrong_one', 'only the newest token of a message settled it');
	nothing_is($node, 'claimed_out_of_order', 'with order, nothing was handed out before what comes earlier was settled');
	nothing_is($node, 'acked_out_of_order', 'and each aggregate was acked in the order of its commits');
}

1;
