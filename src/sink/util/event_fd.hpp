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
    EventFd() : descriptor_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))
    {
        if (descriptor_ < 0)
            throw std::system_error(errno, std::generic_category(), "eventfd()");
    }
    ~EventFd() { close(descriptor_); }
    EventFd(const EventFd&) = delete;
    EventFd& operator=(const EventFd&) = delete;

    int descriptor() const noexcept { return descriptor_; }

    void ring() const noexcept
    {
        const std::uint64_t one = 1;
        (void)!write(descriptor_, &one, sizeof(one));
    }

    void drain() const noexcept
    {
        std::uint64_t count;
        (void)!read(descriptor_, &count, sizeof(count));
    }

private:
    int descriptor_;
};

} // namespace outbox::sink
