// What must hold between any two calls, checked slowly and completely. For tests and the simulator.
#include <string>

#include "engine/endpoint_impl.hpp"

namespace dlcp {

std::string Endpoint::Impl::check_invariants() const {
    const auto say = [](const Peer& peer, const std::string& what) {
        return "peer " + std::to_string(peer.rank) + ": " + what;
    };
    for (const auto& owner : peers_) {
        const Peer& peer = *owner;
        std::uint64_t in_flight = 0;
        std::uint32_t awaiting = 0;
        for (std::uint64_t n = peer.sent.find(0); n != peer.sent.next(); n = peer.sent.find(n + 1))
            if (!peer.sent[n].lost) {
                in_flight += peer.sent[n].bytes;
                awaiting += peer.sent[n].message_slot != SentPacket::no_message;
            }
        if (peer.state == Peer::State::established && awaiting != peer.awaiting)
            return say(peer, "awaiting miscounted");
        if (peer.state == Peer::State::established && in_flight != peer.in_flight.value)
            return say(peer, "in flight " + std::to_string(peer.in_flight.value) + ", tracked " +
                                 std::to_string(in_flight));
        if (peer.sent.next() - peer.sent.oldest() > PacketWindow::width + 1)
            return say(peer, "more packets unresolved than the window holds");
        std::uint32_t previous = 0;
        for (std::uint32_t slot = peer.started.front(); slot != Link::none;
             slot = StartedList::next(outgoing_, slot)) {
            const OutgoingMessage& m = outgoing_[slot];
            if (m.over()) return say(peer, "a message that is over is still started");
            if (m.wire_id <= previous) return say(peer, "started messages are not in order of id");
            if (peer.outgoing_ids[m.wire_id] != slot) return say(peer, "a wire id points elsewhere");
            previous = m.wire_id;
        }
        for (std::uint32_t slot = peer.posted.front(); slot != Link::none;
             slot = IncomingList::next(incoming_, slot)) {
            const IncomingMessage& m = incoming_[slot];
            if (m.over) return say(peer, "a receive that is over is still posted");
            if (!m.arrived) continue;
            if (m.received.count() != m.received_blocks) return say(peer, "received blocks miscounted");
            if (m.complete()) return say(peer, "a complete message is not over");
            if (m.received_critical > m.critical_blocks) return say(peer, "more critical blocks than there are");
        }
        std::uint32_t held = 0;
        for (std::uint32_t id = peer.incoming.base(); id != peer.incoming.end(); ++id) {
            const IncomingEntry& entry = peer.incoming[id];
            held += entry.state == IncomingEntry::State::held;
            if (entry.state == IncomingEntry::State::active && incoming_[entry.slot].wire_id != id)
                return say(peer, "an incoming id points elsewhere");
        }
        if (held != peer.held) return say(peer, "held messages miscounted");
    }
    Bytes unexpected{0};
    for (std::uint32_t slot = 0; slot < incoming_.slots(); ++slot)
        if (incoming_.in_use(slot) && !incoming_[slot].posted && !incoming_[slot].released)
            unexpected += charge(incoming_[slot].message_bytes);
    if (unexpected != unexpected_) return "unexpected bytes miscounted";
    if (unexpected_ > config_.max_unexpected) return "unexpected bytes over their bound";
    return {};
}

}  // namespace dlcp
