// Packet protection by Intel's libipsec-mb: 2.7 to 4.5 times as fast as OpenSSL 3.0 on processors with VAES.
// Without VAES it is 1.8 times as fast on 1392 bytes, and 10 % slower at authenticating 8896 bytes. Versions before
// 1.5 use VAES with AVX-512 only.
//
// Loaded at run time, so that a build with support runs on hosts without the library, or with another version of it
// than the header's: `releases` below says which have its layout. Only the direct functions are used: they work on
// the given key and context, never on a manager. So the function pointers are copied out of one manager at start
// and shared by all threads.
//
// Rejected alternatives, by the time to authenticate 1392 bytes (Xeon at 2.3 GHz). This takes 50 ns, or 40 if header
// and payload are adjacent. The job interface takes 61 ns a packet (53 in bursts of 16); copying header and payload
// together for one call takes 58 ns.
#include "engine/protection_library.hpp"

#ifdef DLCP_HAVE_IPSEC_MB
#include <intel-ipsec-mb.h>
#if IMB_VERSION_NUM < 0x10300 || IMB_VERSION_NUM >= 0x20100
#undef DLCP_HAVE_IPSEC_MB  // a header whose layout `releases` does not know: the same as none
#endif
#endif

#ifndef DLCP_HAVE_IPSEC_MB

namespace dlcp {

std::uint8_t ipsec_mb_cost() { return 0; }
std::unique_ptr<PacketKey> make_ipsec_mb_packet_key(const PacketKeyBytes&) { return nullptr; }

}  // namespace dlcp

#else

#include <dlfcn.h>
#include <openssl/crypto.h>

#include <algorithm>

#include "engine/processor.hpp"

namespace dlcp {
namespace {

// A release whose manager has the fields that are read here where this program's header has them, and whose flags of
// features are known. Patch releases do not change these. 3.0 moves the fields, so nothing unknown is accepted.
struct Release {
    const char* file;
    std::uint32_t version;  // major (16), minor (8)
    std::size_t key_bytes;  // sizeof(gcm_key_data)
    std::uint64_t self_test, self_test_pass;
    bool vaes_without_avx512;
};
constexpr Release releases[] = {
    {"libIPSec_MB.so.2", 0x200, 1264, std::uint64_t{1} << 19, std::uint64_t{1} << 20, true},
    {"libIPSec_MB.so.1", 0x105, 1264, std::uint64_t{1} << 20, std::uint64_t{1} << 21, true},
    {"libIPSec_MB.so.1", 0x104, 1264, std::uint64_t{1} << 20, std::uint64_t{1} << 21, false},
    {"libIPSec_MB.so.1", 0x103, 1008, std::uint64_t{1} << 20, std::uint64_t{1} << 21, false},
};
// The layout that `releases` speaks of, in every header from 1.3 to 2.0.2.
static_assert(offsetof(IMB_MGR, features) == 8 && offsetof(IMB_MGR, gcm128_enc) == 256 &&
              offsetof(IMB_MGR, gcm128_dec) == 280 && offsetof(IMB_MGR, gcm128_pre) == 448 &&
              offsetof(IMB_MGR, gmac128_init) == 720 && offsetof(IMB_MGR, gmac128_update) == 744 &&
              offsetof(IMB_MGR, gmac128_finalize) == 768 && sizeof(gcm_context_data) == 88);

// Room for the expanded key of any of them, whichever header this was compiled with. 64: the library's assembly
// requires it, but older headers state it only if LINUX is defined.
struct alignas(64) KeyRoom {
    std::uint8_t bytes[1280];
};
static_assert(std::ranges::all_of(releases, [](const Release& r) { return r.key_bytes <= sizeof(KeyRoom); }));

// The functions that the library chose for this processor, and what a packet costs with them (CipherCosts).
struct Functions {
    std::uint8_t cost = 0;
    aes_gcm_pre_t expand_key = nullptr;
    aes_gcm_enc_dec_t encrypt = nullptr;
    aes_gcm_enc_dec_t decrypt = nullptr;
    aes_gmac_init_t gmac_init = nullptr;
    aes_gmac_update_t gmac_update = nullptr;
    aes_gmac_finalize_t gmac_finalize = nullptr;
};

class IpsecMbPacketKey final : public PacketKey {
public:
    IpsecMbPacketKey(const PacketKeyBytes& key, const Functions& functions) : functions_(functions) {
        functions_.expand_key(key.data(), key_data());
    }
    ~IpsecMbPacketKey() override {
        OPENSSL_cleanse(&key_, sizeof key_);
        OPENSSL_cleanse(&context_, sizeof context_);
    }
    IpsecMbPacketKey(const IpsecMbPacketKey&) = delete;
    IpsecMbPacketKey& operator=(const IpsecMbPacketKey&) = delete;

