// Matching: which receive and which message find each other.
#include <doctest/doctest.h>

#include "engine/matching.hpp"

namespace dlcp {
namespace {

constexpr std::uint32_t none = UINT32_MAX, anyone = UINT32_MAX;

struct Receives {
    Slab<IncomingMessage> messages;
    Matching matching{messages};

    std::uint32_t slot(std::uint64_t tag, std::uint32_t peer, std::uint32_t wanted) {
        const std::uint32_t slot = messages.take();
        messages[slot].reset();
        messages[slot].tag = tag;
        messages[slot].peer = peer;
        messages[slot].wanted_peer = wanted;
        return slot;
    }
    std::uint32_t post(std::uint64_t tag, std::uint32_t wanted) {
        const std::uint32_t posted = slot(tag, none, wanted);
        matching.post(posted);
        return posted;
    }
    std::uint32_t arrive(std::uint64_t tag, std::uint32_t peer) {
        const std::uint32_t arrived = slot(tag, peer, none);
        matching.add_unexpected(arrived);
        return arrived;
    }
};

TEST_CASE("matching: receives of a tag in their order, passing over those for other peers") {
    Receives receives;
    const std::uint32_t for_1 = receives.post(7, 1), for_any = receives.post(7, anyone),
                        for_2 = receives.post(7, 2);
    CHECK(receives.matching.any_receives() == 1);
    CHECK(receives.matching.find_posted(2, 8) == none);
    CHECK(receives.matching.take_posted(2, 7) == for_any);  // came before the one for 2
    CHECK(receives.matching.any_receives() == 0);
    CHECK(receives.matching.take_posted(2, 7) == for_2);
    CHECK(receives.matching.take_posted(2, 7) == none);
    CHECK(receives.matching.take_posted(1, 7) == for_1);
}

TEST_CASE("matching: a receive is taken out of the middle, and the last one ends the chain") {
    Receives receives;
    const std::uint32_t first = receives.post(7, 1), middle = receives.post(7, 1), last = receives.post(7, 1);
    receives.matching.unpost(middle);
    CHECK(receives.matching.take_posted(1, 7) == first);
    CHECK(receives.matching.take_posted(1, 7) == last);
    CHECK(receives.matching.find_posted(1, 7) == none);
}

TEST_CASE("matching: a receive from anyone that is taken out twice counts once") {
    Receives receives;
    receives.post(7, anyone);
    const std::uint32_t taken = receives.post(7, anyone);
    receives.matching.unpost(taken);
    receives.matching.unpost(taken);
    CHECK(receives.matching.any_receives() == 1);
}

TEST_CASE("matching: a message without a receive stays until it is claimed") {
    Receives receives;
    const std::uint32_t from_2 = receives.arrive(7, 2), from_1 = receives.arrive(7, 1);
    CHECK(receives.matching.find_unexpected(1, 7) == from_1);
    CHECK(receives.matching.find_unexpected(anyone, 7) == from_2);
    receives.matching.remove_unexpected(from_2);
    CHECK(receives.matching.find_unexpected(anyone, 7) == from_1);
    CHECK(receives.matching.find_posted(1, 7) == none);  // of another kind
}

}  // namespace
}  // namespace dlcp
