// A stage whose sink preserves order, as PipelinedDispatcher requires.
#pragma once

#include "dispatcher_stage.hpp"
#include "sink/dispatch/pipelined_dispatcher.hpp"

namespace outbox::sink::test {

struct PipelinedStage : Stage<PipelinedDispatcher> {
    explicit PipelinedStage(Receiver setting = {})
        : Stage<PipelinedDispatcher>(in_order(std::move(setting)))
    {}

    static Receiver in_order(Receiver setting)
    {
        setting.preserves_order = true;
        return setting;
    }
};

} // namespace outbox::sink::test
