// TCP between the simulator and its two state machines; see tcp_transport.hpp.
#include "sim/core/transports/tcp_transport.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "sim/core/domain.hpp"
#include "sim/core/simulation.hpp"
#include "sim/core/transports/packets_of.hpp"

namespace dlcp::sim {
namespace {

enum TcpType : std::uint32_t { syn = first_own, syn_ack = first_own + 1 };

constexpr std::uint32_t ethernet_bytes = 38;          // preamble, header, checksum, gap
constexpr std::uint32_t ip_tcp_bytes = 20 + 20 + 12;  // with the timestamp option
constexpr std::uint32_t frame_bytes = ethernet_bytes + ip_tcp_bytes;
constexpr std::uint32_t syn_bytes = ethernet_bytes + 20 + 20 + 20;
constexpr std::int64_t syn_timeout_ps = 1'000'000'000'000;  // RFC 6298 §2.1
constexpr std::uint32_t most_syn_doublings = 6;

std::uint32_t ack_bytes(const TcpAck& ack) {
    return frame_bytes + (ack.ranges == 0 ? 0 : 4 + 8 * ack.ranges);  // RFC 2018 §3, padded
}

}  // namespace

void TcpSettings::list(SettingsTable& table) {
    TcpWindowSettings& window = sender.window;
    table.whole("mtu_bytes", mtu_bytes, 576, 65'000, "of an IP packet");
    table.whole("min_rto_ps", sender.min_rto_ps, 1e6, 60e12,
                "the least retransmission timeout above the round trip; Linux: 0.2, DCTCP's authors: 0.01 "
                "(SIGCOMM 2010, section 4)");
    table.whole("max_rto_ps", sender.max_rto_ps, 1e6, 3600e12, "its doublings end here");
    table.number("initial_window_packets", window.initial_packets, 1, 10'000, "of a new connection (RFC 6928)");
    table.number("max_window_packets", window.max_packets, 2, 1 << 26, "the receiver's buffer");
    table.whole("ack_every", receiver.ack_every, 1, 1000, "segments that share an acknowledgement");
    table.whole("ack_delay_ps", ack_delay_ps, 0, 1e12,
                "the longest wait for them; none: 0.04, or half of min_rto_s if less");
    table.flag("tail_probe", sender.tail_probe, "whether a lost tail is probed after two round trips (TLP)");
    table.whole("min_probe_ps", sender.min_probe_ps, 0, 1e12, "the least delay of a tail probe; Linux: 0.002");
    table.flag("proportional_reduction", sender.proportional, "whether recovery sends in proportion (PRR)");
    table.flag("pacing", sender.pacing, "whether a window is spread over the round trip, as with Linux's fq");
    table.flag("persistent", persistent,
               "whether a flow goes on with the window of the last one of the same two hosts; none: flows of "
               "collectives and training do, flows that start by the clock are new connections");
    table.flag("handshake", handshake, "whether a new connection costs a round trip before its first segment");

    sender.max_rto_ps = std::max(sender.max_rto_ps, sender.min_rto_ps);
    // Linux's least, 40 ms, but never so long that the sender would give up before.
    if (!ack_delay_ps) ack_delay_ps = std::min<std::int64_t>(40'000'000'000, sender.min_rto_ps / 2);
    if (ack_delay_ps == 0) receiver.ack_every = 1;
    receiver.quick_after_ps = *ack_delay_ps;
    sender.max_ack_delay_ps = receiver.ack_every > 1 ? *ack_delay_ps : 0;
    window.initial_packets = std::min(window.initial_packets, window.max_packets);
}

TcpTransport::TcpTransport(const TcpSettings& settings) : settings_(settings) {}

std::uint32_t TcpTransport::payload_bytes() const { return settings_.mtu_bytes - ip_tcp_bytes; }
std::uint32_t TcpTransport::header_bytes() const { return frame_bytes; }

std::uint32_t TcpTransport::segments(std::uint64_t bytes) const {
    return static_cast<std::uint32_t>(packets_of(bytes, payload_bytes()));
}

std::uint32_t TcpTransport::payload_of(Domain& domain, std::uint32_t flow, std::uint32_t number) const {
    return sim::payload_of(domain.flow(flow).bytes, payload_bytes(), number);
}

void TcpTransport::prepare(Simulation& simulation) {
    FlowTransport::prepare(simulation);
    // The kernel hands super-packets to the card (TSO), each of one connection.
    if (const auto& costs = simulation.settings().host_costs; costs && costs->message_ps > 0)
        turn_bytes_ = HostProcessors::message_bytes_max;
    simulation_ = &simulation;
    const std::vector<Flow>& flows = simulation.flows();
    senders_.resize(flows.size());
    receivers_.resize(flows.size());
    complete_.resize(flows.size());
    connection_of_.resize(flows.size());
    host_counters_.resize(simulation.fabric().hosts());
    if (settings_.handshake) handshakes_.resize(flows.size());

    std::vector<std::uint32_t> order;  // of the flows on kept connections
    for (std::uint32_t i = 0; i < flows.size(); ++i) {
        connection_of_[i] = none;
        if (settings_.persistent.value_or(flows[i].task != none)) order.push_back(i);
        numbered_packets_of("tcp", i, flows[i].bytes, payload_bytes(), tcp_number_mask);
    }
    const auto pair_of = [&](std::uint32_t i) {
        return std::uint64_t{flows[i].source} << 32 | flows[i].destination;
    };
    std::ranges::sort(order, {}, pair_of);
    std::uint32_t count = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
        if (i > 0 && pair_of(order[i]) != pair_of(order[i - 1])) ++count;
        connection_of_[order[i]] = count;
    }
    connections_.resize(order.empty() ? 0 : count + 1);
}

// --- source ---

void TcpTransport::start_flow(Domain& domain, std::uint32_t flow) {
    const Connection* const kept = connection(flow);
    if (settings_.handshake && !(kept != nullptr && kept->known)) {
        send_handshake(domain, flow);
        return;
    }
    const Flow& f = domain.flow(flow);
    open(domain, flow,
         simulation_->base_rtt_ps(f.source, f.destination, settings_.mtu_bytes + ethernet_bytes, frame_bytes));
}

void TcpTransport::open(Domain& domain, std::uint32_t flow, std::int64_t rtt_ps) {
    TcpPath path;
    if (const Connection* const kept = connection(flow); kept != nullptr && kept->known) {
        path = kept->path;
        path.window.skip(std::max<std::int64_t>(0, domain.now_ps() - kept->idle_since_ps));
    } else {
        path.window = TcpWindow(settings_.sender.window);
        path.start_rtt(rtt_ps);
    }
    senders_[flow] =
        std::make_unique<Sender>(Sender{TcpSender(settings_.sender, path, segments(domain.flow(flow).bytes))});
    if (flow == traced_) record(domain.now_ps(), senders_[flow]->tcp);
    ready(domain, flow);
}

void TcpTransport::send_handshake(Domain& domain, std::uint32_t flow) {
    Handshake& handshake = handshakes_[flow];
    handshake.sent_ps = domain.now_ps();
    const std::uint32_t host = domain.flow(flow).source;
    send_control(domain, host, make(domain, flow, false, syn, 0, syn_bytes));
    domain.set_timer(domain.now_ps() + (syn_timeout_ps << std::min(handshake.attempts, most_syn_doublings)), host,
                     flow * timers + handshake_timer);
}

std::uint32_t TcpTransport::make(Domain& domain, std::uint32_t flow, bool reverse, std::uint32_t type,
                                 std::uint32_t number, std::uint32_t wire_bytes) {
    const std::uint32_t slot = make_packet(domain, flow, reverse, type, number, wire_bytes);
    Packet& packet = domain.packet(slot);
    // Acknowledgements are not ECN-capable (RFC 3168 §6.1.4).
    packet.ecn_capable = settings_.ecn && type == data_packet;
    return slot;
}

std::uint32_t TcpTransport::next_data(Domain& domain, std::uint32_t flow) {
    Sender* sender = senders_[flow].get();
    if (sender == nullptr) return none;
    const std::uint32_t number = sender->tcp.next_segment(domain.now_ps());
    if (number != none) {
        FlowResult& result = domain.result(flow);
        ++(sender->tcp.retransmitted() ? result.retransmitted_packets : result.sent_packets);
    }
    arm(domain, flow);
    if (number == none) return none;
    const std::uint32_t slot =
        make(domain, flow, false, data_packet, number, frame_bytes + payload_of(domain, flow, number));
    domain.extra(slot).time_ps = domain.now_ps();
    return slot;
}

void TcpTransport::handle_ack(Domain& domain, std::uint32_t flow, const TcpAck& ack) {
    if (senders_[flow] == nullptr) return;
    senders_[flow]->tcp.handle_ack(domain.now_ps(), ack);
    after_sender(domain, flow);
}

void TcpTransport::after_sender(Domain& domain, std::uint32_t flow) {
    TcpSender& tcp = senders_[flow]->tcp;
    if (flow == traced_) record(domain.now_ps(), tcp);
    domain.result(flow).timeouts = tcp.timeouts();
    if (!tcp.done()) {
        if (tcp.can_send()) ready(domain, flow);
        arm(domain, flow);
        return;
    }
    host_counters_[domain.flow(flow).source].add(tcp);
    if (Connection* const kept = connection(flow)) *kept = {true, tcp.path(), domain.now_ps()};
    senders_[flow].reset();
    domain.flow_acknowledged(flow);
}

// One timer is pending per flow as a rule: deadlines move back with every acknowledgement, and it follows when it fires.
void TcpTransport::arm(Domain& domain, std::uint32_t flow) {
    Sender& sender = *senders_[flow];
    const std::int64_t deadline_ps = sender.tcp.deadline_ps();
    if (deadline_ps < 0 || (sender.armed_ps >= 0 && sender.armed_ps <= deadline_ps)) return;
    sender.armed_ps = std::max(deadline_ps, domain.now_ps());
    domain.set_timer(sender.armed_ps, domain.flow(flow).source, flow * timers + sender_timer);
}

// --- destination ---

void TcpTransport::handle_data(Domain& domain, std::uint32_t flow, std::uint32_t slot) {
    const Packet packet = domain.packet(slot);
    const std::int64_t sent_ps = domain.extra(slot).time_ps;
    const std::uint32_t number = packet.number;
    if (complete_[flow] != 0) {
        TcpAck ack;
        ack.next = segments(domain.flow(flow).bytes);
        ack.echo_ps = sent_ps;
        ack.marked = packet.congestion_marked;
        ack.duplicate = true;
        ack.ranges = 1;
        ack.range[0] = {number, number + 1};
        send_ack(domain, flow, ack);
        return;
    }
    if (receivers_[flow] == nullptr) {
        receivers_[flow] = std::make_unique<Receiver>(
            Receiver{TcpReceiver(settings_.receiver, segments(domain.flow(flow).bytes))});
    }
    Receiver& receiver = *receivers_[flow];
    TcpReceiver& tcp = receiver.tcp;
    if (tcp.must_acknowledge_before(packet.congestion_marked)) send_ack(domain, flow, tcp.take_ack());
    if (tcp.handle_segment(number, packet.congestion_marked, sent_ps)) {
        domain.result(flow).delivered_bytes += payload_of(domain, flow, number);
    }
    if (tcp.must_acknowledge()) {
        send_ack(domain, flow, tcp.take_ack());
        receiver.due_ps = -1;
        if (tcp.complete()) {
            complete_[flow] = 1;
            receivers_[flow].reset();
            domain.flow_delivered(flow);
        }
    } else if (receiver.due_ps < 0) {
        receiver.due_ps = domain.now_ps() + *settings_.ack_delay_ps;
        if (!receiver.armed) {
            receiver.armed = true;
            domain.set_timer(receiver.due_ps, domain.flow(flow).destination, flow * timers + ack_timer);
        }
    }
}

void TcpTransport::send_ack(Domain& domain, std::uint32_t flow, const TcpAck& ack) {
    const std::uint32_t slot = make(domain, flow, true, ack_packet, 0, ack_bytes(ack));
    write_ack(ack, domain.packet(slot), domain.extra(slot));
    send_control(domain, domain.flow(flow).destination, slot);
}

// --- both ---

void TcpTransport::handle_packet(Domain& domain, std::uint32_t, std::uint32_t slot) {
    const std::uint32_t flow = domain.packet(slot).flow;
    switch (domain.packet(slot).type) {
        case data_packet: handle_data(domain, flow, slot); break;
        case ack_packet: handle_ack(domain, flow, read_ack(domain.packet(slot), domain.extra(slot))); break;
        case syn:
            send_control(domain, domain.flow(flow).destination, make(domain, flow, true, syn_ack, 0, syn_bytes));
            break;
        case syn_ack: {
            Handshake& handshake = handshakes_[flow];
            if (handshake.sent_ps >= 0) {
                const std::int64_t rtt_ps = domain.now_ps() - handshake.sent_ps;
                handshake.sent_ps = -1;
                open(domain, flow, rtt_ps);
            }
            break;
        }
        default: break;
    }
    domain.free_packet(slot);
}

void TcpTransport::handle_timer(Domain& domain, std::uint32_t host, std::uint32_t timer) {
    const std::uint32_t flow = timer / timers;
    switch (timer % timers) {
        case sender_timer: {
            Sender* sender = senders_[flow].get();
            if (sender == nullptr || sender->armed_ps != domain.now_ps()) return;
            sender->armed_ps = -1;
            sender->tcp.handle_deadline(domain.now_ps());
            after_sender(domain, flow);
            break;
        }
        case ack_timer: {
            Receiver* receiver = receivers_[flow].get();
            if (receiver == nullptr) return;
            receiver->armed = false;
            if (receiver->due_ps < 0) return;
            if (receiver->due_ps > domain.now_ps()) {
                receiver->armed = true;
                domain.set_timer(receiver->due_ps, host, timer);
                return;
            }
            receiver->due_ps = -1;
            send_ack(domain, flow, receiver->tcp.take_ack());
            break;
        }
        case handshake_timer:
            if (handshakes_[flow].sent_ps < 0) return;
            ++handshakes_[flow].attempts;
            ++host_counters_[host].handshake_timeouts;
            send_handshake(domain, flow);
            break;
        default: break;
    }
}

void TcpTransport::record(std::int64_t now_ps, const TcpSender& sender) {
    trace_.push_back({now_ps, sender.window_packets(), sender.path().window.threshold(), sender.in_flight()});
}

std::map<std::string, double> TcpTransport::counters() const {
    HostCounters sum;
    for (const HostCounters& each : host_counters_) {
        sum.probes += each.probes;
        sum.recoveries += each.recoveries;
        sum.undone += each.undone;
        sum.timeouts += each.timeouts;
        sum.handshake_timeouts += each.handshake_timeouts;
    }
    for (const std::unique_ptr<Sender>& each : senders_) {
        if (each != nullptr) sum.add(each->tcp);
    }
    return {{"tail_probes", static_cast<double>(sum.probes)},
            {"recoveries", static_cast<double>(sum.recoveries)},
            {"recoveries_undone", static_cast<double>(sum.undone)},
            {"timeouts", static_cast<double>(sum.timeouts)},
            {"handshake_timeouts", static_cast<double>(sum.handshake_timeouts)}};
}

}  // namespace dlcp::sim
