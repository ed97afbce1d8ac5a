# outbox.notify: the relay, and not the producer, sends NOTIFY to those who LISTEN.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use OutboxTest;

my $node = start_node('main', conf => "outbox.relay_interval = '1h'\n");
$node->safe_psql('postgres', "SELECT outbox_setup(); SELECT outbox_create_consumer('c'); SELECT outbox_create_consumer('It''s mine')");

# psql shows what has arrived after each command.
sub heard
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', qq{LISTEN outbox_c; LISTEN "outbox_It's mine"; $sql; SELECT pg_sleep(0.5); SELECT 'end'});
}

unlike(heard(enqueue('1')), qr/Asynchronous/, 'off by default');

$node->append_conf('postgresql.conf', "outbox.notify = on\n");
$node->reload;
sleep 1;
$node->safe_psql('postgres', "SELECT count(*) FROM outbox_consume('c'); SELECT count(*) FROM outbox_consume('It''s mine')");
unlike(heard('SELECT 1'), qr/Asynchronous/, 'nothing to claim, no notification');
my $out = heard(enqueue('2'));
like($out, qr/notification "outbox_c"/, 'a consumer with something to claim is notified');
like($out, qr/notification "outbox_It's mine"/, 'also one whose name needs quotes');
unlike($out, qr/PID $$/, 'by somebody else');

# Many commits within a moment are one notification, or few.
my $many = heard(join(';', map { "BEGIN; " . enqueue($_) . "; COMMIT" } 1 .. 200));
my $count = () = $many =~ /notification "outbox_c"/g;
cmp_ok($count, '>=', 1, 'after many commits too');
cmp_ok($count, '<=', 60, "not once for each of 200 ($count times)");

# A rolled back transaction says nothing.
$node->safe_psql('postgres', "SELECT count(*) FROM outbox_consume('c', 1000); SELECT count(*) FROM outbox_consume('It''s mine', 1000)");
unlike(heard('BEGIN; ' . enqueue('3') . '; ROLLBACK'), qr/Asynchronous/, 'a rollback notifies nobody');

$node->stop;
done_testing();
