# bin/outbox_report: its page as a browser renders it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Encode qw(decode_utf8);
use IPC::Run ();
use JSON::PP;
use OutboxAge;
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $script = '<script>alert(1)</script>';
my $image = q{<img src="https://example.org/x.png" onerror='alert(2)'> & "Größe"};
my $receiver = OutboxReceiver->start('receiver');
my $node = start_node('main',
	conf => "outbox.maintenance_interval = '1h'\noutbox.immediate_retries = 0\n");
my $dir = PostgreSQL::Test::Utils::tempdir('report');
my $plain = start_node('plain', no_preload => 1, conf => "outbox.cold_storage_dir = '$dir'\n");
sub sql { return $node->safe_psql('postgres', join ';', @_) }

# The program as "make install" installs it.
my ($prefix) = staged() =~ m{^dynamic_library_path = '(.*?)/lib:}m;
my $program = "$prefix/bin/outbox_report";
ok(-x $program, 'make install installs outbox_report');
sub command { my $server = shift;
	return ($program, '-h', $server->host, '-p', $server->port, '-U', 'postgres', @_) }

# run(SERVER, OPTIONS): returns the exit code, the page, and the error message.
sub run
{
	IPC::Run::run([ command(@_) ], '<', \undef, '>', \my $page, '2>', \my $complaint);
	return ($? >> 8, $page, $complaint);
}

# The options for a page of this name: "old" is a database, a number at the end the hours.
sub options {
	return ('-d', $_[0] eq 'old' ? $_[0] : 'postgres', $_[0] =~ /(\d+)$/ ? "--hours=$1" : ()) }

# Writes the page to a file for the browser, and returns it.
sub report
{
	my ($server, $name) = @_;
	my ($code, $page, $complaint) = run($server, options($name));
	is("$code$complaint", '0', "$name: outbox_report writes a page");
	append_to_file("$dir/$name.html", $page);
	return $page;
}

# Writes the page while the history is empty and locked against maintenance.
sub report_without_history
{
	my ($server, $name) = @_;
	my $command = join ' ', map { "'$_'" } command($server, options($name));
	my $samples;
	do
	{
		$samples = $server->safe_psql('postgres', "DELETE FROM _outbox.stats_history;\nBEGIN;\nLOCK
				outbox_stats_history IN EXCLUSIVE MODE;\n"
			  . "SELECT count(*) FROM outbox_stats_history;\n\\! $command >'$dir/$name.html'\n"
			    . "ROLLBACK;\n");
	} until $samples == 0;
	return;
}

# Runs Python code in which the program is the module `report`; returns its output.
sub python
{
	my ($code, @arguments) = @_;
	my $load = "import importlib.machinery, importlib.util, json, sys\n"
	  . "sys.dont_write_bytecode = True\n"
	  . "loader = importlib.machinery.SourceFileLoader('report', sys.argv.pop(1))\n"
	  . "report = importlib.util.module_from_spec(importlib.util.spec_from_loader('report', "
	    . "loader))\nloader.exec_module(report)\n";
	my $ok = IPC::Run::run([ 'python3', '-c', "$load$code", $program, @arguments ], '<', \undef,
		'>', \my $out, '2>', \my $error);
	$ok or diag($error);
	chomp $out;
	return $out;
}

# A database without consumers.
report_without_history($node, 'empty');

# Events are delivered, and some fail.
$receiver->control({ path => '/bad', status => 422 });
sql(qq{SELECT outbox_create_consumer('mails')}, qq{SELECT outbox_create_consumer('$script')},
	q{SELECT outbox_create_consumer('picky', event_types => '{Rare}')},
	q{SELECT outbox_create_consumer('restarted')});
create_sink($node, 'good', { url => $receiver->url('/good') });
create_sink($node, 'bad', { url => $receiver->url('/bad') }, 'max_attempts => 1');
sql('SELECT outbox_setup()');
report_without_history($node, 'fresh');
sub flow { sql(qq{SELECT outbox_enqueue('Order', i, CASE WHEN i % 10 = 0 THEN '$script'
			ELSE 'OrderConfirmed' END, '{"card": "4111-1111"}') FROM generate_series(1, 100) i}) }
for my $round (1 .. 3)
{
	flow();
	sql(q{SELECT count(*) FROM outbox_consume('mails', 100)}, q{SELECT count(*)
			FROM outbox_maintain()});
}
ok(wait_until(sub { sql(q{SELECT sum(delivered), sum(dead) FROM outbox_stats
				WHERE kind = 'http'}) eq '300|300' }),
	'sinks deliver events or make dead letters of them');
my ($token, @ids) = split /[|,]/,
  sql(qq{SELECT max(lock_token), string_agg(id::text, ',') FROM outbox_claim('$script', 20)});
sql("SELECT outbox_fail($token, ARRAY[" . join(',', @ids) . '], $$' . $image . '$$, dead => true)');
is(sql(q{SELECT count(*) FROM outbox_stats_history JOIN outbox_consumers USING (consumer_id)
			WHERE name = 'mails'}) >= 3, 1, 'maintenance keeps samples of statistics');
report($node, 'short1');
is(python(q{bad = [b for b in report.read(sys.argv[1:], 1)['series'] if b['consumer'] == 'bad']
line = report.all_series(bad)['bad']
print(line.waiting[-1], line.dead_letters[-1], sum(b['samples'] for b in bad) > 2)},
	(command($node))[1 .. 6]),
	'0 300 True', 'a series ends with the present values');

# A day of samples before that, for one consumer, during which the statistics were reset.
sql(q{INSERT INTO _outbox.stats_history (at, consumer_id, lag_seconds, lag_messages, in_flight,
		waiting_retries, delivered, failed, dead, dlq_depth, latency, stats_reset)
	SELECT clock_timestamp() - make_interval(mins => 24 * 60 - 5 * n), consumer_id,
	60 + 50 * sin(n / 20.0), n, 0, 0,
	       CASE WHEN n < 100 THEN 1000 + 10 * n ELSE 5 * (n - 99) END, 0, 0, n / 50,
	       array_fill(0::bigint,
	       '{10}') || (10 * (n % 100))::bigint || array_fill(0::bigint, '{22}'),
	       clock_timestamp()::date - CASE WHEN n < 100 THEN interval '3 days'
	       ELSE interval '2 days' END
	  FROM generate_series(1, 150) n, outbox_consumers WHERE name = 'restarted'});
my $page = report($node, 'day24');
sub percentiles { return python("print(report.percentiles($_[0]))") }
is(percentiles('[0] * 10 + [300], [0] * 10 + [200], (0.5, 0.99)'), '[0.049152, 0.06520832]',
	'percentiles count the differences between two samples');
is(percentiles('[0, 2, 98], [9], (0.01, 0.51)'), '[9.6e-05, 0.000192]',
	'percentiles count everything after a reset of the counters');
is(percentiles('[5, 5], [5, 5], (0.5, 0.99)'), '[None, None]',
	'percentiles without new values are empty');

# 500 consumers, and no statistics.
$plain->safe_psql('postgres', q{SELECT outbox_create_consumer('consumer ' || i)
		FROM generate_series(1, 500) i;
	SELECT outbox_enqueue('Order', 1, 'Plain', '{}') FROM generate_series(1, 5000);
	INSERT INTO _outbox.stats_history (at, consumer_id, lag_seconds, lag_messages, in_flight,
	waiting_retries, dlq_depth)
	SELECT clock_timestamp() - make_interval(mins => 5 * n), consumer_id, n, n, n, n, n
	FROM generate_series(1, 72) n, outbox_consumers;
	INSERT INTO _outbox.dead_letters (xid, id, occurred_at, tenant_id, tracking_id, event_version,
	aggregate_type, aggregate_id, event_type, payload, metadata,
	                                 consumer_id, attempts, died_at, last_error)
	SELECT xid, id, occurred_at, m.tenant_id, tracking_id, event_version, aggregate_type,
	aggregate_id, event_type, payload, metadata, consumer_id, 1, now(), 'no luck'
	  FROM outbox_messages m, outbox_consumers WHERE name = 'consumer 77' AND id <= 3; ANALYZE});
my $start = time;
cmp_ok(length report($plain, 'many'), '<', 500_000,
	'a page about 500 consumers is smaller than 500 kB');
cmp_ok(time - $start, '<', 5, 'a page about 500 consumers is written within 5 s');
# A backend adds to pg_stat_user_tables before it leaves pg_stat_activity.
sub rows_read_from_log
{
	wait_until(sub { $plain->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity
					WHERE application_name = 'outbox_report'}) eq '0' })
	  or die 'it is still connected';
	return $plain->safe_psql('postgres', q{SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))
			FROM pg_stat_user_tables WHERE relname LIKE 'outbox\_messages\_p%'});
}
my $read = rows_read_from_log();
run($plain);
cmp_ok(rows_read_from_log() - $read, '<', 5000, 'the report does not scan the log');
is($plain->safe_psql('postgres', q{LOAD 'outbox'; CREATE TEMP TABLE before AS SELECT name, setting
			FROM pg_settings;
	DO $$BEGIN PERFORM _outbox.report_samples(ARRAY(SELECT consumer FROM outbox_stats),
	now() - interval '168 h'), _outbox.report_problems(), _outbox.report_dead_letters();
	PERFORM _outbox.report_partitions(), _outbox.report_held(); END$$;
	SELECT name, s.setting FROM pg_settings s JOIN before b USING (name)
	WHERE s.setting IS DISTINCT FROM b.setting}), '',
	'the functions of the report change no setting');

