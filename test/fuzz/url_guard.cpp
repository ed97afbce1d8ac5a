// Connections of HTTP sinks for any url, proxy and answer of name servers. libcurl and the sink are
// real; only connect() is replaced.
#include "private_networks.hpp"

#include "sink/format/encoding.hpp"
#include "sink/make_sink.hpp"

#include <cerrno>
#include <dlfcn.h>
#include <mutex>
#include <netdb.h>
#include <poll.h>

namespace outbox::fuzz {

// Guarded by a mutex, because libcurl resolves names in a thread of its own.
struct Network {
    std::mutex mutex;
    std::vector<std::string> answers; // addresses that name servers return
    std::vector<std::pair<std::string, int>> asked;
    std::vector<std::string> called; // addresses passed to connect()
};

Network network;

// The address of a numeric host, in any notation; nullptr for other hosts.
addrinfo* find_number(const char* host, const char* port, const addrinfo* hints)
{
    static const auto look_up =
        reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
    addrinfo wanted = *hints;
    wanted.ai_flags |= AI_NUMERICHOST;
    wanted.ai_flags &= ~AI_ADDRCONFIG;
    addrinfo* found = nullptr;
    return look_up(host, port, &wanted, &found) == 0 ? found : nullptr;
}

// The addresses of a name.
addrinfo* find_name(const char* port, const addrinfo* hints)
{
    addrinfo* all = nullptr;
    addrinfo** end = &all;
    for (const std::string& answer : network.answers) {
        *end = find_number(answer.c_str(), port, hints);
        while (*end != nullptr)
            end = &(*end)->ai_next;
    }
    return all;
}

} // namespace outbox::fuzz

extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints,
                           addrinfo** found)
{
    using namespace outbox::fuzz;
    const std::lock_guard lock(network.mutex);
    network.asked.emplace_back(host, std::atoi(port));
    *found = find_number(host, port, hints);
    if (*found == nullptr)
        *found = find_name(port, hints);
    return *found == nullptr ? EAI_NONAME : 0;
}

extern "C" int connect(int, const sockaddr* address, socklen_t size)
{
    using namespace outbox::fuzz;
    const std::lock_guard lock(network.mutex);
    network.called.push_back(bytes_of(address, size));
    errno = ECONNREFUSED;
    return -1;
}

namespace outbox::fuzz {

std::string config_of(std::string_view url, std::string_view proxy)
{
    std::string config = R"({"timeout": 2, "url": )";
    sink::append_json_string(config, url);
    if (!proxy.empty()) {
        config += R"(, "proxy": )";
        sink::append_json_string(config, proxy);
    }
    return config + "}";
}

sink::DeliveryResult send_one(sink::Sink& sink)
{
    sink::Event event;
    event.tracking_id = "0192f000-0000-7000-8000-000000000001";
    event.payload = "{}";
    const sink::Event* const events[] = {&event};
    std::vector<sink::DeliveryResult> results;
    (void)sink.send(1, events, 0);
    sink.flush();
    const auto end = sink::Clock::now() + std::chrono::seconds(5);
    while (results.empty()) {
        must(sink::Clock::now() < end, "a request has a result");
        pollfd fd = {sink.wait_fd(), POLLIN, 0};
        (void)poll(&fd, 1, 1);
        sink.poll(results);
    }
    return results[0];
}

// Sets the answers of name servers, one address per line, and clears the recorded calls.
void start_anew(std::string_view answers)
{
    const std::lock_guard lock(network.mutex);
    network.asked.clear();
    network.called.clear();
    network.answers.clear();
    while (!answers.empty()) {
        network.answers.emplace_back(answers.substr(0, answers.find('\n')));
        answers.remove_prefix(std::min(network.answers.back().size() + 1, answers.size()));
    }
}

std::unique_ptr<sink::Sink> make_sink(const std::string& config, const sink::HostAllowlist& allowed,
                                      bool deny_private = true)
{
    return sink::make_sink("http", config, [] { return sink::Secrets::parse(""); },
                           {"/fuzz", allowed, deny_private});
}

void try_one(std::string_view input)
{
    const auto [list, url, proxy, answers] = split<4>(input, '\n');
    start_anew(answers);
    std::optional<sink::HostAllowlist> allowed;
    std::unique_ptr<sink::Sink> sink;
    const auto error = error_of([&, list = list, url = url, proxy = proxy] {
        allowed.emplace(list);
        sink = make_sink(config_of(as_text(url), as_text(proxy)), *allowed);
    });
    if (error) {
        must(is_one_of(error->sqlstate(), {"22023", "42501", "42704"}), "a refusal has a reason");
        return;
    }
    must(send_one(*sink).status == sink::DeliveryStatus::unavailable,
         "a request without a receiver is unavailable");
    sink.reset();

    const std::lock_guard lock(network.mutex);
    for (const std::string& address : network.called)
        must(!address.empty() && !is_private(address), "no sink connects to a private address");
    for (const auto& [host, port] : network.asked)
        must(allowed->allows(host, port), "only hosts in the allowlist are resolved");
}

// Addresses that a sink with this url connects to if every name has the address `answer`.
std::vector<std::string> called_for(const char* url, const char* answer, bool deny_private = true)
{
    start_anew(answer);
    (void)send_one(*make_sink(config_of(url, ""), sink::HostAllowlist(""), deny_private));
    const std::lock_guard lock(network.mutex);
    return network.called;
}

} // namespace outbox::fuzz

// A self-test of the target, so that recording no address at all cannot pass as success.
extern "C" int LLVMFuzzerInitialize(int*, char***)
{
    using namespace outbox::fuzz;
    const std::vector<std::string> outside = {"\x08\x08\x04\x04"};
    const std::vector<std::string> inside = {"\x7f\x01\x02\x03"};
    must(called_for("http://8.8.4.4/", "") == outside, "a sink connects to a public address");
    must(called_for("http://a.example/", "8.8.4.4") == outside,
         "a sink connects to a name with a public address");
    must(called_for("http://a.example/", "127.1.2.3").empty(),
         "no sink connects to a name with a private address");
    must(called_for("http://a.example/", "127.1.2.3", false) == inside && is_private(inside[0]),
         "a connection to a permitted private address is recorded");
    return 0;
}
