// The packet header: its bytes, and the value they mean.
//
// Version 2. Every field is byte-aligned and big-endian, so that a P4 parser takes it in one state. The long header, 64
// bytes, describes the message; all packets have it but the data that the short one is for:
//
//    0  version        1  type           2  flags          3  traffic_class
//    4  importance     5  key_epoch      6  path (16)
//    8  job (32)                        12  source_rank (32)
//   16  session (32)                    20  timestamp_ns (32)
//   24  packet_number (64)
//   32  tag (64)
//   40  message_id (32)                 44  message_bytes (32)
//   48  block_index (32)                52  critical_blocks (32)
//   56  block_bytes (16)                58  payload_bytes (16)
//   60  budget (16)                     62  deadline (16)
//   64  payload, then the 16-byte authentication tag if flag::authenticated
//
// The short header, 32 bytes, is for blocks of a message of which the receiver has acknowledged a block: it knows the
// rest. The session names the sender, and the length of the datagram that of the payload.
//
//    0  to `job` as above
//   12  session (32)                    16  timestamp_ns (32)
//   20  packet_number, low 32 bits      24  message_id (32)
//   28  block_index (32)
//   32  payload, then the tag
//
// A datagram is never shorter than the long header, so a switch reads and keeps as much of every packet: data with less
// than that behind a short header takes the long one.
//
// Invariant: `parse` accepts a datagram only if every rule in `ParseError` holds, so later code need not check bounds
// again. It does not know sessions, keys or messages: a parsed packet is well formed, not authentic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/units.hpp"

namespace dlcp::wire {

inline constexpr std::uint8_t version = 2;
inline constexpr std::size_t header_bytes = 64;
inline constexpr std::size_t short_header_bytes = 32;
inline constexpr std::size_t type_offset = 1;
inline constexpr std::size_t flags_offset = 2;
inline constexpr std::size_t tag_bytes = 16;

enum class Type : std::uint8_t {
    data = 1,        // one block of one message
    control = 2,     // frames (frames.hpp); traffic class 7
    hello = 3,       // session set-up (frames.hpp: Hello); traffic class 7
    short_data = 4,  // one block, with the short header
};

constexpr bool is_data(Type type) { return type == Type::data || type == Type::short_data; }
constexpr std::size_t header_bytes_of(Type type) {
    return type == Type::short_data ? short_header_bytes : header_bytes;
}
// The length of a written header.
inline std::size_t header_bytes_of(const std::uint8_t* header) {
    return header_bytes_of(static_cast<Type>(header[type_offset]));
}
// The header that data of a message which the receiver knows has.
constexpr Type type_for_known(std::size_t payload_bytes) {
    return payload_bytes < header_bytes - short_header_bytes ? Type::data : Type::short_data;
}

namespace flag {
// ECN-capable: a switch marks it, never drops it while a droppable packet is there. Never abandoned.
inline constexpr std::uint8_t critical = 1u << 0;
// A 16-byte tag follows the payload.
inline constexpr std::uint8_t authenticated = 1u << 1;
// The payload is encrypted as well. Only with `authenticated`.
inline constexpr std::uint8_t encrypted = 1u << 2;
// The receiver should acknowledge at once (it otherwise waits for more).
inline constexpr std::uint8_t ack_request = 1u << 3;
// Every block of this message has been sent at least once at or before this packet's timestamp.
inline constexpr std::uint8_t first_pass_over = 1u << 4;
// This block was sent before, under another packet number.
inline constexpr std::uint8_t repair = 1u << 5;
// Payload cut off by a switch, which sets this. The only bit a switch may change: not authenticated.
inline constexpr std::uint8_t trimmed = 1u << 7;
inline constexpr std::uint8_t reserved = 1u << 6;
}  // namespace flag

inline constexpr std::uint8_t traffic_classes = 8;
// Control runs above all data.
inline constexpr std::uint8_t control_class = 7;
// Importance of a critical block; droppable blocks have 0..254.
inline constexpr std::uint8_t importance_critical = 255;

// A parsed header. A short header leaves the fields that it lacks at zero, and has 32 bits of the packet number until
// expand_packet_number. For control and hello packets the message fields (tag … deadline) are sent as zero and not
// looked at, except that `payload_bytes` counts and that in a control packet `message_id` is the sender's floor:
// every message of the sender's with a smaller id is over, and what is kept for it may be forgotten.
struct Header {
    Type type = Type::data;
    std::uint8_t flags = 0;
    std::uint8_t traffic_class = 0;     // 0..6 data (6 first), 7 control
    std::uint8_t importance = 0;        // 255 critical, 0..254 droppable, higher is kept longer
    std::uint8_t key_epoch = 0;         // which of the job's key generations signed this
    std::uint16_t path = 0;             // which of the sender's paths this was sent on
    std::uint32_t job = 0;              // which job; packets of another are foreign
    std::uint32_t source_rank = 0;      // who sent it
    std::uint32_t session = 0;          // low 32 bits of the receiver's session; 0 in a first hello
    std::uint32_t timestamp_ns = 0;     // sender's clock when sent, low 32 bits
    std::uint64_t packet_number = 0;    // from 0, +1 per packet in this direction of this session
    std::uint64_t tag = 0;              // the application's name for the message
    std::uint32_t message_id = 0;       // from 1, +1 per message in this direction of this session
    std::uint32_t message_bytes = 0;    // length of the whole message, 0..2^32-1
    std::uint32_t block_index = 0;      // this block starts at byte block_index * block_bytes
    std::uint32_t critical_blocks = 0;  // how many blocks of this message are critical
    std::uint16_t block_bytes = 0;      // bytes of every block but the last
    std::uint16_t payload_bytes = 0;    // bytes of this packet's payload (before any trimming)
    std::uint16_t budget = 0;    // bytes that may be abandoned: message_bytes * budget / 65536, rounded down
    std::uint16_t deadline = 0;  // coded time (encode_deadline) from first arrival; 0: none

