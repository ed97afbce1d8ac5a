#include "core/schema/event_name_lint.hpp"

#include <algorithm>
#include <vector>

namespace outbox {

namespace {

constexpr std::string_view vague[] = {
    "adjusted", "altered",  "changed",   "edited", "handled", "happened",
    "modified", "occurred", "processed", "saved",  "touched", "updated",
};

constexpr std::string_view commands[] = {
    "accept",  "activate",   "add",     "approve", "archive", "assign",  "book",     "calculate",
    "cancel",  "capture",    "change",  "charge",  "check",   "close",   "complete", "confirm",
    "create",  "deactivate", "delete",  "deliver", "disable", "do",      "enable",   "fulfil",
    "fulfill", "generate",   "handle",  "import",  "invite",  "issue",   "make",     "mark",
    "modify",  "move",       "notify",  "open",    "pay",     "place",   "process",  "publish",
    "refund",  "register",   "reject",  "release", "remove",  "request", "reserve",  "reset",
    "save",    "schedule",   "send",    "set",     "ship",    "start",   "stop",     "submit",
    "sync",    "transfer",   "trigger", "update",  "upload",  "verify",
};

// Past participles that do not end with -ed.
constexpr std::string_view irregular[] = {
    "become",    "begun",    "bought", "bound",   "broken",     "brought", "built",     "caught",
    "chosen",    "cut",      "done",   "drawn",   "driven",     "fallen",  "forgotten", "found",
    "frozen",    "given",    "gone",   "grown",   "held",       "hidden",  "hit",       "kept",
    "known",     "left",     "lent",   "lost",    "made",       "met",     "overdrawn", "paid",
    "put",       "quit",     "read",   "rebuilt", "repaid",     "resent",  "rewritten", "run",
    "seen",      "sent",     "set",    "shown",   "shut",       "sold",    "spent",     "split",
    "stolen",    "sunk",     "taken",  "thrown",  "understood", "undone",  "unfrozen",  "upheld",
    "withdrawn", "withheld", "won",    "written",
};

template <std::size_t size>
bool contains(const std::string_view (&words)[size], std::string_view word)
{
    return std::ranges::find(words, word) != std::end(words);
}

bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

bool is_lower(char c)
{
    return (c >= 'a' && c <= 'z') || static_cast<unsigned char>(c) >= 0x80;
}

bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool is_version(std::string_view word)
{
    return word.size() > 1 && word.front() == 'v' && std::ranges::all_of(word.substr(1), is_digit);
}

// OrderConfirmed, order.confirmed, order_confirmed.v1 and SKURemoved: the words in lower case,
// without a version.
std::vector<std::string> words_of(std::string_view name)
{
    std::vector<std::string> words(1);
    for (std::size_t i = 0; i < name.size(); ++i) {
        const char c = name[i];
        if (!is_upper(c) && !is_lower(c) && !is_digit(c)) {
            words.emplace_back();
            continue;
        }
        const bool after_lower = i > 0 && (is_lower(name[i - 1]) || is_digit(name[i - 1]));
        const bool before_lower = i + 1 < name.size() && is_lower(name[i + 1]);
        if (is_upper(c) && (after_lower || (before_lower && i > 0 && is_upper(name[i - 1]))))
            words.emplace_back();
        words.back() += is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
    }
    std::erase(words, std::string());
    if (!words.empty() && is_version(words.back()))
        words.pop_back();
    return words;
}

bool is_past_tense(std::string_view word)
{
    constexpr std::string_view no_verbs[] = {"bed", "feed", "need", "seed", "speed", "embed"};
    return contains(irregular, word) ||
           (word.size() > 3 && word.ends_with("ed") && !contains(no_verbs, word));
}

} // namespace

std::optional<std::string> lint_event_name(std::string_view name)
{
    const std::vector<std::string> words = words_of(name);
    if (words.empty())
        return "it has no words";
    const std::string& last = words.back();
    if (contains(vague, last))
        return "\"" + last + "\" does not say what has happened";
    if (contains(commands, words.front()) && !is_past_tense(last))
        return "it is a command: it begins with \"" + words.front() + "\"";
    if (!is_past_tense(last))
        return "it does not end with a verb in the past tense";
    if (words.size() < 2)
        return "it does not say to what it has happened";
    return std::nullopt;
}

} // namespace outbox
