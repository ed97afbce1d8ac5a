# A test library sleeps between the steps of a claim and of an append. Without these pauses, steps
# of the cursor in a wrong order rarely lose an event. An independent reader beside the consumers
# (lib/load/oracle.sql) reads the expected events.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use OutboxLoad;
use Test::More;

my $node = start_node('pauses', stage => $ENV{OUTBOX_PAUSES_CONF},
	conf => "autovacuum = off\nmax_connections = 60\noutbox.test_pauses = 'all'\n");
my $query = sub { return $node->safe_psql('postgres', $_[0]) };
prepare_load($node,
	plain => 'partitions => 1',
	dealt => 'partitions => 4',
	ordered => 'ordered => true, partitions => 4');
run_sql($node, 'oracle');
my $seconds = $ENV{OUTBOX_SOAK} ? 600 : 9;

run_load($node, 'writers and workers run side by side with pauses between their steps', '--seconds',
	$seconds, '--oracle', '--rest', 0.02, '--trouble', 0.3);
drain($node, '--oracle');
check_load($node);
$query->('SELECT oracle_read()');
is($query->('SELECT string_agg(DISTINCT what, \' \') FROM oracle_disagrees'), '',
	'consumers and the independent reader get the same events');

cmp_ok(happened('acked'), '>', 1000, 'more than 1000 messages are acked');

$node->stop;
done_testing();
