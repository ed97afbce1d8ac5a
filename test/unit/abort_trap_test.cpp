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

// A test that aborts runs in a process of its own: the flags of abort_trap are never reset, and
// other tests may have left threads in this process.
class AbortsInNewProcess final : public testing::Environment {
public:
    void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

[[maybe_unused]] const auto* const environment =
    testing::AddGlobalTestEnvironment(new AbortsInNewProcess);

[[noreturn]] void abort_in_a_thread()
{
    on_library_abort(stay);
    AbortFlag ours = false, others = false;
    std::thread([&] {
        const SignalsBlocked signals_blocked;
        attribute_aborts_to(ours);
        std::abort();
    }).detach();
    while (!ours || !library_aborted())
        std::this_thread::sleep_for(1ms);
    _exit(others || library_aborted_unattributed() ? EXIT_FAILURE : EXIT_SUCCESS);
}

[[noreturn]] void abort_in_an_unattributed_thread()
{
    on_library_abort(stay);
    std::thread([] { std::abort(); }).detach();
    while (!library_aborted())
        std::this_thread::sleep_for(1ms);
    _exit(library_aborted_unattributed() ? EXIT_SUCCESS : EXIT_FAILURE);
}

[[noreturn]] void abort_with_a_callback_that_returns()
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

TEST(AbortTrap, AnAbortingThreadIsStoppedAndItsAbortFlagIsSet)
{
    EXPECT_FALSE(library_aborted());
    EXPECT_EXIT(abort_in_a_thread(), testing::ExitedWithCode(EXIT_SUCCESS), "");
}

TEST(AbortTrap, AnAbortOfAThreadWithoutAbortFlagIsUnattributed)
{
    EXPECT_EXIT(abort_in_an_unattributed_thread(), testing::ExitedWithCode(EXIT_SUCCESS), "");
}

// SIGABRT from kill() must end the process even if the only thread that does not block it has an
// AbortFlag.
[[noreturn]] void receive_sigabrt()
{
    on_library_abort(stay);
    static AbortFlag ours = false;
    const SignalsBlocked signals_blocked;
    std::thread([] {
        attribute_aborts_to(ours);
        kill(getpid(), SIGABRT);
        stay();
    }).detach();
    stay();
}

TEST(AbortTrap, AProcessThatReceivesSigabrtAborts)
{
    EXPECT_EXIT(receive_sigabrt(), testing::KilledBySignal(SIGABRT), "");
}

TEST(AbortTrap, AProcessAbortsWhenTheCallbackReturns)
{
    EXPECT_EXIT(abort_with_a_callback_that_returns(), testing::KilledBySignal(SIGABRT), "");
}

TEST(AbortTrap, AnAbortOfTheMainThreadEndsTheProcess)
{
    EXPECT_EXIT(abort_in_the_main_thread(), testing::KilledBySignal(SIGABRT), "");
}

} // namespace
