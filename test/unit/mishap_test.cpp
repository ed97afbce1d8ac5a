#include "sink/mishap.hpp"
#include "sink/signals.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

namespace {

using namespace outbox::sink;
using namespace std::chrono_literals;

[[noreturn]] void stay()
{
    for (;;)
        pause();
}

// Each in a process of its own: what has happened is for good.

[[noreturn]] void abort_in_a_thread()
{
    before_threads_abort(stay);
    Mishap ours = false, others = false;
    std::thread([&] {
        const SignalsBlocked as_in_a_library;
        work_for(ours);
        std::abort();
    }).detach();
    while (!ours || !has_mishap())
        std::this_thread::sleep_for(1ms);
    _exit(others ? EXIT_FAILURE : EXIT_SUCCESS);
}

[[noreturn]] void abort_with_last_words_that_end()
{
    before_threads_abort([] {});
    std::thread([] { std::abort(); }).detach();
    stay();
}

[[noreturn]] void abort_in_the_main_thread()
{
    before_threads_abort(stay);
    std::abort();
}

TEST(Mishap, AThreadThatAbortsIsStoppedAndWhoseItIsIsKnown)
{
    EXPECT_FALSE(has_mishap());
    EXPECT_EXIT(abort_in_a_thread(), testing::ExitedWithCode(EXIT_SUCCESS), "");
}

TEST(Mishap, UnlessItsLastWordsEnd)
{
    EXPECT_EXIT(abort_with_last_words_that_end(), testing::KilledBySignal(SIGABRT), "");
}

TEST(Mishap, TheMainThreadAbortsAsEver)
{
    EXPECT_EXIT(abort_in_the_main_thread(), testing::KilledBySignal(SIGABRT), "");
}

} // namespace
