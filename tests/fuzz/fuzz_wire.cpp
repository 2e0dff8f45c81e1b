// Arbitrary bytes as a datagram, and as the frames of a control packet: the parsers alone, millions of times.
//
// Invariant: nothing outside the input is read; a data header that parses is written back as the same bytes; a frame
// that is yielded lies inside the payload and is as long as its counts say.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "engine/frames.hpp"
#include "engine/wire.hpp"

namespace {

using namespace dlcp;

void require(bool holds) {
    if (!holds) std::abort();
}

void read_frames(std::span<const std::uint8_t> payload) {
    wire::FrameReader reader(payload);
    wire::Frame frame;
    std::size_t yielded = 0;
    while (reader.next(frame)) {
        require(frame.body.data() >= payload.data() + wire::frame_prefix_bytes);
        require(frame.body.data() + frame.body.size() <= payload.data() + payload.size());
        require(++yielded <= payload.size() / wire::frame_prefix_bytes);
        wire::Ack ack;
        wire::Outcome outcome;
        wire::Hello hello;
        std::uint16_t count = 0;
        std::uint8_t sum = 0;
        if (frame.type == wire::FrameType::ack && wire::read_ack(frame, ack))
            for (std::size_t i = 0; i < std::size_t{ack.words} * 8; ++i)
                sum = static_cast<std::uint8_t>(sum + ack.received[i] + (ack.ce != nullptr ? ack.ce[i] : 0));
        if (frame.type == wire::FrameType::outcome && wire::read_outcome(frame, outcome))
            for (std::size_t i = 0; i < std::size_t{outcome.words} * 8; ++i)
                sum = static_cast<std::uint8_t>(sum + outcome.abandoned[i]);
        if (frame.type == wire::FrameType::hello) wire::read_hello(frame, hello);
        if (frame.type == wire::FrameType::probe && wire::read_count(frame, count))
            require(frame.body.size() == 4 + std::size_t{count} * 4);
        if (frame.type == wire::FrameType::trimmed && wire::read_count(frame, count))
            require(frame.body.size() == 4 + std::size_t{count} * 8);
        volatile std::uint8_t sink = sum;
        (void)sink;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    // The first byte chooses whether the payload is real or a length only.
    const std::span<const std::uint8_t> bytes(data + 1, size - 1);
    const std::uint32_t virtual_bytes = (data[0] & 1) != 0 && size > 60 ? bytes[58] * 256u + bytes[59] : 0;
    wire::Datagram d;
    if (wire::parse(bytes, virtual_bytes, d) == wire::ParseError::none) {
        for (const std::uint8_t byte : d.content()) {
            volatile std::uint8_t sink = byte;
            (void)sink;
        }
        if (d.tag != nullptr)
            require(d.tag >= bytes.data() && d.tag + wire::tag_bytes <= bytes.data() + bytes.size());
        if (wire::is_data(d.header.type)) {
            std::array<std::uint8_t, wire::header_bytes> written{};
            wire::write(d.header, written.data());
            require(std::memcmp(written.data(), bytes.data(), wire::header_bytes_of(d.header.type)) == 0);
        } else {
            read_frames(d.content());
        }
    }
    read_frames(bytes);
    return 0;
}
