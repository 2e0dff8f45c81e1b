// Collectives of several ranks over a virtual network with a virtual clock, all from one seed, and a judge.
//
// The world drives each endpoint and its executor exactly as a host does. What is checked, always:
//
//   results    the bits are those of a slow sequential run of the same schedules (collective_oracle.hpp), which loses
//              what the owners of bounded results say was given up
//   losses     what was given up is known alike at both ends, allowed, and missing from the sum (collective_loss.hpp)
//   memory     input is never written; nothing outside the chunks is; from the moment an operation is over nothing
//              of it is read or written, by an executor or by a packet on its way
//   endings    every operation is answered once, by the executor that it was given to; an error only if `errors_allowed`
//   engines    keep their invariants; time moves on
//
// What else must hold when things go wrong, the scenario knows: it finds every result in `operations()`. The first
// failure is kept, and everything stops there.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/executor.hpp"
#include "engine/endpoint.hpp"
#include "support/native/collective_oracle.hpp"
#include "support/native/dice.hpp"
#include "support/native/virtual_network.hpp"
#include "support/native/world.hpp"

namespace dlcp::test {

// How one rank may lose of what it sends in a bounded collective.
struct RankLoss {
    double loss_ratio = 0.0;
    double critical_ratio = 0.0;  // of its blocks
    Duration deadline{0};
    bool all_critical = false;  // it does not say how important its blocks are
    Duration patience{-1};      // negative: without end
};

struct LossPlan {
    bool rescale = false;
    std::vector<RankLoss> ranks;  // by member
};

// What all members of a group call under one sequence number.
struct CollectivePlan {
    std::uint32_t group = 0;  // index into the world's groups
    const ScheduleSet* set = nullptr;
    std::uint32_t sequence = 0;
    std::uint32_t signature = 0;  // 28 bits
    DataType type = DataType::f32;
    ReduceOp op = ReduceOp::sum;
    std::uint32_t average_over = 0;
    std::vector<std::uint32_t> part_elements;  // by part
    std::uint8_t traffic_class = 0;
    Duration timeout{-1};
    bool in_place = false;    // where the collective allows it
    bool is_virtual = false;  // lengths only
    std::optional<LossPlan> loss = {};
    bool all_ones = false;  // f32: what each rank has, in place of anything
};

// How one rank's call differs from the plan.
struct Deviation {
    std::uint32_t signature_bits = 0;  // other than the plan's
    std::uint32_t more_elements = 0;   // per chunk
    std::optional<Duration> timeout = {};
    bool reliable = false;  // without the plan's loss
};

struct MessagePlan {
    std::uint32_t group = 0;
    std::uint32_t from = 0;  // members
    std::uint32_t to = 0;
    bool from_anyone = false;  // as the receiver says
    std::uint32_t tag = 0;
    std::uint32_t bytes = 0;
    std::uint32_t more_bytes = 0;  // the receiver's memory is larger by this
    std::uint8_t traffic_class = 0;
    Duration timeout{-1};
    bool is_virtual = false;
};

// One start(), from the command on.
struct Operation {
    enum class Phase : std::uint8_t {
        running,
        over,
        lost,  // its host was stopped under it
    };
    enum class Kind : std::uint8_t { collective, send, receive };

    Kind kind = Kind::collective;
    std::size_t plan = 0;  // of collectives or of messages
    std::uint32_t group = 0;
    std::uint32_t host = 0;
    std::uint32_t member = 0;
    Deviation deviation;
    Phase phase = Phase::running;
    CollectiveId id;
    Time started;
    Time over;
    CollectiveResult result;

    // All of its memory with guards between the chunks; empty if it is virtual.
    struct Place {
        std::size_t at = 0;
        std::size_t bytes = 0;
    };
    std::vector<std::uint8_t> arena;
    std::vector<std::uint8_t> at_start;
    std::vector<Place> input, output;
    std::vector<std::uint8_t> written;  // per byte of the arena: may be written
    // Of what it may lose, by member: blocks as cut at the start, and how important they are; empty: all critical.
    std::vector<std::vector<std::uint8_t>> importance;
    std::vector<std::uint16_t> block_bytes;
};

class LossJudge;

class CollectiveWorld {
public:
    explicit CollectiveWorld(std::uint64_t seed, std::uint64_t network_seed);
    explicit CollectiveWorld(std::uint64_t seed) : CollectiveWorld(seed, seed) {}
    ~CollectiveWorld();

    // The host's number is its endpoint's rank. The executor hears of unexpected messages.
    std::uint32_t add_host(EndpointConfig config, HostSettings settings = {});
    // All of these: by index. Members are hosts; number is what the group is called on the wire.
    std::uint32_t add_group(std::uint32_t number, std::vector<std::uint32_t> members);
    std::size_t add(const CollectivePlan& plan);
    std::size_t add(const MessagePlan& plan);

