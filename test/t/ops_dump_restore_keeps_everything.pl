# pg_dump and restore keep the state of the extension, and DROP EXTENSION removes all of it.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_node('main', no_extension => 1);
my $dump = "${PostgreSQL::Test::Utils::tmp_check}/dump.sql";

my $everything = q{
	SELECT md5(string_agg(m::text, '|' ORDER BY id)), count(*) FROM outbox_messages m;
	SELECT md5(string_agg(s::text, '|' ORDER BY tracking_id)), count(*) FROM outbox_scheduled s;
	SELECT md5(string_agg(k::text, '|' ORDER BY dedup_key)), count(*) FROM _outbox.dedup_keys k;
	SELECT md5(string_agg(c::text, '|' ORDER BY c)) FROM (
	    SELECT 'c' || c::text FROM outbox_consumers c UNION ALL SELECT 'b' || b::text
	    FROM _outbox.batches b
	    UNION ALL SELECT 'l' || l::text FROM _outbox.leases l UNION ALL SELECT 'r' || r::text
	    FROM outbox_retries r
	    UNION ALL SELECT 'd' || d::text FROM outbox_messages_dlq d UNION ALL
	    SELECT 'i' || i::text FROM _outbox.inbox i
	    UNION ALL SELECT 'k' || k::text FROM idempotency_keys k UNION ALL SELECT 's' || s::text
	    FROM _outbox.idempotency_scopes s) c(c);
	SELECT last_value FROM _outbox.messages_id_seq;
	SELECT last_value FROM _outbox.token_seq;
	SELECT last_value FROM _outbox.consumers_id_seq;
	SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox_messages'::regclass;
	SELECT count(*) FROM pg_index i JOIN pg_inherits h ON h.inhrelid = i.indrelid
	 WHERE inhparent = 'outbox_messages'::regclass;
	SELECT parent_table, automatic_maintenance, infinite_time_partitions FROM part_config;
	SELECT has_function_privilege('app', 'outbox_enqueue_many(jsonb)', 'EXECUTE'),
	       has_function_privilege('app', 'outbox_setup()', 'EXECUTE');};

for my $preload (0, 1)
{
	my $name = $preload ? 'preloaded' : 'not preloaded';
	$node->append_conf('postgresql.conf',
		'shared_preload_libraries = ' . ($preload ? "'outbox'" : "''"));
	$node->restart;
	$node->safe_psql('postgres', 'CREATE DATABASE source');
	$node->safe_psql('source', q{
		SET client_min_messages = warning;
		CREATE EXTENSION outbox CASCADE;
		CREATE ROLE app;
		SELECT outbox_grant('app', 'producer');
		SELECT outbox_enqueue('Order', i, 'OrderConfirmed', jsonb_build_object('n', i),
		dedup_key => 'key-' || i)
		  FROM generate_series(1, 100) i;
		SELECT outbox_enqueue('Order', i, 'OrderDue', '{}',
		available_at => now() + interval '1 day')
		  FROM generate_series(1, 10) i;
		-- A consumer with messages in every state: settled, in flight, waiting, dead, unread.
		SELECT outbox_create_consumer('reader', start_at => 'earliest');
		SELECT outbox_ack(max(lock_token)) FROM outbox_claim('reader', 20);
		SELECT outbox_fail(max(lock_token), max(id), 'later', retry_in => '1 hour')
		FROM outbox_claim('reader', 1);
		SELECT outbox_fail(max(lock_token), max(id), 'never', dead => true)
		FROM outbox_claim('reader', 1);
		SELECT count(*) FROM outbox_claim('reader', 10, lease => '1 day');
		SELECT inbox_accept('reader', gen_random_uuid());
		SELECT idempotency_required('pay'), idempotency_finish('pay', 'answered', token, 201,
		'{"n": 1}'::jsonb) FROM idempotency_begin('pay', 'answered', '{}'::jsonb);
		SELECT idempotency_begin('pay', 'running', '{}'::jsonb, lease => '1 day');
		CREATE TABLE outbox_messages_keep AS SELECT 1;
		-- An event for the default partition.
		INSERT INTO outbox_messages (occurred_at, aggregate_type, aggregate_id, event_type, payload)
		    VALUES ('2020-01-01', 'Order', 'old', 'OrderConfirmed', '{}');});
	my $before = $node->safe_psql('source', $everything);

	command_ok([ 'pg_dump', '-d', $node->connstr('source'), '-f', $dump ],
		"$name: pg_dump succeeds");
	$node->safe_psql('postgres', 'CREATE DATABASE target');
	command_ok(
		[ 'psql', '-X', '-q', '-1', '-v', 'ON_ERROR_STOP=1', '-d',
			$node->connstr('target'), '-f', $dump ],
		"$name: the dump restores in one transaction");
	is($node->safe_psql('target', $everything), $before,
		"$name: a restored database has the same events, consumers and keys");

	is( $node->safe_psql('target', q{
		SELECT outbox_enqueue('Order', '1', 'OrderConfirmed', '{}', dedup_key => 'key-1')
		     = (SELECT tracking_id FROM outbox_messages WHERE aggregate_id = '1')}),
		't', "$name: dedup keys detect duplicates after a restore");
	is($node->safe_psql('target', q{SELECT decision, status_code, response
				FROM idempotency_begin('pay', 'answered', '{}'::jsonb);
		SELECT decision FROM idempotency_begin('pay', 'running', '{}'::jsonb)}),
	"replay|201|{\"n\": 1}\nin_progress",
	"$name: idempotency keys keep their responses and leases after a restore");
	$node->safe_psql('target', enqueue('after'));
	is( $node->safe_psql('target', q{
		SELECT id > (SELECT max(id) FROM outbox_messages WHERE aggregate_id <> 'after')
		  FROM outbox_messages WHERE aggregate_id = 'after'}),
		't', "$name: ids of new events continue after the restored ones");
	# pg_partman rounds the time of day: it makes seven or eight partitions in advance.
	like($node->safe_psql('target', 'SELECT outbox_setup()'), qr/^(9|10)$/,
		"$name: outbox_setup() manages the restored partitions");
	is( $node->safe_psql('target', q{
		SELECT outbox_ack(token) FROM _outbox.leases WHERE acked_at IS NULL;
		SELECT outbox_redrive('reader');
		SELECT sum((SELECT count(*) FROM outbox_consume('reader', 1000 + n)))
		FROM generate_series(1, 4) n;
		SELECT status, count(*) FROM outbox_deliveries GROUP BY status ORDER BY status}),
		"10\n1\n71\nCOMPLETED|101\nRETRY|1",
		"$name: consumers continue after a restore where they stopped");

	for my $database ('source', 'target')
	{
		$node->safe_psql($database, 'DROP EXTENSION outbox');
		is( $node->safe_psql($database, q{
			SELECT (SELECT count(*) FROM pg_class
			WHERE relname LIKE 'outbox%' AND relname <> 'outbox_messages_keep')
			     + (SELECT count(*) FROM pg_proc WHERE proname LIKE 'outbox%')
			     + (SELECT count(*) FROM pg_event_trigger) + (SELECT count(*) FROM part_config)}),
			0, "$name: DROP EXTENSION removes every object of the extension from the $database");
		is($node->safe_psql($database, 'SELECT count(*) FROM outbox_messages_keep'),
			1, "$name: DROP EXTENSION keeps a table of the user in the $database");
		$node->safe_psql('postgres', "DROP DATABASE $database");
	}
	$node->safe_psql('postgres', 'DROP ROLE app');
}

$node->stop;
done_testing();
