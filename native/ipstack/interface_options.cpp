#include "ipstack/interface_options.hpp"

#include <algorithm>
#include <charconv>

#include "ipstack/datagram_reader.hpp"

namespace dlcp::ipstack {

namespace {

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
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
        }
    }
    return rows[a.size()][b.size()];
}

// What is wrong with a value: "NAME=VALUE: …".
std::string refusal(std::string_view name, std::string_view value, std::string_view what) {
    return std::string(name).append("=").append(value).append(": ").append(what);
}

std::string quoted(std::string_view text) { return std::string("'").append(text).append("'"); }

// All zeros or all ones where hosts differ (RFC 1122, 3.2.1.3). A network of 31 bits has hosts alone (RFC 3021).
bool names_no_host(const IpAddress& address, unsigned prefix_bits) {
    if (address.is_v6() || prefix_bits == 0 || prefix_bits > 30) return false;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) value = value << 8 | address.bytes[i];
    const std::uint32_t hosts = UINT32_MAX >> prefix_bits;
    return (value & hosts) == 0 || (value & hosts) == hosts;
}

}  // namespace

std::string_view next_option(std::string_view& rest) {
    constexpr std::string_view blanks = " \t\r\n";
    rest.remove_prefix(std::min(rest.find_first_not_of(blanks), rest.size()));
    const std::string_view option = rest.substr(0, rest.find_first_of(blanks));
    rest.remove_prefix(option.size());
    return option;
}

std::string parse_option(std::string_view text, std::string_view driver, std::span<const std::string_view> known,
                         Option& out) {
    const std::size_t equals = text.find('=');
    out = {.name = text.substr(0, equals), .value = {}};
    if (std::find(known.begin(), known.end(), out.name) == known.end()) {
        const auto nearest = *std::min_element(known.begin(), known.end(), [&](auto a, auto b) {
            return edit_distance(out.name, a) < edit_distance(out.name, b);
        });
        std::string all;
        for (std::size_t i = 0; i < known.size(); ++i)
            all.append(i == 0 ? "" : i + 1 < known.size() ? ", " : " and ").append(known[i]);
        return quoted(out.name) + " is not an option of " + std::string(driver) + "; did you mean '" +
               std::string(nearest) + "='? There are " + all;
    }
    if (equals == std::string_view::npos || equals + 1 == text.size())
        return quoted(text) + " needs a value: " + std::string(out.name) + "=…";
    out.value = text.substr(equals + 1);
    return {};
}

std::optional<std::uint32_t> parse_number(std::string_view text, std::uint32_t max) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value > max) return std::nullopt;
    return value;
}

std::string parse_range(std::string_view name, std::string_view value, std::uint32_t min, std::uint32_t max,
                        const char* zero, std::uint32_t& out) {
    const auto number = parse_number(value, max);
    if (!number || (*number != 0 && *number < min)) {
        return refusal(name, value,
                       "it is " + std::to_string(min) + " to " + std::to_string(max) + ", or 0: " + zero);
    }
    out = *number;
    return {};
}

std::optional<IpAddress> parse_host(std::string_view text) {
    if (text.size() > 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
    const auto address = parse_ip(text);
    if (!address || !may_be_source(address->bytes.data(), address->is_v6())) return std::nullopt;
    return address;
}

std::string parse_own_address(std::string_view text, std::string_view where, IpAddress& address,
                              unsigned& prefix_bits) {
    const std::size_t slash = text.find('/');
    const std::string_view host = text.substr(0, slash);
    const auto parsed = parse_host(host);
    if (!parsed) {
        return std::string(where) + ": " + quoted(host) +
               " is not an address that an interface can have; give its own IPv4 or IPv6 address, perhaps with a "
               "prefix length: 10.0.0.1/24, fd00::1/64";
    }
    address = *parsed;
    prefix_bits = 0;
    if (slash == std::string_view::npos) return {};
    const auto prefix = parse_number(text.substr(slash + 1), address.bits);
    if (!prefix) {
        return std::string(where) + ": " + quoted(text.substr(slash + 1)) +
               " is not a prefix length; it is 0 to " + std::to_string(address.bits);
    }
    prefix_bits = *prefix;
    return names_no_host(address, prefix_bits)
               ? std::string(where) + ": " + quoted(text) +
                     " is no host's address but its network's own, or the one that "
                     "is broadcast to; give the interface's own, as in 10.0.0.1/24"
               : std::string();
}

std::string parse_gateway(std::string_view value, IpAddress& out) {
    const auto address = parse_host(value);
    if (!address) return refusal("gateway", value, "not the IP address of a host, as in gateway=10.0.0.254");
    out = *address;
    return {};
}

std::string check_gateway(const IpAddress& gateway, const IpAddress& address, unsigned prefix_bits) {
    const std::string text = to_text(gateway), own = to_text(address);
    if (gateway.bits != address.bits) return refusal("gateway", text, own + " is of the other family");
    if (prefix_bits == 0) {
        return refusal("gateway", text,
                       "without a prefix length everybody counts as on the link; give " + own +
                           "/PREFIX, as in bind_host=" + own + (address.is_v6() ? "/64" : "/24"));
    }
    if (gateway == address) return refusal("gateway", text, "it is the interface's own address");
    if (names_no_host(gateway, prefix_bits))
        return refusal("gateway", text, "it is no host's address on this link");
    if (!is_link_local(gateway) && !in_prefix(gateway, address, prefix_bits))
        return refusal("gateway", text, "it is not on the link of " + own + "/" + std::to_string(prefix_bits));
    return {};
}

std::string parse_neighbour(std::string_view value, std::vector<StaticNeighbour>& out) {
    const std::size_t at = value.rfind('@');
    const auto ip = parse_host(value.substr(0, at));
    const auto mac = at == std::string_view::npos ? std::nullopt : parse_mac(value.substr(at + 1));
    if (!ip || !mac || !is_station(*mac)) {
        return refusal("neighbour", value,
                       "give an IP address and the Ethernet address of one station, as in "
                       "neighbour=10.0.0.2@aa:bb:cc:dd:ee:ff");
    }
    if (std::any_of(out.begin(), out.end(), [&](const StaticNeighbour& other) { return other.ip == *ip; }))
        return refusal("neighbour", value, "this address was given before");
    if (out.size() == Interface::static_neighbours_max) {
        return refusal("neighbour", value,
                       "more than " + std::to_string(Interface::static_neighbours_max) + " are not kept");
    }
    out.push_back({*ip, *mac});
    return {};
}

std::string check_neighbours(std::span<const StaticNeighbour> neighbours, std::span<const IpAddress> addresses) {
    for (const StaticNeighbour& neighbour : neighbours) {
        const auto of_its_family = [&](const IpAddress& own) { return own.bits == neighbour.ip.bits; };
        if (std::none_of(addresses.begin(), addresses.end(), of_its_family)) {
            return refusal("neighbour", to_text(neighbour.ip) + "@" + to_text(neighbour.mac),
                           "no address of this side is of its family");
        }
    }
    return {};
}

}  // namespace dlcp::ipstack
