#include "sink/http/http_sink.hpp"

#include "core/error.hpp"
#include "sink/format/cloudevents.hpp"
#include "sink/http/http_response.hpp"
#include "sink/util/block_signals.hpp"
#include "sink/util/read_file.hpp"
#include "sink/util/sanitize_text.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ctime>
#include <system_error>

namespace outbox::sink {

namespace {

// Limit for the body of a response, and another as large for its headers: receivers may send
// without end.
constexpr std::size_t max_response_bytes = 64 * 1024;

// Length of DeliveryResult::reason, which is stored as the last error of a message.
constexpr std::size_t max_reason_bytes = 512;

// Limits for the bytes that proxies send before the connection is established, because libcurl does
// not return while it gets them. A transfer ends when its proxy has sent more than max_proxy_bytes;
// also when its proxy has sent more than proxy_bytes_threshold (usual responses are smaller) and
// all proxies together more than max_proxy_bytes within one call of libcurl.
constexpr std::size_t max_proxy_bytes = 32 * 1024;
constexpr std::size_t proxy_bytes_threshold = 4 * 1024;

// Bytes of a response body that are searched for secrets before the text is cut to
// max_reason_bytes: a secret that is cut first would not be recognized.
constexpr std::size_t max_kept_response_bytes = 8 * 1024;

// Raises 58000 if libcurl refuses the option.
template <typename Value>
void set_option(CURL* easy, CURLoption option, Value value)
{
    const CURLcode result = curl_easy_setopt(easy, option, value);
    if (result != CURLE_OK)
        throw Error("58000", std::string("could not set an option of libcurl: ") +
                                 curl_easy_strerror(result));
}

// Sets an option to data that libcurl does not copy: `value` must outlive the handle. Does nothing
// if it is empty. Raises 58000.
void set_optional_blob(CURL* easy, CURLoption option, const std::string& value)
{
    if (value.empty())
        return;
    curl_blob blob = {const_cast<char*>(value.data()), value.size(), CURL_BLOB_NOCOPY};
    set_option(easy, option, &blob);
}

// Returns the content of a file; empty for an empty path. Raises F0000 or std::system_error.
// libcurl, if it read the file, would block on a FIFO.
std::string read_optional_file(const char* what, const std::string& path)
{
    return path.empty() ? std::string() : read_small_file(what, path);
}

// Returns true from libcurl 8 on. Earlier, libcurl could miss a response over HTTP/2 that came
// before the request's body was sent, until the request timed out.
bool has_reliable_http2()
{
    constexpr unsigned version_8 = 0x080000;
    return curl_version_info(CURLVERSION_NOW)->version_num >= version_8;
}

} // namespace

HttpSink::Transfer::~Transfer()
{
    curl_easy_cleanup(easy);
}

HttpSink::HttpSink(HttpConfig config, Secrets secrets, SinkContext sink_context)
    : config_(std::move(config)), secrets_(std::move(secrets)),
      sink_context_(std::move(sink_context))
{
    for (const std::string& secret : {config_.secret, config_.previous_secret})
        if (!secret.empty())
            signing_secrets_.push_back(WebhookSecret::parse(secret));
    ca_certificate_ = read_optional_file("ca_file", config_.ca_file);
    client_cert_ = read_optional_file("client_cert", config_.client_cert);
    client_key_ = read_optional_file("client_key", config_.client_key);
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ < 0)
        throw std::system_error(errno, std::generic_category(), "epoll_create1()");
    multi_ = curl_multi_init();
    if (multi_ == nullptr) {
        close(epoll_);
        throw std::bad_alloc();
    }
    curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
    curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
    curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(config_.concurrency));
}

HttpSink::~HttpSink()
{
    cancel_all();
    const SignalsBlocked signals_blocked;
    idle_transfers_.clear();
    curl_multi_cleanup(multi_);
    close(epoll_);
}

std::size_t HttpSink::max_events_per_request() const
{
    return config_.format == HttpFormat::batch ? static_cast<std::size_t>(config_.batch) : 1;
}

// ---- requests

