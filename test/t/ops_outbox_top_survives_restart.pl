# bin/outbox_top: a single frame, and a session in a terminal that survives a restart of the server.
use strict;
use warnings;
use utf8;
use Encode qw(decode encode);
use FindBin;
use lib "$FindBin::RealBin/lib";
use IO::Pty;
use IPC::Run ();
use OutboxReceiver;
use OutboxTest;
use POSIX ();
use Test::More;

# A shell starts background processes with SIGINT ignored, which outbox_top would inherit.
$SIG{INT} = 'DEFAULT';

my $node = start_node('main', conf => "outbox.backoff_base = '30s'\noutbox.backoff_max = '30s'\n");
sub sql { return $node->safe_psql('postgres', encode('UTF-8', join ';', @_)) }

# The program as "make install" installs it.
my ($prefix) = staged() =~ m{^dynamic_library_path = '(.*?)/lib:}m;
my $top = "$prefix/bin/outbox_top";
ok(-x $top, 'make install installs outbox_top');

delete @ENV{qw(COLUMNS NO_COLOR)};
$ENV{LC_ALL} = 'C.UTF-8';
$ENV{TERM} = 'xterm';
sub command { return ($top, '-h', $node->host, '-p', $node->port, '-U', 'postgres', @_) }

# once(OPTIONS): returns the exit code, the lines of output, and the error message.
sub once
{
	my ($out, $err) = ('', '');
	IPC::Run::run([ command('-1', '-n', '0.2', @_) ], '<', \'', '>', \$out, '2>', \$err);
	my $code = $? >> 8;
	unlike(decode('UTF-8', "$out$err"), qr/[^\P{C}\n]|[\x{200b}-\x{200f}\x{2028}-\x{202e}]/,
		'outbox_top prints no control characters');
	return ($code, [ split /\n/, decode('UTF-8', $out, 1) ], decode('UTF-8', $err, 1));
}

# Adds a filler after each wide character, so that one character is one column.
sub in_columns { return $_[0] =~ s/(\p{East_Asian_Width=W})/$1\x01/gr }
# The row of a consumer: its figures, then its remarks.
sub row
{
	my ($lines, $name) = @_;
	my ($row) = grep { /^\Q$name\E / } @$lines;
	return $row =~ /^\Q$name\E +(\S+) +[█·#.]+ +(\S+) +(\S+) +(\S+) +(\S+) +(\S+)(?:  (.*))?$/;
}

my $long = 'a-name-that-is-as-long-as-a-name-can-be-which-is-63-bytes-in-all';
chop $long while length $long > 63;
my $wide = '日本語の消費者の長い名前です';
my $turned = "turned\x{202e}around";
sql(map { "SELECT outbox_create_consumer('$_')" } 'mails', 'idle',
	'on-hold', $long, $wide, $turned);
sql(q{SELECT outbox_create_consumer('picky', event_types => '{Rare}')},
	q{SELECT outbox_pause('on-hold')});
isnt($node->psql('postgres', q{SELECT outbox_create_consumer(E'red\x1b[31m')}), 0,
	'a consumer name with an escape sequence is refused');
sql(q{ALTER TABLE _outbox.consumers DISABLE TRIGGER ALL},
	q{UPDATE _outbox.consumers SET name = E'painted\x1b[31m\u009b2J' WHERE name = 'idle'});
sql(q{SELECT outbox_enqueue('Order', i, 'OrderConfirmed', '{}') FROM generate_series(1, 1200) i});
my ($token, $first) = split /\|/,
  sql(q{SELECT max(lock_token), min(id) FROM outbox_claim('mails', 5, lease => '1 h')});
sql("SELECT outbox_fail($token, $first, 'later', retry_in => '1 hour')",
	"SELECT outbox_fail($token, $first + 1,
		E'no\\x1b[2J\\x1b]0;title\\x07 luck\\r\\n長い second\\tline', dead => true)");
# The consumer with the long name is up to date. The sink "down" has a closed port as its receiver.
sql("SELECT outbox_seek('$long', 'latest')", q{CREATE ROLE watcher LOGIN},
	q{SELECT outbox_grant('watcher', 'monitor')}, q{CREATE ROLE stranger LOGIN});
create_sink($node, 'down', { url => 'http://127.0.0.1:1/hook' }, q{start_at => 'earliest'});
$node->poll_query_until('postgres', q{SELECT backoff_until IS NOT NULL FROM outbox_stats
		WHERE consumer = 'down'}) or die 'the sink is not in trouble';
$node->poll_query_until('postgres', q{SELECT min(lag_seconds) > 1 FROM outbox_stats
		WHERE consumer IN ('mails', 'on-hold')}) or die 'the consumers have no lag';

my ($code, $lines, $complaint) = once('-U', 'watcher');
is("$code$complaint", '0', 'a monitor may run outbox_top');
like($lines->[0], qr/^postgres, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, 0\.0\/s enqueued, port \d+$/,
	'the first line has database, time, rate and port');
like($lines->[1], qr/^degraded: .*dead letters; .*…$/,
	'the second line has the health and its first reasons');
is(join(' ', map { /^(\S+)/ } @$lines[ 3 .. $#$lines ]),
	'down mails on-hold painted?[31m?2J picky turned?around 日本語の消費者の長い名 '
	  . 'a-name-that-is-as-long-…',
	'rows of consumers are sorted by urgency, and control characters are replaced');
like(join('|', row($lines, 'down')),
	qr/^0\|[\d.]+\|\d[\d,]*\|\d+\|0\|0\|backs off for \d+ s; \d+ s ago: .+/,
	'the row of a failing sink has its back-off and error');
like(join('|', row($lines, 'mails')),
	qr/^0\|[\d.]+\|1,195\|3\|1\|1\|\d+ s ago: no\?\[2J\?\]0;title\? luck 長い/,
	'the row of a consumer has lag, in flight, retries, dead letters and last error');
is((row($lines, 'on-hold'))[-1], 'paused', 'the row of a paused consumer says so');
like((row($lines, 'picky'))[1], qr/^≤/, 'a lag that is an upper bound is marked');
my ($up_to_date) = grep { /^a-name/ } @$lines;
like($up_to_date, qr/^a-name-that-is-as-long-… +0  ·{10} +0 +0 +0 +0 +0$/,
	'a consumer without lag has an empty row, and a long name is cut');
my @columns = map { in_columns($_) } @$lines;
is((grep { length > 120 } @columns), 0, 'no line is wider than 120 columns');
my $end = index($columns[2], 'DEAD') + 4;
is((grep { substr($_, $end - 5, 5) !~ /^ +\d+$/ } @columns[ 3 .. $#columns ]), 0,
	'figures are aligned in columns');

{
	local $ENV{COLUMNS} = 80;
	is((grep { length(in_columns($_)) > 80 } @{ (once())[1] }), 0,
		'COLUMNS limits the width of a frame');
	local $ENV{LC_ALL} = 'C';
	unlike(join('', @{ (once())[1] }), qr/[^ -~]/, 'a frame in the C locale is ASCII');
}

for my $case ([ [ '-d', 'template1' ],
		qr/^outbox_top: there is no extension outbox in database template1\n$/,
		'a database without the extension' ],
	[ [ '-U', 'stranger' ],
		qr/^outbox_top: role stranger lacks the privilege monitor: SELECT outbox_grant\('role', 'monitor'\) grants it\n$/,
		'a role without privileges' ],
	[ [ '-d', 'nowhere' ], qr/^outbox_top: .*database "nowhere" does not exist\n$/,
		'a database that does not exist' ],
	[ [ '-n', 'soon' ], qr/^outbox_top: -n needs a number of seconds, not soon\n$/,
		'an invalid interval' ])
{
	my ($options, $expected, $name) = @$case;
	my ($code, $lines, $complaint) = once(@$options);
	is($code . @$lines, '10', "$name: the exit code is 1");
	like($complaint, $expected, "$name: the error message is one line");
}

# A database whose encoding lacks the characters of a frame.
$node->safe_psql('postgres',
	q{CREATE DATABASE narrow TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'});
$node->safe_psql('narrow', encode('UTF-8', q{SET client_encoding = 'UTF8'; SET client_min_messages
			= warning; CREATE EXTENSION outbox CASCADE; SELECT outbox_create_consumer('Straße')}));
($code, $lines) = once('-d', 'narrow');
like($lines->[3], qr/^Stra\?e +0  \.{10} +0/,
	'characters outside of LATIN1 are replaced in a LATIN1 database');
$node->safe_psql('postgres', q{DROP DATABASE narrow WITH (FORCE)});

# In a terminal.
my ($pty, $pid, $seen, $before);
sub run_in_terminal
{
	my ($rows, $columns, @options) = @_;
	$pty = IO::Pty->new;
	$pty->slave->set_winsize($rows, $columns);
	$seen = '';
	$before = settings();
	$pid = fork // die "fork: $!";
	return if $pid;
	$pty->make_slave_controlling_terminal;
	my $slave = $pty->slave;
	open(STDIN, '<&', $slave) && open(STDOUT, '>&', $slave) && open(STDERR, '>&', $slave)
	  or POSIX::_exit(99);
	exec(command(@options)) or POSIX::_exit(99);
}

# Reads available output; waits up to 0.1 s for it.
sub take
{
	my $ready = '';
	vec($ready, fileno($pty), 1) = 1;
	sysread($pty, $seen, 65536, length $seen) if select($ready, undef, undef, 0.1);
}

# shows(PATTERN, NAME): the pattern appears in new output within 10 s.
sub shows
{
	my ($pattern, $name) = @_;
	$seen = '';
	ok(wait_until(sub { take(); decode('UTF-8', $seen) =~ $pattern }, 10), $name) or diag($seen);
}

sub settings { return `stty -g -F @{[ $pty->slave->ttyname ]}` }

# ends(KEY, CODE): the key ends outbox_top with this code, and the settings of the terminal are
# restored.
sub ends
{
	my ($key, $expected) = @_;
	syswrite($pty, $key);
	my $ended = 0;
	wait_until(sub { take(); $ended = waitpid($pid, POSIX::WNOHANG) }, 10);
	is($ended ? $? : 'running', $expected << 8,
		'the key ends outbox_top with exit code ' . $expected);
	take();
	like($seen, qr/\e\[\?25h\e\[\?1049l\z/,
		'outbox_top shows the cursor and leaves the alternate screen last');
	is(settings(), $before, 'outbox_top restores the settings of the terminal');
}

run_in_terminal(24, 110, '-n', '0.3', '-U', 'watcher');
shows(qr/\e\[\?1049h.*postgres, .*\?\/s enqueued.*\e\[31mdown .*\e\[2mon-hold .* paused\e/s,
	'outbox_top draws a colored frame on the alternate screen');
my $connection = q{SELECT pid FROM pg_stat_activity WHERE application_name = 'outbox_top'};
my $backend = sql($connection);
sql(q{SELECT outbox_enqueue('Order', i, 'OrderConfirmed', '{}') FROM generate_series(1, 1200) i});
shows(qr/ [1-9][\d,]+\.\d\/s enqueued/, 'the rate counts enqueued events');
$pty->slave->set_winsize(8, 110);
shows(qr/… and 4 more$/, 'a smaller terminal shows the most urgent rows and counts the others');
is(sql($connection), $backend, 'outbox_top keeps one connection');
kill 'STOP', $backend;
shows(qr/these figures are \d+ s old: the server does not answer/,
	'outbox_top shows the age of its figures while the server does not answer');
kill 'CONT', $backend;
shows(qr/\e\[H\e\[K\e\[1mpostgres, /, 'outbox_top shows new figures when the server answers again');
$node->stop('fast');
shows(qr/these figures are \d+ s old: connection to server .* failed/,
	'outbox_top shows the connection error while the server is down');
$node->start;
shows(qr/\e\[H\e\[K\e\[1mpostgres, /, 'outbox_top reconnects after a restart of the server');
ends('q', 0);

$ENV{NO_COLOR} = 1;
run_in_terminal(24, 80, '-n', '60');
shows(qr/down .* paused/s, 'outbox_top draws a frame with NO_COLOR');
unlike($seen, qr/\e\[[\d;]*m/, 'NO_COLOR turns colors off');
syswrite($pty, ' ');
shows(qr/down .* paused/s, 'the space key draws a new frame');
ends("\cC", 130);
$node->stop;
done_testing();
