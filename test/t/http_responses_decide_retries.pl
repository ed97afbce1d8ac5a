# The response of a receiver decides whether an event is delivered, the sink backs off, or the
# message is retried and becomes a dead letter.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use OutboxReceiver;
use OutboxTest;
use POSIX qw(strftime);
use Test::More;
use Time::HiRes qw(time sleep);

my $receiver = OutboxReceiver->start('receiver');
my $away = OutboxReceiver->start('away');
my $node = start_node('main',
	conf => "outbox.backoff_base = '100ms'\noutbox.backoff_max = '400ms'\n"
	  . "outbox.immediate_retries = 1\nmax_worker_processes = 16\n");
$node->safe_psql('postgres', 'SELECT outbox_setup()');

sub sql
{
	return $node->safe_psql('postgres', @_);
}

# Each case has a sink, a path and an event type of its own name, so that all of them can run at
# once.
sub sink
{
	my ($name, $config, $options) = @_;
	create_sink($node, $name, { url => $receiver->url("/$name"), %{ $config // {} } },
		"event_types => ARRAY['$name']" . ($options ? ", $options" : ''));
}

# SQL that enqueues an event of a case.
sub event
{
	my ($name, $aggregate, $payload) = @_;
	$payload //= 'fine';
	return "SELECT outbox_enqueue('Order', '$aggregate', '$name', '{\"is\": \"$payload\"}');";
}

# Accepted requests of a path, as [ aggregate, position ], in the order of arrival.
sub accepted
{
	my ($name, $from) = @_;
	return map { [ header($_, 'ce-partitionkey'), header($_, 'ce-sequence') ] }
	  grep { $_->{answer} =~ /^2/ } ($from // $receiver)->records("/$name");
}

sub in_order
{
	my %last;
	for my $one (@_)
	{
		my ($aggregate, $position) = @$one;
		return 0 if exists $last{$aggregate} && $position le $last{$aggregate};
		$last{$aggregate} = $position;
	}
	return 1;
}

sub rows
{
	my ($table, $name) = @_;
	return sql("SELECT count(*) FROM $table JOIN outbox_consumers USING (consumer_id) "
		. "WHERE name = '$name'");
}

# Delivered.
my @delivered = (200, 201, 202, 204);
sink("ok-$_") for @delivered;
$receiver->control(map { { path => "/ok-$_", status => $_ } } @delivered);
sql(join '', map { event("ok-$_", 1) . event("ok-$_", 1) } @delivered);
for my $status (@delivered)
{
	$receiver->wait_for(2, 20, "/ok-$status");
	ok(wait_until(sub {
		sql("SELECT count(*) FROM outbox_deliveries "
			. "WHERE consumer_name = 'ok-$status' AND status = 'COMPLETED'") == 2 }),
		"$status: the delivery is COMPLETED");
	is($receiver->count("/ok-$status"), 2, "$status: each event is sent once");
}
drop_sinks($node, map { "ok-$_" } @delivered);

# Trouble of the sink: it backs off, and no retry or dead letter is written.
my %trouble = map { $_ => { reason => qr/$_/, rule => { status => $_, body => 'not now' } } }
  (408, 425, 429, 500, 502, 503, 401, 403, 404, 405, 407);
$trouble{301} = { reason => qr/301/,
	rule => { do => 'redirect', status => 301, to => $receiver->url('/elsewhere') } };
$trouble{307} = { reason => qr/307/,
	rule => { do => 'redirect', status => 307, to => $receiver->url('/elsewhere') } };
$trouble{reset} = { reason => qr/reset|Recv failure|connection|network/i,
	rule => { do => 'reset' } };
$trouble{timeout} = { reason => qr/time/i, rule => { do => 'hang' },
	config => { timeout => seconds(1) } };
$trouble{refused} = { reason => qr/connect|refused/i, receiver => $away,
	config => { url => $away->url('/trouble-refused') } };
my @trouble = sort keys %trouble;
sink("trouble-$_", $trouble{$_}{config}) for @trouble;
my @rules = map { { path => "/trouble-$_", %{ $trouble{$_}{rule} } } }
  grep { $trouble{$_}{rule} } @trouble;
$receiver->control(@rules);
$away->stop;
sql(join '', map { my $name = "trouble-$_"; map { event($name, $_ % 2) } 1 .. 6 } @trouble);
for my $what (@trouble)
{
	my $name = "trouble-$what";
	ok(wait_until(sub { $receiver->count("/$name") >= 3 }),
		"$what: the sink sends again after back-off") unless $what eq 'refused';
	my $status = wait_for_status($node, $name, qr/^f\|.*$trouble{$what}{reason}/s);
	like($status, qr/^f\|.*$trouble{$what}{reason}/s, "$what: outbox_status() gives the reason");
	is(rows('outbox_retries', $name) + rows('outbox_messages_dlq', $name), 0,
		"$what: no retry and no dead letter is written");
}
is($receiver->count('/elsewhere'), 0, 'a sink does not follow redirects');

# Delivery after the trouble has ended.
$away->run;
$receiver->control();
$receiver->drop_connections;
for my $what (@trouble)
{
	my ($name, $from) = ("trouble-$what", $trouble{$what}{receiver} // $receiver);
	wait_until(sub { accepted($name, $from) >= 6 });
	my @came = accepted($name, $from);
	ok(@came == 6 && in_order(@came),
		"$what: after the trouble every event arrives once and in order") or diag(scalar @came);
	like(wait_for_status($node, $name, qr/^t/), qr/^t/,
		"$what: after the trouble outbox_status() shows the sink as ok");
}
drop_sinks($node, map { "trouble-$_" } @trouble);

# Back-off pauses for 200 to 400 ms between rounds of at most 16 requests: five rounds per second.
sink('storm');
$receiver->control({ path => '/storm', status => 503 });
sql(join '', map { event('storm', $_) } 1 .. 40);
$receiver->wait_for(1, 20, '/storm');
my $first = ($receiver->records('/storm'))[0]{at};
sleep 1.5;
my $requests = grep { $_->{at} > $first + 0.5 } $receiver->records('/storm');
cmp_ok($requests, '<=', 100, "a sink in trouble sends at most 100 requests per second ($requests)");
cmp_ok($requests, '>=', 1, 'a sink in trouble is tried at least once per second');
drop_sinks($node, 'storm');

# Retry-After in seconds and as a date: the sink sends no request of any aggregate before that.
sink('after-seconds');
sink('after-date');
my $date = int(time) + 4;
$receiver->control(
	{ path => '/after-seconds', times => 1, status => 503, headers => { 'Retry-After' => 2 } },
	{ path => '/after-date', times => 1, status => 429,
		headers => { 'Retry-After' => strftime('%a, %d %b %Y %H:%M:%S GMT', gmtime $date) } });
sql(event('after-seconds', 1) . event('after-date', 1));
$receiver->wait_for(1, 20, "/after-$_") for 'seconds', 'date';
sql(event('after-seconds', 2) . event('after-date', 2));
my @asked = $receiver->wait_for(3, 20, '/after-seconds');
is(scalar @asked, 3, 'Retry-After in seconds: every event arrives');
cmp_ok(($asked[1]{at} // 0) - $asked[0]{at}, '>=', 1.95,
	'Retry-After in seconds: no request is sent earlier');
@asked = $receiver->wait_for(3, 20, '/after-date');
is(scalar @asked, 3, 'Retry-After with a date: every event arrives');
cmp_ok($asked[1]{at} // 0, '>=', $date - 0.05,
	'Retry-After with a date: no request is sent earlier');
drop_sinks($node, 'after-seconds', 'after-date');

# A rejected message alone is retried and becomes a dead letter.
my @bad = (400, 413, 422);
sink("bad-$_", undef, 'max_attempts => 3') for @bad;
sink('bad-for-long', undef, 'max_attempts => 1000');
$receiver->control({ path => '/bad-for-long', contains => 'wrong', status => 400,
	body => 'what is this?' },
	map { { path => "/bad-$_", contains => 'wrong', status => $_,
		body => "no such product: $_" . '.' x 100_000 } } @bad);
for my $name ('bad-for-long', map { "bad-$_" } @bad)
{
	sql(event($name, 'one', 'wrong') . event($name, 'one') . join '',
		map { event($name, "other $_") } 1 .. 10);
}
for my $status (@bad)
{
	my $name = "bad-$status";
	ok(wait_until(sub { rows('outbox_messages_dlq', $name) == 1 }),
		"$status: a rejected message becomes a dead letter");
	my ($attempts, $error) = split /\|/,
	  sql("SELECT attempts, left(last_error, 200) FROM outbox_messages_dlq JOIN outbox_consumers "
		. "USING (consumer_id) WHERE name = '$name'");
	is($attempts, 3, "$status: a message becomes a dead letter after max_attempts");
	like($error // '', qr/$status.*no such product: $status/s,
		"$status: last_error has the status and the start of the body");
	is(scalar(grep { $_->{answer} eq $status } $receiver->records("/$name")), 3,
		"$status: a message is sent max_attempts times");
	wait_until(sub { accepted($name) >= 11 });
	is(scalar(my @came = accepted($name)), 11, "$status: all other messages arrive");
	like(sink_status($node, $name), qr/^t/, "$status: outbox_status() shows the sink as ok");
}
# A message in outbox_retries blocks its own aggregate only.
ok(wait_until(sub {
	sql("SELECT count(*) FROM outbox_retries JOIN outbox_consumers USING (consumer_id) "
		. "WHERE name = 'bad-for-long' AND attempts >= 2 "
		. "AND last_error ~ '400.*what is this'") == 1 }),
	'a rejected message is in outbox_retries with the reason');
wait_until(sub { accepted('bad-for-long') >= 10 });
is_deeply([ sort map { $_->[0] } accepted('bad-for-long') ], [ sort map { "other%20$_" } 1 .. 10 ],
	'a rejected message blocks its own aggregate and no other');
is(sql("SELECT last_error FROM outbox_deliveries "
	. "WHERE consumer_name = 'bad-for-long' AND status IN ('RETRY', 'PROCESSING') "
	. "AND last_error IS NOT NULL") =~ /what is this/ ? 1 : 0, 1,
	'outbox_deliveries shows the reason of a rejection');
$receiver->control();
wait_until(sub { accepted('bad-for-long') >= 12 });
my @own = grep { $_->[0] eq 'one' } accepted('bad-for-long');
ok(@own == 2 && in_order(@own),
	'a blocked message follows the rejected one once the receiver accepts that');
ok(wait_until(sub { rows('outbox_retries', 'bad-for-long') == 0 }),
	'outbox_retries has no row of an accepted message');
drop_sinks($node, 'bad-for-long');

# 410 Gone.
sink('gone');
$receiver->control({ path => '/gone', status => 410, body => 'moved away' });
sql(event('gone', 1) . event('gone', 2));
ok(wait_until(sub { sql("SELECT paused FROM outbox_consumers WHERE name = 'gone'") eq 't' }),
	'410 pauses the sink');
like(sink_status($node, 'gone'), qr/^f\|.*410/s,
	'outbox_status() shows 410 as the reason of a pause');
my $before = $receiver->count('/gone');
sql(event('gone', 3));
sleep 0.6;
is($receiver->count('/gone'), $before, 'a sink paused by 410 sends no request');
is(rows('outbox_retries', 'gone') + rows('outbox_messages_dlq', 'gone'), 0,
	'410 leads to no retry and no dead letter');
$receiver->control();
sql("SELECT outbox_resume('gone')");
wait_until(sub { accepted('gone') >= 3 });
is(scalar(my @came = accepted('gone')), 3, 'a resumed sink delivers every event');
like(wait_for_status($node, 'gone', qr/^t/), qr/^t/, 'outbox_status() shows a resumed sink as ok');
drop_sinks($node, 'gone');

# A poison message: it always breaks the receiver, and other messages succeed.
for my $case ([ 'poison-500', { status => 500, body => 'broken by this' } ],
	[ 'poison-timeout', { do => 'hang' } ])
{
	my ($name, $rule) = @$case;
	sink($name, { timeout => seconds(0.5) }, 'max_attempts => 3');
	$receiver->control({ path => "/$name", contains => 'wrong', %$rule });
	sql(event($name, 'one', 'wrong'));
	my $sent = 0;
	wait_until(sub {
		sql(event($name, 'other ' . ++$sent));
		rows('outbox_messages_dlq', $name) }, 20);
	is(sql("SELECT string_agg(aggregate_id, ' ') FROM outbox_messages_dlq JOIN outbox_consumers "
		. "USING (consumer_id) WHERE name = '$name'"),
		'one', "$name: only the poison message becomes a dead letter");
	wait_until(sub { accepted($name) >= $sent });
	is(scalar(my @others = accepted($name)), $sent, "$name: all $sent other messages arrive");
	like(wait_for_status($node, $name, qr/^t/, 5), qr/^t/,
		"$name: outbox_status() shows the sink as ok");
}
is(sql("SELECT last_error ~ '500.*broken by this' FROM outbox_messages_dlq JOIN outbox_consumers "
	. "USING (consumer_id) WHERE name = 'poison-500'"), 't',
	'the dead letter of a poison message has the response as last_error');

# Endless responses, and responses of one byte at a time, do not delay other requests.
sink('endless', { timeout => seconds(5) });
sink('drip', { timeout => seconds(5) });
sink('drip-from-the-start', { timeout => seconds(5) });
$receiver->control(
	{ path => '/endless', contains => 'wrong', do => 'endless' },
	{ path => '/drip', contains => 'wrong', do => 'drip' },
	{ path => '/drip-from-the-start', contains => 'wrong', do => 'drip' });
for my $name ('endless', 'drip', 'drip-from-the-start')
{
	my $before = $name eq 'drip-from-the-start' ? 0 : 1;
	if ($before)
	{
		sql(event($name, 'one'));
		wait_until(sub { accepted($name) >= 1 });
	}
	sql(event($name, 'one', 'wrong'));
	$receiver->wait_for($before + 1, 20, "/$name");
	my $took = elapsed(sub {
		sql(join '', map { event($name, "other $_") } 1 .. 20);
		wait_until(sub { accepted($name) >= $before + 20 });
	});
	is(scalar(my @others = accepted($name)), $before + 20,
		"$name: events of other aggregates arrive");
	cmp_ok($took, '<', 3, "$name: events of other aggregates arrive within 3 s");
}
ok(wait_until(sub {
	sql("SELECT count(*) FROM outbox_deliveries "
		. "WHERE consumer_name = 'endless' AND status = 'COMPLETED'") == 22 }),
	'an endless response with status 200 completes the delivery');
is(scalar(grep { $_->{answer} eq 'endless' } $receiver->records('/endless')), 1,
	'an event with an endless response is not sent again');
$receiver->control();
$receiver->drop_connections;
drop_sinks($node, 'endless', 'drip', 'drip-from-the-start');

# A sink whose receiver hangs does not slow down another sink.
sink('fast');
my $alone = elapsed(sub { sql('BEGIN;' . join('', map { event('fast', $_) } 1 .. 300) . 'COMMIT');
	$receiver->wait_for(300, 20, '/fast') });
sink($_, { timeout => seconds(30) }) for 'hangs', 'hangs-too';
$receiver->control({ path => '/hangs', do => 'hang' }, { path => '/hangs-too', do => 'hang' });
sql(join '', map { event('hangs', $_) . event('hangs-too', $_) } 1 .. 50);
$receiver->wait_for(1, 20, "/$_") for 'hangs', 'hangs-too';
my $beside = elapsed(sub { sql('BEGIN;' . join('', map { event('fast', $_) } 1 .. 300) . 'COMMIT');
	$receiver->wait_for(600, 20, '/fast') });
is($receiver->count('/fast'), 600, 'a sink delivers every event beside sinks that hang');
cmp_ok($beside, '<', 2 * $alone + 0.5,
	sprintf('a sink beside sinks that hang is as fast as alone (%.2f s, %.2f s)', $beside, $alone));

$node->stop;
done_testing();
