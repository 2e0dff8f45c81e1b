// Packet protection against a slow, obvious GCM and HKDF written here. The slow ones answer to published vectors
// (their nonces and lengths are free, a packet's are not); the shipped ones answer to the slow ones, and to each
// other on 10,000 seeded packets. AEGIS answers to golden vectors (test_wire.cpp), whose oracle is in Python.
#include <doctest/doctest.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/protection.hpp"
#include "engine/wire.hpp"

namespace {

using dlcp::Cipher;
using dlcp::CryptoLibrary;
using dlcp::PacketKey;
using dlcp::PacketKeyBytes;
using Bytes = std::vector<std::uint8_t>;
using Block = std::array<std::uint8_t, 16>;
using Tag = std::array<std::uint8_t, dlcp::wire::tag_bytes>;
using HeaderBytes = std::array<std::uint8_t, dlcp::wire::header_bytes>;

Bytes unhex(std::string_view text) {
    Bytes bytes;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
        bytes.push_back(static_cast<std::uint8_t>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
    }
    return bytes;
}

template <class Array>
Array unhex_as(std::string_view text) {
    const Bytes bytes = unhex(text);
    Array array{};
    REQUIRE(bytes.size() == array.size());
    std::copy(bytes.begin(), bytes.end(), array.begin());
    return array;
}

template <class Range>
std::string hex(const Range& bytes) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (const std::uint8_t byte : bytes) {
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

Bytes counting(std::uint8_t first, std::size_t count) {
    Bytes bytes(count);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(first + i);
    return bytes;
}

// --- Slow AES-128 (FIPS 197) --------------------------------------------------------------------------------

std::uint8_t times(std::uint8_t a, std::uint8_t b) {  // in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1
    std::uint8_t product = 0;
    for (; b != 0; b >>= 1) {
        if (b & 1) product ^= a;
        a = static_cast<std::uint8_t>((a << 1) ^ ((a & 0x80) ? 0x1b : 0));
    }
    return product;
}

const std::array<std::uint8_t, 256>& sbox() {
    static const auto table = [] {
        std::array<std::uint8_t, 256> t{};
        for (int x = 0; x < 256; ++x) {
            std::uint8_t inverse = 0;
            for (int y = 1; y < 256 && x != 0; ++y) {
                if (times(static_cast<std::uint8_t>(x), static_cast<std::uint8_t>(y)) == 1) {
                    inverse = static_cast<std::uint8_t>(y);
                }
            }
            std::uint8_t value = 0x63;
            for (int turn = 0; turn < 5; ++turn) {
                value ^= static_cast<std::uint8_t>((inverse << turn) | (inverse >> (8 - turn)));
            }
            t[static_cast<std::size_t>(x)] = value;
        }
        return t;
    }();
    return table;
}

class SlowAes {
public:
    explicit SlowAes(const PacketKeyBytes& key) {
        std::copy(key.begin(), key.end(), round_keys_.begin());
        std::uint8_t constant = 1;
        for (std::size_t i = 16; i < round_keys_.size(); i += 4) {
            std::array<std::uint8_t, 4> word;
            std::copy_n(round_keys_.begin() + static_cast<std::ptrdiff_t>(i) - 4, 4, word.begin());
            if (i % 16 == 0) {
                std::rotate(word.begin(), word.begin() + 1, word.end());
                for (auto& byte : word) byte = sbox()[byte];
                word[0] ^= constant;
                constant = times(constant, 2);
            }
            for (std::size_t j = 0; j < 4; ++j) round_keys_[i + j] = round_keys_[i + j - 16] ^ word[j];
        }
    }

    Block operator()(Block state) const {
        add_round_key(state, 0);
        for (std::size_t round = 1; round <= 10; ++round) {
            Block shifted;
            for (std::size_t i = 0; i < 16; ++i) shifted[i] = sbox()[state[(i + 4 * (i % 4)) % 16]];
            if (round < 10) {
                for (std::size_t column = 0; column < 16; column += 4) {
                    for (std::size_t row = 0; row < 4; ++row) {
                        state[column + row] = static_cast<std::uint8_t>(
                            times(shifted[column + row], 2) ^ times(shifted[column + (row + 1) % 4], 3) ^
                            shifted[column + (row + 2) % 4] ^ shifted[column + (row + 3) % 4]);
                    }
                }
            } else {
                state = shifted;
            }
            add_round_key(state, round);
        }
        return state;
    }

private:
    void add_round_key(Block& state, std::size_t round) const {
        for (std::size_t i = 0; i < 16; ++i) state[i] ^= round_keys_[16 * round + i];
    }
    std::array<std::uint8_t, 176> round_keys_{};
};

// --- Slow GCM (NIST SP 800-38D, 6.3 to 7.1) ------------------------------------------------------------------

Block ghash_multiply(const Block& x, const Block& y) {
    Block z{};
    Block v = y;
    for (std::size_t bit = 0; bit < 128; ++bit) {
        if ((x[bit / 8] >> (7 - bit % 8)) & 1) {
            for (std::size_t i = 0; i < 16; ++i) z[i] ^= v[i];
        }
        const bool carry = v[15] & 1;
        for (std::size_t i = 15; i > 0; --i) v[i] = static_cast<std::uint8_t>((v[i] >> 1) | (v[i - 1] << 7));
        v[0] >>= 1;
        if (carry) v[0] ^= 0xe1;
    }
    return z;
}

void ghash_absorb(Block& state, const Block& h, const Bytes& bytes) {
    for (std::size_t start = 0; start < bytes.size(); start += 16) {
        for (std::size_t i = 0; i < 16 && start + i < bytes.size(); ++i) state[i] ^= bytes[start + i];
        state = ghash_multiply(state, h);
    }
}

struct Sealed {
    Bytes text;
    Tag tag;
};

Sealed slow_gcm(const PacketKeyBytes& key, const Bytes& nonce, const Bytes& associated, const Bytes& plain) {
    REQUIRE(nonce.size() == 12);
    const SlowAes aes(key);
    const Block h = aes(Block{});
    Block counter{};
    std::copy(nonce.begin(), nonce.end(), counter.begin());
    counter[15] = 1;
    const Block mask = aes(counter);

    Bytes text = plain;
    std::uint32_t count = 1;
    for (std::size_t start = 0; start < text.size(); start += 16) {
        ++count;
        for (int i = 0; i < 4; ++i)
            counter[static_cast<std::size_t>(15 - i)] = static_cast<std::uint8_t>(count >> (8 * i));
        const Block stream = aes(counter);
        for (std::size_t i = 0; i < 16 && start + i < text.size(); ++i) text[start + i] ^= stream[i];
    }

    Block state{};
    ghash_absorb(state, h, associated);
    ghash_absorb(state, h, text);
    Bytes lengths(16);
    for (std::size_t i = 0; i < 8; ++i) {
        lengths[7 - i] = static_cast<std::uint8_t>((std::uint64_t{associated.size()} * 8) >> (8 * i));
        lengths[15 - i] = static_cast<std::uint8_t>((std::uint64_t{text.size()} * 8) >> (8 * i));
    }
    ghash_absorb(state, h, lengths);
    Tag tag;
    for (std::size_t i = 0; i < 16; ++i) tag[i] = state[i] ^ mask[i];
    return {text, tag};
}

// What a packet's seal should be, from the prose in protection.hpp.
Sealed slow_packet(const PacketKeyBytes& key, Bytes header, std::uint64_t packet_number, const Bytes& payload,
                   bool encrypted) {
    header[2] &= 0x7f;
    Bytes nonce(12);
    for (std::size_t i = 0; i < 8; ++i) nonce[11 - i] = static_cast<std::uint8_t>(packet_number >> (8 * i));
    Bytes associated(header.begin(), header.end());
    if (encrypted) return slow_gcm(key, nonce, associated, payload);
    associated.insert(associated.end(), payload.begin(), payload.end());
    return {payload, slow_gcm(key, nonce, associated, {}).tag};
}

// --- Slow HKDF-SHA256 (RFC 5869) ------------------------------------------------------------------------------

Bytes hmac_sha256(const Bytes& key, const Bytes& text) {
    Bytes digest(32);
    unsigned length = 0;
    REQUIRE(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), text.data(), text.size(), digest.data(),
                 &length) != nullptr);
    REQUIRE(length == 32);
    return digest;
}

