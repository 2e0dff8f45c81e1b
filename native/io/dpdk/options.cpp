#include "io/dpdk/options.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

namespace dlcp::dpdk {
namespace {

using ipstack::IpAddress;

constexpr std::uint32_t queues_max = 64;    // as many as there are paths (io_table.h)
constexpr std::uint32_t vlan_max = 4094;    // IEEE 802.1Q: 4095 is reserved
constexpr std::uint32_t mtu_min = 576;      // what every host takes (RFC 791, 3.1)
constexpr std::uint32_t mtu_min_v6 = 1280;  // RFC 8200, 5
constexpr std::uint32_t mtu_max = 16000;    // below the longest frame of any card DPDK drives

constexpr std::array known_words{"port", "gateway",  "neighbour", "queues", "vlan",
                                 "mtu",  "checksum", "payload",   "poll",   "flow_isolation"};

// What the words said, before ports, addresses and gateways are put together.
struct Words {
    std::vector<std::string> ports;
    std::vector<IpAddress> gateways;
    std::vector<std::string_view> seen;
};

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

// Letters to insert, delete, change or swap with the next to make `a` of `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> rows(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i) {
        for (std::size_t j = 0; j <= b.size(); ++j) {
            if (i == 0 || j == 0) {
                rows[i][j] = i + j;
                continue;
            }
            rows[i][j] = std::min(
                {rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0u : 1u)});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
            }
        }
    }
    return rows[a.size()][b.size()];
}

std::string_view nearest_word(std::string_view word) {
    return *std::min_element(known_words.begin(), known_words.end(), [&](std::string_view a, std::string_view b) {
        return edit_distance(word, a) < edit_distance(word, b);
    });
}

std::optional<std::uint32_t> parse_number(std::string_view text, std::uint32_t max) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || error != std::errc{} || end != text.data() + text.size() || value > max)
        return std::nullopt;
    return value;
}

// Of a host: neither a group nor "any".
bool is_host(const IpAddress& address) {
    return !ipstack::is_multicast(address) && !ipstack::is_unspecified(address);
}

bool is_loopback(const IpAddress& address) {
    return address.is_v6() ? ipstack::to_text(address) == "::1" : address.bytes[0] == 127;
}

