# Settings with and without shared_preload_libraries: which role may set them, and when they take
# effect.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_node('main', no_preload => 1);
$node->safe_psql('postgres', q{CREATE ROLE app LOGIN; SELECT outbox_grant('app', 'producer')});

my $as_app = sub {
	my ($sql) = @_;
	my ($status, $out, $error) = $node->psql('postgres', $sql, extra_params => [ '-U', 'app' ]);
	return ($out, $error);
};
my $tenants = sub {
	return $node->safe_psql('postgres',
		"SELECT string_agg(DISTINCT tenant_id::text, ' ') FROM outbox_messages");
};

is($node->safe_psql('postgres', "SELECT ok, hint LIKE '%shared_preload_libraries%'
			FROM outbox_status() WHERE component = 'preload'"),
	'f|t', 'without preload, outbox_status() reports it and has a hint');
my ($out, $error) = $as_app->(enqueue('plain'));
like($out, qr/^[0-9a-f-]{36}$/, 'outbox_enqueue() works without preload');

# Before the library is loaded, any session can set a placeholder. The library must discard it.
($out, $error) = $as_app->('SET outbox.tenant_id = 66; ' . enqueue('spoofed'));
like($error, qr/permission denied to set parameter "outbox.tenant_id"/,
	'a tenant set before the library is loaded is dropped');
is($tenants->(), '0', 'a tenant set before the library is loaded is not used');
$node->safe_psql('postgres', 'ALTER ROLE app SET outbox.tenant_id = 5');
($out, $error) = $as_app->(enqueue('five'));
is($tenants->(), '0 5', 'a tenant set by ALTER ROLE is used');
($out, $error) = $as_app->('SET outbox.tenant_id = 66; ' . enqueue('spoofed'));
is($tenants->(), '0 5', 'a role cannot replace the tenant of ALTER ROLE');

# The same holds if the first call of a session is outbox_register_event().
$node->safe_psql('postgres', q{CREATE ROLE keeper LOGIN; SELECT outbox_grant('keeper', 'admin');
	ALTER DATABASE postgres SET outbox.event_name_pattern = 'ed$'});
for my $made_up ('', "SET outbox.event_name_pattern = ''; ")
{
	(undef, undef, $error) = $node->psql('postgres',
		"${made_up}SELECT outbox_register_event('ConfirmOrder', 1, 'sales')",
		extra_params => [ '-U', 'keeper' ]);
	like($error, qr/event_type "ConfirmOrder" does not match outbox\.event_name_pattern/,
		'outbox.event_name_pattern of the database holds'
		  . ($made_up && ', one made up before the library is loaded is dropped'));
}
$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET outbox.event_name_pattern');

# PGOPTIONS of a connection would take precedence over ALTER DATABASE and ALTER ROLE.
$node->safe_psql('postgres', q{ALTER DATABASE postgres SET outbox.catalog_mode = 'enforce'});
for my $option ('outbox.tenant_id=66', 'outbox.tenant_id=', 'Outbox.Tenant_Id=66',
	'outbox.catalog_mode=off')
{
	my ($name) = $option =~ /(.*)=/;
	local $ENV{PGOPTIONS} = "-c $option";
	($out, $error) = $as_app->(enqueue('spoofed'));
	like($error, qr/FATAL:  parameter "\Q\L$name\E" cannot be set with the connection/,
		"a protected setting in PGOPTIONS is refused: $option");
}
{
	local $ENV{PGOPTIONS} =
		'-c outbox.traceparent=00-11111111111111111111111111111111-1111111111111111-01 '
	  . '-c work_mem=1MB';
	$node->safe_psql('postgres', q{ALTER DATABASE postgres RESET outbox.catalog_mode});
	($out, $error) = $as_app->(enqueue('traced'));
	is($error, '', 'a setting for every role is accepted in PGOPTIONS');
	local $ENV{PGOPTIONS} = '-c outbox.tenant_id=7';
	$node->safe_psql('postgres', enqueue('seven'));
}
is($tenants->(), '0 5 7', 'a superuser may set the tenant in PGOPTIONS');
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox_messages WHERE trace_id LIKE
			'00-1111%' AND tenant_id = 5}), 1, 'a trace context in PGOPTIONS is used');

