# The event catalog: changes are effective in other sessions at once, dumps keep it, and
# outbox_catalog() describes it as AsyncAPI.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use IO::Select;
use IO::Socket::INET;
use JSON::PP;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_node('main', conf => "outbox.relay = off\noutbox.catalog_mode = enforce\n");
sub sql { return $node->safe_psql('postgres', join ';', @_) }

my $session = $node->background_psql('postgres', on_error_stop => 0);
sub ask
{
	my $answer = $session->query($_[0]);
	$session->{stderr} = '';
	return $answer;
}
my $shop = q{SELECT 'taken' FROM outbox_enqueue('Order', 1, 'OrderConfirmed', '{"n": 1}')};
sub accepts { return ask($shop) eq 'taken' }

# A change of the catalog by another session is effective from the next statement on.
ok(!accepts(), 'enforce refuses an unregistered event type');
sql(q{SELECT outbox_register_event('OrderConfirmed', 1, 'sales',
	'{"properties": {"n": {"minimum": 1}}}')});
ok(accepts(), 'an event type registered by another session is accepted');
ask('BEGIN');
ok(accepts(), 'an event type registered by another session is accepted in a transaction');
sql(q{SELECT outbox_unregister_event('OrderConfirmed', 1)},
	q{SELECT outbox_register_event('OrderConfirmed', 1, 'sales',
		'{"properties": {"n": {"minimum": 2}}}')});
ok(!accepts(), 'a schema changed by another session is effective within a transaction');
ask('ROLLBACK');
sql(q{BEGIN}, q{SELECT outbox_unregister_event('OrderConfirmed', 1)},
	q{SELECT outbox_register_event('OrderConfirmed', 1, 'sales', '{}')}, q{ROLLBACK});
ok(!accepts(), 'a rolled-back registration is not effective');
ask('BEGIN ISOLATION LEVEL REPEATABLE READ');
is(ask('SELECT count(*) FROM outbox_event_types'), '1',
	'a REPEATABLE READ transaction takes its snapshot');
sql(q{SELECT outbox_register_event('OrderConfirmed', 1, 'sales',
	'{"properties": {"n": {"minimum": 0}}}')});
ok(accepts(), 'a REPEATABLE READ transaction uses a schema that is newer than its snapshot');
ask('COMMIT');
ok(accepts(), 'a newer schema stays effective after a REPEATABLE READ transaction');

# A role without the privilege cannot set outbox.catalog_mode, also before the library is loaded.
sql('CREATE ROLE app LOGIN', q{SELECT outbox_grant('app', 'producer')},
	'ALTER ROLE app SET outbox.catalog_mode = warn');
is($node->safe_psql('postgres', 'SHOW outbox.catalog_mode', extra_params => [ '-U', 'app' ]),
	'warn', 'outbox.catalog_mode can be set per role');
my ($code, $stdout, $stderr) = $node->psql('postgres', 'SHOW outbox.catalog_mode',
	extra_params => [ '-U', 'app', '-d', "dbname=postgres options='-c outbox.catalog_mode=off'" ]);
like($stderr, qr/permission denied/,
	'a role cannot change outbox.catalog_mode by connection options');
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$session->quit;
$node->restart;
($code, $stdout, $stderr) = $node->psql('postgres',
	q{SET outbox.catalog_mode = off; SET outbox.pii_mode = off; SELECT 1
		FROM outbox_enqueue('Order', 1, 'OrderLost', '{}'); SHOW outbox.catalog_mode},
		extra_params => [ '-U', 'app' ]);
like($stderr, qr/WARNING:  event_type "OrderLost" version 1 is not registered/,
	'a role cannot change outbox.catalog_mode before the library is loaded');

# References to remote schemas are refused, and no schema is fetched.
my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 0, Listen => 1)
  or die $!;
my $url = 'http://127.0.0.1:' . $listener->sockport . '/schema.json';
for my $schema (qq({"\$ref": "$url"}), qq({"\$schema": "$url"}),
	qq({"\$id": "$url", "\$ref": "schema.json#/a"}),
	qq({"properties": {"a": {"\$ref": "$url#/b"}}}))
{
	($code, $stdout, $stderr) = $node->psql('postgres',
		"SELECT outbox_register_event('OrderSent', 1, 'sales', '$schema')");
	like($stderr, qr/json_schema is invalid/,
		"a schema with a remote reference is refused: $schema");
}
ok(!IO::Select->new($listener)->can_read(0.1), 'no remote schema is fetched');

# No error message and no line of the server log has a value of a payload.
sql('CREATE TABLE given AS SELECT 1 AS id', q{ALTER TABLE given ADD payload jsonb},
	q{UPDATE given SET payload = '{"email": "s3cr3t", "n": "s3cr3t", "list": ["s3cr3t"]}'},
	q{SELECT outbox_register_event('MailSent', 1, 'mail',
		'{"properties": {"n": {"type": "integer"}}}', pii_fields => '{/email}'),
		outbox_register_event('MailSent', 2, 'mail', '{"properties": {"n": {"enum": ["a"]}}}'),
		outbox_register_event('MailSent', 3, 'mail',
		'{"additionalProperties": {"pattern": "^x$"}}'),
		outbox_register_event('MailSent', 4, 'mail',
		'{"anyOf": [{"maxProperties": 1}, {"properties": {"n": {"const": 1}}}]}')});
for my $mode (qw(strip refuse))
{
	for my $version (1 .. 4)
	{
		($code, $stdout, $stderr) = $node->psql('postgres',
			"SET outbox.pii_mode = $mode; SELECT outbox_enqueue('Mail', 1, 'MailSent', payload, "
			  . "event_version => $version) FROM given");
		like($stderr, qr/^psql.*ERROR:  payload/,
			"$mode, version $version: an invalid payload is refused");
		unlike($stderr, qr/s3cr3t/, "$mode, version $version: the error does not show the payload");
	}
}
unlike(slurp_file($node->logfile), qr/^(?!.*statement: ).*s3cr3t/m,
	'the server log does not show a refused payload');

