#include "consumer_api/message_result_set.hpp"

#include "core/limits.hpp"
#include "extension/guc.hpp"

namespace outbox {

namespace {

constexpr Column result_columns[] = {
    col_id,           col_tracking_id, col_tenant_id,     col_aggregate_type,
    col_aggregate_id, col_event_type,  col_event_version, col_payload,
    col_metadata,     col_trace_id,    col_occurred_at};
constexpr int message_column_count = std::size(result_columns);
constexpr int max_column_count = message_column_count + 3;

} // namespace

ResultSetReceiver::ResultSetReceiver(FunctionCallInfo fcinfo)
    : result_(reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo))
{
    InitMaterializedSRF(fcinfo, 0);
}

void ResultSetReceiver::receive(const Message& message, const Delivery& delivery)
{
    Datum values[max_column_count];
    bool nulls[max_column_count] = {};
    for (int i = 0; i < message_column_count; ++i) {
        values[i] = message.values[result_columns[i]];
        nulls[i] = message.nulls[result_columns[i]];
        if (result_columns[i] == col_event_version) // smallint in the log, integer for callers
            values[i] = Int32GetDatum(DatumGetInt16(values[i]));
    }
    values[message_column_count] = Int32GetDatum(delivery.attempts);
    values[message_column_count + 1] = Int64GetDatum(delivery.token);
    values[message_column_count + 2] = TimestampTzGetDatum(delivery.locked_until);
    tuplestore_putvalues(result_->setResult, result_->setDesc, values, nulls);
}

int batch_size_argument(std::optional<Datum> batch_size, const char* name)
{
    if (!batch_size)
        return settings::batch_size;
    const int size = DatumGetInt32(*batch_size);
    if (size < limits::min_batch_size || size > limits::max_batch_size)
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("%s must be between %d and %d, not %d", name, limits::min_batch_size,
                               limits::max_batch_size, size)));
    return size;
}

} // namespace outbox
