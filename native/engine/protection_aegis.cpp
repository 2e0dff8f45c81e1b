// Packet protection by AEGIS-128X2 (draft-irtf-cfrg-aegis-aead-18) of libaegis: as fast with VAES on AVX2 as with
// AVX-512, on processors of either maker, and fast on ARM.
//
// Loaded at run time, or its functions are lent (lend_aegis). Only those over whole packets are used: they take plain
// bytes, so no layout of the library is compiled in. Authentication alone is AEGIS with an empty text, as GMAC is GCM
// with one. A payload that does not follow its header is copied behind it first.
//
// Rejected alternatives, by the time for 64 + 1408 bytes (Xeon at 3.6 GHz; this takes 96 ns, and 16 more for a
// copy). The functions for a MAC in parts take 109 to 115 ns and need the size of the library's state. AEGIS-128L
// takes 115 ns; so does encryption to nowhere. libsodium has 128L only with tags of 32 bytes.
#include <dlfcn.h>
#include <openssl/crypto.h>
#ifdef __aarch64__
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <cstdlib>

#include "engine/illegal_instruction.hpp"
#include "engine/processor.hpp"
#include "engine/protection_library.hpp"

namespace dlcp {
namespace {

// (out, tag, tag size, text, text size, associated, associated size, nonce, key)
using Encrypt = int(std::uint8_t*, std::uint8_t*, std::size_t, const std::uint8_t*, std::size_t,
                    const std::uint8_t*, std::size_t, const std::uint8_t*, const std::uint8_t*);
using Decrypt = int(std::uint8_t*, const std::uint8_t*, std::size_t, const std::uint8_t*, std::size_t,
                    const std::uint8_t*, std::size_t, const std::uint8_t*, const std::uint8_t*);
struct Functions {
    Encrypt* encrypt = nullptr;
    Decrypt* decrypt = nullptr;
};

class AegisPacketKey final : public PacketKey {
public:
    AegisPacketKey(const PacketKeyBytes& key, const Functions& functions) : functions_(functions), key_(key) {}
    ~AegisPacketKey() override { OPENSSL_cleanse(key_.data(), key_.size()); }
    AegisPacketKey(const AegisPacketKey&) = delete;
    AegisPacketKey& operator=(const AegisPacketKey&) = delete;

    void authenticate(const std::uint8_t* header, std::uint64_t packet_number,
                      std::span<const std::uint8_t> payload, std::uint8_t* tag) override {
        const AuthenticatedHeader associated(header);
        const Nonce nonce = packet_nonce<8>(packet_number);
        const std::uint8_t* bytes = associated.data();
        if (!associated.continues_in(payload) && !payload.empty()) {
            // Of the thread, not of the key: an endpoint may have thousands of keys.
            thread_local std::array<std::uint8_t, wire::header_bytes + UINT16_MAX> room;
            if (payload.size() > UINT16_MAX) std::abort();  // no datagram is that long
            std::copy_n(associated.data(), associated.size(), room.begin());
            std::copy_n(payload.data(), payload.size(), room.begin() + associated.size());
            bytes = room.data();
        }
        functions_.encrypt(nullptr, tag, wire::tag_bytes, nullptr, 0, bytes, associated.size() + payload.size(),
                           nonce.data(), key_.data());
    }

    void encrypt(const std::uint8_t* header, std::uint64_t packet_number, std::span<const std::uint8_t> payload,
                 std::uint8_t* out, std::uint8_t* tag) override {
        const AuthenticatedHeader associated(header);
        functions_.encrypt(out, tag, wire::tag_bytes, payload.data(), payload.size(), associated.data(),
                           associated.size(), packet_nonce<8>(packet_number).data(), key_.data());
    }

