#include "engine/shared_state.hpp"

#include <algorithm>

namespace dlcp {

Peer* SharedState::find_rank(std::uint32_t rank) {
    for (auto& peer : peers)
        if (peer->rank == rank) return peer.get();
    return nullptr;
}

std::uint16_t SharedState::block_bytes_for(std::uint16_t datagram_bytes) const {
    const std::size_t overhead = wire::header_bytes + (config.job_key ? wire::tag_bytes : 0);
    // A multiple of 16, so that every block starts on an element of any type, and on a granule of collectives.
    return static_cast<std::uint16_t>((datagram_bytes - overhead) / 16 * 16);
}

void SharedState::refresh(Peer& peer) {
    if (!peer.up()) return;
    for (std::uint8_t c = 0; c < wire::control_class; ++c) {
        const std::uint8_t bit = static_cast<std::uint8_t>(1u << c);
        if (peer.session->sender.queues[c].empty() || peer.ready_classes & bit) continue;
        peer.ready_classes |= bit;
        ready[c].push(peer.index);
        ready_classes |= bit;
    }
}

void SharedState::arm(Peer& peer) {
    Time next = std::min(peer.handshake.at, peer.keepalive_at);
    if (peer.session) next = std::min({next, peer.session->sender.next_timer(), peer.session->receiver.ack_at});
    // A later time is noticed when the earlier one comes: most timers are postponed before they fire.
    if (next < peer_timers.at(peer.index)) peer_timers.set(peer.index, next);
}

}  // namespace dlcp
