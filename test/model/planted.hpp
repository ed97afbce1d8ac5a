// The steps of writers and claimers: correct, or with the planted bug of the setting.
#pragma once

#include "claim/claim.hpp"

namespace outbox::model {

void enqueue_as_planned(int count);
void claim_as_planned(const ClaimRequest& request, MessageReceiver& caller);

// Number of the cursor that a claim reads.
std::uint32_t cursor_as_planned();

} // namespace outbox::model
