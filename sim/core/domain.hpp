// The part of the fabric that one thread simulates: hosts and switches, their packets, and their events.
//
// Events are handled in order of time. Events of one moment are ordered by the moment itself and the link, never by
// memory or threads, so that a run is the same for any number of domains, and symmetric senders fare alike. Packets to
// another domain go through its mailbox, which is read between windows (simulation.hpp).
//
// The first part is what transports use; the second what the simulation calls.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/core/event_queue.hpp"
#include "sim/core/faults.hpp"
#include "sim/core/flow.hpp"
#include "sim/core/packet.hpp"
#include "sim/core/port.hpp"
#include "sim/core/rank_queue.hpp"
#include "sim/core/recorder.hpp"
#include "sim/core/routes.hpp"
#include "sim/core/transport.hpp"
#include "switch/decision.hpp"

namespace dlcp::sim {

class HostProcessors;
class Simulation;

// Spreads bits (the finaliser of SplitMix64: Steele, Lea, Flood 2014).
inline std::uint64_t mix64(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

// What domains share: the simulation's arrays. Each element is touched only by the domain that owns its node; the rest is
// constant during a run.
struct SimulationState {
    const Flow* flows = nullptr;
    FlowResult* results = nullptr;  // per flow
    Port* ports = nullptr;
    PortQueues* queues = nullptr;                 // per port
    PacketCounters* packet_counters = nullptr;    // per port and class
    EventCounters* event_counters = nullptr;      // per port and class
    RankQueue* rank_queues = nullptr;             // per port, with Discipline::least_rank
    std::uint32_t* shared_used_bytes = nullptr;   // per switch
    Ingress* ingress = nullptr;                   // per port and class; nullptr: no priority flow control
    const std::uint32_t* node_of_port = nullptr;  // where a port's link leads
    const std::uint32_t* domain_of_node = nullptr;
    Transport* transport = nullptr;
    HostProcessors* processors = nullptr;  // nullptr: hosts take no time
    const Routes* routes = nullptr;
    const switching::Policy* policy = nullptr;
    std::uint32_t hosts = 0;
};

class Domain {
public:
    // --- what transports use ---

    std::int64_t now_ps() const { return now_ps_; }
    Simulation& simulation() { return simulation_; }
    const Flow& flow(std::uint32_t index) const { return state_.flows[index]; }
    FlowResult& result(std::uint32_t index) { return state_.results[index]; }

    // A packet's slot. The packet is cleared, its extra is as the slot's last user left it.
    std::uint32_t take_packet() {
        if (free_ == none) return grow();
        const std::uint32_t slot = free_;
        free_ = packets_[slot].next;
        packets_[slot] = Packet{};
        return slot;
    }
    void free_packet(std::uint32_t slot) {
        packets_[slot].next = free_;
        free_ = slot;
    }
    // Valid until the next take_packet.
    Packet& packet(std::uint32_t slot) { return packets_[slot]; }
    PacketExtra& extra(std::uint32_t slot) { return extras_[slot]; }

    // The host has something to send: its network card pulls once it is free, after the present call at the earliest.
    void wake(std::uint32_t host) {
        if (!state_.ports[host].service_pending || state_.processors != nullptr) woken_.push_back(host);
    }
    std::uint64_t host_rate_bps(std::uint32_t host) const;
    // Bit c: the switch has paused class c of the host's link. A packet of such a class waits in the card and blocks
    // those behind it, so a transport with other packets should not hand one over. The card pulls again when the pause
    // ends.
    std::uint32_t paused_classes(std::uint32_t host) const { return state_.ports[host].paused_classes; }
    // How long `bytes` take on the host's link.
    std::int64_t host_transmit_ps(std::uint32_t host, std::uint32_t bytes) const {
        return state_.ports[host].transmit_ps(bytes);
    }

    // A packet that a program in a switch sends, by a port of that switch: it is queued there as any.
    void send_from_switch(std::uint32_t port, std::uint32_t slot);

    // Packets cost hosts no time (host_costs.hpp).
    bool hosts_are_free() const { return state_.processors == nullptr; }

    // Calls Transport::handle_timer(host, timer) then. Never cancelled. `at_ps` in the past is now.
    void set_timer(std::int64_t at_ps, std::uint32_t host, std::uint32_t timer) {
        schedule(at_ps, Control::transport, host, timer);
    }

    // 64 random bits that depend on the seed and these numbers alone, so that they do not depend on what other hosts do.
    std::uint64_t random(std::uint64_t a, std::uint64_t b) const {
        return mix64(mix64(seed_ + a * 0x9e3779b97f4a7c15ULL) + b * 0xd1342543de82ef95ULL);
    }

    // In the destination's domain: the flow is complete there, without `abandoned_bytes`. In the source's domain: the
    // sender knows. Each is called once per flow; they advance the task graph.
    void flow_delivered(std::uint32_t flow, std::uint64_t abandoned_bytes = 0);
    void flow_acknowledged(std::uint32_t flow);
    // A task that the transport was given (start_collective) is over, in the domain of its host.
    void task_finished(std::uint32_t task);

    // --- what the task graph uses ---

    void start_flow(std::uint32_t flow);
    void set_task_timer(std::int64_t at_ps, std::uint32_t task) { schedule(at_ps, Control::task, task, 0); }
    bool owns(std::uint32_t host) const { return state_.domain_of_node[host] == index_; }
    // Counted against the number of tasks: when the run is over.
    void task_over() { complete(); }

    // --- what a host's processor uses (host_costs.hpp) ---

    // Less than `bytes` wait in the host's card; in one that serves by rank, nothing.
    bool card_has_room(std::uint32_t host, std::uint32_t bytes) const {
        const Port& port = state_.ports[host];
        return port.waiting_bytes < (state_.rank_queues != nullptr ? 1 : bytes);
    }
    // The transport's next packet, or `none`. `more`: whether it may have another one without a further wake().
    std::uint32_t pull(std::uint32_t host, bool& more);
    // The host that sent a packet, or the number of the pair that an engine's packet of no flow carries (2^31 and up).
    std::uint32_t sender_of(std::uint32_t slot) const;
    void hand_to_card(std::uint32_t host, std::uint32_t slot);
    void hand_to_transport(std::uint32_t host, std::uint32_t slot) {
        state_.transport->handle_packet(*this, host, slot);
    }
    void drop_at_host(std::uint32_t slot);
    void set_paid(std::int64_t at_ps, std::uint32_t host) { schedule(at_ps, Control::paid, host, 0); }

    // --- what the simulation uses ---

    Domain(Simulation& simulation, std::uint32_t index, std::uint32_t domains);
    void prepare();
    // Handles events before `limit_ps`, `most` of them at most. False: stopped by `most`.
    bool run(std::int64_t limit_ps, std::uint64_t most);
    void read_mail();
    // No event happens here before this; INT64_MAX: none at all.
    std::int64_t next_ps() { return queue_.next_ps(); }
    // Only the simulator's own events (samples) are left.
    bool idle() const { return queue_.size() == housekeeping_; }
    std::uint64_t completed() const { return completed_; }
    std::int64_t last_completed_ps() const { return last_completed_ps_; }
    std::uint64_t events() const { return events_; }
    std::uint64_t hops() const { return hops_; }
    std::uint64_t delivered() const { return delivered_; }
    std::uint64_t unroutable() const { return unroutable_; }
    // Packets that are on a link of this domain now.
    std::uint64_t on_links() const { return on_links_; }
    // When the last event happened that was not the simulator's own.
    std::int64_t last_active_ps() const { return events_ == events_at_sample_ ? active_ps_ : now_ps_; }
    // Whether what the simulator does by itself goes on when nothing else is left.
    void set_stops_idle(bool stops) { stops_idle_ = stops; }

private:
    friend class EventQueue<Domain>;

    // What the top two bits of an event's code say; at one moment in this order.
    enum Kind : std::uint32_t { control = 0, service = 1, arrival = 2, timer = 3 };
    static constexpr std::uint32_t code(Kind kind, std::uint32_t index) { return kind << 30 | index; }
    static constexpr std::uint32_t index_mask = (1u << 30) - 1;

    // Events that are neither packets nor ports.
    enum class Control : std::uint8_t { fault, pause, resume, sample, flow_start, task, transport, paid };
    struct TimerNode {
        std::int64_t at_ps;
        std::uint32_t a;
        std::uint32_t b;
        std::uint32_t next_free;
        Control what;
    };
    struct Mail {
        Packet packet;
        PacketExtra extra;
    };
    struct PauseMail {
        std::int64_t at_ps;
        std::uint32_t port;
        std::uint8_t traffic_class;
        bool pause;
    };

    // For the event queue.
    static std::uint32_t tie(Kind kind, std::uint32_t id, std::int64_t at_ps);
    std::uint32_t tie_of(std::uint32_t event, std::int64_t at_ps) const;
    bool before(std::uint32_t a, std::uint32_t b) const;
    void prefetch(std::uint32_t event) const;
    std::int64_t look(std::uint32_t event, std::uint32_t& tie);
    void looked();

    std::uint32_t grow();
    void schedule(std::int64_t at_ps, Control what, std::uint32_t a, std::uint32_t b);
    void handle_control(std::uint32_t node, std::int64_t at_ps);
    void handle_fault(std::uint32_t index);
    void handle_pause(std::uint32_t port, std::uint32_t traffic_class, bool pause);
    void start_due_flows();
    void take_samples();
    void complete();
    void pull_woken();

    PacketCounters& packets_of(std::uint32_t port, std::uint32_t traffic_class) {
        return state_.packet_counters[std::size_t{port} * switching::traffic_classes + traffic_class];
    }
    EventCounters& events_of(std::uint32_t port, std::uint32_t traffic_class) {
        return state_.event_counters[std::size_t{port} * switching::traffic_classes + traffic_class];
    }
    void arrive(std::uint32_t slot);
    void forward(std::uint32_t node, std::uint32_t slot);
    std::uint32_t choose(std::uint32_t node, std::uint32_t slot, const NextHops& hops, std::int64_t at_ps);
    void enqueue(std::uint32_t port, std::uint32_t slot);
    bool admit(std::uint32_t port, std::uint32_t slot);
    void wait(std::uint32_t port, std::uint32_t slot);
    void wait_by_rank(std::uint32_t port, std::uint32_t slot);
    std::uint32_t take_waiting(std::uint32_t port);
    void serve(std::uint32_t port);
    void serve_at(std::uint32_t port, std::int64_t at_ps);
    void transmit(std::uint32_t port, std::uint32_t slot);
    bool lost(Port& port, std::uint32_t port_index);
    void hold_upstream(std::uint32_t in_port, std::uint32_t traffic_class, std::uint32_t bytes, bool more);
    void drop(std::uint32_t port, std::uint32_t slot, std::uint32_t traffic_class);
    void record(PacketEvent event, std::uint32_t port, std::uint32_t slot);

    Simulation& simulation_;
    const std::uint32_t index_;
    std::uint64_t seed_;
    std::uint32_t salt_;  // other seeds, other hash functions in the switches

    SimulationState state_;
    // Up to these depths the policy keeps a packet as it is: by class and level, and for the whole port.
    std::uint32_t quiet_bytes_[switching::traffic_classes][switching::levels];
    std::uint64_t quiet_port_bytes_ = 0;
    const RouteTable* table_ = nullptr;  // of the present version; nullptr: arithmetic
    bool alone_ = true;                  // there is no other domain
    bool acts_in_switches_ = false;      // the transport sees packets at switches too
    bool foresees_visits_ = false;       // the transport is to know what comes
    bool foresees_routes_ = false;       // a packet's route depends on nothing that may change before it is there

    std::int64_t now_ps_ = 0;
    std::int64_t end_ps_ = INT64_MAX;
    std::int64_t limit_ps_ = 0;  // of the present run()
    EventQueue<Domain> queue_;
    std::vector<Packet> packets_;
    std::vector<PacketExtra> extras_;
    std::uint32_t free_ = none;
    std::vector<TimerNode> timers_;
    std::uint32_t free_timer_ = none;
    std::vector<std::uint32_t> woken_;
    std::vector<Transport::Visit> visits_;  // of the bucket that is being opened
    std::vector<std::uint32_t> starts_;     // flows by start, then number
    std::size_t next_start_ = 0;
    std::vector<PortFault> port_faults_;
    std::vector<std::uint32_t> turns_;  // per switch: round robin
    std::vector<std::uint32_t> sampled_;

    std::vector<std::vector<Mail>> out_;  // by domain
    std::vector<std::vector<PauseMail>> out_pauses_;

    std::uint64_t events_ = 0;
    std::uint64_t hops_ = 0;
    std::uint64_t delivered_ = 0;
    std::uint64_t completed_ = 0;
    std::uint64_t target_ = 0;  // of `completed_`, when this is the only domain
    std::int64_t grace_ps_ = 0;
    std::int64_t last_completed_ps_ = 0;
    std::uint64_t unroutable_ = 0;
    std::uint64_t on_links_ = 0;
    std::size_t housekeeping_ = 0;        // events that wait of what the simulator does by itself
    std::uint64_t events_at_sample_ = 0;  // events_ when samples were taken last
    std::int64_t active_ps_ = 0;          // last_active_ps() as it was then
    bool stops_idle_ = true;

    friend class Simulation;
};

}  // namespace dlcp::sim
