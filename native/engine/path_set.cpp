#include "engine/path_set.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace dlcp {

namespace {

// Weight of one packet in the recent shares: a memory of about 64 packets. So a path that loses a tenth is detected
// after a few runs, and one lost packet is forgotten soon.
constexpr std::uint32_t memory_shift = 6;

// A path is down when it loses this much more than the median path does: 8 %, between the 1 % of an ordinary
// lossy link and the 30 % of a broken one.
constexpr std::uint32_t down_excess = (1u << 20) / 12;

// This many losses in a row without an acknowledgement between them happen on a path at 1 % loss once in 10^16 packets.
constexpr std::uint32_t dead_run = 8;

// Trials that must arrive in a row before a path is used again. A path that still drops 30 % passes one time in
// three hundred.
constexpr std::uint32_t revival_run = 16;

// Enough halvings from full weight to the least.
constexpr std::uint32_t most_halvings = 6;

constexpr Duration longest_trial_interval = seconds(2);

void drift(std::uint32_t& share, bool event, std::uint32_t one) {
    if (event)
        share += (one - share) >> memory_shift;
    else
        share -= share >> memory_shift;
}

}  // namespace

void PathSet::reset(std::uint16_t paths) {
    paths_.assign(paths, Path{});
    trials_.assign(paths, Trial{});
    sent_.assign(paths, 0);
    weights_.assign(paths, full_weight);
    savings_.assign(paths, 0);
    price_ = full_weight;
    turn_ = paths - 1u;
    downs_ = 0;
    news_ = 0;
}

PathSet::Choice PathSet::choose(Time now, Duration round_trip, std::size_t among, bool repairs) {
    const std::size_t count = paths_.size();
    if (count == 1) return {0, false};
    repairs = repairs && has_doubtful() && has_proven();
    if (downs_ > 0 && !repairs) {
        for (std::uint16_t i = 0; i < static_cast<std::uint16_t>(count); ++i) {
            Trial& trial = trials_[i];
            if (paths_[i].up || now < trial.at) continue;
            trial.interval =
                paths_[i].acked_in_a_row > 0 ? round_trip : std::min(trial.interval * 2, longest_trial_interval);
            trial.at = now + std::max(trial.interval, round_trip);
            return {i, true};
        }
    }
    // Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995): in each round every path earns its weight, and a
    // packet costs the greatest weight. This takes a few steps per packet, and picks no path twice in a row while
    // others are up.
    const std::size_t end = repairs ? count : end_of_first_up(among);
    for (;;) {
        turn_ = turn_ + 1 < end ? turn_ + 1 : 0;
        savings_[turn_] += weights_[turn_];
        if (savings_[turn_] < price_) continue;
        if (repairs && !proven(static_cast<std::uint16_t>(turn_))) {
            savings_[turn_] -= weights_[turn_];  // keeps its turn for what may be lost
            continue;
        }
        savings_[turn_] -= price_;
        return {static_cast<std::uint16_t>(turn_), false};
    }
}

// One past the last of the first `among` paths that are up.
std::size_t PathSet::end_of_first_up(std::size_t among) const {
    if (downs_ == 0 || among >= paths_.size()) return std::min(among, paths_.size());
    std::size_t end = 0;
    for (std::size_t up = 0; end < paths_.size() && up < among; ++end) up += paths_[end].up;
    return end;
}

std::uint16_t PathSet::any_up(std::uint64_t chance) const {
    std::size_t i = chance % paths_.size();
    while (!paths_[i].up) i = (i + 1) % paths_.size();
    return static_cast<std::uint16_t>(i);
}

std::uint16_t PathSet::any_proven(std::uint64_t chance) const {
    if (!has_proven()) return any_up(chance);
    auto i = static_cast<std::uint16_t>(chance % paths_.size());
    while (!proven(i)) i = static_cast<std::uint16_t>((i + 1u) % paths_.size());
    return i;
}

bool PathSet::has_doubtful() const {
    return std::any_of(paths_.begin(), paths_.end(), [](const Path& path) { return path.lost_in_a_row > 0; });
}

bool PathSet::has_proven() const {
    return std::any_of(paths_.begin(), paths_.end(),
                       [](const Path& path) { return path.up && path.came_through; });
}

void PathSet::on_acked(std::uint16_t index, bool ce) {
    Path& path = paths_[index];
    ++path.acked;
    ++path.acked_in_a_row;
    path.came_through = true;
    if (path.lost_in_a_row > 0) {
        path.lost_in_a_row = 0;
        weigh(index);
    }
    if (!path.up) trials_[index].at = Time{0};  // it answers: start the next trial at once
    news_ += !path.up && path.acked_in_a_row >= revival_run ? most_news : 1;
    path.ce += ce;
    drift(path.loss, false, one);
    drift(path.marks, ce, one);
}

void PathSet::on_lost(std::uint16_t index) {
    Path& path = paths_[index];
    ++path.lost;
    ++path.lost_in_a_row;
    path.acked_in_a_row = 0;
    path.came_through = false;
    drift(path.loss, true, one);
    weigh(index);
    news_ += path.lost_in_a_row >= dead_run ? most_news : 1;
}

void PathSet::on_trimmed(std::uint16_t index) {
    Path& path = paths_[index];
    ++path.ce;
    path.came_through = true;
    ++news_;
    drift(path.marks, true, one);
}

