// Cold storage: archive partitions as files in outbox.cold_storage_dir, one JSON object per line,
// compressed with zstd.
#pragma once

#include <string>

namespace outbox {

// Returns outbox.archive_command with %f (path of the file), %t (partition), %d (its first day) and
// %% replaced. The caller makes sure that the values are safe for a shell.
std::string archive_command_for(const std::string& file, const std::string& table,
                                const std::string& day);

} // namespace outbox
