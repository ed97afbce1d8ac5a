// The secrets file, and references to secrets.
#include "sink/config/secrets.hpp"

#include "fuzz.hpp"

#include <map>
#include <sstream>

namespace outbox::fuzz {

using Values = std::map<std::string, std::string>;

std::string trim(const std::string& text)
{
    const auto begin = text.find_first_not_of(" \t\r");
    return begin == std::string::npos
               ? ""
               : text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

// The secrets of a valid file, read by simpler means.
Values read(std::string_view file)
{
    Values values;
    std::istringstream lines{std::string(file)};
    for (std::string line; std::getline(lines, line);) {
        line = trim(line);
        if (line.empty() || line[0] == '#')
            continue;
        std::string value = trim(line.substr(line.find('=') + 1));
        if (value[0] == '"')
            value = value.substr(1, value.size() - 2);
        values[trim(line.substr(0, line.find('=')))] = value;
    }
    return values;
}

void check_values(const sink::Secrets& secrets, const Values& values)
{
    for (const auto& [name, value] : values) {
        const std::string* found = secrets.find(name);
        must(found != nullptr && *found == value, "a secret has the value that the file gives it");
        must(value.find_first_of(std::string_view("\n\r\0", 3)) == std::string::npos,
             "no secret contains a line break");
        const std::string reference = "${secret:" + name + "}";
        must(sink::is_secret_reference(reference) && sink::has_secret_reference(reference),
             "every name can be used in a reference");
        must(secrets.resolve("<" + reference + reference + ">") == "<" + value + value + ">",
             "references are replaced by values");
    }
    must(secrets.find("no such name") == nullptr, "there are no others");
}

void check_text(const sink::Secrets& secrets, std::string_view text)
{
    const bool is_malformed = error_of([&] { sink::check_references(text); }).has_value();
    const auto error = error_of([&] { (void)secrets.resolve(text); });
    if (is_malformed)
        must(error.has_value(), "malformed references are not replaced");
    else if (error)
        must(std::string_view(error->sqlstate()) == "42704" && sink::has_secret_reference(text),
             "only an unknown name makes a reference fail");
    if (text.find("${secret:") == std::string_view::npos)
        must(!error && secrets.resolve(text) == text, "text without references is unchanged");
    must(!sink::is_secret_reference(text) || sink::has_secret_reference(text),
         "a text that is a reference has a reference");
}

void check_redaction(const sink::Secrets& secrets, const Values& values, std::string_view text)
{
    constexpr std::size_t shortest = 4;
    std::string shown(text);
    secrets.redact(shown);
    bool has_any = false;
    for (const auto& [name, value] : values) {
        if (value.size() < shortest)
            continue;
        has_any = true;
        must(value.find('*') != std::string::npos || shown.find(value) == std::string::npos,
             "no secret remains in redacted text");
    }
    must(has_any || shown == text, "text without secrets is not redacted");
}

void try_one(std::string_view input)
{
    const auto [text, file] = split<2>(input, '\f');
    auto secrets = sink::Secrets::parse("");
    if (const auto error = error_of([&, file = file] { secrets = sink::Secrets::parse(file); })) {
        must(std::string_view(error->sqlstate()) == "F0000", "a bad file is a bad configuration");
        return;
    }
    const Values values = read(file);
    check_values(secrets, values);
    check_text(secrets, text);
    check_redaction(secrets, values, text);
    check_redaction(secrets, values, file);
}

} // namespace outbox::fuzz
