// Helpers for tests of errors of src/sink: configs, secrets and sinks that are refused.
#pragma once

#include "core/error.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

namespace outbox::sink::test {

// The error that `body` throws; std::nullopt if it throws none.
template <typename Body>
std::optional<Error> thrown_by(Body body)
{
    try {
        body();
    } catch (const Error& error) {
        return error;
    }
    return std::nullopt;
}

inline std::string text_of(const Error& error)
{
    return std::string(error.what()) + "|" + error.detail() + "|" + error.hint();
}

// SQLSTATE and text (message, detail, hint) of the error that `body` throws; both are empty if it
// throws none.
template <typename Body>
std::pair<std::string, std::string> error_of(Body body)
{
    const std::optional<Error> error = thrown_by(body);
    if (!error)
        return {};
    return {error->sqlstate(), text_of(*error)};
}

// Text of the error that `body` throws, whose SQLSTATE must be 22023; empty if it throws none.
template <typename Body>
std::string refusal(Body body)
{
    const std::optional<Error> error = thrown_by(body);
    if (!error)
        return "";
    EXPECT_STREQ(error->sqlstate(), "22023");
    return text_of(*error);
}

} // namespace outbox::sink::test

// Passes if the expression is refused with a text that contains `part`.
#define EXPECT_REFUSED(expression, part)                                                           \
    EXPECT_NE(outbox::sink::test::refusal([&] { expression; }).find(part), std::string::npos)      \
        << outbox::sink::test::refusal([&] { expression; })
