// pFabric: Alizadeh et al., "pFabric: minimal near-optimal datacenter transport", SIGCOMM 2013. Every packet carries
// the remaining size of its flow; the network serves the smallest first and drops the largest (rank_queue.hpp). Hosts
// do little (section 4): they start at line rate with a window of one bandwidth-delay product, detect losses only by a
// small fixed timeout, then use slow start; after several timeouts in a row they probe with packets without payload.
//
// The receiver acknowledges every packet by number, with the first one missing, so that only what was lost is sent
// again; acknowledgements have rank 0. A host's network card serves its own flows by rank, too.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "sim/core/domain.hpp"
#include "sim/core/flow_transport.hpp"
#include "sim/core/transports/packets_of.hpp"

namespace dlcp::sim {
namespace {

constexpr std::uint32_t probe_packet = first_own;
constexpr std::uint32_t control_class = 7;
constexpr std::int64_t no_deadline = INT64_MAX;

struct Settings {
    std::uint32_t payload_bytes = 1460;
    std::uint32_t header_bytes = 40;
    std::uint32_t window_packets = 0;
    std::int64_t rto_ps = 0;
    std::uint32_t probe_after_timeouts = 5;
    std::uint32_t paths = 64;

    void list(SettingsTable& table) {
        table.whole("payload_bytes", payload_bytes, 1, 65'000, "payload of a full packet");
        table.whole("header_bytes", header_bytes, 1, 1000,
                    "on the wire beside the payload; an acknowledgement, a probe");
        table.whole("window_packets", window_packets, 0, packet_number_limit - 1,
                    "the largest window, and the first; 0: a round trip's worth");
        table.whole("rto_ps", rto_ps, 0, 100e12,
                    "fixed retransmission timeout; 0: three round trips, as the paper's 45 µs");
        table.whole("probe_after_timeouts", probe_after_timeouts, 1, 1e6, "in a row; the paper's five");
        table.whole("paths", paths, 1, 65'536, "path ids that a flow's packets take in turns; a power of two");
        table.check_packet(payload_bytes, header_bytes);
        table.check_power_of_two("paths", paths);
    }
};

struct Sender {
    std::int64_t deadline_ps = no_deadline;  // of the retransmission timer; none while nothing is in flight
    std::int64_t rto_ps = 0;
    double window = 0;            // packets, from `base` on
    double window_max = 0;        // a bandwidth-delay product
    double slow_start_until = 0;  // packets
    std::uint32_t packets = 0;
    std::uint32_t base = 0;          // the first that is not acknowledged
    std::uint32_t next = 0;          // the next to look at; back to `base` on a timeout
    std::uint32_t sent_until = 0;    // the first that was never sent
    std::uint32_t acknowledged = 0;  // packets
    std::uint32_t in_flight = 0;     // sent since the last timeout, not acknowledged
    std::uint32_t words = 0;         // where they start in acknowledged_
    std::uint32_t transmissions = 0;
    std::uint32_t permutation = 0;
    std::uint32_t timeouts_in_row = 0;
    bool probing = false;
    bool probe_due = false;
    bool is_ready = false;   // in its host's list
    bool timer_set = false;  // an event will come
};
struct Receiver {
    std::uint32_t packets = 0;
    std::uint32_t received = 0;
    std::uint32_t base = 0;  // the first that is missing
    std::uint32_t words = 0;
};
struct Host {
    std::uint32_t control_head = none;
    std::uint32_t control_tail = none;
    std::vector<std::uint32_t> ready;  // flows that may have something to send
};

struct alignas(64) Counters {
    std::uint64_t probes = 0;
    static constexpr std::pair<const char*, std::uint64_t Counters::*> names[] = {{"probes", &Counters::probes}};
};

class PFabric final : public FlowStates<Transport, Settings, Sender, Receiver, Counters> {
public:
    using FlowStates::FlowStates;

    void prepare(Simulation& simulation) override {
        FlowStates::prepare(simulation);
        const std::vector<Flow>& flows = simulation.flows();
        hosts_.resize(simulation.fabric().hosts());
        std::uint32_t words = 0;
        for (std::size_t f = 0; f < flows.size(); ++f) {
            const std::uint32_t packets =
                numbered_packets_of("pfabric", f, flows[f].bytes, settings_.payload_bytes);
            const std::int64_t rtt_ps = simulation.base_rtt_ps(flows[f].source, flows[f].destination,
                                                               full_packet_bytes(), settings_.header_bytes);
            const double packet_ps = 8e12 * full_packet_bytes() /
                                     static_cast<double>(simulation.fabric().link(flows[f].source).rate_bps);
            Sender& sender = senders_[f];
            sender.packets = receivers_[f].packets = packets;
            sender.window_max = settings_.window_packets > 0 ? static_cast<double>(settings_.window_packets)
                                                             : std::ceil(static_cast<double>(rtt_ps) / packet_ps);
            sender.window = sender.slow_start_until = sender.window_max;
            sender.rto_ps = settings_.rto_ps > 0 ? settings_.rto_ps : 3 * rtt_ps;
            sender.words = receivers_[f].words = words;
            words += (sender.packets + 63) / 64;
        }
        acknowledged_.resize(words);
        received_.resize(words);
    }

    void start_flow(Domain& domain, std::uint32_t flow) override { ready(domain, flow); }

    std::uint32_t pull_packet(Domain& domain, std::uint32_t host) override {
        Host& h = hosts_[host];
        if (h.control_head != none) {
            const std::uint32_t slot = h.control_head;
            h.control_head = domain.packet(slot).next;
            return slot;
        }
        while (!h.ready.empty()) {
            std::size_t best = 0;
            for (std::size_t i = 1; i < h.ready.size(); ++i)
                if (before(domain, h.ready[i], h.ready[best])) best = i;
            const std::uint32_t flow = h.ready[best];
            const std::uint32_t slot = next_packet(domain, flow);
            if (slot != none) return slot;
            senders_[flow].is_ready = false;
            h.ready[best] = h.ready.back();
            h.ready.pop_back();
        }
        return none;
    }

    void handle_packet(Domain& domain, std::uint32_t host, std::uint32_t slot) override {
        if (domain.packet(slot).reverse)
            handle_ack(domain, host, slot);
        else
            handle_data(domain, host, slot);
    }

    void handle_timer(Domain& domain, std::uint32_t host, std::uint32_t flow) override {
        Sender& sender = senders_[flow];
        sender.timer_set = false;
        if (sender.deadline_ps == no_deadline) return;
        if (domain.now_ps() < sender.deadline_ps) {
            sender.timer_set = true;
            domain.set_timer(sender.deadline_ps, host, flow);
            return;
        }
        // Slow start again, up to half of what the window was; all that is not acknowledged may be lost. If
        // what was sent again is lost, too, the half stays what it was (RFC 5681, 3.1).
        ++domain.result(flow).timeouts;
        if (++sender.timeouts_in_row == 1) sender.slow_start_until = std::max(sender.window / 2, 2.0);
        sender.window = 1;
        sender.next = sender.base;
        sender.in_flight = 0;
        sender.deadline_ps = no_deadline;
        if (sender.timeouts_in_row >= settings_.probe_after_timeouts) {
            sender.probing = true;
            sender.probe_due = true;
        }
        ready(domain, flow);
    }

private:
    static bool has(const std::vector<std::uint64_t>& words, std::uint32_t first, std::uint32_t number) {
        return words[first + number / 64] >> number % 64 & 1;
    }

    // What is left of the flow: its priority, everywhere.
    std::uint64_t bytes_left(const Domain& domain, std::uint32_t flow) const {
        const std::uint64_t done = std::uint64_t{senders_[flow].acknowledged} * settings_.payload_bytes;
        return domain.flow(flow).bytes - std::min(domain.flow(flow).bytes, done);
    }
    bool before(const Domain& domain, std::uint32_t a, std::uint32_t b) const {
        const std::uint64_t x = bytes_left(domain, a), y = bytes_left(domain, b);
        return x != y ? x < y : a < b;
    }

    std::uint32_t make_packet(Domain& domain, std::uint32_t flow, bool reverse, std::uint32_t type,
                              std::uint32_t number, std::uint32_t wire_bytes) {
        const std::uint32_t slot = domain.take_packet();
        Packet& packet = domain.packet(slot);
        packet.flow = flow;
        packet.reverse = reverse;
        packet.destination = (reverse ? domain.flow(flow).source : domain.flow(flow).destination) & 0xffffff;
        packet.type = type & 0xf;
        packet.number = number & (packet_number_limit - 1);
        packet.wire_bytes = static_cast<std::uint16_t>(wire_bytes);
        return slot;
    }

    // --- sender ---

    void ready(Domain& domain, std::uint32_t flow) {
        Sender& sender = senders_[flow];
        const std::uint32_t host = domain.flow(flow).source;
        if (!sender.is_ready) {
            sender.is_ready = true;
            hosts_[host].ready.push_back(flow);
        }
        domain.wake(host);
    }

    std::uint32_t next_packet(Domain& domain, std::uint32_t flow) {
        Sender& sender = senders_[flow];
        std::uint32_t slot;
        if (sender.probing) {
            if (!sender.probe_due) return none;
            sender.probe_due = false;
            ++counters_[domain.flow(flow).source].probes;
            slot = make_packet(domain, flow, false, probe_packet, 0, settings_.header_bytes);
        } else {
            while (sender.next < sender.packets && has(acknowledged_, sender.words, sender.next)) ++sender.next;
            const std::uint32_t number = sender.next;
            if (number >= sender.packets || static_cast<double>(number - sender.base) >= std::floor(sender.window))
                return none;
            ++sender.next;
            ++sender.in_flight;
            if (number >= sender.sent_until) {
                sender.sent_until = number + 1;
                ++domain.result(flow).sent_packets;
            } else {
                ++domain.result(flow).retransmitted_packets;
            }
            slot = make_packet(
                domain, flow, false, data_packet, number,
                settings_.header_bytes + payload_of(domain.flow(flow).bytes, settings_.payload_bytes, number));
        }
        // Sprayed: each path once, in an order of its own for each flow and round.
        const std::uint32_t i = sender.transmissions++;
        if ((i & (settings_.paths - 1)) == 0)
            sender.permutation = static_cast<std::uint32_t>(domain.random(flow, i));
        domain.packet(slot).path = static_cast<std::uint16_t>(
            (i * (sender.permutation | 1) + (sender.permutation >> 16)) & (settings_.paths - 1));
        domain.extra(slot).rank =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes_left(domain, flow), UINT32_MAX));
        if (sender.deadline_ps == no_deadline) start_timer(domain, flow);
        return slot;
    }

