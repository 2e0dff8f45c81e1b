#include "engine/matching.hpp"

namespace dlcp {

void Matching::push(std::uint32_t scope, std::uint32_t slot) {
    TagMap::Chain& chain = chains_.get(scope, messages_[slot].tag);
    messages_[slot].match_link = {chain.last, Link::none, true};
    if (chain.last == UINT32_MAX)
        chain.first = slot;
    else
        messages_[chain.last].match_link.next = slot;
    chain.last = slot;
}

void Matching::remove(std::uint32_t scope, std::uint32_t slot) {
    IncomingMessage& m = messages_[slot];
    if (!m.match_link.linked) return;
    TagMap::Chain* chain = chains_.find(scope, m.tag);
    const Link link = m.match_link;
    m.match_link = Link{};
    (link.previous == Link::none ? chain->first : messages_[link.previous].match_link.next) = link.next;
    (link.next == Link::none ? chain->last : messages_[link.next].match_link.previous) = link.previous;
    if (chain->first == UINT32_MAX) chains_.erase(scope, m.tag);
}

void Matching::post(std::uint32_t slot) {
    if (messages_[slot].wanted_peer == UINT32_MAX) ++any_receives_;
    push(posted_scope, slot);
}

void Matching::unpost(std::uint32_t slot) {
    if (!messages_[slot].match_link.linked) return;
    if (messages_[slot].wanted_peer == UINT32_MAX) --any_receives_;
    remove(posted_scope, slot);
}

std::uint32_t Matching::find_posted(std::uint32_t peer, std::uint64_t tag) {
    TagMap::Chain* chain = chains_.find(posted_scope, tag);
    if (!chain) return UINT32_MAX;
    for (std::uint32_t slot = chain->first; slot != UINT32_MAX; slot = messages_[slot].match_link.next) {
        const std::uint32_t wanted = messages_[slot].wanted_peer;
        if (wanted == UINT32_MAX || wanted == peer) return slot;
    }
    return UINT32_MAX;
}

std::uint32_t Matching::take_posted(std::uint32_t peer, std::uint64_t tag) {
    const std::uint32_t slot = find_posted(peer, tag);
    if (slot != UINT32_MAX) unpost(slot);
    return slot;
}

std::uint32_t Matching::find_unexpected(std::uint32_t peer, std::uint64_t tag) {
    TagMap::Chain* chain = chains_.find(unexpected_scope, tag);
    if (!chain) return UINT32_MAX;
    for (std::uint32_t slot = chain->first; slot != UINT32_MAX; slot = messages_[slot].match_link.next)
        if (peer == UINT32_MAX || messages_[slot].peer == peer) return slot;
    return UINT32_MAX;
}

}  // namespace dlcp
