#include "pg/exceptions.hpp"

#include "core/error.hpp"

#include <cstring>
#include <new>

namespace outbox::pg {

namespace {

// Truncates at a byte boundary, because a handler must not fail. raise() removes a partial
// character.
template <std::size_t size>
void copy_truncated(char (&to)[size], const char* from) noexcept
{
    const std::size_t length = strnlen(from, size - 1);
    std::memcpy(to, from, length);
    to[length] = '\0';
}

// Returns a palloc'd copy without a partial character at its end.
char* copy_at_character_boundary(const char* text)
{
    const int length = static_cast<int>(std::strlen(text));
    return pnstrdup(text, pg_mbcliplen(text, length, length));
}

} // namespace

void CapturedException::capture() noexcept
{
    server_error_ = nullptr;
    copy_truncated(sqlstate_, "XX000");
    detail_[0] = hint_[0] = '\0';
    try {
        throw;
    } catch (const ServerError& error) {
        server_error_ = error.data();
    } catch (const outbox::Error& error) {
        copy_truncated(sqlstate_, error.sqlstate());
        copy_truncated(message_, error.what());
        copy_truncated(detail_, error.detail().c_str());
        copy_truncated(hint_, error.hint().c_str());
    } catch (const std::bad_alloc&) {
        copy_truncated(sqlstate_, "53200");
        copy_truncated(message_, "out of memory");
    } catch (const std::exception& error) {
        copy_truncated(message_, error.what());
    } catch (...) {
        copy_truncated(message_, "unknown C++ exception");
    }
}

void CapturedException::raise() const
{
    if (server_error_ != nullptr)
        ReThrowError(server_error_);

    const char* s = sqlstate_;
    ereport(ERROR,
            (errcode(MAKE_SQLSTATE(s[0], s[1], s[2], s[3], s[4])),
             errmsg_internal("%s", copy_at_character_boundary(message_)),
             detail_[0] != '\0' ? errdetail_internal("%s", copy_at_character_boundary(detail_)) : 0,
             hint_[0] != '\0' ? errhint("%s", copy_at_character_boundary(hint_)) : 0));
    pg_unreachable();
}

} // namespace outbox::pg
