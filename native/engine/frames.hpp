// What control and hello packets carry: frames, each `type (8) flags (8) length (16) body`, big-endian, where
// length counts the four bytes of its own prefix too. Unknown types are skipped, so that a frame can be added. 10 and 11
// are not assigned and are skipped too. They stay free, because older endpoints give them a meaning.
//
//   ack       largest (64) ack_delay_ns (32) queue_delay_ns (32) credit_bytes (64) ce_packets (32) words (16) 0 (16)
//             then words × 64: bit i of word w is packet largest - 64*w - i; 1: received. With flag
//             has_ce the same number of words again: 1: received with ECN congestion experienced. With flag turn
//             the receiver gives turns: credit_bytes is this sender's; 0: it waits.
//   complete  count (16) 0 (16), then count × message_id (32): all blocks delivered, or the outcome is none
//             of the sender's business any more
//   outcome   message_id (32) abandoned_blocks (32) word_offset (32) words (16) 0 (16), then words × 64:
//             bit i of word w is block 64*(word_offset + w) + i; 1: abandoned. The message is over; the sender
//             knows all of it once it has seen abandoned_blocks one-bits.
//   probe     count (16) 0 (16), then count × message_id (32): "these are not over for me and every block was
//             sent: what do you have?" Count 0 asks for an ack alone.
//   trimmed   count (16) 0 (16), then count × packet_number (64): a switch cut these; a hint to repair now
//   hold      count (16) 0 (16), then count × message_id (32): no room for these now; do not send
//   proceed   count (16) 0 (16), then count × message_id (32): there is room again
//   refuse    message_id (32) reason (8) 0 (24): the receiver will not take this message
//   cancel    message_id (32) 0 (32): the sender gave this message up
//   close     reason (8) 0 (24)
//   padding   any bytes, ignored (path MTU)
//   hello     own_session (64) echo_session (64) destination_rank (32) max_datagram_bytes (16)
//             received_datagram_bytes (16) flags (32) ciphers (32): only in hello packets, alone or before padding
//   piece     packet_number (64) datagram_bytes (16) offset (16), then bytes: what stands at `offset` of the data
//             packet with that number, which is larger than the path carries. A whole data packet, with header and
//             tag, is cut; each piece travels in a packet of its own, once. Flag virtual: the payload has no bytes of
//             its own and counts as zeros behind header and tag.
//
// Invariant: `FrameReader` never yields a body shorter than its type needs, and never reads outside the payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dlcp {
class PacketWindow;
}

namespace dlcp::wire {

enum class FrameType : std::uint8_t {
    padding = 0,
    ack = 1,
    complete = 2,
    outcome = 3,
    probe = 4,
    trimmed = 5,
    hold = 6,
    proceed = 7,
    refuse = 8,
    cancel = 9,
    close = 12,
    hello = 13,
    piece = 14,
};

inline constexpr std::size_t frame_prefix_bytes = 4;
inline constexpr std::uint8_t ack_flag_has_ce = 1;
inline constexpr std::uint8_t ack_flag_turn = 2;
inline constexpr std::uint8_t probe_flag_unanswered = 1;
inline constexpr std::uint8_t piece_flag_virtual = 1;

// One frame of a payload; `body` starts behind the prefix.
struct Frame {
    FrameType type = FrameType::padding;
    std::uint8_t flags = 0;
    std::span<const std::uint8_t> body;
};

// Walks the frames of one payload, without padding and unknown types. `next` returns false at the end or at the
// first malformed frame (`malformed()` tells which); frames before a malformed one have been yielded and stand.
class FrameReader {
public:
    explicit FrameReader(std::span<const std::uint8_t> payload) : rest_(payload) {}
    bool next(Frame& out);
    bool malformed() const { return malformed_; }

private:
    std::span<const std::uint8_t> rest_;
    bool malformed_ = false;
};

// Appends frames to a payload of fixed capacity. Every `put_*` returns false, and writes nothing, if the
// frame does not fit.
class FrameWriter {
public:
    FrameWriter(std::uint8_t* out, std::size_t capacity) : out_(out), capacity_(capacity) {}
    std::size_t size() const { return size_; }
    std::size_t room() const { return capacity_ - size_; }

