#include "io/xdp/options.hpp"

#include <errno.h>
#include <string.h>

#include <charconv>
#include <string_view>

namespace dlcp::xdp {

namespace {

using ipstack::IpAddress;

constexpr const char* known_words =
    "interface=NAME, queues=N, mode=auto|native|generic, zero_copy=auto|on|off, busy_poll, gateway=ADDRESS, "
    "neighbour=ADDRESS@MAC, vlan=N, checksum=software|none";

bool parse_number(std::string_view text, unsigned& out) {
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), out);
    return problem == std::errc{} && end == text.data() + text.size();
}

int refuse(std::string_view word, const char* accepted, ErrorText error) {
    return error.fail(EINVAL, "datapath option '%.*s': %s", static_cast<int>(word.size()), word.data(), accepted);
}

std::string_view without_brackets(std::string_view text) {
    if (text.size() >= 2 && text.front() == '[' && text.back() == ']') return text.substr(1, text.size() - 2);
    return text;
}

int parse_own_address(const char* bind_host, Options& out, ErrorText error) {
    if (bind_host == nullptr || bind_host[0] == '\0') {
        return error.fail(EINVAL,
                          "the xdp driver needs an IP address of its own, which the kernel does not have: give "
                          "bind_host=ADDRESS or ADDRESS/PREFIX");
    }
    const std::string_view text = bind_host;
    const std::size_t slash = text.find('/');
    const auto address = ipstack::parse_ip(without_brackets(text.substr(0, slash)));
    if (!address || ipstack::is_multicast(*address) || ipstack::is_unspecified(*address)) {
        return error.fail(EINVAL, "bind_host '%s' is no IP address of one host: give ADDRESS or ADDRESS/PREFIX",
                          bind_host);
    }
    out.address = *address;
    if (slash == std::string_view::npos) return 0;
    if (!parse_number(text.substr(slash + 1), out.prefix_bits) || out.prefix_bits < 1 ||
        out.prefix_bits > out.address.bits) {
        return error.fail(EINVAL, "bind_host '%s': the prefix behind the slash is 1 to %u", bind_host,
                          static_cast<unsigned>(out.address.bits));
    }
    return 0;
}

int parse_neighbour(std::string_view word, std::string_view value, Options& out, ErrorText error) {
    const std::size_t at = value.find('@');
    const auto ip = ipstack::parse_ip(value.substr(0, at));
    const auto mac = at == std::string_view::npos ? std::nullopt : ipstack::parse_mac(value.substr(at + 1));
    if (!ip || !mac || ip->bits != out.address.bits)
        return refuse(word, "a neighbour is ADDRESS@MAC, of the family of bind_host", error);
    out.neighbours.push_back({*ip, *mac});
    return 0;
}

// One of `names` to its place among them; -1: none.
int choice(std::string_view value, std::initializer_list<std::string_view> names) {
    int place = 0;
    for (const std::string_view name : names) {
        if (value == name) return place;
        ++place;
    }
    return -1;
}

int parse_word(std::string_view word, Options& out, ErrorText error) {
    const std::size_t equals = word.find('=');
    const std::string_view key = word.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? "" : word.substr(equals + 1);
    if (key == "interface") {
        if (value.empty()) return refuse(word, "name an interface", error);
        if (!out.interface.empty() && out.interface != value)
            return refuse(word, "another interface is named already", error);
        out.interface = value;
    } else if (key == "queues") {
        if (!parse_number(value, out.queues)) return refuse(word, "a number of queues, 0 for all", error);
    } else if (key == "mode") {
        const int mode = choice(value, {"auto", "native", "generic"});
        if (mode < 0) return refuse(word, "auto, native or generic", error);
        out.mode = static_cast<AttachMode>(mode);
    } else if (key == "zero_copy") {
        const int zero_copy = choice(value, {"auto", "on", "off"});
        if (zero_copy < 0) return refuse(word, "auto, on or off", error);
        out.zero_copy = static_cast<ZeroCopy>(zero_copy);
    } else if (word == "busy_poll") {
        out.busy_poll = true;
    } else if (key == "gateway") {
        const auto gateway = ipstack::parse_ip(value);
        if (!gateway || gateway->bits != out.address.bits)
            return refuse(word, "an IP address of the family of bind_host", error);
        out.gateway = *gateway;
    } else if (key == "neighbour") {
        return parse_neighbour(word, value, out, error);
    } else if (key == "vlan") {
        unsigned vlan = 0;
        if (!parse_number(value, vlan) || vlan < 1 || vlan > 4094) return refuse(word, "1 to 4094", error);
        out.vlan = static_cast<std::uint16_t>(vlan);
    } else if (key == "checksum") {
        const int checksum = choice(value, {"software", "none"});
        if (checksum < 0) return refuse(word, "software or none", error);
        out.checksums = checksum == 0 ? ipstack::Checksums::software : ipstack::Checksums::none;
    } else {
        return error.fail(EINVAL, "the xdp driver does not know the word '%.*s'; it knows %s",
                          static_cast<int>(word.size()), word.data(), known_words);
    }
    return 0;
}

}  // namespace

int parse_options(const dlcp_io_config& config, Options& out, ErrorText error) {
    out = {};
    if (const int result = parse_own_address(config.bind_host, out, error); result < 0) return result;
    if (config.interface_name != nullptr) out.interface = config.interface_name;
    std::string_view rest = config.extra != nullptr ? config.extra : "";
    while (!rest.empty()) {
        const std::size_t space = rest.find(' ');
        const std::string_view word = rest.substr(0, space);
        rest = space == std::string_view::npos ? "" : rest.substr(space + 1);
        if (word.empty()) continue;
        if (const int result = parse_word(word, out, error); result < 0) return result;
    }
    if (out.gateway.present() && out.prefix_bits == 0) {
        return error.fail(EINVAL,
                          "a gateway is for who is not on the link, and without a prefix everybody is: give "
                          "bind_host=ADDRESS/PREFIX");
    }
    if (out.mode == AttachMode::generic && out.zero_copy == ZeroCopy::on)
        return error.fail(EINVAL, "zero_copy=on needs the card's driver: use mode=native or auto");
    return 0;
}

}  // namespace dlcp::xdp
