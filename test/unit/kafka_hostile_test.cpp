// Hostile brokers, and servers that do not speak Kafka.
#include "kafka_stage.hpp"
#include "loopback.hpp"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <random>

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;
using namespace std::string_literals;

using Answer = std::function<std::string(const std::string& request)>;

// Listens on a loopback port and gives scripted answers, one connection at a time.
class Impostor {
public:
    explicit Impostor(Answer answer) : answer_(std::move(answer)), thread_([this] { run(); }) {}

    ~Impostor()
    {
        is_over_ = true;
        thread_.join();
    }

    std::string server() const { return listener_.address(); }
    int answers() const { return answers_; }

private:
    static bool is_readable(int fd)
    {
        pollfd watched = {fd, POLLIN, 0};
        return poll(&watched, 1, 10) > 0;
    }

    void run()
    {
        while (!is_over_)
            if (is_readable(listener_.descriptor()))
                converse(accept(listener_.descriptor(), nullptr, nullptr));
    }

    void converse(int fd)
    {
        const timeval send_timeout = {0, 100'000};
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &send_timeout, sizeof(send_timeout));
        char heard[65536];
        while (!is_over_) {
            if (!is_readable(fd))
                continue;
            const ssize_t size = recv(fd, heard, sizeof(heard), 0);
            if (size <= 0)
                break;
            const std::string said = answer_({heard, static_cast<std::size_t>(size)});
            ++answers_;
            if (send(fd, said.data(), said.size(), MSG_NOSIGNAL) < 0)
                break;
        }
        close(fd);
    }

    Answer answer_;
    const LoopbackListener listener_;
    std::atomic<bool> is_over_ = false;
    std::atomic<int> answers_ = 0;
    std::thread thread_;
};

std::string in_four_bytes(std::uint32_t number)
{
    const std::uint32_t big_endian = htonl(number);
    return {reinterpret_cast<const char*>(&big_endian), sizeof(big_endian)};
}

// A well-formed response: its length, the correlation id of the request, and `said`.
std::string answer_to(const std::string& request, const std::string& said)
{
    constexpr std::size_t number_at = 8;
    constexpr std::size_t number_size = 4;
    const std::string number = request.substr(std::min(number_at, request.size()), number_size);
    return in_four_bytes(static_cast<std::uint32_t>(number.size() + said.size())) + number + said;
}

std::string random_bytes(std::size_t count)
{
    static std::mt19937 generator(1);
    std::string bytes(count, '\0');
    for (char& byte : bytes)
        byte = static_cast<char>(generator());
    return bytes;
}

std::size_t bytes_in_use()
{
    const auto memory = mallinfo2();
    return memory.uordblks + memory.hblkhd;
}

void expect_unavailable(const char* what, Answer answer)
{
    SCOPED_TRACE(what);
    const std::size_t before = bytes_in_use();
    const Impostor impostor(std::move(answer));
    KafkaConfig config = config_for(impostor.server());
    config.timeout_ms = 250;
    KafkaSender sender(config);
    DeliveryResult result;
    EXPECT_TRUE(comes_true([&] {
        result = sender.try_one(make_event(1));
        return impostor.answers() > 0;
    }));
    EXPECT_EQ(result.status, DeliveryStatus::unavailable);
    EXPECT_NE(result.reason, "");
    EXPECT_LT(result.reason.size(), 600u) << result.reason;
    for (const char c : result.reason)
        EXPECT_TRUE(c >= ' ' && c != '\x7f') << result.reason;
    sender.sink.cancel_all();
    EXPECT_TRUE(comes_true([] { return !has_kafka_threads(); }));
    EXPECT_LT(bytes_in_use(), before + (4 << 20));
}

TEST(KafkaSink, AServerThatDoesNotSpeakKafkaIsUnavailable)
{
    expect_unavailable(
        "HTTP", [](const auto&) { return "HTTP/1.1 400 Bad Request\r\n\r\n<h1>No\x1b[2J</h1>"s; });
    expect_unavailable("an echo", [](const auto& request) { return request; });
    expect_unavailable("noise", [](const auto&) { return random_bytes(10'000); });
    expect_unavailable("an empty answer", [](const auto&) { return in_four_bytes(0); });
    expect_unavailable("a negative length", [](const auto&) { return in_four_bytes(0xffffffff); });
    expect_unavailable("a long answer that does not come",
                       [](const auto&) { return in_four_bytes(99'000'000); });
    expect_unavailable("a longer one than there may be",
                       [](const auto&) { return in_four_bytes(0x7fffffff); });
}

TEST(KafkaSink, BrokersWithInvalidAnswersAreUnavailable)
{
    expect_unavailable("nothing", [](const auto& request) { return answer_to(request, ""); });
    for (const std::size_t size : {2u, 16u, 200u, 5000u})
        expect_unavailable(
            "noise", [&](const auto& request) { return answer_to(request, random_bytes(size)); });
    expect_unavailable("the largest numbers", [](const auto& request) {
        return answer_to(request, "\0\0"s + std::string(64, '\x7f'));
    });
    expect_unavailable("an answer to another request", [](const auto& request) {
        return answer_to("01234567" + in_four_bytes(77), "\0\0"s) + answer_to(request, "");
    });
}

// With a sanitizer, a huge malloc() must return null as usual, so that librdkafka aborts, not the
// sanitizer.
constexpr const char* as_malloc_fails = "allocator_may_return_null=1";
extern "C" const char* __asan_default_options()
{
    return as_malloc_fails;
}
extern "C" const char* __tsan_default_options()
{
    return as_malloc_fails;
}

// Versions of librdkafka that read this as an array of -1 elements abort.
[[noreturn]] void read_an_answer_of_three_bytes()
{
    on_library_abort([] {
        for (;;)
            pause();
    });
    const Impostor impostor([](const auto& request) { return answer_to(request, "\0\0\0"s); });
    KafkaSender sender(config_for(impostor.server(), R"("timeout": 1)"));
    std::optional<DeliveryResult> result = sender.send(make_event(1));
    std::vector<DeliveryResult> results;
    const bool is_told = !result && comes_true([&] {
        if (!library_aborted())
            sender.sink.poll(results);
        return library_aborted() || !results.empty();
    });
    _exit(is_told && sender.sink.has_aborted() == library_aborted() ? EXIT_SUCCESS : EXIT_FAILURE);
}

TEST(KafkaSink, AnAbortOfLibrdkafkaIsKnownToItsSinkAlone)
{
    EXPECT_EXIT(read_an_answer_of_three_bytes(), testing::ExitedWithCode(EXIT_SUCCESS), "");
}

} // namespace
