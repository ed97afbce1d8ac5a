#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace outbox {

// Error raised by plain C++ code, with an SQLSTATE of five characters. pg::sql_entry() reports it
// as an ordinary error of the server.
class Error : public std::runtime_error {
public:
    Error(const char* sqlstate, const std::string& message, std::string detail = {},
          std::string hint = {})
        : std::runtime_error(message), detail_(std::move(detail)), hint_(std::move(hint))
    {
        for (int i = 0; i < 5; ++i)
            sqlstate_[i] = sqlstate[i];
    }

    const char* sqlstate() const noexcept { return sqlstate_; }
    const std::string& detail() const noexcept { return detail_; }
    const std::string& hint() const noexcept { return hint_; }

private:
    char sqlstate_[6] = {};
    std::string detail_;
    std::string hint_;
};

} // namespace outbox
