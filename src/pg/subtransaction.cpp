#include "pg/subtransaction.hpp"

#include "pg/exceptions.hpp"

extern "C" {
#include "utils/resowner.h"
}

namespace outbox::pg::detail {

ErrorData* in_subtransaction(SubxactEnd end, void (*body)(const void*), const void* state)
{
    const MemoryContext caller = CurrentMemoryContext;
    const ResourceOwner owner = CurrentResourceOwner;
    ErrorData* volatile error = nullptr;
    BeginInternalSubTransaction(nullptr);
    MemoryContextSwitchTo(caller);
    PG_TRY();
    {
        sql_entry([&] { body(state); });
        // Inside PG_TRY, because a commit of the subtransaction can raise an error.
        if (end == SubxactEnd::committed)
            ReleaseCurrentSubTransaction();
    }
    PG_CATCH();
    {
        MemoryContextSwitchTo(caller);
        error = CopyErrorData();
        FlushErrorState();
    }
    PG_END_TRY();
    if (error != nullptr || end == SubxactEnd::rolled_back)
        RollbackAndReleaseCurrentSubTransaction();
    MemoryContextSwitchTo(caller);
    CurrentResourceOwner = owner;
    return error;
}

} // namespace outbox::pg::detail
