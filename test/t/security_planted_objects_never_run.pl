# A role cannot become superuser by planting objects that the extension or pg_partman would use: in
# their schemas, in pg_temp, as a trigger, by a foreign key, by default privileges, or in the
# search_path.
use strict;
use warnings;
use lib 't/lib';
use OutboxReceiver qw(wait_until);
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_node('main', no_extension => 1);
my $is_super = sub {
	return $node->safe_psql('postgres', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'app'}) };

# pg_partman's own script is out of scope: it runs before the traps exist.
$node->safe_psql('postgres', 'CREATE EXTENSION pg_partman');

# Functions that match the calls in scripts better than the server's functions do.
$node->safe_psql('postgres', 'CREATE ROLE app LOGIN; GRANT CREATE ON SCHEMA public TO app');
my $trap = q{
	CREATE FUNCTION public.seize() RETURNS void LANGUAGE plpgsql AS $$
	BEGIN IF (SELECT rolsuper FROM pg_roles
	WHERE rolname = current_user) THEN ALTER ROLE app SUPERUSER; END IF; END $$;
	CREATE FUNCTION public.same(oid, regclass) RETURNS boolean LANGUAGE plpgsql
	AS 'BEGIN PERFORM public.seize(); RETURN $1 OPERATOR(pg_catalog.=) $2::oid; END';
	CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = public.same);};
for my $type ('regprocedure', 'regclass', 'text', 'name')
{
	$trap .= qq{CREATE FUNCTION public.format(text, $type) RETURNS text LANGUAGE plpgsql AS
		'BEGIN PERFORM public.seize(); RETURN pg_catalog.format(\$1, \$2); END';};
}
for my $count (2 .. 6)
{
	my $types = join ', ', ('text') x $count;
	my $values = join ', ', map { "\$$_" } 1 .. $count + 1;
	$trap .= qq{CREATE FUNCTION public.format(text, $types) RETURNS text LANGUAGE plpgsql AS
		'BEGIN PERFORM public.seize(); RETURN pg_catalog.format($values); END';};
}
$node->safe_psql('postgres', $trap, extra_params => [ '-U', 'app' ]);
# Functions of the server with polymorphic arguments; the traps have the concrete types that a
# script would pass.
$node->safe_psql('postgres', q{SET search_path = pg_catalog; DO $do$
	DECLARE
		body CONSTANT text := 'BEGIN RAISE EXCEPTION ''trapped''; END';
		type text;
		found record;
	BEGIN
		FOR type IN
			SELECT unnest('{text,name,bigint,integer,boolean,jsonb,uuid,oid,regclass,regprocedure,
		timestamptz,interval}'::text[])
		LOOP
			FOR found IN
				SELECT DISTINCT p.proname, CASE WHEN p.proretset THEN 'SETOF ' ELSE '' END
				|| CASE WHEN r.typtype <> 'p' THEN format_type(r.oid, NULL)
				WHEN r.typname ~ 'array$' THEN type || '[]' ELSE type END AS result,
					   (SELECT string_agg(CASE WHEN x.typtype <> 'p' THEN format_type(x.oid, NULL)
					   WHEN x.typname ~ 'array$' THEN type || '[]' ELSE type END, ', '
					   ORDER BY a.ordinality) FROM unnest(p.proargtypes) WITH ORDINALITY a
					   JOIN pg_type x ON x.oid = a.a)
					   || CASE WHEN p.provariadic = 0 THEN '' ELSE repeat(', ' || type, times)
					   END AS arguments
				  FROM pg_proc p JOIN pg_type r ON r.oid = p.prorettype, generate_series(0, 5) times
				 WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f'
				 AND (times = 0 OR p.provariadic = '"any"'::regtype)
				   AND EXISTS (SELECT FROM unnest(p.proargtypes) a
				   WHERE a::regtype::text ~ '^("any"|any(compatible)?(element|nonarray|array)?)$')
				   AND NOT EXISTS (SELECT FROM unnest(p.proargtypes || r.oid) a
				   JOIN pg_type x ON x.oid = a WHERE x.typtype = 'p'
				   AND x.typname !~ '^any(compatible)?(element|nonarray|array)?$')
			LOOP
				EXECUTE format('CREATE OR REPLACE FUNCTION public.%I(%s) RETURNS %s
					LANGUAGE plpgsql AS %L',
				found.proname, found.arguments, found.result, body);
			END LOOP;
			FOR found IN SELECT * FROM (VALUES ('array_agg', ''), ('json_agg', ''),
			('jsonb_agg', ''), ('count', ''), ('string_agg', ', text'),
			('json_object_agg', ', text'), ('jsonb_object_agg', ', text')) AS v (name, second) LOOP
				EXECUTE format('CREATE OR REPLACE FUNCTION public.step(text, %s%s) RETURNS text
					LANGUAGE plpgsql AS %L',
				type, found.second, body);
				EXECUTE format('CREATE AGGREGATE public.%s(%s%s) (SFUNC = public.step, STYPE = text)',
				found.name, type, found.second);
			END LOOP;
		END LOOP;
	END $do$}, extra_params => [ '-U', 'app' ]);
for my $call (q{array_length('{a}'::text[], 1)}, q{unnest('{1}'::bigint[])}, q{to_jsonb(now())},
	q{jsonb_build_object('a'::text, 'b'::text)}, q{concat('a'::text, 'b'::text)},
	q{array_agg(1)}, q{string_agg('a'::name, ',')}, q{jsonb_object_agg('a'::text, 'b'::text)})
{
	my (undef, undef, $error) = $node->psql('postgres', "SELECT $call");
	like($error, qr/ERROR:  trapped/, "the trap works: $call");
}
my $from = -s $node->logfile;

