// An in-memory packet network with virtual time: what tests put under engines, and under runtimes through a driver
// (virtual_driver.hpp).
//
// A packet from host A to host B crosses up to three links: A's uplink, the link between A and B, B's downlink. A
// link is one LinkSettings: rate, queue, delay and every fault. What is not set costs nothing.
//
// Invariants: what happens, happens in order of time, and at equal times in the order in which it was caused. All
// chance comes from the seed, one stream per link, so that a fault on one link leaves the others' fate alone. Same
// seed and same calls: same packets, byte for byte, at the same nanoseconds. A packet's bytes are copied when it is
// sent, since its sender may change them afterwards. Once its pools have grown to the load, nothing is allocated.
//
// It does not route, has no threads, and reads no clock: time moves in `advance` alone.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/packet.h"
#include "engine/random.hpp"
#include "engine/units.hpp"

namespace dlcp {

// A time in which a link carries nothing: from <= now < until.
struct Outage {
    Time from;
    Time until = time_never;
};

// What one path (dlcp_packet::path) suffers beyond what its link does.
struct PathFault {
    std::uint16_t path = 0;
    double loss_ratio = 0.0;  // 1: dead
    Duration delay{0};
    Bytes max_datagram{0};  // longer UDP payloads are dropped; 0: no limit
};

// One direction of one link. Ratios are probabilities per packet, in [0, 1].
struct LinkSettings {
    // The queue. Sizes count each packet's lower layers as well (lower_layer_bytes).
    Rate rate{0};                  // 0: packets take no time, and never wait
    Bytes queue{0};                // waiting bytes; a packet that does not fit is dropped. 0: no limit
    Bytes ecn_mark_above{0};       // ECN-capable packets that find more waiting are marked; 0: none
    Bytes droppable_above{0};      // droppable packets that find more waiting are dropped; 0: like the others
    bool trim = false;             // a droppable packet that would be dropped loses its payload instead
    bool strict_priority = false;  // higher class selector (DSCP / 8) first; else first come, first served

    Bytes max_datagram{0};   // longer UDP payloads are dropped; 0: no limit
    bool runs_pass = false;  // but not those in a super-packet, as virtual devices do

    // Time on the wire. Jitter is uniform in [0, jitter] and keeps the order of a lane (path and class), as real
    // queues do; reordering does not: it holds a packet back by up to reorder_delay.
    Duration delay{0};
    Duration jitter{0};
    double reorder_ratio = 0.0;
    Duration reorder_delay{0};

    // Loss. Bursts are Gilbert–Elliott's: a state that a packet enters with one probability and leaves with another.
    double loss_ratio = 0.0;
    double burst_enter_ratio = 0.0;
    double burst_exit_ratio = 1.0;
    double burst_loss_ratio = 1.0;  // while in a burst
    Duration burst_longest{0};      // a burst also ends after this time, however few packets come; 0: it does not

    double duplicate_ratio = 0.0;
    double corrupt_ratio = 0.0;   // one to eight bits flipped
    double truncate_ratio = 0.0;  // the end cut off, without a trace
    double trim_ratio = 0.0;      // droppable packets only: payload cut off, flag set

    std::vector<PathFault> paths;
    std::vector<Outage> outages;
};

// What became of a packet at one point. `sent` and `arrived` frame the others.
enum class Fate : std::uint8_t {
    sent,
    arrived,
    lost_outage,
    lost_path,
    lost_too_long,
    lost_queue,
    lost_random,
    lost_burst,
    lost_inbox,  // the receiving host read too slowly
    marked,
    trimmed,
    held_back,
    duplicated,
    corrupted,
    truncated,
};
inline constexpr std::size_t fate_count = 15;
const char* name(Fate fate);

struct PacketRecord {
    Time at;
    Fate fate = Fate::sent;
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::span<const std::uint8_t> bytes;  // valid during the call
    std::uint32_t virtual_bytes = 0;
    std::uint16_t path = 0;
    std::uint8_t tos = 0;
};

class VirtualNetwork {
public:
    // Ethernet with preamble and gap (38), IPv4 (20), UDP (8): what a datagram takes on a link besides itself.
    static constexpr std::uint32_t lower_layer_bytes = 66;

    explicit VirtualNetwork(std::uint64_t seed);
    ~VirtualNetwork();
    VirtualNetwork(const VirtualNetwork&) = delete;
    VirtualNetwork& operator=(const VirtualNetwork&) = delete;

