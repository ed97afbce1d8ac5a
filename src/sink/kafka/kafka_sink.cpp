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

// Longest wait for delivery reports of records that brokers have, when a session ends.
constexpr milliseconds max_drain_interval{5'000};

// Interval of purges while a session ends: librdkafka queues records again that a broker refuses
// meanwhile with a retriable error.
constexpr milliseconds purge_interval{50};

// Timeout of a session without a delivery, if a broker has reported an error.
constexpr milliseconds first_delivery_timeout{5'000};

// The timeout before the first delivery doubles after each session that ran into it, up to this
// value: brokers may need longer than that to connect, and no session would ever deliver.
constexpr milliseconds max_first_delivery_timeout{30'000};
constexpr int max_timeout_doublings = 8; // keeps the product within its type

constexpr std::size_t max_log_lines = 20; // until take_log_lines(); further lines are dropped

// Factor by which batch.size decreases in the next session after a batch was refused as too large.
constexpr std::size_t batch_size_divisor = 4;

static_assert(sizeof(void*) >= sizeof(std::uint64_t), "opaque pointers hold record numbers");

void* to_opaque(std::uint64_t number)
{
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(number));
}

std::uint64_t to_number(const void* opaque)
{
    return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(opaque));
}

// Removes the prefix "[thrd:name]: " of a log line.
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
      epoll_(epoll_create1(EPOLL_CLOEXEC)), normal_batch_size_(config_.batch_size),
      next_batch_size_(config_.batch_size)
{
    if (epoll_ < 0)
        throw std::system_error(errno, std::generic_category(), "epoll_create1()");
    try {
        open_session();
    } catch (const Error& error) {
        close(epoll_);
        throw Error(error.sqlstate(), redacted_text(error.what()));
    } catch (const std::runtime_error& error) {
        close(epoll_);
        throw std::runtime_error(redacted_text(error.what()));
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

// Starts a producer with next_batch_size_ and adds its eventfd to the epoll set. Raises 22023 or
// std::runtime_error, like the constructor.
void KafkaSink::open_session()
{
    KafkaConfig config = config_;
    config.batch_size = next_batch_size_;
    producer_ = std::make_unique<KafkaProducer>(config, abort_flag_);
    config_.batch_size = next_batch_size_;
    epoll_event event = {};
    event.events = EPOLLIN;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, producer_->wait_fd(), &event) != 0)
        throw std::system_error(errno, std::generic_category(), "epoll_ctl()");
}

// Opens a session if there is none. Returns why that failed; std::nullopt: there is a session.
std::optional<std::string> KafkaSink::ensure_session()
{
    try {
        if (!producer_)
            open_session();
        return std::nullopt;
    } catch (const std::exception& error) {
        close_session();
        return redacted_text(error.what());
    }
}

// Drops the producer with its records, if there is one, ends all streams, and resets the state of
// the session. Adds no results and leaves in_flight_ as it is.
void KafkaSink::close_session()
{
    if (producer_)
        (void)epoll_ctl(epoll_, EPOLL_CTL_DEL, producer_->wait_fd(), nullptr);
    ++stream_epoch_;
    producer_.reset();
    has_delivered_ = has_message_error_ = is_draining_ = false;
    status_message_.clear();
    connection_error_.clear();
}

// Begins to end the session, which accepts no requests from then on: purges unsent records, and
// waits for reports of the sent ones, so that fewer records are sent twice.
void KafkaSink::begin_draining(TimePoint now)
{
    is_draining_ = true;
    drain_deadline_ = now + max_drain_interval;
    purge(now);
}

// Drops the records that no broker has, which adds their delivery reports, and sets
// next_purge_.
void KafkaSink::purge(TimePoint now)
{
    producer_->purge_unsent();
    next_purge_ = now + purge_interval;
}

// Appends a result for each record that the session lost or did not report, then closes the
// session.
void KafkaSink::end_session(std::vector<DeliveryResult>& results)
{
    in_flight_.extract_all(
        [&](const InFlightRecord& record) { lost_with_session_.push_back(record.request_id); });
    for (const RequestId request_id : std::exchange(lost_with_session_, {}))
        results.push_back(result_of_ended_session(request_id));
    close_session();
}

// Returns the result of a record that was lost with its session: not_sent, so that the next session
// sends it. A session without any progress counts as a failure of the sink.
DeliveryResult KafkaSink::result_of_ended_session(RequestId request_id) const
{
    if (!made_no_progress())
        return {request_id, DeliveryStatus::not_sent, {}, std::nullopt};
    const std::string reason = producer_->fatal_error();
    return {request_id, DeliveryStatus::unavailable,
            reason.empty() ? "the brokers ended the session" : redacted_text(reason), std::nullopt};
}

// Ends a session that had no delivery for session_timeout(); its records get `unavailable`. Whether
// they arrive is unknown; the next session sends them again.
void KafkaSink::time_out_session(std::vector<DeliveryResult>& results)
{
    const std::string reason = status_message_.empty()
                                   ? "no sign from the brokers within " +
                                         std::to_string(session_timeout().count() / 1000) + " s"
                                   : status_message_;
    if (!has_delivered_)
        timeout_doublings_ = std::min(timeout_doublings_ + 1, max_timeout_doublings);
    in_flight_.extract_all([&](const InFlightRecord& record) {
        results.push_back({record.request_id, DeliveryStatus::unavailable, reason, std::nullopt});
    });
    close_session();
}

void KafkaSink::cancel_all()
{
    in_flight_.clear();
    lost_with_session_.clear();
    close_session();
}

// Returns how long the session may have no delivery: the configured timeout. Before the first one
// at most 5 s if a broker has reported an error; this doubles, up to 30 s, with each session in a
// row that timed out before its first delivery.
milliseconds KafkaSink::session_timeout() const
{
    const milliseconds timeout{config_.timeout_ms};
    if (has_delivered_)
        return timeout;
    const bool has_broker_error = !status_message_.empty();
    const milliseconds initial =
        has_broker_error ? std::min(timeout, first_delivery_timeout) : timeout;
    const milliseconds max = has_broker_error ? max_first_delivery_timeout
                                              : std::max(timeout, max_first_delivery_timeout);
    return std::min(initial * (1 << timeout_doublings_), max);
}

std::optional<TimePoint> KafkaSink::next_poll_at() const
{
    if (is_draining_)
        return std::min(drain_deadline_, next_purge_);
    return in_flight_.empty() ? std::nullopt
                              : std::optional(last_broker_activity_ + session_timeout());
}

// ---- sending

// A stream is a session and a topic. A broker that has no record of a session yet accepts any first
// record, even if an earlier one was refused: order is guaranteed only after the first delivery.
StreamId KafkaSink::stream_of(const Event& event) const
{
    return (config_.topic.hash(event) ^ stream_epoch_ << 32) | 1;
}

// A record that is refused at once ends the stream, because the relay's thread may have queued
// later events of the aggregate already: those then come back as not_sent.
std::optional<DeliveryResult> KafkaSink::send(RequestId request_id,
                                              std::span<const Event* const> events, StreamId stream)
{
    const Event& event = *events.front();
    if (stream != stream_of(event))
        return DeliveryResult{request_id, DeliveryStatus::not_sent, {}, std::nullopt};
    auto refusal = produce(request_id, event);
    if (refusal)
        ++stream_epoch_;
    return refusal;
}

// Passes the event to librdkafka, in a new session if there is none. Returns a result only if the
// record was not queued. A fatal error of librdkafka begins to end the session.
std::optional<DeliveryResult> KafkaSink::produce(RequestId request_id, const Event& event)
{
    if (auto problem = ensure_session())
        return DeliveryResult{request_id, DeliveryStatus::unavailable, std::move(*problem),
                              std::nullopt};
    config_.topic.apply(event, topic_);
    if (auto problem = problem_with_topic(topic_))
        return DeliveryResult{request_id, DeliveryStatus::rejected, std::move(*problem),
                              std::nullopt};
    write_record(record_, event, config_.format, source_);
    if (in_flight_.empty())
        last_broker_activity_ = Clock::now();
    const auto number = in_flight_.insert({request_id, record_.size()});
    const rd_kafka_resp_err_t error = producer_->send(topic_, record_, to_opaque(number));
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR)
        return std::nullopt;
    (void)in_flight_.extract(number);
    // librdkafka has refused this record itself, so no other record of a batch can be at fault.
    if (classify_error(error) == KafkaErrorClass::message)
        return DeliveryResult{request_id, DeliveryStatus::rejected, rd_kafka_err2str(error),
                              std::nullopt};
    if (!producer_->fatal_error().empty()) {
        begin_draining(Clock::now());
        return result_of_ended_session(request_id);
    }
    return DeliveryResult{request_id, DeliveryStatus::unavailable, rd_kafka_err2str(error),
                          std::nullopt, classify_error(error) == KafkaErrorClass::topic};
}

