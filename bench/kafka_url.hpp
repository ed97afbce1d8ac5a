#pragma once

#include <stdexcept>
#include <string>

// kafka://HOST:PORT/TOPIC
struct KafkaUrl {
    std::string broker;
    std::string topic;

    static constexpr const char* scheme = "kafka://";

    static bool fits(const std::string& text) { return text.starts_with(scheme); }

    explicit KafkaUrl(const std::string& text)
    {
        const std::size_t start = std::string(scheme).size();
        const std::size_t slash = text.find('/', start);
        if (!fits(text) || slash == std::string::npos)
            throw std::runtime_error("not kafka://HOST:PORT/TOPIC: " + text);
        broker = text.substr(start, slash - start);
        topic = text.substr(slash + 1);
    }
};
