# What others do around the log does not stop maintenance: publications, columns, views, settings of a session, rules, pg_upgrade, no worker
# that is free. Nor does whoever takes the names of partitions.
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

# What maintenance by hand could not do.
sub not_done
{
	return sql('SELECT step, object, detail FROM outbox_maintain() WHERE NOT changed');
}

# All of maintenance: a round of it moves strays of one day.
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
ok(wait_until(sub { sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox maintenance'") == 0 }), 'and no maintenance');

# One that has all tables refuses to update or delete rows that it could not identify.
sql('CREATE PUBLICATION everything FOR ALL TABLES');
sql(q{SELECT audit_record('me', 'made', 'Order', '1')});
sql(q{INSERT INTO audit_log (occurred_at, actor, action, entity_type, entity_id) VALUES (now() - interval '100 days', 'me', 'made', 'Visit', '1')});
sql(q{SELECT audit_set_retention('Visit', '1 day')});
sql(old_event(20));
my $left;
ok(wait_until(sub { ($left = maintain()) eq '' }), 'a publication for all tables is in the way of nothing') or diag($left);
is(at(20), 'archive', 'a stray has left the default partition');
is(sql(q{SELECT count(*) FROM audit_log}) . sql(q{SELECT count(*) FROM audit_verify() WHERE NOT ok}), '10', 'rows of the audit log have gone by their retention');
is(sql(q{SELECT string_agg(c.oid::regclass::text, ' ' ORDER BY c.relname) FROM pg_class c
	LEFT JOIN pg_index i ON i.indrelid = c.oid AND (i.indisprimary OR i.indisreplident)
	WHERE c.relkind = 'r' AND c.relnamespace IN ('public'::regnamespace, '_outbox'::regnamespace) AND c.relreplident <> 'f' AND i.indrelid IS NULL}),
	'_outbox.audit_log_template _outbox.maintenance_state _outbox.messages_template', 'all whose rows can change say which is which');
sql('DROP PUBLICATION everything');

# Strays of many days: those who read or write wait for one of them at a time.
sql(join '', map { old_event($_) } 10 .. 15);
is(sql(q{SELECT detail FROM outbox_maintain() WHERE step = 'partitions' ORDER BY changed}), "postponed to the next transaction\ncreated for 1 events from the default partition", 'strays of one day move at a time');
is(maintain() . at(10 .. 15), 'archive archive archive archive archive archive', 'and all in the end');
sql(join '', map { old_event($_) } 16 .. 19);
settings($node, maintenance_interval => '1s');
comes_to($node, $_, 'archive', "the worker does it without being asked again, $_ days") for 16, 19;
settings($node, maintenance_interval => '1h');

# A column that somebody added to the log, and one that went again.
sql(q{
	ALTER TABLE outbox_messages ADD COLUMN gone integer, ADD COLUMN "Region ""x""" text COLLATE "C" DEFAULT 'eu', ADD COLUMN twice integer GENERATED ALWAYS AS (event_version * 2) STORED;
	ALTER TABLE outbox_messages DROP COLUMN gone});
my $region = '"Region ""x""", twice';
sql(old_event(9));
sql(q{INSERT INTO outbox_messages (occurred_at, aggregate_type, aggregate_id, event_type, payload, "Region ""x""") VALUES (age.noon(9), 'Order', 'us', 'OrderConfirmed', '{}', 'us')});
is(maintain() . at(9), 'archive', 'a column that the log was given goes with it to the archive');
is(sql("SELECT aggregate_id, $region FROM outbox_messages_archive WHERE occurred_at >= age.noon(9) ORDER BY id"), "9|eu|2\nus|us|2", 'with what was in it');
is(sql("SELECT count(*) FROM outbox_messages_archive WHERE \"Region \"\"x\"\"\" IS NULL"), 11, 'what was there before has none');
settings($node, archive_retention => '8d');
ok(wait_until(sub { maintain(); at(9) eq 'gone' }), 'it goes to cold storage');
my $file = sql(q{SELECT file FROM outbox_cold_files WHERE partition = age.partition(9)});
is(sql("SELECT outbox_restore_partition('$file')"), partition($node, 9), 'and comes back');
is(sql("SELECT aggregate_id, $region FROM outbox_messages_archive WHERE occurred_at >= age.noon(9) ORDER BY id"), "9|eu|2\nus|us|2", 'with what was in it');
sql(q{ALTER TABLE outbox_messages DROP COLUMN twice; ALTER TABLE outbox_messages ADD COLUMN later integer});
sql(old_event(8));
is(maintain() . at(8), 'archive', 'a column that the log has lost is none of what comes later');
is(sql(q{SELECT aggregate_id, "Region ""x""", twice, later FROM outbox_messages_archive WHERE occurred_at >= age.noon(8)}), '8|eu||', 'the archive keeps it for what had it');

# A domain is asked about every row of a table that gets a column of it. The archive's are not written for that.
sub files_of_archive
{
	return sql(q{SELECT string_agg(c.oid || ' ' || pg_relation_filenode(c.oid), ',' ORDER BY c.oid) FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid WHERE inhparent = 'outbox_messages_archive'::regclass});
}
my $files = files_of_archive();
like($files, qr/,/, 'the archive has some');
sql(q{CREATE DOMAIN wide AS text COLLATE "C" CHECK (value <> ''); CREATE DOMAIN narrow AS wide NOT NULL DEFAULT 'none' CHECK (length(value) < 10);
	ALTER TABLE outbox_messages ADD COLUMN place narrow DEFAULT 'here'});
sql(old_event(27));
my $file_of_27 = sub { sql(q{SELECT pg_relation_filenode(age.partition(27)::regclass)}) };
settings($node, archive_retention => -1, hot_retention => '40d');
maintain();
my $before_27 = $file_of_27->();
settings($node, hot_retention => '7d');
ok(wait_until(sub { ($left = maintain()) eq '' && at(27) eq 'archive' }), 'a column of a domain goes to the archive') or diag($left);
is(sql(q{SELECT aggregate_id, place FROM outbox_messages_archive WHERE occurred_at < age.noon(26)}), '27|here', 'with what was in it');
is($file_of_27->(), $before_27, 'and nothing is written for it');
ok(index(files_of_archive(), $files) == 0, 'nor of what was there before');

# An expression that log and archive have stays one.
sql(q{ALTER TABLE outbox_messages_archive ADD COLUMN thrice integer GENERATED ALWAYS AS (event_version * 3) STORED;
	ALTER TABLE outbox_messages ADD COLUMN thrice integer GENERATED ALWAYS AS (event_version * 3) STORED});
sql(old_event(28));
is(maintain() . at(28), 'archive', 'a stored column that the archive has, too, goes there');
is(sql(q{SELECT thrice FROM outbox_messages_archive WHERE occurred_at < age.noon(27)}), 3, 'as it is');
sql(q{ALTER TABLE outbox_messages DROP COLUMN thrice, DROP COLUMN place; ALTER TABLE outbox_messages_archive DROP COLUMN thrice; DROP DOMAIN narrow CASCADE; DROP DOMAIN wide});

# Somebody's view keeps one partition, and no other.
sql(join '', map { old_event($_) } 21 .. 23);
settings($node, archive_retention => '60d', cold_storage_dir => '');
maintain();
my $p22 = 'public.' . partition($node, 22);
sql("CREATE VIEW mine AS SELECT id FROM $p22");
settings($node, archive_retention => '20d');
ok(wait_until(sub { maintain(); at(21, 23) eq 'gone gone' }), 'a view on a partition of the archive keeps no other from being dropped');
is(at(22), 'archive', 'that one stays');
is(not_done(), "drop|$p22|cannot drop table $p22 because other objects depend on it", 'and it is said why');
my $archive_status = q{SELECT ok, detail, hint FROM outbox_status() WHERE component = 'archive'};
like(sql($archive_status), qr/^f\|1 partitions should have been archived or dropped, the first, \S+outbox_messages_p\S+, at \S+ \S+\|For the reason, run SELECT \* FROM outbox_maintain\(\) or see the server log\.$/, 'outbox_status() knows of it');
sql('DROP VIEW mine');
is(maintain() . at(22), 'gone', 'it goes when nothing is in the way any more');
like(sql($archive_status), qr/^t\|/, 'and all is well');
sql(join '', map { old_event($_) } 24 .. 26);
my $p25 = 'public.' . partition($node, 25);
sql(q{CREATE FUNCTION age.refuse() RETURNS event_trigger LANGUAGE plpgsql SET search_path = public AS $$
	BEGIN
		IF current_query() ~ 'outbox_maintain' AND EXISTS (SELECT FROM pg_event_trigger_ddl_commands() c
			WHERE c.object_identity ~ 'archive' AND to_regclass(age.partition(25)) IS NOT NULL
			  AND EXISTS (SELECT FROM pg_inherits WHERE inhrelid = to_regclass(age.partition(25)) AND inhparent = 'outbox_messages_archive'::regclass)) THEN
			RAISE EXCEPTION 'not this one';
		END IF;
	END $$});
settings($node, archive_retention => -1, hot_retention => '30d');
maintain();
is(at(24 .. 26), 'log log log', 'three days in the log');
sql(q{CREATE EVENT TRIGGER refuse ON ddl_command_end WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION age.refuse()});
settings($node, hot_retention => '7d');
ok(wait_until(sub { maintain(); at(24, 26) eq 'archive archive' }), 'one that cannot be archived keeps no other from it');
is(at(25), 'log', 'it stays in the log');
is(not_done(), "archive|$p25|not this one", 'and it is said why');
sql('DROP EVENT TRIGGER refuse');
is(maintain() . at(25), 'archive', 'until it can be');

# Names of partitions that somebody else has taken: the rest gets its partitions, and it is said what is in the way.
my $lowly = start_node('lowly', conf => "outbox.maintenance_interval = '1h'\nautovacuum = off\n", no_extension => 1);
set_up_age($lowly);
sub lowly { return $lowly->safe_psql('postgres', $_[0], extra_params => [ '-U', $_[1] // 'postgres' ]) }
sub in_the_way { return lowly(q{SELECT step, object, detail FROM outbox_maintain() WHERE NOT changed ORDER BY 1, 2}) }
sub status_of { return lowly("SELECT ok, detail, hint FROM outbox_status() WHERE component = '$_[0]'") }
lowly('CREATE ROLE lowly LOGIN; CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman; CREATE EXTENSION outbox; GRANT CREATE ON SCHEMA public TO lowly');
my ($week, $next, $sooner, $past) = map { 'public.' . partition($lowly, $_) } -10, -9, -3, 5;
my $month = 'public.' . lowly(q{SELECT 'audit_log_p' || to_char(now(), CASE WHEN extversion < '5' THEN 'YYYY_MM' ELSE 'YYYYMMDD' END) FROM pg_extension WHERE extname = 'pg_partman'}) =~ s/(\d{6})\d\d$/${1}01/r;
my $is_in_the_way = 'has the name of a partition, but is another object, owned by lowly';
lowly("CREATE TABLE $sooner (); CREATE VIEW $past AS SELECT 1; CREATE SEQUENCE $month; CREATE TYPE $next AS ENUM ()", 'lowly');
lowly(q{SELECT outbox_setup(); SELECT audit_record('me', 'made', 'Order', '1')} . ';' . old_event(5) . old_event(6));
is(lowly('SELECT count(*) FROM _outbox.partitions() WHERE NOT is_default'), 7, 'what can be made is made');
my $told;
ok(wait_until(sub { ($told = in_the_way()) !~ /turn$/m }), 'and moved');
is($told, "audit_partitions|$month|$is_in_the_way\n" . join("\n", map { "partitions|$_|$is_in_the_way" } sort $past, $sooner), 'maintenance says what is in the way');
isnt(place($lowly, 6), 'gone', 'of no other day');
like(status_of('partitions'), qr/^f\|\d+, up to \S+ \S+, but none for .*\|\Q$sooner $is_in_the_way. Drop or rename it, then run SELECT outbox_maintain().\E$/, 'outbox_status() says so, too');
like(status_of('audit partitions'), qr/^f\|\d+, up to \S+ \S+, but none for .*\|\Q$month $is_in_the_way.\E/, 'also of the audit log');
is(lowly('SELECT (outbox_health()).status'), 'degraded', 'events are safe, and so nothing fails');
lowly("UPDATE partman.part_config SET premake = 11 WHERE parent_table = 'public.outbox_messages'");
lowly("CREATE TABLE $week ()", 'lowly');
is(in_the_way(), "audit_partitions|$month|$is_in_the_way\n" . join("\n", map { "partitions|$_|$is_in_the_way" } sort $past, $sooner, $week, $next), 'many that are in the way keep no other from being made');
is(lowly('SELECT count(*) FROM _outbox.partitions() WHERE upper_bound > now() + interval \'11 days\''), 1, 'behind them, too');
lowly("DROP TABLE $week, $sooner; DROP VIEW $past; DROP TYPE $next; DROP SEQUENCE $month", 'lowly');
ok(wait_until(sub { in_the_way() eq '' }), 'when they are gone, nothing is') or diag(in_the_way());
is(lowly('SELECT count(*) FROM _outbox.missing_partitions()'), 0, 'and there is a partition for each day');
is(place($lowly, 5), 'log', 'also for one that is over');
like(status_of($_), qr/^t\|[0-9]+, up to \S+ \S+\|$/, "$_ are well") for 'partitions', 'audit partitions';
is(lowly(q{SELECT count(*) FROM audit_verify() WHERE NOT ok}), 0, 'and so is the chain');
# One that was dropped by hand, and whose name is somebody else's now.
settings($lowly, hot_retention => '4d');
ok(wait_until(sub { in_the_way(); place($lowly, 5) . place($lowly, 6) eq 'archivearchive' }), 'two days in the archive');
lowly("DROP TABLE $past");
lowly("CREATE TABLE $past (id int)", 'lowly');
settings($lowly, archive_retention => '1d', cold_storage_dir => PostgreSQL::Test::Utils::tempdir('lowly'));
ok(wait_until(sub { in_the_way(); place($lowly, 6) eq 'gone' }), 'the other goes to cold storage');
is(lowly("SELECT count(*) FROM $past", 'lowly') . lowly('SELECT count(*) > 5 FROM outbox_status()'), '0t', 'and what is none of ours stays');
$lowly->stop;

# Bounds are what they are, whatever a session makes of a time.
my $bounds = q{SELECT sum(extract(epoch FROM upper_bound - lower_bound)), min(extract(epoch FROM lower_bound)), count(*) FROM _outbox.partitions()};
my $known = sql($bounds);
for my $zone ('Asia/Jakarta', 'Asia/Shanghai', 'America/Sao_Paulo', 'UTC')
{
	for my $style ('SQL, DMY', 'German, DMY', 'Postgres, MDY')
	{
		is(sql("SET datestyle = '$style'; SET timezone = '$zone'; $bounds"), $known, "bounds of partitions in $zone and $style");
	}
}
is(sql("SET datestyle = 'SQL, DMY'; SET timezone = 'Asia/Jakarta'; SELECT ok FROM outbox_status() WHERE component = 'partitions'"), 't', 'and so does outbox_status()');

# Somebody else's trigger on the log, for events of one aggregate.
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

# A rule of somebody else's for the log: scheduled events that break it are alone with that.
sql('ALTER TABLE outbox_messages ADD CONSTRAINT shop_rule CHECK (aggregate_id <> $$bad$$) NOT VALID');
sql(q{SELECT outbox_enqueue('Order', id, 'ReminderDue', '{}', available_at => clock_timestamp() + interval '200 ms') FROM unnest('{1,bad,2}'::text[]) id});
ok(wait_until(sub { sql(q{SELECT count(*) FROM outbox_messages WHERE event_type = 'ReminderDue'}) == 2 }), 'the relay releases what the log takes');
like(sql('SELECT aggregate_id, last_error FROM outbox_scheduled'), qr/^bad\|.*violates check constraint "shop_rule"$/, 'and keeps what it does not');
logged($node, 0, qr/WARNING:  outbox: scheduled events that the log refused: 1\n/, 'of which the server log speaks');

# So are those that break one that is checked at commit.
forbid('late', 'check_violation', 'too late', 'CONSTRAINT TRIGGER forbid AFTER INSERT ON outbox_messages DEFERRABLE INITIALLY DEFERRED');
sql(q{SELECT outbox_enqueue('Order', id, 'ReminderDue', '{}', available_at => clock_timestamp() + interval '200 ms') FROM unnest('{early,late,later}'::text[]) id});
ok(wait_until(sub { sql(q{SELECT count(*) FROM outbox_messages WHERE aggregate_id IN ('early', 'later')}) == 2 }), 'a deferred constraint holds back nothing else');
is(sql(q{SELECT last_error FROM outbox_scheduled WHERE aggregate_id = 'late'}), 'too late', 'than what breaks it');
like(refusal($node, 'SELECT outbox_release_due()'), qr/too late/, 'by hand it is checked when the caller commits');
is(sql('BEGIN; SET CONSTRAINTS ALL IMMEDIATE; SELECT outbox_release_due(); COMMIT'), 0, 'or at once, as he says');
is(sql(q{SELECT outbox_cancel(tracking_id) FROM outbox_scheduled WHERE aggregate_id = 'late'}), 't', 'it can be taken back, too');
sql('DROP FUNCTION forbid() CASCADE');

sub next_xid
{
	return sql('SELECT pg_snapshot_xmax(pg_current_snapshot())');
}

# When those that were refused, once, are tried again. The relay looks around when it reads its configuration.
sub try_again
{
	my ($when, $which) = @_;
	sql("UPDATE _outbox.scheduled SET try_again_at = $when, refusals = 1 WHERE try_again_at IS NOT NULL AND " . ($which // 'true'));
	sql('SELECT pg_reload_conf()');
	return;
}

sub release_one
{
	my ($id, $what) = @_;
	sql("SELECT outbox_enqueue('Order', '$id', 'ReminderDue', '{}', available_at => clock_timestamp() + interval '200 ms')");
	return ok(wait_until(sub { sql("SELECT count(*) FROM outbox_messages WHERE aggregate_id = '$id'") }), $what);
}

# Many of them cost next to nothing before their time.
sql(q{INSERT INTO _outbox.scheduled SELECT now() - (3000 - i) * interval '1 second', 0, _outbox.new_tracking_id(), 1, 'Order', 'bad', 'ReminderDue',
	jsonb_build_object('n', i), '{}' FROM generate_series(1, 2000) i});
sql('SELECT pg_reload_conf()');
ok(wait_until(sub { sql('SELECT count(try_again_at) FROM outbox_scheduled') == 2001 }), 'the relay is refused 2,000 events');
try_again(q{now() + interval '1 hour'});
my $xid = next_xid();
for (1 .. 10)
{
	sql('SELECT pg_reload_conf()');
	sleep 0.1;
}
release_one('behind', 'one that is behind them is released');
cmp_ok(next_xid() - $xid, '<', 200, 'and they cost few transactions');
is(sql('SELECT count(*) FROM outbox_scheduled WHERE refusals = 1'), 2001, 'because the relay does not try them');
try_again('now()', q{payload = '{}'});
ok(wait_until(sub { sql('SELECT string_agg(refusals::text, $$ $$) FROM outbox_scheduled WHERE refusals > 1') eq '2' }), 'before their time');

# A refusal for lack of privileges is one like any other.
forbid('forbidden', 'insufficient_privilege', 'not for you', 'TRIGGER forbid BEFORE INSERT ON outbox_messages');
sql(q{SELECT outbox_enqueue('Order', 'forbidden', 'ReminderDue', '{}', available_at => clock_timestamp() + interval '100 ms')});
ok(wait_until(sub { sql(q{SELECT last_error FROM outbox_scheduled WHERE aggregate_id = 'forbidden'}) eq 'not for you' }), 'what may not be written is refused');
release_one('allowed', 'and stops no others');
is(sql(q{SELECT outbox_cancel(tracking_id) FROM outbox_scheduled WHERE aggregate_id = 'forbidden'}), 't', 'it can be taken back');
sql('DROP FUNCTION forbid() CASCADE');

# What stops those stops no others.
forbid('bad', 'object_in_use', 'not for you', 'TRIGGER forbid BEFORE INSERT ON outbox_messages');
my $spoken = -s $node->logfile;
try_again('now()', q{payload = '{}'});
logged($node, $spoken, qr/WARNING:  .*scheduled events cannot be released: not for you\n/, 'an error that is not about events stops those that were refused');
release_one('beside', 'and no others');
is(sql('SELECT count(*) FROM outbox_scheduled WHERE refusals > 1'), 0, 'and is no refusal');
sql('DROP FUNCTION forbid() CASCADE');

# Until it takes them: the relay in time, others at once.
sql('ALTER TABLE outbox_messages DROP CONSTRAINT shop_rule');
try_again('now()', q{payload = '{}'});
ok(wait_until(sub { sql(q{SELECT count(*) FROM outbox_messages WHERE aggregate_id = 'bad'}) == 1 }), 'what the log takes by now is released');
sql('SELECT pg_reload_conf()');
sleep 1;
is(sql('SELECT count(*) FROM outbox_scheduled'), 2000, 'in its time');
$xid = next_xid();
is(sql('SELECT outbox_release_due(10000)'), 2000, 'by hand at once');
cmp_ok(next_xid() - $xid, '<', 20, 'all together');
is(sql(q{SELECT string_agg(payload ->> 'n', ' ' ORDER BY id) FROM outbox_messages WHERE aggregate_id = 'bad' AND payload ? 'n'}), join(' ', 1 .. 2000), 'in their order');

# As pg_upgrade starts it, the server is left alone.
sub workers
{
	return sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^outbox'});
}
ok(wait_until(sub { workers() > 0 }), 'there are workers');
$node->stop;
system_or_bail('pg_ctl', '-D', $node->data_dir, '-l', $node->logfile, '-w', '-o', '-b --cluster-name=' . $node->name, 'start');
my $before = sql('SELECT pg_snapshot_xmax(pg_current_snapshot())');
sleep 2;
is(workers(), 0, 'under pg_upgrade there are none');
is(sql('SELECT pg_snapshot_xmax(pg_current_snapshot())'), $before, 'and no transaction is begun');
system_or_bail('pg_ctl', '-D', $node->data_dir, '-w', 'stop');
$node->{_pid} = undef;

# No worker is free for maintenance: launchers of the server and of outbox and a relay have all there are.
my $tight = start_node('tight', conf => "max_worker_processes = 3\noutbox.maintenance_interval = '1s'\nautovacuum = off\n");

sub maintenance_status
{
	return $tight->safe_psql('postgres', q{SELECT ok, detail, hint FROM outbox_status() WHERE component = 'maintenance'});
}
$tight->safe_psql('postgres', 'SELECT outbox_setup()');
ok(wait_until(sub { relay_pid($tight) }), 'a relay runs');
logged($tight, 0, qr/WARNING:  outbox: no maintenance for database "postgres": no worker slot is free\n.*HINT:  Raise max_worker_processes\./, 'if no worker is free for maintenance, the server log says so');
is(maintenance_status(), 'f|no worker slot is free|Raise max_worker_processes. Until then, run SELECT outbox_maintain() yourself.', 'and outbox_status() does');
$tight->safe_psql('postgres', 'SELECT _outbox.request_maintenance()') for 1 .. 3;
sleep 1;
is(() = slurp_file($tight->logfile) =~ /no maintenance for database/g, 1, 'the log says it once');
$tight->append_conf('postgresql.conf', 'max_worker_processes = 4');
$tight->restart;
whole_run($tight);
like(maintenance_status(), qr/^t\|since /, 'with one more all is well');

done_testing();
