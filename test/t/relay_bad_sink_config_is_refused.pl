# An invalid configuration of a sink is refused with a reason, and secrets reach only the receiver.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use JSON::PP;
use MIME::Base64 qw(encode_base64);
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my %secrets = (
	shop => 'whsec_' . encode_base64('hush, hush, hush, hush, hush!!!', ''),
	token => 'tk_never_to_be_seen_0123456789',
	later => 'tk_from_a_lax_file');
my $secrets_file = write_secrets(PostgreSQL::Test::Utils::tempdir() . '/secrets', \%secrets);
my $receiver = OutboxReceiver->start('receiver');
my $url = $receiver->url('/hook');
my $node = start_node('main',
	init => { extra => [ '-E', 'UTF8', '--locale=C' ] },
	conf => "outbox.secrets_file = '$secrets_file'\noutbox.backoff_base = '50ms'\n"
	  . "outbox.backoff_max = '200ms'\nlog_statement = 'all'\nlog_min_messages = debug1\n");
$node->safe_psql('postgres', q{SELECT outbox_setup(); CREATE ROLE app LOGIN;
		SELECT outbox_grant('app', 'producer'); SELECT outbox_grant('app', 'consumer');
	CREATE ROLE boss LOGIN; SELECT outbox_grant('boss', 'admin')});

sub sql
{
	return $node->safe_psql('postgres', @_);
}

# The statement fails with this SQLSTATE, and its message matches the pattern.
sub refused
{
	my ($sql, $sqlstate, $words, $promise) = @_;
	my $error = refusal($node, $sql);
	ok($error =~ /ERROR:  (?:$sqlstate):/ && $error =~ $words, $promise)
	  or diag($error || 'it was accepted');
	return $error;
}

sub created
{
	my ($config, $rest) = @_;
	$config = JSON::PP->new->canonical->encode($config) if ref $config;
	return "SELECT outbox_create_sink('sink', 'http', \$config\$$config\$config\$"
	  . ($rest ? ", $rest" : '') . ')';
}

# Arguments.
refused("SELECT outbox_create_sink('sink', 'pigeon', '{}')", '22023', qr/pigeon/,
	'an unknown kind of sink is refused');
like(refusal($node, "SELECT outbox_create_sink('sink', 'pigeon', '{}')"), qr/http/,
	'the error about an unknown kind names the known kinds');
my $error = refused(created({ url => $url, colour => 'red' }), '22023', qr/colour/,
	'an unknown key of a config is refused');
like($error, qr/\b$_\b/, "the error about an unknown key names the key $_")
  for qw(url method format headers metadata secret previous_secret timeout
  connect_timeout concurrency ca_file client_cert client_key proxy batch);
refused("SELECT outbox_create_sink(NULL, 'http', '{\"url\": \"$url\"}')", '22004', qr/name/,
	'a sink without a name is refused');
refused("SELECT outbox_create_sink('sink', NULL, '{\"url\": \"$url\"}')", '22004', qr/kind/,
	'a sink without a kind is refused');
refused("SELECT outbox_create_sink('sink', 'http', NULL)", '22004', qr/config/,
	'a sink without a config is refused');
refused("SELECT outbox_create_sink('', 'http', '{\"url\": \"$url\"}')", '22023', qr/name/,
	'a sink with an empty name is refused');
refused("SELECT outbox_create_sink(E'two\\nlines', 'http', '{\"url\": \"$url\"}')", '22023',
	qr/control characters/, 'a sink name of two lines is refused');
refused("SELECT outbox_create_sink(repeat('x', 64), 'http', '{\"url\": \"$url\"}')", '22023',
	qr/63/, 'a sink name of more than 63 bytes is refused');
refused(created({}), '22023', qr/url/, 'a config without a url is refused');
refused(created($_), '22023', qr/./, "a config that is not an object is refused: $_")
  for '[]', '"x"', '7', 'null';
refused(created({ url => $_ }), '22023', qr/url/, 'an invalid url is refused: ' . encode_json([$_]))
  for '', 'hook', 'file:///etc/passwd', 'ftp://example.org/', 'gopher://example.org/', 'http://',
    "http://example.org/\nX: y", undef, 7, {};
