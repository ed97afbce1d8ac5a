#include "sink/dispatch/pipelined_dispatcher.hpp"

#include <utility>

namespace outbox::sink {

namespace {

// A claim for less is not worth its transaction. Large ones leave the sink without anything to do
// for as long as they take.
constexpr std::size_t small_claim = 1'000;

} // namespace

void PipelinedDispatcher::add(std::unique_ptr<Event> event)
{
    Lane& lane = lane_with(lane_of(*event));
    Item& item = *new_item(lane);
    item.handle = {event->token, event->id};
    item.tally = event->tally;
    item.bytes = event->size();
    take_in(item.bytes);
    item.failure_history = failure_history_of(*event);
    item.event = std::move(event);
    go_on(lane);
}

PipelinedDispatcher::Lane& PipelinedDispatcher::lane_with(std::uint64_t key)
{
    if (const auto found = lanes_.find(key); found != lanes_.end())
        return found->second;
    Lane* lane;
    if (spare_lanes_.empty()) {
        lane = &lanes_[key];
    } else {
        Lanes::node_type spare = std::move(spare_lanes_.back());
        spare_lanes_.pop_back();
        spare.key() = key;
        lane = &lanes_.insert(std::move(spare)).position->second;
    }
    lane->key = key;
    return *lane;
}

// At the end of the lane.
PipelinedDispatcher::Items::iterator PipelinedDispatcher::new_item(Lane& lane)
{
    if (spare_items_.empty())
        spare_items_.emplace_back();
    const Items::iterator item = spare_items_.begin();
    lane.items.splice(lane.items.end(), spare_items_, item);
    if (lane.unsent == lane.items.end())
        lane.unsent = item;
    return item;
}

// ---- sending

bool PipelinedDispatcher::send_some(TimePoint now)
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
std::optional<StreamId> PipelinedDispatcher::stream_of_next(Lane& lane) const
{
    if (!lane.can_send())
        return std::nullopt;
    const StreamId stream = sink_->stream_of(*lane.unsent->event);
    return lane.on_the_way == 0 || stream == lane.trusted ? std::optional(stream) : std::nullopt;
}

// The lane counts as queued: the sender has it in hand, and goes on with it by itself.
void PipelinedDispatcher::send_next(Lane& lane, StreamId stream, TimePoint now)
{
    const Items::iterator item = lane.unsent++;
    item->rejection.reset(); // the sink is asked anew
    ++lane.on_the_way;
    ++on_the_way_;
    // What is to follow in another stream must not go beside it.
    if (stream != lane.trusted)
        lane.trusted = 0;
    const RequestId id = parcels_.put({&lane, item, stream, now});
    const Event* events[] = {item->event.get()};
    if (const auto outcome = sink_->send(id, events, stream))
        arrive(*outcome, now);
}

// ---- what comes back

void PipelinedDispatcher::arrive(const Outcome& outcome, TimePoint now)
{
    if (parcels_.find(outcome.parcel) == nullptr)
        return;
    const DeliveryRequest parcel = parcels_.take(outcome.parcel);
    Lane& lane = *parcel.lane;
    --on_the_way_;
    --lane.on_the_way;
    switch (outcome.verdict) {
    case DeliveryStatus::delivered:
        succeed();
        parcel.item->arrived = true;
        lane.trusted = parcel.stream;
        break;
    case DeliveryStatus::rejected:
        parcel.item->rejection = outcome.reason;
        lane.broken = true;
        break;
    case DeliveryStatus::gone:
        gone_ = last_trouble_ = outcome.reason;
        lane.broken = true;
        break;
    case DeliveryStatus::trouble:
        if (outcome.may_be_event_fault && is_poison(parcel.item->failure_history))
            parcel.item->rejection = outcome.reason;
        else
            back_off(outcome, parcel.sent_at, now);
        lane.broken = true;
        break;
    case DeliveryStatus::returned:
        lane.broken = true;
        break;
    }
    go_on(lane);
}

// Settles what is known of the first events of a lane, and has it queued if it can send. A lane
// that is not needed any more is gone then.
void PipelinedDispatcher::go_on(Lane& lane)
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
    if (lane.is_idle())
        discard(lane);
}

