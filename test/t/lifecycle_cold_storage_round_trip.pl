# Partitions are exported before they are dropped, and come back as they were. Whatever the command does, nobody waits for it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Encode ();
use IPC::Run ();
use JSON::PP;
use OutboxAge;
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

my $dir = PostgreSQL::Test::Utils::tempdir('cold');
my $cold = "$dir/cold storage";
mkdir $cold or die $!;
# The command notes what it gets, says what it is told to, and hangs while it is told to.
append_to_file("$dir/command", qq{echo \$\$ >"$dir/pid"\nprintf '%s\\n' "\$*" >>"$dir/calls"\n}
	  . qq{while test -e "$dir/hang"; do sleep 0.2; done\nexit `cat "$dir/exit"`\n});
my $command = qq{sh "$dir/command" "%f" %t %d 100%% %x};

my $node = start_node('main', conf => "outbox.maintenance_interval = '1s'\noutbox.archive_retention = -1\nautovacuum = off\nmax_worker_processes = 24\n");
set_up_age($node);

sub sql
{
	return $node->safe_psql('postgres', @_);
}

sub status
{
	return sql("SELECT ok, detail FROM outbox_status() WHERE component = 'cold storage'");
}

sub answer
{
	unlink "$dir/exit";
	append_to_file("$dir/exit", "$_[0]\n");
}

sub promptly
{
	my ($promise, $code) = @_;
	my $took = elapsed($code);
	cmp_ok($took, '<', 2, sprintf('%s (%.2f s)', $promise, $took));
}

# What would wait for ever is given up.
sub at_once
{
	my ($promise, $statement, $database) = @_;
	promptly($promise, sub {
		my ($status, undef, $error) = $node->psql($database // 'postgres', "SET statement_timeout = '5s'; $statement");
		is($error, '', "$promise succeeds");
	});
}

# A database of its own with the extension in it.
sub database
{
	my ($name) = @_;
	sql("CREATE DATABASE $name");
	$node->safe_psql($name, 'SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE');
	$node->safe_psql($name, 'SELECT outbox_setup()');
	set_up_age($node, $name);
}

# What happens makes a command hang. Returns its process.
sub hangs
{
	my ($code) = @_;
	my $calls = sub { -e "$dir/calls" ? split(/\n/, slurp_file("$dir/calls")) : () };
	my $before = $calls->();
	$code->();
	wait_until(sub { $calls->() > $before }, 10) or die 'nothing hangs';
	chomp(my $pid = slurp_file("$dir/pid"));
	return $pid;
}

sub lives
{
	my ($pid) = @_;
	return -e "/proc/$pid/stat" && slurp_file("/proc/$pid/stat") !~ /\) Z /;
}

