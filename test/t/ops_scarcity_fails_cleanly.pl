# A full disk, or a process that gets no more memory or files, leads to a clear error and no partial
# writes; work continues when resources are available again.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use OutboxAge qw(set_up_age settings);
use OutboxKill qw(log_has_only);
use OutboxReceiver;
use OutboxScarcity;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $disk = need_small_disk();
my $receiver = OutboxReceiver->start('receiver', body_limit => 300);
mkdir "$disk/$_" or die "$disk/$_: $!" for 'tables', 'cold';
my $node = start_node('main', conf => qq{
	outbox.lease = '2s'
	outbox.backoff_base = '50ms'
	outbox.backoff_max = '200ms'
	outbox.maintenance_interval = '1s'
	outbox.archive_retention = -1
	outbox.cold_storage_dir = '$disk/cold'
	log_statement = none
	log_min_duration_statement = -1
	autovacuum = off
});
my $started = sql_in('postgres', 'SELECT pg_postmaster_start_time()');

sub sql_in
{
	my ($database, @rest) = @_;
	return $node->safe_psql($database, @rest);
}

# The output of a statement, and its SQLSTATE and message; empty if the statement succeeds.
sub try_in
{
	my ($database, $statement) = @_;
	my (undef, $out, $error) = $node->psql($database, "\\set VERBOSITY verbose\n$statement");
	return ($out, $error =~ /ERROR:  (\w{5}: .*)/ ? $1 : $error);
}

sub wait_for_all
{
	my ($promise, @ids) = @_;
	my @missing;
	wait_until(sub { my %came = map { $_ => 1 } $receiver->accepted_ids;
			!(@missing = grep { !$came{$_} } @ids) }, 30);
	is(scalar @missing, 0, "$promise: all of " . @ids . ' arrive');
}

# Outcomes of each kind of statement: kind => outcome => count.
my %outcomes;

sub all_are
{
	my ($wanted, $promise) = @_;
	is_deeply({ map { $_ => join ', ', sort keys %{ $outcomes{$_} } } keys %outcomes },
		{ map { $_ => $wanted } keys %outcomes }, $promise)
	  or diag(explain(\%outcomes));
	%outcomes = ();
}

# The disk of a database is full, with events to claim, to send and to export.
sql_in('postgres', "CREATE TABLESPACE small LOCATION '$disk/tables'");
sql_in('postgres', 'CREATE DATABASE shop TABLESPACE small');
sql_in('shop', 'SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE');
sql_in('shop', q{SELECT outbox_setup(), outbox_create_consumer('worker'),
		audit_record('a', 'begin', 'Test', '1')});
set_up_age($node, 'shop');
create_sink($node, 'sink', { url => $receiver->url('/sink') }, undef, 'shop');
# The events are too large for the remaining space, even compressed in a file.
sql_in('shop',
	qq{INSERT INTO outbox_messages (occurred_at, aggregate_type, aggregate_id, event_type, payload)
	SELECT age.noon(days), 'Order', days, 'OrderConfirmed', to_jsonb(string_agg(md5(random()::text),
	'')) FROM generate_series(1, 20000), unnest('{120,121}'::int[]) days GROUP BY days});
my @committed = split /\n/, sql_in('shop', q{SELECT tracking_id FROM outbox_consume('worker', 10)});
ok(wait_until(sub { sql_in('shop', 'SELECT count(*) FROM _outbox.archived_partitions') == 2 }, 30),
	'two days are in the archive');
push @committed, split /\n/, sql_in('shop', enqueue('before') x 150);
fill($disk, 200_000);
settings($node, archive_retention => '100d');

