// Which path the next run takes, and how well each path does.
//
// Weighted round robin over the paths that are up. A path's weight falls with its recent loss, marks and
// delay compared with the other paths, and is halved by each loss in a row until something arrives again, so that paths
// which die together are left before any of them is sure to be dead. A path that loses far more than the rest, or answers
// nothing while others do, is down: it carries only a single packet now and then, at doubling intervals, until those
// arrive again.
// Invariant: at least one path is up.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/counters.hpp"
#include "engine/units.hpp"

namespace dlcp {

class PathSet {
public:
    struct Choice {
        std::uint16_t path = 0;
        bool single = false;  // a trial of a path that is down: send one packet, not a run
    };
    // A path that went down or came up, to be told to the application.
    struct Change {
        std::uint16_t path;
        bool up;
    };

    void reset(std::uint16_t paths);

    // The path for the next run. `round_trip` paces the trials of paths that are down.
    Choice choose(Time now, Duration round_trip);
    // Some path that is up: for control packets. By chance, not in turn, so that no rhythm of them always meets the
    // same bad path.
    std::uint16_t any_up(std::uint64_t chance) const;
    // Any path at all: when nothing is answered, the one that is up may be the bad one.
    std::uint16_t any(std::uint64_t chance) const { return static_cast<std::uint16_t>(chance % paths_.size()); }

    void on_sent(std::uint16_t path) { ++paths_[path].sent; }
    void on_acked(std::uint16_t path, bool ce);
    void on_lost(std::uint16_t path);
    void on_rtt(std::uint16_t path, Duration rtt);
    // Has enough been heard since they were judged to judge them anew? As many packets as there are paths, or a path died
    // or lives again. Their shares remember 64 packets each, so oftener shows nothing new.
    bool due() const { return news_ >= paths_.size(); }
    // Judges the paths anew. Changes are appended to `changes`.
    void update(Time now, Duration round_trip, std::vector<Change>& changes);

    std::size_t statistics(std::span<PathStatistics> out) const;

private:
    // A cache line: every packet touches its path's twice, and hosts have many.
    struct alignas(64) Path {
        std::uint64_t sent = 0;
        std::uint64_t acked = 0;
        std::uint64_t lost = 0;
        std::uint64_t ce = 0;
        std::uint32_t loss = 0;   // recent share, in 2^-20
        std::uint32_t marks = 0;  // recent share, in 2^-20
        std::uint32_t lost_in_a_row = 0;
        std::uint32_t acked_in_a_row = 0;
        Duration rtt{0};
        std::int32_t weight = full_weight;  // as last judged
        bool up = true;
    };
    static_assert(sizeof(Path) == 64);
    // Of a path that is down.
    struct Trial {
        Time at{0};  // when to try it again
        Duration interval{0};
    };
    static constexpr std::int32_t full_weight = 1024;
    static constexpr std::int32_t least_weight = full_weight / 64;
    static constexpr std::uint32_t one = 1u << 20;
    static constexpr std::uint32_t most_news = 64;  // paths at most

    void take_down(std::uint16_t index, Time now, Duration round_trip, std::vector<Change>& changes);
    void bring_up(std::uint16_t index);
    void weigh(std::uint16_t index);
    void set_weight(std::uint16_t index, std::int32_t weight);
    std::uint32_t ups() const;

    std::vector<Path> paths_;
    std::vector<Trial> trials_;
    // What every choice goes over, apart and dense. Of a path that is down: 0.
    std::vector<std::int32_t> weights_;
    std::vector<std::int32_t> savings_;  // below the price
    std::int32_t price_ = full_weight;   // of a packet: the greatest weight
    std::size_t turn_ = 0;               // whose it was last
    std::uint32_t downs_ = 0;
    std::uint32_t news_ = 0;  // packets acknowledged or lost since the last judgement
};

}  // namespace dlcp
