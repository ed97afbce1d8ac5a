# A Kafka cluster (services/kafka), kcat as its reader, and what the tests of the Kafka sink share.
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

# Why there can be no broker here; nothing if there can.
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

# Skips the whole file where there can be no broker; under CI that is a failure.
sub need_kafka
{
	my $obstacle = obstacle() // return;
	plan(skip_all => $obstacle) unless $ENV{CI} || $ENV{OUTBOX_CI};
	fail($obstacle);
	done_testing();
	exit 1;
}

# What a program in services prints; input is a string for it, or undef.
sub service
{
	my ($name, $input, @arguments) = @_;
	my $services = $ENV{OUTBOX_SERVICES} or die 'OUTBOX_SERVICES names no directory';
	my ($out, $error) = ('', '');
	IPC::Run::run([ '/usr/bin/python3', "$services/$name", @arguments ], '<', \($input // ''), '>', \$out, '2>', \$error)
	  or die "$name @arguments: $error";
	return $out;
}

# start(NAME, options as services/kafka has them …): ready when it returns.
sub start
{
	my ($class, $name, @options) = @_;
	my $self = bless { name => $name, dir => PostgreSQL::Test::Utils::tempdir("kafka_$name") }, $class;
	$running{ $self->{dir} } = $self;
	$self->run(@options);
	return $self;
}

# Again, after stop or kill: all of it, or what the options say.
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

# Each for all nodes, or for one by its number.
sub stop { my ($self, @node) = @_; $self->call('stop', @node) }
sub kill { my ($self, @node) = @_; $self->call('kill', @node) }
sub restart { my ($self, @node) = @_; $self->call('restart', @node) }

# It takes connections, and nothing comes of them.
sub pause { my ($self, @node) = @_; $self->call('pause', @node) }
sub resume { my ($self, @node) = @_; $self->call('resume', @node) }

END
{
	local $?;
	# Not in a child that has forked and goes.
	if ($$ == $owner)
	{
		eval { $_->kill; 1 } or warn $@ for values %running;
	}
}

# Of a listener: bootstrap, sasl, tls, sasl_tls.
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

# For each partition of a topic: the node that leads it, and how many records it has.
sub describe
{
	my ($self, $topic) = @_;
	return map { my (undef, $leader, undef, $end) = split; { leader => $leader, records => $end } } split /\n/, $self->call('describe', $topic);
}

# How many records a topic has.
sub size
{
	my ($self, $topic) = @_;
	return List::Util::sum(map { $_->{records} } $self->describe($topic));
}

# A file with what kcat prints of a topic: all that is in it now, and nothing if there is no such topic.
sub kcat
{
	my ($self, $topic, @options) = @_;
	my ($file, $error) = ("$self->{dir}/kcat", '');
	IPC::Run::run([ 'kcat', '-b', $self->address, '-C', '-q', '-e', '-t', $topic, '-X', 'fetch.wait.max.ms=5', @options ],
		'<', \undef, '>', $file, '2>', \$error)
	  or $error =~ /Unknown topic|no messages/i or die "kcat: $error";
	return $file;
}

# The records of a topic, in order for each partition: hashes with topic, partition, offset, ts, key,
# payload and headers.
sub records
{
	my ($self, $topic) = @_;
	open my $file, '<:raw', $self->kcat($topic, '-J') or die "kcat: $!";
	return map { decode_json($_) } <$file>;
}

# For many records: calls the sub with id, key and value of each, in order for each partition. None has a tab or a line's end in it.
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

# For events with {"n": …} in them, which counts for each key: how many records there are, how many came again, and for each key
# the numbers in the order in which they came first.
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

# Waits for so many records, or until the sub, which is given them, says yes. The records, or nothing if they do not come.
sub wait_for
{
	my ($self, $topic, $what, $timeout) = @_;
	my $enough = ref $what ? $what : sub { @_ >= $what };
	my @records;
	return wait_until(sub { @records = $self->records($topic); $enough->(@records) }, $timeout) ? @records : ();
}

# Of a record: its headers as a hash.
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
	my $json = JSON::PP->new->utf8->canonical->encode({ 'bootstrap.servers' => $cluster->address, %$config });
	$options = $options ? ", $options" : '';
	$node->safe_psql($database // 'postgres', "SELECT outbox_create_sink('$name', 'kafka', \$config\$$json\$config\$$options)");
}

1;
