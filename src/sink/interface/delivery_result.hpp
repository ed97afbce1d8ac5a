#pragma once

namespace outbox::sink {

// What became of an attempt to deliver.
enum class DeliveryStatus {
    delivered,     // the receiver has it
    rejected,      // this message is bad: its own retries, then the dead letters
    unavailable,   // the sink is in trouble: back it off, the messages are not to blame
    not_sent,      // it was not taken, and nobody is to blame: send it again
    endpoint_gone, // 410: the receiver wants nothing more, pause the sink
};

} // namespace outbox::sink