# Archived partitions, and one that a consumer holds back.
$plain->safe_psql('postgres', 'CREATE DATABASE old');
$plain->safe_psql('old', 'SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE;
		SELECT outbox_setup()');
set_up_age($plain, 'old');
sub old { $plain->safe_psql('old', $_) for @_ }
old(old_event(100), old_event(30), ('SELECT outbox_maintain()') x 2,
	q{SELECT outbox_create_consumer('slow', start_at => 'earliest')}, old_event(20),
	'SELECT outbox_maintain()');
report($plain, 'old');

# The browser starts once and renders all pages.
my @pages = ('1200:empty', '1200:fresh', '1200:short1', '1200:day24',
	'400:day24', '400:many', '400:old');
my $browser = IPC::Run::start([ 'chromium', '--headless', '--no-sandbox', '--disable-gpu',
		'--hide-scrollbars', '--allow-file-access-from-files',
	'--host-resolver-rules=MAP * ~NOTFOUND', "--user-data-dir=$dir/profile",
	'--window-size=6000,3000', "--screenshot=$dir/report.png", '--dump-dom',
	"file://$FindBin::RealBin/lib/look.html#"
	  . join(',', map { s{:(.*)}{:file://$dir/$1.html}r } @pages) ],
	'<', \undef, '>', \my $dom, '2>', \my $noise, IPC::Run::timeout(60));
$browser->finish;
my ($seen) = $dom =~ m{<title>(.+?)</title>} or BAIL_OUT("the browser shows nothing: $noise");
my ($empty, $fresh, $short, $day, $narrow, $many, $old) =
	@{ decode_json($seen =~ s/%([0-9A-F]{2})/chr hex $1/ger) };
cmp_ok(-s "$dir/report.png", '>', 50_000, 'the browser makes a screenshot of the pages');

for my $shown ($empty, $fresh, $short, $day, $narrow, $many, $old)
{
	my $name = "$shown->{title}, $shown->{width} wide, " . @{ $shown->{charts} } . ' charts';
	is(join(' ', @{ $shown->{headings} }[ 1 .. 5 ]), 'Lag and latency What fails most Dead letters '
		. 'by type Partitions What to do next', "$name: the page has every section");
	is(join(' ', grep { /^(script|img|link|iframe|object|embed|a)$/ } @{ $shown->{elements} }), '',
		"$name: the page has no scripts, links or embedded objects");
	is("$shown->{handlers} $shown->{loaded}", '0 0',
		"$name: the page has no event handlers and loads nothing");
	is($shown->{overflow}, 0, "$name: the page is not wider than the screen");
	my @spoilt = grep { !$_->{dots} || $_->{outside} || $_->{empty} || $_->{unreadable}
		|| $_->{clipped} || $_->{overlaps} } @{ $shown->{charts} };
	is_deeply(\@spoilt, [], "$name: every chart has data inside its area and readable legends")
	  or diag(explain(\@spoilt));
}
unlike($page, qr{[\s"'](?:src|href|xlink:href)\s*=\s*["']|url\(|\@import|https?:(?!//example\.org)},
	'the page has no references to other resources');
unlike($page, qr/4111|card/, 'the page has no payloads');

sub article { return (grep { index($_, "$_[1] ") == 0 } @{ $_[0]{articles} })[0] // '' }
sub charts { return [ map { $_->{label} } grep { $_->{kind} eq 'chart' } @{ $_[0]{charts} } ] }
like($empty->{text},
	qr/There are no consumers.*No history yet.*No attempt has failed.*There are none/s,
	'the report of a new database says what is missing');
like($fresh->{text}, qr/No history yet/,
	'the report of a new consumer says that it has no history');
like(article($fresh, 'mails'), qr/0 produced 0 delivered 0 waiting 0 dead/,
	'the report of a new consumer has its numbers');
is(scalar @{ $fresh->{charts} }, 0, 'the report of a new consumer has no empty charts');
like("@{ $empty->{advice} }", qr/SELECT outbox_setup\(\);/,
	'the report of a new database recommends outbox_setup()');
like($fresh->{text}, qr/What to do next\s+Nothing to do\.\s*\z/,
	'the report of a healthy database recommends nothing');

like($short->{text}, qr/Health\s+degraded.*bad has 300 dead letters/s,
	'the report has the health and its reasons');
like(article($short, 'mails'),
	qr/^mails worker, lag 0 s 300 produced 300 delivered 0 waiting 0 dead/,
	'a worker has its numbers');
like(article($short, 'good'), qr/^good http, lag 0 s 300 produced 300 delivered 0 waiting 0 dead/,
	'an HTTP sink has its numbers');
like(article($short, 'bad'), qr/300 produced 0 delivered 0 waiting 300 dead \(300 came\) .*422/,
	'a failing sink has its numbers and its last error');
like(article($short, 'picky'), qr/\x{2264} 300 produced 0 delivered 0 waiting/,
	'a lag that is an upper bound is marked');
like(article($short, $script), qr/280 waiting 20 dead \(20 came\) \Q${\ decode_utf8($image)}\E/,
	'names and errors are escaped');
is_deeply([ sort @{ charts($short) } ], [ sort 'events produced per second',
		'events delivered per second', 'latency of mails', 'latency of good',
	map { "lag of $_" } 'mails', 'good', 'bad', 'picky', 'restarted', $script ],
	'the report has charts of rates, latency and lag');
my ($latency) = grep { $_->{label} eq 'latency of mails' } @{ $short->{charts} };
is($latency->{dots}, 3, 'the chart of latency has three percentiles');
like("@{ $latency->{texts} }", qr/\d+ (ms|s) .*\d\d:\d\d/, 'charts have axes with units');
sub row { my ($shown, $like) = @_; return ok(scalar(grep { $_ =~ $like } @{ $shown->{rows} }),
		$_[2]) || diag(explain($shown->{rows})) }
row($short, qr/^\Q$script\E\|30\|60\|32\|35 %\|32$/,
	'the table of failures has counts by event type');
row($short, qr/^OrderConfirmed\|bad\|270\|[-\d]+ [\d:]+\|[-\d]+ [\d:]+\|HTTP 422$/,
	'the table of dead letters has counts by event type and error');
row($short, qr/^outbox_messages_p\d{4}_?\d\d_?\d\d\|[-\d]+ 00:00\|[-\d]+ 00:00\|\S+\|\d+ kB$/,
	'the table of partitions has bounds and sizes');
like("@{ $short->{advice} }", qr/SELECT outbox_redrive\('bad'\);/,
	'the report recommends outbox_redrive() for dead letters');

# 99 samples that add 10 each, the first of which only starts the count; then 51 samples that add 5
# each, beginning at 0.
like(article($day, 'restarted'), qr/@{[ number(98 * 10 + 51 * 5) ]} delivered/,
	'counts before and after a reset are added up');
is_deeply(charts($narrow), charts($day), 'a narrow screen has the same charts');
my ($lag) = grep { $_->{label} eq 'lag of restarted' } @{ $day->{charts} };
cmp_ok($lag->{spread}, '>', $lag->{width} / 3, 'a line is as long as the history');
cmp_ok($lag->{rise}, '>', $lag->{height} / 3, 'a line follows the values');
like("@{ $lag->{texts} }", qr/^0 s 1 min 2 min .*\d\d:00/, 'an axis of lag has units');

is(scalar @{ $many->{articles} }, 20, 'the report has the 20 most urgent consumers');
like($many->{articles}[0], qr/^consumer 77 .*3 dead/, 'the consumer with dead letters is first');
like($many->{text}, qr/480 more consumers are left out/,
	'the report counts the consumers that it leaves out');
is(scalar @{ charts($many) }, 20, 'charts are limited to the consumers in the report');
like($many->{text},
	qr/Health\s+failing.*not in shared_preload_libraries: there are no statistics.*\x{2013} delivered/s,
	'the report shows a dash in place of missing statistics');
like($many->{advice}[0], qr/SHOW shared_preload_libraries;/,
	'the report recommends shared_preload_libraries');

like($old->{text},
	qr/The archive: \d+ kB, 1 partitions from .* UTC\. Cold storage: 1 files, \d+ bytes, with 1 events\./,
	'the report describes the archive and cold storage');
row($old, qr/^@{[ partition($plain, 20, 'old') ]}\|slow\|has yet to read it\|[-\d]+ 00:00\|\d+ kB$/,
	'the table of held partitions has the consumer that holds them back');
like("@{ $old->{advice} }", qr/held back by slow .*SELECT \* FROM outbox_held_partitions\(\);/,
	'the report recommends outbox_held_partitions()');

# Privileges and arguments.
sub fails
{
	my ($expected, $name, @options) = @_;
	my ($code, $page, $complaint) = run($node, @options);
	is("$code$page", '1', "$name: the exit code is 1, and the output is empty");
	like($complaint, qr/\Aoutbox_report: $expected\n\z/, "$name: the error message is one line");
	return;
}
fails("--hours must be between 1 and 168, not $_", "an invalid number of hours ('$_')",
	"--hours=$_") for '0', '169', '-1', 'NULL', '1.5', '';
sql(q{CREATE ROLE watcher LOGIN}, q{SELECT outbox_grant('watcher', 'monitor')},
	q{CREATE ROLE stranger LOGIN}, q{GRANT USAGE ON SCHEMA public TO stranger},
	q{CREATE ROLE tenant LOGIN}, q{SELECT outbox_grant('tenant', 'monitor')},
	q{ALTER ROLE tenant SET outbox.tenant_id = 7});
like(join('', run($node, '--hours', '168', 'postgres', 'watcher')),
	qr{\A0<!DOCTYPE html>.*</html>\n\z}s, 'a monitor may read the report');
fails(qr/role stranger lacks the privilege monitor: SELECT outbox_grant\('role', 'monitor'\) grants it/,
	'a role without privileges', '-d', 'postgres', '-U', 'stranger');
fails(qr/outbox_status\(\) is not allowed while outbox\.tenant_id is set/, 'a session of a tenant', '-d',
	'postgres', '-U', 'tenant');
isnt($node->psql('postgres', 'SELECT _outbox.report_dead_letters()',
		extra_params => [ '-U', 'stranger' ]), 0,
	'the functions of the report are refused to a role without privileges');
isnt($node->psql('postgres', "SELECT * FROM $_", extra_params => [ '-U', 'watcher' ]), 0,
	"a monitor may not read $_")
  for qw(outbox_stats_history outbox_messages_dlq outbox_cold_files outbox_status()
  outbox_held_partitions());
fails(qr/there is no extension outbox in database template1/,
	'a database without the extension', '-d', 'template1');
fails(qr/.*database "nowhere" does not exist/, 'a database that does not exist', '-d', 'nowhere');
fails(qr/.*No such file or directory/, 'a server that does not exist', '-h', "$dir/nowhere");
fails('an option of psql changes the format of its output',
	'an option that redirects psql', '-o', "$dir/elsewhere");
IPC::Run::run([ command($node) ], '<', \undef, '>', '/dev/full', '2>', \my $complaint);
is(($? >> 8) . $complaint, "1outbox_report: No space left on device\n",
	'a page that cannot be written is an error');
IPC::Run::run([ $program, '--help' ], '<', \undef, '>', \my $help);
like($help,
	qr/^Usage: outbox_report \[--hours=HOURS\] \[OPTION OF PSQL\]\.\.\. \[DATABASE \[USER\]\] > report\.html\n/m,
	'--help prints the usage');

# Settings of a role.
sql("ALTER ROLE watcher SET $_")
  for q{timezone = 'Asia/Tokyo'}, q{datestyle = 'German'}, 'standard_conforming_strings = off';
my ($code, $formatted) = run($node, '-d', 'postgres', '-U', 'watcher');
like($formatted, qr/Written<\/dt><dd>\d{4}-\d\d-\d\d \d\d:\d\d UTC/,
	'settings of a role do not change the format of the report');

# Database encodings: one that is converted to UTF-8, one without characters, one without a
# conversion to UTF-8.
for my $case ([ 'LATIN1', "Stra\xdfe<b>", "Stra\x{df}e&lt;b&gt;" ], [ 'SQL_ASCII', "\xe4<b>",
		"\x{fffd}&lt;b&gt;" ], [ 'MULE_INTERNAL', 'plain<b>', 'plain&lt;b&gt;' ])
{
	my ($encoding, $name, $shown) = @$case;
	$node->safe_psql('postgres', qq{CREATE DATABASE "$encoding" TEMPLATE template0 ENCODING
			'$encoding' LC_COLLATE 'C' LC_CTYPE 'C'});
	{
		local $ENV{PGCLIENTENCODING} = $encoding;
		$node->safe_psql($encoding, qq{SET client_min_messages = warning;
				CREATE EXTENSION outbox CASCADE; SELECT outbox_create_consumer('$name')});
	}
	my ($code, $page) = run($node, '-d', $encoding);
	like(decode_utf8($page), qr/<h3>\Q$shown\E <small>/, $encoding);
	$node->safe_psql('postgres', qq{DROP DATABASE "$encoding" WITH (FORCE)});
}
$_->stop for $node, $plain;
done_testing();

sub number { return scalar reverse(reverse($_[0]) =~ s/(\d{3})(?=\d)/$1,/gr) }
