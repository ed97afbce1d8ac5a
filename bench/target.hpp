// The destination of events that a client sends after its commit: an HTTP request per event as the
// relay makes it, or a record of a producer that all connections share.
#pragma once

#include "bare_producer.hpp"
#include "request.hpp"

#include "sink/kafka/record.hpp"

#include <memory>

class Target {
public:
    virtual ~Target() = default;
    virtual void bring(const std::string& key, const std::string& body) = 0;
};

// Waits for the answer.
class HttpTarget final : public Target {
public:
    explicit HttpTarget(const std::string& url) : post_(new_post(url)), headers_(made_up_headers())
    {}
    ~HttpTarget() override { curl_easy_cleanup(post_); }

    void bring(const std::string&, const std::string& body) override
    {
        set_request(post_, body, headers_);
        const std::string wrong = status_message(post_, curl_easy_perform(post_));
        if (!wrong.empty()) {
            std::fprintf(stderr, "POST: %s\n", wrong.c_str());
            std::exit(1);
        }
    }

private:
    CURL* post_;
    Headers headers_;
};

// Returns at once; librdkafka sends in its own threads.
class KafkaTarget final : public Target {
public:
    explicit KafkaTarget(BareProducer& producer) : producer_(producer)
    {
        event_.tracking_id = "01890a5d-ac96-774b-bcce-b302099a8057";
        event_.aggregate_type = "Order";
        event_.event_type = "OrderConfirmed";
        event_.id = 4711;
        event_.occurred_at = 1767323045123456;
    }

    void bring(const std::string& key, const std::string& body) override
    {
        event_.aggregate_id = key;
        event_.payload = body;
        outbox::sink::write_record(record_, event_, outbox::sink::KafkaFormat::cloudevents,
                                   "/bench");
        producer_.send(record_.key, *record_.value,
                       {record_.headers.begin(), record_.headers.end()});
    }

private:
    BareProducer& producer_;
    outbox::sink::Event event_;
    outbox::sink::KafkaRecord record_;
};

class Targets {
public:
    // An empty URL: events are not sent.
    explicit Targets(std::string url) : url_(std::move(url))
    {
        if (KafkaUrl::fits(url_))
            producer_ = std::make_unique<BareProducer>(KafkaUrl(url_));
    }

    std::unique_ptr<Target> connect()
    {
        if (producer_)
            return std::make_unique<KafkaTarget>(*producer_);
        return url_.empty() ? nullptr : std::make_unique<HttpTarget>(url_);
    }

    void finish()
    {
        if (producer_)
            producer_->finish();
    }

private:
    std::string url_;
    std::unique_ptr<BareProducer> producer_;
};
