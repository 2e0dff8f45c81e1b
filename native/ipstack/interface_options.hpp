// An interface's settings as text: the options that the drivers below the kernel share.
//
// A function that returns a std::string refuses a value by a sentence for a person, which names the option, the value and
// what is accepted; an empty one means that the value is taken.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ipstack/interface.hpp"

namespace dlcp::ipstack {

// The text up to the next blank, which it is taken off; empty: no more.
std::string_view next_option(std::string_view& rest);

struct Option {
    std::string_view name;
    std::string_view value;
};
// "NAME=VALUE", where NAME is one of `known`; of another name the nearest is proposed.
std::string parse_option(std::string_view text, std::string_view driver, std::span<const std::string_view> known,
                         Option& out);

std::optional<std::uint32_t> parse_number(std::string_view text, std::uint32_t max);
// `min` to `max`, or 0, which stands for `zero`.
std::string parse_range(std::string_view name, std::string_view value, std::uint32_t min, std::uint32_t max,
                        const char* zero, std::uint32_t& out);
// One of `choices`.
template <typename Enum>
std::string parse_choice(std::string_view name, std::string_view value,
                         std::initializer_list<std::pair<std::string_view, Enum>> choices, Enum& out) {
    std::string names;
    for (const auto& [text, choice] : choices) {
        if (value == text) {
            out = choice;
            return {};
        }
        names.append(names.empty() ? "" : ", ").append(text);
    }
    return std::string(name).append("=").append(value).append(": it is one of ").append(names);
}

// "10.0.0.1", "fd00::1", "[fd00::1]" of one host on a network: no group, not "any", no loopback.
std::optional<IpAddress> parse_host(std::string_view text);
// "ADDRESS[/PREFIX]" of the interface itself; `where`: the option that has it.
std::string parse_own_address(std::string_view text, std::string_view where, IpAddress& address,
                              unsigned& prefix_bits);
std::string parse_gateway(std::string_view value, IpAddress& out);
// Whether an interface can reach others through it.
std::string check_gateway(const IpAddress& gateway, const IpAddress& address, unsigned prefix_bits);
// "ADDRESS@MAC", not there yet, is added.
std::string parse_neighbour(std::string_view value, std::vector<StaticNeighbour>& out);
// Whether each neighbour is of the family of one of these addresses.
std::string check_neighbours(std::span<const StaticNeighbour> neighbours, std::span<const IpAddress> addresses);

}  // namespace dlcp::ipstack
