#include "sink/kafka/kafka_sink.hpp"

#include "core/error.hpp"
#include "sink/kafka/error_class.hpp"
#include "sink/util/sanitize_text.hpp"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace outbox::sink {

namespace {

using std::chrono::milliseconds;

// A session that cannot go on still hears what came of what is with the brokers.
constexpr milliseconds longest_ending{5'000};

// What the brokers give back meanwhile, librdkafka keeps to send it again: to be taken from it as
// well.
constexpr milliseconds between_purges{50};

// A session that has not delivered anything, and has been told why, need not be waited for.
constexpr milliseconds patience_with_strangers{5'000};

// It may just have needed longer to get acquainted: each one that was given up so makes for more
// patience with the next, or none would ever come to deliver anything.
constexpr milliseconds most_patience_with_strangers{30'000};
constexpr int most_doublings = 8;

constexpr std::size_t max_remarks = 20;

// How much less a session sends at once when the brokers have refused a batch as too large.
constexpr std::size_t shrinking = 4;

static_assert(sizeof(void*) >= sizeof(std::uint64_t), "numbers of messages travel as pointers");

void* to_opaque(std::uint64_t number)
{
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(number));
}

std::uint64_t to_number(const void* opaque)
{
    return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(opaque));
}

// A line of the log begins with the name of a thread, in brackets.
std::string_view without_thread(std::string_view line)
{
    constexpr std::string_view end = "]: ";
    const std::size_t found = line.find(end);
    return line.starts_with('[') && found != std::string_view::npos
               ? line.substr(found + end.size())
               : line;
}

} // namespace

KafkaSink::KafkaSink(KafkaConfig config, Secrets secrets, const SinkContext& sink_context)
    : config_(std::move(config)), secrets_(std::move(secrets)), source_(sink_context.source),
      epoll_(epoll_create1(EPOLL_CLOEXEC)), usual_batch_size_(config_.batch_size),
      next_batch_size_(config_.batch_size)
{
    if (epoll_ < 0)
        throw std::system_error(errno, std::generic_category(), "epoll_create1()");
    try {
        open_session();
    } catch (const Error& error) {
        close(epoll_);
        throw Error(error.sqlstate(), presentable(error.what()));
    } catch (const std::runtime_error& error) {
        close(epoll_);
        throw std::runtime_error(presentable(error.what()));
    } catch (...) {
        close(epoll_);
        throw;
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
    producer_ = std::make_unique<KafkaProducer>(config, mishap_);
    config_.batch_size = next_batch_size_;
    epoll_event event = {};
    event.events = EPOLLIN;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, producer_->descriptor(), &event) != 0)
        throw std::system_error(errno, std::generic_category(), "epoll_ctl()");
}

// Sees to it that there is one. Why there can be none, if so.
std::optional<std::string> KafkaSink::problem_with_session()
{
    try {
        if (!producer_)
            open_session();
        return std::nullopt;
    } catch (const std::exception& error) {
        close_session();
        return presentable(error.what());
    }
}

void KafkaSink::close_session()
{
    if (producer_)
        (void)epoll_ctl(epoll_, EPOLL_CTL_DEL, producer_->descriptor(), nullptr);
    ++era_;
    producer_.reset();
    has_delivered_ = has_learned_ = is_ending_ = false;
    complaint_.clear();
    failure_.clear();
}

// What librdkafka has not sent stays unsent; of what it has sent, reports come in.
void KafkaSink::begin_ending(TimePoint now)
{
    is_ending_ = true;
    end_by_ = now + longest_ending;
    purge(now);
}

void KafkaSink::purge(TimePoint now)
{
    producer_->purge_unsent();
    next_purge_ = now + between_purges;
}

void KafkaSink::end_session(std::vector<Outcome>& outcomes)
{
    on_the_way_.take_all([&](const Sent& sent) { left_.push_back(sent.parcel); });
    for (const RequestId parcel : std::exchange(left_, {}))
        outcomes.push_back(outcome_of_end(parcel));
    close_session();
}

// The next session does better, unless this one has come to nothing.
Outcome KafkaSink::outcome_of_end(RequestId parcel) const
{
    if (!is_fruitless())
        return {parcel, DeliveryStatus::returned, {}, std::nullopt};
    const std::string reason = producer_->fatal_error();
    return {parcel, DeliveryStatus::trouble,
            reason.empty() ? "the brokers ended the session" : presentable(reason), std::nullopt};
}