# Dump and restore.
sql('TRUNCATE _outbox.event_types', q{SELECT outbox_register_event('OrderConfirmed', 1, 'sales',
	'{"required": ["n"]}', 'd', '{c}', false, '{/e}')},
	q{SELECT outbox_register_event('Bestellung/bestätigt "ed', 1, 'sales & Co',
		'{"$schema": "http://json-schema.org/draft-07/schema#", "items": {"$ref": "#"}}')},
	q{SELECT outbox_register_event('order_confirmed', 2, 'x')},
	q{SELECT outbox_register_event('order.confirmed', 2, 'x')});
my $rows = sql('SELECT * FROM outbox_event_types ORDER BY 1, 2');
my $document = sql(q{SELECT outbox_catalog('asyncapi')});
my $dump = "${PostgreSQL::Test::Utils::tmp_check}/catalog.sql";
$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr('postgres') ], 'pg_dump succeeds');
sql('CREATE DATABASE copy');
$node->command_ok([ 'psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d',
	$node->connstr('copy') ], 'the dump restores');
is($node->safe_psql('copy', 'SELECT * FROM outbox_event_types ORDER BY 1, 2'), $rows,
	'a restore keeps the event catalog');
isnt($node->psql('copy', q{SELECT outbox_enqueue('Order', 1, 'OrderConfirmed', '{}')}), 0,
	'a restored event catalog is enforced');

# A schema has the same effect in an encoding with other bytes for letters and another order of
# keys.
sql(q{CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'});
$node->safe_psql('latin', q{SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE});
for my $database (qw(postgres latin))
{
	my $ask = sub {
		my ($code, $stdout, $stderr) = $node->psql($database,
			"SET client_encoding = 'UTF8'; SET client_min_messages = error; SELECT 'done' "
			  . "FROM $_[0]");
		return $stdout || $stderr =~ s/.*ERROR:  .*: (".*?)\n.*/$1/sr;
	};
	is($ask->(q{outbox_register_event('BedCounted', 1, 'Gärtnerei',
		'{"properties": {"é": {"type": "integer"}, "aa": {"pattern": "^.$"},
			"ü": {"const": {"é": 1, "aa": 2}}},
		"required": ["é", "aa"], "additionalProperties": false}')}), 'done',
		"$database: a schema with non-ASCII names is registered");
	my $count = sub { return $ask->("outbox_enqueue('Bed', 1, 'BedCounted', '$_[0]')") };
	is($count->('{"é": 1, "aa": "ß", "ü": {"aa": 2, "é": 1}}'), 'done',
		"$database: a valid payload is accepted");
	is($count->('{"é": "1", "aa": "ß"}'), '"type" at "/é"',
		"$database: a property of another type is refused");
	is($count->('{"é": 1, "aa": "ßß"}'), '"pattern" at "/aa"',
		"$database: a pattern counts characters, not bytes");
	is($count->('{"aa": "ß"}'), '"required" at ""',
		"$database: a missing required property is refused");
	is($count->('{"é": 1, "aa": "ß", "ö": 1}'), '"additionalProperties" at ""',
		"$database: an additional property is refused");
}

# AsyncAPI 3.0: every reference resolves, and every key has only allowed characters.
my $api = JSON::PP->new->decode($document);
is($api->{asyncapi}, '3.0.0', 'outbox_catalog() returns an AsyncAPI 3.0.0 document');
ok($api->{info}{title} && $api->{info}{version}, 'the AsyncAPI document has a title and a version');
my %messages = %{ $api->{components}{messages} };
is(join(' ', sort keys %messages),
	'Bestellung_2fbest_c3a4tigt_20_22ed_v1 OrderConfirmed_v1 order_2econfirmed_v2 '
	  . 'order_5fconfirmed_v2',
	'the AsyncAPI document has a message for each version of an event type');
for my $key (keys %messages)
{
	is_deeply([ sort keys %{ $api->{channels}{$key} } ], [ 'address', 'messages' ],
		"$key: the channel has an address and messages");
	is_deeply($api->{channels}{$key}{messages},
		{ $key => { '$ref' => "#/components/messages/$key" } },
		"$key: the channel refers to its message");
	is_deeply($api->{operations}{"send_$key"},
		{ action => 'send', channel => { '$ref' => "#/channels/$key" },
			messages => [ { '$ref' => "#/channels/$key/messages/$key" } ] },
			"$key: an operation sends the message");
}
is(scalar keys %{ $api->{channels} }, scalar keys %messages,
	'the AsyncAPI document has one channel per message');
is(scalar keys %{ $api->{operations} }, scalar keys %messages,
	'the AsyncAPI document has one operation per message');
is_deeply($messages{OrderConfirmed_v1}{payload}{schema}, { required => ['n'] },
	'a message has the registered schema');
like($messages{'Bestellung_2fbest_c3a4tigt_20_22ed_v1'}{payload}{schemaFormat}, qr/draft-07$/,
	'a message has the schema format of its draft');
is($messages{'Bestellung_2fbest_c3a4tigt_20_22ed_v1'}{payload}{schema}{items}{'$ref'},
	'#/components/messages/Bestellung_2fbest_c3a4tigt_20_22ed_v1/payload/schema',
	'a reference of a schema to itself points to its place in the document');
is_deeply($messages{order_2econfirmed_v2}{payload}, {},
	'an event type without a schema has an empty payload object');

done_testing();
