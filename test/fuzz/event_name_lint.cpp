// What is said about the names of events.
#include "core/schema/event_name_lint.hpp"

#include "fuzz.hpp"

namespace outbox::fuzz {

bool is_word(std::string_view text)
{
    return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= 'a' && c <= 'z'; });
}

// Words of more than one letter, or OrderA and Paid would be Order and APaid.
std::vector<std::string> words_of(std::string_view text)
{
    std::vector<std::string> words;
    while (!text.empty()) {
        const std::string_view word = text.substr(0, text.find('.'));
        text.remove_prefix(std::min(word.size() + 1, text.size()));
        if (!is_word(word) || word.size() < 2)
            return {};
        words.emplace_back(word);
    }
    return words;
}

std::string join(const std::vector<std::string>& words, std::string_view between)
{
    std::string name;
    for (const std::string& word : words)
        name += (name.empty() ? "" : std::string(between)) + word;
    return name;
}

std::string capitalize(std::vector<std::string> words)
{
    for (std::string& word : words)
        word[0] = static_cast<char>(word[0] - 'a' + 'A');
    return join(words, "");
}

void try_one(std::string_view input)
{
    const auto doubt = lint_event_name(input);
    must(!doubt || !doubt->empty(), "a doubt has words");
    const std::vector<std::string> words = words_of(input);
    if (words.empty())
        return;
    for (const std::string& spelling : {capitalize(words), join(words, "_"), join(words, " - "),
                                        std::string(input) + ".v2", capitalize(words) + "V12"})
        must(lint_event_name(spelling) == doubt, "a name is judged by its words alone");
}

} // namespace outbox::fuzz
