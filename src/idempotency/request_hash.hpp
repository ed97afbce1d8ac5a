// The fingerprint of a request: SHA-256 over its canonical form, RFC 8785. The same for every
// client and every way to write the same JSON.
#pragma once

#include "pg/postgres.hpp"

namespace outbox {

struct RequestHash {
    static constexpr int size = 32;
    unsigned char bytes[size];

    friend bool operator==(const RequestHash&, const RequestHash&) = default;
};

RequestHash hash_of_request(const Jsonb* request);

// 64 hex digits, and back. Throws away nothing: what is no such text is an error.
char* to_hex(const RequestHash& hash);
RequestHash from_hex(Datum text);

} // namespace outbox
