// How many packets leave over one path in a row, and over how many paths runs take turns.
//
// A kernel takes a run in one piece, so a host pays for runs more than for packets; a switch that hashes sees a run as a
// burst on one of its links. So runs are what the driver passes on at once while the network shows no queue. When
// it does (in the last round trip packets came back marked, or were trimmed) they shrink to what this endpoint sends in
// 50 us, as TCP sizes what it hands down by its pace (Linux, tcp_tso_autosize): at 1 Gbit/s that is a packet of a jumbo
// frame or four others, which a processor has time for; at 10 Gbit/s it has not, and 15 leave in a row. A sender that
// has more to send than its window holds, and does not fill it, is limited by its own processor: there marks are of
// others' queues. Runs double after a round without a queue, or twice as many each time that longer ones brought one back.
//
// Where switches choose a path for each packet, runs of any length cost the network nothing (Sprayed).
//
// Values without clock or packets. Invariant: the length is between the bounds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/units.hpp"

namespace dlcp {

// Whether switches choose a path for each packet: found out, or as the operator says.
enum class SwitchesSpray : std::uint8_t { automatic, no, yes };

// Such switches betray themselves: packets that left one after the other over one path arrive the other way round.
// Seen by an endpoint in what it receives; it sends through the same switches. Simulated, 15 % of pairs are overtaken
// where switches spray, under load, and 0.002 % where they hash.
class Sprayed {
public:
    explicit Sprayed(SwitchesSpray told) : told_(told) {}

    void on_pair(bool overtaken) {
        share_ += ((overtaken ? one : 0) - share_) / memory_pairs;
        if (share_ > one / 16) seen_ = true;
        if (share_ < one / 256) seen_ = false;
    }
    bool yes() const { return told_ == SwitchesSpray::automatic ? seen_ : told_ == SwitchesSpray::yes; }

private:
    static constexpr std::int32_t one = 1 << 20, memory_pairs = 64;
    SwitchesSpray told_;
    bool seen_ = false;
    std::int32_t share_ = 0;  // overtaken, of recent pairs
};

// Bytes that passed lately in 50 us: what an endpoint sends to all its peers, or what it takes.
class RecentRate {
public:
    void add(Time now, std::uint64_t bytes) {
        const Duration passed = now - begin_;
        if (passed >= interval) {
            // After a pause the rate before it is the better guess.
            if (passed < interval * 8)
                in_run_time_ =
                    (in_run_time_ + bytes_ * run_time.value / static_cast<std::uint64_t>(passed.value)) / 2;
            begin_ = now;
            bytes_ = 0;
        }
        bytes_ += bytes;
    }
    std::uint64_t bytes_in_run_time() const { return in_run_time_; }

    static constexpr Duration run_time = microseconds(50);

private:
    static constexpr Duration interval = microseconds(250);
    Time begin_{0};
    std::uint64_t bytes_ = 0;  // since then
    std::uint64_t in_run_time_ = 0;
};

class RunLength {
public:
    // What a kernel's super-packet holds beside its headers.
    static constexpr std::uint32_t longest_bytes = 65'000;
    // Runs of eight packets and more take turns over so few paths; more gain nothing where there is no queue.
    static constexpr std::size_t few_paths = 8;

    RunLength() = default;
    // Runs are long at first: the first queue is seen within a round trip, and short transfers have few of these.
    RunLength(std::uint32_t least, std::uint32_t most)
        : least_(std::min(least, most)), most_(most), packets_(most) {}

    // Packets that the next run may have. Among single packets are some pairs, so that peers see whether switches spray.
    std::uint16_t next_run() {
        if (packets_ == 1 && most_ > 1 && ++since_pair_ == singles_per_pair) {
            since_pair_ = 0;
            return 2;
        }
        return static_cast<std::uint16_t>(packets_);
    }
    std::uint32_t packets() const { return packets_; }
    // Of `all` paths, those that runs take turns over.
    std::size_t paths(std::size_t all) const { return std::min(all, std::max(few_paths, all / packets_)); }

    // What one acknowledgement said.
    struct News {
        std::uint32_t acked_packets = 0;
        bool queue = false;    // marks, or trimmed packets
        bool limited = false;  // by the window, or by what there is to send
        bool round_over = false;
        bool sprayed = false;              // by switches
        std::uint64_t packets_needed = 1;  // in a row, so that the processor keeps up (RecentRate)
    };
    void on_ack(const News& news) {
        acked_ += news.acked_packets;
        queue_ |= news.queue;
        limited_ |= news.limited;
        if (news.round_over) end_round(news.sprayed, news.packets_needed);
    }

private:
    static constexpr std::uint32_t singles_per_pair = 31;
    static constexpr std::uint32_t quiet_rounds_least = 1, quiet_rounds_most = 64;

    void end_round(bool sprayed, std::uint64_t packets_needed);

    std::uint32_t least_ = 1, most_ = 1, packets_ = 1;
    std::uint32_t since_pair_ = 0;
    std::uint32_t quiet_rounds_ = 0, quiet_rounds_needed_ = quiet_rounds_least;
    // Of the round under way.
    std::uint32_t acked_ = 0;
    bool queue_ = false;
    bool limited_ = false;
};

}  // namespace dlcp
