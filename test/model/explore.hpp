// All states that can be reached, each once, the nearest first: so the first broken promise that is
// found has the shortest story.
#pragma once

#include "steps.hpp"

#include <array>
#include <cstddef>

namespace outbox::model {

struct Outcome {
    std::size_t states = 0;
    std::size_t steps = 0;                            // that were taken between them
    std::array<std::size_t, action_count> taken = {}; // of each kind
    int depth = 0;                                    // steps to the state that is farthest away
    Promise broken = Promise::none;
    std::vector<Step> story; // how it came to that
};

Outcome explore(const Setting& setting);

} // namespace outbox::model
