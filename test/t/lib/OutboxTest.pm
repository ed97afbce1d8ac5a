# Starts servers with the extension, for all tests in test/t.
package OutboxTest;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(start_node staged enqueue is_shown_to_wait);

# The settings that make a server find the extension under test, or another build of it.
sub staged
{
	return slurp_file($_[0] // $ENV{OUTBOX_STAGE_CONF});
}

# Starts a server with the extension, preloaded by default.
sub start_node
{
	my ($name, %options) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(%{ $options{init} // {} });
	$node->append_conf('postgresql.conf', staged($options{stage}));
	$node->append_conf('postgresql.conf', "max_prepared_transactions = 10\nTimeZone = 'UTC'\n");
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'outbox'\n")
	  unless $options{no_preload};
	$node->append_conf('postgresql.conf', $options{conf}) if $options{conf};
	$node->start;
	$node->safe_psql('postgres', 'SET client_min_messages = warning;
			CREATE EXTENSION outbox CASCADE')
	  unless $options{no_extension};
	return $node;
}

# Servers from version 17 on show the names of extensions' wait events.
sub is_shown_to_wait
{
	my ($node, $who, $name) = @_;
	$name = 'Extension' if $node->pg_version < 17;
	ok($node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_stat_activity
				WHERE backend_type = '$who' AND wait_event_type = 'Extension'
				AND wait_event = '$name'"),
		"the wait of the $who is shown as $name");
	return;
}

# SQL that enqueues one event, for use inside larger scripts.
sub enqueue
{
	my ($id, $rest) = @_;
	$rest = $rest ? ", $rest" : '';
	return "SELECT outbox_enqueue('Order', '$id', 'OrderConfirmed', '{}'$rest);";
}

1;
