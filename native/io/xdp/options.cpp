#include "io/xdp/options.hpp"

#include <errno.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "ipstack/words.hpp"

namespace dlcp::xdp {

namespace {

using namespace std::string_view_literals;

constexpr std::uint32_t vlan_max = 4094;  // IEEE 802.1Q: 4095 is reserved

constexpr std::array known_words{"interface"sv, "queues"sv,    "mode"sv, "zero_copy"sv, "busy_poll"sv,
                                 "gateway"sv,   "neighbour"sv, "vlan"sv, "checksum"sv,  "address_probe"sv};

// The sentence about a word's value; empty: it is taken.
std::string parse_value(std::string_view word, std::string_view value, Options& out) {
    if (word == "interface") {
        if (!out.interface.empty() && out.interface != value)
            return "interface=" + std::string(value) + ": interface " + out.interface + " is named already";
        out.interface = value;
        return {};
    }
    if (word == "gateway") return ipstack::parse_gateway(value, out.gateway);
    if (word == "neighbour") return ipstack::parse_neighbour(value, out.neighbours);
    if (word == "queues") return ipstack::parse_range(word, value, 1, Options::queues_max, "all", out.queues);
    if (word == "vlan") {
        std::uint32_t vlan = 0;
        std::string refusal = ipstack::parse_range(word, value, 1, vlan_max, "no tag", vlan);
        out.vlan = static_cast<std::uint16_t>(vlan);
        return refusal;
    }
    if (word == "mode") {
        using enum AttachMode;
        return ipstack::parse_choice<AttachMode>(
            word, value, {{"auto", automatic}, {"native", native}, {"generic", generic}}, out.mode);
    }
    if (word == "zero_copy") {
        using enum ZeroCopy;
        return ipstack::parse_choice<ZeroCopy>(word, value, {{"auto", automatic}, {"on", on}, {"off", off}},
                                               out.zero_copy);
    }
    if (word == "address_probe")
        return ipstack::parse_choice<bool>(word, value, {{"on", true}, {"off", false}}, out.address_probe);
    using enum ipstack::Checksums;
    return ipstack::parse_choice<ipstack::Checksums>(word, value, {{"software", software}, {"none", none}},
                                                     out.checksums);
}

std::string parse_word(std::string_view text, Options& out) {
    const std::size_t equals = text.find('=');
    const std::string_view word = text.substr(0, equals);
    if (text == "busy_poll") {
        out.busy_poll = true;
        return {};
    }
    if (std::find(known_words.begin(), known_words.end(), word) == known_words.end()) {
        return "'" + std::string(word) + "' is not a word of xdp; did you mean '" +
               std::string(ipstack::nearest_word(word, known_words)) +
               "'? There are interface, queues, mode, zero_copy, busy_poll, gateway, neighbour, vlan, checksum "
               "and address_probe";
    }
    if (word == "busy_poll") return "'" + std::string(text) + "': busy_poll has no value";
    if (equals == std::string_view::npos || equals + 1 == text.size())
        return "'" + std::string(text) + "' needs a value: " + std::string(word) + "=…";
    return parse_value(word, text.substr(equals + 1), out);
}

std::string parse_own_address(const char* bind_host, Options& out) {
    if (bind_host == nullptr || bind_host[0] == '\0') {
        return "the xdp driver needs an IP address of its own, which the kernel does not have: give "
               "bind_host=ADDRESS or ADDRESS/PREFIX";
    }
    return ipstack::parse_own_address(bind_host, "bind_host", out.address, out.prefix_bits);
}

std::string parse_words(const char* extra, Options& out) {
    std::string_view rest = extra != nullptr ? extra : "";
    std::string refusal;
    while (refusal.empty()) {
        const std::string_view word = ipstack::next_word(rest);
        if (word.empty()) break;
        refusal = parse_word(word, out);
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
    refusal = parse_words(config.extra, out);
    return refusal.empty() ? 0 : error.fail(EDOM, "%s", refusal.c_str());
}

}  // namespace dlcp::xdp
