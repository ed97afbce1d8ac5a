# After a restore into a cluster with unrelated transaction ids, a consumer gets each undelivered
# event once, and no delivered event again.
use strict;
use warnings;
use lib 't/lib';
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $old = start_node('old');
my $dump = "${PostgreSQL::Test::Utils::tmp_check}/other.sql";
$old->safe_psql('postgres', "SELECT outbox_setup(); SELECT outbox_create_consumer('c')");

# Delivered: 1 to 50, each in its own transaction. Undelivered: a late commit, and later events.
$old->safe_psql('postgres', "BEGIN; " . enqueue('straggler') . " PREPARE TRANSACTION 'straggler'");
$old->safe_psql('postgres', enqueue($_)) for (1 .. 50);
is($old->safe_psql('postgres', "SELECT count(*) FROM outbox_consume('c', 1000)"), 50,
	'50 events are delivered before the dump');
$old->safe_psql('postgres', "COMMIT PREPARED 'straggler'");
$old->safe_psql('postgres', enqueue("later $_")) for (1 .. 5);
my $xids = $old->safe_psql('postgres',
	"SELECT min(xid::text::bigint), max(xid::text::bigint) FROM outbox_messages");
my ($least, $greatest) = split /\|/, $xids;
command_ok([ 'pg_dump', '-d', $old->connstr('postgres'), '-f', $dump ], 'pg_dump succeeds');
$old->stop;

# The next transaction id of the new cluster is in the middle of those in the log.
my $new = PostgreSQL::Test::Cluster->new('new');
$new->init;
command_ok([ 'pg_resetwal', '-x', $least + 20, $new->data_dir ],
	'pg_resetwal sets the next transaction id to one of the log');
$new->append_conf('postgresql.conf', staged());
$new->append_conf('postgresql.conf',
	"shared_preload_libraries = 'outbox'\nmax_prepared_transactions = 100\nautovacuum = off\n");
$new->start;
$new->safe_psql('postgres', 'CREATE DATABASE restored');
command_ok([ 'psql', '-X', '-q', '-1', '-v', 'ON_ERROR_STOP=1', '-d', $new->connstr('restored'),
	'-f', $dump ], 'the dump restores');
my $next = $new->safe_psql('restored', 'SELECT pg_current_xact_id()');

# Transactions with those ids stay open while the consumer reads, and commit afterwards.
my $prepared = 60;
$new->safe_psql('restored', 'BEGIN; ' . enqueue("new $_") . " PREPARE TRANSACTION 'n$_'")
  for (1 .. $prepared);
note "the log has xids $least to $greatest, the new cluster began at $next";
ok($next < $greatest && $next + $prepared > $greatest,
	'open transactions have transaction ids that are in the log');
my @got = split /\n/,
  $new->safe_psql('restored', "SELECT aggregate_id FROM outbox_consume('c', 1000)");
$new->safe_psql('restored', "COMMIT PREPARED 'n$_'") for (1 .. $prepared);
push @got, split /\n/,
  $new->safe_psql('restored', "SELECT aggregate_id FROM outbox_consume('c', 1000)") for (1 .. 2);
my @expected = ('straggler', (map { "later $_" } 1 .. 5), (map { "new $_" } 1 .. $prepared));
is_deeply([ sort @got ], [ sort @expected ],
	'a restored consumer gets each undelivered event once and no other');
$new->stop;

done_testing();
