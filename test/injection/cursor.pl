# A claim is stopped at each of its steps in turn, and an append between its xid and its id, while
# other transactions begin, commit and roll back. Each committed event is delivered once, events of
# an aggregate in the order of commits, and no event of a rolled-back transaction.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $node = start_node('main',
	conf => "outbox.relay = off\noutbox.maintenance_interval = '1h'\nautovacuum = off\n");

sub sql
{
	return $node->safe_psql('postgres', @_);
}

sub session
{
	return $node->background_psql('postgres', on_error_die => 1);
}

sub stop_at
{
	sql("SELECT injection_points_attach('outbox-$_[0]', 'wait')");
}

sub is_stopped_at
{
	return $node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'outbox-$_[0]'");
}

# Detaches the point before the wakeup, so that later sessions do not stop there.
sub go_on
{
	sql("SELECT injection_points_detach('outbox-$_[0]'); "
		. "SELECT injection_points_wakeup('outbox-$_[0]')");
}

# Sends a statement without waiting for its result; answer() reads that later.
sub begin
{
	my ($session, $sql) = @_;
	$session->query_until(qr/begun/, "\\echo begun\n$sql;\n");
}

sub answer
{
	my ($session) = @_;
	return $session->query_safe('SELECT 1');
}

sub order
{
	my ($id, $aggregate) = @_;
	return "SELECT outbox_enqueue('Order', '" . ($aggregate // $id)
		. "', 'Happened', to_jsonb('$id'::text))";
}

# Consumes a page, and records the delivered events in the same transaction.
my $consume = q{INSERT INTO got (event) SELECT payload #>> '{}' FROM outbox_consume('c', %d)};

sub everything
{
	sql(sprintf $consume, 100) for 1 .. 3;
	return sql(q{SELECT string_agg(event, ' ' ORDER BY event) FROM got});
}

sql('CREATE EXTENSION injection_points; CREATE TABLE got (number serial, event text); '
	. 'SELECT outbox_setup()');

for my $step (qw(lock snapshot sequence xids log))
{
	for my $size (1, 100)
	{
		my $case = "at \"$step\", " . ($size == 1 ? 'pages of one' : 'one page');
		sql(q{SELECT outbox_create_consumer('c'); TRUNCATE got});
		my ($early, $late, $dropped, $claimer) = map { session() } 1 .. 4;
		# Three transactions begin before the claim. One commits while the claim is stopped, one
		# after it, and one rolls back.
		$early->query_safe('BEGIN; ' . order('early'));
		$late->query_safe('BEGIN; ' . order('late'));
		$dropped->query_safe('BEGIN; ' . order('dropped'));
		sql(order('before'));
		stop_at($step);
		begin($claimer, sprintf $consume, $size);
		ok(is_stopped_at($step), "a claim is stopped $case");
		# No other session waits for the stopped claim.
		$early->query_safe('COMMIT');
		sql(order('meanwhile'));
		$dropped->query_safe('ROLLBACK');
		my $young = session();
		$young->query_safe('BEGIN; ' . order('young'));
		go_on($step);
		answer($claimer);
		$late->query_safe('COMMIT');
		sql(order('after'));
		sql(sprintf $consume, $size);
		$young->query_safe('COMMIT');
		sql(sprintf $consume, $size) for 1 .. 6;
		is(everything(), 'after before early late meanwhile young',
			"every committed event, and no other, is delivered once if the claim stops $case");
		$_->quit for $early, $late, $dropped, $claimer, $young;
		sql(q{SELECT outbox_drop_consumer('c', true)});
	}
}

# An append draws its id late: another transaction draws an id, commits, and is read before.
sql(q{SELECT outbox_create_consumer('c'); TRUNCATE got});
my ($slow, $other) = map { session() } 1 .. 2;
stop_at('append');
begin($slow, order('slow'));
ok(is_stopped_at('append'), 'an append is stopped before it draws its id');
# The stopped append keeps waiting after the detach; later appends pass the point.
sql(q{SELECT injection_points_detach('outbox-append')});
sql(order('quick'));
sql(sprintf $consume, 100);
is(sql(q{SELECT string_agg(event, ' ') FROM got}), 'quick',
	'an event of another transaction is delivered while the append is stopped');
sql(q{SELECT injection_points_wakeup('outbox-append')});
answer($slow);
is(everything(), 'quick slow', 'the event of the stopped append is delivered after its commit');
$_->quit for $slow, $other;

$node->stop;
done_testing();
