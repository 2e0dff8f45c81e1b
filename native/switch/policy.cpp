// Whether a policy can be carried out: every field within its range, and thresholds in an order that means something.
#include "switch/policy.hpp"

namespace dlcp::switching {
namespace {

std::string refused(const std::string& field, std::uint64_t value, const std::string& accepted) {
    return field + " is " + std::to_string(value) + "; accepted: " + accepted;
}

std::string between(std::uint64_t least, std::uint64_t most) {
    return std::to_string(least) + " to " + std::to_string(most);
}

std::string name_of(std::size_t traffic_class, std::size_t level) {
    const std::string of_class = "class " + std::to_string(traffic_class);
    if (level == critical_level) return of_class + " critical";
    return of_class + " droppable level " + std::to_string(level);
}

// Marking begins before it is full; and what is dropped is neither marked nor trimmed, so that a threshold for those
// above the one for drops would never be met.
std::string check(const Thresholds& at, const std::string& name) {
    if (at.mark_full_bytes < at.mark_from_bytes) {
        return refused(name + " mark_full_bytes", at.mark_full_bytes,
                       "at least mark_from_bytes, " + std::to_string(at.mark_from_bytes));
    }
    const std::string below_drop = "at most drop_above_bytes, " + std::to_string(at.drop_above_bytes);
    if (at.mark_from_bytes != never && at.mark_from_bytes > at.drop_above_bytes) {
        return refused(name + " mark_from_bytes", at.mark_from_bytes, below_drop);
    }
    if (at.trim_above_bytes != never && at.trim_above_bytes > at.drop_above_bytes) {
        return refused(name + " trim_above_bytes", at.trim_above_bytes, below_drop);
    }
    return {};
}

// No packet meets a fate before a less important one of its class.
std::string check_order(const ClassPolicy& of, std::size_t traffic_class) {
    for (std::size_t level = 1; level < droppable_levels; ++level) {
        const Thresholds& lower = of.level[level - 1];
        const Thresholds& higher = of.level[level];
        const std::string name = name_of(traffic_class, level);
        if (higher.drop_above_bytes < lower.drop_above_bytes) {
            return refused(name + " drop_above_bytes", higher.drop_above_bytes,
                           "at least that of the level below, " + std::to_string(lower.drop_above_bytes));
        }
        if (higher.trim_above_bytes < lower.trim_above_bytes) {
            return refused(name + " trim_above_bytes", higher.trim_above_bytes,
                           "at least that of the level below, " + std::to_string(lower.trim_above_bytes));
        }
    }
    return {};
}

}  // namespace

std::string Policy::validate() const {
    for (std::size_t traffic_class = 0; traffic_class < traffic_classes; ++traffic_class) {
        for (std::size_t level = 0; level < levels; ++level) {
            const std::string error = check(classes[traffic_class].level[level], name_of(traffic_class, level));
            if (!error.empty()) return error;
        }
        const std::string error = check_order(classes[traffic_class], traffic_class);
        if (!error.empty()) return error;
    }
    if (path_choice > PathChoice::adaptive) {
        return refused("path_choice", static_cast<std::uint64_t>(path_choice), between(0, 4));
    }
    if (port_bytes == 0) return refused("port_bytes", port_bytes, between(1, never));
    if (shared_alpha_log2 < -max_alpha_log2 || shared_alpha_log2 > max_alpha_log2) {
        return "shared_alpha_log2 is " + std::to_string(shared_alpha_log2) + "; accepted: -" +
               std::to_string(max_alpha_log2) + " to " + std::to_string(max_alpha_log2);
    }
    if (trimmed_bytes < min_trimmed_bytes) {
        return refused("trimmed_bytes", trimmed_bytes, between(min_trimmed_bytes, UINT16_MAX));
    }
    if (trimmed_class >= traffic_classes) {
        return refused("trimmed_class", trimmed_class, between(0, traffic_classes - 1));
    }
    if (resume_below_bytes > pause_above_bytes) {
        return refused("resume_below_bytes", resume_below_bytes,
                       "at most pause_above_bytes, " + std::to_string(pause_above_bytes));
    }
    return {};
}

}  // namespace dlcp::switching
