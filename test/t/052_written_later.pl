# The relay sends what it has claimed, and writes the claim down behind it. Here it takes its time for that, and a lot happens
# meanwhile.
use strict;
use warnings;
use lib 't/lib';
use OutboxReceiver;
use OutboxTest;
use Test::More;
use Time::HiRes qw(sleep);

my $receiver = OutboxReceiver->start('receiver');
my $node = start_node('pauses', stage => $ENV{OUTBOX_PAUSES_CONF},
	conf => "autovacuum = off\noutbox.test_pauses = 'unwritten'\noutbox.lease = '2s'\noutbox.backoff_base = '50ms'\n");
sub sql { return $node->safe_psql('postgres', join ';', @_) }
sub event { my ($type, $number) = @_; return "SELECT outbox_enqueue('Order', '1', '$type', jsonb_build_object('n', $number))" }
sql('SELECT outbox_setup()');

# Somebody moves the sink back: what it had claimed by then does not bring it forward again.
create_sink($node, 'moved', { url => $receiver->url('/moved') }, "event_types => '{Moved}'");
my $start = sql('SELECT clock_timestamp()');
my $first = sql(event('Moved', 0));
sub times_of_first { return scalar grep { $_ eq $first } $receiver->accepted_ids('/moved') }
ok(wait_until(sub { times_of_first() == 1 }), 'an event arrives');
my $rounds = 25;
my $again = 0;
for my $round (1 .. $rounds)
{
	my $before = times_of_first();
	# Some of the time the event is on its way, and the claim is not written, when the sink is moved.
	my $id = $node->safe_psql('postgres', event('Moved', $round) . sprintf(';SELECT FROM pg_sleep(%g);', ($round % 5) / 1000) . "SELECT outbox_seek('moved', '$start')");
	($id) = split /\n/, $id;
	last unless wait_until(sub { times_of_first() > $before && grep { $_ eq $id } $receiver->accepted_ids('/moved') }, 10);
	$again++;
}
is($again, $rounds, 'and again each time that the sink is moved back to it, whatever was on the way');
sql("SELECT outbox_drop_sink('moved')");

# Somebody changes another sink, so that the relay cannot know whose batch it has in hand: what is on the way goes again.
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
$node->safe_psql('postgres', qq{DO \$\$ BEGIN FOR i IN 1 .. $changes LOOP PERFORM outbox_alter_sink('other', max_attempts => i); COMMIT; PERFORM pg_sleep(0.02); END LOOP; END \$\$});
$writer->quit;
sub numbers { return map { $_->{body} =~ m{"n": (\d+)} } grep { $_->{answer} eq '200' } $receiver->records('/ordered') }
sub first_times { my %seen; return grep { !$seen{$_}++ } @_ }
ok(wait_until(sub { first_times(numbers()) == $events }), "all $events events arrive");
is_deeply([ first_times(numbers()) ], [ 1 .. $events ], 'in order');
my $repeated = numbers() - $events;
cmp_ok($repeated, '>', 0, "$repeated came twice");
cmp_ok($repeated, '<=', $changes + 1, 'one for a change at the most');

# The server crashes: what was sent and not written down goes again, and nothing is passed over.
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
my @log = split /\n/, sql(q{SELECT payload ->> 'n' FROM outbox_messages WHERE event_type = 'Ordered' ORDER BY id});
ok(wait_until(sub { first_times(numbers()) == @log }), 'of ' . @log . ' events that were committed none is lost in a crash');
is_deeply([ first_times(numbers()) ], \@log, 'nor has one overtaken another');

$node->stop;
done_testing();
