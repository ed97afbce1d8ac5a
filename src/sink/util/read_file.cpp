#include "sink/util/read_file.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <iterator>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace outbox::sink {

namespace {

// 1 MiB, far above the size of certificates and secrets files; limits the memory for a wrong path.
constexpr std::size_t max_file_bytes = 1 << 20;

// Closes a file descriptor.
class Descriptor {
public:
    explicit Descriptor(int fd) : fd_(fd) {}
    ~Descriptor()
    {
        if (fd_ >= 0)
            close(fd_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    int get() const { return fd_; }

private:
    int fd_;
};

// Raises std::system_error if the errno `error` is temporary, otherwise F0000.
[[noreturn]] void refuse(const char* what, const std::string& path, int error)
{
    // Temporary errors: the file itself may be usable, so the config must not be called wrong.
    constexpr int transient[] = {EMFILE, ENFILE, ENOMEM, EINTR, EAGAIN, EIO, ESTALE, ETIMEDOUT};
    if (std::ranges::find(transient, error) != std::end(transient))
        throw std::system_error(error, std::generic_category(),
                                std::string("could not open ") + what);
    if (error == ELOOP)
        refuse_file(what, path, "it is a symbolic link", "Use the path of the file itself.");
    refuse_file(what, path, std::generic_category().message(error),
                "The file must exist and be readable by the user that runs the server.");
}

} // namespace

void refuse_file(const char* what, const std::string& path, const std::string& why,
                 std::string hint)
{
    throw Error("F0000", std::string("could not use ") + what + " \"" + path + "\": " + why, {},
                std::move(hint));
}

std::string read_small_file(const char* what, const std::string& path, int more_flags,
                            const std::function<void(const struct stat&)>& check)
{
    const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | more_flags));
    if (file.get() < 0)
        refuse(what, path, errno);
    // fstat() checks the open file, so that it cannot be replaced between check and read.
    struct stat status;
    if (fstat(file.get(), &status) != 0)
        refuse(what, path, errno);
    if (!S_ISREG(status.st_mode))
        refuse_file(what, path, "it is not a regular file", "Use the path of a regular file.");
    if (check)
        check(status);
    std::string text;
    std::vector<char> buffer(64 * 1024);
    for (;;) {
        const ssize_t size = read(file.get(), buffer.data(), buffer.size());
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0)
            refuse(what, path, errno);
        if (size == 0)
            return text;
        text.append(buffer.data(), static_cast<std::size_t>(size));
        if (text.size() > max_file_bytes)
            refuse_file(what, path, "it is larger than 1 MiB",
                        "Move everything that the sinks do not need to another file.");
    }
}

} // namespace outbox::sink
