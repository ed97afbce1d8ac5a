#pragma once

#include "sink/interface/event.hpp"

#include <memory>
#include <vector>

namespace outbox::sink {

// Events that are done with, for others to come: what allocates nothing is several times as fast.
// Only small ones are kept, and only some.
class EventPool {
public:
    // An empty one.
    std::unique_ptr<Event> acquire()
    {
        if (events_.empty())
            return std::make_unique<Event>();
        std::unique_ptr<Event> event = std::move(events_.back());
        events_.pop_back();
        if (!events_.empty())
            prefetch(events_.back().get());
        event->clear();
        return event;
    }

    // Of this size. It is not looked at: that can take longer than all the rest.
    void release(std::unique_ptr<Event> event, std::size_t size)
    {
        if (events_.size() < max_events && size <= max_event_bytes)
            events_.push_back(std::move(event));
    }

    void clear() { std::vector<std::unique_ptr<Event>>().swap(events_); }

private:
    // The next one comes closer while this one is being filled: it was last in a thread's hands
    // that runs elsewhere.
    static void prefetch(const Event* event)
    {
        constexpr std::size_t line = 64;
        for (std::size_t at = 0; at < sizeof(Event); at += line)
            __builtin_prefetch(reinterpret_cast<const char*>(event) + at, 1);
    }

    static constexpr std::size_t max_events = 8192;
    static constexpr std::size_t max_event_bytes = 1024;

    std::vector<std::unique_ptr<Event>> events_;
};

} // namespace outbox::sink
