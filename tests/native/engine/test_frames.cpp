// Frame reader and writer against the golden vectors, and their memory bounds.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "engine/bytes.hpp"
#include "engine/frames.hpp"
#include "engine/packet_window.hpp"
#include "support/native/vectors.hpp"

using namespace dlcp;
using wire::Frame;
using wire::FrameType;
using wire::FrameWriter;

namespace {

using Words = std::vector<std::uint64_t>;

Words words(const std::uint8_t* p, std::size_t count) {
    Words out;
    for (std::size_t i = 0; i < count; ++i) out.push_back(wire::load64(p + 8 * i));
    return out;
}

std::vector<std::uint32_t> ids(const Frame& frame, std::uint16_t count) {
    std::vector<std::uint32_t> out;
    for (std::size_t i = 0; i < count; ++i) out.push_back(wire::load32(frame.body.data() + 4 + 4 * i));
    return out;
}

std::string hex_list(const Words& values) {
    std::string out;
    for (const auto v : values) {
        char text[24];
        std::snprintf(text, sizeof text, "%s%016llx", out.empty() ? "" : ",", static_cast<unsigned long long>(v));
        out += text;
    }
    return out.empty() ? "-" : out;
}

template <class Values>
std::string list(const Values& values) {
    std::string out;
    for (const auto v : values) out += (out.empty() ? "" : ",") + std::to_string(v);
    return out.empty() ? "-" : out;
}

std::string word(FrameType type) {
    constexpr const char* names[] = {"padding", "ack",  "complete", "outcome", "probe",
                                     "trimmed", "hold", "proceed",  "refuse",  "cancel",
                                     "",        "",     "close",    "hello",   "piece"};
    return names[static_cast<std::size_t>(type)];
}

// One frame in one line, as `frame:` in frames.txt.
std::string line(const Frame& frame) {
    const std::string name = word(frame.type);
    const std::uint8_t* const p = frame.body.data();
    const auto field = [](const char* key, std::uint64_t value) {
        return std::string(" ") + key + "=" + std::to_string(value);
    };
    switch (frame.type) {
        case FrameType::padding: break;
        case FrameType::ack: {
            wire::Ack a;
            if (!wire::read_ack(frame, a)) return name + " miscounted";
            return name + field("largest", a.largest) + field("ack_delay_ns", a.ack_delay_ns) +
                   field("queue_delay_ns", a.queue_delay_ns) + field("credit_bytes", a.credit_bytes) +
                   field("ce_packets", a.ce_packets) + " received=" + hex_list(words(a.received, a.words)) +
                   " ce=" + (a.ce == nullptr ? "none" : hex_list(words(a.ce, a.words))) + (a.turn ? " turn" : "");
        }
        case FrameType::outcome: {
            wire::Outcome o;
            if (!wire::read_outcome(frame, o)) return name + " miscounted";
            return name + field("message_id", o.message_id) + field("abandoned_blocks", o.abandoned_blocks) +
                   field("word_offset", o.word_offset) + " abandoned=" + hex_list(words(o.abandoned, o.words));
        }
        case FrameType::complete:
        case FrameType::probe:
        case FrameType::hold:
        case FrameType::proceed: {
            std::uint16_t count = 0;
            if (!wire::read_count(frame, count)) return name + " miscounted";
            return name + " message_ids=" + list(ids(frame, count));
        }
        case FrameType::trimmed: {
            std::uint16_t count = 0;
            if (!wire::read_count(frame, count)) return name + " miscounted";
            return name + " packet_numbers=" + list(words(p + 4, count));
        }
        case FrameType::refuse: return name + field("message_id", wire::load32(p)) + field("reason", p[4]);
        case FrameType::cancel: return name + field("message_id", wire::load32(p));
        case FrameType::close: return name + field("reason", p[0]);
        case FrameType::hello: {
            wire::Hello h;
            if (!wire::read_hello(frame, h)) return name + " miscounted";
            return name + field("own_session", h.own_session) + field("echo_session", h.echo_session) +
                   field("destination_rank", h.destination_rank) +
                   field("max_datagram_bytes", h.max_datagram_bytes) +
                   field("received_datagram_bytes", h.received_datagram_bytes) + field("flags", h.flags) +
                   field("ciphers", h.ciphers);
        }
        case FrameType::piece: {
            wire::Piece piece;
            if (!wire::read_piece(frame, piece)) return name + " miscounted";
            std::string hex;
            for (const std::uint8_t byte : piece.bytes) {
                char text[4];
                std::snprintf(text, sizeof text, "%02x", byte);
                hex += text;
            }
            return name + field("packet_number", piece.packet_number) +
                   field("datagram_bytes", piece.datagram_bytes) + field("offset", piece.offset) +
                   field("flags", frame.flags) + " bytes=" + (hex.empty() ? "-" : hex);
        }
    }
    return name;
}

// Writes a frame that was read well once more.
bool copy(const Frame& frame, FrameWriter& to) {
    const std::uint8_t* const p = frame.body.data();
    std::uint16_t count = 0;
    switch (frame.type) {
        case FrameType::complete:
        case FrameType::probe:
        case FrameType::hold:
        case FrameType::proceed:
            return wire::read_count(frame, count) && to.put_ids(frame.type, ids(frame, count));
        case FrameType::trimmed:
            return wire::read_count(frame, count) && to.put_packet_numbers(words(p + 4, count));
        case FrameType::refuse: return to.put_refuse(wire::load32(p), p[4]);
        case FrameType::cancel: return to.put_cancel(wire::load32(p));
        case FrameType::close: return to.put_close(p[0]);
        case FrameType::hello: {
            wire::Hello h;
            return wire::read_hello(frame, h) && wire::write_hello(to, h);
        }
        case FrameType::piece: {
            wire::Piece piece;
            return wire::read_piece(frame, piece) && wire::write_piece(to, piece, frame.flags);
        }
        case FrameType::padding:
        case FrameType::ack:
        case FrameType::outcome: break;
    }
    std::uint8_t* const body = to.put(frame.type, frame.flags, frame.body.size());
    if (body != nullptr && !frame.body.empty()) std::memcpy(body, p, frame.body.size());
    return body != nullptr;
}

// A copy that ends where its allocation ends, so that a sanitizer sees a read outside.
struct Exact {
    Exact(const std::uint8_t* from, std::size_t n) : size(n), data(std::make_unique<std::uint8_t[]>(n)) {
        std::copy(from, from + n, data.get());
    }
    std::span<const std::uint8_t> span() const { return {data.get(), size}; }
    std::size_t size;
    std::unique_ptr<std::uint8_t[]> data;
};

// What a writer is given, as `line` says it, and the call that writes it.
struct RoundTrip {
    const char* line;
    std::size_t body_bytes;
    std::function<bool(FrameWriter&)> write;
};

// Packets 70 down to 3 but 68, of which 70 and 6 were marked if `ce`.
bool write_ack_of_window(FrameWriter& writer, bool ce) {
    PacketWindow window;
    for (std::uint64_t n = 3; n <= 70; ++n) {
        if (n != 68) window.insert(n, ce && (n == 70 || n == 6));
    }
    const wire::Ack ack{.largest = 70,
                        .ack_delay_ns = 0x01020304,
                        .queue_delay_ns = 0x05060708,
                        .credit_bytes = 0x1112131415161718,
                        .ce_packets = 9,
                        .words = 2};
    return wire::write_ack(writer, ack, window);
}

// Every kind of frame that a reader yields.
const std::vector<RoundTrip>& round_trips() {
    static const std::uint32_t ids[] = {1, 0x01020304, UINT32_MAX};
    static const std::uint64_t numbers[] = {0, 0x0102030405060708, UINT64_MAX};
    static const std::vector<RoundTrip> table = {
        {"ack largest=70 ack_delay_ns=16909060 queue_delay_ns=84281096 credit_bytes=1230066625199609624 "
         "ce_packets=9 received=fffffffffffffffb,000000000000000f ce=none",
         48, [](FrameWriter& w) { return write_ack_of_window(w, false); }},
        {"ack largest=70 ack_delay_ns=16909060 queue_delay_ns=84281096 credit_bytes=1230066625199609624 "
         "ce_packets=9 received=fffffffffffffffb,000000000000000f ce=0000000000000001,0000000000000001",
         64, [](FrameWriter& w) { return write_ack_of_window(w, true); }},
        {"complete message_ids=1,16909060,4294967295", 16,
         [](FrameWriter& w) { return w.put_ids(FrameType::complete, ids); }},
        {"outcome message_id=16909060 abandoned_blocks=7 word_offset=84281096 "
         "abandoned=0000000000000000,0102030405060708,ffffffffffffffff",
         40, [](FrameWriter& w) { return wire::write_outcome(w, 0x01020304, 7, 0x05060708, numbers); }},
        {"outcome message_id=4294967295 abandoned_blocks=0 word_offset=0 abandoned=-", 16,
         [](FrameWriter& w) { return wire::write_outcome(w, UINT32_MAX, 0, 0, {}); }},
        {"probe message_ids=1,16909060,4294967295", 16,
         [](FrameWriter& w) { return w.put_ids(FrameType::probe, ids); }},
        {"probe message_ids=-", 4, [](FrameWriter& w) { return w.put_ids(FrameType::probe, {}); }},
        {"trimmed packet_numbers=0,72623859790382856,18446744073709551615", 28,
         [](FrameWriter& w) { return w.put_packet_numbers(numbers); }},
        {"hold message_ids=1,16909060,4294967295", 16,
         [](FrameWriter& w) { return w.put_ids(FrameType::hold, ids); }},
        {"proceed message_ids=1,16909060,4294967295", 16,
         [](FrameWriter& w) { return w.put_ids(FrameType::proceed, ids); }},
        {"refuse message_id=16909060 reason=5", 8, [](FrameWriter& w) { return w.put_refuse(0x01020304, 5); }},
        {"cancel message_id=16909060", 8, [](FrameWriter& w) { return w.put_cancel(0x01020304); }},
        {"close reason=6", 4, [](FrameWriter& w) { return w.put_close(6); }},
        {"hello own_session=72623859790382856 echo_session=18446744073709551615 destination_rank=16909060 "
         "max_datagram_bytes=258 received_datagram_bytes=772 flags=3 ciphers=84281096",
         32,
         [](FrameWriter& w) {
             return wire::write_hello(w, {.own_session = 0x0102030405060708,
                                          .echo_session = UINT64_MAX,
                                          .destination_rank = 0x01020304,
                                          .max_datagram_bytes = 0x0102,
                                          .received_datagram_bytes = 0x0304,
                                          .flags = 3,
                                          .ciphers = 0x05060708});
         }},
    };
    return table;
}

// What a reader makes of a payload of one frame: its line, "malformed", or "nothing".
std::string read_one(const Exact& payload) {
    wire::FrameReader reader(payload.span());
    Frame frame;
    if (!reader.next(frame)) return reader.malformed() ? "malformed" : "nothing";
    const std::string result = line(frame);
    CHECK_FALSE(reader.next(frame));
    CHECK_FALSE(reader.malformed());
    return result;
}

}  // namespace

