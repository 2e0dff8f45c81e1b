// What bindings of kernels on raw memory share: addresses, variants, and how they complain.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bind/bind.hpp"
#include "collective/reduce.hpp"

namespace dlcp::bind {

[[noreturn]] inline void raise(const std::string& message) { throw nb::value_error(message.c_str()); }

inline Variant find_variant(const std::optional<std::string>& wanted) {
    if (!wanted) return available_variants().back();
    std::string accepted;
    for (const Variant variant : available_variants()) {
        if (*wanted == name(variant)) return variant;
        accepted += (accepted.empty() ? "" : ", ") + std::string(name(variant));
    }
    raise("variant '" + *wanted + "'; accepted on this machine: " + accepted);
}

template <class T = void>
T* memory_at(std::uintptr_t address) {
    return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr): addresses are what Python has
}

}  // namespace dlcp::bind
