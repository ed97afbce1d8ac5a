#include "pg/subtransaction.hpp"

#include "pg/exceptions.hpp"

extern "C" {
#include "utils/resowner.h"
}

namespace outbox::pg::detail {

ErrorData* in_subtransaction(Ending ending, void (*body)(const void*), const void* state)
{
    const MemoryContext caller = CurrentMemoryContext;
    const ResourceOwner owner = CurrentResourceOwner;
    ErrorData* volatile error = nullptr;
    BeginInternalSubTransaction(nullptr);
    MemoryContextSwitchTo(caller);
    PG_TRY();
    {
        entry([&] { body(state); });
        // Can fail, too.
        if (ending == Ending::kept)
            ReleaseCurrentSubTransaction();
    }
    PG_CATCH();
    {
        MemoryContextSwitchTo(caller);
        error = CopyErrorData();
        FlushErrorState();
    }
    PG_END_TRY();
    if (error != nullptr || ending == Ending::undone)
        RollbackAndReleaseCurrentSubTransaction();
    MemoryContextSwitchTo(caller);
    CurrentResourceOwner = owner;
    return error;
}

} // namespace outbox::pg::detail
