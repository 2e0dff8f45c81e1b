// Whether code runs on this processor, tried.
//
// A library may take instructions that the processor lacks: libaegis of aeg 0.10.6 takes those of AVX-512 where there is
// VAES alone. As OpenSSL asks ARM processors (crypto/armcap.c): a signal handler jumps out of the attempt. The handler is the
// process's for that long, so whatever is tried is short, and owns nothing that a destructor would have to free. An illegal
// instruction of another thread meanwhile goes to whom it would have gone to.
#pragma once

#include <csetjmp>
#include <csignal>

namespace dlcp {

// What `attempt` returns; false if it meets an illegal instruction. One caller at a time.
template <class Attempt>
bool runs_here(const Attempt& attempt) {
    static sigjmp_buf behind;
    static thread_local bool trying = false;
    static struct sigaction before = {};
    struct sigaction jump = {};
    jump.sa_handler = [](int) {
        if (trying) siglongjmp(behind, 1);
        sigaction(SIGILL, &before, nullptr);  // the instruction is met again
    };
    sigemptyset(&jump.sa_mask);
    trying = true;
    sigaction(SIGILL, &jump, &before);
    volatile bool result = false;
    if (sigsetjmp(behind, 1) == 0) result = attempt();
    sigaction(SIGILL, &before, nullptr);
    trying = false;
    return result;
}

}  // namespace dlcp
