# Batches are replaced by others just while somebody asks who needs a partition: what they have in hand is in the one or in the other.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use Test::More;

my ($events, $rounds) = (2000, 1000);
my $node = start_node('pauses', stage => $ENV{OUTBOX_PAUSES_CONF}, conf => "outbox.relay = off\noutbox.maintenance_interval = '1h'\n");
# They are in a partition that gets no others.
$node->safe_psql('postgres', qq{SELECT outbox_setup(), outbox_create_consumer('worker', start_at => 'earliest', fair => true);
	INSERT INTO outbox_messages (occurred_at, aggregate_type, aggregate_id, event_type, payload)
	SELECT '2020-02-29', 'Order', n, 'Stray', '{}' FROM generate_series(1, $events) n;
	CREATE TABLE answers (needed boolean)});
my $asker = $node->background_psql('postgres');
# Long enough for some claims to come in between.
$asker->query_until(qr/begun/, qq{SET outbox.test_pauses = 'unread';
	\\echo begun
	DO \$\$ BEGIN
		WHILE to_regclass('done') IS NULL LOOP
			INSERT INTO answers SELECT EXISTS (SELECT FROM _outbox.partition_readers('outbox_messages_default'));
			COMMIT;
		END LOOP;
	END \$\$;
});
# What is larger than what is claimed is cut: the rest gets a new batch each time.
$node->safe_psql('postgres', qq{DO \$\$ BEGIN
		FOR i IN 1 .. $rounds LOOP
			PERFORM outbox_ack(max(lock_token)) FROM outbox_claim('worker', 1);
			COMMIT;
		END LOOP;
	END \$\$;
	CREATE TABLE done ()});
$asker->quit;
is($node->safe_psql('postgres', 'SELECT count(*) FROM _outbox.leases WHERE superseded_by IS NOT NULL'), $rounds, 'the rest was replaced again and again');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM answers'), '>', 100, 'meanwhile it was asked for often enough');
is($node->safe_psql('postgres', 'SELECT count(*) FROM answers WHERE NOT needed'), 0, 'and was needed all the time');
$node->safe_psql('postgres', q{SELECT outbox_ack(max(lock_token)) FROM outbox_claim('worker', 10000)});
is($node->safe_psql('postgres', q{SELECT count(*) FROM _outbox.partition_readers('outbox_messages_default')}), 0, 'until all of it was settled');
$node->stop;

done_testing();
