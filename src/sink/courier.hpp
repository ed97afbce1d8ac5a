// Decides what a sink is given, and when: one event of an aggregate after the other where order
// matters, nothing while the sink is in trouble, and what is said of each event in the end.
//
//   waiting ──send──► on the way ──delivered──► settled
//      ▲                  │ rejected ─────────► settled; its lane is held until the relay has
//      decided └─────trouble──────┘ the sink backs off; an event that fails again and again while
//      others
//                           succeed is rejected
#pragma once

#include "core/backoff.hpp"
#include "sink/sink.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>

namespace outbox::sink {

// An event in the hands of the relay: its batch and its place in the log.
struct Handle {
    std::int64_t token;
    std::int64_t id;
};

struct Settlement {
    Handle handle;
    bool delivered; // otherwise rejected
    std::string reason;
    std::uint64_t lane;
};

class Courier {
public:
    // In [0, 1).
    using Chance = std::function<double()>;

    Courier(std::unique_ptr<Sink> sink, bool ordered, const RetryPolicy& policy, Chance chance);

    // Takes an event; those of an aggregate in their order.
    void add(Event event);

    // Collects what has come of what is on the way, and sends what may be sent.
    void work(TimePoint now);

    // What is to be written down. The relay takes it, and says when that has happened.
    const std::vector<Settlement>& settled() const { return settled_; }
    void forget_settled(std::size_t count);

    // What waits behind a rejected event; and what becomes of that: those that are parked wait
    // elsewhere from now on, the others go on.
    std::vector<Handle> behind(const Settlement& rejected) const;
    void go_on_behind(const Settlement& rejected, std::span<const std::int64_t> parked_ids);

    // The lease of this batch is lost: nothing of it is to be sent any more.
    void drop_batch(std::int64_t token);

    // Sends nothing more.
    void finish() { finished_ = true; }

    // Gives up everything: whether it arrives is open.
    void abandon();

    std::vector<std::string> metadata() const { return sink_->metadata(); }
    int descriptor() const { return sink_->descriptor(); }
    std::optional<TimePoint> next_work() const;

    std::size_t in_hand() const { return in_hand_; }
    std::size_t on_the_way() const { return on_the_way_; }
    std::size_t bytes() const { return bytes_; }

    // Is more wanted than what is in hand?
    bool wants_more(TimePoint now) const;
    std::size_t wanted() const;

    bool is_backing_off(TimePoint now) const { return now < resume_at(); }
    TimePoint resume_at() const { return std::max(resume_at_, asked_to_wait_); }
    int troubles() const { return troubles_; }
    const std::string& last_trouble() const { return last_trouble_; }
    std::uint64_t delivered() const { return delivered_; }
    std::uint64_t rejected() const { return rejected_; }

    // The sink says that there is nobody any more.
    const std::optional<std::string>& gone() const { return gone_; }

private:
    // How often something failed while others succeeded.
    struct Suspicion {
        int blame = 0;
        bool met_trouble = false; // when so many had been delivered:
        std::uint64_t delivered_before = 0;
    };

    struct Item {
        Event event;
        Suspicion suspicion;
        bool alone = false;    // not with others: one of them was rejected
        bool orphaned = false; // its lease is lost: what comes of it is nobody's
    };

    // Most lanes have one item, some have thousands.
    class Queue {
    public:
        bool empty() const { return first_ == items_.size(); }
        std::size_t size() const { return items_.size() - first_; }
        Item& operator[](std::size_t i) const { return *items_[first_ + i]; }
        Item& front() const { return (*this)[0]; }
        void push(std::unique_ptr<Item> item) { items_.push_back(std::move(item)); }
        void erase(std::size_t i);

    private:
        std::vector<std::unique_ptr<Item>> items_;
        std::size_t first_ = 0; // those before it are gone
    };

    // The events of an aggregate, or one event where order does not matter. At most one parcel with
    // events of a lane is on the way.
    struct Lane {
        Queue items;
        std::size_t on_the_way = 0; // of these, the first ones
        bool held = false;          // behind a rejected event
        bool queued = false;        // in ready_
        bool returned = false;      // its first events are in a parcel that came back

        bool can_send() const { return !items.empty() && !held && !returned && on_the_way == 0; }
    };

    struct Share {
        std::uint64_t lane;
        std::size_t count;
    };

    struct Parcel {
        std::vector<Share> shares;
        TimePoint sent_at;
        Suspicion suspicion;

        bool is_shared() const { return shares.size() > 1 || shares.front().count > 1; }
    };

    std::uint64_t lane_of(const Event& event) const;
    std::size_t may_be_on_the_way() const;
    void queue_if_ready(std::uint64_t key);
    void send(TimePoint now);
    void send(Parcel parcel);
    static std::size_t share_of(const Lane& lane, std::size_t room);
    Parcel fill();
    void arrive(const Outcome& outcome, TimePoint now);
    Verdict judge(Parcel& parcel, const Outcome& outcome);
    void settle(const Parcel& parcel, bool delivered, const std::string& reason);
    void come_back(Parcel parcel);
    void unpack(const Parcel& parcel);
    void settle_orphans(std::uint64_t key);
    void settle_front(std::uint64_t key, Lane& lane, bool delivered, const std::string& reason);
    void back_off(const Outcome& outcome, TimePoint sent_at, TimePoint now);
    void remove(Lane& lane, std::size_t index);
    bool has_fresh_lane() const;

    std::unique_ptr<Sink> sink_;
    bool ordered_;
    RetryPolicy policy_;
    Chance chance_;

    std::unordered_map<std::uint64_t, Lane> lanes_;
    std::deque<std::uint64_t> ready_; // lanes that can send, the longest waiting first
    std::deque<Parcel> returned_;     // to be sent again as they are: a batch keeps its id
    std::unordered_map<ParcelId, Parcel> parcels_;
    ParcelId next_parcel_ = 1;
    std::size_t in_hand_ = 0;
    std::size_t on_the_way_ = 0; // parcels
    std::size_t bytes_ = 0;

    std::vector<Settlement> settled_;
    std::vector<Outcome> outcomes_;

    int troubles_ = 0; // in a row
    TimePoint resume_at_{};
    TimePoint asked_to_wait_{}; // by the receiver, whatever else succeeds
    TimePoint backed_off_at_{};
    std::string last_trouble_;
    std::uint64_t delivered_ = 0;
    std::uint64_t rejected_ = 0;
    std::optional<std::string> gone_;
    bool finished_ = false;
};

} // namespace outbox::sink
