// The tag of a message of a group: the 64 bits by which the engine pairs sends with receives.
//
//    63        50 49  48 47            28 27        16 15         0
//   +------------+------+----------------+------------+------------+
//   |   group    | kind |    sequence    |  message   | signature  |   kind 0: collective
//   |            |      |   0 (16 bits)  |      the user's tag     |   kind 1: single message (tag: 32 bits)
//   |            |      |                    0                     |   kind 2: a failure notice
//   |            |      |    sequence    |  question or answer     |   kind 3: an inquiry
//   +------------+------+----------------+------------+------------+
//
// The signature says what all ranks must agree on. It has 28 bits: the low 16 stand in the tag, the high 12 are added to
// the message's number, modulo 4096. A rank that called something else sends tags that nobody waits for: so it is found,
// and never summed. Where a group is open, all tags of the endpoint are of this form.
#pragma once

#include <cstdint>

namespace dlcp {

enum class TagKind : std::uint8_t { collective, message, failure, inquiry };

struct Tag {
    static constexpr std::uint32_t groups = 1u << 14;
    static constexpr std::uint32_t sequence_mask = (1u << 20) - 1;
    static constexpr std::uint32_t message_mask = (1u << 12) - 1;
    // Sequences count on past the bits that a tag has for them.
    static bool is_before(std::uint32_t one, std::uint32_t other) {
        const std::uint32_t ahead = (other - one) & sequence_mask;
        return ahead != 0 && ahead <= sequence_mask / 2;
    }

    std::uint32_t group = 0;
    TagKind kind = TagKind::collective;
    std::uint32_t sequence = 0;
    std::uint32_t message = 0;    // as it stands in the tag: see message_under
    std::uint16_t signature = 0;  // the low 16 bits

    static std::uint64_t of_collective(std::uint32_t group, std::uint32_t sequence, std::uint32_t message,
                                       std::uint32_t signature) {
        return std::uint64_t{group} << 50 | std::uint64_t{sequence & sequence_mask} << 28 |
               std::uint64_t{(message + (signature >> 16)) & message_mask} << 16 | (signature & 0xffff);
    }
    // The number of a message whose sender has this signature.
    std::uint32_t message_under(std::uint32_t of_sender) const {
        return (message - (of_sender >> 16)) & message_mask;
    }
    static std::uint64_t of_message(std::uint32_t group, std::uint32_t tag) {
        return std::uint64_t{group} << 50 | std::uint64_t{1} << 48 | tag;
    }
    static std::uint64_t of_failure(std::uint32_t group) {
        return std::uint64_t{group} << 50 | std::uint64_t{2} << 48;
    }
    // What an inquiry says, in 28 bits: one of these, or the group's rank that has not called the collective.
    static constexpr std::uint32_t question = (1u << 28) - 1;
    static constexpr std::uint32_t not_called = (1u << 28) - 2;  // the rank that says so has not
    static constexpr std::uint32_t silent = 1u << 27;            // added to a rank: it does not answer at all
    static std::uint64_t of_inquiry(std::uint32_t group, std::uint32_t sequence, std::uint32_t said) {
        return std::uint64_t{group} << 50 | std::uint64_t{3} << 48 |
               std::uint64_t{sequence & sequence_mask} << 28 | said;
    }
    static std::uint32_t inquiry_of(std::uint64_t bits) { return static_cast<std::uint32_t>(bits) & question; }
    static Tag read(std::uint64_t bits) {
        return {static_cast<std::uint32_t>(bits >> 50), static_cast<TagKind>(bits >> 48 & 3),
                static_cast<std::uint32_t>(bits >> 28) & sequence_mask,
                static_cast<std::uint32_t>(bits >> 16) & message_mask, static_cast<std::uint16_t>(bits)};
    }
};

}  // namespace dlcp
