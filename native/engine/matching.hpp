// Receives and messages find each other by tag: chains of receives without a message (posted) and of messages
// without a receive (unexpected), first come first served. A chain is per tag over all peers; a receive for one peer
// skips the others' entries.
#pragma once

#include <cstdint>

#include "engine/incoming_message.hpp"
#include "engine/slab.hpp"
#include "engine/tag_map.hpp"

namespace dlcp {

class Matching {
public:
    // `messages`: whose slots the chains hold.
    explicit Matching(Slab<IncomingMessage>& messages) : messages_(messages) {}

    void post(std::uint32_t slot);
    void unpost(std::uint32_t slot);
    // The first receive that accepts a message from `peer`; UINT32_MAX if there is none.
    std::uint32_t find_posted(std::uint32_t peer, std::uint64_t tag);
    std::uint32_t take_posted(std::uint32_t peer, std::uint64_t tag);
    // Receives from anyone that wait.
    std::uint32_t any_receives() const { return any_receives_; }

    void add_unexpected(std::uint32_t slot) { push(unexpected_scope, slot); }
    void remove_unexpected(std::uint32_t slot) { remove(unexpected_scope, slot); }
    // The first message without a receive that a receive from `peer` (UINT32_MAX: any peer) accepts; it stays in the
    // chain.
    std::uint32_t find_unexpected(std::uint32_t peer, std::uint64_t tag);

private:
    void push(std::uint32_t scope, std::uint32_t slot);
    void remove(std::uint32_t scope, std::uint32_t slot);

    static constexpr std::uint32_t posted_scope = 0;
    static constexpr std::uint32_t unexpected_scope = 1;
    Slab<IncomingMessage>& messages_;
    TagMap chains_;
    std::uint32_t any_receives_ = 0;
};

}  // namespace dlcp