Bytes slow_hkdf(const Bytes& salt, const Bytes& secret, const Bytes& info, std::size_t length) {
    const Bytes extracted = hmac_sha256(salt.empty() ? Bytes(32) : salt, secret);
    Bytes output;
    Bytes step;
    for (std::uint8_t counter = 1; output.size() < length; ++counter) {
        step.insert(step.end(), info.begin(), info.end());
        step.push_back(counter);
        step = hmac_sha256(extracted, step);
        output.insert(output.end(), step.begin(), step.end());
    }
    output.resize(length);
    return output;
}

// --- Helpers ---------------------------------------------------------------------------------------------------

struct Library {
    CryptoLibrary library;
    std::string name;
    Cipher cipher = Cipher::aes_128_gcm;

    std::unique_ptr<PacketKey> make(const PacketKeyBytes& key) const {
        return dlcp::make_packet_key(key, cipher, library);
    }
};

// Every library that is there; says which one is not.
std::vector<Library> libraries() {
    const Library known[] = {{CryptoLibrary::openssl, "openssl"},
                             {CryptoLibrary::ipsec_mb, "ipsec-mb"},
                             {CryptoLibrary::fastest, "fastest"},
                             {CryptoLibrary::fastest, "AEGIS by libaegis", Cipher::aegis_128x2}};
    std::vector<Library> there;
    for (const Library& candidate : known) {
        if (candidate.make(PacketKeyBytes{}) != nullptr) {
            there.push_back(candidate);
        } else {
            MESSAGE("skipped: " << candidate.name << " is not on this machine or not in this build");
        }
    }
    return there;
}

