#include "io/xdp/options.hpp"

#include <errno.h>

#include <array>
#include <string_view>

#include "ipstack/interface_options.hpp"

namespace dlcp::xdp {

namespace {

using namespace std::string_view_literals;

constexpr std::uint32_t vlan_max = 4094;  // IEEE 802.1Q: 4095 is reserved

constexpr std::array known_options{"interface"sv, "queues"sv,    "mode"sv, "zero_copy"sv, "busy_poll"sv,
                                   "gateway"sv,   "neighbour"sv, "vlan"sv, "checksum"sv,  "address_probe"sv};

// The sentence about an option's value; empty: it is taken.
std::string parse_value(std::string_view name, std::string_view value, Options& out) {
    if (name == "interface") {
        if (!out.interface.empty() && out.interface != value)
            return "interface=" + std::string(value) + ": interface " + out.interface + " is named already";
        out.interface = value;
        return {};
    }
    if (name == "gateway") return ipstack::parse_gateway(value, out.gateway);
    if (name == "neighbour") return ipstack::parse_neighbour(value, out.neighbours);
    if (name == "queues") return ipstack::parse_range(name, value, 1, Options::queues_max, "all", out.queues);
    if (name == "vlan") {
        std::uint32_t vlan = 0;
        std::string refusal = ipstack::parse_range(name, value, 1, vlan_max, "no tag", vlan);
        out.vlan = static_cast<std::uint16_t>(vlan);
        return refusal;
    }
    if (name == "mode") {
        using enum AttachMode;
        return ipstack::parse_choice<AttachMode>(
            name, value, {{"auto", automatic}, {"native", native}, {"generic", generic}}, out.mode);
    }
    if (name == "zero_copy") {
        using enum ZeroCopy;
        return ipstack::parse_choice<ZeroCopy>(name, value, {{"auto", automatic}, {"on", on}, {"off", off}},
                                               out.zero_copy);
    }
    if (name == "address_probe")
        return ipstack::parse_choice<bool>(name, value, {{"on", true}, {"off", false}}, out.address_probe);
    using enum ipstack::Checksums;
    return ipstack::parse_choice<ipstack::Checksums>(name, value, {{"software", software}, {"none", none}},
                                                     out.checksums);
}

std::string parse_one(std::string_view text, Options& out) {
    if (text == "busy_poll") {
        out.busy_poll = true;
        return {};
    }
    if (text.starts_with("busy_poll=")) return "'" + std::string(text) + "': busy_poll has no value";
    ipstack::Option option;
    std::string refusal = ipstack::parse_option(text, "xdp", known_options, option);
    return refusal.empty() ? parse_value(option.name, option.value, out) : refusal;
}

std::string parse_own_address(const char* bind_host, Options& out) {
    if (bind_host == nullptr || bind_host[0] == '\0') {
        return "the xdp driver needs an IP address of its own, which the kernel does not have: give "
               "bind_host=ADDRESS or ADDRESS/PREFIX";
    }
    return ipstack::parse_own_address(bind_host, "bind_host", out.address, out.prefix_bits);
}

std::string parse_all(const char* extra, Options& out) {
    std::string_view rest = extra != nullptr ? extra : "";
    std::string refusal;
    while (refusal.empty()) {
        const std::string_view text = ipstack::next_option(rest);
        if (text.empty()) break;
        refusal = parse_one(text, out);
    }
    if (refusal.empty()) refusal = ipstack::check_neighbours(out.neighbours, {&out.address, 1});
    if (refusal.empty() && out.gateway.present())
        refusal = ipstack::check_gateway(out.gateway, out.address, out.prefix_bits);
    if (refusal.empty() && out.mode == AttachMode::generic && out.zero_copy == ZeroCopy::on)
        refusal = "zero_copy=on needs the card's driver: use mode=native or auto";
    return refusal;
}

}  // namespace

int parse_options(const dlcp_io_config& config, Options& out, ErrorText error) {
    out = {};
    if (config.interface_name != nullptr) out.interface = config.interface_name;
    std::string refusal = parse_own_address(config.bind_host, out);
    if (!refusal.empty()) return error.fail(EINVAL, "%s", refusal.c_str());
    refusal = parse_all(config.extra, out);
    return refusal.empty() ? 0 : error.fail(EDOM, "%s", refusal.c_str());
}

}  // namespace dlcp::xdp