    // What an application does on one rank. A group that is not open yet is opened first; peers are connected.
    void open_group(std::uint32_t group, std::uint32_t member);
    std::size_t start_collective(std::size_t plan, std::uint32_t member, Deviation deviation = {});
    std::size_t start_message(std::size_t plan, bool sending);
    void close_group(std::uint32_t group, std::uint32_t member, bool tell);
    // The endpoint says goodbye, as a process that ends in good order.
    void close(std::uint32_t host);
    // The host is not driven any more, as a process that is killed (for good) or stopped (until thaw).
    void stop(std::uint32_t host);
    void freeze(std::uint32_t host);
    void thaw(std::uint32_t host);

    VirtualNetwork& network() { return network_; }
    Endpoint& endpoint(std::uint32_t host) { return *hosts_[host].endpoint; }
    CollectiveExecutor& executor(std::uint32_t host) { return *hosts_[host].executor; }
    std::uint32_t hosts() const { return static_cast<std::uint32_t>(hosts_.size()); }
    const std::vector<std::uint32_t>& members(std::uint32_t group) const { return groups_[group].members; }
    const std::vector<CollectivePlan>& collectives() const { return collectives_; }
    const std::vector<MessagePlan>& messages() const { return messages_; }
    const std::vector<Operation>& operations() const { return operations_; }
    Time now() const { return network_.now(); }

    // Lets things happen until `until`. False when something failed.
    bool run_until(Time until);
    // The same, but stops when `done` says so. True if it did.
    bool run(Time limit, const std::function<bool()>& done);
    bool all_over() const;
    // After commands given to an endpoint directly: what they caused leaves.
    void serve(std::uint32_t host) { drain(host); }
    // Memory of operations that are over must be as it was left. Call last.
    void finish();

    bool errors_allowed = false;
    // False: some host says what it likes, so contents are nobody's word.
    bool contents_judged = true;
    // Called before the executor sees the event.
    std::function<void(std::uint32_t host, const Event&)> on_event;
    // Called with every packet that an engine sends.
    std::function<void(std::uint32_t host, const dlcp_packet&)> on_packet;
    // Called when an operation is over, before its memory is overwritten.
    std::function<void(const Operation&)> on_over;

    const std::string& failure() const { return failure_; }
    bool failed() const { return !failure_.empty(); }
    void fail(const std::string& what);
    std::uint64_t trace_hash() const { return hash_; }
    // Of all results, whatever the order in which they came.
    std::uint64_t result_hash() const { return result_hash_; }
    void trace_to(std::FILE* file) { trace_ = file; }
    void check_invariants_every(std::uint32_t steps) { check_every_ = steps; }
    std::string describe(const Operation& operation) const;

private:
    struct Host {
        EndpointConfig config;
        HostSettings settings;
        std::unique_ptr<Endpoint> endpoint;
        std::unique_ptr<CollectiveExecutor> executor;
        std::unique_ptr<std::uint8_t[]> heads;
        std::vector<dlcp_packet> slots;
        bool stopped = false;
        bool frozen = false;
        bool wake_pending = false;
        Time wake_at;
        std::uint32_t idle_timers = 0;
        std::map<std::uint64_t, std::size_t> running;  // operations by id
    };
    struct Group {
        std::uint32_t number = 0;
        std::vector<std::uint32_t> members;
        std::vector<bool> open;  // by member
    };

    bool driven(const Host& host) const { return !host.stopped && !host.frozen; }
    Time next_time() const;
    void step(Time at);
    void read(std::uint32_t host);
    std::size_t drain(std::uint32_t host);
    void check_packet(std::uint32_t host, const dlcp_packet& packet);
    void take_over(std::uint32_t host);
    void judge(Operation& operation);
    void judge_memory(const Operation& operation);
    void judge_message(const Operation& operation);
    void begin(std::size_t operation, CollectiveId id);
    void connect(Host& host, std::uint32_t rank);
    void lay_out(Operation& operation, const RankMemory& memory);
    void choose_importance(Operation& operation);
    std::vector<RankMemory> contents(std::size_t plan) const;
    std::vector<std::uint8_t> message_content(std::size_t plan) const;
    const std::vector<RankMemory>& expected(std::size_t plan);
    LossJudge& losses_of(std::size_t plan);
    void mix(std::uint64_t word);
    void log(const char* format, ...) __attribute__((format(printf, 2, 3)));

    VirtualNetwork network_;
    Dice dice_;
    std::uint64_t seed_;
    std::vector<Host> hosts_;
    std::vector<Group> groups_;
    std::vector<CollectivePlan> collectives_;
    std::vector<MessagePlan> messages_;
    std::vector<Operation> operations_;
    std::vector<bool> taken_;                                  // by message plan: a receive has had its bytes
    std::map<std::size_t, std::vector<RankMemory>> wanted_;    // by collective plan
    std::map<std::size_t, std::unique_ptr<LossJudge>> lossy_;  // by collective plan
    std::map<const std::uint8_t*, std::size_t> arenas_;        // by first byte, to the operation
    std::uint64_t steps_ = 0;
    std::uint64_t steps_now_ = 0;
    std::uint32_t check_every_ = 1;
    std::uint64_t hash_ = 0xcbf29ce484222325ULL;
    std::uint64_t result_hash_ = 0;
    std::FILE* trace_ = nullptr;
    std::string failure_;
};

}  // namespace dlcp::test
