# An HTTP sink sends committed events in the documented wire format, within milliseconds of the
# commit.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Digest::SHA qw(hmac_sha256_base64);
use Encode qw(encode_utf8);
use IPC::Run;
use MIME::Base64 qw(decode_base64);
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

my %secrets = (
	shop => 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
	former => 'whsec_' . MIME::Base64::encode_base64('the secret of last year, 32 byte', ''),
	token => 'tk_0123456789abcdef');
my $secrets_file = write_secrets(PostgreSQL::Test::Utils::tempdir() . '/secrets', \%secrets);

my $receiver = OutboxReceiver->start('receiver');
my $node = start_node('main',
	init => { extra => [ '-E', 'UTF8', '--locale=C' ] },
	conf => "outbox.secrets_file = '$secrets_file'\noutbox.backoff_base = '100ms'\n"
	  . "outbox.backoff_max = '500ms'\n");
$node->safe_psql('postgres', 'SELECT outbox_setup()');

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

# The request with an event to a path; undef if none arrives.
sub request
{
	my ($path, $id) = @_;
	my $found;
	wait_until(sub { ($found) = grep { $_->{id} eq $id } $receiver->records($path); $found });
	return $found;
}

# One call creates a sink that delivers events.
create_sink($node, 'first', { url => $receiver->url('/first') }, "event_types => ARRAY['First']");
my $id = event('First', 1);
ok(request('/first', $id), 'an event that commits after outbox_create_sink() arrives')
  or die 'no need to go on';
