#pragma once

namespace outbox {

// Was the library loaded at server start? Workers and wake-ups exist only then.
inline bool preloaded = false;

} // namespace outbox
