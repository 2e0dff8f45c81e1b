// The collective executor over the virtual network: bits, memory, order, priorities, and how groups fail.
//
// Random worlds are in tests/property/collectives.cpp; here is what one can say by hand. Whatever a case does, the
// world judges results and memory as well (support/native/collective_world.hpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "collective/reduce.hpp"
#include "support/native/collective_world.hpp"
#include "support/native/schedule_vectors.hpp"

using namespace dlcp;
using namespace dlcp::test;

namespace {

const std::vector<ScheduleSet>& schedules() {
    static const std::vector<ScheduleSet> sets = load_schedules();
    return sets;
}

const ScheduleSet& schedule(const std::string& name) {
    const auto found =
        std::find_if(schedules().begin(), schedules().end(), [&](const auto& set) { return set.name == name; });
    REQUIRE_MESSAGE(found != schedules().end(), name);
    return *found;
}

LinkSettings quiet() {
    LinkSettings way;
    way.delay = microseconds(50);
    return way;
}

LinkSettings unkind() {
    LinkSettings way = quiet();
    way.loss_ratio = 0.05;
    way.duplicate_ratio = 0.1;
    way.reorder_ratio = 0.2;
    way.reorder_delay = microseconds(400);
    return way;
}

// All ranks are in group 0; more groups may be added. A case sees results when all is over.
class Ranks {
public:
    explicit Ranks(std::uint32_t ranks, const std::function<void(std::uint32_t, EndpointConfig&)>& change = {},
                   std::uint64_t network_seed = 1)
        : world(1, network_seed) {
        std::vector<std::uint32_t> members(ranks);
        std::iota(members.begin(), members.end(), 0);
        for (const std::uint32_t rank : members) {
            EndpointConfig config;
            config.peer_timeout = seconds(2);
            if (change) change(rank, config);
            world.add_host(config);
        }
        set_ways(quiet());
        world.add_group(5, members);
        world.check_invariants_every(16);
    }
    void set_ways(const LinkSettings& way) {
        for (std::uint32_t from = 0; from < world.hosts(); ++from)
            for (std::uint32_t to = 0; to < world.hosts(); ++to)
                if (from != to) world.network().set_way(from, to, way);
    }
    void set_ports(const LinkSettings& port) {
        for (std::uint32_t host = 0; host < world.hosts(); ++host) {
            world.network().set_uplink(host, port);
            world.network().set_downlink(host, port);
        }
    }
    std::size_t plan(const std::string& name, std::uint32_t elements, DataType type = DataType::f32,
                     ReduceOp op = ReduceOp::sum, Duration timeout = Duration{-1}) {
        CollectivePlan plan;
        plan.set = &schedule(name);
        plan.sequence = sequence++;
        plan.signature = static_cast<std::uint16_t>(0x4000 + plan.sequence);
        plan.type = type;
        plan.op = op;
        plan.part_elements.assign(plan.set->parts, elements);
        plan.timeout = timeout;
        return world.add(plan);
    }
    void start(std::size_t plan, const std::set<std::uint32_t>& without = {}) {
        const auto& members = world.members(world.collectives()[plan].group);
        for (std::uint32_t member = 0; member < members.size(); ++member)
            if (!without.contains(member)) world.start_collective(plan, member);
    }
    // Until all is over, or for `limit`.
    void run(Duration limit = seconds(60)) {
        world.run(world.now() + limit, [&] { return world.all_over(); });
        CHECK_MESSAGE(world.failure() == "", world.failure());
        for (const Operation& each : world.operations())
            CHECK_MESSAGE(each.phase != Operation::Phase::running, world.describe(each));
    }
    void wait(Duration duration) {
        world.run_until(world.now() + duration);
        CHECK_MESSAGE(world.failure() == "", world.failure());
    }
    void finish() {
        world.finish();
        CHECK_MESSAGE(world.failure() == "", world.failure());
    }
    const CollectiveResult& result(std::size_t plan, std::uint32_t member,
                                   Operation::Kind kind = Operation::Kind::collective) const {
        const auto found =
            std::find_if(world.operations().begin(), world.operations().end(), [&](const Operation& each) {
                return each.kind == kind && each.plan == plan && each.member == member;
            });
        REQUIRE(found != world.operations().end());
        return found->result;
    }
    // Every rank but the culprit fails in time, and blames it: in all operations from the `first` on.
    void check_blamed(std::uint32_t culprit, Duration timeout, std::size_t first = 0) {
        for (const Operation& each : std::span(world.operations()).subspan(first)) {
            if (each.member == culprit || each.phase == Operation::Phase::lost) continue;
            CAPTURE(world.describe(each));
            CHECK(each.result.error != CollectiveError::none);
            CAPTURE(std::string(name(each.result.error)));
            CAPTURE(std::string(name(each.result.engine_error)));
            CHECK(each.result.culprit == culprit);
            CHECK(each.over - each.started <= timeout + seconds(1));
        }
    }

