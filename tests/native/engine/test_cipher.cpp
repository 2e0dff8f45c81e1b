// The choice of a cipher by what two ends state, and that both statements are in the keys.
#include "engine/cipher.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "engine/session_keys.hpp"
#include "engine/wire.hpp"

namespace {

using namespace dlcp;

CipherCosts costs(std::uint8_t gcm, std::uint8_t aegis) {
    CipherCosts made;
    made.set(Cipher::aes_128_gcm, gcm);
    made.set(Cipher::aegis_128x2, aegis);
    return made;
}

}  // namespace

TEST_CASE("cipher: the slower end decides, whichever end asks") {
    struct Case {
        const char* what;
        CipherCosts one, other;
        std::optional<Cipher> chosen;
    };
    const Case cases[] = {
        {"both have AVX-512", costs(30, 50), costs(30, 50), Cipher::aes_128_gcm},
        {"neither has", costs(175, 50), costs(125, 70), Cipher::aegis_128x2},
        {"one has", costs(30, 50), costs(125, 70), Cipher::aegis_128x2},
        {"one has, the other no libaegis", costs(30, 50), costs(125, 0), Cipher::aes_128_gcm},
        {"as slow at the slower end: what costs less together", costs(70, 30), costs(70, 70), Cipher::aegis_128x2},
        {"all the same: the first", costs(70, 70), costs(70, 70), Cipher::aes_128_gcm},
        {"one end has AEGIS alone", costs(0, 200), costs(30, 250), Cipher::aegis_128x2},
        {"nothing in common", costs(0, 50), costs(30, 0), std::nullopt},
        {"a cipher of another release", {0x01000000}, {0x01000000}, std::nullopt},
        {"nothing stated", {}, costs(30, 50), std::nullopt},
    };
    for (const Case& c : cases) {
        CAPTURE(c.what);
        CHECK(session_cipher(c.one, c.other) == c.chosen);
        CHECK(session_cipher(c.other, c.one) == c.chosen);
    }
}

TEST_CASE("cipher: an endpoint states what its settings allow and this machine has") {
    const CipherCosts any = offered_ciphers(CipherChoice::any, CryptoLibrary::fastest);
    CHECK(any.of(Cipher::aes_128_gcm) != 0);
    CHECK((any.of(Cipher::aegis_128x2) != 0) ==
          (make_packet_key({}, Cipher::aegis_128x2, CryptoLibrary::fastest) != nullptr));
    CHECK(offered_ciphers(CipherChoice::aes_128_gcm, CryptoLibrary::fastest) ==
          costs(any.of(Cipher::aes_128_gcm), 0));
    CHECK(offered_ciphers(CipherChoice::aegis_128x2, CryptoLibrary::fastest) ==
          costs(0, any.of(Cipher::aegis_128x2)));
    // On every machine the same, for simulations.
    CHECK(offered_ciphers(CipherChoice::any, CryptoLibrary::openssl) == costs(125, 0));
}

TEST_CASE("cipher: ends that read different statements share no key") {
    EndpointConfig config;
    config.job_key.emplace();
    config.job_key->fill(7);
    config.crypto_library = CryptoLibrary::openssl;
    const CipherCosts own = offered_ciphers(config.cipher, config.crypto_library);
    CipherCosts more = own;
    more.set(Cipher::aegis_128x2, 50);
    std::array<std::uint8_t, wire::header_bytes> header{};
    std::array<std::uint8_t, wire::tag_bytes> tag;
    // Either way the session has AES-128-GCM. `heard`: what reaches the second end of the first's statement.
    for (const CipherCosts heard : {own, more}) {
        SessionKeys first(
            config, {.own_rank = 1, .peer_rank = 2, .own_session = 3, .peer_session = 4, .peer_ciphers = own}, 0);
        SessionKeys second(
            config, {.own_rank = 2, .peer_rank = 1, .own_session = 4, .peer_session = 3, .peer_ciphers = heard},
            0);
        first.send().authenticate(header.data(), 5, {}, tag.data());
        CHECK(second.receive(config, 0)->verify(header.data(), 5, {}, tag.data()) == (heard == own));
        second.send().authenticate(header.data(), 6, {}, tag.data());
        CHECK(first.receive(config, 0)->verify(header.data(), 6, {}, tag.data()) == (heard == own));
    }
}
