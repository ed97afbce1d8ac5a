#include "sink/kafka/producer.hpp"

#include "core/error.hpp"
#include "sink/util/block_signals.hpp"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

namespace outbox::sink {

namespace {

// Sessions whose librdkafka threads have not ended.
std::atomic<int> live_producers{0};

// Size of the cache of topic handles; the cache is emptied when it is full.
constexpr std::size_t max_topic_handles = 1000;

constexpr int purge_flags =
    RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT | RD_KAFKA_PURGE_F_NON_BLOCKING;

// Returns false if the process has no free descriptor, which a dup() tests. librdkafka does not
// report that as the reason for a file that it could not open.
bool has_free_descriptor()
{
    const int descriptor = dup(STDERR_FILENO);
    const bool has_one = descriptor >= 0 || (errno != EMFILE && errno != ENFILE);
    if (descriptor >= 0)
        close(descriptor);
    return has_one;
}

// Raises 22023 if a path of the config exists and is neither a file nor a directory: librdkafka
// opens the files in rd_kafka_new(), which would block on a FIFO.
void check_files(const KafkaConfig& config)
{
    for (const auto& [name, value] : config.properties) {
        struct stat found;
        if (name.ends_with(".location") && stat(value.c_str(), &found) == 0 &&
            !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode))
            throw Error("22023",
                        "config key \"" + name + "\" must be the path of a file or directory");
    }
}

// Socket callback. Runs in a broker's thread before it connects, so that aborts of the thread are
// attributed to the sink. (Interceptors would see all threads, but rd_kafka_new() frees them twice
// when it fails.)
int open_socket(int domain, int type, int protocol, void* abort_flag)
{
    attribute_aborts_to(*static_cast<AbortFlag*>(abort_flag));
    return socket(domain, type | SOCK_CLOEXEC, protocol);
}

} // namespace

bool has_kafka_threads() noexcept
{
    return live_producers.load() > 0;
}

KafkaProducer::KafkaProducer(const KafkaConfig& config, std::shared_ptr<AbortFlag> abort_flag)
    : abort_flag_(std::move(abort_flag))
{
    check_files(config);
    const SignalsBlocked signals_blocked;
    KafkaConf conf = make_conf(config);
    rd_kafka_conf_set_events(conf.get(),
                             RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR | RD_KAFKA_EVENT_LOG);
    rd_kafka_conf_set_socket_cb(conf.get(), open_socket);
    rd_kafka_conf_set_opaque(conf.get(), abort_flag_.get());
    // Initially readable: librdkafka writes to it when the queue becomes non-empty, and the queue
    // may have events before io_event_enable().
    event_fd_ = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
    if (event_fd_ < 0)
        throw std::system_error(errno, std::generic_category(), "eventfd()");
    char problem[512];
    handle_ = rd_kafka_new(RD_KAFKA_PRODUCER, conf.get(), problem, sizeof(problem));
    if (handle_ == nullptr) {
        const rd_kafka_resp_err_t reason = rd_kafka_last_error();
        const bool lacks_descriptors = !has_free_descriptor();
        close(event_fd_);
        const std::string text = std::string("librdkafka: ") + problem;
        // A missing thread or descriptor is a temporary error, not one of the config.
        if (reason == RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE || lacks_descriptors)
            throw std::runtime_error(text);
        throw Error("22023", text);
    }
    conf.release(); // owned by librdkafka after success
    ++live_producers;
    queue_ = rd_kafka_queue_get_main(handle_);
    (void)rd_kafka_set_log_queue(handle_, queue_);
    const std::uint64_t one = 1;
    rd_kafka_queue_io_event_enable(queue_, event_fd_, &one, sizeof(one));
}

KafkaProducer::~KafkaProducer()
{
    const auto end = [handle = handle_, queue = queue_, descriptor = event_fd_,
                      topics = std::move(topics_), abort_flag = abort_flag_] {
        for (const auto& [name, topic] : topics)
            rd_kafka_topic_destroy(topic);
        rd_kafka_queue_io_event_enable(queue, -1, nullptr, 0);
        rd_kafka_queue_destroy(queue);
        (void)rd_kafka_purge(handle, purge_flags);
        rd_kafka_destroy(handle);
        close(descriptor);
        --live_producers;
    };
    const SignalsBlocked signals_blocked;
    (void)rd_kafka_purge(handle_, purge_flags);
    try {
        std::thread(end).detach();
    } catch (const std::exception&) {
        // No thread can be started: the idle session is leaked, with the flag that its threads use.
        (void)new (std::nothrow) std::shared_ptr<AbortFlag>(abort_flag_);
    }
}

rd_kafka_topic_t* KafkaProducer::topic_handle(const std::string& name)
{
    const auto found = topics_.find(name);
    if (found != topics_.end())
        return found->second;
    if (topics_.size() >= max_topic_handles) {
        for (const auto& [known, handle] : topics_)
            rd_kafka_topic_destroy(handle);
        topics_.clear();
    }
    rd_kafka_topic_t* made = rd_kafka_topic_new(handle_, name.c_str(), nullptr);
    if (made != nullptr)
        topics_.emplace(name, made);
    return made;
}

rd_kafka_resp_err_t KafkaProducer::send(const std::string& topic, const KafkaRecord& record,
                                        void* opaque)
{
    rd_kafka_topic_t* target = this->topic_handle(topic);
    if (target == nullptr)
        return rd_kafka_last_error();
    rd_kafka_headers_t* headers = rd_kafka_headers_new(record.headers.size());
    for (const auto& [name, value] : record.headers)
        (void)rd_kafka_header_add(headers, name.data(), static_cast<ssize_t>(name.size()),
                                  value.data(), static_cast<ssize_t>(value.size()));
    const std::string_view value = record.value.value_or(std::string_view{});
    auto* bytes = record.value ? const_cast<char*>(value.data()) : nullptr;
    const rd_kafka_resp_err_t result = rd_kafka_producev(
        handle_, RD_KAFKA_V_RKT(target), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
        RD_KAFKA_V_KEY(record.key.data(), record.key.size()), RD_KAFKA_V_VALUE(bytes, value.size()),
        RD_KAFKA_V_TIMESTAMP(record.timestamp_ms), RD_KAFKA_V_HEADERS(headers),
        RD_KAFKA_V_OPAQUE(opaque), RD_KAFKA_V_END);
    if (result != RD_KAFKA_RESP_ERR_NO_ERROR)
        rd_kafka_headers_destroy(headers);
    return result;
}

void KafkaProducer::drain() const
{
    std::uint64_t count;
    (void)!read(event_fd_, &count, sizeof(count));
}

void KafkaProducer::purge_unsent() const
{
    (void)rd_kafka_purge(handle_, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_NON_BLOCKING);
}

std::string KafkaProducer::fatal_error() const
{
    char text[512];
    const rd_kafka_resp_err_t error = rd_kafka_fatal_error(handle_, text, sizeof(text));
    return error == RD_KAFKA_RESP_ERR_NO_ERROR ? std::string{} : std::string(text);
}

} // namespace outbox::sink
