#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace outbox::sink {

// Rung by one thread, heard by another: a descriptor that is readable until it is hushed.
class EventFd {
public:
    EventFd() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))
    {
        if (fd_ < 0)
            throw std::system_error(errno, std::generic_category(), "eventfd()");
    }
    ~EventFd() { close(fd_); }
    EventFd(const EventFd&) = delete;
    EventFd& operator=(const EventFd&) = delete;

    int fd() const noexcept { return fd_; }

    void notify() const noexcept
    {
        const std::uint64_t one = 1;
        (void)!write(fd_, &one, sizeof(one));
    }

    void drain() const noexcept
    {
        std::uint64_t count;
        (void)!read(fd_, &count, sizeof(count));
    }

private:
    int fd_;
};

} // namespace outbox::sink
