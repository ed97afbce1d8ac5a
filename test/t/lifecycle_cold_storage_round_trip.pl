# Partitions are exported before they are dropped, and restored unchanged. No session waits for
# outbox.archive_command.
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
# The command records its arguments, hangs while the file `hang` exists, and exits with the status
# in the file `exit`.
append_to_file("$dir/command", qq{echo \$\$ >"$dir/pid"\nprintf '%s\\n' "\$*" >>"$dir/calls"\n}
	  . qq{while test -e "$dir/hang"; do sleep 0.2; done\nexit `cat "$dir/exit"`\n});
my $command = qq{sh "$dir/command" "%f" %t %d 100%% %x};

my $node = start_node('main',
	conf => "outbox.maintenance_interval = '1s'\noutbox.archive_retention = -1\nautovacuum = off\n"
	  . "max_worker_processes = 24\n");
set_up_age($node);

sub sql
{
	return $node->safe_psql('postgres', @_);
}

sub status
{
	return sql("SELECT ok, detail FROM outbox_status() WHERE component = 'cold storage'");
}

sub set_exit_status
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

# A statement that would wait for ever fails by its timeout.
sub succeeds_promptly
{
	my ($promise, $statement, $database) = @_;
	promptly("$promise takes less than 2 s", sub {
		my ($status, undef, $error) = $node->psql($database // 'postgres',
			"SET statement_timeout = '5s'; $statement");
		is($error, '', "$promise succeeds");
	});
}

# Creates a database with the extension.
sub database
{
	my ($name) = @_;
	sql("CREATE DATABASE $name");
	$node->safe_psql($name, 'SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE');
	$node->safe_psql($name, 'SELECT outbox_setup()');
	set_up_age($node, $name);
}

# Runs code that makes outbox.archive_command hang, and returns the pid of the command.
sub start_hanging_command
{
	my ($code) = @_;
	my $calls = sub { -e "$dir/calls" ? split(/\n/, slurp_file("$dir/calls")) : () };
	my $before = $calls->();
	$code->();
	wait_until(sub { $calls->() > $before }, 10) or die 'no command hangs';
	chomp(my $pid = slurp_file("$dir/pid"));
	return $pid;
}

sub is_running
{
	my ($pid) = @_;
	return -e "/proc/$pid/stat" && slurp_file("/proc/$pid/stat") !~ /\) Z /;
}

set_exit_status(0);
sql(q{
	SELECT outbox_setup();
	SELECT outbox_create_consumer('reads');
	INSERT INTO outbox_messages (occurred_at, tenant_id, event_version, aggregate_type,
	aggregate_id, event_type, payload, metadata, trace_id)
	VALUES (age.noon(50) + '0.123456 s', -7, 32767, 'Order', e'1\n"\\\\', 'Ünusual',
	'{"n": [1.50, 1e400, -0.0, 12345678901234567890.10], "\u00e9": "😀\\\\u0041\n"}',
	'{"a": {"b": null}}', NULL),
	       (age.noon(50), 0, 1, 'Order', '2', 'Deleted', 'null', '{}', ''),
	       (age.noon(50), 0, 1, 'Order', '3', 'Scalar', '"text"', '{}',
	'00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'),
	       (age.noon(50), 0, 1, 'Order', '4', 'Large', to_jsonb(repeat('ab"', 100000)), '{}',
	'x');});
# Events of one call, with a run.
sql(q{INSERT INTO outbox_messages (occurred_at, xid, aggregate_type, aggregate_id, event_type,
	payload, run_length)
	SELECT age.noon(50), pg_current_xact_id(), 'Order', 'run', 'Ran', to_jsonb(i),
	CASE WHEN i = 1 THEN 3 END FROM generate_series(1, 3) i});
my $whole = "SELECT count(*), md5(string_agg(m::text, '|' "
  . "ORDER BY id)), string_agg(xid || ' ' || id || ' ' || coalesce(run_length::text, '-'), ' ' "
  . "ORDER BY id) FROM outbox_messages_archive m "
  . "WHERE occurred_at BETWEEN age.noon(50) AND age.noon(49)";
is(sql("SELECT count(*) FROM outbox_consume('reads', 100)"), 7, 'a consumer reads the events');
comes_to($node, 50, 'archive', 'a partition that every consumer has read is archived');
my $before = sql($whole);

# A partition is not dropped while cold storage cannot take it.
my $position = -s $node->logfile;
settings($node, archive_command => $command, archive_retention => '45d');
logged($node, $position,
	qr/WARNING:  outbox: maintenance, export: outbox.cold_storage_dir is not set/,
	'the server log reports outbox.archive_command without outbox.cold_storage_dir');
