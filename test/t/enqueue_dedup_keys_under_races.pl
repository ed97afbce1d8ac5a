# Concurrent transactions enqueue with the same dedup keys, and some roll back: each key has one
# event.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use Test::More;

my $node = start_node('main');
$node->safe_psql('postgres', q{
	SELECT outbox_setup();
	CREATE TABLE answers (key text, tracking_id uuid);});

# Keys come from a counter, eight calls per key, so that several clients use a key at the same time.
my $seconds = $ENV{OUTBOX_SOAK} ? 60 : $ENV{OUTBOX_SANITIZED} ? 20 : 4;
$node->safe_psql('postgres', 'CREATE SEQUENCE turn');
my $try = sub {
	my ($end) = @_;
	return q{
SELECT nextval('turn') / 8 AS turn \gset
BEGIN;
INSERT INTO answers SELECT 'key-' || :turn, outbox_enqueue('Race', :client_id, 'Raced', '1',
dedup_key => 'key-' || :turn);
} . $end;
};
$node->pgbench("-n -c 16 -j 2 -T $seconds", 0, [qr/number of failed transactions: 0 /], [qr/^$/],
	'transactions with the same dedup keys run into no deadlock',
	{
		'commit@6' => $try->('COMMIT;'),
		'rollback@3' => $try->('ROLLBACK;'),
		'twice@1' => q{
SELECT nextval('turn') / 8 AS turn \gset
INSERT INTO answers SELECT 'key-' || :turn, unnest(outbox_enqueue_many(jsonb_build_array(
	jsonb_build_object('aggregate_type', 'Race', 'aggregate_id', 1, 'event_type', 'Raced',
	'payload', 1, 'dedup_key', 'key-' || :turn),
	jsonb_build_object('aggregate_type', 'Race', 'aggregate_id', 1, 'event_type', 'Raced',
	'payload', 2, 'dedup_key', 'key-' || :turn))));
},
		'savepoint@1' => q{
SELECT nextval('turn') / 8 AS turn \gset
BEGIN;
SAVEPOINT s;
SELECT outbox_enqueue('Race', :client_id, 'Raced', '1', dedup_key => 'key-' || :turn);
ROLLBACK TO s;
INSERT INTO answers SELECT 'key-' || :turn, outbox_enqueue('Race', :client_id, 'Raced', '1',
dedup_key => 'key-' || :turn);
COMMIT;
},
	});

my $query = sub { return $node->safe_psql('postgres', $_[0]) };
cmp_ok($query->('SELECT count(DISTINCT key) FROM answers'), '>', 200,
	'more than 200 dedup keys are used');
cmp_ok($query->('SELECT count(*) - count(DISTINCT key) FROM answers'), '>', 200,
	'more than 200 calls are duplicates');
is($query->(q{SELECT count(*) FROM (SELECT key FROM answers GROUP BY key
	HAVING count(DISTINCT tracking_id) > 1) x}),
	0, 'every call with a dedup key returns the same tracking_id');
is($query->(q{SELECT count(*) FROM outbox_messages m WHERE NOT EXISTS (SELECT FROM answers a
	WHERE a.tracking_id = m.tracking_id)}),
	0, 'every event has the tracking_id of a committed call');
is($query->(q{SELECT count(*) FROM answers a WHERE NOT EXISTS (SELECT FROM outbox_messages m
	WHERE m.tracking_id = a.tracking_id)}),
	0, 'every tracking_id of a committed call has an event');
is($query->(q{SELECT (SELECT count(*) FROM outbox_messages) = (SELECT count(DISTINCT key)
	FROM answers)}),
	't', 'each dedup key has one event');

$node->stop;
done_testing();
