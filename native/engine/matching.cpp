// Receives and messages find each other by tag: chains of receives without a message (posted) and of messages
// without a receive (unexpected), first come first served. A chain is per tag over all peers; a receive for one peer
// skips the others' entries.
#include "engine/endpoint.hpp"

namespace dlcp {

void Endpoint::chain_push(std::uint32_t scope, std::uint32_t slot) {
    TagMap::Chain& chain = chains_.get(scope, incoming_[slot].tag);
    incoming_[slot].match_link = {chain.last, Link::none, true};
    if (chain.last == UINT32_MAX)
        chain.first = slot;
    else
        incoming_[chain.last].match_link.next = slot;
    chain.last = slot;
}

void Endpoint::chain_remove(std::uint32_t scope, std::uint32_t slot) {
    IncomingMessage& m = incoming_[slot];
    if (!m.match_link.linked) return;
    TagMap::Chain* chain = chains_.find(scope, m.tag);
    const Link link = m.match_link;
    m.match_link = Link{};
    (link.previous == Link::none ? chain->first : incoming_[link.previous].match_link.next) = link.next;
    (link.next == Link::none ? chain->last : incoming_[link.next].match_link.previous) = link.previous;
    if (chain->first == UINT32_MAX) chains_.erase(scope, m.tag);
}

void Endpoint::post(std::uint32_t slot) {
    if (incoming_[slot].wanted_peer == UINT32_MAX) ++any_receives_;
    chain_push(posted_scope, slot);
}
void Endpoint::unpost(std::uint32_t slot) {
    if (incoming_[slot].wanted_peer == UINT32_MAX) --any_receives_;
    chain_remove(posted_scope, slot);
}
void Endpoint::add_unexpected(std::uint32_t slot) { chain_push(unexpected_scope, slot); }
void Endpoint::remove_unexpected(std::uint32_t slot) { chain_remove(unexpected_scope, slot); }

// The first receive that accepts a message from `peer`; UINT32_MAX if there is none.
std::uint32_t Endpoint::find_posted(std::uint32_t peer, std::uint64_t tag) {
    TagMap::Chain* chain = chains_.find(posted_scope, tag);
    if (!chain) return UINT32_MAX;
    for (std::uint32_t slot = chain->first; slot != UINT32_MAX; slot = incoming_[slot].match_link.next) {
        const std::uint32_t wanted = incoming_[slot].wanted_peer;
        if (wanted == UINT32_MAX || wanted == peer) return slot;
    }
    return UINT32_MAX;
}

std::uint32_t Endpoint::take_posted(std::uint32_t peer, std::uint64_t tag) {
    const std::uint32_t slot = find_posted(peer, tag);
    if (slot != UINT32_MAX) unpost(slot);
    return slot;
}

// The first message without a receive that a receive from `peer` (UINT32_MAX: any peer) accepts; it stays in the chain.
std::uint32_t Endpoint::find_unexpected(std::uint32_t peer, std::uint64_t tag) {
    TagMap::Chain* chain = chains_.find(unexpected_scope, tag);
    if (!chain) return UINT32_MAX;
    for (std::uint32_t slot = chain->first; slot != UINT32_MAX; slot = incoming_[slot].match_link.next)
        if (peer == UINT32_MAX || incoming_[slot].peer == peer) return slot;
    return UINT32_MAX;
}

// There may be room now: senders that hold a message may try again.
void Endpoint::proceed_held(Peer& peer) {
    if (!peer.session || peer.session->receiver.held == 0) return;
    ReceiverState& receiver = peer.session->receiver;
    for (std::uint32_t id = receiver.messages.base(); id != receiver.messages.end(); ++id) {
        IncomingEntry& entry = receiver.messages[id];
        if (entry.state != IncomingIdState::State::held) continue;
        entry.state.apply(IncomingIdState::Event::make_room);
        entry.answer_queued = false;
        peer.session->owed.proceed_ids.push_back(id);
    }
    receiver.held = 0;
    queue_control(peer);
}

}  // namespace dlcp
