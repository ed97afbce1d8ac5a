# A Kafka sink writes committed events in the documented wire format, to the partition that Kafka's
# own producer would choose. A broker that hangs or refuses, and an invalid config, are reported and
# do not delay other sinks.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Encode qw(decode_utf8 encode_utf8);
use JSON::PP;
use OutboxKafka;
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

need_kafka();

my %secrets = (password => 'pw_"Right"\\0123456789', wrong => 'pw_Wrong0123456789');
my $secrets_file = write_secrets(PostgreSQL::Test::Utils::tempdir() . '/secrets', \%secrets);
my $certificates = make_certificates();
my $kafka = OutboxKafka->start('broker', '--sasl', "shop:$secrets{password}", '--cert',
	"$certificates/server.crt", '--key', "$certificates/server.key");
my $receiver = OutboxReceiver->start('receiver');
my $node = start_node('main',
	init => { extra => [ '-E', 'UTF8', '--locale=C' ] },
	conf => "outbox.secrets_file = '$secrets_file'\noutbox.backoff_base = '100ms'\n"
	  . "outbox.backoff_max = '500ms'\nmax_worker_processes = 16\n"
	  . "log_statement = 'all'\nlog_min_messages = debug1\n");
$node->safe_psql('postgres', 'SELECT outbox_setup()');
my $bootstrap = $kafka->address;

sub sql
{
	return $node->safe_psql('postgres', @_);
}

# Enqueues one event and returns its tracking_id.
sub event
{
	my ($type, $aggregate, $rest, $payload) = @_;
	$rest = $rest ? ", $rest" : '';
	$payload //= '{}';
	return sql("SELECT outbox_enqueue('Order', '$aggregate', '$type', '$payload'$rest)");
}

# The record with an event; undef if none arrives.
sub record
{
	my ($topic, $id) = @_;
	my $found;
	wait_until(sub { ($found) = grep { (ids($_))[0] eq $id } $kafka->records($topic); $found });
	return $found;
}

