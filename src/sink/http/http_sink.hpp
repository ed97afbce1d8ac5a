// The HTTP sink: requests through libcurl's multi interface, on sockets of its own in one epoll
// set.
#pragma once

#include "sink/config/secrets.hpp"
#include "sink/config/sink_context.hpp"
#include "sink/format/webhook_signature.hpp"
#include "sink/http/http_config.hpp"
#include "sink/interface/sink.hpp"

#include <curl/curl.h>

#include <memory>
#include <unordered_map>

namespace outbox::sink {

class HttpSink final : public Sink {
public:
    // The config with its secrets filled in; the secrets again, to keep them out of what is said.
    HttpSink(HttpConfig config, Secrets secrets, SinkContext sink_context);
    ~HttpSink() override;

    int wait_fd() const override { return epoll_; }
    std::optional<TimePoint> next_poll_at() const override { return timer_; }
    std::size_t max_in_flight() const override
    {
        return static_cast<std::size_t>(config_.concurrency);
    }
    std::size_t max_events_per_request() const override;
    std::vector<std::string> metadata_keys() const override { return config_.metadata_keys; }
    std::optional<DeliveryResult> send(RequestId request_id, std::span<const Event* const> events,
                                       StreamId stream) override;
    void flush() override;
    void poll(std::vector<DeliveryResult>& results) override;
    void cancel_all() override;

private:
    // A transfer on the way, or one that waits to be used again.
    struct Transfer {
        CURL* easy = nullptr;
        RequestId request_id = 0;
        std::string body;
        std::vector<std::string> headers;
        std::vector<curl_slist> header_list;   // as libcurl wants to see them
        std::string response_start;            // the beginning of it
        std::size_t response_bytes = 0;        // bytes
        std::size_t response_header_bytes = 0; // bytes of its headers and trailers
        std::size_t proxy_bytes = 0;           // a byte each of what a proxy says
        bool proxy_limit_exceeded = false;     // by a proxy
        bool expects_status_line = true;       // that comes next, of an answer
        std::optional<long> http_status;       // as that line has it
        bool response_truncated = false;
        bool address_denied = false; // the address is one that must not be connected to
        char error[CURL_ERROR_SIZE] = {};
        HttpSink* sink = nullptr;

        Transfer() = default;
        Transfer(const Transfer&) = delete;
        Transfer& operator=(const Transfer&) = delete;
        ~Transfer();
    };

    // A descriptor in the epoll set, or one that may be.
    struct WatchedSocket {
        std::uint32_t events = 0; // 0: it is not in the set
        bool is_in_use = false;
        bool is_connection = false;
    };

    std::unique_ptr<Transfer> acquire_transfer();
    void configure(Transfer& transfer);
    void unwatch(int socket);
    void add_headers(Transfer& transfer, const std::string& id) const;
    void sign(Transfer& transfer, const std::string& id) const;
    DeliveryResult result_of_transfer(Transfer& transfer, CURLcode result) const;
    DeliveryResult result_of_response(const Transfer& transfer, long http_status) const;
    std::string redacted_text(std::string text) const;
    bool timer_expired() const { return timer_ && *timer_ <= Clock::now(); }

    static int on_socket(CURL* easy, curl_socket_t socket, int what, void* self, void* known);
    static int on_timer(CURLM* multi, long milliseconds, void* self);
    static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* transfer);
    static std::size_t on_response_body(char* data, std::size_t size, std::size_t count,
                                        void* transfer);
    static int on_progress(void* transfer, curl_off_t to_receive, curl_off_t received,
                           curl_off_t to_send, curl_off_t sent);
    static int on_close_socket(void* self, curl_socket_t socket);
    static curl_socket_t on_open_socket(void* transfer, curlsocktype purpose,
                                        curl_sockaddr* address);

    HttpConfig config_;
    Secrets secrets_;
    SinkContext sink_context_;
    std::vector<WebhookSecret> signing_secrets_;
    std::string ca_certificate_; // certificates and key, as they were in their files
    std::string client_cert_;
    std::string client_key_;
    int epoll_ = -1;
    CURLM* multi_ = nullptr;
    std::unordered_map<int, WatchedSocket> watched_sockets_;
    std::optional<TimePoint> timer_;
    std::size_t proxy_bytes_in_call_ = 0; // of libcurl, on the way to receivers
    std::unordered_map<CURL*, std::unique_ptr<Transfer>> in_flight_;
    std::vector<std::unique_ptr<Transfer>> idle_transfers_;
};

} // namespace outbox::sink
