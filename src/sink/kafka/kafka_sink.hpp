// Kafka sink: sends records through an idempotent producer of librdkafka, which keeps their order
// in each Kafka partition and so for each aggregate. A record that cannot be delivered ends the
// producer's session before a later record is sent; the dispatcher sends the rest in the next
// session, in the same order.
#pragma once

#include "sink/config/secrets.hpp"
#include "sink/config/sink_context.hpp"
#include "sink/interface/sink.hpp"
#include "sink/kafka/producer.hpp"
#include "sink/util/slot_map.hpp"

#include <atomic>

namespace outbox::sink {

// Used by one thread, except for stream_of() and has_aborted().
class KafkaSink final : public Sink {
public:
    // `config` is resolved. `secrets` are redacted from reasons and log lines. Opens a session
    // without waiting for a broker. Raises 22023 for a config that librdkafka refuses,
    // std::runtime_error if a thread or a descriptor is missing.
    KafkaSink(KafkaConfig config, Secrets secrets, const SinkContext& sink_context);
    ~KafkaSink() override;

    // Functions of Sink. send() opens a session if there is none. poll() also ends sessions: after
    // an error of the session, on a timeout, and to restore the batch size.
    int wait_fd() const override { return epoll_; }
    std::optional<TimePoint> next_poll_at() const override;
    std::vector<std::string> metadata_keys() const override { return config_.metadata_keys; }
    std::size_t max_in_flight() const override { return config_.max_in_flight; }
    std::size_t max_events_per_request() const override { return 1; }
    bool preserves_order() const override { return true; }
    StreamId stream_of(const Event& event) const override;
    bool can_send() const override { return !is_draining_; }
    std::optional<DeliveryResult> send(RequestId request_id, std::span<const Event* const> events,
                                       StreamId stream) override;
    void flush() override {}
    void poll(std::vector<DeliveryResult>& results) override;
    void cancel_all() override;

    // Last error of the brokers since the last delivery; empty while no record is in flight, even
    // if the brokers are down.
    std::string status_message() const override;

    std::vector<std::string> take_log_lines() override { return std::exchange(log_lines_, {}); }
    bool has_aborted() const override { return abort_flag_->load(); }

private:
    // A record that librdkafka has accepted and not reported yet.
    struct InFlightRecord {
        RequestId request_id;
        std::size_t size; // bytes
    };

    void open_session();
    std::optional<std::string> ensure_session();
    std::optional<DeliveryResult> produce(RequestId request_id, const Event& event);
    void close_session();
    void begin_draining(TimePoint now);
    void purge(TimePoint now);
    void end_session(std::vector<DeliveryResult>& results);
    bool can_restore_batch_size() const;
    // Returns true if the session has neither delivered a record nor had an invalid one refused.
    bool made_no_progress() const { return !has_delivered_ && !has_message_error_; }
    DeliveryResult result_of_ended_session(RequestId request_id) const;
    void time_out_session(std::vector<DeliveryResult>& results);
    std::chrono::milliseconds session_timeout() const;

    void on_delivery_reports(rd_kafka_event_t* event, TimePoint now,
                             std::vector<DeliveryResult>& results);
    void on_error(rd_kafka_event_t* event);
    void on_log(rd_kafka_event_t* event);
    DeliveryResult result_of_report(const InFlightRecord& record, rd_kafka_resp_err_t error);
    void shrink_next_batch(std::size_t size, rd_kafka_resp_err_t error);
    std::string redacted_text(std::string_view text) const;

    KafkaConfig config_;
    Secrets secrets_;
    std::string source_;
    int epoll_ = -1;
    const std::shared_ptr<AbortFlag> abort_flag_ = std::make_shared<AbortFlag>(false);
    std::unique_ptr<KafkaProducer> producer_;
    SlotMap<InFlightRecord> in_flight_;        // by the opaque of the delivery report
    std::vector<RequestId> lost_with_session_; // reported with an error of the session
    std::string topic_;                        // of the last record, kept for its memory
    KafkaRecord record_;                       // the last record, kept for its memory
    TimePoint last_broker_activity_{};         // last delivery, or first record after idling
    bool has_delivered_ = false;               // in this session
    bool has_message_error_ = false;           // a record was refused in this session
    int timeout_doublings_ = 0; // sessions in a row that timed out before their first delivery
    bool is_draining_ = false;  // the session ends; delivery reports still come in
    TimePoint drain_deadline_{};
    // Incremented for each session and after each refused record; a change ends all streams.
    std::atomic<std::uint64_t> stream_epoch_ = 0;
    TimePoint next_purge_{};
    std::size_t normal_batch_size_;     // bytes, while no poison record is searched for
    std::size_t next_batch_size_;       // bytes, in the next session
    std::size_t suspected_records_ = 0; // refused with their batch and not delivered since
    std::string status_message_;        // last error of the brokers, until a delivery
    std::string connection_error_;      // last logged failure of a connection
    std::vector<std::string> log_lines_;
};

} // namespace outbox::sink