    void authenticate(const std::uint8_t* header, std::uint64_t packet_number,
                      std::span<const std::uint8_t> payload, std::uint8_t* tag) override {
        const AuthenticatedHeader associated(header);
        const Nonce nonce = packet_nonce<4>(packet_number);
        if (associated.continues_in(payload)) {
            // One call of GCM without text: 40 ns against 50 ns for the four calls below (1392 bytes).
            functions_.encrypt(key_data(), &context_, nullptr, nullptr, 0, nonce.data(), associated.data(),
                               associated.size() + payload.size(), tag, wire::tag_bytes);
            return;
        }
        functions_.gmac_init(key_data(), &context_, nonce.data(), gcm_nonce_bytes);
        functions_.gmac_update(key_data(), &context_, associated.data(), associated.size());
        if (!payload.empty()) functions_.gmac_update(key_data(), &context_, payload.data(), payload.size());
        functions_.gmac_finalize(key_data(), &context_, tag, wire::tag_bytes);
    }

    void encrypt(const std::uint8_t* header, std::uint64_t packet_number, std::span<const std::uint8_t> payload,
                 std::uint8_t* out, std::uint8_t* tag) override {
        const AuthenticatedHeader associated(header);
        const Nonce nonce = packet_nonce<4>(packet_number);
        functions_.encrypt(key_data(), &context_, out, payload.data(), payload.size(), nonce.data(),
                           associated.data(), associated.size(), tag, wire::tag_bytes);
    }

    bool decrypt(const std::uint8_t* header, std::uint64_t packet_number, std::span<const std::uint8_t> payload,
                 std::uint8_t* out, const std::uint8_t* tag) override {
        const AuthenticatedHeader associated(header);
        const Nonce nonce = packet_nonce<4>(packet_number);
        std::uint8_t expected[wire::tag_bytes];
        functions_.decrypt(key_data(), &context_, out, payload.data(), payload.size(), nonce.data(),
                           associated.data(), associated.size(), expected, wire::tag_bytes);
        return CRYPTO_memcmp(expected, tag, sizeof expected) == 0;
    }

private:
    gcm_key_data* key_data() { return reinterpret_cast<gcm_key_data*>(key_.bytes); }

