# With outbox.notify the relay sends NOTIFY for consumers, after the producer's commit.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use OutboxTest;

my $node = start_node('main', conf => "outbox.relay_interval = '1h'\n");
$node->safe_psql('postgres', "SELECT outbox_setup(); SELECT outbox_create_consumer('c');
		SELECT outbox_create_consumer('It''s mine')");

# psql prints notifications after each command.
sub notifications
{
	my ($sql) = @_;
	return $node->safe_psql('postgres',
		qq{LISTEN outbox_c; LISTEN "outbox_It's mine"; $sql; SELECT pg_sleep(0.5); SELECT 'end'});
}

unlike(notifications(enqueue('1')), qr/Asynchronous/, 'outbox.notify is off by default');

$node->append_conf('postgresql.conf', "outbox.notify = on\n");
$node->reload;
sleep 1;
$node->safe_psql('postgres', "SELECT count(*) FROM outbox_consume('c'); SELECT count(*)
		FROM outbox_consume('It''s mine')");
unlike(notifications('SELECT 1'), qr/Asynchronous/, 'consumers without messages are not notified');
my $out = notifications(enqueue('2'));
like($out, qr/notification "outbox_c"/, 'a consumer with a new message is notified');
like($out, qr/notification "outbox_It's mine"/, 'a consumer whose name needs quotes is notified');
unlike($out, qr/PID $$/, "the notification is not sent by the test's process");

# Many commits in a short time share a few notifications.
my $many = notifications(join(';', map { "BEGIN; " . enqueue($_) . "; COMMIT" } 1 .. 200));
my $count = () = $many =~ /notification "outbox_c"/g;
cmp_ok($count, '>=', 1, 'consumers are notified after many commits');
cmp_ok($count, '<=', 60, "200 commits lead to $count notifications");

# A rollback.
$node->safe_psql('postgres', "SELECT count(*) FROM outbox_consume('c', 1000); SELECT count(*)
		FROM outbox_consume('It''s mine', 1000)");
unlike(notifications('BEGIN; ' . enqueue('3') . '; ROLLBACK'), qr/Asynchronous/,
	'a rollback sends no notification');

$node->stop;
done_testing();