    // The timer is one event per flow, set anew when it comes too early.
    void start_timer(Domain& domain, std::uint32_t flow) {
        Sender& sender = senders_[flow];
        sender.deadline_ps = domain.now_ps() + sender.rto_ps;
        if (sender.timer_set) return;
        sender.timer_set = true;
        domain.set_timer(sender.deadline_ps, domain.flow(flow).source, flow);
    }

    void acknowledge(Sender& sender, std::uint32_t number) {
        std::uint64_t& word = acknowledged_[sender.words + number / 64];
        const std::uint64_t bit = std::uint64_t{1} << number % 64;
        if (word & bit) return;
        word |= bit;
        ++sender.acknowledged;
        if (number < sender.next) --sender.in_flight;  // others were given up by a timeout, and came after all
        if (sender.window < sender.slow_start_until)
            sender.window += 1;
        else
            sender.window += 1 / sender.window;
        sender.window = std::min(sender.window, sender.window_max);
    }

    void handle_ack(Domain& domain, std::uint32_t, std::uint32_t slot) {
        const Packet packet = domain.packet(slot);
        const std::uint32_t first_missing = domain.extra(slot).words[0];
        domain.free_packet(slot);
        Sender& sender = senders_[packet.flow];
        if (sender.acknowledged == sender.packets) return;
        const std::uint32_t before = sender.base;
        if (packet.type == ack_packet) acknowledge(sender, packet.number);
        while (sender.base < first_missing) acknowledge(sender, sender.base++);
        while (sender.base < sender.packets && has(acknowledged_, sender.words, sender.base)) ++sender.base;
        sender.next = std::max(sender.next, sender.base);
        sender.timeouts_in_row = 0;
        if (sender.probing) {  // the network has room again: slow start up to the largest window
            sender.probing = false;
            sender.slow_start_until = sender.window_max;
        }
        if (sender.acknowledged == sender.packets) {
            sender.deadline_ps = no_deadline;
            domain.flow_acknowledged(packet.flow);
            return;
        }
        if (sender.in_flight == 0)
            sender.deadline_ps = no_deadline;
        else if (sender.base > before)
            start_timer(domain, packet.flow);
        ready(domain, packet.flow);
    }

