# A library that sleeps between the steps of a claim and of an append. Without it, a cursor whose steps are in the wrong
# order loses next to nothing, and tests do not notice. A slow reader beside the consumers (lib/load/oracle.sql) says what
# they should have got.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use OutboxLoad;
use Test::More;

my $node = start_node('pauses', stage => $ENV{OUTBOX_PAUSES_CONF}, conf => "autovacuum = off\nmax_connections = 60\noutbox.test_pauses = 'all'\n");
my $query = sub { return $node->safe_psql('postgres', $_[0]) };
prepare_load($node,
	plain => 'partitions => 1',
	dealt => 'partitions => 4',
	ordered => 'ordered => true, partitions => 4');
run_sql($node, 'oracle');
my $seconds = $ENV{OUTBOX_SOAK} ? 600 : 9;

run_load($node, 'writers and claimers meet, slowly', '--seconds', $seconds, '--oracle', '--rest', 0.02, '--trouble', 0.3);
drain($node, '--oracle');
check_load($node);
$query->('SELECT oracle_read()');
is($query->('SELECT string_agg(DISTINCT what, \' \') FROM oracle_disagrees'), '', 'another reader has got exactly the same events');

cmp_ok(happened('acked'), '>', 1000, 'there was something to see');

$node->stop;
done_testing();
