// How a domain handles events: arriving packets, serving ports, timers of transports and tasks.
#include "sim/core/domain.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "sim/core/host_costs.hpp"
#include "sim/core/simulation.hpp"

namespace dlcp::sim {
Domain::Domain(Simulation& simulation, std::uint32_t index, std::uint32_t domains)
    : simulation_(simulation),
      index_(index),
      seed_(mix64(simulation.seed() + 0x9e3779b97f4a7c15ULL)),
      salt_(static_cast<std::uint32_t>(simulation.seed() - 1) * 0x9e3779b1U),
      queue_(simulation.wheel_width_log2(), simulation.settings().heap_only ? 0 : 16),
      out_(domains),
      out_pauses_(domains) {}

void Domain::prepare() {
    Simulation& s = simulation_;
    state_ = s.state();
    table_ = state_.routes->first_table();
    grace_ps_ = s.lookahead_ps_;
    target_ = s.domains_.size() == 1 ? s.target() : UINT64_MAX;
    acts_in_switches_ = state_.transport->acts_in_switches();
    foresees_visits_ = state_.transport->foresees();
    foresees_routes_ = s.faults_.empty() && state_.policy->path_choice != switching::PathChoice::round_robin &&
                       state_.policy->path_choice != switching::PathChoice::adaptive;
    alone_ = s.domains_.size() == 1;
    for (std::size_t c = 0; c < switching::traffic_classes; ++c)
        for (std::size_t l = 0; l < switching::levels; ++l) {
            const switching::Thresholds& at = state_.policy->classes[c].level[l];
            quiet_bytes_[c][l] = std::min({at.mark_from_bytes, at.trim_above_bytes, at.drop_above_bytes});
        }
    quiet_port_bytes_ = state_.policy->shared_bytes != 0 ? 0 : state_.policy->port_bytes;
    turns_.assign(s.fabric_.switches(), 0);

    for (std::uint32_t f = 0; f < s.flows_.size(); ++f)
        if (state_.flows[f].start_ps >= 0 && owns(state_.flows[f].source)) starts_.push_back(f);
    std::stable_sort(starts_.begin(), starts_.end(), [this](std::uint32_t a, std::uint32_t b) {
        return state_.flows[a].start_ps < state_.flows[b].start_ps;
    });
    if (!starts_.empty()) schedule(state_.flows[starts_[0]].start_ps, Control::flow_start, 0, 0);

    for (std::uint32_t i = 0; i < s.faults_.size(); ++i) {
        const Fault& fault = s.faults_[i];
        if (fault.kind == FaultKind::reroute || owns(s.fabric_.link(fault.port).from))
            schedule(fault.at_ps, Control::fault, i, 0);
    }
    for (std::uint32_t p : s.recorder_.sampled_ports)
        if (owns(s.fabric_.link(p).from)) sampled_.push_back(p);
    if (!sampled_.empty()) {
        ++housekeeping_;
        schedule(0, Control::sample, 0, 0);
    }
    if (!s.tasks_.empty()) s.tasks_.start(*this);
    pull_woken();
}

// --- the event queue's questions ------------------------------------------------------------------------------

// Forced inline: GCC considers a call that only prefetches to be without effect, and drops it.
[[gnu::always_inline]] inline void Domain::prefetch(std::uint32_t event) const {
    const std::uint32_t i = event & index_mask;
    switch (event >> 30) {
        case arrival: __builtin_prefetch(&packets_[i]); break;
        case service:
            __builtin_prefetch(&state_.ports[i]);
            __builtin_prefetch(&state_.queues[i]);
            __builtin_prefetch(state_.queues[i].bytes);
            break;
        default: __builtin_prefetch(&timers_[i]); break;
    }
}

// Order of events at one moment: by kind, then by a hash of moment and link, so that no link always comes first.
inline std::uint32_t Domain::tie(Kind kind, std::uint32_t id, std::int64_t at_ps) {
    const std::uint32_t moment = static_cast<std::uint32_t>(at_ps) * 0x9e3779b1U;
    std::uint32_t h = (id ^ moment) * 0x85ebca6bU;
    h = (h ^ h >> 15) * 0xc2b2ae35U;
    return kind << 20 | h >> 12;
}

inline std::uint32_t Domain::tie_of(std::uint32_t event, std::int64_t at_ps) const {
    const std::uint32_t i = event & index_mask;
    switch (event >> 30) {
        case arrival: return tie(arrival, packets_[i].port, at_ps);
        case service: return tie(service, i, at_ps);
        default: break;
    }
    const TimerNode& t = timers_[i];
    if (event >> 30 == control) return static_cast<std::uint32_t>(t.what) << 17 | std::min(t.a, 0x1ffffU);
    return tie(timer, t.a ^ static_cast<std::uint32_t>(t.what) << 29, at_ps);
}

// The memory that handling an event touches is not in the cache: prefetch it while the rest of the bucket is examined.
// A packet's next port is kept in `next`, which is unused while it is on a link.
[[gnu::always_inline]] inline std::int64_t Domain::look(std::uint32_t event, std::uint32_t& order) {
    const std::uint32_t i = event & index_mask;
    switch (event >> 30) {
        case arrival: {
            Packet& p = packets_[i];
            const auto at_ps = static_cast<std::int64_t>(p.at_ps);
            order = tie(arrival, p.port, at_ps);
            const std::uint32_t node = state_.node_of_port[p.port];
            if (node < state_.hosts) {
                if (foresees_visits_) {
                    __builtin_prefetch(&extras_[i]);
                    visits_.push_back({node, i});
                }
                return at_ps;
            }
            if (!foresees_routes_) return at_ps;
            const NextHops hops = state_.routes->next_hops(table_, node, p.destination);
            if (hops.count == 0) return at_ps;
            p.next = hops.count == 1 ? hops[0] : choose(node, i, hops, at_ps);
            __builtin_prefetch(&state_.ports[p.next]);
            __builtin_prefetch(&packets_of(p.next, p.traffic_class));
            return at_ps;
        }
        case service: {
            const Port& port = state_.ports[i];
            order = tie(service, i, port.busy_until_ps);
            if (port.waiting_classes != 0 && state_.rank_queues == nullptr)
                __builtin_prefetch(
                    &packets_[state_.queues[i].head[31 - std::countl_zero(std::uint32_t{port.waiting_classes})]]);
            else if (foresees_visits_ && port.is_host)
                visits_.push_back({i, none});
            return port.busy_until_ps;
        }
        default: break;
    }
    order = tie_of(event, timers_[i].at_ps);
    return timers_[i].at_ps;
}

inline void Domain::looked() {
    if (visits_.empty()) return;
    state_.transport->foresee(*this, visits_);
    visits_.clear();
}

// If even the hash is equal: by the events' identity.
bool Domain::before(std::uint32_t a, std::uint32_t b) const {
    const std::uint32_t kind = a >> 30, i = a & index_mask, j = b & index_mask;
    if (kind == service) return i < j;
    if (kind == arrival) {
        const Packet &x = packets_[i], &y = packets_[j];
        if (x.port != y.port) return x.port < y.port;
        // Two from one link at once: a fault that delayed it is over, and the later packet has caught up.
        if (x.flow != y.flow) return x.flow < y.flow;
        if (x.reverse != y.reverse) return x.reverse < y.reverse;
        if (x.type != y.type) return x.type < y.type;
        return x.number < y.number;
    }
    const TimerNode &x = timers_[i], &y = timers_[j];
    if (x.what != y.what) return x.what < y.what;
    return x.a != y.a ? x.a < y.a : x.b < y.b;
}

// --- the loop -------------------------------------------------------------------------------------------------

bool Domain::run(std::int64_t limit_ps, std::uint64_t most) {
    std::int64_t at_ps = 0;
    std::uint32_t event = 0;
    limit_ps_ = std::min({limit_ps, end_ps_, end_of_time_ps});
    for (std::uint64_t n = 0; n < most; ++n) {
        if (!queue_.pop(*this, limit_ps_, at_ps, event)) return true;
        ++events_;
        const std::uint32_t i = event & index_mask;
        switch (event >> 30) {
            case arrival:
                now_ps_ = at_ps;
                arrive(i);
                break;
            case service:
                now_ps_ = at_ps;
                serve(i);
                break;
            default: handle_control(i, at_ps); break;
        }
        if (!woken_.empty()) pull_woken();
    }
    return false;
}

void Domain::pull_woken() {
    // serve() may wake more hosts: the vector may grow meanwhile.
    for (std::size_t i = 0; i < woken_.size(); ++i) {
        const std::uint32_t host = woken_[i];
        if (state_.processors != nullptr) [[unlikely]] {
            state_.processors->wake(*this, host);
            continue;
        }
        Port& port = state_.ports[host];
        if (port.service_pending) continue;
        if (port.busy_until_ps > now_ps_)
            serve_at(host, port.busy_until_ps);
        else
            serve(host);
    }
    woken_.clear();
}

void Domain::schedule(std::int64_t at_ps, Control what, std::uint32_t a, std::uint32_t b) {
    std::uint32_t node = free_timer_;
    if (node == none) {
        node = static_cast<std::uint32_t>(timers_.size());
        timers_.emplace_back();
    } else {
        free_timer_ = timers_[node].next_free;
    }
    at_ps = std::max(at_ps, now_ps_);
    timers_[node] = {at_ps, a, b, none, what};
    queue_.push(*this, at_ps, code(what < Control::flow_start ? control : timer, node));
}

void Domain::handle_control(std::uint32_t node, std::int64_t at_ps) {
    const TimerNode t = timers_[node];
    if (t.what == Control::sample) {
        if (events_ != events_at_sample_ + 1) active_ps_ = now_ps_;
        events_at_sample_ = events_;
    }
    now_ps_ = at_ps;
    timers_[node].next_free = free_timer_;
    free_timer_ = node;
    switch (t.what) {
        case Control::fault: handle_fault(t.a); break;
        case Control::pause: handle_pause(t.a, t.b, true); break;
        case Control::resume: handle_pause(t.a, t.b, false); break;
        case Control::sample: take_samples(); break;
        case Control::flow_start: start_due_flows(); break;
        case Control::task: simulation_.tasks_.handle_timer(*this, t.a); break;
        case Control::transport: state_.transport->handle_timer(*this, t.a, t.b); break;
        case Control::paid: state_.processors->handle_paid(*this, t.a); break;
    }
}

void Domain::start_due_flows() {
    while (next_start_ < starts_.size() && state_.flows[starts_[next_start_]].start_ps <= now_ps_)
        start_flow(starts_[next_start_++]);
    if (next_start_ < starts_.size())
        schedule(state_.flows[starts_[next_start_]].start_ps, Control::flow_start, 0, 0);
}

void Domain::start_flow(std::uint32_t flow) {
    state_.results[flow].started_ps = now_ps_;
    state_.transport->start_flow(*this, flow);
}

void Domain::complete() {
    ++completed_;
    last_completed_ps_ = now_ps_;
    if (completed_ != target_) return;
    end_ps_ = now_ps_ + grace_ps_;
    limit_ps_ = std::min(limit_ps_, end_ps_);
}

void Domain::flow_delivered(std::uint32_t flow, std::uint64_t abandoned_bytes) {
    FlowResult& result = state_.results[flow];
    if (result.delivered_ps >= 0) throw std::logic_error("flow " + std::to_string(flow) + " was delivered twice");
    result.delivered_ps = now_ps_;
    result.abandoned_bytes = abandoned_bytes;
    result.delivered_bytes = state_.flows[flow].bytes - abandoned_bytes;
    // The start was written by the source's thread, before the first packet left: at least a link's delay ago.
    const std::int64_t took_ps = now_ps_ - result.started_ps;
    const std::int64_t bound_ps = simulation_.bound_ps(state_.flows[flow], result.delivered_bytes);
    if (took_ps < bound_ps)
        throw std::logic_error("flow " + std::to_string(flow) + " took " + std::to_string(took_ps) +
                               " ps, less than its lower bound of " + std::to_string(bound_ps) + " ps");
    ++delivered_;
    complete();
    if (state_.flows[flow].task != none) simulation_.tasks_.flow_delivered(*this, state_.flows[flow].task);
}

void Domain::flow_acknowledged(std::uint32_t flow) {
    FlowResult& result = state_.results[flow];
    if (result.acknowledged_ps >= 0)
        throw std::logic_error("flow " + std::to_string(flow) + " was acknowledged twice");
    result.acknowledged_ps = now_ps_;
    complete();
    if (state_.flows[flow].task != none) simulation_.tasks_.flow_acknowledged(*this, state_.flows[flow].task);
}

void Domain::task_finished(std::uint32_t task) { simulation_.tasks_.task_finished(*this, task); }

std::uint64_t Domain::host_rate_bps(std::uint32_t host) const { return simulation_.fabric().link(host).rate_bps; }

std::uint32_t Domain::grow() {
    const std::size_t size = packets_.size();
    if (size >= index_mask) throw std::length_error("2^30 packets are in flight");
    packets_.emplace_back();
    extras_.emplace_back();
    return static_cast<std::uint32_t>(size);
}

// --- packets --------------------------------------------------------------------------------------------------

inline void Domain::arrive(std::uint32_t slot) {
    ++hops_;
    --on_links_;
    const std::uint32_t node = state_.node_of_port[packets_[slot].port];
    if (node >= state_.hosts)
        forward(node, slot);
    else if (state_.processors != nullptr)
        state_.processors->arrive(*this, node, slot);
    else
        state_.transport->handle_packet(*this, node, slot);
}

inline void Domain::forward(std::uint32_t node, std::uint32_t slot) {
    if (acts_in_switches_ && state_.transport->handle_at_switch(*this, node, slot)) return;
    std::uint32_t port = packets_[slot].next;
    if (port == none) {
        const NextHops hops = state_.routes->next_hops(table_, node, packets_[slot].destination);
        if (hops.count == 0) {
            ++unroutable_;
            state_.transport->packet_gone(*this, slot);
            free_packet(slot);
            return;
        }
        port = hops.count == 1 ? hops[0] : choose(node, slot, hops, now_ps_);
    }
    enqueue(port, slot);
}

std::uint32_t Domain::choose(std::uint32_t node, std::uint32_t slot, const NextHops& hops, std::int64_t at_ps) {
    const Packet& p = packets_[slot];
    const switching::PathChoice choice = state_.policy->path_choice;
    switching::PathInputs in;
    in.flow = p.flow * 2 + p.reverse;
    in.path = p.path;
    in.salt = node ^ salt_;
    // By itself, so that the compiler sees that it needs nothing else: most packets come here.
    if (choice == switching::PathChoice::path_id)
        return hops[switching::choose_path(switching::PathChoice::path_id, in, hops.count).first];
    if (choice == switching::PathChoice::round_robin) {
        in.turn = turns_[node - state_.hosts]++;
    } else if (choice == switching::PathChoice::random || choice == switching::PathChoice::adaptive) {
        const std::uint64_t what = std::uint64_t{p.flow} << 32 | std::uint64_t{p.number} << 4 | p.type;
        const std::uint64_t where =
            static_cast<std::uint64_t>(at_ps) << 16 ^ node ^ std::uint64_t{p.reverse} << 63;
        in.random = mix64((seed_ + what * 0x9e3779b97f4a7c15ULL) ^ (where * 0xd1342543de82ef95ULL));
    }
    const switching::PathPair pair = switching::choose_path(choice, in, hops.count);
    const std::uint32_t first = hops[pair.first];
    if (pair.first == pair.second) return first;
    const std::uint32_t second = hops[pair.second];
    return state_.ports[second].waiting_bytes < state_.ports[first].waiting_bytes ? second : first;
}

inline void Domain::enqueue(std::uint32_t port_index, std::uint32_t slot) {
    Port& port = state_.ports[port_index];
    Packet& p = packets_[slot];
    const std::uint32_t c = p.traffic_class;
    ++packets_of(port_index, c).packets_in;
    // Free, and so nothing waits: no depth, no decision to make.
    if (port.busy_until_ps <= now_ps_ && !port.service_pending && port.waiting_classes == 0 &&
        !(port.paused_classes >> c & 1)) {
        transmit(port_index, slot);
        return;
    }
    if (state_.rank_queues != nullptr) {
        wait_by_rank(port_index, slot);
        return;
    }
    // Below every threshold and with room there is nothing to decide.
    const std::uint32_t level = p.ecn_capable ? switching::critical_level : p.importance >> 5;
    if (state_.queues[port_index].bytes[c] > quiet_bytes_[c][level] ||
        std::uint64_t{port.waiting_bytes} + p.wire_bytes > quiet_port_bytes_) {
        if (!admit(port_index, slot)) return;
    }
    wait(port_index, slot);
}

// Applies the switch policy's decision for a packet that has to wait. False: dropped.
bool Domain::admit(std::uint32_t port_index, std::uint32_t slot) {
    Port& port = state_.ports[port_index];
    Packet& p = packets_[slot];
    std::uint32_t c = p.traffic_class;
    switching::Depths depths;
    depths.queue_bytes = state_.queues[port_index].bytes[c];
    depths.port_bytes = port.waiting_bytes;
    if (state_.policy->shared_bytes != 0) {
        const std::uint32_t used = state_.shared_used_bytes[port.shared];
        depths.shared_free_bytes = state_.policy->shared_bytes - std::min(state_.policy->shared_bytes, used);
    }
    switching::PacketHeaders headers;
    headers.traffic_class = static_cast<std::uint8_t>(c);
    headers.importance = static_cast<std::uint8_t>(p.importance);
    headers.ecn_capable = p.ecn_capable;
    headers.trimmable = p.trimmable;
    headers.bytes = p.wire_bytes;
    // Only a ramp needs a random word; drawing one always would be a sixth of the decision's cost.
    const switching::Thresholds& at = state_.policy->classes[c].level[switching::level_of(headers)];
    const std::uint32_t word =
        p.ecn_capable && depths.queue_bytes > at.mark_from_bytes && depths.queue_bytes < at.mark_full_bytes
            ? static_cast<std::uint32_t>(
                  random(std::uint64_t{p.flow} << 32 | std::uint64_t{p.number} << 4 | p.type,
                         static_cast<std::uint64_t>(now_ps_) << 20 ^ port_index))
            : 0;
    const std::uint32_t trimmed_bytes = std::min<std::uint32_t>(p.wire_bytes, state_.policy->trimmed_bytes);
    switching::Depths trimmed_depths = depths;
    trimmed_depths.queue_bytes = state_.queues[port_index].bytes[state_.policy->trimmed_class];
    const switching::Verdict verdict =
        switching::admit(*state_.policy, headers, depths, word, trimmed_bytes, trimmed_depths);
    if (verdict.marked) {
        p.congestion_marked = 1;
        ++events_of(port_index, c).packets_marked;
        if (port.traced) record(PacketEvent::marked, port_index, slot);
    }
    if (verdict.trimmed) {
        ++events_of(port_index, c).packets_trimmed;
        p.wire_bytes = static_cast<decltype(p.wire_bytes)>(trimmed_bytes);
        p.traffic_class = state_.policy->trimmed_class;
        p.trimmable = 0;
        p.trimmed = 1;
        c = p.traffic_class;
        ++packets_of(port_index, c).packets_in;
        if (port.traced) record(PacketEvent::trimmed, port_index, slot);
    }
    if (verdict.dropped) {
        drop(port_index, slot, c);
        return false;
    }
    return true;
}

void Domain::drop(std::uint32_t port_index, std::uint32_t slot, std::uint32_t c) {
    ++events_of(port_index, c).packets_dropped;
    if (state_.ports[port_index].traced) record(PacketEvent::dropped, port_index, slot);
    state_.transport->packet_gone(*this, slot);
    free_packet(slot);
}

void Domain::send_from_switch(std::uint32_t port_index, std::uint32_t slot) { enqueue(port_index, slot); }

// Appends to the queue of its class; the port is busy, or the class is paused.
inline void Domain::wait(std::uint32_t port_index, std::uint32_t slot) {
    Port& port = state_.ports[port_index];
    PortQueues& q = state_.queues[port_index];
    Packet& p = packets_[slot];
    const std::uint32_t c = p.traffic_class, bytes = p.wire_bytes;
    p.next = none;
    if (q.head[c] == none)
        q.head[c] = slot;
    else
        packets_[q.tail[c]].next = slot;
    q.tail[c] = slot;
    q.bytes[c] += bytes;
    port.waiting_bytes += bytes;
    port.waiting_classes = static_cast<std::uint8_t>(port.waiting_classes | 1u << c);
    q.max_bytes[c] = std::max(q.max_bytes[c], q.bytes[c]);
    if (port.traced) record(PacketEvent::queued, port_index, slot);
    if (!port.is_host) {
        if (state_.policy->shared_bytes != 0) state_.shared_used_bytes[port.shared] += bytes;
        if (state_.ingress != nullptr) hold_upstream(p.port, c, bytes, true);
    }
    if (!port.service_pending) serve_at(port_index, std::max(port.busy_until_ps, now_ps_));
}

void Domain::wait_by_rank(std::uint32_t port_index, std::uint32_t slot) {
    Port& port = state_.ports[port_index];
    if (port.traced) record(PacketEvent::queued, port_index, slot);
    RankQueue& queue = state_.rank_queues[port_index];
    for (std::uint32_t out = queue.push(*this, slot, state_.policy->port_bytes); out != none;) {
        const std::uint32_t next = packets_[out].next;
        drop(port_index, out, packets_[out].traffic_class);
        out = next;
    }
    port.waiting_bytes = queue.bytes();
    port.waiting_classes = queue.empty() ? 0 : 1;
    std::uint32_t& max_bytes = state_.queues[port_index].max_bytes[0];
    max_bytes = std::max(max_bytes, port.waiting_bytes);
    if (!queue.empty() && !port.service_pending) serve_at(port_index, std::max(port.busy_until_ps, now_ps_));
}

// The packet that leaves next, or `none`.
inline std::uint32_t Domain::take_waiting(std::uint32_t port_index) {
    Port& port = state_.ports[port_index];
    if (state_.rank_queues != nullptr) {
        if (port.waiting_classes == 0) return none;
        RankQueue& queue = state_.rank_queues[port_index];
        const std::uint32_t slot = queue.pop(*this);
        port.waiting_bytes = queue.bytes();
        port.waiting_classes = queue.empty() ? 0 : 1;
        return slot;
    }
    const std::uint32_t able = port.waiting_classes & ~std::uint32_t{port.paused_classes};
    if (able == 0) return none;
    std::uint32_t c = 31 - static_cast<std::uint32_t>(std::countl_zero(able));
    if (state_.policy->trimmed_run_packets != 0) {
        const std::uint32_t others = able & ~(1u << c);
        if (others == 0 || c != state_.policy->trimmed_class) {
            port.trimmed_run = 0;
        } else if (port.trimmed_run++ == state_.policy->trimmed_run_packets) {
            port.trimmed_run = 0;
            c = 31 - static_cast<std::uint32_t>(std::countl_zero(others));
        }
    }
    PortQueues& q = state_.queues[port_index];
    const std::uint32_t slot = q.head[c];
    Packet& p = packets_[slot];
    q.head[c] = p.next;
    q.bytes[c] -= p.wire_bytes;
    port.waiting_bytes -= p.wire_bytes;
    if (q.head[c] == none)
        port.waiting_classes = static_cast<std::uint8_t>(port.waiting_classes & ~(1u << c));
    else
        __builtin_prefetch(&packets_[q.head[c]]);
    if (!port.is_host) {
        if (state_.policy->shared_bytes != 0) state_.shared_used_bytes[port.shared] -= p.wire_bytes;
        if (state_.ingress != nullptr) hold_upstream(p.port, c, p.wire_bytes, false);
    }
    return slot;
}

void Domain::serve_at(std::uint32_t port_index, std::int64_t at_ps) {
    Port& port = state_.ports[port_index];
    port.service_pending = true;
    port.busy_until_ps = at_ps;  // the event's time
    queue_.push(*this, at_ps, code(service, port_index));
}

// The port is free: sends a waiting packet; at a host without one, the transport's next packet.
inline void Domain::serve(std::uint32_t port_index) {
    Port& port = state_.ports[port_index];
    port.service_pending = false;
    std::uint32_t slot = take_waiting(port_index);
    if (slot == none) {
        if (!port.is_host || port.waiting_classes != 0) return;
        if (state_.processors != nullptr) [[unlikely]] {
            state_.processors->work(*this, port_index);
            return;
        }
        slot = state_.transport->pull_packet(*this, port_index);
        if (slot == none) return;
        const std::uint32_t c = packets_[slot].traffic_class;
        ++packets_of(port_index, c).packets_in;
        if (port.paused_classes >> c & 1) {
            // It waits in the card, and blocks the packets behind it there.
            port.service_pending = true;
            wait(port_index, slot);
            port.service_pending = false;
            return;
        }
        transmit(port_index, slot);
        // A transport that announces new work calls wake().
        if (!state_.transport->announces_more()) serve_at(port_index, port.busy_until_ps);
        return;
    }
    transmit(port_index, slot);
    if (port.is_host || port.waiting_classes != 0) serve_at(port_index, port.busy_until_ps);
    if (port.is_host && state_.processors != nullptr) [[unlikely]]
        state_.processors->work(*this, port_index);
}

// --- for a host's processor -----------------------------------------------------------------------------------

std::uint32_t Domain::pull(std::uint32_t host, bool& more) {
    const std::uint32_t slot = state_.transport->pull_packet(*this, host);
    more = slot != none && !state_.transport->announces_more();
    return slot;
}

std::uint32_t Domain::sender_of(std::uint32_t slot) const {
    const Packet& p = packets_[slot];
    if (p.flow >= simulation_.flows().size()) return p.flow;
    return p.reverse ? state_.flows[p.flow].destination : state_.flows[p.flow].source;
}

// Paid for: it leaves, or waits in the card.
// Cold, or transmit() in it costs the other two places their speed: 9 % of a run whose hosts are free.
[[gnu::cold]] void Domain::hand_to_card(std::uint32_t port_index, std::uint32_t slot) {
    Port& port = state_.ports[port_index];
    const std::uint32_t c = packets_[slot].traffic_class;
    ++packets_of(port_index, c).packets_in;
    if (port.busy_until_ps <= now_ps_ && !port.service_pending && port.waiting_classes == 0 &&
        !(port.paused_classes >> c & 1)) {
        transmit(port_index, slot);
        serve_at(port_index, port.busy_until_ps);
    } else if (state_.rank_queues != nullptr) {
        wait_by_rank(port_index, slot);
    } else {
        wait(port_index, slot);
    }
}

void Domain::drop_at_host(std::uint32_t slot) {
    state_.transport->packet_gone(*this, slot);
    free_packet(slot);
}

[[gnu::always_inline]] inline void Domain::transmit(std::uint32_t port_index, std::uint32_t slot) {
    Port& port = state_.ports[port_index];
    Packet& p = packets_[slot];
    const std::uint32_t c = p.traffic_class;
    PacketCounters& counters = packets_of(port_index, c);
    ++counters.packets_sent;
    counters.bytes_sent += p.wire_bytes;
    port.busy_until_ps = now_ps_ + port.transmit_ps(p.wire_bytes);
    std::int64_t at_ps = port.busy_until_ps + port.delay_ps;
    if (port.traced) record(PacketEvent::sent, port_index, slot);
    if (port.fault != none) {
        if (lost(port, port_index)) {
            ++events_of(port_index, c).packets_lost;
            if (port.traced) record(PacketEvent::lost, port_index, slot);
            state_.transport->packet_gone(*this, slot);
            free_packet(slot);
            return;
        }
        at_ps += port_faults_[port.fault].extra_delay_ps;
    }
    p.port = port_index;
    p.next = none;
    p.at_ps = static_cast<std::uint64_t>(at_ps);
    ++on_links_;
    const std::uint32_t domain = alone_ ? index_ : state_.domain_of_node[port.to];
    if (domain == index_) {
        queue_.push(*this, at_ps, code(arrival, slot));
    } else {
        out_[domain].push_back({p, extras_[slot]});
        --on_links_;
        free_packet(slot);
    }
}

void Domain::read_mail() {
    for (const auto& other : simulation_.domains_) {
        std::vector<Mail>& mail = other->out_[index_];
        for (const Mail& m : mail) {
            const std::uint32_t slot = take_packet();
            packets_[slot] = m.packet;
            extras_[slot] = m.extra;
            ++on_links_;
            queue_.push(*this, static_cast<std::int64_t>(m.packet.at_ps), code(arrival, slot));
        }
        mail.clear();
        std::vector<PauseMail>& pauses = other->out_pauses_[index_];
        for (const PauseMail& m : pauses)
            schedule(m.at_ps, m.pause ? Control::pause : Control::resume, m.port, m.traffic_class);
        pauses.clear();
    }
}

// --- records --------------------------------------------------------------------------------------------------

void Domain::take_samples() {
    Recorder::Records& records = simulation_.recorder_.domains[index_];
    for (std::uint32_t p : sampled_) {
        PortSample sample{};
        sample.time_ps = now_ps_;
        sample.port = p;
        for (std::uint32_t c = 0; c < switching::traffic_classes; ++c) {
            sample.depth_bytes[c] = state_.queues[p].bytes[c];
            sample.bytes_sent[c] = packets_of(p, c).bytes_sent;
        }
        if (state_.rank_queues != nullptr) sample.depth_bytes[0] = state_.ports[p].waiting_bytes;
        records.samples.push_back(sample);
    }
    // Nothing is left: the run is over, though it will notice only after many more samples.
    if (alone_ && stops_idle_ && queue_.empty()) limit_ps_ = now_ps_;
    schedule(now_ps_ + simulation_.recorder_.sample_interval_ps, Control::sample, 0, 0);
}

void Domain::record(PacketEvent event, std::uint32_t port, std::uint32_t slot) {
    Recorder::Records& records = simulation_.recorder_.domains[index_];
    if (!records.takes(now_ps_, simulation_.recorder_.trace_limit)) return;
    PacketRecord r{now_ps_, port, event, packets_[slot], {}};
    if (const std::uint8_t* header = state_.transport->header_of(*this, slot))
        std::copy_n(header, sizeof r.header, r.header);
    records.packets.push_back(r);
}

}  // namespace dlcp::sim
