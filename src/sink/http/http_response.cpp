#include "sink/http/http_response.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace outbox::sink {

namespace {

using std::chrono::seconds;

constexpr std::int64_t max_retry_after = 3600; // seconds

constexpr std::array<std::string_view, 12> months = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
constexpr std::array<std::string_view, 7> days = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};
constexpr std::array<std::string_view, 7> long_days = {
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"};

bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

// Consumes a date part by part. The first part that does not match fails the whole date:
// its function returns 0, and is_complete() returns false.
class DateReader {
public:
    explicit DateReader(std::string_view text) : text_(text) {}

    // Consumes the literal.
    void expect(std::string_view literal)
    {
        if (text_.starts_with(literal))
            text_.remove_prefix(literal.size());
        else
            ok_ = false;
    }

    // Consumes exactly `digits` digits and returns their value.
    int number(std::size_t digits)
    {
        if (text_.size() < digits ||
            !std::all_of(text_.begin(), text_.begin() + digits, is_digit)) {
            ok_ = false;
            return 0;
        }
        int value = 0;
        for (const char c : text_.substr(0, digits))
            value = value * 10 + (c - '0');
        text_.remove_prefix(digits);
        return value;
    }

    // Consumes the day, which asctime() pads with a blank, and returns it.
    int day_of_asctime()
    {
        if (!text_.starts_with(' '))
            return number(2);
        expect(" ");
        return number(1);
    }

    // Consumes one of the names and returns its index in the list.
    int one_of(std::span<const std::string_view> names)
    {
        for (std::size_t i = 0; i < names.size(); ++i)
            if (text_.starts_with(names[i])) {
                text_.remove_prefix(names[i].size());
                return static_cast<int>(i);
            }
        ok_ = false;
        return 0;
    }

    // Consumes hh:mm:ss and returns the second of the day. The second 60, a leap second, is valid.
    int time_of_day()
    {
        const int hour = number(2);
        expect(":");
        const int minute = number(2);
        expect(":");
        const int second = number(2);
        ok_ = ok_ && hour < 24 && minute < 60 && second <= 60;
        return (hour * 60 + minute) * 60 + second;
    }

    // Returns true if every part matched and no text is left.
    bool is_complete() const { return ok_ && text_.empty(); }

private:
    std::string_view text_;
    bool ok_ = true;
};

// Fields of a date in UTC.
struct DateTime {
    int year = 0;
    int month = 0; // 0 to 11
    int day = 0;
    int second_of_day = 0;

    // std::nullopt: there is no such day.
    std::optional<std::int64_t> unix_seconds() const
    {
        using namespace std::chrono;
        const year_month_day date{std::chrono::year{year},
                                  std::chrono::month{static_cast<unsigned>(month + 1)},
                                  std::chrono::day{static_cast<unsigned>(day)}};
        if (!date.ok())
            return std::nullopt;
        return sys_seconds{sys_days{date}}.time_since_epoch().count() + second_of_day;
    }
};

// Returns the date in unix seconds; std::nullopt: the reader has failed, or there is no such day.
std::optional<std::int64_t> checked_unix_seconds(const DateReader& reader,
                                                 const DateTime& date_time)
{
    return reader.is_complete() ? date_time.unix_seconds() : std::nullopt;
}

// Returns `Sun, 06 Nov 1994 08:49:37 GMT` in unix seconds; std::nullopt: not of this form.
std::optional<std::int64_t> parse_imf_date(std::string_view text)
{
    DateReader reader(text);
    DateTime date_time;
    reader.one_of(days);
    reader.expect(", ");
    date_time.day = reader.number(2);
    reader.expect(" ");
    date_time.month = reader.one_of(months);
    reader.expect(" ");
    date_time.year = reader.number(4);
    reader.expect(" ");
    date_time.second_of_day = reader.time_of_day();
    reader.expect(" GMT");
    return checked_unix_seconds(reader, date_time);
}

// Returns `Sunday, 06-Nov-94 08:49:37 GMT` in unix seconds; std::nullopt: not of this form. `now`,
// in unix seconds, decides the century.
std::optional<std::int64_t> parse_rfc850_date(std::string_view text, std::int64_t now)
{
    using namespace std::chrono;
    DateReader reader(text);
    DateTime date_time;
    reader.one_of(long_days);
    reader.expect(", ");
    date_time.day = reader.number(2);
    reader.expect("-");
    date_time.month = reader.one_of(months);
    reader.expect("-");
    const int year_of_century = reader.number(2);
    reader.expect(" ");
    date_time.second_of_day = reader.time_of_day();
    reader.expect(" GMT");

    // RFC 9110: a year that appears to be more than 50 years ahead is in the past.
    const auto today = floor<std::chrono::days>(sys_seconds{seconds{now}});
    const int this_year = static_cast<int>(year_month_day{today}.year());
    date_time.year = this_year - this_year % 100 + year_of_century;
    if (date_time.year > this_year + 50)
        date_time.year -= 100;
    else if (date_time.year <= this_year - 50)
        date_time.year += 100;
    return checked_unix_seconds(reader, date_time);
}

// Returns `Sun Nov  6 08:49:37 1994` in unix seconds; std::nullopt: not of this form.
std::optional<std::int64_t> parse_asctime_date(std::string_view text)
{
    DateReader reader(text);
    DateTime date_time;
    reader.one_of(days);
    reader.expect(" ");
    date_time.month = reader.one_of(months);
    reader.expect(" ");
    date_time.day = reader.day_of_asctime();
    reader.expect(" ");
    date_time.second_of_day = reader.time_of_day();
    reader.expect(" ");
    date_time.year = reader.number(4);
    return checked_unix_seconds(reader, date_time);
}

// Returns delta-seconds, at most max_retry_after; std::nullopt: not a number. A negative value,
// which RFC 9110 does not allow, means 0.
std::optional<std::int64_t> parse_delta(std::string_view text)
{
    const bool negative = text.starts_with('-');
    if (negative)
        text.remove_prefix(1);
    if (text.empty() || !std::all_of(text.begin(), text.end(), is_digit))
        return std::nullopt;
    if (negative)
        return 0;
    std::int64_t delta = 0;
    for (const char c : text)
        delta = std::min(delta * 10 + (c - '0'), max_retry_after);
    return delta;
}

// Returns the text without blanks and tabs at both ends.
std::string_view trim(std::string_view text)
{
    const auto begin = text.find_first_not_of(" \t");
    if (begin == std::string_view::npos)
        return {};
    return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

} // namespace

DeliveryStatus classify_http_status(long http_status)
{
    if (http_status >= 200 && http_status < 300)
        return DeliveryStatus::delivered;
    if (http_status < 400 || http_status >= 500)
        return DeliveryStatus::unavailable;
    switch (http_status) {
    case 410:
        return DeliveryStatus::endpoint_gone;
    case 401: // these are about credentials, url or load, not about the events
    case 403:
    case 404:
    case 405:
    case 407:
    case 408:
    case 425:
    case 429:
        return DeliveryStatus::unavailable;
    default:
        return DeliveryStatus::rejected;
    }
}

std::optional<long> parse_status_line(std::string_view line)
{
    constexpr std::string_view name = "HTTP/";
    constexpr std::size_t digits = 3;
    const std::size_t blank = line.find(' ');
    const std::size_t status_at = line.find_first_not_of(' ', blank);
    if (!line.starts_with(name) || status_at == std::string_view::npos ||
        line.size() < status_at + digits)
        return std::nullopt;
    const std::string_view version = line.substr(name.size(), blank - name.size());
    const auto fits = [](char c) { return is_digit(c) || c == '.'; };
    if (version.empty() || !is_digit(version[0]) || !std::ranges::all_of(version, fits))
        return std::nullopt;
    long status = 0;
    for (const char c : line.substr(status_at, digits)) {
        if (!is_digit(c))
            return std::nullopt;
        status = status * 10 + (c - '0');
    }
    return status;
}

std::optional<seconds> parse_retry_after(std::string_view value, std::int64_t now_unix_seconds)
{
    const std::string_view text = trim(value);
    if (const auto delta = parse_delta(text))
        return seconds{*delta};
    auto date = parse_imf_date(text);
    if (!date)
        date = parse_rfc850_date(text, now_unix_seconds);
    if (!date)
        date = parse_asctime_date(text);
    if (!date)
        return std::nullopt;
    return seconds{std::clamp<std::int64_t>(*date - now_unix_seconds, 0, max_retry_after)};
}

} // namespace outbox::sink
