# Generated calls of every function, by every role, with random arguments: each one returns or
# raises a clean error, a failed call changes nothing, and no memory, lock or transaction is left
# behind.
use strict;
use warnings;
use lib 't/lib';
use IPC::Run ();
use OutboxReceiver qw(relay_pid wait_until);
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $soak = $ENV{OUTBOX_SOAK};
my $calls = $ENV{OUTBOX_CALLS} || ($soak ? 100_000 : 1_600);
my $seed = $ENV{OUTBOX_SEED} || ($soak ? time : 1);
note("OUTBOX_SEED=$seed OUTBOX_CALLS=$calls make the same calls again");

my $cold = PostgreSQL::Test::Utils::tempdir('cold');
my $node = start_node('main', conf => <<"CONF");
outbox.relay = off
outbox.cold_storage_dir = '$cold'
outbox.hot_retention = '2d'
outbox.archive_retention = '10d'
autovacuum = off
log_error_verbosity = verbose
log_min_error_statement = panic
CONF
$node->safe_psql('postgres', q{CREATE ROLE admin LOGIN; CREATE ROLE worker LOGIN;
	CREATE ROLE nobody LOGIN; CREATE ROLE tenant LOGIN;
	ALTER ROLE tenant SET outbox.tenant_id = '1'});
my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');

# Foreign files in the directory of exported partitions.
my $day = 0;
for my $content ('{}', '[1]', 'null', '{"id": 1, "xid": "x"}', '{"id": 1e400}',
	"{\"id\": \"\xFF\"}", "\xFF\xFE", "a\0b", '[' x 100_000, 'x' x 3_000_000)
{
	my $name = sprintf '%s/postgres.outbox_messages_p2020_01_%02d.'
	  . '202001%02dT000000Z-202001%02dT000000Z.1.ndjson.zst', $cold, $day + 1, $day + 1, $day + 2;
	IPC::Run::run([ 'zstd', '-q', '-o', $name ], '<', \"$content\n") or die 'no zstd';
	$day++;
}

my %happened;
sub make_calls
{
	my ($database, @options) = @_;
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATABASE} = $database;
	my ($out, $err) = ('', '');
	# Debian's Python: the modules that the program imports are Debian packages.
	my $ok = ok(IPC::Run::run([ '/usr/bin/python3', 't/lib/calls', '--seed', $seed, '--files',
		$cold, @options ], '<', \undef, '>', \$out, '2>', \$err),
		"$database: generated calls violate no promise that lib/calls checks");
	note($out);
	diag($err) unless $ok;
	%happened = map { /(-?\d+) ([A-Za-z ]+)/ ? ($2 => $1) : () } split /[,:]/, $out;
}

sub prepare
{
	my ($database) = @_;
	$node->safe_psql($database,
		'SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox CASCADE');
	$node->safe_psql($database, slurp_file('t/lib/calls/prepare.sql'));
}

