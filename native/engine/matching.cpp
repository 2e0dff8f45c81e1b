// Receives and messages find each other by tag: chains of receives without a message (posted) and of messages
// without a receive (unexpected), first come first served. A chain is per tag over all peers; a receive for one peer
// skips the others' entries.
#include "engine/endpoint_impl.hpp"

namespace dlcp {

void Endpoint::Impl::chain_push(std::uint32_t scope, std::uint32_t slot) {
    TagMap::Chain& chain = chains_.get(scope, incoming_[slot].tag);
    incoming_[slot].match_link = {chain.last, Link::none, true};
    if (chain.last == UINT32_MAX)
        chain.first = slot;
    else
        incoming_[chain.last].match_link.next = slot;
    chain.last = slot;
}

void Endpoint::Impl::chain_remove(std::uint32_t scope, std::uint32_t slot) {
    IncomingMessage& m = incoming_[slot];
    if (!m.match_link.linked) return;
    TagMap::Chain* chain = chains_.find(scope, m.tag);
    const Link link = m.match_link;
    m.match_link = Link{};
    (link.previous == Link::none ? chain->first : incoming_[link.previous].match_link.next) = link.next;
    (link.next == Link::none ? chain->last : incoming_[link.next].match_link.previous) = link.previous;
    if (chain->first == UINT32_MAX) chains_.erase(scope, m.tag);
}

void Endpoint::Impl::post(std::uint32_t slot) {
    if (incoming_[slot].wanted_peer == UINT32_MAX) ++any_receives_;
    chain_push(posted_scope, slot);
}
void Endpoint::Impl::unpost(std::uint32_t slot) {
    if (incoming_[slot].wanted_peer == UINT32_MAX) --any_receives_;
    chain_remove(posted_scope, slot);
}
void Endpoint::Impl::add_unexpected(std::uint32_t slot) { chain_push(unexpected_scope, slot); }
void Endpoint::Impl::remove_unexpected(std::uint32_t slot) { chain_remove(unexpected_scope, slot); }

// The first receive that a message from `peer` may go to; UINT32_MAX if nobody waits for it.
std::uint32_t Endpoint::Impl::find_posted(std::uint32_t peer, std::uint64_t tag) {
    TagMap::Chain* chain = chains_.find(posted_scope, tag);
    if (!chain) return UINT32_MAX;
    for (std::uint32_t slot = chain->first; slot != UINT32_MAX; slot = incoming_[slot].match_link.next) {
        const std::uint32_t wanted = incoming_[slot].wanted_peer;
        if (wanted == UINT32_MAX || wanted == peer) return slot;
    }
    return UINT32_MAX;
}

std::uint32_t Endpoint::Impl::take_posted(std::uint32_t peer, std::uint64_t tag) {
    const std::uint32_t slot = find_posted(peer, tag);
    if (slot != UINT32_MAX) unpost(slot);
    return slot;
}

// The first message nobody asked for that a receive from `peer` (UINT32_MAX: anyone) may take; it stays in the chain.
std::uint32_t Endpoint::Impl::find_unexpected(std::uint32_t peer, std::uint64_t tag) {
    TagMap::Chain* chain = chains_.find(unexpected_scope, tag);
    if (!chain) return UINT32_MAX;
    for (std::uint32_t slot = chain->first; slot != UINT32_MAX; slot = incoming_[slot].match_link.next)
        if (peer == UINT32_MAX || incoming_[slot].peer == peer) return slot;
    return UINT32_MAX;
}

// There may be room now: whoever was told to hold may try again.
void Endpoint::Impl::proceed_held(Peer& peer) {
    if (peer.held == 0) return;
    for (std::uint32_t id = peer.incoming.base(); id != peer.incoming.end(); ++id) {
        IncomingEntry& entry = peer.incoming[id];
        if (entry.state != IncomingEntry::State::held) continue;
        entry = IncomingEntry{};
        peer.proceed_ids.push_back(id);
    }
    peer.held = 0;
    queue_control(peer);
}

}  // namespace dlcp