struct Random {
    std::mt19937_64 source;
    explicit Random(std::uint64_t seed) : source(seed) {}
    std::uint8_t byte() { return static_cast<std::uint8_t>(source()); }
    template <class Range>
    void fill(Range& bytes) {
        for (auto& b : bytes) b = byte();
    }
};

HeaderBytes untrimmed(HeaderBytes header) {
    header[2] &= 0x7f;
    return header;
}

}  // namespace

TEST_CASE("protection: slow GCM gives the published vectors") {
    struct Vector {
        std::string source, key, nonce, associated, plain, text, tag;
    };
    const Vector vectors[] = {
        {"GCM specification, test case 1", "00000000000000000000000000000000", "000000000000000000000000", "", "",
         "", "58e2fccefa7e3061367f1d57a4e7455a"},
        {"GCM specification, test case 2", "00000000000000000000000000000000", "000000000000000000000000", "",
         "00000000000000000000000000000000", "0388dace60b6a392f328c2b971b2fe78",
         "ab6e47d42cec13bdf53a67b21257bddf"},
        {"GCM specification, test case 4", "feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888",
         "feedfacedeadbeeffeedfacedeadbeefabaddad2",
         "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5"
         "aa0de657"
         "ba637b39",
         "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba30b39"
         "6a0aac97"
         "3d58e091",
         "5bc94fbc3221a5db94fae95ae7121a47"},
        {"NIST CAVP gcmEncryptExtIV128, AADlen 128 (GMAC)", "77be63708971c4e240d1cb79e8d77feb",
         "e0e00f19fed7ba0136a797f3", "7a43ec1d9c0a5a78a0b16533a6213cab", "", "",
         "209fcc8d3675ed938e9c7166709dd946"},
        {"IEEE 802.1AE, 54-byte packet, authentication only (GMAC)", "ad7a2bd03eac835a6f620fdcb506b345",
         "12153524c0895e81b2c28465",
         "d609b1f056637a0d46df998d88e5222ab2c2846512153524c0895e8108000f101112131415161718191a1b1c1d1e1f2021222324"
         "252627"
         "28292a2b2c2d2e2f30313233340001",
         "", "", "f09478a9b09007d06f46e9b6a1da25dd"},
    };
    for (const Vector& v : vectors) {
        INFO(v.source);
        const Sealed sealed =
            slow_gcm(unhex_as<PacketKeyBytes>(v.key), unhex(v.nonce), unhex(v.associated), unhex(v.plain));
        CHECK(hex(sealed.text) == v.text);
        CHECK(hex(sealed.tag) == v.tag);
    }
}

