# The relay sends the messages of a claim before it writes the claim. Injected pauses and failures
# delay the write while other sessions work on the consumer.
use strict;
use warnings;
use lib 't/lib';
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $receiver = OutboxReceiver->start('receiver');
my $node = start_node('pauses', stage => $ENV{OUTBOX_PAUSES_CONF},
	conf => "autovacuum = off\noutbox.test_pauses = 'unwritten'\noutbox.lease = '2s'\n"
	  . "outbox.backoff_base = '50ms'\n");
sub sql { return $node->safe_psql('postgres', join ';', @_) }
sub event { my ($type, $number) = @_;
	return "SELECT outbox_enqueue('Order', '1', '$type', jsonb_build_object('n', $number))" }
sql('SELECT outbox_setup()');

# Another session seeks the sink back. A claim that is written afterwards must not advance the
# cursor again.
create_sink($node, 'moved', { url => $receiver->url('/moved') }, "event_types => '{Moved}'");
my $start = sql('SELECT clock_timestamp()');
my $first = sql(event('Moved', 0));
sub times_of_first { return scalar grep { $_ eq $first } $receiver->accepted_ids('/moved') }
ok(wait_until(sub { times_of_first() == 1 }), 'the first event is delivered');
my $rounds = 25;
my $again = 0;
for my $round (1 .. $rounds)
{
	my $before = times_of_first();
	# In some rounds outbox_seek() runs after the event was sent and before the claim is written.
	my $id = $node->safe_psql('postgres',
		event('Moved', $round) . sprintf(';SELECT FROM pg_sleep(%g);', ($round % 5) / 1000)
		. "SELECT outbox_seek('moved', '$start')");
	($id) = split /\n/, $id;
	last unless wait_until(sub { times_of_first() > $before
			&& grep { $_ eq $id } $receiver->accepted_ids('/moved') }, 10);
	$again++;
}
is($again, $rounds,
	'an event is delivered again after each outbox_seek() to it, whatever is in flight');
sql("SELECT outbox_drop_sink('moved')");

# Another session alters the sink: messages in flight prevent that, whether the claim is written or
# not.
create_sink($node, 'hasty', { url => $receiver->url('/hasty') },
	"event_types => '{Hasty}', ordered => false");
$receiver->control({ path => '/hasty', delay => [ 0.1, 0.1 ] });
is(sql(q{CREATE TABLE tries (refused boolean);
	DO $$
	DECLARE consumer CONSTANT int := (SELECT consumer_id FROM outbox_consumers
		WHERE name = 'hasty');
	BEGIN
		FOR i IN 1 .. 50 LOOP
			PERFORM outbox_enqueue('Order', i, 'Hasty', '{}');
			COMMIT;
			-- Until the relay has the consumer's lock, or has had it.
			FOR look IN 1 .. 10000 LOOP
				EXIT WHEN EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory'
					AND classid::bigint = consumer AND objid = 0)
					OR EXISTS (SELECT FROM _outbox.leases WHERE acked_at IS NULL);
				NULL;
			END LOOP;
			BEGIN
				PERFORM outbox_alter_sink('hasty', ordered => true);
				INSERT INTO tries VALUES (false);
			EXCEPTION WHEN object_in_use THEN
				INSERT INTO tries VALUES (true);
			END;
			COMMIT;
			FOR look IN 1 .. 500 LOOP
				EXIT WHEN NOT EXISTS (SELECT FROM _outbox.leases WHERE acked_at IS NULL);
				PERFORM pg_sleep(0.01);
			END LOOP;
		END LOOP;
	END $$;
	SELECT refused, count(*) FROM tries GROUP BY 1}), 't|50',
	'the order of a sink with messages in flight cannot be changed');
$receiver->control();

# Another session alters another sink.
create_sink($node, 'ordered', { url => $receiver->url('/ordered') }, "event_types => '{Ordered}'");
create_sink($node, 'other', { url => $receiver->url('/other') }, "event_types => '{Other}'");
my $events = 300;
my $writer = $node->background_psql('postgres');
$writer->query_until(qr/begun/, qq{\\echo begun
	DO \$\$ BEGIN
		FOR i IN 1 .. $events LOOP
			PERFORM outbox_enqueue('Order', '1', 'Ordered', jsonb_build_object('n', i));
			COMMIT;
			PERFORM pg_sleep(0.005);
		END LOOP;
	END \$\$;
});
my $changes = 60;
$node->safe_psql('postgres', qq{DO \$\$ BEGIN FOR i IN 1 .. $changes LOOP
		PERFORM outbox_alter_sink('other', max_attempts => i); COMMIT;
		PERFORM pg_sleep(0.02); END LOOP; END \$\$});
