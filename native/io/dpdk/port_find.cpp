// Names of ports, the list of those there are, and who has claimed which.
#include "io/dpdk/port_find.hpp"

#include <net/if.h>
#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_devargs.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <vector>

#include "io/descriptor.hpp"
#include "io/dpdk/eal.hpp"
#include "io/dpdk/eal_arguments.hpp"
#include "io/dpdk/eal_log.hpp"
#include "io/dpdk/pci_address.hpp"

namespace dlcp::dpdk {
namespace {

std::array<std::atomic<bool>, RTE_MAX_ETHPORTS> claimed{};

std::uint32_t interface_mtu_bytes(const std::string& name) {
    const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket) return 0;
    ifreq request{};
    name.copy(request.ifr_name, sizeof request.ifr_name - 1);
    const bool known = ::ioctl(socket.number(), SIOCGIFMTU, &request) == 0;
    return known && request.ifr_mtu > 0 ? static_cast<std::uint32_t>(request.ifr_mtu) : 0;
}

std::vector<PortIdentity> all_ports() {
    std::vector<PortIdentity> ports;
    std::uint16_t id;
    RTE_ETH_FOREACH_DEV(id) ports.push_back(identify(id));
    return ports;
}

// "DPDK's ports are net_memif0 (0, net_memif), …"; what to do when there is none.
std::string describe(const std::vector<PortIdentity>& ports) {
    if (ports.empty()) {
        return "DPDK has no port at all: give EAL arguments -a PCI_ADDRESS for a card, or --vdev for a virtual "
               "device";
    }
    std::string text;
    for (const PortIdentity& port : ports) {
        text += (text.empty() ? "DPDK's ports are " : ", ") + port.name + " (" + std::to_string(port.id) + ", " +
                port.driver + ")";
    }
    return text;
}

std::string link_target(const std::filesystem::path& path) {
    std::error_code failed;
    const auto target = std::filesystem::read_symlink(path, failed);
    return failed ? std::string() : target.filename().string();
}

// Why DPDK has no port for a PCI address.
std::string explain_pci(const std::string& address) {
    const std::filesystem::path device = std::filesystem::path("/sys/bus/pci/devices") / address;
    std::error_code ignored;
    if (!std::filesystem::exists(device, ignored)) return "this host has no PCI device " + address;
    const std::string kernel_driver = link_target(device / "driver");
    // These share a card with the kernel's driver, through its own interface (DPDK guides of mlx4, mlx5 and mana).
    const std::array sharing{"mlx5_core", "mlx4_core", "mana"};
    const bool shares = std::find(sharing.begin(), sharing.end(), kernel_driver) != sharing.end();
    if (shares) {
        return address + " is bound to " + kernel_driver +
               ", as it should be, but DPDK has no port of it: its driver needs rdma-core (ibverbs) at run time, "
               "and EAL "
               "arguments like --no-pci, -a and -b may leave it out";
    }
    const bool for_users =
        kernel_driver == "vfio-pci" || kernel_driver == "igb_uio" || kernel_driver == "uio_pci_generic";
    if (for_users) {
        return address + " is bound to " + kernel_driver +
               ", but DPDK has no port of it: see that EAL arguments (--no-pci, -a, -b) do not leave it out, that "
               "this "
               "user may open /dev/vfio, that no other process has it, and that DPDK has a driver for it";
    }
    return address + " is bound to " +
           (kernel_driver.empty() ? "no driver" : "the kernel's driver " + kernel_driver) +
           ": bind it for DPDK with dpdk-devbind.py --bind=vfio-pci " + address +
           " (the kernel's interface goes away)";
}

// The value of `option` at arguments[i] ("--vdev X", "--vdev=X", "-a X", "-aX"), moving i past it; none: another option.
std::optional<std::string> value_of(std::string_view option, const Arguments& arguments, std::size_t& i) {
    const std::string_view argument = arguments[i];
    if (argument == option) return i + 1 < arguments.size() ? std::optional(arguments[++i]) : std::nullopt;
    if (!argument.starts_with(option)) return std::nullopt;
    const std::string_view rest = argument.substr(option.size());
    const bool is_long = option.starts_with("--");
    if (is_long && !rest.starts_with('=')) return std::nullopt;
    return std::string(is_long ? rest.substr(1) : rest);
}

// Devices that were asked for and are not there: DPDK starts without them.
std::string describe_failed(const std::vector<PortIdentity>& ports) {
    Arguments arguments;
    split_arguments(eal_arguments(), arguments, {nullptr, 0});
    const auto has_port = [&](const std::string& name) {
        return std::any_of(ports.begin(), ports.end(),
                           [&](const PortIdentity& port) { return port.name.starts_with(name); });
    };
    std::string virtual_devices, cards;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        if (const auto device = value_of("--vdev", arguments, i)) {
            if (!has_port(device->substr(0, device->find(','))))
                virtual_devices += "; there is no port of --vdev=" + *device;
            continue;
        }
        auto card = value_of("-a", arguments, i);
        if (!card) card = value_of("--allow", arguments, i);
        const auto address = card ? pci_address(card->substr(0, card->find(','))) : std::nullopt;
        if (address && !has_port(*address)) cards += "; -a " + *card + ": " + explain_pci(*address);
    }
    const std::string log = virtual_devices.empty() ? "" : last_complaints(0, 3);
    return cards + virtual_devices + (log.empty() ? "" : ", and DPDK's log says: " + log);
}

}  // namespace

