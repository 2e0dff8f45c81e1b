// The engine's header code and packet protection against the golden vectors, and its memory bounds.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "engine/protection.hpp"
#include "engine/wire.hpp"
#include "support/native/vectors.hpp"

using namespace dlcp;

namespace {

// A copy that ends where its allocation ends, so that a sanitizer sees a read outside.
struct Exact {
    explicit Exact(const std::vector<std::uint8_t>& from)
        : size(from.size()), data(std::make_unique<std::uint8_t[]>(from.size())) {
        std::copy(from.begin(), from.end(), data.get());
    }
    std::span<const std::uint8_t> span() const { return {data.get(), size}; }
    std::size_t size;
    std::unique_ptr<std::uint8_t[]> data;
};

std::map<std::string, std::uint64_t> numbers(const wire::Header& h) {
    return {{"flags", h.flags},
            {"traffic_class", h.traffic_class},
            {"importance", h.importance},
            {"key_epoch", h.key_epoch},
            {"path", h.path},
            {"job", h.job},
            {"source_rank", h.source_rank},
            {"session", h.session},
            {"timestamp_ns", h.timestamp_ns},
            {"packet_number", h.packet_number},
            {"tag", h.tag},
            {"message_id", h.message_id},
            {"message_bytes", h.message_bytes},
            {"block_index", h.block_index},
            {"critical_blocks", h.critical_blocks},
            {"block_bytes", h.block_bytes},
            {"payload_bytes", h.payload_bytes},
            {"budget", h.budget},
            {"deadline", h.deadline}};
}

}  // namespace

TEST_CASE("header: golden vectors parse as the twin says, and are written back byte for byte") {
    std::array<int, wire::parse_error_count> seen{};
    for (const auto& record : vectors::load("headers.txt")) {
        CAPTURE(record.text("name"));
        const Exact datagram(record.bytes("bytes"));
        const auto virtual_payload_bytes = static_cast<std::uint32_t>(
            record.has("virtual_payload_bytes") ? record.number("virtual_payload_bytes") : 0);
        wire::Datagram out;
        const wire::ParseError error = wire::parse(datagram.span(), virtual_payload_bytes, out);
        ++seen[static_cast<std::size_t>(error)];
        if (record.text("expect") != "ok") {
            CHECK(record.text("expect") == wire::name(error));
            continue;
        }
        REQUIRE(error == wire::ParseError::none);
        CHECK(record.text("type") == wire::name(out.header.type));
        for (const auto& [field, value] : numbers(out.header)) {
            CAPTURE(field);
            CHECK(record.number(field) == value);
        }
        CHECK(out.bytes == datagram.data.get());
        if (record.text("payload") == "none") {
            CHECK(out.payload == nullptr);
        } else {
            REQUIRE(out.payload != nullptr);
            const std::string payload = vectors::hex(out.payload, out.header.payload_bytes);
            CHECK(record.text("payload") == (payload.empty() ? "empty" : payload));
        }
        if (record.text("auth_tag") == "none") {
            CHECK(out.tag == nullptr);
        } else {
            REQUIRE(out.tag != nullptr);
            CHECK(record.text("auth_tag") == vectors::hex(out.tag, wire::tag_bytes));
        }
        std::uint8_t written[wire::header_bytes];
        wire::write(out.header, written);
        const std::size_t size = wire::header_bytes_of(out.header.type);
        CHECK(vectors::hex(written, size) == vectors::hex(datagram.data.get(), size));
        if (wire::is_data(out.header.type)) CHECK(wire::block_index_of(written) == out.header.block_index);
    }
    // The files cover every rule.
    for (std::size_t i = 0; i < seen.size(); ++i) {
        CAPTURE(wire::name(static_cast<wire::ParseError>(i)));
        CHECK(seen[i] > 0);
    }
}

