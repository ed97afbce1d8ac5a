// 128-bit hash of a state. Among 100 million states, two have the same one with a probability of 1
// : 10^22.
#pragma once

#include "state.hpp"

#include <compare>
#include <cstddef>
#include <vector>

namespace outbox::model {

struct Fingerprint {
    std::uint64_t low;
    std::uint64_t high;

    friend auto operator<=>(const Fingerprint&, const Fingerprint&) = default;
};

// Sessions with the same plan are interchangeable: states that differ only in their order have the
// same fingerprint.
Fingerprint fingerprint_of(const Setting& setting, const State& state);

class FingerprintSet {
public:
    // Returns true if the fingerprint was not in the set.
    bool insert(Fingerprint fingerprint);

private:
    void grow();
    Fingerprint& place_of(Fingerprint fingerprint);

    std::vector<Fingerprint> places_ = std::vector<Fingerprint>(1 << 16); // zero: a free place
    std::size_t used_ = 0;
};

} // namespace outbox::model
