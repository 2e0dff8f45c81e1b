// Reads and writes headers. See wire.hpp for the layout and the guarantees.
//
// Runs once per packet in each direction: no division (a block's bounds are products), no loop, and one branch
// per rule, all of them predictable for well-formed traffic.
#include "engine/wire.hpp"

#include <bit>

#include "engine/bytes.hpp"

namespace dlcp::wire {
namespace {

// Where each field starts.
namespace at {
constexpr std::size_t version = 0, type = type_offset, flags = flags_offset, traffic_class = 3, importance = 4,
                      key_epoch = 5, path = 6, job = 8, source_rank = 12, session = 16, timestamp_ns = 20,
                      packet_number = 24, tag = 32, message_id = 40, message_bytes = 44, block_index = 48,
                      critical_blocks = 52, block_bytes = 56, payload_bytes = 58, budget = 60, deadline = 62;
static_assert(deadline + 2 == header_bytes);
}  // namespace at

// Where the fields of a short header start that are elsewhere in a long one.
namespace at_short {
constexpr std::size_t session = 12, timestamp_ns = 16, packet_number = 20, message_id = 24, block_index = 28;
static_assert(session == at::job + 4 && block_index + 4 == short_header_bytes);
}  // namespace at_short

bool importance_agrees(const Header& h) {
    return ((h.flags & flag::critical) != 0) == (h.importance == importance_critical);
}

// The rules of data packets that need arithmetic. A message of 0 bytes is one empty block: it is treated as one byte in
// a block of one byte, except for the payload.
ParseError check_block(const Header& h) {
    const bool empty = h.message_bytes == 0;
    const std::uint64_t message = empty ? 1 : h.message_bytes;
    const std::uint64_t block = empty ? 1 : h.block_bytes;
    const std::uint64_t start = h.block_index * block;  // < 2^48
    if (block == 0 || start >= message) return ParseError::bad_block;
    const std::uint64_t rest = message - start;
    const std::uint64_t held = empty ? 0 : (rest < block ? rest : block);
    if (h.payload_bytes != held) return ParseError::bad_block;

    if (!importance_agrees(h)) return ParseError::bad_importance;
    // critical_blocks <= ceil(message / block), multiplied out.
    if (h.critical_blocks != 0 && (h.critical_blocks - std::uint64_t{1}) * block >= message) {
        return ParseError::bad_importance;
    }
    return ParseError::none;
}

// A short header, and how long the payload behind it is. `length` counts what is virtual too.
ParseError parse_short(const std::uint8_t* p, std::uint64_t length, std::uint32_t virtual_payload_bytes,
                       Datagram& out) {
    Header& h = out.header;
    const bool trimmed = (h.flags & flag::trimmed) != 0;
    const std::uint64_t around = short_header_bytes + ((h.flags & flag::authenticated) != 0 ? tag_bytes : 0);
    if (!trimmed && (length < around || length - around > UINT16_MAX)) return ParseError::bad_length;
    h.payload_bytes = trimmed ? std::uint16_t{0} : static_cast<std::uint16_t>(length - around);
    if (virtual_payload_bytes != 0 && (trimmed || virtual_payload_bytes != h.payload_bytes))
        return ParseError::bad_length;
    h.source_rank = 0;
    h.session = load32(p + at_short::session);
    h.timestamp_ns = load32(p + at_short::timestamp_ns);
    h.packet_number = load32(p + at_short::packet_number);
    h.tag = 0;
    h.message_id = load32(p + at_short::message_id);
    h.message_bytes = 0;
    h.block_index = load32(p + at_short::block_index);
    h.critical_blocks = 0;
    h.block_bytes = h.budget = h.deadline = 0;
    return importance_agrees(h) ? ParseError::none : ParseError::bad_importance;
}

// The rest of a long header.
ParseError parse_long(const std::uint8_t* p, std::uint64_t length, std::uint32_t virtual_payload_bytes,
                      Datagram& out) {
    Header& h = out.header;
    const bool data = h.type == Type::data;
    h.payload_bytes = load16(p + at::payload_bytes);
    const std::uint64_t whole =
        header_bytes + h.payload_bytes + ((h.flags & flag::authenticated) != 0 ? tag_bytes : 0);
    if ((h.flags & flag::trimmed) != 0 ? length > whole : length != whole) return ParseError::bad_length;
    // A virtual payload is a data packet's whole payload: only the header and the tag are present.
    if (virtual_payload_bytes != 0 && (!data || virtual_payload_bytes != h.payload_bytes)) {
        return ParseError::bad_length;
    }
    h.source_rank = load32(p + at::source_rank);
    h.session = load32(p + at::session);
    h.timestamp_ns = load32(p + at::timestamp_ns);
    h.packet_number = load64(p + at::packet_number);
    h.tag = load64(p + at::tag);
    h.message_id = load32(p + at::message_id);
    h.message_bytes = load32(p + at::message_bytes);
    h.block_index = load32(p + at::block_index);
    h.critical_blocks = load32(p + at::critical_blocks);
    h.block_bytes = load16(p + at::block_bytes);
    h.budget = load16(p + at::budget);
    h.deadline = load16(p + at::deadline);
    return data ? check_block(h) : ParseError::none;
}

constexpr unsigned mantissa_bits = 11;
constexpr std::uint64_t mantissa_max = (1u << mantissa_bits) - 1;
constexpr unsigned exponent_max = 31;

}  // namespace

ParseError parse(std::span<const std::uint8_t> datagram, std::uint32_t virtual_payload_bytes, Datagram& out) {
    if (datagram.size() < short_header_bytes) return ParseError::too_short;
    const std::uint8_t* const p = datagram.data();
    if (p[at::version] != version) return ParseError::bad_version;

    const auto type = static_cast<Type>(p[at::type]);
    if (type < Type::data || type > Type::short_data) return ParseError::bad_type;
    const std::size_t header = header_bytes_of(type);
    if (datagram.size() < header) return ParseError::too_short;
    const bool data = is_data(type);

    const std::uint8_t flags = p[at::flags];
    const bool authenticated = (flags & flag::authenticated) != 0;
    const bool trimmed = (flags & flag::trimmed) != 0;
    if ((flags & flag::reserved) != 0 || ((flags & flag::encrypted) != 0 && !authenticated) ||
        (trimmed && !data)) {
        return ParseError::bad_flags;
    }

    const std::uint8_t traffic_class = p[at::traffic_class];
    if (data ? traffic_class >= control_class : traffic_class != control_class) return ParseError::bad_class;

    Header& h = out.header;
    h.type = type;
    h.flags = flags;
    h.traffic_class = traffic_class;
    h.importance = p[at::importance];
    h.key_epoch = p[at::key_epoch];
    h.path = load16(p + at::path);
    h.job = load32(p + at::job);
    const std::uint64_t length = datagram.size() + std::uint64_t{virtual_payload_bytes};
    const ParseError error = type == Type::short_data ? parse_short(p, length, virtual_payload_bytes, out)
                                                      : parse_long(p, length, virtual_payload_bytes, out);
    if (error != ParseError::none) return error;

    const std::uint8_t* const behind = p + header;
    const std::size_t real_payload_bytes = virtual_payload_bytes != 0 ? 0 : h.payload_bytes;
    out.bytes = p;
    out.payload = trimmed || virtual_payload_bytes != 0 ? nullptr : behind;
    out.tag = authenticated && !trimmed ? behind + real_payload_bytes : nullptr;
    return ParseError::none;
}

void write(const Header& h, std::uint8_t* p) {
    p[at::version] = version;
    p[at::type] = static_cast<std::uint8_t>(h.type);
    p[at::flags] = h.flags;
    p[at::traffic_class] = h.traffic_class;
    p[at::importance] = h.importance;
    p[at::key_epoch] = h.key_epoch;
    store16(p + at::path, h.path);
    store32(p + at::job, h.job);
    if (h.type == Type::short_data) {
        store32(p + at_short::session, h.session);
        store32(p + at_short::timestamp_ns, h.timestamp_ns);
        store32(p + at_short::packet_number, static_cast<std::uint32_t>(h.packet_number));
        store32(p + at_short::message_id, h.message_id);
        store32(p + at_short::block_index, h.block_index);
        return;
    }
    store32(p + at::source_rank, h.source_rank);
    store32(p + at::session, h.session);
    store32(p + at::timestamp_ns, h.timestamp_ns);
    store64(p + at::packet_number, h.packet_number);
    store64(p + at::tag, h.tag);
    store32(p + at::message_id, h.message_id);
    store32(p + at::message_bytes, h.message_bytes);
    store32(p + at::block_index, h.block_index);
    store32(p + at::critical_blocks, h.critical_blocks);
    store16(p + at::block_bytes, h.block_bytes);
    store16(p + at::payload_bytes, h.payload_bytes);
    store16(p + at::budget, h.budget);
    store16(p + at::deadline, h.deadline);
}

std::uint32_t block_index_of(const std::uint8_t* header) {
    const bool is_short = header_bytes_of(header) == short_header_bytes;
    return load32(header + (is_short ? at_short::block_index : at::block_index));
}

Glance glance_at(const std::uint8_t* p) {
    const bool is_short = header_bytes_of(p) == short_header_bytes;
    return {load32(p + (is_short ? at_short::session : at::session)),
            load32(p + (is_short ? at_short::packet_number : at::packet_number + 4)),
            load32(p + (is_short ? at_short::message_id : at::message_id)),
            block_index_of(p),
            load16(p + at::path),
            p[at::traffic_class]};
}

std::uint16_t encode_deadline(Duration deadline) {
    if (deadline.value <= 0) return 0;
    const auto ns = static_cast<std::uint64_t>(deadline.value);
    const std::uint64_t us = ns / 1000 + (ns % 1000 != 0);
    // The exponent that leaves 11 bits. Rounding up may carry into a twelfth: then one more.
    const auto bits = static_cast<unsigned>(std::bit_width(us));
    unsigned exponent = bits > mantissa_bits ? bits - mantissa_bits : 0;
    const auto rounded_up = [us](unsigned e) { return (us + ((std::uint64_t{1} << e) - 1)) >> e; };
    if (rounded_up(exponent) > mantissa_max) ++exponent;
    if (exponent > exponent_max) return UINT16_MAX;
    return static_cast<std::uint16_t>(exponent << mantissa_bits | rounded_up(exponent));
}

Duration decode_deadline(std::uint16_t code) {
    return microseconds(static_cast<std::int64_t>((code & mantissa_max) << (code >> mantissa_bits)));
}

std::uint16_t encode_budget(double loss_ratio) {
    if (!(loss_ratio > 0.0)) return 0;           // also NaN
    const double scaled = loss_ratio * 65536.0;  // exact: a power of two
    return scaled >= 65535.0 ? std::uint16_t{65535} : static_cast<std::uint16_t>(scaled);
}

const char* name(ParseError error) {
    switch (error) {
        case ParseError::none: return "none";
        case ParseError::too_short: return "too_short";
        case ParseError::bad_version: return "bad_version";
        case ParseError::bad_type: return "bad_type";
        case ParseError::bad_flags: return "bad_flags";
        case ParseError::bad_class: return "bad_class";
        case ParseError::bad_length: return "bad_length";
        case ParseError::bad_block: return "bad_block";
        case ParseError::bad_importance: return "bad_importance";
    }
    return "unknown";
}

const char* name(Type type) {
    switch (type) {
        case Type::data: return "data";
        case Type::control: return "control";
        case Type::hello: return "hello";
        case Type::short_data: return "short_data";
    }
    return "unknown";
}

}  // namespace dlcp::wire
