// A reliable, unordered transport after Ultra Ethernet's (UET 1.0: mode RUD with NSCC): packets are sprayed over
// entropies, switches trim instead of dropping, trimmed packets are asked for again at once, a window follows marks
// and delay.
//
// Here: packets and timers. The window is in uet_window, entropies in uet_entropies, each end's account of packets in
// uet_sent and uet_receiver. Not modelled: packet delivery contexts' set-up, receiver credit, modes other than RUD.
//
// State is allocated when a flow starts and freed when it is over; work per packet is O(1): acknowledgements carry a
// cumulative number and 64 bits, sent packets stand in a ring in the order they left.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "sim/core/domain.hpp"
#include "sim/core/flow_transport.hpp"
#include "sim/core/transports/packets_of.hpp"
#include "sim/core/transports/uet_entropies.hpp"
#include "sim/core/transports/uet_receiver.hpp"
#include "sim/core/transports/uet_sent.hpp"
#include "sim/core/transports/uet_window.hpp"

namespace dlcp::sim {
namespace {

constexpr std::uint32_t control_class = 7;
constexpr std::uint32_t control_bytes = 64;  // of an acknowledgement or a probe on the wire
constexpr std::uint32_t probe_packet = first_own;
// In round trips: how long a sender that hears nothing waits before it probes, and before it probes again.
constexpr std::int64_t probe_after = 3, probe_again_after = 5;
constexpr std::int64_t max_rto_ps = 4'000'000'000'000;
constexpr std::uint8_t most_doublings = 8;  // of the timeout

// PacketExtra::words of data: [0] place in the ring of sent packets, [1] asks for an acknowledgement at once. Of an
// acknowledgement: [0] place of the packet that caused it, [1] [2] received or not, from number [3] on, [4] was
// marked (1), answers a probe (2). Of a negative one: [0] place of the packet that was trimmed.

// Defaults are those of the specification and of the consortium's reference model.
struct Settings {
    std::uint32_t payload_bytes = 4096;
    std::uint32_t header_bytes = 64;
    std::uint32_t entropies = 256;
    bool recycle = true;
    bool trimming = true;
    bool probe = true;
    std::uint32_t ack_bytes = 16'384;
    double max_window_bdp = 1.5;
    std::optional<double> target_delay_rtt;
    std::optional<std::int64_t> base_rtt_ps;
    std::optional<std::int64_t> min_rto_ps;
    std::optional<double> reorder_rtt;
    double delay_gain = 0.0125;

