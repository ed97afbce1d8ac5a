// 128 bits that stand for a state. Among 100 million states two would share them with a probability
// of 1 : 10^22.
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

// The same for states that differ only in which of several sessions with the same plan is which.
Fingerprint fingerprint_of(const Setting& setting, const State& state);

class FingerprintSet {
public:
    // Returns whether it is new.
    bool insert(Fingerprint fingerprint);

private:
    void grow();
    Fingerprint& place_of(Fingerprint fingerprint);

    std::vector<Fingerprint> places_ = std::vector<Fingerprint>(1 << 16); // zero: free
    std::size_t used_ = 0;
};

} // namespace outbox::model