TEST_CASE("protection: slow HKDF gives the vectors of RFC 5869, appendix A.1 to A.3") {
    CHECK(hex(slow_hkdf(counting(0, 13), Bytes(22, 0x0b), counting(0xf0, 10), 42)) ==
          "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
    CHECK(hex(slow_hkdf(counting(0x60, 80), counting(0, 80), counting(0xb0, 80), 82)) ==
          "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09da32756"
          "00c2f09b8"
          "367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87");
    CHECK(hex(slow_hkdf({}, Bytes(22, 0x0b), {}, 42)) ==
          "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8");
}

TEST_CASE("protection: derived key is HKDF over the scope as written") {
    dlcp::JobKeyBytes job_key;
    for (std::size_t i = 0; i < job_key.size(); ++i) job_key[i] = static_cast<std::uint8_t>(i);
    const dlcp::KeyScope scope{.label = "packet",
                               .job = 0x01020304,
                               .low_rank = 5,
                               .high_rank = 0x0607,
                               .low_session = 0x1112131415161718,
                               .high_session = 0x2122232425262728,
                               .source_rank = 0x0607,
                               .epoch = 9};
    Bytes info = {'p', 'a', 'c', 'k', 'e', 't'};
    const Bytes numbers = unhex(
        "01020304"
        "00000005"
        "00000607"
        "1112131415161718"
        "2122232425262728"
        "00000607"
        "09");
    info.insert(info.end(), numbers.begin(), numbers.end());
    const Bytes salt = {'d', 'l', 'c', 'p', ' ', 'v', '1'};
    const auto key = dlcp::derive_packet_key(job_key, scope);
    CHECK(hex(key) == hex(slow_hkdf(salt, Bytes(job_key.begin(), job_key.end()), info, 16)));
    CHECK(hex(key) == "ac4a8f71825bb1a822b43cccef71145e");

    SUBCASE("and each field of the scope matters") {
        std::vector<dlcp::KeyScope> others(10, scope);
        others[0].label = "hello";
        others[1].job ^= 1;
        others[2].low_rank ^= 1;
        others[3].high_rank ^= 1;
        others[4].low_session ^= 1;
        others[5].high_session ^= 1;
        others[6].source_rank ^= 1;
        others[7].epoch ^= 1;
        others[8].low_ciphers.word ^= 1;
        others[9].high_ciphers.word ^= 1;
        for (std::size_t i = 0; i < others.size(); ++i) {
            CAPTURE(i);
            CHECK(dlcp::derive_packet_key(job_key, others[i]) != key);
        }
        job_key[31] ^= 0x80;
        CHECK(dlcp::derive_packet_key(job_key, scope) != key);
    }

    SUBCASE("an incarnation follows the epoch, unless it is 0") {
        dlcp::KeyScope later = scope;
        later.incarnation = 0x3132333435363738;
        const Bytes incarnation = unhex("3132333435363738");
        info.insert(info.end(), incarnation.begin(), incarnation.end());
        CHECK(hex(dlcp::derive_packet_key(job_key, later)) ==
              hex(slow_hkdf(salt, Bytes(job_key.begin(), job_key.end()), info, 16)));
    }

    SUBCASE("what both ends state of ciphers follows the incarnation, even if that is 0") {
        dlcp::KeyScope stated = scope;
        stated.high_ciphers.word = 0x41424344;
        const Bytes rest = unhex("00000000000000000000000041424344");
        info.insert(info.end(), rest.begin(), rest.end());
        CHECK(hex(dlcp::derive_packet_key(job_key, stated)) ==
              hex(slow_hkdf(salt, Bytes(job_key.begin(), job_key.end()), info, 16)));
    }
}

TEST_CASE("protection: fastest is the library it names") {
    const bool ipsec_mb = dlcp::make_packet_key(PacketKeyBytes{}, CryptoLibrary::ipsec_mb) != nullptr;
    CHECK(dlcp::fastest_crypto_library() == (ipsec_mb ? "ipsec-mb" : "openssl"));
    CHECK(dlcp::make_packet_key(PacketKeyBytes{}, CryptoLibrary::fastest) != nullptr);
    CHECK(dlcp::make_packet_key(PacketKeyBytes{}, CryptoLibrary::openssl) != nullptr);
}

TEST_CASE("protection: known packet") {
    PacketKeyBytes key;
    HeaderBytes header;
    for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::uint8_t>(i);
    for (std::size_t i = 0; i < header.size(); ++i) header[i] = static_cast<std::uint8_t>(0x40 + i);
    const std::uint64_t packet_number = 0x0102030405060708;
    const Bytes payload = counting(0x80, 37);
    for (const Library& library : libraries()) {
        if (library.cipher != Cipher::aes_128_gcm) continue;
        INFO(library.name);
        const auto sealer = library.make(key);
        Tag tag;
        sealer->authenticate(header.data(), packet_number, payload, tag.data());
        CHECK(hex(tag) == "f2a70b8ac020a600edbbc14880deef3b");
        Bytes text(payload.size());
        sealer->encrypt(header.data(), packet_number, payload, text.data(), tag.data());
        CHECK(hex(text) == "2c35c04e8c332b9525fdddea53249315ef8c9807bdcae67511ce93203a2e3e449607e07ca8");
        CHECK(hex(tag) == "fcf2f67a8b30b99b94aa2bbb05a756b7");
    }
}

TEST_CASE("protection: libraries agree with each other and with the slow GCM on 10,000 random packets") {
    const auto there = libraries();
    constexpr std::size_t lengths[] = {0,   1,   15,  16,  17,  63,  64,   65,  127,
                                       128, 255, 256, 767, 768, 769, 1392, 8896};
    for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        PacketKeyBytes key;
        random.fill(key);
        std::size_t length = 0;  // a third edges, a third short, a third any
        switch (seed % 3) {
            case 0: length = lengths[random.source() % std::size(lengths)]; break;
            case 1: length = random.source() % 300; break;
            default: length = random.source() % 9001; break;
        }
        const std::uint64_t packet_number = random.source() >> (random.source() % 64);
        // One buffer as received: header, payload, tag, at any alignment.
        Bytes datagram(16 + dlcp::wire::header_bytes + length + dlcp::wire::tag_bytes);
        random.fill(datagram);
        std::uint8_t* const header = datagram.data() + random.source() % 16;
        const bool is_short = random.source() % 2 == 0;
        header[1] = is_short ? 4 : 1;
        std::uint8_t* const follows = header + (is_short ? 32 : 64);
        const Bytes header_copy(header, follows);
        const Bytes payload(follows, follows + length);

        Tag first_tag{}, first_encrypted_tag{};
        Bytes first_text;
        for (const Library& library : there) {
            INFO(library.name);
            const auto sealer = library.make(key);
            Tag tag, adjacent_tag, encrypted_tag;
            sealer->authenticate(header, packet_number, payload, tag.data());
            sealer->authenticate(header, packet_number, {follows, length}, adjacent_tag.data());
            REQUIRE(tag == adjacent_tag);
            Bytes text(length);
            sealer->encrypt(header, packet_number, payload, text.data(), encrypted_tag.data());
            if (&library == &there.front() || library.cipher != there.front().cipher) {
                first_tag = tag;
                first_text = text;
                first_encrypted_tag = encrypted_tag;
                if (length < 100 && library.cipher == Cipher::aes_128_gcm) {
                    REQUIRE(tag == slow_packet(key, header_copy, packet_number, payload, false).tag);
                    const Sealed sealed = slow_packet(key, header_copy, packet_number, payload, true);
                    REQUIRE(encrypted_tag == sealed.tag);
                    REQUIRE(text == sealed.text);
                }
            }
            REQUIRE(tag == first_tag);
            REQUIRE(text == first_text);
            REQUIRE(encrypted_tag == first_encrypted_tag);

            REQUIRE(sealer->verify(header, packet_number, payload, tag.data()));
            REQUIRE(sealer->verify(header, packet_number, {follows, length}, tag.data()));
            Bytes opened(length);
            REQUIRE(sealer->decrypt(header, packet_number, text, opened.data(), encrypted_tag.data()));
            REQUIRE(opened == payload);
            REQUIRE(sealer->decrypt(header, packet_number, text, text.data(), encrypted_tag.data()));  // in place
            REQUIRE(text == payload);
            sealer->encrypt(header, packet_number, text, text.data(), encrypted_tag.data());  // in place
            REQUIRE(text == first_text);
            REQUIRE(encrypted_tag == first_encrypted_tag);
        }
    }
}

