// A socket that listens on a loopback port.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

namespace outbox::sink::test {

class LoopbackListener {
public:
    LoopbackListener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))
    {
        sockaddr_in address = {};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof(address);
        auto* const plain = reinterpret_cast<sockaddr*>(&address);
        if (fd_ < 0 || bind(fd_, plain, size) != 0 || listen(fd_, 64) != 0 ||
            getsockname(fd_, plain, &size) != 0)
            throw std::runtime_error("no server");
        port_ = ntohs(address.sin_port);
    }

    ~LoopbackListener() { close(fd_); }
    LoopbackListener(const LoopbackListener&) = delete;
    LoopbackListener& operator=(const LoopbackListener&) = delete;

    int descriptor() const { return fd_; }
    std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

private:
    int fd_;
    int port_ = 0;
};

} // namespace outbox::sink::test
