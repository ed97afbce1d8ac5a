// Compiled JSON Schemas. valijson does the work.
#pragma once

#include "core/json/json_tree.hpp"
#include "core/schema/normalize.hpp"

#include <memory>
#include <optional>
#include <string>

namespace outbox::schema {

// Where a value does not fit, and why. Never the value itself: it may be nobody's business.
struct Violation {
    std::string pointer;
    std::string rule; // the keyword
    std::string reason;
};

// What validation needs from around it.
struct Callbacks {
    RegexMatch match;
    // Called before each definition is applied. Throws if it should go no further: the stack ends,
    // or somebody has cancelled.
    void (*check_interrupts)();
};

class CompiledSchema {
public:
    // Throws outbox::Error if the schema cannot be used.
    CompiledSchema(std::string_view text, const Callbacks& callbacks);
    ~CompiledSchema();
    CompiledSchema(const CompiledSchema&) = delete;
    CompiledSchema& operator=(const CompiledSchema&) = delete;

    // Nothing if it fits.
    std::optional<Violation> validate(const json::Value& value) const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace outbox::schema