// Sets the options that are the same for all requests, once per transfer: transfers are reused.
// Connections and TLS sessions belong to the multi handle. Raises 58000.
void HttpSink::configure(Transfer& transfer)
{
    CURL* easy = transfer.easy;
    set_option(easy, CURLOPT_URL, config_.url.c_str());
    set_option(easy, CURLOPT_CUSTOMREQUEST, config_.method.c_str());
    set_option(easy, CURLOPT_POST, 1L);
    set_option(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    set_option(easy, CURLOPT_FOLLOWLOCATION, 0L);
    set_option(easy, CURLOPT_NOSIGNAL, 1L);
    set_option(easy, CURLOPT_QUICK_EXIT, 1L);
    // libcurl calls on_progress() at every step, so only proxies, which need it, switch it on.
    set_option(easy, CURLOPT_NOPROGRESS, config_.proxy.empty() ? 1L : 0L);
    set_option(easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    set_option(easy, CURLOPT_XFERINFODATA, &transfer);
    const bool http2 = config_.http2.value_or(has_reliable_http2());
    set_option(easy, CURLOPT_HTTP_VERSION, http2 ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1);
    // With PIPEWAIT, requests wait until a new connection is known to support multiplexing. TLS
    // tells that in the handshake; without TLS they would wait for a first response.
    set_option(easy, CURLOPT_PIPEWAIT, http2 && config_.url.starts_with("https:") ? 1L : 0L);
    set_option(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(config_.timeout_ms));
    set_option(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(config_.connect_timeout_ms));
    set_option(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    set_option(easy, CURLOPT_HEADERFUNCTION, on_header);
    set_option(easy, CURLOPT_HEADERDATA, &transfer);
    set_option(easy, CURLOPT_WRITEFUNCTION, on_response_body);
    set_option(easy, CURLOPT_WRITEDATA, &transfer);
    set_option(easy, CURLOPT_ERRORBUFFER, transfer.error);
    set_option(easy, CURLOPT_PRIVATE, &transfer);
    // Always set, also to "", because libcurl would otherwise use http_proxy and no_proxy from the
    // environment of the server.
    set_option(easy, CURLOPT_PROXY, config_.proxy.c_str());
    set_option(easy, CURLOPT_NOPROXY, "");
    set_optional_blob(easy, CURLOPT_CAINFO_BLOB, ca_certificate_);
    set_optional_blob(easy, CURLOPT_SSLCERT_BLOB, client_cert_);
    set_optional_blob(easy, CURLOPT_SSLKEY_BLOB, client_key_);
    set_option(easy, CURLOPT_OPENSOCKETFUNCTION, on_open_socket);
    set_option(easy, CURLOPT_OPENSOCKETDATA, &transfer);
    set_option(easy, CURLOPT_CLOSESOCKETFUNCTION, on_close_socket);
    set_option(easy, CURLOPT_CLOSESOCKETDATA, this);
}

std::unique_ptr<HttpSink::Transfer> HttpSink::acquire_transfer()
{
    if (!idle_transfers_.empty()) {
        auto transfer = std::move(idle_transfers_.back());
        idle_transfers_.pop_back();
        return transfer;
    }
    auto transfer = std::make_unique<Transfer>();
    transfer->sink = this;
    transfer->easy = curl_easy_init();
    if (transfer->easy == nullptr)
        throw std::bad_alloc();
    configure(*transfer);
    return transfer;
}

// Adds the headers webhook-timestamp, the time of the attempt, and webhook-signature, which has one
// signature per secret. Adds nothing without signing secrets.
void HttpSink::sign(Transfer& transfer, const std::string& id) const
{
    if (signing_secrets_.empty())
        return;
    const std::int64_t now = std::time(nullptr);
    std::string signatures;
    for (const WebhookSecret& secret : signing_secrets_)
        signatures += (signatures.empty() ? "" : " ") + secret.sign(id, now, transfer.body);
    transfer.headers.push_back("webhook-timestamp: " + std::to_string(now));
    transfer.headers.push_back("webhook-signature: " + signatures);
}

// Adds the headers of the config and the signature, then builds the header list: in memory of the
// transfer instead of by curl_slist_append(), to avoid allocations.
void HttpSink::add_headers(Transfer& transfer, const std::string& id) const
{
    // Removes the header "Expect: 100-continue", which libcurl adds to large requests.
    transfer.headers.push_back("Expect:");
    for (const auto& [name, value] : config_.headers)
        transfer.headers.push_back(name + ": " + value);
    sign(transfer, id);
    transfer.header_list.resize(transfer.headers.size());
    for (std::size_t i = 0; i < transfer.headers.size(); ++i)
        transfer.header_list[i] = {transfer.headers[i].data(), &transfer.header_list[i] + 1};
    transfer.header_list.back().next = nullptr;
}

std::optional<DeliveryResult> HttpSink::send(RequestId request_id,
                                             std::span<const Event* const> events, StreamId)
{
    std::unique_ptr<Transfer> transfer = acquire_transfer();
    RenderedRequest rendered = render_request(events, config_.format, sink_context_.source);
    transfer->request_id = request_id;
    transfer->body = std::move(rendered.body);
    transfer->response_start.clear();
    transfer->response_bytes = transfer->response_header_bytes = transfer->proxy_bytes = 0;
    transfer->expects_status_line = true;
    transfer->http_status.reset();
    transfer->response_truncated = transfer->address_denied = transfer->proxy_limit_exceeded =
        false;
    transfer->error[0] = '\0';
    transfer->headers = std::move(rendered.headers);
    add_headers(*transfer, rendered.id);

    CURL* easy = transfer->easy;
    set_option(easy, CURLOPT_HTTPHEADER, transfer->header_list.data());
    set_option(easy, CURLOPT_POSTFIELDS, transfer->body.data());
    set_option(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(transfer->body.size()));
    if (curl_multi_add_handle(multi_, easy) != CURLM_OK)
        throw Error("58000", "curl_multi_add_handle() failed");
    in_flight_.emplace(easy, std::move(transfer));
    return std::nullopt;
}

void HttpSink::flush()
{
    const SignalsBlocked signals_blocked;
    int running = 0;
    proxy_bytes_in_call_ = 0;
    curl_multi_socket_action(multi_, CURL_SOCKET_TIMEOUT, 0, &running);
    // Transfers that have ended within the call make no socket readable: the timer lets poll() run.
    if (static_cast<std::size_t>(running) < in_flight_.size())
        timer_ = Clock::now();
}

// ---- callbacks of libcurl

// Adds, changes or removes a descriptor in the epoll set. An idle connection stays in the set: most
// are used again at once, and each change is a system call. Other descriptors, of the resolver for
// example, are removed, because libcurl closes them without on_close_socket().
int HttpSink::on_socket(CURL*, curl_socket_t socket, int what, void* self, void*)
{
    auto& sink = *static_cast<HttpSink*>(self);
    const auto known = sink.watched_sockets_.find(socket);
    if (what == CURL_POLL_REMOVE) {
        if (known != sink.watched_sockets_.end() && known->second.is_connection)
            known->second.is_in_use = false;
        else
            sink.unwatch(socket);
        return 0;
    }
    epoll_event event = {};
    event.data.fd = socket;
    event.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    WatchedSocket& watched = sink.watched_sockets_[socket];
    if (watched.events != event.events) {
        const int change = watched.events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
        if (epoll_ctl(sink.epoll_, change, socket, &event) != 0)
            return -1;
    }
    watched.events = event.events;
    watched.is_in_use = true;
    return 0;
}

void HttpSink::unwatch(int socket)
{
    // Fails if the descriptor is closed already, which has removed it from the set.
    (void)epoll_ctl(epoll_, EPOLL_CTL_DEL, socket, nullptr);
    watched_sockets_.erase(socket);
}

int HttpSink::on_timer(CURLM*, long milliseconds, void* self)
{
    auto& timer = static_cast<HttpSink*>(self)->timer_;
    if (milliseconds < 0)
        timer.reset();
    else
        timer = Clock::now() + std::chrono::milliseconds(milliseconds);
    return 0;
}

// Counts header bytes and reads the status line. libcurl limits headers, but not trailers, and
// keeps both in memory. A response with status 1xx is followed by another response.
std::size_t HttpSink::on_header(char* data, std::size_t size, std::size_t count, void* user)
{
    auto& transfer = *static_cast<Transfer*>(user);
    const std::string_view line(data, size * count);
    transfer.response_header_bytes += line.size();
    constexpr long first_final = 200;
    if (transfer.expects_status_line)
        transfer.http_status = parse_status_line(line);
    const bool is_blank = line == "\r\n" || line == "\n";
    transfer.expects_status_line =
        is_blank && transfer.http_status.value_or(first_final) < first_final;
    return transfer.response_header_bytes > max_response_bytes ? 0 : line.size();
}

std::size_t HttpSink::on_response_body(char* data, std::size_t size, std::size_t count, void* user)
{
    auto& transfer = *static_cast<Transfer*>(user);
    const std::size_t bytes = size * count;
    transfer.response_start.append(
        data, std::min(bytes, max_kept_response_bytes - std::min(transfer.response_start.size(),
                                                                 max_kept_response_bytes)));
    transfer.response_bytes += bytes;
    if (transfer.response_bytes > max_response_bytes) {
        transfer.response_truncated = true;
        return 0; // ends the transfer; the status is known and decides
    }
    return bytes;
}

// Ends transfers whose proxy sends without end. Before the connection is established, libcurl reads
// a proxy's response byte by byte in one call, for as long as there are bytes; its timeout is
// checked afterwards only. It calls this function for each byte.
int HttpSink::on_progress(void* user, curl_off_t, curl_off_t received, curl_off_t, curl_off_t sent)
{
    auto& transfer = *static_cast<Transfer*>(user);
    if (received > 0 || sent > 0)
        return 0;
    const std::size_t bytes_read = ++transfer.proxy_bytes;
    const std::size_t bytes_read_in_call = ++transfer.sink->proxy_bytes_in_call_;
    transfer.proxy_limit_exceeded =
        bytes_read > max_proxy_bytes ||
        (bytes_read > proxy_bytes_threshold && bytes_read_in_call > max_proxy_bytes);
    return transfer.proxy_limit_exceeded ? 1 : 0;
}

// Opens the socket of a connection, after name resolution: here a private address is refused.
curl_socket_t HttpSink::on_open_socket(void* user, curlsocktype, curl_sockaddr* address)
{
    auto& transfer = *static_cast<Transfer*>(user);
    HttpSink& sink = *transfer.sink;
    if (sink.sink_context_.deny_private && is_private_address(&address->addr, address->addrlen)) {
        transfer.address_denied = true;
        return CURL_SOCKET_BAD;
    }
    const int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd >= 0)
        sink.watched_sockets_[fd] = {0, false, true};
    return fd;
}

int HttpSink::on_close_socket(void* self, curl_socket_t socket)
{
    static_cast<HttpSink*>(self)->unwatch(socket);
    return close(socket);
}

// ---- outcomes

void HttpSink::poll(std::vector<DeliveryResult>& results)
{
    constexpr int max_epoll_events = 64;
    epoll_event events[max_epoll_events];
    int found = epoll_wait(epoll_, events, max_epoll_events, 0);
    if (found <= 0 && !timer_expired())
        return;
    const SignalsBlocked signals_blocked;
    int running = 0;
    proxy_bytes_in_call_ = 0;
    for (; found > 0;
         found = found == max_epoll_events ? epoll_wait(epoll_, events, max_epoll_events, 0) : 0) {
        for (int i = 0; i < found; ++i) {
            const std::uint32_t seen = events[i].events;
            const auto watched = watched_sockets_.find(events[i].data.fd);
            if (watched != watched_sockets_.end() && !watched->second.is_in_use) {
                // The receiver has closed an idle connection; libcurl notices when it reuses it.
                (void)epoll_ctl(epoll_, EPOLL_CTL_DEL, watched->first, nullptr);
                watched->second.events = 0;
                continue;
            }
            const int what = (seen & EPOLLIN ? CURL_CSELECT_IN : 0) |
                             (seen & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                             (seen & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
            curl_multi_socket_action(multi_, events[i].data.fd, what, &running);
        }
    }
    if (timer_expired()) {
        timer_.reset();
        curl_multi_socket_action(multi_, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
        if (message->msg != CURLMSG_DONE)
            continue;
        const auto found = in_flight_.find(message->easy_handle);
        std::unique_ptr<Transfer> transfer = std::move(found->second);
        in_flight_.erase(found);
        results.push_back(result_of_transfer(*transfer, message->data.result));
        curl_multi_remove_handle(multi_, transfer->easy);
        transfer->body = {}; // frees the memory, which may be large
        idle_transfers_.push_back(std::move(transfer));
    }
}

DeliveryResult HttpSink::result_of_transfer(Transfer& transfer, CURLcode result) const
{
    long http_status = 0;
    curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &http_status);
    // Over HTTP/2, a receiver that responds before it has read the whole body resets the stream
    // behind the response.
    const bool was_answered =
        http_status != 0 && (transfer.response_truncated || result == CURLE_HTTP2_STREAM);
    if (result == CURLE_OK || was_answered)
        return result_of_response(transfer, http_status);
    if (transfer.address_denied)
        return {transfer.request_id,
                DeliveryStatus::unavailable,
                "the host has a private address, and outbox.http_deny_private is on",
                {}};
    // Checked before the error of libcurl, which is a mere write error if on_header() ended it.
    if (transfer.response_header_bytes > max_response_bytes)
        return {transfer.request_id,
                DeliveryStatus::unavailable,
                "the answer has headers larger than " + std::to_string(max_response_bytes / 1024) +
                    " KiB",
                {}};
    if (transfer.proxy_limit_exceeded)
        return {transfer.request_id,
                DeliveryStatus::unavailable,
                "the proxy sent too much data before it connected",
                {}};
    // Old versions of libcurl report a header line that is too long as CURLE_OUT_OF_MEMORY.
    if (result == CURLE_OUT_OF_MEMORY)
        return {transfer.request_id,
                DeliveryStatus::unavailable,
                "the answer has a header that is too long, or there is no memory",
                {}};
    const char* why = transfer.error[0] != '\0' ? transfer.error : curl_easy_strerror(result);
    curl_off_t connected = 0;
    curl_easy_getinfo(transfer.easy, CURLINFO_PRETRANSFER_TIME_T, &connected);
    return {transfer.request_id,
            DeliveryStatus::unavailable,
            redacted_text(why),
            {},
            result == CURLE_OPERATION_TIMEDOUT && connected > 0};
}

DeliveryResult HttpSink::result_of_response(const Transfer& transfer, long http_status) const
{
    // libcurl reports status 200 if it cannot parse the first line.
    if (transfer.http_status != http_status)
        return {transfer.request_id, DeliveryStatus::unavailable, "the answer is not HTTP", {}};
    DeliveryResult result{transfer.request_id,
                          classify_http_status(http_status),
                          "HTTP " + std::to_string(http_status),
                          {}};
    if (result.status == DeliveryStatus::delivered)
        return result;
    constexpr long first_server_error = 500;
    result.may_be_event_fault = http_status >= first_server_error;
    if (!transfer.response_start.empty())
        result.reason = redacted_text(result.reason + ": " + transfer.response_start);
    curl_header* header = nullptr;
    if (curl_easy_header(transfer.easy, "Retry-After", 0, CURLH_HEADER, -1, &header) == CURLHE_OK)
        result.retry_after = parse_retry_after(header->value, std::time(nullptr));
    return result;
}

std::string HttpSink::redacted_text(std::string text) const
{
    secrets_.redact(text);
    return sanitize_text(std::string_view(text).substr(0, max_reason_bytes));
}

void HttpSink::cancel_all()
{
    const SignalsBlocked signals_blocked;
    for (auto& [easy, transfer] : in_flight_) {
        curl_multi_remove_handle(multi_, easy);
        idle_transfers_.push_back(std::move(transfer));
    }
    in_flight_.clear();
}

} // namespace outbox::sink
