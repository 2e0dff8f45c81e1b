// Receiver credit: shares this host's line rate between the senders that want to send to it.
//
// One quantum at a time, paced at the line rate, so that what arrives never exceeds what the link carries (EQDS,
// NSDI'22). The peer with the least left to be granted is first, which makes the mean wait the shortest (pFabric,
// SIGCOMM'13; Homa, SIGCOMM'18); every eighth quantum goes to the peers in turn, so that nobody starves. Totals are
// cumulative: a lost grant is repaired by the next one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/units.hpp"

namespace dlcp {

class GrantScheduler {
public:
    GrantScheduler(Rate line_rate, Bytes quantum)
        : quantum_(quantum), spacing_(time_to_send(quantum, line_rate)) {}

    // `demand`: total bytes the peer has ever wanted to send beyond its unscheduled window. Totals only grow.
    void want(Time now, std::uint32_t peer, Bytes demand) {
        if (peer >= peers_.size()) peers_.resize(peer + 1);
        Entry& entry = peers_[peer];
        entry.demand = std::max(entry.demand, std::min(demand, entry.granted + most_at_once));
        if (next_at_ == time_never && open(entry)) next_at_ = std::max(now, earliest_);
    }
    void forget(std::uint32_t peer) {
        if (peer < peers_.size()) peers_[peer] = {};
    }
    Time next() const { return next_at_; }
    Bytes granted(std::uint32_t peer) const { return peer < peers_.size() ? peers_[peer].granted : Bytes{0}; }

    // At or after next(): the peer that gets the next quantum; none if no demand is left. Repeat while next() <= now.
    std::uint32_t grant(Time now) {
        const std::uint32_t chosen = ++quanta_ % quanta_per_turn == 0 ? next_in_turn() : least_left();
        if (chosen == none) {
            next_at_ = time_never;
            return none;
        }
        Entry& peer = peers_[chosen];
        // Without a line rate there is nothing to share: all at once.
        peer.granted = spacing_ == Duration{0} ? peer.demand : std::min(peer.granted + quantum_, peer.demand);
        // A host that was late may catch up by one quantum, not by everything it missed.
        next_at_ = earliest_ = std::max(next_at_, now - spacing_) + spacing_;
        return chosen;
    }
    static constexpr std::uint32_t none = UINT32_MAX;

private:
    // A larger demand takes effect once this much has been granted: one frame cannot ask for unlimited credit.
    static constexpr Bytes most_at_once{std::uint64_t{1} << 34};

    struct Entry {
        Bytes demand{0};
        Bytes granted{0};
    };
    static bool open(const Entry& peer) { return peer.granted < peer.demand; }
    static constexpr std::uint32_t quanta_per_turn = 8;

    // Of equals the next in turn.
    std::uint32_t least_left() {
        std::uint32_t chosen = none;
        const auto count = static_cast<std::uint32_t>(peers_.size());
        for (std::uint32_t i = 1; i <= count; ++i) {
            const std::uint32_t at = (turn_ + i) % count;
            const Entry& peer = peers_[at];
            if (open(peer) &&
                (chosen == none || peer.demand - peer.granted < peers_[chosen].demand - peers_[chosen].granted))
                chosen = at;
        }
        return chosen;
    }
    std::uint32_t next_in_turn() {
        for (std::size_t tries = 0; tries < peers_.size(); ++tries) {
            turn_ = (turn_ + 1) % static_cast<std::uint32_t>(peers_.size());
            if (open(peers_[turn_])) return turn_;
        }
        return none;
    }

    Bytes quantum_;
    Duration spacing_;
    std::vector<Entry> peers_;
    std::uint32_t turn_ = 0;
    std::uint32_t quanta_ = 0;
    Time next_at_ = time_never;
    Time earliest_{INT64_MIN};
};

}  // namespace dlcp
