// Arbitrary frames, and pauses, at an interface below the kernel.
//
// Input: a byte of choices (IPv6, tag, gateway, echo, how the card vouches, whether the address is looked for first),
// then records: a length of two bytes and so many of a frame. A length from 0x8000 on is a pause instead, in
// milliseconds. The record's second bit from the top says that checksums are mended, so that what is behind them is
// reached too; the third, that this is the frame before with changes: three bytes each, where (two) and what.
//
// Invariant: nothing outside a frame is read; a datagram lies within its frame; what is read of a frame does not depend
// on those before; each frame makes at most two of our own, each at most as long as the MTU allows, and none in the name
// of an address that is not ours; a deadline that was served is over; destinations stay where they are.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "engine/bytes.hpp"
#include "ipstack/checksum.hpp"
#include "ipstack/datagram_reader.hpp"
#include "ipstack/interface.hpp"
#include "ipstack/mld.hpp"

namespace {

using namespace dlcp;
using namespace dlcp::ipstack;

void require(bool holds) {
    if (!holds) std::abort();
}

InterfaceConfig config_of(std::uint8_t choices) {
    const bool is_v6 = (choices & 1) != 0;
    InterfaceConfig config{.mac = {2, 0, 0, 0, 0, 1},
                           .address = *parse_ip(is_v6 ? "fd00::1" : "10.0.0.1"),
                           .prefix_bits = is_v6 ? 64u : 24u,
                           .vlan = static_cast<std::uint16_t>((choices & 2) != 0 ? 42 : 0),
                           .mtu_bytes = 1500,
                           .port = 7000,
                           .answers_echo = (choices & 8) == 0};
    if ((choices & 4) != 0) config.gateway = *parse_ip(is_v6 ? "fd00::9" : "10.0.0.9");
    return config;
}

// Makes the checksums right that the lengths in the frame allow: IPv4's header, and UDP, ICMP or ICMPv6 behind it.
void mend(std::vector<std::uint8_t>& frame) {
    std::size_t at = 14;
    if (frame.size() < 18) return;
    if (wire::load16(&frame[12]) == 0x8100) at = 18;
    const std::uint16_t ethertype = wire::load16(&frame[at - 2]);
    const bool is_v6 = ethertype == 0x86dd;
    if (!is_v6 && ethertype != 0x0800) return;
    if (frame.size() < at + (is_v6 ? 40 : 20)) return;
    std::uint8_t* const ip = &frame[at];
    const std::size_t header = is_v6 ? 40 : (ip[0] & 15) * 4u;
    const std::size_t total = is_v6 ? 40u + wire::load16(ip + 4) : wire::load16(ip + 2);
    if (header < 20 || total < header || total > frame.size() - at) return;
    const auto write = [](std::uint8_t* field, std::uint64_t sum) {
        const auto checksum = static_cast<std::uint16_t>(~fold(sum));
        std::memcpy(field, &checksum, 2);
    };
    if (!is_v6) {
        std::memset(ip + 10, 0, 2);
        write(ip + 10, add_words(0, ip, header));
    }
    std::uint8_t protocol = is_v6 ? ip[6] : ip[9];
    std::size_t options = 0;  // a hop-by-hop header of IPv6
    if (is_v6 && protocol == protocol_hop_by_hop && total - header >= 8) {
        protocol = ip[header];
        options = (ip[header + 1] + 1u) * 8;
        if (options > total - header) return;
    }
    const std::size_t field = protocol == 17 ? 6 : 2;
    const std::size_t bytes = total - header - options;
    std::uint8_t* const message = ip + header + options;
    if ((protocol != 17 && protocol != 1 && protocol != 58) || bytes < 8) return;
    std::memset(message + field, 0, 2);
    const std::uint64_t pseudo = protocol == 1
                                     ? 0
                                     : pseudo_header_sum(ip + (is_v6 ? 8 : 12), ip + (is_v6 ? 24 : 16), is_v6,
                                                         protocol, static_cast<std::uint32_t>(bytes));
    write(message + field, add_words(pseudo, message, bytes));
}

// Whether a reader that saw no other frame says the same of this one.
bool is_read_alone(const InterfaceConfig& config, const std::vector<std::uint8_t>& frame, CardChecksum card,
                   FrameKind kind, const Datagram& datagram) {
    InterfaceCounters counters;
    DatagramReader reader(config, counters);
    Datagram alone;
    if (reader.read(frame, card, card, alone) != kind) return false;
    if (kind != FrameKind::datagram) return true;
    return alone.payload == datagram.payload && alone.payload_bytes == datagram.payload_bytes &&
           alone.tos == datagram.tos && alone.source == datagram.source &&
           alone.destination_port == datagram.destination_port && alone.source_mac == datagram.source_mac;
}

// Whether a frame of ours may leave: who does not have the address yet speaks in nobody's name.
bool may_leave(const Interface& interface, const std::uint8_t* frame) {
    if (interface.address_state() == AddressState::ours) return true;
    const std::uint8_t* const at = frame + (interface.config().vlan != 0 ? 18 : 14);
    const bool is_v6 = interface.config().address.is_v6();
    const std::uint8_t* const source = at + (is_v6 ? 8 : 14);
    return std::all_of(source, source + (is_v6 ? 16 : 4), [](std::uint8_t byte) { return byte == 0; });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::uint8_t choices = *data++;
    --size;
    const InterfaceConfig config = config_of(choices);
    Interface interface(config);
    Time now{1};
    const auto card = static_cast<CardChecksum>((choices >> 4) % 3);
    if ((choices >> 4) >= 9) interface.claim(now);
    std::vector<const Destination*> destinations;
    for (std::uint8_t last = 2; last < 6; ++last) {
        IpAddress peer = config.address;
        peer.bytes[config.address.is_v6() ? 15 : 3] = last;
        destinations.push_back(interface.reach(now, {peer, 7000}));
        require(destinations.back() != nullptr);
    }
    std::vector<std::uint8_t> out(config.mtu_bytes + 18);
    const auto take_frames = [&](std::size_t most) {
        std::size_t taken = 0;
        while (const std::size_t bytes = interface.next_frame(out)) {
            ++taken;
            require(bytes >= 60 && bytes <= out.size());
            require(std::equal(config.mac.begin(), config.mac.end(), out.begin() + 6));
            require(may_leave(interface, out.data()));
        }
        require(taken <= most);
    };
    take_frames(destinations.size() + 2);
    std::vector<std::uint8_t> frame;
    while (size >= 2) {
        const std::uint16_t word = wire::load16(data);
        data += 2;
        size -= 2;
        if ((word & 0x8000) != 0) {
            now = now + milliseconds(word & 0x7fff);
            if (interface.next_deadline() <= now) interface.handle_timer(now);
            require(interface.next_deadline() > now);
            for (const Destination* destination : destinations) {
                interface.ask(now, *destination);
                interface.used(now, *destination);
            }
            take_frames(2 * destinations.size() + 3);
            continue;
        }
        const std::size_t bytes = std::min<std::size_t>(word & 0x1fff, size);
        if ((word & 0x2000) == 0) {
            frame.assign(data, data + bytes);
        } else {
            for (std::size_t at = 0; at + 3 <= bytes && !frame.empty(); at += 3)
                frame[wire::load16(data + at) % frame.size()] = data[at + 2];
        }
        frame.shrink_to_fit();  // so that a sanitizer sees a byte too far
        data += bytes;
        size -= bytes;
        if ((word & 0x4000) != 0) mend(frame);
        Datagram datagram;
        const std::uint64_t datagrams = interface.counters().rx_datagrams;
        const FrameKind kind = interface.read(frame, card, card, datagram);
        require((kind == FrameKind::datagram) == (interface.counters().rx_datagrams == datagrams + 1));
        require(is_read_alone(config, frame, card, kind, datagram));
        if (kind == FrameKind::datagram) {
            require(datagram.payload >= frame.data() + 42);
            require(datagram.payload + datagram.payload_bytes <= frame.data() + frame.size());
            require(datagram.source_mac == frame.data() + 6);
            require(datagram.destination_port == config.port);
            interface.heard(now, datagram);
            interface.reach(now, datagram.source);
        }
        // Whatever read() said of it.
        interface.handle_frame(now, frame);
        take_frames(2);
    }
    for (const Destination* destination : destinations)
        require(interface.reach(now, destination->address) == destination);
    while (interface.next_event()) {}
    return 0;
}
