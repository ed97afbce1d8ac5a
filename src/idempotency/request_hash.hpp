// The fingerprint of a request: SHA-256 over its canonical form (RFC 8785). Two texts of the same
// JSON value have the same hash, whatever client, key order or database encoding.
#pragma once

#include "pg/postgres.hpp"

namespace outbox {

struct RequestHash {
    static constexpr int size = 32;
    unsigned char bytes[size];

    friend bool operator==(const RequestHash&, const RequestHash&) = default;
};

// Returns the hash of a request. Raises an error if it is nested too deeply, or has a number that a
// double cannot represent.
RequestHash hash_of_request(const Jsonb* request);

// Returns the hash as 64 hex digits, allocated in the current context.
char* to_hex(const RequestHash& hash);

// Parses 64 hex digits. Raises invalid_parameter_value for any other text.
RequestHash from_hex(Datum text);

} // namespace outbox
