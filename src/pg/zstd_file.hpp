// Files compressed with zstd. Errors are raised. What is open is closed by the end of the
// transaction, and its memory goes with the current context.
#pragma once

#include "pg/postgres.hpp"

namespace outbox::pg {

struct CompressedWriter;
struct CompressedReader;

// A new file beside `path`, which takes its name when it is complete.
CompressedWriter* create_compressed(const char* path);
void write_compressed(CompressedWriter* writer, const char* bytes, Size size);

// Everything is on disk when this returns the file's size.
int64 finish_compressed(CompressedWriter* writer);

CompressedReader* open_compressed(const char* path);

// The next line, without its end, good until the next call; nullptr: there is none. A file that is
// cut off or damaged is an error.
const char* read_compressed_line(CompressedReader* reader);
void close_compressed(CompressedReader* reader);

} // namespace outbox::pg