    friend bool operator==(const Header&, const Header&) = default;
};

// Why a datagram is not ours. Counted one by one; order is the order of the checks.
enum class ParseError : std::uint8_t {
    none,
    too_short,    // fewer bytes than the header has
    bad_version,  // version is not 2
    bad_type,     // type is none of Type
    bad_flags,    // a reserved bit, encrypted without authenticated, or trimmed but not data
    bad_class,    // traffic_class > 7, data in class 7, or control/hello outside it
    bad_length,   // datagram length is not header + payload_bytes (+ tag); for trimmed: longer than that; behind
                  // a short header: less than a tag, or more than a payload can be
    bad_block,    // long data: block_bytes is 0 (with message_bytes > 0), block outside the message, or
                  // payload_bytes is not what this block holds
    bad_importance,  // data: critical flag and importance 255 disagree, critical_blocks > blocks
};
inline constexpr std::size_t parse_error_count = 9;

// The parts of a datagram that parsed; whether it is authentic is not known yet.
struct Datagram {
    Header header;
    const std::uint8_t* bytes = nullptr;    // the header as received
    const std::uint8_t* payload = nullptr;  // payload_bytes of them; nullptr if trimmed or virtual
    const std::uint8_t* tag = nullptr;  // nullptr if not authenticated, or trimmed; behind the header if virtual

    // The payload bytes that exist here: what a tag is over.
    std::span<const std::uint8_t> content() const {
        return {payload, payload ? std::size_t{header.payload_bytes} : 0};
    }
};

// Reads one datagram. `virtual_payload_bytes`: bytes that count as present behind `datagram` without
// existing (a simulator's packet); 0 for real ones. Either none of a payload is virtual or all of it, and then
// `datagram` is header and tag; anything else is bad_length. Never reads outside `datagram`.
// A data message of 0 bytes has exactly one block, index 0, payload 0; its block_bytes may be anything.
// `out` is unspecified after an error. Reuse it from packet to packet: clearing one costs as much as a parse.
ParseError parse(std::span<const std::uint8_t> datagram, std::uint32_t virtual_payload_bytes, Datagram& out);

// Writes the bytes of a header, as many as its type has. The caller answers for its truth; nothing is checked.
void write(const Header& header, std::uint8_t* out);

// The packet number with these low 32 bits that is nearest to `largest`, the largest received (as RFC 9000 appendix A.3).
constexpr std::uint64_t expand_packet_number(std::uint64_t low, std::uint64_t largest) {
    const std::uint64_t distance = static_cast<std::uint32_t>(low - largest);
    const bool behind = distance >> 31 != 0 && largest >= (std::uint64_t{1} << 32) - distance;
    return behind ? largest - ((std::uint64_t{1} << 32) - distance) : largest + distance;
}

// Which block a written data header names.
std::uint32_t block_index_of(const std::uint8_t* header);
// What a header says about the memory that its packet needs, unchecked.
struct Glance {
    std::uint32_t session;
    std::uint32_t packet_number;  // low bits
    std::uint32_t message_id;
    std::uint32_t block_index;
    std::uint16_t path;
    std::uint8_t traffic_class;
};
Glance glance_at(const std::uint8_t* header);

// How many blocks a message has: at least one.
constexpr std::uint32_t block_count(std::uint32_t message_bytes, std::uint16_t block_bytes) {
    return message_bytes == 0 ? 1 : (message_bytes - 1) / block_bytes + 1;
}

// Deadline as a 16-bit float: value = mantissa (11 bits) << exponent (5 bits), in microseconds; code =
// exponent << 11 | mantissa. Encoding rounds up to the next representable time (to whole microseconds below
// 2048 us, above by less than 0.1 %); 0 means none, and negative times are encoded as it; times above
// 2047 << 31 us clamp.
std::uint16_t encode_deadline(Duration deadline);
Duration decode_deadline(std::uint16_t code);

// Budget as a fraction of 65536, rounded down, so that what is promised is never exceeded.
// `loss_ratio` in [0, 1); anything else is taken to the nearer end, NaN to 0.
std::uint16_t encode_budget(double loss_ratio);
constexpr std::uint32_t budget_bytes(std::uint32_t message_bytes, std::uint16_t budget) {
    return static_cast<std::uint32_t>(std::uint64_t{message_bytes} * budget / 65536);
}

const char* name(ParseError error);
const char* name(Type type);

}  // namespace dlcp::wire
