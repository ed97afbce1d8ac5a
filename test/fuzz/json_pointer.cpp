// JSON pointers, and the values that they find.
#include "core/json/json_pointer.hpp"

#include "../unit/json_builder.hpp"
#include "fuzz.hpp"

namespace outbox::fuzz {

using Json = nlohmann::json;

// The pointer as the other JSON library parses it.
std::optional<Json::json_pointer> read(std::string_view pointer)
{
    try {
        return Json::json_pointer(std::string(pointer));
    } catch (const Json::exception&) {
        return std::nullopt;
    }
}

bool contains(const Json& json, const Json::json_pointer& pointer)
{
    try {
        return json.contains(pointer);
    } catch (const Json::out_of_range&) {
        return false; // an index that no array can have
    }
}

void check_round_trip(std::string_view pointer, const std::vector<std::string>& steps)
{
    std::string again;
    for (const std::string& step : steps)
        json::append_to_pointer(again, step);
    must(again == pointer, "a pointer survives a round trip");
}

bool has_star(const std::vector<std::string>& steps)
{
    return std::ranges::find(steps, "*") != steps.end();
}

// Checks the pointer of every value in the document.
void visit(const Json& json, const std::string& pointer, const json::Value& root)
{
    const json::PathPattern path(json::parse_pointer(pointer).value());
    must(path.matches_anything_in(root), "a pointer to an existing value finds it");
    std::size_t index = 0;
    for (const auto& [name, part] : json.items()) {
        std::string below = pointer;
        json::append_to_pointer(below, json.is_object() ? name : std::to_string(index++));
        if (part.is_structured())
            visit(part, below, root);
    }
}

void try_one(std::string_view input)
{
    const auto [pointer, document] = split<2>(input, '\f');
    const auto steps = json::parse_pointer(pointer);
    const auto other = read(pointer);
    must(steps.has_value() == other.has_value(), "both libraries accept the same pointers");
    if (!steps)
        return;
    check_round_trip(pointer, *steps);
    const Json json = Json::parse(document, nullptr, false);
    if (json.is_discarded())
        return;
    json::Builder builder;
    const json::Value& root = builder.take(json);
    const bool finds = json::PathPattern(*steps).matches_anything_in(root);
    if (has_star(*steps))
        must(!finds || !steps->empty(), "a pattern with a star that finds a value has steps");
    else
        must(finds == contains(json, *other), "both libraries find the same values");
    visit(json, "", root);
}

} // namespace outbox::fuzz