TEST_CASE("frames: what is written is read with the same values, and needs exactly its size") {
    for (const RoundTrip& trip : round_trips()) {
        CAPTURE(trip.line);
        const std::size_t whole = wire::frame_prefix_bytes + trip.body_bytes;
        std::vector<std::uint8_t> out(whole + 1, 0xEE);
        for (std::size_t capacity = 0; capacity < whole; ++capacity) {
            FrameWriter writer(out.data(), capacity);
            CHECK_FALSE(trip.write(writer));
            CHECK(writer.size() == 0);
        }
        CHECK(out == std::vector<std::uint8_t>(whole + 1, 0xEE));
        FrameWriter writer(out.data(), whole);
        REQUIRE(trip.write(writer));
        CHECK(writer.size() == whole);
        CHECK(out[whole] == 0xEE);
        CHECK(read_one(Exact(out.data(), whole)) == trip.line);
    }
}

TEST_CASE("frames: a frame that is cut anywhere is refused, also where its length says so") {
    for (const RoundTrip& trip : round_trips()) {
        CAPTURE(trip.line);
        const std::size_t whole = wire::frame_prefix_bytes + trip.body_bytes;
        std::vector<std::uint8_t> out(whole);
        FrameWriter writer(out.data(), whole);
        REQUIRE(trip.write(writer));
        for (std::size_t bytes = 1; bytes < whole; ++bytes) {
            CAPTURE(bytes);
            Exact cut(out.data(), bytes);
            CHECK(read_one(cut) == "malformed");
            if (bytes < wire::frame_prefix_bytes) continue;
            wire::store16(cut.data.get() + 2, static_cast<std::uint16_t>(bytes));
            const std::string result = read_one(cut);
            const bool refused = result == "malformed" || result.ends_with(" miscounted");
            CHECK(refused);
        }
    }
}

