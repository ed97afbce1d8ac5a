#include "pg/zstd_file.hpp"

extern "C" {
#include "lib/stringinfo.h"
#include "storage/fd.h"
}

#include <fcntl.h>
#include <unistd.h>
#include <zstd.h>

#include <cstring>

namespace outbox::pg {

struct CompressedWriter {
    const char* path;
    const char* temporary; // name until the file is complete; nullptr afterwards
    int file;
    ZSTD_CCtx* context;
    char* out;
    Size out_size;
    int64 written;
};

struct CompressedReader {
    const char* path;
    int file;
    ZSTD_DCtx* context;
    char* in;
    Size in_size;
    ZSTD_inBuffer input;
    bool at_end_of_file;
    size_t unfinished;   // last result of ZSTD_decompressStream(); 0: at the end of a frame
    StringInfoData text; // decompressed
    int at;              // start of the next line in `text`
};

namespace {

void free_compressor(void* context)
{
    (void)ZSTD_freeCCtx(static_cast<ZSTD_CCtx*>(context));
}

void free_decompressor(void* context)
{
    (void)ZSTD_freeDCtx(static_cast<ZSTD_DCtx*>(context));
}

// Reset callback: deletes PATH.tmp unless finish_compressed() has renamed it.
void remove_unfinished(void* writer)
{
    if (const char* temporary = static_cast<CompressedWriter*>(writer)->temporary)
        (void)unlink(temporary);
}

// Registers a cleanup for the end of the current memory context, after success and errors alike:
// memory of libzstd, and an unfinished file.
void register_reset_callback(void (*function)(void*), void* argument)
{
    auto* callback = static_cast<MemoryContextCallback*>(palloc0(sizeof(MemoryContextCallback)));
    callback->func = function;
    callback->arg = argument;
    MemoryContextRegisterResetCallback(CurrentMemoryContext, callback);
}

// Raises the error of errno. `what` is a verb.
[[noreturn]] void raise_file_error(const char* what, const char* path)
{
    ereport(ERROR, (errcode_for_file_access(), errmsg("could not %s file \"%s\": %m", what, path)));
    pg_unreachable();
}

// Raises data_corrupted.
[[noreturn]] void raise_damaged_file(const CompressedReader& reader, const char* why)
{
    ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
                    errmsg("file \"%s\" is damaged: %s", reader.path, why)));
    pg_unreachable();
}

// Writes all bytes to the file. Raises an error, after deleting PATH.tmp, if that fails.
void write_bytes(CompressedWriter& writer, const char* bytes, Size size)
{
    while (size > 0) {
        errno = 0;
        const ssize_t done = write(writer.file, bytes, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            // A partial file would keep a full disk full until the next attempt.
            const int error = errno == 0 ? ENOSPC : errno;
            (void)unlink(writer.temporary);
            errno = error;
            raise_file_error("write", writer.temporary);
        }
        bytes += done;
        size -= static_cast<Size>(done);
        writer.written += done;
    }
}

// Compresses the input and writes what is complete; ZSTD_e_end completes the frame.
void compress(CompressedWriter& writer, ZSTD_inBuffer input, ZSTD_EndDirective directive)
{
    size_t left;
    do {
        CHECK_FOR_INTERRUPTS();
        ZSTD_outBuffer output = {writer.out, writer.out_size, 0};
        left = ZSTD_compressStream2(writer.context, &output, &input, directive);
        if (ZSTD_isError(left))
            elog(ERROR, "zstd: %s", ZSTD_getErrorName(left));
        write_bytes(writer, writer.out, output.pos);
    } while (directive == ZSTD_e_end ? left > 0 : input.pos < input.size);
}

