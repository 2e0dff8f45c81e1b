// Nanoseconds per packet to protect it, by library and payload, against a bare copy of the same bytes.
//
// Each number is the median over repeats of the mean of a repeat; the spread is the interquartile range. The
// repeats of all rows are interleaved, so that another program's turn on the processor spreads over all of
// them. Payloads rotate through a pool that stays in the second-level cache, as a packet just received does.
// "apart": header and payload lie apart, as when sending from a tensor; "adjacent": as in a datagram received.
//
// Measures what is installed, OpenSSL always. To see a processor without AVX-512 on one that has it: OpenSSL reads
// OPENSSL_ia32cap (":~0xdc230000" clears AVX-512 in leaf 7); libraries on LD_LIBRARY_PATH take the place of the host's.
//
// Usage: protection_bench [repeats, default 51]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/protection.hpp"
#include "engine/wire.hpp"

namespace {

using dlcp::Cipher;
using dlcp::CryptoLibrary;
using dlcp::PacketKey;

constexpr std::size_t pool_packets = 32;
constexpr int packets_per_repeat = 4096;

// Packets of one payload length: datagrams (header, payload, tag) and room for a payload each.
class Pool {
public:
    explicit Pool(std::size_t payload_bytes)
        : payload_bytes_(payload_bytes),
          stride_(dlcp::wire::header_bytes + payload_bytes + dlcp::wire::tag_bytes),
          datagrams_(stride_ * pool_packets),
          room_(payload_bytes) {
        for (std::size_t i = 0; i < datagrams_.size(); ++i)
            datagrams_[i] = static_cast<std::uint8_t>(i * 131 >> 3);
        for (std::size_t i = 0; i < pool_packets; ++i) header(i)[2] &= 0x7f;
    }

    std::uint8_t* header(std::size_t i) { return datagrams_.data() + i % pool_packets * stride_; }
    std::span<std::uint8_t> payload(std::size_t i) {
        return {header(i) + dlcp::wire::header_bytes, payload_bytes_};
    }
    std::uint8_t* tag(std::size_t i) { return header(i) + dlcp::wire::header_bytes + payload_bytes_; }
    std::uint8_t* room() { return room_.data(); }
    std::size_t payload_bytes() const { return payload_bytes_; }

private:
    std::size_t payload_bytes_;
    std::size_t stride_;
    std::vector<std::uint8_t> datagrams_;
    std::vector<std::uint8_t> room_;
};

struct Row {
    std::string name;
    std::size_t bytes;
    std::function<void()> repeat;  // packets_per_repeat packets
    std::vector<double> ns_per_packet = {};
};

struct Candidate {
    CryptoLibrary library;
    Cipher cipher;
    const char* name;

    std::unique_ptr<PacketKey> make(const dlcp::PacketKeyBytes& key) const {
        return dlcp::make_packet_key(key, cipher, library);
    }
};
constexpr Candidate candidates[] = {{CryptoLibrary::openssl, Cipher::aes_128_gcm, "openssl"},
                                    {CryptoLibrary::ipsec_mb, Cipher::aes_128_gcm, "ipsec-mb"},
                                    {CryptoLibrary::fastest, Cipher::aegis_128x2, "libaegis"}};

void keep(const void* bytes) { asm volatile("" : : "r"(bytes) : "memory"); }

void require(bool ok) {
    if (!ok) {
        std::fputs("a packet that is right was refused\n", stderr);
        std::exit(1);
    }
}

void add_rows(std::vector<Row>& rows, const std::string& library, const std::shared_ptr<PacketKey>& key,
              std::size_t payload_bytes) {
    const auto add = [&](const std::string& operation, auto prepare, auto body) {
        const auto pool = std::make_shared<Pool>(payload_bytes);
        for (std::size_t i = 0; i < pool_packets; ++i) prepare(*pool, i);
        rows.push_back({library + " " + operation, payload_bytes, [pool, body] {
                            for (std::size_t i = 0; i < packets_per_repeat; ++i) body(*pool, i);
                        }});
    };
    const auto nothing = [](Pool&, std::size_t) {};
    // Packet numbers repeat with the pool, so that what was sealed can be opened; the cost is the same.
    const auto number = [](std::size_t i) { return std::uint64_t{i % pool_packets}; };
    const auto sign = [=](Pool& p, std::size_t i) {
        key->authenticate(p.header(i), number(i), p.payload(i), p.tag(i));
    };
    const auto seal = [=](Pool& p, std::size_t i) {
        key->encrypt(p.header(i), number(i), p.payload(i), p.payload(i).data(), p.tag(i));
    };

    add("authenticate, apart", nothing,
        [=](Pool& p, std::size_t i) { key->authenticate(p.header(i), number(i), p.payload(i + 1), p.tag(i)); });
    add("authenticate, adjacent", nothing, sign);
    add("verify, adjacent", sign,
        [=](Pool& p, std::size_t i) { require(key->verify(p.header(i), number(i), p.payload(i), p.tag(i))); });
    add("encrypt", nothing,
        [=](Pool& p, std::size_t i) { key->encrypt(p.header(i), number(i), p.payload(i), p.room(), p.tag(i)); });
    add("decrypt", seal, [=](Pool& p, std::size_t i) {
        require(key->decrypt(p.header(i), number(i), p.payload(i), p.room(), p.tag(i)));
    });
}

double quantile(const std::vector<double>& sorted, double q) {
    return sorted[static_cast<std::size_t>(std::lround(q * static_cast<double>(sorted.size() - 1)))];
}

}  // namespace

