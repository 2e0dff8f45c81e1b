// Packet protection: AES-128-GCM (NIST SP 800-38D) by a maintained library, or its authentication-only use,
// GMAC. The fastest library found is used (libipsec-mb, loaded at run time), OpenSSL's libcrypto otherwise;
// the bytes on the wire are the same.
//
// Authenticated: the header's bytes, 64 or 32 by its type, with flag::trimmed cleared, then the payload, as associated data.
// Encrypted: the same header as associated data, the payload as text. Nonce: 4 zero bytes, then the packet
// number (big-endian): unique because a packet number is used once per key. Keys: see SessionKeys.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace dlcp {

inline constexpr std::size_t job_key_bytes = 32;
inline constexpr std::size_t packet_key_bytes = 16;

using JobKeyBytes = std::array<std::uint8_t, job_key_bytes>;
using PacketKeyBytes = std::array<std::uint8_t, packet_key_bytes>;

// One key, ready to seal and open packets of one direction of one session and epoch. Not thread-safe, because it keeps
// scratch state; different threads may use different keys at the same time. Allocates only on construction.
// Authentication is faster where `payload` follows `header` in memory, as in a received datagram.
class PacketKey {
public:
    virtual ~PacketKey() = default;

    // Writes the 16-byte tag over header and payload, which stay readable.
    virtual void authenticate(const std::uint8_t* header, std::uint64_t packet_number,
                              std::span<const std::uint8_t> payload, std::uint8_t* tag) = 0;
    // True if `tag` is right. Compares in constant time.
    virtual bool verify(const std::uint8_t* header, std::uint64_t packet_number,
                        std::span<const std::uint8_t> payload, const std::uint8_t* tag) = 0;
    // Encrypts `payload` into `out` (same length, not overlapping unless equal) and writes the tag.
    virtual void encrypt(const std::uint8_t* header, std::uint64_t packet_number,
                         std::span<const std::uint8_t> payload, std::uint8_t* out, std::uint8_t* tag) = 0;
    // Decrypts into `out`, which may be `payload` itself. False, and `out` undefined, if the tag is wrong.
    virtual bool decrypt(const std::uint8_t* header, std::uint64_t packet_number,
                         std::span<const std::uint8_t> payload, std::uint8_t* out, const std::uint8_t* tag) = 0;
};

enum class CryptoLibrary : std::uint8_t {
    fastest,  // ipsec_mb if it was built in and loads, else openssl
    openssl,
    ipsec_mb,
};

// A key of the named library; nullptr if that library is not there. `fastest` never returns nullptr.
std::unique_ptr<PacketKey> make_packet_key(const PacketKeyBytes& key, CryptoLibrary library);

// Which library `fastest` stands for on this machine: "ipsec-mb" or "openssl".
std::string_view fastest_crypto_library();

// HKDF-SHA256 (RFC 5869), salt "dlcp v1", of the job key:
//   info = label (ASCII, no NUL) || job (32) || low_rank (32) || high_rank (32) || low_session (64) ||
//          high_session (64) || source_rank (32) || epoch (8), then, unless it is 0, incarnation (64), all big-endian
// low/high: the two endpoints ordered by rank. label "packet" keys everything but hellos; label "hello" keys a
// hello, with low_rank = source rank, high_rank = destination rank, low_session = the hello's own_session,
// high_session = 0, epoch 0: its own_session is fresh for each process, so its nonces are never reused.
// The incarnation is left out when it is 0, so that endpoints without one derive the same keys as before incarnations
// existed. No two scopes have the same info, since the labels and the two forms differ in length or content.
struct KeyScope {
    std::string_view label;
    std::uint32_t job = 0;
    std::uint32_t low_rank = 0;
    std::uint32_t high_rank = 0;
    std::uint64_t low_session = 0;
    std::uint64_t high_session = 0;
    std::uint32_t source_rank = 0;
    std::uint8_t epoch = 0;
    std::uint64_t incarnation = 0;  // EndpointConfig::incarnation
};
PacketKeyBytes derive_packet_key(const JobKeyBytes& job_key, const KeyScope& scope);

}  // namespace dlcp