// Whether it arrives is open: in the next session all of it is sent again.
void KafkaSink::give_up(std::vector<Outcome>& outcomes)
{
    const std::string reason =
        complaint_.empty()
            ? "no sign from the brokers within " + std::to_string(patience().count() / 1000) + " s"
            : complaint_;
    if (!has_delivered_)
        doublings_ = std::min(doublings_ + 1, most_doublings);
    on_the_way_.take_all([&](const Sent& sent) {
        outcomes.push_back({sent.parcel, DeliveryStatus::trouble, reason, std::nullopt});
    });
    close_session();
}

void KafkaSink::abandon()
{
    on_the_way_.clear();
    left_.clear();
    close_session();
}

milliseconds KafkaSink::patience() const
{
    const milliseconds timeout{config_.timeout_ms};
    if (has_delivered_)
        return timeout;
    const bool is_told_why = !complaint_.empty();
    const milliseconds first = is_told_why ? std::min(timeout, patience_with_strangers) : timeout;
    const milliseconds most = is_told_why ? most_patience_with_strangers
                                          : std::max(timeout, most_patience_with_strangers);
    return std::min(first * (1 << doublings_), most);
}

std::optional<TimePoint> KafkaSink::next_work() const
{
    if (is_ending_)
        return std::min(end_by_, next_purge_);
    return on_the_way_.empty() ? std::nullopt : std::optional(last_sign_ + patience());
}

// ---- sending

// A broker that has nothing of a session yet takes whatever comes first, also if something before
// it was refused. So order begins with a delivery, in each session and topic.
StreamId KafkaSink::stream_of(const Event& event) const
{
    return (config_.topic.hash(event) ^ era_ << 32) | 1;
}

// Who sends may have decided on the next ones before he hears what came of this one. Those behind
// one that is refused come back.
std::optional<Outcome> KafkaSink::send(RequestId parcel, std::span<const Event* const> events,
                                       StreamId stream)
{
    const Event& event = *events.front();
    if (stream != stream_of(event))
        return Outcome{parcel, DeliveryStatus::returned, {}, std::nullopt};
    auto refusal = hand_over(parcel, event);
    if (refusal)
        ++era_;
    return refusal;
}

std::optional<Outcome> KafkaSink::hand_over(RequestId parcel, const Event& event)
{
    if (auto problem = problem_with_session())
        return Outcome{parcel, DeliveryStatus::trouble, std::move(*problem), std::nullopt};
    config_.topic.apply(event, topic_);
    if (auto problem = problem_with_topic(topic_))
        return Outcome{parcel, DeliveryStatus::rejected, std::move(*problem), std::nullopt};
    write_record(record_, event, config_.format, source_);
    if (on_the_way_.empty())
        last_sign_ = Clock::now();
    const auto number = on_the_way_.put({parcel, record_.size()});
    const rd_kafka_resp_err_t error = producer_->send(topic_, record_, to_opaque(number));
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR)
        return std::nullopt;
    (void)on_the_way_.take(number);
    // Nothing else was sent together with it.
    if (failure_of(error) == KafkaFailure::message)
        return Outcome{parcel, DeliveryStatus::rejected, rd_kafka_err2str(error), std::nullopt};
    if (!producer_->fatal_error().empty()) {
        begin_ending(Clock::now());
        return outcome_of_end(parcel);
    }
    return Outcome{parcel, DeliveryStatus::trouble, rd_kafka_err2str(error), std::nullopt,
                   failure_of(error) == KafkaFailure::topic};
}

// ---- what comes back

void KafkaSink::work(std::vector<Outcome>& outcomes)
{
    if (!producer_)
        return;
    const TimePoint now = Clock::now();
    producer_->drain();
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
    if (!is_ending_ && !(left_.empty() && producer_->fatal_error().empty()))
        begin_ending(now);
    if (is_ending_ && now >= next_purge_)
        purge(now);
    if (is_ending_ && (on_the_way_.empty() || now >= end_by_))
        end_session(outcomes);
    else if (!is_ending_ && !on_the_way_.empty() && now - last_sign_ >= patience())
        give_up(outcomes);
    else if (nobody_is_to_blame()) {
        next_batch_size_ = usual_batch_size_;
        close_session();
    }
}

