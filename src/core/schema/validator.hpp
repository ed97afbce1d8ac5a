// Compiled JSON Schemas, validated by valijson.
#pragma once

#include "core/json/json_tree.hpp"
#include "core/schema/normalize.hpp"

#include <memory>
#include <optional>
#include <string>

namespace outbox::schema {

// The location and reason of a failed validation. It never contains the value, which may be
// personal data: the text is sent to clients and to the server's log.
struct Violation {
    std::string pointer; // JSON pointer into the payload
    std::string rule;    // keyword of the schema
    std::string reason;  // sentence for errdetail
};

// Functions of the server, passed in because this room includes no header of the server.
struct Callbacks {
    RegexMatch match;
    // Called before each definition is applied. Throws to end the validation: at the stack limit,
    // or if the query was canceled.
    void (*check_interrupts)();
};

// A schema that valijson has compiled.
class CompiledSchema {
public:
    // Normalizes and compiles the text. Throws outbox::Error if the schema is invalid or not
    // supported.
    CompiledSchema(std::string_view text, const Callbacks& callbacks);
    ~CompiledSchema();
    CompiledSchema(const CompiledSchema&) = delete;
    CompiledSchema& operator=(const CompiledSchema&) = delete;

    // Returns the violation to report; std::nullopt if the value is valid. Throws what the
    // callbacks throw.
    std::optional<Violation> validate(const json::Value& value) const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace outbox::schema
