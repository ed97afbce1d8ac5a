# A claim is stopped at each of its steps in turn, and an append between its xid and its id, while others begin, commit and roll back. Each event that
# was committed comes once, each aggregate in the order of its commits, and what was rolled back never.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $node = start_node('main', conf => "outbox.relay = off\noutbox.maintenance_interval = '1h'\nautovacuum = off\n");

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
	return $node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'outbox-$_[0]'");
}

# Also whoever comes there later goes on.
sub go_on
{
	sql("SELECT injection_points_detach('outbox-$_[0]'); SELECT injection_points_wakeup('outbox-$_[0]')");
}

# Sends it off, and leaves it to itself; what it prints comes later.
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
	return "SELECT outbox_enqueue('Order', '" . ($aggregate // $id) . "', 'Happened', to_jsonb('$id'::text))";
}

# What consumers have got, as they note it themselves.
my $consume = q{INSERT INTO got (event) SELECT payload #>> '{}' FROM outbox_consume('c', %d)};

sub everything
{
	sql(sprintf $consume, 100) for 1 .. 3;
	return sql(q{SELECT string_agg(event, ' ' ORDER BY event) FROM got});
}

sql('CREATE EXTENSION injection_points; CREATE TABLE got (number serial, event text); SELECT outbox_setup()');

for my $step (qw(lock snapshot sequence xids log))
{
	for my $size (1, 100)
	{
		my $case = "at \"$step\", " . ($size == 1 ? 'one at a time' : 'all at once');
		sql(q{SELECT outbox_create_consumer('c'); TRUNCATE got});
		my ($early, $late, $dropped, $claimer) = map { session() } 1 .. 4;
		# Begun before the claim, to commit while it is stopped, after it, and never.
		$early->query_safe('BEGIN; ' . order('early'));
		$late->query_safe('BEGIN; ' . order('late'));
		$dropped->query_safe('BEGIN; ' . order('dropped'));
		sql(order('before'));
		stop_at($step);
		begin($claimer, sprintf $consume, $size);
		ok(is_stopped_at($step), "a claim is stopped $case");
		# Nobody waits for it.
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
		is(everything(), 'after before early late meanwhile young', 'what was committed came once, and nothing else');
		$_->quit for $early, $late, $dropped, $claimer, $young;
		sql(q{SELECT outbox_drop_consumer('c', true)});
	}
}

# An id that is drawn late: others draw theirs, commit, and are read before.
sql(q{SELECT outbox_create_consumer('c'); TRUNCATE got});
my ($slow, $other) = map { session() } 1 .. 2;
stop_at('append');
begin($slow, order('slow'));
ok(is_stopped_at('append'), 'an append is stopped before it draws its id');
# This process's own come past the point by themselves: it is the first to wait there.
sql(q{SELECT injection_points_detach('outbox-append')});
sql(order('quick'));
sql(sprintf $consume, 100);
is(sql(q{SELECT string_agg(event, ' ') FROM got}), 'quick', 'another is read meanwhile');
sql(q{SELECT injection_points_wakeup('outbox-append')});
answer($slow);
is(everything(), 'quick slow', 'and it comes when it is there');
$_->quit for $slow, $other;

$node->stop;
done_testing();