// ---- results

void KafkaSink::poll(std::vector<DeliveryResult>& results)
{
    if (!producer_)
        return;
    const TimePoint now = Clock::now();
    producer_->drain();
    while (rd_kafka_event_t* event = producer_->poll()) {
        switch (rd_kafka_event_type(event)) {
        case RD_KAFKA_EVENT_DR:
            on_delivery_reports(event, now, results);
            break;
        case RD_KAFKA_EVENT_ERROR:
            on_error(event);
            break;
        case RD_KAFKA_EVENT_LOG:
            on_log(event);
            break;
        default:
            break;
        }
        rd_kafka_event_destroy(event);
    }
    if (!is_draining_ && !(lost_with_session_.empty() && producer_->fatal_error().empty()))
        begin_draining(now);
    if (is_draining_ && now >= next_purge_)
        purge(now);
    if (is_draining_ && (in_flight_.empty() || now >= drain_deadline_))
        end_session(results);
    else if (!is_draining_ && !in_flight_.empty() &&
             now - last_broker_activity_ >= session_timeout())
        time_out_session(results);
    else if (can_restore_batch_size()) {
        next_batch_size_ = normal_batch_size_;
        close_session();
    }
}

// Returns true if the batch size was reduced and the records that were refused together have been
// delivered since: a new session can use the normal size.
bool KafkaSink::can_restore_batch_size() const
{
    return in_flight_.empty() && suspected_records_ == 0 && has_delivered_ &&
           config_.batch_size < normal_batch_size_;
}

