// A state of the model: the part of the server that cursors depend on, and the sessions. Plain
// bytes without padding, so that states are copied, compared and hashed as memory.
#pragma once

#include <cstdint>
#include <type_traits>

namespace outbox::model {

using Byte = std::uint8_t;

inline constexpr int max_sessions = 5;
inline constexpr int max_messages = 2; // appended by one session
inline constexpr int max_page = 2;
inline constexpr int max_answers = 8;
inline constexpr Byte first_xid = 100;

// Questions of a session to the server. Each is answered in one atomic step; between two of them
// any other step may happen.
enum class Question : Byte {
    none,
    row_lock,
    xid,
    id,
    consumer_lock,
    cursor,
    snapshot,
    sequence,
    next_xid,
};

enum class Phase : Byte {
    active,     // waiting for the answer to its question
    ending,     // done except for the commit
    committing, // the commit record is written, but snapshots still show the transaction as running
    preparing,  // listed twice in snapshots
    prepared,
    over,
};

enum class RowState : Byte { none, written, committed, dead };

struct Row {
    Byte id;
    Byte xid;
    Byte run_length; // 0: not the first row of a run
    RowState state;
    Byte is_durable; // the commit record of its transaction is flushed
    Byte is_handed_out;
};

struct Session {
    Phase phase;
    Question pending;
    Byte xid;
    Byte holds_consumer; // the lock of the consumer
    Byte holds_row;      // the lock of the aggregate's row
    Byte forces_sync;    // ForceSyncCommit() was called
    Byte is_durable;     // the commit record is flushed
    Byte rank;           // position of its commit among the commits of changes of the aggregate
    Byte has_appended;   // of a claimer: its own events are committed or rolled back
    Byte answered;
    Byte token; // of the session's batch
    Byte claimed_count;
    Byte claimed[max_page];             // ids delivered by the session's batch
    Byte is_batch_wrong;                // the batch has other ids than were delivered to the caller
    Byte is_alone;                      // no other session has taken a step since all were at rest
    std::uint32_t answers[max_answers]; // to the session's questions, in their order
    std::uint32_t new_cursor;           // stored with the batch; 0: none
    Row rows[max_messages];
};

struct Server {
    Byte next_xid;
    Byte latest_completed;
    Byte seq;
    Byte token; // of the newest committed batch; 0 while no session has a token
    // The same values as written to the WAL (logged) and as flushed (durable).
    Byte logged_next_xid;
    Byte logged_seq;
    Byte durable_next_xid;
    Byte durable_seq;
    Byte durable_token;
    Byte has_crashed;
    Byte claims_given_up;
    Byte commits; // of changes of the aggregate
    Byte unused[4];
    std::uint32_t cursor;
    std::uint32_t durable_cursor;
};

struct State {
    Server server;
    Session sessions[max_sessions];
};

static_assert(std::has_unique_object_representations_v<State>);

// The actions of a session; a claimer repeats its claims.
struct Plan {
    enum Role : Byte { nobody, writer, claimer } role = nobody;
    int appends = 0;    // calls of enqueue; a claimer makes them before its first claim
    int run_length = 1; // events per call
    bool locks_row = false;
    bool inserts = false; // with INSERT instead of enqueue

    friend bool operator==(const Plan&, const Plan&) = default;
};

enum class Bug : Byte {
    none,
    list_not_extended,
    next_xid_before_sequence,
    id_before_xid,
    old_snapshot,
    doubled_left_out,
    lock_given_up,
    late_commits_not_merged,
    late_commits_last,
    position_too_high,
    position_too_low,
    any_row,
    commit_not_forced,
};

struct Setting {
    const char* name = "";
    Plan plans[max_sessions];
    int page = 1;
    bool aborts = true;        // rollbacks of writers
    bool prepares = true;      // prepared transactions of writers
    bool crash = true;         // at most one
    bool asynchronous = false; // asynchronous commits of writers, and a WAL writer
    int claims_given_up = 1;   // claims that are rolled back at their end
    int partitions = 1;
    bool knows_consumer = true; // cached by an earlier claim of the session
    bool asks_cursor = true;    // checks has_passed() and known_upto() in every state
    Bug bug = Bug::none;
};

} // namespace outbox::model
