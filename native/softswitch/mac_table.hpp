// Maps a MAC address to its port or group: learnt from arriving frames, or static.
//
// Bounded: sets of eight entries, chosen by a hash of the address. If a set is full of live entries the address is not
// learnt, and is flooded as if unknown. An entry expires when it was not heard for the ageing time (IEEE 802.1Q, 8.8).
// Static entries stay and are never relearnt.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "softswitch/time.hpp"

namespace dlcp::softswitch {

// A port, or a group of ports.
struct Target {
    std::uint16_t index = 0;
    bool is_group = false;

    friend bool operator==(const Target&, const Target&) = default;
};

// The six bytes as a number, the first of them highest.
inline std::uint64_t mac_at(const std::uint8_t* p) {
    std::uint64_t mac = 0;
    for (int i = 0; i < 6; ++i) mac = mac << 8 | p[i];
    return mac;
}

class MacTable {
public:
    struct Counters {
        std::uint64_t learnt = 0;  // addresses that were not known
        std::uint64_t moved = 0;   // heard behind something else than before
        std::uint64_t full = 0;    // not learnt, since there was no room
    };
    struct Entry {
        std::uint64_t mac = 0;
        Time heard{};
        Target target;
        bool used = false;
        bool told = false;
    };

    MacTable(std::uint32_t addresses, Time ageing) : ageing_(ageing) {
        std::uint32_t sets = 1;
        while (sets * ways < addresses) sets *= 2;
        sets_.resize(sets);
        shift_ = 64;
        for (; sets > 1; sets /= 2) --shift_;
    }

    // nullptr: not known.
    const Target* find(std::uint64_t mac, Time now) const {
        for (const Entry& entry : set_of(mac)) {
            if (entry.used && entry.mac == mac) return live(entry, now) ? &entry.target : nullptr;
        }
        return nullptr;
    }

    void learn(std::uint64_t mac, Target target, Time now) {
        Entry* room = nullptr;
        for (Entry& entry : set_of(mac)) {
            if (entry.used && entry.mac == mac) {
                if (entry.told) return;
                if (!(entry.target == target)) {
                    if (live(entry, now)) ++counters_.moved;
                    entry.target = target;
                }
                entry.heard = now;
                return;
            }
            if (room == nullptr && !live(entry, now)) room = &entry;
        }
        if (room == nullptr) {
            ++counters_.full;
            return;
        }
        ++counters_.learnt;
        *room = {mac, now, target, true, false};
    }

    // If a set is full of static entries, the new one is counted and not kept.
    void tell(std::uint64_t mac, Target target) {
        Entry* room = nullptr;
        for (Entry& entry : set_of(mac)) {
            if (entry.used && entry.mac == mac) {
                room = &entry;
                break;
            }
            if (room == nullptr && !entry.told) room = &entry;
        }
        if (room == nullptr)
            ++counters_.full;
        else
            *room = {mac, Time{}, target, true, true};
    }

    void forget_all() {
        for (Set& set : sets_) set.fill({});
    }

    std::vector<Entry> entries(Time now) const {
        std::vector<Entry> out;
        for (const Set& set : sets_) {
            for (const Entry& entry : set) {
                if (live(entry, now)) out.push_back(entry);
            }
        }
        return out;
    }
    const Counters& counters() const { return counters_; }

private:
    static constexpr std::uint32_t ways = 8;
    using Set = std::array<Entry, ways>;

    bool live(const Entry& entry, Time now) const {
        return entry.used && (entry.told || now - entry.heard <= ageing_);
    }
    std::size_t index_of(std::uint64_t mac) const {
        return shift_ == 64 ? 0 : mac * 0x9e3779b97f4a7c15U >> shift_;
    }
    Set& set_of(std::uint64_t mac) { return sets_[index_of(mac)]; }
    const Set& set_of(std::uint64_t mac) const { return sets_[index_of(mac)]; }

    Time ageing_;
    std::vector<Set> sets_;
    unsigned shift_ = 64;
    Counters counters_;
};

}  // namespace dlcp::softswitch
