// http_receiver EVENTS: an HTTP/1.1 server on a port of its own that records the arrivals of
// events, identified by the number in the body. Prints its URL; "all" when every event from 0 on
// has arrived; and, at the end of its input, a line per event: its number, the time of its first
// arrival in nanoseconds of CLOCK_MONOTONIC, and its number of arrivals.
#include "arrivals.hpp"
#include "clock.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <unordered_map>

namespace {

constexpr std::string_view answer = "HTTP/1.1 204 No Content\r\n\r\n";

[[noreturn]] void die(const char* what)
{
    std::perror(what);
    std::exit(1);
}

class Receiver {
public:
    explicit Receiver(std::size_t events)
        : arrivals_(events), epoll_(epoll_create1(0)), listener_(socket(AF_INET, SOCK_STREAM, 0))
    {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof(address);
        if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) || listen(listener_, 128))
            die("http_receiver");
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
        watch(listener_);
        watch(STDIN_FILENO);
        say("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/");
    }

    void run()
    {
        epoll_event events[64];
        for (;;) {
            const int ready = epoll_wait(epoll_, events, 64, -1);
            for (int number = 0; number < ready; ++number) {
                const int fd = events[number].data.fd;
                if (fd == STDIN_FILENO)
                    return;
                if (fd == listener_)
                    accept_one();
                else
                    read_from(fd);
            }
        }
    }

    void print() const { arrivals_.print(); }

private:
    void watch(int fd)
    {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.fd = fd;
        if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event))
            die("http_receiver");
    }

    void accept_one()
    {
        const int fd = accept(listener_, nullptr, nullptr), on = 1;
        if (fd < 0)
            return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        received_[fd].clear();
        watch(fd);
    }

    void read_from(int fd)
    {
        char bytes[65536];
        const ssize_t count = recv(fd, bytes, sizeof(bytes), 0);
        const std::int64_t moment = now();
        if (count <= 0) {
            received_.erase(fd);
            close(fd);
            return;
        }
        std::string& received = received_[fd];
        received.append(bytes, static_cast<std::size_t>(count));
        while (take_request(received, moment))
            if (send(fd, answer.data(), answer.size(), MSG_NOSIGNAL) < 0)
                return;
    }

    // Removes a complete request from the front. Returns false if there is none.
    bool take_request(std::string& received, std::int64_t moment)
    {
        const std::size_t end = received.find("\r\n\r\n");
        if (end == std::string::npos)
            return false;
        const std::size_t head = end + 4;
        const std::int64_t length =
            number_after(std::string_view(received).substr(0, head), "\r\ncontent-length:");
        if (length < 0)
            die("http_receiver: a request without a length");
        const std::size_t whole = head + static_cast<std::size_t>(length);
        if (received.size() < whole)
            return false;
        arrivals_.note(std::string_view(received).substr(head, whole - head), moment);
        received.erase(0, whole);
        return true;
    }

    Arrivals arrivals_;
    int epoll_;
    int listener_;
    std::unordered_map<int, std::string> received_;
};

} // namespace

int main(int argc, char** argv)
{
    if (argc != 2) {
        std::fprintf(stderr, "usage: http_receiver EVENTS\n");
        return 2;
    }
    Receiver receiver(std::strtoul(argv[1], nullptr, 10));
    receiver.run();
    receiver.print();
}
