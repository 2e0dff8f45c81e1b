// A worker of a job that a switch adds for, over a UDP socket, in the thread that calls.
//
// One thread at a time calls run(); stop() may come from any. Packets go to the hub's address, and what comes is taken
// by its content: the switch answers in the hub's name. IPv4, as the switch's program.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "aggregation/worker.hpp"
#include "io/descriptor.hpp"

namespace dlcp {

struct AggregationAddress {
    std::uint32_t ip = 0;  // in the host's order
    std::uint16_t port = 0;
};

class AggregationEndpoint {
public:
    enum class End : std::uint8_t { done, gave_up, wrong, stopped };

    // Throws std::system_error: a socket that cannot be made, or bound to this port.
    AggregationEndpoint(const aggregation::WorkerSettings& settings, AggregationAddress bind,
                        AggregationAddress hub);

    // Carries out a task; gives up when no new result has come for so long, or it is not over after `limit_ns`, whatever
    // comes. Blocks.
    End run(aggregation::Blocks& blocks, std::uint32_t run, std::uint64_t position, std::int64_t give_up_ns,
            std::int64_t limit_ns = INT64_MAX);
    // Ends a run() that is under way, and all later ones.
    void stop() { stopped_ = true; }

    // Between two runs.
    void set_generation(std::uint16_t generation) { worker_.set_generation(generation); }

    const aggregation::Worker& worker() const { return worker_; }
    std::uint16_t port() const;

private:
    static constexpr std::size_t batch = 64;

    std::size_t receive();
    std::size_t send();
    void wait(std::int64_t until_ns);

    aggregation::Worker worker_;
    Descriptor socket_;
    std::size_t packet_bytes_;
    std::vector<std::uint8_t> incoming_;  // `batch` packets each, one byte more so that longer ones are seen
    std::vector<std::uint8_t> outgoing_;
    std::size_t waiting_ = 0;  // packets of outgoing_ from the first one that the kernel has not taken
    std::size_t first_ = 0;
    std::atomic<bool> stopped_ = false;
};

}  // namespace dlcp
