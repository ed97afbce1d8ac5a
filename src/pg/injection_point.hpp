// Moments between two steps that a test can stretch, or end with an error: with
// -DOUTBOX_TEST_PAUSES, the setting outbox.test_pauses names steps ("all" for every one), and each
// of them sleeps at random up to 5 ms; those in outbox.test_failures fail. On a server that has
// injection points, outbox-STEP is one. Otherwise there is nothing.
#pragma once

namespace outbox::pg {

#ifdef OUTBOX_TEST_PAUSES
void injection_point(const char* step);
void define_injection_point_gucs();
#else
inline void injection_point(const char*) {}
inline void define_injection_point_gucs() {}
#endif

} // namespace outbox::pg
