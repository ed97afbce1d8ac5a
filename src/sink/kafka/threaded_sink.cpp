#include "sink/kafka/threaded_sink.hpp"

#include "sink/util/block_signals.hpp"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

namespace outbox::sink {

namespace {

using std::chrono::milliseconds;

std::atomic<int> threads{0};

// So many are passed on, or carried out, at a time: few enough that both sides always have
// something to do.
constexpr std::size_t portion = 256;

// Until they are taken: what is said beyond that is not heard.
constexpr std::size_t max_remarks = 20;

template <typename Thing>
void move_behind(std::vector<Thing>& target, std::vector<Thing>& source)
{
    if (target.empty())
        target.swap(source);
    else
        target.insert(target.end(), std::make_move_iterator(source.begin()),
                      std::make_move_iterator(source.end()));
    source.clear();
}

} // namespace

bool has_sink_threads() noexcept
{
    return threads.load() > 0;
}

ThreadedSink::ThreadedSink(std::unique_ptr<Sink> sink)
    : sink_(std::move(sink)), metadata_(sink_->metadata()), capacity_(sink_->capacity()),
      keeps_order_(sink_->preserves_order())
{
    const SignalsBlocked quiet;
    thread_ = std::thread([this] { run(); });
    ++threads;
}

ThreadedSink::~ThreadedSink()
{
    {
        const std::lock_guard lock(mutex_);
        wish_ = Wish::end;
    }
    calls_.ring();
    thread_.join();
    --threads;
}

// ---- the relay's side

std::optional<Outcome> ThreadedSink::send(RequestId parcel, std::span<const Event* const> events,
                                          StreamId stream)
{
    collected_.push_back({parcel, events.front(), stream});
    if (collected_.size() >= portion)
        start();
    return std::nullopt;
}

void ThreadedSink::start()
{
    if (collected_.empty())
        return;
    bool is_first;
    {
        const std::lock_guard lock(mutex_);
        is_first = orders_.empty();
        move_behind(orders_, collected_);
    }
    // Of what was there before, the thread has been told.
    if (is_first)
        calls_.ring();
}

void ThreadedSink::work(std::vector<Outcome>& outcomes)
{
    news_.drain();
    const std::lock_guard lock(mutex_);
    if (failure_)
        std::rethrow_exception(failure_);
    move_behind(outcomes, outcomes_);
}

// The events may be gone when this returns, so the thread must have let go of them.
void ThreadedSink::abandon()
{
    collected_.clear();
    std::unique_lock lock(mutex_);
    wish_ = Wish::abandon;
    calls_.ring();
    answered_.wait(lock, [this] { return wish_ == Wish::none || has_ended_; });
}

std::string ThreadedSink::status_message() const
{
    const std::lock_guard lock(mutex_);
    return complaint_;
}

std::vector<std::string> ThreadedSink::take_log_lines()
{
    const std::lock_guard lock(mutex_);
    return std::exchange(remarks_, {});
}

// ---- the thread's side

void ThreadedSink::run() noexcept
{
    std::exception_ptr failure;
    try {
        while (take_orders()) {
            carry_out();
            tell();
            rest();
        }
    } catch (...) {
        failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    failure_ = failure;
    answered_.notify_all();
    news_.ring();
}

// False: it is to end.
bool ThreadedSink::take_orders()
{
    calls_.drain();
    const std::lock_guard lock(mutex_);
    if (wish_ == Wish::abandon) {
        orders_.clear();
        outcomes_.clear();
        taken_.clear();
        carried_out_ = 0;
        heard_.clear();
        sink_->abandon();
        complaint_.clear();
        wish_ = Wish::none;
        answered_.notify_all();
    }
    if (carried_out_ == taken_.size()) {
        taken_.clear();
        carried_out_ = 0;
        taken_.swap(orders_);
    }
    return wish_ != Wish::end;
}

void ThreadedSink::carry_out()
{
    const std::size_t end = std::min(taken_.size(), carried_out_ + portion);
    while (carried_out_ < end && sink_->is_ready()) {
        const Order& order = taken_[carried_out_++];
        const Event* events[] = {order.event};
        if (auto outcome = sink_->send(order.parcel, events, order.stream))
            heard_.push_back(std::move(*outcome));
    }
    sink_->start();
    sink_->work(heard_);
}

void ThreadedSink::tell()
{
    std::string status_message = sink_->status_message();
    bool is_new;
    {
        const std::lock_guard lock(mutex_);
        is_new = (outcomes_.empty() && !heard_.empty()) || status_message != complaint_;
        move_behind(outcomes_, heard_);
        complaint_.swap(status_message);
        for (std::string& remark : sink_->take_log_lines()) {
            if (remarks_.size() == max_remarks)
                break;
            remarks_.push_back(std::move(remark));
            is_new = true;
        }
    }
    if (is_new)
        news_.ring();
}

void ThreadedSink::rest() const
{
    // When all of these are carried out, there may be more.
    if (!taken_.empty() && sink_->is_ready())
        return;
    int timeout = -1;
    if (const auto next = sink_->next_work())
        timeout = static_cast<int>(std::clamp<std::int64_t>(
            std::chrono::ceil<milliseconds>(*next - Clock::now()).count(), 0, 60'000));
    pollfd descriptors[] = {{calls_.descriptor(), POLLIN, 0}, {sink_->descriptor(), POLLIN, 0}};
    (void)poll(descriptors, std::size(descriptors), timeout);
}

} // namespace outbox::sink
