// DCQCN (Zhu et al., SIGCOMM 2015) on a fabric that loses nothing: switches mark, receivers turn marks into congestion
// notification packets, senders pace each flow by a rate that is cut on these and recovers in stages; go-back-N
// repairs.
//
// The rate's timers are not events: the stages that have passed are caught up with when the rate is next needed, which
// is when the flow's next packet may leave. Losses should not happen (priority flow control); where links lose packets
// all the same, the receiver names the packet it expects and the sender goes back to it (RoCEv2).
//
// Paths: one per flow, or sprayed; then packets overtake each other, so that the receiver keeps what comes early
// (direct data placement with adaptive routing) and gaps say nothing about loss: the timeout finds it.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "sim/core/domain.hpp"
#include "sim/core/flow_transport.hpp"
#include "sim/core/transports/packets_of.hpp"

namespace dlcp::sim {
namespace {

constexpr std::uint32_t control_class = 7;
constexpr std::uint32_t control_bytes = 64;
constexpr std::uint32_t congestion_notification = first_own;

// The paper's (table 14), but for `clamp_target`, which cards leave off: with it on, the target falls with each cut, and a
// flow needs milliseconds to come back from a long queue.
struct Settings {
    std::uint32_t payload_bytes = 4096;
    std::uint32_t header_bytes = 64;
    double gain = 1.0 / 256;
    std::int64_t notification_ps = 50'000'000;
    std::int64_t alpha_timer_ps = 55'000'000;
    std::int64_t increase_timer_ps = 55'000'000;
    double increase_bytes = 10e6;
    std::uint32_t fast_recovery_stages = 5;
    double additive_increase_bps = 40e6;
    double hyper_increase_bps = 400e6;
    double min_rate_bps = 100e6;
    bool clamp_target = false;
    std::uint32_t ack_bytes = 65'536;
    std::int64_t rto_ps = 16'777'216'000;
    bool spray = false;

    void list(SettingsTable& table) {
        table.whole("payload_bytes", payload_bytes, 1, 60'000, "payload of a full packet");
        table.whole("header_bytes", header_bytes, 24, 1000, "on the wire beside the payload");
        table.number("gain", gain, 1e-9, 1, "g: how fast alpha follows the marks");
        table.whole("notification_ps", notification_ps, 0, 1e12, "least time between two notifications of a flow");
        table.whole("alpha_timer_ps", alpha_timer_ps, 1000, 1e12,
                    "K's period: alpha decays once in it without a notification");
        table.whole("increase_timer_ps", increase_timer_ps, 1000, 1e12, "T: a stage of increase by time");
        table.number("increase_bytes", increase_bytes, 1, 1e15, "B: a stage of increase by bytes");
        table.whole("fast_recovery_stages", fast_recovery_stages, 0, 1000,
                    "F: stages that only halve the distance to the target");
        table.number("additive_increase_bps", additive_increase_bps, 0, 1e12,
                     "R_AI: what the target rises by after those");
        table.number("hyper_increase_bps", hyper_increase_bps, 0, 1e12,
                     "R_HAI: and once both counters are beyond them, times the stage");
        table.number("min_rate_bps", min_rate_bps, 1, 1e12, "a rate is never cut below");
        table.flag("clamp_target", clamp_target,
                   "the target follows every cut; otherwise only the first after a stage of increase");
        table.whole("ack_bytes", ack_bytes, 0, 1 << 30,
                    "received for one acknowledgement; 0: one for each packet");
        table.whole("rto_ps", rto_ps, 1000, 100e12,
                    "without progress until the sender goes back (InfiniBand's local ACK timeout 12)");
        table.flag("spray", spray,
                   "a path per packet, and receivers that take them in any order; otherwise a path per flow");
    }
    std::uint32_t ack_packets() const { return std::max(ack_bytes / payload_bytes, 1U); }
};

struct Sender {
    double rate_bps = 0;    // R_C
    double target_bps = 0;  // R_T
    double line_bps = 0;
    double alpha = 1;
    double bytes = 0;                 // since the byte counter's last stage
    std::int64_t stage_start_ps = 0;  // of the timer's running period
    std::int64_t alpha_start_ps = 0;
    std::int64_t next_ps = 0;  // the next packet may leave
    std::int64_t progress_ps = 0;
    std::uint32_t timer_stages = 0;
    std::uint32_t byte_stages = 0;
    std::uint32_t packets = 0;
    std::uint32_t last_payload = 0;
    std::uint32_t next_number = 0;
    std::uint32_t highest = 0;  // numbers below have been sent before
    std::uint32_t cumulative = 0;
    std::uint16_t path = 0;
    std::uint8_t backoff = 0;
    bool was_cut = false;  // a notification has come: before the first one, a flow has line rate and no timers
    bool pace_timer_set = false;
    bool rto_timer_set = false;
};

struct Receiver {
    std::uint32_t packets = 0;
    std::uint32_t received = 0;
    std::uint32_t expected = 0;
    std::uint32_t unacknowledged = 0;
    std::int64_t notified_ps = -1;
    bool gap_reported = false;
    std::vector<std::uint64_t> bits;  // with spraying: what has come
};

struct alignas(64) Counters {
    std::uint64_t acks = 0;
    std::uint64_t notifications = 0;
    std::uint64_t nacks = 0;
    std::uint64_t out_of_order = 0;
    static constexpr std::pair<const char*, std::uint64_t Counters::*> names[] = {
        {"acks", &Counters::acks},
        {"congestion_notifications", &Counters::notifications},
        {"nacks", &Counters::nacks},
        {"out_of_order", &Counters::out_of_order}};
};

using States = FlowStates<FlowTransport, Settings, std::unique_ptr<Sender>, std::unique_ptr<Receiver>, Counters>;

class Dcqcn final : public States {
public:
    using States::States;