sub promises
{
	my ($database) = @_;
	cmp_ok($happened{'functions that were called'}, '>', 0.5 * $happened{functions},
		"$database: $happened{calls} calls reach more than half of the functions "
		  . "($happened{'functions that were called'})");
	cmp_ok($happened{$_}, '>', $happened{calls} / 10,
		"$database: more than a tenth of the calls are $_") for 'accepted', 'refused';
	is($happened{$_} // 0, 0, "$database: lib/calls counts no $_")
	  for 'internal errors', 'unclear errors', 'errors that are no text',
	  'calls that took too long', 'sessions that are gone', 'sessions that are not as they were',
	  'audit logs that can be changed';
}

# After the calls the database is consistent, and the extension works.
sub check_database
{
	my ($database) = @_;
	my $query = sub { return $node->safe_psql($database, $_[0]) };
	$query->('CREATE EXTENSION amcheck');
	cmp_ok($query->(q{SELECT count(bt_index_check(c.oid, true)) FROM pg_class c
		JOIN pg_am a ON a.oid = c.relam
		WHERE a.amname = 'btree' AND c.relkind = 'i' AND c.relnamespace = 'public'::regnamespace}),
		'>', 20, "$database: every index matches its table");
	is($query->(q{SELECT count(*) FROM pg_class c, verify_heapam(c.oid)
		WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace}),
		0, "$database: the heap of every table is intact");
	is($query->(q{SELECT count(*) FROM pg_locks
		WHERE locktype <> 'virtualxid' AND pid <> pg_backend_pid()}), 0,
		"$database: the calls leave no lock behind");
	is($query->(q{SELECT count(*) FROM pg_prepared_xacts}), 0,
		"$database: the calls leave no prepared transaction behind");
	cmp_ok($query->(q{SELECT count(*) FROM outbox_status()}), '>', 8,
		"$database: outbox_status() returns its components");
	like($query->(q{SELECT outbox_metrics()}), qr/outbox_lag_seconds/,
		"$database: outbox_metrics() returns the lag");
	is($query->(q{SELECT count(*) FROM audit_verify() WHERE NOT ok}), 0,
		"$database: the audit log matches its hash chain");
	$query->(q{DELETE FROM _outbox.upcasters;
		SELECT outbox_create_consumer('fresh', start_at => 'earliest')});
	is($query->(q{SELECT count(*) FROM outbox_peek('fresh', 1)}), 1,
		"$database: a new consumer can peek at an event");
	is( $query->(q{
		CREATE TABLE read (id bigint);
		DO $$ BEGIN LOOP INSERT INTO read SELECT id FROM outbox_consume('fresh', 1000);
		EXIT WHEN NOT FOUND; END LOOP; END $$;
		SELECT count(*) FROM read FULL JOIN (SELECT id FROM outbox_messages
		UNION ALL SELECT id FROM outbox_messages_archive) m USING (id)
		 WHERE read.id IS NULL OR m.id IS NULL}), 0,
		"$database: a new consumer reads every message of log and archive once");
	$query->(q{SELECT outbox_enqueue('Order', '1', 'OrderConfirmed', '{"n": 2}', tenant_id => 5)});
	is($query->(q{SELECT count(outbox_ack(lock_token, ARRAY[id])) FROM outbox_claim('fresh')}), 1,
		"$database: a new event is enqueued, claimed and acked");
}

prepare('postgres');
$node->safe_psql('postgres', "CREATE FUNCTION $_ LANGUAGE c STRICT AS '$ENV{OUTBOX_TEST_MODULE}'")
  for 'memory_given_out() RETURNS bigint', 'memory_forget() RETURNS void',
  'memory_lose(integer) RETURNS boolean', 'memory_lose_in_context(integer, boolean) RETURNS void',
  'memory_lose_at_commit(integer, boolean) RETURNS void';
# Planted leaks and changes, which the checks must detect under OUTBOX_SELFTEST.
my $selftest = $ENV{OUTBOX_SELFTEST};
my @planted = ('SELECT memory_lose_in_context(100, false)',
	'SELECT memory_lose_in_context(100, true)');
my @planted_at_commit = ('SELECT memory_lose_at_commit(100, true)');
# AddressSanitizer replaces malloc(), so mallinfo() does not see these leaks.
push @planted, 'SELECT memory_lose(100)' unless $ENV{OUTBOX_SANITIZED};
push @planted_at_commit, 'SELECT memory_lose_at_commit(100, false)' unless $ENV{OUTBOX_SANITIZED};
my @planted_changes = (
	q{INSERT INTO _outbox.inbox (tracking_id, consumer)
		VALUES ('00000000-0000-0000-0000-000000000001', 'planted')},
	q{UPDATE _outbox.inbox SET consumer = consumer WHERE consumer = 'planted'},
	q{DELETE FROM _outbox.inbox WHERE consumer = 'planted'});
my @planting = (
	(map { ('--planted', $_) } @planted),
	(map { ('--planted-at-commit', $_) } @planted_at_commit),
	(map { ('--planted-change', $_) } @planted_changes));
make_calls('postgres', '--calls', $calls, '--repeat', $soak ? 200 : 50,
	$ENV{OUTBOX_SANITIZED} ? '--contexts-only' : (), $selftest ? @planting : ());
promises('postgres');
is($happened{'functions that were called'},
	$node->safe_psql('postgres', q{SELECT count(*) FROM pg_depend d
		JOIN pg_extension e ON d.refobjid = e.oid
	WHERE e.extname = 'outbox' AND d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
	AND d.classid = 'pg_proc'::regclass}),
	'the generated calls reach every function of the extension');
cmp_ok($happened{watched}, '>', $calls / 50,
	"the tables are compared before and after many failed or rolled-back calls "
	  . "($happened{watched})");
is($happened{'changes by calls that failed or were rolled back'} // 0, 0,
	'a failed or rolled-back call changes nothing');
is($happened{'calls that lose memory'} // 0, 0,
	"a repeated call leaks no memory, whether or not it fails "
	  . "($happened{'kinds of calls that were repeated'} kinds of calls)");
cmp_ok($happened{'kinds of calls that were committed again and again'}, '>', 100,
	"more than 100 kinds of calls are committed repeatedly "
	  . "($happened{'kinds of calls that were committed again and again'})");
if ($selftest)
{
	is($happened{'planted changes that were seen'}, @planted_changes,
		'selftest: a planted change of another session is detected');
	is($happened{'planted leaks that were found'}, @planted,
		'selftest: a planted leak of 100 bytes is detected');
	is($happened{'planted leaks that were found at commit'}, @planted_at_commit,
		'selftest: a planted leak of 100 bytes at commit is detected');
}

# outbox_enqueue_many() parses jsonb of the server, which no fuzzer of plain C++ reaches. `make
# fuzz` runs these calls for longer.
make_calls('postgres', '--calls', $calls / 4, '--only', 'outbox_enqueue_many', '--events',
	$ENV{OUTBOX_EVENTS});
promises('postgres');
my @arrays = glob "$ENV{OUTBOX_EVENTS}/*";
is($happened{'arrays of the corpus that were sent whole'}, @arrays,
	'every array of the corpus is also enqueued unchanged');
is($happened{'changes by calls that failed or were rolled back'} // 0, 0,
	'a rejected array of events changes nothing');
check_database('postgres');

# SQL_ASCII accepts any bytes as text.
$node->safe_psql('postgres', q{CREATE DATABASE bytes TEMPLATE template0 ENCODING SQL_ASCII
	LC_COLLATE 'C' LC_CTYPE 'C'});
prepare('bytes');
make_calls('bytes', '--calls', $calls / 4, '--bytes');
promises('bytes');
is($happened{'changes by calls that failed or were rolled back'} // 0, 0,
	'bytes: a failed or rolled-back call changes nothing');
check_database('bytes');

# The relay works on the state that the calls have left, and beside further calls.
$node->append_conf('postgresql.conf', "outbox.relay = on\noutbox.maintenance_interval = '1s'\n");
$node->reload;
ok(wait_until(sub { relay_pid($node) && relay_pid($node, 'bytes') }),
	'a relay starts for each database');
my @workers = map { relay_pid($node, $_) } 'postgres', 'bytes';
make_calls('postgres', '--calls', $calls / 4, '--watch', 0);
promises('postgres');
is("@{[ map { relay_pid($node, $_) } 'postgres', 'bytes' ]}", "@workers",
	'the relays keep their processes beside the calls');

is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started,
	'the server never restarts');
my $log = slurp_file($node->logfile);
is(join("\n", $log =~ /^.*(?:XX000:|PANIC:|TRAP:|leaked|terminated by signal).*$/mg), '',
	'the server log has no internal error, crash or leak');
$node->stop;
done_testing();
