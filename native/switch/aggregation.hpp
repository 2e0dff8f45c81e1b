// A switch that adds: what becomes of one aggregation frame, and the slots in which sums grow.
//
// The same rules as p4/aggregation.p4, held to it by tests/vectors/aggregation.txt; p4/aggregation.md has the table of
// states and the proofs. Pure: frames go in, the frame that leaves and whom it is for come out; no queues, no ports.
//
// Invariants, of each job's slots: keys only grow while one generation has the slot, so a block is installed at most
// once and has at most one result; a worker's values are in the sums if and only if its bit is set; a block that is
// done does not change. What cannot be taken goes on to its destination, its values as they came.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aggregation/packet.hpp"

namespace dlcp::switching {

// What became of a packet, in the order of p4/blocks/aggregation_headers.p4.
enum class Outcome : std::uint8_t {
    added,
    completed,
    flushed,
    duplicate,
    repeated,
    released,
    collision,
    stale,
    mismatch,
    below_quorum,
    absent,
    refused,
    to_hub,
    damaged,
    foreign,
};
inline constexpr std::size_t outcomes = 15;

// A worker or the hub: where the switch finds it.
struct Participant {
    std::uint16_t port = 0;
    std::uint64_t mac = 0;
    std::uint32_t ip = 0;
    std::uint16_t udp_port = 0;

    friend bool operator==(const Participant&, const Participant&) = default;
};

// The switch above, which adds what several switches have summed. It has the job with the same slots and lanes.
struct UpperSwitch {
    Participant hub;  // whom it is addressed by, and the port towards it
    Participant own;  // as it knows this switch; the port is that of `hub`
    std::uint8_t worker = 0;

    friend bool operator==(const UpperSwitch&, const UpperSwitch&) = default;
};

// A job that the switch adds for.
struct AggregationJob {
    std::uint32_t job = 0;
    std::uint16_t generation = 1;   // the first that is admitted
    std::uint16_t generations = 1;  // how many are, from there on; a run takes one that the last one had not
    std::uint16_t slots = 128;
    std::uint32_t lanes = aggregation::lane_unit;  // of its packets; others of the job are ordinary traffic
    std::vector<Participant> workers;              // worker 0 first
    Participant hub;
    bool hub_is_here = false;  // no host has the hub's address: the switch answers who asks for it (ARP)
    // Of two levels, the lower: sums of all workers go on to a switch above, whose worker this one is.
    std::optional<UpperSwitch> upper;

    bool admits(std::uint16_t one) const { return one >= generation && one - generation < generations; }

    friend bool operator==(const AggregationJob&, const AggregationJob&) = default;
};

inline constexpr std::size_t max_aggregation_jobs = 63;
inline constexpr std::uint32_t max_aggregation_slots = 2048;  // of all jobs together: AGGREGATION_SLOTS in P4

// Empty if usable on a switch of so many ports; otherwise what is wrong.
std::string validate(std::span<const AggregationJob> jobs, std::size_t ports);

using OutcomeCounts = std::array<std::uint64_t, outcomes>;

class AggregationSlots {
public:
    enum class Whom : std::uint8_t {
        ordinary,  // not an aggregation frame of a kind that is looked at: forward as it came
        forward,   // to its destination: as it came if `changed` is not set, else frame()
        nobody,    // taken in
        sender,    // frame(), addressed, to `job`'s participant
        everyone,  // frame(), to be addressed to each of `job`'s workers
        upper,     // frame(), a contribution, to the switch above
        asker,     // frame() is an answer to ARP, for the port that it came by
    };
    struct Verdict {
        Whom whom = Whom::ordinary;
        bool changed = false;
        std::uint16_t job = 0;          // index into jobs()
        std::uint16_t participant = 0;  // index of the sender: of workers, or their number for the hub
    };

    // Jobs from now on. What is already there of a job of equal number, slots and lanes stays in its slots; a new
    // generation finds them empty, and so do other workers. The jobs are valid.
    void configure(const std::vector<AggregationJob>& jobs);
    bool empty() const { return tables_.empty(); }
    std::size_t size() const { return tables_.size(); }
    const AggregationJob& job(std::size_t index) const { return tables_[index].job; }

    // Whether a MAC address is a hub's that the switch has itself.
    bool owns(std::uint64_t mac) const;
    // Whether a frame says that it comes from such a hub. It is forged, as no host has the address: results are taken for
    // the switch's by it.
    bool is_forged(std::span<const std::uint8_t> frame) const;

    Verdict handle(std::uint16_t port, std::span<const std::uint8_t> frame);
    // The frame of the last verdict, until the next one. address(): it becomes that participant's, checksums included.
    std::span<const std::uint8_t> frame() const { return {out_.data(), out_bytes_}; }
    const Participant& address(std::uint16_t job, std::uint16_t participant);

    // By job, since it was configured; and what was of none.
    const OutcomeCounts& counts(std::size_t job) const { return tables_[job].counts; }
    std::uint64_t foreign() const { return foreign_; }

private:
    // summed: all workers are in, and the switch above has been told; its result is still to come.
    enum class State : std::uint8_t { free, collecting, summed, done };
    struct Slot {
        std::uint64_t tenant = 0;  // job, generation
        std::uint64_t key = 0;
        std::uint32_t bitmap = 0;
        std::uint32_t saturated = 0;
        std::uint16_t shape = 0;  // operation, exponent
        std::uint8_t count = 0;
        State state = State::free;
    };
    struct Table {
        AggregationJob job;
        std::uint32_t everyone = 0;
        std::vector<Slot> slots;
        std::vector<std::uint32_t> sums;  // by slot and lane, in the host's order
        OutcomeCounts counts{};
    };

    Outcome take(Table& table, std::uint32_t bit, std::uint8_t* packet, Whom& whom);
    Verdict take_upper_result(std::size_t index, std::span<const std::uint8_t> frame);
    void become_result(const Table& table, const Slot& slot, std::uint8_t* packet) const;
    void address_upwards(const AggregationJob& job);
    bool answer_arp(std::uint16_t port, std::span<const std::uint8_t> frame);

    std::vector<Table> tables_;
    std::array<std::uint8_t, 9216> out_{};
    std::size_t out_bytes_ = 0;
    std::uint64_t payload_sum_ = 0;  // of the UDP payload in out_, for checksums
    std::uint64_t foreign_ = 0;
};

}  // namespace dlcp::switching
