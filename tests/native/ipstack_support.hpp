// What the tests of ipstack share: an interface's frames as vectors, and the two ends that most of them have.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ipstack/checksum.hpp"
#include "ipstack/interface.hpp"

namespace dlcp::ipstack {

using Frame = std::vector<std::uint8_t>;

inline InterfaceConfig config_of_host(unsigned host, bool is_v6, std::uint16_t vlan = 0) {
    const std::string last = std::to_string(host);
    return {.mac = {2, 0, 0, 0, 0, static_cast<std::uint8_t>(host)},
            .address = *parse_ip((is_v6 ? "fd00::" : "10.0.0.") + last),
            .prefix_bits = is_v6 ? 64u : 24u,
            .vlan = vlan,
            .port = 7000};
}

inline Frame next_frame(Interface& interface) {
    Frame frame(interface.config().mtu_bytes + 18);
    frame.resize(interface.next_frame(frame));
    return frame;
}
inline std::vector<Frame> all_frames(Interface& interface) {
    std::vector<Frame> out;
    for (Frame frame = next_frame(interface); !frame.empty(); frame = next_frame(interface)) out.push_back(frame);
    return out;
}

// As a driver does. Exact-size copies, so that a sanitizer sees a byte too far.
inline FrameKind receive(Interface& interface, Time now, const Frame& frame) {
    const Frame copy = frame;
    Datagram datagram;
    const FrameKind kind = interface.read(copy, CardChecksum::unknown, CardChecksum::unknown, datagram);
    if (kind == FrameKind::other) interface.handle_frame(now, copy);
    if (kind == FrameKind::datagram) interface.heard(now, datagram);
    return kind;
}

// A datagram as a driver sends it.
inline Frame datagram_to(const Destination& destination, const Marking& marking, const Frame& payload,
                         Checksums checksums = Checksums::software) {
    Frame frame(destination.headers_bytes + payload.size());
    std::copy(payload.begin(), payload.end(), frame.begin() + destination.headers_bytes);
    write_headers(destination, marking, static_cast<std::uint32_t>(payload.size()), checksums,
                  add_words(0, payload.data(), payload.size()), frame.data());
    return frame;
}

}  // namespace dlcp::ipstack
