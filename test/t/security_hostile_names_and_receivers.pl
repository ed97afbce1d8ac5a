# Attacks by roles with few privileges, by receivers and by brokers: traps in the search_path,
# hostile names and events, responses that are too large or too slow, and a search for secrets in
# every place.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use IO::Select;
use IO::Socket::INET;
use IPC::Run ();
use JSON::PP;
use MIME::Base64 qw(encode_base64);
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my %secrets = (token => 'tk/never+to"be"seen&0123456789', shop => 'whsec_'
	. encode_base64('hush, hush, hush, hush, hush!!!', ''), host => 'Hidden-Host-7.invalid');
my $dir = PostgreSQL::Test::Utils::tempdir();
my $secrets_file = write_secrets("$dir/secrets", \%secrets);
my $receiver = OutboxReceiver->start('receiver', body_limit => 8192);
my $node = start_node('main',
	init => { extra => [ '-E', 'UTF8', '--locale=C' ] },
	conf => "outbox.secrets_file = '$secrets_file'\noutbox.backoff_base = '200ms'\n"
	  . "outbox.backoff_max = '1s'\nlog_min_messages = debug1\nlog_statement = all\n"
	  . "outbox.maintenance_interval = '1s'\noutbox.cold_storage_dir = '$dir'\n"
	    . "outbox.archive_command = 'echo %f %t >> $dir/commands'\n");
sub sql { return $node->safe_psql('postgres', join ';', @_) }
my @views = map { 'outbox_stats' . $_ } '',
  qw(_events _latency _dead_letters _tables _held _database);
my @privileges = qw(producer consumer idempotency audit auditor reader monitor admin);
sql('SELECT outbox_setup()', 'CREATE ROLE app LOGIN',
	map { "SELECT outbox_grant('app', '$_')" } @privileges);

# The server log from a position on.
my $from = 0;
sub logged { return substr slurp_file($node->logfile), $from }

# ---- Traps in the search_path: copies of functions, aggregates, operators, types and tables stand
# in front of the originals, also for the workers of the database.
$node->safe_psql('postgres', 'CREATE DATABASE trapped');
$node->safe_psql('trapped', 'SET client_min_messages = error; CREATE SCHEMA partman;
		CREATE EXTENSION pg_partman SCHEMA partman; CREATE EXTENSION outbox;'
	. join ';', map { "SELECT outbox_grant('app', '$_')" } @privileges);
