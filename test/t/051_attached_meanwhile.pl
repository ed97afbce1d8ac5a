# A partition is attached just while a session learns which partitions there are. The server's relation cache
# then misses it until something else changes; claims and writers must not.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use Test::More;

my $node = start_node('main', conf => "outbox.relay = off\nautovacuum = off\n");
$node->safe_psql('postgres', q{
	SELECT outbox_setup(), outbox_create_consumer('worker', start_at => 'earliest');
	INSERT INTO outbox_messages (occurred_at, aggregate_type, aggregate_id, event_type, payload)
	VALUES ('2020-02-29', 'Order', '1', 'Stray', '{}')});
# There is none for the present, either.
$node->safe_psql('postgres', enqueue(1));
$node->safe_psql('postgres', q{DO $$ BEGIN EXECUTE format('DROP TABLE %s',
	(SELECT tableoid::regclass FROM outbox_messages WHERE event_type <> 'Stray')); END $$});
$node->safe_psql('postgres', enqueue(2));

# All that it takes to look for partitions is known to the reader; of the log's own it has to forget what it knew.
my $reader = $node->background_psql('postgres');
$reader->query_safe('SELECT count(*) FROM outbox_messages');
$node->safe_psql('postgres', q{DO $$ BEGIN
	EXECUTE (SELECT string_agg(format('GRANT SELECT ON %s TO pg_monitor', relid), ';') FROM pg_partition_tree('outbox_messages'));
	END $$});
$reader->query_safe('SELECT count(*) FROM ONLY outbox_messages');
my $mover = $node->background_psql('postgres');
$mover->query_safe('BEGIN; LOCK TABLE pg_class IN ACCESS EXCLUSIVE MODE');

# It has the list of partitions, and waits to look them up one by one. Meanwhile there is one more.
$reader->query_until(qr/begun/, "\\echo begun\nSELECT count(*) FROM outbox_messages;\n");
my $waits = 0;
for (1 .. 100)
{
	$waits = $mover->query_safe(q{SELECT count(*) FROM pg_locks WHERE relation = 'pg_class'::regclass AND NOT granted});
	last if $waits;
	select(undef, undef, undef, 0.1);
}
is($waits, 1, 'the reader waits where it should');
is($mover->query_safe('SELECT sum(events) FROM outbox_move_strays()'), 2, 'strays get partitions of their own');
$mover->query_safe('COMMIT');

like($reader->query_safe(q{SELECT string_agg(event_type, ' and ' ORDER BY id) FROM outbox_claim('worker', 10)}),
	qr/Stray and OrderConfirmed/, 'the reader claims what is in it, in its order');
$reader->query_safe(q{SELECT count(outbox_ack(token)) FROM (SELECT DISTINCT lock_token AS token FROM outbox_deliveries WHERE consumer_name = 'worker') b});
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox_claim('worker', 10)}), 0, 'and leaves nothing');
is($reader->query_safe(q{SELECT outbox_enqueue('Order', 1, 'Late', '{}') IS NOT NULL}), 't', 'the reader writes, too');
is($node->safe_psql('postgres', q{SELECT tableoid <> 'outbox_messages_default'::regclass FROM outbox_messages WHERE event_type = 'Late'}),
	't', 'to the partition that has come');
$_->quit for $reader, $mover;
$node->stop;

done_testing();