TEST_CASE("protection: nothing is written beyond payload and tag, and the inputs stay as they were") {
    for (const Library& library : libraries()) {
        INFO(library.name);
        const auto sealer = library.make(PacketKeyBytes{1});
        for (std::size_t length = 0; length < 300; ++length) {
            CAPTURE(length);
            HeaderBytes header{};
            header[2] = 0x80;
            const HeaderBytes header_before = header;
            const Bytes payload(length, 0x55);
            Bytes out(length + 64, 0xaa);
            Bytes tag(64, 0xaa);
            sealer->encrypt(header.data(), 7, payload, out.data(), tag.data());
            REQUIRE(std::count(out.begin() + static_cast<std::ptrdiff_t>(length), out.end(), 0xaa) == 64);
            REQUIRE(std::count(tag.begin() + 16, tag.end(), 0xaa) == 48);
            const Bytes text(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(length));
            std::fill(out.begin(), out.end(), std::uint8_t{0xaa});
            REQUIRE(sealer->decrypt(header.data(), 7, text, out.data(), tag.data()));
            REQUIRE(std::count(out.begin() + static_cast<std::ptrdiff_t>(length), out.end(), 0xaa) == 64);
            sealer->authenticate(header.data(), 7, payload, tag.data());
            REQUIRE(std::count(tag.begin() + 16, tag.end(), 0xaa) == 48);
            REQUIRE(header == header_before);
            REQUIRE(payload == Bytes(length, 0x55));
        }
    }
}