int main(int argc, char** argv) {
    const int repeats = argc > 1 ? std::max(1, std::atoi(argv[1])) : 51;
    std::vector<Row> rows;
    for (const std::size_t payload_bytes : {std::size_t{1408}, std::size_t{8896}}) {
        const auto pool = std::make_shared<Pool>(payload_bytes);
        rows.push_back({"memcpy", payload_bytes, [pool] {
                            for (std::size_t i = 0; i < packets_per_repeat; ++i) {
                                std::memcpy(pool->room(), pool->payload(i).data(), pool->payload_bytes());
                                keep(pool->room());
                            }
                        }});
        for (const Candidate& candidate : candidates) {
            const std::shared_ptr<PacketKey> key = candidate.make(dlcp::PacketKeyBytes{1, 2, 3});
            if (key != nullptr) {
                add_rows(rows, candidate.name, key, payload_bytes);
            } else {
                std::printf("%s is not on this machine or not in this build\n", candidate.name);
            }
        }
    }
    // What a session costs once per key, and a hello once per packet.
    rows.push_back({"derive_packet_key", 0, [] {
                        for (int i = 0; i < packets_per_repeat; ++i) {
                            const auto session = static_cast<std::uint64_t>(i);
                            const auto key =
                                dlcp::derive_packet_key({}, {.label = "hello", .low_session = session});
                            keep(key.data());
                        }
                    }});
    for (const Candidate& candidate : candidates) {
        if (candidate.make({}) == nullptr) continue;
        rows.push_back({std::string(candidate.name) + " make_packet_key", 0, [candidate] {
                            for (int i = 0; i < packets_per_repeat; ++i) keep(candidate.make({}).get());
                        }});
    }

    for (int repeat = -1; repeat < repeats; ++repeat) {  // the first warms up
        for (Row& row : rows) {
            const auto start = std::chrono::steady_clock::now();
            row.repeat();
            const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
            if (repeat >= 0) row.ns_per_packet.push_back(took.count() / packets_per_repeat);
        }
    }

    const auto fastest = dlcp::fastest_crypto_library();
    std::printf("fastest: %.*s; %d repeats of %d packets\n\n", static_cast<int>(fastest.size()), fastest.data(),
                repeats, packets_per_repeat);
    std::printf("%-32s %8s %10s %10s %9s\n", "", "payload", "median ns", "spread ns", "Gbit/s");
    for (Row& row : rows) {
        std::sort(row.ns_per_packet.begin(), row.ns_per_packet.end());
        const double median = quantile(row.ns_per_packet, 0.5);
        const double spread = quantile(row.ns_per_packet, 0.75) - quantile(row.ns_per_packet, 0.25);
        std::printf("%-32s %8zu %10.1f %10.1f %9.1f\n", row.name.c_str(), row.bytes, median, spread,
                    static_cast<double>(row.bytes) * 8 / median);
    }
    return 0;
}
