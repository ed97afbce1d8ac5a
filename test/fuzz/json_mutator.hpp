// Mutates JSON as JSON, because most mutations of single bytes do not parse. An input consists of
// parts separated by form feeds. A target defines snippets that are worth trying.
#pragma once

#include "fuzz.hpp"

#include <nlohmann/json.hpp>

#include <cstring>
#include <random>
#include <span>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max);

namespace outbox::fuzz {

// JSON texts: values to insert anywhere, and objects whose members are added to other objects.
std::span<const char* const> snippets();

class JsonMutator {
public:
    using Json = nlohmann::json;

    explicit JsonMutator(unsigned seed) : chance_(seed) {}

    std::size_t any(std::size_t count)
    {
        return std::uniform_int_distribution<std::size_t>(0, count - 1)(chance_);
    }

    void change(Json& json)
    {
        std::vector<Json*> places;
        collect(json, places);
        Json& place = *places[any(places.size())];
        switch (any(6)) {
        case 0:
            place = snippet();
            break;
        case 1:
            place = Json(*places[any(places.size())]);
            break;
        case 2:
            remove_from(place);
            break;
        case 3:
            nudge(place);
            break;
        default:
            add_to(place, snippet());
        }
    }

private:
    static void collect(Json& json, std::vector<Json*>& places)
    {
        places.push_back(&json);
        if (json.is_structured())
            for (Json& part : json)
                collect(part, places);
    }

    Json snippet() { return Json::parse(snippets()[any(snippets().size())]); }

    static void add_to(Json& place, Json what)
    {
        if (place.is_object() && what.is_object())
            place.update(what);
        else if (place.is_array())
            place.push_back(std::move(what));
        else
            place = std::move(what);
    }

    void remove_from(Json& place)
    {
        if (place.is_structured() && !place.empty())
            place.erase(std::next(place.begin(), static_cast<std::ptrdiff_t>(any(place.size()))));
        else
            place = nullptr;
    }

    void nudge(Json& place)
    {
        if (place.is_number_integer())
            place = place.get<std::int64_t>() / 2 + static_cast<std::int64_t>(any(5)) - 2;
        else if (place.is_number())
            place = place.get<double>() + 0.5;
        else if (place.is_string())
            place = place.get<std::string>() + std::string(1, static_cast<char>('a' + any(26)));
        else
            place = Json::array({place});
    }

    std::mt19937 chance_;
};

inline std::string change_one_part(std::string_view input, unsigned seed)
{
    JsonMutator mutator(seed);
    const auto chosen = mutator.any(static_cast<std::size_t>(std::ranges::count(input, '\f')) + 1);
    std::string_view before = input;
    for (std::size_t i = 0; i < chosen; ++i)
        before.remove_prefix(before.find('\f') + 1);
    const std::string_view part = before.substr(0, before.find('\f'));
    auto json = nlohmann::json::parse(part, nullptr, false);
    if (json.is_discarded())
        return {};
    for (std::size_t times = mutator.any(3) + 1; times > 0; --times)
        mutator.change(json);
    std::string changed(input.substr(0, input.size() - before.size()));
    changed += json.dump();
    return changed += before.substr(part.size());
}

} // namespace outbox::fuzz

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max, unsigned seed)
{
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    constexpr unsigned plain_share = 5; // one in five mutations changes bytes
    const std::string changed =
        seed % plain_share == 0 ? "" : outbox::fuzz::change_one_part(input, seed);
    if (changed.empty() || changed.size() > max)
        return LLVMFuzzerMutate(data, size, max);
    std::memcpy(data, changed.data(), changed.size());
    return changed.size();
}
