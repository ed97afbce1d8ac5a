# The relay finds the databases that want it, steps aside when somebody else needs one, and sleeps when
# there is nothing to do.
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
# No timer: whatever happens is done for a reason. Leases of a worker that was stopped are over soon.
my $node = start_node('main', no_extension => 1, init => { allows_streaming => 1 },
	conf => "outbox.relay_interval = '1h'\noutbox.lease = '3s'\noutbox.backoff_base = '100ms'\noutbox.backoff_max = '500ms'\nautovacuum = off\nmax_worker_processes = 16\n");

sub sql
{
	return $node->safe_psql('postgres', @_);
}

# A database with a sink; the path is the database's name.
sub database
{
	my ($name) = @_;
	sql("CREATE DATABASE $name");
	$node->safe_psql($name, 'SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE');
	$node->safe_psql($name, 'SELECT outbox_setup()');
	create_sink($node, 'sink', { url => $receiver->url("/$name"), timeout => seconds(60) }, undef, $name);
}

# A request that carries an event of a database; undef if none comes.
sub arrives
{
	my ($database, $aggregate, $path, $timeout) = @_;
	$node->safe_psql($database, enqueue($aggregate));
	my $key = $aggregate =~ s/ /%20/gr;
	my $find = sub { grep { (header($_, 'ce-partitionkey') // '') eq $key } $receiver->records($path // "/$database") };
	return wait_until($find, $timeout // 15);
}

sub promptly
{
	my ($promise, $code) = @_;
	my $took = elapsed($code);
	cmp_ok($took, '<', 2, sprintf('%s (%.2f s)', $promise, $took));
}

# Makes a database whose sink has a request that hangs.
sub hanging
{
	my ($name) = @_;
	database($name);
	arrives($name, 'hanging') or die "nothing hangs in $name";
}

# Found without configuration, also when the database or the extension comes later.
database('shop');
ok(arrives('shop', 'first'), 'a database that is created later is served');
is(sql("SELECT string_agg(DISTINCT backend_type, ', ' ORDER BY backend_type) FROM pg_stat_activity WHERE backend_type LIKE 'outbox%'"),
	'outbox launcher, outbox relay', 'by workers that say what they are');
sql('CREATE DATABASE without');
sleep 0.5;
is(relay_pid($node, 'without'), '', 'one without the extension is not');

# Idle: no transaction, no waking up.
my $pid = relay_pid($node, 'shop');
my $state = sub {
	my $status = slurp_file("/proc/$pid/status");
	my ($switches) = $status =~ /^voluntary_ctxt_switches:\s+(\d+)/m;
	return (sql("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'shop'"), $switches);
};
# Until what went before is counted.
my @before = $state->();
wait_until(sub { sleep 1.2; my @now = $state->(); my $same = "@now" eq "@before"; @before = @now; $same }, 10);
sleep 3;
my @after = $state->();
is($after[0], $before[0], 'an idle relay makes no transaction');
cmp_ok($after[1] - $before[1], '<=', 2, 'and does not wake up');
ok(arrives('shop', 'after idling', undef, 2), 'until there is something to do');
is(relay_pid($node, 'shop'), $pid, 'for the same worker');

# A worker that is ended comes back.
sql("SELECT pg_terminate_backend($pid)");
ok(wait_until(sub { my $now = relay_pid($node, 'shop'); $now && $now ne $pid }), 'a worker that is ended comes back');
ok(arrives('shop', 'after the end'), 'and relays');

# While a sink hangs.
$receiver->control({ contains => 'hanging', do => 'hang' });
hanging('renamed');
promptly('ALTER DATABASE … RENAME', sub { sql('ALTER DATABASE renamed RENAME TO newname') });
ok(arrives('newname', 'after the renaming', '/renamed'), 'and under its new name it is served');
$receiver->control();
$receiver->drop_connections;
ok(wait_until(sub { grep { header($_, 'ce-partitionkey') eq 'hanging' && $_->{answer} eq '200' } $receiver->records('/renamed') }),
	'what hung before is delivered');
$receiver->control({ contains => 'hanging', do => 'hang' });
hanging($_) for 'dropped', 'template', 'unextended';

promptly('DROP DATABASE', sub { sql('DROP DATABASE dropped') });
is(sql("SELECT count(*) FROM pg_database WHERE datname = 'dropped'"), 0, 'succeeds while a sink hangs');

promptly('CREATE DATABASE … TEMPLATE', sub { sql('CREATE DATABASE copy TEMPLATE template') });
ok(arrives('template', 'after the copy'), 'and the template is served again');
promptly('a database that is refused to be dropped', sub {
	my ($status, undef, $error) = $node->psql('postgres', 'BEGIN; DROP DATABASE template; COMMIT');
	isnt($status, 0, 'DROP DATABASE in a transaction fails');
});
ok(arrives('template', 'after a failure'), 'and the database is served as before');

# A copy does not publish what the original publishes.
my $reason = wait_for_status($node, 'sink', qr/^f/, 15, 'copy');
like($reason, qr/^f\|.*(copy|copied|another|identity|paused)/is, 'the sinks of a copy are paused, and outbox_status() says why');
is($node->safe_psql('copy', "SELECT paused FROM outbox_consumers WHERE name = 'sink'"), 't', 'as outbox_consumers does');
$node->safe_psql('copy', enqueue('in the copy'));
ok(arrives('template', 'in the original'), 'the original goes on');
sleep 0.3;
my $from_copy = sub { grep { (header($_, 'ce-source') // '') eq '/copy' } $receiver->records };
is(scalar $from_copy->(), 0, 'the copy publishes nothing');
$node->safe_psql('copy', "SELECT outbox_resume('sink')");
ok(wait_until(sub { grep { header($_, 'ce-partitionkey') eq 'in%20the%20copy' } $from_copy->() }), 'until somebody resumes its sink');

promptly('DROP EXTENSION', sub { $node->safe_psql('unextended', 'DROP EXTENSION outbox') });
ok(wait_until(sub { relay_pid($node, 'unextended') eq '' }, 5), 'then nobody serves that database');
$node->safe_psql('unextended', 'CREATE EXTENSION outbox');
$node->safe_psql('unextended', 'SELECT outbox_setup()');
create_sink($node, 'sink', { url => $receiver->url('/again') }, undef, 'unextended');
ok(arrives('unextended', 'after another CREATE EXTENSION', '/again'), 'until it has the extension again');
$node->safe_psql('unextended', 'DROP EXTENSION outbox');
promptly('DROP DATABASE without the extension', sub { sql('DROP DATABASE unextended') });

# A reload restricts it to some databases.
hanging('reloaded');
$node->append_conf('postgresql.conf', "outbox.databases = 'shop, newname'\n");
promptly('a reload while a sink hangs', sub {
	$node->reload;
	wait_until(sub { relay_pid($node, 'reloaded') eq '' && relay_pid($node, 'template') eq '' });
});
$node->safe_psql('template', enqueue('unserved'));
ok(arrives('shop', 'served'), 'outbox.databases: those in the list are served');
sleep 0.3;
is(scalar(grep { header($_, 'ce-partitionkey') eq 'unserved' } $receiver->records('/template')), 0, 'and no others');
$node->append_conf('postgresql.conf', "outbox.databases = ''\n");
$node->reload;
ok(wait_until(sub { grep { header($_, 'ce-partitionkey') eq 'unserved' } $receiver->records('/template') }), 'empty: all are');

# Shutdowns while a sink hangs.
for my $mode ('fast', 'smart')
{
	$node->safe_psql('shop', "SELECT outbox_enqueue('Order', '$mode', 'OrderConfirmed', '{\"is\": \"hanging\"}')");
	ok(wait_until(sub { grep { (header($_, 'ce-partitionkey') // '') eq $mode } $receiver->records('/shop') }), "a sink hangs before a $mode shutdown");
	promptly("a $mode shutdown", sub { $node->stop($mode) });
	$node->start;
}
$receiver->control();
$receiver->drop_connections;
for my $mode ('fast', 'smart')
{
	ok(wait_until(sub { grep { (header($_, 'ce-partitionkey') // '') eq $mode && $_->{answer} eq '200' } $receiver->records('/shop') }),
		"what hung before a $mode shutdown is delivered after it");
}

# A standby that must confirm every commit and is not there.
$node->safe_psql('postgres', 'DROP DATABASE IF EXISTS copy');
$node->append_conf('postgresql.conf', "synchronous_standby_names = 'nowhere'\n");
$node->reload;
sleep 0.5;
$node->safe_psql('shop', 'SET synchronous_commit = local; ' . enqueue('unconfirmed'));
sleep 0.5;
promptly('a fast shutdown while no standby confirms', sub { $node->stop('fast') });
is(scalar(grep { header($_, 'ce-partitionkey') eq 'unconfirmed' } $receiver->records('/shop')), 0,
	'what no standby has is not published');
$node->append_conf('postgresql.conf', "synchronous_standby_names = ''\n");
$node->start;
ok(wait_until(sub { grep { header($_, 'ce-partitionkey') eq 'unconfirmed' } $receiver->records('/shop') }),
	'but when none has to confirm it');

$node->stop;
done_testing();
