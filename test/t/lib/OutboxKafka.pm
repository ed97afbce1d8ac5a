# A Kafka cluster (services/kafka), kcat as its reader, and functions for tests of the Kafka sink.
package OutboxKafka;

use strict;
use warnings;
use Exporter 'import';
use IPC::Run ();
use JSON::PP;
use List::Util ();
use OutboxReceiver;
use PostgreSQL::Test::Utils ();
use Test::More;

our @EXPORT = qw(need_kafka service create_kafka_sink headers ids);

my %running;
my $owner = $$;

# Returns why no broker can run on this machine; nothing if one can.
sub obstacle
{
	my $jars = $ENV{OUTBOX_KAFKA} or return 'OUTBOX_KAFKA does not say where Kafka is';
	my @jars = glob "$jars/lib/kafka-clients-*.jar";
	return "Kafka is not in $jars" unless @jars;
	for my $program ('kcat', 'java')
	{
		return "there is no $program" unless grep { -x "$_/$program" } split /:/, $ENV{PATH};
	}
	return;
}

# Skips the whole file if no broker can run; under CI that is a failure.
sub need_kafka
{
	my $obstacle = obstacle() // return;
	plan(skip_all => $obstacle) unless $ENV{CI} || $ENV{OUTBOX_CI};
	fail($obstacle);
	done_testing();
	exit 1;
}

# Runs a program of services/ and returns its output; the input is a string or undef.
sub service
{
	my ($name, $input, @arguments) = @_;
	my $services = $ENV{OUTBOX_SERVICES} or die 'OUTBOX_SERVICES names no directory';
	my ($out, $error) = ('', '');
	IPC::Run::run([ '/usr/bin/python3', "$services/$name", @arguments ], '<', \($input // ''), '>',
		\$out, '2>', \$error)
	  or die "$name @arguments: $error";
	return $out;
}

# start(NAME, options of services/kafka …): starts a cluster and waits until it is ready.
sub start
{
	my ($class, $name, @options) = @_;
	my $self = bless { name => $name, dir => PostgreSQL::Test::Utils::tempdir("kafka_$name") },
	  $class;
	$running{ $self->{dir} } = $self;
	$self->run(@options);
	return $self;
}

# Starts the cluster again after stop or kill, or the nodes that the options name.
sub run
{
	my ($self, @options) = @_;
	$self->{addresses} = { map { split /=/, $_, 2 } split /\n/, $self->call('start', @options) };
}

sub call
{
	my ($self, $call, @arguments) = @_;
	return service('kafka', undef, $call, $self->{dir}, @arguments);
}

# These act on all nodes, or on the node with the given number.
sub stop { my ($self, @node) = @_; $self->call('stop', @node) }
sub kill { my ($self, @node) = @_; $self->call('kill', @node) }
sub restart { my ($self, @node) = @_; $self->call('restart', @node) }

# A paused node accepts connections and does not answer.
sub pause { my ($self, @node) = @_; $self->call('pause', @node) }
sub resume { my ($self, @node) = @_; $self->call('resume', @node) }

END
{
	local $?;
	# Only the process that started the clusters ends them, not its forked children.
	if ($$ == $owner)
	{
		eval { $_->kill; 1 } or warn $@ for values %running;
	}
}

# The address of a listener: bootstrap, sasl, tls, sasl_tls.
sub address
{
	my ($self, $listener) = @_;
	return $self->{addresses}{ $listener // 'bootstrap' };
}

# topic(NAME, PARTITIONS, 'key=value' …)
sub topic
{
	my ($self, @arguments) = @_;
	$self->call('topic', @arguments);
}

# Returns for each partition of a topic its leader and its number of records.
sub describe
{
	my ($self, $topic) = @_;
	return map { my (undef, $leader, undef, $end) = split;
		{ leader => $leader, records => $end } } split /\n/, $self->call('describe', $topic);
}

# The number of records in a topic.
sub size
{
	my ($self, $topic) = @_;
	return List::Util::sum(map { $_->{records} } $self->describe($topic));
}

# Returns a file with kcat's output for all records of a topic; the file is empty if the topic does
# not exist.
sub kcat
{
	my ($self, $topic, @options) = @_;
	my ($file, $error) = ("$self->{dir}/kcat", '');
	IPC::Run::run([ 'kcat', '-b', $self->address, '-C', '-q', '-e', '-t', $topic, '-X',
			'fetch.wait.max.ms=5', @options ],
		'<', \undef, '>', $file, '2>', \$error)
	  or $error =~ /Unknown topic|no messages/i or die "kcat: $error";
	return $file;
}

# Returns the records of a topic, in order within each partition: hashes with topic, partition,
# offset, ts, key, payload and headers.
sub records
{
	my ($self, $topic) = @_;
	open my $file, '<:raw', $self->kcat($topic, '-J') or die "kcat: $!";
	return map { decode_json($_) } <$file>;
}

# For many records: calls the sub with id, key and value of each, in order within each partition.
# Keys and values must not contain tabs or newlines.
sub read
{
	my ($self, $topic, $each) = @_;
	open my $file, '<:raw', $self->kcat($topic, '-f', "%k\t%s\t%h\n") or die "kcat: $!";
	while (my $line = <$file>)
	{
		chomp $line;
		my ($key, $value, $headers) = split /\t/, $line;
		my ($id) = $headers =~ /(?:^|,)(?:ce_)?id=([^,]+)/;
		$each->($id, $key, $value);
	}
}

# For events with {"n": …}, counted per key: returns the number of records, the number of repeated
# ones, and for each key the numbers in the order of their first delivery.
sub counted
{
	my ($self, $topic) = @_;
	my ($records, $again, %seen, %numbers) = (0, 0);
	$self->read($topic, sub {
		my ($id, $key, $value) = @_;
		$records++;
		return $again++ if $seen{$id}++;
		push @{ $numbers{$key} }, $value =~ /"n": (\d+)/;
	});
	return ($records, $again, \%numbers);
}

# Waits for a number of records, or until a sub with the records as its arguments returns true.
# Returns the records, or an empty list after the timeout.
sub wait_for
{
	my ($self, $topic, $what, $timeout) = @_;
	my $enough = ref $what ? $what : sub { @_ >= $what };
	my @records;
	return wait_until(sub { @records = $self->records($topic); $enough->(@records) }, $timeout)
	  ? @records : ();
}

# The headers of a record as a hash.
sub headers
{
	my ($record) = @_;
	return { @{ $record->{headers} // [] } };
}

sub ids
{
	return map { my $all = headers($_); $all->{ce_id} // $all->{id} } @_;
}

# create_kafka_sink(NODE, CLUSTER, NAME, { config }, 'further => arguments', DATABASE)
sub create_kafka_sink
{
	my ($node, $cluster, $name, $config, $options, $database) = @_;
	my $json = JSON::PP->new->utf8->canonical->encode({
			'bootstrap.servers' => $cluster->address, %$config });
	$options = $options ? ", $options" : '';
	$node->safe_psql($database // 'postgres',
		"SELECT outbox_create_sink('$name', 'kafka', \$config\$$json\$config\$$options)");
}

1;
