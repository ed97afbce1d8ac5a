#include "sink/stream_courier.hpp"

#include <utility>

namespace outbox::sink {

// Lanes and items come and go with every event: some are kept for those that follow. There are
// never more than half as many lanes in use.
void StreamCourier::add(Event event)
{
    if (lanes_.size() >= most_lanes())
        std::erase_if(lanes_, [](const auto& one) { return one.second.is_idle(); });
    std::unique_ptr<Item> item =
        spare_items_.empty() ? std::make_unique<Item>() : std::move(spare_items_.back());
    if (!spare_items_.empty())
        spare_items_.pop_back();
    item->suspicion = suspicion_of(event);
    item->event = std::move(event);
    take_in(item->event);
    const std::uint64_t key = lane_of(item->event);
    Lane& lane = lanes_[key];
    lane.key = key;
    lane.items.push(std::move(item));
    go_on(lane);
}

// ---- sending

bool StreamCourier::send_some(TimePoint now)
{
    bool has_sent = false;
    while (may_send(now) && !ready_.empty()) {
        Lane& lane = *ready_.front();
        ready_.pop_front();
        // It may have been emptied, or held, since it was queued.
        while (may_send(now)) {
            const auto stream = stream_of_next(lane);
            if (!stream)
                break;
            send_next(lane, *stream, now);
            has_sent = true;
        }
        lane.queued = false;
        go_on(lane);
    }
    return has_sent;
}

// If the next one may be sent: it is alone, or the sink is known to keep it in order.
std::optional<StreamId> StreamCourier::stream_of_next(const Lane& lane) const
{
    if (!lane.can_send())
        return std::nullopt;
    const StreamId stream = sink_->stream_of(lane.items[lane.sent].event);
    return lane.on_the_way == 0 || stream == lane.trusted ? std::optional(stream) : std::nullopt;
}

// The lane counts as queued: the sender has it in hand, and goes on with it by itself.
void StreamCourier::send_next(Lane& lane, StreamId stream, TimePoint now)
{
    Item& item = lane.items[lane.sent];
    item.rejection.reset(); // the sink is asked anew
    item.on_the_way = true;
    ++lane.sent;
    ++lane.on_the_way;
    ++on_the_way_;
    // What is to follow in another stream must not go beside it.
    if (stream != lane.trusted)
        lane.trusted = 0;
    const ParcelId id = parcels_.put({&lane, &item, stream, now});
    const Event* events[] = {&item.event};
    if (const auto outcome = sink_->send(id, events, stream))
        arrive(*outcome, now);
}

// ---- what comes back

void StreamCourier::arrive(const Outcome& outcome, TimePoint now)
{
    if (parcels_.find(outcome.parcel) == nullptr)
        return;
    const Parcel parcel = parcels_.take(outcome.parcel);
    Lane& lane = *parcel.lane;
    --on_the_way_;
    --lane.on_the_way;
    parcel.item->on_the_way = false;
    switch (outcome.verdict) {
    case Verdict::delivered:
        succeed();
        parcel.item->arrived = true;
        lane.trusted = parcel.stream;
        break;
    case Verdict::rejected:
        parcel.item->rejection = outcome.reason;
        lane.broken = true;
        break;
    case Verdict::gone:
        gone_ = last_trouble_ = outcome.reason;
        lane.broken = true;
        break;
    case Verdict::trouble:
        if (outcome.may_be_its_own && is_to_blame(parcel.item->suspicion))
            parcel.item->rejection = outcome.reason;
        else
            back_off(outcome, parcel.sent_at, now);
        lane.broken = true;
        break;
    case Verdict::returned:
        lane.broken = true;
        break;
    }
    go_on(lane);
}

// Settles what is known of the first events of a lane, and has it queued if it can send.
void StreamCourier::go_on(Lane& lane)
{
    while (!lane.items.empty() && lane.items.front().arrived)
        settle_front(lane);
    if (lane.broken && lane.on_the_way == 0)
        take_home(lane);
    // A rejection counts when nothing of the lane is on the way: it may end in parking the others.
    while (!lane.held && !lane.broken && lane.on_the_way == 0 && !lane.items.empty() &&
           lane.items.front().rejection)
        settle_front(lane);
    // In a while, the brokers may have forgotten the stream.
    if (lane.items.empty())
        lane.trusted = 0;
    if (!lane.queued && stream_of_next(lane)) {
        lane.queued = true;
        ready_.push_back(&lane);
    }
}

void StreamCourier::settle_front(Lane& lane)
{
    const Item& item = lane.items.front();
    item.arrived ? ++delivered_ : ++rejected_;
    if (!item.orphaned) {
        settle(item.event, lane.key, item.arrived, item.rejection.value_or(std::string{}));
        lane.held = !item.arrived;
    }
    remove(lane, 0);
}

// All that was sent and is left is to be sent again, whatever came of it: what was delivered behind
// an event that was not, was delivered too early.
void StreamCourier::take_home(Lane& lane)
{
    lane.broken = false;
    for (std::size_t i = lane.items.size(); i-- > 0;) {
        lane.items[i].arrived = false;
        if (lane.items[i].orphaned)
            remove(lane, i);
    }
    lane.sent = 0;
    // Except that behind one which was rejected, the sink need not be asked again to refuse.
    if (!lane.items.empty() && lane.items.front().rejection)
        return;
    for (std::size_t i = 0; i < lane.items.size(); ++i)
        lane.items[i].rejection.reset();
}

void StreamCourier::remove(Lane& lane, std::size_t index)
{
    let_go(lane.items[index].event);
    std::unique_ptr<Item> item = lane.items.take(index);
    if (spare_items_.size() < sink_->capacity()) {
        *item = {}; // its memory is free at once
        spare_items_.push_back(std::move(item));
    }
    if (index < lane.sent)
        --lane.sent;
}

// ---- what the relay decides

std::vector<Handle> StreamCourier::behind(const Settlement& rejected) const
{
    std::vector<Handle> handles;
    const auto found = lanes_.find(rejected.lane);
    if (found == lanes_.end())
        return handles;
    const Queue<Item>& items = found->second.items;
    for (std::size_t i = 0; i < items.size(); ++i)
        handles.push_back({items[i].event.token, items[i].event.id});
    return handles;
}

void StreamCourier::go_on_behind(const Settlement& rejected,
                                 std::span<const std::int64_t> parked_ids)
{
    const auto found = lanes_.find(rejected.lane);
    if (found == lanes_.end())
        return;
    Lane& lane = found->second;
    for (std::size_t i = lane.items.size(); i-- > 0;)
        if (std::ranges::find(parked_ids, lane.items[i].event.id) != parked_ids.end())
            remove(lane, i);
    lane.held = false;
    go_on(lane);
}

void StreamCourier::drop_batch(std::int64_t token)
{
    std::erase_if(settled_, [&](const Settlement& s) { return s.handle.token == token; });
    std::vector<Lane*> touched;
    for (auto& [key, lane] : lanes_) {
        for (std::size_t i = lane.items.size(); i-- > 0;) {
            Item& item = lane.items[i];
            if (item.event.token != token)
                continue;
            // One that has arrived, or is on the way, goes when its turn comes.
            if (i < lane.sent)
                item.orphaned = true;
            else
                remove(lane, i);
        }
        touched.push_back(&lane);
    }
    for (Lane* lane : touched) {
        // A rejection that held the lane may have been this batch's.
        lane->held = std::ranges::any_of(
            settled_, [&](const Settlement& s) { return !s.delivered && s.lane == lane->key; });
        go_on(*lane);
    }
}

void StreamCourier::forget_all()
{
    lanes_.clear();
    ready_.clear();
    parcels_.clear();
}

// ---- how it goes on

std::size_t StreamCourier::wanted() const
{
    return sink_->capacity();
}

bool StreamCourier::has_fresh_lane() const
{
    return std::ranges::any_of(lanes_, [](const auto& entry) {
        const Queue<Item>& items = entry.second.items;
        return !items.empty() && !items.front().suspicion.met_trouble;
    });
}

// In trouble, what is in hand is enough to find out whether it is over; unless all of that has met
// trouble, which may be its own.
bool StreamCourier::is_hungry() const
{
    if (!sink_->complaint().empty())
        return in_hand_ == 0;
    return in_hand_ < wanted() && (troubles_ == 0 || !has_fresh_lane());
}

} // namespace outbox::sink
