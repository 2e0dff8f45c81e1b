// Bounded collectives over the virtual network: what is repaired first, what nobody may claim, and how they fail.
//
// Random worlds are in tests/property/gradients.cpp; here is what one can say by hand. Whatever a case does, the world
// holds what was given up and what came out against each other (support/native/collective_loss.hpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "collective/reduce.hpp"
#include "engine/wire.hpp"
#include "support/native/collective_world.hpp"
#include "support/native/schedule_vectors.hpp"

using namespace dlcp;
using namespace dlcp::test;

namespace {

const ScheduleSet& schedule(const std::string& name) {
    static const std::vector<ScheduleSet> sets = load_schedules();
    const auto found = std::find_if(sets.begin(), sets.end(), [&](const auto& set) { return set.name == name; });
    REQUIRE_MESSAGE(found != sets.end(), name);
    return *found;
}

LossPlan loss_of(std::uint32_t ranks, double loss_ratio, double critical_ratio) {
    LossPlan loss;
    loss.ranks.assign(ranks, {loss_ratio, critical_ratio, Duration{0}, false});
    return loss;
}

// All ranks are in one group and know each other before anything starts, so blocks are cut for good.
class Ranks {
public:
    explicit Ranks(std::uint32_t count) : world(1) {
        std::vector<std::uint32_t> members(count);
        std::iota(members.begin(), members.end(), 0);
        EndpointConfig config;
        config.peer_timeout = seconds(2);
        config.max_rto = milliseconds(5);
        config.initial_window = Bytes{1 << 20};
        for (std::uint32_t i = 0; i < count; ++i) world.add_host(config);
        for (std::uint32_t from = 0; from < count; ++from)
            for (std::uint32_t to = 0; to < count; ++to)
                if (from != to) set_loss(from, to, 0);
        world.add_group(5, members);
        for (std::uint32_t member = 0; member < count; ++member) world.open_group(0, member);
        for (std::uint32_t from = 0; from < count; ++from)
            for (std::uint32_t to = 0; to < count; ++to)
                if (from != to) world.endpoint(from).connect(world.now(), to, VirtualNetwork::address(to));
        for (std::uint32_t host = 0; host < count; ++host) world.serve(host);
        world.run_until(Time{0} + milliseconds(10));
    }
    void set_loss(std::uint32_t from, std::uint32_t to, double ratio) {
        LinkSettings way;
        way.delay = microseconds(50);
        way.loss_ratio = ratio;
        world.network().set_between(from, to, way);
    }
    std::size_t plan(const std::string& name, std::uint32_t elements, const LossPlan& loss,
                     const std::function<void(CollectivePlan&)>& change = {}) {
        CollectivePlan plan;
        plan.set = &schedule(name);
        plan.sequence = sequence++;
        plan.signature = 0x4000;
        plan.part_elements.assign(plan.set->parts, elements);
        plan.loss = loss;
        if (change) change(plan);
        return world.add(plan);
    }
    void start(std::size_t plan) {
        for (std::uint32_t member = 0; member < world.hosts(); ++member) world.start_collective(plan, member);
    }
    void run() {
        world.run(world.now() + seconds(60), [&] { return world.all_over(); });
        CHECK_MESSAGE(world.failure() == "", world.failure());
        for (const Operation& each : world.operations())
            CHECK_MESSAGE(each.phase != Operation::Phase::running, world.describe(each));
    }
    void finish() {
        world.finish();
        CHECK_MESSAGE(world.failure() == "", world.failure());
    }
    const Operation& operation(std::size_t plan, std::uint32_t member) const {
        const auto found =
            std::find_if(world.operations().begin(), world.operations().end(),
                         [&](const Operation& each) { return each.plan == plan && each.member == member; });
        REQUIRE(found != world.operations().end());
        return *found;
    }

    CollectiveWorld world;
    std::uint32_t sequence = 100;
};

bool is_set(const std::vector<std::uint64_t>& bits, std::uint32_t i) { return (bits[i / 64] >> i % 64 & 1) != 0; }

}  // namespace

