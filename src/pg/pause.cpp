#include "pg/pause.hpp"

#ifdef OUTBOX_TEST_PAUSES

#include "pg/prelude.hpp"

#include <cstring>

namespace outbox::pg {

namespace {

char* steps;

} // namespace

void pause_at(const char* step)
{
    constexpr long longest = 5000;
    if (std::strcmp(steps, "all") == 0 || std::strstr(steps, step) != nullptr)
        pg_usleep(random() % longest);
}

void define_pauses()
{
    DefineCustomStringVariable("outbox.test_pauses", "Steps that sleep a little.", nullptr, &steps,
                               "", PGC_SUSET, 0, nullptr, nullptr, nullptr);
}

} // namespace outbox::pg

#endif
