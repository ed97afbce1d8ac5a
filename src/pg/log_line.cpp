#include "pg/log_line.hpp"

#include "pg/guard.hpp"

namespace outbox::pg {

void log_line(int level, const std::string& message, const std::string& hint)
{
    const char* text = message.c_str();
    const char* help = hint.empty() ? nullptr : hint.c_str();
    call([&] {
        ereport(level,
                (errmsg_internal("outbox: %s", text), help != nullptr ? errhint("%s", help) : 0));
    });
}

} // namespace outbox::pg
