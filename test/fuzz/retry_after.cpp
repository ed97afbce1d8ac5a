// Retry-After, checked against the C library's dates.
#include "sink/http/http_response.hpp"

#include "core/parse_number.hpp"
#include "fuzz.hpp"

#include <cstring>
#include <ctime>

namespace outbox::fuzz {

using std::chrono::seconds;

constexpr std::int64_t max_retry_after = 3600;

constexpr const char* forms[] = {
    "%a, %d %b %Y %H:%M:%S GMT",
    "%A, %d-%b-%y %H:%M:%S GMT",
    "%a %b %e %H:%M:%S %Y",
};

seconds wait_until(std::int64_t date, std::int64_t now)
{
    return seconds{std::clamp<std::int64_t>(date - now, 0, max_retry_after)};
}

// Every date is accepted in each of the three forms.
void check_forms(std::int64_t date, std::int64_t now)
{
    // In the form with a two-digit year, the year is the one nearest to now.
    constexpr std::int64_t forty_years = 40LL * 365 * 86400;
    std::tm parts{};
    const std::time_t time = date;
    gmtime_r(&time, &parts);
    for (const char* form : forms) {
        const bool has_century = std::strstr(form, "%y") == nullptr;
        if (!has_century && std::llabs(date - now) > forty_years)
            continue;
        char text[64];
        const std::size_t size = std::strftime(text, sizeof(text), form, &parts);
        must(sink::parse_retry_after({text, size}, now) == wait_until(date, now),
             "dates are accepted in all three forms");
    }
}

// True if strptime reads another time; it also accepts forms that parse_retry_after() must refuse.
bool reads_otherwise(const std::string& text, std::int64_t now, seconds wait)
{
    for (const char* form : {forms[0], forms[2]}) {
        std::tm parts{};
        const char* end = strptime(text.c_str(), form, &parts);
        if (end != nullptr && *end == '\0')
            return wait_until(timegm(&parts), now) != wait;
    }
    return false;
}

void try_one(std::string_view input)
{
    const auto [moment, value] = split<2>(input, '\n');
    // From 1970 to the end of the year 9999.
    const std::int64_t number = parse_bigint(moment).value_or(0);
    const std::int64_t now = number < 0 ? 0 : number % 253'402'300'800;

    const auto wait = sink::parse_retry_after(value, now);
    if (wait) {
        must(wait->count() >= 0 && wait->count() <= max_retry_after, "the wait is an hour at most");
        must(!reads_otherwise(std::string(value), now, *wait),
             "a date is read as the C library reads it");
    }
    if (const auto delta = parse_bigint(value); delta && value[0] != '-')
        must(wait == seconds{std::min(*delta, max_retry_after)}, "a number is read as seconds");
    std::uint64_t date = 0;
    std::memcpy(&date, value.data(), std::min(value.size(), sizeof(date)));
    check_forms(static_cast<std::int64_t>(date % 253'402'300'800), now);
    check_forms(now + static_cast<std::int64_t>(date % max_retry_after), now);
}

} // namespace outbox::fuzz
