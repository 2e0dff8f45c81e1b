// What an application asks of an endpoint and gets back: a message to send, a message to receive, how one ended.
#pragma once

#include <cstdint>
#include <span>

#include "engine/event.hpp"
#include "engine/units.hpp"

namespace dlcp {

// What to send. Endpoint::send checks the fields; a CommandError names a bad one.
struct SendCommand {
    PeerId peer;
    std::uint64_t tag = 0;                  // the application's name for this message; pairs it with a receive
    const std::uint8_t* payload = nullptr;  // nullptr with message_bytes > 0: virtual payload, lengths only
    std::uint32_t message_bytes = 0;
    std::uint8_t traffic_class = 0;  // 0..6, higher leaves first
    Delivery delivery = Delivery::reliable;
    double loss_ratio = 0.0;  // bounded, deadline: fraction of bytes that may be abandoned, [0, 1)
    Duration deadline{0};     // deadline: from the receiver's first packet of this message
    // bounded: if the message takes longer than this after the command, the network counts as short of capacity, and
    // the least important unsent droppable blocks are abandoned within the budget. 0: at once. Negative: never.
    Duration patience{-1};
    // Per block: 255 is critical, a smaller value is the importance of a droppable block. Empty: all critical. Read
    // during the call only. Its length must be the block count: block_count(message_bytes, block_bytes(peer,
    // unit_bytes)).
    std::span<const std::uint8_t> importance;
    // A block leaves only once release_blocks() has named it: its bytes are still being computed.
    bool gated = false;
    // A block holds a whole number of units, but for the last: a block can be used without its neighbours. 1 to
    // most_unit_bytes.
    std::uint16_t unit_bytes = 1;
};

// The smallest blocks (Endpoint::block_bytes) hold three of them.
inline constexpr std::uint16_t most_unit_bytes = 128;

// Takes the blocks of a receive as they arrive, in place of a buffer.
//
// `place` is called once per block, at its first arrival, inside handle_packets(), or inside receive() for blocks that
// came before the receive. `payload` is valid during the call; nullptr: virtual. This is the only call from the engine
// to its owner, and it happens while a packet is being handled: `place` may call release_blocks() (of any message) and
// getters, but no other member of Endpoint.
struct BlockSink {
    void (*place)(void* context, std::uint64_t token, Time now, std::uint32_t offset_bytes,
                  const std::uint8_t* payload, std::uint32_t payload_bytes) = nullptr;
    void* context = nullptr;
    std::uint64_t token = 0;  // the caller's
};

struct ReceiveCommand {
    PeerId peer = any_peer;
    std::uint64_t tag = 0;
    std::uint8_t* buffer = nullptr;  // nullptr with capacity_bytes > 0: virtual, bytes are counted, not kept
    std::uint32_t capacity_bytes = 0;
    BlockSink sink;      // with `place` set, `buffer` is not used
    bool exact = false;  // a message of another length fails with wrong_size before any block is placed
    bool part = false;   // of a whole that is of use only with its last part: it has no turns (turn_scheduler.hpp)
};

// How one message ended. Bits are set per block in the bitmaps; sums are in bytes of payload.
struct MessageOutcome {
    std::uint32_t message_bytes = 0;
    std::uint16_t block_bytes = 0;
    std::uint32_t blocks = 0;
    std::uint32_t abandoned_blocks = 0;
    std::uint32_t delivered_bytes = 0;
    std::uint32_t abandoned_bytes = 0;
    std::uint32_t retransmitted_bytes = 0;  // sender only
    // Bit i of word i/64: block i was abandoned. Empty when abandoned_blocks is 0. Valid until release().
    std::span<const std::uint64_t> abandoned;
};

}  // namespace dlcp
