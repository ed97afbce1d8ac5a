#include "extension/fencing_token.hpp"

#include "extension/locks.hpp"
#include "extension/relations.hpp"
#include "pg/sequence.hpp"

extern "C" {
#include "access/xlog.h"
}

namespace outbox {

namespace {

// The high bits of a token are the timeline id: a promoted standby may not have replayed the tokens
// that its primary drew last, and must not draw them again.
constexpr int timeline_shift = 40;

} // namespace

int64 draw_tokens(int count)
{
    (void)GetTopTransactionId();
    const Oid sequence = extension_relations().token_sequence;
    const int64 floor = static_cast<int64>(GetWALInsertionTimeLine()) << timeline_shift;
    int64 first = pg::draw_values(sequence, count);
    if (first < floor) {
        // First tokens on this timeline: raise the sequence to `floor`. The lock makes sessions do
        // that one after the other, so that setval() never lowers a sequence already in use.
        const uint64 key = 0x746F6B656E; // "token"
        lock_key(key);
        first = pg::draw_values(sequence, count);
        if (first < floor) {
            pg::set_next_value(sequence, floor);
            first = pg::draw_values(sequence, count);
        }
        unlock_key(key);
    }
    return first;
}

} // namespace outbox
