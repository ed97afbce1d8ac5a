# A load of writers and claimers (lib/load), and the checks of its records.
package OutboxLoad;

use strict;
use warnings;
use Exporter 'import';
use IPC::Run ();
use PostgreSQL::Test::Utils ();
use Test::More;

our @EXPORT =
	qw(run_sql prepare_load start_load finish_load run_load end_prepared drain check_load happened);

my $dir = 't/lib/load';
my %happened;

# Runs a file of SQL in lib/load.
sub run_sql
{
	my ($node, $name) = @_;
	$node->safe_psql('postgres', PostgreSQL::Test::Utils::slurp_file("$dir/$name.sql"));
}

# Creates consumers, given as name => arguments of outbox_create_consumer(). Short back-offs keep
# the test short.
sub prepare_load
{
	my ($node, %consumers) = @_;
	$node->safe_psql('postgres', 'SELECT outbox_setup()');
	run_sql($node, 'record');
	for my $name (sort keys %consumers)
	{
		$node->safe_psql('postgres', "SELECT outbox_create_consumer('$name', $consumers{$name});
			SELECT outbox_alter_consumer('$name', backoff_base => '50 ms',
			backoff_max => '200 ms')");
	}
}

sub start_load
{
	my ($node, @options) = @_;
	my $consumers = $node->safe_psql('postgres', q{SELECT string_agg(name, ',' ORDER BY name)
			FROM outbox_consumers});
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATABASE} = 'postgres';
	my $load = { out => '', err => '' };
	# Debian's interpreter has Debian's packages of Python modules.
	$load->{process} =
		IPC::Run::start([ '/usr/bin/python3', $dir, '--consumers', $consumers, @options ],
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

# Commits prepared transactions of writers that were stopped.
sub end_prepared
{
	my ($node) = @_;
	$node->safe_psql('postgres', "COMMIT PREPARED '$_'")
	  for split /\n/, $node->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts');
}

# Claims until every event is settled.
sub drain
{
	my ($node, @options) = @_;
	end_prepared($node);
	run_load($node, 'the remaining events are claimed and settled', '--drain', '--seconds',
		$ENV{OUTBOX_SOAK} ? 3600 : 60, @options);
}

# The view has violations of a promise; shows up to three of them.
sub has_no_rows
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
	has_no_rows($node, 'neither_or_both',
		'an event is in the log if and only if its transaction committed');
	has_no_rows($node, 'unsettled',
		'every committed event is acked or a dead letter for each consumer');
	has_no_rows($node, 'acked_and_dead',
		'no event is both acked and a dead letter of one consumer');
	has_no_rows($node, 'phantoms', 'no event of an uncommitted transaction was delivered');
	has_no_rows($node, 'handed_to_their_writer',
		'no event was delivered to the transaction that wrote it');
	has_no_rows($node, 'claimed_after_the_end',
		'no message was delivered again after it was settled');
	has_no_rows($node, 'in_two_leases', 'no message was in two live leases');
	has_no_rows($node, 'settled_by_the_wrong_one', 'only the newest token of a message settled it');
	has_no_rows($node, 'claimed_out_of_order',
		'an ordered consumer got no message before earlier ones of its aggregate were settled');
	has_no_rows($node, 'acked_out_of_order',
		'an ordered consumer acked each aggregate in the order of its commits');
}

1;