$node->append_conf('postgresql.conf',
	"shared_preload_libraries = 'outbox'\noutbox.partition_interval = 'hourly'\n"
	. "outbox.dedup_window = '2d'\noutbox.max_payload_size = '2kB'");
$node->restart;
is($node->safe_psql('postgres', "SELECT ok FROM outbox_status() WHERE component = 'preload'"), 't',
	'with preload, outbox_status() reports it');
is($node->safe_psql('postgres', 'SHOW outbox.dedup_window'), '2d', 'settings have units');
($out, $error) = $as_app->('SET outbox.tenant_id = 66; ' . enqueue('spoofed'));
like($error, qr/permission denied to set parameter "outbox.tenant_id"/,
	'a role cannot set outbox.tenant_id');
($out, $error) =
	$as_app->("SELECT outbox_enqueue('Order', 1, 'OrderConfirmed', to_jsonb(repeat('x', 3000)))");
like($error, qr/payload is too large: \d+ bytes, at most 2048 are allowed/,
	'outbox.max_payload_size is enforced');

for my $bad ([ cold_storage_dir => 'here', 'It must be an absolute path.' ],
	[ http_allowed_hosts => '[::1', 'It must be a list of hosts such as' ])
{
	my ($name, $value, $reason) = @$bad;
	(undef, undef, $error) = $node->psql('postgres', "ALTER SYSTEM SET outbox.$name = '$value'");
	like($error,
		qr/invalid value for parameter "outbox\.$name": "\Q$value\E"\nDETAIL:  \Q$reason\E/,
		"$name: an invalid value is refused with a reason");
}

# outbox.partition_interval takes effect when the log is created.
$node->safe_psql('postgres', 'DROP EXTENSION outbox; CREATE EXTENSION outbox;
		SELECT outbox_setup()');
is( $node->safe_psql('postgres', q{
	SELECT count(*), min(upper - lower), max(upper) > now() + interval '6 hours' FROM (
	    SELECT (regexp_match(b, $$FROM \('([^']+)$$))[1]::timestamptz AS lower,
	           (regexp_match(b, $$TO \('([^']+)$$))[1]::timestamptz AS upper
	      FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid, pg_get_expr(relpartbound, c.oid) b
	     WHERE inhparent = 'outbox_messages'::regclass AND b <> 'DEFAULT') p}),
	'8|01:00:00|t', 'outbox.partition_interval = hourly makes hourly partitions');
for my $interval ('weekly', 'monthly')
{
	$node->append_conf('postgresql.conf', "outbox.partition_interval = '$interval'");
	$node->reload;
	$node->safe_psql('postgres', 'DROP EXTENSION outbox; CREATE EXTENSION outbox;
			SELECT outbox_setup()');
	$node->safe_psql('postgres', enqueue($interval));
	is( $node->safe_psql('postgres', q{
		SELECT count(*), bool_and(tableoid::regclass::text <> 'outbox_messages_default')
		FROM outbox_messages}),
		'1|t', "$interval partitions cover the present");
	my $made = $node->safe_psql('postgres', 'SELECT outbox_setup()');
	cmp_ok($made, '>=', 9, "outbox_setup() keeps $interval partitions ahead");
	is($node->safe_psql('postgres', 'SELECT outbox_setup()'), $made,
		"outbox_setup() adds no $interval partitions if there are enough");
}

# The launcher and the server's logical replication launcher take both slots.
$node->append_conf('postgresql.conf', 'max_worker_processes = 2');
$node->restart;
my $relay = "SELECT ok, detail FROM outbox_status() WHERE component = 'relay'";
ok($node->poll_query_until('postgres', $relay, 'f|none serves this database: no worker slot is '
		. 'free'), 'outbox_status() reports a relay without a worker slot');
my @warnings =
	slurp_file($node->logfile) =~ /no relay for database "postgres": no worker slot is free\n.*HINT:  Raise max_worker_processes\./g;
is(scalar @warnings, 1, 'the log reports a relay without a worker slot once, with a hint');
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->restart;
ok($node->poll_query_until('postgres', "SELECT ok FROM outbox_status() WHERE component = 'relay'"),
	'the relay starts when a worker slot is free');

$node->stop;
done_testing();
