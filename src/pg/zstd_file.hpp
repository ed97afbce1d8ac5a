// Text files compressed with zstd. All functions raise errors. Files are transient files of the
// transaction; memory belongs to the memory context that was current at create or open.
#pragma once

#include "pg/postgres.hpp"

namespace outbox::pg {

struct CompressedWriter;
struct CompressedReader;

// Creates PATH.tmp. It is removed with the memory context unless finish_compressed() has renamed
// it.
CompressedWriter* create_compressed(const char* path);

// Compresses the bytes and appends them to the file.
void write_compressed(CompressedWriter* writer, const char* bytes, Size size);

// Completes the file and syncs it, renames PATH.tmp to PATH and returns its compressed size.
int64 finish_compressed(CompressedWriter* writer);

// Opens a file for read_compressed_line().
CompressedReader* open_compressed(const char* path);

// Returns the next line without its newline, valid until the next call; nullptr at the end. Raises
// data_corrupted for a truncated or damaged file.
const char* read_compressed_line(CompressedReader* reader);

// Closes the file. Its memory is freed with the memory context.
void close_compressed(CompressedReader* reader);

} // namespace outbox::pg
