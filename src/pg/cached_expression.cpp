#include "pg/cached_expression.hpp"

extern "C" {
#include "nodes/makefuncs.h"
#include "nodes/params.h"
}

namespace outbox::pg {

namespace {

// Makes the expression function($1), from jsonb to jsonb, in the current memory context.
Node* make_call_expression(Oid function)
{
    Param* argument = makeNode(Param);
    argument->paramkind = PARAM_EXTERN;
    argument->paramid = 1;
    argument->paramtype = JSONBOID;
    argument->paramtypmod = -1;
    argument->paramcollid = InvalidOid;
    argument->location = -1;
    return reinterpret_cast<Node*>(makeFuncExpr(function, JSONBOID, list_make1(argument),
                                                InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL));
}

} // namespace

ExprState* CachedFunctionCall::prepare()
{
    if (plan_ != nullptr && !plan_->is_valid)
        forget();
    if (plan_ == nullptr)
        plan_ = GetCachedExpression(make_call_expression(function_));
    // nullptr: the expression reads its parameter from the ExprContext at evaluation.
    return ExecInitExprWithParams(reinterpret_cast<Expr*>(plan_->expr), nullptr);
}

void CachedFunctionCall::forget()
{
    if (plan_ != nullptr)
        FreeCachedExpression(plan_);
    plan_ = nullptr;
}

CallEvaluation::CallEvaluation()
    : context_(CreateStandaloneExprContext()), parameters_(makeParamList(1))
{
    parameters_->params[0].ptype = JSONBOID;
    parameters_->params[0].isnull = false;
    parameters_->params[0].pflags = 0;
    context_->ecxt_param_list_info = parameters_;
}

std::optional<Datum> CallEvaluation::call(ExprState* prepared, Datum argument)
{
    bool isnull;
    parameters_->params[0].value = argument;
    const Datum result = ExecEvalExprSwitchContext(prepared, context_, &isnull);
    return isnull ? std::nullopt : std::optional<Datum>(result);
}

void CallEvaluation::reset()
{
    ResetExprContext(context_);
}

void CallEvaluation::end()
{
    FreeExprContext(context_, true);
}

} // namespace outbox::pg