my @latency;
for my $round (1 .. 7)
{
	$id = event('First', 1);
	my $committed = time;
	my $request = request('/first', $id);
	push @latency, $request->{at} - $committed if $request;
}
@latency = sort { $a <=> $b } @latency;
is(scalar @latency, 7, 'events that commit later arrive, too');
note sprintf 'from the return of psql to the arrival: median %.1f ms', 1000 * ($latency[3] // 0);
cmp_ok($latency[3] // 99, '<', 0.5, 'the median latency is below the poll interval of the relay');

# Rolled-back events never arrive; the end of the test checks that.
sql('BEGIN; ' . enqueue('rolled back') =~ s/OrderConfirmed/First/r . ' ROLLBACK');
sql("BEGIN; SELECT outbox_enqueue('Order', 'before the savepoint', 'First', '{}'); SAVEPOINT s;
	SELECT outbox_enqueue('Order', 'in the savepoint', 'First', '{}'); ROLLBACK TO s;
	SELECT outbox_enqueue('Order', 'after the savepoint', 'First', '{}'); COMMIT");
my $scheduled = event('First', 'scheduled', "available_at => now() + interval '1.5 s'");
my $scheduled_for = time + 1.5;
sql("BEGIN; SELECT outbox_enqueue('Order', 'prepared', 'First', '{}'); PREPARE TRANSACTION 'p'");
sql("BEGIN; SELECT outbox_enqueue('Order', 'prepared and rolled back', 'First', '{}'); "
	. "PREPARE TRANSACTION 'q'");
sql("ROLLBACK PREPARED 'q'");

# The headers, one by one.
my $parent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
create_sink($node, 'hook',
	{ url => $receiver->url('/hook'), secret => '${secret:shop}',
		previous_secret => '${secret:former}', metadata => [ 'region', 'absent' ] },
	"event_types => ARRAY['OrderConfirmed', 'Euro € 😀']");
$id = event('OrderConfirmed', 'Euro € 😀',
	"event_version => 3, tenant_id => 42, metadata => "
	  . "'{\"traceparent\": \"$parent\", \"region\": \"Süd\", \"other\": 1}'",
	'{"what": "€ 😀", "total": 12.50}');
my $request = request('/hook', $id);
my ($position, $time, $payload) = split /\|/,
  sql(q{SELECT id, to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), payload
	FROM outbox_messages WHERE tracking_id = '} . $id . q{'});
my $encoded = 'Euro%20%E2%82%AC%20%F0%9F%98%80';
is($request->{method}, 'POST', 'the method of a request is POST');
is(encode_utf8($request->{body}), $payload,
	'the body of a request is the payload as text of jsonb');
is(header($request, 'ce-specversion'), '1.0', 'ce-specversion is 1.0');
is(header($request, 'ce-id'), $id, 'ce-id is the tracking_id');
is(header($request, 'ce-type'), 'OrderConfirmed', 'ce-type is the event type');
is(header($request, 'ce-source'), '/postgres', 'ce-source is the database by default');
is(header($request, 'ce-subject'), "Order/$encoded",
	'ce-subject is aggregate type and id, percent-encoded');
is(header($request, 'ce-time'), $time, 'ce-time is occurred_at in UTC');
is(header($request, 'ce-partitionkey'), $encoded, 'ce-partitionkey is the aggregate id');
like(header($request, 'ce-sequence'), qr/^0\d{17,19}$/, 'ce-sequence sorts as text');
is(header($request, 'ce-sequence') + 0, $position, 'ce-sequence is the id in the log');
is(header($request, 'ce-tenantid'), '42', 'ce-tenantid is the tenant');
is(header($request, 'ce-eventversion'), '3', 'ce-eventversion is the event version');
is(header($request, 'ce-region'), 'S%C3%BCd', 'a metadata key in the config becomes a header');
is(header($request, 'ce-absent') // header($request, 'ce-other'), undef,
	'other metadata keys become no headers');
is(header($request, 'traceparent'), $parent, 'traceparent is that of the metadata');
is(header($request, 'webhook-id'), $id, 'webhook-id is the tracking_id');
is(header($request, 'Idempotency-Key'), qq{"$id"}, 'Idempotency-Key is quoted');
is(header($request, 'Content-Type'), 'application/json', 'Content-Type is application/json');
is(header($request, 'ce-datacontenttype'), undef,
	'a request has no ce-datacontenttype beside Content-Type');
is(scalar(grep { lc $_->[0] eq 'content-type' } @{ $request->{headers} }), 1,
	'a request has one Content-Type');
is(header(request('/hook', event('Euro € 😀', 1)), 'ce-type'), $encoded,
	'ce-type is percent-encoded');
my $plain = request('/hook', event('OrderConfirmed', '100%"~!'));
is(header($plain, 'ce-partitionkey'), '100%25%22~!',
	'quotes and percent signs are percent-encoded, other ASCII characters are not');

# Signatures with the current and the previous secret.
sub signature
{
	my ($request, $secret) = @_;
	my $signed = join '.', header($request, 'webhook-id'), header($request, 'webhook-timestamp'),
	  encode_utf8($request->{body});
	return 'v1,' . hmac_sha256_base64($signed, decode_base64($secret =~ s/^whsec_//r)) . '=';
}
{
	my $vector = { headers => [ [ 'webhook-id', 'msg_p5jXN8AQM9LWM0D4loKWxJek' ],
		[ 'webhook-timestamp', 1614265330 ] ], body => '{"test": 2432232314}' };
	is(signature($vector, $secrets{shop}), 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
		'the signature of this test matches the vector of Standard Webhooks');
}
is(header($request, 'webhook-signature'), signature($request, $secrets{shop}) . ' '
	. signature($request, $secrets{former}),
	'webhook-signature has signatures with both secrets');
cmp_ok(abs(header($request, 'webhook-timestamp') - $request->{at}), '<', 5,
	'webhook-timestamp is the time of the request');
is(header(request('/first', $scheduled), 'webhook-signature'), undef,
	'a sink without a secret sends no signature');

# traceparent is copied, generated or absent.
my %trace = (
	"trace_id => '$parent'" => qr/^\Q$parent\E$/,
	"trace_id => '4bf92f3577b34da6a3ce929d0e0e4736'" =>
	  qr/^00-4bf92f3577b34da6a3ce929d0e0e4736-(?!0{16})[0-9a-f]{16}-0[01]$/,
	"trace_id => 'yesterday'" => undef,
	"trace_id => '00-00000000000000000000000000000000-00f067aa0ba902b7-01'" => undef,
	"trace_id => '00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01'" => undef,
	"trace_id => '00000000000000000000000000000000'" => undef,
	"metadata => '{\"trace_id\": \"4bf92f3577b34da6a3ce929d0e0e4736\", "
	  . "\"span_id\": \"00f067aa0ba902b7\"}'" => qr/^\Q$parent\E$/,
	"metadata => '{\"traceparent\": 7}'" => undef);
for my $given (sort keys %trace)
{
	my $came = request('/hook', event('OrderConfirmed', 'traced', $given));
	my $value = header($came, 'traceparent');
	my $wanted = $trace{$given};
	ok($came && ($wanted ? ($value // '') =~ $wanted : !defined $value),
		"traceparent for $given: " . ($value // 'absent'));
}

my ($of_session) = sql("BEGIN; SET LOCAL outbox.traceparent = '$parent'; "
	. "SELECT outbox_enqueue('Order', 'traced', 'OrderConfirmed', '{}'); "
	. "COMMIT") =~ /([0-9a-f-]{36})/;
is(header(request('/hook', $of_session), 'traceparent'), $parent,
	'outbox.traceparent of the session becomes traceparent');

# Scheduled and prepared events of the first sink.
my $came = request('/first', $scheduled);
cmp_ok($came->{at}, '>=', $scheduled_for - 0.2,
	'a scheduled event does not arrive before it is due');
is(header($came, 'ce-id'), $scheduled,
	'a scheduled event has the tracking_id that the producer got');
is(scalar(grep { (header($_, 'ce-partitionkey') // '') eq 'prepared' } $receiver->records), 0,
	'an event of a prepared transaction does not arrive before COMMIT PREPARED');
sql("COMMIT PREPARED 'p'");
ok(wait_until(sub {
	grep { header($_, 'ce-partitionkey') eq 'prepared' } $receiver->records('/first') }),
	'an event of a prepared transaction arrives after COMMIT PREPARED');

# Other formats.
sub attributes
{
	my ($event, $id) = @_;
	return ($event->{id} eq $id && $event->{specversion} eq '1.0' && $event->{type} eq 'Formatted'
		&& $event->{source} eq '/postgres'
		  && $event->{subject} eq "Order/\x{20ac}" && $event->{partitionkey} eq "\x{20ac}"
		  && $event->{tenantid} == 42
		  && $event->{eventversion} == 3 && $event->{time}
		  =~ /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/
		  && $event->{sequence} =~ /^\d{18,20}$/ && $event->{datacontenttype} eq 'application/json'
		  && $event->{traceparent} eq $parent);
}
for my $format ('cloudevents-structured', 'cloudevents-batch', 'raw')
{
	create_sink($node, $format,
		{ url => $receiver->url("/$format"), format => $format, secret => '${secret:shop}',
			$format eq 'cloudevents-batch' ? (batch => 10) : () },
		"event_types => ARRAY['Formatted']");
}
$receiver->control({ path => '/cloudevents-batch', times => 1, status => 503 });
my @given = split /\n/,
  sql('BEGIN;' . join(';',
	map { "SELECT outbox_enqueue('Order', '€', 'Formatted', '{\"n\": $_, \"what\": \"€\"}', "
		. "event_version => 3, tenant_id => 42, trace_id => '$parent')" } 1 .. 4) . '; COMMIT');
my ($structured) = $receiver->wait_for(4, 20, '/cloudevents-structured');
is(header($structured, 'Content-Type') =~ s/;.*//r, 'application/cloudevents+json',
	'cloudevents-structured: the content type is application/cloudevents+json');
ok(attributes(field($structured), $given[0]),
	'cloudevents-structured: the event has all attributes') or diag($structured->{body});
is_deeply(field($structured, 'data'), { n => 1, what => "\x{20ac}" },
	'cloudevents-structured: data is the payload as JSON');
is(header($structured, 'webhook-signature'), signature($structured, $secrets{shop}),
	'cloudevents-structured: requests are signed');

my @batched;
wait_until(sub {
	@batched = map { @{ field($_) } } grep { $_->{answer}
		eq '200' } $receiver->records('/cloudevents-batch');
	@batched == 4 });
is_deeply([ map { $_->{id} } @batched ], \@given, 'cloudevents-batch: all events arrive in order');
ok(attributes($batched[0], $given[0]), 'cloudevents-batch: an event has all attributes');
my ($refused, @again) = $receiver->records('/cloudevents-batch');
is(header($refused, 'Content-Type') =~ s/;.*//r, 'application/cloudevents-batch+json',
	'cloudevents-batch: the content type is application/cloudevents-batch+json');
is(scalar @again, 1, 'cloudevents-batch: one request has all events');
create_sink($node, 'hundred',
	{ url => $receiver->url('/hundred'), format => 'cloudevents-batch', batch => 100 },
	"event_types => ARRAY['Hundred']");
sql("SELECT count(outbox_enqueue('Order', i, 'Hundred', '{}')) FROM generate_series(1, 100) i");
is(scalar @{ field(($receiver->wait_for(1, 20, '/hundred'))[0]) }, 100,
	'cloudevents-batch: a request has up to `batch` events');
is(header($again[0], 'webhook-id'), header($refused, 'webhook-id'),
	'cloudevents-batch: a repeated request has the same webhook-id');
is($again[0]{body}, $refused->{body}, 'cloudevents-batch: a repeated request has the same body');
isnt(header($refused, 'webhook-id'), $given[0],
	'cloudevents-batch: webhook-id is not the id of an event');
is(header($again[0], 'webhook-signature'), signature($again[0], $secrets{shop}),
	'cloudevents-batch: requests are signed');

my ($raw) = $receiver->wait_for(4, 20, '/raw');
is(encode_utf8($raw->{body}), '{"n": 1, "what": "€"}', 'raw: the body is the payload');
is(scalar(grep { $_->[0] =~ /^ce-/i } @{ $raw->{headers} }), 0,
	'raw: a request has no CloudEvents headers');
drop_sinks($node, 'cloudevents-structured', 'cloudevents-batch', 'raw');

# Method, headers with and without secrets, proxy.
create_sink($node, 'put',
	{ url => $receiver->url('/put?a=b'), method => 'PUT',
		headers => { Authorization => 'Bearer ${secret:token}', 'X-Shop' => 'north' } },
	"event_types => ARRAY['Put']");
my $put = request('/put?a=b', event('Put', 1));
is($put->{method}, 'PUT', 'a sink can use PUT');
is(header($put, 'Authorization'), "Bearer $secrets{token}",
	'a header of a sink can take its value from a secret');
is(header($put, 'X-Shop'), 'north', 'a header of a sink can have a literal value');
create_sink($node, 'proxied', { url => 'http://shop.example/hook', proxy => $receiver->url('') },
	"event_types => ARRAY['Proxied']");
ok(request('http://shop.example/hook', event('Proxied', 1)), 'a sink can use a proxy');

# Filters; pausing, altering, testing and dropping a sink.
create_sink($node, 'all', { url => $receiver->url('/all') });
create_sink($node, 'tenant', { url => $receiver->url('/tenant') }, 'tenant_id => 7');
create_sink($node, 'invoices', { url => $receiver->url('/invoices') },
	"aggregate_types => ARRAY['Invoice']");
my $of_tenant = event('Any', 1, 'tenant_id => 7');
my $invoice = sql("SELECT outbox_enqueue('Invoice', '1', 'Any', '{}')");
$id = event('Any', 1);
request('/all', $_) for $of_tenant, $invoice, $id;
request('/tenant', $of_tenant);
request('/invoices', $invoice);
is_deeply([ map { $_->{id} } $receiver->records('/tenant') ], [$of_tenant],
	'a sink with a tenant_id gets only events of that tenant');
is_deeply([ map { $_->{id} } $receiver->records('/invoices') ], [$invoice],
	'a sink with aggregate_types gets only events of those types');
ok(!(grep { header($_, 'ce-type') ne 'Put' } $receiver->records('/put?a=b')),
	'a sink with event_types gets only events of those types');

sql("SELECT outbox_pause('all')");
$id = event('First', 'while one is paused');
ok(request('/first', $id), 'a paused sink does not stop other sinks');
sleep 0.3;
is(scalar(grep { $_->{id} eq $id } $receiver->records('/all')), 0, 'a paused sink sends no event');
sql("SELECT outbox_resume('all')");
ok(request('/all', $id), 'a resumed sink sends the events of its pause');

sql("SELECT outbox_alter_sink('all', config => '{\"url\": \"" . $receiver->url('/moved') . "\"}')");
$id = event('First', 'after the move');
ok(request('/moved', $id), 'an altered sink sends to its new url');
sleep 0.1;
is(scalar(grep { $_->{id} eq $id } $receiver->records('/all')), 0,
	'an altered sink sends nothing to its former url');

like(sql("CALL outbox_test_sink('all', NULL, NULL)"), qr/^t\|.*200/,
	'outbox_test_sink() returns true and the status of a working sink');
$receiver->control({ path => '/moved', status => 503, body => 'closed for today' });
like(sql("CALL outbox_test_sink('all', NULL, NULL)"), qr/^f\|.*503/,
	'outbox_test_sink() returns false and the status of a failing sink');
$receiver->control();

sql("SELECT outbox_drop_sink('all')");
is(sql("SELECT count(*) FROM outbox_consumers WHERE name = 'all'"), 0,
	'outbox_drop_sink() removes the sink');
$id = event('First', 'after the drop');
ok(request('/first', $id), 'a dropped sink does not stop other sinks');
sleep 0.3;
is(scalar(grep { $_->{id} eq $id } $receiver->records('/moved')), 0,
	'a dropped sink sends no event');

# Order: 20 aggregates, four writers, delayed responses.
create_sink($node, 'ordered', { url => $receiver->url('/ordered') },
	"event_types => ARRAY['Ordered'], ordered => true");
$receiver->control({ path => '/ordered', delay => [ 0, 0.03 ] });
sql(q{CREATE PROCEDURE produce(writer int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 0 .. 74 LOOP
			PERFORM outbox_enqueue('Order', 5 * writer + i % 5, 'Ordered', '{}'::jsonb);
			COMMIT;
		END LOOP;
	END $$});
my @writers =
  map { IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c',
	"CALL produce($_)" ]) } 0 .. 3;
$_->finish for @writers;
my @ordered = $receiver->wait_for(300, 30, '/ordered');
is(scalar @ordered, 300, 'every event of four writers arrives once');
is(scalar(grep { $_->{beside}{subject} > 0 } @ordered), 0,
	'an ordered sink has at most one request in flight for each aggregate');
cmp_ok((sort { $b <=> $a } map { $_->{beside}{all} } @ordered)[0] // 0, '>=', 3,
	'an ordered sink has requests of several aggregates in flight');
my (%last, $disorder);
for my $one (sort { $a->{at} <=> $b->{at} } @ordered)
{
	my $subject = header($one, 'ce-subject');
	$disorder++ if exists $last{$subject} && header($one, 'ce-sequence') le $last{$subject};
	$last{$subject} = header($one, 'ce-sequence');
}
is($disorder // 0, 0, 'events of an aggregate arrive in the order of the log');
is(scalar keys %last, 20, 'events of all twenty aggregates arrive');
cmp_ok(scalar(my @connections = keys %{ { map { $_->{connection} => 1 } @ordered } }), '<=', 32,
	'an ordered sink reuses at most 32 connections');

# No transaction is open while a request is in flight.
$receiver->control({ path => '/ordered', do => 'hang' });
$id = event('Ordered', 'hanging');
ok(wait_until(sub { grep { $_->{id} eq $id } $receiver->records('/ordered') }),
	'the receiver gets a request and does not respond');
my $sample = "SELECT count(*) FILTER (WHERE backend_type = 'outbox relay'), "
  . "count(*) FILTER (WHERE clock_timestamp() - xact_start > '20 ms')
	FROM pg_stat_activity WHERE backend_type LIKE 'outbox%'";
my @samples = grep { /\|/ } split /\n/,
  sql(join ';', map { ($sample, 'SELECT pg_sleep(0.04)') } 1 .. 25);
is(scalar(grep { /^[1-9]\d*\|0$/ } @samples), 25,
	'no worker has an open transaction while a request is in flight') or diag("@samples");
$receiver->control();
$receiver->drop_connections;
ok(wait_until(sub {
	grep { $_->{id} eq $id && $_->{answer} eq '200' } $receiver->records('/ordered') }),
	'an event is sent again after its connection is closed');

# A database in another encoding sends UTF-8.
sql("CREATE DATABASE latin TEMPLATE template0 ENCODING 'WIN1252' LOCALE 'C'");
$node->safe_psql('latin',
	'SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE; SELECT outbox_setup()');
create_sink($node, 'latin', { url => $receiver->url('/latin') }, undef, 'latin');
$node->safe_psql('latin',
	"SET client_encoding = 'UTF8'; SELECT outbox_enqueue('Order', 'é', 'Latin', "
	  . "'{\"what\": \"é\"}')");
my ($latin) = $receiver->wait_for(1, 20, '/latin');
is(header($latin, 'ce-partitionkey'), '%C3%A9', 'headers from a WIN1252 database are UTF-8');
is(encode_utf8($latin->{body} // ''), '{"what": "é"}', 'the body from a WIN1252 database is UTF-8');
is(header($latin, 'ce-source'), '/latin', 'ce-source is the name of the other database');
$node->safe_psql('latin', q{SET client_encoding = 'UTF8';
	SELECT outbox_enqueue('Order', '1', 'Latin', jsonb_build_object('what',
	chr(129) || 'é' || chr(141)))});
my (undef, $hole) = $receiver->wait_for(2, 20, '/latin');
is(encode_utf8($hole->{body} // ''), '{"what": "?é?"}',
	'a byte without a Unicode character is sent as a question mark');

# An SQL_ASCII database has any bytes.
sql("CREATE DATABASE bytes TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'");
$node->safe_psql('bytes',
	'SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE; SELECT outbox_setup()');
create_sink($node, 'bytes', { url => $receiver->url('/bytes') }, undef, 'bytes');
$node->safe_psql('bytes', q{SELECT outbox_enqueue('Order', convert_from(key, 'SQL_ASCII'), 'Bytes',
	to_jsonb(convert_from(key, 'SQL_ASCII')))
	FROM unnest('{"\\\\xc3a9", "\\\\x61ff62"}'::bytea[]) key});
my @bytes = $receiver->wait_for(2, 20, '/bytes');
is(join(' ', sort map { header($_, 'ce-partitionkey') . encode_utf8($_->{body}) } @bytes),
	'%C3%A9"é" a?b"a?b"',
	'an SQL_ASCII database sends valid UTF-8 unchanged and question marks for invalid bytes');

my %aggregates = map { (header($_, 'ce-partitionkey') // '') => 1 } $receiver->records('/first');
ok($aggregates{'before%20the%20savepoint'} && $aggregates{'after%20the%20savepoint'},
	'events before and after a rolled-back savepoint arrive');
ok(!$aggregates{'in%20the%20savepoint'}, 'an event of a rolled-back savepoint never arrives');
ok(!$aggregates{'rolled%20back'}, 'an event of a rolled-back transaction never arrives');
ok(!$aggregates{'prepared%20and%20rolled%20back'}, 'an event of ROLLBACK PREPARED never arrives');
my (%times);
$times{"$_->{path} $_->{id}"}++ for grep { $_->{answer} =~ /^2/ && $_->{id} } $receiver->records;
is(scalar(grep { $_ > 1 } values %times), 0, 'no event is accepted twice');

# A sink whose filter matches little of a large backlog reads on without waiting for the poll
# interval.
sql("SELECT outbox_drop_sink(name, true) FROM outbox_consumers WHERE kind = 'http'");
sql("SELECT count(outbox_enqueue('Order', i::text, 'Boring', '{}')) "
	. "FROM generate_series(1, 60000) i");
my $rare = event('Rare', 'far behind');
sql('ALTER SYSTEM SET outbox.relay_interval = \'1h\'');
$node->reload;
create_sink($node, 'rare', { url => $receiver->url('/rare') },
	"event_types => ARRAY['Rare'], start_at => 'earliest'");
ok(request('/rare', $rare),
	'a sink finds the one event that its filter matches behind 60,000 others');

$node->stop;
done_testing();
