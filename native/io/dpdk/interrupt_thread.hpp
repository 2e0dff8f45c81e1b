// The thread that serves DPDK's interrupts, kept away from memif ports that are in use.
//
// That thread takes a memif port down when its peer leaves, with no lock against the others (22.11, memif_disconnect):
// it unmaps the memory that a burst may be reading, and closes descriptors that whoever stops the port closes as well;
// the first is a fault, the second ends in a panic. So while a driver has memif ports the thread is held, in a callback
// of ours, and let through now and then, when nobody is in a burst; and ports are stopped on that thread.
#pragma once

#include <cstdint>
#include <mutex>

namespace dlcp::dpdk {

// `work(port)` on that thread, and what it answers here. Runs it on this thread if DPDK has no timer for it, or that thread
// does not come to it within seconds. -ETIMEDOUT: that thread does not come back from it.
int on_interrupt_thread(int (*work)(std::uint16_t), std::uint16_t port);

// Whoever uses memif ports holds this meanwhile, in bursts as well as when it lets the thread through. Gives way to who
// stops a port: somebody who polls would else take it again before the other has woken.
std::unique_lock<std::recursive_mutex> lock_memif();

// Holds the interrupt thread as long as it lives.
class InterruptHold {
public:
    InterruptHold();
    ~InterruptHold();
    InterruptHold(const InterruptHold&) = delete;
    InterruptHold& operator=(const InterruptHold&) = delete;
};

// Lets it serve what there is, and returns when it is held again: after pass_us and what that takes. Nothing if nobody
// holds it.
void let_interrupts_pass();
inline constexpr std::uint64_t pass_us = 100;

}  // namespace dlcp::dpdk
