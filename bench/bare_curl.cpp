// bare_curl URL REQUESTS CONCURRENCY BODY: the throughput of libcurl's multi interface alone. Sends
// one request repeatedly and prints the seconds that it took.
#include "poster.hpp"

#include <chrono>

int main(int argc, char** argv)
{
    if (argc != 5) {
        std::fprintf(stderr, "usage: bare_curl URL REQUESTS CONCURRENCY BODY\n");
        return 2;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    const long requests = std::atol(argv[2]);
    Poster poster(argv[1], std::atoi(argv[3]));
    const std::shared_ptr<const Request> request(new Request{argv[4], made_up_headers()});

    const auto start = std::chrono::steady_clock::now();
    for (long sent = 0; sent < requests; ++sent) {
        if (!poster.has_room())
            poster.step();
        poster.post(request);
    }
    while (!poster.is_idle())
        poster.step();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("%.6f\n", seconds.count());
}
