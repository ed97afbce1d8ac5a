# What an operator reads in the server's log: a line for what matters, none for what goes well, no payloads and no secrets.
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
my $node = start_node('main', conf => "outbox.secrets_file = '$secrets'\nlog_statement = none\noutbox.max_attempts = 1\noutbox.backoff_max = '100ms'\n");
my $receiver = OutboxReceiver->start('main');
sub sql { return $node->safe_psql('postgres', join ';', @_) }

my $from = 0;
sub said
{
	my ($pattern) = @_;
	return grep { /outbox: / && /$pattern/ } split /\n/, substr slurp_file($node->logfile), $from;
}

sub many
{
	my ($count, $type) = @_;
	return "SELECT count(outbox_enqueue('Order', i::text, '$type', '{\"card\": \"payload-4111\"}')) FROM generate_series(1, $count) i";
}

create_sink($node, 'hook', { url => $receiver->url('/hook'), secret => '${secret:shop}' }, "event_types => ARRAY['Sent', 'Refused']");
sql(q{SELECT outbox_create_consumer('worker', event_types => '{Worked}')});

$from = -s $node->logfile;
sql(many(300, 'Sent'), many(300, 'Worked'), q{SELECT count(outbox_ack(t)) FROM (SELECT DISTINCT lock_token AS t FROM outbox_claim('worker', 300)) c});
ok(wait_until(sub { sql(q{SELECT delivered FROM outbox_stats WHERE consumer = 'hook'}) == 300 }), 'three hundred events are delivered');
is(join("\n", said('')), '', 'and nothing is said about them');

# A sink goes, and comes back.
$receiver->control({ path => '/hook', status => 503 });
sql(many(20, 'Sent'));
ok(wait_until(sub { said('sink "hook" is in trouble') }), 'a sink is in trouble');
ok(wait_until(sub { slurp_file($node->logfile) =~ /HINT:  Its events wait/ }), 'a hint');
sleep 1;
is(scalar(said('sink "hook" is in trouble')), 1, 'one line, however often it is tried');
like((said('sink "hook" is in trouble'))[0], qr/WARNING:  outbox: sink "hook" is in trouble: .*503/, 'that says why');
$receiver->control;
ok(wait_until(sub { said('LOG:  outbox: sink "hook" is back') }), 'it is back');
is(scalar(said('sink "hook" is back')), 1, 'one line');

# Dead letters: of a sink, and of a worker.
$receiver->control({ path => '/hook', status => 422 });
sql(many(1, 'Refused'));
ok(wait_until(sub { said('LOG:  outbox: consumer "hook" has given up an event: .*422') }), 'a sink gives up an event');
$receiver->control;
my ($token, $ids) = split /\|/, sql(many(500, 'Worked'), q{SELECT max(lock_token), array_agg(id ORDER BY id) FROM outbox_claim('worker', 500)}) =~ s/.*\n//sr;
my @ids = $ids =~ /\d+/g;
$from = -s $node->logfile;
sql("SELECT outbox_fail($token, ARRAY[" . join(',', @ids[0 .. 99]) . qq{], E'first line\\nLOG:  outbox: forged', dead => true)});
is(scalar(said('')), 1, 'a hundred at once are one line');
like((said(''))[0], qr/consumer "worker" has given up 100 events: first line LOG:  outbox: forged$/, 'whatever the error says');
my ($detail) = slurp_file($node->logfile) =~ /DETAIL:  (ids: $ids[0], .*)/;
is(scalar(() = $detail =~ /\d+/g), 20, 'with the first ids');
like(slurp_file($node->logfile), qr/HINT:  They are in outbox_messages_dlq/, 'and a hint');

$from = -s $node->logfile;
sql(map { "SELECT outbox_fail($token, $_, 'no', dead => true)" } @ids[100 .. 199]);
cmp_ok(scalar(said('has given up')), '<=', 10, 'a hundred one by one are a few lines');
cmp_ok(scalar(said('has given up')), '>', 0, 'but not none');
$node->psql('postgres', "BEGIN; SELECT outbox_fail($token, $ids[200], '" . 'x' x 5000 . "', dead => true); COMMIT");
cmp_ok(length((said('x{100}'))[0] // ''), '<', 500, 'a long error is cut');

# Whatever is wrong, it does not fill the log.
$from = -s $node->logfile;
sql(q{CREATE FUNCTION break() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''this is broken''; END'}, 'CREATE TRIGGER breaks BEFORE INSERT ON _outbox.batches FOR EACH ROW EXECUTE FUNCTION break()', many(5, 'Sent'));
ok(wait_until(sub { said('sink "hook": this is broken') }), 'something is wrong with the tables');
sleep 4;
cmp_ok(scalar(said('sink "hook": ')), '<=', 2, 'that is not said every second');
sql('DROP TRIGGER breaks ON _outbox.batches');
ok(wait_until(sub { sql(q{SELECT lag_messages FROM outbox_stats WHERE consumer = 'hook'}) == 0 }, 30), 'and it goes on');

my $log = slurp_file($node->logfile);
unlike($log, qr/payload-4111/, 'no payload is in the log');
unlike($log, qr/c2VjcmV0LW9mLXRoZS1zaG9wLWlzLWxvbmctZW5vdWdo|secret-of-the-shop/, 'no secret is');
$node->stop;
done_testing();
