// The Kafka sink: records through an idempotent producer, which keeps their order for each
// partition, and so for each aggregate. Whatever it cannot deliver ends the producer's session
// before anything behind it is sent; what was left goes out in the next session, in the same order.
#pragma once

#include "sink/config/secrets.hpp"
#include "sink/config/sink_context.hpp"
#include "sink/interface/sink.hpp"
#include "sink/kafka/producer.hpp"
#include "sink/util/slot_map.hpp"

#include <atomic>

namespace outbox::sink {

class KafkaSink final : public Sink {
public:
    // The config with its secrets filled in; the secrets again, to keep them out of what is said.
    KafkaSink(KafkaConfig config, Secrets secrets, const SinkContext& sink_context);
    ~KafkaSink() override;

    int descriptor() const override { return epoll_; }
    std::optional<TimePoint> next_work() const override;
    std::vector<std::string> metadata() const override { return config_.metadata; }
    std::size_t capacity() const override { return config_.window; }
    std::size_t max_events_per_request() const override { return 1; }
    bool preserves_order() const override { return true; }
    StreamId stream_of(const Event& event) const override;
    bool is_ready() const override { return !is_ending_; }
    std::optional<Outcome> send(RequestId parcel, std::span<const Event* const> events,
                                StreamId stream) override;
    void start() override {}
    void work(std::vector<Outcome>& outcomes) override;
    void abandon() override;
    std::string status_message() const override;
    std::vector<std::string> take_log_lines() override { return std::exchange(remarks_, {}); }
    bool is_broken() const override { return mishap_->load(); }

private:
    // What librdkafka has.
    struct Sent {
        RequestId parcel;
        std::size_t size;
    };

    void open_session();
    std::optional<std::string> problem_with_session();
    std::optional<Outcome> hand_over(RequestId parcel, const Event& event);
    void close_session();
    void begin_ending(TimePoint now);
    void purge(TimePoint now);
    void end_session(std::vector<Outcome>& outcomes);
    bool nobody_is_to_blame() const;
    bool is_fruitless() const { return !has_delivered_ && !has_learned_; }
    Outcome outcome_of_end(RequestId parcel) const;
    void give_up(std::vector<Outcome>& outcomes);
    std::chrono::milliseconds patience() const;

    void hear_reports(rd_kafka_event_t* event, TimePoint now, std::vector<Outcome>& outcomes);
    void hear_error(rd_kafka_event_t* event);
    void hear_log(rd_kafka_event_t* event);
    Outcome judge(const Sent& sent, rd_kafka_resp_err_t error);
    void blame_batch(std::size_t size, rd_kafka_resp_err_t error);
    std::string presentable(std::string_view text) const;

    KafkaConfig config_;
    Secrets secrets_;
    std::string source_;
    int epoll_ = -1;
    const std::shared_ptr<AbortFlag> mishap_ = std::make_shared<AbortFlag>(false);
    std::unique_ptr<KafkaProducer> producer_;
    Slots<Sent> on_the_way_;      // librdkafka knows them by their numbers
    std::vector<RequestId> left_; // they went down with the session
    std::string topic_;           // of the last record
    KafkaRecord record_;          // the last one
    TimePoint last_sign_{};       // of life, from the brokers
    bool has_delivered_ = false;  // in this session
    bool has_learned_ = false;    // in this session: what is wrong with an event, or a batch
    int doublings_ = 0;           // of the patience with a session that has not delivered
    bool is_ending_ = false;      // the session: reports still come in
    TimePoint end_by_{};
    // A new one with each session, and behind whatever was refused: streams end with it.
    std::atomic<std::uint64_t> era_ = 0;
    TimePoint next_purge_{};
    std::size_t usual_batch_size_; // unless somebody is looked for
    std::size_t next_batch_size_;  // of the next session
    std::size_t suspects_ = 0;     // that were refused in a batch, and not delivered since
    std::string complaint_;
    std::string failure_; // of a connection, the last one
    std::vector<std::string> remarks_;
};

} // namespace outbox::sink
