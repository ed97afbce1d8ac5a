#include "pg/nonatomic_call.hpp"

namespace outbox::pg {

void require_nonatomic_call(FunctionCallInfo fcinfo, const char* procedure, const char* hint)
{
    const bool called = fcinfo->context != nullptr && IsA(fcinfo->context, CallContext);
    if (!called || reinterpret_cast<CallContext*>(fcinfo->context)->atomic)
        ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
                        errmsg("%s cannot run inside a transaction block", procedure),
                        errhint("%s", hint)));
}

} // namespace outbox::pg