TEST_CASE("protection: a changed bit anywhere is refused, the trimmed bit excepted") {
    for (const Library& library : libraries()) {
        for (const std::size_t length : {0, 1, 100, 1392}) {
            for (const bool encrypted : {false, true}) {
                INFO(library.name << ", payload " << length << ", encrypted " << encrypted);
                Random random(length + (encrypted ? 1 : 0));
                PacketKeyBytes key;
                random.fill(key);
                const auto sealer = library.make(key);
                // Header, payload and tag in a row, so that one index names every byte.
                Bytes datagram(dlcp::wire::header_bytes + length + dlcp::wire::tag_bytes);
                random.fill(datagram);
                std::uint8_t* const header = datagram.data();
                std::uint8_t* const payload = header + dlcp::wire::header_bytes;
                std::uint8_t* const tag = payload + length;
                const std::uint64_t packet_number = 42;
                Bytes opened(length);
                const auto opens = [&](PacketKey& with, std::uint64_t number, std::size_t bytes) {
                    return encrypted ? with.decrypt(header, number, {payload, bytes}, opened.data(), tag)
                                     : with.verify(header, number, {payload, bytes}, tag);
                };
                const auto authentic = [&](std::uint64_t number) { return opens(*sealer, number, length); };
                if (encrypted) {
                    sealer->encrypt(header, packet_number, {payload, length}, payload, tag);
                } else {
                    sealer->authenticate(header, packet_number, {payload, length}, tag);
                }
                REQUIRE(authentic(packet_number));
                for (std::size_t i = 0; i < datagram.size(); ++i) {
                    for (int bit = 0; bit < 8; ++bit) {
                        CAPTURE(i);
                        CAPTURE(bit);
                        datagram[i] ^= static_cast<std::uint8_t>(1u << bit);
                        REQUIRE(authentic(packet_number) == (i == 2 && bit == 7));
                        datagram[i] ^= static_cast<std::uint8_t>(1u << bit);
                    }
                }
                for (int bit = 0; bit < 64; ++bit) {
                    CAPTURE(bit);
                    REQUIRE_FALSE(authentic(packet_number ^ (std::uint64_t{1} << bit)));
                }
                if (length > 0) {  // one byte short
                    REQUIRE_FALSE(opens(*sealer, packet_number, length - 1));
                }
                PacketKeyBytes other_key = key;
                other_key[15] ^= 1;
                const auto other = library.make(other_key);
                REQUIRE_FALSE(opens(*other, packet_number, length));
                REQUIRE(authentic(packet_number));  // refusals left no trace in the key
            }
        }
    }
}

