#include "sink/config/secrets.hpp"

#include "core/error.hpp"
#include "sink/config/redact_encoded.hpp"
#include "sink/format/webhook_signature.hpp"
#include "sink/util/read_file.hpp"

#include <algorithm>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace outbox::sink {

namespace {

constexpr std::string_view reference_prefix = "${secret:";
constexpr std::size_t max_name_bytes = 63;

// Returns true for 1 to 63 ASCII letters, digits, `_`, `.` or `-`.
bool is_name(std::string_view name)
{
    const auto fits = [](char c) {
        return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
               c == '_' || c == '.' || c == '-';
    };
    return !name.empty() && name.size() <= max_name_bytes &&
           std::all_of(name.begin(), name.end(), fits);
}

// Position of a ${secret:name} in a text.
struct Reference {
    std::size_t begin;
    std::size_t end;       // behind the brace
    std::string_view name; // empty: a malformed reference
};

// Returns the first `${secret:` from index `from` on, well-formed or not; std::nullopt: none.
std::optional<Reference> next_reference(std::string_view text, std::size_t from)
{
    const auto begin = text.find(reference_prefix, from);
    if (begin == std::string_view::npos)
        return std::nullopt;
    const auto name_begin = begin + reference_prefix.size();
    const auto brace = text.find('}', name_begin);
    if (brace != std::string_view::npos) {
        const auto name = text.substr(name_begin, brace - name_begin);
        if (is_name(name))
            return Reference{begin, brace + 1, name};
    }
    return Reference{begin, name_begin, {}};
}

// Raises 22023 without the text, which may be a credential.
[[noreturn]] void refuse_reference()
{
    throw Error("22023", "malformed reference to a secret", {},
                "Write ${secret:name}. A name has 1 to 63 letters, digits, _, . or -.");
}

// Returns the text without blanks, tabs and carriage returns at both ends.
std::string_view trim(std::string_view text)
{
    constexpr std::string_view blanks = " \t\r";
    const auto begin = text.find_first_not_of(blanks);
    if (begin == std::string_view::npos)
        return {};
    return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

// Returns true if the text has an ASCII control character other than tab.
bool has_control(std::string_view text)
{
    return std::any_of(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F;
    });
}

// Returns the value of a line, without its double quotes; std::nullopt: it is empty without quotes,
// has control characters, or has no closing quote.
std::optional<std::string> parse_value(std::string_view text)
{
    if (text.empty() || has_control(text))
        return std::nullopt;
    if (!text.starts_with('"'))
        return std::string(text);
    if (text.size() < 2 || !text.ends_with('"'))
        return std::nullopt;
    return std::string(text.substr(1, text.size() - 2));
}

// Raises F0000 with the number of the line, without its text.
[[noreturn]] void refuse_line(std::size_t number, const char* why)
{
    throw Error("F0000", "line " + std::to_string(number) + " of the secrets file " + why, {},
                "Write lines of the form: name = value. A name has 1 to 63 letters, digits, _, . "
                "or -.");
}

// Raises F0000 if the file belongs to a user other than the server's, or has group or world access:
// others could read or replace it.
void check_owner(const std::string& path, const struct stat& status)
{
    if (status.st_uid != geteuid())
        refuse_file("secrets file", path, "it belongs to another user",
                    "The file must belong to the user that runs the server.");
    if ((status.st_mode & 077) != 0)
        refuse_file("secrets file", path, "it has group or world access",
                    "Restrict its permissions with chmod 600.");
}

} // namespace

Secrets Secrets::parse(std::string_view text)
{
    Secrets secrets;
    for (std::size_t number = 1; !text.empty(); ++number) {
        const auto end = std::min(text.find('\n'), text.size());
        const std::string_view line = trim(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.empty() || line.starts_with('#'))
            continue;
        const auto equals = line.find('=');
        if (equals == std::string_view::npos)
            refuse_line(number, "has no =");
        const std::string_view name = trim(line.substr(0, equals));
        if (!is_name(name))
            refuse_line(number, "has no valid name");
        auto value = parse_value(trim(line.substr(equals + 1)));
        if (!value)
            refuse_line(number, "has no valid value");
        if (!secrets.values_.emplace(name, std::move(*value)).second)
            refuse_line(number, "repeats a name");
    }
    return secrets;
}

Secrets Secrets::load(const std::string& path)
{
    return parse(read_small_file("secrets file", path, O_NOFOLLOW,
                                 [&](const struct stat& status) { check_owner(path, status); }));
}

const std::string* Secrets::find(std::string_view name) const
{
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : &found->second;
}

std::string Secrets::resolve(std::string_view text) const
{
    std::string out;
    std::size_t done = 0;
    while (const auto reference = next_reference(text, done)) {
        if (reference->name.empty())
            refuse_reference();
        const std::string* value = find(reference->name);
        if (value == nullptr)
            throw Error("42704", "secret \"" + std::string(reference->name) + "\" does not exist",
                        {}, "Add it to the secrets file.");
        out += text.substr(done, reference->begin - done);
        out += *value;
        done = reference->end;
    }
    return out += text.substr(done);
}

void Secrets::redact(std::string& text) const
{
    // Marks all values before any is replaced, so that nothing of two overlapping values remains.
    std::vector<bool> secret(text.size());
    for (const auto& [name, value] : values_) {
        mark_encoded_secret(text, value, secret);
        // The key of a signing secret is the part behind the prefix.
        if (value.starts_with(WebhookSecret::prefix))
            mark_encoded_secret(text, std::string_view(value).substr(WebhookSecret::prefix.size()),
                                secret);
    }
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (!secret[i])
            out += text[i];
        else if (i == 0 || !secret[i - 1])
            out += "***";
    }
    text = std::move(out);
}

bool is_secret_reference(std::string_view text)
{
    const auto reference = next_reference(text, 0);
    return reference && !reference->name.empty() && reference->begin == 0 &&
           reference->end == text.size();
}

bool has_secret_reference(std::string_view text)
{
    std::size_t done = 0;
    while (const auto reference = next_reference(text, done)) {
        if (!reference->name.empty())
            return true;
        done = reference->end;
    }
    return false;
}

std::string mask_references(std::string_view text, char mask)
{
    std::string out;
    std::size_t done = 0;
    while (const auto reference = next_reference(text, done)) {
        if (reference->name.empty()) {
            out += text.substr(done, reference->end - done);
        } else {
            out += text.substr(done, reference->begin - done);
            out += mask;
        }
        done = reference->end;
    }
    return out += text.substr(done);
}

void check_references(std::string_view text)
{
    std::size_t done = 0;
    while (const auto reference = next_reference(text, done)) {
        if (reference->name.empty())
            refuse_reference();
        done = reference->end;
    }
}

} // namespace outbox::sink