# Each statement runs until it fails, and once more.
my $text = q{(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 40) WHERE i > 0)};
my %writes = (
	enqueue => "SELECT outbox_enqueue('Order', i, 'Full', to_jsonb($text))
		FROM generate_series(1, 20) i",
	enqueue_many => "SELECT unnest(outbox_enqueue_many((SELECT
		jsonb_agg(jsonb_build_object('aggregate_type', 'Order', 'aggregate_id', i, 'event_type',
		'Many', 'payload', $text)) FROM generate_series(1, 20) i)))",
	schedule => "SELECT outbox_enqueue('Order', i, 'Later', to_jsonb($text),
		available_at => clock_timestamp() + interval '1 s') FROM generate_series(1, 20) i",
	audit => "WITH recorded
		AS MATERIALIZED (SELECT audit_record('a', 'b', 'Test', i::text, after => to_jsonb($text))
		FROM generate_series(1, 20) i) SELECT count(*) FROM recorded HAVING count(*) < 0",
	idempotency => "WITH finished AS MATERIALIZED (SELECT idempotency_finish('s', 'k' || i,
		(idempotency_begin('s', 'k' || i, '{}'::jsonb)).token, 200, to_jsonb($text))
		FROM generate_series(nextval('keys'), currval('keys') + 19) i) SELECT count(*) FROM finished
		HAVING count(*) < 0",
	claim => q{SELECT count(*) FROM outbox_claim('worker', 1) HAVING count(*) < 0;} x 60);
sql_in('shop', 'CREATE SEQUENCE keys INCREMENT 20');
for my $what (qw(enqueue enqueue_many schedule audit idempotency claim))
{
	for (1 .. 40)
	{
		my ($out, $error) = try_in('shop', $writes{$what});
		push @committed, grep { length } split /\n/, $out unless $error;
		next unless $error;
		my $no_space = $error =~ /^53100: could not extend file .*: No space left on device$/;
		last if ++$outcomes{$what}{ $no_space ? 'no space' : $error } == 2;
	}
	$outcomes{$what} //= { 'never refused' => 1 };
}
all_are('no space', 'on a full disk every write fails with 53100, No space left on device');
ok(wait_until(sub { slurp_file($node->logfile)
				=~ /WARNING:  outbox: maintenance, export: .*: No space left on device/ }, 20),
	 'maintenance logs that the disk is full');
is(sql_in('postgres', 'SELECT pg_postmaster_start_time()'), $started,
	'the server survives a full disk');
