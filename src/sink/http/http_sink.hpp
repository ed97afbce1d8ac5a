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

    int descriptor() const override { return epoll_; }
    std::optional<TimePoint> next_work() const override { return timer_; }
    std::size_t capacity() const override { return static_cast<std::size_t>(config_.concurrency); }
    std::size_t max_events_per_request() const override;
    std::vector<std::string> metadata() const override { return config_.metadata; }
    std::optional<Outcome> send(RequestId parcel, std::span<const Event* const> events,
                                StreamId stream) override;
    void start() override;
    void work(std::vector<Outcome>& outcomes) override;
    void abandon() override;

private:
    // A transfer on the way, or one that waits to be used again.
    struct Transfer {
        CURL* easy = nullptr;
        RequestId parcel = 0;
        std::string body;
        std::vector<std::string> headers;
        std::vector<curl_slist> header_list; // as libcurl wants to see them
        std::string answer;                  // the beginning of it
        std::size_t answered = 0;            // bytes
        std::size_t announced = 0;           // bytes of its headers and trailers
        std::size_t steps_to_connect = 0;    // a byte each of what a proxy says
        bool flooded = false;                // by a proxy
        bool is_first_line = true;           // that comes next, of an answer
        std::optional<long> status;          // as that line has it
        bool answer_cut = false;
        bool denied = false; // the address is one that must not be connected to
        char error[CURL_ERROR_SIZE] = {};
        HttpSink* sink = nullptr;

        Transfer() = default;
        Transfer(const Transfer&) = delete;
        Transfer& operator=(const Transfer&) = delete;
        ~Transfer();
    };

    // A descriptor in the epoll set, or one that may be.
    struct Watched {
        std::uint32_t events = 0; // 0: it is not in the set
        bool wanted = false;
        bool is_connection = false;
    };

    std::unique_ptr<Transfer> take_transfer();
    void set_up(Transfer& transfer);
    void forget(int socket);
    void add_headers(Transfer& transfer, const std::string& id) const;
    void sign(Transfer& transfer, const std::string& id) const;
    Outcome judge(Transfer& transfer, CURLcode result) const;
    Outcome judge_answer(const Transfer& transfer, long status) const;
    std::string presentable(std::string text) const;
    bool timer_is_over() const { return timer_ && *timer_ <= Clock::now(); }

    static int on_socket(CURL* easy, curl_socket_t socket, int what, void* self, void* known);
    static int on_timer(CURLM* multi, long milliseconds, void* self);
    static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* transfer);
    static std::size_t on_answer(char* data, std::size_t size, std::size_t count, void* transfer);
    static int on_progress(void* transfer, curl_off_t to_receive, curl_off_t received,
                           curl_off_t to_send, curl_off_t sent);
    static int on_close(void* self, curl_socket_t socket);
    static curl_socket_t on_open(void* transfer, curlsocktype purpose, curl_sockaddr* address);

    HttpConfig config_;
    Secrets secrets_;
    SinkContext surroundings_;
    std::vector<WebhookSecret> signing_;
    std::string ca_; // certificates and key, as they were in their files
    std::string client_cert_;
    std::string client_key_;
    int epoll_ = -1;
    CURLM* multi_ = nullptr;
    std::unordered_map<int, Watched> watched_;
    std::optional<TimePoint> timer_;
    std::size_t steps_in_call_ = 0; // of libcurl, on the way to receivers
    std::unordered_map<CURL*, std::unique_ptr<Transfer>> on_the_way_;
    std::vector<std::unique_ptr<Transfer>> idle_;
};

} // namespace outbox::sink
