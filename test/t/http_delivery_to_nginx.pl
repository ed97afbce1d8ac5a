# Delivery to nginx over HTTP/1.1, TLS and HTTP/2.
use strict;
use warnings;
use File::Temp qw(tempdir);
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;
use OutboxReceiver;
use OutboxTest;

my $dir = tempdir(CLEANUP => 1);
my $certificates = make_certificates();
my ($plain, $tls, $h2, $behind) = map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. 4;

open(my $conf, '>', "$dir/nginx.conf") or die $!;
print $conf <<"END";
daemon off;
worker_processes 1;
pid $dir/pid;
error_log $dir/error.log;
events { worker_connections 256; }
http {
    log_format outbox '\$server_port \$server_protocol \$connection \$http_webhook_id '
                      '\$http_ce_partitionkey \$http_ce_sequence';
    access_log $dir/access.log outbox;
    client_body_temp_path $dir/body; proxy_temp_path $dir/p; fastcgi_temp_path $dir/f;
    uwsgi_temp_path $dir/u; scgi_temp_path $dir/s;
    keepalive_requests 100000;
    server { listen 127.0.0.1:$plain; location / { return 204; } }
    ssl_certificate $certificates/server.crt;
    ssl_certificate_key $certificates/server.key;
    # The first server answers before it has read the body, the second one passes the body on.
    server { listen 127.0.0.1:$tls ssl http2; location / { return 204; } }
    server { listen 127.0.0.1:$h2 ssl http2; location / { proxy_pass http://127.0.0.1:$behind; } }
    server { listen 127.0.0.1:$behind; access_log off; location / { return 204; } }
}
END
close $conf;
my ($nginx) = grep { -x } '/usr/sbin/nginx', '/usr/bin/nginx';
die 'nginx is missing' unless $nginx;
my $pid = fork // die $!;
if ($pid == 0)
{
	open(STDERR, '>', "$dir/stderr");
	exec $nginx, '-c', "$dir/nginx.conf", '-p', $dir;
}
END { kill 'TERM', $pid if $pid }
wait_until(sub { -s "$dir/pid" }) or die 'nginx does not start: ' . slurp_file("$dir/stderr");

my $node = start_node('main');
$node->safe_psql('postgres', 'SELECT outbox_setup()');
create_sink($node, 'plain', { url => "http://127.0.0.1:$plain/hook" });
create_sink($node, 'tls',
	{ url => "https://localhost:$tls/hook", ca_file => "$certificates/ca.crt" });
create_sink($node, 'h2',
	{ url => "https://localhost:$h2/hook", ca_file => "$certificates/ca.crt",
		http2 => JSON::PP::true });
my $count = 2000;
$node->safe_psql('postgres',
	"SELECT count(outbox_enqueue('Order', (i % 50)::text, 'OrderConfirmed', '{}')) "
	  . "FROM generate_series(1, $count) i");
my @expected = sort split /\n/,
  $node->safe_psql('postgres', 'SELECT tracking_id FROM outbox_messages');

# The default version of the protocol depends on that of libcurl.
my ($version) = `curl-config --version` =~ /(\d+)\./;
my %port = ($plain => 'plain', $tls => 'TLS', $h2 => 'HTTP/2');
my %names = ($plain => 'HTTP/1.1', $tls => $version < 8 ? 'HTTP/1.1' : 'HTTP/2.0',
	$h2 => 'HTTP/2.0');
for my $port ($plain, $tls, $h2)
{
	my @lines;
	wait_until(sub {
		@lines = grep { $_->[0] eq $port } map { [split / /] } split /\n/,
		  slurp_file("$dir/access.log");
		@lines >= $count }, 30);
	is_deeply([ sort map { $_->[3] } @lines ], \@expected,
		"$port{$port}: every event arrives once");
	is_deeply([ grep { $_->[1] ne $names{$port} } @lines ], [],
		"$port{$port}: requests use $names{$port}");
	my (%connections, %last, @disorder);
	for (@lines)
	{
		$connections{ $_->[2] } = 1;
		push @disorder, $_ if ($last{ $_->[4] } // '') ge $_->[5];
		$last{ $_->[4] } = $_->[5];
	}
	cmp_ok(scalar keys %connections, '<=', 16,
		"$port{$port}: requests reuse at most 16 connections");
	is_deeply(\@disorder, [], "$port{$port}: events of an aggregate arrive in order");
}

$node->stop;
done_testing();
