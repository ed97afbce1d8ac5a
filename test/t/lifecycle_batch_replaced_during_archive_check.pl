# A batch is replaced by another while partition_readers() looks for readers of a partition: an
# unsettled message is in exactly one of the two batches.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use Test::More;

my ($events, $rounds) = (2000, 1000);
my $node = start_node('pauses', stage => $ENV{OUTBOX_PAUSES_CONF},
	conf => "outbox.relay = off\noutbox.maintenance_interval = '1h'\n");
# All events are in the default partition.
$node->safe_psql('postgres', qq{SELECT outbox_setup(), outbox_create_consumer('worker',
	start_at => 'earliest', fair => true);
	INSERT INTO outbox_messages (occurred_at, aggregate_type, aggregate_id, event_type, payload)
	SELECT '2020-02-29', 'Order', n, 'Stray', '{}' FROM generate_series(1, $events) n;
	CREATE TABLE answers (needed boolean)});
my $checker = $node->background_psql('postgres');
# The pause leaves time for some claims.
$checker->query_until(qr/begun/, qq{SET outbox.test_pauses = 'unread';
	\\echo begun
	DO \$\$ BEGIN
		WHILE to_regclass('done') IS NULL LOOP
			INSERT INTO answers SELECT EXISTS (SELECT
			FROM _outbox.partition_readers('outbox_messages_default'));
			COMMIT;
		END LOOP;
	END \$\$;
});
# A claim of one message cuts a larger batch: the rest becomes a new batch each time.
$node->safe_psql('postgres', qq{DO \$\$ BEGIN
		FOR i IN 1 .. $rounds LOOP
			PERFORM outbox_ack(max(lock_token)) FROM outbox_claim('worker', 1);
			COMMIT;
		END LOOP;
	END \$\$;
	CREATE TABLE done ()});
$checker->quit;
is($node->safe_psql('postgres',
	'SELECT count(*) FROM _outbox.leases WHERE superseded_by IS NOT NULL'), $rounds,
	'each claim replaces the batch of the rest');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM answers'), '>', 100,
	'partition_readers() is called more than 100 times meanwhile');
is($node->safe_psql('postgres', 'SELECT count(*) FROM answers WHERE NOT needed'), 0,
	'partition_readers() lists the consumer while its batches are replaced');
$node->safe_psql('postgres', q{SELECT outbox_ack(max(lock_token))
	FROM outbox_claim('worker', 10000)});
is($node->safe_psql('postgres', q{SELECT count(*)
	FROM _outbox.partition_readers('outbox_messages_default')}), 0,
	'partition_readers() lists no consumer once every message is settled');
$node->stop;

done_testing();