void PathSet::on_rtt(std::uint16_t index, Duration rtt) {
    Duration& smoothed = paths_[index].rtt;
    smoothed = smoothed == Duration{0} ? rtt : (smoothed * 7 + rtt) / 8;
}

std::uint32_t PathSet::ups() const { return static_cast<std::uint32_t>(paths_.size()) - downs_; }

void PathSet::bring_up(std::uint16_t index) {
    Path& path = paths_[index];
    path.up = true;
    --downs_;
    path.weight = full_weight;
    weigh(index);
}

void PathSet::weigh(std::uint16_t index) {
    const Path& path = paths_[index];
    if (!path.up) return;
    const std::uint32_t halvings = std::min(path.lost_in_a_row, most_halvings);
    set_weight(index, std::max(path.weight >> halvings, least_weight));
}

void PathSet::set_weight(std::uint16_t index, std::int32_t weight) {
    const std::int32_t before = std::exchange(weights_[index], weight);
    if (weight >= price_)
        price_ = weight;
    else if (before == price_)
        price_ = *std::max_element(weights_.begin(), weights_.end());
}

void PathSet::take_down(std::uint16_t index, Time now, Duration round_trip, std::vector<Change>& changes) {
    Path& path = paths_[index];
    path.up = false;
    ++downs_;
    savings_[index] = 0;
    set_weight(index, 0);
    path.acked_in_a_row = 0;
    trials_[index] = {now + round_trip, round_trip};
    changes.push_back({index, false});
}

void PathSet::update(Time now, Duration round_trip, std::vector<Change>& changes) {
    news_ = 0;
    if (paths_.size() == 1) return;
    // Medians of the paths that are up: what is normal on this network. A fixed array, for at most 64 paths.
    std::array<std::uint32_t, 64> losses{};
    std::array<Duration, 64> delays{};
    std::ptrdiff_t n = 0;
    std::ptrdiff_t timed = 0;
    for (const Path& path : paths_) {
        if (!path.up) continue;
        losses[static_cast<std::size_t>(n++)] = path.loss;
        if (path.rtt > Duration{0}) delays[static_cast<std::size_t>(timed++)] = path.rtt;
    }
    // Mostly nothing is lost, and there is nothing to look for.
    std::uint32_t normal_loss = 0, good_loss = 0;
    if (std::any_of(losses.begin(), losses.begin() + n, [](std::uint32_t loss) { return loss != 0; })) {
        std::nth_element(losses.begin(), losses.begin() + n / 2, losses.begin() + n);
        normal_loss = losses[static_cast<std::size_t>(n / 2)];
        // If half of the paths have died, as with one of a switch's two uplinks, the median is that of a dead path.
        std::nth_element(losses.begin(), losses.begin() + n / 4, losses.begin() + n / 2);
        good_loss = losses[static_cast<std::size_t>(n / 4)];
    }
    Duration normal_delay{0};
    if (timed > 0) {
        std::nth_element(delays.begin(), delays.begin() + timed / 2, delays.begin() + timed);
        normal_delay = delays[static_cast<std::size_t>(timed / 2)];
    }

    const bool all_dead = std::all_of(paths_.begin(), paths_.end(),
                                      [](const Path& path) { return !path.up || path.lost_in_a_row >= dead_run; });
    if (all_dead && ups() < paths_.size()) {
        // The other paths were judged too strictly, or the network has changed: swap.
        for (std::uint16_t i = 0; i < static_cast<std::uint16_t>(paths_.size()); ++i) {
            Path& path = paths_[i];
            if (path.up) {
                take_down(i, now, round_trip, changes);
            } else {
                bring_up(i);
                path.loss = path.lost_in_a_row = 0;
                changes.push_back({i, true});
            }
        }
    }

    for (std::uint16_t i = 0; i < static_cast<std::uint16_t>(paths_.size()); ++i) {
        Path& path = paths_[i];
        if (!path.up) {
            if (path.acked_in_a_row < revival_run) continue;
            bring_up(i);
            path.loss = normal_loss;
            changes.push_back({i, true});
        }
        const std::uint32_t excess = path.loss > normal_loss ? path.loss - normal_loss : 0;
        const bool dead = path.lost_in_a_row >= dead_run && (excess > 0 || path.loss > good_loss + down_excess);
        if (ups() > 1 && (excess > down_excess || dead)) {
            take_down(i, now, round_trip, changes);
            continue;
        }
        // Full weight at normal loss, zero at the excess loss at which the path goes down; halved by full marking;
        // reduced in proportion to a round trip above the median.
        std::int64_t weight = full_weight - std::int64_t{full_weight} * excess / down_excess;
        weight -= weight * path.marks / (2 * one);
        if (normal_delay > Duration{0} && path.rtt > normal_delay)
            weight = weight * normal_delay.value / path.rtt.value;
        path.weight = static_cast<std::int32_t>(std::max<std::int64_t>(weight, least_weight));
        weigh(i);
    }
}

std::size_t PathSet::statistics(std::span<PathStatistics> out) const {
    for (std::size_t i = 0; i < paths_.size() && i < out.size(); ++i) {
        const Path& path = paths_[i];
        out[i] = {static_cast<std::uint16_t>(i),        sent_[i], path.acked, path.lost, path.ce,
                  static_cast<double>(path.loss) / one, path.rtt, path.up};
    }
    return paths_.size();
}

}  // namespace dlcp
