// Packet protection's pure functions, for tests against another implementation and for tools.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "bind/bind.hpp"
#include "engine/processor.hpp"
#include "engine/protection.hpp"
#include "engine/wire.hpp"

namespace dlcp::bind {
namespace {

template <std::size_t size>
std::array<std::uint8_t, size> exactly(nb::bytes bytes, const char* what) {
    if (bytes.size() != size)
        throw nb::value_error((std::string(what) + " has " + std::to_string(bytes.size()) +
                               " bytes; accepted: " + std::to_string(size))
                                  .c_str());
    std::array<std::uint8_t, size> out{};
    std::copy_n(static_cast<const std::uint8_t*>(bytes.data()), size, out.begin());
    return out;
}

constexpr std::pair<Cipher, const char*> cipher_names[] = {{Cipher::aes_128_gcm, "aes_128_gcm"},
                                                           {Cipher::aegis_128x2, "aegis_128x2"}};

nb::bytes authenticate(nb::bytes key, nb::bytes header, std::uint64_t packet_number, nb::bytes payload,
                       const std::string& cipher) {
    std::unique_ptr<PacketKey> packet_key;
    for (const auto& [each, name] : cipher_names)
        if (cipher == name)
            packet_key = make_packet_key(exactly<packet_key_bytes>(key, "key"), each, CryptoLibrary::fastest);
    if (!packet_key)
        throw nb::value_error(
            ("cipher is '" + cipher + "'; accepted: aes_128_gcm, and aegis_128x2 where libaegis is").c_str());
    const auto* const head = static_cast<const std::uint8_t*>(header.data());
    const std::size_t size = header.size() > wire::type_offset ? wire::header_bytes_of(head) : wire::header_bytes;
    if (header.size() != size)
        throw nb::value_error(
            ("header has " + std::to_string(header.size()) + " bytes; accepted: " + std::to_string(size)).c_str());
    std::array<std::uint8_t, wire::tag_bytes> tag{};
    packet_key->authenticate(head, packet_number,
                             {static_cast<const std::uint8_t*>(payload.data()), payload.size()}, tag.data());
    return nb::bytes(tag.data(), tag.size());
}

// The package aeg carries libaegis for most machines; its extension module exports no symbols, but says where they are.
void find_aegis() {
#if defined(__x86_64__)
    if (!processor().avx2) return;  // its aegis_init() has instructions of AVX
#endif
    try {
        const nb::module_ package = nb::module_::import_("aeg._aegis");
        const nb::object ffi = package.attr("ffi"), library = package.attr("lib");
        const auto address = [&](const char* name) {
            return nb::cast<std::uintptr_t>(
                nb::int_(ffi.attr("cast")("uintptr_t", ffi.attr("addressof")(library, name))));
        };
        if (nb::cast<int>(library.attr("aegis_init")()) != 0) return;
        lend_aegis(address("aegis128x2_encrypt_detached"), address("aegis128x2_decrypt_detached"));
    } catch (nb::python_error& error) {
        // Not installed, or another version: then as without.
        if (!error.matches(PyExc_ImportError) && !error.matches(PyExc_AttributeError)) throw;
    }
}

}  // namespace

void bind_protection(nb::module_& m) {
    find_aegis();
    m.def("fastest_crypto_library", [] { return std::string(fastest_crypto_library()); });
    m.def(
        "offered_ciphers",
        [] {
            const CipherCosts costs = offered_ciphers(CipherChoice::any, CryptoLibrary::fastest);
            nb::dict out;
            for (const auto& [cipher, name] : cipher_names)
                if (costs.of(cipher) != 0) out[name] = 2 * costs.of(cipher);
            return out;
        },
        "Estimated nanoseconds to protect a datagram of 1472 bytes here, by cipher.");
    m.def(
        "derive_packet_key",
        [](nb::bytes job_key, const std::string& label, std::uint32_t job, std::uint32_t low_rank,
           std::uint32_t high_rank, std::uint64_t low_session, std::uint64_t high_session,
           std::uint32_t source_rank, std::uint8_t epoch) {
            const auto key = derive_packet_key(
                exactly<job_key_bytes>(job_key, "job key"),
                {label, job, low_rank, high_rank, low_session, high_session, source_rank, epoch});
            return nb::bytes(key.data(), key.size());
        },
        nb::arg("job_key"), nb::kw_only(), nb::arg("label"), nb::arg("job"), nb::arg("low_rank"),
        nb::arg("high_rank"), nb::arg("low_session"), nb::arg("high_session"), nb::arg("source_rank"),
        nb::arg("epoch"));
    m.def("authenticate", &authenticate, nb::arg("key"), nb::arg("header"), nb::arg("packet_number"),
          nb::arg("payload"), nb::arg("cipher") = "aes_128_gcm", "The 16-byte tag over a header and a payload.");
}

}  // namespace dlcp::bind