refused(created({ url => $url, %{ $_->[0] } }), '22023', $_->[1],
	'an invalid value in a config is refused: ' . encode_json($_->[0]))
  for [ { method => 'DELETE' }, qr/method/ ], [ { method => 'POST /x' }, qr/method/ ],
    [ { format => 'xml' }, qr/format/ ],
  [ { concurrency => 0 }, qr/concurrency/ ], [ { concurrency => -1 }, qr/concurrency/ ],
    [ { concurrency => 1_000_000_000 }, qr/concurrency/ ],
  [ { concurrency => 'many' }, qr/concurrency/ ], [ { timeout => seconds(0) }, qr/timeout/ ],
    [ { timeout => seconds(-1) }, qr/timeout/ ],
  [ { timeout => 'soon' }, qr/timeout/ ], [ { connect_timeout => 'soon' }, qr/connect_timeout/ ],
    [ { headers => 'X: y' }, qr/headers/ ],
  [ { headers => { 'X' => "y\r\nZ: z" } }, qr/header/ ],
    [ { headers => { "X\nY" => 'z' } }, qr/header/ ], [ { headers => { X => 7 } }, qr/header/ ],
  [ { headers => { 'webhook-id' => 'x' } }, qr/header/ ],
    [ { headers => { 'Ce-Id' => 'x' } }, qr/header/ ],
  [ { metadata => 'region' }, qr/metadata/ ], [ { metadata => ['id'] }, qr/"id"/ ],
    [ { ca_file => 'ca.crt' }, qr/ca_file/ ],
    [ { batch => 0, format => 'cloudevents-batch' }, qr/batch/ ];
refused(created({ url => $url }, $_->[0]), $_->[1], $_->[2],
	"an invalid argument is refused: $_->[0]")
  for [ 'max_attempts => 0', '22023', qr/max_attempts/ ],
    [ "start_at => 'someday'", '22023', qr/start_at/ ],
    [ 'start_at => NULL', '22004', qr/start_at/ ],
  [ 'event_types => ARRAY[NULL]::text[]', '22004', qr/event_types/ ];
is(sql('SELECT count(*) FROM outbox_consumers'), 0, 'a refused sink creates no consumer');

# Literal secrets in a config.
for my $literal ({ secret => $secrets{shop} }, { secret => '${secret:shop}',
		previous_secret => $secrets{shop} }, { secret => 'whsec_${secret:shop}' },
	{ headers => { Authorization => "Bearer $secrets{shop}" } })
{
	my $key = (sort keys %$literal)[0];
	$error = refused(created({ url => $url, %$literal }), '22023', qr/secret/,
		"a literal secret in $key is refused");
	unlike($error, qr/\Q$secrets{shop}\E/,
		"the error about a literal secret in $key does not repeat it");
}
is(sql('SELECT count(*) FROM outbox_consumers'), 0, 'a refused literal secret is not stored');
truncate $node->logfile, 0;