    void list(SettingsTable& table) {
        table.whole("payload_bytes", payload_bytes, 1, 60'000, "payload of a full packet");
        table.whole("header_bytes", header_bytes, 24, 1000, "on the wire beside the payload");
        table.whole("entropies", entropies, 1, 256, "path ids that packets are sprayed over; a power of two");
        table.flag("recycle", recycle, "an entropy that came back without a mark is used again next (REPS)");
        table.flag("trimming", trimming, "switches may cut payloads off; otherwise they drop");
        table.flag("probe", probe,
                   "a sender that hears nothing for some round trips asks what has come, before it times out");
        table.whole("ack_bytes", ack_bytes, 0, 1 << 30,
                    "received for one acknowledgement; 0: one for each packet");
        table.number("max_window_bdp", max_window_bdp, 0.01, 1000,
                     "the greatest window, in bandwidth-delay products");
        table.number("target_delay_rtt", target_delay_rtt, 0.01, 100,
                     "queueing delay aimed at, in round trips; none: 0.75 with trimming, 1 without");
        table.whole("base_rtt_ps", base_rtt_ps, 1000, 10e12,
                    "the network's round trip, which delays are judged by; none: the longest of the flows'");
        table.whole("min_rto_ps", min_rto_ps, 1000, 10e12, "the timeout before it backs off; none: 8 round trips");
        table.number("reorder_rtt", reorder_rtt, 0.01, 100,
                     "a packet is lost when one sent so many round trips later has come; none: 2 with trimming, "
                     "1 without");
        table.number("delay_gain", delay_gain, 1e-6, 1, "of the moving average of delays that a decrease goes by");
        table.check_power_of_two("entropies", entropies);
    }
    std::uint32_t ack_packets() const { return std::max(ack_bytes / payload_bytes, 1U); }
    double target_rtts() const { return target_delay_rtt.value_or(trimming ? 0.75 : 1.0); }
    double reorder_rtts() const { return reorder_rtt.value_or(trimming ? 2.0 : 1.0); }
};

struct Sender {
    UetWindow window;
    UetSent packets;
    UetEntropies entropies;
    std::uint32_t last_payload = 0;          // bytes of the last packet
    std::uint32_t asked_place = UINT32_MAX;  // of the last packet sent that asks for an acknowledgement
    std::uint32_t newest_acknowledged = 0;   // when it was sent, in the clock of UetSent
    std::uint32_t reorder = 0;               // how much later others may have left, in that clock
    std::int64_t base_rtt_ps = 0;            // the flow's
    std::int64_t reference_rtt_ps = 0;       // what delays and timeouts are measured in: the network's
    std::int64_t min_rto_ps = 0;
    std::int64_t heard_ps = 0;  // when something came back, was probed for, or left after a pause
    std::uint8_t backoff = 0;   // doublings of the timeout
    bool probing = false;       // a probe has left and nothing has come back since
    bool timer_set = false;

    std::int64_t rto_ps() const { return std::min(min_rto_ps << backoff, max_rto_ps); }
};

struct alignas(64) Counters {
    std::uint64_t acks = 0;
    std::uint64_t nacks = 0;
    std::uint64_t lost = 0;
    std::uint64_t duplicates = 0;
    std::uint64_t quick_adapts = 0;
    std::uint64_t probes = 0;
    static constexpr std::pair<const char*, std::uint64_t Counters::*> names[] = {
        {"acks", &Counters::acks},
        {"nacks", &Counters::nacks},
        {"lost", &Counters::lost},
        {"duplicates", &Counters::duplicates},
        {"quick_adapts", &Counters::quick_adapts},
        {"probes", &Counters::probes}};
};

using States =
    FlowStates<FlowTransport, Settings, std::unique_ptr<Sender>, std::unique_ptr<UetReceiver>, Counters>;

class Uet final : public States {
public:
    explicit Uet(const Settings& settings)
        : States(settings),
          window_{static_cast<double>(settings.payload_bytes), packet_bytes(), settings.delay_gain},
          ack_packets_(settings.ack_packets()) {}

    void prepare(Simulation& simulation) override;
    void start_flow(Domain& domain, std::uint32_t flow) override;
    void handle_packet(Domain& domain, std::uint32_t host, std::uint32_t slot) override;
    void handle_timer(Domain& domain, std::uint32_t host, std::uint32_t timer) override;

protected:
    std::uint32_t next_data(Domain& domain, std::uint32_t flow) override;

private:
    double packet_bytes() const { return full_packet_bytes(); }

    // Receiver
    UetReceiver* receiver_of(Domain& domain, std::uint32_t flow);
    void receive_data(Domain& domain, std::uint32_t host, std::uint32_t slot);
    void receive_probe(Domain& domain, std::uint32_t host, std::uint32_t slot);
    void send_ack(Domain& domain, std::uint32_t host, std::uint32_t slot, UetReceiver* receiver);
    void send_nack(Domain& domain, std::uint32_t host, std::uint32_t slot);