answer(0);
sql(q{
	SELECT outbox_setup();
	SELECT outbox_create_consumer('reads');
	INSERT INTO outbox_messages (occurred_at, tenant_id, event_version, aggregate_type, aggregate_id, event_type, payload, metadata, trace_id)
	VALUES (age.noon(50) + '0.123456 s', -7, 32767, 'Order', e'1\n"\\\\', 'Ünusual', '{"n": [1.50, 1e400, -0.0, 12345678901234567890.10], "\u00e9": "😀\\\\u0041\n"}', '{"a": {"b": null}}', NULL),
	       (age.noon(50), 0, 1, 'Order', '2', 'Deleted', 'null', '{}', ''),
	       (age.noon(50), 0, 1, 'Order', '3', 'Scalar', '"text"', '{}', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'),
	       (age.noon(50), 0, 1, 'Order', '4', 'Large', to_jsonb(repeat('ab"', 100000)), '{}', 'x');});
# Also what one call has written, and with a run.
sql(q{INSERT INTO outbox_messages (occurred_at, xid, aggregate_type, aggregate_id, event_type, payload, run_length)
	SELECT age.noon(50), pg_current_xact_id(), 'Order', 'run', 'Ran', to_jsonb(i), CASE WHEN i = 1 THEN 3 END FROM generate_series(1, 3) i});
my $whole = "SELECT count(*), md5(string_agg(m::text, '|' ORDER BY id)), string_agg(xid || ' ' || id || ' ' || coalesce(run_length::text, '-'), ' ' ORDER BY id) FROM outbox_messages_archive m WHERE occurred_at BETWEEN age.noon(50) AND age.noon(49)";
is(sql("SELECT count(*) FROM outbox_consume('reads', 100)"), 7, 'some events');
comes_to($node, 50, 'archive', 'which are archived');
my $before = sql($whole);

# Where nothing can be stored, nothing is dropped.
my $position = -s $node->logfile;
settings($node, archive_command => $command, archive_retention => '45d');
logged($node, $position, qr/WARNING:  outbox: maintenance, export: outbox.cold_storage_dir is not set/, 'a command without a directory is a mistake that the server log tells');
whole_run($node);
is(place($node, 50), 'archive', 'nothing is dropped');
like(status(), qr/^f\|1 partitions should have been exported$/, 'outbox_status() says so');
like(sql("SELECT detail FROM outbox_maintain() WHERE step = 'drop'"), qr/^stays until it is in cold storage$/, 'and outbox_maintain() does');
settings($node, cold_storage_dir => "$dir/nowhere");
logged($node, $position, qr{WARNING:  outbox: maintenance, export: could not create file "\Q$dir\E/nowhere/.*: No such file or directory}, 'as when the directory is missing');
my $file = 'postgres.' . partition($node, 50) . sql(q{SELECT to_char(age.noon(50), '.YYYYMMDD"T000000Z-"') || to_char(age.noon(49), 'YYYYMMDD"T000000Z"')}) . '.1.ndjson.zst';
settings($node, cold_storage_dir => $cold);
SKIP:
{
	skip 'nothing is forbidden to root', 2 if $> == 0;
	chmod 0555, $cold;
	logged($node, $position, qr{WARNING:  outbox: maintenance, export: could not create file "\Q$cold/$file\E.tmp": Permission denied}, 'or is not the server\'s to write to');
	is(place($node, 50), 'archive', 'nothing is dropped then');
}
settings($node, cold_storage_dir => "$dir/full");
if (-w '/dev/full')
{
	mkdir "$dir/full";
	symlink '/dev/full', "$dir/full/$file.tmp";
	logged($node, $position, qr{WARNING:  outbox: maintenance, export: could not write file "\Q$dir/full/$file\E.tmp": No space left}, 'or is full');
	is(place($node, 50), 'archive', 'nothing is dropped then, too');
}
is(sql('SELECT count(*) FROM outbox_cold_files'), 0, 'there is no record of files that are not there');

# A command that fails.
chmod 0755, $cold;
answer(3);
append_to_file("$cold/$file.tmp", 'left over' x 100000);
settings($node, cold_storage_dir => $cold);
logged($node, $position, qr/WARNING:  outbox: outbox.archive_command failed for \Q$file\E: it exited with 3\n.*HINT:  The partition stays until the command succeeds/, 'a command that fails is mentioned');
whole_run($node);
is(place($node, 50), 'archive', 'and the partition stays');
like(status(), qr/^f\|1 files wait for outbox.archive_command, the oldest since /, 'outbox_status() says so');
is(sql("SELECT step, object, detail, changed FROM outbox_maintain() WHERE step = 'export'"), "export|$file|waits for outbox.archive_command, which the maintenance worker runs|f", 'outbox_maintain(), too');
my @calls = split /\n/, slurp_file("$dir/calls");
is($calls[0], "$cold/$file " . partition($node, 50) . sql('SELECT to_char(age.noon(50), \' YYYY-MM-DD\')') . ' 100% %x', 'it gets file, table and day');

# One that always fails, or takes too long, has had its turn.
settings($node, maintenance_interval => '1h');
ok(wait_until(sub { sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox maintenance'") == 0 }), 'maintenance is at rest');
sql(q{INSERT INTO _outbox.cold_files SELECT 'later', partition, lower_bound, upper_bound + interval '1 day', events, bytes FROM outbox_cold_files});
unlink "$dir/calls";
sql('SELECT _outbox.request_maintenance()');
ok(wait_until(sub { -e "$dir/calls" && slurp_file("$dir/calls") =~ /\n.*\n/ }), 'two files wait');
like(slurp_file("$dir/calls"), qr{^\Q$cold\E/later .*\n\Q$cold/$file\E }, 'that which was not tried yet comes first');
sql(q{DELETE FROM _outbox.cold_files WHERE file = 'later'});
settings($node, maintenance_interval => '1s');
answer(0);
comes_to($node, 50, 'gone', 'once it succeeds, the partition is dropped');
is(status(), 't|1 files', 'outbox_status() is content');
is(sql('SELECT file, events, bytes, stored_at >= exported_at FROM outbox_cold_files'), "$file|7|" . (-s "$cold/$file") . '|t', 'outbox_cold_files has it');
ok(!-e "$cold/$file.tmp", 'what was left over from another attempt is gone');

my @lines = map { decode_json($_) } split /\n/, `zstd -dc "$cold/$file"`;
is($?, 0, 'the file is zstd');
is(join(' ', sort keys %{ $lines[0] }), sql("SELECT string_agg(attname, ' ' ORDER BY attname) FROM pg_attribute WHERE attrelid = 'outbox_messages'::regclass AND attnum > 0"),
	'each line is JSON with all columns');
is(Encode::encode_utf8("$lines[0]{aggregate_id} $lines[0]{event_type} ") . scalar(@lines), qq{1\n"\\ Ünusual 7}, 'of all events');

# And back.
my $earlier = $node->background_psql('postgres');
# It has every lock that a claim takes, and hears of nothing by taking one.
is($earlier->query_safe(q{BEGIN; LOCK TABLE ONLY outbox_messages IN SHARE UPDATE EXCLUSIVE MODE; SELECT count(*) FROM outbox_claim('reads', 100)}), 0, 'before that there is nothing to claim');
is(sql("SELECT outbox_restore_partition('$file')"), partition($node, 50), 'outbox_restore_partition() brings it back');
is(sql($whole), $before, 'as it was');
is(place($node, 50), 'archive', 'into the archive');
rename "$cold/$file", "$dir/aside" or die $!;
mkdir "$cold/$file" or die $!;
like(refusal($node, "SELECT _outbox.export_partition('" . partition($node, 50) . "')"), qr/ERROR:  \w+: could not .* file/, 'an export that fails');
ok(!-e "$cold/$file.tmp", 'leaves nothing behind');
rmdir "$cold/$file" or die $!;
rename "$dir/aside", "$cold/$file" or die $!;
is(sql("SELECT count(*) FROM outbox_consume('reads', 100)"), 0, 'who has passed it gets nothing of it');
sql("SELECT outbox_seek('reads', age.noon(50))");
is($earlier->query_safe(q{SELECT count(*) FROM outbox_claim('reads', 100); ROLLBACK}), 7, 'until it seeks; also in a transaction that is older than that');
$earlier->quit;
is(sql("SELECT count(*) FROM outbox_claim('reads', 100)"), 7, 'and in others');
sql('SELECT outbox_ack(max(token)) FROM _outbox.leases WHERE acked_at IS NULL');
whole_run($node);
is(place($node, 50), 'archive', 'it stays, though it is older than archive_retention');
like(refusal($node, "SELECT outbox_restore_partition('$file')"), qr/ERROR:  42P07: partition outbox_messages_p\w+ already exists\n.*HINT/s, 'twice is once too often');
settings($node, hot_retention => '3s');
comes_to($node, 50, 'gone', 'but not longer than hot_retention');
is(scalar(@{ [ glob "\"$cold\"/*" ] }), 1, 'and is not exported again');

# What cannot be brought back.
my $tables = 'SELECT count(*) FROM pg_class';
my $classes = sql($tables);
sub refuses
{
	my ($promise, $argument, $error, $database) = @_;
	my ($status, undef, $says) = $node->psql($database // 'postgres', "\\set VERBOSITY verbose\nSELECT outbox_restore_partition($argument)");
	like($says, qr/ERROR:  $error/s, $promise);
}
refuses('NULL is no file', 'NULL', '22004: file must not be NULL');
refuses("no file: $_", "\$\$$_\$\$", '22023: file must be the name of an exported partition.*HINT')
  for '', '.', '..', '../x', "../$file", "$cold/$file", "x/$file", ".$file", "$file.tmp", "$file\n", 'x.outbox_messages.20260101T000000Z-20260102T000000Z.1.ndjson.zst';
refuses('no file: a table that cannot be', "replace('$file', 'messages_p', 'messages_p' || repeat('1', 300))", '22023: file must be the name of an exported partition');
refuses('no file: a time that is none', "replace('$file', to_char(age.noon(50), 'MMDD') || 'T', '9999T')", '22008: date/time field value out of range');
# The number at the end says nothing of what is in it.
my ($missing, $broken, $renamed) = map { $file =~ s/\.1\.ndjson/.$_.ndjson/r } 7 .. 9;
refuses('a file that is missing', "'$missing'", "58P01: could not open file \"\Q$cold/$missing\E\": No such file");
my $bytes = slurp_file("$cold/$file");
my $damaged = sub {
	my ($promise, $content, $error) = @_;
	unlink "$cold/$broken";
	append_to_file("$cold/$broken", $content);
	refuses($promise, "'$broken'", $error);
};
for my $part (0 .. 39)
{
	my ($flipped, $place) = ($bytes, int(length($bytes) * $part / 40));
	substr($flipped, $place, 1) ^= "\x10";
	$damaged->("a file with another byte in it, at $place", $flipped, 'XX001: file .* is damaged');
}
$damaged->('a file without its end', substr($bytes, 0, -5), 'XX001: file .* is damaged');
$damaged->('half a file', substr($bytes, 0, length($bytes) / 2), 'XX001: file .* is damaged');
$damaged->('an empty file', '', 'XX001: file .* is damaged');
$damaged->('something else', 'hello' x 100, 'XX001: file .* is damaged');
# A file as it should be, but for what is in it.
for (['lines that are no JSON', "hello\n"], ['no events', "{}\n"], ['bytes that are no text', "{\"id\": \"\xFF\"}\n"], ['an event twice', `zstd -dc "$cold/$file"` x 2])
{
	my ($what, $content) = @$_;
	IPC::Run::run([ 'zstd', '-qc' ], '<', \$content, '>', \my $compressed) or die;
	$damaged->("a file with $what", $compressed, 'XX001: the file contains data other than events.*DETAIL');
}
my ($this_day, $next_day) = map { sql("SELECT to_char(age.noon($_), 'YYYYMMDD')") } 49, 48;
$renamed =~ s/\d{8}T000000Z-\d{8}T/${this_day}T000000Z-${next_day}T/;
append_to_file("$cold/$renamed", $bytes);
refuses('a file with events of another day', "'$renamed'", '23514: .* violates check constraint "outbox_bounds"');
unlink "$cold/$broken", "$cold/$renamed";
is(sql($tables), $classes, 'none of them leaves a table behind');
database('small');
$node->safe_psql('small', old_event(2));
refuses('a file of another database', "'$file'", '22023: file must be the name of a file that was exported from this database.*HINT:  Names of such files start with small', 'small');
my $moved = $file =~ s/^postgres/small/r;
append_to_file("$cold/$moved", $bytes);
refuses('a file of a database that was here longer', "'$moved'", "55000: the file contains ids up to 7, but the last id of this log is 1\n.*HINT", 'small');
is($node->safe_psql('small', "SELECT age.place(50)"), 'gone', 'and leaves nothing');
unlink "$cold/$moved";

# More events of a day that was exported.
sql(old_event(50, 'late') . "SELECT count(*) FROM outbox_consume('reads', 100)");
ok(wait_until(sub { sql('SELECT sum(events) FROM outbox_cold_files') == 8 }, 8), 'events that come later for the same day are exported, too');
is(sql("SELECT count(DISTINCT f.file) FROM outbox_cold_files f, _outbox.read_cold_file(f.file) line WHERE line::json ->> 'aggregate_id' IN ('2', 'late')"), 2, 'beside the others');
comes_to($node, 50, 'gone', 'before they are dropped');

# Odd names.
my $odd = q{o'dd "db" 50% ü/x};
my $schema = q{"sch ema % ü-x"};
sql('CREATE DATABASE ' . '"' . ($odd =~ s/"/""/gr) . '"');
$node->safe_psql($odd, "SET client_min_messages = warning; CREATE SCHEMA $schema; CREATE EXTENSION pg_partman; CREATE EXTENSION outbox SCHEMA $schema; SELECT $schema.outbox_setup()");
set_up_age($node, $odd);
$node->safe_psql($odd, old_event(60, 'odd', $schema));
ok(wait_until(sub { $node->safe_psql($odd, "SELECT count(*) FROM $schema.outbox_cold_files WHERE stored_at IS NOT NULL") }), 'a database and a schema with odd names');
comes_to($node, 60, 'gone', 'are served as others', $odd);
my $odd_file = $node->safe_psql($odd, "SELECT file FROM $schema.outbox_cold_files");
like($odd_file, qr/^o%27dd%20%22db%22%2050%25%20%C3%BC%2Fx\.outbox_messages_p/, 'the name of the file is harmless');
ok(-s "$cold/$odd_file", 'it is there');
$node->safe_psql($odd, "SELECT $schema.outbox_restore_partition('$odd_file')");
is($node->safe_psql($odd, "SELECT aggregate_id FROM $schema.outbox_messages_archive"), 'odd', 'and comes back');
my $long = 'ü' x 31;
sql(qq{CREATE DATABASE "$long"});
$node->safe_psql($long, 'SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE; SELECT outbox_setup()');
set_up_age($node, $long);
$node->safe_psql($long, old_event(60));
ok(wait_until(sub { $node->safe_psql($long, 'SELECT count(*) FROM outbox_cold_files WHERE stored_at IS NOT NULL') }, 5), 'a database whose name is as long as it may be');

# Files have a retention of their own.
settings($node, cold_retention => '55d');
ok(wait_until(sub { !-e "$cold/$odd_file" }), 'files are removed after cold_retention');
is($node->safe_psql($odd, "SELECT count(*) FROM $schema.outbox_cold_files"), 0, 'and forgotten');
ok(-e "$cold/$file", 'others stay');
settings($node, cold_retention => '-1');
sql('DROP DATABASE ' . '"' . ($odd =~ s/"/""/gr) . '"');
sql(qq{DROP DATABASE "$long"});

# A command that hangs. A relay goes on, and whoever needs the database gets it.
database($_) for 'shop', 'first', 'third';
sql('CREATE DATABASE other');
append_to_file("$dir/hang", '');
my $pid = hangs(sub { $node->safe_psql('shop', old_event(50)) });
is(sql("SELECT DISTINCT xact_start IS NULL AND backend_xmin IS NULL FROM pg_stat_activity WHERE backend_type = 'outbox maintenance' AND datname = 'shop'"), 't', 'no transaction is open while a command runs');
is_shown_to_wait($node, 'outbox maintenance', 'OutboxCommand');
promptly('the relay goes on meanwhile', sub {
	$node->safe_psql('shop', "SELECT outbox_enqueue('Order', 'later', 'OrderDue', '{}', available_at => clock_timestamp() + interval '200 ms')");
	wait_until(sub { $node->safe_psql('shop', "SELECT count(*) FROM outbox_messages WHERE aggregate_id = 'later'") }, 10) or die 'not released';
});
at_once('DROP DATABASE of another one', 'DROP DATABASE other');
ok(lives($pid), 'the command still hangs');
hangs(sub { at_once('ALTER DATABASE … RENAME', 'ALTER DATABASE shop RENAME TO market') });
ok(!lives($pid), 'the command was ended with all that it had started, and is called again');
hangs(sub { at_once('CREATE DATABASE … TEMPLATE', 'CREATE DATABASE copy TEMPLATE market') });
at_once('DROP DATABASE', 'DROP DATABASE market');
at_once('DROP DATABASE of the copy', 'DROP DATABASE copy');
hangs(sub { $node->safe_psql('first', old_event(50)) });
at_once('DROP EXTENSION', 'DROP EXTENSION outbox', 'first');
ok(eval { hangs(sub { $node->safe_psql('third', old_event(50)) }) }, 'others are maintained after that');

# So does one that waits for a lock.
my $holder = $node->background_psql('third');
$holder->query_safe('BEGIN; LOCK TABLE _outbox.inbox IN EXCLUSIVE MODE');
unlink "$dir/hang";
ok(wait_until(sub { sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox maintenance' AND datname = 'third' AND wait_event_type = 'Lock'") }), 'maintenance waits for a lock');
at_once('DROP DATABASE … WITH (FORCE)', 'DROP DATABASE third WITH (FORCE)');

append_to_file("$dir/hang", '');
$pid = hangs(sub { sql(old_event(55) . "SELECT count(*) FROM outbox_consume('reads', 100)") });
promptly('a fast shutdown while a command hangs', sub { $node->stop('fast') });
ok(!lives($pid), 'the command is ended');
unlink "$dir/hang";
$node->start;
comes_to($node, 55, 'gone', 'it is called again when the server is back');

$node->stop;
done_testing();
