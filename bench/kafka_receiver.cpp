// kafka_receiver URL EVENTS: reads a topic and records the arrivals of events, identified by the
// number in the value. Prints the URL when it is ready to read; "all" when every event from 0 on
// has arrived; and, at the end of its input, a line per event: its number, the time of its first
// arrival in nanoseconds of CLOCK_MONOTONIC, and its number of arrivals.
#include "arrivals.hpp"
#include "clock.hpp"
#include "kafka_reader.hpp"

#include <unistd.h>

#include <atomic>
#include <thread>

int main(int argc, char** argv)
{
    if (argc != 3) {
        std::fprintf(stderr, "usage: kafka_receiver URL EVENTS\n");
        return 2;
    }
    Arrivals arrivals(std::strtoul(argv[2], nullptr, 10));
    KafkaReader reader(KafkaUrl(argv[1]), KafkaReader::From::now);
    std::atomic<bool> is_over = false;
    std::thread input([&] {
        char byte;
        while (read(STDIN_FILENO, &byte, 1) > 0)
            ;
        is_over = true;
    });
    say(argv[1]);
    while (!is_over)
        if (const KafkaReader::Record record = reader.next(100))
            arrivals.note({static_cast<const char*>(record->payload), record->len}, now());
    input.join();
    arrivals.print();
}
