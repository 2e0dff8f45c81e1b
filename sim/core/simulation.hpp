// One run: a fabric, a switch policy, a transport and a load, simulated by any number of threads with one result.
//
// Threads share nothing but the windows: each simulates its pods up to the end of a window no longer than the least delay
// of a link between pods, so that nothing sent in a window can arrive in it; then mailboxes are read.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/fabric.hpp"
#include "sim/core/faults.hpp"
#include "sim/core/flow.hpp"
#include "sim/core/host_costs.hpp"
#include "sim/core/port.hpp"
#include "sim/core/rank_queue.hpp"
#include "sim/core/recorder.hpp"
#include "sim/core/routes.hpp"
#include "sim/core/tasks.hpp"
#include "sim/core/transport.hpp"
#include "switch/policy.hpp"

namespace dlcp::sim {

class Domain;
struct SimulationState;

// An array of zeros whose memory is the operating system's until it is touched: most ports use one class of eight.
template <class T>
class LazyZeros {
public:
    void reset(std::size_t count) {
        memory_.reset(static_cast<T*>(std::calloc(count, sizeof(T))));
        if (memory_ == nullptr) throw std::bad_alloc();
    }
    T* data() const { return memory_.get(); }

private:
    struct Free {
        void operator()(T* memory) const { std::free(memory); }
    };
    std::unique_ptr<T, Free> memory_;
};

struct SimulationSettings {
    std::uint64_t seed = 1;
    std::uint32_t threads = 1;
    Discipline discipline = Discipline::strict_priority;
    bool check_invariants = false;                       // after the run: conservation per class and port
    bool heap_only = false;                              // no timing wheel: slow, with the same result
    std::optional<HostCosts> host_costs = std::nullopt;  // none: hosts take no time
};

class Simulation {
public:
    // Throws std::invalid_argument, naming what is wrong.
    Simulation(Fabric fabric, const switching::Policy& policy, std::unique_ptr<Transport> transport,
               const SimulationSettings& settings);
    ~Simulation();

    // Before the first run.
    std::uint32_t add_flow(const Flow& flow);
    TaskGraph& tasks() { return tasks_; }
    void add_fault(const Fault& fault);
    void sample(const std::vector<std::uint32_t>& ports, std::int64_t interval_ps);
    void trace(const std::vector<std::uint32_t>& ports, std::uint64_t limit);

    // Before the first run: the transport will be given more between runs (co-simulation), so that nothing is ever all
    // there is to do. A run ends at its time or when nothing is left to happen, and another may follow.
    void keep_open() { open_ = true; }
    // Runs until nothing is left to happen, until `until_ps` (negative: no limit) or for about `wall_s` of real time
    // (negative: no limit). True: over. Throws std::logic_error when an invariant is broken. What has thrown does not go on.
    bool run(std::int64_t until_ps, double wall_s);

    const Fabric& fabric() const { return fabric_; }
    const switching::Policy& policy() const { return policy_; }
    const SimulationSettings& settings() const { return settings_; }
    Transport& transport() { return *transport_; }
    std::uint64_t seed() const { return settings_.seed; }
    std::vector<Flow>& flows() { return flows_; }
    const std::vector<Flow>& flows() const { return flows_; }
    const TaskGraph& tasks() const { return tasks_; }
    const std::vector<FlowResult>& results() const { return results_; }
    std::vector<FlowResult>& results() { return results_; }
    const PacketCounters& packet_counters(std::uint32_t port, std::uint32_t traffic_class) const {
        return packet_counters_.data()[std::size_t{port} * switching::traffic_classes + traffic_class];
    }
    const EventCounters& event_counters(std::uint32_t port, std::uint32_t traffic_class) const {
        return event_counters_.data()[std::size_t{port} * switching::traffic_classes + traffic_class];
    }
    // The most that has waited in a class's queue; with queues by rank all of it counts as class 0.
    std::uint32_t max_depth_bytes(std::uint32_t port, std::uint32_t traffic_class) const {
        return queues_[port].max_bytes[traffic_class];
    }
    std::uint32_t domains() const { return static_cast<std::uint32_t>(domains_.size()); }
    Domain& domain(std::uint32_t index) { return *domains_[index]; }
    Domain& domain_of(std::uint32_t host) { return *domains_[domain_of_node_[host]]; }
    static std::uint64_t ps_per_byte_q16(double rate_bps);
    // Buckets of the event wheel, for this fabric's rates.
    unsigned wheel_width_log2() const { return wheel_width_log2_; }

