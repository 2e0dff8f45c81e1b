// One message coming in: where its blocks go, which are here, and when it is over.
//
// Also stands for a receive that waits for its message, and for a message that waits for its receive. Invariant: a
// block is placed once; what is abandoned is exactly what was not placed when the message ended.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "engine/bitmap.hpp"
#include "engine/event.hpp"
#include "engine/intrusive_list.hpp"
#include "engine/message_command.hpp"
#include "engine/units.hpp"
#include "engine/wire.hpp"

namespace dlcp {

struct IncomingMessage {
    // The receive. `posted` false: nobody asked yet.
    bool posted = false;
    bool released = false;  // the application is done with it
    std::uint32_t wanted_peer = UINT32_MAX;
    std::uint64_t tag = 0;
    std::uint8_t* buffer = nullptr;  // nullptr: count only
    std::uint32_t capacity_bytes = 0;
    BlockSink sink;      // takes the blocks in place of `buffer`
    bool exact = false;  // only a message of capacity_bytes will do
    Time since{0};
    Link match_link;   // in the chain of its tag: receives without a message, or messages without a receive
    Link posted_link;  // in its peer's list of receives and messages that are not over

    // The message. `arrived` false: no packet yet.
    bool arrived = false;
    bool confirmed = false;  // the sender knows how it ended: nothing more to tell
    std::uint32_t peer = UINT32_MAX;
    std::uint32_t wire_id = 0;
    std::uint32_t message_bytes = 0;
    std::uint16_t block_bytes = 0;
    std::uint8_t traffic_class = 0;
    std::uint16_t budget = 0;
    std::uint16_t deadline = 0;
    std::uint32_t critical_blocks = 0;
    std::uint32_t blocks = 0;
    std::unique_ptr<std::uint8_t[]> staging;  // payload of a message nobody asked for yet

    // Progress.
    Bitmap received;  // once over: the abandoned blocks instead
    std::uint32_t received_blocks = 0;
    std::uint32_t received_critical = 0;
    std::uint32_t received_bytes = 0;
    bool first_pass_over = false;
    Time settled_at = time_never;  // by then every block of the first pass has come or is lost
    Time deadline_at = time_never;

    bool over = false;
    CommandError error = CommandError::none;
    std::uint32_t abandoned_blocks = 0;
    std::uint32_t abandoned_bytes = 0;

    // A new life as a receive or as a message; buffers keep their capacity.
    void reset() {
        Bitmap keep = std::move(received);
        *this = IncomingMessage();
        received = std::move(keep);
    }
    void set_message(std::uint32_t from, const wire::Header& h) {
        arrived = true;
        peer = from;
        wire_id = h.message_id;
        tag = h.tag;
        message_bytes = h.message_bytes;
        block_bytes = h.block_bytes;
        traffic_class = h.traffic_class;
        budget = h.budget;
        deadline = h.deadline;
        critical_blocks = h.critical_blocks;
        blocks = wire::block_count(message_bytes, block_bytes);
        received.reset(blocks);
        received_blocks = received_critical = received_bytes = 0;
    }
    bool agrees(const wire::Header& h) const {
        return h.message_bytes == message_bytes && h.block_bytes == block_bytes && h.tag == tag &&
               h.budget == budget && h.critical_blocks == critical_blocks;
    }
    // What is wrong with the message's length for this receive.
    CommandError size_error() const {
        if (exact && message_bytes != capacity_bytes) return CommandError::wrong_size;
        return message_bytes > capacity_bytes ? CommandError::receive_too_small : CommandError::none;
    }
    // Puts a block where it belongs: with the application, or aside until it asks.
    void place(Time now, std::uint32_t block, const std::uint8_t* payload, std::uint32_t payload_bytes) {
        const std::uint32_t offset = block * std::uint32_t{block_bytes};
        if (posted && sink.place != nullptr) {
            sink.place(sink.context, sink.token, now, offset, payload, payload_bytes);
            return;
        }
        if (payload == nullptr || payload_bytes == 0) return;
        if (!posted && !staging) staging.reset(new std::uint8_t[message_bytes]);
        if (std::uint8_t* target = staging ? staging.get() : buffer)
            std::memcpy(target + offset, payload, payload_bytes);
    }
    // The receive has come: hands over what was put aside. Only what arrived: an abandoned block leaves the caller's
    // bytes as they were.
    void unstage(Time now) {
        const bool is_virtual = !staging && message_bytes > 0;
        std::unique_ptr<std::uint8_t[]> staged = std::move(staging);
        if (is_virtual && sink.place == nullptr) return;
        for (std::uint32_t b = 0; b < blocks; ++b) {
            if (received.test(b) == over) continue;
            const std::uint32_t at = b * std::uint32_t{block_bytes};
            const std::uint32_t length = std::min<std::uint32_t>(block_bytes, message_bytes - at);
            place(now, b, is_virtual ? nullptr : staged.get() + at, length);
        }
    }
    // All blocks of this kind that the message said it has are here.
    bool full(bool critical) const {
        return critical ? received_critical >= critical_blocks
                        : received_blocks - received_critical >= blocks - critical_blocks;
    }
    bool complete() const { return received_blocks == blocks; }
    bool tolerant() const { return budget > 0 || deadline > 0; }
    std::uint32_t missing_bytes() const { return message_bytes - received_bytes; }
    bool critical_complete() const { return received_critical == critical_blocks; }
    bool within_budget() const {
        return critical_complete() && missing_bytes() <= wire::budget_bytes(message_bytes, budget);
    }
};

}  // namespace dlcp