whole_run($node);
is(place($node, 50), 'archive', 'a partition is not dropped without a directory for cold storage');
like(status(), qr/^f\|1 partitions should have been exported$/,
	'outbox_status() reports a partition that could not be exported');
like(sql("SELECT detail FROM outbox_maintain() WHERE step = 'drop'"),
	qr/^stays until it is in cold storage$/,
	'outbox_maintain() reports a partition that could not be exported');
settings($node, cold_storage_dir => "$dir/nowhere");
my $export_failed = 'WARNING:  outbox: maintenance, export: could not';
logged($node, $position,
	qr{$export_failed create file "\Q$dir\E/nowhere/.*: No such file or directory},
	'the server log reports a missing directory');
my $file = 'postgres.' . partition($node, 50)
  . sql(q{SELECT to_char(age.noon(50), '.YYYYMMDD"T000000Z-"') || to_char(age.noon(49),
	'YYYYMMDD"T000000Z"')}) . '.1.ndjson.zst';
settings($node, cold_storage_dir => $cold);
SKIP:
{
	skip 'permissions do not apply to root', 2 if $> == 0;
	chmod 0555, $cold;
	logged($node, $position,
		qr{$export_failed create file "\Q$cold/$file\E.tmp": Permission denied},
		'the server log reports a directory without write permission');
	is(place($node, 50), 'archive',
		'a partition is not dropped without write permission on the directory');
}
settings($node, cold_storage_dir => "$dir/full");
if (-w '/dev/full')
{
	mkdir "$dir/full";
	symlink '/dev/full', "$dir/full/$file.tmp";
	logged($node, $position,
		qr{$export_failed write file "\Q$dir/full/$file\E.tmp": No space left},
		'the server log reports a full device');
	is(place($node, 50), 'archive', 'a partition is not dropped while the device is full');
}
is(sql('SELECT count(*) FROM outbox_cold_files'), 0, 'outbox_cold_files has no row without a file');

# outbox.archive_command fails.
chmod 0755, $cold;
set_exit_status(3);
append_to_file("$cold/$file.tmp", 'left over' x 100000);
settings($node, cold_storage_dir => $cold);
my $failed = "outbox.archive_command failed for \Q$file\E: it exited with 3";
logged($node, $position,
	qr/WARNING:  outbox: $failed\n.*HINT:  The partition stays until the command succeeds/,
	'the server log reports a command that fails');
whole_run($node);
is(place($node, 50), 'archive', 'a partition is not dropped while the command fails');
like(status(), qr/^f\|1 files wait for outbox.archive_command, the oldest since /,
	'outbox_status() reports files that wait for the command');
is(sql("SELECT step, object, detail, changed FROM outbox_maintain() WHERE step = 'export'"),
	"export|$file|waits for outbox.archive_command, which the maintenance worker runs|f",
	'outbox_maintain() reports files that wait for the command');
my @calls = split /\n/, slurp_file("$dir/calls");
is($calls[0], "$cold/$file " . partition($node, 50)
	. sql('SELECT to_char(age.noon(50), \' YYYY-MM-DD\')') . ' 100% %x',
	'the command gets file, table and day');

# A file whose command has failed comes after files that were not tried yet.
settings($node, maintenance_interval => '1h');
ok(wait_until(sub {
	sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox maintenance'") == 0 }),
	'no maintenance worker runs');
sql(q{INSERT INTO _outbox.cold_files SELECT 'later', partition, lower_bound,
	upper_bound + interval '1 day', events, bytes FROM outbox_cold_files});
unlink "$dir/calls";
sql('SELECT _outbox.request_maintenance()');
ok(wait_until(sub { -e "$dir/calls" && slurp_file("$dir/calls") =~ /\n.*\n/ }),
	'the command is called for two files');
like(slurp_file("$dir/calls"), qr{^\Q$cold\E/later .*\n\Q$cold/$file\E },
	'the command is called first for the file that was not tried yet');
sql(q{DELETE FROM _outbox.cold_files WHERE file = 'later'});
settings($node, maintenance_interval => '1s');
set_exit_status(0);
comes_to($node, 50, 'gone', 'a partition is dropped once its command succeeds');
is(status(), 't|1 files', 'outbox_status() shows cold storage as ok');
is(sql('SELECT file, events, bytes, stored_at >= exported_at FROM outbox_cold_files'),
	"$file|7|" . (-s "$cold/$file") . '|t', 'outbox_cold_files has the exported file');
ok(!-e "$cold/$file.tmp", 'a temporary file of an earlier attempt is replaced');

my @lines = map { decode_json($_) } split /\n/, `zstd -dc "$cold/$file"`;
is($?, 0, 'an exported file is valid zstd');
is(join(' ', sort keys %{ $lines[0] }),
	sql("SELECT string_agg(attname, ' ' ORDER BY attname) FROM pg_attribute "
		. "WHERE attrelid = 'outbox_messages'::regclass AND attnum > 0"),
	'each line of an exported file is JSON with all columns');
is(Encode::encode_utf8("$lines[0]{aggregate_id} $lines[0]{event_type} ") . scalar(@lines),
	qq{1\n"\\ Ünusual 7}, 'an exported file has every event');

# Restore of an exported partition.
my $earlier = $node->background_psql('postgres');
# The session has every lock of a claim, so it processes no invalidations when it takes one.
is($earlier->query_safe(q{BEGIN; LOCK TABLE ONLY outbox_messages IN SHARE UPDATE EXCLUSIVE MODE;
	SELECT count(*) FROM outbox_claim('reads', 100)}), 0,
	'a claim gets nothing before the restore');
is(sql("SELECT outbox_restore_partition('$file')"), partition($node, 50),
	'outbox_restore_partition() returns the partition');
is(sql($whole), $before, 'a restored partition has the exported rows');
is(place($node, 50), 'archive', 'a restored partition is in the archive');
rename "$cold/$file", "$dir/aside" or die $!;
mkdir "$cold/$file" or die $!;
like(refusal($node, "SELECT _outbox.export_partition('" . partition($node, 50) . "')"),
	qr/ERROR:  \w+: could not .* file/, 'an export to an occupied path fails');
ok(!-e "$cold/$file.tmp", 'a failed export leaves no temporary file');
rmdir "$cold/$file" or die $!;
rename "$dir/aside", "$cold/$file" or die $!;
is(sql("SELECT count(*) FROM outbox_consume('reads', 100)"), 0,
	'a consumer behind whose cursor a partition is restored gets no event of it');
sql("SELECT outbox_seek('reads', age.noon(50))");
is($earlier->query_safe(q{SELECT count(*) FROM outbox_claim('reads', 100); ROLLBACK}), 7,
	'a transaction older than the restore claims the restored events after outbox_seek()');
$earlier->quit;
is(sql("SELECT count(*) FROM outbox_claim('reads', 100)"), 7,
	'a new transaction claims the restored events after outbox_seek()');
sql('SELECT outbox_ack(max(token)) FROM _outbox.leases WHERE acked_at IS NULL');
whole_run($node);
is(place($node, 50), 'archive', 'a restored partition is not dropped by archive_retention');
like(refusal($node, "SELECT outbox_restore_partition('$file')"),
	qr/ERROR:  42P07: partition outbox_messages_p\w+ already exists\n.*HINT/s,
	'a second restore of a partition is refused with a hint');
settings($node, hot_retention => '3s');
comes_to($node, 50, 'gone', 'a restored partition is dropped after hot_retention');
is(scalar(@{ [ glob "\"$cold\"/*" ] }), 1, 'a restored partition is not exported again');

# Files that cannot be restored.
my $tables = 'SELECT count(*) FROM pg_class';
my $classes = sql($tables);
sub refuses
{
	my ($promise, $argument, $error, $database) = @_;
	my ($status, undef, $message) = $node->psql($database // 'postgres',
		"\\set VERBOSITY verbose\nSELECT outbox_restore_partition($argument)");
	like($message, qr/ERROR:  $error/s, $promise);
}
refuses('a restore of NULL is refused', 'NULL', '22004: file must not be NULL');
refuses("a restore of an invalid file name is refused: $_", "\$\$$_\$\$",
	'22023: file must be the name of an exported partition.*HINT')
  for '', '.', '..', '../x', "../$file", "$cold/$file", "x/$file", ".$file", "$file.tmp", "$file\n",
  'x.outbox_messages.20260101T000000Z-20260102T000000Z.1.ndjson.zst';
refuses('a restore of a file with an overlong table name is refused',
	"replace('$file', 'messages_p', 'messages_p' || repeat('1', 300))",
	'22023: file must be the name of an exported partition');
refuses('a restore of a file with an invalid time is refused',
	"replace('$file', to_char(age.noon(50), 'MMDD') || 'T', '9999T')",
	'22008: date/time field value out of range');
# The number before the suffix is arbitrary.
my ($missing, $broken, $renamed) = map { $file =~ s/\.1\.ndjson/.$_.ndjson/r } 7 .. 9;
refuses('a restore of a missing file fails', "'$missing'",
	"58P01: could not open file \"\Q$cold/$missing\E\": No such file");
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
	$damaged->("a restore of a file with a changed byte at $place fails", $flipped,
		'XX001: file .* is damaged');
}
$damaged->('a restore of a truncated file fails', substr($bytes, 0, -5),
	'XX001: file .* is damaged');
$damaged->('a restore of half a file fails', substr($bytes, 0, length($bytes) / 2),
	'XX001: file .* is damaged');
$damaged->('a restore of an empty file fails', '', 'XX001: file .* is damaged');
$damaged->('a restore of a file that is no zstd fails', 'hello' x 100, 'XX001: file .* is damaged');
# Valid zstd with invalid contents.
for (['lines that are no JSON', "hello\n"], ['no events', "{}\n"],
	['bytes that are no text', "{\"id\": \"\xFF\"}\n"],
	['an event twice', `zstd -dc "$cold/$file"` x 2])
{
	my ($what, $content) = @$_;
	IPC::Run::run([ 'zstd', '-qc' ], '<', \$content, '>', \my $compressed) or die;
	$damaged->("a restore of a file with $what fails", $compressed,
		'XX001: the file contains data other than events.*DETAIL');
}
my ($this_day, $next_day) = map { sql("SELECT to_char(age.noon($_), 'YYYYMMDD')") } 49, 48;
$renamed =~ s/\d{8}T000000Z-\d{8}T/${this_day}T000000Z-${next_day}T/;
append_to_file("$cold/$renamed", $bytes);
refuses('a restore of a file with events of another day fails', "'$renamed'",
	'23514: .* violates check constraint "outbox_bounds"');
unlink "$cold/$broken", "$cold/$renamed";
is(sql($tables), $classes, 'a failed restore leaves no table behind');
database('small');
$node->safe_psql('small', old_event(2));
refuses('a restore of a file of another database is refused', "'$file'",
	'22023: file must be the name of a file that was exported from this database.*HINT:  Names of such files start '
	  . 'with small', 'small');
my $moved = $file =~ s/^postgres/small/r;
append_to_file("$cold/$moved", $bytes);
refuses('a restore of a file with ids beyond the log is refused', "'$moved'",
	"55000: the file contains ids up to 7, but the last id of this log is 1\n.*HINT", 'small');
is($node->safe_psql('small', "SELECT age.place(50)"), 'gone',
	'a refused restore leaves no partition behind');
unlink "$cold/$moved";

# Later events of an exported day.
sql(old_event(50, 'late') . "SELECT count(*) FROM outbox_consume('reads', 100)");
ok(wait_until(sub { sql('SELECT sum(events) FROM outbox_cold_files') == 8 }, 8),
	'later events of an exported day are exported');
is(sql("SELECT count(DISTINCT f.file) FROM outbox_cold_files f, "
	. "_outbox.read_cold_file(f.file) line WHERE line::json ->> 'aggregate_id' IN ('2', 'late')"),
	2, 'later events of an exported day have a file of their own');
comes_to($node, 50, 'gone', 'the partition of later events is dropped after its export');

# Names with special characters.
my $odd = q{o'dd "db" 50% ü/x};
my $schema = q{"sch ema % ü-x"};
sql('CREATE DATABASE ' . '"' . ($odd =~ s/"/""/gr) . '"');
$node->safe_psql($odd,
	"SET client_min_messages = warning; CREATE SCHEMA $schema; CREATE EXTENSION pg_partman; "
	  . "CREATE EXTENSION outbox SCHEMA $schema; SELECT $schema.outbox_setup()");
set_up_age($node, $odd);
$node->safe_psql($odd, old_event(60, 'odd', $schema));
ok(wait_until(sub {
	$node->safe_psql($odd,
		"SELECT count(*) FROM $schema.outbox_cold_files WHERE stored_at IS NOT NULL") }),
		'maintenance exports from a database and schema with special characters');
comes_to($node, 60, 'gone', 'maintenance drops in a database and schema with special characters',
	$odd);
my $odd_file = $node->safe_psql($odd, "SELECT file FROM $schema.outbox_cold_files");
like($odd_file, qr/^o%27dd%20%22db%22%2050%25%20%C3%BC%2Fx\.outbox_messages_p/,
	'special characters of a database are percent-encoded in the name of a file');
ok(-s "$cold/$odd_file", 'the file of a database with special characters has contents');
$node->safe_psql($odd, "SELECT $schema.outbox_restore_partition('$odd_file')");
is($node->safe_psql($odd, "SELECT aggregate_id FROM $schema.outbox_messages_archive"), 'odd',
	'a file of a database with special characters can be restored');
my $long = 'ü' x 31;
sql(qq{CREATE DATABASE "$long"});
$node->safe_psql($long,
	'SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE; SELECT outbox_setup()');
set_up_age($node, $long);
$node->safe_psql($long, old_event(60));
ok(wait_until(sub {
	$node->safe_psql($long, 'SELECT count(*) FROM outbox_cold_files WHERE stored_at IS NOT NULL') },
	5), 'maintenance exports from a database with a name of the maximum length');

# outbox.cold_retention.
settings($node, cold_retention => '55d');
ok(wait_until(sub { !-e "$cold/$odd_file" }), 'files are removed after cold_retention');
is($node->safe_psql($odd, "SELECT count(*) FROM $schema.outbox_cold_files"), 0,
	'outbox_cold_files has no row of a removed file');
ok(-e "$cold/$file", 'files within cold_retention are kept');
settings($node, cold_retention => '-1');
sql('DROP DATABASE ' . '"' . ($odd =~ s/"/""/gr) . '"');
sql(qq{DROP DATABASE "$long"});

# While outbox.archive_command hangs, the relay works, and statements that need exclusive access to
# the database succeed.
database($_) for 'shop', 'first', 'third';
sql('CREATE DATABASE other');
append_to_file("$dir/hang", '');
my $pid = start_hanging_command(sub { $node->safe_psql('shop', old_event(50)) });
is(sql("SELECT DISTINCT xact_start IS NULL AND backend_xmin IS NULL FROM pg_stat_activity "
	. "WHERE backend_type = 'outbox maintenance' AND datname = 'shop'"), 't',
	'no transaction is open while a command runs');
is_shown_to_wait($node, 'outbox maintenance', 'OutboxCommand');
promptly('the relay releases a scheduled event while a command hangs', sub {
	$node->safe_psql('shop',
		"SELECT outbox_enqueue('Order', 'later', 'OrderDue', '{}', "
		  . "available_at => clock_timestamp() + interval '200 ms')");
	wait_until(sub { $node->safe_psql('shop',
		"SELECT count(*) FROM outbox_messages WHERE aggregate_id = 'later'") }, 10)
	  or die 'not released';
});
succeeds_promptly('DROP DATABASE of another database while a command hangs', 'DROP DATABASE other');
ok(is_running($pid), 'DROP DATABASE of another database does not end the command');
start_hanging_command(sub { succeeds_promptly('ALTER DATABASE … RENAME while a command hangs',
	'ALTER DATABASE shop RENAME TO market') });
ok(!is_running($pid), 'ALTER DATABASE … RENAME ends the command, which is called again');
start_hanging_command(sub { succeeds_promptly('CREATE DATABASE … TEMPLATE while a command hangs',
	'CREATE DATABASE copy TEMPLATE market') });
succeeds_promptly('DROP DATABASE while a command hangs', 'DROP DATABASE market');
succeeds_promptly('DROP DATABASE of the copy while a command hangs', 'DROP DATABASE copy');
start_hanging_command(sub { $node->safe_psql('first', old_event(50)) });
succeeds_promptly('DROP EXTENSION while a command hangs', 'DROP EXTENSION outbox', 'first');
ok(eval { start_hanging_command(sub { $node->safe_psql('third', old_event(50)) }) },
	'other databases are maintained after DROP EXTENSION in one of them');

# Maintenance that waits for a lock.
my $holder = $node->background_psql('third');
$holder->query_safe('BEGIN; LOCK TABLE _outbox.inbox IN EXCLUSIVE MODE');
unlink "$dir/hang";
ok(wait_until(sub {
	sql("SELECT count(*) FROM pg_stat_activity "
		. "WHERE backend_type = 'outbox maintenance' AND datname = 'third' "
		. "AND wait_event_type = 'Lock'") }), 'the maintenance worker waits for a lock');
succeeds_promptly('DROP DATABASE … WITH (FORCE) while maintenance waits for a lock',
	'DROP DATABASE third WITH (FORCE)');

append_to_file("$dir/hang", '');
$pid = start_hanging_command(sub { sql(old_event(55)
	. "SELECT count(*) FROM outbox_consume('reads', 100)") });
promptly('a fast shutdown does not wait for a command that hangs', sub { $node->stop('fast') });
ok(!is_running($pid), 'a fast shutdown ends the command');
unlink "$dir/hang";
$node->start;
comes_to($node, 55, 'gone', 'the command is called again after a restart');

$node->stop;
done_testing();