TEST_CASE("frames: every kind has a round trip") {
    for (std::size_t type = 1; type <= static_cast<std::size_t>(FrameType::hello); ++type) {
        if (type == 10 || type == 11) continue;  // not assigned
        const std::string name = word(static_cast<FrameType>(type)) + " ";
        CAPTURE(name);
        CHECK(std::any_of(round_trips().begin(), round_trips().end(),
                          [&](const RoundTrip& trip) { return std::string(trip.line).starts_with(name); }));
    }
}

TEST_CASE("frames: a type that is not assigned is skipped, whatever it holds") {
    for (const std::size_t type : {10, 11, 15, 255}) {
        for (const std::size_t body_bytes : {0, 1, 7, 8, 100}) {
            CAPTURE(type);
            CAPTURE(body_bytes);
            std::vector<std::uint8_t> out(256);
            FrameWriter writer(out.data(), out.size());
            for (int i = 0; i < 2; ++i) {
                std::uint8_t* const body = writer.put(static_cast<FrameType>(type), 0xFF, body_bytes);
                REQUIRE(body != nullptr);
                std::fill_n(body, body_bytes, std::uint8_t{0xEE});
                if (i == 0) REQUIRE(writer.put_cancel(7));
            }
            CHECK(read_one(Exact(out.data(), writer.size())) == "cancel message_id=7");
        }
    }
}

