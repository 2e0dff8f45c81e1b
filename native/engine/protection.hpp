// Packet protection by maintained libraries: AES-128-GCM (NIST SP 800-38D) or AEGIS-128X2 (draft-irtf-cfrg-aegis-aead,
// tags of 16 bytes), each with the payload encrypted, or authenticated alone (for GCM: GMAC). Hellos have AES-128-GCM;
// a session has what its ends agree on (cipher.hpp). The fastest library found is used for AES-128-GCM (libipsec-mb,
// loaded at run time), OpenSSL's libcrypto otherwise; the bytes on the wire are the same. AEGIS needs libaegis.
//
// Authenticated: the header's bytes, 64 or 32 by its type, with flag::trimmed cleared, then the payload, as associated
// data. Encrypted: the same header as associated data, the payload as text. Nonce: zero bytes (4 for GCM, 8 for AEGIS),
// then the packet number (big-endian): unique because a packet number is used once per key. A key is used with one
// cipher, since what decides the cipher is part of its scope. Keys: see SessionKeys.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "engine/cipher.hpp"

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
    bool verify(const std::uint8_t* header, std::uint64_t packet_number, std::span<const std::uint8_t> payload,
                const std::uint8_t* tag);
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

// A key for AES-128-GCM by the named library; nullptr if that library is not there. `fastest` never returns nullptr.
std::unique_ptr<PacketKey> make_packet_key(const PacketKeyBytes& key, CryptoLibrary library);
// A key for any cipher. nullptr: what it needs is not there.
std::unique_ptr<PacketKey> make_packet_key(const PacketKeyBytes& key, Cipher cipher, CryptoLibrary library);

// Before the first key: functions of a libaegis that was loaded otherwise (aegis128x2_encrypt_detached and
// aegis128x2_decrypt_detached), as they stand in memory to the end of the process. They are used if they give the
// published vector.
void lend_aegis(std::uintptr_t encrypt, std::uintptr_t decrypt);

// Which library `fastest` stands for with AES-128-GCM on this machine: "ipsec-mb" or "openssl".
std::string_view fastest_crypto_library();

// HKDF-SHA256 (RFC 5869), salt "dlcp v1", of the job key:
//   info = label (ASCII, no NUL) || job (32) || low_rank (32) || high_rank (32) || low_session (64) ||
//          high_session (64) || source_rank (32) || epoch (8) [|| incarnation (64) [|| low_ciphers (32) ||
//          high_ciphers (32)]], all big-endian
// low/high: the two endpoints ordered by rank. label "packet" keys everything but hellos; label "hello" keys a
// hello, with low_rank = source rank, high_rank = destination rank, low_session = the hello's own_session,
// high_session = 0, epoch 0, no ciphers: its own_session is fresh for each process, so its nonces are never reused.
// Numbers in brackets are left out from the end while they are 0. Packets of a session always have ciphers. No two
// scopes have the same info, since the labels and the three forms differ in length or content.
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
    CipherCosts low_ciphers{};      // what the two ends state in the hellos of this session
    CipherCosts high_ciphers{};
};
PacketKeyBytes derive_packet_key(const JobKeyBytes& job_key, const KeyScope& scope);

}  // namespace dlcp
