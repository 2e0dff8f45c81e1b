// One message coming in: where its blocks go, which are here, and when it is over.
//
// It also represents a receive that waits for its message, and a message that waits for its receive. Invariant: a block
// is placed once; the abandoned blocks are exactly those not placed when the message ended.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

#include "engine/bitmap.hpp"
#include "engine/event.hpp"
#include "engine/incoming_states.hpp"
#include "engine/intrusive_list.hpp"
#include "engine/message_command.hpp"
#include "engine/prefetch.hpp"
#include "engine/units.hpp"
#include "engine/wire.hpp"

namespace dlcp {

struct alignas(cache_line_bytes) IncomingMessage {
    IncomingState state;

    // The receive, once it is posted.
    bool released = false;  // the application is done with it
    std::uint32_t wanted_peer = UINT32_MAX;
    std::uint64_t tag = 0;
    std::uint8_t* buffer = nullptr;  // nullptr: count only
    std::uint32_t capacity_bytes = 0;
    BlockSink sink;      // takes the blocks in place of `buffer`
    bool exact = false;  // the message must have capacity_bytes
    bool part = false;   // of a whole
    Time since{0};
    Link match_link;   // in the chain of its tag: receives without a message, or messages without a receive
    Link posted_link;  // in its peer's list of receives and messages that are not over

    // The message, once a packet of it has arrived.
    bool confirmed = false;  // over, and its sender knows the end or never sent any of it
    bool counted = false;    // the turns know of it: of what is left, or that it is a part
    std::uint32_t peer = UINT32_MAX;
    std::uint32_t wire_id = 0;
    std::uint32_t message_bytes = 0;
    std::uint16_t block_bytes = 0;
    std::uint8_t traffic_class = 0;
    std::uint16_t budget = 0;
    std::uint16_t deadline = 0;
    std::uint32_t critical_blocks = 0;
    std::uint32_t blocks = 0;
    std::unique_ptr<std::uint8_t[]> staging;  // payload of a message without a receive

    // Progress.
    Bitmap received;  // once over: the abandoned blocks
    std::uint32_t received_blocks = 0;
    std::uint32_t received_critical = 0;
    std::uint32_t received_bytes = 0;
    bool first_pass_over = false;
    Time settled_at = time_never;  // by then every block of the first pass has come or is lost
    Time deadline_at = time_never;

    // Once it is over.
    CommandError error = CommandError::none;
    std::uint32_t abandoned_blocks = 0;
    std::uint32_t abandoned_bytes = 0;

    bool over() const {
        return state == IncomingState::State::over || state == IncomingState::State::unclaimed ||
               state == IncomingState::State::dropped;
    }
    // It has a receive.
    bool has_receive() const {
        return state == IncomingState::State::posted || state == IncomingState::State::receiving ||
               state == IncomingState::State::over;
    }
    // A packet of it has arrived, and it is not over.
    bool arriving() const {
        return state == IncomingState::State::receiving || state == IncomingState::State::unexpected;
    }
    // It is kept for a receive that has not come.
    bool unasked() const {
        return state == IncomingState::State::unexpected || state == IncomingState::State::unclaimed;
    }

    // A new life as a receive or as a message; buffers keep their capacity.
    void reset() {
        Bitmap keep = std::move(received);
        *this = IncomingMessage();
        received = std::move(keep);
    }
    void set_receive(Time now, std::uint32_t from, const ReceiveCommand& command) {
        wanted_peer = from;
        buffer = command.buffer;
        capacity_bytes = command.capacity_bytes;
        sink = command.sink;
        exact = command.exact;
        part = command.part;
        since = now;
    }
    void set_message(std::uint32_t from, const wire::Header& h) {
        state.apply(IncomingState::Event::arrive);
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
    // Whether this block can be one of the message.
    bool fits(const wire::Header& h) const {
        if (h.type == wire::Type::short_data)
            return h.block_index < blocks && h.payload_bytes == bytes_of_block(h.block_index);
        return h.message_bytes == message_bytes && h.block_bytes == block_bytes && h.tag == tag &&
               h.budget == budget && h.critical_blocks == critical_blocks;
    }
    // Why the message's length does not fit this receive.
    CommandError size_error() const {
        if (exact && message_bytes != capacity_bytes) return CommandError::wrong_size;
        return message_bytes > capacity_bytes ? CommandError::receive_too_small : CommandError::none;
    }
    // Places a block: in the application's memory, or in staging until there is a receive.
    void place(Time now, std::uint32_t block, const std::uint8_t* payload, std::uint32_t payload_bytes) {
        const std::uint32_t offset = block * std::uint32_t{block_bytes};
        if (has_receive() && sink.place != nullptr) {
            sink.place(sink.context, sink.token, now, offset, payload, payload_bytes);
            return;
        }
        if (payload == nullptr || payload_bytes == 0) return;
        if (!has_receive() && !staging) staging.reset(new std::uint8_t[message_bytes]);
        if (std::uint8_t* target = staging ? staging.get() : buffer)
            std::memcpy(target + offset, payload, payload_bytes);
    }
    // The receive has been posted: hands over the staged blocks. Only blocks that arrived: an abandoned block leaves
    // the caller's bytes unchanged.
    void unstage(Time now) {
        const bool is_virtual = !staging && message_bytes > 0;
        std::unique_ptr<std::uint8_t[]> staged = std::move(staging);
        if (is_virtual && sink.place == nullptr) return;
        for (std::uint32_t b = 0; b < blocks; ++b) {
            if (received.test(b) == over()) continue;
            const std::uint32_t at = b * std::uint32_t{block_bytes};
            place(now, b, is_virtual ? nullptr : staged.get() + at, bytes_of_block(b));
        }
    }
    std::uint32_t bytes_of_block(std::uint32_t block) const {
        return block + 1 < blocks ? block_bytes : message_bytes - block * std::uint32_t{block_bytes};
    }
    // Whether all blocks of this kind that the message announced are here.
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