    // complete, probe, hold, proceed
    bool put_ids(FrameType type, std::span<const std::uint32_t> message_ids, std::uint8_t flags = 0);
    bool put_packet_numbers(std::span<const std::uint64_t> packet_numbers);  // trimmed
    bool put_refuse(std::uint32_t message_id, std::uint8_t reason);
    bool put_cancel(std::uint32_t message_id);
    bool put_close(std::uint8_t reason);
    bool put_padding(std::size_t frame_bytes);  // at least frame_prefix_bytes
    // Reserves a frame whose body the caller writes itself; nullptr if it does not fit.
    std::uint8_t* put(FrameType type, std::uint8_t flags, std::size_t body_bytes);

private:
    std::uint8_t* out_;
    std::size_t capacity_;
    std::size_t size_ = 0;
};

struct Ack {
    std::uint64_t largest = 0;         // largest packet number received
    std::uint32_t ack_delay_ns = 0;    // how long the receiver sat on `largest`
    std::uint32_t queue_delay_ns = 0;  // median one-way delay of data since the last ack, above the least delay
                                       // of the last seconds, plus 1; 0: no data since
    std::uint64_t credit_bytes = 0;    // bytes the receiver can buffer from this sender, in flight at once
    bool turn = false;                 // it gives turns: so many are this sender's, 0: it waits
    std::uint32_t ce_packets = 0;      // packets ever received with congestion experienced
    std::uint16_t words = 0;
    const std::uint8_t* received = nullptr;  // words × 8 bytes, big-endian
    const std::uint8_t* ce = nullptr;        // the same, or nullptr
};
inline constexpr std::size_t ack_body_bytes = 32;

struct Outcome {
    std::uint32_t message_id = 0;
    std::uint32_t abandoned_blocks = 0;
    std::uint32_t word_offset = 0;
    std::uint16_t words = 0;
    const std::uint8_t* abandoned = nullptr;
};
inline constexpr std::size_t outcome_body_bytes = 16;

struct Hello {
    std::uint64_t own_session = 0;   // the sender's new session id, never 0
    std::uint64_t echo_session = 0;  // the receiver's, as last heard; 0: not heard
    std::uint32_t destination_rank = 0;
    std::uint16_t max_datagram_bytes = 0;       // what the sender's interface can send and receive
    std::uint16_t received_datagram_bytes = 0;  // length of the hello this one answers; 0: none
    std::uint32_t flags = 0;                    // hello_flag_*
    std::uint32_t ciphers = 0;                  // CipherCosts of the sender
};
inline constexpr std::size_t hello_body_bytes = 32;
inline constexpr std::uint32_t hello_flag_established = 1;  // the sender's session is up
inline constexpr std::uint32_t hello_flag_answer = 2;  // not to be answered unless it establishes the receiver

struct Piece {
    std::uint64_t packet_number = 0;
    std::uint16_t datagram_bytes = 0;
    std::uint16_t offset = 0;
    std::span<const std::uint8_t> bytes;
};
inline constexpr std::size_t piece_body_bytes = 12;

// Each reads a frame's body; false if its counts and its length disagree. A body without counts may be longer
// than its layout: what follows is ignored, so that a field can be added.
bool read_ack(const Frame& frame, Ack& out);
bool read_outcome(const Frame& frame, Outcome& out);
bool read_hello(const Frame& frame, Hello& out);
bool read_piece(const Frame& frame, Piece& out);
// The number of entries in an id or packet-number list; the entries start at body + 4.
bool read_count(const Frame& frame, std::uint16_t& count);

// Each writes one frame; false, and nothing written, if it does not fit.
bool write_hello(FrameWriter& writer, const Hello& hello);
bool write_piece(FrameWriter& writer, const Piece& piece, std::uint8_t flags);
// `ack.words` words of the window's bitmaps, newest first; `ack.received` and `ack.ce` are not read.
bool write_ack(FrameWriter& writer, const Ack& ack, const PacketWindow& window);
bool write_outcome(FrameWriter& writer, std::uint32_t message_id, std::uint32_t abandoned_blocks,
                   std::uint32_t word_offset, std::span<const std::uint64_t> abandoned);

}  // namespace dlcp::wire
