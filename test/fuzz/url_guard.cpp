// Whom sinks connect to, whatever the url, the proxy and the name servers say. libcurl and the sink
// are real; only the last step to the network ends here.
#include "private_networks.hpp"

#include "sink/format/encoding.hpp"
#include "sink/make_sink.hpp"

#include <cerrno>
#include <dlfcn.h>
#include <mutex>
#include <netdb.h>
#include <poll.h>

namespace outbox::fuzz {

// libcurl asks for names in a thread of its own.
struct Network {
    std::mutex mutex;
    std::vector<std::string> answers; // of name servers
    std::vector<std::pair<std::string, int>> asked;
    std::vector<std::string> called; // addresses
};

Network network;

// Of an address in one of the ways to write it; others are not known.
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

// What name servers say about it.
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
        must(sink::Clock::now() < end, "a request comes to an end");
        pollfd fd = {sink.wait_fd(), POLLIN, 0};
        (void)poll(&fd, 1, 1);
        sink.poll(results);
    }
    return results[0];
}

// What name servers say from now on, one address per line; whoever was called before is forgotten.
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
    must(send_one(*sink).status == sink::DeliveryStatus::unavailable, "nobody was there");
    sink.reset();

    const std::lock_guard lock(network.mutex);
    for (const std::string& address : network.called)
        must(!address.empty() && !is_private(address), "nobody inside is called");
    for (const auto& [host, port] : network.asked)
        must(allowed->allows(host, port), "nobody is asked for who is not in the list");
}

// Who is called for this url, where names are this address.
std::vector<std::string> called_for(const char* url, const char* answer, bool deny_private = true)
{
    start_anew(answer);
    (void)send_one(*make_sink(config_of(url, ""), sink::HostAllowlist(""), deny_private));
    const std::lock_guard lock(network.mutex);
    return network.called;
}

} // namespace outbox::fuzz

// Nothing is found where nobody is ever called, or where nobody sees it.
extern "C" int LLVMFuzzerInitialize(int*, char***)
{
    using namespace outbox::fuzz;
    const std::vector<std::string> outside = {"\x08\x08\x04\x04"};
    const std::vector<std::string> inside = {"\x7f\x01\x02\x03"};
    must(called_for("http://8.8.4.4/", "") == outside, "an address outside is called");
    must(called_for("http://a.example/", "8.8.4.4") == outside, "so is a name that has it");
    must(called_for("http://a.example/", "127.1.2.3").empty(), "one that has one inside is not");
    must(called_for("http://a.example/", "127.1.2.3", false) == inside && is_private(inside[0]),
         "where it is, it is seen");
    return 0;
}
