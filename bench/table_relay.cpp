// table_relay URL WAIT WORKERS CONCURRENCY: a relay as applications write it, outside the server.
// Each worker reads new rows of events.outbox under FOR UPDATE SKIP LOCKED, posts them, marks them,
// and commits. WAIT is "notify", or the polling interval in milliseconds. Prints "ready" when it
// would see a new event.
#include "poster.hpp"

#include <libpq-fe.h>
#include <poll.h>

#include <chrono>
#include <cstring>
#include <thread>

namespace {

constexpr int batch = 100;

using Result = std::unique_ptr<PGresult, decltype(&PQclear)>;

class Session {
public:
    Session() : connection_(PQconnectdb("dbname=bench application_name=table_relay")) {}
    ~Session() { PQfinish(connection_); }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    Result run(const std::string& sql)
    {
        Result result(PQexec(connection_, sql.c_str()), PQclear);
        const ExecStatusType status = PQresultStatus(result.get());
        if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
            std::fprintf(stderr, "table_relay: %s", PQerrorMessage(connection_));
            std::exit(1);
        }
        return result;
    }

    // Consumes the pending notifications. Returns true if there were any.
    bool was_notified()
    {
        bool any = false;
        PQconsumeInput(connection_);
        while (PGnotify* notification = PQnotifies(connection_)) {
            PQfreemem(notification);
            any = true;
        }
        return any;
    }

    void wait_for_input()
    {
        pollfd input{PQsocket(connection_), POLLIN, 0};
        poll(&input, 1, -1);
    }

private:
    PGconn* connection_;
};

class Worker {
public:
    Worker(const std::string& url, const char* wait, int concurrency)
        : poster_(url, concurrency), listens_(!std::strcmp(wait, "notify")),
          interval_(listens_ ? 0 : std::atoi(wait))
    {
        session_.run("PREPARE claim AS SELECT id, payload, tracking_id, aggregate_id,"
                     " to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
                     " FROM events.outbox WHERE processed_at IS NULL ORDER BY id LIMIT " +
                     std::to_string(batch) + " FOR UPDATE SKIP LOCKED");
        session_.run("PREPARE mark(bigint[]) AS"
                     " UPDATE events.outbox SET processed_at = now() WHERE id = ANY ($1)");
        // Plans as for a large, analyzed table, although the table is empty at first.
        session_.run("SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;"
                     " SET plan_cache_mode = force_generic_plan");
        if (listens_)
            session_.run("LISTEN outbox");
    }

    [[noreturn]] void run()
    {
        for (;;) {
            while (relay_batch() == batch)
                ;
            wait();
        }
    }

private:
    int relay_batch()
    {
        const Result events = session_.run("BEGIN; EXECUTE claim");
        const int count = PQntuples(events.get());
        std::string ids;
        for (int row = 0; row < count; ++row) {
            const auto field = [&](int column) { return PQgetvalue(events.get(), row, column); };
            ids.append(row ? "," : "").append(field(0));
            if (!poster_.has_room())
                poster_.step();
            poster_.post(std::shared_ptr<const Request>(
                new Request{field(1), {field(2), field(3), field(4), field(0)}}));
        }
        while (!poster_.is_idle())
            poster_.step();
        session_.run(count ? "EXECUTE mark('{" + ids + "}'); COMMIT" : "COMMIT");
        return count;
    }

    // The server delivers notifications between transactions, so none is missed.
    void wait()
    {
        if (listens_)
            while (!session_.was_notified())
                session_.wait_for_input();
        else
            std::this_thread::sleep_for(interval_);
    }

    Session session_;
    Poster poster_;
    bool listens_;
    std::chrono::milliseconds interval_;
};

} // namespace

int main(int argc, char** argv)
{
    if (argc != 5) {
        std::fprintf(stderr, "usage: table_relay URL WAIT WORKERS CONCURRENCY\n");
        return 2;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    const int count = std::atoi(argv[3]);
    std::vector<std::unique_ptr<Worker>> workers;
    for (int number = 0; number < count; ++number)
        workers.push_back(std::make_unique<Worker>(argv[1], argv[2], std::atoi(argv[4]) / count));
    std::puts("ready");
    std::fflush(stdout);
    std::vector<std::thread> threads;
    for (auto& worker : workers)
        threads.emplace_back([&worker] { worker->run(); });
    for (std::thread& thread : threads)
        thread.join();
}
