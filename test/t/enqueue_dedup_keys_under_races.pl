# Many transactions race for few dedup keys, and some of them roll back or die.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use Test::More;

my $node = start_node('main');
$node->safe_psql('postgres', q{
	SELECT outbox_setup();
	CREATE TABLE answers (key text, tracking_id uuid);});

# Each key is tried by everybody at about the same time: keys are taken from a counter that moves on.
my $seconds = $ENV{OUTBOX_SOAK} ? 60 : $ENV{OUTBOX_SANITIZED} ? 20 : 4;
$node->safe_psql('postgres', 'CREATE SEQUENCE turn');
my $try = sub {
	my ($end) = @_;
	return q{
SELECT nextval('turn') / 8 AS turn \gset
BEGIN;
INSERT INTO answers SELECT 'key-' || :turn, outbox_enqueue('Race', :client_id, 'Raced', '1', dedup_key => 'key-' || :turn);
} . $end;
};
$node->pgbench("-n -c 16 -j 2 -T $seconds", 0, [qr/number of failed transactions: 0 /], [qr/^$/], 'transactions race, and none of them ends in a deadlock',
	{
		'commit@6' => $try->('COMMIT;'),
		'rollback@3' => $try->('ROLLBACK;'),
		'twice@1' => q{
SELECT nextval('turn') / 8 AS turn \gset
INSERT INTO answers SELECT 'key-' || :turn, unnest(outbox_enqueue_many(jsonb_build_array(
	jsonb_build_object('aggregate_type', 'Race', 'aggregate_id', 1, 'event_type', 'Raced', 'payload', 1, 'dedup_key', 'key-' || :turn),
	jsonb_build_object('aggregate_type', 'Race', 'aggregate_id', 1, 'event_type', 'Raced', 'payload', 2, 'dedup_key', 'key-' || :turn))));
},
		'savepoint@1' => q{
SELECT nextval('turn') / 8 AS turn \gset
BEGIN;
SAVEPOINT s;
SELECT outbox_enqueue('Race', :client_id, 'Raced', '1', dedup_key => 'key-' || :turn);
ROLLBACK TO s;
INSERT INTO answers SELECT 'key-' || :turn, outbox_enqueue('Race', :client_id, 'Raced', '1', dedup_key => 'key-' || :turn);
COMMIT;
},
	});

my $query = sub { return $node->safe_psql('postgres', $_[0]) };
cmp_ok($query->('SELECT count(DISTINCT key) FROM answers'), '>', 200, 'there was something to race for');
cmp_ok($query->('SELECT count(*) - count(DISTINCT key) FROM answers'), '>', 200, 'and there were losers');
is($query->(q{SELECT count(*) FROM (SELECT key FROM answers GROUP BY key HAVING count(DISTINCT tracking_id) > 1) x}),
	0, 'all who used a key got the same answer');
is($query->(q{SELECT count(*) FROM outbox_messages m WHERE NOT EXISTS (SELECT FROM answers a WHERE a.tracking_id = m.tracking_id)}),
	0, 'no event without an answer');
is($query->(q{SELECT count(*) FROM answers a WHERE NOT EXISTS (SELECT FROM outbox_messages m WHERE m.tracking_id = a.tracking_id)}),
	0, 'no answer without an event');
is($query->(q{SELECT (SELECT count(*) FROM outbox_messages) = (SELECT count(DISTINCT key) FROM answers)}),
	't', 'one event for each key');

$node->stop;
done_testing();
