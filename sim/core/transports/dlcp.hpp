// The shipping engine and its collective executor on every host, with virtual or real payload.
//
// Everything the protocol decides is decided in native/engine and native/collective, unchanged; here a flow becomes a
// message, a task a collective, and a deployer's settings follow from the fabric. Hosts' engines are made when first
// needed. Invariant: a host's engine is touched in calls for that host only, and before the run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/core/transport.hpp"
#include "sim/core/transports/engine_host.hpp"
#include "sim/core/transports/switch_sums.hpp"

namespace dlcp::sim {

// A collective as the simulation knows it. Every rank's memory is split evenly into the chunks of its schedule, as a
// communicator does it.
struct CollectiveSpec {
    std::vector<std::uint32_t> members;                      // hosts, by rank
    std::vector<std::shared_ptr<const Schedule>> schedules;  // by rank
    // By rank: data nullptr is virtual.
    std::vector<ChunkMemory> inputs;
    std::vector<ChunkMemory> outputs;
    DataType type = DataType::f32;
    ReduceOp op = ReduceOp::sum;
    std::uint32_t average_over = 0;
    std::uint8_t traffic_class = 0;
    // Of lossy messages, as LossRules.
    double loss_ratio = 0;
    Duration patience{-1};
    Duration deadline{0};
    bool rescale = false;
    double critical_ratio = 1;  // of the blocks, drawn, where `importance` is empty
    // By rank, then by the rank it goes to: one value per block.
    std::vector<std::vector<std::vector<std::uint8_t>>> importance;
};

// How it went at one rank.
struct CollectiveOutcome {
    std::int64_t started_ps = -1;
    std::int64_t finished_ps = -1;
    CollectiveResult result;
};

class DlcpTransport final : public Transport {
public:
    // What is not given follows from the fabric's longest unloaded round trip T between hosts that talk, and from each
    // host's rate: a queueing delay of 0.75 T is aimed at, and up to one and a half bandwidth-delay products are in
    // flight.
    struct Settings {
        EndpointConfig engine;             // of every host, with the simulator's defaults
        std::set<std::string_view> given;  // names of the engine's protocol_settings that the scenario gives
        std::uint32_t lower_layer_bytes = 66;
        bool warm_sessions = true;
        bool trim = true;
        bool trim_critical = true;

        Settings();
        void list(SettingsTable& table);
        bool has(std::string_view name) const { return given.contains(name); }
    };
    explicit DlcpTransport(const Settings& settings);
    ~DlcpTransport() override;

    // Before the first run, or between runs. Returns its index. Throws std::invalid_argument.
    std::uint32_t add_collective(CollectiveSpec spec);
    // An all-reduce that switches of the fabric add, before the first run; a collective as any, but for its schedule.
    // Returns its index among them. Throws std::invalid_argument.
    std::uint32_t add_switch_sum(const Fabric& fabric, const SwitchSumSpec& spec);
    // At that time, between runs; those that are tasks start with them.
    void start_collective_at(Simulation& simulation, std::uint32_t index, std::uint32_t rank, std::int64_t at_ps);
    // Members that will run collectives: their sessions are there from the start.
    void add_group(const std::vector<std::uint32_t>& members);
    const CollectiveOutcome& outcome(std::uint32_t index, std::uint32_t rank) const;
    std::uint32_t ranks(std::uint32_t index) const;
    // Of one that is over at all ranks nothing is kept any more.
    void forget_collective(std::uint32_t index);
    // Every host's, but for its rank, its line rate and what follows from the fabric.
    const EndpointConfig& config() const { return config_; }
    // nullptr: no engine there yet.
    const Endpoint* endpoint(std::uint32_t host) const;

    void prepare(Simulation& simulation) override;
    void start_flow(Domain& domain, std::uint32_t flow) override;
    void handle_packet(Domain& domain, std::uint32_t host, std::uint32_t slot) override;
    std::uint32_t pull_packet(Domain& domain, std::uint32_t host) override;
    void handle_timer(Domain& domain, std::uint32_t host, std::uint32_t timer) override;
    void start_collective(Domain& domain, std::uint32_t index, std::uint32_t rank, std::uint32_t task) override;
    bool handle_at_switch(Domain& domain, std::uint32_t node, std::uint32_t slot) override;
    void foresee(Domain& domain, std::span<const Visit> visits) const override;
    void packet_gone(Domain& domain, std::uint32_t slot) override;
    std::uint32_t payload_bytes() const override;
    std::uint32_t header_bytes() const override;
    const std::uint8_t* header_of(Domain& domain, std::uint32_t slot) const override;
    std::map<std::string, double> counters() const override;

private:
    using Pair = std::pair<std::uint32_t, std::uint32_t>;

