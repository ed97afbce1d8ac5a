// The steps of writers and claimers, right or, if the setting says so, wrong in one way.
#pragma once

#include "claim/claim.hpp"

namespace outbox::model {

void enqueue_as_planned(int count);
void claim_as_planned(const ClaimRequest& request, MessageReceiver& caller);

// The number of the cursor that a claim reads.
std::uint32_t cursor_as_planned();

} // namespace outbox::model
