// Traces, checked against the grammar of W3C Trace Context as a regular expression.
#include "sink/format/traceparent.hpp"

#include "fuzz.hpp"

namespace outbox::fuzz {

bool fits_grammar(std::string_view text)
{
    if (text.size() > 512 ||
        !matches(text, "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?"))
        return false;
    constexpr std::size_t length_of_version_0 = 55;
    return !text.starts_with("ff") && !matches(text.substr(3, 32), "0*") &&
           !matches(text.substr(36, 16), "0*") &&
           (!text.starts_with("00") || text.size() == length_of_version_0);
}

void try_one(std::string_view input)
{
    const auto [traceparent, trace_id, span_id, tracking_id] = split<4>(input, '\n');
    must(sink::is_traceparent(traceparent) == fits_grammar(traceparent),
         "a traceparent is valid if it matches the grammar");
    const auto made = sink::traceparent_from({traceparent, trace_id, span_id, tracking_id});
    if (!made) {
        must(!fits_grammar(traceparent) && !fits_grammar(trace_id), "a valid traceparent is used");
        return;
    }
    must(fits_grammar(*made), "every traceparent that is sent is valid");
    must(sink::traceparent_from({*made, "", "", ""}) == made, "what is valid stays as it is");
    if (fits_grammar(traceparent))
        must(*made == traceparent, "the traceparent has precedence over the trace id");
}

} // namespace outbox::fuzz
