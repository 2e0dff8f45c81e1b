// The neighbours of an interface and what is known of each: the states of RFC 4861, 7.3, for ARP too.
//
//     incomplete ──answer──► reachable ──30 s──► stale ──used──► delay ──5 s──► probe
//         │ 3 requests            ▲                                 │ heard       │ 3 to it, 3 to all
//         ▼                       └─────────────────────────────────┴─────────────┤
//       failed ◄──────────────────────────────────────────────────────────────────┘
//
// Different from the RFC: the first requests follow each other within 50 and 200 ms, for a step of training waits; a
// probe that the last known address does not answer goes on to ask all (a restarted host may have another card), while
// packets still go to the old address (RFC 7048); a failed neighbour that packets wait for is asked once a second.
//
// And: any datagram from the MAC that is known confirms it. RFC 4861, 7.3.1 wants a hint that ours have arrived; here
// most that comes from a peer answers what it got. It spares questions that congestion would lose, and neighbours missed
// for that. The price: while only the path there is broken and the peer still sends by itself, nobody asks and no loss is
// reported here; the engine's own timeout for the peer does that.
//
// Bounded: `neighbours_max` entries. Those that a destination goes through stay; of the others, made by stations that asked for
// us, the oldest goes when there are too many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "engine/deadline_heap.hpp"
#include "engine/units.hpp"
#include "ipstack/address_map.hpp"

namespace dlcp::ipstack {

class Neighbours {
public:
    using Index = std::uint32_t;
    static constexpr Index none = AddressMap<IpAddress>::absent;
    static constexpr std::size_t strangers_max = 1024;  // entries that nothing is sent to

    // What the table has done elsewhere. It may be called from within any call that takes the time.
    class Listener {
    public:
        // Asks who has `ip`: `mac` alone, or all if it is nullptr. False: no room for a question now.
        virtual bool solicit(const IpAddress& ip, const MacAddress* mac) = 0;
        virtual void mac_known(Index neighbour,
                               const MacAddress& mac) = 0;  // for the first time, again, or changed
        virtual void mac_forgotten(Index neighbour) = 0;
        virtual void lost(const IpAddress& ip, const MacAddress& mac) = 0;
        virtual void found(const IpAddress& ip, const MacAddress& mac) = 0;

    protected:
        ~Listener() = default;
    };

    Neighbours(std::size_t neighbours_max, Listener& listener)
        : neighbours_max_(neighbours_max), listener_(listener) {}

    Index find(const IpAddress& ip) const { return index_.find(ip); }
    // The entry of a neighbour that something will be sent to, kept from now on. none: too many.
    Index keep(const IpAddress& ip);
    void add_permanent(const IpAddress& ip, const MacAddress& mac);
    // nullptr: not known.
    const MacAddress* mac_of(Index neighbour) const {
        const Entry& entry = entries_[neighbour];
        return entry.has_mac ? &entry.mac : nullptr;
    }

    // Asks, if it is not known and nobody is asking.
    void ask(Time now, Index neighbour);
    // Something is sent there.
    void used(Time now, Index neighbour);
    // A datagram came from it.
    void heard(Time now, Index neighbour, const MacAddress& mac);
    // It asked for us and said where it is. Makes an entry if there is none.
    void asked_by(Time now, const IpAddress& ip, const MacAddress& mac);
    // It said where it is, asked or not (RFC 4861, 7.2.5; a MAC that is not said is the one known).
    void answered_by(Time now, Index neighbour, const MacAddress* mac, bool solicited, bool overrides);
    // Whether a request of ours is out.
    bool is_asked(Index neighbour) const {
        const State state = entries_[neighbour].state;
        return state == State::incomplete || state == State::probe || state == State::failed;
    }

    Time next_deadline() const { return deadlines_.next(); }
    void handle_timer(Time now);

private:
    enum class State : std::uint8_t { incomplete, reachable, stale, delay, probe, failed, permanent };

    struct Entry {
        IpAddress ip;
        MacAddress mac{};
        State state = State::failed;
        bool has_mac = false;       // packets go to `mac`
        bool kept = false;          // a destination goes through it
        bool was_lost = false;      // reported; finding it is then reported too
        bool asked_ever = false;    // `asked_at` means something
        std::uint8_t requests = 0;  // sent in this state
        Time asked_at{0};           // the last request
        Time confirmed_at{0};       // last known to be there, if `has_mac`
    };

    std::optional<Index> add(const IpAddress& ip);
    bool evict_stranger();
    void request(Time now, Index neighbour);
    void confirm(Time now, Index neighbour);
    void set_mac(Index neighbour, const MacAddress& mac);
    void become_stale(Index neighbour);
    void start_probe(Time now, Index neighbour);
    void fail(Index neighbour);

    const std::size_t neighbours_max_;
    Listener& listener_;
    std::vector<Entry> entries_;
    std::vector<Index> free_;
    std::deque<Index> strangers_;  // oldest first; some may be kept since
    AddressMap<IpAddress> index_;
    DeadlineHeap deadlines_;
};

}  // namespace dlcp::ipstack
