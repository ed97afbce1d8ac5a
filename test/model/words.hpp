// States and steps in words.
#pragma once

#include "explore.hpp"

#include <string>

namespace outbox::model {

// One line for each step of the story, with what came of it.
std::vector<std::string> tell(const Setting& setting, const std::vector<Step>& story);

const char* name_of(Promise promise);

} // namespace outbox::model
