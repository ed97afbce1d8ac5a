// The request of every contestant: the one that the relay makes of an event, CloudEvents in binary
// mode, so that all of them pass the same headers and number of bytes to libcurl.
#pragma once

#include <curl/curl.h>

#include <cstddef>
#include <string>

class Headers {
public:
    Headers(const std::string& tracking_id, const std::string& key, const std::string& time,
            const std::string& sequence)
    {
        add("Content-Type: application/json");
        add("ce-specversion: 1.0");
        add("ce-id: " + tracking_id);
        add("ce-type: OrderConfirmed");
        add("ce-time: " + time);
        add("ce-source: /bench");
        add("ce-subject: Order/" + key);
        add("ce-partitionkey: " + key);
        add("ce-sequence: " + std::string(19 - sequence.size(), '0') + sequence);
        add("ce-tenantid: 0");
        add("ce-eventversion: 1");
        add("webhook-id: " + tracking_id);
        add("Idempotency-Key: \"" + tracking_id + "\"");
    }
    ~Headers() { curl_slist_free_all(list_); }
    Headers(const Headers&) = delete;
    Headers& operator=(const Headers&) = delete;

    curl_slist* list() const { return list_; }

private:
    void add(const std::string& line) { list_ = curl_slist_append(list_, line.c_str()); }

    curl_slist* list_ = nullptr;
};

// For contestants that do not read events from a table: values of realistic length.
inline Headers made_up_headers()
{
    return {"01890a5d-ac96-774b-bcce-b302099a8057", "4711", "2026-01-02T03:04:05.123456Z", "4711"};
}

struct Request {
    std::string body;
    Headers headers;
};

inline std::size_t ignore_answer(char*, std::size_t size, std::size_t count, void*)
{
    return size * count;
}

// A handle that keeps its connection.
inline CURL* new_post(const std::string& url)
{
    CURL* easy = curl_easy_init();
    curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, ignore_answer);
    return easy;
}

// The caller keeps body and headers until the transfer has ended.
inline void set_request(CURL* easy, const std::string& body, const Headers& headers)
{
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body.data());
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.list());
}

// Returns "" on success, else the error. No request may fail in a benchmark: a failure is an error
// of the setup.
inline std::string status_message(CURL* easy, CURLcode result)
{
    long status = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    if (result != CURLE_OK)
        return curl_easy_strerror(result);
    return status / 100 == 2 ? "" : "status " + std::to_string(status);
}
