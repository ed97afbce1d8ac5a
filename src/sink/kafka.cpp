#include "sink/kafka.hpp"

#include "core/error.hpp"
#include "sink/kafka_outcome.hpp"
#include "sink/printable.hpp"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace outbox::sink {

namespace {

using std::chrono::milliseconds;

// A session that cannot go on still hears what came of what is with the brokers.
constexpr milliseconds longest_ending{5'000};

// A session that has not delivered anything, and has been told why, need not be waited for.
constexpr milliseconds patience_with_strangers{5'000};

constexpr std::size_t max_remarks = 20;

// How much less a session sends at once when the brokers have refused a batch as too large.
constexpr std::size_t shrinking = 4;

void* to_opaque(ParcelId parcel)
{
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(parcel));
}

ParcelId to_parcel(const void* opaque)
{
    return static_cast<ParcelId>(reinterpret_cast<std::uintptr_t>(opaque));
}

} // namespace

KafkaSink::KafkaSink(KafkaConfig config, Secrets secrets, const Surroundings& surroundings)
    : config_(std::move(config)), secrets_(std::move(secrets)), source_(surroundings.source),
      epoll_(epoll_create1(EPOLL_CLOEXEC)), next_batch_size_(config_.batch_size)
{
    if (epoll_ < 0)
        throw std::system_error(errno, std::generic_category(), "epoll_create1()");
    try {
        open_session();
    } catch (const Error& error) {
        close(epoll_);
        throw Error(error.sqlstate(), presentable(error.what()));
    }
}

KafkaSink::~KafkaSink()
{
    close_session();
    close(epoll_);
}

// ---- sessions

void KafkaSink::open_session()
{
    KafkaConfig config = config_;
    config.batch_size = next_batch_size_;
    producer_ = std::make_unique<KafkaProducer>(config);
    config_.batch_size = next_batch_size_;
    epoll_event event = {};
    event.events = EPOLLIN;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, producer_->descriptor(), &event) != 0)
        throw std::system_error(errno, std::generic_category(), "epoll_ctl()");
}

void KafkaSink::close_session()
{
    if (producer_)
        (void)epoll_ctl(epoll_, EPOLL_CTL_DEL, producer_->descriptor(), nullptr);
    producer_.reset();
    has_delivered_ = is_ending_ = false;
    complaint_.clear();
}

// What librdkafka has not sent stays unsent; of what it has sent, reports come in.
void KafkaSink::begin_ending(TimePoint now)
{
    is_ending_ = true;
    end_by_ = now + longest_ending;
    producer_->purge_unsent();
}

void KafkaSink::end_session(std::vector<Outcome>& outcomes)
{
    for (const auto& [parcel, size] : on_the_way_)
        outcomes.push_back({parcel, Verdict::returned, {}, std::nullopt});
    on_the_way_.clear();
    close_session();
}

// Whether it arrives is open: in the next session all of it is sent again.
void KafkaSink::give_up(std::vector<Outcome>& outcomes)
{
    const std::string reason = complaint_.empty()
                                   ? "no sign from the brokers within " +
                                         std::to_string(config_.timeout_ms / 1000) + " seconds"
                                   : complaint_;
    for (const auto& [parcel, size] : on_the_way_)
        outcomes.push_back({parcel, Verdict::trouble, reason, std::nullopt});
    on_the_way_.clear();
    close_session();
}

void KafkaSink::abandon()
{
    on_the_way_.clear();
    close_session();
}

TimePoint KafkaSink::patience_ends() const
{
    const milliseconds timeout{config_.timeout_ms};
    const bool is_strange = !has_delivered_ && !complaint_.empty();
    return last_sign_ + (is_strange ? std::min(timeout, patience_with_strangers) : timeout);
}

std::optional<TimePoint> KafkaSink::next_work() const
{
    if (is_ending_)
        return end_by_;
    return on_the_way_.empty() ? std::nullopt : std::optional(patience_ends());
}

// ---- sending

std::optional<Outcome> KafkaSink::send(ParcelId parcel, std::span<const Event* const> events)
{
    const Event& event = *events.front();
    if (!producer_)
        open_session();
    config_.topic.apply(event, topic_);
    if (auto problem = problem_with_topic(topic_))
        return Outcome{parcel, Verdict::rejected, std::move(*problem), std::nullopt};
    const KafkaRecord record = to_record(event, config_.format, source_);
    const rd_kafka_resp_err_t error = producer_->send(topic_, record, to_opaque(parcel));
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
        if (on_the_way_.empty())
            last_sign_ = Clock::now();
        on_the_way_.emplace(parcel, record.size());
        return std::nullopt;
    }
    // Nothing else was sent together with it.
    if (failure_of(error) == KafkaFailure::message)
        return Outcome{parcel, Verdict::rejected, rd_kafka_err2str(error), std::nullopt};
    if (!producer_->fatal_error().empty()) {
        begin_ending(Clock::now());
        return Outcome{parcel, Verdict::returned, {}, std::nullopt};
    }
    return Outcome{parcel, Verdict::trouble, rd_kafka_err2str(error), std::nullopt};
}

