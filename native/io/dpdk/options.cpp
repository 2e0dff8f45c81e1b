#include "io/dpdk/options.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "io/dpdk/pci_address.hpp"
#include "ipstack/interface_options.hpp"

namespace dlcp::dpdk {
namespace {

using namespace std::string_view_literals;
using ipstack::IpAddress;

constexpr std::uint32_t queues_max = 64;    // as many as there are paths (io_table.h)
constexpr std::uint32_t vlan_max = 4094;    // IEEE 802.1Q: 4095 is reserved
constexpr std::uint32_t mtu_min = 576;      // what every host takes (RFC 791, 3.1)
constexpr std::uint32_t mtu_min_v6 = 1280;  // RFC 8200, 5
// More than a datagram of the engine's needs (9152 bytes); what the card carries is asked of it.
constexpr std::uint32_t mtu_max = 16000;

constexpr std::array known_options{"port"sv,         "gateway"sv,  "neighbour"sv, "queues"sv, "vlan"sv,
                                   "mtu"sv,          "checksum"sv, "payload"sv,   "poll"sv,   "flow_isolation"sv,
                                   "address_probe"sv};

// What is put together once all options are read.
struct Parts {
    std::vector<std::string> ports;
    std::vector<IpAddress> gateways;
    std::vector<std::string_view> seen;  // options that are given once
};

// A refusal of ipstack's, if there is one, is the driver's.
int fail_if(const std::string& refusal, ErrorText error) {
    return refusal.empty() ? 0 : error.fail(EDOM, "%s", refusal.c_str());
}

// An option that is given once: a number or a choice.
std::string parse_single(std::string_view name, std::string_view value, Options& out) {
    if (name == "queues" || name == "vlan") {
        std::uint32_t number = 0;
        const bool queues = name == "queues";
        std::string refusal = queues ? ipstack::parse_range(name, value, 1, queues_max, "1 queue", number)
                                     : ipstack::parse_range(name, value, 1, vlan_max, "no tag", number);
        (queues ? out.queues : out.vlan) = static_cast<std::uint16_t>(number);
        return refusal;
    }
    if (name == "mtu")
        return ipstack::parse_range(name, value, mtu_min, mtu_max, "what the device has", out.mtu_bytes);
    if (name == "checksum") {
        using enum ChecksumMode;
        return ipstack::parse_choice<ChecksumMode>(
            name, value, {{"auto", automatic}, {"card", card}, {"software", software}, {"none", none}},
            out.checksum);
    }
    if (name == "payload") {
        using enum PayloadMode;
        return ipstack::parse_choice<PayloadMode>(
            name, value, {{"auto", automatic}, {"copy", copy}, {"gather", gather}}, out.payload);
    }
    if (name == "poll") {
        using enum PollMode;
        return ipstack::parse_choice<PollMode>(
            name, value, {{"auto", automatic}, {"spin", spin}, {"yield", yield}, {"sleep", sleep}}, out.poll);
    }
    bool& choice = name == "flow_isolation" ? out.flow_isolation : out.address_probe;
    return ipstack::parse_choice<bool>(name, value, {{"on", true}, {"off", false}}, choice);
}

int parse_value(std::string_view name, std::string_view value, Parts& parts, Options& out, ErrorText error) {
    if (name == "port") {
        parts.ports.emplace_back(value);
        return 0;
    }
    if (name == "neighbour") return fail_if(ipstack::parse_neighbour(value, out.neighbours), error);
    if (name == "gateway") return fail_if(ipstack::parse_gateway(value, parts.gateways.emplace_back()), error);
    if (std::find(parts.seen.begin(), parts.seen.end(), name) != parts.seen.end()) {
        return error.fail(EDOM, "%s=%s: it was given before", std::string(name).c_str(),
                          std::string(value).c_str());
    }
    parts.seen.push_back(name);
    return fail_if(parse_single(name, value, out), error);
}

int parse_one(std::string_view text, Parts& parts, Options& out, ErrorText error) {
    const std::string given(text);
    if (text.starts_with('-'))
        return error.fail(EDOM, "'%s' is not an option of dpdk; arguments of DPDK's EAL follow '--'",
                          given.c_str());
    ipstack::Option option;
    const std::string refusal = ipstack::parse_option(text, "dpdk", known_options, option);
    if (!refusal.empty()) return error.fail(EDOM, "%s; EAL's arguments follow '--'", refusal.c_str());
    return parse_value(option.name, option.value, parts, out, error);
}

int parse_ports(const Parts& parts, const char* bind_host, Options& out, ErrorText error) {
    out.ports.resize(std::max<std::size_t>(parts.ports.size(), 1));
    for (std::size_t i = 0; i < parts.ports.size(); ++i) {
        const std::string_view text = parts.ports[i];
        const std::size_t at = text.find('@');
        out.ports[i].device = text.substr(0, at);
        if (const auto pci = pci_address(out.ports[i].device)) out.ports[i].device = *pci;
        if (out.ports[i].device.empty() && parts.ports.size() > 1) {
            return error.fail(EDOM, "port=%s: of several ports, each needs its device's name",
                              parts.ports[i].c_str());
        }
        if (at == std::string_view::npos) continue;
        const std::string refusal = ipstack::parse_own_address(text.substr(at + 1), "port=" + parts.ports[i],
                                                               out.ports[i].address, out.ports[i].prefix_bits);
        if (!refusal.empty()) return fail_if(refusal, error);
    }
    if (!out.ports[0].address.present() && bind_host != nullptr && *bind_host != '\0') {
        const std::string refusal =
            ipstack::parse_own_address(bind_host, "bind_host", out.ports[0].address, out.ports[0].prefix_bits);
        if (!refusal.empty()) return error.fail(EINVAL, "%s", refusal.c_str());
    }
    for (std::size_t i = 0; i < out.ports.size(); ++i) {
        const PortOptions& port = out.ports[i];
        if (!port.address.present()) {
            return i == 0
                       ? error.fail(
                             EINVAL,
                             "dpdk needs to know the IP address of its port: set bind_host to it (10.0.0.1/24), "
                             "or give port=DEVICE@ADDRESS/PREFIX")
                       : error.fail(EDOM,
                                    "port=%s has no address: give port=%s@ADDRESS/PREFIX (bind_host is the "
                                    "first port's)",
                                    port.device.c_str(), port.device.c_str());
        }
        for (std::size_t j = 0; j < i; ++j) {
            if (out.ports[j].device == port.device) {
                return error.fail(EDOM, "port=%s was given twice", port.device.c_str());
            }
            if (out.ports[j].address == port.address) {
                return error.fail(EDOM, "ports %s and %s have the same address %s", out.ports[j].device.c_str(),
                                  port.device.c_str(), ipstack::to_text(port.address).c_str());
            }
        }
        if (port.address.is_v6() && out.mtu_bytes != 0 && out.mtu_bytes < mtu_min_v6) {
            return error.fail(EDOM, "mtu=%u: IPv6 needs %u at least", out.mtu_bytes, mtu_min_v6);
        }
    }
    return 0;
}

int assign_gateway(const IpAddress& gateway, PortOptions& port, ErrorText error) {
    port.gateway = gateway;
    return fail_if(ipstack::check_gateway(gateway, port.address, port.prefix_bits), error);
}

int parse_gateways(const Parts& parts, Options& out, ErrorText error) {
    const std::vector<IpAddress>& gateways = parts.gateways;
    if (gateways.empty()) return 0;
    if (gateways.size() == 1) {
        bool used = false;
        for (PortOptions& port : out.ports) {
            if (port.address.bits != gateways[0].bits) continue;
            if (const int rc = assign_gateway(gateways[0], port, error); rc < 0) return rc;
            used = true;
        }
        if (used) return 0;
        return error.fail(EDOM, "gateway=%s: no port has an address of this family",
                          ipstack::to_text(gateways[0]).c_str());
    }
    if (gateways.size() != out.ports.size()) {
        return error.fail(EDOM, "%zu gateways for %zu ports: give one for all, or one per port in turn",
                          gateways.size(), out.ports.size());
    }
    for (std::size_t i = 0; i < gateways.size(); ++i) {
        if (gateways[i].bits != out.ports[i].address.bits) {
            return error.fail(EDOM, "gateway=%s: port %s has an address of the other family",
                              ipstack::to_text(gateways[i]).c_str(), out.ports[i].device.c_str());
        }
        if (const int rc = assign_gateway(gateways[i], out.ports[i], error); rc < 0) return rc;
    }
    return 0;
}

}  // namespace

int parse_options(const char* extra, const char* bind_host, Options& out, ErrorText error) {
    out = Options{};
    Parts parts;
    std::string_view rest = extra == nullptr ? "" : extra;
    for (;;) {
        const std::string_view text = ipstack::next_option(rest);
        if (text.empty()) break;
        if (text == "--") {
            constexpr std::string_view blanks = " \t\r\n";
            rest.remove_prefix(std::min(rest.find_first_not_of(blanks), rest.size()));
            out.eal_arguments = rest.substr(0, rest.find_last_not_of(blanks) + 1);
            break;
        }
        if (const int rc = parse_one(text, parts, out, error); rc < 0) return rc;
    }
    if (out.queues == 0) out.queues = 1;
    if (const int rc = parse_ports(parts, bind_host, out, error); rc < 0) return rc;
    std::vector<IpAddress> addresses;
    for (const PortOptions& port : out.ports) addresses.push_back(port.address);
    if (const int rc = fail_if(ipstack::check_neighbours(out.neighbours, addresses), error); rc < 0) return rc;
    return parse_gateways(parts, out, error);
}

}  // namespace dlcp::dpdk
