# One attempt per idempotency key executes, also across rollbacks, kills and crashes;
# idempotency_hash() agrees with an implementation in Python.
use strict;
use warnings;
use lib 't/lib';
use IPC::Run ();
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_node('main', conf => "max_connections = 100\n");
my $query = sub { return $node->safe_psql('postgres', $_[0]) };

# Runs a Python program, and returns its output.
sub run_python
{
	my ($promise, $program, @arguments) = @_;
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATABASE} = 'postgres';
	my ($out, $err) = ('', '');
	# Debian's Python: the modules that the programs import are Debian packages.
	my $ok = ok(IPC::Run::run([ '/usr/bin/python3', "t/lib/idempotency/$program", @arguments ], '<',
		\undef, '>', \$out, '2>', \$err), $promise);
	$ok ? note($out) : diag($out, $err);
	return $out;
}

# 64 clients, one key per round, with rollbacks, disconnects and kills.
my $rounds = $ENV{OUTBOX_SOAK} ? 1000 : 50;
$query->('CREATE TABLE effects (key text, token bigint, by text)');
my $out = run_python('64 clients use the same key in each round', 'race.py', '--rounds', $rounds);
my %happened = reverse $out =~ /(\d+) ([a-z ]+)/g;
is($query->('SELECT count(DISTINCT key) FROM effects'), $rounds,
	'one attempt executes in each round');
is($query->('SELECT count(*) FROM effects'), $rounds, 'no second attempt executes in a round');
is($query->(q{SELECT count(*) FROM idempotency_keys k JOIN effects e USING (key, token)
	WHERE scope = 'race' AND status_code = 201 AND response->>'by' = e.by}), $rounds,
	'the stored response is that of the attempt that executed');
is($query->(q{SELECT count(*) FROM idempotency_keys WHERE scope = 'race'}), $rounds,
	'each key has one row');
cmp_ok($happened{$_} // 0, '>', 0, "the rounds include attempts with: $_")
  for ('ended by rollback', 'ended by hang up', 'kills', 'in progress');
cmp_ok($happened{executions}, '>', $rounds,
	'some rounds have more executions than one, because attempts roll back');
is($query->('SELECT count(*) FROM pg_locks WHERE locktype = $$advisory$$'), 0,
	'the attempts leave no advisory lock behind');

# A crash between begin and finish.
my $ask = sub {
	my ($key, $more) = @_;
	return $query->("SELECT decision FROM idempotency_begin('crash', '$key', '{}'"
		. ($more ? ", $more" : '') . ')');
};
my $token = $query->(q{SELECT token FROM idempotency_begin('crash', 'committed', '{}',
	lease => '3 s')});
my $open = $node->background_psql('postgres');
$open->query_safe(q{BEGIN; SELECT idempotency_begin('crash', 'open', '{}')});
is($ask->('open'), 'in_progress', 'an open attempt is in progress');
my $lease_ends = $query->(q{SELECT locked_until FROM idempotency_keys WHERE key = 'committed'});
$node->stop('immediate');
eval { $open->quit };
$node->start;
is($ask->('open'), 'execute', 'the key of an open transaction is free after a crash');
my $first = $ask->('committed');
is($first, 'in_progress', 'the key of a committed attempt is in progress after a crash');
my $next = $ask->('committed', q{wait => '20 s'});
is($next, 'execute', 'the key of a committed attempt is free after its lease');
is($query->("SELECT begun_at >= '$lease_ends' AND begun_at < '$lease_ends'::timestamptz + "
	. "interval '2 s' FROM idempotency_keys WHERE key = 'committed'"),
	't', 'the next attempt begins within 2 s of the end of the lease');
my ($code, undef, $error) = $node->psql('postgres',
	"\\set VERBOSITY sqlstate\nSELECT idempotency_finish('crash', 'committed', $token, 200, '{}')");
like($error, qr/OB001/, 'an attempt that has lost its lease cannot finish');
is($query->(q{SELECT token > } . $token . q{ FROM idempotency_keys WHERE key = 'committed'}), 't',
	'the token of the next attempt is greater');

# The hash of a request.
my $count = $ENV{OUTBOX_SOAK} ? 100_000 : 3000;
$out = run_python('idempotency_hash() returns the hash that Python computes', 'bodies.py',
	'--count', $count);
cmp_ok($_, '>', 0.8 * $count, "the hash is compared for $_ different requests")
  for $out =~ /(\d+) (?:ascii|unicode)/g;
$query->(q{CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0});
my $body = q{'{"\u00f6": "\u00e4\u00df", "z": 1, "\u0080": 2}'};
$node->safe_psql('latin', 'SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE');
is($node->safe_psql('latin', "SELECT idempotency_hash($body)"),
	$query->("SELECT idempotency_hash($body)"),
	'idempotency_hash() does not depend on the encoding');

$node->stop;
done_testing();
