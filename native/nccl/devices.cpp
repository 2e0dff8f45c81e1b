// Which interfaces a pattern lets through, and what /sys says of them.
#include "nccl/devices.hpp"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <fstream>

namespace dlcp::nccl {
namespace {

bool lets_through(std::string_view pattern, std::string_view name) {
    const bool exclude = pattern.starts_with('^');
    if (exclude) pattern.remove_prefix(1);
    const bool exact = pattern.starts_with('=');
    if (exact) pattern.remove_prefix(1);
    while (!pattern.empty()) {
        const std::string_view word = pattern.substr(0, pattern.find(','));
        pattern.remove_prefix(std::min(pattern.size(), word.size() + 1));
        if (!word.empty() && (exact ? name == word : name.starts_with(word))) return !exclude;
    }
    return exclude;
}

Device describe(const udp::Interface& interface) {
    Device device{.name = interface.name, .host = udp::format_host(interface.addresses.front())};
    const std::string folder = "/sys/class/net/" + interface.name;
    char real[PATH_MAX];
    if (realpath((folder + "/device").c_str(), real) != nullptr) device.pci_path = real;
    std::ifstream(folder + "/speed") >> device.speed_mbps;
    if (device.speed_mbps <= 0) device.speed_mbps = 10'000;  // what NCCL takes its own sockets for
    return device;
}

}  // namespace

std::vector<Device> find_devices(const std::string& pattern, const std::vector<udp::Interface>& interfaces) {
    std::vector<Device> devices;
    const auto add = [&](auto&& wanted) {
        for (const udp::Interface& interface : interfaces)
            if (interface.up && !interface.addresses.empty() && wanted(interface))
                devices.push_back(describe(interface));
    };
    if (!pattern.empty()) {
        add([&](const udp::Interface& interface) { return lets_through(pattern, interface.name); });
        return devices;
    }
    add([](const udp::Interface& interface) {
        return !interface.loopback && !interface.name.starts_with("docker");
    });
    if (devices.empty()) add([](const udp::Interface& interface) { return interface.loopback; });
    return devices;
}

}  // namespace dlcp::nccl
