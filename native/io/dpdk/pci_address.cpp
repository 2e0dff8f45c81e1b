// Completes a PCI address with its domain.
#include "io/dpdk/pci_address.hpp"

#include <algorithm>
#include <cctype>

namespace dlcp::dpdk {

std::optional<std::string> pci_address(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    if (std::count(text.begin(), text.end(), ':') == 1) text.insert(0, "0000:");
    const std::size_t tail = sizeof ":3b:00.0" - 1;
    if (text.size() < tail + 4) return std::nullopt;
    const std::size_t colon = text.size() - tail;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char expected = i == colon || i == colon + 3 ? ':' : i == colon + 6 ? '.' : 'x';
        if (expected == 'x' ? !std::isxdigit(static_cast<unsigned char>(text[i])) : text[i] != expected)
            return std::nullopt;
    }
    return text;
}

}  // namespace dlcp::dpdk
