// Integers as text.
#include "core/parse_number.hpp"

#include "fuzz.hpp"

#include <cerrno>

namespace outbox::fuzz {

// The number that strtoll reads; it also accepts forms that parse_bigint() must refuse.
std::optional<std::int64_t> read(const std::string& text)
{
    const std::size_t digits_at = text.starts_with('-') ? 1 : 0;
    const bool is_plain = text.size() > digits_at &&
                          text.find_first_not_of("0123456789", digits_at) == std::string::npos;
    errno = 0;
    const long long number = std::strtoll(text.c_str(), nullptr, 10);
    return is_plain && errno == 0 ? std::make_optional<std::int64_t>(number) : std::nullopt;
}

void try_one(std::string_view input)
{
    const auto number = parse_bigint(input);
    must(number == read(std::string(input)), "a number is read as the C library reads it");
    if (number)
        must(parse_bigint(std::to_string(*number)) == number, "a number survives a round trip");
}

} // namespace outbox::fuzz