// Appends the results of reported records. Records that the session has lost are kept in
// lost_with_session_ instead, for end_session(). A delivery clears status_message_.
void KafkaSink::on_delivery_reports(rd_kafka_event_t* event, TimePoint now,
                                    std::vector<DeliveryResult>& results)
{
    while (const rd_kafka_message_t* message = rd_kafka_event_message_next(event)) {
        const auto number = to_number(message->_private);
        if (in_flight_.find(number) == nullptr)
            continue;
        const InFlightRecord record = in_flight_.extract(number);
        // Records lost with the session get results when it has ended and the reason is known.
        if (classify_error(message->err) == KafkaErrorClass::session) {
            lost_with_session_.push_back(record.request_id);
            continue;
        }
        results.push_back(result_of_report(record, message->err));
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            // For outbox_test_sink(), which sends a single record.
            if (in_flight_.empty() && results.size() == 1)
                results.front().reason = "topic " + topic_ + ", partition " +
                                         std::to_string(message->partition) + ", offset " +
                                         std::to_string(message->offset);
            last_broker_activity_ = now;
            has_delivered_ = true;
            timeout_doublings_ = 0;
            suspected_records_ -= suspected_records_ > 0;
            status_message_.clear();
        }
    }
}

// Returns the result for a delivery report. An error ends all streams; an invalid or too large
// record also changes the batch size of the next session, to find the record at fault in its batch.
DeliveryResult KafkaSink::result_of_report(const InFlightRecord& record, rd_kafka_resp_err_t error)
{
    DeliveryResult result = {record.request_id, DeliveryStatus::delivered, {}, std::nullopt};
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR)
        return result;
    ++stream_epoch_;
    result.reason = redacted_text(rd_kafka_err2str(error));
    switch (classify_error(error)) {
    case KafkaErrorClass::message:
        has_message_error_ = true;
        // A record as large as batch.size is alone in its batch, so this record is at fault.
        if (record.size >= config_.batch_size) {
            result.status = DeliveryStatus::rejected;
            next_batch_size_ = normal_batch_size_;
            suspected_records_ = 0;
            break;
        }
        shrink_next_batch(record.size, error);
        result.status = DeliveryStatus::not_sent;
        break;
    case KafkaErrorClass::topic:
        // Events of other topics must not wait forever: the event can become poison.
        result.status = DeliveryStatus::unavailable;
        result.may_be_event_fault = true;
        break;
    case KafkaErrorClass::session:
    case KafkaErrorClass::sink:
        result.status = DeliveryStatus::unavailable;
        break;
    }
    return result;
}

