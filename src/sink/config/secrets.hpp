#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace outbox::sink {

// What the config of a sink may refer to but never contains: names and values from a file that
// only the server's user can read. No error repeats anything of its content.
class Secrets {
public:
    // Lines `name = value`. The value ends with the line; double quotes around it keep blanks.
    static Secrets parse(std::string_view text);

    // Refuses a file that others could read or replace.
    static Secrets load(const std::string& path);

    // Null if there is none of that name.
    const std::string* find(std::string_view name) const;

    // The text with every ${secret:name} replaced by its value. Values are not looked into.
    std::string resolve(std::string_view text) const;

    // Replaces values by ***, also in disguise, in text that somebody else made and that is going
    // to be shown. What overlaps is replaced as one. Values below four bytes stay.
    void redact(std::string& text) const;

private:
    std::map<std::string, std::string, std::less<>> values_;
};

// For hints.
inline constexpr const char* secret_reference_hint =
    "Put the value into the secrets file and write ${secret:name} in its place.";

// Is the whole text exactly one ${secret:name}?
bool is_secret_reference(std::string_view text);

// Does the text contain at least one ${secret:name}?
bool has_secret_reference(std::string_view text);

// The text with this character in place of each ${secret:name}.
std::string mask_references(std::string_view text, char mask);

// Throws 22023 if the text has a `${secret:` that is no reference.
void check_references(std::string_view text);

} // namespace outbox::sink
