# A delivered batch is durable, and fencing tokens increase, across crashes and promotions.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use Test::More;

# The WAL writer sleeps and no background worker commits, so that an asynchronous commit stays in
# memory.
my $node = start_node('primary',
	init => { allows_streaming => 1 },
	conf => "wal_writer_delay = '10s'\nwal_writer_flush_after = '1GB'\nsynchronous_commit = off\n"
	  . "autovacuum = off\noutbox.relay = off\n");
$node->safe_psql('postgres',
	"SET synchronous_commit = on; SELECT outbox_setup(); SELECT outbox_create_consumer('c')");

sub crash
{
	$node->stop('immediate');
	$node->start;
}

# An event is enqueued asynchronously and claimed before a crash.
my ($kept, $tokens) = (0, 0);
my $last = 0;
for my $round (1 .. 3)
{
	$node->safe_psql('postgres', enqueue("claimed $round"));
	my $token = $node->safe_psql('postgres', "SELECT lock_token FROM outbox_claim('c')");
	crash();
	$kept++ if $node->safe_psql('postgres',
		"SELECT count(*) FROM outbox_messages WHERE aggregate_id = 'claimed $round'") == 1
	  && $node->safe_psql('postgres', "SELECT outbox_ack($token)") == 1;
	$tokens++ if $token > $last;
	$last = $token;
}
is($kept, 3, 'a delivered event and its lease survive a crash');
is($tokens, 3, 'fencing tokens increase across crashes');

# The control: without the claim the event is lost, which shows that the claim made it durable.
# The server flushes its WAL now and then, so several attempts may be needed.
my $lost = 0;
for my $try (1 .. 5)
{
	$node->safe_psql('postgres', enqueue("never claimed $try"));
	crash();
	$lost = $node->safe_psql('postgres',
		"SELECT count(*) FROM outbox_messages WHERE aggregate_id = 'never claimed $try'") == 0;
	last if $lost;
	$node->safe_psql('postgres', "SELECT count(*) FROM outbox_consume('c')");
}
ok($lost, 'an unclaimed event is lost in a crash after its asynchronous commit');

# outbox_consume() delivers and settles in one asynchronous transaction, which the crash undoes.
$node->safe_psql('postgres', 'SET synchronous_commit = on; ' . enqueue('consumed'));
is($node->safe_psql('postgres', "SELECT aggregate_id FROM outbox_consume('c')"), 'consumed',
	'an event is consumed in an asynchronous transaction');
crash();
is($node->safe_psql('postgres', "SELECT aggregate_id FROM outbox_consume('c')"), 'consumed',
	'an event is delivered again if a crash undoes its consumption');

# A standby that has not received the last fencing tokens is promoted.
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->safe_psql('postgres', 'SET synchronous_commit = on; ' . enqueue('replicated'));
$node->wait_for_catchup($standby);
my ($code, undef, $error) = $standby->psql('postgres', "SELECT outbox_claim('c')");
like($error, qr/read-only|recovery/, 'a standby refuses a claim');
$standby->stop;
my @given = map { $node->safe_psql('postgres',
	"SELECT lock_token FROM outbox_claim('c'); " . enqueue("only here $_")) =~ /(\d+)/ } (1 .. 40);
$node->stop('immediate');
$standby->start;
$standby->promote;
my ($promoted, $what) = split /\|/,
  $standby->safe_psql('postgres', "SELECT lock_token, aggregate_id FROM outbox_claim('c')");
is($what, 'replicated', 'a promoted standby delivers from its own cursor');
cmp_ok($promoted, '>', (sort { $b <=> $a } @given)[0],
	'fencing tokens after a promotion are greater than all tokens of the former primary');
is(scalar(grep { $standby->psql('postgres', "SELECT outbox_ack($_)") == 0 } @given), 0,
	'a promoted standby refuses tokens of the former primary');
is($standby->safe_psql('postgres', "SELECT outbox_ack($promoted)"), 1,
	'a promoted standby accepts its own token');
$standby->stop;

done_testing();
