// A server with scripted answers, and an HTTP sink that sends to it.
#pragma once

#include "loopback.hpp"

#include "sink/format/encoding.hpp"
#include "sink/http/http_sink.hpp"

#include <gtest/gtest.h>

#include <poll.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

namespace outbox::sink::test_http {

using namespace std::chrono_literals;
using namespace std::string_literals;

inline Event make_event(std::int64_t id)
{
    Event event;
    event.id = id;
    event.tracking_id = "0192f000-0000-7000-8000-00000000000" + std::to_string(id);
    event.aggregate_type = "order";
    event.aggregate_id = "a" + std::to_string(id);
    event.event_type = "order.created";
    event.payload = R"({"n": )" + std::to_string(id) + "}";
    return event;
}

struct Request {
    std::string line;
    std::map<std::string, std::string> headers; // names in lower case
    std::string body;

    std::string header(const std::string& name) const
    {
        const auto found = headers.find(name);
        return found == headers.end() ? "(absent)" : found->second;
    }
};

// Reaction of the server to a complete request.
struct Reply {
    std::string bytes;
    enum { keep, close, stream } then = keep; // stream: repeats `streamed` until disconnected
    std::string streamed = std::string(65536, 'x');
};

inline Reply status(int code, const std::string& body = "", const std::string& headers = "")
{
    return {"HTTP/1.1 " + std::to_string(code) + " Whatever\r\n" + headers +
            "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body};
}

inline const Reply silence{""};

// Listens on a loopback port, in a thread of its own.
class Server {
public:
    using Handler = std::function<Reply(const Request&)>;

    // Answers as soon as `gather` requests are waiting, in reverse order.
    explicit Server(Handler handler, std::size_t gather = 1)
        : handler_(std::move(handler)), gather_(gather)
    {
        if (pipe(stop_) != 0)
            throw std::runtime_error("no pipe");
        thread_ = std::thread([this] { run(); });
    }

    ~Server()
    {
        ::close(stop_[1]);
        thread_.join();
        ::close(stop_[0]);
        for (const auto& [fd, text] : heard_)
            ::close(fd);
    }

    std::string url(const std::string& path = "/hook") const
    {
        return "http://" + listener_.address() + path;
    }

    std::vector<Request> requests() const { return look(requests_); }
    int connections() const { return look(connections_); }
    int hung_up() const { return look(hung_up_); } // connections that the client has closed
    std::size_t streamed() const { return look(streamed_); }

    static constexpr std::size_t max_stream_bytes = 32 << 20;

private:
    template <typename Value>
    Value look(const Value& value) const
    {
        const std::lock_guard lock(mutex_);
        return value;
    }

    void run()
    {
        for (;;) {
            std::vector<pollfd> fds = {{stop_[0], POLLIN, 0}, {listener_.descriptor(), POLLIN, 0}};
            for (const auto& [fd, text] : heard_)
                fds.push_back({fd, POLLIN, 0});
            poll(fds.data(), fds.size(), -1);
            if (fds[0].revents != 0)
                return;
            for (std::size_t i = 2; i < fds.size(); ++i)
                if (fds[i].revents != 0)
                    hear(fds[i].fd);
            if (fds[1].revents != 0)
                welcome();
        }
    }

    void welcome()
    {
        const int fd = accept(listener_.descriptor(), nullptr, nullptr);
        const timeval send_timeout = {2, 0};
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &send_timeout, sizeof(send_timeout));
        heard_[fd] = "";
        const std::lock_guard lock(mutex_);
        ++connections_;
    }

    void hang_up(int fd)
    {
        heard_.erase(fd);
        ::close(fd);
    }

    void hear(int fd)
    {
        char buffer[65536];
        const ssize_t size = recv(fd, buffer, sizeof(buffer), 0);
        if (size <= 0) {
            hang_up(fd);
            const std::lock_guard lock(mutex_);
            ++hung_up_;
            return;
        }
        std::string& text = heard_[fd];
        text.append(buffer, static_cast<std::size_t>(size));
        const auto request = parse(text);
        if (!request)
            return;
        text.clear();
        {
            const std::lock_guard lock(mutex_);
            requests_.push_back(*request);
        }
        waiting_.emplace_back(fd, *request);
        while (waiting_.size() >= gather_ || (answering_ && !waiting_.empty())) {
            answering_ = true;
            answer(waiting_.back().first, handler_(waiting_.back().second));
            waiting_.pop_back();
        }
        answering_ = false;
    }

    static std::optional<Request> parse(const std::string& text)
    {
        const auto end = text.find("\r\n\r\n");
        if (end == std::string::npos)
            return std::nullopt;
        Request request;
        auto from = text.find("\r\n");
        request.line = text.substr(0, from);
        while (from < end) {
            from += 2;
            const auto colon = text.find(": ", from);
            const std::string name = ascii_lower(text.substr(from, colon - from));
            from = text.find("\r\n", from);
            request.headers[name] = text.substr(colon + 2, from - colon - 2);
        }
        request.body = text.substr(end + 4);
        const auto length =
            request.headers.find("content-length"); // a CONNECT has no Content-Length
        if (length != request.headers.end() && request.body.size() < std::stoul(length->second))
            return std::nullopt;
        return request;
    }

    void answer(int fd, const Reply& reply)
    {
        (void)send(fd, reply.bytes.data(), reply.bytes.size(), MSG_NOSIGNAL);
        if (reply.then == Reply::keep)
            return;
        const std::string& chunk = reply.streamed;
        std::size_t sent = 0;
        while (reply.then == Reply::stream && sent < max_stream_bytes &&
               send(fd, chunk.data(), chunk.size(), MSG_NOSIGNAL) > 0)
            sent += chunk.size();
        {
            const std::lock_guard lock(mutex_);
            streamed_ += sent;
        }
        hang_up(fd);
    }

    Handler handler_;
    std::size_t gather_;
    const test::LoopbackListener listener_;
    int stop_[2] = {-1, -1};
    std::map<int, std::string> heard_; // bytes of the next, incomplete request, by connection
    std::vector<std::pair<int, Request>> waiting_;
    bool answering_ = false;

    mutable std::mutex mutex_;
    std::vector<Request> requests_;
    int connections_ = 0;
    int hung_up_ = 0;
    std::size_t streamed_ = 0;
    std::thread thread_;
};

inline Server::Handler always(Reply reply)
{
    return [reply = std::move(reply)](const Request&) { return reply; };
}

// Gives no answer to the first event.
inline Reply hangs_on_first(const Request& request)
{
    return request.body == make_event(1).payload ? silence : status(200);
}

inline HttpConfig config_for(const Server& server)
{
    HttpConfig config;
    config.url = server.url();
    return config;
}

// An HTTP sink and the results that it reports.
class Sender {
public:
    explicit Sender(HttpConfig config, const std::string& secrets = "",
                    SinkContext sink_context = {"/test", HostAllowlist(""), false})
        : sink(std::move(config), Secrets::parse(secrets), std::move(sink_context))
    {}

