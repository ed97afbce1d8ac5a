#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace outbox::sink {

// An eventfd by which one thread wakes another: readable from notify() until drain().
class EventFd {
public:
    // Raises std::system_error if the process has no descriptor left.
    EventFd() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))
    {
        if (fd_ < 0)
            throw std::system_error(errno, std::generic_category(), "eventfd()");
    }
    ~EventFd() { close(fd_); }
    EventFd(const EventFd&) = delete;
    EventFd& operator=(const EventFd&) = delete;

    int fd() const noexcept { return fd_; }

    // Makes fd() readable. Thread-safe.
    void notify() const noexcept
    {
        const std::uint64_t one = 1;
        (void)!write(fd_, &one, sizeof(one));
    }

    // Makes fd() unreadable until the next notify(). Thread-safe.
    void drain() const noexcept
    {
        std::uint64_t count;
        (void)!read(fd_, &count, sizeof(count));
    }

private:
    int fd_;
};

} // namespace outbox::sink
