# A receiver of webhooks (services/receiver), and functions for tests of the relay.
package OutboxReceiver;

use strict;
use warnings;
use Encode ();
use Exporter 'import';
use HTTP::Tiny;
use IPC::Run ();
use JSON::PP;
use PostgreSQL::Test::Utils ();
use Time::HiRes qw(time sleep);

our @EXPORT =
	qw(header field seconds wait_until elapsed create_sink drop_sinks sink_status wait_for_status
  relay_pid write_secrets make_certificates refusal);

my %running;
my $owner = $$;

# start(NAME, port => N, tls => { cert, key, client_ca }, body_limit => BYTES): starts a receiver
# and waits until it listens.
sub start
{
	my ($class, $name, %options) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir("receiver_$name");
	my $self = bless {
		name => $name, port => 0, tls => {}, %options,
		record => "$dir/record", ready => "$dir/ready", read => 0, lines => [], decoded => [],
	}, $class;
	PostgreSQL::Test::Utils::append_to_file($self->{record}, '');
	$self->run;
	return $self;
}

sub run
{
	my ($self) = @_;
	my $services = $ENV{OUTBOX_SERVICES} or die 'OUTBOX_SERVICES names no directory';
	my $tls = $self->{tls};
	unlink $self->{ready};
	# The receiver ends when this process, which has the other end of the pipe, does.
	$self->{pid} = open($self->{pipe}, '|-', '/usr/bin/python3',
		"$services/receiver", '--until-eof',
		'--record', $self->{record}, '--ready', $self->{ready}, '--port', $self->{port},
		$self->{body_limit} ? ('--body-limit', $self->{body_limit}) : (),
		map { ('--' . tr/_/-/r, $tls->{$_}) } sort keys %$tls)
	  or die "the receiver does not start: $!";
	$running{ $self->{pid} } = $self;
	wait_until(sub { -s $self->{ready} || !kill(0, $self->{pid}) }, 20);
	-s $self->{ready} or die "receiver $self->{name} does not listen";
	my $ports = PostgreSQL::Test::Utils::slurp_file($self->{ready});
	($self->{port}, $self->{control_port}) = $ports =~ /(\d+) (\d+)/;
	$self->control(@{ $self->{rules} }) if $self->{rules};
}

sub stop
{
	my ($self, $signal) = @_;
	return unless delete $running{ $self->{pid} // '' };
	kill $signal // 'TERM', $self->{pid};
	local $?;
	close $self->{pipe};
}

# Restarts the receiver with the same port, record and rules.
sub restart
{
	my ($self, $signal) = @_;
	$self->stop($signal);
	$self->run;
}

END
{
	local $?;
	# Only the process that started the receivers ends them, not its forked children.
	map { $_->stop } $$ == $owner ? values %running : ();
}

sub url
{
	my ($self, $path, $host) = @_;
	return sprintf '%s://%s:%d%s', %{ $self->{tls} } ? 'https' : 'http', $host // '127.0.0.1',
	  $self->{port}, $path // '/';
}

sub order
{
	my ($self, %order) = @_;
	my $answer = HTTP::Tiny->new(no_proxy => ['127.0.0.1'], timeout => 20)
	  ->post("http://127.0.0.1:$self->{control_port}/_control",
	  	{ content => encode_json(\%order) });
	$answer->{success}
	  or die "receiver $self->{name} does not obey: $answer->{status} $answer->{content}";
}

# Sets rules as services/receiver describes them; without rules every answer is 200.
sub control
{
	my ($self, @rules) = @_;
	$self->{rules} = \@rules;
	$self->order(rules => \@rules);
}

# Resets all connections, including those of requests that hang.
sub drop_connections
{
	my ($self) = @_;
	$self->order(drop => JSON::PP::true);
}

# The lines of the record so far.
sub lines
{
	my ($self) = @_;
	open my $file, '<:raw', $self->{record} or die "$self->{record}: $!";
	seek $file, $self->{read}, 0;
	while (my $line = <$file>)
	{
		last unless $line =~ /\n\z/;
		$self->{read} += length $line;
		push @{ $self->{lines} }, $line;
	}
	return @{ $self->{lines} };
}

# The requests so far, decoded; only those to a path, if one is given.
sub records
{
	my ($self, $path) = @_;
	my @lines = $self->lines;
	push @{ $self->{decoded} }, decode_json($lines[$_]) for scalar @{ $self->{decoded} } .. $#lines;
	return grep { !defined $path || $_->{path} eq $path } @{ $self->{decoded} };
}

sub count
{
	my ($self, $path) = @_;
	return scalar(my @all = defined $path ? $self->records($path) : $self->lines);
}

# The ids of events without decoding every request: of all requests, or of those answered with 2xx,
# optionally to one path.
sub ids
{
	my ($self) = @_;
	return map { /"id": "([^"]+)"/ ? $1 : () } $self->lines;
}

sub accepted_ids
{
	my ($self, $path) = @_;
	my @lines = grep { !defined $path || index($_, qq{"path": "$path"}) > 0 } $self->lines;
	return map { /^\{"answer": "2\d\d", "id": "([^"]+)"/ ? $1 : () } @lines;
}

# Waits for a number of requests, or until the sub returns true. Returns the requests, or an empty
# list after the timeout.
sub wait_for
{
	my ($self, $what, $timeout, $path) = @_;
	my $enough = ref $what ? $what : sub { $self->count($path) >= $what };
	return wait_until($enough, $timeout) ? $self->records($path) : ();
}