TEST_CASE("protection: the trimmed bit does not change a tag, sender or receiver") {
    for (const Library& library : libraries()) {
        INFO(library.name);
        const auto sealer = library.make(PacketKeyBytes{3});
        HeaderBytes trimmed{};
        trimmed.fill(0xff);
        const HeaderBytes whole = untrimmed(trimmed);
        const Bytes payload = counting(0, 200);
        Tag with, without;
        sealer->authenticate(trimmed.data(), 1, payload, with.data());
        sealer->authenticate(whole.data(), 1, payload, without.data());
        CHECK(with == without);
        CHECK(sealer->verify(trimmed.data(), 1, payload, without.data()));
        Bytes text(payload.size()), opened(payload.size());
        sealer->encrypt(whole.data(), 1, payload, text.data(), without.data());
        CHECK(sealer->decrypt(trimmed.data(), 1, text, opened.data(), without.data()));
        CHECK(opened == payload);
    }
}

TEST_CASE("protection: a refused packet leaves libcrypto's error queue as it was") {
    ERR_clear_error();
    for (const Library& library : libraries()) {
        INFO(library.name);
        const auto opener = library.make(PacketKeyBytes{});
        const HeaderBytes header{};
        const Tag tag{};
        Bytes text(100);
        CHECK_FALSE(opener->decrypt(header.data(), 0, text, text.data(), tag.data()));
        CHECK_FALSE(opener->verify(header.data(), 0, text, tag.data()));
        CHECK(ERR_peek_error() == 0);
    }
}

TEST_CASE("protection: several threads, each with its own key") {
    for (const Library& library : libraries()) {
        INFO(library.name);
        std::atomic<int> wrong{0};
        std::vector<std::thread> threads;
        threads.reserve(4);
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&, t] {
                const auto sealer = library.make(PacketKeyBytes{static_cast<std::uint8_t>(t)});
                const HeaderBytes header{};
                const Bytes payload(1392, static_cast<std::uint8_t>(t));
                Tag expected, tag;
                sealer->authenticate(header.data(), 0, payload, expected.data());
                for (std::uint64_t i = 1; i < 5'000; ++i) {
                    Bytes text(payload.size());
                    sealer->encrypt(header.data(), i, payload, text.data(), tag.data());
                    if (!sealer->decrypt(header.data(), i, text, text.data(), tag.data()) || text != payload)
                        ++wrong;
                    sealer->authenticate(header.data(), 0, payload, tag.data());
                    if (tag != expected) ++wrong;
                }
            });
        }
        for (auto& thread : threads) thread.join();
        CHECK(wrong == 0);
    }
}
