// A state of the model: the server as far as cursors depend on it, and the sessions at work.
// Plain bytes without holes, so that states are copied, compared and hashed as such.
#pragma once

#include <cstdint>
#include <type_traits>

namespace outbox::model {

using Byte = std::uint8_t;

inline constexpr int max_sessions = 5;
inline constexpr int max_messages = 2; // that one session appends
inline constexpr int max_page = 2;
inline constexpr int max_answers = 8;
inline constexpr Byte first_xid = 100;

// What a session asks the server. Each question is answered in one indivisible step, and between
// two of them anything may happen.
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
    active,     // waits for the answer to its question
    ending,     // has done everything but commit
    committing, // its commit record is written, and snapshots still show it as running
    preparing,  // stands among the running ones twice
    prepared,
    over,
};

enum class RowState : Byte { none, written, committed, dead };

struct Row {
    Byte id;
    Byte xid;
    Byte run_length; // 0: not the first of a run
    RowState state;
    Byte is_durable; // its transaction's commit record is flushed
    Byte is_handed_out;
};

struct Session {
    Phase phase;
    Question pending;
    Byte xid;
    Byte holds_consumer; // the lock of the consumer
    Byte holds_row;      // the lock of the aggregate's row
    Byte forces_sync;    // ForceSyncCommit() was called
    Byte is_durable;     // its commit record is flushed
    Byte rank;           // the how-manieth it was to commit a change of the aggregate
    Byte has_appended;   // a claimer: its events, or nothing that will come of them
    Byte answered;
    Byte token; // of its batch
    Byte claimed_count;
    Byte claimed[max_page];             // ids that its batch hands out
    Byte is_batch_wrong;                // its batch has other ids than its caller has got
    Byte is_alone;                      // nothing was going on when it began to claim, or has since
    std::uint32_t answers[max_answers]; // to its questions, in their order
    std::uint32_t new_cursor;           // in its batch; 0: none
    Row rows[max_messages];
};

struct Server {
    Byte next_xid;
    Byte latest_completed;
    Byte seq;
    Byte token; // of the newest batch that is committed; 0 if nobody else has one
    // The same as far as it is written to the WAL, and as far as that is flushed.
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

// What a session does, again and again if it is a claimer.
struct Plan {
    enum Role : Byte { nobody, writer, claimer } role = nobody;
    int appends = 0;    // calls of enqueue; those of a claimer come before its first claim
    int run_length = 1; // events in each
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
    bool aborts = true;        // of writers
    bool prepares = true;      // of writers
    bool crash = true;         // once
    bool asynchronous = false; // commits of writers, and a WAL writer
    int claims_given_up = 1;   // rolled back at their end
    int partitions = 1;
    bool knows_consumer = true; // from an earlier claim of the same session
    bool asks_cursor = true;    // what it has passed
    Bug bug = Bug::none;
};

} // namespace outbox::model
