# A full disk, and limits on the memory and the files of a process.
package OutboxScarcity;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Utils ();
use Test::More;

our @EXPORT =
	qw(need_small_disk fill make_room limit_memory unlimit_memory limit_files unlimit_files);

# Returns the directory of a small file system (test/servers mounts it). Skips the whole file if
# there is none; under CI that is a failure.
sub need_small_disk
{
	my $disk = $ENV{OUTBOX_SMALL_DISK};
	return $disk if $disk && -d $disk && -w $disk;
	plan(skip_all => 'there is no small file system: it could not be mounted')
	  unless $ENV{CI} || $ENV{OUTBOX_CI};
	fail('a small file system can be mounted');
	done_testing();
	exit 1;
}

# Fills the disk up to about this many bytes.
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

# Limits the memory of a process to this many bytes more than it has now.
sub limit_memory
{
	my ($pid, $more) = @_;
	my ($has) = PostgreSQL::Test::Utils::slurp_file("/proc/$pid/status") =~ /^VmSize:\s+(\d+) kB/m
	  or die "no process $pid";
	system('prlimit', '--pid', $pid, sprintf('--as=%d:', $has * 1024 + $more)) == 0
	  or die "prlimit $pid";
}

sub unlimit_memory
{
	my ($pid) = @_;
	return system('prlimit', '--pid', $pid, '--as=unlimited:') == 0;
}

# Prevents a process from opening more files than it has open.
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
	my ($most) =
		PostgreSQL::Test::Utils::slurp_file("/proc/$pid/limits") =~ /^Max open files\s+\d+\s+(\d+)/m
	  or die "no process $pid";
	system('prlimit', '--pid', $pid, "--nofile=$most:") == 0 or die "prlimit $pid";
}

1;
