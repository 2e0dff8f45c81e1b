// Asks ethtool for the names and states of an interface's features.
#include "io/xdp/features.hpp"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace dlcp::xdp {

namespace {

constexpr std::uint32_t features_per_block = 32;

// A command of ethtool, with room for what the kernel writes behind its `Head`.
template <class Head>
class Command {
public:
    explicit Command(std::uint32_t number, std::size_t more_bytes) : words_((sizeof(Head) + more_bytes + 7) / 8) {
        head().cmd = number;
    }
    Head& head() { return *reinterpret_cast<Head*>(words_.data()); }
    bool ask(int socket, const std::string& interface_name) {
        ifreq request = {};
        strncpy(request.ifr_name, interface_name.c_str(), IFNAMSIZ - 1);
        request.ifr_data = reinterpret_cast<char*>(words_.data());
        return ioctl(socket, SIOCETHTOOL, &request) == 0;
    }

private:
    std::vector<std::uint64_t> words_;
};

// Of the kernel, not of the interface: all have the same list.
std::uint32_t count_features(int socket, const std::string& interface_name) {
    Command<ethtool_sset_info> sets(ETHTOOL_GSSET_INFO, sizeof(std::uint32_t));
    sets.head().sset_mask = std::uint64_t{1} << ETH_SS_FEATURES;
    return sets.ask(socket, interface_name) && sets.head().sset_mask != 0 ? sets.head().data[0] : 0;
}

}  // namespace

std::set<std::string> active_features(int socket, const std::string& interface_name) {
    const std::uint32_t count = count_features(socket, interface_name);
    const std::uint32_t blocks = (count + features_per_block - 1) / features_per_block;
    Command<ethtool_gstrings> names(ETHTOOL_GSTRINGS, std::size_t{count} * ETH_GSTRING_LEN);
    names.head().string_set = ETH_SS_FEATURES;
    Command<ethtool_gfeatures> states(ETHTOOL_GFEATURES, blocks * sizeof(ethtool_get_features_block));
    states.head().size = blocks;
    std::set<std::string> out;
    if (count == 0 || !names.ask(socket, interface_name) || !states.ask(socket, interface_name)) return out;
    for (std::uint32_t i = 0; i < std::min(count, names.head().len); ++i) {
        if ((states.head().features[i / features_per_block].active >> i % features_per_block & 1) == 0) continue;
        const char* const name =
            reinterpret_cast<const char*>(names.head().data) + std::size_t{i} * ETH_GSTRING_LEN;
        out.emplace(name, strnlen(name, ETH_GSTRING_LEN));
    }
    return out;
}

}  // namespace dlcp::xdp