    // Round trip of a data packet and its answer with empty queues, store-and-forward, and what it costs both hosts.
    std::int64_t base_rtt_ps(std::uint32_t source, std::uint32_t destination, std::uint32_t data_bytes,
                             std::uint32_t ack_bytes) const;
    // No flow can be faster: its payload at the slowest link that it must take, and the delays of all.
    std::int64_t bound_ps(const Flow& flow, std::uint64_t bytes) const;
    // The same for a whole flow on a shortest path of the fabric as it was built, whatever faults come: what reports
    // compare with.
    std::int64_t ideal_ps(const Flow& flow) const;

    std::int64_t now_ps() const { return now_ps_; }
    std::uint64_t events() const;
    std::uint64_t hops() const;
    std::uint64_t flows_finished() const;
    double cpu_s() const { return cpu_s_; }  // of the native loop, all threads
    const Recorder& recorder() const { return recorder_; }

    std::uint64_t packets_unroutable() const;
    // Packets in a row over one path save the hosts' processors time.
    bool hosts_want_runs() const { return processors_ != nullptr && processors_->costs().message_ps > 0; }
    // Packets that found no room at hosts whose processors were behind.
    std::uint64_t packets_dropped_at_hosts() const {
        return processors_ == nullptr ? 0 : processors_->packets_dropped();
    }

private:
    friend class Domain;
    class Barrier;

    void prepare();
    SimulationState state();
    bool run_on(std::int64_t until_ps, double wall_s);
    bool idle() const;
    std::uint64_t target() const;
    bool over() const;
    bool run_alone(std::int64_t until_ps, double wall_s);
    bool run_threads(std::int64_t until_ps, double wall_s);
    std::string broken_invariant() const;

    Fabric fabric_;
    switching::Policy policy_;
    std::unique_ptr<Transport> transport_;
    std::unique_ptr<HostProcessors> processors_;  // nullptr: hosts take no time
    SimulationSettings settings_;
    std::unique_ptr<Routes> routes_;
    RouteVersions route_versions_;
    TaskGraph tasks_;
    Recorder recorder_;
    std::vector<Fault> faults_;
    std::vector<Flow> flows_;
    std::vector<FlowResult> results_;

    // Per port, unless it says otherwise; each element is touched by the domain that its node is in.
    std::vector<Port> ports_;
    std::vector<PortQueues> queues_;
    LazyZeros<PacketCounters> packet_counters_;  // per port and class
    LazyZeros<EventCounters> event_counters_;
    std::vector<RankQueue> rank_queues_;
    std::vector<std::uint32_t> shared_used_bytes_;  // per switch
    std::vector<Ingress> ingress_;                  // per port and class
    std::vector<std::uint32_t> node_of_port_;
    std::vector<std::uint32_t> domain_of_node_;  // per node

    std::vector<std::unique_ptr<Domain>> domains_;
    std::int64_t lookahead_ps_ = 0;  // the least delay of a link between regions
    std::int64_t end_ps_ = INT64_MAX;
    std::int64_t now_ps_ = 0;
    unsigned wheel_width_log2_ = 8;
    bool prepared_ = false;
    bool over_ = false;
    bool open_ = false;
    std::string failure_;  // what a run has thrown; empty: nothing
    double cpu_s_ = 0;
};

}  // namespace dlcp::sim
