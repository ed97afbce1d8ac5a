// load_client SETUP TRANSACTION RATE EVENTS CONNECTIONS [URL]: commits events on a fixed schedule,
// independent of how long earlier ones take. SETUP runs once per connection. In TRANSACTION, :key
// and :payload stand for the row that changes and for the event; the client adds the COMMIT. With a
// URL (http://…, kafka://HOST:PORT/TOPIC) the client itself sends the event there, right after its
// commit.
// Prints a line per event: its number, then, in nanoseconds of CLOCK_MONOTONIC, the times when it
// was due, when COMMIT was sent, and when the result arrived.
#include "clock.hpp"
#include "target.hpp"

#include <libpq-fe.h>

#include <cstdint>
#include <thread>

namespace {

constexpr int business_rows = 10'000;

struct Moments {
    std::int64_t due = 0, commit_sent = 0, committed = 0;
};

struct Plan {
    std::string setup, transaction;
    std::int64_t rate;
    std::vector<Moments> events;
    std::int64_t start = 0;
    std::atomic<std::size_t> next = 0;
};

void sleep_until(std::int64_t moment)
{
    const timespec time{moment / second, moment % second};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) != 0)
        ;
}

[[noreturn]] void die(const std::string& what)
{
    std::fprintf(stderr, "load_client: %s\n", what.c_str());
    std::exit(1);
}

void run(PGconn* connection, const std::string& sql)
{
    PGresult* result = PQexec(connection, sql.c_str());
    const ExecStatusType status = PQresultStatus(result);
    PQclear(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        die(PQerrorMessage(connection));
}

std::string with(std::string text, const std::string& name, const std::string& value)
{
    for (std::size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size())
        text.replace(at, name.size(), value);
    return text;
}

// A connection to the server, and one to the receiver if the client sends the events.
class Producer {
public:
    Producer(Plan& plan, std::unique_ptr<Target> target)
        : plan_(plan), connection_(PQconnectdb("dbname=bench application_name=load_client")),
          target_(std::move(target))
    {
        run(connection_, plan.setup);
    }
    ~Producer() { PQfinish(connection_); }
    Producer(const Producer&) = delete;
    Producer& operator=(const Producer&) = delete;

    void work()
    {
        for (;;) {
            const std::size_t number = plan_.next++;
            if (number >= plan_.events.size())
                return;
            produce(static_cast<std::int64_t>(number), plan_.events[number]);
        }
    }

private:
    void produce(std::int64_t number, Moments& moments)
    {
        const std::string key = std::to_string(number % business_rows + 1);
        const std::string body = payload(number);
        const std::string transaction =
            "BEGIN;" + with(with(plan_.transaction, ":key", key), ":payload", "'" + body + "'");
        moments.due = plan_.start + number * second / plan_.rate;
        sleep_until(moments.due);
        run(connection_, transaction);
        moments.commit_sent = now();
        run(connection_, "COMMIT");
        moments.committed = now();
        if (target_)
            target_->bring(key, body);
    }

    // A payload of 250 bytes, as jsonb prints it.
    static std::string payload(std::int64_t number)
    {
        std::string text =
            "{\"note\": \"\", \"total\": 99.5, \"number\": " + std::to_string(number) + "}";
        return text.insert(10, 250 - text.size(), 'x');
    }

    Plan& plan_;
    PGconn* connection_;
    std::unique_ptr<Target> target_;
};

} // namespace

int main(int argc, char** argv)
{
    if (argc != 6 && argc != 7)
        die("usage: load_client SETUP TRANSACTION RATE EVENTS CONNECTIONS [URL]");
    curl_global_init(CURL_GLOBAL_DEFAULT);
    Plan plan{.setup = argv[1],
              .transaction = argv[2],
              .rate = std::atol(argv[3]),
              .events = std::vector<Moments>(std::strtoul(argv[4], nullptr, 10))};
    Targets targets(argc == 7 ? argv[6] : "");
    std::vector<std::unique_ptr<Producer>> producers;
    for (int left = std::atoi(argv[5]); left > 0; --left)
        producers.push_back(std::make_unique<Producer>(plan, targets.connect()));
    plan.start = now() + second / 10;
    std::vector<std::thread> threads;
    for (auto& producer : producers)
        threads.emplace_back([&producer] { producer->work(); });
    for (std::thread& thread : threads)
        thread.join();
    targets.finish();
    for (std::size_t number = 0; number < plan.events.size(); ++number) {
        const Moments& moments = plan.events[number];
        std::printf("%zu %jd %jd %jd\n", number, static_cast<std::intmax_t>(moments.due),
                    static_cast<std::intmax_t>(moments.commit_sent),
                    static_cast<std::intmax_t>(moments.committed));
    }
}
