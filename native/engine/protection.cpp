// Key derivation, and the choice of library. Packets are sealed in protection_openssl.cpp, protection_ipsec_mb.cpp and
// protection_aegis.cpp.
#include "engine/protection.hpp"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <stdexcept>
#include <string>

#include "engine/bytes.hpp"
#include "engine/protection_library.hpp"

namespace dlcp {
namespace {

constexpr std::string_view hkdf_salt = "dlcp v1";

std::string derivation_info(const KeyScope& scope) {
    std::array<std::uint8_t, 49> numbers;
    wire::store32(numbers.data(), scope.job);
    wire::store32(numbers.data() + 4, scope.low_rank);
    wire::store32(numbers.data() + 8, scope.high_rank);
    wire::store64(numbers.data() + 12, scope.low_session);
    wire::store64(numbers.data() + 20, scope.high_session);
    wire::store32(numbers.data() + 28, scope.source_rank);
    numbers[32] = scope.epoch;
    std::string info(scope.label);
    wire::store64(numbers.data() + 33, scope.incarnation);
    wire::store32(numbers.data() + 41, scope.low_ciphers.word);
    wire::store32(numbers.data() + 45, scope.high_ciphers.word);
    const bool ciphers = (scope.low_ciphers.word | scope.high_ciphers.word) != 0;
    info.append(reinterpret_cast<const char*>(numbers.data()), ciphers ? 49 : scope.incarnation != 0 ? 41 : 33);
    return info;
}

struct FreeKdf {
    void operator()(EVP_KDF* kdf) const { EVP_KDF_free(kdf); }
    void operator()(EVP_KDF_CTX* context) const { EVP_KDF_CTX_free(context); }  // cleanses the job key
};

// Fetched once and kept; the hello path derives a key per hello.
EVP_KDF* hkdf() {
    static EVP_KDF* const kdf = EVP_KDF_fetch(nullptr, OSSL_KDF_NAME_HKDF, nullptr);
    if (kdf == nullptr) throw std::runtime_error("libcrypto has no HKDF");
    return kdf;
}

}  // namespace

bool PacketKey::verify(const std::uint8_t* header, std::uint64_t packet_number,
                       std::span<const std::uint8_t> payload, const std::uint8_t* tag) {
    std::uint8_t expected[wire::tag_bytes];
    authenticate(header, packet_number, payload, expected);
    return CRYPTO_memcmp(expected, tag, sizeof expected) == 0;
}

std::unique_ptr<PacketKey> make_packet_key(const PacketKeyBytes& key, CryptoLibrary library) {
    switch (library) {
        case CryptoLibrary::openssl: return make_openssl_packet_key(key);
        case CryptoLibrary::ipsec_mb: return make_ipsec_mb_packet_key(key);
        case CryptoLibrary::fastest: break;
    }
    return ipsec_mb_cost() != 0 ? make_ipsec_mb_packet_key(key) : make_openssl_packet_key(key);
}

std::unique_ptr<PacketKey> make_packet_key(const PacketKeyBytes& key, Cipher cipher, CryptoLibrary library) {
    return cipher == Cipher::aegis_128x2 ? make_aegis_packet_key(key) : make_packet_key(key, library);
}

std::string_view fastest_crypto_library() { return ipsec_mb_cost() != 0 ? "ipsec-mb" : "openssl"; }

PacketKeyBytes derive_packet_key(const JobKeyBytes& job_key, const KeyScope& scope) {
    const std::unique_ptr<EVP_KDF_CTX, FreeKdf> context(EVP_KDF_CTX_new(hkdf()));
    std::string info = derivation_info(scope);
    std::string digest = "SHA256";
    // libcrypto only reads these; OSSL_PARAM has no const.
    OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), digest.size()),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<std::uint8_t*>(job_key.data()),
                                          job_key.size()),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, const_cast<char*>(hkdf_salt.data()),
                                          hkdf_salt.size()),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), info.size()),
        OSSL_PARAM_construct_end()};
    PacketKeyBytes key;
    if (!context || EVP_KDF_derive(context.get(), key.data(), key.size(), parameters) != 1) {
        throw std::runtime_error("libcrypto could not derive a packet key");
    }
    return key;
}

}  // namespace dlcp
