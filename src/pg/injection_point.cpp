#include "pg/injection_point.hpp"

#ifdef OUTBOX_TEST_PAUSES

#include "pg/postgres.hpp"

#include <cstring>

namespace outbox::pg {

namespace {

char* pauses;
char* failures;

// Returns true if the list contains the text of the step, also inside of another name.
bool contains_step(const char* step, const char* steps)
{
    return std::strstr(steps, step) != nullptr;
}

} // namespace

void injection_point(const char* step)
{
    constexpr long max_microseconds = 5000;
    if (std::strcmp(pauses, "all") == 0 || contains_step(step, pauses))
        pg_usleep(random() % max_microseconds);
    if (contains_step(step, failures))
        ereport(ERROR, (errcode(ERRCODE_OPERATOR_INTERVENTION),
                        errmsg("injected failure at step \"%s\"", step)));
    char point[NAMEDATALEN];
    snprintf(point, sizeof point, "outbox-%s", step);
    run_injection_point(point);
}

void define_injection_point_gucs()
{
    DefineCustomStringVariable("outbox.test_pauses", "Sets the steps that sleep for up to 5 ms.",
                               nullptr, &pauses, "", PGC_SUSET, 0, nullptr, nullptr, nullptr);
    DefineCustomStringVariable("outbox.test_failures", "Sets the steps that fail.", nullptr,
                               &failures, "", PGC_SUSET, 0, nullptr, nullptr, nullptr);
}

} // namespace outbox::pg

#endif
