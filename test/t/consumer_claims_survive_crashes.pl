# What is handed out is durable, and tokens grow: across crashes and promotions.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use Test::More;

# The WAL writer sleeps and no worker commits anything, so that an asynchronous commit stays in memory.
my $node = start_node('primary',
	init => { allows_streaming => 1 },
	conf => "wal_writer_delay = '10s'\nwal_writer_flush_after = '1GB'\nsynchronous_commit = off\nautovacuum = off\noutbox.relay = off\n");
$node->safe_psql('postgres', "SET synchronous_commit = on; SELECT outbox_setup(); SELECT outbox_create_consumer('c')");

sub crash
{
	$node->stop('immediate');
	$node->start;
}

# Enqueued asynchronously and claimed, then a crash: what was handed out is still there.
my ($kept, $tokens) = (0, 0);
my $last = 0;
for my $round (1 .. 3)
{
	$node->safe_psql('postgres', enqueue("claimed $round"));
	my $token = $node->safe_psql('postgres', "SELECT lock_token FROM outbox_claim('c')");
	crash();
	$kept++ if $node->safe_psql('postgres', "SELECT count(*) FROM outbox_messages WHERE aggregate_id = 'claimed $round'") == 1
	  && $node->safe_psql('postgres', "SELECT outbox_ack($token)") == 1;
	$tokens++ if $token > $last;
	$last = $token;
}
is($kept, 3, 'an event that was handed out survives a crash, and so does its lease');
is($tokens, 3, 'and tokens grow');

# The control: without the claim the same event is lost. If it were not, the test above would show nothing.
# The server itself writes its WAL now and then, so there is more than one try.
my $lost = 0;
for my $try (1 .. 5)
{
	$node->safe_psql('postgres', enqueue("never claimed $try"));
	crash();
	$lost = $node->safe_psql('postgres', "SELECT count(*) FROM outbox_messages WHERE aggregate_id = 'never claimed $try'") == 0;
	last if $lost;
	$node->safe_psql('postgres', "SELECT count(*) FROM outbox_consume('c')");
}
ok($lost, 'while one that nobody claimed was lost with its asynchronous commit');

# Read and settled in one asynchronous transaction: a crash takes both back, and it comes again.
$node->safe_psql('postgres', 'SET synchronous_commit = on; ' . enqueue('consumed'));
is($node->safe_psql('postgres', "SELECT aggregate_id FROM outbox_consume('c')"), 'consumed', 'consumed');
crash();
is($node->safe_psql('postgres', "SELECT aggregate_id FROM outbox_consume('c')"), 'consumed', 'and again after the crash');

# A standby that has not heard of the last tokens is promoted.
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->safe_psql('postgres', 'SET synchronous_commit = on; ' . enqueue('replicated'));
$node->wait_for_catchup($standby);
my ($code, undef, $error) = $standby->psql('postgres', "SELECT outbox_claim('c')");
like($error, qr/read-only|recovery/, 'a standby hands out nothing');
$standby->stop;
my @given = map { $node->safe_psql('postgres', "SELECT lock_token FROM outbox_claim('c'); " . enqueue("only here $_")) =~ /(\d+)/ } (1 .. 40);
$node->stop('immediate');
$standby->start;
$standby->promote;
my ($promoted, $what) = split /\|/, $standby->safe_psql('postgres', "SELECT lock_token, aggregate_id FROM outbox_claim('c')");
is($what, 'replicated', 'after the promotion the consumer goes on where the standby was');
cmp_ok($promoted, '>', (sort { $b <=> $a } @given)[0], 'and its tokens are greater than all that were ever given out');
is(scalar(grep { $standby->psql('postgres', "SELECT outbox_ack($_)") == 0 } @given), 0, 'of which none is good any more');
is($standby->safe_psql('postgres', "SELECT outbox_ack($promoted)"), 1, 'the new one is');
$standby->stop;

done_testing();
