# The examples in docs/idempotency print what docs/idempotency.md documents, in each language.
use strict;
use warnings;
use lib 't/lib';
use IPC::Run ();
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $examples = $ENV{OUTBOX_EXAMPLES} or die 'OUTBOX_EXAMPLES names no directory';

# JDBC does not support Unix sockets.
my $node = start_node('main', conf => "listen_addresses = '127.0.0.1'\n");

# The documented output of the examples.
my ($printed) = slurp_file("$examples/idempotency.md") =~ /and prints\n\n```\n(.*?)```/s;
ok($printed, 'docs/idempotency.md has the output of the examples');

# Concurrent CREATE TABLE IF NOT EXISTS of the same table can fail, so the table is created first.
$node->safe_psql('postgres',
	slurp_file("$examples/order.sql") =~ /^(CREATE TABLE IF NOT EXISTS .*?;)/m ? $1
	  : die 'order.sql makes no table');

# The examples run in parallel, because interpreters take seconds to start and examples wait for
# leases.
local %ENV = (%ENV, PGHOST => '127.0.0.1', PGPORT => $node->port,
	PGUSER => $node->safe_psql('postgres', 'SELECT current_user'),
	PGDATABASE => 'postgres');
my %running;
for my $language (qw(python node go java))
{
	next unless -e "$examples/$language.run";
	my $run = $running{$language} = { out => '', err => '' };
	$run->{process} = IPC::Run::start([ 'sh', "$examples/$language.run" ], '<', \undef, '>',
		\$run->{out}, '2>', \$run->{err});
}
for my $language (qw(python node go java))
{
	if (my $run = $running{$language})
	{
		$run->{process}->finish;
		is($run->{out}, $printed, "the example in $language prints the documented output")
		  or diag($run->{err});
	}
	elsif (-e "$examples/$language.absent")
	{
		# Not a skip: the document shows order.sql for this language, which is tested below.
		diag("$language: SQL only, because " . slurp_file("$examples/$language.absent"));
	}
	else
	{
	  SKIP:
		{
			my $reason = join ' ', split /\n/, slurp_file("$examples/$language.failed");
			skip("$language: $reason", 1);
		}
	}
}

my ($out, $err) = ('', '');
ok(IPC::Run::run([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-f', "$examples/order.sql" ], '<',
	\undef, '>', \$out, '2>', \$err), 'the example in SQL runs')
  or diag($err);
is(join("\n", grep { $_ ne '' } split /\n/, $out),
	<<'END' =~ s/\n\z//r, 'the example in SQL prints the documented decisions');
the first: execute
again: replay 201 t
another request: conflict 409
the payment: execute
meanwhile: in_progress 425
after the lease: execute
asked again: replay 402 {"error": "card declined"}
its finish: OB001
END
my $rows = $node->safe_psql('postgres',
	'SELECT count(*), count(DISTINCT item) FROM example_orders');
my $made = 3 * keys(%running) + 1;
is($rows, "$made|$made", 'each example creates three orders, and the one in SQL one');
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox_messages
	WHERE event_type = 'OrderCreated'}), $made, 'each order has one event');

$node->stop;
done_testing();