    void send(RequestId request_id, std::vector<Event> events)
    {
        kept_.push_back(std::move(events));
        std::vector<const Event*> pointers;
        for (const Event& event : kept_.back())
            pointers.push_back(&event);
        sink.send(request_id, pointers, 0);
    }

    // Polls every 5 ms, for up to 5 s. With `only_when_told` it polls only when wait_fd() or
    // next_poll_at() asks for it, for up to 1.5 s, so that a missed wakeup fails the test.
    std::vector<DeliveryResult> wait_for(std::size_t count, bool only_when_told = false)
    {
        const TimePoint end = Clock::now() + (only_when_told ? 1500ms : 5000ms);
        std::vector<DeliveryResult> results;
        while (results.size() < count && Clock::now() < end) {
            TimePoint next = std::min(end, sink.next_poll_at().value_or(end));
            if (!only_when_told)
                next = std::min(next, Clock::now() + 5ms);
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
            pollfd fd = {sink.wait_fd(), POLLIN, 0};
            const bool is_readable = poll(&fd, 1, std::max(0, static_cast<int>(left.count()))) > 0;
            if (is_readable || !only_when_told || sink.next_poll_at().value_or(end) <= Clock::now())
                timed_poll(results);
        }
        EXPECT_EQ(results.size(), count);
        results.resize(count);
        return results;
    }

    DeliveryResult try_one(std::int64_t id = 1, bool only_when_told = false)
    {
        send(static_cast<RequestId>(id), {make_event(id)});
        sink.flush();
        const DeliveryResult result = wait_for(1, only_when_told).front();
        EXPECT_EQ(result.request_id, static_cast<RequestId>(id));
        return result;
    }

    // Longest CPU time of one poll().
    std::chrono::nanoseconds max_poll_time() const { return max_poll_time_; }

    HttpSink sink;

private:
    static std::chrono::nanoseconds time_on_core()
    {
        timespec time;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
    }

    void timed_poll(std::vector<DeliveryResult>& results)
    {
        const auto begin = time_on_core();
        sink.poll(results);
        max_poll_time_ = std::max(max_poll_time_, time_on_core() - begin);
    }

    std::vector<std::vector<Event>> kept_;
    std::chrono::nanoseconds max_poll_time_{};
};

// Result of one request that gets this reply.
inline DeliveryResult result_of(Reply reply, int timeout_ms = 30'000)
{
    const Server server(always(std::move(reply)));
    HttpConfig config = config_for(server);
    config.timeout_ms = timeout_ms;
    return Sender(config).try_one();
}

template <typename Condition>
void wait_until(Condition condition)
{
    const TimePoint end = Clock::now() + 1500ms;
    while (!condition() && Clock::now() < end)
        std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(condition());
}

} // namespace outbox::sink::test_http
