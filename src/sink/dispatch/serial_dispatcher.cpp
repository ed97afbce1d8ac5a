#include "sink/dispatch/serial_dispatcher.hpp"

#include <utility>

namespace outbox::sink {

namespace {

constexpr std::size_t min_window = 256;
constexpr std::size_t max_window = 10000;

} // namespace

void SerialDispatcher::add(std::unique_ptr<Event> event)
{
    take_in(event->size());
    const std::uint64_t key = lane_of(*event);
    auto item = std::make_unique<Item>();
    item->failure_history = failure_history_of(*event);
    item->event = std::move(event);
    lanes_[key].items.push(std::move(item));
    queue_if_ready(key);
}

void SerialDispatcher::queue_if_ready(std::uint64_t key)
{
    const auto found = lanes_.find(key);
    if (found == lanes_.end())
        return;
    Lane& lane = found->second;
    if (lane.items.empty() && !lane.held) {
        lanes_.erase(found);
    } else if (lane.can_send() && !lane.queued) {
        lane.queued = true;
        ready_.push_back(key);
    }
}

// ---- sending

bool SerialDispatcher::send_some(TimePoint now)
{
    const RequestId first = next_parcel_;
    while (may_send(now) && has_something_to_send()) {
        // Whoever came back lets others have their turn in between: it may be to blame.
        const bool goes_again =
            !returned_.empty() && (ready_.empty() || troubles_ == 0 || next_parcel_ % 2 == 0);
        DeliveryRequest parcel;
        if (goes_again) {
            parcel = std::move(returned_.front());
            returned_.pop_front();
        } else {
            parcel = fill();
        }
        parcel.sent_at = now;
        if (!parcel.shares.empty())
            send(std::move(parcel));
    }
    return next_parcel_ != first;
}

void SerialDispatcher::send(DeliveryRequest parcel)
{
    std::vector<const Event*> events;
    for (const Share& share : parcel.shares) {
        Lane& lane = lanes_.at(share.lane);
        lane.returned = false;
        lane.on_the_way = share.count;
        for (std::size_t i = 0; i < share.count; ++i)
            events.push_back(lane.items[i].event.get());
    }
    const RequestId id = next_parcel_++;
    const TimePoint sent_at = parcel.sent_at;
    parcels_.emplace(id, std::move(parcel));
    ++on_the_way_;
    if (const auto outcome = sink_->send(id, events, 0))
        arrive(*outcome, sent_at);
}

// How many of a lane's events go into a parcel with this much room. One that was rejected in
// company goes alone.
std::size_t SerialDispatcher::share_of(const Lane& lane, std::size_t room)
{
    if (lane.items.front().alone)
        return 1;
    std::size_t count = 0;
    while (count < lane.items.size() && count < room && !lane.items[count].alone)
        ++count;
    return count;
}

// From as many lanes as there is room for. While in trouble a parcel holds one event, so that it is
// clear whose trouble it is.
SerialDispatcher::DeliveryRequest SerialDispatcher::fill()
{
    const std::size_t room = troubles_ > 0 ? 1 : sink_->max_events_per_request();
    DeliveryRequest parcel;
    bool alone = false;
    for (std::size_t count = 0; !alone && count < room && !ready_.empty();) {
        const std::uint64_t key = ready_.front();
        const auto found = lanes_.find(key);
        // A lane may have been emptied, or held, since it was queued.
        if (found == lanes_.end() || !found->second.can_send()) {
            ready_.pop_front();
            continue;
        }
        Lane& lane = found->second;
        alone = lane.items.front().alone;
        if (alone && count > 0)
            break;
        ready_.pop_front();
        lane.queued = false;
        parcel.shares.push_back({key, share_of(lane, room - count)});
        count += parcel.shares.back().count;
    }
    return parcel;
}

// ---- what comes back

void SerialDispatcher::arrive(const Outcome& outcome, TimePoint now)
{
    const auto found = parcels_.find(outcome.parcel);
    if (found == parcels_.end())
        return;
    DeliveryRequest parcel = std::move(found->second);
    parcels_.erase(found);
    --on_the_way_;
    for (const Share& share : parcel.shares)
        lanes_.at(share.lane).on_the_way = 0;
    switch (judge(parcel, outcome)) {
    case DeliveryStatus::delivered:
        succeed();
        settle_all(parcel, true, {});
        break;
    case DeliveryStatus::rejected:
        parcel.is_shared() ? unpack(parcel) : settle_all(parcel, false, outcome.reason);
        break;
    case DeliveryStatus::gone:
        gone_ = last_trouble_ = outcome.reason;
        come_back(std::move(parcel));
        break;
    case DeliveryStatus::trouble:
        back_off(outcome, parcel.sent_at, now);
        come_back(std::move(parcel));
        break;
    case DeliveryStatus::returned:
        come_back(std::move(parcel));
        break;
    }
}

DeliveryStatus SerialDispatcher::judge(DeliveryRequest& parcel, const Outcome& outcome)
{
    if (outcome.verdict != DeliveryStatus::trouble || !outcome.may_be_event_fault)
        return outcome.verdict;
    FailureHistory& failure_history =
        parcel.is_shared() ? parcel.failure_history
                           : lanes_.at(parcel.shares.front().lane).items.front().failure_history;
    return is_poison(failure_history) ? DeliveryStatus::rejected : DeliveryStatus::trouble;
}

void SerialDispatcher::settle_all(const DeliveryRequest& parcel, bool delivered,
                                  const std::string& reason)
{
    for (const Share& share : parcel.shares) {
        Lane& lane = lanes_.at(share.lane);
        for (std::size_t i = 0; i < share.count; ++i)
            settle_front(share.lane, lane, delivered, reason);
        settle_orphans(share.lane);
    }
}

// What is orphaned is gone as soon as it is no longer on the way.
void SerialDispatcher::settle_orphans(std::uint64_t key)
{
    Lane& lane = lanes_.at(key);
    for (std::size_t i = lane.items.size(); i-- > 0;)
        if (lane.items[i].orphaned)
            remove(lane, i);
    queue_if_ready(key);
}

// To be sent once more. What travelled together does so again, unless some of it is gone.
void SerialDispatcher::come_back(DeliveryRequest parcel)
{
    const auto is_orphaned = [&](const Share& share) {
        const Queue<Item>& items = lanes_.at(share.lane).items;
        for (std::size_t i = 0; i < share.count; ++i)
            if (items[i].orphaned)
                return true;
        return false;
    };
    if (!parcel.is_shared() || std::ranges::any_of(parcel.shares, is_orphaned)) {
        for (const Share& share : parcel.shares)
            settle_orphans(share.lane);
        return;
    }
    for (const Share& share : parcel.shares)
        lanes_.at(share.lane).returned = true;
    returned_.push_back(std::move(parcel));
}

// Whose fault it is comes out when each goes alone.
void SerialDispatcher::unpack(const DeliveryRequest& parcel)
{
    for (const Share& share : parcel.shares) {
        Lane& lane = lanes_.at(share.lane);
        lane.returned = false;
        for (std::size_t i = 0; i < share.count; ++i)
            lane.items[i].alone = true;
        settle_orphans(share.lane);
    }
}

void SerialDispatcher::settle_front(std::uint64_t key, Lane& lane, bool delivered,
                                    const std::string& reason)
{
    const Item& item = lane.items.front();
    delivered ? ++delivered_ : ++rejected_;
    if (!item.orphaned) {
        settle({item.event->token, item.event->id}, key, delivered, reason, item.event->tally);
        lane.held = !delivered;
    }
    remove(lane, 0);
}

void SerialDispatcher::remove(Lane& lane, std::size_t index)
{
    std::unique_ptr<Item> item = lane.items.take(index);
    const std::size_t bytes = item->event->size();
    let_go(std::move(item->event), bytes);
}

// ---- what the relay decides

std::vector<Handle> SerialDispatcher::behind(const SettledEvent& rejected) const
{
    std::vector<Handle> handles;
    const auto found = lanes_.find(rejected.lane);
    if (found != lanes_.end())
        for (std::size_t i = 0; i < found->second.items.size(); ++i) {
            const Event& event = *found->second.items[i].event;
            handles.push_back({event.token, event.id});
        }
    return handles;
}

void SerialDispatcher::resume_behind(const SettledEvent& rejected,
                                     std::span<const std::int64_t> parked_ids)
{
    const auto found = lanes_.find(rejected.lane);
    if (found == lanes_.end())
        return;
    Lane& lane = found->second;
    for (std::size_t i = lane.items.size(); i-- > 0;)
        if (std::ranges::find(parked_ids, lane.items[i].event->id) != parked_ids.end())
            remove(lane, i);
    lane.held = false;
    queue_if_ready(rejected.lane);
}

void SerialDispatcher::drop_batch(std::int64_t token)
{
    std::erase_if(settled_, [&](const SettledEvent& s) { return s.handle.token == token; });
    // Parcels that came back may have lost some of their events.
    for (const DeliveryRequest& parcel : std::exchange(returned_, {}))
        unpack(parcel);
    std::vector<std::uint64_t> touched;
    for (auto& [key, lane] : lanes_) {
        for (std::size_t i = lane.items.size(); i-- > 0;) {
            if (lane.items[i].event->token != token)
                continue;
            if (i < lane.on_the_way)
                lane.items[i].orphaned = true;
            else
                remove(lane, i);
        }
        touched.push_back(key);
    }
    for (const std::uint64_t key : touched) {
        // A rejection that held the lane may have been this batch's.
        lanes_.at(key).held =
            std::any_of(settled_.begin(), settled_.end(),
                        [&](const SettledEvent& s) { return !s.delivered && s.lane == key; });
        queue_if_ready(key);
    }
}

void SerialDispatcher::forget_all()
{
    lanes_.clear();
    ready_.clear();
    returned_.clear();
    parcels_.clear();
}

// ---- how it goes on

std::size_t SerialDispatcher::wanted() const
{
    return std::clamp(sink_->capacity() * sink_->max_events_per_request() * 4, min_window,
                      max_window);
}

// Is there a lane whose next event has not met trouble? What has might be bad by itself, and could
// not tell whether the sink is back.
bool SerialDispatcher::has_fresh_lane() const
{
    return std::ranges::any_of(lanes_, [](const auto& entry) {
        const Lane& lane = entry.second;
        return !lane.items.empty() && !lane.returned &&
               !lane.items.front().failure_history.has_failed;
    });
}

bool SerialDispatcher::needs_more() const
{
    if (troubles_ > 0)
        return in_hand_ < wanted() && !has_fresh_lane();
    // One aggregate that has many events must not keep the others away.
    const bool has_few_lanes = lanes_.size() < sink_->capacity() * sink_->max_events_per_request();
    return in_hand_ < (has_few_lanes ? max_window : wanted() / 2);
}

} // namespace outbox::sink
