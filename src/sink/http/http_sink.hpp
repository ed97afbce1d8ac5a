// HTTP sink: sends requests by libcurl's multi interface, in the relay's thread. The sockets are in
// one epoll set, whose descriptor is in the relay's wait set.
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
    // `config` is resolved. `secrets` are redacted from reasons. Reads the files of the config.
    // Raises F0000 for such a file, 22023 for a signing secret, std::system_error or std::bad_alloc
    // for a lack of resources.
    HttpSink(HttpConfig config, Secrets secrets, SinkContext sink_context);
    ~HttpSink() override;

    // Functions of Sink. send() hands the request to libcurl and returns std::nullopt; it raises
    // outbox::Error or std::bad_alloc if the request cannot be made. flush(), poll() and
    // cancel_all() block all signals while they call libcurl, which may start threads.
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
    // An easy handle of libcurl and its buffers: one request in flight, or idle and reusable.
    struct Transfer {
        CURL* easy = nullptr;
        RequestId request_id = 0;
        std::string body;                      // of the request
        std::vector<std::string> headers;      // of the request
        std::vector<curl_slist> header_list;   // the headers as libcurl's linked list
        std::string response_start;            // first bytes of the response body
        std::size_t response_bytes = 0;        // size of the response body so far
        std::size_t response_header_bytes = 0; // size of headers and trailers so far
        std::size_t proxy_bytes = 0;           // bytes of the proxy before the connection
        bool proxy_limit_exceeded = false;     // on_progress() ended the transfer
        bool expects_status_line = true;       // the next header line is a status line
        std::optional<long> http_status;       // of the last status line
        bool response_truncated = false;       // on_response_body() ended the transfer
        bool address_denied = false;           // on_open_socket() refused a private address
        char error[CURL_ERROR_SIZE] = {};      // message of libcurl
        HttpSink* sink = nullptr;

        Transfer() = default;
        Transfer(const Transfer&) = delete;
        Transfer& operator=(const Transfer&) = delete;
        ~Transfer();
    };

    // A descriptor of libcurl.
    struct WatchedSocket {
        std::uint32_t events = 0;   // epoll events; 0: not in the epoll set
        bool is_in_use = false;     // libcurl waits for it
        bool is_connection = false; // opened by on_open_socket()
    };

    // Returns an idle transfer, or a new one with its options set. Raises 58000 or std::bad_alloc.
    std::unique_ptr<Transfer> acquire_transfer();
    void configure(Transfer& transfer);

    // Removes a descriptor from the epoll set and from watched_sockets_; does not close it.
    void unwatch(int socket);

    void add_headers(Transfer& transfer, const std::string& id) const;
    void sign(Transfer& transfer, const std::string& id) const;

    // Returns the result of an ended transfer: that of the response, even if it was cut for its
    // size, or `unavailable` with the error. A timeout after connecting may be the event's fault.
    DeliveryResult result_of_transfer(Transfer& transfer, CURLcode result) const;

    // Returns the result for an HTTP status; on failure with the start of the body, redacted, and
    // Retry-After. Status 5xx may be the fault of the event.
    DeliveryResult result_of_response(const Transfer& transfer, long http_status) const;

    // Returns the text sanitized, without secrets, cut to max_reason_bytes.
    std::string redacted_text(std::string text) const;

    bool timer_expired() const { return timer_ && *timer_ <= Clock::now(); }

    // Callbacks of libcurl. on_timer() sets timer_, at which poll() has to call libcurl; a negative
    // time clears it. on_response_body() keeps the first bytes for the reason. on_close_socket()
    // takes the descriptor out of the epoll set, then closes it. on_header(), on_response_body()
    // and on_progress() return a value that ends the transfer if the peer has sent too much.
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
    std::string ca_certificate_; // contents of ca_file, client_cert and client_key
    std::string client_cert_;
    std::string client_key_;
    int epoll_ = -1;
    CURLM* multi_ = nullptr;
    std::unordered_map<int, WatchedSocket> watched_sockets_;
    std::optional<TimePoint> timer_;
    std::size_t proxy_bytes_in_call_ = 0; // bytes of all proxies within one call of libcurl
    std::unordered_map<CURL*, std::unique_ptr<Transfer>> in_flight_;
    std::vector<std::unique_ptr<Transfer>> idle_transfers_;
};

} // namespace outbox::sink
