// What an application asks of an endpoint, and what it gets back: one message to send, one to receive, how one ended.
#pragma once

#include <cstdint>
#include <span>

#include "engine/event.hpp"
#include "engine/units.hpp"

namespace dlcp {

// What to send. Fields checked by Endpoint::send; a bad one is named by the CommandError.
struct SendCommand {
    PeerId peer;
    std::uint64_t tag = 0;                  // the application's name for this message; pairs it with a receive
    const std::uint8_t* payload = nullptr;  // nullptr with message_bytes > 0: virtual payload, lengths only
    std::uint32_t message_bytes = 0;
    std::uint8_t traffic_class = 0;  // 0..6, higher leaves first
    Delivery delivery = Delivery::reliable;
    double loss_ratio = 0.0;  // bounded, deadline: fraction of bytes that may be abandoned, [0, 1)
    Duration deadline{0};     // deadline: from the receiver's first packet of this message
    // bounded: so long after the command the network counts as short of capacity, and droppable blocks that have not
    // left yet are given up unsent, the least important, as far as the budget goes. 0: at once. Negative: never.
    Duration patience{-1};
    // Per block, 255 critical, else droppable and how much it matters. Empty: all critical. Read during the
    // call only. Its length must be the block count: block_count(message_bytes, block_bytes(peer)).
    std::span<const std::uint8_t> importance;
    // A block leaves only once release_blocks() has named it: its bytes are still being computed.
    bool gated = false;
};

// Takes the blocks of a receive as they arrive, in place of a buffer.
//
// `place` is called once per block, at its first arrival, inside handle_packets(), or inside receive() for blocks that
// came before the receive. `payload` is valid during the call; nullptr: virtual. This is the one call from the engine to
// its owner, and it comes in the middle of handling a packet: `place` may call release_blocks() (of any message) and
// getters; every other member of Endpoint must wait until handle_packets() or receive() has returned.
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
    bool exact = false;  // a message of another length than capacity_bytes fails with wrong_size, before any block
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
