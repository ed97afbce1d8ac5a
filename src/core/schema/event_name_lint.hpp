// Whether an event's name says what has happened, and to what: <Aggregate><PastTenseVerb>.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace outbox {

// What is wrong with it; nothing if it looks right. A guess: nobody is refused for it.
std::optional<std::string> lint_event_name(std::string_view name);

} // namespace outbox
