// How `make_packet_key` reaches the libraries behind `PacketKey`. Private to protection*.cpp and cipher.cpp; other code
// names a `Cipher` and a `CryptoLibrary`.
//
// All libraries authenticate the header through `AuthenticatedHeader`, so that the rule about the trimmed bit exists
// once.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "engine/bytes.hpp"
#include "engine/protection.hpp"
#include "engine/wire.hpp"

namespace dlcp {

std::unique_ptr<PacketKey> make_openssl_packet_key(const PacketKeyBytes& key);
// nullptr if the library was not built in, does not load, or fails its check.
std::unique_ptr<PacketKey> make_ipsec_mb_packet_key(const PacketKeyBytes& key);
std::unique_ptr<PacketKey> make_aegis_packet_key(const PacketKeyBytes& key);

// What a packet costs here, as in CipherCosts. 0: the library is not there.
inline constexpr std::uint8_t openssl_cost = 125;  // 230 to 300 ns, with AVX-512 and without
std::uint8_t ipsec_mb_cost();
std::uint8_t aegis_cost();

// Of which a cipher takes as many bytes as its nonces have.
using Nonce = std::array<std::uint8_t, 16>;
inline constexpr std::size_t gcm_nonce_bytes = 12;

// `zero_bytes` (4 for GCM, 8 for AEGIS) and the packet number. Written by one store: a library loads a nonce by one, and
// a load that spans two stores waits until all stores before have reached the cache. Those are the packet's before,
// into memory that is in no cache: 60 ns a packet.
template <int zero_bytes>
Nonce packet_nonce(std::uint64_t packet_number) {
    using Words [[gnu::vector_size(16)]] = std::uint64_t;
    static_assert(zero_bytes == 4 || zero_bytes == 8);
    const std::uint64_t number = __builtin_bswap64(packet_number);
    if constexpr (zero_bytes == 8) return std::bit_cast<Nonce>(Words{0, number});
    return std::bit_cast<Nonce>(Words{number << 32, number >> 32});
}

// The authenticated bytes of a header, long or short, with the trimmed bit cleared. Copies only if the bit is set: in
// no packet that is sent, and in few that are received.
class AuthenticatedHeader {
public:
    explicit AuthenticatedHeader(const std::uint8_t* header)
        : bytes_(header), size_(wire::header_bytes_of(header)) {
        if ((header[wire::flags_offset] & wire::flag::trimmed) != 0) [[unlikely]] {
            std::memcpy(copy_, header, size_);
            copy_[wire::flags_offset] &= static_cast<std::uint8_t>(~wire::flag::trimmed);
            bytes_ = copy_;
        }
    }
    AuthenticatedHeader(const AuthenticatedHeader&) = delete;
    AuthenticatedHeader& operator=(const AuthenticatedHeader&) = delete;

    const std::uint8_t* data() const { return bytes_; }
    std::size_t size() const { return size_; }
    // True if the payload follows in memory, as in a received datagram: then one call covers both.
    bool continues_in(std::span<const std::uint8_t> payload) const { return bytes_ + size_ == payload.data(); }

private:
    const std::uint8_t* bytes_;
    std::size_t size_;
    std::uint8_t copy_[wire::header_bytes];
};

}  // namespace dlcp
