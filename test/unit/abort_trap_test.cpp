#include "sink/util/abort_trap.hpp"
#include "sink/util/block_signals.hpp"

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

// What aborts does so in a process in which nothing else has run: what has happened is for good,
// and there may be threads of other tests here.
class AbortsElsewhere final : public testing::Environment {
public:
    void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

[[maybe_unused]] const auto* const environment =
    testing::AddGlobalTestEnvironment(new AbortsElsewhere);

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
    _exit(others || has_mishap_of_nobody() ? EXIT_FAILURE : EXIT_SUCCESS);
}

[[noreturn]] void abort_in_a_thread_of_nobodys()
{
    before_threads_abort(stay);
    std::thread([] { std::abort(); }).detach();
    while (!has_mishap())
        std::this_thread::sleep_for(1ms);
    _exit(has_mishap_of_nobody() ? EXIT_SUCCESS : EXIT_FAILURE);
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

TEST(Mishap, OrThatItIsNobodys)
{
    EXPECT_EXIT(abort_in_a_thread_of_nobodys(), testing::ExitedWithCode(EXIT_SUCCESS), "");
}

// Also where such a thread is the only one that has an ear for it.
[[noreturn]] void be_told_to_abort()
{
    before_threads_abort(stay);
    static Mishap ours = false;
    const SignalsBlocked as_in_a_library;
    std::thread([] {
        work_for(ours);
        kill(getpid(), SIGABRT);
        stay();
    }).detach();
    stay();
}

TEST(Mishap, AProcessThatIsToldToAbortAborts)
{
    EXPECT_EXIT(be_told_to_abort(), testing::KilledBySignal(SIGABRT), "");
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