// Reduces the batch size of the next session after brokers refused a whole batch: to a quarter if
// the batch was too large, otherwise so far that the record at fault is alone in its batch.
void KafkaSink::shrink_next_batch(std::size_t size, rd_kafka_resp_err_t error)
{
    ++suspected_records_;
    const std::size_t smaller = is_size_error(error) ? config_.batch_size / batch_size_divisor : 0;
    const std::size_t min_size = std::max({size, smaller, std::size_t{1}});
    // The first refused record of a session sets the size, the others can only raise it: the
    // largest of them will be alone in its batch.
    next_batch_size_ =
        next_batch_size_ == config_.batch_size ? min_size : std::max(next_batch_size_, min_size);
    if (is_size_error(error) && config_.batch_size >= normal_batch_size_)
        normal_batch_size_ = std::min(normal_batch_size_, next_batch_size_);
}

// Stores an error of the brokers, redacted, in status_message_. Ignores fatal errors.
void KafkaSink::on_error(rd_kafka_event_t* event)
{
    // A fatal error ends the session (poll()); it is not a problem of the brokers.
    if (rd_kafka_event_error_is_fatal(event))
        return;
    // "All brokers are down" has no reason; the last logged failure of a connection has one.
    if (rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
        status_message_ = redacted_text(rd_kafka_event_error_string(event));
    else if (status_message_.empty())
        status_message_ = connection_error_.empty()
                              ? redacted_text(rd_kafka_event_error_string(event))
                              : connection_error_;
}

// Keeps a log line, redacted, for take_log_lines(); that of a failed connection also for
// on_error().
void KafkaSink::on_log(rd_kafka_event_t* event)
{
    const char* facility;
    const char* text;
    int level;
    if (rd_kafka_event_log(event, &facility, &text, &level) != 0)
        return;
    if (std::string_view(facility) == "FAIL")
        connection_error_ = redacted_text(without_thread(text));
    if (log_lines_.size() >= max_log_lines)
        return;
    // librdkafka warns in every session that this property is experimental.
    if (std::string_view(text).find("enable.gapless.guarantee") == std::string_view::npos)
        log_lines_.push_back(redacted_text(text));
}

std::string KafkaSink::status_message() const
{
    return in_flight_.empty() ? std::string{} : status_message_;
}

// Returns the text sanitized, without secrets.
std::string KafkaSink::redacted_text(std::string_view text) const
{
    std::string shown(text);
    secrets_.redact(shown);
    return sanitize_text(shown);
}

} // namespace outbox::sink
