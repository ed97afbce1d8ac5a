# An event exists if and only if its transaction commits, for every way in which a transaction can
# end.
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
is($ids->(), 'committed savepoint-committed',
	'a committed event is in the log, and a rolled-back one is not');

$node->psql('postgres', 'BEGIN; ' . enqueue('failed') . ' SELECT 1 / 0; COMMIT');
is($ids->(), 'committed savepoint-committed', 'an event of a failed transaction is not in the log');

$node->safe_psql('postgres', 'BEGIN; ' . enqueue('prepared-1') . " PREPARE TRANSACTION 'p1'");
$node->safe_psql('postgres', 'BEGIN; ' . enqueue('prepared-2') . " PREPARE TRANSACTION 'p2'");
is($ids->(), 'committed savepoint-committed', 'an event of a prepared transaction is not visible');
$node->restart;
$node->stop('immediate');
$node->start;
is($ids->(), 'committed savepoint-committed',
	'an event of a prepared transaction is not visible after a restart and a crash');
$node->safe_psql('postgres', "COMMIT PREPARED 'p1'");
$node->safe_psql('postgres', "ROLLBACK PREPARED 'p2'");
is($ids->(), 'committed prepared-1 savepoint-committed',
	'an event of a prepared transaction is visible after COMMIT PREPARED');

# A backend that is terminated within its transaction.
my $before = $node->safe_psql('postgres', 'SELECT count(*) FROM outbox_messages');
$node->psql('postgres',
	'BEGIN; ' . enqueue('killed') . ' SELECT pg_terminate_backend(pg_backend_pid()); COMMIT');
is($node->safe_psql('postgres', 'SELECT count(*) FROM outbox_messages'),
	$before, 'a terminated session leaves no event');

# Committed events survive a crash, and no id or tracking_id is used again.
$node->safe_psql('postgres', join ' ', map { enqueue("crash-$_") } 1 .. 50);
my $last = $node->safe_psql('postgres', 'SELECT max(id) FROM outbox_messages');
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres',
	"SELECT count(*) FROM outbox_messages WHERE aggregate_id LIKE 'crash-%'"),
	50, 'committed events survive a crash');
$node->safe_psql('postgres', enqueue('after'));
cmp_ok($node->safe_psql('postgres', "SELECT id FROM outbox_messages WHERE aggregate_id = 'after'"),
	'>', $last, 'ids after a crash are greater than all earlier ones');
is( $node->safe_psql('postgres',
	'SELECT count(*) - count(DISTINCT tracking_id) + count(*) - count(DISTINCT id) '
	  . 'FROM outbox_messages'),
	0, 'no id and no tracking_id is used twice');

# Claims decide by this column which transaction has written an event.
is( $node->safe_psql('postgres', q{
	SELECT count(*) FROM outbox_messages WHERE xid::text::bigint <> xmin::text::bigint
	   AND aggregate_id NOT LIKE 'savepoint%'}),
	0, 'the xid in the row is that of the transaction that wrote it');

# A standby refuses to enqueue with a clear error.
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
	'a standby has every event');
$standby->promote;
$standby->safe_psql('postgres', enqueue('promoted'));
is( $standby->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT id) FROM outbox_messages'),
	0, 'a promoted standby uses no id twice');

$standby->stop;
$node->stop;
done_testing();