    // --- receiver ---

    void handle_data(Domain& domain, std::uint32_t host, std::uint32_t slot) {
        const Packet packet = domain.packet(slot);
        domain.free_packet(slot);
        const std::uint32_t flow = packet.flow;
        Receiver& receiver = receivers_[flow];
        bool finished = false;
        if (packet.type == data_packet && !has(received_, receiver.words, packet.number)) {
            received_[receiver.words + packet.number / 64] |= std::uint64_t{1} << packet.number % 64;
            domain.result(flow).delivered_bytes +=
                payload_of(domain.flow(flow).bytes, settings_.payload_bytes, packet.number);
            finished = ++receiver.received == receiver.packets;
            while (receiver.base < receiver.packets && has(received_, receiver.words, receiver.base))
                ++receiver.base;
        }
        const std::uint32_t type =
            packet.type == data_packet ? static_cast<std::uint32_t>(ack_packet) : probe_packet;
        const std::uint32_t ack = make_packet(domain, flow, true, type, packet.number, settings_.header_bytes);
        domain.packet(ack).path = packet.path;
        domain.packet(ack).traffic_class = control_class;
        domain.packet(ack).next = none;
        domain.extra(ack).words[0] = receiver.base;
        domain.extra(ack).rank = 0;
        Host& h = hosts_[host];
        (h.control_head == none ? h.control_head : domain.packet(h.control_tail).next) = ack;
        h.control_tail = ack;
        domain.wake(host);
        if (finished) domain.flow_delivered(flow);
    }

    std::vector<std::uint64_t> acknowledged_;
    std::vector<std::uint64_t> received_;
    std::vector<Host> hosts_;
};

const TransportKind pfabric = TransportKind::of<PFabric>("pfabric");

}  // namespace

}  // namespace dlcp::sim
