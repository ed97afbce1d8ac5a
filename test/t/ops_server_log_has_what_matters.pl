# The server log for an operator: one line for each problem, none for normal work, no payloads and
# no secrets.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $secrets = PostgreSQL::Test::Utils::tempdir('secrets') . '/secrets';
write_secrets($secrets, { shop => 'whsec_' . 'c2VjcmV0LW9mLXRoZS1zaG9wLWlzLWxvbmctZW5vdWdo' });
my $node = start_node('main', conf => "outbox.secrets_file = '$secrets'\nlog_statement = none\n"
	. "outbox.max_attempts = 1\noutbox.backoff_max = '100ms'\n");
my $receiver = OutboxReceiver->start('main');
sub sql { return $node->safe_psql('postgres', join ';', @_) }

my $from = 0;
sub log_lines
{
	my ($pattern) = @_;
	return grep { /outbox: / && /$pattern/ } split /\n/, substr slurp_file($node->logfile), $from;
}

sub enqueue_many
{
	my ($count, $type) = @_;
	return "SELECT count(outbox_enqueue('Order', i::text, '$type', '{\"card\": \"payload-4111\"}'))
		FROM generate_series(1, $count) i";
}

create_sink($node, 'hook', { url => $receiver->url('/hook'), secret => '${secret:shop}' },
	"event_types => ARRAY['Sent', 'Refused']");
sql(q{SELECT outbox_create_consumer('worker', event_types => '{Worked}')});

$from = -s $node->logfile;
sql(enqueue_many(300, 'Sent'), enqueue_many(300, 'Worked'), q{SELECT count(outbox_ack(t))
		FROM (SELECT DISTINCT lock_token AS t FROM outbox_claim('worker', 300)) c});
ok(wait_until(sub { sql(q{SELECT delivered FROM outbox_stats WHERE consumer = 'hook'}) == 300 }),
	'a sink delivers three hundred events');
is(join("\n", log_lines('')), '', 'deliveries, acks and claims are not logged');

# A sink fails and recovers.
$receiver->control({ path => '/hook', status => 503 });
sql(enqueue_many(20, 'Sent'));
ok(wait_until(sub { log_lines('sink "hook" is in trouble') }),
	'the log says that a sink is in trouble');
ok(wait_until(sub { slurp_file($node->logfile) =~ /HINT:  Its events wait/ }),
	'the log has a hint about the events of the sink');
sleep 1;
is(scalar(log_lines('sink "hook" is in trouble')), 1,
	'the log has one line about a sink in trouble, however many attempts fail');
like((log_lines('sink "hook" is in trouble'))[0],
	qr/WARNING:  outbox: sink "hook" is in trouble: .*503/,
	'the line about a sink in trouble has the error');
$receiver->control;
ok(wait_until(sub { log_lines('LOG:  outbox: sink "hook" is back') }),
	'the log says that a sink has recovered');
is(scalar(log_lines('sink "hook" is back')), 1, 'the log has one line about the recovery');

# Dead letters of a sink and of a worker.
$receiver->control({ path => '/hook', status => 422 });
sql(enqueue_many(1, 'Refused'));
ok(wait_until(sub { log_lines('LOG:  outbox: consumer "hook" has given up an event: .*422') }),
	'the log has the dead letter of a sink, with the error');
$receiver->control;
my ($token, $ids) = split /\|/, sql(enqueue_many(500, 'Worked'), q{SELECT max(lock_token),
		array_agg(id ORDER BY id) FROM outbox_claim('worker', 500)}) =~ s/.*\n//sr;
my @ids = $ids =~ /\d+/g;
$from = -s $node->logfile;
sql("SELECT outbox_fail($token, ARRAY[" . join(',', @ids[0 .. 99])
	. qq{], E'first line\\nLOG:  outbox: forged', dead => true)});
is(scalar(log_lines('')), 1, 'a hundred dead letters of one call are one line');
like((log_lines(''))[0],
	qr/consumer "worker" has given up 100 events: first line LOG:  outbox: forged$/,
	'an error of several lines is logged as one line');
my ($detail) = slurp_file($node->logfile) =~ /DETAIL:  (ids: $ids[0], .*)/;
is(scalar(() = $detail =~ /\d+/g), 20, 'the detail has the first 20 ids');
like(slurp_file($node->logfile), qr/HINT:  They are in outbox_messages_dlq/,
	'the hint names outbox_messages_dlq');

$from = -s $node->logfile;
sql(map { "SELECT outbox_fail($token, $_, 'no', dead => true)" } @ids[100 .. 199]);
cmp_ok(scalar(log_lines('has given up')), '<=', 10,
	'a hundred dead letters of single calls are at most ten lines');
cmp_ok(scalar(log_lines('has given up')), '>', 0, 'dead letters of single calls are logged');
$node->psql('postgres', "BEGIN; SELECT outbox_fail($token, $ids[200], '" . 'x' x 5000
	. "', dead => true); COMMIT");
cmp_ok(length((log_lines('x{100}'))[0] // ''), '<', 500, 'a long error is cut in the log');

# A persistent error does not fill the log.
$from = -s $node->logfile;
sql(q{CREATE FUNCTION break() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''this is broken'';
		END'}, 'CREATE TRIGGER breaks BEFORE INSERT ON _outbox.batches FOR EACH ROW
		EXECUTE FUNCTION break()', enqueue_many(5, 'Sent'));
ok(wait_until(sub { log_lines('sink "hook": this is broken') }), 'an error of a trigger is logged');
sleep 4;
cmp_ok(scalar(log_lines('sink "hook": ')), '<=', 2,
	'a persistent error is not logged with each attempt');
sql('DROP TRIGGER breaks ON _outbox.batches');
ok(wait_until(sub { sql(q{SELECT lag_messages FROM outbox_stats WHERE consumer = 'hook'}) == 0 },
		30), 'the sink delivers its events after the error');

my $log = slurp_file($node->logfile);
unlike($log, qr/payload-4111/, 'the log has no payloads');
unlike($log, qr/c2VjcmV0LW9mLXRoZS1zaG9wLWlzLWxvbmctZW5vdWdo|secret-of-the-shop/,
	'the log has no secrets');
$node->stop;
done_testing();
