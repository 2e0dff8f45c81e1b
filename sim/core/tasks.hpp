// The order in which a workload's pieces start: a graph of computations, flows and collectives.
//
// A task starts when all edges into it are satisfied, and when its channel lets it. Everything is local to hosts: an
// edge leaves a task at the host where it becomes true (a flow is acknowledged at its source, delivered at its destination)
// and must enter a task of that host; nothing travels but packets. So each task's state is touched by one domain only.
//
// A *channel* models a communication scheduler. Of its tasks that could start, the one with the lowest priority number
// (then the one that became ready first) starts next, as long as the bytes in flight stay within the channel's credit;
// one task may always be in flight. A channel belongs to one host. Computations in a channel without credit run one by
// one, as on one processor.
//
// Credit and collectives can deadlock: what is in flight ends only when all ranks have started it, and ranks may spend
// their credit on different collectives. In a channel with `together`, the first-added task that is not over may
// therefore start beyond the credit, one at a time (as in dlcp.transport.layer_order.queue, where the proof is).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/core/packet.hpp"

namespace dlcp::sim {

class Domain;
class Simulation;

enum class TaskKind : std::uint8_t {
    compute,     // value: picoseconds that it takes
    flow,        // value: the flow; host: its source
    collective,  // value: collective << 32 | rank; the transport runs it (Transport::start_collective)
};

enum class After : std::uint8_t {
    finished,      // compute, collective; of a flow: delivered, at its destination
    acknowledged,  // flow: at its source
};

struct Task {
    TaskKind kind = TaskKind::compute;
    std::uint32_t host = 0;
    std::int64_t value = 0;
    std::uint32_t channel = none;
    std::int64_t priority = 0;
    std::uint64_t channel_bytes =
        0;  // what it takes of the channel's credit; returned when it is over at its host …
    std::uint32_t returned_by = none;  // … or, if set, when this task (of the same host) is
};

struct TaskTimes {
    std::int64_t ready_ps = -1;
    std::int64_t started_ps = -1;
    std::int64_t finished_ps = -1;  // at its own host: of a flow, acknowledged
};

class TaskGraph {
public:
    TaskGraph();
    ~TaskGraph();
    // Before the run. Throw std::invalid_argument, naming the value and the accepted range.
    std::uint32_t add_task(const Task& task);
    void add_edge(std::uint32_t before, std::uint32_t after, After when);
    std::uint32_t add_channel(std::uint64_t credit_bytes, bool together = false);
    // Checks hosts, cycles and edges against the flows; gives each flow its task. Once, before the run.
    void prepare(Simulation& simulation);

    bool empty() const;
    std::uint32_t tasks() const;
    const std::vector<TaskTimes>& times() const;

    // In the domain of the host in question, at its time.
    void start(Domain& domain);  // everything of this domain that waits for nothing
    void flow_delivered(Domain& domain, std::uint32_t task);
    void flow_acknowledged(Domain& domain, std::uint32_t task);
    void task_finished(Domain& domain, std::uint32_t task);
    void handle_timer(Domain& domain, std::uint32_t task);  // a computation is over

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace dlcp::sim
