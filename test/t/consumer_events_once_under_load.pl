# Writers and workers run beside rollbacks, terminated sessions and a crash: each committed event is
# handled by each consumer, an ordered consumer keeps the order, and no two workers have the same
# message at once.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use OutboxLoad;
use Test::More;

# Autovacuum would change the counts of dead rows.
my $node = start_node('main',
	conf => "autovacuum = off\ndeadlock_timeout = '100ms'\nmax_connections = 60\n");
my $query = sub { return $node->safe_psql('postgres', $_[0]) };
prepare_load($node,
	unordered => 'partitions => 4',
	fair => 'fair => true',
	ordered => 'ordered => true, partitions => 4');
my $seconds = $ENV{OUTBOX_SOAK} ? 600 : 6;

run_load($node, 'writers and workers run side by side, and the only errors are lost leases',
	'--seconds', $seconds);
run_load($node, 'a terminated session causes no error in another session', '--seconds', $seconds,
	'--kills');

end_prepared($node);
my $changes = q{
	SELECT sum(n_tup_upd), sum(n_tup_del), sum(n_dead_tup) - (sum(n_tup_ins) - (SELECT count(*)
	FROM outbox_messages))
	  FROM pg_stat_user_tables WHERE relid IN (SELECT partition FROM _outbox.partitions())};
is($query->($changes), '0|0|0',
	'no row of the log is updated or deleted, and only rolled-back rows are dead');

my $load = start_load($node, '--seconds', $seconds, '--crash');
sleep($seconds / 2);
$node->stop('immediate');
$node->start;
finish_load($load, 'writers and workers continue after a crash of the server');

$query->('VACUUM outbox_messages');
drain($node);
check_load($node);
is($query->(q{SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE relid IN (SELECT partition
	FROM _outbox.partitions())}),
	0, 'claims leave no dead row in the log');

cmp_ok(happened($_), '>', 0, "the load includes: $_ (" . happened($_) . ')')
  for 'acked', 'batches', 'claims rolled back', 'commit prepared', 'deaths', 'failed', 'follow ups',
  'heartbeats', 'kills', 'leases lost',
  'parked', 'released', 'rollback prepared', 'rolled back';
is($query->(q{SELECT count(*) FROM consumer_offsets WHERE lag <> 0}), 0,
	'no consumer has a lag after the drain');
is( $query->(q{SELECT string_agg(DISTINCT status, ' ') FROM outbox_deliveries
	WHERE id % 50 = 0 AND status <> 'DEAD_LETTER'}),
	'COMPLETED', 'outbox_deliveries shows every sampled message as COMPLETED or DEAD_LETTER');

$node->stop;
done_testing();