my ($status, $out, $error) = $node->psql('postgres', 'CREATE EXTENSION outbox');
is($status, 0, 'the extension is installed beside traps');
like($error, qr/WARNING:  pg_partman's schema is open to app/,
	"CREATE EXTENSION warns that pg_partman's schema is open");
is($is_super->(), 'f', 'CREATE EXTENSION runs no planted function as superuser');

$node->safe_psql('postgres', q{SELECT outbox_grant('app', 'producer')});
is($is_super->(), 'f', 'outbox_grant() runs no planted function as superuser');
($status, $out, $error) = $node->psql('postgres', enqueue('1'), extra_params => [ '-U', 'app' ]);
like($error, qr/pg_partman's schema public is open to app/,
	'pg_partman in an open schema makes no partitions');
is($is_super->(), 'f', 'a first enqueue runs no planted function as superuser');
($status, $out, $error) = $node->psql('postgres', 'SELECT outbox_setup()');
is($is_super->(), 'f', 'outbox_setup() runs no planted function as superuser');
is($node->safe_psql('postgres', q{SELECT ok FROM outbox_status() WHERE component = 'pg_partman'}),
	'f', "outbox_status() reports that pg_partman's schema is open");
is($is_super->(), 'f', 'outbox_status() runs no planted function as superuser');
$node->safe_psql('postgres', 'DROP EXTENSION outbox');
is($is_super->(), 'f', 'DROP EXTENSION runs no planted function as superuser');
unlike(substr(slurp_file($node->logfile), $from), qr/ERROR:  trapped/,
	"the extension calls no trap with narrower arguments than the server's function");

# A database whose owner is not a superuser, and owns the schema public.
$node->safe_psql('postgres', 'CREATE DATABASE theirs OWNER app');
$node->safe_psql('theirs', 'SET client_min_messages = error; CREATE EXTENSION outbox CASCADE');
($status, $out, $error) = $node->psql('theirs', enqueue('1'));
like($error, qr/pg_partman's schema public is open to app/,
	"pg_partman in a schema of the database's owner makes no partitions");
$node->safe_psql('theirs', q{
	DROP EXTENSION outbox; DROP EXTENSION pg_partman;
	CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman; CREATE EXTENSION outbox;});
like($node->safe_psql('theirs', enqueue('1')), qr/^[0-9a-f-]{36}$/,
	'pg_partman in a schema of its own makes partitions');


