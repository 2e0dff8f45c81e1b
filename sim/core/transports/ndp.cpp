// NDP: Handley et al., "Re-architecting datacenter networks and stacks for low latency and high performance",
// SIGCOMM 2017, section 3. Senders start blind with a full window; switches cut what does not fit down to its header;
// receivers answer each packet at once and pull further packets at the pace of their own link.
//
// Invariant: every packet that arrives, whole or trimmed, is worth one pull at most, and a flow is given exactly the
// pulls that it needs, so that what is in flight to a host, or asked for, never exceeds the first windows. A PULL that
// is due as its packet arrives travels in that packet's ACK or NACK. Every answer brings the count of pulls so far, so
// that one lost costs nothing.
//
// Left out: returning headers to the sender when their own queue overflows, for switches that have next to no room for
// headers. Here headers have what the switch policy gives their class, and what is lost there the timeout repairs.
#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "sim/core/domain.hpp"
#include "sim/core/flow_transport.hpp"
#include "sim/core/transports/packets_of.hpp"

namespace dlcp::sim {
namespace {

constexpr std::uint32_t pull_timer = none;  // other timers are flows
constexpr std::uint32_t control_class = 7;
constexpr std::uint32_t owes_pulls = 1;  // Packet::importance: a count of packets that were lost stands beside it

struct Settings {
    std::uint32_t payload_bytes = 4096;
    std::uint32_t header_bytes = 64;
    std::uint32_t window_packets = 0;
    std::uint32_t paths = 64;
    std::int64_t rto_ps = 1'000'000'000;
    std::uint32_t queue_packets = 8;
    std::uint32_t header_queue_bytes = 4'000'000;

