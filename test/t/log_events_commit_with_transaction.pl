# Both or neither, through every way a transaction can end.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use Test::More;

my $node = start_node('main', init => { allows_streaming => 1 });
my $ids = sub {
	return $node->safe_psql('postgres',
		"SELECT string_agg(aggregate_id, ' ' ORDER BY aggregate_id) FROM outbox_messages");
};

$node->safe_psql('postgres', 'BEGIN; ' . enqueue('committed') . ' COMMIT');
$node->safe_psql('postgres', 'BEGIN; ' . enqueue('aborted') . ' ROLLBACK');
$node->safe_psql('postgres',
		'BEGIN; SAVEPOINT s; '
	  . enqueue('savepoint-aborted')
	  . ' ROLLBACK TO s; '
	  . enqueue('savepoint-committed')
	  . ' COMMIT');
is($ids->(), 'committed savepoint-committed', 'a rolled-back event is not there, a committed one is');

$node->psql('postgres', 'BEGIN; ' . enqueue('failed') . ' SELECT 1 / 0; COMMIT');
is($ids->(), 'committed savepoint-committed', 'an error takes the event along');

$node->safe_psql('postgres', 'BEGIN; ' . enqueue('prepared-1') . " PREPARE TRANSACTION 'p1'");
$node->safe_psql('postgres', 'BEGIN; ' . enqueue('prepared-2') . " PREPARE TRANSACTION 'p2'");
is($ids->(), 'committed savepoint-committed', 'a prepared event is not visible');
$node->restart;
$node->stop('immediate');
$node->start;
is($ids->(), 'committed savepoint-committed', 'nor after a restart and a crash');
$node->safe_psql('postgres', "COMMIT PREPARED 'p1'");
$node->safe_psql('postgres', "ROLLBACK PREPARED 'p2'");
is($ids->(), 'committed prepared-1 savepoint-committed', 'it is there once the transaction is committed');

# A backend that is terminated in the middle.
my $before = $node->safe_psql('postgres', 'SELECT count(*) FROM outbox_messages');
$node->psql('postgres',
	'BEGIN; ' . enqueue('killed') . ' SELECT pg_terminate_backend(pg_backend_pid()); COMMIT');
is($node->safe_psql('postgres', 'SELECT count(*) FROM outbox_messages'),
	$before, 'a terminated session leaves no event');

# What was committed survives a crash, and no id or tracking_id is used again.
$node->safe_psql('postgres', join ' ', map { enqueue("crash-$_") } 1 .. 50);
my $last = $node->safe_psql('postgres', 'SELECT max(id) FROM outbox_messages');
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', "SELECT count(*) FROM outbox_messages WHERE aggregate_id LIKE 'crash-%'"),
	50, 'committed events survive a crash');
$node->safe_psql('postgres', enqueue('after'));
cmp_ok($node->safe_psql('postgres', "SELECT id FROM outbox_messages WHERE aggregate_id = 'after'"),
	'>', $last, 'ids go on after the highest one');
is( $node->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT tracking_id) + count(*) - count(DISTINCT id) FROM outbox_messages'),
	0, 'no id and no tracking_id twice');

# Claims judge an event by this column.
is( $node->safe_psql('postgres', q{
	SELECT count(*) FROM outbox_messages WHERE xid::text::bigint <> xmin::text::bigint
	   AND aggregate_id NOT LIKE 'savepoint%'}),
	0, 'the xid in the row is that of the transaction that wrote it');

# A standby refuses, in one clear line.
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
my ($status, $out, $error) = $standby->psql('postgres', enqueue('standby'));
like($error, qr/cannot execute outbox_enqueue\(\) (during recovery|in a read-only transaction)/,
	'a standby refuses to enqueue');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is( $standby->safe_psql('postgres', 'SELECT count(*) FROM outbox_messages'),
	$node->safe_psql('postgres', 'SELECT count(*) FROM outbox_messages'),
	'and has every event');
$standby->promote;
$standby->safe_psql('postgres', enqueue('promoted'));
is( $standby->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT id) FROM outbox_messages'),
	0, 'promoted, it goes on without using an id again');

$standby->stop;
$node->stop;
done_testing();