TEST_CASE("header: every prefix and every damaged byte of the golden datagrams stays inside the datagram") {
    for (const auto& record : vectors::load("headers.txt")) {
        CAPTURE(record.text("name"));
        const auto whole = record.bytes("bytes");
        wire::Datagram out;
        for (std::size_t n = 0; n <= whole.size(); ++n) {
            const Exact prefix({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)});
            (void)wire::parse(prefix.span(), 0, out);
        }
        for (std::size_t i = 0; i < std::min(whole.size(), wire::header_bytes); ++i) {
            for (const std::uint8_t value : {0, 1, 127, 128, 255}) {
                auto damaged = whole;
                damaged[i] = value;
                const Exact copy(damaged);
                if (wire::parse(copy.span(), 0, out) != wire::ParseError::none) continue;
                const std::uint8_t* const end = copy.data.get() + copy.size;
                if (out.payload != nullptr) CHECK(out.payload + out.header.payload_bytes <= end);
                if (out.tag != nullptr) CHECK(out.tag + wire::tag_bytes == end);
                if (out.header.type != wire::Type::data) continue;
                const auto& h = out.header;
                const std::uint64_t blocks = wire::block_count(h.message_bytes, h.block_bytes);
                CHECK(h.block_index < blocks);
                CHECK(h.critical_blocks <= blocks);
                CHECK(std::uint64_t{h.block_index} * h.block_bytes + h.payload_bytes <= h.message_bytes);
            }
        }
    }
}

TEST_CASE("header: a packet number is found again by its low half, within half of 2^32 of the largest received") {
    constexpr std::uint64_t half = std::uint64_t{1} << 31, wrap = std::uint64_t{1} << 32;
    for (const std::uint64_t largest : {std::uint64_t{0}, half - 1, half, wrap - 1, wrap, wrap + 5,
                                        7 * wrap + half, (std::uint64_t{1} << 62) - 1}) {
        for (const std::uint64_t distance : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1000}, half - 1}) {
            CAPTURE(largest);
            CAPTURE(distance);
            const std::uint64_t ahead = largest + distance;
            CHECK(wire::expand_packet_number(ahead % wrap, largest) == ahead);
            if (distance > largest) continue;
            CHECK(wire::expand_packet_number((largest - distance) % wrap, largest) == largest - distance);
        }
    }
}

TEST_CASE("header: an empty span is too short") {
    wire::Datagram out;
    CHECK(wire::parse({}, 0, out) == wire::ParseError::too_short);
}

TEST_CASE("codes: golden vectors") {
    for (const auto& record : vectors::load("codes.txt")) {
        CAPTURE(record.text("name"));
        if (record.has("code")) {
            const auto code = static_cast<std::uint16_t>(record.number("code"));
            CHECK(static_cast<std::uint64_t>(wire::decode_deadline(code).value) == record.number("decoded_ns"));
            if (record.has("deadline_ns")) {
                CHECK(wire::encode_deadline({static_cast<std::int64_t>(record.number("deadline_ns"))}) == code);
            }
        } else {
            const auto budget = wire::encode_budget(std::stod(record.text("loss_ratio")));
            CHECK(budget == record.number("budget"));
            CHECK(wire::budget_bytes(static_cast<std::uint32_t>(record.number("message_bytes")), budget) ==
                  record.number("budget_bytes"));
        }
    }
}

TEST_CASE("codes: a deadline is never shortened, and lengthened by less than 0.1 % or a microsecond") {
    const std::int64_t last = wire::decode_deadline(UINT16_MAX).value;
    for (std::int64_t t = 1; t <= last; t += t / 97 + 1) {
        const std::int64_t coded = wire::decode_deadline(wire::encode_deadline({t})).value;
        CHECK(coded >= t);
        CHECK(coded - t < std::max<std::int64_t>(1000, t / 1000));
    }
}

TEST_CASE("codes: every deadline code that the encoder chooses decodes to itself") {
    for (unsigned code = 0; code <= UINT16_MAX; ++code) {
        const Duration t = wire::decode_deadline(static_cast<std::uint16_t>(code));
        CHECK(wire::decode_deadline(wire::encode_deadline(t)) == t);
    }
}

TEST_CASE("codes: out of range goes to the nearer end") {
    CHECK(wire::encode_deadline({-1}) == 0);
    CHECK(wire::encode_deadline({INT64_MIN}) == 0);
    CHECK(wire::encode_deadline({INT64_MAX}) == UINT16_MAX);
    CHECK(wire::encode_budget(-0.5) == 0);
    CHECK(wire::encode_budget(1.0) == UINT16_MAX);
    CHECK(wire::encode_budget(1e300) == UINT16_MAX);
    CHECK(wire::encode_budget(std::nan("")) == 0);
    CHECK(wire::encode_budget(-std::numeric_limits<double>::infinity()) == 0);
}

