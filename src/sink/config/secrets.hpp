#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace outbox::sink {

// Content of outbox.secrets_file: names and values to which the config of a sink refers by
// ${secret:name}, so that the catalog never contains them. No error repeats any of the content.
class Secrets {
public:
    // Parses lines of the form `name = value`. Double quotes around a value keep blanks. Lines that
    // are empty or begin with # are skipped. Raises F0000 with the number of any other line, also
    // if it repeats a name.
    static Secrets parse(std::string_view text);

    // Reads and parses the file. Raises F0000 if it is invalid, missing, no regular file, a
    // symbolic link, larger than 1 MiB, owned by another user, or accessible to group or world;
    // std::system_error if the reason is temporary.
    static Secrets load(const std::string& path);

    // Returns the value; nullptr if no secret has that name.
    const std::string* find(std::string_view name) const;

    // Replaces every ${secret:name} by its value, once: values are not searched for references.
    // Raises 42704 for an unknown name, 22023 for a malformed reference.
    std::string resolve(std::string_view text) const;

    // Replaces all values, also encoded ones (redact_encoded.hpp), by ***; of a webhook secret
    // also the key without its prefix. For text of receivers and libraries that is going to be
    // shown. Values below four bytes are not replaced.
    void redact(std::string& text) const;

private:
    std::map<std::string, std::string, std::less<>> values_;
};

// Hint of errors about a credential in a config.
inline constexpr const char* secret_reference_hint =
    "Put the value into the secrets file and write ${secret:name} in its place.";

// Returns true if the whole text is one ${secret:name}.
bool is_secret_reference(std::string_view text);

// Returns true if the text contains a well-formed ${secret:name}.
bool has_secret_reference(std::string_view text);

// Returns the text with `mask` in place of each ${secret:name}. Malformed references remain.
std::string mask_references(std::string_view text, char mask);

// Raises 22023 if the text has a `${secret:` that is not a well-formed reference.
void check_references(std::string_view text);

} // namespace outbox::sink