// ---- what comes back

void KafkaSink::work(std::vector<Outcome>& outcomes)
{
    if (!producer_)
        return;
    const TimePoint now = Clock::now();
    producer_->hush();
    while (rd_kafka_event_t* event = producer_->poll()) {
        switch (rd_kafka_event_type(event)) {
        case RD_KAFKA_EVENT_DR:
            hear_reports(event, now, outcomes);
            break;
        case RD_KAFKA_EVENT_ERROR:
            hear_error(event);
            break;
        case RD_KAFKA_EVENT_LOG:
            hear_log(event);
            break;
        default:
            break;
        }
        rd_kafka_event_destroy(event);
    }
    if (!is_ending_ && !producer_->fatal_error().empty())
        begin_ending(now);
    if (is_ending_ && (on_the_way_.empty() || now >= end_by_))
        end_session(outcomes);
    else if (!is_ending_ && !on_the_way_.empty() && now >= patience_ends())
        give_up(outcomes);
}

void KafkaSink::hear_reports(rd_kafka_event_t* event, TimePoint now, std::vector<Outcome>& outcomes)
{
    while (const rd_kafka_message_t* message = rd_kafka_event_message_next(event)) {
        const auto found = on_the_way_.find(to_parcel(message->_private));
        if (found == on_the_way_.end())
            continue;
        outcomes.push_back(judge(found->first, found->second, message->err));
        on_the_way_.erase(found);
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            // For whoever tests the sink; among many it would not be read.
            if (on_the_way_.empty() && outcomes.size() == 1)
                outcomes.front().reason = "topic " + topic_ + ", partition " +
                                          std::to_string(message->partition) + ", offset " +
                                          std::to_string(message->offset);
            last_sign_ = now;
            has_delivered_ = true;
            complaint_.clear();
        }
    }
}

Outcome KafkaSink::judge(ParcelId parcel, std::size_t size, rd_kafka_resp_err_t error)
{
    Outcome outcome = {parcel, Verdict::delivered, {}, std::nullopt};
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR)
        return outcome;
    outcome.reason = presentable(rd_kafka_err2str(error));
    switch (failure_of(error)) {
    case KafkaFailure::message:
        // One that is as large as a whole batch was sent alone: then it is to blame.
        if (size >= config_.batch_size) {
            outcome.verdict = Verdict::rejected;
            break;
        }
        blame_batch(size, error);
        outcome.verdict = Verdict::returned;
        break;
    case KafkaFailure::session:
        outcome.verdict = Verdict::returned;
        break;
    case KafkaFailure::sink:
        outcome.verdict = Verdict::trouble;
        break;
    }
    return outcome;
}

// The brokers answer for a whole batch. In the next session batches are smaller: small enough to be
// taken, or else so small that the one to blame is alone in its batch.
void KafkaSink::blame_batch(std::size_t size, rd_kafka_resp_err_t error)
{
    const std::size_t smaller = is_about_size(error) ? config_.batch_size / shrinking : 0;
    const std::size_t least = std::max({size, smaller, std::size_t{1}});
    // Of those that were refused together, the largest is alone.
    next_batch_size_ =
        next_batch_size_ == config_.batch_size ? least : std::max(next_batch_size_, least);
}

void KafkaSink::hear_error(rd_kafka_event_t* event)
{
    if (rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR__FATAL)
        complaint_ = presentable(rd_kafka_event_error_string(event));
}

void KafkaSink::hear_log(rd_kafka_event_t* event)
{
    const char* facility;
    const char* text;
    int level;
    if (rd_kafka_event_log(event, &facility, &text, &level) != 0 || remarks_.size() >= max_remarks)
        return;
    // Said of every session, and known.
    if (std::string_view(text).find("enable.gapless.guarantee") == std::string_view::npos)
        remarks_.push_back(presentable(text));
}

std::string KafkaSink::complaint() const
{
    return on_the_way_.empty() ? std::string{} : complaint_;
}

std::string KafkaSink::presentable(std::string_view text) const
{
    std::string shown(text);
    secrets_.redact(shown);
    return to_printable(shown);
}

} // namespace outbox::sink
