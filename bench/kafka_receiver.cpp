// kafka_receiver URL EVENTS: reads a topic, and notes when it has each event, known by the number
// in its value. Prints the URL when it would see an event; "all" once every event from 0 on has
// been there; and, when its input ends, a line per event: its number, when it came first, in
// nanoseconds of CLOCK_MONOTONIC, and how many times it came.
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
