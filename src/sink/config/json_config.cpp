#include "sink/config/json_config.hpp"

#include "core/error.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace outbox::sink {

namespace {

using Json = nlohmann::json;
using Pairs = JsonConfig::Pairs;

// Limit of nesting, against stack overflow; the deepest valid value is an object of strings.
constexpr int max_depth = 8;

// Raises 22023.
[[noreturn]] void refuse(const std::string& message, const std::string& hint = {})
{
    throw Error("22023", message, {}, hint);
}

// Raises 22023: config key "<key>" must be <what>.
[[noreturn]] void must_be(std::string_view key, const std::string& what)
{
    refuse("config key \"" + std::string(key) + "\" must be " + what);
}

// Raises 22023 for NUL characters: C libraries would use the text up to the NUL, the checks see all
// of it.
void check_text(std::string_view text)
{
    if (text.find('\0') != std::string_view::npos)
        refuse("config must not contain NUL characters");
}

// Parser callback: raises 22023 for a value nested too deeply or with a NUL, before it is stored.
// Returns true, so that the parser keeps the value.
bool check_part(int depth, Json::parse_event_t, Json& part)
{
    if (depth > max_depth)
        refuse("config is nested too deeply");
    if (part.is_string())
        check_text(part.get_ref<const std::string&>());
    return true;
}

// Returns the shortest text of the number, independent of the locale.
std::string format_number(double number)
{
    char buffer[32];
    const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), number);
    return error == std::errc{} ? std::string(buffer, end) : std::string{};
}

// Returns the value of a key; nullptr if the object has no such key.
const Json* find(const Json& object, std::string_view key)
{
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
}

// Returns the value of a JSON integer; std::nullopt: of another type, or above INT64_MAX. The JSON
// library stores integers above INT64_MAX as unsigned, and above UINT64_MAX as double.
std::optional<std::int64_t> as_integer(const Json& value)
{
    if (!value.is_number_integer())
        return std::nullopt;
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX)
        return std::nullopt;
    return value.get<std::int64_t>();
}

// Returns a string as it is, a number or boolean as JSON. Raises 22023 for other types and null.
std::string scalar_text(std::string_view key, const Json& value)
{
    if (value.is_string())
        return value.get<std::string>();
    if (value.is_boolean() || value.is_number())
        return value.dump();
    must_be(key, "a string, a number or a boolean");
}

} // namespace

struct JsonConfig::Object {
    Json json;
};

JsonConfig JsonConfig::parse(std::string_view json)
{
    check_text(json); // the parser would stop at a NUL
    auto object = std::make_shared<Object>();
    try {
        object->json = Json::parse(json, check_part);
    } catch (const Json::parse_error& error) {
        // The text of the exception is not used, because it repeats a part of the input.
        refuse("config is not valid JSON, at byte " + std::to_string(error.byte));
    } catch (const Json::exception&) {
        refuse("config is not valid JSON"); // a number that double cannot hold
    }
    if (!object->json.is_object())
        refuse("config must be a JSON object");
    return JsonConfig(std::move(object));
}

bool JsonConfig::has(std::string_view key) const
{
    return find(object_->json, key) != nullptr;
}

std::vector<std::string> JsonConfig::keys() const
{
    std::vector<std::string> keys;
    for (const auto& item : object_->json.items())
        keys.push_back(item.key());
    return keys;
}

void JsonConfig::refuse_unknown(std::span<const std::string_view> known) const
{
    for (const std::string& key : keys()) {
        if (std::find(known.begin(), known.end(), key) != known.end())
            continue;
        std::string list;
        for (const std::string_view name : known)
            list.append(list.empty() ? "" : ", ").append(name);
        refuse("unknown key \"" + key + "\" in config", "Known keys are " + list + ".");
    }
}

std::optional<std::string> JsonConfig::text(std::string_view key) const
{
    const Json* value = find(object_->json, key);
    if (value == nullptr)
        return std::nullopt;
    if (!value->is_string())
        must_be(key, "a string");
    return value->get<std::string>();
}

std::optional<std::int64_t> JsonConfig::integer(std::string_view key, std::int64_t min,
                                                std::int64_t max) const
{
    const Json* value = find(object_->json, key);
    if (value == nullptr)
        return std::nullopt;
    const auto number = as_integer(*value);
    if (!number || *number < min || *number > max)
        must_be(key, "a whole number from " + std::to_string(min) + " to " + std::to_string(max));
    return number;
}

std::optional<double> JsonConfig::number(std::string_view key, double min, double max) const
{
    const Json* value = find(object_->json, key);
    if (value == nullptr)
        return std::nullopt;
    const double number = value->is_number() ? value->get<double>() : std::nan("");
    if (!(number >= min && number <= max))
        must_be(key, "a number from " + format_number(min) + " to " + format_number(max));
    return number;
}

std::optional<bool> JsonConfig::boolean(std::string_view key) const
{
    const Json* value = find(object_->json, key);
    if (value == nullptr)
        return std::nullopt;
    if (!value->is_boolean())
        must_be(key, "true or false");
    return value->get<bool>();
}

Pairs JsonConfig::text_map(std::string_view key) const
{
    constexpr const char* wanted = "an object whose values are strings";
    Pairs pairs;
    const Json* value = find(object_->json, key);
    if (value == nullptr)
        return pairs;
    if (!value->is_object())
        must_be(key, wanted);
    for (const auto& item : value->items()) {
        if (!item.value().is_string())
            must_be(key, wanted);
        pairs.emplace_back(item.key(), item.value().get<std::string>());
    }
    return pairs;
}

std::vector<std::string> JsonConfig::text_list(std::string_view key) const
{
    constexpr const char* wanted = "an array of strings";
    std::vector<std::string> texts;
    const Json* value = find(object_->json, key);
    if (value == nullptr)
        return texts;
    if (!value->is_array())
        must_be(key, wanted);
    for (const Json& item : *value) {
        if (!item.is_string())
            must_be(key, wanted);
        texts.push_back(item.get<std::string>());
    }
    return texts;
}

Pairs JsonConfig::all_as_text(std::span<const std::string_view> except) const
{
    Pairs pairs;
    for (const auto& item : object_->json.items())
        if (std::find(except.begin(), except.end(), item.key()) == except.end())
            pairs.emplace_back(item.key(), scalar_text(item.key(), item.value()));
    return pairs;
}

} // namespace outbox::sink