# Privileges.
for my $call ("outbox_create_sink('x', 'http', '{\"url\": \"$url\"}')",
	"outbox_alter_sink('x', config => '{\"url\": \"$url\"}')", "outbox_drop_sink('x')")
{
	like(refusal($node, "SELECT $call", '-U', 'app'), qr/ERROR:  42501:/,
		"only an admin may call $call" =~ s/\(.*//r);
}
like(refusal($node, "CALL outbox_test_sink('x', NULL, NULL)", '-U', 'app'), qr/ERROR:  42501:/,
	'only an admin may call outbox_test_sink');
my ($status) = $node->psql('postgres', "SELECT outbox_create_sink('of the boss', 'http', "
	. "'{\"url\": \"" . $receiver->url('/boss') . "\"}')", extra_params => [ '-U', 'boss' ]);
is($status, 0, 'an admin may create a sink');
refused("SELECT $_", '42704', qr/nobody/, "a sink that does not exist is refused: $_")
  for "outbox_alter_sink('nobody', config => '{\"url\": \"$url\"}')", "outbox_drop_sink('nobody')";
refused("CALL outbox_test_sink('nobody', NULL, NULL)", '42704', qr/nobody/,
	'outbox_test_sink() refuses a sink that does not exist');
refused("SELECT outbox_create_sink('of the boss', 'http', '{\"url\": \"$url\"}')", '42710',
	qr/of the boss/, 'the name of an existing sink is refused');
refused("SELECT outbox_alter_sink('of the boss', "
	. "config => '{\"url\": \"$url\", \"colour\": \"red\"}')",
	'22023', qr/colour/, 'outbox_alter_sink() refuses an unknown key');

# Only the relay claims for a sink.
refused("SELECT * FROM $_('of the boss')", '[0-9A-Z]{5}', qr/sink|relay/i,
	"$_() is refused for a sink") for 'outbox_claim', 'outbox_consume';
sql("SELECT outbox_create_consumer('worker')");
refused("SELECT outbox_drop_sink('worker')", '[0-9A-Z]{5}', qr/sink/i,
	'outbox_drop_sink() is refused for a consumer that is not a sink');

# A name with quotes and other special characters.
my $odd = q{it's "odd" \\ €};
sql("SELECT outbox_create_sink(\$n\$$odd\$n\$, 'http', '{\"url\": \""
	. $receiver->url('/odd') . "\"}')");
sql(enqueue('odd'));
is(scalar(my @odd = $receiver->wait_for(1, 20, '/odd')), 1,
	'a sink whose name has quotes delivers');
like(sink_status($node, $odd), qr/^t/, 'a sink whose name has quotes has a status');
sql("SELECT outbox_drop_sink(\$n\$$odd\$n\$)");
is(sql("SELECT count(*) FROM outbox_consumers WHERE name LIKE 'it%'"), 0,
	'a sink whose name has quotes can be dropped');
ok($receiver->wait_for(1, 20, '/boss'),
	'a sink created by an admin without superuser rights delivers');
sql("SELECT outbox_drop_sink('of the boss')");

# Secrets of requests, with a receiver that repeats them in its responses.
create_sink($node, 'secretive', { url => $url, secret => '${secret:shop}',
		headers => { Authorization => 'Bearer ${secret:token}' } }, 'max_attempts => 2');
$receiver->control({ path => '/hook', contains => 'wrong', status => 422, body => 'you sent ',
		echo => 'Authorization' },
	{ path => '/hook', contains => 'broken', times => 2, status => 500, body => 'you sent ',
		echo => 'Authorization' });
sql("SELECT outbox_enqueue('Order', 1, 'E', '{\"is\": \"wrong\"}');
		SELECT outbox_enqueue('Order', 2, 'E', '{\"is\": \"broken\"}');
		SELECT outbox_enqueue('Order', 3, 'E', '{\"is\": \"fine\"}')");
ok(wait_until(sub { sql('SELECT count(*) FROM outbox_messages_dlq') == 1 }),
	'a message is rejected by a receiver that repeats its credentials');
ok(wait_until(sub { (grep { $_->{answer} eq '200' } $receiver->records('/hook')) == 2 }),
	'messages that the receiver accepts are delivered');
is(header(($receiver->records('/hook'))[0], 'Authorization'), "Bearer $secrets{token}",
	'the request has the secret');
sql("CALL outbox_test_sink('secretive', NULL, NULL)");
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
$node->command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-f', $dump ], 'pg_dump succeeds');
my %places = (
	outbox_sinks => sql('SELECT s::text FROM outbox_sinks s'),
	'outbox_status()' => sql('SELECT s::text FROM outbox_status() s'),
	outbox_deliveries => sql('SELECT d::text FROM outbox_deliveries d'),
	outbox_messages_dlq => sql('SELECT d::text FROM outbox_messages_dlq d'),
	outbox_consumers => sql('SELECT c::text FROM outbox_consumers c'),
	'the dump' => slurp_file($dump),
	'the log' => slurp_file($node->logfile));
like($places{outbox_sinks}, qr/\$\{secret:token\}/, 'outbox_sinks has the reference to a secret');
like($places{outbox_messages_dlq}, qr/422.*you sent/,
	'the dead letter has the response of the receiver');
for my $place (sort keys %places)
{
	is(scalar(grep { index($places{$place}, $_) >= 0 } $secrets{token}, $secrets{shop},
			$secrets{shop} =~ s/^whsec_//r), 0, "no secret is in $place");
}

# A missing secret, and a secrets file that other users can read: the call fails, or the sink is
# paused with the reason.
sub cannot_work
{
	my ($name, $secret, $words, $promise) = @_;
	my $config = encode_json({ url => $receiver->url("/$name"),
			headers => { Authorization => "Bearer \${secret:$secret}" } });
	my $said = refusal($node,
		"SELECT outbox_create_sink('$name', 'http', \$config\$$config\$config\$)");
	if (!$said)
	{
		sql(enqueue($name));
		$said = wait_for_status($node, $name, qr/^f\|.*$words/is);
		is(sql("SELECT paused FROM outbox_consumers WHERE name = '$name'"), 't',
			"$promise: the sink is paused");
	}
	like($said, qr/$words/i, "$promise: the reason is reported");
	unlike($said, qr/\Q$secrets{later}\E/, "$promise: the secret is not reported");
	is($receiver->count("/$name"), 0, "$promise: the receiver gets no request");
}
cannot_work('unknown', 'nowhere', qr/nowhere/, 'a secret that is not in the file');
for my $mode (0644, 0640, 0660)
{
	my $lax = sprintf '%04o', $mode;
	chmod $mode, $secrets_file;
	cannot_work("lax-$lax", 'later', qr/permission|mode|0600|group|others/,
		"a secrets file with mode $lax");
}
# The relay reads the secrets file for a new sink.
chmod 0600, $secrets_file;
sql("SELECT outbox_drop_sink(name) FROM outbox_consumers WHERE kind = 'http' AND name LIKE 'lax%'");
create_sink($node, 'strict',
	{ url => $receiver->url('/strict'), headers => { Authorization => 'Bearer ${secret:later}' } });
sql(enqueue('strict'));
is(header(($receiver->wait_for(1, 20, '/strict'))[0], 'Authorization'), "Bearer $secrets{later}",
	'a secrets file with mode 0600 is read');

# Allowed hosts and private addresses.
$node->append_conf('postgresql.conf',
	"outbox.http_allowed_hosts = 'shop.example, *.example.org, 127.0.0.1'\n");
$node->reload;
$node->poll_query_until('postgres', "SELECT current_setting('outbox.http_allowed_hosts') <> ''");
refused(created({ url => $_ }), '42501|22023', qr/outbox\.http_allowed_hosts/,
	"outbox.http_allowed_hosts refuses $_")
  for 'http://other.example/', 'http://example.org.evil.example/',
    'http://shop.example.evil.example/', 'http://evil-example.org/',
  'http://evil.example/?shop.example', 'http://evil.example/@shop.example', 'http://localhost/';
refused(created({ url => $_->[0] }), '22023', $_->[1],
	"outbox.http_allowed_hosts is not evaded by $_->[0]")
  for [ 'http://shop.example@evil.example/', qr/must not contain a user name or password/ ],
    [ 'http://evil.example#shop.example', qr/must not have a fragment/ ];
for my $allowed ('http://shop.example/x', 'https://SHOP.example:8443/', 'http://a.example.org/',
	'http://a.b.example.org/')
{
	is(refusal($node, created({ url => $allowed })), '',
		"outbox.http_allowed_hosts allows $allowed");
	sql("SELECT outbox_drop_sink('sink')");
}
refused("SELECT outbox_alter_sink('strict', config => '{\"url\": \"http://other.example/\"}')",
	'42501|22023', qr/outbox\.http_allowed_hosts/,
	'outbox_alter_sink() obeys outbox.http_allowed_hosts');

$node->append_conf('postgresql.conf',
	"outbox.http_allowed_hosts = ''\noutbox.http_deny_private = on\n");
$node->reload;
$node->poll_query_until('postgres', "SELECT current_setting('outbox.http_deny_private') = 'on'");
my $port = $receiver->{port};
my %private = (address => "http://127.0.0.1:$port/private",
	name => "http://localhost:$port/private",
	short => "http://127.1:$port/private", number => "http://2130706433:$port/private",
	mapped => "http://[::ffff:127.0.0.1]:$port/private", any => "http://0.0.0.0:$port/private");
my %said = map { $_ => refusal($node,
		created({ url => $private{$_} }) =~ s/'sink'/'private-$_'/r) } sort keys %private;
sql(enqueue('private'));
for my $form (sort keys %private)
{
	my $said = $said{$form} || wait_for_status($node, "private-$form", qr/^f/);
	like($said, qr/the host has a private address, and outbox\.http_deny_private is on/,
		"outbox.http_deny_private refuses $private{$form}");
}
is($receiver->count('/private'), 0, 'a receiver with a private address gets no request');

$node->stop;
done_testing();
