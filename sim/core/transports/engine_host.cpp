// One host's engine: passes packets between it and the simulator, serves its timers, handles its events.
#include "sim/core/transports/engine_host.hpp"

#include <algorithm>
#include <span>

#include "engine/prefetch.hpp"
#include "switch/decision.hpp"

namespace dlcp::sim {
namespace {

constexpr std::uint8_t congestion_experienced = 3;  // RFC 3168 section 5

constexpr std::size_t importance_at = 4;  // in both headers (engine/wire.hpp)

std::uint32_t host_of(const dlcp_address& address) {
    std::uint32_t host;
    std::memcpy(&host, address.bytes, sizeof host);
    return host;
}

}  // namespace

// Packets of no flow are hashed by switches by the pair of hosts: from 2^31 on, so that they match no flow.
std::uint32_t EngineHost::pair_flow(std::uint32_t destination) const {
    return 1u << 31 | switching::mix(host_, destination) >> 2;
}

Time EngineHost::time(const Domain& domain) {
    now_ = std::max(now_, network_->time(domain.now_ps()));
    return now_;
}

std::uint32_t EngineHost::pull(Domain& domain) {
    // One at a time: what leaves next is decided when the link is free. Unless super-packets save a processor's time.
    if (domain.hosts_are_free()) return poll<1>(domain);
    if (pulled_ == none) return poll<packets_at_once>(domain);
    const std::uint32_t slot = pulled_;
    pulled_ = domain.packet(slot).next;
    return slot;
}

// The first of up to `most` packets; the others are pulled_. Not inlined: the memory of many would cost one its speed.
template <std::size_t most>
[[gnu::noinline]] std::uint32_t EngineHost::poll(Domain& domain) {
    // The engine writes a control packet of any length; its kind is known only afterwards.
    alignas(64) std::uint8_t heads[most][DLCP_HEAD_CAPACITY];
    std::array<dlcp_packet, most> out;
    for (std::size_t i = 0; i < most; ++i) out[i].head = heads[i];
    const std::size_t count = endpoint.poll_transmit(time(domain), out);
    if (count == 0) {
        arm(domain);  // the pacer says from when on there is more
        return none;
    }
    if constexpr (most > 1)
        for (std::size_t i = count; i-- > 1;) {
            const std::uint32_t slot = packet_of(domain, out[i]);
            domain.packet(slot).next = pulled_;
            pulled_ = slot;
        }
    const std::uint32_t first = packet_of(domain, out[0]);
    arm(domain);
    return first;
}

inline std::uint32_t EngineHost::packet_of(Domain& domain, const dlcp_packet& out) {
    const std::uint8_t* const head = static_cast<const std::uint8_t*>(out.head);
    const bool is_virtual = (out.flags & DLCP_PACKET_VIRTUAL) != 0;
    const std::uint32_t copied = is_virtual ? 0 : out.body_bytes;
    const std::uint32_t length = out.head_bytes + copied + out.tail_bytes;
    const std::uint32_t slot = domain.take_packet();
    PacketExtra& extra = domain.extra(slot);
    EngineBody* const body = bodies_->take(length);
    extra.engine.body = body;
    std::memcpy(body->bytes(), head, out.head_bytes);
    if (copied != 0) std::memcpy(body->bytes() + out.head_bytes, out.body, copied);
    if (out.tail_bytes != 0)
        std::memcpy(body->bytes() + out.head_bytes + copied, head + out.head_bytes, out.tail_bytes);
    body->length = static_cast<std::uint16_t>(length);
    body->tos = out.tos;
    body->is_virtual = is_virtual;
    extra.engine.virtual_bytes = is_virtual ? out.body_bytes : 0;
    extra.engine.source = host_;

    Packet& packet = domain.packet(slot);
    packet.traffic_class = network_->class_of_dscp[out.tos >> 2];
    packet.ecn_capable = (out.tos & 3) != 0;
    packet.path = out.path;
    packet.destination = host_of(*out.address);
    packet.wire_bytes =
        static_cast<std::uint16_t>(length + extra.engine.virtual_bytes + network_->lower_layer_bytes);
    const auto type = static_cast<wire::Type>(head[wire::type_offset]);
    if (wire::is_data(type)) {
        const std::uint64_t tag = out.message_tag;
        packet.type = data_packet;
        packet.flow = FlowTag::is(tag) ? FlowTag::flow(tag) : pair_flow(packet.destination);
        packet.number = wire::block_index_of(head) & ((1u << 28) - 1);
        packet.importance = head[importance_at];
        packet.trimmable = out.body_bytes != 0 && (network_->trim_critical || !packet.ecn_capable);
    } else {
        packet.type = type == wire::Type::control ? ack_packet : first_own;
        packet.flow = pair_flow(packet.destination);
    }
    return slot;
}

Endpoint::Foresight EngineHost::foresee(Domain& domain, std::uint32_t slot) const {
    prefetch(&network_);
    Endpoint::Foresight call;
    call.endpoint = &endpoint;
    call.head = nullptr;
    if (slot != none) {
        const EngineBody* const body = body_of(domain.extra(slot));
        prefetch(body);
        prefetch(body->bytes() + 48);  // the end of a long header
        call.head = body->bytes();
    }
    return call;
}

void EngineHost::handle_packet(Domain& domain, std::uint32_t slot) {
    const Packet& packet = domain.packet(slot);
    PacketExtra& extra = domain.extra(slot);
    EngineBody* const body = body_of(extra);
    dlcp_packet in{};
    in.head = body->bytes();
    in.head_bytes = body->length;
    in.path = packet.path;
    in.tos = static_cast<std::uint8_t>(body->tos | (packet.congestion_marked ? congestion_experienced : 0));
    if (packet.trimmed) {
        in.head_bytes = std::min<std::uint32_t>(body->length, wire::header_bytes);
        in.head[wire::flags_offset] |= wire::flag::trimmed;
    } else if (body->is_virtual) {
        in.body_bytes = extra.engine.virtual_bytes;
        in.flags = DLCP_PACKET_VIRTUAL;
    }
    in.address = &network_->addresses[extra.engine.source];
    endpoint.handle_packets(time(domain), {&in, 1});
    bodies_->give_back(body);
    domain.free_packet(slot);
}

Time EngineHost::next_deadline() const {
    const Time next = endpoint.next_deadline();
    return executor == nullptr ? next : std::min(next, executor->next_deadline());
}

bool EngineHost::handle_timer(Domain& domain) {
    if (domain.now_ps() != armed_ps_) return false;
    armed_ps_ = INT64_MAX;
    const Time now = time(domain);
    if (next_deadline() > now) {
        arm(domain);
        return false;
    }
    endpoint.handle_timer(now);
    if (executor != nullptr) executor->handle_timer(now);
    return true;
}

void EngineHost::arm(Domain& domain) {
    const Time next = next_deadline();
    if (next == time_never) return;
    const std::int64_t at_ps = std::max(network_->ps_of(next), domain.now_ps());
    if (at_ps >= armed_ps_) return;
    armed_ps_ = at_ps;
    domain.set_timer(at_ps, host_, 0);
}

}  // namespace dlcp::sim
