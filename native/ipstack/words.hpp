// An interface's settings as text: the words that the drivers below the kernel share.
//
// What cannot be is answered with a sentence for a person, which names the word, the value and what is accepted; an
// empty one means that all is well.
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
std::string_view next_word(std::string_view& rest);
// Which of `words` was meant most likely: the one that the fewest letters inserted, deleted, changed or swapped make.
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> words);

std::optional<std::uint32_t> parse_number(std::string_view text, std::uint32_t max);
// `min` to `max`, or 0, which stands for `zero`.
std::string parse_range(std::string_view word, std::string_view value, std::uint32_t min, std::uint32_t max,
                        const char* zero, std::uint32_t& out);
// One of `choices`.
template <typename Enum>
std::string parse_choice(std::string_view word, std::string_view value,
                         std::initializer_list<std::pair<std::string_view, Enum>> choices, Enum& out) {
    std::string names;
    for (const auto& [name, choice] : choices) {
        if (value == name) {
            out = choice;
            return {};
        }
        names.append(names.empty() ? "" : ", ").append(name);
    }
    return std::string(word).append("=").append(value).append(": it is one of ").append(names);
}

// "10.0.0.1", "fd00::1", "[fd00::1]" of one host on a network: no group, not "any", no loopback.
std::optional<IpAddress> parse_host(std::string_view text);
// "ADDRESS[/PREFIX]" of the interface itself; `where` is the word that said it.
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