# A sink with a filter for one event type, its name.
sub sink
{
	my ($name, $config, $options) = @_;
	create_kafka_sink($node, $kafka, $name, { topic => $name, %{ $config // {} } },
		"event_types => ARRAY['$name']" . ($options ? ", $options" : ''));
}

# Matching lines of the server log from a position on.
sub in_log
{
	my ($pattern, $from) = @_;
	return grep { /$pattern/ } split /\n/, substr slurp_file($node->logfile), $from // 0;
}

# One call creates a sink that delivers events.
sql(qq{SELECT outbox_create_sink('events', 'kafka',
	'{"bootstrap.servers": "$bootstrap", "topic": "shop.{aggregate_type}",
	  "format": "cloudevents"}')});
create_kafka_sink($node, $kafka, 'attributes',
	{ topic => 'attributes', metadata => [ 'region', 'absent' ] },
	"event_types => ARRAY['Euro € 😀']");
sink('template', { topic => 'a.{tenant_id}_{event_type}-{aggregate_type}.b' });
create_kafka_sink($node, $kafka, 'debezium', { format => 'debezium' },
	"event_types => ARRAY['Routed'], aggregate_types => ARRAY['Customer', 'Invoice']");
my $id = event('OrderConfirmed', 1);
my $templated = event('template', 1, 'tenant_id => 7');
ok(record('shop.Order', $id), 'an event that commits after outbox_create_sink() arrives')
  or die 'no need to go on';
is(sql("SELECT kind, ordered FROM outbox_consumers WHERE name = 'events'"), 'kafka|t',
	'a Kafka sink is ordered by default');
ok(wait_until(sub { sql("SELECT status FROM outbox_deliveries WHERE tracking_id = '$id'")
	eq 'COMPLETED' }), 'an event that has arrived is COMPLETED in outbox_deliveries');
like(wait_for_status($node, 'events', qr/^t\|[12] delivered/), qr/^t\|[12] delivered/,
	'outbox_status() counts the delivered events');
sql('BEGIN; ' . enqueue('rolled back') . ' ROLLBACK');

# The headers, one by one.
my $parent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
my $before = int(1000 * time);
$id = event('Euro € 😀', 'Ordnung "€" 😀',
	"event_version => 3, tenant_id => 42, metadata => "
	  . "'{\"traceparent\": \"$parent\", \"region\": \"Süd\", \"other\": 1}'",
	'{"what": "€ 😀", "total": 12.50}');
my $record = record('attributes', $id);
my ($position, $time, $payload) = split /\|/,
  sql(q{SELECT id, to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), payload
	FROM outbox_messages WHERE tracking_id = '} . $id . q{'});
is(encode_utf8($record->{payload}), $payload,
	'the value of a record is the payload as text of jsonb');
is(encode_utf8($record->{key}), 'Ordnung "€" 😀', 'the key of a record is the aggregate_id');
cmp_ok($record->{ts}, '>=', $before, 'the timestamp of a record is the time of sending');
my %headers = %{ headers($record) };
like($headers{ce_sequence}, qr/^0\d{17,19}$/, 'ce_sequence sorts as text');
is(delete($headers{ce_sequence}) + 0, $position, 'ce_sequence is the id in the log');
is_deeply({ map { $_ => encode_utf8($headers{$_}) } keys %headers }, {
		ce_specversion => '1.0', ce_id => $id, ce_type => 'Euro € 😀', ce_source => '/postgres',
		ce_subject => 'Order/Ordnung "€" 😀', ce_time => $time, ce_partitionkey => 'Ordnung "€" 😀',
		ce_tenantid => '42',
		ce_eventversion => '3', ce_region => 'Süd', 'content-type' => 'application/json',
		traceparent => $parent },
	'the headers are those of CloudEvents, content-type, traceparent and the metadata keys of the '
	  . 'config, in UTF-8');
is(scalar @{ $record->{headers} }, 2 * (1 + keys %headers), 'each header is in the record once');

# traceparent is copied, generated or absent.
my %trace = (
	"trace_id => '4bf92f3577b34da6a3ce929d0e0e4736'" =>
	  qr/^00-4bf92f3577b34da6a3ce929d0e0e4736-(?!0{16})[0-9a-f]{16}-0[01]$/,
	"trace_id => '$parent'" => qr/^\Q$parent\E$/,
	"trace_id => 'yesterday'" => undef);
for my $given (sort keys %trace)
{
	my $came = record('shop.Order', event('OrderConfirmed', 'traced', $given));
	my $value = $came && headers($came)->{traceparent};
	my $wanted = $trace{$given};
	ok($came && ($wanted ? ($value // '') =~ $wanted : !defined $value),
		"traceparent for $given: " . ($value // 'absent'));
}

# JSON null.
my $tombstone = record('shop.Order', event('OrderDeleted', 1, '', 'null'));
ok($tombstone && exists $tombstone->{payload} && !defined $tombstone->{payload},
	'the payload JSON null becomes a tombstone');
is($tombstone->{key}, 1, 'a tombstone has the key of its aggregate');
is(record('shop.Order', event('OrderDeleted', 1, '', '""'))->{payload}, '""',
	'the payload "" becomes no tombstone');

# Topics with placeholders.
ok(record('a.7_template-Order.b', $templated),
	'a topic can have tenant, event type and aggregate type in its name');

# Records as Debezium's outbox router writes them.
sql(q{SELECT outbox_enqueue(t, a, 'Routed', p::jsonb, event_version => 2, tenant_id => 9,
	metadata => '{"traceparent": 1}')
	FROM (VALUES (1, 'Customer', '42', '{"b": 1.50, "a": "€ \"😀\""}'), (2, 'Customer', 'Zoë',
	'[1, 2]'), (3, 'Invoice', '1', '"text"'),
		(4, 'Invoice', '1', '{}'), (5, 'Invoice', '1', 'null')) v (n, t, a, p) ORDER BY n});
my @rows = map { decode_json($_) } split /\n/,
  sql(q{SELECT json_build_object('id', id, 'tracking_id', tracking_id, 'aggregate_type',
	aggregate_type,
		'aggregate_id', aggregate_id, 'event_type', event_type, 'event_version', event_version,
		'tenant_id', tenant_id, 'trace_id', trace_id,
		'metadata', metadata::text, 'payload', payload::text, 'occurred_at', (extract(epoch
		FROM occurred_at) * 1000000)::bigint)
	FROM outbox_messages WHERE event_type = 'Routed' ORDER BY id});
$kafka->wait_for('outbox.event.Customer', 2);
$kafka->wait_for('outbox.event.Invoice', 3);
my @written = map { { topic => $_->{topic}, key => $_->{key}, value => $_->{payload},
	headers => [ $_->{headers} ], timestamp => $_->{ts} } }
  map { $kafka->records("outbox.event.$_") } 'Customer', 'Invoice';
is_deeply(\@written,
	[ map { { topic => "outbox.event.$_->{aggregate_type}", key => $_->{aggregate_id},
		value => $_->{payload},
			headers => [ [ 'id', $_->{tracking_id} ] ],
			timestamp => int($_->{occurred_at} / 1000) } } @rows ],
	'debezium: topic, key, header id and value are those of the documented outbox router; '
	  . 'the timestamp is occurred_at')
  or diag(explain(\@written));
SKIP:
{
	my @jars = glob(($ENV{OUTBOX_DEBEZIUM} // '/nowhere') . '/lib/debezium-*.jar');
	skip 'OUTBOX_DEBEZIUM names no directory with Debezium', 1 unless @jars;
	# occurred_at without time zone, the only kind that the router accepts as timestamp.
	my $routed = service('debezium', join('', map { encode_json($_) . "\n" } @rows), 'route',
		'table.field.event.timestamp=occurred_at');
	my @routed = map { decode_json($_) } split /\n/, $routed;
	delete $_->{partition} for @routed;
	is_deeply(\@written, \@routed,
		"debezium: Debezium's own router writes the same records for these rows") or diag($routed);
}
# Payload versions.
sql(q{CREATE FUNCTION up(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1 || '{"up": true}' $$;
	SELECT outbox_register_upcaster('upcast', 1, 'up(jsonb)')});
sink('upcast');
$id = event('upcast', 1, undef, '{"n": 1}');
my $upcast = record('upcast', $id);
is_deeply([ headers($upcast)->{ce_eventversion}, decode_json($upcast->{payload}) ],
	[ 2, { n => 1, up => JSON::PP::true } ], 'a sink sends the upcast payload and its version');
drop_sinks($node, 'events', 'attributes', 'template', 'debezium', 'upcast');

# A record is in the partition that Kafka's own partitioner chooses for its key.
my ($partitions, @keys) = (13, 1 .. 700, map { "order-$_-of-several" } 1 .. 400);
push @keys, map { my $length = $_; map { chr($_) x $length } ord('x'), 0x20ac, 0x1f600 } 1 .. 60;
push @keys, map { 'k' x $_ } 61 .. 255;
push @keys, "'", '"', '\\', '%', '+', ' ', "\t", "a\nb", '€', 'é"\'', '{}', "\x{7f}";
my %seen;
@keys = grep { !$seen{$_}++ && length(encode_utf8($_)) <= 255 }
  map { utf8::is_utf8($_) || !/[^\x00-\x7f]/ ? $_ : decode_utf8($_) } @keys;
cmp_ok(scalar @keys, '>=', 1000, 'at least 1000 different keys are sent (' . @keys . ')');
$kafka->topic('keys', $partitions);
sink('keys');
my $events =
  encode_json([ map { { aggregate_type => 'Order', aggregate_id => "$_", event_type => 'keys',
	payload => {} } } @keys ]);
sql("SELECT count(*) FROM unnest(outbox_enqueue_many(\$events\$$events\$events\$))");
my %partition = map { $_->{key} => $_->{partition} } $kafka->wait_for('keys', scalar @keys);
is(scalar keys %partition, scalar @keys, 'a record with each key arrives');
my @expected = grep { /^\d+$/ } split /\n/,
  service('kafka',
	join('', map { encode_utf8($_) =~ s/([^0-9A-Za-z])/sprintf '%%%02X', ord $1/ger . "\n" } @keys),
	'partitions', $partitions);
my @misplaced = grep { ($partition{ $keys[$_] } // -1) != $expected[$_] } 0 .. $#keys;
is(scalar @misplaced, 0, "each key is in the partition that Kafka's own partitioner chooses")
  or diag(encode_utf8(join ' ', @keys[ grep { defined } @misplaced[ 0 .. 4 ] ]));
is(scalar keys %{ { map { $_ => 1 } @expected } }, $partitions,
	"the keys are in all $partitions partitions");
drop_sinks($node, 'keys');

# An invalid config is refused, and changes nothing.
my %good = ('bootstrap.servers' => $bootstrap, topic => 'refused');
sub refused
{
	my ($config, $words, $promise) = @_;
	my %given = (%good, %$config);
	$config = JSON::PP->new->canonical->encode({ map { $_ => $given{$_} }
		grep { defined $given{$_} } keys %given });
	my $error = refusal($node,
		"SELECT outbox_create_sink('refused', 'kafka', \$config\$$config\$config\$)");
	ok($error =~ /ERROR:  22023:/ && $error =~ $words, $promise)
	  or diag($error || 'it was accepted');
	return $error;
}
like(refused({ 'colour' => 'red' }, qr/No such configuration property: "colour"/,
	"an unknown key is refused with librdkafka's message"), qr/HINT:.*topic, format, metadata/,
	"the hint for an unknown key lists the sink's own keys");
refused({ 'linger.ms' => 'soon' }, qr/"linger\.ms".*nvalid value/,
	'an invalid number for a librdkafka property is refused');
refused({ 'security.protocol' => 'pigeon' }, qr/"security\.protocol".*nvalid value/,
	'an invalid enum value for a librdkafka property is refused');
refused({ 'compression.type' => JSON::PP::true }, qr/"compression\.type"/,
	'a value of the wrong type is refused');
refused({ 'dr_cb' => 'x' }, qr/"dr_cb"/, 'a callback property is refused');
refused({ 'linger.ms' => { a => 1 } }, qr/"linger\.ms"/,
	'an object as value of a property is refused');
refused({ topic => undef }, qr/"topic"/, 'a config without topic is refused');
refused({ topic => $_ }, qr/"topic"/, "an invalid topic is refused: $_")
  for '', '.', '..', 'a b', 'a/b', 'a€', '{aggregate_id}', '{aggregate_type', 'aggregate_type}',
  '{}', '{{aggregate_type}}', 'x' x 250;
refused({ 'bootstrap.servers' => undef }, qr/"bootstrap\.servers"/,
	'a config without bootstrap.servers is refused');
refused({ format => $_ }, qr/cloudevents or debezium/, "format $_ is refused") for 'raw',
  'cloudevents-batch';
refused({ metadata => 'region' }, qr/"metadata"/, 'metadata that is no array is refused');
refused({ metadata => ['id'] }, qr/"id"/,
	'a metadata key with the name of an attribute is refused');
refused({ timeout => $_ }, qr/"timeout"/, "timeout $_ is refused") for 0, -1, 'soon';
refused({ $_ => '1' }, qr/"\Q$_\E" is set by the sink itself/,
	"$_ is refused, because the sink sets it") for 'enable.idempotence', 'acks',
	'request.required.acks',
  'message.timeout.ms', 'delivery.timeout.ms', 'retries', 'transactional.id', 'log.queue';
refused({ $_ => '/tmp/x' }, qr/"\Q$_\E" is not allowed/, "$_ is refused, because it could run code")
  for 'plugin.library.paths', 'ssl.engine.location', 'sasl.kerberos.kinit.cmd';
for my $name ('sasl.password', 'ssl.key.password', 'ssl.keystore.password', 'ssl.key.pem',
	'sasl.oauthbearer.client.secret')
{
	unlike(refused({ $name => 'pw_literal' }, qr/"\Q$name\E" must take its value from a secret/,
		"a literal as $name is refused"), qr/^(?!LINE).*pw_literal/m,
		"the error does not show the literal of $name");
}
like(refusal($node, qq{SELECT outbox_create_sink('refused', 'kafka', '["topic"]')}),
	qr/ERROR:  22023:/, 'a config that is no object is refused');
sink('kept');
my $row = sql('SELECT c::text, s::text FROM outbox_consumers c JOIN outbox_sinks s '
	. 'USING (consumer_id)');
like(refusal($node,
	"SELECT outbox_alter_sink('kept', '{\"bootstrap.servers\": \"$bootstrap\", "
	  . "\"topic\": \"kept\", \"colour\": \"red\"}', max_attempts => 7)"),
	qr/ERROR:  22023:.*No such configuration property: "colour"/,
	'outbox_alter_sink() refuses an unknown key');
is(sql('SELECT c::text, s::text FROM outbox_consumers c JOIN outbox_sinks s USING (consumer_id)'),
	$row, 'a refused config changes no row');

# Testing, altering, pausing, resuming and dropping a sink.
like(sql("CALL outbox_test_sink('kept', NULL, NULL)"), qr/^t\|.*topic kept, partition 0, offset 0/,
	'outbox_test_sink() writes a record and returns its position');
is(headers(($kafka->wait_for('kept', 1))[0])->{ce_type}, 'OutboxSinkTested',
	'the record of outbox_test_sink() has the type OutboxSinkTested');
$id = event('kept', 1);
ok(record('kept', $id), 'an event arrives after outbox_test_sink()');
sql("SELECT outbox_alter_sink('kept', '{\"bootstrap.servers\": \"$bootstrap\", "
	. "\"topic\": \"moved\", \"linger.ms\": 1, \"compression.type\": \"gzip\"}')");
$id = event('kept', 1);
ok(record('moved', $id), 'an altered sink writes to its new topic');
sql("SELECT outbox_pause('kept')");
$id = event('kept', 1);
like(sql("CALL outbox_test_sink('kept', NULL, NULL)"), qr/^t\|/,
	'outbox_test_sink() works for a paused sink');
sleep 0.3;
is(scalar(grep { (ids($_))[0] eq $id } $kafka->records('moved')), 0,
	'a paused sink sends no event');
sql("SELECT outbox_resume('kept')");
ok(record('moved', $id), 'a resumed sink sends the events of its pause');
drop_sinks($node, 'kept');
is(sql('SELECT (SELECT count(*) FROM outbox_consumers) + (SELECT count(*) FROM outbox_sinks)'), 0,
	'outbox_drop_sink() leaves no row of the sink');

# Passwords and certificates. name => [ listener, config, reason of the refusal ]
my %tls = ('ssl.ca.location' => "$certificates/ca.crt");
my %stranger = ('ssl.ca.location' => "$certificates/stranger.crt");
my %right = ('sasl.mechanism' => 'PLAIN', 'sasl.username' => 'shop',
	'sasl.password' => '${secret:password}');
my %wrong = (%right, 'sasl.password' => '${secret:wrong}');
my %cases = (
	'sasl' => [ 'sasl', { 'security.protocol' => 'SASL_PLAINTEXT', %right } ],
	'tls' => [ 'tls', { 'security.protocol' => 'SSL', %tls } ],
	'sasl-tls' => [ 'sasl_tls', { 'security.protocol' => 'SASL_SSL', %right, %tls } ],
	'wrong-password' => [ 'sasl', { 'security.protocol' => 'SASL_PLAINTEXT', %wrong, timeout => 1 },
		qr/authentication/i ],
	'wrong-password-tls' => [ 'sasl_tls', { 'security.protocol' => 'SASL_SSL', %wrong, %tls },
		qr/authentication/i ],
	'unknown-user' => [ 'sasl',
		{ 'security.protocol' => 'SASL_PLAINTEXT', %right, 'sasl.username' => 'stranger' },
		qr/authentication/i ],
	'no-password' => [ 'sasl', {}, qr/security\.protocol|disconnected|closed/i ],
	'no-ca' => [ 'tls', { 'security.protocol' => 'SSL' }, qr/certificate|verif/i ],
	'another-ca' => [ 'tls', { 'security.protocol' => 'SSL', %stranger }, qr/certificate|verif/i ],
	'another-ca-sasl' => [ 'sasl_tls', { 'security.protocol' => 'SASL_SSL', %right, %stranger },
		qr/certificate|verif/i ],
	'no-tls' => [ 'tls', {}, qr/security\.protocol|disconnected|closed/i ]);
my @cases = sort keys %cases;
sink($_, { 'bootstrap.servers' => $kafka->address($cases{$_}[0]), %{ $cases{$_}[1] } }) for @cases;
sql(join ';',
	map { my $name = $_; map { "SELECT outbox_enqueue('Order', $_, '$name', "
		. "'{}')" } 1 .. 3 } @cases);
for my $name (grep { !$cases{$_}[2] } @cases)
{
	is(scalar(my @came = $kafka->wait_for($name, 3)), 3, "$name: every event arrives");
	like(wait_for_status($node, $name, qr/^t/), qr/^t/,
		"$name: outbox_status() shows the sink as ok");
}
for my $name (grep { $cases{$_}[2] } @cases)
{
	my $reason = $cases{$name}[2];
	like(wait_for_status($node, $name, qr/^f\|.*$reason/s), qr/^f\|.*$reason/s,
		"$name: the sink is in trouble, and outbox_status() gives the reason");
	is(scalar(my @none = $kafka->records($name)), 0, "$name: no record is written");
	like((in_log(qr/WARNING:.*sink "$name" is in trouble/))[0], $reason,
		"$name: the server log gives the reason");
}
like(sql("CALL outbox_test_sink('wrong-password', NULL, NULL)"), qr/^f\|.*authentication/i,
	'outbox_test_sink() returns the reason of a refused password');
is(sql('SELECT (SELECT count(*) FROM outbox_retries) + (SELECT count(*) FROM outbox_messages_dlq)'),
	0, 'refused passwords and certificates lead to no retry and no dead letter');
my $corrected = encode_json({ 'bootstrap.servers' => $kafka->address('sasl'),
	topic => 'wrong-password', %{ $cases{sasl}[1] } });
sql("SELECT outbox_alter_sink('wrong-password', \$config\$$corrected\$config\$)");
is(scalar(my @late = $kafka->wait_for('wrong-password', 3)), 3,
	'every event arrives once the password is corrected');
like(refusal($node,
	"SELECT outbox_create_sink('nowhere', 'kafka', "
	  . "'{\"bootstrap.servers\": \"x\", \"topic\": \"x\", "
	  . "\"sasl.password\": \"\${secret:nowhere}\"}')") || wait_for_status($node, 'nowhere',
	qr/^f/),
	qr/nowhere/, 'the error for a missing secret names the secret');
my %places = (
	outbox_sinks => sql('SELECT s::text FROM outbox_sinks s'),
	'outbox_status()' => sql('SELECT s::text FROM outbox_status() s'),
	outbox_deliveries => sql('SELECT d::text FROM outbox_deliveries d'),
	'the log' => slurp_file($node->logfile));
like($places{outbox_sinks}, qr/\$\{secret:password\}/, 'outbox_sinks shows the name of a secret');
for my $place (sort keys %places)
{
	is(scalar(grep { index($places{$place}, $_) >= 0 } values %secrets), 0,
		"$place shows no secret");
}
sql("SELECT outbox_drop_sink(name) FROM outbox_consumers WHERE kind = 'kafka'");

# Log messages of librdkafka.
my $from = -s $node->logfile;
my $started = time;
sink('loud', { debug => 'all' });
event('loud', $_) for 1 .. 20;
$kafka->wait_for('loud', 20);
ok(wait_until(sub { in_log(qr/LOG:.*sink "loud": /, $from) }),
	"log messages of librdkafka are in the server log, with the name of the sink");
drop_sinks($node, 'loud');
my @lines = in_log(qr/sink "loud": /, $from);
cmp_ok(scalar @lines, '<=', 5 * (1 + int((time - $started) / 10 + 1)),
	'log messages of librdkafka are rate-limited (' . @lines . ' lines)');
is(scalar(in_log(qr/^%\d\|/)), 0, 'librdkafka writes no message to stderr');

# While the broker hangs: connected sinks, also of other databases.
for my $name ('hung', 'gone')
{
	sql("CREATE DATABASE $name");
	$node->safe_psql($name,
		'SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE; '
		  . 'SELECT outbox_setup()');
	create_kafka_sink($node, $kafka, $name, { topic => $name }, undef, $name);
	$node->safe_psql($name, enqueue(1));
}
create_sink($node, 'http', { url => $receiver->url('/beside') }, "event_types => ARRAY['beside']");
create_kafka_sink($node, $kafka, 'beside', { topic => 'beside' }, "event_types => ARRAY['beside']");
create_kafka_sink($node, $kafka, 'impatient', { topic => 'impatient', timeout => 1 },
	"event_types => ARRAY['beside']");
my $some = sub {
	sql("SELECT count(outbox_enqueue('Order', (i % 10)::text, 'beside', jsonb_build_object('n', "
		. "i))) FROM generate_series(1, 300) i") };
my $alone = elapsed(sub { $some->(); $receiver->wait_for(300, 20, '/beside') });
is(scalar(my @hung = $kafka->wait_for($_, 1)), 1, "a sink of database $_ delivers its event")
  for 'hung', 'gone';
is(scalar(my @first = $kafka->wait_for($_, 300)), 300,
	"sink $_ delivers its events before the broker hangs") for 'beside', 'impatient';
sub in_flight
{
	my ($name, $database, $count) = @_;
	like(wait_for_status($node, $name, qr/\b$count claimed/, 20, $database), qr/\b$count claimed/,
		"$name: outbox_status() shows $count events in flight");
}
sub promptly
{
	my ($promise, $code) = @_;
	my $took = elapsed($code);
	cmp_ok($took, '<', 3, sprintf('%s (%.2f s)', $promise, $took));
}
$kafka->pause;
my $beside = elapsed(sub { $some->(); $receiver->wait_for(600, 20, '/beside') });
is($receiver->count('/beside'), 600, 'an HTTP sink delivers every event while the broker hangs');
cmp_ok($beside, '<', 2 * $alone + 1,
	sprintf('an HTTP sink is as fast as before while the broker hangs (%.2f s, %.2f s)', $beside,
		$alone));
in_flight('beside', 'postgres', 300);
# Under sanitizers a short transaction is sampled now and then. A transaction that stays open would
# be in the next sample, too.
my $seen_at_most = $ENV{OUTBOX_SANITIZED} ? 1 : 0;
my %samples;
for (1 .. 20)
{
	$samples{$_}++ for split /\n/,
	  sql(q{SELECT pid || ' since ' || coalesce(xact_start, state_change) FROM pg_stat_activity
		WHERE backend_type = 'outbox relay'
		AND (xact_start IS NOT NULL OR backend_xid IS NOT NULL OR backend_xmin IS NOT NULL
		OR state <> 'idle')});
	sleep 0.02;
}
is_deeply([ grep { $samples{$_} > $seen_at_most } keys %samples ], [],
	'no transaction is open while records are in flight');
like(wait_for_status($node, 'impatient', qr/^f\|.*no sign/),
	qr/^f\|.*no sign from the brokers within 1 s/, 'a sink is in trouble after its timeout');
like(sink_status($node, 'beside'), qr/^t\|/, 'a sink is not in trouble before its timeout');
$node->safe_psql('hung', join '', map { enqueue(1) } 1 .. 5);
in_flight('hung', 'hung', 5);
promptly('DROP DATABASE does not wait for a broker that hangs', sub { sql('DROP DATABASE hung') });
promptly('a shutdown does not wait for a broker that hangs', sub { $node->stop('fast') });
$kafka->resume;
$node->start;
for my $name ('beside', 'impatient')
{
	my @logged = split /\n/,
	  sql("SELECT tracking_id FROM outbox_messages WHERE event_type = 'beside' "
		. "ORDER BY aggregate_id, id");
	my @came = $kafka->wait_for($name,
		sub { my %came = map { $_ => 1 } ids(@_); !grep { !$came{$_} } @logged }, 30);
	my (%seen, %came);
	push @{ $came{ $_->{key} } }, ids($_) for grep { !$seen{ (ids($_))[0] }++ } @came;
	is_deeply([ map { @{ $came{$_} } } sort keys %came ], \@logged,
		"$name: every event arrives in the order of its aggregate once the broker responds");
	note(@came - @logged . ' repeats');
}

# While the broker is down.
$kafka->kill;
$node->safe_psql('gone', join '', map { enqueue(1) } 1 .. 5);
$some->();
like(wait_for_status($node, 'beside', qr/^f/), qr/^f\|.*(refused|down|Disconnected)/i,
	'outbox_status() shows that the broker is down');
like(wait_for_status($node, 'gone', qr/^f/, 20, 'gone'), qr/^f\|.*(refused|down|Disconnected)/i,
	'outbox_status() of another database shows that the broker is down');
promptly('DROP DATABASE does not wait for a broker that is down',
	sub { sql('DROP DATABASE gone') });
promptly('outbox_drop_sink() does not wait for a broker that is down',
	sub { drop_sinks($node, 'impatient') });
promptly('a shutdown does not wait for a broker that is down', sub { $node->stop('fast') });

done_testing();