    CollectiveWorld world;
    std::uint32_t sequence = 100;
};

constexpr Duration limit = seconds(1);

}  // namespace

TEST_CASE("executor: every schedule gives the bits of a sequential run, over a network that is not kind") {
    std::size_t turn = 0;
    for (const ScheduleSet& set : schedules()) {
        CAPTURE(set.name);
        Ranks ranks(set.world_size());
        ranks.set_ways(unkind());
        // Types and operations take turns; parts differ in length, and one is empty.
        for (int i = 0; i < 2; ++i, ++turn) {
            const auto type = static_cast<DataType>(turn % data_types);
            auto op = static_cast<ReduceOp>(turn / data_types % reduce_ops);
            if (find_reduce(type, op) == nullptr) op = ReduceOp::sum;
            const std::size_t plan = ranks.plan(set.name, 0, type, op);
            CollectivePlan changed = ranks.world.collectives()[plan];
            changed.sequence = ranks.sequence++;
            for (std::uint32_t part = 0; part < set.parts; ++part)
                changed.part_elements[part] = part == 1 ? 0 : static_cast<std::uint32_t>(301 + 97 * part);
            changed.average_over = op == ReduceOp::sum ? set.world_size() : 0;
            changed.in_place = i == 1;
            ranks.start(ranks.world.add(changed));
        }
        ranks.run();
        ranks.finish();
        if (ranks.world.failed()) break;
    }
}

TEST_CASE("executor: blocks of one peer straddle those of another") {
    constexpr std::uint16_t datagrams[] = {576, 1472, 8972, 1000, 600};
    Ranks ranks(5,
                [&](std::uint32_t rank, EndpointConfig& config) { config.max_datagram_bytes = datagrams[rank]; });
    ranks.set_ways(unkind());
    for (const char* name : {"all_reduce ring 5", "all_reduce direct 5", "all_reduce halving_doubling 5",
                             "all_reduce tree 5", "all_reduce one_shot 5", "broadcast ring 5 from 4"})
        ranks.start(ranks.plan(name, 7001, DataType::f16));
    ranks.run();
    ranks.finish();
    std::set<std::uint16_t> sizes;
    for (std::uint32_t a = 0; a < 5; ++a)
        for (std::uint32_t b = 0; b < 5; ++b)
            if (const auto peer = ranks.world.endpoint(a).find_peer(b))
                sizes.insert(ranks.world.endpoint(a).block_bytes(*peer));
    CHECK(sizes.size() >= 4);
}

