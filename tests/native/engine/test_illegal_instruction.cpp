// runs_here: an attempt's answer, and what an illegal instruction makes of it.
#include "engine/illegal_instruction.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#if defined(__x86_64__)

namespace dlcp {

TEST_CASE("illegal instruction: an attempt that meets one has failed, and the handler before is back") {
    CHECK(runs_here([] { return true; }));
    CHECK_FALSE(runs_here([] { return false; }));
    CHECK_FALSE(runs_here([] {
        __asm__ volatile("ud2");
        return true;
    }));
    CHECK(runs_here([] { return true; }));
    struct sigaction now = {};
    struct sigaction before = {};
    struct sigaction own = {};
    own.sa_handler = SIG_IGN;
    sigaction(SIGILL, &own, &before);
    CHECK_FALSE(runs_here([] {
        __asm__ volatile("ud2");
        return true;
    }));
    sigaction(SIGILL, &before, &now);
    const bool is_back = now.sa_handler == SIG_IGN;
    CHECK(is_back);
}

// In a child, since it ends the process.
TEST_CASE("illegal instruction: another thread's is not the attempt's") {
    const pid_t child = fork();
    if (child == 0) {
        runs_here([] {
            std::thread([] { __asm__ volatile("ud2"); }).join();
            return true;
        });
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGILL);
}

}  // namespace dlcp

#endif
