// Compiled JSON Schemas. valijson does the work.
#pragma once

#include "core/json/json_tree.hpp"
#include "core/schema/normalize.hpp"

#include <memory>
#include <optional>
#include <string>

namespace outbox::schema {

// Where a value does not fit, and why. Never the value itself: it may be nobody's business.
struct Misfit {
    std::string pointer;
    std::string rule; // the keyword
    std::string reason;
};

// What validation needs from around it.
struct Services {
    Match match;
    // Called before each definition is applied. Throws if it should go no further: the stack ends,
    // or somebody has cancelled.
    void (*pause)();
};

class Compiled {
public:
    // Throws outbox::Error if the schema cannot be used.
    Compiled(std::string_view text, const Services& services);
    ~Compiled();
    Compiled(const Compiled&) = delete;
    Compiled& operator=(const Compiled&) = delete;

    // Nothing if it fits.
    std::optional<Misfit> validate(const json::Value& value) const;

private:
    struct Insides;
    std::unique_ptr<Insides> insides_;
};

} // namespace outbox::schema
