// Reads and writes the table idempotency_keys.
#pragma once

#include "idempotency/request_hash.hpp"

#include <optional>

namespace outbox {

// Identity of an idempotency key: its primary key in the table.
struct KeyName {
    int64 tenant_id;
    Datum scope; // text
    Datum key;   // text

    // Hash for lock_idempotency_key(). Different keys with the same hash only block each other.
    uint64 hash() const;
};

// The response of a finished attempt.
struct StoredResponse {
    int32 status_code;
    std::optional<Datum> body; // jsonb
    bool failed;
};

// A row of idempotency_keys.
struct StoredKey {
    int64 token;
    RequestHash request;
    TimestampTz expires_at;
    TimestampTz locked_until;               // end of the lease of an unfinished attempt
    std::optional<StoredResponse> response; // std::nullopt: unfinished

    // Returns true if a new attempt may take over the row: expired, or unfinished with an expired
    // lease.
    bool is_reusable(TimestampTz now) const
    {
        return expires_at <= now || (!response && locked_until <= now);
    }
};

// Reads the row of a key with the latest snapshot; takes no lock. In a transaction with one
// snapshot (REPEATABLE READ, SERIALIZABLE), raises serialization_failure if that snapshot does not
// show the row.
std::optional<StoredKey> find_key(const KeyName& name);

// An attempt to execute a request under a key.
struct Attempt {
    KeyName name;
    RequestHash request;
    int64 token;
    int64 ttl;               // microseconds
    int64 lease;             // microseconds
    bool is_written = false; // its row is in the table
};

// Inserts the row of an attempt into idempotency_keys. The caller holds the lock of the key.
// Without a response the attempt stays unfinished for another transaction.
void insert_key(const Attempt& attempt, const std::optional<StoredResponse>& response);

// Returns true if an attempt may be written by the pre-commit callback. Returns false if a user has
// changed the table: a deferred constraint trigger on it would not fire that late.
bool can_defer_insert();

// Overwrites a reusable row with this attempt, or inserts one if it was deleted meanwhile. The
// caller holds the lock of the key. Returns false if another transaction is deleting the row.
bool overwrite_key(const Attempt& attempt);

// finish_key() stores the response of an attempt whose row is written; remove_key() deletes that
// row. Both return false if the row has another token or a response, or is deleted concurrently.
// finish_key() also returns false if the row has expired, unless `own` is given: the transaction
// that began the attempt still holds the lock of the key, so the row expires a full ttl from now.
bool finish_key(const KeyName& name, int64 token, const StoredResponse& response,
                const Attempt* own);
bool remove_key(const KeyName& name, int64 token);

// Returns true if calls in this scope must have a key: by the table idempotency_scopes, else by
// outbox.idempotency_required.
bool is_key_required(Datum scope);

} // namespace outbox