    struct Active {
        CollectiveId id;
        std::uint32_t index;
        std::uint32_t rank;
        std::uint32_t task;
    };
    // What the transport keeps of a host beside its engine.
    struct Host {
        Host(const EngineNetwork& network, const EndpointConfig& config, std::uint64_t seed, BodyPool& bodies,
             Time now)
            : engine(network, config, seed, bodies, now) {}
        EngineHost engine;
        std::vector<std::uint32_t> groups;  // that are open
        std::vector<Active> active;
        struct Pieces {
            std::uint32_t left = 0;
            std::uint64_t abandoned_bytes = 0;
        };
        // Flows of several messages, sent and received, by number.
        std::unordered_map<std::uint32_t, Pieces> outgoing;
        std::unordered_map<std::uint32_t, Pieces> incoming;
        std::uint64_t peers_lost = 0;
        std::uint64_t paths_left = 0;
        std::uint64_t messages_refused = 0;  // by the engine: commands that failed
    };
    struct Collective {
        CollectiveSpec spec;
        std::uint32_t group = 0;
        std::uint32_t sequence = 0;
        bool late = false;                // added after the preparation
        std::uint32_t switch_sum = none;  // one that switches add; its spec is empty
        std::vector<CollectiveOutcome> outcomes;
        std::vector<std::uint32_t> tasks;  // of a sum by switches, by rank
    };
    struct GroupOf {
        std::vector<std::uint32_t> members;
        std::uint32_t collectives = 0;
        bool all_pairs = false;  // sessions between all members from the start
    };

    Host& host(std::uint32_t index);
    std::uint32_t group_number(const std::vector<std::uint32_t>& members);
    void derive(Simulation& simulation, const std::vector<Pair>& pairs);
    std::vector<Pair> pairs(const Simulation& simulation) const;
    void warm(std::uint32_t a, std::uint32_t b, Duration one_way, Time& clock);
    PeerId peer(EngineHost& engine, std::uint32_t other);
    std::uint32_t pieces(const Flow& flow) const;
    void open_group(Host& host, std::uint32_t group, std::uint32_t own);
    void serve(Domain& domain, Host& host);
    void flow_event(Domain& domain, Host& host, const Event& event);
    void collective_over(Domain& domain, Host& host, CollectiveId id, CollectiveResult result);
    void switch_sum_over(Domain& domain, const SwitchSums::Over& over);

    const Settings settings_;
    EngineNetwork network_;
    EndpointConfig config_;            // of every host, but for rank, line rate and what follows from it
    std::int64_t longest_rtt_ps_ = 0;  // unloaded, of the pairs that talk
    std::int64_t site_rtt_ps_ = 0;     // the same, without what is much farther than the nearest
    std::uint64_t seed_ = 0;
    bool prepared_ = false;
    const Fabric* fabric_ = nullptr;
    BodyDepot depot_;
    std::vector<BodyPool> bodies_;  // by region of the fabric: one thread at a time
    std::vector<std::unique_ptr<Host>> hosts_;
    std::vector<std::unique_ptr<Collective>> collectives_;
    std::unique_ptr<SwitchSums> switch_sums_;   // nullptr: no switch adds
    std::vector<std::uint32_t> switch_sum_of_;  // by its number: the collective
    std::vector<SwitchSumSpec> switch_specs_;
    std::vector<std::uint8_t>
        engine_next_;  // by host: the card takes the engine's packet first, then the worker's
    std::vector<GroupOf> groups_;
    std::map<std::vector<std::uint32_t>, std::uint32_t> group_of_;
    struct Planned {
        std::uint32_t index;
        std::uint32_t rank;
    };
    std::vector<Planned> planned_;  // timer 1 + i
};

}  // namespace dlcp::sim
