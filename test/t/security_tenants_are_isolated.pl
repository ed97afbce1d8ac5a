# A role of one tenant gets no information about another tenant, with any privilege: not from
# tables, views, functions, errors or statistics, and not from the duration of a call.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my @privileges = qw(producer consumer idempotency reader monitor admin);
my $node = start_node('main', conf => "autovacuum = off\n");

# Runs SQL as a role. Returns its output, or the error with its SQLSTATE.
sub as
{
	my ($role, @statements) = @_;
	my ($code, $out, $err) = $node->psql('postgres',
		"\\set VERBOSITY verbose\n\\set SHOW_CONTEXT never\n" . join(";\n", @statements) . ';',
		extra_params => [ '-U', $role ], on_error_stop => 1);
	$err =~ s/\nLOCATION:.*//g;
	$err =~ s/^psql:<stdin>:\d+: //mg;
	return $code == 0 ? $out : $err =~ s/\n+$//r;
}

$node->safe_psql('postgres', join ';', (map { my $role = $_; ("CREATE ROLE $role LOGIN",
				map { "SELECT outbox_grant('$role', '$_')" } @privileges) } qw(one two ops)),
	'ALTER ROLE one SET outbox.tenant_id = 1', 'ALTER ROLE two SET outbox.tenant_id = 2');

# A session cannot choose its tenant.
like(as('one', 'SET outbox.tenant_id = 2'), qr/^ERROR:  42501/,
	'a session cannot set outbox.tenant_id to another tenant');
like(as('one', "SET outbox.tenant_id = ''"), qr/^ERROR:  42501/,
	'a session cannot clear outbox.tenant_id');
is(as('one', 'RESET ALL', 'DISCARD ALL', 'SHOW outbox.tenant_id'), '1',
	'a session cannot reset outbox.tenant_id');

