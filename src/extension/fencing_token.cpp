#include "extension/fencing_token.hpp"

#include "extension/locks.hpp"
#include "extension/relations.hpp"
#include "pg/sequence.hpp"

extern "C" {
#include "access/xlog.h"
}

namespace outbox {

namespace {

// Tokens have the timeline in their high bits: a standby that is promoted may not know of tokens
// that its primary has given away.
constexpr int timeline_shift = 40;

} // namespace

int64 draw_tokens(int count)
{
    (void)GetTopTransactionId();
    const Oid sequence = extension_relations().token_sequence;
    const int64 floor = static_cast<int64>(GetWALInsertionTimeLine()) << timeline_shift;
    int64 first = pg::draw_values(sequence, count);
    if (first < floor) {
        // The first on this timeline raise the sequence, one after the other: nobody uses a token
        // from below, and nobody sets back what another has drawn from.
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