// All that was refused together has been delivered.
bool KafkaSink::nobody_is_to_blame() const
{
    return on_the_way_.empty() && suspects_ == 0 && has_delivered_ &&
           config_.batch_size < usual_batch_size_;
}

void KafkaSink::hear_reports(rd_kafka_event_t* event, TimePoint now, std::vector<Outcome>& outcomes)
{
    while (const rd_kafka_message_t* message = rd_kafka_event_message_next(event)) {
        const auto number = to_number(message->_private);
        if (on_the_way_.find(number) == nullptr)
            continue;
        const Sent sent = on_the_way_.take(number);
        // What went down with the session is told when it is over: by then it is known why.
        if (failure_of(message->err) == KafkaFailure::session) {
            left_.push_back(sent.parcel);
            continue;
        }
        outcomes.push_back(judge(sent, message->err));
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            // For whoever tests the sink; among many it would not be read.
            if (on_the_way_.empty() && outcomes.size() == 1)
                outcomes.front().reason = "topic " + topic_ + ", partition " +
                                          std::to_string(message->partition) + ", offset " +
                                          std::to_string(message->offset);
            last_sign_ = now;
            has_delivered_ = true;
            doublings_ = 0;
            suspects_ -= suspects_ > 0;
            complaint_.clear();
        }
    }
}

Outcome KafkaSink::judge(const Sent& sent, rd_kafka_resp_err_t error)
{
    Outcome outcome = {sent.parcel, DeliveryStatus::delivered, {}, std::nullopt};
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR)
        return outcome;
    ++era_;
    outcome.reason = presentable(rd_kafka_err2str(error));
    switch (failure_of(error)) {
    case KafkaFailure::message:
        has_learned_ = true;
        // One that is as large as a whole batch was sent alone: then it is to blame.
        if (sent.size >= config_.batch_size) {
            outcome.verdict = DeliveryStatus::rejected;
            next_batch_size_ = usual_batch_size_;
            suspects_ = 0;
            break;
        }
        blame_batch(sent.size, error);
        outcome.verdict = DeliveryStatus::returned;
        break;
    case KafkaFailure::topic:
        // With several topics, the others' events are not to wait for it for ever.
        outcome.verdict = DeliveryStatus::trouble;
        outcome.may_be_event_fault = true;
        break;
    case KafkaFailure::session:
    case KafkaFailure::sink:
        outcome.verdict = DeliveryStatus::trouble;
        break;
    }
    return outcome;
}

// The brokers answer for a whole batch. In the next session batches are smaller: small enough to be
// taken, or else so small that the one to blame is alone in its batch.
void KafkaSink::blame_batch(std::size_t size, rd_kafka_resp_err_t error)
{
    ++suspects_;
    const std::size_t smaller = is_about_size(error) ? config_.batch_size / shrinking : 0;
    const std::size_t least = std::max({size, smaller, std::size_t{1}});
    // Of those that were refused together, the largest is alone.
    next_batch_size_ =
        next_batch_size_ == config_.batch_size ? least : std::max(next_batch_size_, least);
    if (is_about_size(error) && config_.batch_size >= usual_batch_size_)
        usual_batch_size_ = std::min(usual_batch_size_, next_batch_size_);
}

void KafkaSink::hear_error(rd_kafka_event_t* event)
{
    // What is fatal to the session the next one makes good.
    if (rd_kafka_event_error_is_fatal(event))
        return;
    // That all brokers are down says little: one of them has said why, if only to the log.
    if (rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
        complaint_ = presentable(rd_kafka_event_error_string(event));
    else if (complaint_.empty())
        complaint_ = failure_.empty() ? presentable(rd_kafka_event_error_string(event)) : failure_;
}

void KafkaSink::hear_log(rd_kafka_event_t* event)
{
    const char* facility;
    const char* text;
    int level;
    if (rd_kafka_event_log(event, &facility, &text, &level) != 0)
        return;
    if (std::string_view(facility) == "FAIL")
        failure_ = presentable(without_thread(text));
    if (remarks_.size() >= max_remarks)
        return;
    // Said of every session, and known.
    if (std::string_view(text).find("enable.gapless.guarantee") == std::string_view::npos)
        remarks_.push_back(presentable(text));
}

std::string KafkaSink::status_message() const
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
