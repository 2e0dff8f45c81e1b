// What a switch reads of a frame, and the frames that marking and trimming make, against the golden vectors.
#include <array>
#include <cstdint>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "support/native/vectors.hpp"
#include "switch/frame.hpp"

using namespace dlcp;
using namespace dlcp::switching;

namespace {

constexpr std::array<const char*, 4> kind_names{"malformed", "other", "ipv4", "ipv6"};

Classification classification_of(const vectors::Record& record) {
    Classification out;
    std::istringstream classes(record.text("classes"));
    for (std::string pair; classes >> pair;) {
        const std::size_t equals = pair.find('=');
        out.class_of_dscp.at(std::stoul(pair.substr(0, equals))) =
            static_cast<std::uint8_t>(std::stoul(pair.substr(equals + 1)));
    }
    out.foreign_class = static_cast<std::uint8_t>(record.number("foreign_class"));
    if (record.text("trimmed_dscp") != "none")
        out.trimmed_dscp = static_cast<std::uint8_t>(record.number("trimmed_dscp"));
    return out;
}

}  // namespace

TEST_CASE("frame: what is read, marked and trimmed is that of the golden vectors") {
    std::array<int, kind_names.size()> seen{};
    int marked = 0, trimmed = 0;
    for (const auto& record : vectors::load("switch_frames.txt")) {
        CAPTURE(record.text("name"));
        const Classification classification = classification_of(record);
        const std::vector<std::uint8_t> bytes = record.bytes("frame");
        const Frame frame = read_frame(bytes, classification);
        const auto kind = static_cast<std::size_t>(frame.kind);
        ++seen.at(kind);
        REQUIRE(record.text("kind") == kind_names.at(kind));
        CHECK(frame.headers.bytes == bytes.size());
        if (frame.kind == FrameKind::malformed) continue;
        CHECK(frame.dscp == record.number("dscp"));
        CHECK(frame.ecn == record.number("ecn"));
        CHECK(frame.network_offset == record.number("network_offset"));
        CHECK(frame.dlcp_offset == record.number("dlcp_offset"));
        CHECK(frame.path == record.number("path"));
        CHECK(frame.flow == record.number("flow"));
        CHECK(frame.headers.traffic_class == record.number("traffic_class"));
        CHECK(frame.headers.foreign == (record.number("foreign") != 0));
        CHECK(frame.headers.importance == record.number("importance"));
        CHECK(frame.headers.ecn_capable == (record.number("ecn_capable") != 0));
        REQUIRE(frame.headers.trimmable == (record.number("trimmable") != 0));
        if (frame.headers.ecn_capable) {
            std::vector<std::uint8_t> copy = bytes;
            mark(copy, frame);
            CHECK(copy == record.bytes("marked"));
            ++marked;
        }
        if (frame.headers.trimmable) {
            std::vector<std::uint8_t> copy = bytes;
            const std::size_t left = trim(copy, frame, classification);
            CHECK(left == trimmed_bytes(frame));
            copy.resize(left);
            CHECK(copy == record.bytes("trimmed"));
            // What is left is read as a packet that is cut already.
            const Frame again = read_frame(copy, classification);
            CHECK(again.dlcp_offset == frame.dlcp_offset);
            CHECK(again.flow == frame.flow);
            CHECK_FALSE(again.headers.trimmable);
            ++trimmed;
        }
    }
    for (const int count : seen) CHECK(count > 0);
    CHECK(marked > 50);
    CHECK(trimmed > 50);
}

TEST_CASE("frame: any start of a frame, and any byte changed, is read without leaving it") {
    // Exact-size copies, so that a sanitizer sees a byte too far.
    std::mt19937 random(7);
    int read = 0;
    for (const auto& record : vectors::load("switch_frames.txt")) {
        const Classification classification = classification_of(record);
        const std::vector<std::uint8_t> bytes = record.bytes("frame");
        for (std::size_t size = 0; size < bytes.size(); size += 1 + random() % 5) {
            std::vector<std::uint8_t> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
            if (size > 12) cut[12 + random() % (size - 12)] = static_cast<std::uint8_t>(random());
            const Frame frame = read_frame(cut, classification);
            if (frame.kind == FrameKind::malformed) continue;
            REQUIRE(std::size_t{frame.dlcp_offset} + (frame.dlcp_offset != 0 ? 64 : 0) <= size);
            REQUIRE(frame.headers.traffic_class < traffic_classes);
            ++read;
        }
    }
    CHECK(read > 1000);
}
