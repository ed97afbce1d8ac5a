#include "relay/wait_set.hpp"

extern "C" {
#include "storage/latch.h"
#include "utils/wait_event.h"
}

#include <utility>

namespace outbox {

void WaitSet::open(std::span<const int> sockets)
{
    set_ = pg::create_wait_event_set(static_cast<int>(sockets.size()) + 2);
    AddWaitEventToSet(set_, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, nullptr);
    AddWaitEventToSet(set_, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, nullptr, nullptr);
    for (const int socket : sockets)
        AddWaitEventToSet(set_, WL_SOCKET_READABLE, socket, nullptr, nullptr);
}

void WaitSet::close()
{
    if (set_ != nullptr)
        FreeWaitEventSet(std::exchange(set_, nullptr));
}

void WaitSet::wait(long milliseconds)
{
    WaitEvent event;
    (void)WaitEventSetWait(set_, milliseconds, &event, 1, wait_.event_info());
    ResetLatch(MyLatch);
}

} // namespace outbox