# Producers.
as('ops', map { "SELECT outbox_create_consumer('c$_', tenant_id => nullif($_, 0))" } 0 .. 2);
sub event { return "SELECT outbox_enqueue('Order', '" . ($_[0] // 1)
	. "', 'OrderConfirmed', '{\"of\": \"'||current_user||'\"}'" . ($_[1] ? ", $_[1]" : '') . ')' }
my %tracking = map { $_ => as($_, event()) } qw(one two);
my %later = map { $_ => as($_, event(1, "available_at => now() + interval '1 hour'")) } qw(one two);
like(as('two', event(1, 'tenant_id => 1')),
	qr/^ERROR:  42501: tenant_id 1 is not the tenant of this session/,
	'an event for another tenant is refused');
like(as('two', q{SELECT outbox_enqueue_many('[{"aggregate_type": "Order",
			"aggregate_id": "1", "event_type": "X", "payload": {}, "tenant_id": 1}]')}),
	qr/^ERROR:  42501/, 'outbox_enqueue_many() refuses an event for another tenant');
my %dedup = map { $_ => as($_, event(1, "dedup_key => 'same'")) } qw(one two);
isnt($dedup{one}, $dedup{two}, 'equal dedup keys of two tenants are different keys');
is(as('one', event(1, "dedup_key => 'same'")), $dedup{one},
	'a dedup key detects a duplicate within a tenant');
is(as('ops', 'SELECT tenant_id, count(*) FROM outbox_messages GROUP BY 1 ORDER BY 1'), "1|2\n2|2",
	'events have the tenant of their session');

# Consumers of another tenant do not seem to exist.
sub unknown {
	return qq{ERROR:  42704: consumer "$_[0]" does not exist\n}
	  . qq{HINT:  Create it with outbox_create_consumer().} }
my %call = (
	outbox_claim => q{SELECT * FROM outbox_claim('%s')},
	outbox_consume => q{SELECT * FROM outbox_consume('%s')},
	outbox_peek => q{SELECT * FROM outbox_peek('%s')},
	outbox_wait => q{CALL outbox_wait('%s', '1 s', NULL)},
	outbox_seek => q{SELECT outbox_seek('%s', 'earliest')},
	outbox_redrive => q{SELECT outbox_redrive('%s')},
	outbox_discard => q{SELECT outbox_discard('%s', '{1}')},
	outbox_pause => q{SELECT outbox_pause('%s')},
	outbox_resume => q{SELECT outbox_resume('%s')},
	outbox_alter_consumer => q{SELECT outbox_alter_consumer('%s', max_attempts => 1)},
	outbox_drop_consumer => q{SELECT outbox_drop_consumer('%s')},
	outbox_alter_sink => q{SELECT outbox_alter_sink('%s', max_attempts => 1)},
	outbox_drop_sink => q{SELECT outbox_drop_sink('%s')});
my $before = as('ops', 'SELECT * FROM outbox_consumers ORDER BY 1')
  . as('ops', 'SELECT count(*) FROM outbox_stats');
for my $function (sort keys %call)
{
	is(as('one', sprintf $call{$function}, $_), unknown($_),
		"$function: no consumer $_ for tenant 1") for qw(c0 c2 nobody);
}
is(as('ops', 'SELECT * FROM outbox_consumers ORDER BY 1')
	. as('ops', 'SELECT count(*) FROM outbox_stats'), $before, 'refused calls change no consumer');
my ($token, $others) = map { as($_->[0], "SELECT max(lock_token)
			FROM outbox_claim('$_->[1]', lease => '1 hour')") } [ one => 'c1' ], [ two => 'c2' ];
is(as('one', "SELECT string_agg(DISTINCT payload ->> 'of', ' ') FROM outbox_peek('c1')"), '',
	'a consumer of a tenant gets the events of its tenant');
for my $settle ("outbox_ack(%s)", "outbox_ack(%s, '{1}')", "outbox_fail(%s, 1, 'x')",
	"outbox_fail(%s, '{1}'::bigint[], 'x')", "outbox_heartbeat(%s)", "outbox_release(%s)")
{
	my ($of_other, $of_unknown) =
		map { as('one', 'SELECT ' . sprintf $settle, $_) =~ s/$_/TOKEN/r } $others, 1099511999999;
	is($of_other, $of_unknown, sprintf("$settle: the token of another tenant is unknown", 'token'));
	like($of_other, qr/^ERROR:  OB002: lock_token TOKEN is unknown/,
		"$settle: the error says that the token is unknown");
}
my $settling = $node->background_psql('postgres', extra_params => [ '-U', 'two' ]);
$settling->query_safe("BEGIN; SELECT outbox_heartbeat($others)");
like(as('one', q{SET lock_timeout = '100ms'}, "SELECT outbox_ack($others)"),
	qr/^ERROR:  OB002: lock_token $others is unknown/,
	'an open transaction on a batch of another tenant causes no wait');
$settling->query_safe('ROLLBACK');
$settling->quit;
is(as('two', "SELECT outbox_ack($others)"), 2, 'a tenant settles a batch of its own consumer');
is(as('ops', q{SELECT count(*) FROM outbox_consume('c0')}), 4,
	'a consumer without a tenant gets the events of all tenants');
is(as('one', "SELECT outbox_fail($token, (SELECT min(id) FROM outbox_messages), 'no',
			dead => true)"), 'dead', 'a tenant makes a dead letter of its own message');

# Views and lookups.
is(as('one', "SELECT place, consumer_name FROM outbox_find('$tracking{two}')"), '',
	'outbox_find() finds no event of another tenant');
is(as('one', "SELECT place FROM outbox_find('$later{two}')"), '',
	'outbox_find() finds no scheduled event of another tenant');
like(as('one', "SELECT place, consumer_name FROM outbox_find('$tracking{one}')"), qr/^log\|/,
	'outbox_find() finds an event of the tenant');
is(as('one', "SELECT outbox_cancel('$later{two}')"), 'f',
	'outbox_cancel() cancels no event of another tenant');
is(as('one', "SELECT count(*), count(*) FILTER (WHERE tracking_id IN ('$tracking{two}',
			'$dedup{two}')) FROM outbox_history('Order', '1')"), '4|0',
	'outbox_history() has the events of the tenant');
is(as('one', 'SELECT DISTINCT consumer_name FROM consumer_offsets'), 'c1',
	'consumer_offsets has the consumers of the tenant');
is(as('one', 'SELECT DISTINCT tenant_id FROM outbox_deliveries'), '1',
	'outbox_deliveries has the events of the tenant');
# The planner evaluates a cheap function first, unless the view is a security barrier.
my $tell = q{CREATE FUNCTION pg_temp.tell(anyelement) RETURNS boolean
	LANGUAGE plpgsql COST 0.0000001 AS 'BEGIN RAISE WARNING ''saw %'', $1; RETURN false; END'};
for my $view ([ 'outbox_deliveries', 'tenant_id' ], [ 'consumer_offsets', 'consumer_name' ],
	map { [ $_, 'tenant_id' ] } qw(outbox_messages outbox_scheduled))
{
	my ($table, $column) = @$view;
	my (undef, undef, $told) = $node->psql('postgres', "$tell; SELECT count(*) FROM $table
			WHERE pg_temp.tell($column)", extra_params => [ '-U', 'one' ]);
	my %saw = map { $_ => 1 } $told =~ /saw (\S+)/g;
	is(join(' ', sort keys %saw), $table eq 'consumer_offsets' ? 'c1' : '1',
		"$table: a function in the caller's WHERE sees no row of another tenant");
}
is(as('one', 'SELECT consumer FROM outbox_stats'), 'c1',
	'outbox_stats has the consumers of the tenant');
is(as('one', 'SELECT consumer FROM outbox_stats_latency'), 'c1',
	'outbox_stats_latency has the consumers of the tenant');
is(as('two', 'SELECT * FROM outbox_stats_dead_letters'), '',
	'outbox_stats_dead_letters has no dead letters of another tenant');
is(as('one', 'SELECT * FROM outbox_stats_dead_letters'), 'c1|OrderConfirmed|1',
	'outbox_stats_dead_letters has the dead letters of the tenant');
is(as('one', "SELECT * FROM outbox_stats_$_"), '',
	"outbox_stats_$_ is empty for a tenant, because it is about all tenants")
  for qw(events tables held);
for my $all ('SELECT * FROM outbox_stats_database',
	'SELECT outbox_metrics()', 'SELECT * FROM outbox_health()',
	q{SELECT _outbox.report_samples('{c1}', now() - interval '1 hour')},
	'SELECT _outbox.report_problems()', 'SELECT _outbox.report_dead_letters()',
	'SELECT _outbox.report_partitions()', 'SELECT _outbox.report_held()',
	'SELECT * FROM outbox_status()', 'SELECT * FROM outbox_maintain()',
	q{SELECT outbox_restore_partition('x')}, q{SELECT outbox_grant('two', 'admin')},
	q{SELECT outbox_revoke('two', 'admin')}, 'SELECT outbox_release_due()',
	'SELECT outbox_stats_reset()',
	'SELECT idempotency_expire()', q{SELECT idempotency_required('x')},
	q{SELECT outbox_create_consumer('c2')},
	q{SELECT outbox_create_consumer('mine', tenant_id => 1)},
	q{SELECT outbox_create_sink('c2', 'http', '{"url": "http://localhost/"}')},
	q{CALL outbox_test_sink('c2')})
{
	like(as('one', $all),
		qr/^ERROR:  42501: .* is not allowed while outbox.tenant_id is set\nHINT:  It affects all tenants/,
		"a tenant is refused: $all");
}

# Tables, for roles with SELECT on them.
my @tables =
	qw(outbox_messages outbox_messages_archive outbox_scheduled outbox_retries
	outbox_messages_dlq idempotency_keys);
as($_, q{SELECT idempotency_begin('pay', 'key', '{}'::jsonb)}) for qw(one two);
for my $table (@tables)
{
	like(as('one', "SELECT count(*) FILTER (WHERE tenant_id <> 1), count(*) > 0 FROM $table"),
		$table =~ /archive|retries/ ? qr/^0\|/ : qr/^0\|t$/,
		"$table has the rows of the session's tenant only");
}
is(as('ops', 'SELECT count(DISTINCT tenant_id) FROM outbox_messages'), 2,
	'a session without a tenant sees the events of all tenants');
$node->safe_psql('postgres', 'GRANT ALL ON ALL TABLES IN SCHEMA public, _outbox TO one');
is(as('one', "SELECT count(*) FROM $_"), 0,
	"a tenant with rights on all tables sees nothing in the partition $_")
  for split /\n/, $node->safe_psql('postgres', "SELECT partition FROM _outbox.partitions()
  		WHERE is_default OR pg_relation_size(partition) > 0");
is(as('one', "SELECT DISTINCT tenant_id FROM $_"), '1',
	"a tenant with rights on all tables sees its own rows of $_ only")
  for qw(outbox_messages _outbox.dedup_keys outbox_consumers);
like(as('one', "INSERT INTO _outbox.dedup_keys (tenant_id, expires_at, tracking_id, dedup_key)
			VALUES (2, now() + interval '1 day', gen_random_uuid(), 'theirs')"),
	qr/^ERROR:  42501: new row violates row-level security/,
	'a tenant cannot insert a row of another tenant');
is(as('one', 'UPDATE _outbox.scheduled SET tenant_id = 1 WHERE tenant_id = 2 RETURNING 1'), '',
	'a tenant cannot update a row of another tenant');
is(as('one', 'DELETE FROM _outbox.dedup_keys WHERE tenant_id = 2 RETURNING 1'), '',
	'a tenant cannot delete a row of another tenant');
like(as('one', "DELETE FROM outbox_consumers"), qr/cannot delete from view "outbox_consumers"/,
	'the view outbox_consumers is read-only');
$node->safe_psql('postgres', 'REVOKE ALL ON ALL TABLES IN SCHEMA public, _outbox FROM one');
is($node->safe_psql('postgres', q{SELECT string_agg(c.relname, ' ') FROM pg_class c
			JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
	WHERE c.relkind IN ('r', 'p') AND c.relnamespace IN ('public'::regnamespace, '_outbox'::regnamespace)
	AND NOT c.relrowsecurity AND c.relname <> 'messages_template'}), '',
	'every table with a tenant_id has row security');

# Keys of two tenants never block each other.
for my $keys ([ 'an idempotency key',
		q{SELECT decision FROM idempotency_begin('pay', 'open', '{}'::jsonb)}, 'execute' ],
	[ 'a dedup key', event(1, "dedup_key => 'open'"), qr/^[0-9a-f-]{36}$/ ])
{
	my ($what, $call, $expected) = @$keys;
	my $session = $node->background_psql('postgres', extra_params => [ '-U', 'one' ]);
	$session->query_safe("BEGIN; $call");
	my $started = time;
	like(as('two', $call), $expected eq 'execute' ? qr/^execute$/ : $expected,
		"$what that another tenant has in an open transaction is free");
	cmp_ok(time - $started, '<', 1, "$what of another tenant causes no wait");
	$session->query_safe('ROLLBACK');
	$session->quit;
}
like(as('two', q{SELECT idempotency_begin('pay', 'key', '{}'::jsonb, tenant_id => 1)}),
	qr/^ERROR:  42501/, 'idempotency_begin() refuses another tenant');
my $of_one = as('one', q{SELECT token FROM idempotency_begin('pay', 'mine', '{}'::jsonb)});
is(as('two', "SELECT idempotency_finish('pay', 'mine', $of_one, 200, '{}'::jsonb)"),
	as('two', "SELECT idempotency_finish('pay', 'mine', 1099511999999, 200,
			'{}'::jsonb)") =~ s/1099511999999/$of_one/gr,
	'idempotency_finish() reports a token of another tenant like an unknown one');
is(as($_, "SELECT inbox_accept('mailer', '$tracking{one}')"), 't',
	'an inbox is separate for each tenant') for qw(one two);
is(as('one', "SELECT inbox_accept('mailer', '$tracking{one}')"), 'f',
	'an inbox detects a duplicate within a tenant');

# Sinks: the response to an event of one tenant is hidden from another.
as('ops', map { "SELECT outbox_grant('one', '$_')" } @privileges);
my $receiver = OutboxReceiver->start('main');
$receiver->control({ path => '/all', status => 500, body => 'about two' },
	{ path => '/own', status => 500, body => 'about one' });
create_sink($node, 'all', { url => $receiver->url('/all') });
create_sink($node, 'own', { url => $receiver->url('/own') }, 'tenant_id => 1');
as('two', event('of two'));
my $pending = as('one', event('of one'));
for my $sink (qw(all own))
{
	ok(wait_until(sub { as('ops', "SELECT last_error FROM outbox_stats
					WHERE consumer = '$sink'") =~ /about/ }), "sink $sink is in trouble");
}
as('ops', q{SELECT count(*) FROM outbox_claim('c0', lease => '1 hour')});
my %shown = map { my $role = $_; $role => join "\n",
	map { as($role, "SELECT x::text FROM $_ x") } '_outbox.sink_states()', 'outbox_deliveries',
	"outbox_find('$pending')", q{outbox_history('Order', 'of one')} } qw(one ops);
like($shown{ops}, qr/about two/, 'a session without a tenant sees the responses to all tenants');
unlike($shown{one}, qr/about two|ERROR/, 'a tenant sees no response to an event of another tenant');
like($shown{one}, qr/about one/, 'a tenant sees the responses to its own sink');
like(as('one', "SELECT string_agg(status, ' ' ORDER BY consumer_name) FROM outbox_deliveries
			WHERE tracking_id = '$pending' AND consumer_name IN ('all', 'c0')"),
	qr/^(PENDING|PROCESSING) PROCESSING$/, 'a tenant sees the status of its events');
my $tokens = q{SELECT count(lock_token) > 0, count(worker) > 0 FROM outbox_deliveries
	WHERE consumer_name = 'c0' AND tenant_id = 1};
is(as($_->[0], $tokens), $_->[1],
	"$_->[0]: lock_token and worker are shown to the owner of the consumer only")
  for [ one => 'f|f' ], [ ops => 't|t' ];
like(as('one', q{SELECT outbox_alter_sink('own',
			'{"url": "http://127.0.0.1:9/", "headers": {"X-A": "${secret:of_two}"}}')}),
	qr/^ERROR:  42501: to change the config of a sink is not allowed while outbox.tenant_id is set/,
	'a tenant may not change the config of its sink, which could send secrets elsewhere');
is(as('one', q{SELECT outbox_alter_sink('own', max_attempts => 3)}), '',
	'a tenant may change other arguments of its sink');
drop_sinks($node, 'all', 'own');
$receiver->control;

# A tenant set for the whole database does not restrict the relay.
create_sink($node, 'hook', { url => $receiver->url('/hook') });
$node->safe_psql('postgres', 'ALTER DATABASE postgres SET outbox.tenant_id = 5');
my $relay = relay_pid($node);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($relay)");
wait_until(sub { (relay_pid($node) || $relay) != $relay });
my $id = as('ops', event());
ok(wait_until(sub { grep { $_ eq $id } $receiver->accepted_ids('/hook') }),
	'the relay delivers events in a database with outbox.tenant_id');
$node->stop;

# Before the library is loaded, any session can set a placeholder of that name.
my $plain = start_node('plain', no_preload => 1);
$plain->safe_psql('postgres', q{CREATE ROLE one LOGIN; SELECT outbox_grant('one', 'reader');
		ALTER ROLE one SET outbox.tenant_id = 1});
$plain->safe_psql('postgres', "SELECT outbox_enqueue('Order', 1, 'X', '{}', tenant_id => $_)")
  for 1, 2;
my ($code, $out, $err) = $plain->psql('postgres', 'SET outbox.tenant_id = 2;
		SHOW outbox.tenant_id; SELECT DISTINCT tenant_id FROM outbox_messages;
		SHOW outbox.tenant_id', extra_params => [ '-U', 'one' ]);
is($out, "2\n1\n1", 'outbox.tenant_id set before the library is loaded has no effect');
$plain->stop;
done_testing();