    // Sender
    bool may_send(const Sender& s) const;
    void receive_ack(Domain& domain, std::uint32_t slot);
    void receive_nack(Domain& domain, std::uint32_t slot);
    void find_lost(Domain& domain, Sender& s, std::uint32_t host);
    void lose_window(Domain& domain, Sender& s, std::uint32_t host, bool congestion);
    std::int64_t probe_ps(const Sender& s) const;
    void arm(Domain& domain, Sender& s, std::uint32_t flow);
    void send_probe(Domain& domain, Sender& s, std::uint32_t host, std::uint32_t flow);

    const UetWindowSettings window_;
    const std::uint32_t ack_packets_;
    std::int64_t network_rtt_ps_ = 0;
};

void Uet::prepare(Simulation& simulation) {
    States::prepare(simulation);
    const std::vector<Flow>& flows = simulation.flows();
    for (std::size_t f = 0; f < flows.size(); ++f)
        numbered_packets_of("uet", f, flows[f].bytes, payload_bytes(), UetSent::most_packets);
    network_rtt_ps_ = settings_.base_rtt_ps.value_or(0);
    if (network_rtt_ps_ != 0) return;
    // The longest round trip is a constant of the network (NSCC configures it); a sample of the flows finds it.
    const std::size_t step = std::max<std::size_t>(flows.size() / 4096, 1);
    for (std::size_t i = 0; i < flows.size(); i += step)
        network_rtt_ps_ = std::max(network_rtt_ps_, simulation.base_rtt_ps(flows[i].source, flows[i].destination,
                                                                           full_packet_bytes(), control_bytes));
}

// --- Sending ---

void Uet::start_flow(Domain& domain, std::uint32_t index) {
    const Flow& flow = domain.flow(index);
    senders_[index] = std::make_unique<Sender>();
    Sender& s = *senders_[index];
    const auto packets = static_cast<std::uint32_t>(packets_of(flow.bytes, settings_.payload_bytes));
    s.last_payload = payload_of(flow.bytes, settings_.payload_bytes, packets - 1);
    s.base_rtt_ps =
        domain.simulation().base_rtt_ps(flow.source, flow.destination, full_packet_bytes(), control_bytes);
    // All flows of a network share one target, or short ones would starve beside long ones; but not a rack beside
    // another site.
    s.reference_rtt_ps =
        s.base_rtt_ps * 4 >= network_rtt_ps_ ? std::max(network_rtt_ps_, s.base_rtt_ps) : s.base_rtt_ps;
    const auto reference_rtt = static_cast<double>(s.reference_rtt_ps);
    const double bytes_per_ps = static_cast<double>(domain.host_rate_bps(flow.source)) / 8e12;
    const double max_window =
        std::max(settings_.max_window_bdp * bytes_per_ps * static_cast<double>(s.base_rtt_ps), packet_bytes());
    s.window = UetWindow(max_window, bytes_per_ps, s.base_rtt_ps, s.reference_rtt_ps,
                         static_cast<std::int64_t>(settings_.target_rtts() * reference_rtt));
    s.min_rto_ps = settings_.min_rto_ps.value_or(8 * s.reference_rtt_ps);
    s.reorder = UetSent::clock(static_cast<std::int64_t>(settings_.reorder_rtts() * reference_rtt));
    s.newest_acknowledged = UetSent::clock(domain.now_ps());

    // Four windows: what was sent since the oldest packet that is still in flight, which is given up a round trip or
    // two after those around it have arrived.
    const double window_packets = std::ceil(max_window / packet_bytes());
    s.packets = UetSent(packets, static_cast<std::uint32_t>(std::min(4 * window_packets + 8, 2.0 * packets + 8)));
    s.entropies = UetEntropies(settings_.entropies, settings_.recycle, domain.random(index, 0));
    ready(domain, index);
}

bool Uet::may_send(const Sender& s) const {
    if (s.packets.ring_full() || s.packets.nothing_to_send()) return false;
    if (s.packets.in_flight() * packet_bytes() < s.window.bytes()) return true;
    // The window may have shrunk below what the receiver keeps unacknowledged: a packet that asks gets the clock going
    // again, unless one is in flight.
    return s.packets.in_flight() < ack_packets_ && !s.packets.awaits(s.asked_place);
}

std::uint32_t Uet::next_data(Domain& domain, std::uint32_t flow) {
    Sender* sender = senders_[flow].get();
    if (sender == nullptr) return none;
    Sender& s = *sender;
    s.packets.skip_found();
    if (!may_send(s)) return none;

    const bool again = s.packets.any_lost();
    const std::uint32_t number = s.packets.take_number();
    const std::uint32_t payload = number + 1 == s.packets.packets() ? s.last_payload : settings_.payload_bytes;
    const std::uint32_t slot =
        make_packet(domain, flow, false, data_packet, number, payload + settings_.header_bytes);
    const std::uint8_t entropy = s.entropies.pick();
    Packet& packet = domain.packet(slot);
    packet.trimmable = settings_.trimming;
    packet.path = s.entropies.path_of(entropy);
    PacketExtra& extra = domain.extra(slot);
    extra.time_ps = domain.now_ps();
    extra.words[0] = s.packets.next_place();
    // Asks for an acknowledgement where the receiver might wait for more than the window lets through.
    const bool ask = again || s.packets.all_new_sent() || s.window.bytes() < 2 * ack_packets_ * packet_bytes() ||
                     s.packets.in_flight() * packet_bytes() >= s.window.bytes();
    extra.words[1] = ask;
    if (ask) s.asked_place = s.packets.next_place();

    if (s.packets.in_flight() == 0) s.heard_ps = domain.now_ps();
    s.packets.sent(domain.now_ps(), entropy, number);

    FlowResult& result = domain.result(flow);
    ++(again ? result.retransmitted_packets : result.sent_packets);
    if (!s.timer_set) arm(domain, s, flow);
    return slot;
}

// When the sender acts if it hears nothing: as the reference model's, which probes before it times out.
std::int64_t Uet::probe_ps(const Sender& s) const {
    if (!settings_.probe) return INT64_MAX;
    if (s.probing) return s.heard_ps + probe_again_after * s.reference_rtt_ps;
    return s.heard_ps + (s.packets.nothing_to_send() ? s.base_rtt_ps + s.window.target_delay_ps()
                                                     : probe_after * s.reference_rtt_ps);
}

// The one timer of a flow, for the probe or the timeout, whichever comes first. Something is in the ring.
void Uet::arm(Domain& domain, Sender& s, std::uint32_t flow) {
    s.timer_set = true;
    const auto age = static_cast<std::int32_t>(UetSent::clock(domain.now_ps()) - s.packets.oldest_time());
    const std::int64_t tick_ps = std::int64_t{1} << UetSent::time_shift;
    const std::int64_t timeout_ps = domain.now_ps() + s.rto_ps() - age * tick_ps;
    domain.set_timer(std::max(std::min(timeout_ps, probe_ps(s)), domain.now_ps() + tick_ps),
                     domain.flow(flow).source, flow);
}

void Uet::send_probe(Domain& domain, Sender& s, std::uint32_t host, std::uint32_t flow) {
    const std::uint32_t slot =
        make_packet(domain, flow, false, probe_packet, s.packets.cumulative(), control_bytes);
    domain.packet(slot).path = s.entropies.path_of(s.entropies.pick());
    PacketExtra& extra = domain.extra(slot);
    extra.time_ps = domain.now_ps();
    extra.words[0] = s.packets.next_place();
    s.probing = true;
    s.heard_ps = domain.now_ps();
    ++counters_[host].probes;
    send_control(domain, host, slot);
}

void Uet::receive_ack(Domain& domain, std::uint32_t slot) {
    const Packet packet = domain.packet(slot);
    Sender* sender = senders_[packet.flow].get();
    if (sender == nullptr) return;
    Sender& s = *sender;
    const std::uint32_t host = domain.flow(packet.flow).source;
    const PacketExtra extra = domain.extra(slot);

    std::uint32_t fresh = s.packets.acknowledge_below(packet.number);
    fresh += s.packets.acknowledge_bits(extra.words[3], extra.words[1] | std::uint64_t{extra.words[2]} << 32);
    if (s.packets.complete()) {
        domain.flow_acknowledged(packet.flow);
        senders_[packet.flow].reset();
        return;
    }
    if (fresh != 0) s.backoff = 0;
    s.heard_ps = domain.now_ps();
    s.probing = false;

    const bool marked = (extra.words[4] & 1) != 0, probed = (extra.words[4] & 2) != 0;
    const std::int64_t delay = std::max<std::int64_t>(domain.now_ps() - extra.time_ps - s.base_rtt_ps, 0);
    s.entropies.judge(packet.path, marked);
    // The answer to a probe says what is lost only if queues are short: data may be slower than what is small.
    if (!probed || delay < s.window.target_delay_ps()) {
        const std::uint32_t sent = UetSent::clock(extra.time_ps);
        if (static_cast<std::int32_t>(sent - s.newest_acknowledged) > 0) s.newest_acknowledged = sent;
    }
    if (!probed || fresh != 0)
        counters_[host].quick_adapts +=
            s.window.on_ack(window_, domain.now_ps(), s.packets.in_flight() * packet_bytes(), marked, delay,
                            fresh * packet_bytes());
    find_lost(domain, s, host);
    if (may_send(s)) ready(domain, packet.flow);
}

void Uet::receive_nack(Domain& domain, std::uint32_t slot) {
    const Packet packet = domain.packet(slot);
    Sender* sender = senders_[packet.flow].get();
    if (sender == nullptr) return;
    Sender& s = *sender;
    const std::uint32_t place = domain.extra(slot).words[0];
    if (s.packets.holds(place, packet.number))
        s.entropies.penalise(s.packets.give_up(place), UetEntropies::trimmed_penalty);
    s.heard_ps = domain.now_ps();
    s.probing = false;
    s.packets.drop_settled();
    lose_window(domain, s, domain.flow(packet.flow).source, true);
    if (may_send(s)) ready(domain, packet.flow);
}

// --- Loss ---

// Where switches trim, what vanishes was not lost to congestion.
void Uet::lose_window(Domain& domain, Sender& s, std::uint32_t host, bool congestion) {
    counters_[host].quick_adapts +=
        s.window.on_loss(window_, domain.now_ps(), s.packets.in_flight() * packet_bytes(), congestion);
}

// As RFC 8985 has it: lost is what left a reordering window before a packet that has arrived.
void Uet::find_lost(Domain& domain, Sender& s, std::uint32_t host) {
    for (s.packets.drop_settled(); !s.packets.ring_empty(); s.packets.drop_settled()) {
        const auto ahead = static_cast<std::int32_t>(s.newest_acknowledged - s.packets.oldest_time());
        if (ahead <= static_cast<std::int32_t>(s.reorder)) return;
        s.entropies.penalise(s.packets.give_up(s.packets.oldest_place()), UetEntropies::lost_penalty);
        ++counters_[host].lost;
        lose_window(domain, s, host, !settings_.trimming);
    }
}

void Uet::handle_timer(Domain& domain, std::uint32_t host, std::uint32_t flow) {
    Sender* sender = senders_[flow].get();
    if (sender == nullptr) return;
    Sender& s = *sender;
    s.timer_set = false;
    s.packets.drop_settled();
    if (s.packets.ring_empty()) return;  // armed again when something leaves
    const std::uint32_t now = UetSent::clock(domain.now_ps());
    const auto rto = static_cast<std::int32_t>(UetSent::clock(s.rto_ps()));
    std::uint32_t given_up = 0;
    while (!s.packets.ring_empty() && static_cast<std::int32_t>(now - s.packets.oldest_time()) >= rto) {
        s.entropies.penalise(s.packets.give_up(s.packets.oldest_place()), UetEntropies::lost_penalty);
        ++given_up;
        s.packets.drop_settled();
    }
    if (given_up != 0) {
        ++domain.result(flow).timeouts;
        counters_[host].lost += given_up;
        s.window.on_timeout(window_, given_up);
        if (s.backoff < most_doublings) ++s.backoff;
        if (may_send(s)) ready(domain, flow);
    } else if (domain.now_ps() >= probe_ps(s)) {
        send_probe(domain, s, host, flow);
    }
    if (!s.packets.ring_empty()) arm(domain, s, flow);
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

// nullptr: all of the flow has come.
UetReceiver* Uet::receiver_of(Domain& domain, std::uint32_t flow) {
    std::unique_ptr<UetReceiver>& receiver = receivers_[flow];
    if (receiver == nullptr && domain.result(flow).delivered_ps < 0)
        receiver = std::make_unique<UetReceiver>(
            static_cast<std::uint32_t>(packets_of(domain.flow(flow).bytes, settings_.payload_bytes)));
    return receiver.get();
}

void Uet::receive_data(Domain& domain, std::uint32_t host, std::uint32_t slot) {
    const Packet packet = domain.packet(slot);
    UetReceiver* receiver = receiver_of(domain, packet.flow);
    if (receiver == nullptr || receiver->has(packet.number)) {
        ++counters_[host].duplicates;
        send_ack(domain, host, slot, receiver);
        return;
    }
    if (packet.trimmed) {
        send_nack(domain, host, slot);
        return;
    }
    receiver->take(packet.number);
    ++receiver->unacknowledged;
    domain.result(packet.flow).delivered_bytes += packet.wire_bytes - settings_.header_bytes;
    const bool all = receiver->complete();
    if (all || packet.congestion_marked || domain.extra(slot).words[1] != 0 ||
        receiver->unacknowledged >= ack_packets_)
        send_ack(domain, host, slot, receiver);
    if (all) {
        domain.flow_delivered(packet.flow);
        receivers_[packet.flow].reset();
    }
}

void Uet::receive_probe(Domain& domain, std::uint32_t host, std::uint32_t slot) {
    send_ack(domain, host, slot, receiver_of(domain, domain.packet(slot).flow));
}

// The packet came without its payload.
void Uet::send_nack(Domain& domain, std::uint32_t host, std::uint32_t slot) {
    const Packet packet = domain.packet(slot);
    const std::uint32_t nack = make_packet(domain, packet.flow, true, nack_packet, packet.number, control_bytes);
    Packet& answer = domain.packet(nack);
    answer.traffic_class = control_class;
    answer.path = packet.path;
    domain.extra(nack).words[0] = domain.extra(slot).words[0];
    ++counters_[host].nacks;
    send_control(domain, host, nack);
}

// Answers a data packet or a probe. `receiver` nullptr: all of the flow is there.
void Uet::send_ack(Domain& domain, std::uint32_t host, std::uint32_t slot, UetReceiver* receiver) {
    const Packet packet = domain.packet(slot);
    const std::uint32_t cumulative =
        receiver != nullptr
            ? receiver->cumulative()
            : static_cast<std::uint32_t>(packets_of(domain.flow(packet.flow).bytes, settings_.payload_bytes));
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
    const std::uint64_t bits = receiver == nullptr ? 0 : receiver->bits_from(from);
    extra.words[1] = static_cast<std::uint32_t>(bits);
    extra.words[2] = static_cast<std::uint32_t>(bits >> 32);
    extra.words[3] = from;
    ++counters_[host].acks;
    if (receiver != nullptr) receiver->unacknowledged = 0;
    send_control(domain, host, ack);
}

const TransportKind uet = TransportKind::of<Uet>("uet");

}  // namespace
}  // namespace dlcp::sim