    void list(SettingsTable& table) {
        table.whole("payload_bytes", payload_bytes, 1, 65'000, "payload of a full packet");
        table.whole("header_bytes", header_bytes, 1, 1000, "on the wire beside the payload; an ACK, NACK or PULL");
        table.whole("window_packets", window_packets, 0, packet_number_limit - 1,
                    "sent before the first pull; 0: a round trip's worth and an eighth");
        table.whole("paths", paths, 1, 65'536, "path ids that a flow's packets take in turns; a power of two");
        table.whole("rto_ps", rto_ps, 1e6, 100e12,
                    "after which a packet without any answer is lost; three round trips at least");
        table.whole("queue_packets", queue_packets, 1, 10'000,
                    "full packets that a switch's queue holds before it trims (default policy)");
        table.whole("header_queue_bytes", header_queue_bytes, 64, 4294967294.0,
                    "headers and control that a switch's queue holds (default policy); "
                    "the authors return what does not fit to its sender");
        table.check_packet(payload_bytes, header_bytes);
        table.check_power_of_two("paths", paths);
    }
};

// A packet is unsent (its number is at least next_new), flying, to be sent again, or acknowledged: none of these.
struct SentWord {
    std::uint64_t flying = 0;  // sent, no answer yet
    std::uint64_t old = 0;     // of those: since before the last look_for_lost
    std::uint64_t again = 0;   // trimmed or lost
};
struct Sender {
    std::int64_t rto_ps = 0;
    std::uint32_t packets = 0;
    std::uint32_t next_new = 0;
    std::uint32_t credit = 0;        // packets that may leave now
    std::uint32_t pulled = 0;        // the receiver's count of pulls, as far as heard
    std::uint32_t acknowledged = 0;  // packets
    std::uint32_t again = 0;         // packets to be sent again
    std::uint32_t again_word = 0;    // none of them is in an earlier word
    std::uint32_t first_word = 0;    // all packets of earlier words are acknowledged
    std::uint32_t words = 0;         // where they start in sent_
    std::uint32_t sent = 0;          // transmissions: the place in the permutation of paths
    std::uint32_t permutation = 0;   // random bits that make it
    std::uint32_t lost = 0;          // packets that the timeout found
    std::uint32_t unpulled = 0;      // of those: how many left, or will, without being pulled
    std::uint8_t silent = 0;         // looks in a row that found silence, where pulls should come
    std::uint8_t patience_log2 = 0;  // so many such looks until something is done about it
    bool heard = false;              // anything since the last look
};
struct Receiver {
    std::uint32_t packets = 0;
    std::uint32_t received = 0;
    std::uint32_t to_pull = 0;  // pulls still to be asked for: beyond the first window, trimmed, lost
    std::uint32_t waiting = 0;  // asked for, not sent yet
    std::uint32_t pulled = 0;   // sent
    std::uint32_t next = none;  // flow behind this one in the host's pull queue
    std::uint32_t words = 0;    // where they start in received_
    std::uint32_t lost = 0;     // packets that the sender wants to be pulled once more, as far as heard
};
// Flows that wait to be pulled take turns, one packet each: fair among senders.
struct PullQueue {
    std::int64_t free_ps = 0;  // no pull before this
    std::uint32_t head = none;
    std::uint32_t tail = none;
};

struct alignas(64) Counters {
    std::uint64_t trimmed = 0;
    std::uint64_t pulls = 0;
    std::uint64_t lost = 0;
    static constexpr std::pair<const char*, std::uint64_t Counters::*> names[] = {
        {"trimmed_packets", &Counters::trimmed}, {"pulls", &Counters::pulls}, {"lost_packets", &Counters::lost}};
};

class Ndp final : public FlowStates<FlowTransport, Settings, Sender, Receiver, Counters> {
public:
    using FlowStates::FlowStates;

    void prepare(Simulation& simulation) override {
        FlowStates::prepare(simulation);
        const std::vector<Flow>& flows = simulation.flows();
        pull_queues_.resize(simulation.fabric().hosts());
        std::uint32_t words = 0;
        for (std::size_t f = 0; f < flows.size(); ++f) {
            const std::uint32_t packets = numbered_packets_of("ndp", f, flows[f].bytes, settings_.payload_bytes);
            Sender& sender = senders_[f];
            Receiver& receiver = receivers_[f];
            sender.packets = receiver.packets = packets;
            const std::int64_t rtt_ps = simulation.base_rtt_ps(flows[f].source, flows[f].destination,
                                                               full_packet_bytes(), settings_.header_bytes);
            // Over long links, what has not been answered for a millisecond may still be in flight.
            sender.rto_ps = std::max(settings_.rto_ps, 3 * rtt_ps);
            std::uint64_t window = settings_.window_packets;
            if (window == 0) {
                // A round trip's worth, and an eighth more for what waits in queues.
                const double packet_ps = 8e12 * full_packet_bytes() /
                                         static_cast<double>(simulation.fabric().link(flows[f].source).rate_bps);
                window = static_cast<std::uint64_t>(1.125 * static_cast<double>(rtt_ps) / packet_ps) + 1;
            }
            sender.credit = static_cast<std::uint32_t>(std::min<std::uint64_t>(window, packets));
            receiver.to_pull = sender.packets - sender.credit;
            sender.words = receiver.words = words;
            words += (sender.packets + 63) / 64;
        }
        sent_.resize(words);
        received_.resize(words);
    }

    void start_flow(Domain& domain, std::uint32_t flow) override {
        domain.set_timer(domain.now_ps() + senders_[flow].rto_ps, domain.flow(flow).source, flow);
        ready(domain, flow);
    }

    void handle_packet(Domain& domain, std::uint32_t host, std::uint32_t slot) override {
        if (domain.packet(slot).reverse)
            handle_answer(domain, slot);
        else
            handle_data(domain, host, slot);
    }

    void handle_timer(Domain& domain, std::uint32_t host, std::uint32_t timer) override {
        if (timer == pull_timer)
            send_pull(domain, host);
        else
            look_for_lost(domain, timer);
    }

private:
    // --- sender ---

    std::uint32_t next_data(Domain& domain, std::uint32_t flow) override {
        Sender& sender = senders_[flow];
        if (sender.credit == 0) return none;
        std::uint32_t number;
        if (sender.again > 0) {
            while (sent_[sender.words + sender.again_word].again == 0) ++sender.again_word;
            SentWord& word = sent_[sender.words + sender.again_word];
            const auto bit = static_cast<std::uint32_t>(std::countr_zero(word.again));
            number = sender.again_word * 64 + bit;
            word.again &= word.again - 1;
            --sender.again;
            ++domain.result(flow).retransmitted_packets;
        } else if (sender.next_new < sender.packets) {
            number = sender.next_new++;
            ++domain.result(flow).sent_packets;
        } else {
            return none;
        }
        --sender.credit;
        SentWord& word = sent_[sender.words + number / 64];
        word.flying |= std::uint64_t{1} << number % 64;
        word.old &= ~(std::uint64_t{1} << number % 64);

        const std::uint32_t slot = make_packet(
            domain, flow, false, data_packet, number,
            settings_.header_bytes + payload_of(domain.flow(flow).bytes, settings_.payload_bytes, number));
        Packet& packet = domain.packet(slot);
        packet.trimmable = true;
        packet.ecn_capable = false;
        packet.traffic_class = 0;
        packet.path = next_path(domain, flow, sender);
        if (sender.lost > 0) {
            packet.importance = owes_pulls;
            domain.extra(slot).words[0] = sender.lost - sender.unpulled;
        }
        return slot;
    }

    // Each path once, in an order of its own for each flow and round.
    std::uint16_t next_path(Domain& domain, std::uint32_t flow, Sender& sender) {
        const std::uint32_t i = sender.sent++;
        if ((i & (settings_.paths - 1)) == 0)
            sender.permutation = static_cast<std::uint32_t>(domain.random(flow, i));
        return static_cast<std::uint16_t>((i * (sender.permutation | 1) + (sender.permutation >> 16)) &
                                          (settings_.paths - 1));
    }

    void handle_answer(Domain& domain, std::uint32_t slot) {
        const Packet packet = domain.packet(slot);
        const std::uint32_t pulled = domain.extra(slot).words[0];
        domain.free_packet(slot);
        Sender& sender = senders_[packet.flow];
        sender.heard = true;
        if (pulled > sender.pulled) {
            sender.credit += pulled - sender.pulled;
            sender.pulled = pulled;
        }
        if (packet.type != PacketType::pull_packet) {
            const std::uint32_t number = packet.number;
            SentWord& word = sent_[sender.words + number / 64];
            const std::uint64_t bit = std::uint64_t{1} << number % 64;
            const bool acknowledged = packet.type == ack_packet;
            if (word.flying & bit) {
                word.flying &= ~bit;
                if (acknowledged)
                    ++sender.acknowledged;
                else
                    send_again(sender, number / 64, bit);
            } else if ((word.again & bit) && acknowledged) {  // taken for lost, but only late
                word.again &= ~bit;
                --sender.again;
                ++sender.acknowledged;
            } else if (sender.acknowledged == sender.packets) {
                return;  // a second answer, after the end
            }
            if (sender.acknowledged == sender.packets) {
                domain.flow_acknowledged(packet.flow);
                return;
            }
        }
        go_on(domain, packet.flow);
    }

    void go_on(Domain& domain, std::uint32_t flow) {
        const Sender& sender = senders_[flow];
        if (sender.credit > 0 && (sender.again > 0 || sender.next_new < sender.packets)) ready(domain, flow);
    }

    void send_again(Sender& sender, std::uint32_t word, std::uint64_t bits) {
        sent_[sender.words + word].again |= bits;
        sender.again += static_cast<std::uint32_t>(std::popcount(bits));
        sender.again_word = std::min(sender.again_word, word);
    }

    // The last resort, once per timeout as long as the flow lives: what was in flight at the last look and is so now is
    // lost. One packet leaves at once and, as all that follow, tells the receiver how many pulls more it owes; the others
    // wait for these, so that what overran a queue does not come back in one burst. If the flow waits for pulls and hears
    // nothing, they may be lost, too, or many flows may be before it: one packet leaves, then after twice the time.
    void look_for_lost(Domain& domain, std::uint32_t flow) {
        Sender& sender = senders_[flow];
        if (sender.acknowledged == sender.packets) return;
        std::uint32_t lost = 0;
        std::uint64_t flying = 0;
        bool open = false;
        for (std::uint32_t w = sender.first_word; w * 64 < sender.next_new; ++w) {
            SentWord& word = sent_[sender.words + w];
            const std::uint64_t gone = word.flying & word.old;
            word.flying &= ~gone;
            word.old = word.flying;
            flying |= word.flying;
            if (gone != 0) {
                send_again(sender, w, gone);
                lost += static_cast<std::uint32_t>(std::popcount(gone));
            }
            open = open || (word.flying | word.again) != 0 || w * 64 + 64 > sender.next_new;
            if (!open) sender.first_word = w + 1;
        }
        const bool waits = !sender.heard && flying == 0 && lost == 0 && sender.credit == 0;
        sender.silent = waits ? static_cast<std::uint8_t>(sender.silent + 1) : std::uint8_t{0};
        sender.heard = false;
        const bool gives_up = sender.silent >= 1U << sender.patience_log2;
        if (gives_up) {
            sender.silent = 0;
            sender.patience_log2 = static_cast<std::uint8_t>(std::min(sender.patience_log2 + 1, 6));
        }
        if (lost > 0 || gives_up) {
            ++domain.result(flow).timeouts;
            sender.lost += lost;
            counters_[domain.flow(flow).source].lost += lost;
            ++sender.credit;
            if (lost > 0) ++sender.unpulled;
            go_on(domain, flow);
        }
        domain.set_timer(domain.now_ps() + sender.rto_ps, domain.flow(flow).source, flow);
    }

    // --- receiver ---

    void handle_data(Domain& domain, std::uint32_t host, std::uint32_t slot) {
        const Packet packet = domain.packet(slot);
        const std::uint32_t flow = packet.flow;
        Receiver& receiver = receivers_[flow];
        std::uint32_t owed = 0;
        if (packet.importance == owes_pulls && domain.extra(slot).words[0] > receiver.lost) {
            owed = domain.extra(slot).words[0] - receiver.lost;
            receiver.lost += owed;
            receiver.to_pull += owed;
        }
        domain.free_packet(slot);
        std::uint64_t& word = received_[receiver.words + packet.number / 64];
        const std::uint64_t bit = std::uint64_t{1} << packet.number % 64;
        const bool known = (word & bit) != 0;
        const bool trimmed = packet.trimmed && !known;
        if (trimmed) {
            ++counters_[host].trimmed;
            ++receiver.to_pull;
        } else if (!known) {
            word |= bit;
            ++receiver.received;
            domain.result(flow).delivered_bytes +=
                payload_of(domain.flow(flow).bytes, settings_.payload_bytes, packet.number);
        }

        for (std::uint32_t due = 1 + owed; due > 0 && receiver.to_pull > 0; --due) {
            --receiver.to_pull;
            PullQueue& queue = pull_queues_[host];
            if (queue.head == none && domain.now_ps() >= queue.free_ps) {
                ++receiver.pulled;
                ++counters_[host].pulls;
                queue.free_ps = domain.now_ps() + pull_ps(domain, host);
            } else {
                if (queue.head == none) domain.set_timer(queue.free_ps, host, pull_timer);
                if (receiver.waiting++ == 0) join(queue, flow);
            }
        }
        answer(domain, host, flow, trimmed ? nack_packet : ack_packet, packet.number, packet.path);
        if (!known && !trimmed && receiver.received == receiver.packets) domain.flow_delivered(flow);
    }

    void answer(Domain& domain, std::uint32_t host, std::uint32_t flow, std::uint32_t type, std::uint32_t number,
                std::uint16_t path) {
        const std::uint32_t slot = make_packet(domain, flow, true, type, number, settings_.header_bytes);
        Packet& packet = domain.packet(slot);
        packet.traffic_class = control_class;
        packet.path = path;
        domain.extra(slot).words[0] = receivers_[flow].pulled;
        send_control(domain, host, slot);
    }

    // What a full packet takes on the host's link: pulled packets then arrive as fast as it can carry them.
    std::int64_t pull_ps(const Domain& domain, std::uint32_t host) const {
        return domain.host_transmit_ps(host, full_packet_bytes());
    }

    void join(PullQueue& queue, std::uint32_t flow) {
        receivers_[flow].next = none;
        (queue.head == none ? queue.head : receivers_[queue.tail].next) = flow;
        queue.tail = flow;
    }

    void send_pull(Domain& domain, std::uint32_t host) {
        PullQueue& queue = pull_queues_[host];
        const std::uint32_t flow = queue.head;
        Receiver& receiver = receivers_[flow];
        queue.head = receiver.next;
        ++receiver.pulled;
        ++counters_[host].pulls;
        if (--receiver.waiting > 0) join(queue, flow);
        queue.free_ps = domain.now_ps() + pull_ps(domain, host);
        if (queue.head != none) domain.set_timer(queue.free_ps, host, pull_timer);
        const std::uint32_t path = receiver.pulled * 0x9e3779b1U >> 16 & (settings_.paths - 1);
        answer(domain, host, flow, PacketType::pull_packet, 0, static_cast<std::uint16_t>(path));
    }

    std::vector<SentWord> sent_;           // 64 packets of a flow each; a flow's are its sender's
    std::vector<std::uint64_t> received_;  // likewise; the receiver's
    std::vector<PullQueue> pull_queues_;   // per host
};

const TransportKind ndp = TransportKind::of<Ndp>("ndp");

}  // namespace

}  // namespace dlcp::sim
