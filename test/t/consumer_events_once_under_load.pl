# Writers, consumers and everything that can happen to both at once: in the end each committed event was handled by
# each consumer, in order where order was asked for, and no worker ever had what another one had.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use OutboxLoad;
use Test::More;

# Autovacuum would make the counts of dead rows mean nothing.
my $node = start_node('main', conf => "autovacuum = off\ndeadlock_timeout = '100ms'\nmax_connections = 60\n");
my $query = sub { return $node->safe_psql('postgres', $_[0]) };
prepare_load($node,
	unordered => 'partitions => 4',
	fair => 'fair => true',
	ordered => 'ordered => true, partitions => 4');
my $seconds = $ENV{OUTBOX_SOAK} ? 600 : 6;

run_load($node, 'writers and claimers meet, and the only errors are leases lost because they expired', '--seconds', $seconds);
run_load($node, 'sessions are terminated, and nobody else notices', '--seconds', $seconds, '--kills');

end_prepared($node);
my $changes = q{
	SELECT sum(n_tup_upd), sum(n_tup_del), sum(n_dead_tup) - (sum(n_tup_ins) - (SELECT count(*) FROM outbox_messages))
	  FROM pg_stat_user_tables WHERE relid IN (SELECT partition FROM _outbox.partitions())};
is($query->($changes), '0|0|0', 'the log was never updated, and nothing in it is dead but what was rolled back');

my $load = start_load($node, '--seconds', $seconds, '--crash');
sleep($seconds / 2);
$node->stop('immediate');
$node->start;
finish_load($load, 'the server crashes and comes back, and everybody goes on');

$query->('VACUUM outbox_messages');
drain($node);
check_load($node);
is($query->(q{SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE relid IN (SELECT partition FROM _outbox.partitions())}),
	0, 'claims leave no dead rows in the log');

cmp_ok(happened($_), '>', 0, "$_: " . happened($_))
  for 'acked', 'batches', 'claims rolled back', 'commit prepared', 'deaths', 'failed', 'follow ups', 'heartbeats', 'kills', 'leases lost',
  'parked', 'released', 'rollback prepared', 'rolled back';
is($query->(q{SELECT count(*) FROM consumer_offsets WHERE lag <> 0}), 0, 'no consumer lags behind');
is( $query->(q{SELECT string_agg(DISTINCT status, ' ') FROM outbox_deliveries WHERE id % 50 = 0 AND status <> 'DEAD_LETTER'}),
	'COMPLETED', 'and the view of deliveries says so');

$node->stop;
done_testing();
