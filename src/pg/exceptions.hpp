// The boundary between C++ exceptions and the server's longjmp.
//
//   sql_entry(body)     wraps a call from the server: a C++ exception becomes a server error
//   guarded_call(body)  wraps a call of the server: a server error becomes a C++ exception
//
// Two rules make this sound. No object with a destructor lives in a frame that a longjmp can cross:
// code that calls the server without guarded_call() uses trivially destructible objects only. No
// server error is raised inside a C++ handler, and no exception leaves an open PG_TRY.
#pragma once

#include "pg/postgres.hpp"

#include <exception>
#include <type_traits>
#include <utility>

namespace outbox::pg {

// A server error caught by guarded_call(). The transaction remains in the state of the error: a
// handler that does not roll back a subtransaction must let the exception reach sql_entry().
class ServerError : public std::exception {
public:
    explicit ServerError(ErrorData* data) noexcept : data_(data) {}

    const char* what() const noexcept override { return data_->message; }
    int sqlstate() const noexcept { return data_->sqlerrcode; }
    ErrorData* data() const noexcept { return data_; }

private:
    ErrorData* data_; // in the memory context that was current at guarded_call()
};

// A copy of an exception that outlives its handler. Fixed buffers, because a handler must not
// allocate server memory, which can raise, and raise() must not jump over a destructor.
class CapturedException {
public:
    // Copies the current exception. Call inside a handler only.
    void capture() noexcept;
    // Raises the copy as a server error. Call after the handler.
    [[noreturn]] void raise() const;

private:
    static constexpr int text_size = 1024;

    ErrorData* server_error_;
    char sqlstate_[6];
    char message_[text_size];
    char detail_[text_size];
    char hint_[text_size];
};

// Runs the body of an SQL function or callback. A C++ exception becomes a server error, raised
// after the handler is closed; server errors pass through.
template <typename Body>
auto sql_entry(Body&& body) -> decltype(body())
{
    static_assert(std::is_trivially_destructible_v<std::remove_reference_t<Body>>,
                  "a longjmp crosses this frame");
    static_assert(std::is_trivially_destructible_v<CapturedException>,
                  "raise() jumps over this frame");

    CapturedException captured;
    try {
        return std::forward<Body>(body)();
    } catch (...) {
        captured.capture();
    }
    captured.raise();
}

namespace detail {

// Runs `body` inside PG_TRY. Throws ServerError for a server error, and rethrows a C++ exception,
// after PG_END_TRY.
template <typename Body>
void run_guarded(Body&& body)
{
    static_assert(std::is_trivially_destructible_v<std::remove_reference_t<Body>>,
                  "a longjmp crosses the frames of the body");

    const MemoryContext caller = CurrentMemoryContext;
    ErrorData* volatile error = nullptr;
    std::exception_ptr thrown;
    PG_TRY();
    {
        try {
            body();
        } catch (...) {
            thrown = std::current_exception();
        }
    }
    PG_CATCH();
    {
        MemoryContextSwitchTo(caller);
        error = CopyErrorData();
        FlushErrorState();
    }
    PG_END_TRY();

    if (error != nullptr)
        throw ServerError(error);
    if (thrown)
        std::rethrow_exception(thrown);
}

} // namespace detail

// Runs code that calls the server. A server error is thrown as ServerError, so that destructors of
// the calling frames run.
template <typename Body>
auto guarded_call(Body&& body) -> decltype(body())
{
    using Result = decltype(body());
    if constexpr (std::is_void_v<Result>) {
        detail::run_guarded(body);
    } else {
        static_assert(std::is_trivially_copyable_v<Result>, "a longjmp may leave it half made");
        Result result{};
        detail::run_guarded([&] { result = body(); });
        return result;
    }
}

} // namespace outbox::pg
