# Events of earlier days. They arrive in the default partition, and maintenance makes a partition
# for each day.
package OutboxAge;

use strict;
use warnings;
use Exporter 'import';
use OutboxReceiver qw(wait_until);
use Test::More;

our @EXPORT = qw(set_up_age settings old_event partition place comes_to whole_run logged);

# Creates helper functions in the schema age. They use the date of this call, also after midnight.
sub set_up_age
{
	my ($node, $database) = @_;
	$database //= 'postgres';
	my $today = $node->safe_psql('postgres', "SELECT date_trunc('day', now())");
	$node->safe_psql($database, qq{
		SET client_min_messages = warning;
		CREATE SCHEMA age;
		CREATE FUNCTION age.noon(days integer) RETURNS timestamptz LANGUAGE sql AS
		    'SELECT timestamptz ''$today'' - make_interval(days => days) + interval ''12 hours''';
		CREATE FUNCTION age.partition(days integer) RETURNS text LANGUAGE sql AS
		    'SELECT ''outbox_messages_p'' || to_char(age.noon(days), CASE WHEN extversion < ''5''
		    THEN ''YYYY_MM_DD'' ELSE ''YYYYMMDD'' END)
		       FROM pg_extension WHERE extname = ''pg_partman''';
		CREATE FUNCTION age.place(days integer) RETURNS text LANGUAGE sql AS
		    'SELECT coalesce((SELECT CASE WHEN i.inhparent IS NULL THEN ''alone''
		    ELSE regexp_replace(p.relname, ''^outbox_messages_?\$'', ''log'') END
		       FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT
		       JOIN pg_class p ON p.oid = i.inhparent
		      WHERE c.relname = age.partition(days) AND c.relkind = ''r''), ''gone'')';});
}

# settings(NODE, name => value, …): sets and reloads settings of outbox.
sub settings
{
	my ($node, %settings) = @_;
	$node->append_conf('postgresql.conf', join '',
		map { "outbox.$_ = '$settings{$_}'\n" } sort keys %settings);
	$node->reload;
}

# SQL for an event that is this many days old. The schema is the log's, quoted.
sub old_event
{
	my ($days, $id, $schema) = @_;
	$id //= $days;
	$schema = $schema ? "$schema." : '';
	return "INSERT INTO ${schema}outbox_messages (occurred_at, aggregate_type, aggregate_id,
		event_type, payload)"
	  . " VALUES (age.noon($days), 'Order', '$id', 'OrderConfirmed', '{}');";
}

sub partition
{
	my ($node, $days, $database) = @_;
	return $node->safe_psql($database // 'postgres', "SELECT age.partition($days)");
}

# The place of a day's partition: "log", "archive", "alone" or "gone".
sub place
{
	my ($node, $days, $database) = @_;
	return $node->safe_psql($database // 'postgres',
		"SELECT age.place($days)") =~ s/^outbox_messages_//r;
}

sub comes_to
{
	my ($node, $days, $place, $promise, $database) = @_;
	my $now = '';
	wait_until(sub { ($now = place($node, $days, $database)) eq $place }, 60);
	return is($now, $place, $promise);
}

# Waits until maintenance has completed a whole run. It prunes once in each run, before it archives
# and drops, so two prunings enclose a run.
sub whole_run
{
	my ($node, $database, $schema) = @_;
	$database //= 'postgres';
	$schema //= 'public';
	for my $mark (1, 2)
	{
		$node->safe_psql($database, "INSERT INTO _outbox.inbox (consumer, tracking_id, accepted_at)
				VALUES ('mark', gen_random_uuid(), '2000-01-01')");
		wait_until(sub { $node->safe_psql($database, "SELECT count(*) FROM _outbox.inbox
						WHERE consumer = 'mark'") == 0 }, 15)
		  or die 'no maintenance';
	}
}

# Tests that the server log matches a pattern after a position.
sub logged
{
	my ($node, $position, $pattern, $promise) = @_;
	return ok(wait_until(sub { substr(PostgreSQL::Test::Utils::slurp_file($node->logfile),
					$position) =~ $pattern }, 10), $promise);
}

1;
