// A reliable, unordered transport after Ultra Ethernet's (UET 1.0: mode RUD with NSCC): packets are sprayed over
// entropies, switches trim instead of dropping, trimmed packets are asked for again at once, a window follows marks
// and delay.
//
// Window: NSCC as in the specification's section on congestion management and SMaRTT (arXiv 2404.01630), with the
// constants published with the consortium's reference model. Entropies: good ones are used again (REPS, arXiv
// 2407.21625); those that were marked, trimmed or lost are passed over for a while. Not modelled: packet delivery
// contexts' set-up, receiver credit, modes other than RUD.
//
// State is allocated when a flow starts and freed when it is over; work per packet is O(1): acknowledgements carry a
// cumulative number and 64 bits, sent packets stand in a ring in the order they left.
#include <algorithm>
#include <bit>
#include <cmath>

#include "sim/core/domain.hpp"
#include "sim/core/flow_transport.hpp"
#include "sim/core/simulation.hpp"
#include "sim/core/transports/packets_of.hpp"
#include "sim/core/transports/registry.hpp"

namespace dlcp::sim {
namespace {

constexpr std::uint32_t control_class = 7;
constexpr std::uint32_t control_bytes = 64;  // of an acknowledgement or a probe on the wire
constexpr std::uint32_t probe_packet = first_own;
constexpr std::uint32_t recycled_entropies = 32;
// In round trips: how long a sender that hears nothing waits before it probes, and before it probes again.
constexpr std::int64_t probe_after = 3, probe_again_after = 5;
constexpr unsigned sent_time_shift = 12;  // the ring's clock: 4096 ps, 32 bits, so that 8 s can be told apart
// How many rounds of all entropies one sits out.
constexpr std::uint8_t marked_penalty = 1, trimmed_penalty = 4, lost_penalty = 15;

// PacketExtra::words of data: [0] place in the ring of sent packets, [1] asks for an acknowledgement at once. Of an
// acknowledgement: [0] place of the packet that caused it, [1] [2] received or not, from number [3] on, [4] was
// marked (1), answers a probe (2). Of a negative one: [0] place of the packet that was trimmed.

struct Settings {
    std::uint32_t payload_bytes;
    std::uint32_t header_bytes;
    std::uint32_t entropies;
    bool recycle;
    bool trimming;
    bool probe;
    std::uint32_t ack_packets;
    double max_window_bdp;
    double target_delay_rtt;
    std::int64_t base_rtt_ps;
    std::int64_t min_rto_ps;
    double reorder_rtt;
    double delay_gain;
};

struct SentPacket {
    std::uint32_t time;  // in units of 2^sent_time_shift ps, modulo 2^32
    std::uint32_t entropy : 8;
    std::uint32_t number : 24;
};
constexpr std::uint32_t no_number = 0xffffff;  // it was trimmed or given up: this place means nothing any more
constexpr std::uint32_t most_packets = no_number;
constexpr std::int64_t max_rto_ps = 4'000'000'000'000;

// 64 packets of a flow, as its sender knows them.
struct Block {
    std::uint64_t acknowledged = 0;
    std::uint64_t in_flight = 0;
};

struct Sender {
    // NSCC, bytes and picoseconds
    double window = 0;
    double max_window = 0;
    double increase = 0;  // collected since the last adjustment; divided by the window when applied
    double average_delay_ps = 0;
    double fast_bytes = 0;  // acknowledged in a row with hardly any delay
    double achieved_bytes = 0;
    double adjust_bytes = 0;
    double ignored_bytes = 0;
    double bytes_to_ignore = 0;
    std::int64_t base_rtt_ps = 0;
    std::int64_t reference_rtt_ps = 0;  // what delays are measured against: the network's
    std::int64_t target_delay_ps = 0;
    std::int64_t adapt_end_ps = 0;
    std::int64_t last_decrease_ps = 0;
    std::int64_t last_adjust_ps = 0;
    double scale = 1;  // bandwidth-delay product over the reference's, 100 Gb/s times 12 us
    bool fast = false;
    bool adapt_wanted = false;

    // Delivery
    bool timer_set = false;
    std::uint8_t backoff = 0;
    std::uint16_t path_base = 0;
    std::uint32_t packets = 0;
    std::uint32_t last_payload = 0;
    std::uint32_t next_number = 0;
    std::uint32_t cumulative = 0;
    std::uint32_t acknowledged = 0;
    std::uint32_t in_flight = 0;
    std::uint32_t asked_place = UINT32_MAX;  // of the last packet sent that asks for an acknowledgement
    std::uint32_t ring_mask = 0;
    std::uint32_t ring_head = 0;
    std::uint32_t ring_tail = 0;
    std::uint32_t lost_head = 0;
    std::uint32_t lost_tail = 0;
    std::uint32_t newest_acknowledged = 0;  // when it was sent, in the ring's clock
    std::int64_t min_rto_ps = 0;
    std::int64_t heard_ps = 0;  // when something came back, was probed for, or left after a pause
    bool probing = false;
    std::uint32_t reorder = 0;  // in the ring's clock