    void prepare(Simulation& simulation) override;
    void start_flow(Domain& domain, std::uint32_t flow) override;
    void handle_packet(Domain& domain, std::uint32_t host, std::uint32_t slot) override;
    void handle_timer(Domain& domain, std::uint32_t host, std::uint32_t timer) override;

protected:
    std::uint32_t next_data(Domain& domain, std::uint32_t flow) override;

private:
    enum Timer : std::uint32_t { pace = 0, retransmit = 1 };  // timer number: flow * 2 + this

    void receive_data(Domain& domain, std::uint32_t host, std::uint32_t slot);
    void answer(Domain& domain, std::uint32_t host, std::uint32_t flow, std::uint32_t type, std::uint32_t number);
    void receive_ack(Domain& domain, const Packet& packet);
    void catch_up(Sender& s, std::int64_t now_ps) const;
    void raise(Sender& s) const;
    void cut(Sender& s, std::int64_t now_ps) const;
};

void Dcqcn::prepare(Simulation& simulation) {
    States::prepare(simulation);
    const std::vector<Flow>& flows = simulation.flows();
    if (flows.size() >= none / 2) throw std::invalid_argument("dcqcn: accepted: fewer than 2^31 flows");
    for (std::size_t f = 0; f < flows.size(); ++f)
        numbered_packets_of("dcqcn", f, flows[f].bytes, payload_bytes());
}

// --- Sending ---

void Dcqcn::start_flow(Domain& domain, std::uint32_t index) {
    const Flow& flow = domain.flow(index);
    senders_[index] = std::make_unique<Sender>();
    Sender& s = *senders_[index];
    s.packets = static_cast<std::uint32_t>(packets_of(flow.bytes, settings_.payload_bytes));
    s.last_payload = payload_of(flow.bytes, settings_.payload_bytes, s.packets - 1);
    s.line_bps = static_cast<double>(domain.host_rate_bps(flow.source));
    s.rate_bps = s.target_bps = s.line_bps;
    s.progress_ps = domain.now_ps();
    s.path = static_cast<std::uint16_t>(domain.random(index, 0));
    ready(domain, index);
}

std::uint32_t Dcqcn::next_data(Domain& domain, std::uint32_t flow) {
    Sender* sender = senders_[flow].get();
    if (sender == nullptr || sender->next_number == sender->packets) return none;
    Sender& s = *sender;
    const std::int64_t now = domain.now_ps();
    const std::uint32_t source = domain.flow(flow).source;
    if (now < s.next_ps) {
        if (!s.pace_timer_set) {
            s.pace_timer_set = true;
            domain.set_timer(s.next_ps, source, flow * 2 + pace);
        }
        return none;
    }
    catch_up(s, now);
    const std::uint32_t number = s.next_number++;
    const std::uint32_t payload = number + 1 == s.packets ? s.last_payload : settings_.payload_bytes;
    const std::uint32_t slot =
        make_packet(domain, flow, false, data_packet, number, payload + settings_.header_bytes);
    Packet& packet = domain.packet(slot);
    packet.path =
        settings_.spray ? static_cast<std::uint16_t>(domain.random(flow, std::uint64_t{number} + 1)) : s.path;

    FlowResult& result = domain.result(flow);
    if (number < s.highest) {
        ++result.retransmitted_packets;
    } else {
        ++result.sent_packets;
        s.highest = number + 1;
    }
    if (s.was_cut && s.rate_bps < s.line_bps) {
        // Waiting for the card's turn does not slow the flow down, by up to a packet.
        const std::int64_t interval = static_cast<std::int64_t>(packet.wire_bytes * 8e12 / s.rate_bps);
        s.next_ps = std::max(s.next_ps, now - interval) + interval;
        s.bytes += packet.wire_bytes;
        if (s.bytes >= settings_.increase_bytes) {
            s.bytes -= settings_.increase_bytes;
            ++s.byte_stages;
            raise(s);
        }
    }
    if (!s.rto_timer_set) {
        s.rto_timer_set = true;
        s.progress_ps = now;
        domain.set_timer(now + (settings_.rto_ps << s.backoff), source, flow * 2 + retransmit);
    }
    return slot;
}

void Dcqcn::handle_timer(Domain& domain, std::uint32_t host, std::uint32_t timer) {
    const std::uint32_t flow = timer / 2;
    Sender* sender = senders_[flow].get();
    if (sender == nullptr) return;
    Sender& s = *sender;
    if (timer % 2 == pace) {
        s.pace_timer_set = false;
        ready(domain, flow);
        return;
    }
    s.rto_timer_set = false;
    if (s.cumulative == s.highest) return;  // nothing in flight: armed with the next packet
    const std::int64_t deadline = s.progress_ps + (settings_.rto_ps << s.backoff);
    if (domain.now_ps() >= deadline) {
        ++domain.result(flow).timeouts;
        s.next_number = s.cumulative;
        s.progress_ps = domain.now_ps();
        if (s.backoff < 6) ++s.backoff;
        ready(domain, flow);
    }
    s.rto_timer_set = true;
    domain.set_timer(s.progress_ps + (settings_.rto_ps << s.backoff), host, timer);
}

// --- Receiving ---

void Dcqcn::handle_packet(Domain& domain, std::uint32_t host, std::uint32_t slot) {
    const Packet packet = domain.packet(slot);
    if (packet.type == data_packet) {
        receive_data(domain, host, slot);
    } else if (Sender* s = senders_[packet.flow].get(); s != nullptr) {
        if (packet.type == congestion_notification)
            cut(*s, domain.now_ps());
        else
            receive_ack(domain, packet);
    }
    domain.free_packet(slot);
}

void Dcqcn::receive_data(Domain& domain, std::uint32_t host, std::uint32_t slot) {
    const Packet packet = domain.packet(slot);
    const std::uint32_t flow = packet.flow;
    std::unique_ptr<Receiver>& receiver = receivers_[flow];
    FlowResult& result = domain.result(flow);
    if (receiver == nullptr) {
        const auto packets =
            static_cast<std::uint32_t>(packets_of(domain.flow(flow).bytes, settings_.payload_bytes));
        if (result.delivered_ps >= 0) {  // a copy of what has come
            answer(domain, host, flow, ack_packet, packets);
            return;
        }
        receiver = std::make_unique<Receiver>();
        receiver->packets = packets;
        if (settings_.spray) receiver->bits.resize((packets + 63) / 64);
    }
    Receiver& r = *receiver;
    if (packet.congestion_marked &&
        (r.notified_ps < 0 || domain.now_ps() - r.notified_ps >= settings_.notification_ps)) {
        r.notified_ps = domain.now_ps();
        ++counters_[host].notifications;
        answer(domain, host, flow, congestion_notification, 0);
    }

    if (packet.trimmed) return;  // a switch not meant for this transport; the gap shows as a loss
    const std::uint32_t number = packet.number;
    bool taken = false;
    if (settings_.spray) {
        std::uint64_t& bits = r.bits[number / 64];
        const std::uint64_t bit = std::uint64_t{1} << (number % 64);
        taken = (bits & bit) == 0;
        bits |= bit;
        while (r.expected < r.packets && (r.bits[r.expected / 64] >> (r.expected % 64) & 1) != 0) ++r.expected;
    } else if (number == r.expected) {
        taken = true;
        ++r.expected;
        r.gap_reported = false;
    }
    if (taken) {
        ++r.received;
        ++r.unacknowledged;
        result.delivered_bytes += packet.wire_bytes - settings_.header_bytes;
    } else if (number > r.expected) {
        ++counters_[host].out_of_order;
        if (!r.gap_reported) {  // once per gap, as RoCE's negative acknowledgement
            r.gap_reported = true;
            ++counters_[host].nacks;
            answer(domain, host, flow, nack_packet, r.expected);
        }
        return;
    }
    const bool all = r.received == r.packets;
    if (all || !taken || r.unacknowledged >= settings_.ack_packets()) {
        r.unacknowledged = 0;
        answer(domain, host, flow, ack_packet, r.expected);
    }
    if (all) {
        domain.flow_delivered(flow);
        receiver.reset();
    }
}

void Dcqcn::answer(Domain& domain, std::uint32_t host, std::uint32_t flow, std::uint32_t type,
                   std::uint32_t number) {
    const std::uint32_t slot = make_packet(domain, flow, true, type, number, control_bytes);
    Packet& packet = domain.packet(slot);
    packet.traffic_class = control_class;
    packet.path = static_cast<std::uint16_t>(domain.random(flow, 0));
    counters_[host].acks += type == ack_packet;
    send_control(domain, host, slot);
}

void Dcqcn::receive_ack(Domain& domain, const Packet& packet) {
    Sender& s = *senders_[packet.flow];
    if (packet.number > s.cumulative) {
        s.cumulative = packet.number;
        s.progress_ps = domain.now_ps();
        s.backoff = 0;
        s.next_number = std::max(s.next_number, s.cumulative);
    }
    if (s.cumulative == s.packets) {
        domain.flow_acknowledged(packet.flow);
        senders_[packet.flow].reset();
        return;
    }
    if (packet.type == nack_packet && packet.number == s.cumulative) {
        s.next_number = s.cumulative;
        ready(domain, packet.flow);
    }
}

// --- Rate: sections 3.3 and 5 of the paper, figure 7 ---

// What the timers have done since the rate was last looked at.
void Dcqcn::catch_up(Sender& s, std::int64_t now_ps) const {
    if (!s.was_cut) return;
    const std::int64_t quiet = (now_ps - s.alpha_start_ps) / settings_.alpha_timer_ps;
    if (quiet > 0) {
        s.alpha *= std::pow(1 - settings_.gain, static_cast<double>(quiet));
        s.alpha_start_ps += quiet * settings_.alpha_timer_ps;
    }
    while (now_ps - s.stage_start_ps >= settings_.increase_timer_ps) {
        if (s.rate_bps >= s.line_bps) {  // nothing left to raise
            s.stage_start_ps = now_ps - (now_ps - s.stage_start_ps) % settings_.increase_timer_ps;
            break;
        }
        s.stage_start_ps += settings_.increase_timer_ps;
        ++s.timer_stages;
        raise(s);
    }
}

// A stage is over, of the timer or of the byte counter.
void Dcqcn::raise(Sender& s) const {
    const std::uint32_t most = std::max(s.timer_stages, s.byte_stages),
                        least = std::min(s.timer_stages, s.byte_stages);
    const std::uint32_t fast = settings_.fast_recovery_stages;
    if (least > fast)
        s.target_bps += settings_.hyper_increase_bps * (least - fast);
    else if (most > fast)
        s.target_bps += settings_.additive_increase_bps;
    s.target_bps = std::min(s.target_bps, s.line_bps);
    s.rate_bps = (s.target_bps + s.rate_bps) / 2;
    if (s.rate_bps > 0.9999 * s.line_bps) s.rate_bps = s.line_bps;  // halving the distance would never end
}

void Dcqcn::cut(Sender& s, std::int64_t now_ps) const {
    catch_up(s, now_ps);
    // The paper's target follows each cut, so that a long queue takes it down with the rate. Cards by default let it
    // follow only once a stage has passed in between (clamp_tgt_rate in the drivers of those the paper was written for).
    if (settings_.clamp_target || s.timer_stages + s.byte_stages > 0 || !s.was_cut) s.target_bps = s.rate_bps;
    s.was_cut = true;
    s.rate_bps = std::max(s.rate_bps * (1 - s.alpha / 2), settings_.min_rate_bps);
    s.alpha = (1 - settings_.gain) * s.alpha + settings_.gain;
    s.timer_stages = s.byte_stages = 0;
    s.bytes = 0;
    s.stage_start_ps = s.alpha_start_ps = now_ps;
}

const TransportKind dcqcn = TransportKind::of<Dcqcn>("dcqcn");

}  // namespace
}  // namespace dlcp::sim
