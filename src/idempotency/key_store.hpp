// The table of idempotency keys: what is known of a key, and writing it down.
#pragma once

#include "idempotency/request_hash.hpp"

#include <optional>

namespace outbox {

// Who a key belongs to, and its name.
struct KeyName {
    int64 tenant_id;
    Datum scope; // text
    Datum key;   // text

    // For locks. Two names that share it only get in each other's way.
    uint64 hash() const;
};

// An answer, as it was given to finish.
struct StoredResponse {
    int32 status_code;
    std::optional<Datum> body; // jsonb
    bool failed;
};

// A row of the table.
struct StoredKey {
    int64 token;
    RequestHash request;
    TimestampTz expires_at;
    TimestampTz locked_until;               // while it runs
    std::optional<StoredResponse> response; // nothing: it runs

    bool is_reusable(TimestampTz now) const
    {
        return expires_at <= now || (!response && locked_until <= now);
    }
};

// What is committed now, and what this transaction has written. Under one snapshot for the whole
// transaction, a row that the snapshot does not show is a serialization failure.
std::optional<StoredKey> find_key(const KeyName& name);

// An attempt to use a key: what finish, or the end of the transaction, writes down.
struct Attempt {
    KeyName name;
    RequestHash request;
    int64 token;
    int64 ttl;   // microseconds
    int64 lease; // microseconds
    bool is_written = false;
};

// Both need the lock of the name. Without an answer, the attempt goes on in another transaction.
void insert_key(const Attempt& attempt, const std::optional<StoredResponse>& response);

// May an attempt be written as late as at the end of the transaction? Not if somebody has put a
// trigger on the table: deferred ones have been run by then.
bool can_defer_insert();

// Takes the place of a row that is free. False if somebody else is about to remove it.
bool overwrite_key(const Attempt& attempt);

// The answer of an attempt whose row is written; or it never happened. False if the row is not this
// attempt's any more, finished, or about to be removed. One that has expired does not matter to the
// transaction that has begun the attempt, for it has the lock: its answer is kept from now on.
bool finish_key(const KeyName& name, int64 token, const StoredResponse& response,
                const Attempt* own);
bool remove_key(const KeyName& name, int64 token);

// Is a key demanded of everybody in this scope?
bool is_key_required(Datum scope);

} // namespace outbox
