# ALTER EXTENSION outbox UPDATE has the same result as CREATE EXTENSION, for every update script. A
# made-up version "next" shows that sessions and the relay continue across an update. Under
# OUTBOX_SELFTEST, update scripts that lack one statement each show that the comparison detects a
# missing statement.
use strict;
use warnings;
use File::Copy ();
use FindBin;
use lib "$FindBin::RealBin/lib";
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

# A writable copy of the installed files.
my $stage = PostgreSQL::Test::Utils::tempdir('stage');
my $conf = staged();
my ($installed) = $conf =~ m{'(/[^']*?)/usr/lib/};
system_or_bail('cp', '-r', "$installed/.", $stage);
my ($scripts) = glob "$stage/usr/share/postgresql/*/extension";
append_to_file("$stage.conf", $conf =~ s/\Q$installed\E/$stage/gr);

my $node = start_node('main', no_extension => 1, stage => "$stage.conf",
	conf => "outbox.relay_interval = '1h'\noutbox.backoff_base = '100ms'\n"
	  . "outbox.backoff_max = '500ms'\nautovacuum = off\nmax_worker_processes = 16\n");
my $facts = slurp_file("$FindBin::RealBin/lib/extension_facts.sql");
my ($default) = slurp_file("$scripts/outbox.control") =~ /^default_version = '(.+)'/m;

# A database with a version of the extension.
sub database
{
	my ($name, $version) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $name");
	$node->safe_psql($name,
		"SET client_min_messages = warning; CREATE EXTENSION outbox VERSION '$version' CASCADE");
}

sub fresh
{
	my ($version) = @_;
	database('fresh', $version);
	my $known = $node->safe_psql('fresh', $facts);
	$node->safe_psql('postgres', 'DROP DATABASE fresh');
	return $known;
}

# The facts of the extension after an update, which is rolled back.
sub updated
{
	my ($database, $version) = @_;
	return $node->safe_psql($database,
		"BEGIN; ALTER EXTENSION outbox UPDATE TO '$version'; $facts; ROLLBACK");
}

sub difference
{
	my ($fresh, $updated) = @_;
	my %fresh = map { $_ => 1 } split /\n/, $fresh;
	my %updated = map { $_ => 1 } split /\n/, $updated;
	return join "\n", map { substr $_, 0, 300 }
	  ((map { "missing after the update: $_" } grep { !$updated{$_} } sort keys %fresh),
		(map { "only after the update: $_" } grep { !$fresh{$_} } sort keys %updated));
}