void PipelinedDispatcher::settle_front(Lane& lane)
{
    const Item& item = lane.items.front();
    item.arrived ? ++delivered_ : ++rejected_;
    if (!item.orphaned) {
        settle(item.handle, lane.key, item.arrived, item.rejection.value_or(std::string{}),
               item.tally);
        lane.held = !item.arrived;
    }
    remove(lane, lane.items.begin());
}

// All that was sent and is left is to be sent again, whatever came of it: what was delivered behind
// an event that was not, was delivered too early.
void PipelinedDispatcher::take_home(Lane& lane)
{
    lane.broken = false;
    for (auto item = lane.items.begin(); item != lane.items.end();) {
        item->arrived = false;
        item = item->orphaned ? remove(lane, item) : std::next(item);
    }
    lane.unsent = lane.items.begin();
    // Except that behind one which was rejected, the sink need not be asked again to refuse.
    if (!lane.items.empty() && lane.items.front().rejection)
        return;
    for (Item& item : lane.items)
        item.rejection.reset();
}

// The one behind it.
PipelinedDispatcher::Items::iterator PipelinedDispatcher::remove(Lane& lane, Items::iterator item)
{
    const Items::iterator next = std::next(item);
    if (lane.unsent == item)
        lane.unsent = next;
    let_go(std::move(item->event), item->bytes);
    if (spare_items_.size() < sink_->capacity()) {
        *item = {};
        spare_items_.splice(spare_items_.begin(), lane.items, item);
    } else {
        lane.items.erase(item);
    }
    return next;
}

void PipelinedDispatcher::discard(Lane& lane)
{
    Lanes::node_type spare = lanes_.extract(lane.key);
    if (spare_lanes_.size() < sink_->capacity())
        spare_lanes_.push_back(std::move(spare));
}

// ---- what the relay decides

std::vector<Handle> PipelinedDispatcher::behind(const SettledEvent& rejected) const
{
    std::vector<Handle> handles;
    const auto found = lanes_.find(rejected.lane);
    if (found == lanes_.end())
        return handles;
    for (const Item& item : found->second.items)
        handles.push_back(item.handle);
    return handles;
}

void PipelinedDispatcher::resume_behind(const SettledEvent& rejected,
                                        std::span<const std::int64_t> parked_ids)
{
    const auto found = lanes_.find(rejected.lane);
    if (found == lanes_.end())
        return;
    Lane& lane = found->second;
    for (auto item = lane.items.begin(); item != lane.items.end();) {
        const bool is_blocked = std::ranges::find(parked_ids, item->handle.id) != parked_ids.end();
        item = is_blocked ? remove(lane, item) : std::next(item);
    }
    lane.held = false;
    go_on(lane);
}

void PipelinedDispatcher::drop_batch(std::int64_t token)
{
    std::erase_if(settled_, [&](const SettledEvent& s) { return s.handle.token == token; });
    std::vector<Lane*> touched;
    for (auto& [key, lane] : lanes_) {
        // One that has arrived, or is on the way, goes when its turn comes.
        for (auto item = lane.items.begin(); item != lane.unsent; ++item)
            item->orphaned = item->orphaned || item->handle.token == token;
        for (auto item = lane.unsent; item != lane.items.end();)
            item = item->handle.token == token ? remove(lane, item) : std::next(item);
        touched.push_back(&lane);
    }
    for (Lane* lane : touched) {
        // A rejection that held the lane may have been this batch's.
        lane->held = std::ranges::any_of(
            settled_, [&](const SettledEvent& s) { return !s.delivered && s.lane == lane->key; });
        go_on(*lane);
    }
}

void PipelinedDispatcher::forget_all()
{
    lanes_.clear();
    ready_.clear();
    parcels_.clear();
}

// ---- how it goes on

std::size_t PipelinedDispatcher::wanted() const
{
    return std::max(sink_->capacity() / 4, std::min(sink_->capacity(), small_claim));
}

bool PipelinedDispatcher::has_fresh_lane() const
{
    return std::ranges::any_of(lanes_, [](const auto& entry) {
        const Items& items = entry.second.items;
        return !items.empty() && !items.front().failure_history.has_failed;
    });
}

// In trouble, what is in hand is enough to find out whether it is over; unless all of that has met
// trouble, which may be its own.
bool PipelinedDispatcher::needs_more() const
{
    if (!sink_->status_message().empty())
        return in_hand_ == 0;
    return in_hand_ < sink_->capacity() && (troubles_ == 0 || !has_fresh_lane());
}

} // namespace outbox::sink
