// What this machine can do, and the choice between what two machines can.
#include "engine/cipher.hpp"

#include <algorithm>
#include <tuple>

#include "engine/protection.hpp"
#include "engine/protection_library.hpp"

namespace dlcp {
namespace {

std::uint8_t aes_128_gcm_cost(CryptoLibrary library) {
    const std::uint8_t ipsec_mb = library == CryptoLibrary::openssl ? std::uint8_t{0} : ipsec_mb_cost();
    return ipsec_mb != 0 ? ipsec_mb : openssl_cost;
}

}  // namespace

CipherCosts offered_ciphers(CipherChoice choice, CryptoLibrary library) {
    CipherCosts costs;
    if (choice != CipherChoice::aegis_128x2) costs.set(Cipher::aes_128_gcm, aes_128_gcm_cost(library));
    if (choice != CipherChoice::aes_128_gcm && library == CryptoLibrary::fastest)
        costs.set(Cipher::aegis_128x2, aegis_cost());
    return costs;
}

std::optional<Cipher> session_cipher(CipherCosts one, CipherCosts other) {
    std::optional<Cipher> best;
    std::tuple<int, int> least;
    for (std::size_t i = 0; i < cipher_count; ++i) {
        const auto cipher = static_cast<Cipher>(i);
        const int a = one.of(cipher), b = other.of(cipher);
        const std::tuple<int, int> cost{std::max(a, b), a + b};
        if (a == 0 || b == 0 || (best && cost >= least)) continue;
        best = cipher;
        least = cost;
    }
    return best;
}

}  // namespace dlcp
