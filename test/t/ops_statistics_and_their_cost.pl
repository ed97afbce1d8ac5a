# Counters of the statistics views, and the cost of reading them.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_node('main', conf => "outbox.relay = off\n");
sub sql { return $node->safe_psql('postgres', join ';', @_) }
sub consumer { return sql("SELECT delivered, failed, retried, dead FROM outbox_stats
			WHERE consumer = '$_[0]'") }
sub type { return sql("SELECT enqueued, delivered, failed, dead FROM outbox_stats_events
			WHERE event_type = '$_[0]'") }

sql(q{SELECT outbox_create_consumer('worker')},
	q{SELECT outbox_create_consumer('picky', event_types => '{Rare}')});
sql(q{SELECT outbox_enqueue('Order', i, 'OrderConfirmed', '{"n": 1}')
		FROM generate_series(1, 10) i});
is(type('OrderConfirmed'), '10|0|0|0', 'enqueued events are counted');
sql(q{BEGIN}, q{SELECT outbox_enqueue('Order', 1, 'Lost', '{}')}, q{ROLLBACK});
sql(q{BEGIN}, q{SAVEPOINT a}, q{SELECT outbox_enqueue('Order', 1, 'Lost', '{}')},
	q{ROLLBACK TO a}, q{SAVEPOINT b},
	q{SAVEPOINT c}, q{SELECT outbox_enqueue('Order', 1, 'Kept', '{}')}, q{RELEASE b}, q{COMMIT});
is(type('Lost') . type('Kept'), '1|0|0|0',
	'events are counted if they commit, and not after ROLLBACK TO');
sql(q{SELECT outbox_enqueue_many('[{"aggregate_type": "Order", "aggregate_id": "1", "event_type": "Many",
		"payload": {}},
	{"aggregate_type": "Order", "aggregate_id": "2", "event_type": "Many", "payload": {}}]')});
is(type('Many'), '2|0|0|0', 'events of outbox_enqueue_many() are counted');

my ($token, $first) = split /\|/,
  sql(q{SELECT max(lock_token), min(id) FROM outbox_claim('worker', 5)});
is(sql(q{SELECT open_leases, stale_leases, in_flight, lag_messages, lag_seconds > 0
			FROM outbox_stats WHERE consumer = 'worker'}), '1|0|5|10|t',
	'outbox_stats has the open batch; lag_messages includes ids of rolled-back transactions');
sql("SELECT outbox_ack($token, ARRAY[$first])");
is(consumer('worker') . ' ' . sql(q{SELECT in_flight FROM outbox_stats WHERE consumer = 'worker'}),
	'1|0|0|0 4', 'an acked message is counted as delivered and leaves in_flight');
sql("SELECT outbox_fail($token, $first + 1, 'no luck', retry_in => '1 hour')",
	"SELECT outbox_fail($token, $first + 2, 'bad', dead => true)");
is(consumer('worker'), '1|2|1|1', 'failed messages are counted as retried or dead');
sql('BEGIN', "SELECT outbox_ack($token)", 'ROLLBACK');
is(consumer('worker'), '1|2|1|1', 'an ack that is rolled back is not counted');
sql("SELECT outbox_ack($token)");
is(consumer('worker'), '3|2|1|1', 'the ack of the remaining batch is counted');
is(sql(q{SELECT waiting_retries, oldest_retry_at > now() + interval '50 minutes', dlq_depth,
			last_error, last_error_at > now() - interval '1 minute' FROM outbox_stats
			WHERE consumer = 'worker'}),
	'1|t|1|bad|t', 'outbox_stats has waiting retries, dead letters and the last error');
$token = sql(q{SELECT max(lock_token) FROM outbox_claim('worker', 5)});
sql("SELECT outbox_ack($token)");
is(consumer('worker'), '8|2|1|1', 'the ack of a whole batch is counted');
is(sql(q{SELECT count(*) FROM outbox_consume('worker')}), 3,
	'outbox_consume() returns the remaining messages');
is(consumer('worker'), '11|2|1|1', 'messages of outbox_consume() are counted');
is(type('OrderConfirmed') . ' ' . type('Kept') . ' ' . type('Many'), '10|8|2|1 1|1|0|0 2|2|0|0',
	'deliveries and failures are counted by event type');
is(sql(q{SELECT p50_ms > 0 AND p50_ms <= p95_ms AND p95_ms <= p99_ms AND p99_ms < 60000, bytes > 0,
			lag_messages FROM outbox_stats WHERE consumer = 'worker'}),
	't|t|0', 'outbox_stats has percentiles of latency, and bytes');
is(sql(q{SELECT lag_is_exact, lag_seconds FROM outbox_stats WHERE consumer = 'picky'}), 't|0',
	'a consumer whose filter matches no event has no lag');

# A fair consumer and one with partitions read the log ahead into unassigned batches. No worker has
# those yet.
sql(q{SELECT outbox_create_consumer('fair', fair => true, event_types => '{Aside}'),
		outbox_create_consumer('parted', partitions => 2, event_types => '{Aside}')});
sql(q{SELECT outbox_enqueue('Order', i, 'Aside', '{}', tenant_id => i % 2)
		FROM generate_series(1, 10) i});
sub behind { return sql("SELECT in_flight, lag_messages, (SELECT sum(lag) FROM consumer_offsets
			WHERE consumer_name = consumer) FROM outbox_stats WHERE consumer = '$_[0]'") }
is(behind('fair'), '0|10|10', 'messages that a fair consumer has not read count as lag');
$token = sql(q{SELECT max(lock_token) FROM outbox_claim('fair', 3)});
is(behind('fair'), '3|7|7', 'messages in unassigned batches count as lag');
sql("SELECT outbox_release($token)");
is(behind('fair'), '0|10|10', 'released messages count as lag');
$token = sql(q{SELECT max(lock_token) FROM outbox_claim('parted', 10)});
my $dealt = sql("SELECT size FROM _outbox.leases WHERE token = $token");
is(behind('parted'), "$dealt|" . (10 - $dealt) . '|' . (10 - $dealt),
	'in_flight counts the leased batch, and the lag includes unassigned batches of partitions');
sql(q{UPDATE _outbox.leases SET locked_until = now() - interval '1 minute'
		WHERE token = } . $token);
is(behind('parted'), '0|10|10', 'messages of an expired lease count as lag');
sql(qq{SELECT outbox_drop_consumer('fair')}, q{SELECT outbox_drop_consumer('parted')});

sql(q{SET outbox.statistics = off}, q{SELECT outbox_enqueue('Order', 1, 'Unseen', '{}')});
is(type('Unseen'), '', 'outbox.statistics = off turns counting off');
is($node->safe_psql('postgres', q{SELECT per_second > 0 FROM outbox_stats
			WHERE consumer = 'worker'}), 't', 'per_second is greater than 0 after deliveries')
  if $node->poll_query_until('postgres', q{SELECT per_second > 0 FROM outbox_stats
  		WHERE consumer = 'worker'});

is(sql(q{SELECT latency_seconds_count = 11, latency_seconds_sum > 0,
			latency_seconds_bucket[28] = 11, latency_seconds_bucket[1] <= latency_seconds_bucket[2],
			latency_seconds[1], latency_seconds[28]
	FROM outbox_stats_latency WHERE consumer = 'worker'}), 't|t|t|t|6.4e-05|8589.934592',
	'outbox_stats_latency is a histogram');
is(sql('SELECT * FROM outbox_stats_dead_letters'), 'worker|OrderConfirmed|1',
	'outbox_stats_dead_letters counts by event type');

# Metrics and health.
my $metrics = sql('SELECT outbox_metrics()');
like($metrics, qr/^outbox_throughput_total\{consumer="worker"\} 11$/m,
	'outbox_metrics() has the throughput');
like($metrics, qr/^outbox_failures_total\{event_type="OrderConfirmed"\} 2$/m,
	'outbox_metrics() has failures by event type');
like($metrics, qr/^outbox_dlq_depth\{consumer="worker"\} 1$/m,
	'outbox_metrics() has the number of dead letters');
like($metrics, qr/^outbox_lag_seconds\{consumer="worker"\} [\d.]+$/m,
	'outbox_metrics() has the lag');
my %help = map { $_ => 1 } $metrics =~ /^# HELP (\w+) \S/mg;
my %type = $metrics =~ /^# TYPE (\w+) (counter|gauge|histogram)$/mg;
my %named = map { s/^(outbox_latency_seconds)_(bucket|sum|count)$/$1/r =>
		1 } $metrics =~ /^(\w+)(?:\{[^\n]*\})? [-\d.e+]+$/mg;
is(join(' ', sort keys %named), join(' ', sort keys %help), 'every metric has a HELP line');
is(join(' ', sort keys %named), join(' ', sort keys %type), 'every metric has a TYPE line');
is((grep { !/^#/ && !/^\w+(\{(\w+="([^"\\\n]|\\.)*",?)+\})? [-\d.e+]+$/ } split /\n/, $metrics), 0,
	"every line of outbox_metrics() is in Prometheus's text format");
like(sql('SELECT status, reasons FROM outbox_health()'), qr/^failing\|.*relay: /,
	'without a relay outbox_health() is failing, with the reason');
like(sql('SELECT reasons FROM outbox_health()'), qr/consumer worker has 1 dead letters/,
	'dead letters are a reason in outbox_health()');

sql(q{CREATE ROLE watcher LOGIN}, q{SELECT outbox_grant('watcher', 'monitor')},
	q{CREATE ROLE stranger LOGIN}, q{GRANT USAGE ON SCHEMA public TO stranger});
for my $call ('* FROM outbox_stats',
	(map { "* FROM outbox_stats_$_" } qw(events latency dead_letters tables held database)),
	'outbox_metrics()', '* FROM outbox_health()')
{
	is($node->psql('postgres', "SELECT $call", extra_params => [ '-U', 'watcher' ]), 0,
		"a monitor may SELECT $call");
	isnt($node->psql('postgres', "SELECT $call", extra_params => [ '-U', 'stranger' ]), 0,
		"a role without privileges may not SELECT $call");
}
isnt($node->psql('postgres', "SELECT $_", extra_params => [ '-U', 'watcher' ]), 0,
	"a monitor may not SELECT $_")
  for '* FROM outbox_messages', '* FROM outbox_messages_dlq',
    '* FROM outbox_stats_history', 'outbox_stats_reset()';

# More event types than slots in shared memory.
sql(q{SELECT outbox_enqueue('Order', 1, 'Type' || i, '{}') FROM generate_series(1, 2000) i});
is(sql(q{SELECT sum(enqueued) FROM outbox_stats_events WHERE event_type LIKE 'Type%'
			OR event_type = 'other'}), 2000, 'events of types without a slot are counted as other');
cmp_ok(sql(q{SELECT enqueued FROM outbox_stats_events WHERE event_type = 'other'}), '>', 900,
	'more than 900 events are counted as other');
is(sql(q{SELECT ok FROM outbox_status() WHERE component = 'statistics'}), 'f',
	'outbox_status() reports that statistics have no free slots');

my $before = sql(q{SELECT stats_reset FROM outbox_stats WHERE consumer = 'worker'});
sql('SELECT outbox_stats_reset()');
is(consumer('worker') . ' ' . type('OrderConfirmed'), '0|0|0|0 ',
	'outbox_stats_reset() clears the counters');
is(sql("SELECT stats_reset > '$before' FROM outbox_stats WHERE consumer = 'worker'"), 't',
	'outbox_stats_reset() sets stats_reset');

# The history. Slots of dropped consumers are reused.
sql(q{SELECT count(*) FROM outbox_maintain()}, q{SELECT outbox_enqueue('Order', 1, 'Kept', '{}')},
	q{SELECT count(*) FROM outbox_consume('worker')}, q{SELECT count(*) FROM outbox_maintain()});
is(sql(q{SELECT count(*), max(delivered) - min(delivered), max(a.s) - min(a.s)
			FROM outbox_stats_history h JOIN outbox_consumers USING (consumer_id),
			LATERAL (SELECT sum(x) AS s FROM unnest(h.latency) x) a WHERE name = 'worker'}),
	join('|', 2, (sql(q{SELECT delivered FROM outbox_stats WHERE consumer = 'worker'})) x 2),
	'maintenance keeps samples of the counters');
is(sql(q{SELECT max(enqueued) - min(enqueued) FROM outbox_stats_history WHERE consumer_id = 0}), 1,
	'maintenance keeps samples of the whole database');
sql(q{UPDATE _outbox.stats_history SET at = at - interval '8 days'}, q{SELECT count(*)
		FROM outbox_maintain()});
is(sql('SELECT count(*), count(DISTINCT at::date) FROM outbox_stats_history'), '3|1',
	'maintenance prunes samples after outbox.stats_retention');
for my $round (1 .. 3)
{
	sql(q{SELECT outbox_create_consumer('many' || i, start_at => 'earliest')
			FROM generate_series(1, 100) i});
	sql(q{SELECT count(*) FROM generate_series(1, 100) i, outbox_consume('many' || i, 1)});
	is(sql(q{SELECT count(*) FROM outbox_stats WHERE consumer LIKE 'many%' AND delivered = 1}), 100,
		'slots of dropped consumers are reused for a hundred others');
	sql(q{SELECT outbox_drop_consumer('many' || i) FROM generate_series(1, 100) i},
		q{SELECT count(*) FROM outbox_maintain()});
}
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', q{CREATE EXTENSION outbox CASCADE;
		SELECT outbox_enqueue('Order', 1, 'Type' || i, '{}') FROM generate_series(1, 20) i;});
is($node->safe_psql('other', q{SELECT string_agg(event_type, ' ') FROM outbox_stats_events
			WHERE enqueued > 0}), 'other',
	'a database without free slots counts its types as other');
is($node->safe_psql('other', 'SELECT count(*) FROM outbox_stats'), 0,
	'outbox_stats has only consumers of its database');
$node->safe_psql('postgres', 'DROP DATABASE other');
$node->restart;
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', q{CREATE EXTENSION outbox CASCADE;
		SELECT outbox_enqueue('Order', 1, 'Type' || i, '{}') FROM generate_series(1, 2000) i;});
$node->safe_psql('postgres', 'DROP DATABASE other');
sql('SELECT count(*) FROM outbox_maintain()', enqueue(1));
is(type('OrderConfirmed'), '1|0|0|0', 'slots of a dropped database are reused');

# The lag of a consumer whose filter matches few of many events is exact after maintenance.
sql(q{SELECT outbox_create_consumer('rare', event_types => '{Rare}')},
	q{SELECT count(outbox_enqueue('Order', i, 'Common', '{}')) FROM generate_series(1, 3000) i});
is(sql(q{SELECT lag_is_exact, lag_seconds > 0, lag_messages FROM outbox_stats
			WHERE consumer = 'rare'}), 'f|t|3000',
	'the lag behind many events that the filter skips is an upper bound');
sql('SELECT count(*) FROM outbox_maintain()');
is(sql(q{SELECT lag_is_exact, lag_seconds, lag_messages FROM outbox_stats WHERE consumer = 'rare'}),
	't|0|0', 'the lag behind skipped events is exact after maintenance');
sql(q{SELECT outbox_enqueue('Order', 1, 'Rare', '{}')});
is(sql(q{SELECT count(*) FROM outbox_consume('rare', 10)}), 1,
	'a consumer gets the event that its filter matches');

# A sink. Counters outlive the relay process.
my $receiver = OutboxReceiver->start('main');
$node->append_conf('postgresql.conf', 'outbox.relay = on');
$node->reload;
create_sink($node, 'hook', { url => $receiver->url('/ok') });
sub deliver
{
	my ($count) = @_;
	sql(map { enqueue($_) =~ s/;$//r } 1 .. 20);
	ok(wait_until(sub { consumer('hook') eq "$count|0|0|0" }),
		"$count delivered events are counted");
}
sub written { return sql(q{SELECT n_tup_ins FROM pg_stat_user_tables
			WHERE relname = 'batches'}) }
my $written = written();
deliver(20);
ok(wait_until(sub { written() > $written }, 10),
	'the running relay reports its writes to autovacuum');
my $pid = relay_pid($node);
sql("SELECT pg_terminate_backend($pid)");
ok(wait_until(sub { (relay_pid($node) || $pid) != $pid }),
	'the relay restarts after it was terminated');
is(consumer('hook'), '20|0|0|0', 'counters of a sink survive the end of the relay');
deliver(40);
is(sql(q{SELECT p50_ms < 10000, bytes > 0, lag_seconds, latency_seconds_count FROM outbox_stats
			JOIN outbox_stats_latency USING (consumer) WHERE consumer = 'hook'}), 't|t|0|40',
	'latency and bytes of a sink survive the end of the relay');

# Infinite timestamps.
sql(q{SELECT outbox_create_consumer('patient')});
sql(q{INSERT INTO outbox_messages (occurred_at, aggregate_type, aggregate_id, event_type, payload)
	SELECT t, 'Order', t::text, 'Endless', '{}'
	FROM unnest('{-infinity,infinity}'::timestamptz[]) t});
is(sql(q{SELECT lag_seconds FROM outbox_stats WHERE consumer = 'patient'}), 'Infinity',
	'an event at -infinity has an infinite lag');
like(sql('SELECT outbox_metrics()'), qr/^outbox_lag_seconds\{consumer="patient"\} Infinity$/m,
	'outbox_metrics() has an infinite lag');
like(sql('SELECT status FROM outbox_health()'), qr/^\w+$/,
	'outbox_health() accepts an infinite lag');
is(sql(q{SELECT count(*) FROM outbox_consume('patient')}), 2,
	'events at infinite times are consumed');
is(sql(q{SELECT delivered, lag_seconds, latency_seconds_sum FROM outbox_stats
			JOIN outbox_stats_latency USING (consumer) WHERE consumer = 'patient'}), '2|0|0',
	'events at infinite times are counted');
ok(wait_until(sub { consumer('hook') eq '42|0|0|0' }), 'events at infinite times reach sinks');

$node->stop;
done_testing();