    const Functions& functions_;
    KeyRoom key_;
    alignas(64) gcm_context_data context_;
};

// Whether the library produces what OpenSSL produces: if its code for this processor is broken, the job loses speed,
// not correctness.
bool agrees_with_openssl(const Functions& functions) {
    const PacketKeyBytes key{0x64, 0x6c, 0x63, 0x70};
    IpsecMbPacketKey ours(key, functions);
    const std::unique_ptr<PacketKey> theirs = make_openssl_packet_key(key);
    std::array<std::uint8_t, wire::header_bytes> header;
    header.fill(0x5a);
    std::array<std::uint8_t, 1000> payload, our_text, their_text;  // a length that is no multiple of a block
    payload.fill(0xc3);
    std::array<std::uint8_t, wire::tag_bytes> our_tag, their_tag;
    ours.encrypt(header.data(), 1, payload, our_text.data(), our_tag.data());
    theirs->encrypt(header.data(), 1, payload, their_text.data(), their_tag.data());
    if (our_text != their_text || our_tag != their_tag) return false;
    ours.authenticate(header.data(), 2, payload, our_tag.data());
    return theirs->verify(header.data(), 2, payload, our_tag.data()) &&
           ours.decrypt(header.data(), 1, their_text, our_text.data(), their_tag.data()) && our_text == payload;
}

template <class Function>
Function* symbol(void* library, const char* name) {
    return reinterpret_cast<Function*>(dlsym(library, name));
}

// 60 ns with AVX-512; 80 with VAES and AVX2; 150 with neither. Without AVX-512 a processor that multiplies without
// carry at half Intel's rate takes 2.5 times as long: an EPYC 7003 takes 320 to 380 ns where a Xeon whose AVX-512
// is masked takes 133 to 141, both with version 1.3.
std::uint8_t processor_cost(const Release& release, std::uint64_t features) {
    constexpr std::uint64_t vector_aes = IMB_FEATURE_VAES | IMB_FEATURE_VPCLMULQDQ;
    const bool has_vector_aes = (features & vector_aes) == vector_aes;
    if (has_vector_aes && (features & IMB_FEATURE_AVX512_SKX) == IMB_FEATURE_AVX512_SKX) return 30;
    const bool intel = processor().intel;
    if (has_vector_aes && release.vaes_without_avx512) return intel ? 40 : 100;
    return intel ? 75 : 175;
}

// Whether expanding a key stays within the room that the release needs, as a build with other options might not.
bool keeps_to_its_room(const Functions& functions, std::size_t key_bytes) {
    struct {
        KeyRoom key;
        KeyRoom behind;
    } room;
    constexpr std::uint8_t untouched = 0xa5;
    std::memset(&room, untouched, sizeof room);
    functions.expand_key(PacketKeyBytes{}.data(), reinterpret_cast<gcm_key_data*>(room.key.bytes));
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&room);
    return std::all_of(bytes + key_bytes, bytes + sizeof room,
                       [](std::uint8_t byte) { return byte == untouched; });
}

// The functions of this release if it is there, fast and correct here; else all null.
Functions load(const Release& release) {
    void* const library = dlopen(release.file, RTLD_NOW | RTLD_LOCAL);  // once loaded, it stays loaded
    if (library == nullptr) return {};
    const auto version = symbol<decltype(imb_get_version)>(library, "imb_get_version");
    const auto allocate = symbol<decltype(alloc_mb_mgr)>(library, "alloc_mb_mgr");
    const auto initialise = symbol<decltype(init_mb_mgr_auto)>(library, "init_mb_mgr_auto");
    const auto free_manager = symbol<decltype(free_mb_mgr)>(library, "free_mb_mgr");
    if (version == nullptr || allocate == nullptr || initialise == nullptr || free_manager == nullptr ||
        version() >> 8 != release.version) {
        return {};
    }
    IMB_MGR* const manager = allocate(0);
    if (manager == nullptr) return {};
    initialise(manager, nullptr);
    Functions functions;
    // Without these instructions the library emulates them: slower than OpenSSL.
    constexpr std::uint64_t wanted = IMB_FEATURE_AESNI | IMB_FEATURE_PCLMULQDQ;
    const bool self_test_failed =
        (manager->features & release.self_test) != 0 && (manager->features & release.self_test_pass) == 0;
    if ((manager->features & wanted) == wanted && !self_test_failed) {
        functions = {.cost = processor_cost(release, manager->features),
                     .expand_key = manager->gcm128_pre,
                     .encrypt = manager->gcm128_enc,
                     .decrypt = manager->gcm128_dec,
                     .gmac_init = manager->gmac128_init,
                     .gmac_update = manager->gmac128_update,
                     .gmac_finalize = manager->gmac128_finalize};
    }
    free_manager(manager);
    const bool usable = functions.expand_key != nullptr && keeps_to_its_room(functions, release.key_bytes) &&
                        agrees_with_openssl(functions);
    return usable ? functions : Functions{};
}

// Of the newest release that serves.
Functions load() {
    for (const Release& release : releases)
        if (const Functions functions = load(release); functions.expand_key != nullptr) return functions;
    return {};
}

const Functions& loaded() {
    static const Functions functions = load();
    return functions;
}

}  // namespace

std::uint8_t ipsec_mb_cost() { return loaded().cost; }

std::unique_ptr<PacketKey> make_ipsec_mb_packet_key(const PacketKeyBytes& key) {
    if (loaded().expand_key == nullptr) return nullptr;
    return std::make_unique<IpsecMbPacketKey>(key, loaded());
}

}  // namespace dlcp

#endif
