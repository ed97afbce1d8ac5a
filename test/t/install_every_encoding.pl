# CREATE EXTENSION works in databases of every kind of server encoding.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use Test::More;

# to_char() cannot convert the names of months of C.UTF-8 to MULE_INTERNAL.
my $node = start_node('main', no_extension => 1, conf => "lc_time = 'C'\n");
for my $encoding (qw(UTF8 EUC_JP MULE_INTERNAL LATIN1 SQL_ASCII))
{
	my $database = lc $encoding;
	$node->safe_psql('postgres',
		"CREATE DATABASE $database TEMPLATE template0 ENCODING '$encoding' LC_COLLATE 'C' "
		  . "LC_CTYPE 'C'");
	$node->safe_psql($database,
		'SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE');
	$node->safe_psql($database, enqueue(1));
	is($node->safe_psql($database, 'SELECT count(*) FROM outbox_messages'), 1,
		"the extension installs and enqueues an event in $encoding");
}
$node->stop;

done_testing();
