// A call of a function from jsonb to jsonb, planned once: where a function in SQL can be inlined,
// nothing is left of the call.
#pragma once

#include "pg/postgres.hpp"

extern "C" {
#include "utils/plancache.h"
}

#include <optional>

namespace outbox::pg {

class CachedFunctionCall {
public:
    explicit CachedFunctionCall(Oid function) : function_(function) {}

    // To be evaluated in the memory context, role and subtransaction that it is made in.
    ExprState* prepare();

    // Call before the memory is given back that this is in.
    void forget();

private:
    Oid function_;
    CachedExpression* plan_ = nullptr;
};

// Where prepared calls are evaluated. Made and ended inside one subtransaction; what an error
// leaves behind ends with that.
class CallEvaluation {
public:
    CallEvaluation();

    // NULL is nothing. What it returns lives until reset().
    std::optional<Datum> call(ExprState* prepared, Datum argument);
    void reset();
    void end();

private:
    ExprContext* context_;
    ParamListInfo parameters_;
};

} // namespace outbox::pg
