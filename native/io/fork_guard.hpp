// Knows whether this process is a fork of the one that made it: then threads are gone and mutexes may be held.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace dlcp {

class ForkGuard {
public:
    ForkGuard() {
        static std::once_flag once;
        std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); }); });
        made_in_ = generation.load();
    }
    // An atomic load: asked at every call of a runtime (getpid() is a system call).
    bool forked() const { return made_in_ != generation.load(std::memory_order_relaxed); }

private:
    inline static std::atomic<std::uint32_t> generation{0};  // forks this process is the child of
    std::uint32_t made_in_ = 0;
};

}  // namespace dlcp
