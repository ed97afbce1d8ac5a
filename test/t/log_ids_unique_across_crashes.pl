# Ids drawn many at once: none twice, none out of order, not across crashes, beside nextval().
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use Test::More;

my $node = start_node('main', conf => "fsync = on\ncheckpoint_timeout = '1h'\n");
$node->safe_psql('postgres', q{
	SELECT outbox_setup();
	CREATE FUNCTION enqueue_batch(n int) RETURNS bigint LANGUAGE sql AS $$
	    SELECT cardinality(outbox_enqueue_many((SELECT jsonb_agg(jsonb_build_object('aggregate_type', 'Batch',
	        'aggregate_id', i, 'event_type', 'E', 'payload', i)) FROM generate_series(1, n) i)))
	$$;});
my $query = sub { return $node->safe_psql('postgres', $_[0]) };

# Every size around what is logged ahead (32), on a sequence that was never called before.
my @sizes = (2, 1, 31, 32, 33, 34, 64, 65, 300, 1000);
$query->("SELECT enqueue_batch($_)") for @sizes;
my $sum = 0;
$sum += $_ for @sizes;
is($query->('SELECT min(id), max(id), count(*), count(DISTINCT id) FROM outbox_messages'),
	"1|$sum|$sum|$sum", 'one session draws without gaps and repeats');
is($query->("SELECT last_value, is_called FROM _outbox.messages_id_seq"), "$sum|t", 'the sequence stands at the last one');
is($query->("SELECT pg_sequence_last_value('_outbox.messages_id_seq')"), $sum, 'also as claims read it');
is($query->("SELECT nextval('_outbox.messages_id_seq')"), $sum + 1, 'nextval() goes on from there');

# Moved forward to a value that has not been used itself.
$query->('SELECT setval(\'_outbox.messages_id_seq\', ' . ($sum + 100) . ', false)');
$query->('SELECT enqueue_batch(5)');
is($query->("SELECT min(id), max(id) FROM outbox_messages WHERE id > $sum"), ($sum + 100) . '|' . ($sum + 104), 'a batch starts at a value that was set as not yet called');
is($query->("SELECT nextval('_outbox.messages_id_seq')"), $sum + 105, 'and nextval() goes on behind it');

# What was logged must cover what was used: crash right after a commit, with and without a checkpoint
# before it, and look whether an id comes again.
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
		ok($next > $last && $next <= $last + 33, "after $size ids " . ($checkpoint ? 'behind a checkpoint ' : '') . "and a crash the next is new (+" . ($next - $last) . ')');
	}
}
is($query->('SELECT count(*) - count(DISTINCT id) FROM outbox_messages'), 0, 'no id twice');

# Many at once, batches beside single events and nextval().
my $seconds = $ENV{OUTBOX_SOAK} ? 60 : 3;
my $before = $query->('SELECT count(*) FROM outbox_messages');
$node->pgbench("-n -c 8 -j 2 -T $seconds -M prepared", 0, [qr/processed/], [qr/^$/], 'batches, single events and nextval() at once',
	{
		'batch@3' => "\\set n random(2, 200)\nSELECT enqueue_batch(:n);",
		'single@3' => enqueue('single'),
		'insert@1' => "INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'b', 'c', '{}');",
		'nextval@1' => "SELECT nextval('_outbox.messages_id_seq');",
		'rollback@1' => "BEGIN; SELECT enqueue_batch(40); ROLLBACK;",
	});
cmp_ok($query->('SELECT count(*) FROM outbox_messages'), '>', $before + 1000, 'there was something to see');
is($query->('SELECT count(*) - count(DISTINCT id) FROM outbox_messages'), 0, 'no id twice among concurrent writers');
is($query->("SELECT max(id) <= pg_sequence_last_value('_outbox.messages_id_seq') FROM outbox_messages"), 't', 'none beyond the sequence');
is( $query->(q{SELECT count(*) FROM (SELECT payload::text::int <= lag(payload::text::int) OVER (PARTITION BY xid ORDER BY id) AS wrong
                 FROM outbox_messages WHERE aggregate_type = 'Batch') w WHERE wrong}),
	0, 'each batch in its order');

# The end of the sequence is an error, not a wrap.
$query->("ALTER SEQUENCE _outbox.messages_id_seq MAXVALUE 9223372036854775807; SELECT setval('_outbox.messages_id_seq', 9223372036854775800)");
my ($status, $out, $error) = $node->psql('postgres', 'SELECT enqueue_batch(100)');
like($error, qr/sequence "messages_id_seq" has not enough values left/, 'a batch that no longer fits is refused');
is($query->('SELECT enqueue_batch(3)'), 3, 'one that fits is not');

$node->stop;
done_testing();
