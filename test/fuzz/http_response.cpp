// Answers of receivers: the HTTP sink against a socket that plays the input.
#include "sink/http/http_sink.hpp"

#include "core/parse_number.hpp"
#include "fuzz.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace outbox::fuzz {

constexpr std::string_view secret = "s3cr3t-value";

// Listens on loopback. Connections wait in its backlog until accept().
class Listener {
public:
    Listener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))
    {
        sockaddr_in address = {};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof(address);
        auto* const plain = reinterpret_cast<sockaddr*>(&address);
        must(bind(fd_, plain, size) == 0 && listen(fd_, 16) == 0 &&
                 getsockname(fd_, plain, &size) == 0,
             "a port is free");
        port_ = ntohs(address.sin_port);
    }

    int port() const { return port_; }
    int accept() const { return ::accept(fd_, nullptr, nullptr); }

private:
    int fd_;
    int port_ = 0;
};

// One request and its result.
class Exchange {
public:
    explicit Exchange(const Listener& listener)
        : listener_(listener),
          sink_(config(listener), sink::Secrets::parse("key = " + std::string(secret)),
                {"/fuzz", sink::HostAllowlist(""), false})
    {
        event_.tracking_id = "0192f000-0000-7000-8000-000000000001";
        event_.aggregate_type = event_.aggregate_id = event_.event_type = "a";
        event_.payload = "{}";
    }

    ~Exchange()
    {
        if (connection_ < 0)
            return;
        // A reset leaves no TIME_WAIT socket in the kernel.
        const linger at_once = {1, 0};
        setsockopt(connection_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        close(connection_);
    }

    sink::DeliveryResult play(std::string_view answer, std::size_t cut)
    {
        const sink::Event* const events[] = {&event_};
        must(!sink_.send(7, events, 0), "send() returns no result at once");
        sink_.flush();
        wait_until([&] { return (connection_ = listener_.accept()) >= 0; });
        say(answer.substr(0, cut));
        poll_once(0);
        say(answer.substr(std::min(cut, answer.size())));
        shutdown(connection_, SHUT_WR);
        wait_until([&] { return !results_.empty(); });
        must(results_.size() == 1 && results_[0].request_id == 7, "a request has one result");
        must(listener_.accept() < 0, "a request makes one connection");
        return results_[0];
    }

private:
    static sink::HttpConfig config(const Listener& listener)
    {
        sink::HttpConfig config;
        config.url =
            "http://127.0.0.1:" + std::to_string(listener.port()) + "/" + std::string(secret);
        return config;
    }

    void say(std::string_view bytes) const
    {
        (void)::send(connection_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }

    void poll_once(int milliseconds)
    {
        pollfd fd = {sink_.wait_fd(), POLLIN, 0};
        (void)poll(&fd, 1, milliseconds);
        sink_.poll(results_);
    }

    template <typename Condition>
    void wait_until(Condition condition)
    {
        const auto end = sink::Clock::now() + std::chrono::seconds(5);
        while (!condition()) {
            must(sink::Clock::now() < end, "a complete answer gives a result at once");
            poll_once(1);
        }
    }

    const Listener& listener_;
    sink::HttpSink sink_;
    sink::Event event_;
    int connection_ = -1;
    std::vector<sink::DeliveryResult> results_;
};

// True if a line of the answer has a status of 2xx.
bool has_success(std::string_view answer)
{
    for (auto at = answer.find("HTTP/"); at != std::string_view::npos;
         at = answer.find("HTTP/", at + 1)) {
        const auto blank = answer.find(' ', at);
        if (blank != std::string_view::npos &&
            answer.substr(answer.find_first_not_of(' ', blank)).starts_with('2'))
            return true;
    }
    return false;
}

void try_one(std::string_view input)
{
    static const Listener listener;
    const auto [cut, answer] = split<2>(input, '\n');
    const auto cut_at = static_cast<std::size_t>(parse_bigint(cut).value_or(0) & 0xFFFF);
    const sink::DeliveryResult result = Exchange(listener).play(answer, cut_at);

    if (result.status == sink::DeliveryStatus::delivered)
        must(has_success(answer), "a delivery has a status of 2xx in the answer");
    const auto text = decode_utf8(result.reason);
    must(text && std::ranges::all_of(*text, [](char32_t c) { return c >= 0x20 && c != 0x7F; }),
         "a reason is one line of text");
    must(!result.reason.empty() && result.reason.size() <= 512, "a reason is short");
    must(result.reason.find(secret) == std::string::npos, "no reason contains a secret");
    if (result.retry_after)
        must(result.retry_after->count() >= 0 && result.retry_after->count() <= 3600 &&
                 result.status != sink::DeliveryStatus::delivered,
             "Retry-After is an hour at most");
}

} // namespace outbox::fuzz
