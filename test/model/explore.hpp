// Breadth-first search over all reachable states, each once. The first broken promise that is found
// therefore has the shortest story.
#pragma once

#include "steps.hpp"

#include <array>
#include <cstddef>

namespace outbox::model {

struct Outcome {
    std::size_t states = 0;
    std::size_t steps = 0;                            // taken between states, also to known ones
    std::array<std::size_t, action_count> taken = {}; // steps by action
    int depth = 0;                                    // steps to the farthest state
    Promise broken = Promise::none;
    std::vector<Step> story; // the steps to the broken promise
};

Outcome explore(const Setting& setting);

} // namespace outbox::model
