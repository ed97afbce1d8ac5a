# Of all who use a key one executes, whatever happens to them; and the hash of a request is the one that others compute.
use strict;
use warnings;
use lib 't/lib';
use IPC::Run ();
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_node('main', conf => "max_connections = 100\n");
my $query = sub { return $node->safe_psql('postgres', $_[0]) };

# Runs a program beside this one, and returns what it printed.
sub run_python
{
	my ($promise, $program, @arguments) = @_;
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATABASE} = 'postgres';
	my ($out, $err) = ('', '');
	# Debian's, whose modules are Debian's packages.
	my $ok = ok(IPC::Run::run([ '/usr/bin/python3', "t/lib/idempotency/$program", @arguments ], '<', \undef, '>', \$out, '2>', \$err), $promise);
	$ok ? note($out) : diag($out, $err);
	return $out;
}

# 64 clients, one key per round, with rollbacks, disconnects and kills.
my $rounds = $ENV{OUTBOX_SOAK} ? 1000 : 50;
$query->('CREATE TABLE effects (key text, token bigint, by text)');
my $out = run_python('64 clients race for one key, round after round', 'race.py', '--rounds', $rounds);
my %happened = reverse $out =~ /(\d+) ([a-z ]+)/g;
is($query->('SELECT count(DISTINCT key) FROM effects'), $rounds, 'somebody executed in each round');
is($query->('SELECT count(*) FROM effects'), $rounds, 'and nobody else did');
is($query->(q{SELECT count(*) FROM idempotency_keys k JOIN effects e USING (key, token)
	WHERE scope = 'race' AND status_code = 201 AND response->>'by' = e.by}), $rounds, 'the answer is that of the one who did');
is($query->(q{SELECT count(*) FROM idempotency_keys WHERE scope = 'race'}), $rounds, 'a key is there once');
cmp_ok($happened{$_} // 0, '>', 0, "there was something to go wrong: $_")
  for ('ended by rollback', 'ended by hang up', 'kills', 'in progress');
cmp_ok($happened{executions}, '>', $rounds, 'some had to be executed again');
is($query->('SELECT count(*) FROM pg_locks WHERE locktype = $$advisory$$'), 0, 'no lock is left behind');

# A crash between begin and finish.
my $ask = sub {
	my ($key, $more) = @_;
	return $query->("SELECT decision FROM idempotency_begin('crash', '$key', '{}'" . ($more ? ", $more" : '') . ')');
};
my $token = $query->(q{SELECT token FROM idempotency_begin('crash', 'committed', '{}', lease => '3 s')});
my $open = $node->background_psql('postgres');
$open->query_safe(q{BEGIN; SELECT idempotency_begin('crash', 'open', '{}')});
is($ask->('open'), 'in_progress', 'an attempt is open');
my $lease_ends = $query->(q{SELECT locked_until FROM idempotency_keys WHERE key = 'committed'});
$node->stop('immediate');
eval { $open->quit };
$node->start;
is($ask->('open'), 'execute', 'after a crash the key of an open transaction is free');
my $first = $ask->('committed');
is($first, 'in_progress', 'that of a committed attempt is not');
my $next = $ask->('committed', q{wait => '20 s'});
is($next, 'execute', 'until its lease is over');
is($query->("SELECT begun_at >= '$lease_ends' AND begun_at < '$lease_ends'::timestamptz + interval '2 s' FROM idempotency_keys WHERE key = 'committed'"),
	't', 'then at once');
my ($code, undef, $error) = $node->psql('postgres',
	"\\set VERBOSITY sqlstate\nSELECT idempotency_finish('crash', 'committed', $token, 200, '{}')");
like($error, qr/OB001/, 'and the first attempt can no longer finish');
is($query->(q{SELECT token > } . $token . q{ FROM idempotency_keys WHERE key = 'committed'}), 't', 'tokens have grown');

# The hash.
my $count = $ENV{OUTBOX_SOAK} ? 100_000 : 3000;
$out = run_python('requests have the hash that Python computes', 'bodies.py', '--count', $count);
cmp_ok($_, '>', 0.8 * $count, "of $_ different requests") for $out =~ /(\d+) (?:ascii|unicode)/g;
$query->(q{CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0});
my $body = q{'{"\u00f6": "\u00e4\u00df", "z": 1, "\u0080": 2}'};
$node->safe_psql('latin', 'SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE');
is($node->safe_psql('latin', "SELECT idempotency_hash($body)"), $query->("SELECT idempotency_hash($body)"), 'in any encoding');

$node->stop;
done_testing();
