// Receiver credit by turns: under an incast, which senders may send, and how much each may have in flight.
//
// The receiver knows how much is left of every message that has begun and has a receive, so the senders with the least left send first
// (pFabric, SIGCOMM'13; Homa, SIGCOMM'18) and the others wait. What may be in flight from all of them fills the last
// hop and little more. So who finishes first does so as if it were alone, hardly anything queues, and the last one
// finishes no later. A sender that waits still sends the first packet of a new message, or nobody would know of it.
//
// All this happens only while several senders fill this host's line: while less arrives, another link is the
// bottleneck, and the order here says nothing about it. If a turn leaves the line idle (its sender is busy elsewhere),
// more senders get theirs; if that does not help either, all are free again for a while.
//
// Parts of a whole, such as what a collective adds, have no turns: the whole is there with its last part, and an order
// among the parts can only delay that. While a part of a sender is under way, the sender is free.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/arrival_rate.hpp"
#include "engine/units.hpp"

namespace dlcp {

class TurnScheduler {
public:
    // line_rate 0: it is learnt, and there are no turns before that.
    TurnScheduler(bool gives, Rate line_rate, Bytes datagram)
        : line_rate_(line_rate), datagram_(datagram.value), gives_(gives) {}

    bool gives() const { return gives_; }

    // What is left of a message, as the order of turns sees it: its class, and of which size it is.
    struct Kind {
        std::uint8_t traffic_class = 0;
        std::uint32_t message_bytes = 0;
    };
    // A message of this peer, of which so many bytes are to come, begins; some of it has come, or will not come any
    // more. Call only if gives(). `order`: who is first of equals.
    void opened(std::uint32_t peer, Kind kind, std::uint64_t left, std::uint32_t order, Duration rtt);
    void placed(std::uint32_t peer, Kind kind, std::uint64_t bytes) {
        if (peer >= peers_.size()) return;
        Entry& entry = peers_[peer];
        const unsigned place = place_of(kind);
        std::uint64_t& left = entry.left[place];
        left -= std::min(bytes, left);
        if (left == 0) emptied(peer, place);
    }
    // A part of a whole begins, or ends.
    void part_opened(std::uint32_t peer);
    void part_ended(std::uint32_t peer) {
        if (peer < peers_.size() && peers_[peer].parts > 0 && --peers_[peer].parts == 0) update(peer);
    }
    // Data has come, at this time by the driver's clock, this much on the line, after so long in queues.
    void arrived(Time at, std::uint64_t bytes, Duration queued) {
        arrived_ += bytes;
        if (queued >= queue_) queued_ += bytes;
        arrival_rate_.arrived(at, bytes);
    }
    // Of a packet this much has come; the rest was cut off before a full queue.
    void trimmed(std::uint64_t bytes) {
        arrived_ += bytes;
        queued_ += bytes;
    }
    // As set, else as learnt; 0: not known yet.
    Rate line_rate() const { return line_rate_.value_bps != 0 ? line_rate_ : arrival_rate_.rate(); }
    // Data leaves: so much.
    void sent(std::uint64_t bytes) { sent_ += bytes; }
    void forget(std::uint32_t peer);

    // When to decide at the latest.
    Time next() const { return sharing_ ? tick_end_ : time_never; }
    bool due(Time now) const { return gives_ && (now >= tick_end_ || news_); }
    // Decides anew. `told`: gets the peers that must be told at once.
    void decide(Time now, std::vector<std::uint32_t>& told);

    // What acknowledgements tell this peer: how much it may have in flight. Nothing: what it likes.
    std::optional<Bytes> turn(std::uint32_t peer) const {
        if (!sharing_ || peer >= peers_.size() || peers_[peer].turn == unlimited) return std::nullopt;
        return Bytes{peers_[peer].turn};
    }

private:
    static constexpr std::uint64_t unlimited = UINT64_MAX;
    static constexpr unsigned classes = 8, sizes = 5;

    struct Entry {
        // Bytes left by class and size, in the order in which they are sent; bit i of `filled`: left[i] > 0.
        std::array<std::uint64_t, std::size_t{classes} * sizes> left{};
        std::uint64_t filled = 0;
        std::uint64_t turn = unlimited;  // as last told
        std::uint64_t since = 0;         // smaller: has had no turn for longer
        std::uint64_t chosen = 0;        // by which decision
        Duration rtt{0};
        std::uint32_t order = 0;  // of equals the least goes first
        std::uint32_t parts = 0;  // of wholes, under way
        std::uint32_t place = 0;  // in active_, while `active`
        bool active = false;

        unsigned first() const { return static_cast<unsigned>(std::countr_zero(filled)); }
        std::uint64_t total() const;
    };

    // The highest class first; in it the shortest messages, by sizes as senders have them (send_queue.hpp).
    static unsigned place_of(Kind kind) {
        const auto log2 = static_cast<unsigned>(std::bit_width(kind.message_bytes));
        return (classes - 1u - kind.traffic_class) * sizes + std::min((std::max(log2, 11u) - 11) / 4, sizes - 1);
    }
    void emptied(std::uint32_t peer, unsigned place);
    void update(std::uint32_t peer);
    std::uint64_t product(Duration rtt) const;
    bool meets_incast(Time now);
    void measure(Time now);
    std::uint32_t next_of(bool oldest) const;
    void allot(std::vector<std::uint32_t>& told);
    void give(std::uint32_t peer, std::uint64_t turn, std::vector<std::uint32_t>& told);
    void end(std::vector<std::uint32_t>& told);

    Rate line_rate_;  // as set
    ArrivalRate arrival_rate_;
    std::uint64_t datagram_;  // bytes
    bool gives_;
    bool sharing_ = false;
    bool news_ = false;  // a message has begun or ended while turns are given
    std::vector<Entry> peers_;
    std::vector<std::uint32_t> active_;  // peers with something left, and no part of a whole
    std::vector<std::uint32_t> freed_;   // active no more, and last told a turn
    std::uint64_t arrivals_ = 0;
    std::uint64_t decisions_ = 0;
    std::uint64_t arrived_ = 0;  // bytes in this tick
    std::uint64_t sent_ = 0;     // bytes of data in this tick
    std::uint64_t queued_ = 0;   // of these, what has queued
    Duration queue_{0};
    std::uint64_t ticks_ = 0;
    Time tick_start_{INT64_MIN / 2};
    Time tick_end_{INT64_MIN / 2};
    Duration round_{0};
    Time not_before_{INT64_MIN / 2};
    std::uint64_t most_in_flight_ = 0;  // from all senders, in fractions of a bandwidth-delay product
    std::uint64_t idle_ticks_ = 0;
    std::uint64_t full_run_ = 0;  // ticks in a row in which the line was full, and had a queue
};

}  // namespace dlcp
