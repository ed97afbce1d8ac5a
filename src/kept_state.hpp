// What the relay knows of a sink's consumer from its last claim. Nobody else moves that cursor, so
// it need not be read again; whoever changes it after all – a seek, a redrive – holds the
// consumer's lock and calls the relay before giving it back.
#pragma once

#include "consumer.hpp"

namespace outbox {

class KeptState {
public:
    // To be asked with the consumer's lock in hand. Nothing if it has to be read.
    const ConsumerState* find() const;

    // What the present transaction leaves behind.
    void keep(const ConsumerState& state);

    // It was committed, or it was not: then nothing is known.
    void committed();
    void forget();

private:
    // One that is believed and one that is being written.
    struct Slot {
        MemoryContext memory = nullptr;
        ConsumerState state = {};
    };

    Slot slots_[2];
    int believed_ = -1;
    bool has_next_ = false;
};

} // namespace outbox