$writer->quit;
sub numbers { return map { $_->{body} =~ m{"n": (\d+)} } grep {
		$_->{answer} eq '200' } $receiver->records('/ordered') }
sub first_times { my %seen; return grep { !$seen{$_}++ } @_ }
ok(wait_until(sub { first_times(numbers()) == $events }),
	"all $events events are delivered while another sink is altered");
is_deeply([ first_times(numbers()) ], [ 1 .. $events ],
	'events are delivered in order while another sink is altered');
is(scalar(my @all = numbers()), $events, 'events are delivered once while another sink is altered');

# Messages of a claim that cannot be written are sent again, and the relay releases the consumer's
# lock.
sql(q{CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''not now''; END';
	CREATE TRIGGER refuse BEFORE INSERT ON _outbox.leases FOR EACH ROW EXECUTE FUNCTION refuse()});
sql(event('Ordered', 500), event('Ordered', 501));
ok(wait_until(sub { grep { $_ == 500 } numbers() }),
	'an event is sent although its claim cannot be written');
# Without a wait: the relay tries again after a second.
is(sql(q{SET lock_timeout = '500ms'; SELECT outbox_alter_sink('ordered', max_attempts => 9)}), '',
	'a claim that cannot be written releases the consumer');
ok(wait_until(sub { sql(q{SELECT count(*) FROM outbox_status()
				WHERE detail LIKE '%not now%'}) > 0 }),
	'outbox_status() has the error of a claim that cannot be written');
sql('DROP TRIGGER refuse ON _outbox.leases');
ok(wait_until(sub { (grep { $_ == 500 } numbers()) == 2 && grep { $_ == 501 } numbers() }),
	'the event is sent again when its claim can be written');

# A claim that fails after its write was deferred releases the consumer's lock, and its messages are
# not sent.
sub settings
{
	$node->append_conf('postgresql.conf', @_);
	$node->reload;
}
settings("outbox.test_failures = 'held'\n");
my $has_failed = qr/sink "ordered": injected failure at step "held"/;
my ($sent, $refused) = (10_000);
# The relay defers the write only while no new consumer or sink has appeared, so the first claims
# may succeed.
ok( wait_until(sub {
		sql(event('Ordered', ++$sent));
		return wait_until(sub { ($refused = slurp_file($node->logfile) =~ $has_failed)
				|| grep { $_ == $sent } numbers() }) && $refused;
	}), 'a deferred claim fails');
is(sql(q{SET lock_timeout = '500ms'; SELECT outbox_alter_sink('ordered', max_attempts => 8)}), '',
	'a deferred claim that fails releases the consumer');
settings("outbox.test_failures = ''\n");
ok(wait_until(sub { grep { $_ == $sent } numbers() }),
	'the event of a failed claim is sent when claims succeed');
is(scalar(grep { $_ == $sent } numbers()), 1, 'the event of a failed claim is sent once');

# The server crashes: messages sent under an unwritten claim are sent again, and no message is
# skipped.
for my $crash (1 .. 3)
{
	my $before = numbers();
	$writer = $node->background_psql('postgres', on_error_die => 0, on_error_stop => 0);
	my $from = 1000 * $crash;
	$writer->query_until(qr/begun/, qq{\\echo begun
		DO \$\$ BEGIN
			FOR i IN $from .. $from + 999 LOOP
				PERFORM outbox_enqueue('Order', '1', 'Ordered', jsonb_build_object('n', i));
				COMMIT;
			END LOOP;
		END \$\$;
	});
	wait_until(sub { numbers() > $before + 20 });
	$node->stop('immediate');
	eval { $writer->quit };
	$node->start;
}
my @log = split /\n/,
  sql(q{SELECT payload ->> 'n' FROM outbox_messages WHERE event_type = 'Ordered' ORDER BY id});
ok(wait_until(sub { first_times(numbers()) == @log }),
	'of ' . @log . ' committed events none is lost in a crash');
is_deeply([ first_times(numbers()) ], \@log, 'events are delivered in order across crashes');

$node->stop;
done_testing();
