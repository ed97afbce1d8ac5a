// States and steps as text.
#pragma once

#include "explore.hpp"

#include <string>

namespace outbox::model {

// Describes each step of the story and its effect, one line per step.
std::vector<std::string> tell(const Setting& setting, const std::vector<Step>& story);

const char* name_of(Promise promise);

} // namespace outbox::model