// "10.0.0.1", "fd00::1", "[fd00::1]".
std::optional<IpAddress> parse_address(std::string_view text) {
    if (text.size() > 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
    return ipstack::parse_ip(text);
}

// "ADDRESS[/PREFIX]" of a port; `where` names the word in an error.
int parse_own_address(std::string_view text, const std::string& where, PortWords& out, ErrorText error) {
    const std::size_t slash = text.find('/');
    const auto address = parse_address(text.substr(0, slash));
    if (!address || !is_host(*address) || is_loopback(*address)) {
        return error.fail(EINVAL,
                          "%s: %s is not an address that a port can have; dpdk takes the port's own IPv4 or IPv6 "
                          "address, perhaps with a prefix length: 10.0.0.1/24, fd00::1/64",
                          where.c_str(), quoted(text.substr(0, slash)).c_str());
    }
    out.address = *address;
    out.prefix_bits = 0;
    if (slash == std::string_view::npos) return 0;
    const auto prefix = parse_number(text.substr(slash + 1), address->bits);
    if (!prefix) {
        return error.fail(EINVAL, "%s: %s is not a prefix length; it is 0 to %u", where.c_str(),
                          quoted(text.substr(slash + 1)).c_str(), unsigned{address->bits});
    }
    out.prefix_bits = *prefix;
    return 0;
}

int parse_neighbour(std::string_view value, Options& out, ErrorText error) {
    const std::size_t at = value.rfind('@');
    const auto ip = parse_address(value.substr(0, at));
    const auto mac = at == std::string_view::npos ? std::nullopt : ipstack::parse_mac(value.substr(at + 1));
    const bool is_station = mac && (mac->front() & 1) == 0 && *mac != ipstack::MacAddress{};
    if (!ip || !is_host(*ip) || !is_station) {
        return error.fail(EINVAL,
                          "neighbour=%s: give an IP address and the Ethernet address of one station, as in "
                          "neighbour=10.0.0.2@aa:bb:cc:dd:ee:ff",
                          std::string(value).c_str());
    }
    for (const ipstack::StaticNeighbour& other : out.neighbours) {
        if (other.ip == *ip) {
            return error.fail(EINVAL, "neighbour=%s: this address was given before", std::string(value).c_str());
        }
    }
    out.neighbours.push_back({*ip, *mac});
    return 0;
}

// One of `choices`, by its place.
template <typename Enum>
int parse_choice(std::string_view word, std::string_view value,
                 std::initializer_list<std::pair<const char*, Enum>> choices, Enum& out, ErrorText error) {
    std::string names;
    for (const auto& [name, choice] : choices) {
        if (value == name) {
            out = choice;
            return 0;
        }
        names += (names.empty() ? "" : ", ") + std::string(name);
    }
    return error.fail(EINVAL, "%s=%s: it is one of %s", std::string(word).c_str(), std::string(value).c_str(),
                      names.c_str());
}

template <typename T>
int parse_range(std::string_view word, std::string_view value, std::uint32_t min, std::uint32_t max,
                const char* zero, T& out, ErrorText error) {
    const auto number = parse_number(value, max);
    if (!number || (*number != 0 && *number < min)) {
        return error.fail(EINVAL, "%s=%s: it is %u to %u, or 0: %s", std::string(word).c_str(),
                          std::string(value).c_str(), min, max, zero);
    }
    out = static_cast<T>(*number);
    return 0;
}

int parse_value(std::string_view word, std::string_view value, Words& words, Options& out, ErrorText error) {
    if (word == "port") {
        words.ports.emplace_back(value);
        return 0;
    }
    if (word == "neighbour") return parse_neighbour(value, out, error);
    if (word == "gateway") {
        const auto address = parse_address(value);
        if (!address || !is_host(*address)) {
            return error.fail(EINVAL, "gateway=%s: not the IP address of a host, as in gateway=10.0.0.254",
                              std::string(value).c_str());
        }
        words.gateways.push_back(*address);
        return 0;
    }
    if (std::find(words.seen.begin(), words.seen.end(), word) != words.seen.end()) {
        return error.fail(EINVAL, "%s=%s: this word was given before", std::string(word).c_str(),
                          std::string(value).c_str());
    }
    words.seen.push_back(word);
    if (word == "queues") return parse_range(word, value, 1, queues_max, "1 queue", out.queues, error);
    if (word == "vlan") return parse_range(word, value, 1, vlan_max, "no tag", out.vlan, error);
    if (word == "mtu")
        return parse_range(word, value, mtu_min, mtu_max, "what the device has", out.mtu_bytes, error);
    if (word == "checksum") {
        using enum ChecksumMode;
        return parse_choice<ChecksumMode>(
            word, value, {{"auto", automatic}, {"card", card}, {"software", software}, {"none", none}},
            out.checksum, error);
    }
    if (word == "payload") {
        using enum PayloadMode;
        return parse_choice<PayloadMode>(word, value, {{"auto", automatic}, {"copy", copy}, {"gather", gather}},
                                         out.payload, error);
    }
    if (word == "poll") {
        using enum PollMode;
        return parse_choice<PollMode>(word, value,
                                      {{"auto", automatic}, {"spin", spin}, {"yield", yield}, {"sleep", sleep}},
                                      out.poll, error);
    }
    return parse_choice<bool>(word, value, {{"on", true}, {"off", false}}, out.flow_isolation, error);
}

int parse_word(std::string_view text, Words& words, Options& out, ErrorText error) {
    const std::size_t equals = text.find('=');
    const std::string_view word = text.substr(0, equals);
    if (std::find(known_words.begin(), known_words.end(), word) == known_words.end()) {
        if (text.starts_with('-')) {
            return error.fail(EINVAL, "%s is not a word of dpdk; arguments of DPDK's EAL follow a word '--'",
                              quoted(text).c_str());
        }
        return error.fail(
            EINVAL,
            "%s is not a word of dpdk; did you mean '%s='? There are port, gateway, neighbour, queues, "
            "vlan, mtu, checksum, payload, poll and flow_isolation; EAL's arguments follow a word '--'",
            quoted(word).c_str(), std::string(nearest_word(word)).c_str());
    }
    if (equals == std::string_view::npos || equals + 1 == text.size()) {
        return error.fail(EINVAL, "%s needs a value: %s=…", quoted(text).c_str(), std::string(word).c_str());
    }
    return parse_value(word, text.substr(equals + 1), words, out, error);
}

int parse_ports(const Words& words, const char* bind_host, Options& out, ErrorText error) {
    out.ports.resize(std::max<std::size_t>(words.ports.size(), 1));
    for (std::size_t i = 0; i < words.ports.size(); ++i) {
        const std::string_view text = words.ports[i];
        const std::size_t at = text.find('@');
        out.ports[i].device = text.substr(0, at);
        if (out.ports[i].device.empty() && words.ports.size() > 1) {
            return error.fail(EINVAL, "port=%s: of several ports, each needs its device's name",
                              words.ports[i].c_str());
        }
        if (at == std::string_view::npos) continue;
        if (const int rc = parse_own_address(text.substr(at + 1), "port=" + words.ports[i], out.ports[i], error);
            rc < 0)
            return rc;
    }
    if (!out.ports[0].address.present() && bind_host != nullptr && *bind_host != '\0') {
        const int rc = parse_own_address(bind_host, "bind_host", out.ports[0], error);
        if (rc < 0) return rc;
    }
    for (std::size_t i = 0; i < out.ports.size(); ++i) {
        const PortWords& port = out.ports[i];
        if (!port.address.present()) {
            return i == 0
                       ? error.fail(
                             EINVAL,
                             "dpdk needs to know the IP address of its port: set bind_host to it (10.0.0.1/24), "
                             "or give port=DEVICE@ADDRESS/PREFIX")
                       : error.fail(EINVAL,
                                    "port=%s has no address: give port=%s@ADDRESS/PREFIX (bind_host is the "
                                    "first port's)",
                                    port.device.c_str(), port.device.c_str());
        }
        for (std::size_t j = 0; j < i; ++j) {
            if (out.ports[j].device == port.device) {
                return error.fail(EINVAL, "port=%s was given twice", port.device.c_str());
            }
            if (out.ports[j].address == port.address) {
                return error.fail(EINVAL, "ports %s and %s have the same address %s", out.ports[j].device.c_str(),
                                  port.device.c_str(), ipstack::to_text(port.address).c_str());
            }
        }
        if (port.address.is_v6() && out.mtu_bytes != 0 && out.mtu_bytes < mtu_min_v6) {
            return error.fail(EINVAL, "mtu=%u: IPv6 needs %u at least", out.mtu_bytes, mtu_min_v6);
        }
    }
    return 0;
}

bool is_link_local(const IpAddress& address) {
    return address.is_v6() && address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
}

int assign_gateway(const IpAddress& gateway, PortWords& port, ErrorText error) {
    const std::string text = ipstack::to_text(gateway);
    const std::string own = ipstack::to_text(port.address);
    if (port.prefix_bits == 0) {
        return error.fail(
            EINVAL,
            "gateway=%s: without a prefix length everybody counts as on the link; give %s/PREFIX, as in "
            "bind_host=%s/%d",
            text.c_str(), own.c_str(), own.c_str(), port.address.is_v6() ? 64 : 24);
    }
    if (gateway == port.address) {
        return error.fail(EINVAL, "gateway=%s is the port's own address", text.c_str());
    }
    if (!is_link_local(gateway) && !ipstack::in_prefix(gateway, port.address, port.prefix_bits)) {
        return error.fail(EINVAL, "gateway=%s is not on the link of %s/%u", text.c_str(), own.c_str(),
                          port.prefix_bits);
    }
    port.gateway = gateway;
    return 0;
}

int parse_gateways(const Words& words, Options& out, ErrorText error) {
    const std::vector<IpAddress>& gateways = words.gateways;
    if (gateways.empty()) return 0;
    if (gateways.size() == 1) {
        bool used = false;
        for (PortWords& port : out.ports) {
            if (port.address.bits != gateways[0].bits) continue;
            if (const int rc = assign_gateway(gateways[0], port, error); rc < 0) return rc;
            used = true;
        }
        if (used) return 0;
        return error.fail(EINVAL, "gateway=%s: no port has an address of this family",
                          ipstack::to_text(gateways[0]).c_str());
    }
    if (gateways.size() != out.ports.size()) {
        return error.fail(EINVAL, "%zu gateways for %zu ports: give one for all, or one per port in turn",
                          gateways.size(), out.ports.size());
    }
    for (std::size_t i = 0; i < gateways.size(); ++i) {
        if (gateways[i].bits != out.ports[i].address.bits) {
            return error.fail(EINVAL, "gateway=%s: port %s has an address of the other family",
                              ipstack::to_text(gateways[i]).c_str(), out.ports[i].device.c_str());
        }
        if (const int rc = assign_gateway(gateways[i], out.ports[i], error); rc < 0) return rc;
    }
    return 0;
}

}  // namespace

int parse_options(const char* extra, const char* bind_host, Options& out, ErrorText error) {
    constexpr std::string_view blanks = " \t\r\n";
    out = Options{};
    Words words;
    std::string_view rest = extra == nullptr ? "" : extra;
    while (true) {
        rest.remove_prefix(std::min(rest.find_first_not_of(blanks), rest.size()));
        if (rest.empty()) break;
        const std::string_view text = rest.substr(0, rest.find_first_of(blanks));
        rest.remove_prefix(text.size());
        if (text == "--") {
            rest.remove_prefix(std::min(rest.find_first_not_of(blanks), rest.size()));
            rest = rest.substr(0, rest.find_last_not_of(blanks) + 1);
            out.eal_arguments = rest;
            break;
        }
        if (const int rc = parse_word(text, words, out, error); rc < 0) return rc;
    }
    if (out.queues == 0) out.queues = 1;
    if (const int rc = parse_ports(words, bind_host, out, error); rc < 0) return rc;
    return parse_gateways(words, out, error);
}

}  // namespace dlcp::dpdk
