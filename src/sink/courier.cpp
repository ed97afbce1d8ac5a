#include "sink/courier.hpp"

#include <algorithm>
#include <utility>

namespace outbox::sink {

namespace {

// So often an event may meet trouble that others do not meet.
constexpr int max_blame = 2;

// While the sink is in trouble, so many parcels find out whether it still is: more than one, lest
// an event that is bad by itself is the only one to ask.
constexpr std::size_t probes = 2;

constexpr std::size_t min_window = 256;
constexpr std::size_t max_window = 10000;

// Even a retry at once leaves the sink a moment.
constexpr std::chrono::milliseconds shortest_pause{20};

} // namespace

Courier::Courier(std::unique_ptr<Sink> sink, bool ordered, const RetryPolicy& policy, Chance chance)
    : sink_(std::move(sink)), ordered_(ordered), policy_(policy), chance_(std::move(chance))
{}

// Two aggregates that share a hash only wait for each other.
std::uint64_t Courier::lane_of(const Event& event) const
{
    if (!ordered_)
        return static_cast<std::uint64_t>(event.id);
    const std::hash<std::string_view> hash;
    return hash(event.aggregate_type) * 31 + hash(event.aggregate_id);
}

void Courier::add(Event event)
{
    auto item = std::make_unique<Item>();
    // One that has failed before is under suspicion.
    if (event.attempts > 1) {
        item->suspicion = {max_blame - 1, true, delivered_};
    }
    item->event = std::move(event);
    const std::uint64_t key = lane_of(item->event);
    ++in_hand_;
    bytes_ += item->event.size();
    lanes_[key].items.push(std::move(item));
    queue_if_ready(key);
}

void Courier::Queue::erase(std::size_t i)
{
    if (i > 0) {
        items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(first_ + i));
        return;
    }
    items_[first_++].reset();
    // Moved together now and then, so that taking from the front costs little.
    if (first_ * 2 > items_.size()) {
        items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
        first_ = 0;
    }
}

void Courier::queue_if_ready(std::uint64_t key)
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

void Courier::work(TimePoint now)
{
    outcomes_.clear();
    sink_->work(outcomes_);
    for (const Outcome& outcome : outcomes_)
        arrive(outcome, now);
    send(now);
}

// ---- sending

std::size_t Courier::may_be_on_the_way() const
{
    return troubles_ > 0 ? std::min(probes, sink_->capacity()) : sink_->capacity();
}

