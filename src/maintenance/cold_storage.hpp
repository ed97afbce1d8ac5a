// Partitions as files: NDJSON, compressed with zstd, in outbox.cold_storage_dir.
#pragma once

#include <string>

namespace outbox {

// outbox.archive_command for this file of this table, from this day on.
std::string archive_command_for(const std::string& file, const std::string& table,
                                const std::string& day);

} // namespace outbox
