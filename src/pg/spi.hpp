// SQL from C++, planned once per backend, run in the role that owns the log.
#pragma once

#include "pg/prelude.hpp"

#include <type_traits>

namespace outbox::pg {

// A statement with a plan that is kept. `@schema@` in its text stands for the extension's schema.
class Statement {
public:
    static constexpr int max_parameters = 16;

    constexpr explicit Statement(const char* text) : text_(text), count_(0) {}

    template <int count>
    constexpr Statement(const char* text, const Oid (&types)[count]) : text_(text), count_(count)
    {
        static_assert(count <= max_parameters);
        for (int i = 0; i < count; ++i)
            types_[i] = types[i];
    }

    // Inside as_owner() only. `nulls` as for SPI: 'n' where NULL, or nullptr for none.
    // Returns how many rows it processed; what it returned is in SPI_tuptable.
    uint64 execute(const Datum* values, const char* nulls = nullptr);

private:
    void prepare();

    const char* text_;
    int count_;
    Oid types_[max_parameters] = {};
    SPIPlanPtr plan_ = nullptr;
    char schema_[NAMEDATALEN] = {}; // that the plan was made for
};

namespace detail {

struct Role {
    Oid user;
    int security_context;
    int guc_level;
};

Role become_owner();
void become_self(const Role& before);

} // namespace detail

// Runs `body` connected to SPI, as the owner of the log, with a search_path that nobody can put
// anything into. Needs no destructor: an error on the way ends the (sub)transaction, and that
// restores role, settings and SPI.
template <typename Body>
void as_owner(Body&& body)
{
    static_assert(std::is_trivially_destructible_v<std::remove_reference_t<Body>>);
    const detail::Role before = detail::become_owner();
    body();
    detail::become_self(before);
}

} // namespace outbox::pg
