#include "softswitch/configuration.hpp"

namespace dlcp::softswitch {

std::string Configuration::validate(std::size_t port_count) const {
    if (ports.size() != port_count)
        return std::to_string(ports.size()) + " ports are configured; accepted: " + std::to_string(port_count);
    for (std::size_t p = 0; p < ports.size(); ++p) {
        const std::string where = "port " + std::to_string(p) + ": ";
        const switching::Policy& policy = ports[p].policy;
        if (const std::string wrong = policy.validate(); !wrong.empty()) return where + wrong;
        if (policy.pause_above_bytes != switching::never)
            return where + "pause_above_bytes is " + std::to_string(policy.pause_above_bytes) +
                   "; accepted: none, a software switch cannot pause the sender "
                   "behind an interface (IEEE 802.1Qbb)";
        if (ports[p].rate_bps > max_rate_bps)
            return where + "rate_bps is " + std::to_string(ports[p].rate_bps) + "; accepted: 0 to " +
                   std::to_string(max_rate_bps);
        if (policy.shared_bytes != ports[0].policy.shared_bytes)
            return where + "shared_bytes is " + std::to_string(policy.shared_bytes) +
                   "; accepted: that of the other ports, " + std::to_string(ports[0].policy.shared_bytes);
    }
    std::vector<bool> grouped(ports.size());
    for (std::size_t g = 0; g < groups.size(); ++g) {
        if (groups[g].empty()) return "group " + std::to_string(g) + " has no ports; accepted: at least one";
        for (const std::uint16_t port : groups[g]) {
            if (port >= ports.size())
                return "group " + std::to_string(g) + " names port " + std::to_string(port) + "; accepted: 0 to " +
                       std::to_string(ports.size() - 1);
            if (grouped[port]) return "port " + std::to_string(port) + " is in two groups; accepted: one at most";
            grouped[port] = true;
        }
    }
    for (const auto& [mac, target] : addresses) {
        if (target.index >= (target.is_group ? groups.size() : ports.size()))
            return "an address lies behind " + std::string(target.is_group ? "group " : "port ") +
                   std::to_string(target.index) + ", which is not there";
    }
    if (classification.foreign_class >= switching::traffic_classes)
        return "foreign_class is " + std::to_string(classification.foreign_class) + "; accepted: 0 to 7";
    for (const std::uint8_t c : classification.class_of_dscp) {
        if (c != switching::foreign_dscp && c >= switching::traffic_classes)
            return "a DSCP's class is " + std::to_string(c) + "; accepted: 0 to 7";
    }
    return switching::validate(aggregation, port_count);
}

}  // namespace dlcp::softswitch