TEST_CASE("executor: no bytes, one element, and longer than what leaves from a copy") {
    for (const std::uint32_t elements : {0u, 1u, 2u, 4095u, 8192u, 8193u, 90'000u}) {
        CAPTURE(elements);
        Ranks ranks(3);
        for (const char* name :
             {"all_reduce ring 3", "reduce_scatter ring 3", "all_gather ring 3", "reduce tree 3 from 2",
              "all_to_all pairwise 3", "scatter direct 3 from 0", "gather direct 3 from 2"})
            ranks.start(ranks.plan(name, elements));
        ranks.run();
        ranks.finish();
    }
}

TEST_CASE("executor: the order of arrival does not change a bit, and the same seeds give the same packets") {
    const auto run = [](std::uint64_t network_seed) {
        Ranks ranks(6, {}, network_seed);
        ranks.set_ways(unkind());
        for (const char* name : {"all_reduce direct 6", "all_reduce tree 6", "all_reduce one_shot 6"})
            ranks.start(ranks.plan(name, 3001, DataType::bf16));
        ranks.run();
        ranks.finish();
        return std::pair(ranks.world.result_hash(), ranks.world.trace_hash());
    };
    const auto first = run(1), again = run(1), other = run(2);
    CHECK(first == again);
    CHECK(first.first == other.first);
    CHECK(first.second != other.second);
    CHECK(first.first != 0);
}

TEST_CASE("executor: a chain passes blocks on as they come") {
    const auto duration = [](std::uint32_t size) {
        Ranks ranks(size);
        LinkSettings port;
        port.rate = Rate{1'000'000'000};
        ranks.set_ports(port);
        CollectivePlan plan = ranks.world.collectives()[ranks.plan(
            "broadcast ring " + std::to_string(size) + " from 0", 4'000'000, DataType::u8)];
        plan.is_virtual = true;
        ranks.start(ranks.world.add(plan));
        ranks.run();
        return ranks.world.now().value;
    };
    const auto two = duration(2);
    CHECK(two > milliseconds(32).value);  // 4 MB at 1 Gbit/s
    CHECK(duration(8) < two * 5 / 4);     // stored and forwarded, it would take seven times as long
}

TEST_CASE("executor: ranks that come late find what was kept or held for them") {
    Ranks ranks(4, [](std::uint32_t rank, EndpointConfig& config) {
        if (rank % 2 == 0) config.max_unexpected = Bytes{0};
        if (rank == 3) config.max_unexpected_message = Bytes{2000};
    });
    std::vector<std::size_t> plans;
    for (const char* name : {"all_reduce ring 4", "all_to_all pairwise 4", "all_reduce one_shot 4"})
        for (const std::uint32_t elements : {10u, 1000u, 30'000u}) plans.push_back(ranks.plan(name, elements));
    for (const std::uint32_t member : {2u, 0u, 3u, 1u}) {
        for (const std::size_t plan : plans) ranks.world.start_collective(plan, member);
        ranks.wait(milliseconds(100));
    }
    ranks.run();
    ranks.finish();
}

TEST_CASE("executor: many collectives in flight, in every class, in groups that overlap") {
    Ranks ranks(6);
    ranks.set_ways(unkind());
    ranks.world.add_group(6, {5, 1, 3});
    ranks.world.add_group(16383, {2, 3, 4, 0});
    for (std::uint32_t i = 0; i < 60; ++i) {
        CollectivePlan plan = ranks.world.collectives()[ranks.plan(i % 3 == 0   ? "all_reduce ring 6"
                                                                   : i % 3 == 1 ? "all_reduce direct 3"
                                                                                : "all_reduce tree 4",
                                                                   100 + 91 * i)];
        plan.group = i % 3;
        plan.traffic_class = static_cast<std::uint8_t>(i % 7);
        ranks.start(ranks.world.add(plan));
    }
    ranks.run();
    ranks.finish();
}

TEST_CASE("executor: a late collective of a higher class overtakes at the packet") {
    Ranks ranks(4);
    LinkSettings port;
    port.rate = Rate{1'000'000'000};
    port.strict_priority = true;
    ranks.set_ports(port);
    const auto add = [&](std::uint32_t elements, std::uint8_t traffic_class) {
        CollectivePlan plan = ranks.world.collectives()[ranks.plan("all_reduce ring 4", elements, DataType::u8)];
        plan.is_virtual = true;
        plan.traffic_class = traffic_class;
        return ranks.world.add(plan);
    };
    const std::size_t low = add(4'000'000, 1), high = add(40'000, 6);
    ranks.start(low);
    ranks.wait(milliseconds(20));
    const Time late = ranks.world.now();
    // From when its blocks are there, no packet of the lower class leaves a host before them.
    std::vector<std::uint32_t> low_before(4, 0), high_packets(4, 0);
    std::vector<bool> first_over(4, false);
    ranks.world.on_packet = [&](std::uint32_t host, const dlcp_packet& packet) {
        const unsigned traffic_class = packet.tos >> 5;
        if (traffic_class == 6 && packet.body_bytes > 0) ++high_packets[host];
        const bool first_chunk = high_packets[host] < (40'000 + 1407) / 1408;
        if (traffic_class == 1 && first_chunk) ++low_before[host];
    };
    ranks.start(high);
    ranks.run();
    for (std::uint32_t host = 0; host < 4; ++host) {
        CHECK(low_before[host] == 0);
        CHECK(high_packets[host] >= 6 * 29);
    }
    for (const Operation& each : ranks.world.operations()) {
        if (each.plan == high) CHECK(each.over - late < milliseconds(6));   // 240 kB take 2 ms, and six hops
        if (each.plan == low) CHECK(each.over - late > milliseconds(100));  // 24 MB take 192 ms
    }
}

TEST_CASE("executor: bad commands are refused and leave nothing") {
    Ranks ranks(3);
    CollectiveExecutor& executor = ranks.world.executor(0);
    const std::vector<std::uint32_t> members = {0, 1, 2};
    const Time now = ranks.world.now();
    CHECK_THROWS_AS(executor.open_group(now, 1u << 14, members, 0), std::invalid_argument);
    CHECK_THROWS_AS(executor.open_group(now, 9, members, 3), std::invalid_argument);
    CHECK(executor.open_group(now, 9, members, 0));
    CHECK(!executor.open_group(now, 9, members, 0));

    const ScheduleSet& set = schedule("all_reduce ring 3");
    std::vector<std::uint8_t> memory(3 * 1024);
    std::vector<ChunkMemory> output(3);
    for (std::size_t i = 0; i < 3; ++i) output[i] = {memory.data() + i * 1024, 1024};
    CollectiveCommand good;
    good.group = 9;
    good.schedule = set.ranks[0].schedule;
    good.output = output;
    good.type = DataType::f32;
    const auto refused = [&](const auto& change) {
        CollectiveCommand command = good;
        change(command);
        CHECK_THROWS_AS(executor.start(now, command), std::invalid_argument);
    };
    refused([](CollectiveCommand&) {});  // nobody is connected
    for (const std::uint32_t rank : {1u, 2u})
        REQUIRE(ranks.world.endpoint(0).connect(now, rank, VirtualNetwork::address(rank)));
    refused([](CollectiveCommand& c) { c.group = 10; });
    refused([](CollectiveCommand& c) { c.schedule = nullptr; });
    refused([&](CollectiveCommand& c) { c.schedule = set.ranks[1].schedule; });
    refused([](CollectiveCommand& c) { c.schedule = schedule("all_reduce ring 4").ranks[0].schedule; });
    refused([&](CollectiveCommand& c) { c.output = std::span(output).first(2); });
    refused([&](CollectiveCommand& c) { c.input = output; });
    refused([](CollectiveCommand& c) { c.op = ReduceOp::bxor; });  // not of floating point
    output[1].bytes = 1022;
    refused([](CollectiveCommand&) {});  // no whole number of f32
    output[1].bytes = UINT32_MAX;
    refused([](CollectiveCommand&) {});

    MessageCommand message;
    message.group = 9;
    message.peer = 1;
    const auto refused_message = [&](const auto& change) {
        MessageCommand command = message;
        change(command);
        CHECK_THROWS_AS(executor.start(now, command), std::invalid_argument);
    };
    refused_message([](MessageCommand& c) { c.group = 8; });
    refused_message([](MessageCommand& c) { c.peer = 0; });
    refused_message([](MessageCommand& c) { c.peer = 3; });
    refused_message([](MessageCommand& c) {
        c.peer = UINT32_MAX;
        c.sending = true;
    });
    refused_message([](MessageCommand& c) { c.memory.bytes = UINT32_MAX; });
    CHECK(ranks.world.endpoint(0).kept_messages().outgoing == 0);
    CHECK(ranks.world.endpoint(0).kept_messages().incoming == 1);  // listens for failures
    CHECK(executor.next_deadline() == time_never);
    CollectiveId id;
    CollectiveResult result;
    CHECK(!executor.poll_over(id, result));
}

TEST_CASE("executor: small results are there before the peers have acknowledged, and then it drains") {
    Ranks ranks(2);
    ranks.start(ranks.plan("broadcast direct 2 from 0", 100));
    CHECK(ranks.result(0, 0).error == CollectiveError::none);
    CHECK(ranks.world.operations()[0].over == ranks.world.operations()[0].started);
    CHECK(ranks.world.executor(0).draining());
    ranks.run();
    ranks.wait(milliseconds(50));
    CHECK(!ranks.world.executor(0).draining());
    CHECK(ranks.world.endpoint(0).kept_messages().outgoing == 0);
}

// --- single messages ------------------------------------------------------------------------------------------

TEST_CASE("executor: messages of one tag come in order, from anyone says who sent") {
    Ranks ranks(4);
    ranks.set_ways(unkind());
    for (std::uint32_t i = 0; i < 24; ++i) {
        MessagePlan plan;
        plan.from = 1 + i % 3;
        plan.to = 0;
        plan.from_anyone = i < 12;
        plan.tag = i < 12 ? 3 : 4;
        plan.bytes = 5000;
        const std::size_t message = ranks.world.add(plan);
        ranks.world.start_message(message, true);
        ranks.world.start_message(message, false);
    }
    ranks.run();
    ranks.finish();
}

TEST_CASE("executor: a message that nobody sends times out alone") {
    Ranks ranks(2);
    ranks.world.errors_allowed = true;
    MessagePlan plan;
    plan.from = 1;
    plan.to = 0;
    plan.bytes = 100;
    plan.timeout = limit;
    for (const bool from_anyone : {false, true}) {
        plan.tag = from_anyone;
        plan.from_anyone = from_anyone;
        const std::size_t message = ranks.world.add(plan);
        ranks.world.start_message(message, false);
        ranks.start(ranks.plan("all_reduce ring 2", 10));
        ranks.run();
        const CollectiveResult& result = ranks.result(message, 0, Operation::Kind::receive);
        CHECK(result.error == CollectiveError::timeout);
        CHECK(result.culprit == (from_anyone ? UINT32_MAX : 1));
        CHECK(result.waited <= limit + seconds(1));
    }
    ranks.start(ranks.plan("all_reduce ring 2", 10));
    ranks.run();
    CHECK(ranks.world.operations().back().result.error == CollectiveError::none);
    ranks.finish();
}

TEST_CASE("executor: a message of another length is a mismatch that names both") {
    for (const std::uint32_t bytes : {100u, 600'000u}) {
        CAPTURE(bytes);
        Ranks ranks(2);
        ranks.world.errors_allowed = true;
        MessagePlan plan;
        plan.from = 1;
        plan.to = 0;
        plan.bytes = bytes;
        plan.more_bytes = 3;
        const std::size_t message = ranks.world.add(plan);
        ranks.world.start_message(message, false);
        ranks.world.start_message(message, true);
        ranks.run();
        const CollectiveResult& result = ranks.result(message, 0, Operation::Kind::receive);
        CHECK(result.error == CollectiveError::mismatch);
        CHECK(result.culprit == 1);
        CHECK(result.foreign_bytes == bytes);
        CHECK(result.expected_bytes == bytes + 3);
        // What left from a copy was over before.
        CHECK(ranks.result(message, 1, Operation::Kind::send).error ==
              (bytes == 100 ? CollectiveError::none : CollectiveError::mismatch));
        // The group goes on.
        ranks.start(ranks.plan("all_reduce ring 2", 10));
        ranks.run();
        CHECK(ranks.world.operations().back().result.error == CollectiveError::none);
        ranks.finish();
    }
}

// --- failures -------------------------------------------------------------------------------------------------

TEST_CASE("executor: a rank that is killed fails the collective on all others, which blame it") {
    for (const char* name : {"all_reduce ring 6", "all_reduce direct 6", "all_reduce tree 6", "all_gather ring 6",
                             "all_reduce halving_doubling 6"}) {
        for (const std::uint32_t culprit : {0u, 3u}) {
            for (const Duration timeout : {limit, seconds(60)}) {  // its own time, or the peer timeout of 2 s
                CAPTURE(std::string(name));
                CAPTURE(culprit);
                Ranks ranks(6);
                LinkSettings port;
                port.rate = Rate{1'000'000'000};
                ranks.set_ports(port);
                ranks.world.errors_allowed = true;
                ranks.start(ranks.plan(name, 60'000, DataType::f32, ReduceOp::sum, timeout));
                ranks.wait(microseconds(900));
                ranks.world.stop(culprit);
                ranks.run();
                ranks.check_blamed(culprit, std::min(timeout, seconds(2)));
                ranks.finish();
            }
        }
    }
}

TEST_CASE("executor: a rank that is killed before anybody has heard of it is to blame") {
    for (const char* name :
         {"all_reduce ring 5", "all_reduce tree 5", "broadcast ring 5 from 0", "all_reduce direct 5"}) {
        CAPTURE(std::string(name));
        Ranks ranks(5);
        ranks.world.errors_allowed = true;
        ranks.world.stop(4);
        ranks.start(ranks.plan(name, 1000, DataType::f32, ReduceOp::sum, limit), {4});
        ranks.run();
        for (const Operation& each : ranks.world.operations()) {
            CAPTURE(ranks.world.describe(each));
            // Who only had to send has sent.
            if (each.result.error != CollectiveError::none) CHECK(each.result.culprit == 4);
            CHECK(each.over - each.started <= limit + seconds(1));
        }
        CHECK(ranks.result(0, 3).error != CollectiveError::none);
    }
}

TEST_CASE("executor: a rank that is stopped and goes on in time fails nobody") {
    Ranks ranks(4);
    ranks.start(ranks.plan("all_reduce ring 4", 100'000, DataType::f32, ReduceOp::sum, limit));
    ranks.wait(microseconds(300));
    ranks.world.freeze(2);
    ranks.wait(milliseconds(800));
    ranks.world.thaw(2);
    ranks.run();
    ranks.finish();
}

TEST_CASE("executor: a rank that leaves too early is to blame") {
    Ranks ranks(4);
    LinkSettings port;
    port.rate = Rate{1'000'000'000};
    ranks.set_ports(port);
    ranks.world.errors_allowed = true;
    ranks.start(ranks.plan("all_reduce ring 4", 250'000, DataType::f32, ReduceOp::sum, seconds(60)));
    ranks.wait(milliseconds(4));
    ranks.world.close(1);
    ranks.run();
    ranks.check_blamed(1, Duration{0});
    ranks.finish();
}

TEST_CASE("executor: a rank that an operation keeps from the next is not to blame for it") {
    // Ranks 1 and 3 wait in operation 1 for rank 0, which is gone; rank 2 has finished that and waits for them in the
    // next. Whoever's time is up first, and whether anybody else's is near: it is rank 0.
    for (const bool first_has_time : {true, false}) {
        CAPTURE(first_has_time);
        Ranks ranks(4);
        ranks.world.errors_allowed = true;
        ranks.start(ranks.plan("all_reduce ring 4", 10));
        ranks.run();
        const std::size_t first = ranks.world.operations().size();
        const Duration long_time = seconds(1000);
        const std::size_t kept = ranks.plan("all_reduce ring 4", 3000, DataType::f32, ReduceOp::sum,
                                            first_has_time ? long_time : limit);
        const std::size_t next = ranks.plan("all_reduce ring 4", 3000, DataType::f32, ReduceOp::sum, limit);
        for (const std::uint32_t member : {1u, 3u}) ranks.world.start_collective(kept, member);
        ranks.world.start_collective(next, 2);
        ranks.world.stop(0);
        ranks.run();
        ranks.check_blamed(0, limit, first);
        for (const std::uint32_t member : {1u, 3u}) {
            const CollectiveResult& result = ranks.result(kept, member);
            CHECK(result.engine_error == CommandError::peer_timeout);
        }
        CHECK(ranks.result(next, 2).engine_error == CommandError::peer_timeout);
        ranks.finish();
    }
}

TEST_CASE("executor: an abort is heard by all, and says who") {
    Ranks ranks(8);
    LinkSettings port;
    port.rate = Rate{1'000'000'000};
    ranks.set_ports(port);
    ranks.world.errors_allowed = true;
    ranks.start(ranks.plan("all_reduce ring 8", 250'000));
    ranks.wait(milliseconds(4));
    const Time aborted = ranks.world.now();
    ranks.world.close_group(0, 5, true);
    ranks.run();
    ranks.check_blamed(5, Duration{0});
    for (const Operation& each : ranks.world.operations()) {
        CHECK(each.over - aborted < milliseconds(20));
        CHECK((each.member == 5 ? each.result.error : each.result.cause) == CollectiveError::aborted);
    }
    ranks.finish();
}

TEST_CASE("executor: an abort reaches a rank that comes later, with its first packet") {
    Ranks ranks(3);
    ranks.world.errors_allowed = true;
    const std::size_t plan = ranks.plan("all_reduce ring 3", 100);
    ranks.world.start_collective(plan, 0);
    ranks.world.close_group(0, 0, true);
    ranks.wait(milliseconds(50));
    const Time late = ranks.world.now();
    ranks.world.start_collective(plan, 1);
    ranks.world.start_collective(plan, 2);
    ranks.run(milliseconds(100));
    ranks.check_blamed(0, Duration{0});
    CHECK(ranks.world.now() - late < milliseconds(100));
}

TEST_CASE("executor: a rank that does not call is to blame, however long the chain and whoever is first") {
    for (const char* name : {"all_reduce ring 8", "broadcast ring 8 from 0", "reduce ring 8 from 7",
                             "all_reduce tree 8", "all_reduce halving_doubling 8"}) {
        for (const std::uint32_t absent : {0u, 2u, 5u}) {
            CAPTURE(std::string(name));
            CAPTURE(absent);
            Ranks ranks(8);
            ranks.world.errors_allowed = true;
            ranks.start(ranks.plan("all_reduce ring 8", 10));
            ranks.run();
            const std::size_t plan = ranks.plan(name, 3000, DataType::f32, ReduceOp::sum, limit);
            for (std::uint32_t i = 0; i < 8; ++i) {  // those that are farthest start first
                const std::uint32_t member = (absent + 8 - i) % 8;
                if (member != absent) ranks.world.start_collective(plan, member);
                ranks.wait(milliseconds(30));
            }
            ranks.run();
            bool failed = false;
            for (const Operation& each : ranks.world.operations()) {
                if (each.plan != plan || each.result.error == CollectiveError::none) continue;
                CAPTURE(ranks.world.describe(each));
                failed = true;
                CHECK(each.result.culprit == absent);
                CHECK((each.result.error == CollectiveError::timeout ||
                       each.result.cause == CollectiveError::timeout));
                CHECK(each.over - each.started <= limit + seconds(1));
            }
            CHECK(failed);
            ranks.finish();
        }
    }
}

TEST_CASE("executor: whose time is up first learns through all the others who is to blame") {
    for (const bool killed : {false, true}) {
        CAPTURE(killed);
        Ranks ranks(8);
        ranks.world.errors_allowed = true;
        ranks.start(ranks.plan("all_reduce ring 8", 10));
        ranks.run();
        const std::size_t plan =
            ranks.plan("all_reduce ring 8", 3000, DataType::f32, ReduceOp::sum, seconds(1000));
        // Rank 7 waits for 6, which waits for 5, and so on; nobody else's time is near.
        for (std::uint32_t member = 1; member < 7; ++member) ranks.world.start_collective(plan, member);
        ranks.world.start_collective(plan, 7, {.timeout = milliseconds(300)});
        if (killed) ranks.world.stop(0);
        ranks.run();
        ranks.check_blamed(0, milliseconds(300), 8);
        CHECK(ranks.result(plan, 7).error == CollectiveError::timeout);
        CHECK(ranks.result(plan, 1).cause == CollectiveError::timeout);
        ranks.finish();
    }
}

TEST_CASE("executor: a root that called something else before anybody had opened the group is found") {
    Ranks ranks(4);
    ranks.world.errors_allowed = true;
    const std::size_t plan =
        ranks.plan("broadcast ring 4 from 0", 30, DataType::f32, ReduceOp::sum, seconds(1000));
    ranks.world.start_collective(plan, 0, {.signature_bits = 1});
    ranks.wait(milliseconds(20));
    ranks.start(plan, {0});
    ranks.run(milliseconds(100));
    for (std::uint32_t member = 1; member < 4; ++member) {
        const CollectiveResult& result = ranks.result(plan, member);
        CHECK((result.error == CollectiveError::mismatch || result.cause == CollectiveError::mismatch));
        CHECK(result.culprit == 0);
    }
    ranks.finish();
}

TEST_CASE("executor: another call is a mismatch on every rank, also when it came before the group was open") {
    for (const bool early : {false, true}) {
        // The high bits of a signature are not in the tag's low 16, and must be seen all the same.
        for (const Deviation deviation :
             {Deviation{.signature_bits = 0x0f0f}, Deviation{.signature_bits = 1u << 16},
              Deviation{.signature_bits = 0xfff0000}, Deviation{.more_elements = 7}}) {
            CAPTURE(early);
            CAPTURE(deviation.more_elements);
            CAPTURE(deviation.signature_bits);
            Ranks ranks(4);
            ranks.world.errors_allowed = true;
            const std::size_t plan = ranks.plan("all_reduce ring 4", 3000, DataType::f32, ReduceOp::sum, limit);
            if (early) {
                ranks.world.start_collective(plan, 2, deviation);
                ranks.wait(milliseconds(20));
            }
            ranks.start(plan, {2});
            if (!early) ranks.world.start_collective(plan, 2, deviation);
            ranks.run(milliseconds(100));  // long before the time is up
            for (std::uint32_t member = 0; member < 4; ++member) {
                const CollectiveResult& result = ranks.result(plan, member);
                CAPTURE(member);
                CHECK((result.error == CollectiveError::mismatch || result.cause == CollectiveError::mismatch));
                // Each side of a mismatch sees the other's call as the foreign one.
                const std::uint32_t reporter =
                    result.error == CollectiveError::mismatch ? member : result.reporter;
                CHECK((result.culprit == 2 || reporter == 2));
                const std::uint32_t other = member == 2 ? 0 : deviation.signature_bits;
                if (result.error == CollectiveError::mismatch && deviation.signature_bits != 0)
                    CHECK(result.foreign_signature ==
                          ((ranks.world.collectives()[plan].signature ^ other) & 0xffff));
            }
            ranks.finish();
        }
    }
}

TEST_CASE("executor: another root is found when both have sent and are done, also by high bits alone") {
    Ranks ranks(2);
    ranks.world.errors_allowed = true;
    const std::size_t mine = ranks.plan("broadcast direct 2 from 0", 30, DataType::f32, ReduceOp::sum, limit);
    CollectivePlan other =
        ranks.world
            .collectives()[ranks.plan("broadcast direct 2 from 1", 30, DataType::f32, ReduceOp::sum, limit)];
    other.sequence = ranks.world.collectives()[mine].sequence;
    other.signature = ranks.world.collectives()[mine].signature ^ 1u << 16;
    const std::size_t theirs = ranks.world.add(other);
    ranks.world.start_collective(mine, 0);
    ranks.world.start_collective(theirs, 1);
    ranks.wait(milliseconds(20));
    const std::size_t later = ranks.plan("all_reduce direct 2", 100, DataType::f32, ReduceOp::sum, limit);
    ranks.start(later);
    ranks.run(milliseconds(100));
    for (std::uint32_t member = 0; member < 2; ++member)
        CHECK(ranks.result(later, member).cause == CollectiveError::mismatch);
    ranks.finish();
}

TEST_CASE("executor: a group that has failed refuses what starts later, and others go on") {
    Ranks ranks(4);
    ranks.world.errors_allowed = true;
    const std::uint32_t other = ranks.world.add_group(77, {3, 0, 2, 1});
    const std::size_t plan = ranks.plan("all_reduce ring 4", 100, DataType::f32, ReduceOp::sum, limit);
    ranks.start(plan, {2});
    ranks.run();
    ranks.wait(milliseconds(1));  // rank 2 has heard of it too
    const std::size_t later = ranks.plan("all_reduce direct 4", 100);
    ranks.start(later);
    CollectivePlan elsewhere = ranks.world.collectives()[ranks.plan("all_reduce ring 4", 1000)];
    elsewhere.group = other;
    const std::size_t healthy = ranks.world.add(elsewhere);
    ranks.start(healthy);
    ranks.run();
    for (std::uint32_t member = 0; member < 4; ++member) {
        const CollectiveResult& result = ranks.result(later, member);
        CHECK(result.error == CollectiveError::group_failed);
        CHECK(result.cause == CollectiveError::timeout);
        CHECK(result.culprit == 2);
        CHECK(result.sequence == ranks.world.collectives()[plan].sequence);
        CHECK(result.waited == Duration{0});
        CHECK(ranks.result(healthy, member).error == CollectiveError::none);
    }
    ranks.finish();
}

TEST_CASE("executor: a failed group leaves nothing in the engines, and its number can be used again") {
    Ranks ranks(5);
    ranks.world.errors_allowed = true;
    for (int round = 0; round < 3; ++round) {
        CAPTURE(round);
        const std::size_t first = ranks.world.operations().size();
        // Long and short messages, some for collectives that the others do not reach.
        ranks.sequence = 1;
        std::vector<std::size_t> plans;
        for (const std::uint32_t elements : {10u, 5000u, 30'000u})
            plans.push_back(ranks.plan("all_reduce direct 5", elements, DataType::f32, ReduceOp::sum, limit));
        for (const std::size_t plan : plans) ranks.world.start_collective(plan, 0);
        for (std::uint32_t member = 1; member < 4; ++member) ranks.world.start_collective(plans[0], member);
        ranks.wait(milliseconds(20));
        ranks.world.open_group(0, 4);
        ranks.world.close_group(0, 3, true);
        ranks.run();
        ranks.check_blamed(3, limit, first);
        ranks.wait(milliseconds(100));
        for (std::uint32_t host = 0; host < 5; ++host) {
            CHECK(ranks.world.endpoint(host).kept_messages().outgoing == 0);
            CHECK(ranks.world.endpoint(host).kept_messages().unexpected == Bytes{0});
        }
        for (std::uint32_t member = 0; member < 5; ++member) ranks.world.close_group(0, member, false);
        ranks.wait(milliseconds(100));
        for (std::uint32_t host = 0; host < 5; ++host) {
            const KeptMessages kept = ranks.world.endpoint(host).kept_messages();
            CHECK(kept.outgoing == 0);
            CHECK(kept.incoming == 0);
            CHECK(kept.unexpected == Bytes{0});
            CHECK(!ranks.world.executor(host).draining());
        }
        // The same number, the same sequence, the same signature: nothing of the old one is found.
        ranks.sequence = 1;
        const std::size_t fresh = ranks.plan("all_reduce direct 5", 10);
        ranks.start(fresh);
        ranks.run();
        for (std::uint32_t member = 0; member < 5; ++member)
            CHECK(ranks.result(fresh, member).error == CollectiveError::none);
        for (std::uint32_t member = 0; member < 5; ++member) ranks.world.close_group(0, member, false);
        ranks.wait(milliseconds(100));
        if (round == 0) ranks.finish();
    }
}

TEST_CASE("executor: a failed group's copies do not wait for a rank that has no room for them") {
    Ranks ranks(2, [](std::uint32_t rank, EndpointConfig& config) {
        if (rank == 1) config.max_unexpected_message = Bytes{1000};
    });
    ranks.world.errors_allowed = true;
    const std::size_t plan = ranks.plan("all_reduce one_shot 2", 1000, DataType::f32, ReduceOp::sum, limit);
    ranks.start(plan, {1});
    ranks.run();
    CHECK(ranks.result(plan, 0).culprit == 1);
    ranks.wait(milliseconds(100));
    CHECK(ranks.world.endpoint(0).kept_messages().outgoing == 0);
    CHECK(!ranks.world.executor(0).draining());
    // The other one hears of the failure when it calls.
    ranks.world.start_collective(plan, 1);
    ranks.run(milliseconds(10));
    CHECK(ranks.result(plan, 1).error == CollectiveError::group_failed);
    CHECK(ranks.result(plan, 1).culprit == 1);
    ranks.finish();
}

TEST_CASE("executor: who waits for blocks to pass on does not write to a copy whose peer has left") {
    // 0 -> 1 -> 2: rank 2 leaves before rank 1 has anything for it. Rank 1's part is to have the data, and it has.
    Ranks ranks(4);
    ranks.world.errors_allowed = true;
    const std::uint32_t three = ranks.world.add_group(6, {0, 1, 2});
    const auto plan_in_three = [&](const char* name, std::uint32_t elements) {
        CollectivePlan plan = ranks.world.collectives()[ranks.plan(name, elements)];
        plan.group = three;
        return ranks.world.add(plan);
    };
    const std::size_t first = plan_in_three("all_reduce ring 3", 10);
    ranks.start(first);
    ranks.run();
    const std::size_t plan = plan_in_three("broadcast ring 3 from 0", 2000);
    ranks.world.start_collective(plan, 1);
    ranks.wait(milliseconds(10));
    ranks.world.close(2);
    ranks.wait(milliseconds(10));
    // The copy's memory is a message's by now, which waits for its peer when the data comes.
    MessagePlan message;
    message.from = 1;
    message.to = 3;
    message.bytes = 2000 * 4;
    const std::size_t copy = ranks.world.add(message);
    ranks.world.freeze(3);
    ranks.world.start_message(copy, true);
    ranks.world.start_collective(plan, 0);
    ranks.wait(milliseconds(10));
    CHECK(ranks.result(plan, 1).error == CollectiveError::none);
    ranks.world.thaw(3);
    ranks.world.start_message(copy, false);
    ranks.run();
    CHECK(ranks.result(copy, 3, Operation::Kind::receive).error == CollectiveError::none);
    ranks.finish();
}

TEST_CASE("executor: virtual payload goes the same way, in lengths") {
    Ranks ranks(8, [](std::uint32_t, EndpointConfig& config) { config.max_datagram_bytes = 8972; });
    for (const char* name : {"all_reduce ring 8", "all_reduce direct 8", "all_reduce one_shot 8"}) {
        CollectivePlan plan = ranks.world.collectives()[ranks.plan(name, 200'000)];
        plan.is_virtual = true;
        ranks.start(ranks.world.add(plan));
    }
    ranks.run();
    ranks.finish();
}
