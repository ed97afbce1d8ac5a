// Requests over keep-alive connections, several at a time: the event loop of libcurl's manual for
// its multi interface. For few connections it is as fast as a loop on epoll.
#pragma once

#include "request.hpp"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

class Poster {
public:
    Poster(const std::string& url, int concurrency) : multi_(curl_multi_init())
    {
        curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(concurrency));
        for (int number = 0; number < concurrency; ++number) {
            slots_.push_back(std::make_unique<Slot>(Slot{new_post(url), nullptr}));
            curl_easy_setopt(slots_.back()->easy, CURLOPT_PRIVATE, slots_.back().get());
            free_.push_back(slots_.back().get());
        }
    }
    Poster(const Poster&) = delete;
    Poster& operator=(const Poster&) = delete;
    ~Poster()
    {
        for (auto& slot : slots_) {
            curl_multi_remove_handle(multi_, slot->easy);
            curl_easy_cleanup(slot->easy);
        }
        curl_multi_cleanup(multi_);
    }

    bool has_room() const { return !free_.empty(); }
    bool is_idle() const { return free_.size() == slots_.size(); }

    // Requires a free transfer.
    void post(std::shared_ptr<const Request> request)
    {
        Slot* slot = free_.back();
        free_.pop_back();
        set_request(slot->easy, request->body, request->headers);
        slot->request = std::move(request);
        curl_multi_add_handle(multi_, slot->easy);
    }

    // Drives the transfers until at least one of them has ended. Requires a running transfer.
    void step()
    {
        const std::size_t before = free_.size();
        for (;;) {
            int running = 0;
            curl_multi_perform(multi_, &running);
            take_finished();
            if (free_.size() > before)
                return;
            curl_multi_poll(multi_, nullptr, 0, 1000, nullptr);
        }
    }

private:
    struct Slot {
        CURL* easy;
        std::shared_ptr<const Request> request;
    };

    void take_finished()
    {
        int left = 0;
        while (CURLMsg* message = curl_multi_info_read(multi_, &left)) {
            CURL* easy = message->easy_handle;
            const std::string wrong = status_message(easy, message->data.result);
            if (!wrong.empty()) {
                std::fprintf(stderr, "POST: %s\n", wrong.c_str());
                std::exit(1);
            }
            Slot* slot = nullptr;
            curl_easy_getinfo(easy, CURLINFO_PRIVATE, &slot);
            curl_multi_remove_handle(multi_, easy);
            slot->request.reset();
            free_.push_back(slot);
        }
    }

    CURLM* multi_;
    std::vector<std::unique_ptr<Slot>> slots_;
    std::vector<Slot*> free_;
};
