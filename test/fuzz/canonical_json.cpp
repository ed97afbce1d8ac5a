// Canonical JSON: strings, numbers and the order of keys.
#include "core/json/canonical_json.hpp"

#include "fuzz.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>

namespace outbox::fuzz {

using Json = nlohmann::json;

std::string number_text(double number)
{
    std::vector<char> room(json::max_number_size);
    return {room.data(), json::write_number(room.data(), number)};
}

std::string string_text(std::string_view text)
{
    std::vector<char> room(json::quoted_size(text));
    const char* const end = json::write_string(room.data(), text);
    must(end == room.data() + room.size(), "quoted_size() is the size of the string");
    return {room.begin(), room.end()};
}

std::size_t digits_in(std::string_view text)
{
    text = text.substr(0, text.find('e'));
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto first = text.find_first_of("123456789");
    const auto last = text.find_last_of("123456789");
    return static_cast<std::size_t>(
        std::ranges::count_if(text.substr(first, last - first + 1), is_digit));
}

// Number of digits that printf needs for a text that reads as the same double.
std::size_t digits_needed(double number)
{
    char text[64];
    for (int precision = 0;; ++precision) {
        std::snprintf(text, sizeof(text), "%.*e", precision, number);
        if (std::strtod(text, nullptr) == number)
            return static_cast<std::size_t>(precision) + 1;
    }
}

void check_number(double number)
{
    constexpr const char* plain = "-?(0|[1-9][0-9]{0,20})([.][0-9]*[1-9])?";
    constexpr const char* with_exponent = "-?[1-9]([.][0-9]*[1-9])?e([+][1-9][0-9]+|-[1-9][0-9]*)";
    if (!std::isfinite(number))
        return;
    const std::string text = number_text(number);
    must(std::strtod(text.c_str(), nullptr) == number, "a number survives a round trip");
    if (number == 0) {
        must(text == "0", "zero has no sign");
        return;
    }
    const double size = std::abs(number);
    must(matches(text, size >= 1e-6 && size < 1e21 ? plain : with_exponent),
         "a number is written as in ECMAScript");
    must(digits_in(text) <= digits_needed(number), "a number has the fewest digits possible");
}

std::u16string to_utf16(std::string_view text)
{
    std::u16string out;
    const std::u32string points = decode_utf8(text).value();
    for (const char32_t point : points) {
        if (point >= 0x10000)
            out += static_cast<char16_t>(0xD800 + ((point - 0x10000) >> 10));
        out += static_cast<char16_t>(point < 0x10000 ? point : 0xDC00 + (point & 0x3FF));
    }
    return out;
}

void check_order(std::string_view a, std::string_view b)
{
    must(json::is_before_in_utf16(a, b) == (to_utf16(a) < to_utf16(b)),
         "keys are sorted by UTF-16 code units");
}

std::string canonical_text(const Json& json)
{
    if (json.is_number())
        return number_text(json.get<double>());
    if (json.is_string())
        return string_text(json.get_ref<const std::string&>());
    if (!json.is_structured())
        return json.dump();
    std::string text;
    if (json.is_array()) {
        for (const Json& element : json)
            text += (text.empty() ? "[" : ",") + canonical_text(element);
        return text.empty() ? "[]" : text + "]";
    }
    std::vector<std::string> keys;
    for (const auto& [key, value] : json.items())
        keys.push_back(key);
    for (std::size_t i = 1; i < keys.size(); ++i) {
        check_order(keys[i - 1], keys[i]);
        check_order(keys[i], keys[i - 1]);
    }
    std::ranges::sort(keys, json::is_before_in_utf16);
    for (const std::string& key : keys)
        text += (text.empty() ? "{" : ",") + string_text(key) + ":" + canonical_text(json[key]);
    return text.empty() ? "{}" : text + "}";
}

// Equality as far as canonical JSON distinguishes values.
bool is_same(const Json& a, const Json& b)
{
    if (a.is_number() && b.is_number())
        return a.get<double>() == b.get<double>();
    if (!a.is_structured() || a.type() != b.type() || a.size() != b.size())
        return a == b;
    if (a.is_array())
        return std::ranges::equal(a, b, is_same);
    return std::ranges::all_of(a.items(), [&](const auto& member) {
        return b.contains(member.key()) && is_same(member.value(), b[member.key()]);
    });
}

void try_one(std::string_view input)
{
    for (std::size_t at = 0; at + sizeof(double) <= input.size(); at += sizeof(double)) {
        double number = 0;
        std::memcpy(&number, input.data() + at, sizeof(number));
        check_number(number);
    }
    const auto [a, b] = split<2>(input, ',');
    if (decode_utf8(a) && decode_utf8(b))
        check_order(a, b);
    const Json json = Json::parse(input, nullptr, false);
    if (json.is_discarded())
        return;
    const std::string text = canonical_text(json);
    const Json again = Json::parse(text);
    must(is_same(json, again), "canonical JSON has the value of the original");
    must(canonical_text(again) == text, "canonical JSON of canonical JSON is the same text");
}

} // namespace outbox::fuzz
