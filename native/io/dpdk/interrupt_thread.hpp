// Work done on the thread that serves DPDK's interrupts.
//
// A memif port is taken down by whoever stops it and, when its peer leaves, by that thread, with no lock between the two
// (22.11, memif_disconnect): both close the same descriptors, and the second may hit one that is somebody else's by then,
// which ends in a panic. Done on that thread, the two follow each other.
//
// That thread also unmaps the memory of a peer that leaves, while another may be in a burst that reads it. The burst is
// over in microseconds unless its thread is preempted in it, and who preempts it is as a rule that very thread, as it wakes.
#pragma once

#include <cstdint>

namespace dlcp::dpdk {

// `work(port)` there, and what it answers here. Runs it on this thread if DPDK has no timer for it.
int on_interrupt_thread(int (*work)(std::uint16_t), std::uint16_t port);

// From now on that thread waits for its turn when it wakes, and preempts none of ours.
void keep_interrupt_thread_from_preempting();

}  // namespace dlcp::dpdk
