// The collective executor over the virtual network: bits, memory, order and priorities.
//
// Random worlds are in tests/property/collectives.cpp. Whatever a case does, the world judges results and memory as well
// (support/native/collective_world.hpp).
#include <doctest/doctest.h>

#include <set>
#include <span>
#include <stdexcept>
#include <vector>

#include "collective/reduce.hpp"
#include "support/native/collective_ranks.hpp"

using namespace dlcp;
using namespace dlcp::test;

TEST_CASE(
    "executor: every schedule gives the bits of a sequential run, over a network that loses, duplicates and "
    "reorders") {
    std::size_t turn = 0;
    for (const ScheduleSet& set : schedules()) {
        CAPTURE(set.name);
        Ranks ranks(set.world_size());
        ranks.set_between_all(unkind());
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
    ranks.set_between_all(unkind());
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
        ranks.set_between_all(unkind());
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

TEST_CASE("executor: where control overtakes data, data that waits is not sent again") {
    // First windows of all ranks at once: they wait for longer than a probe timeout in the senders' own queues.
    for (const char* name : {"coded_all_reduce direct 4", "all_reduce direct 4", "all_to_all pairwise 4"}) {
        CAPTURE(name);
        Ranks ranks(4);
        LinkSettings port;
        port.rate = Rate{1'000'000'000};
        port.strict_priority = true;
        ranks.set_ports(port);
        for (int i = 0; i < 3; ++i) {
            CollectivePlan plan = ranks.world.collectives()[ranks.plan(name, 65'536)];
            plan.is_virtual = true;
            ranks.start(ranks.world.add(plan));
            ranks.run();
        }
        std::uint64_t probes = 0;
        for (std::uint32_t rank = 0; rank < 4; ++rank) {
            CHECK(ranks.world.endpoint(rank).counters().repair_packets_sent == 0);
            probes += ranks.world.endpoint(rank).counters().probes_sent;
        }
        CHECK(probes > 0);  // or the case does not arise
    }
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
    ranks.set_between_all(unkind());
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

// Rank 1 keeps nothing that it has not asked for, and rank 0 sends it `count` messages.
std::vector<std::size_t> send_to_nobody(Ranks& ranks, std::size_t count, std::uint32_t bytes) {
    MessagePlan plan;
    plan.to = 1;
    plan.bytes = bytes;
    plan.is_virtual = true;
    std::vector<std::size_t> messages;
    for (std::size_t i = 0; i < count; ++i) messages.push_back(ranks.world.add(plan));
    for (const std::size_t message : messages) ranks.world.start_message(message, true);
    ranks.wait(milliseconds(100));
    return messages;
}

TEST_CASE("executor: sends beyond what may leave from copies are over once the peer has them") {
    Ranks ranks(2, [](std::uint32_t, EndpointConfig& config) { config.max_unexpected = Bytes{0}; });
    constexpr std::uint32_t bytes = 256 * 1024;
    constexpr std::size_t copied = CollectiveExecutor::max_copied_default.value / bytes;
    const auto messages = send_to_nobody(ranks, copied + 3, bytes);
    CHECK(std::ranges::count(ranks.world.operations(), Operation::Phase::over, &Operation::phase) == copied);
    CHECK(ranks.world.executor(0).copied().begin()->second == CollectiveExecutor::max_copied_default.value);
    for (const std::size_t message : messages) ranks.world.start_message(message, false);
    ranks.run();
    CHECK(ranks.world.executor(0).copied().empty());
    ranks.finish();
}

TEST_CASE("executor: a copy is lost if its peer leaves or dies, also after an abort") {
    for (const bool dies : {false, true}) {
        for (const bool aborts : {false, true}) {
            Ranks ranks(2, [](std::uint32_t, EndpointConfig& config) { config.max_unexpected = Bytes{0}; });
            send_to_nobody(ranks, 1, 1000);
            CHECK(ranks.world.executor(0).copied().begin()->second == 1000);
            ranks.world.close_group(0, 0, aborts);
            CHECK(ranks.world.executor(0).copied().begin()->second == 1000);
            if (dies)
                ranks.world.freeze(1);
            else
                ranks.world.close(1);
            ranks.wait(seconds(4));
            CHECK(ranks.world.executor(0).copied().empty());
            CHECK(!ranks.world.executor(0).lost().empty());
        }
    }
}

TEST_CASE("executor: messages of one tag come in order, and a receive from anyone names the sender") {
    Ranks ranks(4);
    ranks.set_between_all(unkind());
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
