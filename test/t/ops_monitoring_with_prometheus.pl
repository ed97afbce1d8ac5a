# Tests the files of monitoring/ with a real exporter and a real Prometheus.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use OutboxAge;
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $files = $ENV{OUTBOX_MONITORING} or die 'OUTBOX_MONITORING names no directory';
my $dir = PostgreSQL::Test::Utils::tempdir('monitoring');

# Returns whether promtool succeeds, and its output.
sub promtool
{
	my ($input, @arguments) = @_;
	my $output = '';
	my $succeeded = IPC::Run::run([ 'promtool', @arguments ], '<', \$input, '>', \$output, '2>&1');
	return ($succeeded, $output);
}

sub promtool_accepts
{
	my ($promise, @arguments) = @_;
	my ($succeeded, $output) = promtool('', @arguments);
	ok($succeeded, $promise) or diag $output;
}

# IPC::Run ends the services with this process, also if the test dies.
my @running;
END
{
	local $?;
	map { $_->kill_kill(grace => 5) } @running;
}

sub start
{
	my ($name, @command) = @_;
	my $log = "$dir/$name.log";
	push @running, IPC::Run::start([ 'setpriv', '--pdeathsig', 'KILL', '--', @command ], '<',
		\undef, '>', $log, '2>&1');
	return $log;
}

sub get
{
	my ($port, $path) = @_;
	my $answer = HTTP::Tiny->new(no_proxy => ['127.0.0.1'],
		timeout => 20)->get("http://127.0.0.1:$port$path");
	return $answer->{success} ? $answer->{content} : '';
}

# Starts the exporter with the arguments in README.md. Returns its port and its log.
sub start_exporter
{
	my ($node, $database) = @_;
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	local $ENV{DATA_SOURCE_NAME} = "user=prometheus host=" . $node->host . ' port='
	  . $node->port . " dbname=$database";
	my ($arguments) = slurp_file("$files/README.md") =~ /^ARGS='(.*)'$/m
	  or die 'README.md has no ARGS';
	$arguments =~ s{=\S*/outbox-queries.yaml}{=$files/queries.yaml}
	  or die 'README.md does not name the queries';
	my $log = start("exporter_$database", 'prometheus-postgres-exporter', split(' ', $arguments),
		"--web.listen-address=127.0.0.1:$port");
	wait_until(sub { get($port, '/metrics') =~ /^pg_up 1$/m })
	  or die 'the exporter does not work: ' . slurp_file($log);
	return ($port, $log);
}

