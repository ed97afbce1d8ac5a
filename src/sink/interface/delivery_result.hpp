#pragma once

namespace outbox::sink {

// Outcome of one attempt to deliver a request.
enum class DeliveryStatus {
    delivered,     // the receiver accepted the events
    rejected,      // these events are at fault: each gets retries of its own, then a dead letter
    unavailable,   // the destination is at fault: back off the whole sink, charge no attempt
    not_sent,      // not known to have arrived, and neither is at fault: send again
    endpoint_gone, // HTTP 410, the receiver wants no more events: pause the sink
};

} // namespace outbox::sink
