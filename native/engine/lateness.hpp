// How late something may be that is late rarely: the longest of late, forgotten slowly.
//
// A peer that shares its cores is not scheduled now and then, and an average has forgotten that when it happens again.
// What was seen counts half after 256 times its own length: 1 s for 4 ms.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/units.hpp"

namespace dlcp {

class Lateness {
public:
    void note(Time now, Duration late) {
        if (late < at(now)) return;
        late_ = std::min(late, most);
        noted_ = now;
    }
    Duration at(Time now) const {
        if (late_.value == 0) return late_;
        const std::int64_t halvings = (now - noted_).value / (late_.value * memory);
        return {halvings < 63 ? late_.value >> halvings : 0};
    }

private:
    static constexpr std::int64_t memory = 256;
    static constexpr Duration most = seconds(1);

    Duration late_{0};
    Time noted_{0};
};

}  // namespace dlcp
