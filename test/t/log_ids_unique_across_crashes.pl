# Ids that are drawn many at once are unique and in order, across crashes and beside nextval().
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use Test::More;

my $node = start_node('main', conf => "fsync = on\ncheckpoint_timeout = '1h'\n");
$node->safe_psql('postgres', q{
	SELECT outbox_setup();
	CREATE FUNCTION enqueue_batch(n int) RETURNS bigint LANGUAGE sql AS $$
	    SELECT cardinality(outbox_enqueue_many((SELECT
	jsonb_agg(jsonb_build_object('aggregate_type', 'Batch',
	        'aggregate_id', i, 'event_type', 'E', 'payload', i)) FROM generate_series(1, n) i)))
	$$;});
my $query = sub { return $node->safe_psql('postgres', $_[0]) };

# Batch sizes around the 32 values that the sequence logs ahead, on an unused sequence.
my @sizes = (2, 1, 31, 32, 33, 34, 64, 65, 300, 1000);
$query->("SELECT enqueue_batch($_)") for @sizes;
my $sum = 0;
$sum += $_ for @sizes;
is($query->('SELECT min(id), max(id), count(*), count(DISTINCT id) FROM outbox_messages'),
	"1|$sum|$sum|$sum", 'one session draws ids without gaps and repeats');
is($query->("SELECT last_value, is_called FROM _outbox.messages_id_seq"), "$sum|t",
	'last_value of the sequence is the last drawn id');
is($query->("SELECT pg_sequence_last_value('_outbox.messages_id_seq')"), $sum,
	'pg_sequence_last_value() returns the last drawn id');
is($query->("SELECT nextval('_outbox.messages_id_seq')"), $sum + 1,
	'nextval() continues after the last drawn id');

# setval() with is_called = false.
$query->('SELECT setval(\'_outbox.messages_id_seq\', ' . ($sum + 100) . ', false)');
$query->('SELECT enqueue_batch(5)');
is($query->("SELECT min(id), max(id) FROM outbox_messages WHERE id > $sum"),
	($sum + 100) . '|' . ($sum + 104),
	'ids start at a value that setval() has set as not yet called');
is($query->("SELECT nextval('_outbox.messages_id_seq')"), $sum + 105,
	'nextval() continues after ids that started at a value of setval()');

# WAL must cover all drawn ids: the server crashes right after a commit, with and without a
# checkpoint before it, and the next id must be new.
for my $size (1, 2, 31, 33, 100, 500)
{
	for my $checkpoint ('', 'CHECKPOINT;')
	{
		$node->safe_psql('postgres', $checkpoint) if $checkpoint;
		$query->("SELECT enqueue_batch($size)");
		my $last = $query->('SELECT max(id) FROM outbox_messages');
		$node->stop('immediate');
		$node->start;
		$query->('SELECT enqueue_batch(2)');
		my $next = $query->('SELECT min(id) FROM outbox_messages WHERE id > ' . $last);
		ok($next > $last && $next <= $last + 33,
			"the next id is new after $size ids " . ($checkpoint ? 'behind a checkpoint ' : '')
			  . "and a crash (+" . ($next - $last) . ')');
	}
}
is($query->('SELECT count(*) - count(DISTINCT id) FROM outbox_messages'), 0,
	'no id is used twice across crashes');

# Concurrent batches, single events and nextval().
my $seconds = $ENV{OUTBOX_SOAK} ? 60 : 3;
my $before = $query->('SELECT count(*) FROM outbox_messages');
$node->pgbench("-n -c 8 -j 2 -T $seconds -M prepared", 0, [qr/processed/], [qr/^$/],
	'batches, single events and nextval() run concurrently without errors',
	{
		'batch@3' => "\\set n random(2, 200)\nSELECT enqueue_batch(:n);",
		'single@3' => enqueue('single'),
		'insert@1' => "INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, "
		  . "payload) VALUES ('a', 'b', 'c', '{}');",
		'nextval@1' => "SELECT nextval('_outbox.messages_id_seq');",
		'rollback@1' => "BEGIN; SELECT enqueue_batch(40); ROLLBACK;",
	});
cmp_ok($query->('SELECT count(*) FROM outbox_messages'), '>', $before + 1000,
	'more than 1000 events are enqueued concurrently');
is($query->('SELECT count(*) - count(DISTINCT id) FROM outbox_messages'), 0,
	'no id is used twice by concurrent writers');
is($query->("SELECT max(id) <= pg_sequence_last_value('_outbox.messages_id_seq') "
	. "FROM outbox_messages"), 't', 'no id is beyond the sequence');
is( $query->(q{SELECT count(*) FROM (SELECT payload::text::int <= lag(payload::text::int) OVER
	(PARTITION BY xid ORDER BY id) AS wrong
                 FROM outbox_messages WHERE aggregate_type = 'Batch') w WHERE wrong}),
	0, 'ids of a batch are in the order of its events');

# The sequence does not wrap around at its end.
$query->("ALTER SEQUENCE _outbox.messages_id_seq MAXVALUE 9223372036854775807; "
	. "SELECT setval('_outbox.messages_id_seq', 9223372036854775800)");
my ($status, $out, $error) = $node->psql('postgres', 'SELECT enqueue_batch(100)');
like($error, qr/sequence "messages_id_seq" has not enough values left/,
	'a batch larger than the rest of the sequence is refused');
is($query->('SELECT enqueue_batch(3)'), 3,
	'a batch that fits the rest of the sequence is accepted');

$node->stop;
done_testing();
