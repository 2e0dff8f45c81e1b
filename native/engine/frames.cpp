// Reading and writing frames. See frames.hpp for the layouts.
#include "engine/frames.hpp"

#include <cassert>
#include <cstring>

#include "engine/bytes.hpp"
#include "engine/packet_window.hpp"

namespace dlcp::wire {
namespace {

constexpr std::size_t frame_bytes_max = UINT16_MAX;  // length is 16 bits
constexpr std::size_t list_head_bytes = 4;           // count (16) 0 (16)
constexpr std::size_t word_bytes = 8;

// The shortest body of each type, by its number: the fixed part of its layout. A number may have no type.
constexpr std::uint8_t not_assigned = UINT8_MAX;
constexpr std::uint8_t body_bytes_min[] = {
    0,                   // padding
    ack_body_bytes,      // ack
    list_head_bytes,     // complete
    outcome_body_bytes,  // outcome
    list_head_bytes,     // probe
    list_head_bytes,     // trimmed
    list_head_bytes,     // hold
    list_head_bytes,     // proceed
    8,                   // refuse
    8,                   // cancel
    not_assigned,        // 10
    not_assigned,        // 11
    4,                   // close
    hello_body_bytes,    // hello
    piece_body_bytes,    // piece
};
constexpr std::size_t known_types = sizeof body_bytes_min;
static_assert(known_types == static_cast<std::size_t>(FrameType::piece) + 1);

}  // namespace

bool FrameReader::next(Frame& out) {
    while (!rest_.empty()) {
        if (rest_.size() < frame_prefix_bytes) break;
        const std::uint8_t type = rest_[0];
        const std::size_t length = load16(rest_.data() + 2);
        if (length < frame_prefix_bytes || length > rest_.size()) break;
        const auto body = rest_.subspan(frame_prefix_bytes, length - frame_prefix_bytes);
        const bool skip = type == static_cast<std::uint8_t>(FrameType::padding) || type >= known_types ||
                          body_bytes_min[type] == not_assigned;
        if (!skip && body.size() < body_bytes_min[type]) break;
        const std::uint8_t flags = rest_[1];
        rest_ = rest_.subspan(length);
        if (skip) continue;
        out = {static_cast<FrameType>(type), flags, body};
        return true;
    }
    malformed_ = malformed_ || !rest_.empty();
    rest_ = {};
    return false;
}

std::uint8_t* FrameWriter::put(FrameType type, std::uint8_t flags, std::size_t body_bytes) {
    const std::size_t length = frame_prefix_bytes + body_bytes;
    if (length > room() || length > frame_bytes_max) return nullptr;
    std::uint8_t* const p = out_ + size_;
    p[0] = static_cast<std::uint8_t>(type);
    p[1] = flags;
    store16(p + 2, static_cast<std::uint16_t>(length));
    size_ += length;
    return p + frame_prefix_bytes;
}

bool FrameWriter::put_ids(FrameType type, std::span<const std::uint32_t> message_ids, std::uint8_t flags) {
    assert(type == FrameType::complete || type == FrameType::probe || type == FrameType::hold ||
           type == FrameType::proceed);
    std::uint8_t* p = put(type, flags, list_head_bytes + message_ids.size_bytes());
    if (p == nullptr) return false;
    store16(p, static_cast<std::uint16_t>(message_ids.size()));  // fits: the frame's length did
    store16(p + 2, 0);
    p += list_head_bytes;
    for (const std::uint32_t id : message_ids) {
        store32(p, id);
        p += sizeof id;
    }
    return true;
}

bool FrameWriter::put_packet_numbers(std::span<const std::uint64_t> packet_numbers) {
    std::uint8_t* p = put(FrameType::trimmed, 0, list_head_bytes + packet_numbers.size_bytes());
    if (p == nullptr) return false;
    store16(p, static_cast<std::uint16_t>(packet_numbers.size()));
    store16(p + 2, 0);
    p += list_head_bytes;
    for (const std::uint64_t number : packet_numbers) {
        store64(p, number);
        p += sizeof number;
    }
    return true;
}

bool FrameWriter::put_refuse(std::uint32_t message_id, std::uint8_t reason) {
    std::uint8_t* const p = put(FrameType::refuse, 0, 8);
    if (p == nullptr) return false;
    store32(p, message_id);
    store32(p + 4, std::uint32_t{reason} << 24);
    return true;
}

bool FrameWriter::put_cancel(std::uint32_t message_id) {
    std::uint8_t* const p = put(FrameType::cancel, 0, 8);
    if (p == nullptr) return false;
    store32(p, message_id);
    store32(p + 4, 0);
    return true;
}

bool FrameWriter::put_close(std::uint8_t reason) {
    std::uint8_t* const p = put(FrameType::close, 0, 4);
    if (p == nullptr) return false;
    store32(p, std::uint32_t{reason} << 24);
    return true;
}

bool FrameWriter::put_padding(std::size_t frame_bytes) {
    if (frame_bytes < frame_prefix_bytes) return false;
    std::uint8_t* const p = put(FrameType::padding, 0, frame_bytes - frame_prefix_bytes);
    if (p == nullptr) return false;
    std::memset(p, 0, frame_bytes - frame_prefix_bytes);
    return true;
}

bool read_ack(const Frame& frame, Ack& out) {
    const std::uint8_t* const p = frame.body.data();
    if (frame.body.size() < ack_body_bytes) return false;
    out.words = load16(p + 28);
    const bool has_ce = (frame.flags & ack_flag_has_ce) != 0;
    const std::size_t bitmap_bytes = out.words * word_bytes;
    if (frame.body.size() != ack_body_bytes + bitmap_bytes * (has_ce ? 2 : 1)) return false;
    out.largest = load64(p);
    out.ack_delay_ns = load32(p + 8);
    out.queue_delay_ns = load32(p + 12);
    out.credit_bytes = load64(p + 16);
    out.turn = (frame.flags & ack_flag_turn) != 0;
    out.ce_packets = load32(p + 24);
    out.received = p + ack_body_bytes;
    out.ce = has_ce ? p + ack_body_bytes + bitmap_bytes : nullptr;
    return true;
}

bool read_outcome(const Frame& frame, Outcome& out) {
    const std::uint8_t* const p = frame.body.data();
    if (frame.body.size() < outcome_body_bytes) return false;
    out.words = load16(p + 12);
    if (frame.body.size() != outcome_body_bytes + out.words * word_bytes) return false;
    out.message_id = load32(p);
    out.abandoned_blocks = load32(p + 4);
    out.word_offset = load32(p + 8);
    out.abandoned = p + outcome_body_bytes;
    return true;
}

bool read_hello(const Frame& frame, Hello& out) {
    const std::uint8_t* const p = frame.body.data();
    if (frame.body.size() < hello_body_bytes) return false;
    out.own_session = load64(p);
    out.echo_session = load64(p + 8);
    out.destination_rank = load32(p + 16);
    out.max_datagram_bytes = load16(p + 20);
    out.received_datagram_bytes = load16(p + 22);
    out.flags = load32(p + 24);
    out.ciphers = load32(p + 28);
    return true;
}

bool read_piece(const Frame& frame, Piece& out) {
    if (frame.body.size() < piece_body_bytes) return false;
    out.packet_number = load64(frame.body.data());
    out.datagram_bytes = load16(frame.body.data() + 8);
    out.offset = load16(frame.body.data() + 10);
    out.bytes = frame.body.subspan(piece_body_bytes);
    return out.offset + out.bytes.size() <= out.datagram_bytes;
}

bool read_count(const Frame& frame, std::uint16_t& count) {
    if (frame.body.size() < list_head_bytes) return false;
    const std::size_t entry_bytes =
        frame.type == FrameType::trimmed ? sizeof(std::uint64_t) : sizeof(std::uint32_t);
    count = load16(frame.body.data());
    return frame.body.size() == list_head_bytes + count * entry_bytes;
}

bool write_hello(FrameWriter& writer, const Hello& hello) {
    std::uint8_t* const p = writer.put(FrameType::hello, 0, hello_body_bytes);
    if (p == nullptr) return false;
    store64(p, hello.own_session);
    store64(p + 8, hello.echo_session);
    store32(p + 16, hello.destination_rank);
    store16(p + 20, hello.max_datagram_bytes);
    store16(p + 22, hello.received_datagram_bytes);
    store32(p + 24, hello.flags);
    store32(p + 28, hello.ciphers);
    return true;
}

bool write_piece(FrameWriter& writer, const Piece& piece, std::uint8_t flags) {
    std::uint8_t* const p = writer.put(FrameType::piece, flags, piece_body_bytes + piece.bytes.size());
    if (p == nullptr) return false;
    store64(p, piece.packet_number);
    store16(p + 8, piece.datagram_bytes);
    store16(p + 10, piece.offset);
    std::memcpy(p + piece_body_bytes, piece.bytes.data(), piece.bytes.size());
    return true;
}

bool write_ack(FrameWriter& writer, const Ack& ack, const PacketWindow& window) {
    const bool has_ce = window.has_ce();
    std::uint8_t* p = writer.put(
        FrameType::ack, static_cast<std::uint8_t>((has_ce ? ack_flag_has_ce : 0) | (ack.turn ? ack_flag_turn : 0)),
        ack_body_bytes + ack.words * word_bytes * (has_ce ? 2 : 1));
    if (p == nullptr) return false;
    store64(p, ack.largest);
    store32(p + 8, ack.ack_delay_ns);
    store32(p + 12, ack.queue_delay_ns);
    store64(p + 16, ack.credit_bytes);
    store32(p + 24, ack.ce_packets);
    store16(p + 28, ack.words);
    store16(p + 30, 0);
    p += ack_body_bytes;
    for (std::size_t w = 0; w < ack.words; ++w) {
        const std::uint64_t newest = ack.largest - 64 * w;
        std::uint64_t mask = ~std::uint64_t{0};
        if (newest < 63) mask >>= 63 - newest;  // before the first packet of the session
        store64(p + word_bytes * w, window.received_word(newest) & mask);
        if (has_ce) store64(p + word_bytes * (ack.words + w), window.ce_word(newest) & mask);
    }
    return true;
}

bool write_outcome(FrameWriter& writer, std::uint32_t message_id, std::uint32_t abandoned_blocks,
                   std::uint32_t word_offset, std::span<const std::uint64_t> abandoned) {
    std::uint8_t* p = writer.put(FrameType::outcome, 0, outcome_body_bytes + abandoned.size_bytes());
    if (p == nullptr) return false;
    store32(p, message_id);
    store32(p + 4, abandoned_blocks);
    store32(p + 8, word_offset);
    store16(p + 12, static_cast<std::uint16_t>(abandoned.size()));
    store16(p + 14, 0);
    p += outcome_body_bytes;
    for (const std::uint64_t word : abandoned) {
        store64(p, word);
        p += word_bytes;
    }
    return true;
}

}  // namespace dlcp::wire
