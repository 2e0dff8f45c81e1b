// Which cipher protects the packets of a session, and how the two ends agree on it.
//
// Each endpoint states in its hellos what a packet costs it with each cipher. The session has the cipher whose slower
// end is the fastest, so both ends choose the same one, whoever asks first. Hellos are authentic, and both statements
// enter the keys of the session (KeyScope): two ends that read different statements share no key, and no packet passes.
//
// The costs are estimates by library and processor, written beside each library. They only have to be in the right
// order; nothing is measured when an endpoint opens, since the engine reads no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace dlcp {

enum class CryptoLibrary : std::uint8_t;

// Each protects a header and a payload, encrypted or not (protection.hpp). The number is the byte in CipherCosts.
enum class Cipher : std::uint8_t {
    aes_128_gcm,  // by OpenSSL on every machine, or by libipsec-mb
    aegis_128x2,  // where libaegis is installed and the processor has AES instructions
};
inline constexpr std::size_t cipher_count = 2;

// Setting `cipher`: one that both ends must have, or whichever is the fastest for both.
enum class CipherChoice : std::uint8_t { any, aes_128_gcm, aegis_128x2 };

// What an endpoint states, as on the wire. Byte i, the least significant first, is the cost of cipher i: what a
// datagram of 1472 bytes takes in units of 2 ns, 1 to 255; 0: this endpoint does not use it. Without a job key
// everything is 0. Bytes without a cipher are read and enter the keys, so that a cipher can be added.
struct CipherCosts {
    std::uint32_t word = 0;

    std::uint8_t of(Cipher cipher) const {
        return static_cast<std::uint8_t>(word >> (8 * static_cast<unsigned>(cipher)));
    }
    void set(Cipher cipher, std::uint8_t cost) {
        word &= ~(std::uint32_t{0xff} << (8 * static_cast<unsigned>(cipher)));
        word |= std::uint32_t{cost} << (8 * static_cast<unsigned>(cipher));
    }
    friend bool operator==(CipherCosts, CipherCosts) = default;
};

// What an endpoint with these settings states. A library that is named, not `fastest`, has AES-GCM alone.
CipherCosts offered_ciphers(CipherChoice choice, CryptoLibrary library);

// The cipher of a session between ends that state these; the order does not matter. Of equal ones: the one that costs
// both ends together least, then the first. Nothing: they have none in common.
std::optional<Cipher> session_cipher(CipherCosts one, CipherCosts other);

}  // namespace dlcp