    bool decrypt(const std::uint8_t* header, std::uint64_t packet_number, std::span<const std::uint8_t> payload,
                 std::uint8_t* out, const std::uint8_t* tag) override {
        const AuthenticatedHeader associated(header);
        return functions_.decrypt(out, payload.data(), payload.size(), tag, wire::tag_bytes, associated.data(),
                                  associated.size(), packet_nonce<8>(packet_number).data(), key_.data()) == 0;
    }

private:
    const Functions& functions_;
    PacketKeyBytes key_;
};

// 70 and 50: 140 ns with AES instructions, 100 ns with VAES. 0: the library would use tables or bit slices, which is
// slower than OpenSSL.
std::uint8_t processor_cost() {
#if defined(__x86_64__)
    if (processor().vaes && processor().avx2) return 50;
    return processor().aes ? 70 : 0;
#elif defined(__aarch64__)
    constexpr unsigned long has_aes = 1 << 3;  // HWCAP_AES of Linux on arm64
    return (getauxval(AT_HWCAP) & has_aes) != 0 ? 70 : 0;
#else
    return 0;
#endif
}

// Whether the library gives what draft-irtf-cfrg-aegis-aead-18 has as test vector 2 of AEGIS-128X2. OpenSSL has no
// AEGIS to compare with.
bool gives_the_published_vector(const Functions& functions) {
    PacketKeyBytes key;
    Nonce nonce;
    for (std::uint8_t i = 0; i < 16; ++i) {
        key[i] = i;
        nonce[i] = static_cast<std::uint8_t>(0x10 + i);
    }
    constexpr std::array<std::uint8_t, 8> associated{1, 2, 3, 4, 1, 2, 3, 4};
    std::array<std::uint8_t, 120> plain;
    for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<std::uint8_t>(4 + i % 4);
    constexpr std::array<std::uint8_t, 120> text{
        0x57, 0x95, 0x54, 0x43, 0x01, 0x99, 0x7f, 0x93, 0x62, 0x1b, 0x27, 0x88, 0x09, 0xd6, 0x33, 0x1b, 0x3b, 0xfa,
        0x6f, 0x18, 0xe9, 0x0d, 0xb1, 0x2c, 0x4a, 0xa3, 0x59, 0x65, 0xb5, 0xe9, 0x8c, 0x5f, 0xc6, 0xfb, 0x4e, 0x54,
        0xbc, 0xb6, 0x11, 0x18, 0x42, 0xc2, 0x06, 0x37, 0x25, 0x2e, 0xff, 0x74, 0x7c, 0xb3, 0xa8, 0xf8, 0x5b, 0x37,
        0xde, 0x80, 0x91, 0x9a, 0x58, 0x9f, 0xe0, 0xf2, 0x48, 0x72, 0xbc, 0x92, 0x63, 0x60, 0x69, 0x67, 0x39, 0xe0,
        0x55, 0x20, 0x64, 0x7e, 0x39, 0x09, 0x89, 0xe1, 0xeb, 0x5f, 0xd4, 0x2f, 0x99, 0x67, 0x8a, 0x02, 0x76, 0xa4,
        0x98, 0xf8, 0xc4, 0x54, 0x76, 0x1c, 0x9d, 0x6a, 0xac, 0xb6, 0x47, 0xad, 0x56, 0xbe, 0x62, 0xb2, 0x9c, 0x22,
        0xcd, 0x4b, 0x57, 0x61, 0xb3, 0x8f, 0x43, 0xd5, 0xa5, 0xee, 0x06, 0x2f};
    constexpr std::array<std::uint8_t, wire::tag_bytes> tag{0x1a, 0xeb, 0xc2, 0x00, 0x80, 0x4f, 0x40, 0x5c,
                                                            0xab, 0x63, 0x7f, 0x2a, 0xde, 0xbb, 0x6d, 0x77};
    std::array<std::uint8_t, 120> out;
    std::array<std::uint8_t, wire::tag_bytes> out_tag;
    functions.encrypt(out.data(), out_tag.data(), out_tag.size(), plain.data(), plain.size(), associated.data(),
                      associated.size(), nonce.data(), key.data());
    if (out != text || out_tag != tag) return false;
    const auto opens = [&] {
        return functions.decrypt(out.data(), text.data(), text.size(), out_tag.data(), out_tag.size(),
                                 associated.data(), associated.size(), nonce.data(), key.data()) == 0;
    };
    if (!opens() || out != plain) return false;
    out_tag[0] ^= 1;
    return !opens();
}

// `initialise`: the library's own, which chooses by the processor; nullptr: it was called.
bool works(const Functions& functions, int (*initialise)()) {
    return runs_here(
        [&] { return (initialise == nullptr || initialise() == 0) && gives_the_published_vector(functions); });
}

// What lend_aegis() was given.
Functions lent;

// The functions of a library that is fast and correct here, or all null. Once loaded, the library stays loaded.
Functions load() {
    if (processor_cost() == 0) return {};
    if (lent.encrypt != nullptr && works(lent, nullptr)) return lent;
    for (const char* const name : {"libaegis.so.0", "libaegis.so"}) {
        void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) continue;
        const auto initialise = reinterpret_cast<int (*)()>(dlsym(library, "aegis_init"));
        const Functions functions{
            .encrypt = reinterpret_cast<Encrypt*>(dlsym(library, "aegis128x2_encrypt_detached")),
            .decrypt = reinterpret_cast<Decrypt*>(dlsym(library, "aegis128x2_decrypt_detached"))};
        if (initialise != nullptr && functions.encrypt != nullptr && functions.decrypt != nullptr &&
            works(functions, initialise))
            return functions;
    }
    return {};
}

const Functions& loaded() {
    static const Functions functions = load();
    return functions;
}

}  // namespace

void lend_aegis(std::uintptr_t encrypt, std::uintptr_t decrypt) {
    lent = {.encrypt = reinterpret_cast<Encrypt*>(encrypt), .decrypt = reinterpret_cast<Decrypt*>(decrypt)};
}

std::uint8_t aegis_cost() { return loaded().encrypt != nullptr ? processor_cost() : std::uint8_t{0}; }

std::unique_ptr<PacketKey> make_aegis_packet_key(const PacketKeyBytes& key) {
    if (loaded().encrypt == nullptr) return nullptr;
    return std::make_unique<AegisPacketKey>(key, loaded());
}

}  // namespace dlcp