PortIdentity identify(std::uint16_t id) {
    PortIdentity port{.id = id};
    char name[RTE_ETH_NAME_MAX_LEN] = "";
    rte_eth_dev_get_name_by_port(id, name);
    port.name = name;
    rte_eth_dev_info info{};
    if (rte_eth_dev_info_get(id, &info) != 0) return port;
    if (info.driver_name != nullptr) port.driver = info.driver_name;
    if (info.device != nullptr) {
        const rte_devargs* arguments = rte_dev_devargs(info.device);
        if (arguments != nullptr && arguments->args != nullptr) port.arguments = arguments->args;
        const rte_bus* bus = rte_dev_bus(info.device);
        port.is_virtual = bus != nullptr && std::string(rte_bus_name(bus)) == "vdev";
    }
    port.interface_index = info.if_index;
    char interface_name[IF_NAMESIZE];
    if (info.if_index != 0 && if_indextoname(info.if_index, interface_name) != nullptr) {
        port.interface_name = interface_name;
        port.interface_mtu_bytes = interface_mtu_bytes(port.interface_name);
    }
    std::uint16_t mtu_bytes = 0;
    if (rte_eth_dev_get_mtu(id, &mtu_bytes) == 0) port.mtu_bytes = mtu_bytes;
    return port;
}

int find_port(const std::string& device, std::uint16_t& out, ErrorText error) {
    const std::vector<PortIdentity> ports = all_ports();
    const std::string ports_text = describe(ports);
    const std::string failed = describe_failed(ports);
    if (device.empty()) {
        if (ports.size() == 1) {
            out = ports[0].id;
            return 0;
        }
        return error.fail(ENODEV, "%s%s%s", ports.empty() ? "" : "which port? Say port=NAME; ", ports_text.c_str(),
                          failed.c_str());
    }
    const std::optional<std::string> pci = pci_address(device);
    for (const PortIdentity& port : ports) {
        if (port.name == device || (pci && port.name == *pci) || std::to_string(port.id) == device) {
            out = port.id;
            return 0;
        }
    }
    // The kernel's interface of a device: of a card that the kernel drives too (mlx5), or below a virtual one. One that is
    // taken, if there is no other, so that this is the answer.
    bool found = false;
    for (const PortIdentity& port : ports) {
        if (port.interface_name != device || (found && is_claimed(port.id))) continue;
        out = port.id;
        found = true;
    }
    if (found) return 0;
    // A card with several ports has a name per port, beginning with its address.
    for (const PortIdentity& port : ports) {
        if (pci && port.name.starts_with(*pci) && !is_claimed(port.id)) {
            out = port.id;
            return 0;
        }
    }
    if (pci) return error.fail(ENODEV, "%s; %s", explain_pci(*pci).c_str(), ports_text.c_str());
    return error.fail(ENODEV, "DPDK has no port '%s'; %s%s", device.c_str(), ports_text.c_str(), failed.c_str());
}

bool claim_port(std::uint16_t id) { return !claimed[id].exchange(true); }
void release_port(std::uint16_t id) { claimed[id] = false; }
bool is_claimed(std::uint16_t id) { return id < claimed.size() && claimed[id]; }

}  // namespace dlcp::dpdk
