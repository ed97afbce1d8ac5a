// bare_kafka FROM TO RECORDS: the throughput of librdkafka's producer alone. Reads RECORDS records
// of the topic FROM into memory and prints "ready". For each input line it sends them all to the
// topic TO, with the settings of the Kafka sink and those on the line, as NAME=VALUE, and prints
// the seconds that it took, including the connection.
#include "arrivals.hpp"
#include "bare_producer.hpp"
#include "clock.hpp"
#include "kafka_reader.hpp"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <sstream>

namespace {

// Key, value and headers in one allocation.
class Record {
public:
    explicit Record(const rd_kafka_message_t& message)
    {
        add(message.key, message.key_len);
        add(message.payload, message.len);
        rd_kafka_headers_t* headers = nullptr;
        rd_kafka_message_headers(&message, &headers);
        const char* name;
        const void* value;
        for (std::size_t number = 0, size;
             headers && !rd_kafka_header_get_all(headers, number, &name, &value, &size); ++number) {
            add(name, std::strlen(name));
            add(value, size);
            if (!std::strcmp(name, "ce_sequence"))
                sequence_ = ends_.size() - 1;
        }
    }

    bool operator<(const Record& other) const
    {
        return part(sequence_) < other.part(other.sequence_);
    }

    void send(BareProducer& producer, std::vector<BareProducer::Header>& headers) const
    {
        headers.clear();
        for (std::size_t number = 2; number < ends_.size(); number += 2)
            headers.emplace_back(part(number), part(number + 1));
        producer.send(part(0), part(1), headers);
    }

private:
    void add(const void* bytes, std::size_t size)
    {
        bytes_.append(static_cast<const char*>(bytes), size);
        ends_.push_back(static_cast<std::uint32_t>(bytes_.size()));
    }

    std::string_view part(std::size_t number) const
    {
        const std::size_t start = number == 0 ? 0 : ends_[number - 1];
        return std::string_view(bytes_).substr(start, ends_[number] - start);
    }

    std::string bytes_;
    std::vector<std::uint32_t> ends_;
    std::size_t sequence_ = 0;
};

// In the order in which the relay sent the records, which alternates between the partitions.
std::vector<Record> records_of(const KafkaUrl& url, std::size_t count)
{
    KafkaReader reader(url, KafkaReader::From::beginning);
    std::vector<Record> records;
    while (records.size() < count) {
        const KafkaReader::Record record = reader.next(10'000);
        if (!record)
            throw std::runtime_error("the topic has " + std::to_string(records.size()) +
                                     " records");
        records.emplace_back(*record);
    }
    std::sort(records.begin(), records.end());
    return records;
}

BareProducer::Settings settings_of(const std::string& line)
{
    BareProducer::Settings settings;
    std::istringstream words(line);
    for (std::string word; words >> word;)
        settings.emplace_back(word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
    return settings;
}

void send_all(const std::vector<Record>& records, BareProducer& producer)
{
    std::vector<BareProducer::Header> headers;
    for (const Record& record : records)
        record.send(producer, headers);
    producer.finish();
}

} // namespace

int main(int argc, char** argv)
{
    if (argc != 4) {
        std::fprintf(stderr, "usage: bare_kafka FROM TO RECORDS\n");
        return 2;
    }
    const KafkaUrl to(argv[2]);
    const std::vector<Record> records =
        records_of(KafkaUrl(argv[1]), std::strtoul(argv[3], nullptr, 10));
    say("ready");
    for (std::string line; std::getline(std::cin, line);) {
        const std::int64_t start = now();
        BareProducer producer(to, settings_of(line));
        send_all(records, producer);
        const std::int64_t end = now();
        say(std::to_string(static_cast<double>(end - start) / second));
    }
}
