// What a switch does with one packet at one output queue: keep, mark, trim or drop; and which of equal paths it takes.
//
// Pure functions of headers, depths and a random word; P4 makes the same decision, golden vectors hold the two
// together. Inline: a simulator asks at every hop.
#pragma once

#include <cstdint>

#include "switch/policy.hpp"

namespace dlcp::switching {

struct PacketHeaders {
    std::uint8_t traffic_class = 0;  // 0..7
    std::uint8_t importance = 0;
    bool ecn_capable = false;  // critical, or ordinary traffic that reacts to marks
    bool trimmable = false;    // carries a payload that a switch may cut off
    bool foreign = false;      // of no class of the policy: only the buffer's end touches it
    std::uint32_t bytes = 0;   // on the wire
};

struct Depths {
    std::uint32_t queue_bytes = 0;        // waiting in this class's queue
    std::uint32_t port_bytes = 0;         // waiting at this port
    std::uint32_t shared_free_bytes = 0;  // of the switch's buffer; only with Policy::shared_bytes
};

enum class Action : std::uint8_t { keep, mark, trim, drop };

inline std::size_t level_of(const PacketHeaders& packet) {
    return packet.ecn_capable ? critical_level : packet.importance >> 5;
}

// Room for `bytes` more in the buffer?
inline bool fits(const Policy& policy, const Depths& depths, std::uint32_t bytes) {
    if (policy.shared_bytes != 0) {
        const std::uint64_t free = depths.shared_free_bytes;
        const std::uint64_t limit =
            policy.shared_alpha_log2 >= 0 ? free << policy.shared_alpha_log2 : free >> -policy.shared_alpha_log2;
        return bytes <= free && std::uint64_t{depths.queue_bytes} + bytes <= limit;
    }
    return std::uint64_t{depths.port_bytes} + bytes <= policy.port_bytes;
}

// Marks between mark_from and mark_full rise in so many equal steps, each with the ratio of its middle: what a
// match-action table holds as ranges, since P4 does not divide.
inline constexpr std::uint32_t mark_steps = 16;

// Of 65536, for a depth in between.
inline std::uint32_t mark_ratio_at(const Thresholds& at, std::uint32_t depth_bytes) {
    const std::uint64_t step =
        std::uint64_t{mark_steps} * (depth_bytes - at.mark_from_bytes) / (at.mark_full_bytes - at.mark_from_bytes);
    return static_cast<std::uint32_t>(at.mark_ratio * (2 * step + 1) / (2 * mark_steps));
}

// `random`: 32 independent bits per packet.
inline Action decide(const Policy& policy, const PacketHeaders& packet, const Depths& depths,
                     std::uint32_t random) {
    if (packet.foreign) return fits(policy, depths, packet.bytes) ? Action::keep : Action::drop;
    const Thresholds& at = policy.classes[packet.traffic_class].level[level_of(packet)];
    const std::uint32_t depth = depths.queue_bytes;
    if (depth > at.drop_above_bytes) return Action::drop;
    const bool room = fits(policy, depths, packet.bytes);
    // Also where the buffer ends, but only at a level that is trimmed at all.
    if (packet.trimmable && at.trim_above_bytes != never && (depth > at.trim_above_bytes || !room))
        return Action::trim;
    if (!room) return Action::drop;
    if (!packet.ecn_capable || depth <= at.mark_from_bytes) return Action::keep;
    if (depth >= at.mark_full_bytes) return Action::mark;
    return (random & 0xffff) < mark_ratio_at(at, depth) ? Action::mark : Action::keep;
}

// What becomes of a packet in the end. None of them: it waits, as it came.
struct Verdict {
    bool marked = false;
    bool trimmed = false;  // cut, and in the class that trimmed packets go on in; dropped there, if `dropped` too
    bool dropped = false;

    friend bool operator==(const Verdict&, const Verdict&) = default;
};

// decide(), and what follows when it says trim: the packet, cut to `trimmed_bytes`, has to find room once more, in the
// class that trimmed packets go on in, where `trimmed_depths` wait.
inline Verdict admit(const Policy& policy, const PacketHeaders& packet, const Depths& depths, std::uint32_t random,
                     std::uint32_t trimmed_bytes, const Depths& trimmed_depths) {
    switch (decide(policy, packet, depths, random)) {
        case Action::keep: return {};
        case Action::mark: return {.marked = true};
        case Action::drop: return {.dropped = true};
        case Action::trim: break;
    }
    PacketHeaders cut = packet;
    cut.traffic_class = policy.trimmed_class;
    cut.trimmable = false;
    cut.bytes = trimmed_bytes;
    return {.trimmed = true, .dropped = decide(policy, cut, trimmed_depths, 0) == Action::drop};
}

// One of `paths` equal ways from 32 bits that decide: a hash, a random word.
inline std::uint32_t pick(std::uint32_t word, std::uint32_t paths) {
    return static_cast<std::uint32_t>(std::uint64_t{word} * paths >> 32);
}

// Spreads bits (the finaliser of MurmurHash3 by A. Appleby, public domain): hash of flow or path id with the switch's
// salt.
inline std::uint32_t mix(std::uint32_t value, std::uint32_t salt) {
    std::uint32_t h = value ^ salt * 0x9e3779b9U;
    h ^= h >> 16;
    h *= 0x85ebca6bU;
    h ^= h >> 13;
    h *= 0xc2b2ae35U;
    h ^= h >> 16;
    return h;
}

// What a path is chosen by; each choice reads what it needs.
struct PathInputs {
    std::uint32_t flow = 0;    // what all packets of a flow, in one direction, have in common and others have not
    std::uint16_t path = 0;    // path id, written by the host
    std::uint32_t salt = 0;    // the switch's, so that switches behind each other choose independently
    std::uint32_t turn = 0;    // how many packets chose here before
    std::uint64_t random = 0;  // independent bits per packet
};

// Of equal paths, the two to look at: the one of them behind which less waits is taken, of equal ones the first. Only
// PathChoice::adaptive has two different ones.
struct PathPair {
    std::uint32_t first;
    std::uint32_t second;
};

inline PathPair choose_path(PathChoice choice, const PathInputs& in, std::uint32_t paths) {
    const auto same = [](std::uint32_t path) { return PathPair{path, path}; };
    switch (choice) {
        case PathChoice::flow_hash: return same(pick(mix(in.flow, in.salt), paths));
        case PathChoice::path_id: {
            // The id is spread (FNV's prime) before it meets the flow, so that neighbours in both do not cancel out.
            const std::uint32_t word = mix(in.flow, 0) ^ in.path * 0x01000193U;
            return same(pick(mix(word, in.salt), paths));
        }
        case PathChoice::random: return same(pick(static_cast<std::uint32_t>(in.random), paths));
        case PathChoice::round_robin: return same(in.turn % paths);
        case PathChoice::adaptive:
            return {pick(static_cast<std::uint32_t>(in.random), paths),
                    pick(static_cast<std::uint32_t>(in.random >> 32), paths)};
    }
    return same(0);
}

}  // namespace dlcp::switching
