// Switches that add, in the simulator: the worker that ships on hosts, the slots that ship in switches.
//
// Workers' packets are whole frames with real values, addresses and checksums; they wait in queues and are lost there as
// any. What a slot does with a frame AggregationSlots decides, what a worker sends again and when, Worker. Here a frame
// becomes a packet, and a verdict packets. Values are chosen so that every rank knows the sum of each block, and checks it:
// a wrong one ends the run.
//
// Not here: the steps that ranks take over their sessions (exponents before a sum, its verdict after), which a workload
// adds as collectives; the probe of a run's first sum; what follows a failure. A sum that the worker's owner would give up
// stays unfinished.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "aggregation/worker.hpp"
#include "sim/core/domain.hpp"
#include "sim/core/transports/engine_body.hpp"
#include "sim/core/transports/switch_plan.hpp"
#include "switch/aggregation.hpp"

namespace dlcp::sim {

// An all-reduce by switches: the same at all ranks.
struct SwitchSumSpec {
    std::vector<std::uint32_t> members;  // hosts, by rank
    std::uint64_t bytes = 0;             // of float32
    std::uint32_t slots = 128;
    std::uint32_t lanes = 1024;
    std::uint32_t bits = 32;  // of a value: 32, 16, 8
};

// Values whose sums every rank knows without the others: the same of all ranks, and a rank's number.
class KnownBlocks final : public aggregation::Blocks {
public:
    KnownBlocks(std::uint32_t count, std::uint64_t position, std::uint32_t lanes, std::uint32_t ranks,
                std::uint32_t rank)
        : count_(count), position_(position), lanes_(lanes), ranks_(ranks), rank_(rank) {}

    std::uint32_t count() const override { return count_; }
    std::uint8_t exponent(std::uint32_t block) const override {
        return static_cast<std::uint8_t>(1 + (position_ + block) % 254);
    }
    void write(std::uint32_t block, std::uint8_t* values) const override;
    bool take(std::uint32_t block, const std::uint8_t* values) override;

private:
    // Below 2^20, so that 1024 ranks' sums stay below 2^31.
    std::uint32_t first(std::uint32_t block) const {
        return static_cast<std::uint32_t>(mix64(position_ + block) & 0xfffff);
    }

    std::uint32_t count_;
    std::uint64_t position_;
    std::uint32_t lanes_, ranks_, rank_;
};

class SwitchSums {
public:
    // `over`: a rank has every sum of the collective with this number. In the domain of its host.
    struct Over {
        std::uint32_t sum;
        std::uint32_t rank;
        std::uint64_t repeated_packets;  // contributions that the rank sent again
    };
    SwitchSums(std::uint32_t lower_layer_bytes, std::function<void(Domain&, const Over&)> over)
        : lower_layer_bytes_(lower_layer_bytes), over_(std::move(over)) {}

    static constexpr std::uint32_t packet_type = first_own + 1;

    // Before the run. Returns its index. Throws std::invalid_argument.
    std::uint32_t add(const Fabric& fabric, const SwitchSumSpec& spec);
    // `bodies`: by region, for as long as the run lasts.
    void prepare(Simulation& simulation, std::vector<BodyPool>& bodies);

    // A rank joins. Sums of a job are made in the order in which they were added.
    void start(Domain& domain, std::uint32_t sum, std::uint32_t rank);
    void handle_packet(Domain& domain, std::uint32_t host, std::uint32_t slot);
    std::uint32_t pull_packet(Domain& domain, std::uint32_t host);
    void handle_timer(Domain& domain, std::uint32_t host, std::uint32_t member);
    void handle_at_switch(Domain& domain, std::uint32_t node, std::uint32_t slot);
    // Timers of hosts are numbered from here on.
    static constexpr std::uint32_t first_timer = 1U << 31;
    // The aggregation header of a packet's frame.
    static const std::uint8_t* header_of(const EngineBody& body);
    void add_counters(std::map<std::string, double>& sums) const;

private:
    struct Sum {
        std::uint32_t job;     // index
        std::uint32_t in_job;  // its place in the job's order
        std::uint32_t blocks;
        std::uint64_t position;  // of its first block in the job's stream
    };
    struct Job {
        std::vector<std::uint32_t> members;
        SwitchPlan plan;
        std::uint32_t slots, lanes;
        std::vector<std::uint32_t> sums;
        std::uint64_t blocks = 0;              // of all its sums
        std::vector<std::uint32_t> member_at;  // per rank: its place in the host's list
    };
    // A host's part in one job.
    struct Member {
        explicit Member(const aggregation::WorkerSettings& settings) : worker(settings) {}
        aggregation::Worker worker;
        std::uint32_t job = 0;  // index
        std::uint32_t rank = 0;
        std::array<std::uint8_t, 42> head{};  // of all its frames
        std::vector<bool> asked;              // per sum of the job
        std::uint32_t next = 0;               // the sum that is made, or comes next
        std::optional<KnownBlocks> blocks;    // of the sum that was begun last; the worker keeps its address
        bool busy = false;                    // that sum is not over
        std::uint64_t repeated_before = 0;
        std::int64_t armed_ps = INT64_MAX;
        bool gave_up = false;
    };
    struct Host {
        std::vector<std::unique_ptr<Member>> members;
        std::size_t turn = 0;
    };
    struct Switch {
        switching::AggregationSlots slots;
        std::unordered_map<std::uint64_t, std::uint32_t> routes;  // job << 32 | address: port
        std::uint64_t ended = 0;  // frames that came as far as they can: for an address of the switch's own
    };

    void begin_next(Domain& domain, Member& member, std::uint32_t host);
    void finish(Domain& domain, Member& member, std::uint32_t host);
    void arm(Domain& domain, Member& member, std::uint32_t host, std::size_t place);
    void write_head(Member& member, std::uint32_t host) const;
    std::uint32_t packet_of(Domain& domain, EngineBody* body, std::uint32_t from, std::uint32_t to);
    void emit(Domain& domain, std::uint32_t node, std::uint32_t port, std::span<const std::uint8_t> frame);
    void forward(Domain& domain, Switch& at, std::uint32_t node, std::uint32_t slot);
    BodyPool& bodies_at(std::uint32_t node) { return (*bodies_)[fabric_->region_of(node)]; }

    const std::uint32_t lower_layer_bytes_;
    const std::function<void(Domain&, const Over&)> over_;
    const Fabric* fabric_ = nullptr;
    std::vector<BodyPool>* bodies_ = nullptr;
    std::vector<Sum> sums_;
    std::vector<Job> jobs_;
    std::map<std::tuple<std::vector<std::uint32_t>, std::uint32_t, std::uint32_t>, std::uint32_t> job_of_;
    std::vector<Host> hosts_;
    std::vector<std::unique_ptr<Switch>> switches_;
};

}  // namespace dlcp::sim