TEST_CASE("protection: golden vectors, with each library that is there") {
    const bool aegis = make_packet_key({}, Cipher::aegis_128x2, CryptoLibrary::fastest) != nullptr;
    if (!aegis) MESSAGE("skipped: libaegis is not there: the vectors of AEGIS");
    for (const auto library : {CryptoLibrary::openssl, CryptoLibrary::ipsec_mb, CryptoLibrary::fastest}) {
        if (make_packet_key({}, library) == nullptr) {
            CHECK(library == CryptoLibrary::ipsec_mb);  // the only one that may be missing
            MESSAGE("libipsec-mb is not there: its vectors are skipped");
            continue;
        }
        CAPTURE(static_cast<int>(library));
        for (const auto& record : vectors::load("protected.txt")) {
            CAPTURE(record.text("name"));
            JobKeyBytes job_key{};
            const auto job_key_read = record.bytes("job_key");
            REQUIRE(job_key_read.size() == job_key.size());
            std::copy(job_key_read.begin(), job_key_read.end(), job_key.begin());
            const KeyScope scope{
                .label = record.text("label"),
                .job = static_cast<std::uint32_t>(record.number("job")),
                .low_rank = static_cast<std::uint32_t>(record.number("low_rank")),
                .high_rank = static_cast<std::uint32_t>(record.number("high_rank")),
                .low_session = record.number("low_session"),
                .high_session = record.number("high_session"),
                .source_rank = static_cast<std::uint32_t>(record.number("source_rank")),
                .epoch = static_cast<std::uint8_t>(record.number("epoch")),
                .incarnation = record.number("incarnation"),
                .low_ciphers = {static_cast<std::uint32_t>(record.number("low_ciphers"))},
                .high_ciphers = {static_cast<std::uint32_t>(record.number("high_ciphers"))},
            };
            const PacketKeyBytes key_bytes = derive_packet_key(job_key, scope);
            CHECK(record.text("packet_key") == vectors::hex(key_bytes.data(), key_bytes.size()));
            const bool uses_aegis = record.text("cipher") == "aegis_128x2";
            if (uses_aegis && !aegis) continue;
            const auto key =
                make_packet_key(key_bytes, uses_aegis ? Cipher::aegis_128x2 : Cipher::aes_128_gcm, library);
            REQUIRE(key != nullptr);

            auto datagram = record.bytes("bytes");
            const auto plain = record.bytes("plain");
            const bool good = record.text("expect") == "ok";
            wire::Datagram in;
            REQUIRE(wire::parse(datagram, 0, in) == wire::ParseError::none);
            const std::uint64_t packet_number = record.number("packet_number");
            CHECK(packet_number == in.header.packet_number);
            const std::span payload(in.payload, in.header.payload_bytes);
            std::vector<std::uint8_t> out(plain.size());
            std::uint8_t tag[wire::tag_bytes];

            if ((in.header.flags & wire::flag::encrypted) != 0) {
                CHECK(key->decrypt(in.bytes, packet_number, payload, out.data(), in.tag) == good);
                if (!good) continue;
                CHECK(out == plain);
                key->encrypt(in.bytes, packet_number, plain, out.data(), tag);
                CHECK(std::equal(out.begin(), out.end(), payload.begin(), payload.end()));
            } else {
                CHECK(key->verify(in.bytes, packet_number, payload, in.tag) == good);
                if (!good) continue;
                CHECK(std::equal(plain.begin(), plain.end(), payload.begin(), payload.end()));
                key->authenticate(in.bytes, packet_number, payload, tag);
            }
            CHECK(std::memcmp(tag, in.tag, sizeof tag) == 0);

            // Of the header's bits only `trimmed` is free; packet number and nonce go together.
            const auto opens = [&] {
                return (in.header.flags & wire::flag::encrypted) != 0
                           ? key->decrypt(in.bytes, packet_number, payload, out.data(), in.tag)
                           : key->verify(in.bytes, packet_number, payload, in.tag);
            };
            for (std::size_t bit = 0; bit < wire::header_bytes * 8; ++bit) {
                const auto mask = static_cast<std::uint8_t>(1u << bit % 8);
                datagram[bit / 8] ^= mask;
                CAPTURE(bit);
                CHECK(opens() == (bit / 8 == 2 && mask == wire::flag::trimmed));
                datagram[bit / 8] ^= mask;
            }
            CHECK(opens());
        }
    }
}
