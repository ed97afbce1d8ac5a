// Named steps at which a test can pause or fail the code, in builds with -DOUTBOX_TEST_PAUSES only.
// Steps named in outbox.test_pauses ("all": every step) sleep for a random time up to 5 ms, those
// in outbox.test_failures raise an error. On a server with injection points each step runs the
// point outbox-STEP. In other builds injection_point() is empty.
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
