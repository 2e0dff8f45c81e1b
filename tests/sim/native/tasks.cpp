// The task graph: what waits for what, what a channel lets start, and that
// neither depth nor size is a limit.
#include "sim/core/tasks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sim/core/domain.hpp"
#include "sim/core/simulation.hpp"

using namespace dlcp::sim;
namespace switching = dlcp::switching;

namespace {

constexpr std::int64_t us = 1'000'000;
constexpr std::int64_t packet_ps = 4160 * 80;  // a full packet at 100 Gb/s
constexpr std::int64_t delay_ps = us;

// A transport whose collectives are over as they start.
class Instant final : public Transport {
public:
    void start_flow(Domain&, std::uint32_t) override {}
    void handle_packet(Domain&, std::uint32_t, std::uint32_t) override {}
    std::uint32_t pull_packet(Domain&, std::uint32_t) override { return none; }
    void handle_timer(Domain&, std::uint32_t, std::uint32_t) override {}
    void start_collective(Domain& domain, std::uint32_t index, std::uint32_t rank, std::uint32_t task) override {
        started.push_back({index, rank});
        domain.task_finished(task);
    }
    std::uint32_t payload_bytes() const override { return 1; }
    std::uint32_t header_bytes() const override { return 0; }

    std::vector<std::pair<std::uint32_t, std::uint32_t>> started;
};

// `hosts` hosts below one switch.
struct World {
    explicit World(std::uint32_t hosts = 4,
                   std::unique_ptr<Transport> transport = make_transport("line_rate", {})) {
        Clos shape;
        shape.hosts = hosts;
        shape.host_rate_bps = 100'000'000'000;
        shape.host_delay_ps = delay_ps;
        simulation = std::make_unique<Simulation>(Fabric(shape), switching::Policy{}, std::move(transport),
                                                  SimulationSettings{});
    }
    TaskGraph& graph() { return simulation->tasks(); }
    std::uint32_t compute(std::int64_t duration_ps, std::uint32_t host = 0) {
        return graph().add_task({.kind = TaskKind::compute, .host = host, .value = duration_ps});
    }
    std::uint32_t turn(std::int64_t duration_ps, std::uint32_t channel, std::int64_t priority = 0,
                       std::uint64_t bytes = 0, std::uint32_t returned_by = none) {
        return graph().add_task({.value = duration_ps,
                                 .channel = channel,
                                 .priority = priority,
                                 .channel_bytes = bytes,
                                 .returned_by = returned_by});
    }
    std::uint32_t flow(std::uint32_t source, std::uint32_t destination, std::uint64_t bytes) {
        Flow f;
        f.source = source;
        f.destination = destination;
        f.bytes = bytes;
        f.start_ps = -1;
        const std::uint32_t index = simulation->add_flow(f);
        return graph().add_task({.kind = TaskKind::flow, .host = source, .value = index});
    }
    void after(std::uint32_t before, std::uint32_t then, After when = After::finished) {
        graph().add_edge(before, then, when);
    }
    bool run() { return simulation->run(-1, -1); }
    const TaskTimes& at(std::uint32_t task) { return graph().times()[task]; }