    // Hosts are numbered from 0.
    std::uint32_t add_host();
    std::uint32_t hosts() const;
    static dlcp_address address(std::uint32_t host);
    // The host with this address; UINT32_MAX if it is none of ours.
    static std::uint32_t host_of(const dlcp_address& address);

    // Settings may change at any time; packets that already wait in a link's queue stay there.
    void set_uplink(std::uint32_t host, const LinkSettings& settings);
    void set_downlink(std::uint32_t host, const LinkSettings& settings);
    void set_between(std::uint32_t from, std::uint32_t to, const LinkSettings& settings);
    // Bytes that may wait for a host to read them, like a socket's buffer; 0 (the default): no limit.
    void set_inbox(std::uint32_t host, Bytes limit);

    Time now() const { return now_; }
    // When something will happen next; time_never if nothing is under way.
    Time next_event() const;
    // Moves the clock and does what happens until then, that moment included. Never back.
    void advance(Time until);

    // Takes a packet as an engine wrote it. One to an address of nobody vanishes.
    void send(std::uint32_t host, const dlcp_packet& packet) { send(host, std::span(&packet, 1)); }
    // In order; consecutive ones share super-packets as the UDP driver makes them.
    void send(std::uint32_t host, std::span<const dlcp_packet> packets);
    // Lends packets that have arrived, oldest first. Their buffers stay lent until `release`.
    std::size_t receive(std::uint32_t host, std::span<dlcp_packet> out);
    void release(std::span<const dlcp_packet> packets);
    bool readable(std::uint32_t host) const;
    // Throws away what a host has not read, as when its process ends.
    void clear_inbox(std::uint32_t host);

    std::uint64_t count(Fate fate) const { return counts_[static_cast<std::size_t>(fate)]; }
    // Called for each fate of each packet.
    void observe(std::function<void(const PacketRecord&)> observer) { observer_ = std::move(observer); }

private:
    static constexpr std::uint32_t none = UINT32_MAX;

    // One packet under way. `next` chains it in a queue, an inbox or the free list.
    struct Slot {
        std::vector<std::uint8_t> bytes;  // never shrinks; `length` counts
        std::uint32_t length = 0;
        std::uint32_t virtual_bytes = 0;
        std::uint32_t from = 0;
        std::uint32_t to = 0;
        std::uint32_t next = none;
        std::uint16_t path = 0;
        std::uint8_t tos = 0;
        std::uint8_t hop = 0;  // 0 uplink, 1 between, 2 downlink, 3 inbox
        bool is_virtual = false;
        bool in_run = false;  // in a super-packet with others
    };
    struct Chain {
        std::uint32_t head = none;
        std::uint32_t tail = none;
    };
    struct Link;
    struct Host {
        std::unique_ptr<Link> uplink;
        std::unique_ptr<Link> downlink;
        std::vector<std::unique_ptr<Link>> ways;  // by destination
        dlcp_address address{};
        Chain inbox;
        Bytes inbox_bytes{0};
        Bytes inbox_limit{0};
    };
    // Either a packet reaches its next hop, or a link has finished sending one.
    struct Event {
        Time at;
        std::uint64_t order = 0;
        std::uint32_t slot = none;
        Link* link = nullptr;
    };

    void send(std::uint32_t host, const dlcp_packet& packet, bool in_run);
    std::uint32_t take_slot();
    void free_slot(std::uint32_t slot);
    void push(Chain& chain, std::uint32_t slot);
    std::uint32_t pop(Chain& chain);
    void schedule(Time at, std::uint32_t slot, Link* link);
    void tell(Fate fate, const Slot& slot);
    void lose(Fate fate, std::uint32_t slot);
    void trim(Slot& slot);
    void enter_hop(std::uint32_t slot);
    void enter_link(Link& link, std::uint32_t slot);
    void start_sending(Link& link);
    void leave_link(Link& link, std::uint32_t slot);
    void arrive(std::uint32_t slot);
    void set_link(std::unique_ptr<Link>& link, const LinkSettings& settings, std::uint64_t stream);

    std::uint64_t seed_;
    Time now_{0};
    std::uint64_t order_ = 0;
    std::deque<Slot> slots_;
    std::uint32_t free_ = none;
    std::deque<Host> hosts_;     // addresses are lent to readers, so they must not move
    std::vector<Event> events_;  // a heap
    std::array<std::uint64_t, fate_count> counts_{};
    std::function<void(const PacketRecord&)> observer_;
};

}  // namespace dlcp
