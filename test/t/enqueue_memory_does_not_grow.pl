# The memory of a backend that enqueues many events grows neither within a statement nor from one
# statement to the next.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use Test::More;

my $node = start_node('main');
$node->safe_psql('postgres', 'SELECT outbox_setup()');

my $count = $ENV{OUTBOX_SOAK} ? 2_000_000 : 50_000;
my $now = q{substring(pg_read_file('/proc/self/status') FROM 'RssAnon:\s+(\d+)')::int};

# Growth of the private memory in kB during and after a statement; a small statement warms up.
sub growth
{
	my ($statement) = @_;
	my $small = $statement =~ s/COUNT/2000/gr;
	my $large = $statement =~ s/COUNT/$count/gr;
	my $out = $node->safe_psql('postgres',
		"$small; SELECT $now; $large; SELECT $now; $large; SELECT $now");
	my @seen = map { /^KB (\d+)/ ? $1 : () } split /\n/, $out;
	my @after = grep { /^\d+$/ } split /\n/, $out;
	return ($seen[-1] - $after[0], $after[-1] - $after[0]);
}

my %statements = (
	'single events' => "SELECT 'KB ' || $now "
	  . "FROM (SELECT count(outbox_enqueue('Order', i, 'E', '{\"n\": 1}')) "
	  . "FROM generate_series(1, COUNT) i) x",
	'events with dedup keys' => "SELECT 'KB ' || $now "
	  . "FROM (SELECT count(outbox_enqueue('Order', i, 'E', '1', "
	  . "dedup_key => i::text || clock_timestamp())) FROM generate_series(1, COUNT) i) x",
	'duplicates' => "SELECT 'KB ' || $now FROM (SELECT count(outbox_enqueue('Order', i, 'E', '1', "
	  . "dedup_key => 'same')) FROM generate_series(1, COUNT) i) x",
	'scheduled events' => "SELECT 'KB ' || $now "
	  . "FROM (SELECT count(outbox_enqueue('Order', i, 'E', '1', "
	  . "available_at => now() + interval '1 day')) FROM generate_series(1, COUNT) i) x",
	'arrays of events' => q{SELECT 'KB ' || } . $now
	  . q{ FROM (SELECT count(outbox_enqueue_many('[{"aggregate_type": "A", "aggregate_id": 1,
			"event_type": "E", "payload": {"n": 1}},
		{"aggregate_type": "A", "aggregate_id": 1, "event_type": "E", "payload": {"n": 1},
			"available_at": "2020-01-01", "tenant_id": 4}]'::jsonb))
		FROM generate_series(1, COUNT) i) x},
	'events that are refused' => q{DO $$ BEGIN FOR i IN 1..COUNT / 10 LOOP BEGIN
		PERFORM outbox_enqueue_many('[{"aggregate_type": "A", "aggregate_id": 1,
			"event_type": "E", "payload": 1, "available_at": "soon"}]');
		EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; END $$; SELECT 'KB ' || } . $now,
);
for my $what (sort keys %statements)
{
	my ($during, $after) = growth($statements{$what});
	cmp_ok($during, '<', 4096,
		"$what: a statement with $count needs no more memory than one with 2000 ($during kB)");
	cmp_ok($after, '<', 4096,
		"$what: a statement with $count leaves no memory allocated ($after kB)");
}

# A few bytes of JSON can denote a number with thousands of digits.
my ($before, $same, $peak) = split /\n/,
  $node->safe_psql('postgres', join ';',
	q{SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\s+(\d+)')},
	q{SELECT idempotency_hash('[' || repeat('0e-16383,', 20000) || '0]')
		= idempotency_hash('[' || repeat('0,', 20000) || '0]')},
	q{SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\s+(\d+)')});
is($same, 't', 'idempotency_hash() treats zeros of every scale as equal');
cmp_ok($peak - $before, '<', 65_536,
	sprintf 'idempotency_hash() needs less than 64 MB for zeros of a large scale (%d kB)',
	$peak - $before);

$node->stop;
done_testing();
