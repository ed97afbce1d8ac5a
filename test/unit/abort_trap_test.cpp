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
    on_library_abort(stay);
    AbortFlag ours = false, others = false;
    std::thread([&] {
        const SignalsBlocked as_in_a_library;
        work_for(ours);
        std::abort();
    }).detach();
    while (!ours || !library_aborted())
        std::this_thread::sleep_for(1ms);
    _exit(others || library_aborted_unattributed() ? EXIT_FAILURE : EXIT_SUCCESS);
}

[[noreturn]] void abort_in_a_thread_of_nobodys()
{
    on_library_abort(stay);
    std::thread([] { std::abort(); }).detach();
    while (!library_aborted())
        std::this_thread::sleep_for(1ms);
    _exit(library_aborted_unattributed() ? EXIT_SUCCESS : EXIT_FAILURE);
}

[[noreturn]] void abort_with_last_words_that_end()
{
    on_library_abort([] {});
    std::thread([] { std::abort(); }).detach();
    stay();
}

[[noreturn]] void abort_in_the_main_thread()
{
    on_library_abort(stay);
    std::abort();
}

TEST(AbortFlag, AThreadThatAbortsIsStoppedAndWhoseItIsIsKnown)
{
    EXPECT_FALSE(library_aborted());
    EXPECT_EXIT(abort_in_a_thread(), testing::ExitedWithCode(EXIT_SUCCESS), "");
}

TEST(AbortFlag, OrThatItIsNobodys)
{
    EXPECT_EXIT(abort_in_a_thread_of_nobodys(), testing::ExitedWithCode(EXIT_SUCCESS), "");
}

// Also where such a thread is the only one that has an ear for it.
[[noreturn]] void be_told_to_abort()
{
    on_library_abort(stay);
    static AbortFlag ours = false;
    const SignalsBlocked as_in_a_library;
    std::thread([] {
        work_for(ours);
        kill(getpid(), SIGABRT);
        stay();
    }).detach();
    stay();
}

TEST(AbortFlag, AProcessThatIsToldToAbortAborts)
{
    EXPECT_EXIT(be_told_to_abort(), testing::KilledBySignal(SIGABRT), "");
}

TEST(AbortFlag, UnlessItsLastWordsEnd)
{
    EXPECT_EXIT(abort_with_last_words_that_end(), testing::KilledBySignal(SIGABRT), "");
}

TEST(AbortFlag, TheMainThreadAbortsAsEver)
{
    EXPECT_EXIT(abort_in_the_main_thread(), testing::KilledBySignal(SIGABRT), "");
}

} // namespace
