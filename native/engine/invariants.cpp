// What must hold between any two calls, checked slowly and completely. For tests and the simulator.
#include <string>

#include "engine/endpoint.hpp"

namespace dlcp {

namespace {

std::string check_sent(const SenderState& sender) {
    std::uint64_t in_flight = 0;
    std::uint32_t awaiting = 0;
    for (std::uint64_t n = sender.sent.find(0); n != sender.sent.next(); n = sender.sent.find(n + 1)) {
        if (sender.sent[n].lost()) continue;
        in_flight += sender.sent[n].bytes;
        awaiting += sender.sent[n].message_slot != SentPacket::no_message;
    }
    if (awaiting != sender.awaiting) return "awaiting miscounted";
    if (in_flight != sender.in_flight.value)
        return "in flight " + std::to_string(sender.in_flight.value) + ", tracked " + std::to_string(in_flight);
    if (sender.sent.next() - sender.sent.oldest() > PacketWindow::width + 1)
        return "more packets unresolved than the window holds";
    return {};
}

std::string check_started(const SenderState& sender, const Slab<OutgoingMessage>& messages) {
    std::uint32_t previous = 0;
    for (std::uint32_t slot = sender.started.front(); slot != Link::none;
         slot = StartedList::next(messages, slot)) {
        const OutgoingMessage& m = messages[slot];
        if (m.over()) return "a message that is over is still started";
        if (m.wire_id <= previous) return "started messages are not in order of id";
        if (sender.ids[m.wire_id] != slot) return "a wire id points elsewhere";
        previous = m.wire_id;
    }
    return {};
}

std::string check_posted(const Peer& peer, const Slab<IncomingMessage>& messages) {
    for (std::uint32_t slot = peer.posted.front(); slot != Link::none; slot = IncomingList::next(messages, slot)) {
        const IncomingMessage& m = messages[slot];
        if (m.over()) return "a receive that is over is still posted";
        if (!m.arriving()) continue;
        if (m.received.count() != m.received_blocks) return "received blocks miscounted";
        if (m.complete()) return "a complete message is not over";
        if (m.received_critical > m.critical_blocks) return "more critical blocks than there are";
    }
    return {};
}

std::string check_entries(const ReceiverState& receiver, const Slab<IncomingMessage>& messages) {
    std::uint32_t held = 0;
    for (std::uint32_t id = receiver.messages.base(); id != receiver.messages.end(); ++id) {
        const IncomingEntry& entry = receiver.messages[id];
        held += entry.state == IncomingIdState::State::held;
        if (entry.state == IncomingIdState::State::active && messages[entry.slot].wire_id != id)
            return "an incoming id points elsewhere";
    }
    return held == receiver.held ? "" : "held messages miscounted";
}

}  // namespace

std::string Endpoint::check_invariants() const {
    for (const auto& owner : shared_.peers) {
        const Peer& peer = *owner;
        std::string wrong = check_posted(peer, shared_.incoming);
        if (peer.session.has_value() != (peer.state == PeerState::State::established))
            wrong = "a session without its state, or the state without a session";
        if (wrong.empty() && peer.session) wrong = check_sent(peer.session->sender);
        if (wrong.empty() && peer.session) wrong = check_started(peer.session->sender, shared_.outgoing);
        if (wrong.empty() && peer.session) wrong = check_entries(peer.session->receiver, shared_.incoming);
        if (!wrong.empty()) return "peer " + std::to_string(peer.rank) + ": " + wrong;
    }
    return incoming_.check_invariants();
}

}  // namespace dlcp
