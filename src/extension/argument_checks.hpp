// Checks of arguments that enqueue and the audit log have in common.
#pragma once

#include "pg/postgres.hpp"

#include <optional>

namespace outbox {

// An argument as error messages name it: payload, or events[7].payload for an element of the array
// that outbox_enqueue_many() takes.
class ArgumentName {
public:
    // Implicit, so that a string literal names an argument outside of arrays.
    constexpr ArgumentName(const char* name, int array_index = -1)
        : name_(name), array_index_(array_index)
    {}

    // Returns the name as messages have it, allocated in the current memory context.
    const char* qualified() const;

private:
    const char* name_;
    int array_index_;
};

// Raises null_value_not_allowed.
[[noreturn]] void raise_null_not_allowed(const ArgumentName& argument);

// Returns the text detoasted. Raises invalid_parameter_value if it is empty,
// string_data_right_truncation if it is longer than limits::max_name_bytes.
Datum checked_name(const ArgumentName& argument, Datum value);

// Returns the text detoasted. Raises null_value_not_allowed for NULL, and the errors of
// checked_name().
Datum required_name(const ArgumentName& argument, const std::optional<Datum>& value);

// Raises program_limit_exceeded if the value, uncompressed, is larger than outbox.max_payload_size.
// Reads no TOAST table.
void check_value_size(const ArgumentName& argument, Datum value);

// Returns the jsonb value detoasted, or {} in static memory for NULL. Raises an error if it is no
// object, or larger than outbox.max_payload_size.
Datum checked_json_object(const ArgumentName& argument, const std::optional<Datum>& value);

} // namespace outbox