# Each released version has an install script and an update path to the newest version.
sub versions_without_update_path
{
	return $node->safe_psql('postgres',
		"SELECT string_agg(source, ' ' ORDER BY source) FROM pg_extension_update_paths('outbox')
		WHERE target = '$default' AND path IS NULL");
}

is(versions_without_update_path(), '', "every version has an update path to $default");
for my $script (glob "$scripts/outbox--*--*.sql")
{
	my ($from, $to) = $script =~ /outbox--(.+)--(.+)\.sql$/;
	ok(-e "$scripts/outbox--$_.sql", "version $_ has an install script") for $from, $to;
	my $name = "from_$from" =~ s/\W/_/gr;
	database($name, $from) unless $node->safe_psql('postgres',
		"SELECT 1 FROM pg_database WHERE datname = '$name'");
	is(difference(fresh($to), updated($name, $to)), '',
		"an update from $from to $to has the same result as a new $to");
}

# The next version: each line is a statement that an update script may lack.
my @next = split /\n/, <<'SQL';
CREATE FUNCTION outbox_probe() RETURNS integer LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS 'SELECT 1';
COMMENT ON FUNCTION outbox_probe() IS 'probes';
REVOKE ALL ON FUNCTION outbox_probe() FROM PUBLIC;
ALTER FUNCTION _outbox.new_tracking_id() COST 2;
CREATE OR REPLACE VIEW outbox_stats_held AS SELECT * FROM _outbox.collect_held() WHERE true;
ALTER TABLE _outbox.consumers ADD COLUMN probing text DEFAULT 'none';
COMMENT ON COLUMN _outbox.consumers.probing IS 'a probe';
ALTER TABLE _outbox.consumers ALTER COLUMN probing SET DEFAULT 'nothing';
ALTER TABLE _outbox.consumers ADD CONSTRAINT probed CHECK (probing <> '');
CREATE INDEX outbox_consumers_probe ON _outbox.consumers (probing);
CREATE TABLE outbox_probes (id integer PRIMARY KEY, tenant_id bigint NOT NULL);
REVOKE ALL ON outbox_probes FROM PUBLIC;
INSERT INTO outbox_probes VALUES (1, 0);
ALTER TABLE outbox_probes SET (fillfactor = 90);
ALTER TABLE outbox_probes ENABLE ROW LEVEL SECURITY;
CREATE POLICY probe ON outbox_probes USING (tenant_id = 0);
COMMENT ON POLICY probe ON outbox_probes IS 'only these';
CREATE TRIGGER probe BEFORE UPDATE ON outbox_probes FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
SELECT pg_catalog.pg_extension_config_dump('outbox_probes', '');
ALTER SEQUENCE _outbox.consumers_id_seq START 7;
ALTER EVENT TRIGGER outbox_before_drop ENABLE ALWAYS;
SQL
# A statement is left out together with those that depend on it.
my $bases = join '|', 'CREATE FUNCTION (outbox_probe)\b',
  'ALTER TABLE _outbox.consumers ADD COLUMN (probing)', 'CREATE TABLE (outbox_probes)',
  'CREATE (POLICY probe)';

sub next_without
{
	my ($line) = @_;
	my ($basis) = grep { defined } $line =~ /^(?:$bases)/;
	return grep { defined $basis ? !/\b$basis\b/ : $_ ne $line } @next;
}

sub write_version
{
	my ($version, @delta) = @_;
	File::Copy::copy("$scripts/outbox--$default.sql", "$scripts/outbox--$version.sql") or die $!;
	append_to_file("$scripts/outbox--$version.sql", join("\n", @next) . "\n");
	append_to_file("$scripts/outbox--$default--$version.sql", join("\n", @delta) . "\n");
}

# The update script of scripts/install-script --update without changes replaces every function and
# view by itself.
File::Copy::copy("$scripts/outbox--$default.sql", "$scripts/outbox--same.sql") or die $!;
File::Copy::copy($ENV{OUTBOX_UPDATE_SCRIPT}, "$scripts/outbox--$default--same.sql") or die $!;
database('replaced', $default);
$node->safe_psql('replaced', q{CREATE ROLE ops; SELECT outbox_grant('ops', 'admin')});
my $granted = q{SELECT count(*) FROM pg_proc p
	WHERE has_function_privilege('ops', p.oid, 'EXECUTE')
	AND p.proname ~ '^(outbox|idempotency|audit|has_passed)'};
my $before = $node->safe_psql('replaced', $granted);
is(difference($node->safe_psql('replaced', $facts), updated('replaced', 'same')), '',
	'an update that replaces every function changes no fact of the extension');
# A grant to PUBLIC is the administrator's, like any other.
$node->safe_psql('replaced', q{GRANT EXECUTE ON FUNCTION outbox_status() TO PUBLIC;
	ALTER EXTENSION outbox UPDATE TO 'same'; REVOKE EXECUTE ON FUNCTION outbox_status() FROM PUBLIC});
is($node->safe_psql('replaced', $granted), $before,
	'an update that replaces every function keeps granted privileges');

write_version('next', @next);
if ($ENV{OUTBOX_SELFTEST})
{
	write_version("next$_", next_without($next[$_])) for 0 .. $#next;
	like(versions_without_update_path(), qr/^next next0 /,
		'selftest: a version without an update path to the newest is detected');
}
database('shop', $default);
my $next = fresh('next');
is(difference($next, updated('shop', 'next')), '',
	'a complete update script has the same result as a new extension');
for my $line ($ENV{OUTBOX_SELFTEST} ? 0 .. $#next : ())
{
	isnt(difference($next, updated('shop', "next$line")), '',
		"selftest: a missing statement is detected: $next[$line]");
}

# An update while events are in flight and sessions are open.
my $receiver = OutboxReceiver->start('receiver');
create_sink($node, 'sink', { url => $receiver->url, timeout => seconds(60) }, undef, 'shop');
my $session = $node->background_psql('shop');
$session->query_safe(enqueue('before'));
$node->safe_psql('shop', q{SELECT outbox_create_consumer('worker')});
$session->query_safe(q{SELECT count(*) FROM outbox_claim('worker')});
$receiver->wait_for(1) or die 'no event is delivered';
my $pid = relay_pid($node, 'shop');
$receiver->control({ do => 'hang' });
$session->query_safe(enqueue('flying'));
$receiver->wait_for(2) or die 'no request is in flight';
my $position = -s $node->logfile;
cmp_ok(elapsed(sub { $node->safe_psql('shop', "ALTER EXTENSION outbox UPDATE TO 'next'") }), '<', 2,
	'an update does not wait for a request in flight');
create_sink($node, 'later', { url => $receiver->url('/later') }, undef, 'shop');
$session->query_safe(enqueue('after'));
$receiver->control();
$receiver->drop_connections;
my $arrived = sub { join ' ', sort map { $_->{path} . header($_, 'ce-partitionkey') }
	grep { $_->{answer} eq '200' } $receiver->records };
ok(wait_until(sub { $arrived->() eq '/after /before /flying /laterafter' }),
	'events from before, during and after an update arrive')
  or diag($arrived->());
unlike(substr(slurp_file($node->logfile), $position), qr/ERROR|FATAL|cannot be read/,
	'an update causes no error in the server log');
is(relay_pid($node, 'shop'), $pid, 'the relay keeps its process across an update');
is($session->query_safe(q{SELECT string_agg(aggregate_id, ', ' ORDER BY id)
	FROM outbox_consume('worker', 10)}), 'flying, after',
	'an open session continues to consume after an update');
is($node->safe_psql('shop', q{SELECT extversion FROM pg_extension WHERE extname = 'outbox'}),
	'next', 'pg_extension has the new version after an update');
is($node->safe_psql('shop', q{SELECT component, detail FROM outbox_status() WHERE NOT ok}), '',
	'outbox_status() shows every component as ok after an update');
$session->quit;

$node->stop;
done_testing();
