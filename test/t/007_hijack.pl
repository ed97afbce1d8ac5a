# A role that may create functions where the extension or pg_partman lives does not become superuser.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use Test::More;

my $node = start_node('main', no_extension => 1);
my $is_super = sub { return $node->safe_psql('postgres', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'app'}) };

# pg_partman's own script is not ours to protect: it is there before the traps are.
$node->safe_psql('postgres', 'CREATE EXTENSION pg_partman');

# Functions that match the calls in scripts better than the server's own, and take what they get.
$node->safe_psql('postgres', 'CREATE ROLE app LOGIN; GRANT CREATE ON SCHEMA public TO app');
my $trap = q{
	CREATE FUNCTION public.seize() RETURNS void LANGUAGE plpgsql AS $$
	BEGIN IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN ALTER ROLE app SUPERUSER; END IF; END $$;
	CREATE FUNCTION public.same(oid, regclass) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM public.seize(); RETURN $1 OPERATOR(pg_catalog.=) $2::oid; END';
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

my ($status, $out, $error) = $node->psql('postgres', 'CREATE EXTENSION outbox');
is($status, 0, 'the extension is installed');
like($error, qr/WARNING:  pg_partman's schema is open to app/, 'with a warning');
is($is_super->(), 'f', 'nobody became superuser by that');

$node->safe_psql('postgres', q{SELECT outbox_grant('app', 'producer')});
is($is_super->(), 'f', 'nor by a grant');
($status, $out, $error) = $node->psql('postgres', enqueue('1'), extra_params => [ '-U', 'app' ]);
like($error, qr/pg_partman's schema public is open to app/, 'no partitions are made through pg_partman there');
is($is_super->(), 'f', 'nobody became superuser by a first enqueue');
($status, $out, $error) = $node->psql('postgres', 'SELECT outbox_setup()');
is($is_super->(), 'f', 'nor by a setup');
is($node->safe_psql('postgres', q{SELECT ok FROM outbox_status() WHERE component = 'pg_partman'}), 'f', 'the status says so');
is($is_super->(), 'f', 'without harm');
$node->safe_psql('postgres', 'DROP EXTENSION outbox');
is($is_super->(), 'f', 'nobody became superuser by dropping the extension');

# A database that belongs to somebody who is no superuser, and whose schema public does too.
$node->safe_psql('postgres', 'CREATE DATABASE theirs OWNER app');
$node->safe_psql('theirs', 'SET client_min_messages = error; CREATE EXTENSION outbox CASCADE');
($status, $out, $error) = $node->psql('theirs', enqueue('1'));
like($error, qr/pg_partman's schema public is open to app/, 'the owner of a database is not trusted either');
$node->safe_psql('theirs', q{
	DROP EXTENSION outbox; DROP EXTENSION pg_partman;
	CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman; CREATE EXTENSION outbox;});
like($node->safe_psql('theirs', enqueue('1')), qr/^[0-9a-f-]{36}$/, 'with pg_partman in a schema of its own all is well');

$node->stop;
done_testing();