    std::unique_ptr<Simulation> simulation;
};

std::string refusal(World& world) {
    try {
        world.run();
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("tasks: a task starts when the last of those before it is over") {
    World world;
    const auto a = world.compute(3 * us), b = world.compute(5 * us), c = world.compute(us);
    world.after(a, c);
    world.after(b, c);
    REQUIRE(world.run());
    CHECK(world.at(a).started_ps == 0);
    CHECK(world.at(c).ready_ps == 5 * us);
    CHECK(world.at(c).started_ps == 5 * us);
    CHECK(world.at(c).finished_ps == 6 * us);
}

TEST_CASE(
    "tasks: of a flow, its destination goes on when it is there, its "
    "source when it knows") {
    World world;
    const auto before = world.compute(2 * us, 1);
    const auto flow = world.flow(1, 2, 10 * 4096);
    const auto there = world.compute(us, 2);
    const auto back = world.compute(us, 1);
    world.after(before, flow);
    world.after(flow, there);
    world.after(flow, back, After::acknowledged);
    REQUIRE(world.run());
    CHECK(world.at(flow).started_ps == 2 * us);
    // Ten packets, two links, store and forward.
    CHECK(world.at(there).started_ps == 2 * us + 11 * packet_ps + 2 * delay_ps);
    CHECK(world.at(flow).finished_ps >= 0);
    CHECK(world.at(back).started_ps == world.at(flow).finished_ps);
}

TEST_CASE("tasks: nothing to send and nothing to compute pass on the order") {
    World world;
    const auto a = world.compute(0), flow = world.flow(0, 1, 0), b = world.compute(0, 1);
    world.after(a, flow);
    world.after(flow, b);
    REQUIRE(world.run());
    CHECK(world.at(a).finished_ps == 0);
    CHECK(world.at(b).finished_ps == world.simulation->results()[0].delivered_ps);
}

TEST_CASE(
    "tasks: a channel without credit is one processor, lowest priority "
    "number first, then first ready") {
    World world;
    const auto channel = world.graph().add_channel(0);
    const auto later = world.compute(us);
    const auto a = world.turn(10 * us, channel, 5, 1);
    const auto b = world.turn(10 * us, channel, 7, 1);
    const auto c = world.turn(10 * us, channel, 7, 1);
    const auto urgent = world.turn(10 * us, channel, 1, 1);
    world.after(later, urgent);
    REQUIRE(world.run());
    CHECK(world.at(a).started_ps == 0);
    CHECK(world.at(urgent).ready_ps == us);
    CHECK(world.at(urgent).started_ps == 10 * us);
    CHECK(world.at(b).started_ps == 20 * us);
    CHECK(world.at(c).started_ps == 30 * us);
}

TEST_CASE("tasks: what becomes ready at one moment is chosen among together") {
    World world;
    const auto channel = world.graph().add_channel(0);
    const auto first = world.compute(us);
    const auto back = world.turn(us, channel, 9, 1), front = world.turn(us, channel, 1, 1);
    world.after(first, back);
    world.after(first, front);
    REQUIRE(world.run());
    CHECK(world.at(front).started_ps == us);
    CHECK(world.at(back).started_ps == 2 * us);
}

TEST_CASE("tasks: credit comes back when the task named is over") {
    World world;
    const auto channel = world.graph().add_channel(100);
    const auto end = world.compute(10 * us);
    const auto gate = world.turn(0, channel, 0, 60, end), second = world.turn(0, channel, 1, 60);
    const auto small = world.turn(0, channel, 2, 40);
    world.after(gate, end);
    REQUIRE(world.run());
    CHECK(world.at(gate).finished_ps == 0);
    CHECK(world.at(second).started_ps == 10 * us);
    CHECK(world.at(small).started_ps == 10 * us);  // nothing smaller passes it by
}

TEST_CASE(
    "tasks: ranks that spend their credit on different things wait for "
    "ever, unless they spend it together") {
    // Two hosts, two collectives: each is over at a host when the other host's message of it is there. The second one
    // is ready on host 1 first.
    for (const bool together : {false, true}) {
        World world;
        std::uint32_t gates[2][2], ends[2][2];
        for (std::uint32_t host = 0; host < 2; ++host) {
            const auto channel = world.graph().add_channel(0, together);
            for (std::uint32_t i = 0; i < 2; ++i) {
                ends[host][i] = world.compute(0, host);
                gates[host][i] = world.graph().add_task(
                    {.host = host, .channel = channel, .channel_bytes = 1, .returned_by = ends[host][i]});
                world.after(gates[host][i], ends[host][i]);
                world.after(world.compute(i == host ? 0 : us, host), gates[host][i]);
            }
        }
        for (std::uint32_t host = 0; host < 2; ++host)
            for (std::uint32_t i = 0; i < 2; ++i) {
                const auto flow = world.flow(host, 1 - host, 1000);
                world.after(gates[host][i], flow);
                world.after(flow, ends[1 - host][i]);
            }
        world.run();
        for (auto& row : ends)
            for (const auto end : row) CHECK((world.at(end).finished_ps >= 0) == together);
    }
}

TEST_CASE(
    "tasks: a channel does what a slow list does, whatever the "
    "priorities, sizes and times") {
    for (unsigned seed = 1; seed <= 20; ++seed) {
        std::mt19937 random(seed);
        auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
        World world;
        const std::uint64_t credit = static_cast<std::uint64_t>(draw(0, 30));
        const auto channel = world.graph().add_channel(credit);
        struct Job {
            std::int64_t ready, duration, priority;
            std::uint64_t bytes;
            std::uint32_t task;
            std::int64_t started = -1;
        };
        std::vector<Job> jobs;
        for (int i = 0; i < 60; ++i) {
            // Moments of their own: what happens first of two things of one moment is nobody's promise.
            Job job{draw(0, 40'000'000), draw(1, 9'000'000), draw(0, 5), static_cast<std::uint64_t>(draw(0, 12)),
                    0};
            const auto made = world.compute(job.ready);
            job.task = world.turn(job.duration, channel, job.priority, job.bytes);
            world.after(made, job.task);
            jobs.push_back(job);
        }
        std::set<std::int64_t> moments;
        for (const Job& job : jobs) moments.insert(job.ready);
        for (auto now = moments.begin(); now != moments.end(); ++now) {  // grows as it goes
            for (;;) {
                std::uint64_t bytes = 0;
                int under_way = 0;
                Job* best = nullptr;
                for (Job& job : jobs) {
                    if (job.started >= 0) {
                        if (job.started + job.duration > *now) bytes += job.bytes, ++under_way;
                    } else if (job.ready <= *now &&
                               (best == nullptr || job.priority < best->priority ||
                                (job.priority == best->priority && job.ready < best->ready))) {
                        best = &job;
                    }
                }
                if (best == nullptr || (under_way > 0 && bytes + best->bytes > credit)) break;
                best->started = *now;
                moments.insert(*now + best->duration);
            }
        }
        REQUIRE(world.run());
        for (const Job& job : jobs) {
            INFO("seed " << seed << ", task " << job.task);
            CHECK(world.at(job.task).started_ps == job.started);
        }
    }
}

TEST_CASE("tasks: a long chain of instant tasks needs no stack") {
    auto owned = std::make_unique<Instant>();
    Instant& instant = *owned;
    World world(2, std::move(owned));
    constexpr std::uint32_t length = 400'000;
    for (std::uint32_t i = 0; i < length; ++i) {
        const auto task = world.graph().add_task({.kind = i % 2 ? TaskKind::collective : TaskKind::compute,
                                                  .value = i % 2 ? (std::int64_t{i} << 32 | 7) : 0});
        if (i > 0) world.after(task - 1, task);
    }
    REQUIRE(world.run());
    CHECK(world.at(length - 1).finished_ps == 0);
    REQUIRE(instant.started.size() == length / 2);
    CHECK(instant.started[1] == std::pair<std::uint32_t, std::uint32_t>{3, 7});
}

TEST_CASE("tasks: the same times with one thread and with two") {
    auto times = [](std::uint32_t threads) {
        SimulationSettings settings;
        settings.threads = threads;
        settings.seed = 5;
        constexpr std::uint64_t rate = 100'000'000'000;
        Simulation simulation(Fabric(Clos{4, 2, 2, 2, 4, rate, rate, rate, us, us, us}), switching::Policy{},
                              make_transport("line_rate", {}), settings);
        TaskGraph& graph = simulation.tasks();
        std::mt19937 random(1);
        std::vector<std::uint32_t> channels;
        for (int host = 0; host < 16; ++host) channels.push_back(graph.add_channel(20'000));
        std::vector<std::uint32_t> last(16, none);
        for (int i = 0; i < 600; ++i) {
            const std::uint32_t source = random() % 16, destination = (source + 1 + random() % 15) % 16;
            Flow flow;
            flow.source = source;
            flow.destination = destination;
            flow.bytes = random() % 30'000;
            flow.start_ps = -1;
            const auto task = graph.add_task({.kind = TaskKind::flow,
                                              .host = source,
                                              .value = simulation.add_flow(flow),
                                              .channel = channels[source],
                                              .priority = static_cast<std::int64_t>(random() % 4),
                                              .channel_bytes = flow.bytes});
            const auto then =
                graph.add_task({.host = destination, .value = static_cast<std::int64_t>(random() % us)});
            graph.add_edge(task, then, After::finished);
            if (last[source] != none) graph.add_edge(last[source], task, After::finished);
            last[destination] = then;
        }
        REQUIRE(simulation.run(-1, -1));
        std::vector<std::int64_t> all;
        for (const TaskTimes& t : graph.times()) {
            CHECK(t.finished_ps >= 0);
            all.insert(all.end(), {t.ready_ps, t.started_ps, t.finished_ps});
        }
        return all;
    };
    CHECK(times(1) == times(2));
}

TEST_CASE("tasks: what cannot be is refused by name") {
    SUBCASE("a circle") {
        World world;
        const auto a = world.compute(1), b = world.compute(1);
        world.after(a, b);
        world.after(b, a);
        CHECK(refusal(world).find("cycle") != std::string::npos);
    }
    SUBCASE("an edge to another host") {
        World world;
        const auto a = world.compute(1, 0), b = world.compute(1, 1);
        world.after(a, b);
        CHECK(refusal(world).find("becomes true on host 0") != std::string::npos);
    }
    SUBCASE("a flow's end at its source") {
        World world;
        world.after(world.flow(0, 1, 5), world.compute(1, 0));
        CHECK(refusal(world).find("becomes true on host 1") != std::string::npos);
    }
    SUBCASE("an acknowledged computation") {
        World world;
        world.after(world.compute(1), world.compute(1), After::acknowledged);
        CHECK(refusal(world).find("is no flow") != std::string::npos);
    }
    SUBCASE("a flow of two tasks") {
        World world;
        world.flow(0, 1, 5);
        world.graph().add_task({.kind = TaskKind::flow, .value = 0});
        CHECK(refusal(world).find("flow 0 belongs to task 0 and to task 1") != std::string::npos);
    }
    SUBCASE("a flow of nobody") {
        World world;
        Flow flow;
        flow.destination = 1;
        flow.start_ps = -1;
        world.simulation->add_flow(flow);
        CHECK(refusal(world).find("no start and no task") != std::string::npos);
    }
    SUBCASE("a channel of two hosts") {
        World world;
        const auto channel = world.graph().add_channel(1);
        world.graph().add_task({.host = 0, .channel = channel});
        world.graph().add_task({.host = 1, .channel = channel});
        CHECK(refusal(world).find("tasks of host 0") != std::string::npos);
    }
    SUBCASE("a host that is not there") {
        World world;
        world.compute(1, 99);
        CHECK(refusal(world).find("host 99") != std::string::npos);
    }
}