// Reads the file and appends decompressed text to reader.text. Returns false at the end of the
// file. Raises data_corrupted for a damaged or truncated file.
bool decompress_more(CompressedReader& reader)
{
    const int before = reader.text.len;
    while (reader.text.len == before) {
        CHECK_FOR_INTERRUPTS();
        if (reader.input.pos == reader.input.size && !reader.at_end_of_file) {
            const ssize_t size = read(reader.file, reader.in, reader.in_size);
            if (size < 0)
                raise_file_error("read", reader.path);
            reader.at_end_of_file = size == 0;
            reader.input = {reader.in, static_cast<size_t>(size), 0};
        }
        enlargeStringInfo(&reader.text, static_cast<int>(ZSTD_DStreamOutSize()));
        ZSTD_outBuffer output = {reader.text.data + reader.text.len, ZSTD_DStreamOutSize(), 0};
        if (reader.input.pos < reader.input.size) {
            reader.unfinished = ZSTD_decompressStream(reader.context, &output, &reader.input);
            if (ZSTD_isError(reader.unfinished))
                raise_damaged_file(reader, ZSTD_getErrorName(reader.unfinished));
        } else if (reader.at_end_of_file) {
            if (reader.unfinished != 0)
                raise_damaged_file(reader, "it is truncated");
            return false;
        }
        reader.text.len += static_cast<int>(output.pos);
        reader.text.data[reader.text.len] = '\0';
    }
    return true;
}

} // namespace

CompressedWriter* create_compressed(const char* path)
{
    auto* writer = static_cast<CompressedWriter*>(palloc0(sizeof(CompressedWriter)));
    writer->path = path;
    writer->temporary = psprintf("%s.tmp", path);
    writer->context = ZSTD_createCCtx();
    if (writer->context == nullptr)
        ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
    register_reset_callback(free_compressor, writer->context);
    (void)ZSTD_CCtx_setParameter(writer->context, ZSTD_c_checksumFlag, 1);
    writer->out_size = ZSTD_CStreamOutSize();
    writer->out = static_cast<char*>(palloc(writer->out_size));
    writer->file = OpenTransientFile(writer->temporary, O_WRONLY | O_CREAT | O_TRUNC | PG_BINARY);
    if (writer->file < 0)
        raise_file_error("create", writer->temporary);
    register_reset_callback(remove_unfinished, writer);
    return writer;
}

void write_compressed(CompressedWriter* writer, const char* bytes, Size size)
{
    compress(*writer, {bytes, size, 0}, ZSTD_e_continue);
}

int64 finish_compressed(CompressedWriter* writer)
{
    compress(*writer, {nullptr, 0, 0}, ZSTD_e_end);
    if (CloseTransientFile(writer->file) != 0)
        raise_file_error("close", writer->temporary);
    // durable_rename() syncs the file, renames it and syncs the directory.
    (void)durable_rename(writer->temporary, writer->path, ERROR);
    writer->temporary = nullptr;
    return writer->written;
}

CompressedReader* open_compressed(const char* path)
{
    auto* reader = static_cast<CompressedReader*>(palloc0(sizeof(CompressedReader)));
    reader->path = path;
    reader->context = ZSTD_createDCtx();
    if (reader->context == nullptr)
        ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
    register_reset_callback(free_decompressor, reader->context);
    reader->in_size = ZSTD_DStreamInSize();
    reader->unfinished = 1; // an empty file has no frame and counts as truncated
    reader->in = static_cast<char*>(palloc(reader->in_size));
    initStringInfo(&reader->text);
    reader->file = OpenTransientFile(path, O_RDONLY | PG_BINARY);
    if (reader->file < 0)
        raise_file_error("open", path);
    return reader;
}

const char* read_compressed_line(CompressedReader* reader)
{
    char* end;
    while ((end = std::strchr(reader->text.data + reader->at, '\n')) == nullptr) {
        // Lines that were returned are removed from the buffer.
        std::memmove(reader->text.data, reader->text.data + reader->at,
                     static_cast<Size>(reader->text.len - reader->at) + 1);
        reader->text.len -= reader->at;
        reader->at = 0;
        if (decompress_more(*reader))
            continue;
        if (reader->text.len > 0)
            raise_damaged_file(*reader, "its last line is incomplete");
        return nullptr;
    }
    *end = '\0';
    const char* line = reader->text.data + reader->at;
    reader->at = static_cast<int>(end + 1 - reader->text.data);
    return line;
}

void close_compressed(CompressedReader* reader)
{
    (void)CloseTransientFile(reader->file);
}

} // namespace outbox::pg
