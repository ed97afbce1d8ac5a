// JSON values that refer to memory of the caller, such as a memory context of the server. No type
// has a destructor, so a longjmp may cross their frames.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace outbox::json {

struct Member;

// One JSON value. Strings, elements and members are owned by the caller.
struct Value {
    enum class Kind : std::uint8_t { null, boolean, integer, number, string, array, object };

    Kind kind = Kind::null;
    union {
        std::int64_t integer = 0; // a number without a fraction that fits into 64 bits
        bool boolean;
        double number;
        const char* text;
        const Value* elements;
        const Member* members; // in the order of is_before_in_jsonb()
    };
    std::size_t count = 0; // number of bytes, elements or members

    // Views of a value. The caller has checked `kind`.
    std::string_view string() const { return {text, count}; }
    inline std::span<const Value> array() const;
    inline std::span<const Member> object() const;
    // Returns the member of that name, nullptr if the object has none, by a binary search. The
    // caller has checked that the value is an object.
    inline const Member* find(std::string_view name) const;
};

// Name and value of a member of an object.
struct Member {
    std::string_view name;
    Value value;
};

// Returns true if `a` sorts before `b` in the order of jsonb keys: by length, then by bytes.
inline bool is_before_in_jsonb(std::string_view a, std::string_view b)
{
    return a.size() != b.size() ? a.size() < b.size()
                                : std::memcmp(a.data(), b.data(), a.size()) < 0;
}

inline std::span<const Value> Value::array() const
{
    return {elements, count};
}

inline std::span<const Member> Value::object() const
{
    return {members, count};
}

inline const Member* Value::find(std::string_view name) const
{
    const Member* const end = members + count;
    const Member* const at =
        std::lower_bound(members, end, name, [](const Member& member, std::string_view wanted) {
            return is_before_in_jsonb(member.name, wanted);
        });
    return at != end && at->name == name ? at : nullptr;
}

} // namespace outbox::json
