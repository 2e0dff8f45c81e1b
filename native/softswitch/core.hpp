// The software switch without its interfaces: frames and times go in, frames come out.
//
// The core reads a frame (switch/frame.hpp), finds its output port (learning bridge; choose_path chooses within a
// group) and decides its fate (switch/decision.hpp). Frames of jobs that it adds for go through switch/aggregation.hpp
// first. The frame then waits in its class until the port's line takes it.
// The line is exact: a frame's turn comes when the previous one has passed, however late advance() is called. So depths
// are those of the line, not of the thread that serves it. Frames taken off the queues stay in departures() until the
// caller has sent them.
//
// Invariants: every frame that comes in is sent, counted as lost, taken into a sum, or waits (conservation); frames of one class leave a
// port in the order in which they joined it; a policy is replaced between two frames, and touches no frame; only
// configure() allocates after construction. The core opens nothing, starts no thread and reads no clock.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "softswitch/configuration.hpp"
#include "softswitch/counters.hpp"
#include "softswitch/departure.hpp"
#include "softswitch/faults.hpp"
#include "softswitch/frame_pool.hpp"
#include "softswitch/mac_table.hpp"
#include "softswitch/output_queues.hpp"
#include "softswitch/random.hpp"
#include "softswitch/samples.hpp"
#include "switch/aggregation.hpp"

namespace dlcp::softswitch {

class Core {
public:
    // As many ports as settings.frame_bytes; std::invalid_argument says what is wrong with either.
    Core(const Settings& settings, const Configuration& configuration);

    // Replaces policies, rates and groups; queued frames stay. If groups differ, learnt addresses are forgotten. Empty
    // on success; otherwise what is wrong, and nothing has changed.
    std::string configure(const Configuration& configuration);

    // ---- frames ----

    // Serves the lines up to `now`, which never goes back. Repeat after send while wants_sending().
    void advance(Time now);
    // Takes a frame that came by port `in`; call advance(at) before.
    void handle_frame(std::uint32_t in, std::span<const std::uint8_t> bytes, Time at);
    // Some port's departures fill their space: its line stands still until they are sent.
    bool wants_sending() const { return full_ports_ != 0; }
    // When advance() has work again if no frame arrives.
    Time next_time() const;

    // Frames on their way out, oldest first. departed(): the first `count` are sent, and their memory is free.
    std::span<const Departure> departures(std::uint32_t port) const { return outputs_[port].departures; }
    void departed(std::uint32_t port, std::size_t count);
    // Ports that have departures, bit by bit.
    std::uint64_t departing() const { return departing_; }

    // ---- control ----

    void set_faults(std::uint32_t port, bool out, const Faults& faults);
    const Faults& faults(std::uint32_t port, bool out) const {
        return (out ? outputs_[port].link : inputs_[port].link).faults();
    }
    // A port without link is not chosen out of its group.
    void set_link(std::uint32_t port, bool up);
    bool link(std::uint32_t port) const { return outputs_[port].up; }
    void sample_every(Time interval) { samples_.start(now_, interval); }

    // ---- what is seen ----

    Time now() const { return now_; }
    std::size_t ports() const { return outputs_.size(); }
    const Configuration& configuration() const { return configuration_; }
    const PortCounters& counters(std::uint32_t port) const { return outputs_[port].counters; }
    const OutputQueues& queues(std::uint32_t port) const { return outputs_[port].queues; }
    const Samples& samples() const { return samples_; }
    const MacTable& addresses() const { return addresses_; }
    const switching::AggregationSlots& aggregation() const { return aggregation_; }
    std::uint32_t frames_used() const { return pool_.used(); }

private:
    struct Input {
        FaultyLink link;
    };
    struct Output {
        OutputQueues queues;
        Time free_at{};              // when the line has sent what it was given
        std::uint64_t rest = 0;      // of a nanosecond that free_at leaves out; see transmit_time
        std::uint64_t rate_bps = 0;  // 0: the interface is the line
        std::uint32_t frame_bytes_max = 0;
        std::int32_t group = -1;
        bool up = true;
        FaultyLink link;
        std::vector<Departure> departures;
        PortCounters counters;
    };
    struct Group {
        std::vector<std::uint16_t> live;  // ports that are up
        std::uint32_t turn = 0;
    };

    void adopt(const Configuration& configuration);
    void find_live(std::uint32_t group);
    void serve(std::uint32_t port, Time now);
    void serve_all(Time now);
    void take_sample(Time at);
    bool aggregate(std::uint32_t in, std::span<const std::uint8_t> bytes, const switching::Frame& frame);
    void learn(std::uint32_t in, std::uint64_t source, Time at);
    void forward(std::uint32_t in, std::span<const std::uint8_t> bytes, const switching::Frame& frame, Time at);
    void flood(std::uint32_t in, std::span<const std::uint8_t> bytes, const switching::Frame& frame, Time at);
    // A port of the group, or max_ports if none is up.
    std::uint32_t choose(std::uint32_t group, const switching::Frame& frame);
    void enqueue(std::uint32_t port, std::span<const std::uint8_t> bytes, const switching::Frame& frame, Time at);
    switching::Depths depths_of(const Output& output, const switching::Policy& policy, std::size_t c) const;

    Settings settings_;
    Configuration configuration_;
    FramePool pool_;
    MacTable addresses_;
    switching::AggregationSlots aggregation_;
    Samples samples_;
    Random random_;
    std::vector<Input> inputs_;
    std::vector<Output> outputs_;
    std::vector<Group> groups_;
    std::uint64_t full_ports_ = 0;
    std::uint64_t departing_ = 0;
    std::uint64_t blocked_ = 0;         // ports that did not take all
    std::uint64_t shaped_waiting_ = 0;  // ports with a rate and something in their queues, bit by bit
    Time next_line_ = no_time;          // when the first of those is free
    std::uint32_t shared_used_bytes_ = 0;
    Time now_{};
};

}  // namespace dlcp::softswitch