# Parses the text format: types by name, values by name and labels. Drops the label "server", which
# the exporter adds.
sub parse
{
	my ($text) = @_;
	my %types = $text =~ /^# TYPE (outbox_\w+) (\w+)$/mg;
	my %values;
	for (grep { /^outbox_/ } split /\n/, $text)
	{
		my ($name, $labels, $value) = /^(\w+)(?:\{(.*)\})? (\S+)$/
		  or die "not a line of the text format: $_";
		my %labels = ($labels // '') =~ /(\w+)="((?:[^"\\]|\\.)*)"/g;
		delete $labels{server};
		$labels{le} += 0 if exists $labels{le};
		$values{ join ' ', $name, map { "$_=$labels{$_}" } sort keys %labels } = $value + 0;
	}
	return (\%types, \%values);
}

# The rules, checked without a server.
promtool_accepts('promtool accepts the alerting rules', 'check', 'rules', "$files/rules.yaml");
promtool_accepts('the rules fire in exactly the cases of rules_test.yaml', 'test', 'rules',
	"$files/rules_test.yaml");
my $rules = slurp_file("$files/rules.yaml");
my $cases = slurp_file("$files/rules_test.yaml");
my @alerts = $rules =~ /- alert: (\w+)/g;
cmp_ok(@alerts, '>', 10, 'the rules define more than ten alerts');
is(join(' ', grep { $cases !~ /alertname="$_"/ } @alerts), '',
	'every alert has a case in rules_test.yaml');
is(join(' ', grep { slurp_file("$files/README.md") !~ /^\| `$_` \|/m } @alerts), '',
	'every alert has a row in README.md');
is(scalar(() = $rules =~ /^ {8}for: \d+m$/mg), @alerts,
	'every alert waits for some minutes before it fires');
is(scalar(() = $rules =~ /^ {10}severity: (?:info|warning|critical)$/mg), @alerts,
	'every alert has a severity');
is(scalar(() = $rules =~ /^ {10}summary: \S/mg), @alerts, 'every alert has a summary');
is(scalar(() = $rules =~ /^ {10}description: \S/mg), @alerts, 'every alert has a description');

my $receiver = OutboxReceiver->start('receiver');
my $node = start_node('main',
	conf => "outbox.backoff_base = '300ms'\noutbox.backoff_max = '600ms'\n");
my @created = map { "SET client_min_messages = warning; $_" } 'CREATE EXTENSION outbox CASCADE',
  "SELECT outbox_grant('prometheus', 'monitor')";
$node->safe_psql('postgres', "CREATE ROLE prometheus LOGIN; CREATE DATABASE figures");
$node->safe_psql('figures', join ';', @created, 'SELECT outbox_setup()');
$node->safe_psql('postgres', "$created[1]; SELECT outbox_setup()");

# The database "figures" has a value for every metric, and names that need escaping.
set_up_age($node, 'figures');
my $odd = q{wor"k\er, {a="b"} 1};
sub figures { return $node->safe_psql('figures', join ';', @_) }
figures(qq{SELECT outbox_create_consumer(\$\$$odd\$\$, start_at => 'earliest')},
	q{SELECT outbox_create_consumer('worker')},
	q{SELECT outbox_create_consumer('picky', event_types => '{Rare}')},
	q{SELECT outbox_create_consumer('paused')}, q{SELECT outbox_pause('paused')});
figures(old_event(10));
figures('SELECT outbox_maintain()');
create_sink($node, 'hook', { url => $receiver->url('/figures') }, undef, 'figures');
create_sink($node, 'down', { url => $receiver->url('/down') }, undef, 'figures');
$receiver->control({ path => '/down', do => 'status', status => 503 });
figures(q{SELECT outbox_enqueue('Order', i, E'Line\nbreak "q" \\\\ {a="b"} 1', '{}')
		FROM generate_series(1, 1500) i},
	q{SELECT outbox_enqueue('Order', 1, 'Later', '{}', available_at => now() + interval '1 hour')});
my ($token, $first) = split /\|/,
  figures(q{SELECT max(lock_token), min(id) FROM outbox_claim('worker', 20)});
figures("SELECT outbox_fail($token, $first, 'no luck', retry_in => '1 hour')",
	"SELECT outbox_fail($token, $first + 1, 'bad', dead => true)",
	"SELECT outbox_ack($token)", q{SELECT outbox_claim('worker', 5, lease => '1 hour')});
wait_until(sub { figures(q{SELECT count(*) FROM outbox_stats WHERE consumer = 'hook'
				AND delivered = 1500 OR consumer = 'down' AND backoff_until IS NOT NULL}) == 2 })
  or diag 'the sinks: ', figures('SELECT outbox_metrics()');
# From here on the figures should not change.
figures(q{SELECT outbox_pause('down')});
wait_until(sub { figures(q{SELECT in_flight FROM outbox_stats WHERE consumer = 'down'}) == 0 });

my ($port, $log) = start_exporter($node, 'figures');
my $metrics = figures('SELECT outbox_metrics()');
my $exported = get($port, '/metrics');
my ($types, $before) = parse($metrics);
my ($exported_types, $exported_values) = parse($exported);
my (undef, $after) = parse(figures('SELECT outbox_metrics()'));
my ($succeeded, $output) = promtool($metrics, 'check', 'metrics');
is("$succeeded$output", '1', 'promtool accepts the output of outbox_metrics()');
is_deeply($exported_types, $types,
	'the exporter has the metrics of outbox_metrics(), with the same types');
is(join("\n", sort keys %$exported_values), join("\n", sort keys %$before),
	'the exporter has the labels of outbox_metrics()');
my @stable = grep { $before->{$_} == ($after->{$_} // 'NaN') } sort keys %$before;
cmp_ok(@stable, '>', @{ [ keys %$before ] } - 20,
	'most metrics are the same in two calls of outbox_metrics()');
is(join("\n", map { "$_ $exported_values->{$_}" } @stable), join("\n",
		map { "$_ $before->{$_}" } @stable), 'the exporter has the values of outbox_metrics()');
is(join(' ', $exported =~ /^pg_exporter_last_scrape_error (\S+)$/m,
		$exported =~ /^pg_exporter_user_queries_load_error\S* (\S+)$/m), '0 0',
	'a monitor may run every query of the exporter');
# Newer exporters warn that the file of queries is deprecated.
is(join("\n", grep { /level=(?:warn|error)|err=/i && /outbox/
			&& !/queries\.yaml config is DEPRECATED/ } split /\n/, slurp_file($log)), '',
	'the exporter logs no error about outbox');
my %expected_values = map { $_ => $before->{$_} } 'outbox_dlq_messages consumer=worker '
  . 'event_type=Line\nbreak \"q\" \\\\ {a=\"b\"} 1', 'outbox_dead_tuples table=_outbox.leases',
	'outbox_held_partition_bytes consumer=wor\"k\\\\er, {a=\"b\"} 1',
	  'outbox_latency_seconds_bucket consumer=hook le=Inf', 'outbox_lag_is_exact consumer=picky';
is(join(' ', grep { !defined $expected_values{$_} } sort keys %expected_values), '',
	'metrics have labels for every consumer, event type and table')
  or diag join "\n", sort keys %$before;
is($before->{'outbox_lag_is_exact consumer=picky'}, 0,
	'outbox_lag_is_exact is 0 for a lag that is an upper bound');

my %called = map { $_ => 1 } $rules =~ /\b(outbox_\w+)\(/g;
is(join(' ', grep { !defined $_ || figures("SELECT count(*) FROM pg_proc
				WHERE proname = '$_'") == 0 } sort keys %called), '',
	'the functions named in alerts exist');

# The dashboard.
my $dashboard = decode_json(slurp_file("$files/dashboard.json"));
my @panels = grep { $_->{type} ne 'row' } @{ $dashboard->{panels} };
my @shown = map { $_->{expr} } map { @{ $_->{targets} } } @panels;
cmp_ok(@shown, '>', 20, 'the dashboard has more than 20 queries');
my $wrapped = "groups:\n  - name: dashboard\n    rules:\n";
for my $number (0 .. $#shown)
{
	my $expression =
		$shown[$number] =~ s/\$__rate_interval/1m/gr =~ s/\$consumer/.*/gr =~ s/'/''/gr;
	$wrapped .= "      - record: panel:$number\n        expr: '$expression'\n";
}
append_to_file("$dir/dashboard.yaml", $wrapped);
promtool_accepts('promtool accepts the query of every panel', 'check',
	'rules', "$dir/dashboard.yaml");
my %named = map { /^(\w+)/ => 1 } keys %$before;
my @expressions = (@shown, $rules =~ /^ {8}expr: (.*)$/mg);
is(scalar @expressions, @shown + @alerts, 'every alert has an expression in one line');
my %used = map { $_ => 1 } map { /\boutbox_\w+/g } @expressions;
is(join(' ', grep { !$named{$_} } sort keys %used), '', 'every metric of a panel or alert exists');
is(join(' ', grep { !$used{$_} } sort keys %named), '', 'every metric is used by a panel or alert');
is(scalar(grep { $_->{datasource}{uid} ne '${datasource}' } @panels,
		map { @{ $_->{targets} } } @panels), 0,
	'every panel and query uses the data source variable');
my %places;
for my $panel (@{ $dashboard->{panels} })
{
	my $place = $panel->{gridPos};
	for my $x ($place->{x} .. $place->{x} + $place->{w} - 1)
	{
		$places{"$x $_"}++ for $place->{y} .. $place->{y} + $place->{h} - 1;
	}
}
is(scalar(grep { $_ > 1 } values %places), 0, 'no panel overlaps another');

# The other database is healthy until the receiver of its sink fails. Prometheus scrapes every
# second, and the rules' minutes become seconds.
my $live =
	$rules =~ s/^( {8}for: \d+)m$/$1s/mgr =~ s/lag_seconds > 60 /lag_seconds > 2 /r
  =~ s/lag_seconds > 300 /lag_seconds > 4 /r =~ s/\[2m\]/[4s]/gr;
append_to_file("$dir/rules.yaml", $live);
my ($source) = start_exporter($node, 'postgres');
append_to_file("$dir/prometheus.yml", <<"END");
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
scrape_configs:
  - job_name: outbox
    static_configs: [{targets: ['127.0.0.1:$source']}]
END
my $prometheus = PostgreSQL::Test::Cluster::get_free_port();
my $prometheus_log = start('prometheus', 'prometheus', "--config.file=$dir/prometheus.yml",
	"--storage.tsdb.path=$dir/data", "--web.listen-address=127.0.0.1:$prometheus");

sub ask
{
	my ($path) = @_;
	my $answer = get($prometheus, $path) or return;
	return decode_json($answer)->{data};
}

# The alerts in a state, as "name consumer".
sub alerts
{
	my ($state) = @_;
	return map { join ' ', $_->{labels}{alertname}, $_->{labels}{consumer} // () } grep {
		$_->{state} eq $state } @{ ask('/api/v1/alerts')->{alerts} };
}

# The number of samples that Prometheus has of a metric.
sub samples
{
	my ($name) = @_;
	my $data = ask("/api/v1/query?query=count_over_time($name\[1h])") or return 0;
	return @{ $data->{result} } ? $data->{result}[0]{value}[1] : 0;
}

sub deliver
{
	my ($count) = @_;
	$node->safe_psql('postgres', "SELECT outbox_enqueue('Order', i, 'OrderConfirmed', '{}')
			FROM generate_series(1, $count) i");
}

create_sink($node, 'live', { url => $receiver->url('/live') });
$node->safe_psql('postgres', q{SELECT outbox_create_consumer('paused');
		SELECT outbox_pause('paused')});
deliver(10);
ok(wait_until(sub { samples('outbox_relay_up') >= 4 }, 30), 'Prometheus scrapes the metrics')
  or diag slurp_file($prometheus_log);
is(join(', ', map { alerts($_) } 'pending', 'firing'), '',
	'a healthy database has no pending or firing alerts');

$receiver->control({ path => '/live', do => 'status', status => 503 });
deliver(10);
my $expected = 'OutboxLag live, OutboxOldestPending live, OutboxSinkBackingOff live';
my $firing = '';
wait_until(sub { ($firing = join ', ', sort(alerts('firing'))) eq $expected }, 20);
is($firing, $expected,
	'a receiver that answers 503 fires the alerts about its sink, and no others');
my @notes =
	map { @{ $_->{annotations} }{ 'summary', 'description' } } @{ ask('/api/v1/alerts')->{alerts} };
is(scalar(grep { /<error|<no value>|\{\{/ } @notes), 0, 'templates in alerts are filled in')
  or diag join "\n", @notes;
ok((grep { /CALL outbox_test_sink\('live'\)/ } @notes),
	'an alert names a command that can be pasted into psql');

$receiver->control;
wait_until(sub { ($firing = join ', ', sort(alerts('firing'))) eq '' }, 20);
is($firing, '', 'alerts are resolved after the receiver has recovered');
is($node->safe_psql('postgres', q{SELECT lag_seconds, delivered FROM outbox_stats
			WHERE consumer = 'live'}), '0|20',
	'every event is delivered after the receiver has recovered');

$_->kill_kill(grace => 5) for splice @running;
$node->stop;
done_testing();
