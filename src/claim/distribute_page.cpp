#include "claim/distribute_page.hpp"

namespace outbox {

namespace {

// More than this is not worth the memory.
constexpr int64 max_page = 20000;

// How many batches for each partition of a consumer without order: while somebody reads the next
// page, the others have something to pick up.
constexpr int64 rounds_ahead = 4;

// The largest batch for a partition whose turn is not yet: it will be cut.
constexpr int64 max_waiting_batch = 1000;

// What a partition gets.
struct Hand {
    pg::Growing<IdRange> ids;
    int64 size;
    bool has_nothing_else;
};

Hand* open_hands(const Consumer& consumer, std::span<const Lease> leases)
{
    auto* hands =
        static_cast<Hand*>(palloc0(sizeof(Hand) * static_cast<std::size_t>(consumer.partitions)));
    for (int32 i = 0; i < consumer.partitions; ++i)
        hands[i].has_nothing_else = true;
    for (const Lease& lease : leases)
        if (lease.partition < consumer.partitions)
            hands[lease.partition].has_nothing_else = false;
    return hands;
}

} // namespace

Dealt read_and_deal(const Consumer& consumer, std::span<const Lease> leases, int batch_size,
                    Cursor& cursor)
{
    Dealt dealt;
    Hand* hands = open_hands(consumer, leases);
    const auto lay_down = [&](int64 place) {
        dealt.batches.push({static_cast<int32>(place), hands[place].ids.view()});
        hands[place].ids = {};
        hands[place].size = 0;
    };
    const int64 size = batch_size;
    const int64 largest = consumer.ordered ? Max(size, max_waiting_batch) : size;
    int64 taken = 0;
    int64 limit =
        consumer.ordered ? max_page : Min(size * consumer.partitions * rounds_ahead, max_page);
    dealt.page =
        read_page(cursor, consumer.filter, limit, reading_budget, [&](const Message& message) {
            const int64 place = consumer.ordered ? consumer.partition_of(message)
                                                 : taken / size % consumer.partitions;
            Hand& hand = hands[place];
            append_to(hand.ids, message.id());
            ++hand.size;
            ++taken;
            if (consumer.ordered && hand.has_nothing_else && hand.size == size)
                limit = taken;
            if (hand.size == largest)
                lay_down(place);
            return true;
        });
    for (int32 place = 0; place < consumer.partitions; ++place)
        if (hands[place].size > 0)
            lay_down(place);
    return dealt;
}

} // namespace outbox