$node->safe_psql('trapped', slurp_file("$FindBin::RealBin/lib/traps.sql")
	. q{CREATE FUNCTION trap.up(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1'});
$node->safe_psql('postgres', 'ALTER DATABASE trapped SET search_path = trap, pg_catalog, public');
my $sprung = qr/: +(?:trapped|cannot accept a value of a shell type)/;
for my $trap (q{SELECT 1 = 1}, q{SELECT now()}, q{SELECT count(*)}, q{SELECT '1'::text},
	q{SELECT oid FROM pg_class}, q{SELECT name FROM outbox_consumers}, q{SELECT outbox_setup()},
	q{SELECT array_length('{1}'::int8[], 1)}, q{SELECT unnest('{a}'::name[])},
	q{SELECT to_jsonb(1)}, q{SELECT jsonb_build_object('a', 1, 'b', true, 'c', 'd'::name)},
	q{SELECT concat('a', 1)},
	q{SELECT format('%s %s', 1, true)}, q{SELECT array_append('{1}', 2)},
	q{SELECT num_nulls(1, NULL)}, q{SELECT string_agg('a'::name, ',')},
	q{SELECT jsonb_object_agg('a', 1)}, q{SELECT array_agg(1)}, q{SELECT max(1)},
	q{SELECT bool_and(true)})
{
	my (undef, undef, $error) = $node->psql('trapped', $trap);
	like($error, qr/ERROR$sprung/, "the trap works: $trap");
}
# A sequence counts traps whose errors are caught.
my $count_sprung = q{SET search_path = pg_catalog; SELECT last_value FROM trap.sprung_count};
cmp_ok(my $sprung_before = $node->safe_psql('trapped', $count_sprung), '>', 5, 'traps are counted');
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = 'trapped' AND backend_type LIKE 'outbox%'});
$from = -s $node->logfile;

# Calls of every function, with qualified names that avoid the traps.
sub calls
{
	my ($role, $url) = @_;
	my $views = join '', map { "TABLE public.$_;\n" } @views;
	return <<"SQL" =~ s/(?<![\w.])(outbox|inbox|idempotency|audit)_(\w+\()/public.$1_$2/gr . $views;
SELECT outbox_create_consumer('w', start_at => 'earliest');
SELECT outbox_create_consumer('o', ordered => true, partitions => 2);
SELECT outbox_create_sink('s', 'http', '{"url": "$url"}');
SELECT outbox_register_event('OrderConfirmed', 1, 'shop', '{"type": "object"}',
    pii_fields => '{/a}');
SELECT outbox_register_upcaster('OrderConfirmed', 1, 'trap.up(pg_catalog.jsonb)');
SELECT outbox_enqueue('Order', '1', 'OrderConfirmed', '{}');
SELECT outbox_enqueue('Order', '1', 'OrderConfirmed', '{}', dedup_key => '$role',
    metadata => '{"a": 1}', tenant_id => 3);
SELECT outbox_enqueue('Order', '1', 'OrderConfirmed', '{}', dedup_key => '$role',
    metadata => '{"a": 1}', tenant_id => 3) AS tracking \\gset
SELECT outbox_enqueue('Order', '1', 'OrderConfirmed', '{}',
    available_at => 'tomorrow') AS later \\gset
SELECT outbox_cancel(:'later');
SELECT outbox_enqueue_many('[{"aggregate_type": "T", "aggregate_id": 1, "event_type": "E",
    "payload": 1}]');
SELECT outbox_setup();
SELECT outbox_peek('w', 5);
SELECT lock_token, id FROM outbox_claim('w', 2) LIMIT 1 \\gset
SELECT outbox_heartbeat(:lock_token);
SELECT outbox_fail(:lock_token, :id, 'no', dead => true);
SELECT outbox_ack(:lock_token);
SELECT lock_token FROM outbox_claim('o', 1) LIMIT 1 \\gset
SELECT outbox_release(:lock_token);
SELECT outbox_consume('w', 1);
CALL outbox_wait('w', '1 ms', NULL);
SELECT inbox_accept('w', :'tracking');
SELECT outbox_redrive('w');
SELECT outbox_discard('w', '{1}');
SELECT outbox_seek('w', 'earliest');
SELECT outbox_alter_consumer('w', max_attempts => 3);
SELECT outbox_pause('w');
SELECT outbox_resume('w');
SELECT outbox_find(:'tracking');
SELECT outbox_history('Order', '1');
SELECT token FROM idempotency_begin('s', '$role', '{"a": 1.0}') \\gset
SELECT idempotency_finish('s', '$role', :token, 200, '{}');
SELECT idempotency_begin('s', '$role', '{"a": 1.0}');
SELECT token FROM idempotency_begin_hashed('s', '$role, hashed',
    idempotency_hash('{"a": 1.0}')) \\gset
SELECT idempotency_abandon('s', '$role, hashed', :token);
SELECT idempotency_required('s');
SELECT idempotency_expire();
SELECT audit_record('a', 'b', 'c', 'd', '{"x": 1}', '{"x": 2}') AS audited \\gset
SELECT audit_diff(:audited);
SELECT audit_set_retention('c', '1 year');
SELECT audit_verify();
SELECT outbox_release_due();
SELECT outbox_maintain();
SELECT outbox_status();
SELECT outbox_held_partitions();
SELECT outbox_metrics();
SELECT outbox_health();
SELECT _outbox.report_samples('{w}', '2020-01-01'), _outbox.report_problems(),
    _outbox.report_dead_letters();
SELECT _outbox.report_partitions(), _outbox.report_held();
SELECT outbox_catalog('markdown');
SELECT outbox_catalog('asyncapi');
TABLE public.outbox_deliveries;
TABLE public.consumer_offsets;
TABLE public.outbox_messages;
SELECT _outbox.collect_stats(), _outbox.collect_event_stats(), _outbox.collect_latency(),
    _outbox.collect_dead_letters();
SELECT _outbox.collect_tables(), _outbox.collect_held(), _outbox.collect_database(), _outbox.sink_states(),
    _outbox.last_id();
SELECT _outbox.may_read(3), _outbox.audit_may_read(3), _outbox.shows_tenant(3), _outbox.known_upto(NULL),
    _outbox.has_passed(NULL, '1', 1);
SELECT outbox_stats_reset();
SELECT outbox_alter_sink('s', max_attempts => 2);
CALL outbox_test_sink('s', NULL, NULL);
SELECT outbox_create_sink('d', 'http', '{"url": "$url"}', event_types => '{None}');
SELECT outbox_drop_sink('d', true);
SELECT outbox_set_event_owner('OrderConfirmed', 'other');
SELECT outbox_unregister_event('OrderConfirmed', 1);
SELECT outbox_unregister_upcaster('OrderConfirmed', 1);
SELECT outbox_drop_consumer('o', true);
SELECT outbox_grant('pg_monitor', 'monitor');
SELECT outbox_revoke('pg_monitor', 'monitor');
\\set ON_ERROR_STOP off
\\set VERBOSITY terse
SELECT outbox_restore_partition('trapped.outbox_messages_p2020_01_01.20200101T000000Z-20200102T000000Z.1.ndjson.zst');
SQL
}
# The page of bin/outbox_report as "make install" installs it.
sub report
{
	my ($database, $role) = @_;
	my ($prefix) = staged() =~ m{^dynamic_library_path = '(.*?)/lib:}m;
	my @command = ("$prefix/bin/outbox_report", '-h', $node->host, '-p', $node->port, '-U',
		$role, '-d', $database);
	my $ok = IPC::Run::run(\@command, '<', \undef, '>', \my $page, '2>', \my $error);
	$ok or diag($error);
	return $page;
}
my $granted = join ' UNION ', map { "SELECT p.proname FROM _outbox.privilege_functions('$_') f
		JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) f" } @privileges;
my @granted = split /\n/, $node->safe_psql('trapped', "SET search_path = pg_catalog; $granted");
cmp_ok(scalar(@granted), '>', 60, 'more than 60 functions can be granted');
is(join(' ', grep { calls('', '') !~ /\b(public|_outbox)\.$_\(/ } sort @granted), '',
	'the test calls every function that can be granted');
for my $role ('app', 'postgres')
{
	my (undef, $out, $error) = $node->psql('trapped', calls($role,
			$receiver->url("/trapped-$role")), extra_params => [ '-U', $role ], on_error_stop => 1);
	unlike($out, qr/shell type/, "$role gets no value of a shell type");
	# The last call fails because its file does not exist; there is no other error.
	like($error =~ s/^.*NOTICE.*\n?//mgr,
		qr/\A\S+ ERROR:  could not open file "[^"]+": No such file or directory\z/,
		"no function that $role calls uses an object of the search_path");
	ok($receiver->wait_for(3, 20, "/trapped-$role"),
		"the relay uses no object of the search_path for $role");
	like(report('trapped', $role), qr/<h3>w </,
		"outbox_report uses no object of the search_path for $role");
	$node->safe_psql('trapped', q{SELECT public.outbox_drop_sink('s', true);
			SELECT public.outbox_drop_consumer('w', true)});
}
ok(wait_until(sub { $node->safe_psql('trapped', 'SELECT at FROM public.outbox_stats_history
				LIMIT 1') }), 'maintenance uses no object of the search_path');
unlike(logged(), $sprung, 'the log has no error of a trap');
is($node->safe_psql('trapped', $count_sprung), $sprung_before, 'no error of a trap was caught');
sql('DROP DATABASE trapped');

# ---- Hostile names and events.
my $forged = "2030-01-01 00:00:00.000 UTC [1] FATAL:  forged";
my $nasty =
	qq{1\r\nX-Evil: yes\r\n\r\nPOST /smuggled HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n}
  . qq{%0d%0aX-Evil: yes\n$forged\n'); DROP TABLE outbox_messages; --%s\$1\\ \x{2028}\x{202e}\x{85}"};
# The server puts a tab in front of continuation lines.
sub not_forged { unlike(logged(), qr/^\Q$forged\E/m, "$_[0]: the log has no forged line"); return }
utf8::encode(my $quoted = "\$n\$$nasty\$n\$");
my %format = (cloudevents => '/binary', 'cloudevents-structured' => '/structured',
	'cloudevents-batch' => '/batch', raw => '/raw');
create_sink($node, "sink $_",
	{ url => $receiver->url($format{$_}), format => $_, metadata => ['region'] })
  for sort keys %format;
my $consumer = q{it's "odd"; DROP TABLE outbox_sinks; -- \\ %s $1 $(id) <script>};
sql("SELECT outbox_create_consumer(\$c\$$consumer\$c\$)");
$from = -s $node->logfile;
sql('SET outbox.catalog_mode = warn', "SELECT outbox_enqueue($quoted, $quoted, left($quoted, 200),
		jsonb_build_object($quoted, $quoted), metadata => jsonb_build_object('region', $quoted,
		'traceparent', $quoted, $quoted, 1), trace_id => $quoted)");
for my $name (sort keys %format)
{
	my ($request) = $receiver->wait_for(1, 20, $format{$name});
	is(header($request, 'x-evil'), undef, "$name: an event adds no header");
	is(header($request, 'traceparent'), undef, "$name: an invalid traceparent is not sent");
	is_deeply([ grep { $_->[1] =~ /[^\x21-\x7e ]/ } @{ $request->{headers} } ], [],
		"$name: headers are printable ASCII");
	my $data = $name eq 'cloudevents-batch' ? field($request)->[0] : field($request);
	$data = $data->{data} if $name =~ /structured|batch/;
	is($data->{$nasty}, $nasty, "$name: the payload is unchanged");
}
is($receiver->count('/smuggled'), 0, 'an event adds no request');
like(logged(),
	qr/WARNING:  event_type "1  X-Evil: yes.* \Q$forged\E .*" version 1 is not registered$/m,
	'a warning in the log has a hostile event type in one line');
not_forged('an event');
drop_sinks($node, map { "sink $_" } sort keys %format);
sql("SELECT outbox_alter_consumer(\$c\$$consumer\$c\$, max_attempts => 1)",
	'SELECT outbox_enqueue($$Order$$, $$2$$, $$X$$, $${}$$)');
my ($token, $id) = split /\|/, sql("SELECT lock_token, id FROM outbox_claim(\$c\$$consumer\$c\$) "
	. "ORDER BY id DESC LIMIT 1") =~ s/.*\n//sr;
sql("SELECT outbox_fail($token, $id, $quoted, dead => true)");
like(logged(), qr/has given up an event: 1  X-Evil: yes.* \Q$forged\E /,
	'the log has a hostile error of a worker in one line');
not_forged('the error of a worker');
is(sql("SELECT count(*) FROM outbox_stats WHERE consumer = \$c\$$consumer\$c\$")
	. sql("SELECT outbox_redrive(\$c\$$consumer\$c\$, event_type => \$c\$x' OR true --\$c\$)"),
	'10', 'hostile names are compared literally');
my $metrics = sql('SELECT outbox_metrics()');
is(join("\n", grep { !/^(#|$)/
			&& !/^[a-z_]+(\{(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*\})? [-+0-9.eInf]+$/ } split /\n/,
		$metrics), '', 'outbox_metrics() escapes hostile names');
my $page = report('postgres', 'postgres');
like($page, qr/it&#x27;s &quot;odd&quot;/, 'outbox_report escapes hostile names');
unlike($page,
	qr/<(?!\/?(?:!DOCTYPE|html|head|meta|title|style|body|header|h\d|dl|dt|dd|div|section|article|p|b|i|span|small|ul|li|table|thead|tbody|tr|th|td|code|svg|path|text|figure|figcaption)\b)/,
	'outbox_report has only known HTML elements');
sql("SELECT outbox_drop_consumer(\$c\$$consumer\$c\$, true)");
is(sql('SELECT count(*) FROM pg_class WHERE relname IN ($$outbox_messages$$, $$outbox_sinks$$)'), 2,
	'the tables are still there');
not_forged('a name');

# Hostile responses, in the status line and in the body.
my @answers = (422, 503);
$receiver->control(map { { path => "/says-$_", status => $_, phrase => "x\r\n$forged",
			body => "x\r\n$forged\n" } } @answers);
create_sink($node, "says $_", { url => $receiver->url("/says-$_") }, q{event_types => '{Said}'})
  for @answers;
$from = -s $node->logfile;
sql(q{SELECT outbox_enqueue('Order', '1', 'Said', '{}')});
ok(wait_until(sub { logged() =~ /"says 422" has given up/
			&& logged() =~ /"says 503" is in trouble/ }),
	'receivers answer with hostile responses');
like(logged(), qr/"says 422" has given up an event: HTTP 422: x +\Q$forged\E *$/m,
	'a hostile rejection is one line in the log');
like(logged(), qr/"says 503" is in trouble: HTTP 503: x +\Q$forged\E *$/m,
	'a hostile failure is one line in the log');
is(scalar(() = logged() =~ /forged/g), 2, 'no other line of the log has the response');
not_forged('an answer');
sql("SELECT outbox_drop_sink('says $_', true)") for @answers;
$receiver->control;

# A hostile file name is not passed to the shell of outbox.archive_command.
sql("INSERT INTO _outbox.cold_files (file, partition, lower_bound, upper_bound, events, bytes)
	VALUES (\$f\$x; touch $dir/pwned; #\$f\$, 'p', now(), now(), 1, 1),
	('plain.file', \$f\$p; touch $dir/pwned\$f\$, now(), now(), 1, 1),
	('good.outbox_messages_p1', 'outbox_messages_p1', now(), now(), 1, 1)");
ok(wait_until(sub { sql(q{SELECT stored_at FROM outbox_cold_files WHERE file LIKE 'good%'}) }),
	'outbox.archive_command gets a regular file');
is(slurp_file("$dir/commands"), "$dir/good.outbox_messages_p1 outbox_messages_p1\n",
	'outbox.archive_command gets no hostile file');
ok(!-e "$dir/pwned", 'the hostile command was not executed');
sql('DELETE FROM _outbox.cold_files');

# ---- Receivers whose responses are too large or too slow. Another sink stays quick, and the
# relay's memory stays small.
sub resident { my ($kib) =
		slurp_file('/proc/' . relay_pid($node) . '/status') =~ /^VmRSS:\s+(\d+)/m; return $kib }
sub quick { my $before = $receiver->count('/quick');
	sql("SELECT count(outbox_enqueue('Order', i::text, 'Quick', '{}')) FROM generate_series(1,
			20) i"); return $receiver->wait_for($before + 20, 20, '/quick') }
create_sink($node, 'quick', { url => $receiver->url('/quick') }, q{event_types => '{Quick}'});
my $alone = elapsed(sub { ok(quick(), 'a sink alone is quick') });
my $deaf = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1') or die $!;
my $slow = qr/Operation timed out after \d+ milliseconds/;
my $large = qr/the answer has headers larger than \d+ KiB/;
my %harm = (
	'a bomb in its content' => { status => 422, gzip => 100 },
	'a bomb in its transfer' => { status => 422, gzip => 100, transfer => JSON::PP::true },
	'endless headers' => { do => 'endless', head => "HTTP/1.1 200 OK\r\n",
		repeat => "X-More: of the same\r\n" x 5000 },
	'one endless header' => { do => 'endless', head => "HTTP/1.1 200 OK\r\nX-Long: ",
		repeat => 'x' x 100_000 },
	'endless trailers' => { do => 'endless', head => "HTTP/1.1 200 OK\r\n"
		. "Transfer-Encoding: chunked\r\n\r\n0\r\n", repeat => "X-Trailer: x\r\n" x 8000 },
	'endless beginnings' => { do => 'endless', head => '',
		repeat => "HTTP/1.1 100 Continue\r\n\r\n" x 4000 },
	'a byte at a time' => { do => 'drip', interval => 0.05 },
	'an answer that never comes' => { do => 'hang' }, 'a receiver that does not read' => undef);
# libcurl's own limit for a single header takes effect first.
my %expected_error = ('a bomb in its content' => qr/^HTTP 422/,
	'a bomb in its transfer' => qr/^HTTP 422|unencoding|Transfer-Encoding/,
	'endless headers' => $large,
	'one endless header' => qr/^the answer has a header that is too long|larger than/,
	'endless trailers' => $large, 'endless beginnings' => $large, 'a byte at a time' => $slow,
	'an answer that never comes' => $slow, 'a receiver that does not read' => $slow);
my @harm = sort keys %harm;
my %path = map { $harm[$_] => "/harm-$_" } 0 .. $#harm;
$receiver->control(map { { path => $path{$_}, %{ $harm{$_} } } } grep { $harm{$_} } @harm);
create_sink($node, $_, { url => $harm{$_} ? $receiver->url($path{$_}) : 'http://127.0.0.1:'
		. $deaf->sockport . '/', timeout => seconds(1.5) },
	q{event_types => '{Harm}', max_attempts => 1000}) for @harm;
my $before = resident();
$from = -s $node->logfile;
sql(q{SELECT count(outbox_enqueue('Order', i::text, 'Harm',
		jsonb_build_object('x', repeat('x', 900000)))) FROM generate_series(1, 2) i});
ok($receiver->wait_for(1, 20, $path{$_}), "$_: the receiver gets a request")
  for grep { $harm{$_} } @harm;
ok(IO::Select->new($deaf)->can_read(20), 'a receiver that does not read gets a connection');
cmp_ok(elapsed(sub { ok(quick(), 'a sink delivers beside hostile receivers') }), '<',
	3 + 3 * $alone, 'a sink beside hostile receivers is about as quick as alone');
for my $what (@harm)
{
	my $error = '';
	wait_until(sub {
			$error =
				sql(qq{SELECT coalesce((SELECT last_error FROM outbox_stats
			WHERE consumer = \$c\$$what\$c\$), '')}) });
	like($error, $expected_error{$what}, "$what: the error is reported");
	cmp_ok(length $error, '<', 600, "$what: the error is shorter than 600 characters");
}
ok(quick(), 'a sink is still quick after the errors');
# The limit exceeds two events of 1 MB per sink with a copy for each request.
$ENV{OUTBOX_SANITIZED}
  ? note("the relay's memory is not measured: AddressSanitizer keeps freed memory")
  : cmp_ok(resident() - $before, '<', 64 * 1024,
  	sprintf 'the memory of the relay grows by less than 64 MiB (%d KiB)', resident() - $before);
$receiver->control;
$receiver->drop_connections;
sql("SELECT outbox_drop_sink(name, true) FROM outbox_consumers WHERE kind = 'http'");
close $deaf;

# ---- Hostile Kafka brokers. Some versions of librdkafka abort on three zero bytes; other backends
# must not notice.
sub broker_error {
	return sql(q{SELECT coalesce(c.pause_reason, s.last_error, '') FROM outbox_consumers c
			JOIN outbox_stats s ON s.consumer = c.name WHERE c.name = 'impostor'}) }
sub test_hostile_broker
{
	my $listener = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1') or die $!;
	my $impostor = fork // die $!;
	if ($impostor == 0) { close STDOUT;
		close STDERR } # close the test's pipes, or prove waits for this process
	while ($impostor == 0)
	{
		my $client = $listener->accept or next;
		while (sysread $client, my $request, 65536) { syswrite $client,
			pack('N', 7) . substr($request, 8, 4) . "\0\0\0" }
	}
	create_sink($node, 'quick', { url => $receiver->url('/quick') }, q{event_types => '{Quick}'});
	$from = -s $node->logfile;
	sql(sprintf q{SELECT outbox_create_sink('impostor', 'kafka',
			'{"bootstrap.servers": "127.0.0.1:%d", "topic": "t", "timeout": 2}',
			event_types => '{Kafka}')}, $listener->sockport);
	my $backend = $node->background_psql('postgres');
	my ($pid) = $backend->query('SELECT pg_backend_pid()') =~ /(\d+)/;
	for my $round ('first test', 'second test')
	{
		sql(q{SELECT outbox_enqueue('Order', '1', 'Kafka', '{}')});
		ok(wait_until(sub { broker_error() =~ /librdkafka has failed|broker|ApiVersion|connect/i }),
			"$round: a hostile broker is reported as an error") or diag(broker_error());
		ok(quick(), "$round: the relay delivers to other sinks");
		like(join('', $node->psql('postgres', q{CALL outbox_test_sink('impostor', NULL, NULL)})),
			qr/f\|.*(librdkafka has failed|broker|ApiVersion|connect|within)/i,
			"$round: outbox_test_sink() reports a hostile broker");
		ok(quick(), "$round: the relay delivers to other sinks after the test");
		sql(q{SELECT outbox_resume('impostor')});
	}
	is($backend->query('SELECT pg_backend_pid()') =~ s/\s//gr, $pid,
		'another session survives the hostile broker');
	$backend->quit;
	unlike(logged(),
		qr/terminated by signal|all server processes terminated|crash of another server process/,
		'no process of the server crashed');
	sql("SELECT outbox_drop_sink(name, true) FROM outbox_consumers WHERE kind <> 'worker'");
	kill 'KILL', $impostor;
	waitpid $impostor, 0;
	close $listener;
}
$ENV{OUTBOX_SANITIZED}
  ? note('a hostile broker is not tested: AddressSanitizer aborts in place of librdkafka')
  : test_hostile_broker();

# ---- Secrets in any readable place, after sinks have failed in many ways with receivers that
# repeat the requests.
my $bearer = { Authorization => 'Bearer ${secret:token}' };
my $escaped = $secrets{token} =~ s/(["\/])/\\$1/gr;
$receiver->control({ path => '/echo', status => 422, body => 'you sent ', echo => 'Authorization' },
	{ path => '/json', status => 500, body => "{\"authorization\": \"Bearer $escaped\"}" },
	{ path => '/long', status => 403, body => "Bearer $secrets{token} " x 500 },
	{ path => '/base64', status => 400,
		body => 'Basic ' . encode_base64("user:$secrets{token}", '') },
	{ path => '/gone', status => 410, echo => 'Authorization' },
	{ path => '/key', status => 401, body => 'not signed with ' . $secrets{shop} =~ s/^whsec_//r });
create_sink($node, "s$_", { url => $receiver->url("/$_"), headers => $bearer,
		secret => '${secret:shop}' }, q{event_types => '{Hush}', max_attempts => 2})
  for qw(echo json long base64 gone key);
create_sink($node, 'shost', { url => 'http://${secret:host}/' }, q{event_types => '{Hush}'});
create_sink($node, 'sfile', { url => $receiver->url('/file'), ca_file => '/${secret:token}' },
	q{event_types => '{Hush}'});
sql(q{SELECT outbox_create_sink('skafka', 'kafka',
		'{"bootstrap.servers": "127.0.0.1:1", "topic": "t", "security.protocol": "SASL_PLAINTEXT",
	"sasl.mechanism": "PLAIN", "sasl.username": "u",
	"sasl.password": "${secret:token}", "debug": "all"}',
		event_types => '{Hush}')});
$from = -s $node->logfile;
sql(q{SELECT outbox_enqueue('Order', '1', 'Hush', '{}')});
ok(wait_until(sub { sql(q{SELECT count(*) FROM outbox_messages_dlq JOIN outbox_consumers
				USING (consumer_id) WHERE name IN ('secho', 'sbase64')}) == 2 }),
	'messages are rejected by receivers that repeat the request');
ok(wait_until(sub { sql(qq{SELECT coalesce((SELECT paused::text FROM outbox_consumers
				WHERE name = '$_'), '')}) eq 'true' }), "$_ is paused") for qw(sgone sfile);
like(wait_for_status($node, $_, qr/^f/), qr/^f/, "$_ is in trouble")
  for qw(sjson slong skey shost skafka);
is(header(($receiver->wait_for(1, 20, '/echo'))[0], 'Authorization'), "Bearer $secrets{token}",
	'the receiver gets the secret');
my @secretive = split /\n/,
  sql(q{SELECT name FROM outbox_consumers WHERE kind <> 'worker' ORDER BY name});
is("@secretive", 'sbase64 secho sfile sgone shost sjson skafka skey slong',
	'the search covers nine sinks');
my $members =
	q{JOIN pg_depend d ON d.objid = o.oid AND d.deptype = 'e'
	JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'outbox'};
my @looks = map { [ $_ => "SELECT string_agg(x::text, E'\\n') FROM $_ x" ] } 'pg_stat_activity',
  'pg_settings', split /\n/, sql(
	"SELECT o.oid::regclass FROM pg_class o $members WHERE o.relkind IN ('r', 'v', 'p')",
	"SELECT o.oid::regproc || '()' FROM pg_proc o $members WHERE o.pronargs = o.pronargdefaults
		AND o.prokind = 'f' AND o.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
		AND o.proname !~ 'reset|removal'");
push @looks,
  map { [ $_ => "SELECT string_agg(x::text, E'\\n') FROM $_ x" ] } 'pg_stat_get_activity(NULL)',
  q{outbox_history('Order', '1')},
	q{outbox_messages m CROSS JOIN LATERAL outbox_find(m.tracking_id)};
push @looks,
  map { [ "outbox_test_sink() of $_" => "CALL outbox_test_sink('$_', NULL, NULL)" ] } @secretive;
my %places = map { /^(.*?)\n(.*)$/s } split /^== /m,
  $node->safe_psql('postgres', join '', map { "\\echo == $_->[0]\n$_->[1];\n" } @looks);
$node->command_ok([ 'pg_dumpall', '-d', $node->connstr('postgres'), '-f', "$dir/dump" ],
	'pg_dumpall succeeds');
$places{'a dump'} = slurp_file("$dir/dump");
$places{'the log'} = logged();
$places{'how processes are called'} = join '',
  map { slurp_file($_) } grep { -r } map { "/proc/$_/cmdline" } split /\n/,
  sql('SELECT pid FROM pg_stat_activity');
for my $config ('{"url": "http://user:%s@x/"}', '{"url": "http://x/", "secret": "%s"}',
	'{"url": "http://x/", "headers": {"X-Api-Key": "%s"}}',
	'{"url": "http://x/", "proxy": "http://u:%s@x"}', '{"url": "%s"}',
	'{"url": "http://x/", "timeout": "%s"}', '{"url": "http://x/", "method": "%s"}',
	'{"url": "http://x/", "format": "%s"}')
{
	(undef, undef, my $error) =
		$node->psql('postgres', sprintf(q{SELECT outbox_create_sink('bad', 'http', $c$%s$c$)},
			sprintf $config, 'tk-literal-0123456789'));
	like($error, qr/ERROR/, "a literal secret is refused: $config");
	unlike($error =~ s/^LINE.*\n.*\^$//mr, qr/tk-literal/,
		"the error does not repeat the secret: $config");
}
cmp_ok(scalar(keys %places), '>', 60, 'the search covers more than 60 places');
my %forms = map { my $secret = $_ =~ s/^whsec_//r;
	map { $_ => 1 } $secret, lc $secret, $secret =~ s/(["\/])/\\$1/gr, substr($secret, 0, 12),
	  substr(encode_base64("user:$secret", ''), 8, 16), encode_base64($secret, '') } values %secrets;
is(join(' ', grep { my $text = $places{$_} // '';
			grep { index($text, $_) >= 0 } keys %forms } sort keys %places), '',
	'no secret is in any place');
like($places{outbox_messages_dlq}, qr/you sent Bearer \*\*\*.*Basic/s,
	'secrets in responses are replaced by stars');
like($places{$_}, qr/you sent Bearer \*\*\*/, "secrets are replaced by stars in $_")
  for grep { /outbox_(?:find|history)\(/ } keys %places;
is(join(' ', split /\n/, $node->safe_psql('postgres', q{SELECT name FROM pg_settings
				WHERE name IN ('outbox.secrets_file', 'outbox.archive_command',
				'outbox.cold_storage_dir')}, extra_params => [ '-U', 'app' ])), '',
	'the paths of secrets and files are hidden from a role without privileges');

# ---- outbox.http_deny_private takes effect for existing sinks.
sql("SELECT outbox_drop_sink(name, true) FROM outbox_consumers WHERE kind <> 'worker'");
$receiver->control;
create_sink($node, 'early', { url => $receiver->url('/early') });
create_sink($node, 'proxied', { url => 'http://192.0.2.1/proxied', proxy => $receiver->url('') });
sql(enqueue('early'));
ok($receiver->wait_for(1, 20, '/early'), 'a sink delivers before outbox.http_deny_private is on')
  && ok($receiver->wait_for(1, 20, 'http://192.0.2.1/proxied'),
	'a sink behind a proxy delivers before outbox.http_deny_private is on');
$node->append_conf('postgresql.conf', "outbox.http_deny_private = on\n");
$node->reload;
$node->poll_query_until('postgres', "SELECT current_setting('outbox.http_deny_private') = 'on'");
wait_until(sub { sql(enqueue('late'));
		sink_status($node, 'early') =~ /^f/ && sink_status($node, 'proxied') =~ /^f/ });
my $sent = $receiver->count('/early');
like(sink_status($node, $_), qr/^f\|.*outbox.http_deny_private/s,
	"$_: outbox.http_deny_private refuses an existing sink") for qw(early proxied);
sql(enqueue('later'));
sleep 0.5;
is($receiver->count('/early'), $sent, 'a refused sink sends no request');

$node->stop;
done_testing();
