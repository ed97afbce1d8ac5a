#include "pg/exceptions.hpp"

#include "core/error.hpp"

#include <cstring>
#include <new>

namespace outbox::pg {

namespace {

// Truncates rather than fails; raise() repairs a character that is cut in half.
template <std::size_t size>
void copy_text(char (&to)[size], const char* from) noexcept
{
    const std::size_t length = strnlen(from, size - 1);
    std::memcpy(to, from, length);
    to[length] = '\0';
}

char* clipped(const char* text)
{
    const int length = static_cast<int>(std::strlen(text));
    return pnstrdup(text, pg_mbcliplen(text, length, length));
}

} // namespace

void Report::capture() noexcept
{
    server_error_ = nullptr;
    copy_text(sqlstate_, "XX000");
    detail_[0] = hint_[0] = '\0';
    try {
        throw;
    } catch (const Error& error) {
        server_error_ = error.data();
    } catch (const outbox::Error& error) {
        copy_text(sqlstate_, error.sqlstate());
        copy_text(message_, error.what());
        copy_text(detail_, error.detail().c_str());
        copy_text(hint_, error.hint().c_str());
    } catch (const std::bad_alloc&) {
        copy_text(sqlstate_, "53200");
        copy_text(message_, "out of memory");
    } catch (const std::exception& error) {
        copy_text(message_, error.what());
    } catch (...) {
        copy_text(message_, "unknown C++ exception");
    }
}

void Report::raise() const
{
    if (server_error_ != nullptr)
        ReThrowError(server_error_);

    const char* s = sqlstate_;
    ereport(ERROR, (errcode(MAKE_SQLSTATE(s[0], s[1], s[2], s[3], s[4])),
                    errmsg_internal("%s", clipped(message_)),
                    detail_[0] != '\0' ? errdetail_internal("%s", clipped(detail_)) : 0,
                    hint_[0] != '\0' ? errhint("%s", clipped(hint_)) : 0));
    pg_unreachable();
}

} // namespace outbox::pg
