# A role of one tenant sees nothing of another, whatever it is allowed to do: not in tables, views, functions, errors, statistics,
# nor in how long something takes.
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

# Runs SQL as a role, and returns what it prints, or the error with its SQLSTATE.
sub as
{
	my ($role, @statements) = @_;
	my ($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n\\set SHOW_CONTEXT never\n" . join(";\n", @statements) . ';', extra_params => [ '-U', $role ], on_error_stop => 1);
	$err =~ s/\nLOCATION:.*//g;
	$err =~ s/^psql:<stdin>:\d+: //mg;
	return $code == 0 ? $out : $err =~ s/\n+$//r;
}

$node->safe_psql('postgres', join ';', (map { my $role = $_; ("CREATE ROLE $role LOGIN", map { "SELECT outbox_grant('$role', '$_')" } @privileges) } qw(one two ops)),
	'ALTER ROLE one SET outbox.tenant_id = 1', 'ALTER ROLE two SET outbox.tenant_id = 2');

# The tenant of a session is not its own to choose.
like(as('one', 'SET outbox.tenant_id = 2'), qr/^ERROR:  42501/, 'a tenant cannot become another');
like(as('one', "SET outbox.tenant_id = ''"), qr/^ERROR:  42501/, 'nor none');
is(as('one', 'RESET ALL', 'DISCARD ALL', 'SHOW outbox.tenant_id'), '1', 'nor forget it');

# Producing.
as('ops', map { "SELECT outbox_create_consumer('c$_', tenant_id => nullif($_, 0))" } 0 .. 2);
sub event { return "SELECT outbox_enqueue('Order', '" . ($_[0] // 1) . "', 'OrderConfirmed', '{\"of\": \"'||current_user||'\"}'" . ($_[1] ? ", $_[1]" : '') . ')' }
my %tracking = map { $_ => as($_, event()) } qw(one two);
my %later = map { $_ => as($_, event(1, "available_at => now() + interval '1 hour'")) } qw(one two);
like(as('two', event(1, 'tenant_id => 1')), qr/^ERROR:  42501: tenant_id 1 is not the tenant of this session/, 'an event for another tenant is refused');
like(as('two', q{SELECT outbox_enqueue_many('[{"aggregate_type": "Order", "aggregate_id": "1", "event_type": "X", "payload": {}, "tenant_id": 1}]')}),
	qr/^ERROR:  42501/, 'among many, too');
my %dedup = map { $_ => as($_, event(1, "dedup_key => 'same'")) } qw(one two);
isnt($dedup{one}, $dedup{two}, 'dedup keys of tenants never meet');
is(as('one', event(1, "dedup_key => 'same'")), $dedup{one}, 'but those of one do');
is(as('ops', 'SELECT tenant_id, count(*) FROM outbox_messages GROUP BY 1 ORDER BY 1'), "1|2\n2|2", 'whose events they are');

# Consuming: what is another's is as if it were not there.
sub unknown { return qq{ERROR:  42704: consumer "$_[0]" does not exist\nHINT:  Create it with outbox_create_consumer().} }
my %call = (
	outbox_claim => q{SELECT * FROM outbox_claim('%s')}, outbox_consume => q{SELECT * FROM outbox_consume('%s')},
	outbox_peek => q{SELECT * FROM outbox_peek('%s')}, outbox_wait => q{CALL outbox_wait('%s', '1 s', NULL)},
	outbox_seek => q{SELECT outbox_seek('%s', 'earliest')}, outbox_redrive => q{SELECT outbox_redrive('%s')},
	outbox_discard => q{SELECT outbox_discard('%s', '{1}')}, outbox_pause => q{SELECT outbox_pause('%s')},
	outbox_resume => q{SELECT outbox_resume('%s')}, outbox_alter_consumer => q{SELECT outbox_alter_consumer('%s', max_attempts => 1)},
	outbox_drop_consumer => q{SELECT outbox_drop_consumer('%s')}, outbox_alter_sink => q{SELECT outbox_alter_sink('%s', max_attempts => 1)},
	outbox_drop_sink => q{SELECT outbox_drop_sink('%s')});
my $before = as('ops', 'SELECT * FROM outbox_consumers ORDER BY 1') . as('ops', 'SELECT count(*) FROM outbox_stats');
for my $function (sort keys %call)
{
	is(as('one', sprintf $call{$function}, $_), unknown($_), "$function: no consumer $_ for tenant 1") for qw(c0 c2 nobody);
}
is(as('ops', 'SELECT * FROM outbox_consumers ORDER BY 1') . as('ops', 'SELECT count(*) FROM outbox_stats'), $before, 'and nothing has changed');
my ($token, $others) = map { as($_->[0], "SELECT max(lock_token) FROM outbox_claim('$_->[1]', lease => '1 hour')") } [ one => 'c1' ], [ two => 'c2' ];
is(as('one', "SELECT string_agg(DISTINCT payload ->> 'of', ' ') FROM outbox_peek('c1')"), '', 'c1 has nothing more');
for my $settle ("outbox_ack(%s)", "outbox_ack(%s, '{1}')", "outbox_fail(%s, 1, 'x')", "outbox_fail(%s, '{1}'::bigint[], 'x')", "outbox_heartbeat(%s)", "outbox_release(%s)")
{
	my ($of_other, $of_nobody) = map { as('one', 'SELECT ' . sprintf $settle, $_) =~ s/$_/TOKEN/r } $others, 1099511999999;
	is($of_other, $of_nobody, sprintf("$settle: another's token is unknown", 'token'));
	like($of_other, qr/^ERROR:  OB002: lock_token TOKEN is unknown/, 'and says so');
}
my $settling = $node->background_psql('postgres', extra_params => [ '-U', 'two' ]);
$settling->query_safe("BEGIN; SELECT outbox_heartbeat($others)");
like(as('one', q{SET lock_timeout = '100ms'}, "SELECT outbox_ack($others)"), qr/^ERROR:  OB002: lock_token $others is unknown/, 'also while it is being settled: nobody waits to hear of it');
$settling->query_safe('ROLLBACK');
$settling->quit;
is(as('two', "SELECT outbox_ack($others)"), 2, 'to its own tenant it is not');
is(as('ops', q{SELECT count(*) FROM outbox_consume('c0')}), 4, 'who has no tenant has all');
is(as('one', "SELECT outbox_fail($token, (SELECT min(id) FROM outbox_messages), 'no', dead => true)"), 'dead', 'a tenant has dead letters of its own');

# Looking.
is(as('one', "SELECT place, consumer_name FROM outbox_find('$tracking{two}')"), '', 'an event of another cannot be found');
is(as('one', "SELECT place FROM outbox_find('$later{two}')"), '', 'nor one that is scheduled');
like(as('one', "SELECT place, consumer_name FROM outbox_find('$tracking{one}')"), qr/^log\|/, 'an own one can');
is(as('one', "SELECT outbox_cancel('$later{two}')"), 'f', 'nor be cancelled');
is(as('one', "SELECT count(*), count(*) FILTER (WHERE tracking_id IN ('$tracking{two}', '$dedup{two}')) FROM outbox_history('Order', '1')"), '4|0', 'the history of an aggregate is the tenant\'s own');
is(as('one', 'SELECT DISTINCT consumer_name FROM consumer_offsets'), 'c1', 'consumer_offsets');
is(as('one', 'SELECT DISTINCT tenant_id FROM outbox_deliveries'), '1', 'outbox_deliveries');
# A function that costs nothing is asked before others, and may tell what it was asked about.
my $tell = q{CREATE FUNCTION pg_temp.tell(anyelement) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS 'BEGIN RAISE WARNING ''saw %'', $1; RETURN false; END'};
for my $view ([ 'outbox_deliveries', 'tenant_id' ], [ 'consumer_offsets', 'consumer_name' ], map { [ $_, 'tenant_id' ] } qw(outbox_messages outbox_scheduled))
{
	my ($table, $column) = @$view;
	my (undef, undef, $told) = $node->psql('postgres', "$tell; SELECT count(*) FROM $table WHERE pg_temp.tell($column)", extra_params => [ '-U', 'one' ]);
	my %saw = map { $_ => 1 } $told =~ /saw (\S+)/g;
	is(join(' ', sort keys %saw), $table eq 'consumer_offsets' ? 'c1' : '1', "$table: a function in the caller's WHERE sees no row of another tenant");
}
is(as('one', 'SELECT consumer FROM outbox_stats'), 'c1', 'outbox_stats');
is(as('one', 'SELECT consumer FROM outbox_stats_latency'), 'c1', 'outbox_stats_latency');
is(as('two', 'SELECT * FROM outbox_stats_dead_letters'), '', 'outbox_stats_dead_letters');
is(as('one', 'SELECT * FROM outbox_stats_dead_letters'), 'c1|OrderConfirmed|1', 'those of its own');
is(as('one', "SELECT * FROM outbox_stats_$_"), '', "outbox_stats_$_ is about all, and so has nothing for one") for qw(events tables held);
for my $all ('SELECT * FROM outbox_stats_database', 'SELECT outbox_metrics()', 'SELECT * FROM outbox_health()', q{SELECT _outbox.report_samples('{c1}', now() - interval '1 hour')},
	'SELECT _outbox.report_problems()', 'SELECT _outbox.report_dead_letters()', 'SELECT _outbox.report_partitions()', 'SELECT _outbox.report_held()', 'SELECT * FROM outbox_status()', 'SELECT * FROM outbox_maintain()',
	q{SELECT outbox_restore_partition('x')}, q{SELECT outbox_grant('two', 'admin')}, q{SELECT outbox_revoke('two', 'admin')}, 'SELECT outbox_release_due()', 'SELECT outbox_stats_reset()',
	'SELECT idempotency_expire()', q{SELECT idempotency_required('x')}, q{SELECT outbox_create_consumer('c2')}, q{SELECT outbox_create_consumer('mine', tenant_id => 1)},
	q{SELECT outbox_create_sink('c2', 'http', '{"url": "http://localhost/"}')}, q{CALL outbox_test_sink('c2')})
{
	like(as('one', $all), qr/^ERROR:  42501: .* is not allowed while outbox\.tenant_id is set\nHINT:  It affects all tenants/, "refused: $all");
}

# Tables, for those who may read them.
my @tables = qw(outbox_messages outbox_messages_archive outbox_scheduled outbox_retries outbox_messages_dlq idempotency_keys);
as($_, q{SELECT idempotency_begin('pay', 'key', '{}'::jsonb)}) for qw(one two);
for my $table (@tables)
{
	like(as('one', "SELECT count(*) FILTER (WHERE tenant_id <> 1), count(*) > 0 FROM $table"), $table =~ /archive|retries/ ? qr/^0\|/ : qr/^0\|t$/, "$table has the rows of its tenant only");
}
is(as('ops', 'SELECT count(DISTINCT tenant_id) FROM outbox_messages'), 2, 'who has no tenant sees all');
$node->safe_psql('postgres', 'GRANT ALL ON ALL TABLES IN SCHEMA public, _outbox TO one');
is(as('one', "SELECT count(*) FROM $_"), 0, "let into all tables, it sees nothing of $_ itself")
  for split /\n/, $node->safe_psql('postgres', "SELECT partition FROM _outbox.partitions() WHERE is_default OR pg_relation_size(partition) > 0");
is(as('one', "SELECT DISTINCT tenant_id FROM $_"), '1', "and no more than its own of $_") for qw(outbox_messages _outbox.dedup_keys outbox_consumers);
like(as('one', "INSERT INTO _outbox.dedup_keys (tenant_id, expires_at, tracking_id, dedup_key) VALUES (2, now() + interval '1 day', gen_random_uuid(), 'theirs')"), qr/^ERROR:  42501: new row violates row-level security/, 'nor can it write for another');
is(as('one', 'UPDATE _outbox.scheduled SET tenant_id = 1 WHERE tenant_id = 2 RETURNING 1'), '', 'nor change what is another\'s');
is(as('one', 'DELETE FROM _outbox.dedup_keys WHERE tenant_id = 2 RETURNING 1'), '', 'nor remove it');
like(as('one', "DELETE FROM outbox_consumers"), qr/cannot delete from view "outbox_consumers"/, 'views of the tables are read-only');
$node->safe_psql('postgres', 'REVOKE ALL ON ALL TABLES IN SCHEMA public, _outbox FROM one');
is($node->safe_psql('postgres', q{SELECT string_agg(c.relname, ' ') FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
	WHERE c.relkind IN ('r', 'p') AND c.relnamespace IN ('public'::regnamespace, '_outbox'::regnamespace) AND NOT c.relrowsecurity AND c.relname <> 'messages_template'}), '', 'every table with a tenant has row security');

# Keys: nobody waits for another tenant, and nobody hears of it.
for my $keys ([ 'an idempotency key', q{SELECT decision FROM idempotency_begin('pay', 'open', '{}'::jsonb)}, 'execute' ], [ 'a dedup key', event(1, "dedup_key => 'open'"), qr/^[0-9a-f-]{36}$/ ])
{
	my ($what, $call, $expected) = @$keys;
	my $session = $node->background_psql('postgres', extra_params => [ '-U', 'one' ]);
	$session->query_safe("BEGIN; $call");
	my $started = time;
	like(as('two', $call), $expected eq 'execute' ? qr/^execute$/ : $expected, "$what that another tenant has open is free");
	cmp_ok(time - $started, '<', 1, 'at once');
	$session->query_safe('ROLLBACK');
	$session->quit;
}
like(as('two', q{SELECT idempotency_begin('pay', 'key', '{}'::jsonb, tenant_id => 1)}), qr/^ERROR:  42501/, 'a key of another tenant cannot be asked for');
my $of_one = as('one', q{SELECT token FROM idempotency_begin('pay', 'mine', '{}'::jsonb)});
is(as('two', "SELECT idempotency_finish('pay', 'mine', $of_one, 200, '{}'::jsonb)"), as('two', "SELECT idempotency_finish('pay', 'mine', 1099511999999, 200, '{}'::jsonb)") =~ s/1099511999999/$of_one/gr, 'nor finished');
is(as($_, "SELECT inbox_accept('mailer', '$tracking{one}')"), 't', 'inboxes of tenants never meet') for qw(one two);
is(as('one', "SELECT inbox_accept('mailer', '$tracking{one}')"), 'f', 'but that of one does');

# Sinks: what a receiver has said of one tenant's event is not for another.
as('ops', map { "SELECT outbox_grant('one', '$_')" } @privileges);
my $receiver = OutboxReceiver->start('main');
$receiver->control({ path => '/all', status => 500, body => 'about two' }, { path => '/own', status => 500, body => 'about one' });
create_sink($node, 'all', { url => $receiver->url('/all') });
create_sink($node, 'own', { url => $receiver->url('/own') }, 'tenant_id => 1');
as('two', event('of two'));
my $pending = as('one', event('of one'));
for my $sink (qw(all own))
{
	ok(wait_until(sub { as('ops', "SELECT last_error FROM outbox_stats WHERE consumer = '$sink'") =~ /about/ }), "sink $sink is in trouble");
}
as('ops', q{SELECT count(*) FROM outbox_claim('c0', lease => '1 hour')});
my %shown = map { my $role = $_; $role => join "\n", map { as($role, "SELECT x::text FROM $_ x") } '_outbox.sink_states()', 'outbox_deliveries', "outbox_find('$pending')", q{outbox_history('Order', 'of one')} } qw(one ops);
like($shown{ops}, qr/about two/, 'who has no tenant sees what was said');
unlike($shown{one}, qr/about two|ERROR/, 'a tenant does not');
like($shown{one}, qr/about one/, 'but hears of its own sink');
like(as('one', "SELECT string_agg(status, ' ' ORDER BY consumer_name) FROM outbox_deliveries WHERE tracking_id = '$pending' AND consumer_name IN ('all', 'c0')"),
	qr/^(PENDING|PROCESSING) PROCESSING$/, 'it sees what becomes of its events');
my $tokens = q{SELECT count(lock_token) > 0, count(worker) > 0 FROM outbox_deliveries WHERE consumer_name = 'c0' AND tenant_id = 1};
is(as($_->[0], $tokens), $_->[1], "$_->[0]: with whom and under which token, if the consumer is its own") for [ one => 'f|f' ], [ ops => 't|t' ];
like(as('one', q{SELECT outbox_alter_sink('own', '{"url": "http://127.0.0.1:9/", "headers": {"X-A": "${secret:of_two}"}}')}),
	qr/^ERROR:  42501: to change the config of a sink is not allowed while outbox\.tenant_id is set/, 'nor does a tenant send secrets anywhere');
is(as('one', q{SELECT outbox_alter_sink('own', max_attempts => 3)}), '', 'the rest of its sink is its own');
drop_sinks($node, 'all', 'own');
$receiver->control;

# A database of a single tenant: the relay serves it all the same.
create_sink($node, 'hook', { url => $receiver->url('/hook') });
$node->safe_psql('postgres', 'ALTER DATABASE postgres SET outbox.tenant_id = 5');
my $relay = relay_pid($node);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($relay)");
wait_until(sub { (relay_pid($node) || $relay) != $relay });
my $id = as('ops', event());
ok(wait_until(sub { grep { $_ eq $id } $receiver->accepted_ids('/hook') }), 'the relay is nobody\'s tenant');
$node->stop;

# While the library is not loaded, anybody can set a parameter of that name.
my $plain = start_node('plain', no_preload => 1);
$plain->safe_psql('postgres', q{CREATE ROLE one LOGIN; SELECT outbox_grant('one', 'reader'); ALTER ROLE one SET outbox.tenant_id = 1});
$plain->safe_psql('postgres', "SELECT outbox_enqueue('Order', 1, 'X', '{}', tenant_id => $_)") for 1, 2;
my ($code, $out, $err) = $plain->psql('postgres', 'SET outbox.tenant_id = 2; SHOW outbox.tenant_id; SELECT DISTINCT tenant_id FROM outbox_messages; SHOW outbox.tenant_id', extra_params => [ '-U', 'one' ]);
is($out, "2\n1\n1", 'a value that was slipped in before the library came does not count');
$plain->stop;
done_testing();