TEST_CASE("frames: golden vectors read as the twin says, canonical ones are written back byte for byte") {
    for (const auto& record : vectors::load("frames.txt")) {
        CAPTURE(record.text("name"));
        const auto bytes = record.bytes("bytes");
        const Exact payload(bytes.data(), bytes.size());
        std::vector<std::uint8_t> again(bytes.size());
        FrameWriter writer(again.data(), again.size());
        std::vector<std::string> lines;

        wire::FrameReader reader(payload.span());
        for (Frame frame; reader.next(frame);) {
            lines.push_back(line(frame));
            if (record.text("canonical") == "yes") CHECK(copy(frame, writer));
        }
        CHECK(record.text("expect") == (reader.malformed() ? "malformed" : "ok"));
        CHECK(lines == record.all("frame"));
        Frame frame;
        CHECK_FALSE(reader.next(frame));  // the end stays the end
        if (record.text("canonical") == "yes") {
            CHECK(writer.size() == bytes.size());
            CHECK(again == bytes);
        }
    }
}

TEST_CASE("frames: every prefix and every damaged byte of the golden payloads stays inside the payload") {
    for (const auto& record : vectors::load("frames.txt")) {
        const auto whole = record.bytes("bytes");
        for (std::size_t n = 0; n <= std::min<std::size_t>(whole.size(), 256); ++n) {
            const Exact prefix(whole.data(), n);
            wire::FrameReader reader(prefix.span());
            for (Frame frame; reader.next(frame);) (void)line(frame);
        }
        for (std::size_t i = 0; i < std::min<std::size_t>(whole.size(), 64); ++i) {
            for (const std::uint8_t value : {0, 1, 4, 128, 255}) {
                Exact damaged(whole.data(), whole.size());
                damaged.data[i] = value;
                wire::FrameReader reader(damaged.span());
                for (Frame frame; reader.next(frame);) (void)line(frame);
            }
        }
    }
}

TEST_CASE("frame writer: what does not fit is refused and writes nothing") {
    std::uint8_t out[32];
    std::memset(out, 0xEE, sizeof out);
    const std::vector<std::uint32_t> four(4, 7);
    for (std::size_t capacity = 0; capacity < 24; ++capacity) {
        FrameWriter writer(out, capacity);
        CHECK_FALSE(writer.put_ids(FrameType::probe, four));  // 4 + 4 + 16
        CHECK(writer.size() == 0);
        CHECK(writer.room() == capacity);
    }
    CHECK(std::all_of(out, out + sizeof out, [](std::uint8_t b) { return b == 0xEE; }));

    FrameWriter writer(out, 24);
    CHECK(writer.put_ids(FrameType::probe, four));
    CHECK(writer.room() == 0);
    CHECK_FALSE(writer.put_close(0));
    CHECK_FALSE(writer.put_padding(4));
    CHECK(out[24] == 0xEE);
}

TEST_CASE("frame writer: padding has exactly the size asked for") {
    std::uint8_t out[64];
    std::memset(out, 0xEE, sizeof out);
    FrameWriter writer(out, sizeof out);
    for (std::size_t n = 0; n < wire::frame_prefix_bytes; ++n) CHECK_FALSE(writer.put_padding(n));
    CHECK(writer.put_padding(4));
    CHECK(writer.size() == 4);
    CHECK(writer.put_padding(writer.room()));
    CHECK(writer.size() == sizeof out);
    CHECK(out[4] == 0);
    CHECK(wire::load16(out + 6) == 60);
    wire::FrameReader reader({out, sizeof out});
    Frame frame;
    CHECK_FALSE(reader.next(frame));
    CHECK_FALSE(reader.malformed());
}

TEST_CASE("frame writer: no frame is longer than its 16-bit length can say") {
    std::vector<std::uint8_t> out(1 << 18);
    FrameWriter writer(out.data(), out.size());
    CHECK_FALSE(writer.put_padding(65536));
    CHECK(writer.put(FrameType::padding, 0, 65532) == nullptr);
    CHECK_FALSE(writer.put_ids(FrameType::hold, std::vector<std::uint32_t>(16382)));
    CHECK_FALSE(writer.put_packet_numbers(std::vector<std::uint64_t>(8191)));
    CHECK(writer.size() == 0);
    CHECK(writer.put_ids(FrameType::hold, std::vector<std::uint32_t>(16381)));
    CHECK(writer.put_packet_numbers(std::vector<std::uint64_t>(8190)));
    CHECK(writer.put_padding(65535));
}
