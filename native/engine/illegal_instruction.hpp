// Whether code runs on this processor, tried.
//
// A library may take instructions that the processor lacks: libaegis of aeg 0.10.6 takes those of AVX-512 where there is
// VAES alone. As OpenSSL asks ARM processors (crypto/armcap.c): a signal handler jumps out of the attempt. The handler is the
// process's for that long, so whatever is tried is short, and owns nothing that a destructor would have to free.
#pragma once

#include <csetjmp>
#include <csignal>

namespace dlcp {

// What `attempt` returns; false if it meets an illegal instruction. One caller at a time.
template <class Attempt>
bool runs_here(const Attempt& attempt) {
    static sigjmp_buf behind;
    struct sigaction jump = {};
    struct sigaction before = {};
    jump.sa_handler = [](int) { siglongjmp(behind, 1); };
    sigemptyset(&jump.sa_mask);
    sigaction(SIGILL, &jump, &before);
    const bool result = sigsetjmp(behind, 1) == 0 && attempt();
    sigaction(SIGILL, &before, nullptr);
    return result;
}

}  // namespace dlcp
