# The launcher starts a relay for each database with the extension; a relay leaves a database that
# another session needs exclusively, and sleeps while it has no work.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

my $receiver = OutboxReceiver->start('receiver');
# With such a long interval every reaction has a cause other than the timer. Short leases: a stopped
# relay's messages are soon available.
my $node = start_node('main', no_extension => 1, init => { allows_streaming => 1 },
	conf => "outbox.relay_interval = '1h'\noutbox.lease = '3s'\noutbox.backoff_base = '100ms'\n"
	  . "outbox.backoff_max = '500ms'\nautovacuum = off\nmax_worker_processes = 16\n");

sub sql
{
	return $node->safe_psql('postgres', @_);
}

# Creates a database with a sink whose path is the database's name.
sub database
{
	my ($name) = @_;
	sql("CREATE DATABASE $name");
	$node->safe_psql($name, 'SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE');
	$node->safe_psql($name, 'SELECT outbox_setup()');
	create_sink($node, 'sink', { url => $receiver->url("/$name"), timeout => seconds(60) },
		undef, $name);
}

# Enqueues an event and returns the requests with it, or an empty list after the timeout.
sub arrives
{
	my ($database, $aggregate, $path, $timeout) = @_;
	$node->safe_psql($database, enqueue($aggregate));
	my $key = $aggregate =~ s/ /%20/gr;
	my $find = sub { grep { (header($_, 'ce-partitionkey') // '') eq $key }
		$receiver->records($path // "/$database") };
	return wait_until($find, $timeout // 15);
}

sub is_quick
{
	my ($promise, $code) = @_;
	my $took = elapsed($code);
	cmp_ok($took, '<', 2, sprintf('%s (%.2f s)', $promise, $took));
}

# Creates a database whose sink has a request without a response.
sub hanging
{
	my ($name) = @_;
	database($name);
	arrives($name, 'hanging') or die "no request hangs in $name";
}

# A relay starts without configuration, also for a database or extension created later.
database('shop');
ok(arrives('shop', 'first'), 'a relay serves a database that is created later');
is(sql("SELECT string_agg(DISTINCT backend_type, ', ' ORDER BY backend_type) FROM pg_stat_activity
			WHERE backend_type LIKE 'outbox%'"),
	'outbox launcher, outbox relay', 'the relay and the launcher have backend types of their own');
sql('CREATE DATABASE without');
sleep 0.5;
is(relay_pid($node, 'without'), '', 'no relay serves a database without the extension');

# An idle relay runs no transactions and does not wake up.
my $pid = relay_pid($node, 'shop');
my $state = sub {
	my $status = slurp_file("/proc/$pid/status");
	my ($switches) = $status =~ /^voluntary_ctxt_switches:\s+(\d+)/m;
	return (sql("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'shop'"),
		$switches);
};
# Wait until the statistics of earlier transactions are reported.
my @before = $state->();
wait_until(sub { sleep 1.2; my @now = $state->(); my $same = "@now" eq "@before";
		@before = @now; $same }, 10);
sleep 3;
my @after = $state->();
is($after[0], $before[0], 'an idle relay runs no transaction');
cmp_ok($after[1] - $before[1], '<=', 2, 'an idle relay does not wake up');
ok(arrives('shop', 'after idling', undef, 2), 'an idle relay reacts to a new event');
is(relay_pid($node, 'shop'), $pid, 'the idle relay kept its process');

# The launcher restarts a relay.
sql("SELECT pg_terminate_backend($pid)");
ok(wait_until(sub { my $now = relay_pid($node, 'shop'); $now && $now ne $pid }),
	'the launcher restarts a terminated relay');
ok(arrives('shop', 'after the end'), 'the restarted relay delivers');

# Commands on databases while a request has no response.
$receiver->control({ contains => 'hanging', do => 'hang' });
hanging('renamed');
is_quick('ALTER DATABASE … RENAME is quick while a sink hangs',
	sub { sql('ALTER DATABASE renamed RENAME TO newname') });
ok(arrives('newname', 'after the renaming', '/renamed'), 'the relay serves a renamed database');
$receiver->control();
$receiver->drop_connections;
ok(wait_until(sub { grep { header($_, 'ce-partitionkey') eq 'hanging'
				&& $_->{answer} eq '200' } $receiver->records('/renamed') }),
	'a request that hung before the renaming is delivered');
$receiver->control({ contains => 'hanging', do => 'hang' });
hanging($_) for 'dropped', 'template', 'unextended';

is_quick('DROP DATABASE is quick while a sink hangs', sub { sql('DROP DATABASE dropped') });
is(sql("SELECT count(*) FROM pg_database WHERE datname = 'dropped'"), 0,
	'DROP DATABASE succeeds while a sink hangs');

is_quick('CREATE DATABASE … TEMPLATE is quick while a sink hangs',
	sub { sql('CREATE DATABASE copy TEMPLATE template') });
ok(arrives('template', 'after the copy'), 'the relay serves the template database again');
is_quick('a DROP DATABASE that fails is quick while a sink hangs', sub {
	my ($status, undef, $error) = $node->psql('postgres', 'BEGIN; DROP DATABASE template; COMMIT');
	isnt($status, 0, 'DROP DATABASE in a transaction fails');
});
ok(arrives('template', 'after a failure'),
	'the relay serves a database again after a DROP DATABASE that failed');

# The sinks of a copied database are paused, so that events are not delivered twice.
my $reason = wait_for_status($node, 'sink', qr/^f/, 15, 'copy');
like($reason, qr/^f\|.*(copy|copied|another|identity|paused)/is,
	'outbox_status() reports the paused sinks of a copied database, with the reason');
is($node->safe_psql('copy', "SELECT paused FROM outbox_consumers WHERE name = 'sink'"), 't',
	'outbox_consumers has the paused sink of a copied database');
$node->safe_psql('copy', enqueue('in the copy'));
ok(arrives('template', 'in the original'), 'the original of a copied database delivers');
sleep 0.3;
my $from_copy = sub { grep { (header($_, 'ce-source') // '') eq '/copy' } $receiver->records };
is(scalar $from_copy->(), 0, 'the copy of a database delivers nothing');
$node->safe_psql('copy', "SELECT outbox_resume('sink')");
ok(wait_until(sub { grep { header($_, 'ce-partitionkey') eq 'in%20the%20copy' } $from_copy->() }),
	'a copied database delivers after outbox_resume()');

is_quick('DROP EXTENSION is quick while a sink hangs',
	sub { $node->safe_psql('unextended', 'DROP EXTENSION outbox') });
ok(wait_until(sub { relay_pid($node, 'unextended') eq '' }, 5),
	'the relay leaves a database without the extension');
$node->safe_psql('unextended', 'CREATE EXTENSION outbox');
$node->safe_psql('unextended', 'SELECT outbox_setup()');
create_sink($node, 'sink', { url => $receiver->url('/again') }, undef, 'unextended');
ok(arrives('unextended', 'after another CREATE EXTENSION', '/again'),
	'a relay serves a database after another CREATE EXTENSION');
$node->safe_psql('unextended', 'DROP EXTENSION outbox');
is_quick('DROP DATABASE is quick after DROP EXTENSION', sub { sql('DROP DATABASE unextended') });

# outbox.databases is reloaded.
hanging('reloaded');
$node->append_conf('postgresql.conf', "outbox.databases = 'shop, newname'\n");
is_quick('a reload of outbox.databases ends relays although a sink hangs', sub {
	$node->reload;
	wait_until(sub { relay_pid($node, 'reloaded') eq '' && relay_pid($node, 'template') eq '' });
});
$node->safe_psql('template', enqueue('unserved'));
ok(arrives('shop', 'served'), 'databases in outbox.databases are served');
sleep 0.3;
is(scalar(grep { header($_, 'ce-partitionkey') eq 'unserved' } $receiver->records('/template')), 0,
	'databases that are not in outbox.databases are not served');
$node->append_conf('postgresql.conf', "outbox.databases = ''\n");
$node->reload;
ok(wait_until(sub {
			grep { header($_, 'ce-partitionkey') eq 'unserved' } $receiver->records('/template') }),
	'an empty outbox.databases means all databases');

# Shutdowns while a request has no response.
for my $mode ('fast', 'smart')
{
	$node->safe_psql('shop',
		"SELECT outbox_enqueue('Order', '$mode', 'OrderConfirmed', '{\"is\": \"hanging\"}')");
	ok(wait_until(sub { grep { (header($_, 'ce-partitionkey') // '') eq $mode }
			$receiver->records('/shop') }),
		"a sink hangs before a $mode shutdown");
	is_quick("a $mode shutdown is quick while a sink hangs", sub { $node->stop($mode) });
	$node->start;
}
$receiver->control();
$receiver->drop_connections;
for my $mode ('fast', 'smart')
{
	ok(wait_until(sub { grep { (header($_, 'ce-partitionkey') // '') eq $mode
					&& $_->{answer} eq '200' } $receiver->records('/shop') }),
		"a request that hung before a $mode shutdown is delivered after it");
}

# A synchronous standby that is down.
$node->safe_psql('postgres', 'DROP DATABASE IF EXISTS copy');
$node->append_conf('postgresql.conf', "synchronous_standby_names = 'nowhere'\n");
$node->reload;
sleep 0.5;
$node->safe_psql('shop', 'SET synchronous_commit = local; ' . enqueue('unconfirmed'));
sleep 0.5;
is_quick('a fast shutdown is quick while no standby confirms', sub { $node->stop('fast') });
is(scalar(grep { header($_, 'ce-partitionkey') eq 'unconfirmed' } $receiver->records('/shop')), 0,
	'an event that no standby has confirmed is not sent');
$node->append_conf('postgresql.conf', "synchronous_standby_names = ''\n");
$node->start;
ok(wait_until(sub {
			grep { header($_, 'ce-partitionkey') eq 'unconfirmed' } $receiver->records('/shop') }),
	'the event is sent when commits need no standby');

$node->stop;
done_testing();
