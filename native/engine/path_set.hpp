// Which path the next run takes, and how well each path does.
//
// Weighted round robin over the paths that are up. A path's weight falls with its recent loss, marks and delay relative
// to the other paths. Each loss in a row halves it until an acknowledgement arrives, so that traffic leaves paths that
// die together before any one is known to be dead. A path that loses far more than the rest, or gets no answer while
// others do, is down: it carries single packets at doubling intervals until those arrive again. What was lost once goes
// where the last packet is known to have arrived: paths that die together are learnt of one by one, and a repair lost on
// each costs a timeout each. Invariant: at least one path is up.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/counters.hpp"
#include "engine/prefetch.hpp"
#include "engine/units.hpp"

namespace dlcp {

class PathSet {
public:
    struct Choice {
        std::uint16_t path = 0;
        bool single = false;  // a trial of a path that is down: send one packet, not a run
    };
    // A path that went down or came up; reported to the application.
    struct Change {
        std::uint16_t path;
        bool up;
    };

    void reset(std::uint16_t paths);

    // The path for the next run, one of the first `among` that are up. `round_trip` paces the trials of paths that are
    // down. `repairs`: of blocks that were lost before; while some paths are doubtful, on one of all that is proven, if
    // there is one, and no trial.
    Choice choose(Time now, Duration round_trip, std::size_t among, bool repairs = false);
    // The last packet whose fate is known was lost.
    bool doubtful(std::uint16_t path) const { return paths_[path].lost_in_a_row > 0; }
    // Up, and the last packet whose fate is known came through, whole or trimmed.
    bool proven(std::uint16_t path) const { return paths_[path].up && paths_[path].came_through; }
    // A path that is up, for control packets. Chosen at random, not in turn, so that periodic control packets do not
    // keep meeting the same bad path.
    std::uint16_t any_up(std::uint64_t chance) const;
    // A path that is proven, if there is one, else one that is up.
    std::uint16_t any_proven(std::uint64_t chance) const;
    // Any path, up or down: when nothing is answered, the path that is up may be the bad one.
    std::uint16_t any(std::uint64_t chance) const { return static_cast<std::uint16_t>(chance % paths_.size()); }

    void on_sent(std::uint16_t path) { ++sent_[path]; }
    void on_acked(std::uint16_t path, bool ce);
    void on_lost(std::uint16_t path);
    // The header came through: a full queue, not a bad path.
    void on_trimmed(std::uint16_t path);
    void on_rtt(std::uint16_t path, Duration rtt);
    // Whether enough was learned since the last judgement to judge the paths again: as many packets as there are paths,
    // or a path died or came back. Shares cover 64 packets each, so judging more often would show nothing new.
    bool due() const { return news_ >= paths_.size(); }
    // Judges the paths again. Changes are appended to `changes`.
    void update(Time now, Duration round_trip, std::vector<Change>& changes);

    // What choose() and on_sent() touch next, most likely.
    void prefetch_next() const {
        prefetch(weights_.data() + turn_);
        prefetch(savings_.data() + turn_);
        prefetch(sent_.data() + turn_);
    }

    std::size_t statistics(std::span<PathStatistics> out) const;

private:
    // One cache line: every acknowledged packet reads and writes its path's record, and hosts have many paths.
    struct alignas(64) Path {
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
        bool came_through = false;  // the last packet whose fate is known
    };
    static_assert(sizeof(Path) == 64);
    // For a path that is down.
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
    std::size_t end_of_first_up(std::size_t among) const;
    bool has_doubtful() const;
    bool has_proven() const;

    std::vector<Path> paths_;
    std::vector<Trial> trials_;
    // What every packet sent touches, kept apart and dense: paths take turns, so the next one is in the cache.
    std::vector<std::uint64_t> sent_;
    // 0 for a path that is down.
    std::vector<std::int32_t> weights_;
    std::vector<std::int32_t> savings_;  // earned and not spent, below price_
    std::int32_t price_ = full_weight;   // cost of a packet: the greatest weight
    std::size_t turn_ = 0;               // index of the path chosen last
    std::uint32_t downs_ = 0;
    std::uint32_t news_ = 0;  // packets acknowledged or lost since the last judgement
};

}  // namespace dlcp