void Courier::send(TimePoint now)
{
    const auto may_send = [&] {
        return !gone_ && !finished_ && !is_backing_off(now) && on_the_way_ < may_be_on_the_way();
    };
    const ParcelId first = next_parcel_;
    while (may_send() && !(returned_.empty() && ready_.empty())) {
        // Whoever came back lets others have their turn in between: it may be to blame.
        const bool goes_again =
            !returned_.empty() && (ready_.empty() || troubles_ == 0 || next_parcel_ % 2 == 0);
        Parcel parcel;
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
    if (next_parcel_ != first)
        sink_->start();
}

void Courier::send(Parcel parcel)
{
    std::vector<const Event*> events;
    for (const Share& share : parcel.shares) {
        Lane& lane = lanes_.at(share.lane);
        lane.returned = false;
        lane.on_the_way = share.count;
        for (std::size_t i = 0; i < share.count; ++i)
            events.push_back(&lane.items[i].event);
    }
    const ParcelId id = next_parcel_++;
    parcels_.emplace(id, std::move(parcel));
    ++on_the_way_;
    sink_->send(id, events);
}

// How many of a lane's events go into a parcel with this much room. One that was rejected in
// company goes alone.
std::size_t Courier::share_of(const Lane& lane, std::size_t room)
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
Courier::Parcel Courier::fill()
{
    const std::size_t room = troubles_ > 0 ? 1 : sink_->parcel_size();
    Parcel parcel;
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

void Courier::arrive(const Outcome& outcome, TimePoint now)
{
    const auto found = parcels_.find(outcome.parcel);
    if (found == parcels_.end())
        return;
    Parcel parcel = std::move(found->second);
    parcels_.erase(found);
    --on_the_way_;
    for (const Share& share : parcel.shares)
        lanes_.at(share.lane).on_the_way = 0;
    switch (judge(parcel, outcome)) {
    case Verdict::delivered:
        troubles_ = 0;
        resume_at_ = {};
        settle(parcel, true, {});
        break;
    case Verdict::rejected:
        parcel.is_shared() ? unpack(parcel) : settle(parcel, false, outcome.reason);
        break;
    case Verdict::gone:
        gone_ = last_trouble_ = outcome.reason;
        come_back(std::move(parcel));
        break;
    case Verdict::trouble:
        back_off(outcome, parcel.sent_at, now);
        come_back(std::move(parcel));
        break;
    }
}

// Trouble that meets one parcel again and again, while others succeed, is no trouble of the sink's.
Verdict Courier::judge(Parcel& parcel, const Outcome& outcome)
{
    if (outcome.verdict != Verdict::trouble || !outcome.may_be_its_own)
        return outcome.verdict;
    Suspicion& suspicion = parcel.is_shared()
                               ? parcel.suspicion
                               : lanes_.at(parcel.shares.front().lane).items.front().suspicion;
    // Did others succeed since it failed the last time?
    if (suspicion.met_trouble && delivered_ > suspicion.delivered_before)
        ++suspicion.blame;
    suspicion.met_trouble = true;
    suspicion.delivered_before = delivered_;
    return suspicion.blame >= max_blame ? Verdict::rejected : Verdict::trouble;
}

void Courier::settle(const Parcel& parcel, bool delivered, const std::string& reason)
{
    for (const Share& share : parcel.shares) {
        Lane& lane = lanes_.at(share.lane);
        for (std::size_t i = 0; i < share.count; ++i)
            settle_front(share.lane, lane, delivered, reason);
        settle_orphans(share.lane);
    }
}

// What is orphaned is gone as soon as it is no longer on the way.
void Courier::settle_orphans(std::uint64_t key)
{
    Lane& lane = lanes_.at(key);
    for (std::size_t i = lane.items.size(); i-- > 0;)
        if (lane.items[i].orphaned)
            remove(lane, i);
    queue_if_ready(key);
}

// To be sent once more. What travelled together does so again, unless some of it is gone.
void Courier::come_back(Parcel parcel)
{
    const auto is_orphaned = [&](const Share& share) {
        const Queue& items = lanes_.at(share.lane).items;
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
void Courier::unpack(const Parcel& parcel)
{
    for (const Share& share : parcel.shares) {
        Lane& lane = lanes_.at(share.lane);
        lane.returned = false;
        for (std::size_t i = 0; i < share.count; ++i)
            lane.items[i].alone = true;
        settle_orphans(share.lane);
    }
}

void Courier::settle_front(std::uint64_t key, Lane& lane, bool delivered, const std::string& reason)
{
    const Item& item = lane.items.front();
    delivered ? ++delivered_ : ++rejected_;
    if (!item.orphaned) {
        settled_.push_back({{item.event.token, item.event.id}, delivered, reason, key});
        lane.held = !delivered;
    }
    remove(lane, 0);
}

void Courier::remove(Lane& lane, std::size_t index)
{
    bytes_ -= lane.items[index].event.size();
    --in_hand_;
    lane.items.erase(index);
}

void Courier::back_off(const Outcome& outcome, TimePoint sent_at, TimePoint now)
{
    last_trouble_ = outcome.reason;
    // What was sent before the sink was known to be in trouble says nothing new.
    if (troubles_ == 0 || sent_at >= backed_off_at_) {
        ++troubles_;
        backed_off_at_ = now;
        const auto pause = std::chrono::microseconds(policy_.pause(troubles_, chance_()));
        const auto longest = std::chrono::microseconds(policy_.backoff_max);
        const Clock::duration least = std::min<Clock::duration>(
            shortest_pause * troubles_, std::max<Clock::duration>(longest, shortest_pause));
        resume_at_ = now + std::max<Clock::duration>(pause, least);
    }
    if (outcome.retry_after)
        asked_to_wait_ = std::max(asked_to_wait_, now + *outcome.retry_after);
}

// ---- what the relay decides

void Courier::forget_settled(std::size_t count)
{
    settled_.erase(settled_.begin(), settled_.begin() + static_cast<std::ptrdiff_t>(count));
}

std::vector<Handle> Courier::behind(const Settlement& rejected) const
{
    std::vector<Handle> handles;
    const auto found = lanes_.find(rejected.lane);
    if (found != lanes_.end())
        for (std::size_t i = 0; i < found->second.items.size(); ++i) {
            const Event& event = found->second.items[i].event;
            handles.push_back({event.token, event.id});
        }
    return handles;
}

void Courier::go_on_behind(const Settlement& rejected, std::span<const std::int64_t> parked_ids)
{
    const auto found = lanes_.find(rejected.lane);
    if (found == lanes_.end())
        return;
    Lane& lane = found->second;
    for (std::size_t i = lane.items.size(); i-- > 0;)
        if (std::ranges::find(parked_ids, lane.items[i].event.id) != parked_ids.end())
            remove(lane, i);
    lane.held = false;
    queue_if_ready(rejected.lane);
}

void Courier::drop_batch(std::int64_t token)
{
    std::erase_if(settled_, [&](const Settlement& s) { return s.handle.token == token; });
    // Parcels that came back may have lost some of their events.
    for (const Parcel& parcel : std::exchange(returned_, {}))
        unpack(parcel);
    std::vector<std::uint64_t> touched;
    for (auto& [key, lane] : lanes_) {
        for (std::size_t i = lane.items.size(); i-- > 0;) {
            if (lane.items[i].event.token != token)
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
                        [&](const Settlement& s) { return !s.delivered && s.lane == key; });
        queue_if_ready(key);
    }
}

void Courier::abandon()
{
    sink_->abandon();
    lanes_.clear();
    ready_.clear();
    returned_.clear();
    parcels_.clear();
    settled_.clear();
    in_hand_ = on_the_way_ = bytes_ = 0;
}

// ---- how it goes on

std::optional<TimePoint> Courier::next_work() const
{
    std::optional<TimePoint> next = sink_->next_work();
    const bool waits_for_the_end_of_a_pause =
        !(ready_.empty() && returned_.empty()) && resume_at() != TimePoint{};
    if (waits_for_the_end_of_a_pause && on_the_way_ < may_be_on_the_way())
        next = std::min(next.value_or(resume_at()), resume_at());
    return next;
}

std::size_t Courier::wanted() const
{
    return std::clamp(sink_->capacity() * sink_->parcel_size() * 4, min_window, max_window);
}

// Is there a lane whose next event has not met trouble? What has might be bad by itself, and could
// not tell whether the sink is back.
bool Courier::has_fresh_lane() const
{
    return std::ranges::any_of(lanes_, [](const auto& entry) {
        const Lane& lane = entry.second;
        return !lane.items.empty() && !lane.returned && !lane.items.front().suspicion.met_trouble;
    });
}

bool Courier::wants_more(TimePoint now) const
{
    if (gone_ || is_backing_off(now))
        return false;
    if (troubles_ > 0)
        return in_hand_ < wanted() && !has_fresh_lane();
    // One aggregate that has many events must not keep the others away.
    const bool has_few_lanes = lanes_.size() < sink_->capacity() * sink_->parcel_size();
    return in_hand_ < (has_few_lanes ? max_window : wanted() / 2);
}

} // namespace outbox::sink
