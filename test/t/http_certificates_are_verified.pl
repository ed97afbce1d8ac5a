# Sink and receiver verify certificates. A sink with a refused certificate delivers nothing, and
# outbox_status() gives the reason.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use OutboxReceiver;
use OutboxTest;
use Test::More;
use Time::HiRes qw(sleep);

my $dir = make_certificates();
my %receivers = map { $_ => OutboxReceiver->start($_,
	tls => { cert => "$dir/$_.crt", key => "$dir/$_.key" }) } 'server', 'elsewhere', 'expired';
$receivers{mutual} = OutboxReceiver->start('mutual',
	tls => { cert => "$dir/server.crt", key => "$dir/server.key", client_ca => "$dir/ca.crt" });
my %private = (ca_file => "$dir/ca.crt");
my %client = (client_cert => "$dir/client.crt", client_key => "$dir/client.key");
my %stranger = (client_cert => "$dir/stranger.crt", client_key => "$dir/stranger.key");
my $no_trust = qr/certificate|issuer|trust|verif|SSL|TLS/i;

# name => [ receiver, host, config, reason of the refusal ]
my %cases = (
	'private CA' => [ 'server', 'localhost', \%private ],
	'address in the certificate' => [ 'server', '127.0.0.1', \%private ],
	'client certificate' => [ 'mutual', 'localhost', { %private, %client } ],
	'CA that the system does not know' => [ 'server', 'localhost', {}, $no_trust ],
	'another private CA' => [ 'server', 'localhost', { ca_file => "$dir/stranger.crt" },
		$no_trust ],
	'wrong host name' => [ 'elsewhere', 'localhost', \%private, qr/name|match|certificate/i ],
	'expired certificate' => [ 'expired', 'localhost', \%private, qr/expired|certificate/i ],
	'no client certificate' => [ 'mutual', 'localhost', \%private,
		qr/certificate|alert|handshake|SSL|TLS/i ],
	'client certificate of a stranger' => [ 'mutual', 'localhost', { %private, %stranger },
		qr/certificate|alert|handshake|unknown ca|SSL|TLS/i ]);

my $node = start_node('main',
	conf => "outbox.backoff_base = '100ms'\noutbox.backoff_max = '500ms'\n");
$node->safe_psql('postgres', 'SELECT outbox_setup()');

# The path of a sink is its number in the order of names.
my @names = sort keys %cases;
my %path = map { $names[$_] => "/$_" } 0 .. $#names;
for my $name (@names)
{
	my ($receiver, $host, $config) = @{ $cases{$name} };
	create_sink($node, $name, { url => $receivers{$receiver}->url($path{$name}, $host), %$config });
}
$node->safe_psql('postgres', join '', map { enqueue($_) } 1 .. 3);

for my $name (grep { !$cases{$_}[3] } @names)
{
	my $receiver = $receivers{ $cases{$name}[0] };
	my @requests = $receiver->wait_for(3, 20, $path{$name});
	is(scalar @requests, 3, "$name: the receiver accepts the events");
	like(wait_for_status($node, $name, qr/^t/), qr/^t/,
		"$name: outbox_status() shows the sink as ok");
}
for my $name (grep { $cases{$_}[3] } @names)
{
	my $reason = $cases{$name}[3];
	like(wait_for_status($node, $name, qr/^f\|.*$reason/s), qr/^f\|.*$reason/s,
		"$name: the sink is in trouble, and outbox_status() gives the reason");
}
sleep 0.5;
for my $name (grep { $cases{$_}[3] } @names)
{
	is($receivers{ $cases{$name}[0] }->count($path{$name}), 0, "$name: the receiver gets no event");
}
is($node->safe_psql('postgres',
	'SELECT (SELECT count(*) FROM outbox_retries) + (SELECT count(*) FROM outbox_messages_dlq)'),
	0, 'a refused certificate leads to no retry and no dead letter');

# Delivery starts once the config or the receiver is corrected.
my $name = 'no client certificate';
my $config = JSON::PP->new->encode({ url => $receivers{mutual}->url($path{$name}, 'localhost'),
	%private, %client });
$node->safe_psql('postgres', "SELECT outbox_alter_sink('$name', config => '$config')");
is(scalar(my @corrected = $receivers{mutual}->wait_for(3, 20, $path{$name})), 3,
	'a sink with an added client certificate delivers every event');
$receivers{expired}->stop;
$receivers{expired}{tls} = $receivers{server}{tls};
$receivers{expired}->run;
is(scalar(my @renewed = $receivers{expired}->wait_for(3, 20, $path{'expired certificate'})), 3,
	'a receiver with a renewed certificate gets every event');

# A missing file is reported by outbox_create_sink() or by outbox_status().
$config = JSON::PP->new->encode({ url => $receivers{server}->url('/missing', 'localhost'),
	ca_file => "$dir/missing.crt" });
my $error = refusal($node, "SELECT outbox_create_sink('missing', 'http', '$config')");
if ($error)
{
	like($error, qr/missing\.crt/, 'the error for a missing CA file names the file');
}
else
{
	$node->safe_psql('postgres', enqueue('missing'));
	like(wait_for_status($node, 'missing', qr/^f/), qr/^f\|.*missing\.crt/s,
		'the error for a missing CA file names the file');
}

$node->stop;
done_testing();
