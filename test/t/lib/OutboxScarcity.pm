# A disk that is full, and a process that gets no more memory, or no more files.
package OutboxScarcity;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Utils ();
use Test::More;

our @EXPORT = qw(need_small_disk fill make_room limit_memory unlimit_memory limit_files unlimit_files);

# The directory of a small file system of its own (test/servers mounts it). Skips the whole file where there is none; under CI that is
# a failure.
sub need_small_disk
{
	my $disk = $ENV{OUTBOX_SMALL_DISK};
	return $disk if $disk && -d $disk && -w $disk;
	plan(skip_all => 'there is no small file system: it could not be mounted') unless $ENV{CI} || $ENV{OUTBOX_CI};
	fail('there is a small file system');
	done_testing();
	exit 1;
}

# Leaves so many bytes of it, by and large.
sub fill
{
	my ($disk, $left) = @_;
	my $block = "\0" x 8192;
	open my $file, '>>:unix', "$disk/ballast" or die "$disk/ballast: $!";
	1 while syswrite $file, $block;
	truncate $file, (-s "$disk/ballast") - $left if $left;
}

sub make_room
{
	my ($disk) = @_;
	unlink "$disk/ballast";
}

# From now on a process may have so many bytes more than it has.
sub limit_memory
{
	my ($pid, $more) = @_;
	my ($has) = PostgreSQL::Test::Utils::slurp_file("/proc/$pid/status") =~ /^VmSize:\s+(\d+) kB/m or die "no process $pid";
	system('prlimit', '--pid', $pid, sprintf('--as=%d:', $has * 1024 + $more)) == 0 or die "prlimit $pid";
}

sub unlimit_memory
{
	my ($pid) = @_;
	return system('prlimit', '--pid', $pid, '--as=unlimited:') == 0;
}

# From now on a process can open no more files than it has open.
sub limit_files
{
	my ($pid) = @_;
	my %open = map { $_ => 1 } PostgreSQL::Test::Utils::slurp_dir("/proc/$pid/fd");
	my $free = 0;
	++$free while $open{$free};
	system('prlimit', '--pid', $pid, "--nofile=$free:") == 0 or die "prlimit $pid";
}

sub unlimit_files
{
	my ($pid) = @_;
	my ($most) = PostgreSQL::Test::Utils::slurp_file("/proc/$pid/limits") =~ /^Max open files\s+\d+\s+(\d+)/m or die "no process $pid";
	system('prlimit', '--pid', $pid, "--nofile=$most:") == 0 or die "prlimit $pid";
}

1;
