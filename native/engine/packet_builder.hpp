// Makes one packet: fills its header, points the driver's slot at its bytes, protects it.
//
//   PacketBuilder packet(config, wire::Type::control, now);     what all packets of the endpoint have in common
//   packet.header.path = …;                                     what differs, up to the caller
//   packet.write_inline(slot, address, tos);                    or write_data(), with the payload in the caller's memory
//   PacketBuilder::seal(slot, key, number, encrypt);            last: header and payload no longer change
//
// Between writing and sealing, add_flags() may set flags. The caller chooses path, class, key and flags.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/config.hpp"
#include "engine/packet.h"
#include "engine/protection.hpp"
#include "engine/units.hpp"
#include "engine/wire.hpp"

namespace dlcp {

// The ECN field (RFC 3168): a switch marks ECN-capable packets where it drops others.
enum class Ecn : std::uint8_t { not_capable = 0, capable = 2 };

// The DSCP of the class, with the ECN field in the low two bits.
inline std::uint8_t type_of_service(const EndpointConfig& config, std::uint8_t traffic_class, Ecn ecn) {
    return static_cast<std::uint8_t>(config.dscp[traffic_class] << 2 | static_cast<std::uint8_t>(ecn));
}

class PacketBuilder {
public:
    PacketBuilder(const EndpointConfig& config, wire::Type type, std::uint8_t traffic_class, std::uint64_t session,
                  Time now) {
        header.type = type;
        header.traffic_class = traffic_class;
        header.job = config.job;
        header.source_rank = config.rank;
        header.session = static_cast<std::uint32_t>(session);
        header.timestamp_ns = static_cast<std::uint32_t>(now.value);
    }

    wire::Header header;

    // A packet whose payload of header.payload_bytes stays in place: the driver gathers it. nullptr with `is_virtual`:
    // lengths only.
    void write_data(dlcp_packet& slot, const dlcp_address& to, std::uint8_t tos, const std::uint8_t* payload,
                    bool is_virtual) const {
        write(slot, to, tos, static_cast<std::uint32_t>(wire::header_bytes_of(header.type)));
        slot.body = payload;
        slot.body_bytes = header.payload_bytes;
        slot.flags = is_virtual ? DLCP_PACKET_VIRTUAL : 0;
    }
    // A packet whose payload of header.payload_bytes the caller has written behind the header in the head.
    void write_inline(dlcp_packet& slot, const dlcp_address& to, std::uint8_t tos) const {
        write(slot, to, tos, wire::header_bytes + std::uint32_t{header.payload_bytes});
        slot.body = nullptr;
        slot.body_bytes = 0;
        slot.flags = 0;
    }
    // Whether a packet that is written and not sealed has a payload in the caller's memory that its head has room for.
    static bool fits_head(const dlcp_packet& slot) {
        return slot.body != nullptr && slot.head_bytes + slot.body_bytes + wire::tag_bytes <= DLCP_HEAD_CAPACITY;
    }
    // Moves its header forward to `at`, in memory that the driver has lent (DLCP_PACKET_ADJOINS), and copies the payload
    // behind it if asked to.
    static void move(dlcp_packet& slot, std::uint8_t* at, bool with_payload) {
        std::memmove(at, slot.head, slot.head_bytes);
        slot.head = at;
        if (!with_payload) return;
        std::memcpy(at + slot.head_bytes, slot.body, slot.body_bytes);
        slot.head_bytes += slot.body_bytes;
        slot.body = nullptr;
        slot.body_bytes = 0;
    }
    static void add_flags(dlcp_packet& slot, std::uint8_t flags) { slot.head[wire::flags_offset] |= flags; }

    // Adds the tag. With `encrypt` the payload is encrypted into the head, unless it is virtual.
    static void seal(dlcp_packet& slot, PacketKey& key, std::uint64_t packet_number, bool encrypt) {
        const std::size_t header_bytes = wire::header_bytes_of(slot.head);
        const bool is_inline = slot.head_bytes > header_bytes;
        const std::uint8_t* const payload = is_inline ? slot.head + header_bytes : slot.body;
        const std::size_t payload_bytes = is_inline              ? slot.head_bytes - header_bytes
                                          : slot.body != nullptr ? slot.body_bytes
                                                                 : 0;
        slot.tail_bytes = wire::tag_bytes;
        if (!encrypt || payload == nullptr) {
            key.authenticate(slot.head, packet_number, {payload, payload_bytes}, slot.head + slot.head_bytes);
            return;
        }
        std::uint8_t* const text = slot.head + header_bytes;
        key.encrypt(slot.head, packet_number, {payload, payload_bytes}, text, text + payload_bytes);
        slot.head_bytes = static_cast<std::uint32_t>(header_bytes + payload_bytes);
        slot.body = nullptr;
        slot.body_bytes = 0;
    }

private:
    void write(dlcp_packet& slot, const dlcp_address& to, std::uint8_t tos, std::uint32_t head_bytes) const {
        wire::write(header, slot.head);
        slot.head_bytes = head_bytes;
        slot.tail_bytes = 0;
        slot.message_tag = header.tag;
        slot.address = &to;
        slot.path = header.path;
        slot.tos = tos;
    }
};

}  // namespace dlcp