is(sql_in('shop', 'SELECT count(*), count(DISTINCT tracking_id)
			FROM (SELECT tracking_id FROM outbox_messages UNION ALL SELECT tracking_id
			FROM outbox_messages_archive UNION ALL SELECT tracking_id FROM outbox_scheduled) m'),
	join('|', (scalar @committed) x 2),
	'the database has every committed event and no other: ' . @committed . ' events');
is(sql_in('shop', 'SELECT count(*) % 20, count(*) FILTER (WHERE status_code IS NULL)
			FROM idempotency_keys'), '0|0',
	'idempotency keys are written with their response or not at all');
is(sql_in('shop', 'SELECT count(*) FROM outbox_cold_files'), 0,
	'maintenance records no file that it could not write');
is_deeply([ grep { !/^\.+$/ } slurp_dir("$disk/cold") ], [],
	'maintenance leaves no partial file in cold storage');
make_room($disk);
wait_for_all('after a full disk', @committed);
my %claimed = map { $_ => 1 } @committed[ 0, 1 ];
wait_until(sub { $claimed{$_}++ for split /\n/, sql_in('shop', q{SELECT tracking_id
				FROM generate_series(1, 100) i, outbox_consume('worker', 1000 + i)});
		keys %claimed >= @committed }, 30);
is_deeply([ sort keys %claimed ], [ sort @committed ],
	'a worker gets every committed event and no other');
ok(wait_until(sub { sql_in('shop', 'SELECT count(*)
				FROM outbox_cold_files f, _outbox.read_cold_file(f.file)') == 2 }, 20),
	'maintenance exports complete files when the disk has room again');
is(sql_in('shop', 'SELECT count(*) FROM audit_verify() WHERE NOT ok'), 0,
	'the audit log is intact after a full disk');

# The memory of a backend is limited at several points of a statement.
sql_in('postgres', 'SELECT outbox_setup()');
sql_in('postgres', q{SELECT outbox_create_consumer('c'), outbox_create_consumer('d');
	SELECT outbox_register_event('Checked', 1, json_schema =>
	'{"type": "object", "properties": {"list": {"type": "array",
		"items": {"type": "object", "required": ["n"]}}}}',
	owner_module => 'test');
	CREATE TABLE large AS SELECT jsonb_build_object('list', jsonb_agg(jsonb_build_object('n', i,
	'text', md5(i::text)))) AS payload FROM generate_series(1, 10000) i;
	CREATE TABLE larger AS SELECT jsonb_agg(payload) AS payload FROM large, generate_series(1, 10);
	CREATE FUNCTION deep(n int) RETURNS int
	LANGUAGE plpgsql AS 'BEGIN RETURN CASE WHEN n = 0 THEN 0 ELSE deep(n - 1) END; END';
	SELECT count(outbox_enqueue('Order', 'before', 'Large', payload))
	FROM large, generate_series(1, 20);
	SELECT count(outbox_enqueue('Order', i, 'Small', '{}')) FROM generate_series(1, 20000) i;});
my %statements = (
	enqueue => q{SELECT outbox_enqueue('Order', 'MARK', 'Large', payload::text) FROM large},
	enqueue_many => q{SELECT cardinality(outbox_enqueue_many((SELECT
		jsonb_agg(jsonb_build_object('aggregate_type', 'Order', 'aggregate_id', 'MARK',
		'event_type', 'Many', 'payload', repeat('x', 500))) FROM generate_series(1, 2000))))},
	'a check against a schema' => q{SET LOCAL outbox.catalog_mode = 'enforce';
		SELECT outbox_enqueue('Order', 'MARK', 'Checked', payload) FROM large},
	'a hash' => q{SELECT idempotency_begin('s', 'MARK', payload) FROM larger},
	'a claim' => q{SELECT sum(length(payload::text)) FROM outbox_claim('c', 20)},
	'an ack' => q{SELECT outbox_ack(max(lock_token), array_agg(id)) FROM outbox_claim('d', 20020)});
my @steps = map { $_ * 1024 } 0, 1024, 8192, 262144;
my $marks = 0;
for my $what (sort keys %statements)
{
	for my $more (@steps)
	{
		my $mark = 'm' . ++$marks;
		my $statement = $statements{$what} =~ s/MARK/$mark/r;
		# The warm-up loads the library and the caches, and grows the stack.
		my (undef, $out, $error) = $node->psql('postgres', qq{
			SELECT deep(100), count(*) FROM outbox_claim('c', 1) \\gset warm_
			SELECT pg_backend_pid() AS pid, outbox_enqueue('Order', 'warm', 'Warm', '{}') \\gset
			\\setenv BACKEND :pid
			\\! prlimit --pid \$BACKEND --as=\$((\$(awk '/^VmSize/ { print \$2 }' /proc/\$BACKEND/status) * 1024 + $more)):
			\\set VERBOSITY verbose
			BEGIN; $statement; COMMIT;
			\\! prlimit --pid \$BACKEND --as=unlimited:
			SELECT 'it is ' || pg_backend_pid() = 'it is ' || :pid, count(*) FROM outbox_messages
			WHERE aggregate_id = '$mark'}, on_error_stop => 0);
		my ($same, $written) = $out =~ /^(t|f)\|(\d+)$/m;
		my $refused = $error =~ /ERROR:  (\w{5}: .*)/ ? $1 : $error;
		my $outcome = !$same ? "the session is gone: $error" : !$refused ? 'done'
		  : $refused !~ /^53200: / ? $refused : $written ? 'half done' : 'out of memory';
		++$outcomes{$what}{$outcome};
	}
}
all_are('done, out of memory',
	'a backend out of memory reports 53200, writes nothing, and keeps its session');
is(sql_in('postgres', 'SELECT pg_postmaster_start_time()'), $started,
	'the server survives backends without memory');

# A claim or ack without memory leaves its consumer unchanged.
is(sql_in('postgres', q{SELECT count(*) FROM _outbox.leases JOIN outbox_consumers
			USING (consumer_id) WHERE name = 'd' AND acked_at IS NULL AND superseded_by IS NULL}),
	0, 'a claim is rolled back with the ack that failed');
sql_in('postgres', q{UPDATE _outbox.leases SET locked_until = clock_timestamp() - interval '1 s'
		WHERE acked_at IS NULL AND superseded_by IS NULL;
	CREATE TABLE got (consumer text, id bigint);
	DO $$ DECLARE consumer text; BEGIN
		FOREACH consumer IN ARRAY '{c,d}'::text[] LOOP
			LOOP
				INSERT INTO got SELECT consumer, id FROM outbox_consume(consumer, 1000);
				EXIT WHEN NOT FOUND;
			END LOOP;
		END LOOP;
	END $$});
is(sql_in('postgres', q{SELECT count(*) = (SELECT count(*)
			FROM outbox_messages), count(*) = count(DISTINCT id) FROM got WHERE consumer = 'c'}),
	't|t', 'messages of expired leases are delivered again, each once');
is(sql_in('postgres', q{SELECT status, count(*) = (SELECT count(*) FROM outbox_messages)
			FROM outbox_deliveries WHERE consumer_name = 'd' GROUP BY 1}), 'COMPLETED|t',
	'messages that were not acked are delivered again');

# The memory of the relay is limited.
create_sink($node, 'sink', { url => $receiver->url('/memory') }, undef, 'postgres');
my @sent;
for my $more (map { $_ * 1024 } 0, 1024, 6144)
{
	ok(wait_until(sub { relay_pid($node) }, 20), 'a relay serves the database');
	my $pid = relay_pid($node);
	limit_memory($pid, $more);
	push @sent, split /\n/, sql_in('postgres', q{SELECT outbox_enqueue('Order', i % 3, 'Large',
			payload) FROM large, generate_series(1, 20) i});
	sleep 0.5;
	unlimit_memory($pid) if -e "/proc/$pid";
}
wait_for_all('a relay whose memory was limited', @sent);
like(slurp_file($node->logfile),
	qr/WARNING:  outbox: sink "sink": (?:out of memory|std::bad_alloc)/,
	'the relay logs that it is out of memory');

# The relay cannot open more files.
my $relay = relay_pid($node);
limit_files($relay);
my $looked = -s $node->logfile;
create_sink($node, 'second', { url => $receiver->url('/files') }, undef, 'postgres');
my $second =
  qr/WARNING:  outbox: sink "second" (?:cannot be opened: .*Too many open files|is paused)/;
ok(wait_until(sub { substr(slurp_file($node->logfile), $looked) =~ $second }, 20),
	 'a relay without file descriptors logs it');
is(sql_in('postgres', q{SELECT paused FROM outbox_consumers WHERE name = 'second'}), 'f',
	'a relay without file descriptors does not pause the sink');
unlimit_files($relay);
wait_for_all('a relay that gets file descriptors again',
	sql_in('postgres', q{SELECT outbox_enqueue('Order', 1, 'Late', '{}')}));
ok(wait_until(sub { $receiver->accepted_ids('/files') }, 20),
	'the relay delivers to the new sink, too');
is(relay_pid($node), $relay, 'the relay keeps its process');

is(sql_in('postgres', 'SELECT pg_postmaster_start_time()'), $started,
	'the server survives a relay without resources');
unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC|reinitializing/,
	'no process crashed, and the server did not restart its processes');
$node->stop;

# The disk of the WAL is full. The server goes down, and every event that it confirmed must be there
# after recovery.
my $writer = start_node('wal', init => { extra => [ '--waldir', "$disk/wal", '--wal-segsize', 1 ] },
	conf => "wal_keep_size = '1GB'\nmin_wal_size = '2MB'\nmax_wal_size = '4MB'\n"
	  . "outbox.relay_interval = '500ms'\nlog_statement = none\nlog_min_duration_statement = -1\n");
$writer->safe_psql('postgres', 'SELECT outbox_setup()');
create_sink($writer, 'sink', { url => $receiver->url('/wal') });
fill($disk, 0);
my ($status, @acked) = (0);
for (1 .. 60)
{
	($status, my $out, my $error) = $writer->psql('postgres', q{SELECT outbox_enqueue('Order', i,
			'Logged', to_jsonb(repeat(md5(i::text), 20))) FROM generate_series(1, 200) i});
	last if $status;
	push @acked, split /\n/, $out;
}
isnt($status, 0, 'a server without room for WAL goes down, after ' . @acked . ' events');
$writer->stop('immediate', fail_ok => 1);
make_room($disk);
$writer->start;
my %there = map { $_ => 1 } split /\n/,
  $writer->safe_psql('postgres', 'SELECT tracking_id FROM outbox_messages');
is(scalar(grep { !$there{$_} } @acked), 0, 'every confirmed event is there after recovery');
is((keys %there) % 200, 0, 'every statement is there completely or not at all');
wait_for_all('after recovery', keys %there);
$writer->stop;
log_has_only($writer, qr/PANIC:  could not write to file "pg_wal|terminated by signal 6/, 1,
	'the server log has the panic and no other trouble');

done_testing();
