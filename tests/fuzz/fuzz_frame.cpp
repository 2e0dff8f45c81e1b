// Arbitrary bytes as an Ethernet frame at a switch: read, marked and trimmed.
//
// Invariant: nothing outside the frame is read or written; what is marked reads the same but for its ECN field; what is
// trimmed is shorter or as long, reads as the same flow, and cannot be trimmed again.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "switch/frame.hpp"

namespace {

using namespace dlcp::switching;

void require(bool holds) {
    if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    Classification classification;
    for (std::size_t dscp = 0; dscp < 56; ++dscp) classification.class_of_dscp[dscp] = dscp >> 3;
    classification.foreign_class = data[0] & 7;
    // The first byte also chooses whether trimmed packets keep their DSCP.
    if ((data[0] & 8) != 0) classification.trimmed_dscp = 48;
    const std::vector<std::uint8_t> bytes(data + 1, data + size);
    const Frame frame = read_frame(bytes, classification);
    require(frame.headers.bytes == bytes.size());
    if (frame.kind == FrameKind::malformed) return 0;
    require(frame.headers.traffic_class < traffic_classes);

    if (frame.headers.ecn_capable) {
        std::vector<std::uint8_t> copy = bytes;
        mark(copy, frame);
        const Frame again = read_frame(copy, classification);
        require(again.kind == frame.kind && again.ecn == 3);
        require(again.dscp == frame.dscp && again.flow == frame.flow && again.dlcp_offset == frame.dlcp_offset);
    }
    if (frame.headers.trimmable) {
        std::vector<std::uint8_t> copy = bytes;
        const std::size_t left = trim(copy, frame, classification);
        require(left == trimmed_bytes(frame) && left <= bytes.size());
        copy.resize(left);
        const Frame again = read_frame(copy, classification);
        require(again.kind == frame.kind && again.dlcp_offset == frame.dlcp_offset && again.flow == frame.flow);
        require(!again.headers.trimmable && again.ecn == frame.ecn);
    }
    return 0;
}