TEST_CASE("bounded: where nothing is lost the bits are those of the reliable direct all-reduce") {
    Ranks ranks(4);
    const std::size_t plan = ranks.plan("bounded_all_reduce direct 4", 9001, loss_of(4, 0.5, 0.1));
    ranks.start(plan);
    ranks.run();
    for (std::uint32_t member = 0; member < 4; ++member) {
        CHECK(ranks.operation(plan, member).result.abandoned.empty());
        CHECK(ranks.operation(plan, member).result.retransmitted_bytes == 0);
    }
    ranks
        .finish();  // … which holds it against a slow run of its own schedule. That run against the other schedule:
    Dice dice(3);
    for (const std::uint32_t average_over : {0u, 4u}) {
        std::vector<RankMemory> bounded(4), plain(4);
        for (std::uint32_t rank = 0; rank < 4; ++rank)
            for (std::uint32_t part = 0; part < 4; ++part) {
                std::vector<std::uint8_t> chunk(4 * 100);
                for (std::uint8_t& byte : chunk) byte = static_cast<std::uint8_t>(dice.below(120));
                bounded[rank].input.push_back(chunk);
                bounded[rank].output.emplace_back(chunk.size());
                plain[rank].output.push_back(chunk);
            }
        run_slowly(schedule("bounded_all_reduce direct 4"), DataType::f32, ReduceOp::sum, average_over, bounded);
        run_slowly(schedule("all_reduce direct 4"), DataType::f32, ReduceOp::sum, average_over, plain);
        for (std::uint32_t rank = 0; rank < 4; ++rank) CHECK(bounded[rank].output == plain[rank].output);
    }
}

