// The boundary between C++ exceptions and the server's longjmp.
//
//   sql_entry(body)     the server calls us: whatever C++ throws leaves as an ordinary server error
//   guarded_call(body)  C++ calls the server: an error of the server arrives as a C++ exception
//
// Two rules make this sound. No object with a destructor lives in a frame that a longjmp may cross:
// code that calls the server without `guarded_call` keeps to trivially destructible objects. And no
// server error is raised while a C++ handler is open, no exception leaves an open PG_TRY.
#pragma once

#include "pg/postgres.hpp"

#include <exception>
#include <type_traits>
#include <utility>

namespace outbox::pg {

// An error that the server raised inside `guarded_call`. After catching one the transaction is in
// the state that the server's error left it in: unless a subtransaction was rolled back, let it go
// on to `sql_entry`.
class ServerError : public std::exception {
public:
    explicit ServerError(ErrorData* data) noexcept : data_(data) {}

    const char* what() const noexcept override { return data_->message; }
    int sqlstate() const noexcept { return data_->sqlerrcode; }
    ErrorData* data() const noexcept { return data_; }

private:
    ErrorData* data_; // lives in the memory context that was current at `guarded_call`
};

// What is known of an exception once its handler is closed. Fixed buffers, because a handler may
// neither allocate server memory (that can raise) nor leave a destructor behind (raise() jumps).
class CapturedException {
public:
    // Call inside a handler only.
    void capture() noexcept;
    [[noreturn]] void raise() const;

private:
    static constexpr int text_size = 1024;

    ErrorData* server_error_;
    char sqlstate_[6];
    char message_[text_size];
    char detail_[text_size];
    char hint_[text_size];
};

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

// Runs `body` under PG_TRY. Both kinds of failure are carried out of it and thrown afterwards.
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
