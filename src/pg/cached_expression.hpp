// Calls of a function from jsonb to jsonb through a cached plan (GetCachedExpression). The planner
// inlines an SQL function where it can.
#pragma once

#include "pg/postgres.hpp"

extern "C" {
#include "utils/plancache.h"
}

#include <optional>

namespace outbox::pg {

// The plan of one function's call, kept across transactions and remade after an invalidation.
class CachedFunctionCall {
public:
    explicit CachedFunctionCall(Oid function) : function_(function) {}

    // Returns an expression state in the current memory context, planning the call if needed. Use
    // it only in the memory context, role and subtransaction in which it was made.
    ExprState* prepare();

    // Frees the cached plan. Call before the memory of this object is freed.
    void forget();

private:
    Oid function_;
    CachedExpression* plan_ = nullptr;
};

// ExprContext and parameter for evaluating prepared calls. Create and end it in one subtransaction;
// after an error the abort of the subtransaction frees it.
class CallEvaluation {
public:
    // Creates the ExprContext in the current memory context.
    CallEvaluation();

    // Evaluates a prepared call. Returns std::nullopt for NULL. The result is valid until reset().
    std::optional<Datum> call(ExprState* prepared, Datum argument);
    // Frees the results of call().
    void reset();
    // Frees the ExprContext.
    void end();

private:
    ExprContext* context_;
    ParamListInfo parameters_;
};

} // namespace outbox::pg
