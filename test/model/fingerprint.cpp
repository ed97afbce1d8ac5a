#include "fingerprint.hpp"

#include <algorithm>
#include <cstring>

namespace outbox::model {

namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b)
{
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Two chains of multiplications with different constants, as in wyhash.
template <typename Bytes>
Fingerprint hash(const Bytes& bytes, Fingerprint seed)
{
    static_assert(sizeof(Bytes) % sizeof(std::uint64_t) == 0);
    std::uint64_t low = seed.low ^ 0xA0761D6478BD642FULL;
    std::uint64_t high = seed.high ^ 0x8EBC6AF09C88C6E3ULL;
    const auto* at = reinterpret_cast<const char*>(&bytes);
    for (std::size_t i = 0; i < sizeof(Bytes); i += sizeof(std::uint64_t)) {
        std::uint64_t word;
        std::memcpy(&word, at + i, sizeof(word));
        low = mix(low ^ word, 0xE7037ED1A0B428DBULL + i);
        high = mix(high + word, 0x589965CC75374CC3ULL - i) ^ word;
    }
    return {mix(low, 0x1D8E4E27C47D124FULL), mix(high, 0xEB44ACCAB455D165ULL)};
}

} // namespace

Fingerprint fingerprint_of(const Setting& setting, const State& state)
{
    Fingerprint sessions[max_sessions];
    for (int i = 0; i < max_sessions; ++i)
        sessions[i] = hash(state.sessions[i], {});
    // With several partitions, sessions with the same plan differ in their partitions.
    for (int from = 0, upto; from < max_sessions && setting.partitions == 1; from = upto) {
        for (upto = from + 1; upto < max_sessions && setting.plans[upto] == setting.plans[from];)
            ++upto;
        std::sort(sessions + from, sessions + upto);
    }
    Fingerprint all = hash(state.server, {});
    for (const Fingerprint& session : sessions)
        all = hash(session, all);
    return all;
}

Fingerprint& FingerprintSet::place_of(Fingerprint fingerprint)
{
    std::size_t i = fingerprint.low & (places_.size() - 1);
    while (places_[i] != Fingerprint{} && places_[i] != fingerprint)
        i = (i + 1) & (places_.size() - 1);
    return places_[i];
}

void FingerprintSet::grow()
{
    std::vector<Fingerprint> old(places_.size() * 2);
    old.swap(places_);
    for (const Fingerprint& fingerprint : old)
        if (fingerprint != Fingerprint{})
            place_of(fingerprint) = fingerprint;
}

bool FingerprintSet::insert(Fingerprint fingerprint)
{
    if (used_ * 4 > places_.size() * 3)
        grow();
    Fingerprint& place = place_of(fingerprint);
    if (place == fingerprint)
        return false;
    place = fingerprint;
    ++used_;
    return true;
}

} // namespace outbox::model