# The value of a header of a request; undef if it is missing.
sub header
{
	my ($record, $name) = @_;
	my @values = map { $_->[1] } grep { lc $_->[0] eq lc $name } @{ $record->{headers} // [] };
	return $values[0];
}

# The body of a request as a structure, or one field of it.
sub field
{
	my ($record, $name) = @_;
	my $body = decode_json(Encode::encode_utf8($record->{body}));
	return defined $name ? $body->{$name} : $body;
}

# A duration in the config of a sink: a number of seconds.
sub seconds
{
	return $_[0] + 0;
}

sub wait_until
{
	my ($condition, $timeout) = @_;
	my $end = time + ($timeout // 60) * ($ENV{OUTBOX_SANITIZED} ? 5 : 1);
	my $result;
	until ($result = $condition->())
	{
		return $result if time > $end;
		sleep 0.02;
	}
	return $result;
}

sub elapsed
{
	my ($code) = @_;
	my $start = time;
	$code->();
	return time - $start;
}

# create_sink(NODE, NAME, { config }, 'further => arguments', DATABASE)
sub create_sink
{
	my ($node, $name, $config, $options, $database) = @_;
	my $json = JSON::PP->new->utf8->canonical->encode($config);
	$options = $options ? ", $options" : '';
	$node->safe_psql($database // 'postgres',
		"SELECT outbox_create_sink('$name', 'http', \$config\$$json\$config\$$options)");
}

sub drop_sinks
{
	my ($node, @names) = @_;
	$node->safe_psql('postgres', join ';', map { "SELECT outbox_drop_sink('$_')" } @names);
}

# The status of a sink: "t" or "f", a bar, and the reason.
sub sink_status
{
	my ($node, $name, $database) = @_;
	return $node->safe_psql($database // 'postgres',
		"SELECT ok, detail FROM outbox_status() WHERE component = 'sink ' || "
		  . "\$name\$$name\$name\$");
}

sub wait_for_status
{
	my ($node, $name, $pattern, $timeout, $database) = @_;
	my $status = '';
	wait_until(sub { ($status = sink_status($node, $name, $database)) =~ $pattern }, $timeout);
	return $status;
}

# The pid of the relay that serves a database; empty if there is none.
sub relay_pid
{
	my ($node, $database) = @_;
	$database //= 'postgres';
	return $node->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity
			WHERE backend_type = 'outbox relay' AND datname = '$database'");
}

# Writes a file of secrets, with the mode that the server requires unless another is given.
sub write_secrets
{
	my ($file, $secrets, $mode) = @_;
	unlink $file;
	my $before = umask 0077;
	PostgreSQL::Test::Utils::append_to_file($file, join '',
		map { "$_ = $secrets->{$_}\n" } sort keys %$secrets);
	umask $before;
	chmod $mode // 0600, $file or die "$file: $!";
	return $file;
}

# Returns SQLSTATE, message, detail and hint of a statement that fails; empty if it succeeds.
sub refusal
{
	my ($node, $sql, @psql_options) = @_;
	my ($status, undef, $error) =
		$node->psql('postgres', "\\set VERBOSITY verbose\n$sql", extra_params => \@psql_options);
	return $status == 0 ? '' : $error;
}

sub openssl
{
	my ($error);
	IPC::Run::run([ 'openssl', @_ ], '<', \undef, '>', '/dev/null', '2>', \$error)
	  or die "openssl @_: $error";
}

# Makes a private CA and certificates DIR/NAME.crt with keys DIR/NAME.key: server (localhost),
# elsewhere (another host name), expired, client; and stranger, a CA that has signed nothing.
sub make_certificates
{
	my $dir = PostgreSQL::Test::Utils::tempdir('certificates');
	my @key = ('-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes');
	openssl('req', '-x509', @key, '-days', 2, '-subj', "/CN=$_", '-keyout', "$dir/$_.key",
		'-out', "$dir/$_.crt")
	  for 'ca', 'stranger';
	PostgreSQL::Test::Utils::append_to_file("$dir/index", '');
	PostgreSQL::Test::Utils::append_to_file("$dir/ca.conf", <<"CONF");
[ca]
default_ca = private
[private]
certificate = $dir/ca.crt
private_key = $dir/ca.key
database = $dir/index
new_certs_dir = $dir
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
[server]
subjectAltName = DNS:localhost, IP:127.0.0.1
[elsewhere]
subjectAltName = DNS:elsewhere.example
[client]
extendedKeyUsage = clientAuth
CONF
	for my $name ('server', 'elsewhere', 'expired', 'client')
	{
		my $section = $name eq 'expired' ? 'server' : $name;
		my $host = $name eq 'elsewhere' ? 'elsewhere.example' : $name eq 'client'
		  ? 'client' : 'localhost';
		my ($from, $to) = $name eq 'expired' ? ('20200101000000Z', '20200201000000Z')
		  : ('20200101000000Z', '20991231000000Z');
		openssl('req', '-new', @key, '-subj', "/CN=$host", '-keyout', "$dir/$name.key", '-out',
			"$dir/$name.csr");
		openssl('ca', '-batch', '-notext', '-config', "$dir/ca.conf", '-extensions', $section,
			'-startdate', $from,
			'-enddate', $to, '-in', "$dir/$name.csr", '-out', "$dir/$name.crt");
	}
	return $dir;
}

1;
