// Receiver credit: shares this host's line rate between the senders that want to send to it.
//
// One quantum at a time, in turn over the peers whose demand is not granted yet, paced at the line rate, so that
// what arrives never exceeds what the link carries (EQDS, NSDI'22). Totals are cumulative: a lost grant is repaired by
// the next one.
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
        for (std::size_t tries = 0; tries < peers_.size(); ++tries) {
            turn_ = (turn_ + 1) % static_cast<std::uint32_t>(peers_.size());
            Entry& peer = peers_[turn_];
            if (!open(peer)) continue;
            // Without a line rate there is nothing to share: all at once.
            peer.granted = spacing_ == Duration{0} ? peer.demand : std::min(peer.granted + quantum_, peer.demand);
            // A host that was late may catch up by one quantum, not by everything it missed.
            next_at_ = earliest_ = std::max(next_at_, now - spacing_) + spacing_;
            return turn_;
        }
        next_at_ = time_never;
        return none;
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

    Bytes quantum_;
    Duration spacing_;
    std::vector<Entry> peers_;
    std::uint32_t turn_ = 0;
    Time next_at_ = time_never;
    Time earliest_{INT64_MIN};
};

}  // namespace dlcp