    // Entropies
    std::uint32_t random = 0;
    std::uint16_t turn = 0;
    std::uint8_t turn_mask = 0;
    std::uint8_t recycled_first = 0;
    std::uint8_t recycled_count = 0;
    std::uint8_t recycled[recycled_entropies] = {};

    std::vector<SentPacket> ring;
    std::vector<Block> blocks;
    // Empty until something goes wrong: most flows are short.
    std::vector<std::uint32_t> lost;  // numbers to be sent again, first in, first out, as many places as the ring
    std::vector<std::uint8_t> penalty;  // per entropy

    SentPacket& sent(std::uint32_t place) { return ring[place & ring_mask]; }
    bool has(std::uint32_t number) const { return (blocks[number / 64].acknowledged >> (number % 64) & 1) != 0; }
    std::int64_t rto_ps() const { return std::min(min_rto_ps << backoff, max_rto_ps); }
};

struct Receiver {
    std::uint32_t packets = 0;
    std::uint32_t received = 0;
    std::uint32_t cumulative = 0;
    std::uint32_t unacknowledged = 0;
    std::vector<std::uint64_t> bits;
};

class Uet final : public FlowTransport {
public:
    explicit Uet(Parameters parameters);

    void prepare(Simulation& simulation) override;
    void start_flow(Domain& domain, std::uint32_t flow) override;
    void handle_packet(Domain& domain, std::uint32_t host, std::uint32_t slot) override;
    void handle_timer(Domain& domain, std::uint32_t host, std::uint32_t timer) override;
    std::uint32_t payload_bytes() const override { return settings_.payload_bytes; }
    std::uint32_t header_bytes() const override { return settings_.header_bytes; }
    std::map<std::string, double> counters() const override;

protected:
    std::uint32_t next_data(Domain& domain, std::uint32_t flow) override;

private:
    struct alignas(64) HostCounters {
        std::uint64_t acks = 0;
        std::uint64_t nacks = 0;
        std::uint64_t lost = 0;
        std::uint64_t duplicates = 0;
        std::uint64_t quick_adapts = 0;
        std::uint64_t probes = 0;
    };

    double packet_bytes() const { return settings_.payload_bytes + settings_.header_bytes; }
    static std::uint32_t clock(std::int64_t time_ps) {
        return static_cast<std::uint32_t>(time_ps >> sent_time_shift);
    }

    std::unique_ptr<Receiver> make_receiver(std::uint32_t flow, const Domain& domain) const;
    void receive_data(Domain& domain, std::uint32_t host, std::uint32_t slot);
    void send_ack(Domain& domain, std::uint32_t host, std::uint32_t slot, const Receiver* receiver);
    void receive_ack(Domain& domain, std::uint32_t slot);
    void receive_probe(Domain& domain, std::uint32_t host, std::uint32_t slot);
    void receive_nack(Domain& domain, std::uint32_t slot);

    bool may_send(const Sender& s) const;
    static bool awaits_answer(const Sender& s);
    static std::uint32_t acknowledge(Sender& s, std::uint32_t word, std::uint64_t mask);
    static void drop_settled(Sender& s);
    void give_up(Sender& s, std::uint32_t place, std::uint8_t penalty) const;
    void find_lost(Domain& domain, Sender& s, std::uint32_t host);
    std::int64_t probe_ps(const Sender& s) const;
    void arm(Domain& domain, Sender& s, std::uint32_t flow);
    void send_probe(Domain& domain, Sender& s, std::uint32_t host, std::uint32_t flow);

    // Entropies
    std::uint8_t pick_entropy(Sender& s) const;
    void penalise(Sender& s, std::uint32_t entropy, std::uint8_t penalty) const;
    void judge_entropy(Sender& s, std::uint16_t path, std::uint8_t penalty) const;

    // NSCC
    void bound_window(Sender& s) const;
    bool quick_adapt(Domain& domain, Sender& s, std::uint32_t host, bool loss, bool marked, std::int64_t delay_ps);
    void measure_delay(Sender& s, std::int64_t delay_ps, bool marked) const;
    void window_on_ack(Domain& domain, Sender& s, std::uint32_t host, bool marked, std::int64_t delay_ps,
                       double bytes);
    void window_on_loss(Domain& domain, Sender& s, std::uint32_t host, bool congestion);