sub as_app
{
	my ($database, $sql, $role) = @_;
	my (undef, $out, $error) =
		$node->psql($database, $sql, extra_params => [ '-U', $role // 'app' ]);
	return $error || $out;
}

# Functions of the extension call each other in the schema _outbox, where only its owner may create
# objects. They must not use objects of the extension's schema that match a call better, or a cast
# named like the function.
my $seize = q{LANGUAGE plpgsql AS 'BEGIN IF (SELECT rolsuper FROM pg_roles WHERE rolname }
  . q{= current_user) THEN ALTER ROLE app SUPERUSER; END IF; RETURN NULL; END'};
is(as_app('theirs', "CREATE SCHEMA mine; CREATE FUNCTION mine.grab(text) RETURNS boolean $seize;
	CREATE FUNCTION mine.fires() RETURNS trigger $seize"), '',
	'the owner of a database creates functions');
like(as_app('theirs', $_), qr/permission denied for schema _outbox/,
	"the owner of a database may not run in _outbox: $_" =~ s/ RETURNS.*//r)
  for "CREATE FUNCTION _outbox.partitions() RETURNS int $seize",
    'CREATE DOMAIN _outbox.require_no_tenant AS text CHECK (mine.grab(VALUE))',
  'CREATE TABLE _outbox.t ()', "CREATE FUNCTION public.partitions(regclass) RETURNS int $seize; "
    . "ALTER FUNCTION public.partitions(regclass) SET SCHEMA _outbox";
like(as_app('theirs', 'ALTER SCHEMA _outbox RENAME TO old'), qr/must be owner of schema _outbox/,
	'the owner of a database may not rename _outbox');
is(as_app('theirs', "CREATE FUNCTION public.outbox_setup(int DEFAULT 1) RETURNS int $seize;
			CREATE FUNCTION public.outbox_status(VARIADIC text[] DEFAULT '{}') RETURNS int $seize;
	CREATE FUNCTION public.outbox_seek(varchar, timestamptz) RETURNS int $seize;
	CREATE FUNCTION public.outbox_drop_consumer(text, text) RETURNS int $seize;
	CREATE FUNCTION public.outbox_health(int DEFAULT 1) RETURNS int $seize;
	CREATE DOMAIN public.partitions AS text CHECK (mine.grab(VALUE));
	CREATE FUNCTION public.outbox_held_partitions(int DEFAULT 1) RETURNS int $seize;
	CREATE FUNCTION public.may_read(bigint) RETURNS boolean $seize"), '',
	'the owner of the schema public overloads public functions');
my $all_callers = q{SELECT * FROM outbox_maintain(); SELECT * FROM _outbox.status();
	SELECT * FROM outbox_stats_database; SELECT * FROM outbox_stats_held;
	SELECT outbox_create_sink('hooks', 'http', '{"url": "https://127.0.0.1:1/"}');
	SELECT outbox_seek('hooks'::text, 'latest'::text);
	SELECT outbox_alter_sink('hooks', max_attempts => 5);
	SELECT outbox_drop_sink('hooks'); SELECT * FROM outbox_metrics()};
$node->safe_psql('theirs', $all_callers);
is($is_super->(), 'f', 'the extension calls no overload of a public function');
$node->safe_psql('theirs', 'DROP FUNCTION public.outbox_setup(int), public.outbox_status(text[]),
		public.outbox_health(int), public.outbox_held_partitions(int)');
like(as_app('theirs', 'ALTER SCHEMA public RENAME TO old'),
	qr/the schemas of extension "outbox" cannot be renamed/,
	'the owner of a database may not rename the schema of the extension');
like(as_app('theirs', 'DROP EXTENSION outbox'), qr/must be owner of extension outbox/,
	'the owner of a database may not drop the extension');
$node->safe_psql('theirs', q{CREATE FUNCTION partman.tells() RETURNS trigger
		LANGUAGE plpgsql AS 'BEGIN RAISE ''somebody is at it''; END';
	CREATE TRIGGER tells BEFORE DELETE ON partman.part_config FOR EACH ROW
	EXECUTE FUNCTION partman.tells()});
like(as_app('theirs', 'DROP EXTENSION outbox'), qr/must be owner of extension outbox/,
	"a refused DROP EXTENSION does not touch pg_partman's configuration");
$node->safe_psql('theirs', 'DROP FUNCTION partman.tells() CASCADE');

# Triggers run with the rights of the role that writes to the table.
$node->safe_psql('theirs', 'GRANT ALL ON ALL TABLES IN SCHEMA public TO app;
		GRANT USAGE ON SCHEMA partman TO app;
		GRANT TRIGGER ON partman.part_config, partman.part_config_sub TO app');
my $partition = $node->safe_psql('theirs', 'SET search_path = pg_catalog; SELECT partition
		FROM _outbox.partitions() WHERE is_default');
like(as_app('theirs', "CREATE TRIGGER t BEFORE INSERT OR UPDATE OR DELETE ON $_ FOR EACH ROW
			EXECUTE FUNCTION mine.fires()"), qr/only the owner of $_ may create triggers on it/,
	"a role may not create a trigger on $_")
  for 'public.outbox_messages', 'public.audit_log', $partition, 'partman.part_config',
    'partman.part_config_sub';
like(as_app('theirs', 'CREATE TRIGGER t INSTEAD OF UPDATE ON outbox_consumers FOR EACH ROW
			EXECUTE FUNCTION mine.fires()'),
	qr/only the owner of public.outbox_consumers may create/,
	'a role may not create a trigger on a view of the extension');
like(as_app('theirs', "CREATE TRIGGER t BEFORE INSERT OR UPDATE OR DELETE ON _outbox.$_ FOR EACH ROW
			EXECUTE FUNCTION mine.fires()"), qr/permission denied for table $_/,
	"a role may not create a trigger on _outbox.$_")
  for 'consumers', 'scheduled';
is(as_app('theirs', 'CREATE TABLE mine.own ();
			CREATE TRIGGER t BEFORE INSERT ON mine.own FOR EACH ROW EXECUTE FUNCTION mine.fires()'),
	'', 'a role may create triggers on its own tables');

# Triggers on tables that a foreign key cascades to run with the same rights.
$node->safe_psql('theirs', q{GRANT REFERENCES ON partman.part_config, partman.part_config_sub
		TO app; SELECT outbox_grant('app', 'producer')});
like(as_app('theirs', "CREATE TABLE mine.t (id $_ ON DELETE CASCADE)"),
	qr/permission denied for table/, "a role may not create a foreign key: $_")
  for 'uuid REFERENCES _outbox.scheduled', 'text REFERENCES _outbox.consumers (name)',
    'bigint REFERENCES _outbox.leases (token)';
sub keys_of_others
{
	return $node->safe_psql('theirs', q{SELECT ok, detail, hint FROM outbox_status()
			WHERE component = 'foreign keys'});
}
is(keys_of_others(), '', 'outbox_status() reports no foreign keys of other roles');
# The check for foreign keys holds a lock that keeps other sessions from adding one.
my $checking = $node->background_psql('theirs');
$checking->query_safe("BEGIN; SELECT _outbox.check_no_foreign_key('$partition')");
like(as_app('theirs', "SET lock_timeout = '200ms';
			CREATE TABLE mine.late (id bigint REFERENCES $partition (id) ON DELETE CASCADE)"),
	qr/canceling statement due to lock timeout/,
	'no foreign key is added between the check and the removal of rows');
$checking->query_safe('ROLLBACK');
$checking->quit;
# GRANT ALL ON ALL TABLES includes the partitions.
is(as_app('theirs', "CREATE TABLE mine.t (id bigint REFERENCES $partition (id) ON DELETE CASCADE);
			CREATE TRIGGER t AFTER DELETE ON mine.t FOR EACH ROW EXECUTE FUNCTION mine.fires()"),
	'',
	'a role creates a foreign key to the default partition');
like(keys_of_others(), qr/^f\|mine.t of app refers to public.\S*default\|Drop it, /,
	'outbox_status() reports the foreign key to the default partition');
my $moving = $node->safe_psql('theirs',
	q{INSERT INTO outbox_messages (occurred_at, aggregate_type, aggregate_id, event_type, payload)
		VALUES (now() - interval '3 days', 'Order', '1', 'Moved', '{}') RETURNING id}) =~ /(\d+)/
  ? $1 : 0;
as_app('theirs', "INSERT INTO mine.t VALUES ($moving)");
my $newest = 'SELECT max(partition::text) FROM _outbox.partitions() WHERE NOT is_default';
my $ahead = $node->safe_psql('theirs', $newest);
$node->safe_psql('theirs', "REVOKE TRIGGER, REFERENCES ON partman.part_config,
		partman.part_config_sub FROM app; DROP TABLE $ahead");
like($node->safe_psql('theirs', q{SELECT changed, detail FROM outbox_maintain()
			WHERE step = 'partitions'}), qr/^f\|.*default is referenced by a foreign key of another role/,
	'maintenance does not move rows that a foreign key refers to');
is($is_super->(), 'f', 'a cascading foreign key runs no planted function as superuser');
is($node->safe_psql('theirs', $newest), $ahead,
	'a foreign key to the default partition prevents no new partition');
as_app('theirs', 'DROP TABLE mine.t');
$node->safe_psql('theirs', 'SELECT * FROM outbox_maintain()');
like($node->safe_psql('theirs', q{SELECT tableoid::regclass FROM outbox_messages
			WHERE event_type = 'Moved'}), qr{^outbox_messages_p},
	'maintenance moves the rows after the foreign key is dropped');

# The same for rows of the audit log, which retention deletes.
$node->safe_psql('theirs', q{SELECT audit_record('me', 'made', 'Order', '1');
	INSERT INTO audit_log (occurred_at, actor, action, entity_type, entity_id)
	SELECT now() - interval '100 days', 'me', 'made', type, '1'
	FROM unnest('{Visit,Order}'::text[]) type});
$node->safe_psql('theirs', 'SELECT * FROM outbox_maintain()') for 1 .. 3;
my ($visit, $month) = split /\|/, $node->safe_psql('theirs',
	q{SELECT id, tableoid::regclass FROM audit_log WHERE entity_type = 'Visit'});
$node->safe_psql('theirs', "GRANT ALL ON ALL TABLES IN SCHEMA public TO app");
is(as_app('theirs', "CREATE TABLE mine.a (id bigint REFERENCES $month (id) ON DELETE CASCADE);
			INSERT INTO mine.a VALUES ($visit);
			CREATE TRIGGER t AFTER DELETE ON mine.a FOR EACH ROW EXECUTE FUNCTION mine.fires()"),
	'', 'a role creates a foreign key to a partition of the audit log');
$node->safe_psql('theirs', q{SELECT audit_set_retention('Visit', '1 day')});
like($node->safe_psql('theirs', q{SELECT changed, detail FROM outbox_maintain()
			WHERE step = 'audit_retention'}),
	qr/^f\|.*$month is referenced by a foreign key of another role/,
	'retention does not delete audit rows that a foreign key refers to');
is($is_super->(), 'f', 'retention of the audit log runs no planted function as superuser');
as_app('theirs', 'DROP TABLE mine.a');
$node->safe_psql('theirs', 'SELECT * FROM outbox_maintain()');
is($node->safe_psql('theirs', q{SELECT count(*) FROM audit_log WHERE entity_type = 'Visit'}), 0,
	'retention deletes the audit rows after the foreign key is dropped');

$node->safe_psql('theirs', 'REVOKE ALL ON ALL TABLES IN SCHEMA public FROM app');
for my $right ((map { ("$_ ON partman.part_config", "$_ ON partman.part_config_sub") } 'INSERT',
		'UPDATE', 'TRIGGER', 'REFERENCES'),
	'UPDATE (template_table) ON partman.part_config',
	'INSERT (sub_parent) ON partman.part_config_sub',
	'REFERENCES (parent_table) ON partman.part_config', 'pg_write_all_data')
{
	$node->safe_psql('theirs', "GRANT $right TO app");
	($status, $out, $error) = $node->psql('theirs', 'SELECT outbox_setup()');
	like($error, qr/pg_partman's schema partman is open to app/,
		"pg_partman is not used while a role has $right");
	$node->safe_psql('theirs', "REVOKE $right FROM app");
}
# The owner of pg_partman's configuration may alter its tables and the keys on them.
$node->safe_psql('theirs', 'ALTER TABLE partman.part_config OWNER TO app;
		ALTER TABLE partman.part_config_sub OWNER TO app');
($status, $out, $error) = $node->psql('theirs', 'SELECT outbox_setup()');
like($error, qr/pg_partman's schema partman is open to app/,
	'pg_partman is not used while another role owns its configuration');
is(as_app('theirs', 'ALTER TABLE partman.part_config_sub ADD COLUMN more int'), '',
	"the owner of pg_partman's configuration may alter its tables");
is(keys_of_others(), '', 'outbox_status() does not report the foreign key of pg_partman itself');

# A role has changed the configuration, and has lost its rights since. The next partition is made by
# the original configuration.
my ($kind, $width) = $node->safe_psql('theirs', q{SELECT extversion < '5' FROM pg_extension
		WHERE extname = 'pg_partman'}) eq 't' ? ('native', 'hourly') : ('range', '1 hour');
my $settings = q{SELECT to_jsonb(c) - 'premake' - 'maintenance_last_run' FROM partman.part_config c
	WHERE parent_table = 'public.outbox_messages'};
my $usual_settings = $node->safe_psql('theirs', $settings);
# pg_partman 5.2 pastes this value into statements.
my $in_progress = $usual_settings =~ /async_partitioning_in_progress/
  ? q{UPDATE partman.part_config SET async_partitioning_in_progress = '2020-02-29'
	WHERE parent_table = 'public.outbox_messages';} : '';
my $decoder = $usual_settings =~ /time_decoder/
  ? q{UPDATE partman.part_config SET time_decoder = 'mine.grab', time_encoder = 'mine.grab'
	WHERE parent_table = 'public.outbox_messages';} : '';
is(as_app('theirs', qq{CREATE FUNCTION mine.still(int) RETURNS int IMMUTABLE LANGUAGE plpgsql
			AS 'BEGIN PERFORM mine.grab(\$\$\$\$); RETURN 1; END';
	CREATE TABLE mine.pattern (id bigint); CREATE UNIQUE INDEX ON mine.pattern (id)
	WHERE mine.still(1) = id;
	UPDATE partman.part_config SET template_table = 'mine.pattern', control = 'xid',
	epoch = 'seconds', jobmon = true, undo_in_progress = true, sub_partition_set_full = true,
	inherit_privileges = true, constraint_cols = '{id}',
		ignore_default_data = false, infinite_time_partitions = false
		WHERE parent_table = 'public.outbox_messages'; $decoder $in_progress
	INSERT INTO partman.part_config_sub (sub_parent, sub_partition_type, sub_control,
	sub_partition_interval, sub_template_table)
		VALUES ('public.outbox_messages', '$kind', 'occurred_at', '$width', 'mine.pattern')}), '',
	"a role changes template, settings and subpartitions in pg_partman's configuration");
$node->safe_psql('theirs', 'ALTER TABLE partman.part_config OWNER TO postgres;
		ALTER TABLE partman.part_config_sub OWNER TO postgres;
		REVOKE ALL ON partman.part_config, partman.part_config_sub FROM app');
# Versions of pg_partman with publications: the publications of roles that may read the log are
# kept.
my $publishes = $usual_settings =~ /"publications"/;
if ($publishes)
{
	$node->safe_psql('theirs', q{CREATE PUBLICATION cdc; CREATE PUBLICATION his;
			GRANT CREATE ON DATABASE theirs TO app; ALTER PUBLICATION his OWNER TO app;
		UPDATE partman.part_config SET publications = '{his,cdc}'
		WHERE parent_table = 'public.outbox_messages'});
	$usual_settings =~ s/"publications": null/"publications": ["cdc"]/;
}
my $last = $node->safe_psql('theirs', 'SELECT partition FROM _outbox.partitions()
		ORDER BY upper_bound DESC NULLS LAST LIMIT 1');
my $indexes = q{SELECT string_agg(regexp_replace(indexdef, 'INDEX \S+ ON \S+', ''), ' '
	ORDER BY indexdef) FROM pg_indexes WHERE schemaname || '.' || tablename = '%s'};
my $usual = $node->safe_psql('theirs', sprintf $indexes, $last);
$node->safe_psql('theirs', "DROP TABLE $last");
($status, $out, $error) = $node->psql('theirs', 'SELECT outbox_setup()');
like($error,
	qr/WARNING:  outbox: reset changed pg_partman configuration for the log/,
	'a warning says that the changed configuration was reset');
like($error, qr/DETAIL:  The changed settings were \{.*"template_table": "mine.pattern".*\}, with subpartitions\./,
	'the detail of the warning has the changed configuration');
is($node->safe_psql('theirs', $settings), $usual_settings, 'the settings of pg_partman are reset');
is($node->safe_psql('theirs', "SELECT string_agg(pubname, ' ') FROM pg_publication_tables
			WHERE tablename = '$last'"), $publishes ? 'cdc' : '',
	'a new partition is in publications of roles that may read the log only');
is($node->safe_psql('theirs', sprintf $indexes, $last), $usual,
	'a new partition has the indexes of the others');
unlike($usual, qr/still/, 'a new partition has no index of the changed template');
is($is_super->(), 'f', 'a changed template runs no planted function as superuser');
$node->safe_psql('theirs', "UPDATE partman.part_config SET template_table = NULL
		WHERE parent_table = 'public.outbox_messages'; DROP TABLE $last; SELECT outbox_setup()");
is($node->safe_psql('theirs', "SELECT template_table FROM partman.part_config
			WHERE parent_table = 'public.outbox_messages'"), '_outbox.messages_template',
	'a removed template table is restored in the configuration');
$node->safe_psql('theirs', 'SELECT outbox_setup();
		SELECT * FROM outbox_maintain(); SELECT * FROM outbox_status();
		SELECT _outbox.report_problems(), _outbox.report_partitions()');
is($is_super->(), 'f', 'maintenance and reports run no planted function as superuser');

# pg_partman without a configuration for the log makes no partitions and reports no error.
$node->safe_psql('theirs', "CREATE TABLE kept AS SELECT * FROM partman.part_config
		WHERE parent_table = 'public.outbox_messages'; DELETE FROM partman.part_config
		WHERE parent_table = 'public.outbox_messages'; DROP TABLE $last;
	INSERT INTO outbox_messages (occurred_at, aggregate_type, aggregate_id, event_type, payload)
	VALUES (now() - interval '3 days', 'Order', '1', 'Stray', '{}')");
($status, $out, $error) = $node->psql('theirs', 'SELECT outbox_setup()');
like($error,
	qr/ERROR:  pg_partman has no configuration for the log\nDETAIL:  The row for public.outbox_messages in partman.part_config is missing\./,
	'outbox_setup() fails without a configuration of pg_partman');
is($node->safe_psql('theirs', q{SELECT changed, detail FROM outbox_maintain()
			WHERE step = 'partitions'}), 'f|pg_partman has no configuration for the log',
	'outbox_maintain() reports a missing configuration of pg_partman');
like($node->safe_psql('theirs', q{SELECT ok, detail FROM outbox_status()
			WHERE component = 'pg_partman'}),
	qr/^f\|version [\d.]+, which has no configuration for the log$/,
	'outbox_status() reports a missing configuration of pg_partman');
$node->safe_psql('theirs', 'INSERT INTO partman.part_config SELECT * FROM kept; DROP TABLE kept;
		SELECT outbox_setup()');
is($node->safe_psql('theirs', sprintf $indexes, $last), $usual,
	'a partition is made again with the restored configuration');
$node->safe_psql('theirs', 'SELECT * FROM outbox_maintain()');
like($node->safe_psql('theirs', q{SELECT tableoid::regclass FROM outbox_messages
			WHERE event_type = 'Stray'}), qr/^outbox_messages_p[\d_]+$/,
	'an event waiting in the default partition is moved to its partition');

# Objects that exist before the extension.
$node->safe_psql('postgres', 'CREATE DATABASE early OWNER app');
is(as_app('early', "CREATE SCHEMA mine; CREATE FUNCTION mine.grab(text) RETURNS boolean $seize;
			CREATE SCHEMA _outbox; CREATE DOMAIN _outbox.require_no_tenant AS text
			CHECK (mine.grab(VALUE))"), '',
	'a role creates the schema _outbox before the extension');
$node->safe_psql('early', 'CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman');
($status, $out, $error) = $node->psql('early', 'CREATE EXTENSION outbox');
like($error, qr/schema "_outbox" already exists/,
	'CREATE EXTENSION refuses an existing schema _outbox');
as_app('early', 'DROP SCHEMA _outbox CASCADE; CREATE TABLE partman_only_looks_like_it ();
		CREATE TYPE public.pg_class AS ENUM ()');

# A trigger and a foreign key on pg_partman's configuration, from a time when it was open.
$node->safe_psql('postgres', 'CREATE DATABASE open OWNER app');
$node->safe_psql('open', 'CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman;
		GRANT USAGE ON SCHEMA partman TO app; GRANT TRIGGER,
		REFERENCES ON ALL TABLES IN SCHEMA partman TO app');
is(as_app('open', "CREATE SCHEMA mine; CREATE FUNCTION mine.fires() RETURNS trigger $seize;
	CREATE TRIGGER t BEFORE INSERT OR UPDATE OR DELETE ON partman.part_config FOR EACH STATEMENT
	EXECUTE FUNCTION mine.fires();
	CREATE TRIGGER t BEFORE INSERT OR UPDATE OR DELETE ON partman.part_config_sub FOR EACH STATEMENT
	EXECUTE FUNCTION mine.fires();
	CREATE TABLE mine.t (id text REFERENCES partman.part_config ON DELETE CASCADE)"), '',
	"a role creates a trigger and a foreign key on pg_partman's configuration");
$node->safe_psql('open', 'REVOKE ALL ON ALL TABLES IN SCHEMA partman FROM app');
($status, $out, $error) = $node->psql('open', 'CREATE EXTENSION outbox');
like($error, qr/WARNING:  pg_partman's schema is open to app/,
	'CREATE EXTENSION warns about the trigger and the foreign key');
is($is_super->(), 'f', 'CREATE EXTENSION runs no trigger of a role as superuser');
like($node->safe_psql('open', q{SELECT ok, detail FROM outbox_status()
			WHERE component = 'foreign keys'}),
	qr/^f\|mine.t of app refers to partman.part_config$/,
	'outbox_status() reports the foreign key');
$node->psql('open', 'SELECT * FROM outbox_maintain()');
is($is_super->(), 'f', 'outbox_maintain() runs no trigger of a role as superuser');
($status, $out, $error) = $node->psql('open', 'DROP EXTENSION outbox');
is($status, 0, 'DROP EXTENSION succeeds');
like($error,
	qr/WARNING:  rows of outbox remain in pg_partman's configuration\nDETAIL:  The configuration is open to app\./,
	'DROP EXTENSION warns that it leaves an open configuration unchanged');
is($is_super->(), 'f', 'DROP EXTENSION runs no trigger of a role as superuser');
is(as_app('open', 'DROP TABLE mine.t'), '', 'the foreign key is dropped');
$node->safe_psql('open', 'DROP TRIGGER t ON partman.part_config');
($status, $out, $error) = $node->psql('open', 'CREATE EXTENSION outbox; DROP EXTENSION outbox');
like($error, qr/(WARNING:.*is open to app.*){2}/s,
	'a trigger on the table of subpartitions is reported');
is($is_super->(), 'f', 'a trigger on the table of subpartitions does not run as superuser');
$node->safe_psql('open', 'DROP TRIGGER t ON partman.part_config_sub; CREATE EXTENSION outbox;
		SELECT outbox_setup(); DROP EXTENSION outbox');
is($node->safe_psql('open', 'SELECT count(*) FROM partman.part_config'), 0,
	'without planted objects DROP EXTENSION removes the configuration');

# Other objects on pg_partman's configuration that run when it is written.
$node->safe_psql('postgres', 'CREATE DATABASE left_behind');
$node->safe_psql('left_behind', 'CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman;
		GRANT USAGE ON SCHEMA partman TO app; CREATE SCHEMA mine AUTHORIZATION app;
	GRANT SELECT ON partman.part_config TO app');
is(as_app('left_behind', "CREATE FUNCTION mine.grab(text) RETURNS boolean IMMUTABLE $seize;
			CREATE FUNCTION mine.fires() RETURNS trigger $seize;
	CREATE FUNCTION mine.same(text, text)
	RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT mine.grab(\$1)';
	CREATE OPERATOR mine.=== (LEFTARG = text, RIGHTARG = text, FUNCTION = mine.same);
	CREATE DOMAIN mine.word AS text CHECK (mine.grab(VALUE));
	CREATE VIEW mine.harmless AS SELECT * FROM partman.part_config"), '',
	'a role creates functions, an operator, a domain and a view');
my $never = 'EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger()';
for ([ "CREATE TRIGGER t BEFORE INSERT OR UPDATE OR DELETE ON partman.part_config FOR EACH "
		. "STATEMENT WHEN (mine.grab('')) $never", 'DROP TRIGGER t ON partman.part_config' ],
	[ "CREATE TRIGGER t BEFORE UPDATE ON partman.part_config FOR EACH ROW WHEN (NEW.control "
		. "OPERATOR(mine.===) '') $never", 'DROP TRIGGER t ON partman.part_config' ],
	[ "CREATE RULE r AS ON UPDATE TO partman.part_config DO ALSO SELECT mine.grab('')",
		'DROP RULE r ON partman.part_config' ],
	[ 'ALTER TABLE partman.part_config ADD CONSTRAINT c CHECK (mine.grab(parent_table))',
		'ALTER TABLE partman.part_config DROP CONSTRAINT c' ],
	[ "ALTER TABLE partman.part_config ADD COLUMN c boolean; ALTER TABLE partman.part_config ALTER "
		. "COLUMN c SET DEFAULT mine.grab('')", 'ALTER TABLE partman.part_config DROP COLUMN c' ],
	[ 'ALTER TABLE partman.part_config ADD COLUMN c mine.word',
		'ALTER TABLE partman.part_config DROP COLUMN c' ],
	[ 'CREATE INDEX ON partman.part_config (parent_table) WHERE mine.grab(parent_table)',
		'DROP INDEX partman.part_config_parent_table_idx' ],
	[ 'CREATE POLICY p ON partman.part_config USING (mine.grab(parent_table))',
		'DROP POLICY p ON partman.part_config' ],
	[ "CREATE TABLE mine.below () INHERITS (partman.part_config); CREATE TRIGGER t BEFORE UPDATE "
		. "ON mine.below FOR EACH ROW EXECUTE FUNCTION mine.fires()", 'DROP TABLE mine.below' ])
{
	my ($left, $undone) = @$_;
	$node->safe_psql('left_behind', 'ALTER TABLE partman.part_config OWNER TO app;
			GRANT CREATE ON SCHEMA partman TO app');
	is(as_app('left_behind', $left), '',
		"a role leaves on pg_partman's configuration: " . substr $left, 0, 100);
	$node->safe_psql('left_behind', 'ALTER TABLE partman.part_config OWNER TO postgres;
			REVOKE CREATE ON SCHEMA partman FROM app');
	($status, $out, $error) = $node->psql('left_behind', 'CREATE EXTENSION outbox');
	like($error, qr/WARNING:  pg_partman's schema is open to app/,
		'CREATE EXTENSION warns about the planted object');
	($status, $out, $error) = $node->psql('left_behind', 'SELECT outbox_setup()');
	like($error, qr/pg_partman's schema partman is open to app/,
		'outbox_setup() does not use a configuration with a planted object');
	is($is_super->(), 'f', 'the planted object does not run as superuser');
	$node->safe_psql('left_behind', "$undone; SELECT outbox_setup(); DROP EXTENSION outbox");
}

# A table with the name of the default partition, which some versions of pg_partman would use.
is(as_app('open', "CREATE TABLE public.outbox_messages_default (xid xid8 NOT NULL,
			id bigint NOT NULL, occurred_at timestamptz NOT NULL, tenant_id bigint NOT NULL,
			tracking_id uuid NOT NULL,
	event_version smallint NOT NULL, aggregate_type text NOT NULL, aggregate_id text NOT NULL,
	event_type text NOT NULL, payload jsonb NOT NULL, metadata jsonb NOT NULL,
	trace_id text, run_length smallint);
	CREATE TRIGGER t BEFORE INSERT ON public.outbox_messages_default FOR EACH ROW
	EXECUTE FUNCTION mine.fires()"), '',
	'a role creates a table with the name of the default partition');
$node->safe_psql('open', 'CREATE EXTENSION outbox');
($status, $out, $error) = $node->psql('open', enqueue('1'));
like($error,
	qr/public.outbox_messages_default has the name of a partition, but is another object, owned by app/,
	'an enqueue refuses a table in place of the default partition');
$node->safe_psql('open', q{SELECT count(outbox_enqueue('Order', i::text, 'Due', '{}',
		available_at => clock_timestamp() + interval '10 ms')) FROM generate_series(1, 5) i;
		SELECT pg_sleep(0.05)});
my $refusal = 'WARNING:  outbox: scheduled events cannot be released: '
  . '.*public.outbox_messages_default has the name of a partition';
ok(wait_until(sub { slurp_file($node->logfile) =~ /$refusal/ }),
	'the relay refuses to release scheduled events into such a table');
is($node->safe_psql('open', 'SELECT sum(refusals), count(try_again_at) FROM outbox_scheduled'),
	'0|0', 'the refusal counts for no scheduled event');
as_app('open', 'DROP TABLE outbox_messages_default');
ok(wait_until(sub { $node->safe_psql('open', q{SELECT count(*) FROM outbox_messages
				WHERE event_type = 'Due'}) == 5 }),
	'scheduled events are released after the table is dropped');
like($node->safe_psql('open', enqueue('1')), qr/^[0-9a-f-]{36}$/,
	'an enqueue succeeds after the table is dropped');

# Default privileges must not apply to the extension's objects, including partitions.
$node->safe_psql('early', 'ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO app;
		ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON SEQUENCES TO app;
	ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON FUNCTIONS TO app; ALTER DEFAULT
	PRIVILEGES GRANT ALL ON SCHEMAS TO app; ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO app;
	ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO app; CREATE EXTENSION outbox;
	SELECT outbox_setup(); SELECT audit_record(\'a\', \'b\', \'c\', \'d\')');
is($node->safe_psql('early', q{SELECT count(*) > 20, string_agg(c.relname, ' ')
			FILTER (WHERE EXISTS (SELECT FROM aclexplode(c.relacl) a WHERE a.grantee <> c.relowner))
	FROM pg_class c WHERE c.relnamespace IN ('public'::regnamespace, '_outbox'::regnamespace)
	AND c.relkind IN ('r', 'p', 'v', 'S')
	  AND NOT EXISTS (SELECT FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
	  AND e.extname = 'pg_partman' WHERE d.objid = c.oid AND d.deptype = 'e')}), 't|',
	 'default privileges grant no access to tables of the extension');
is($node->safe_psql('early', q{SELECT string_agg(p.proname, ' ')
			FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
	WHERE p.pronamespace IN ('public'::regnamespace, '_outbox'::regnamespace)
	AND a.grantee <> p.proowner}), '',
	'default privileges grant no access to functions of the extension');
like(as_app('early', 'CREATE TABLE _outbox.t ()'), qr/permission denied for schema _outbox/,
	'default privileges do not allow creation in _outbox');

# pg_partman looks up names in pg_temp before pg_catalog, and runs in the session of a producer
# whose enqueue needs a partition.
$node->safe_psql('postgres', 'CREATE DATABASE fresh');
$node->safe_psql('fresh', q{CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman;
		CREATE EXTENSION outbox; SELECT outbox_grant('app', 'producer');
		SELECT outbox_grant('app', 'audit')});
my $grab = "CREATE FUNCTION pg_temp.grab(text) RETURNS boolean $seize;";
for my $trap ('CREATE DOMAIN pg_temp.text AS text CHECK (pg_temp.grab(VALUE))',
	'CREATE DOMAIN pg_temp.timestamptz AS timestamptz',
	q{CREATE TEMP VIEW pg_class AS SELECT * FROM pg_catalog.pg_class WHERE pg_temp.grab('')})
{
	my ($name) = $trap =~ /(text|timestamptz|pg_class) AS/;
	like(as_app('fresh', "$grab $trap; " . enqueue('1')),
		qr/temporary object $name would replace an object of pg_catalog/,
		"an enqueue refuses to call pg_partman beside a temporary $name");
	like(as_app('fresh', "$grab $trap; SELECT audit_record('a', 'b', 'c', 'd')"),
		qr/temporary object $name would replace an object of pg_catalog/,
		"audit_record() refuses to call pg_partman beside a temporary $name");
}
is($is_super->(), 'f', 'a first enqueue runs no temporary function as superuser');
like(as_app('fresh', 'CREATE TEMP TABLE harmless (); ' . enqueue('1')), qr/^[0-9a-f-]{36}$/,
	'an enqueue accepts other temporary objects');
like(as_app('fresh', "$grab CREATE DOMAIN pg_temp.text AS text CHECK (pg_temp.grab(VALUE));
			" . enqueue('2')), qr/^[0-9a-f-]{36}$/,
	'an enqueue into an existing partition does not call pg_partman');
is($is_super->(), 'f', 'no role has become superuser');

# Casts of a role run with its own rights, in every function and for every reader.
my @privileges = qw(producer consumer idempotency audit auditor reader monitor admin);
$node->safe_psql('fresh', join ';', 'CREATE SCHEMA mine AUTHORIZATION app',
	map { "SELECT outbox_grant('app', '$_')" } @privileges);
my $granted = 'FROM unnest(\'{' . join(',', @privileges)
  . '}\'::text[]) g, _outbox.privilege_functions(g) f JOIN pg_proc p ON p.oid = f';
my %value = (uuid => '0192f000-0000-7000-8000-000000000001',
	'timestamp with time zone' => '2030-01-01', 'text[]' => '{1}', 'bigint[]' => '{1}',
	"_outbox.batches" => undef);
my $casts = '';
for my $type (split /\n/, $node->safe_psql('fresh', "SELECT DISTINCT format_type(a, NULL) $granted,
			unnest(p.proargtypes) a"))
{
	my $mine = 'mine.to_' . $type =~ s/\W+/_/gr;
	my $value = exists $value{$type} ? $value{$type} : '1';
	my $result = defined $value ? "''$value''" : 'NULL';
	$casts .= "CREATE TYPE $mine AS ENUM ('x');
		CREATE FUNCTION $mine($mine) RETURNS $type
		LANGUAGE plpgsql AS 'BEGIN RAISE WARNING ''cast by %'', current_user; RETURN $result; END';
		CREATE FUNCTION $mine($type) RETURNS $mine LANGUAGE plpgsql
		AS 'BEGIN RAISE WARNING ''cast by %'', current_user; RETURN enum_first(NULL::$mine); END';
		CREATE CAST ($mine AS $type) WITH FUNCTION $mine($mine) AS IMPLICIT;
		CREATE CAST ($type AS $mine) WITH FUNCTION $mine($type) AS IMPLICIT;\n";
}
is(as_app('fresh', $casts), '', 'a role creates casts');
like(as_app('fresh', "SELECT length('x'::mine.to_text), 'x'::text::mine.to_text", 'postgres'),
	qr/(cast by postgres.*){2}/s, 'casts report the role that runs them');
my @calls = split /\n/, $node->safe_psql('fresh', qq{SELECT format('%s %s.%I(%s);', CASE p.prokind
		WHEN 'p' THEN 'CALL' ELSE 'SELECT' END, p.pronamespace::regnamespace, p.proname,
		(SELECT string_agg(format('%L::mine.to_%s', 'x',
		regexp_replace(format_type(a.a, NULL), '\\W+', '_', 'g')), ', ' ORDER BY a.ordinality)
		FROM unnest(p.proargtypes) WITH ORDINALITY a))
	$granted WHERE p.pronargs > 0 ORDER BY 1});
cmp_ok(scalar(@calls), '>', 40, 'more than 40 functions have arguments');
for my $call (@calls)
{
	my @by = as_app('fresh', $call) =~ /cast by (\w+)/g;
	ok(@by > 0 && !(grep { $_ ne 'app' } @by),
		"casts run with the rights of the caller only: $call") or diag("by @by");
}
is(as_app('fresh', q{CREATE FUNCTION mine.up(jsonb) RETURNS jsonb LANGUAGE sql
			AS 'SELECT $1::mine.to_jsonb::jsonb'; SELECT outbox_register_upcaster('Cast', 1,
			'mine.up(jsonb)')}), '', 'an upcaster uses a cast of a role');
my $claimed = as_app('fresh', q{SELECT outbox_create_consumer('super');
		SELECT outbox_enqueue('Order', '1', 'Cast', '{}'); SELECT event_type
		FROM outbox_claim('super', 10)}, 'postgres');
is(join(' ', $claimed =~ /cast by (\w+)/g), 'app app',
	'a claim by a superuser runs the casts of an upcaster with the rights of the role');
is($is_super->(), 'f', 'no role has become superuser by a cast');

$node->stop;
done_testing();
