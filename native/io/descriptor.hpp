// A file descriptor with one owner: closed when the owner goes, and in every child process right after a fork.
//
// A forked child, such as a data loader's worker, never uses the endpoint of its parent (fork_guard.hpp). Copies that it
// kept would keep a port bound after the parent has closed it, and would hide from a peer that the parent has died.
#pragma once

#include <utility>

#include "io/fork_guard.hpp"

namespace dlcp {

class Descriptor {
public:
    Descriptor() = default;
    // Negative: none.
    explicit Descriptor(int number);
    Descriptor(Descriptor&& other) noexcept { swap(other); }
    Descriptor& operator=(Descriptor&& other) noexcept {
        swap(other);
        return *this;
    }
    ~Descriptor();

    int number() const { return number_; }
    explicit operator bool() const { return number_ >= 0; }

private:
    void swap(Descriptor& other) noexcept {
        std::swap(number_, other.number_);
        std::swap(fork_guard_, other.fork_guard_);
    }

    int number_ = -1;
    ForkGuard fork_guard_;  // forked: the number was closed in this process, and may be another file's by now
};

// For a descriptor that a library owns and closes: forked children close it as well, until forget() is called, which
// must come before the library closes it.
void close_in_children(int number);
void forget(int number);

}  // namespace dlcp