    Settings settings_;
    std::int64_t network_rtt_ps_ = 0;
    std::vector<std::unique_ptr<Sender>> senders_;      // per flow; touched at its source only
    std::vector<std::unique_ptr<Receiver>> receivers_;  // per flow; touched at its destination only
    std::vector<HostCounters> counters_;
};

[[noreturn]] void refuse(const char* name, double value, const char* accepted) {
    refuse_setting("uet", name, value, accepted);
}

Uet::Uet(Parameters parameters) {
    Settings& s = settings_;
    s.payload_bytes = static_cast<std::uint32_t>(parameters.take_integer("payload_bytes", 4096));
    s.header_bytes = static_cast<std::uint32_t>(parameters.take_integer("header_bytes", 64));
    s.entropies = static_cast<std::uint32_t>(parameters.take_integer("entropies", 256));
    s.recycle = parameters.take("recycle", 1) != 0;
    s.trimming = parameters.take("trimming", 1) != 0;
    s.probe = parameters.take("probe", 1) != 0;
    const std::int64_t ack_bytes = parameters.take_integer("ack_bytes", 16384);
    s.max_window_bdp = parameters.take("max_window_bdp", 1.5);
    s.target_delay_rtt = parameters.take("target_delay_rtt", s.trimming ? 0.75 : 1.0);
    s.base_rtt_ps = parameters.take_integer("base_rtt_ps", 0);
    s.min_rto_ps = parameters.take_integer("min_rto_ps", 0);
    s.reorder_rtt = parameters.take("reorder_rtt", s.trimming ? 2.0 : 1.0);
    s.delay_gain = parameters.take("delay_gain", 0.0125);
    parameters.done("uet");
    if (s.payload_bytes < 1 || s.payload_bytes > 60000) refuse("payload_bytes", s.payload_bytes, "1 to 60000");
    if (s.header_bytes < 24 || s.header_bytes > 1000) refuse("header_bytes", s.header_bytes, "24 to 1000");
    if (!std::has_single_bit(s.entropies) || s.entropies > 256)
        refuse("entropies", s.entropies, "powers of two from 1 to 256");
    if (ack_bytes < 0) refuse("ack_bytes", static_cast<double>(ack_bytes), "0 (each packet) and more");
    if (s.max_window_bdp <= 0) refuse("max_window_bdp", s.max_window_bdp, "more than 0");
    if (s.target_delay_rtt <= 0) refuse("target_delay_rtt", s.target_delay_rtt, "more than 0");
    if (s.base_rtt_ps < 0) refuse("base_rtt_ps", static_cast<double>(s.base_rtt_ps), "0 (measured) and more");
    if (s.min_rto_ps < 0) refuse("min_rto_ps", static_cast<double>(s.min_rto_ps), "0 (8 round trips) and more");
    if (s.reorder_rtt <= 0) refuse("reorder_rtt", s.reorder_rtt, "more than 0");
    if (s.delay_gain <= 0 || s.delay_gain > 1) refuse("delay_gain", s.delay_gain, "above 0, up to 1");
    s.ack_packets = static_cast<std::uint32_t>(std::max<std::int64_t>(ack_bytes / s.payload_bytes, 1));
}

void Uet::prepare(Simulation& simulation) {
    FlowTransport::prepare(simulation);
    const std::vector<Flow>& flows = simulation.flows();
    senders_.resize(flows.size());
    receivers_.resize(flows.size());
    counters_.resize(simulation.fabric().hosts());
    network_rtt_ps_ = settings_.base_rtt_ps;
    if (network_rtt_ps_ == 0) {
        // The longest round trip is a constant of the network (NSCC configures it); a sample of the flows finds it.
        const std::size_t step = std::max<std::size_t>(flows.size() / 4096, 1);
        for (std::size_t i = 0; i < flows.size(); i += step) {
            const std::int64_t rtt =
                simulation.base_rtt_ps(flows[i].source, flows[i].destination,
                                       settings_.payload_bytes + settings_.header_bytes, control_bytes);
            network_rtt_ps_ = std::max(network_rtt_ps_, rtt);
        }
    }
    for (const Flow& flow : flows)
        if (packets_of(flow.bytes, settings_.payload_bytes) >= most_packets)
            refuse("a flow's size in packets", static_cast<double>(flow.bytes) / settings_.payload_bytes,
                   "less than 2^24 - 1");
}

// --- Sending ---

void Uet::start_flow(Domain& domain, std::uint32_t index) {
    const Flow& flow = domain.flow(index);
    senders_[index] = std::make_unique<Sender>();
    Sender& s = *senders_[index];
    s.packets = static_cast<std::uint32_t>(packets_of(flow.bytes, settings_.payload_bytes));
    s.last_payload = payload_of(flow.bytes, settings_.payload_bytes, s.packets - 1);
    s.base_rtt_ps = domain.simulation().base_rtt_ps(
        flow.source, flow.destination, settings_.payload_bytes + settings_.header_bytes, control_bytes);
    // All flows of a network share one target, or short ones would starve beside long ones; but not a rack beside
    // another site.
    s.reference_rtt_ps =
        s.base_rtt_ps * 4 >= network_rtt_ps_ ? std::max(network_rtt_ps_, s.base_rtt_ps) : s.base_rtt_ps;
    const double bytes_per_ps = static_cast<double>(domain.host_rate_bps(flow.source)) / 8e12;
    s.max_window =
        std::max(settings_.max_window_bdp * bytes_per_ps * static_cast<double>(s.base_rtt_ps), packet_bytes());
    s.window = s.max_window;
    s.scale = bytes_per_ps * static_cast<double>(s.reference_rtt_ps) / (100e9 / 8e12 * 12e6);
    s.target_delay_ps =
        static_cast<std::int64_t>(settings_.target_delay_rtt * static_cast<double>(s.reference_rtt_ps));
    s.min_rto_ps = settings_.min_rto_ps != 0 ? settings_.min_rto_ps : 8 * s.reference_rtt_ps;
    s.reorder = clock(static_cast<std::int64_t>(settings_.reorder_rtt * static_cast<double>(s.reference_rtt_ps)));
    s.newest_acknowledged = clock(domain.now_ps());

    // Four windows: what was sent since the oldest packet that is still under way, which is given up a round trip or
    // two after those around it have arrived. A full ring holds the sender back.
    const double window_packets = std::ceil(s.max_window / packet_bytes());
    const std::uint32_t places =
        std::bit_ceil(static_cast<std::uint32_t>(std::min(4 * window_packets + 8, 2.0 * s.packets + 8)));
    s.ring_mask = places - 1;
    s.ring.resize(places);
    s.blocks.resize((s.packets + 63) / 64);
    const std::uint64_t random = domain.random(index, 0);
    s.random = static_cast<std::uint32_t>(random) | 1;
    s.path_base = static_cast<std::uint16_t>(random >> 32);
    s.turn_mask = static_cast<std::uint8_t>((random >> 48) & (settings_.entropies - 1));
    ready(domain, index);
}

bool Uet::may_send(const Sender& s) const {
    if (s.ring_tail - s.ring_head > s.ring_mask) return false;
    if (s.lost_head == s.lost_tail && s.next_number == s.packets) return false;
    if (s.in_flight * packet_bytes() < s.window) return true;
    // The window may have shrunk below what the receiver keeps unacknowledged: a packet that asks gets the clock going
    // again, unless one is under way.
    return s.in_flight < settings_.ack_packets && !awaits_answer(s);
}

bool Uet::awaits_answer(const Sender& s) {
    if (s.asked_place - s.ring_head >= s.ring_tail - s.ring_head) return false;
    const std::uint32_t number = s.ring[s.asked_place & s.ring_mask].number;
    return number != no_number && !s.has(number);
}

std::uint32_t Uet::next_data(Domain& domain, std::uint32_t flow) {
    Sender* sender = senders_[flow].get();
    if (sender == nullptr) return none;
    Sender& s = *sender;
    while (s.lost_head != s.lost_tail) {  // what has come after all
        const std::uint32_t number = s.lost[s.lost_head & s.ring_mask];
        if (!s.has(number)) break;
        ++s.lost_head;
    }
    if (!may_send(s)) return none;

    const bool again = s.lost_head != s.lost_tail;
    const std::uint32_t number = again ? s.lost[s.lost_head++ & s.ring_mask] : s.next_number++;
    const std::uint32_t payload = number + 1 == s.packets ? s.last_payload : settings_.payload_bytes;
    const std::uint32_t slot =
        make_packet(domain, flow, false, data_packet, number, payload + settings_.header_bytes);
    const std::uint8_t entropy = pick_entropy(s);
    Packet& packet = domain.packet(slot);
    packet.trimmable = settings_.trimming;
    packet.path = static_cast<std::uint16_t>(s.path_base + entropy);
    PacketExtra& extra = domain.extra(slot);
    extra.time_ps = domain.now_ps();
    extra.words[0] = s.ring_tail;
    // Asks for an acknowledgement where the receiver might wait for more than the window lets through.
    const bool ask = again || s.next_number == s.packets ||
                     s.window < 2 * settings_.ack_packets * packet_bytes() ||
                     s.in_flight * packet_bytes() >= s.window;
    extra.words[1] = ask;
    if (ask) s.asked_place = s.ring_tail;

    if (s.in_flight == 0) s.heard_ps = domain.now_ps();
    s.sent(s.ring_tail++) = {clock(domain.now_ps()), entropy, number};
    s.blocks[number / 64].in_flight |= std::uint64_t{1} << (number % 64);
    ++s.in_flight;

    FlowResult& result = domain.result(flow);
    if (again)
        ++result.retransmitted_packets;
    else
        ++result.sent_packets;
    if (!s.timer_set) arm(domain, s, flow);
    return slot;
}

// When the sender acts if it hears nothing: as the reference model's, which probes before it times out.
std::int64_t Uet::probe_ps(const Sender& s) const {
    if (!settings_.probe) return INT64_MAX;
    if (s.probing) return s.heard_ps + probe_again_after * s.reference_rtt_ps;
    const bool all_sent = s.next_number == s.packets && s.lost_head == s.lost_tail;
    return s.heard_ps + (all_sent ? s.base_rtt_ps + s.target_delay_ps : probe_after * s.reference_rtt_ps);
}

// The one timer of a flow, for the probe or the timeout, whichever comes first. Something is in the ring.
void Uet::arm(Domain& domain, Sender& s, std::uint32_t flow) {
    s.timer_set = true;
    const auto age = static_cast<std::int32_t>(clock(domain.now_ps()) - s.sent(s.ring_head).time);
    const std::int64_t timeout_ps = domain.now_ps() + s.rto_ps() - age * (std::int64_t{1} << sent_time_shift);
    domain.set_timer(std::max(std::min(timeout_ps, probe_ps(s)), domain.now_ps() + (1 << sent_time_shift)),
                     domain.flow(flow).source, flow);
}

void Uet::send_probe(Domain& domain, Sender& s, std::uint32_t host, std::uint32_t flow) {
    const std::uint32_t slot = make_packet(domain, flow, false, probe_packet, s.cumulative, control_bytes);
    domain.packet(slot).path = static_cast<std::uint16_t>(s.path_base + pick_entropy(s));
    PacketExtra& extra = domain.extra(slot);
    extra.time_ps = domain.now_ps();
    extra.words[0] = s.ring_tail;
    s.probing = true;
    s.heard_ps = domain.now_ps();
    ++counters_[host].probes;
    send_control(domain, host, slot);
}

// --- Receiving ---

void Uet::handle_packet(Domain& domain, std::uint32_t host, std::uint32_t slot) {
    switch (domain.packet(slot).type) {
        case data_packet: receive_data(domain, host, slot); break;
        case ack_packet: receive_ack(domain, slot); break;
        case probe_packet: receive_probe(domain, host, slot); break;
        default: receive_nack(domain, slot); break;
    }
    domain.free_packet(slot);
}

void Uet::receive_data(Domain& domain, std::uint32_t host, std::uint32_t slot) {
    const Packet packet = domain.packet(slot);
    std::unique_ptr<Receiver>& receiver = receivers_[packet.flow];
    FlowResult& result = domain.result(packet.flow);
    if (receiver == nullptr) {
        if (result.delivered_ps >= 0) {  // a copy of what has come: all is acknowledged
            ++counters_[host].duplicates;
            send_ack(domain, host, slot, nullptr);
            return;
        }
        receiver = make_receiver(packet.flow, domain);
    }
    Receiver& r = *receiver;
    const std::uint32_t number = packet.number;
    std::uint64_t& bits = r.bits[number / 64];
    const std::uint64_t bit = std::uint64_t{1} << (number % 64);
    if (packet.trimmed) {
        if ((bits & bit) != 0) {
            ++counters_[host].duplicates;
            send_ack(domain, host, slot, &r);
            return;
        }
        ++counters_[host].nacks;
        const std::uint32_t nack = make_packet(domain, packet.flow, true, nack_packet, number, control_bytes);
        Packet& answer = domain.packet(nack);
        answer.traffic_class = control_class;
        answer.path = packet.path;
        domain.extra(nack).words[0] = domain.extra(slot).words[0];
        send_control(domain, host, nack);
        return;
    }
    if ((bits & bit) != 0) {
        ++counters_[host].duplicates;
        send_ack(domain, host, slot, &r);
        return;
    }
    bits |= bit;
    ++r.received;
    ++r.unacknowledged;
    result.delivered_bytes += packet.wire_bytes - settings_.header_bytes;
    while (r.cumulative < r.packets) {  // a word at a time
        const std::uint64_t missing = ~r.bits[r.cumulative / 64] >> (r.cumulative % 64);
        if (missing == 0) {
            r.cumulative += 64 - r.cumulative % 64;
            continue;
        }
        r.cumulative += static_cast<std::uint32_t>(std::countr_zero(missing));
        break;
    }
    r.cumulative = std::min(r.cumulative, r.packets);
    const bool all = r.received == r.packets;
    if (all || packet.congestion_marked || domain.extra(slot).words[1] != 0 ||
        r.unacknowledged >= settings_.ack_packets)
        send_ack(domain, host, slot, &r);
    if (all) {
        domain.flow_delivered(packet.flow);
        receiver.reset();
    }
}

std::unique_ptr<Receiver> Uet::make_receiver(std::uint32_t flow, const Domain& domain) const {
    auto receiver = std::make_unique<Receiver>();
    receiver->packets = static_cast<std::uint32_t>(packets_of(domain.flow(flow).bytes, settings_.payload_bytes));
    receiver->bits.resize((receiver->packets + 63) / 64);
    return receiver;
}

void Uet::receive_probe(Domain& domain, std::uint32_t host, std::uint32_t slot) {
    const std::uint32_t flow = domain.packet(slot).flow;
    std::unique_ptr<Receiver>& receiver = receivers_[flow];
    if (receiver == nullptr && domain.result(flow).delivered_ps < 0) receiver = make_receiver(flow, domain);
    send_ack(domain, host, slot, receiver.get());
}

// Answers a data packet or a probe. `receiver` nullptr: all of the flow is there.
void Uet::send_ack(Domain& domain, std::uint32_t host, std::uint32_t slot, const Receiver* receiver) {
    const Packet packet = domain.packet(slot);
    const std::uint32_t cumulative =
        receiver == nullptr
            ? static_cast<std::uint32_t>(packets_of(domain.flow(packet.flow).bytes, settings_.payload_bytes))
            : receiver->cumulative;
    const std::uint32_t ack = make_packet(domain, packet.flow, true, ack_packet, cumulative, control_bytes);
    Packet& answer = domain.packet(ack);
    answer.traffic_class = control_class;
    answer.path = packet.path;
    PacketExtra& extra = domain.extra(ack);
    const PacketExtra& caused = domain.extra(slot);
    extra.time_ps = caused.time_ps;
    extra.words[0] = caused.words[0];
    extra.words[4] = (packet.congestion_marked && !packet.trimmed ? 1 : 0) | (packet.type == probe_packet ? 2 : 0);
    // The 64 numbers from the first that is missing, or, if the packet is further on, those up to it.
    const std::uint32_t number = packet.number;
    const std::uint32_t from = number >= cumulative + 64 ? number - 63 : cumulative;
    std::uint64_t bits = 0;
    if (receiver != nullptr && from < receiver->packets) {
        const std::uint32_t word = from / 64, offset = from % 64;
        bits = receiver->bits[word] >> offset;
        if (offset != 0 && word + 1 < receiver->bits.size()) bits |= receiver->bits[word + 1] << (64 - offset);
    }
    extra.words[1] = static_cast<std::uint32_t>(bits);
    extra.words[2] = static_cast<std::uint32_t>(bits >> 32);
    extra.words[3] = from;
    ++counters_[host].acks;
    if (receiver != nullptr) receivers_[packet.flow]->unacknowledged = 0;
    send_control(domain, host, ack);
}

// Marks packets of a block as acknowledged: how many are new.
std::uint32_t Uet::acknowledge(Sender& s, std::uint32_t word, std::uint64_t mask) {
    Block& block = s.blocks[word];
    const std::uint64_t fresh = mask & ~block.acknowledged;
    block.acknowledged |= fresh;
    s.in_flight -= static_cast<std::uint32_t>(std::popcount(fresh & block.in_flight));
    block.in_flight &= ~fresh;
    return static_cast<std::uint32_t>(std::popcount(fresh));
}

void Uet::receive_ack(Domain& domain, std::uint32_t slot) {
    const Packet packet = domain.packet(slot);
    Sender* sender = senders_[packet.flow].get();
    if (sender == nullptr) return;
    Sender& s = *sender;
    const std::uint32_t host = domain.flow(packet.flow).source;
    const PacketExtra extra = domain.extra(slot);

    std::uint32_t fresh = 0;
    const std::uint32_t cumulative = packet.number;
    while (s.cumulative < cumulative) {
        const std::uint32_t word = s.cumulative / 64, from = s.cumulative % 64;
        const std::uint32_t count = std::min(64 - from, cumulative - s.cumulative);
        fresh += acknowledge(s, word, (count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << from);
        s.cumulative += count;
    }
    const std::uint64_t bits = extra.words[1] | std::uint64_t{extra.words[2]} << 32;
    if (bits != 0) {
        const std::uint32_t word = extra.words[3] / 64, offset = extra.words[3] % 64;
        fresh += acknowledge(s, word, bits << offset);
        if (offset != 0 && word + 1 < s.blocks.size()) fresh += acknowledge(s, word + 1, bits >> (64 - offset));
    }
    s.acknowledged += fresh;
    if (s.acknowledged == s.packets) {
        domain.flow_acknowledged(packet.flow);
        senders_[packet.flow].reset();
        return;
    }
    if (fresh != 0) s.backoff = 0;
    s.heard_ps = domain.now_ps();
    s.probing = false;

    const bool marked = (extra.words[4] & 1) != 0, probed = (extra.words[4] & 2) != 0;
    const std::int64_t delay = std::max<std::int64_t>(domain.now_ps() - extra.time_ps - s.base_rtt_ps, 0);
    judge_entropy(s, packet.path, marked ? marked_penalty : 0);
    // The answer to a probe says what is lost only if queues are short: data may be slower than what is small.
    if (!probed || delay < s.target_delay_ps) {
        const std::uint32_t sent = clock(extra.time_ps);
        if (static_cast<std::int32_t>(sent - s.newest_acknowledged) > 0) s.newest_acknowledged = sent;
    }
    if (!probed || fresh != 0) window_on_ack(domain, s, host, marked, delay, fresh * packet_bytes());
    find_lost(domain, s, host);
    if (may_send(s)) ready(domain, packet.flow);
}

void Uet::receive_nack(Domain& domain, std::uint32_t slot) {
    const Packet packet = domain.packet(slot);
    Sender* sender = senders_[packet.flow].get();
    if (sender == nullptr) return;
    Sender& s = *sender;
    const std::uint32_t host = domain.flow(packet.flow).source;
    const std::uint32_t place = domain.extra(slot).words[0];
    if (place - s.ring_head < s.ring_tail - s.ring_head && s.sent(place).number == packet.number)
        give_up(s, place, trimmed_penalty);
    s.heard_ps = domain.now_ps();
    s.probing = false;
    drop_settled(s);
    window_on_loss(domain, s, host, true);
    if (may_send(s)) ready(domain, packet.flow);
}

// --- Loss ---

// Passes over what needs no waiting for any more at the ring's head.
void Uet::drop_settled(Sender& s) {
    while (s.ring_head != s.ring_tail) {
        const SentPacket sent = s.sent(s.ring_head);
        if (sent.number != no_number && !s.has(sent.number)) return;
        ++s.ring_head;
    }
}

// This transmission will not arrive: its number is to be sent again.
void Uet::give_up(Sender& s, std::uint32_t place, std::uint8_t penalty) const {
    SentPacket& sent = s.sent(place);
    const std::uint32_t number = sent.number;
    sent.number = no_number;
    penalise(s, sent.entropy, penalty);
    Block& block = s.blocks[number / 64];
    const std::uint64_t bit = std::uint64_t{1} << (number % 64);
    if ((block.acknowledged & bit) != 0 || (block.in_flight & bit) == 0) return;
    block.in_flight &= ~bit;
    --s.in_flight;
    if (s.lost.empty()) s.lost.resize(s.ring.size());
    s.lost[s.lost_tail++ & s.ring_mask] = number;
}

// As RFC 8985 has it: lost is what left a reordering window before a packet that has arrived.
void Uet::find_lost(Domain& domain, Sender& s, std::uint32_t host) {
    for (drop_settled(s); s.ring_head != s.ring_tail; drop_settled(s)) {
        const std::int32_t ahead = static_cast<std::int32_t>(s.newest_acknowledged - s.sent(s.ring_head).time);
        if (ahead <= static_cast<std::int32_t>(s.reorder)) return;
        give_up(s, s.ring_head, lost_penalty);
        ++counters_[host].lost;
        window_on_loss(domain, s, host, !settings_.trimming);
    }
}

void Uet::handle_timer(Domain& domain, std::uint32_t host, std::uint32_t flow) {
    Sender* sender = senders_[flow].get();
    if (sender == nullptr) return;
    Sender& s = *sender;
    s.timer_set = false;
    drop_settled(s);
    if (s.ring_head == s.ring_tail) return;  // armed again when something leaves
    const std::uint32_t now = clock(domain.now_ps());
    const auto rto = static_cast<std::int32_t>(clock(s.rto_ps()));
    const auto overdue = [&] {
        return s.ring_head != s.ring_tail && static_cast<std::int32_t>(now - s.sent(s.ring_head).time) >= rto;
    };
    if (overdue()) {
        ++domain.result(flow).timeouts;
        for (; overdue(); drop_settled(s)) {
            give_up(s, s.ring_head, lost_penalty);
            ++counters_[host].lost;
            s.window -= packet_bytes();
        }
        bound_window(s);
        if (s.backoff < 8) ++s.backoff;
        if (may_send(s)) ready(domain, flow);
    } else if (domain.now_ps() >= probe_ps(s)) {
        send_probe(domain, s, host, flow);
    }
    if (s.ring_head != s.ring_tail) arm(domain, s, flow);
}

// --- Entropies ---

std::uint8_t Uet::pick_entropy(Sender& s) const {
    while (s.recycled_count != 0) {
        const std::uint8_t entropy = s.recycled[s.recycled_first];
        s.recycled_first = (s.recycled_first + 1) % recycled_entropies;
        --s.recycled_count;
        if (s.penalty.empty() || s.penalty[entropy] == 0) return entropy;
    }
    // All in turn, each round in another order, without those that sit out.
    std::uint32_t entropy = 0;
    for (std::uint32_t tried = 0; tried < settings_.entropies; ++tried) {
        if (s.turn == settings_.entropies) {
            s.turn = 0;
            s.random ^= s.random << 13;  // xorshift (Marsaglia 2003)
            s.random ^= s.random >> 17;
            s.random ^= s.random << 5;
            s.turn_mask = static_cast<std::uint8_t>(s.random & (settings_.entropies - 1));
        }
        entropy = s.turn++ ^ s.turn_mask;
        if (s.penalty.empty() || s.penalty[entropy] == 0) break;
        --s.penalty[entropy];
    }
    return static_cast<std::uint8_t>(entropy);
}

void Uet::penalise(Sender& s, std::uint32_t entropy, std::uint8_t penalty) const {
    if (s.penalty.empty()) s.penalty.resize(settings_.entropies);
    s.penalty[entropy] = std::max(s.penalty[entropy], penalty);
}

void Uet::judge_entropy(Sender& s, std::uint16_t path, std::uint8_t penalty) const {
    const std::uint16_t entropy = static_cast<std::uint16_t>(path - s.path_base);
    if (penalty != 0) {
        penalise(s, entropy, penalty);
        return;
    }
    if (!settings_.recycle || s.recycled_count == recycled_entropies) return;
    s.recycled[(s.recycled_first + s.recycled_count) % recycled_entropies] = static_cast<std::uint8_t>(entropy);
    ++s.recycled_count;
}

// --- NSCC ---

// Constants as published with the reference model, for 100 Gb/s and 12 us; `scale` takes them to other networks.
constexpr double fair_increase_packets = 5;
constexpr double proportional_gain = 4;
constexpr double fast_increase_gain = 0.25;
constexpr double steady_increase_packets = 0.15;
constexpr double decrease_gain = 0.8;
constexpr double adapt_below = 1.0 / 8;  // of the greatest window: a quick adaption cuts deep or not at all
constexpr double adapt_delay_targets = 4;
constexpr double adjust_packets = 8;
constexpr std::int64_t no_delay_ps = 1'000'000;
constexpr std::int64_t reference_rtt_ps = 12'000'000;

void Uet::bound_window(Sender& s) const { s.window = std::clamp(s.window, packet_bytes(), s.max_window); }

// After a round trip with little delivered, the window becomes what was delivered; what was under way is not judged
// again.
bool Uet::quick_adapt(Domain& domain, Sender& s, std::uint32_t host, bool loss, bool marked,
                      std::int64_t delay_ps) {
    bool adapted = false;
    if (s.ignored_bytes < s.bytes_to_ignore && marked) {
        adapted = true;
    } else if (domain.now_ps() > s.adapt_end_ps) {
        const bool wanted =
            s.adapt_wanted || loss ||
            static_cast<double>(delay_ps) > adapt_delay_targets * static_cast<double>(s.target_delay_ps);
        if (s.adapt_end_ps != 0 && wanted && s.achieved_bytes < s.max_window * adapt_below) {
            s.window = std::max(s.achieved_bytes, packet_bytes());
            s.bytes_to_ignore = s.in_flight * packet_bytes();
            s.ignored_bytes = 0;
            s.adapt_wanted = false;
            adapted = true;
            ++counters_[host].quick_adapts;
        }
        s.achieved_bytes = 0;
        s.adapt_end_ps = domain.now_ps() + s.base_rtt_ps + s.target_delay_ps;
    }
    if (adapted) {
        s.increase = 0;
        s.adjust_bytes = 0;
    }
    return adapted;
}

void Uet::measure_delay(Sender& s, std::int64_t delay_ps, bool marked) const {
    // A long delay without a mark was another queue than the one that decides.
    const double sample = !marked && delay_ps > s.target_delay_ps ? 0.25 * static_cast<double>(s.base_rtt_ps)
                                                                  : static_cast<double>(delay_ps);
    s.average_delay_ps += settings_.delay_gain * (sample - s.average_delay_ps);
}

void Uet::window_on_ack(Domain& domain, Sender& s, std::uint32_t host, bool marked, std::int64_t delay_ps,
                        double bytes) {
    const std::int64_t now = domain.now_ps();
    s.achieved_bytes += bytes;
    s.adjust_bytes += bytes;
    s.ignored_bytes += bytes;
    measure_delay(s, delay_ps, marked);
    if (quick_adapt(domain, s, host, false, marked, delay_ps)) return;

    const double target = static_cast<double>(s.target_delay_ps);
    const bool late = delay_ps >= s.target_delay_ps;
    if (!marked && late) {
        s.increase += fair_increase_packets * settings_.payload_bytes * s.scale * bytes;
    } else if (!marked) {
        if (delay_ps < no_delay_ps) {
            s.fast_bytes += bytes;
            s.fast = s.fast || s.fast_bytes > s.window;
        } else {
            s.fast_bytes = 0;
            s.fast = false;
        }
        if (s.fast)
            s.window += fast_increase_gain * s.scale * bytes;
        else
            s.increase += proportional_gain * settings_.payload_bytes * s.scale *
                          (target / static_cast<double>(reference_rtt_ps)) * bytes *
                          (target - static_cast<double>(delay_ps)) / target;
    } else if (late) {
        s.fast = false;
        s.fast_bytes = 0;
        if (s.average_delay_ps > target && now - s.last_decrease_ps > s.base_rtt_ps) {
            s.window *= std::max(1 - decrease_gain * (s.average_delay_ps - target) / s.average_delay_ps, 0.5);
            s.last_decrease_ps = now;
        }
    }  // marked though not late: another path is enough
    bound_window(s);

    const bool period = now - s.last_adjust_ps > s.reference_rtt_ps;
    if (s.adjust_bytes > adjust_packets * packet_bytes() || period) {
        s.window += s.increase / s.window;
        if (period) {
            s.window += steady_increase_packets * settings_.payload_bytes * s.scale;
            s.last_adjust_ps = now;
        }
        s.increase = 0;
        s.adjust_bytes = 0;
        bound_window(s);
    }
}

// A packet was trimmed, or lost. Where switches trim, what vanishes was not lost to congestion.
void Uet::window_on_loss(Domain& domain, Sender& s, std::uint32_t host, bool congestion) {
    s.ignored_bytes += packet_bytes();
    bool adapted = false;
    if (congestion) {
        measure_delay(s, s.reference_rtt_ps, true);
        s.adapt_wanted = true;
        adapted = quick_adapt(domain, s, host, true, true, 0);
    }
    if (!adapted) s.window -= packet_bytes();
    bound_window(s);
}

std::map<std::string, double> Uet::counters() const {
    HostCounters sum;
    for (const HostCounters& c : counters_) {
        sum.acks += c.acks;
        sum.nacks += c.nacks;
        sum.lost += c.lost;
        sum.duplicates += c.duplicates;
        sum.quick_adapts += c.quick_adapts;
        sum.probes += c.probes;
    }
    return {{"acks", static_cast<double>(sum.acks)},     {"nacks", static_cast<double>(sum.nacks)},
            {"lost", static_cast<double>(sum.lost)},     {"duplicates", static_cast<double>(sum.duplicates)},
            {"probes", static_cast<double>(sum.probes)}, {"quick_adapts", static_cast<double>(sum.quick_adapts)}};
}

}  // namespace

std::unique_ptr<Transport> make_uet(Parameters parameters) { return std::make_unique<Uet>(std::move(parameters)); }

}  // namespace dlcp::sim