TEST_CASE("bounded: what was lost is repaired most important first, until the rest fits the budget") {
    Ranks ranks(2);
    const std::size_t plan = ranks.plan("bounded_reduce_scatter direct 2", 14'000, loss_of(2, 0.2, 0.0));
    std::uint32_t first_pass = 0;
    std::uint32_t message = 0;            // of rank 0, on the wire
    std::vector<std::uint32_t> repaired;  // by rank 0, in order
    std::vector<std::uint32_t> ended_by;  // the last of the first pass, which leaves as critical
    ranks.world.on_packet = [&](std::uint32_t host, const dlcp_packet& packet) {
        wire::Datagram datagram;
        std::vector<std::uint8_t> bytes(packet.head, packet.head + packet.head_bytes);
        bytes.insert(bytes.end(), packet.body, packet.body + packet.body_bytes);
        if (host != 0 || wire::parse(bytes, 0, datagram) != wire::ParseError::none) return;
        const wire::Header& header = datagram.header;
        if (header.type == wire::Type::data && header.message_bytes == 56'000) message = header.message_id;
        if (!wire::is_data(header.type) || message == 0 || header.message_id != message) return;
        if ((header.flags & wire::flag::repair) == 0)
            ++first_pass;
        else if ((header.flags & wire::flag::critical) != 0)
            ended_by.push_back(header.block_index);
        else
            repaired.push_back(header.block_index);
    };
    ranks.set_loss(0, 1, 1.0);
    ranks.start(plan);
    const Operation& sender = ranks.operation(plan, 0);
    const auto& importance = sender.importance[1];
    const auto blocks = static_cast<std::uint32_t>(importance.size());
    REQUIRE(blocks > 30);
    CHECK(ranks.world.run(ranks.world.now() + seconds(1), [&] { return first_pass == blocks; }));
    CHECK(repaired.empty());
    ranks.set_loss(0, 1, 0.0);
    ranks.run();
    CHECK(first_pass == blocks);

    for (std::size_t i = 1; i < repaired.size(); ++i)
        CHECK(importance[repaired[i - 1]] >= importance[repaired[i]]);
    REQUIRE(sender.result.abandoned.size() == 1);
    const CollectiveResult::Abandoned& abandoned = sender.result.abandoned[0];
    std::vector<bool> came(blocks);
    for (const std::uint32_t block : repaired) came[block] = true;
    REQUIRE(ended_by.size() == 1);
    std::uint8_t least_repaired = 255, most_abandoned = 0;
    for (std::uint32_t block = 0; block < blocks; ++block) {
        if (block == ended_by.front()) continue;
        CHECK(is_set(abandoned.blocks, block) == !came[block]);
        if (came[block])
            least_repaired = std::min(least_repaired, importance[block]);
        else
            most_abandoned = std::max(most_abandoned, importance[block]);
    }
    CHECK(most_abandoned <= least_repaired);
    CHECK(abandoned.abandoned_bytes <= 56'000 / 5);
    CHECK(abandoned.abandoned_bytes > 56'000 / 5 - 2 * abandoned.block_bytes);
    CHECK(sender.result.retransmitted_bytes == 56'000 - abandoned.abandoned_bytes);
    ranks.finish();
}

// A receiver that has heard of nothing can neither ask for more nor end the message.
TEST_CASE("bounded: a long message of which all that leaves unasked was lost goes on") {
    Ranks ranks(2);
    const std::size_t plan = ranks.plan("bounded_reduce_scatter direct 2", 200'000, loss_of(2, 0.999, 0.0));
    ranks.set_loss(0, 1, 1.0);
    ranks.start(plan);
    ranks.world.run_until(ranks.world.now() + milliseconds(40));
    ranks.set_loss(0, 1, 0.0);
    ranks.run();
    REQUIRE(ranks.operation(plan, 0).result.abandoned.size() == 1);
    CHECK(ranks.operation(plan, 0).result.abandoned[0].abandoned_bytes > 200'000);
    ranks.finish();
}

TEST_CASE("bounded: critical blocks and ranks that say nothing of importance lose nothing") {
    Ranks ranks(3);
    LossPlan loss = loss_of(3, 0.9, 1.0);
    loss.ranks[1] = {0.9, 0.0, milliseconds(1), true};  // does not say
    loss.ranks[2] = {0.0, 0.0, Duration{0}, false};     // nothing may be lost, however unimportant
    const std::size_t plan = ranks.plan("bounded_all_reduce direct 3", 20'000, loss);
    for (std::uint32_t from = 0; from < 3; ++from)
        for (std::uint32_t to = 0; to < 3; ++to)
            if (from != to) ranks.set_loss(from, to, 0.2);
    ranks.start(plan);
    ranks.run();
    for (std::uint32_t member = 0; member < 3; ++member)
        CHECK(ranks.operation(plan, member).result.abandoned.empty());
    CHECK(ranks.world.network().count(Fate::lost_random) > 50);
    ranks.finish();
}

TEST_CASE("bounded: both ends name what was lost, also of lengths only, and a single rank loses nothing") {
    Ranks ranks(3);
    for (std::uint32_t to : {1u, 2u}) ranks.set_loss(0, to, 0.3);
    std::vector<std::size_t> plans;
    for (const bool is_virtual : {false, true})
        plans.push_back(ranks.plan("bounded_all_reduce direct 3", 30'000, loss_of(3, 0.9, 0.2),
                                   [&](CollectivePlan& plan) { plan.is_virtual = is_virtual; }));
    for (const std::size_t plan : plans) ranks.start(plan);
    ranks.run();
    for (const std::size_t plan : plans) {
        const auto& sent = ranks.operation(plan, 0).result.abandoned;
        REQUIRE(sent.size() == 2);
        for (const auto& each : sent) {
            CHECK(each.sent);
            CHECK(each.chunk == Chunk{Space::input, each.peer});
            const auto& missing = ranks.operation(plan, each.peer).result.abandoned;
            REQUIRE(missing.size() == 1);
            CHECK(!missing[0].sent);
            CHECK(missing[0].peer == 0);
            CHECK(missing[0].blocks == each.blocks);
            CHECK(missing[0].abandoned_bytes == each.abandoned_bytes);
            CHECK(missing[0].message_bytes == each.message_bytes);
        }
    }
    ranks.finish();

    Ranks alone(1);
    LossPlan loss = loss_of(1, 0.9, 0.0);
    loss.rescale = true;
    for (const char* name : {"bounded_all_reduce direct 1", "bounded_reduce_scatter direct 1"}) {
        const std::size_t plan = alone.plan(name, 5000, loss);
        alone.start(plan);
        CHECK(alone.operation(plan, 0).phase == Operation::Phase::over);  // at once
        CHECK(alone.operation(plan, 0).result.abandoned.empty());
        CHECK(alone.operation(plan, 0).result.sent_bytes == 0);
    }
    alone.finish();
}

TEST_CASE("bounded: what did not come counts as nothing, or the result is what it would be of as many as came") {
    for (const std::uint32_t ranks_count : {2u, 3u}) {
        for (const std::uint32_t average_over : {0u, ranks_count}) {
            for (const bool rescale : {false, true}) {
                CAPTURE(ranks_count);
                CAPTURE(average_over);
                CAPTURE(rescale);
                Ranks ranks(ranks_count);
                LossPlan loss = loss_of(ranks_count, 0.999, 0.3);
                loss.rescale = rescale;
                const std::size_t plan = ranks.plan("bounded_reduce_scatter direct " + std::to_string(ranks_count),
                                                    20'000, loss, [&](CollectivePlan& each) {
                                                        each.all_ones = true;
                                                        each.average_over = average_over;
                                                    });
                ranks.set_loss(1, 0, 0.5);
                bool seen = false;
                ranks.world.on_over = [&](const Operation& operation) {
                    if (operation.member != 0) return;
                    seen = true;
                    REQUIRE(operation.result.abandoned.size() == 1);
                    const CollectiveResult::Abandoned& missing = operation.result.abandoned[0];
                    std::uint32_t wrong = 0, absent = 0;
                    for (std::uint32_t i = 0; i < 20'000; ++i) {
                        const bool came = !is_set(missing.blocks, 4 * i / missing.block_bytes);
                        absent += !came;
                        const double present = came ? ranks_count : ranks_count - 1;
                        const double scale = rescale ? present : ranks_count;
                        const double want = average_over > 0 ? present / scale : present * ranks_count / scale;
                        float got;
                        std::memcpy(&got, operation.arena.data() + operation.output[0].at + 4 * i, sizeof got);
                        wrong += std::fabs(got - want) > 1e-6;
                    }
                    CHECK(wrong == 0);
                    CHECK(absent > 1000);
                };
                ranks.start(plan);
                ranks.run();
                CHECK(seen);
                ranks.finish();
            }
        }
    }
}

// Rank 0 may lose; rank 1 knows nothing of it, and takes nobody's word.
TEST_CASE("bounded: a message that the receiver did not agree to lose of is a mismatch") {
    Ranks ranks(2);
    ranks.world.errors_allowed = true;
    const std::size_t plan = ranks.plan("bounded_all_reduce direct 2", 40'000, loss_of(2, 0.9, 0.0),
                                        [](CollectivePlan& each) { each.timeout = seconds(1); });
    ranks.set_loss(0, 1, 0.3);
    ranks.world.start_collective(plan, 0);
    Deviation deviation;
    deviation.reliable = true;
    ranks.world.start_collective(plan, 1, deviation);
    ranks.run();
    const CollectiveResult& result = ranks.operation(plan, 1).result;
    CHECK(result.error == CollectiveError::mismatch);
    CHECK(result.culprit == 0);
    CHECK(result.abandoned.empty());
    CHECK(ranks.operation(plan, 0).result.error != CollectiveError::none);
    ranks.finish();
}

TEST_CASE("bounded: where a sender is reliable the owner's rules cost nothing") {
    Ranks ranks(2);
    const std::size_t plan = ranks.plan("bounded_all_reduce direct 2", 40'000, loss_of(2, 0.9, 0.0));
    ranks.set_loss(0, 1, 0.3);
    Deviation deviation;
    deviation.reliable = true;
    ranks.world.start_collective(plan, 0, deviation);
    ranks.world.start_collective(plan, 1);
    ranks.run();
    for (std::uint32_t member : {0u, 1u}) CHECK(ranks.operation(plan, member).result.abandoned.empty());
    ranks.finish();
}

TEST_CASE("bounded: a group that fails while messages are losing ends all, and leaves nothing") {
    for (const bool killed : {true, false}) {
        CAPTURE(killed);
        Ranks ranks(4);
        ranks.world.errors_allowed = true;
        LossPlan loss = loss_of(4, 0.5, 0.2);
        loss.ranks[3].deadline = milliseconds(3);
        std::vector<std::size_t> plans;
        for (int i = 0; i < 3; ++i)
            plans.push_back(ranks.plan("bounded_all_reduce direct 4", 60'000, loss,
                                       [](CollectivePlan& each) { each.timeout = seconds(1); }));
        for (std::uint32_t from = 0; from < 4; ++from)
            for (std::uint32_t to = 0; to < 4; ++to)
                if (from != to) ranks.set_loss(from, to, 0.2);
        for (const std::size_t plan : plans) ranks.start(plan);
        ranks.world.run_until(ranks.world.now() + microseconds(500));
        CHECK(!ranks.world.all_over());
        if (killed)
            ranks.world.stop(2);
        else
            ranks.world.close_group(0, 2, true);
        ranks.run();
        std::vector<std::uint32_t> failures(4);
        for (const Operation& each : ranks.world.operations()) {
            if (each.member == 2 || each.result.error == CollectiveError::none) continue;
            CAPTURE(ranks.world.describe(each));
            ++failures[each.member];
            CHECK(each.result.culprit == 2);
            CHECK(each.over - each.started <= seconds(2));
        }
        for (std::uint32_t member : {0u, 1u, 3u}) CHECK(failures[member] > 0);
        ranks.world.run_until(ranks.world.now() + milliseconds(100));
        for (std::uint32_t member = 0; member < 4; ++member) ranks.world.close_group(0, member, false);
        ranks.world.run_until(ranks.world.now() + seconds(5));
        for (std::uint32_t host : {0u, 1u, 3u}) {
            CHECK(ranks.world.endpoint(host).kept_messages().outgoing == 0);
            CHECK(ranks.world.endpoint(host).kept_messages().unexpected == Bytes{0});
            CHECK(!ranks.world.executor(host).draining());
        }
        ranks.finish();
    }
}

TEST_CASE("bounded: rules that do not fit are refused by name, and leave nothing") {
    Ranks ranks(3);
    CollectiveExecutor& executor = ranks.world.executor(0);
    const Time now = ranks.world.now();
    const ScheduleSet& set = schedule("bounded_reduce_scatter direct 3");
    constexpr std::uint32_t bytes = 8000;
    std::vector<std::uint8_t> memory(4 * bytes);
    std::vector<ChunkMemory> input(3);
    for (std::size_t i = 0; i < 3; ++i) input[i] = {memory.data() + i * bytes, bytes};
    const std::vector<ChunkMemory> output = {{memory.data() + 3 * bytes, bytes}};
    const std::uint16_t block_bytes = ranks.world.endpoint(0).block_bytes(*ranks.world.endpoint(0).find_peer(1));
    const std::uint32_t blocks = wire::block_count(bytes, block_bytes);
    const std::vector<std::uint8_t> fitting(blocks, 3), longer(blocks + 1, 3), shorter(blocks - 1, 3);
    const auto kept = ranks.world.endpoint(0).kept_messages();

    const auto refused = [&](const std::string& text, const auto& change) {
        LossRules rules;
        rules.loss_ratio = 0.1;
        CollectiveCommand command;
        command.group = 5;
        command.schedule = set.ranks[0].schedule;
        command.input = input;
        command.output = output;
        command.type = DataType::f32;
        command.loss = &rules;
        change(command, rules);
        std::string complaint;
        try {
            executor.start(now, command);
        } catch (const std::invalid_argument& error) {
            complaint = error.what();
        }
        CAPTURE(complaint);
        CHECK(complaint.find(text) != std::string::npos);
    };
    for (const double ratio : {-0.01, 1.0, 2.0, std::nan("")})
        refused("loss_ratio is ", [&](CollectiveCommand&, LossRules& rules) { rules.loss_ratio = ratio; });
    refused("deadline is negative",
            [](CollectiveCommand&, LossRules& rules) { rules.deadline = Duration{0} - milliseconds(1); });
    refused("loss of a max", [](CollectiveCommand& command, LossRules&) { command.op = ReduceOp::max; });
    refused("rescale of i32", [](CollectiveCommand& command, LossRules& rules) {
        command.type = DataType::i32;
        rules.rescale = true;
    });
    std::vector<std::span<const std::uint8_t>> of = {{}, fitting};
    refused("importance has 2 entries; accepted: one per rank, 3",
            [&](CollectiveCommand&, LossRules& rules) { rules.importance = of; });
    for (const std::vector<std::uint8_t>& wrong : {longer, shorter}) {
        of = {{}, fitting, wrong};
        refused("importance for rank 2 has " + std::to_string(wrong.size()) +
                    " entries; accepted: one per block of " + std::to_string(block_bytes) + " bytes, " +
                    std::to_string(blocks),
                [&](CollectiveCommand&, LossRules& rules) { rules.importance = of; });
    }
    const KeptMessages after = ranks.world.endpoint(0).kept_messages();
    CHECK(after.outgoing == kept.outgoing);
    CHECK(after.incoming == kept.incoming);
    CollectiveId id;
    CollectiveResult result;
    CHECK(!executor.poll_over(id, result));
}
