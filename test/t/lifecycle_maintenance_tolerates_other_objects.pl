# Maintenance tolerates other objects and settings around the log: publications, columns, views,
# settings of a session, rules, pg_upgrade, no free worker, and tables of other roles with the names
# of partitions.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use OutboxAge;
use OutboxReceiver;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $cold = PostgreSQL::Test::Utils::tempdir('cold');
my $node = start_node('main', conf => qq{
	outbox.maintenance_interval = '1h'
	outbox.archive_retention = '60d'
	outbox.cold_storage_dir = '$cold'
	wal_level = logical
	autovacuum = off
});

sub sql
{
	return $node->safe_psql('postgres', @_);
}

# Steps that outbox_maintain() could not do.
sub not_done
{
	return sql('SELECT step, object, detail FROM outbox_maintain() WHERE NOT changed');
}

# Maintains until no step waits for its turn: one call moves rows of one day out of the default
# partition.
sub maintain
{
	my $rounds = 0;
	my $left;
	do { $left = not_done() } while ($left =~ /postponed to the next transaction$/m && ++$rounds < 20);
	return $left;
}

sub at
{
	my (@days) = @_;
	return join ' ', map { place($node, $_) } @days;
}

set_up_age($node);
sql('SELECT outbox_setup()');
ok(wait_until(sub { relay_pid($node) }), 'a relay runs');
ok(wait_until(sub {
	sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox maintenance'") == 0 }),
	'no maintenance worker runs');

# With a publication for all tables the server refuses UPDATE and DELETE in tables without replica
# identity.
sql('CREATE PUBLICATION everything FOR ALL TABLES');
sql(q{SELECT audit_record('me', 'made', 'Order', '1')});
sql(q{INSERT INTO audit_log (occurred_at, actor, action, entity_type, entity_id)
	VALUES (now() - interval '100 days', 'me', 'made', 'Visit', '1')});
sql(q{SELECT audit_set_retention('Visit', '1 day')});
sql(old_event(20));
my $left;
ok(wait_until(sub { ($left = maintain()) eq '' }),
	'a publication for all tables prevents no step of maintenance') or diag($left);
is(at(20), 'archive', 'an old event is archived beside a publication for all tables');
is(sql(q{SELECT count(*) FROM audit_log}) . sql(q{SELECT count(*) FROM audit_verify()
	WHERE NOT ok}), '10',
	'audit rows are removed by retention beside a publication for all tables');
is(sql(q{SELECT string_agg(c.oid::regclass::text, ' ' ORDER BY c.relname) FROM pg_class c
	LEFT JOIN pg_index i ON i.indrelid = c.oid AND (i.indisprimary OR i.indisreplident)
	WHERE c.relkind = 'r' AND c.relnamespace IN ('public'::regnamespace, '_outbox'::regnamespace)
	AND c.relreplident <> 'f' AND i.indrelid IS NULL}),
	'_outbox.audit_log_template _outbox.maintenance_state _outbox.messages_template',
	'every table with changing rows has a replica identity');
sql('DROP PUBLICATION everything');

# Old events of many days are moved one day at a time, so that readers and writers wait for one day
# at most.
sql(join '', map { old_event($_) } 10 .. 15);
is(sql(q{SELECT detail FROM outbox_maintain() WHERE step = 'partitions' ORDER BY changed}),
	"postponed to the next transaction\ncreated for 1 events from the default partition",
	'one outbox_maintain() moves the old events of one day');
is(maintain() . at(10 .. 15), 'archive archive archive archive archive archive',
	'repeated outbox_maintain() moves the old events of all days');
sql(join '', map { old_event($_) } 16 .. 19);
settings($node, maintenance_interval => '1s');
comes_to($node, $_, 'archive',
	"the maintenance worker moves the old events of all days ($_ days ago)") for 16, 19;
settings($node, maintenance_interval => '1h');

# A user column that was added to the log, and one that was dropped again.
sql(q{
	ALTER TABLE outbox_messages ADD COLUMN gone integer, ADD COLUMN "Region ""x""" text COLLATE "C"
	DEFAULT 'eu', ADD COLUMN twice integer GENERATED ALWAYS AS (event_version * 2) STORED;
	ALTER TABLE outbox_messages DROP COLUMN gone});
my $region = '"Region ""x""", twice';
sql(old_event(9));
sql(q{INSERT INTO outbox_messages (occurred_at, aggregate_type, aggregate_id, event_type, payload,
	"Region ""x""") VALUES (age.noon(9), 'Order', 'us', 'OrderConfirmed', '{}', 'us')});
is(maintain() . at(9), 'archive', 'a partition with a user column is archived');
is(sql("SELECT aggregate_id, $region FROM outbox_messages_archive WHERE occurred_at >= age.noon(9) "
	. "ORDER BY id"), "9|eu|2\nus|us|2", 'an archived partition keeps the values of user columns');
is(sql("SELECT count(*) FROM outbox_messages_archive WHERE \"Region \"\"x\"\"\" IS NULL"), 11,
	'partitions that were archived before have NULL in the user column');
settings($node, archive_retention => '8d');
ok(wait_until(sub { maintain(); at(9) eq 'gone' }), 'a partition with a user column is exported');
my $file = sql(q{SELECT file FROM outbox_cold_files WHERE partition = age.partition(9)});
is(sql("SELECT outbox_restore_partition('$file')"), partition($node, 9),
	'a partition with a user column is restored');
is(sql("SELECT aggregate_id, $region FROM outbox_messages_archive WHERE occurred_at >= age.noon(9) "
	. "ORDER BY id"), "9|eu|2\nus|us|2", 'a restored partition has the values of user columns');
sql(q{ALTER TABLE outbox_messages DROP COLUMN twice;
	ALTER TABLE outbox_messages ADD COLUMN later integer});
sql(old_event(8));
is(maintain() . at(8), 'archive', 'a partition without a dropped user column is archived');
is(sql(q{SELECT aggregate_id, "Region ""x""", twice, later FROM outbox_messages_archive
	WHERE occurred_at >= age.noon(8)}), '8|eu||',
	'the archive keeps a user column that the log has dropped');

# ADD COLUMN with a domain checks every row, and rewrites the table if the domain is constrained.
# Partitions of the archive must not be rewritten.
sub files_of_archive
{
	return sql(q{SELECT string_agg(c.oid || ' ' || pg_relation_filenode(c.oid), ',' ORDER BY c.oid)
		FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
		WHERE inhparent = 'outbox_messages_archive'::regclass});
}
my $files = files_of_archive();
like($files, qr/,/, 'the archive has several partitions');
sql(q{CREATE DOMAIN wide AS text COLLATE "C" CHECK (value <> '');
	CREATE DOMAIN narrow AS wide NOT NULL DEFAULT 'none' CHECK (length(value) < 10);
	ALTER TABLE outbox_messages ADD COLUMN place narrow DEFAULT 'here'});
sql(old_event(27));
my $file_of_27 = sub { sql(q{SELECT pg_relation_filenode(age.partition(27)::regclass)}) };
settings($node, archive_retention => -1, hot_retention => '40d');
maintain();
my $before_27 = $file_of_27->();
settings($node, hot_retention => '7d');
ok(wait_until(sub { ($left = maintain()) eq '' && at(27) eq 'archive' }),
	'a partition with a column of a domain is archived') or diag($left);
is(sql(q{SELECT aggregate_id, place FROM outbox_messages_archive WHERE occurred_at < age.noon(26)}),
	'27|here', 'an archived partition keeps the values of a column of a domain');
is($file_of_27->(), $before_27,
	'a partition with a column of a domain is archived without a rewrite');
ok(index(files_of_archive(), $files) == 0,
	'no partition of the archive is rewritten for a column of a domain');

# A generated column of both log and archive.
sql(q{ALTER TABLE outbox_messages_archive ADD COLUMN thrice integer GENERATED ALWAYS AS
	(event_version * 3) STORED;
	ALTER TABLE outbox_messages ADD COLUMN thrice integer GENERATED ALWAYS AS (event_version * 3)
	STORED});
sql(old_event(28));
is(maintain() . at(28), 'archive', 'a partition with a generated column is archived');
is(sql(q{SELECT thrice FROM outbox_messages_archive WHERE occurred_at < age.noon(27)}), 3,
	'an archived partition keeps the values of a generated column');
sql(q{ALTER TABLE outbox_messages DROP COLUMN thrice, DROP COLUMN place;
	ALTER TABLE outbox_messages_archive DROP COLUMN thrice; DROP DOMAIN narrow CASCADE;
	DROP DOMAIN wide});

# A user's view on one partition keeps that partition only.
sql(join '', map { old_event($_) } 21 .. 23);
settings($node, archive_retention => '60d', cold_storage_dir => '');
maintain();
my $p22 = 'public.' . partition($node, 22);
sql("CREATE VIEW mine AS SELECT id FROM $p22");
settings($node, archive_retention => '20d');
ok(wait_until(sub { maintain(); at(21, 23) eq 'gone gone' }),
	'a view on a partition of the archive does not prevent the drop of others');
is(at(22), 'archive', 'a partition with a view is not dropped');
is(not_done(), "drop|$p22|cannot drop table $p22 because other objects depend on it",
	'outbox_maintain() gives the reason why a partition is not dropped');
my $overdue = 'partitions should have been archived or dropped';
my $why_not = 'For the reason, run SELECT \\* FROM outbox_maintain\\(\\) or see the server log';
my $archive_status = q{SELECT ok, detail, hint FROM outbox_status() WHERE component = 'archive'};
like(sql($archive_status),
	qr/^f\|1 $overdue, the first, \S+outbox_messages_p\S+, at \S+ \S+\|$why_not\.$/,
	'outbox_status() reports a partition that could not be dropped');
sql('DROP VIEW mine');
is(maintain() . at(22), 'gone', 'a partition is dropped once its view is dropped');
like(sql($archive_status), qr/^t\|/,
	'outbox_status() shows the archive as ok once the partition is dropped');
sql(join '', map { old_event($_) } 24 .. 26);
my $p25 = 'public.' . partition($node, 25);
sql(q{CREATE FUNCTION age.refuse() RETURNS event_trigger LANGUAGE plpgsql SET search_path =
	public AS $$
	BEGIN
		IF current_query() ~ 'outbox_maintain' AND EXISTS (SELECT
		FROM pg_event_trigger_ddl_commands() c
			WHERE c.object_identity ~ 'archive' AND to_regclass(age.partition(25)) IS NOT NULL
			  AND EXISTS (SELECT FROM pg_inherits
			WHERE inhrelid = to_regclass(age.partition(25))
			AND inhparent = 'outbox_messages_archive'::regclass)) THEN
			RAISE EXCEPTION 'not this one';
		END IF;
	END $$});
settings($node, archive_retention => -1, hot_retention => '30d');
maintain();
is(at(24 .. 26), 'log log log', 'three days are in the log');
sql(q{CREATE EVENT TRIGGER refuse ON ddl_command_end WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION
	age.refuse()});
settings($node, hot_retention => '7d');
ok(wait_until(sub { maintain(); at(24, 26) eq 'archive archive' }),
	'a partition that cannot be archived does not prevent the archival of others');
is(at(25), 'log', 'a partition that cannot be archived stays in the log');
is(not_done(), "archive|$p25|not this one",
	'outbox_maintain() gives the reason why a partition is not archived');
sql('DROP EVENT TRIGGER refuse');
is(maintain() . at(25), 'archive', 'a partition is archived once the event trigger is dropped');

# Objects of another role have the names of partitions: other partitions are made, and maintenance
# names the objects in the way.
my $lowly = start_node('lowly', conf => "outbox.maintenance_interval = '1h'\nautovacuum = off\n",
	no_extension => 1);
set_up_age($lowly);
sub lowly
{
	return $lowly->safe_psql('postgres', $_[0], extra_params => [ '-U', $_[1] // 'postgres' ]);
}
sub in_the_way
{
	return lowly(q{SELECT step, object, detail FROM outbox_maintain() WHERE NOT changed
		ORDER BY 1, 2});
}
sub status_of
{
	return lowly("SELECT ok, detail, hint FROM outbox_status() WHERE component = '$_[0]'");
}
lowly('CREATE ROLE lowly LOGIN; CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman; '
	. 'CREATE EXTENSION outbox; GRANT CREATE ON SCHEMA public TO lowly');
my ($week, $next, $sooner, $past) = map { 'public.' . partition($lowly, $_) } -10, -9, -3, 5;
my $month = 'public.' . lowly(q{SELECT 'audit_log_p' || to_char(now(),
	CASE WHEN extversion < '5' THEN 'YYYY_MM' ELSE 'YYYYMMDD' END) FROM pg_extension
	WHERE extname = 'pg_partman'}) =~ s/(\d{6})\d\d$/${1}01/r;
my $remedy = 'Drop or rename it, then run SELECT outbox_maintain().';
my $is_in_the_way = 'has the name of a partition, but is another object, owned by lowly';
lowly("CREATE TABLE $sooner (); CREATE VIEW $past AS SELECT 1; CREATE SEQUENCE $month; "
	. "CREATE TYPE $next AS ENUM ()", 'lowly');
lowly(q{SELECT outbox_setup(); SELECT audit_record('me', 'made', 'Order', '1')} . ';' . old_event(5)
	. old_event(6));
is(lowly('SELECT count(*) FROM _outbox.partitions() WHERE NOT is_default'), 7,
	'partitions with free names are made');
my $told;
ok(wait_until(sub { ($told = in_the_way()) !~ /turn$/m }),
	'outbox_maintain() moves every row that has a partition');
is($told, "audit_partitions|$month|$is_in_the_way\n"
	. join("\n", map { "partitions|$_|$is_in_the_way" } sort $past, $sooner),
	'outbox_maintain() names the objects in the way');
isnt(place($lowly, 6), 'gone', 'an object in the way of one day does not stop another day');
like(status_of('partitions'),
	qr/^f\|\d+, up to \S+ \S+, but none for .*\|\Q$sooner $is_in_the_way. $remedy\E$/,
	'outbox_status() names an object in the way of the log');
like(status_of('audit partitions'),
	qr/^f\|\d+, up to \S+ \S+, but none for .*\|\Q$month $is_in_the_way.\E/,
	'outbox_status() names an object in the way of the audit log');
is(lowly('SELECT (outbox_health()).status'), 'degraded',
	'outbox_health() is degraded by an object in the way, not failed');
lowly("UPDATE partman.part_config SET premake = 11 WHERE parent_table = 'public.outbox_messages'");
lowly("CREATE TABLE $week ()", 'lowly');
is(in_the_way(), "audit_partitions|$month|$is_in_the_way\n"
	. join("\n", map { "partitions|$_|$is_in_the_way" } sort $past, $sooner, $week, $next),
	'outbox_maintain() names every object in the way');
is(lowly('SELECT count(*) FROM _outbox.partitions() '
	. 'WHERE upper_bound > now() + interval \'11 days\''), 1,
	'partitions behind objects in the way are made');
lowly("DROP TABLE $week, $sooner; DROP VIEW $past; DROP TYPE $next; DROP SEQUENCE $month", 'lowly');
ok(wait_until(sub { in_the_way() eq '' }),
	'maintenance completes once the objects in the way are dropped') or diag(in_the_way());
is(lowly('SELECT count(*) FROM _outbox.missing_partitions()'), 0,
	'no partition is missing once the objects in the way are dropped');
is(place($lowly, 5), 'log', 'a partition of the past is made once its name is free');
like(status_of($_), qr/^t\|[0-9]+, up to \S+ \S+\|$/,
	"outbox_status() shows $_ as ok once their names are free") for 'partitions',
	'audit partitions';
is(lowly(q{SELECT count(*) FROM audit_verify() WHERE NOT ok}), 0,
	'the audit chain is valid after objects in the way');
# A partition of the archive is dropped by hand, and another role takes its name.
settings($lowly, hot_retention => '4d');
ok(wait_until(sub { in_the_way(); place($lowly, 5) . place($lowly, 6) eq 'archivearchive' }),
	'two days are archived');
lowly("DROP TABLE $past");
lowly("CREATE TABLE $past (id int)", 'lowly');
settings($lowly, archive_retention => '1d',
	cold_storage_dir => PostgreSQL::Test::Utils::tempdir('lowly'));
ok(wait_until(sub { in_the_way(); place($lowly, 6) eq 'gone' }),
	'another partition is exported beside a table with the name of a dropped one');
is(lowly("SELECT count(*) FROM $past", 'lowly') . lowly('SELECT count(*) > 5 FROM outbox_status()'),
	'0t', 'maintenance keeps a table of another role with the name of a partition');
$lowly->stop;

# Bounds of partitions do not depend on TimeZone and DateStyle of a session.
my $bounds = q{SELECT sum(extract(epoch FROM upper_bound - lower_bound)), min(extract(epoch
	FROM lower_bound)), count(*) FROM _outbox.partitions()};
my $known = sql($bounds);
for my $zone ('Asia/Jakarta', 'Asia/Shanghai', 'America/Sao_Paulo', 'UTC')
{
	for my $style ('SQL, DMY', 'German, DMY', 'Postgres, MDY')
	{
		is(sql("SET datestyle = '$style'; SET timezone = '$zone'; $bounds"), $known,
			"bounds of partitions do not depend on TimeZone $zone and DateStyle $style");
	}
}
is(sql("SET datestyle = 'SQL, DMY'; SET timezone = 'Asia/Jakarta'; SELECT ok FROM outbox_status() "
	. "WHERE component = 'partitions'"), 't',
	'outbox_status() does not depend on TimeZone and DateStyle');

# Creates a user's trigger on the log that refuses events of one aggregate.
sub forbid
{
	my ($id, $error, $message, $trigger) = @_;
	sql($_) for qq{CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS \$\$
		BEGIN
			IF NEW.aggregate_id = '$id' THEN
				RAISE $error USING MESSAGE = '$message';
			END IF;
			RETURN NEW;
		END \$\$}, "CREATE $trigger FOR EACH ROW EXECUTE FUNCTION forbid()";
	return;
}

# A user's CHECK constraint on the log: only scheduled events that violate it are refused.
sql('ALTER TABLE outbox_messages ADD CONSTRAINT shop_rule CHECK (aggregate_id <> $$bad$$) NOT '
	. 'VALID');
sql(q{SELECT outbox_enqueue('Order', id, 'ReminderDue', '{}',
	available_at => clock_timestamp() + interval '200 ms') FROM unnest('{1,bad,2}'::text[]) id});
ok(wait_until(sub { sql(q{SELECT count(*) FROM outbox_messages WHERE event_type = 'ReminderDue'})
	== 2 }), 'the relay releases scheduled events beside one that violates a CHECK constraint');
like(sql('SELECT aggregate_id, last_error FROM outbox_scheduled'),
	qr/^bad\|.*violates check constraint "shop_rule"$/,
	'outbox_scheduled keeps a refused event with the error');
logged($node, 0, qr/WARNING:  outbox: scheduled events that the log refused: 1\n/,
	'the server log counts the refused events');

# A deferred constraint trigger: only scheduled events that violate it are refused.
forbid('late', 'check_violation', 'too late',
	'CONSTRAINT TRIGGER forbid AFTER INSERT ON outbox_messages DEFERRABLE INITIALLY DEFERRED');
sql(q{SELECT outbox_enqueue('Order', id, 'ReminderDue', '{}',
	available_at => clock_timestamp() + interval '200 ms')
	FROM unnest('{early,late,later}'::text[]) id});
ok(wait_until(sub {
	sql(q{SELECT count(*) FROM outbox_messages WHERE aggregate_id IN ('early', 'later')}) == 2 }),
	'the relay releases scheduled events beside one that violates a deferred constraint');
is(sql(q{SELECT last_error FROM outbox_scheduled WHERE aggregate_id = 'late'}), 'too late',
	'outbox_scheduled keeps an event that violates a deferred constraint');
like(refusal($node, 'SELECT outbox_release_due()'), qr/too late/,
	'outbox_release_due() leaves a deferred constraint to the commit of the caller');
is(sql('BEGIN; SET CONSTRAINTS ALL IMMEDIATE; SELECT outbox_release_due(); COMMIT'), 0,
	'outbox_release_due() refuses the event if the caller has set constraints immediate');
is(sql(q{SELECT outbox_cancel(tracking_id) FROM outbox_scheduled WHERE aggregate_id = 'late'}), 't',
	'an event refused by a deferred constraint can be cancelled');
sql('DROP FUNCTION forbid() CASCADE');

sub next_xid
{
	return sql('SELECT pg_snapshot_xmax(pg_current_snapshot())');
}

# Sets when refused events are tried again. The relay looks for due events when it reloads its
# configuration.
sub try_again
{
	my ($when, $which) = @_;
	sql("UPDATE _outbox.scheduled SET try_again_at = $when, refusals = 1 "
		. "WHERE try_again_at IS NOT NULL AND " . ($which // 'true'));
	sql('SELECT pg_reload_conf()');
	return;
}

sub release_one
{
	my ($id, $what) = @_;
	sql("SELECT outbox_enqueue('Order', '$id', 'ReminderDue', '{}', "
		. "available_at => clock_timestamp() + interval '200 ms')");
	return ok(wait_until(sub {
		sql("SELECT count(*) FROM outbox_messages WHERE aggregate_id = '$id'") }), $what);
}

# Refused events cost no transactions before their next attempt.
sql(q{INSERT INTO _outbox.scheduled SELECT now() - (3000 - i) * interval '1 second', 0,
	_outbox.new_tracking_id(), 1, 'Order', 'bad', 'ReminderDue',
	jsonb_build_object('n', i), '{}' FROM generate_series(1, 2000) i});
sql('SELECT pg_reload_conf()');
ok(wait_until(sub { sql('SELECT count(try_again_at) FROM outbox_scheduled') == 2001 }),
	'2,001 events are refused');
try_again(q{now() + interval '1 hour'});
my $xid = next_xid();
for (1 .. 10)
{
	sql('SELECT pg_reload_conf()');
	sleep 0.1;
}
release_one('behind', 'a scheduled event behind refused events is released');
cmp_ok(next_xid() - $xid, '<', 200,
	'refused events cost few transactions before their next attempt');
is(sql('SELECT count(*) FROM outbox_scheduled WHERE refusals = 1'), 2001,
	'the relay does not try refused events before their next attempt');
try_again('now()', q{payload = '{}'});
ok(wait_until(sub {
	sql('SELECT string_agg(refusals::text, $$ $$) FROM outbox_scheduled WHERE refusals > 1')
	  eq '2' }), 'the relay tries a refused event that is due, and no other');

# insufficient_privilege is an error of the event.
forbid('forbidden', 'insufficient_privilege', 'not for you',
	'TRIGGER forbid BEFORE INSERT ON outbox_messages');
sql(q{SELECT outbox_enqueue('Order', 'forbidden', 'ReminderDue', '{}',
	available_at => clock_timestamp() + interval '100 ms')});
ok(wait_until(sub { sql(q{SELECT last_error FROM outbox_scheduled WHERE aggregate_id = 'forbidden'})
	eq 'not for you' }), 'an event that fails with insufficient_privilege is refused');
release_one('allowed', 'an event refused for insufficient_privilege does not stop others');
is(sql(q{SELECT outbox_cancel(tracking_id) FROM outbox_scheduled WHERE aggregate_id = 'forbidden'}),
	't', 'an event refused for insufficient_privilege can be cancelled');
sql('DROP FUNCTION forbid() CASCADE');

# An error that is not about the event.
forbid('bad', 'object_in_use', 'not for you', 'TRIGGER forbid BEFORE INSERT ON outbox_messages');
my $spoken = -s $node->logfile;
try_again('now()', q{payload = '{}'});
logged($node, $spoken, qr/WARNING:  .*scheduled events cannot be released: not for you\n/,
	'the server log reports an error that is not about the event');
release_one('beside', 'an error that is not about the event does not stop others');
is(sql('SELECT count(*) FROM outbox_scheduled WHERE refusals > 1'), 0,
	'an error that is not about the event does not count as refusal');
sql('DROP FUNCTION forbid() CASCADE');

# The log accepts the refused events: the relay releases them at their next attempt,
# outbox_release_due() at once.
sql('ALTER TABLE outbox_messages DROP CONSTRAINT shop_rule');
try_again('now()', q{payload = '{}'});
ok(wait_until(sub { sql(q{SELECT count(*) FROM outbox_messages WHERE aggregate_id = 'bad'}) == 1 }),
	'the relay releases a refused event once the log accepts it');
sql('SELECT pg_reload_conf()');
sleep 1;
is(sql('SELECT count(*) FROM outbox_scheduled'), 2000,
	'the relay leaves refused events until their next attempt');
$xid = next_xid();
is(sql('SELECT outbox_release_due(10000)'), 2000,
	'outbox_release_due() releases refused events before their next attempt');
cmp_ok(next_xid() - $xid, '<', 20,
	'outbox_release_due() releases refused events in few transactions');
is(sql(q{SELECT string_agg(payload ->> 'n', ' ' ORDER BY id) FROM outbox_messages
	WHERE aggregate_id = 'bad' AND payload ? 'n'}), join(' ', 1 .. 2000),
	'outbox_release_due() keeps the order of refused events');

# A server in binary upgrade mode, as pg_upgrade starts it.
sub workers
{
	return sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^outbox'});
}
ok(wait_until(sub { workers() > 0 }), 'background workers run before the binary upgrade');
$node->stop;
system_or_bail('pg_ctl', '-D', $node->data_dir, '-l', $node->logfile, '-w', '-o',
	'-b --cluster-name=' . $node->name, 'start');
my $before = sql('SELECT pg_snapshot_xmax(pg_current_snapshot())');
sleep 2;
is(workers(), 0, 'no background worker runs in binary upgrade mode');
is(sql('SELECT pg_snapshot_xmax(pg_current_snapshot())'), $before,
	'outbox starts no transaction in binary upgrade mode');
system_or_bail('pg_ctl', '-D', $node->data_dir, '-w', 'stop');
$node->{_pid} = undef;

# No worker slot is free for maintenance: the logical replication launcher, the launcher of outbox
# and a relay have all three.
my $tight = start_node('tight',
	conf => "max_worker_processes = 3\noutbox.maintenance_interval = '1s'\nautovacuum = off\n");

sub maintenance_status
{
	return $tight->safe_psql('postgres', q{SELECT ok, detail, hint FROM outbox_status()
		WHERE component = 'maintenance'});
}
$tight->safe_psql('postgres', 'SELECT outbox_setup()');
ok(wait_until(sub { relay_pid($tight) }), 'a relay runs');
my $no_slot = 'no maintenance for database "postgres": no worker slot is free';
logged($tight, 0, qr/WARNING:  outbox: $no_slot\n.*HINT:  Raise max_worker_processes\./,
	'the server log reports that no worker slot is free for maintenance');
is(maintenance_status(),
	'f|no worker slot is free|Raise max_worker_processes. Until then, run '
	  . 'SELECT outbox_maintain() yourself.',
	'outbox_status() reports that no worker slot is free for maintenance');
$tight->safe_psql('postgres', 'SELECT _outbox.request_maintenance()') for 1 .. 3;
sleep 1;
is(() = slurp_file($tight->logfile) =~ /no maintenance for database/g, 1,
	'the server log reports once that no worker slot is free');
$tight->append_conf('postgresql.conf', 'max_worker_processes = 4');
$tight->restart;
whole_run($tight);
like(maintenance_status(), qr/^t\|since /, 'maintenance runs with one more worker slot');

done_testing();
