// C11 threads, as librdkafka uses them, implemented with POSIX threads. ThreadSanitizer intercepts
// only the latter, and fails in a thread whose start it has not seen. In glibc both are the same
// objects under different names. Functions of a program take precedence over those of the C
// library, also for calls from shared libraries.
#include <pthread.h>
#include <threads.h>

#include <cerrno>
#include <cstdint>
#include <memory>

static_assert(sizeof(thrd_t) == sizeof(pthread_t));
static_assert(sizeof(mtx_t) >= sizeof(pthread_mutex_t));
static_assert(sizeof(cnd_t) >= sizeof(pthread_cond_t));
static_assert(sizeof(once_flag) == sizeof(pthread_once_t));

namespace {

struct Start {
    thrd_start_t function;
    void* argument;
};

void* run(void* given)
{
    const std::unique_ptr<Start> start(static_cast<Start*>(given));
    return reinterpret_cast<void*>(static_cast<std::intptr_t>(start->function(start->argument)));
}

pthread_mutex_t* posix(mtx_t* mutex)
{
    return reinterpret_cast<pthread_mutex_t*>(mutex);
}

pthread_cond_t* posix(cnd_t* condition)
{
    return reinterpret_cast<pthread_cond_t*>(condition);
}

int in_c11(int error)
{
    switch (error) {
    case 0:
        return thrd_success;
    case ENOMEM:
        return thrd_nomem;
    case ETIMEDOUT:
        return thrd_timedout;
    case EBUSY:
        return thrd_busy;
    default:
        return thrd_error;
    }
}

} // namespace

extern "C" {

int thrd_create(thrd_t* thread, thrd_start_t function, void* argument)
{
    auto start = std::make_unique<Start>(Start{function, argument});
    const int error = pthread_create(thread, nullptr, run, start.get());
    if (error == 0)
        (void)start.release(); // the thread frees it
    return in_c11(error);
}

int thrd_join(thrd_t thread, int* result)
{
    void* value = nullptr;
    const int error = pthread_join(thread, &value);
    if (result != nullptr)
        *result = static_cast<int>(reinterpret_cast<std::intptr_t>(value));
    return in_c11(error);
}

int mtx_init(mtx_t* mutex, int type)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    if ((type & mtx_recursive) != 0)
        pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    const int error = pthread_mutex_init(posix(mutex), &attributes);
    pthread_mutexattr_destroy(&attributes);
    return in_c11(error);
}

void mtx_destroy(mtx_t* mutex)
{
    pthread_mutex_destroy(posix(mutex));
}

int mtx_lock(mtx_t* mutex)
{
    return in_c11(pthread_mutex_lock(posix(mutex)));
}

int mtx_unlock(mtx_t* mutex)
{
    return in_c11(pthread_mutex_unlock(posix(mutex)));
}

int cnd_init(cnd_t* condition)
{
    return in_c11(pthread_cond_init(posix(condition), nullptr));
}

void cnd_destroy(cnd_t* condition)
{
    pthread_cond_destroy(posix(condition));
}

int cnd_signal(cnd_t* condition)
{
    return in_c11(pthread_cond_signal(posix(condition)));
}

int cnd_broadcast(cnd_t* condition)
{
    return in_c11(pthread_cond_broadcast(posix(condition)));
}

int cnd_wait(cnd_t* condition, mtx_t* mutex)
{
    return in_c11(pthread_cond_wait(posix(condition), posix(mutex)));
}

int cnd_timedwait(cnd_t* condition, mtx_t* mutex, const timespec* until)
{
    return in_c11(pthread_cond_timedwait(posix(condition), posix(mutex), until));
}

void call_once(once_flag* flag, void (*function)(void))
{
    pthread_once(reinterpret_cast<pthread_once_t*>(flag), function);
}
}
