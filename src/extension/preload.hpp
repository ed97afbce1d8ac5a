#pragma once

namespace outbox {

// True if the library is in shared_preload_libraries. Shared memory, background workers and wakeups
// exist only then.
inline bool preloaded = false;

} // namespace outbox
