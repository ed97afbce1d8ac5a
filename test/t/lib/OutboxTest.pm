# What the restart, crash and dump tests share.
package OutboxTest;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

our @EXPORT = qw(start_node staged enqueue);

# The settings that make a server find the extension that is under test, or another build of it.
sub staged
{
	return slurp_file($_[0] // $ENV{OUTBOX_STAGE_CONF});
}

# A running server with the extension in it, preloaded unless told otherwise.
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
	$node->safe_psql('postgres', 'SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE')
	  unless $options{no_extension};
	return $node;
}

# SQL that enqueues one event, for use inside larger scripts.
sub enqueue
{
	my ($id, $rest) = @_;
	$rest = $rest ? ", $rest" : '';
	return "SELECT outbox_enqueue('Order', '$id', 'OrderConfirmed', '{}'$rest);";
}

1;
