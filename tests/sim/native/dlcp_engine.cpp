// The shipping engine on simulated hosts: what arrives, when, and that nothing depends on threads or on payload.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/core/domain.hpp"
#include "sim/core/simulation.hpp"
#include "sim/core/transports/dlcp.hpp"

using namespace dlcp;
using namespace dlcp::sim;

namespace {

constexpr std::uint64_t rate_bps = 100'000'000'000;
constexpr std::int64_t delay_ps = 1'000'000;

Clos tree(std::uint32_t k) {
    Clos shape;
    shape.pods = k;
    shape.edges = shape.hosts = shape.aggregations = k / 2;
    shape.cores = k * k / 4;
    shape.host_rate_bps = shape.edge_rate_bps = shape.core_rate_bps = rate_bps;
    shape.host_delay_ps = shape.edge_delay_ps = shape.core_delay_ps = delay_ps;
    return shape;
}

Clos star(std::uint32_t hosts) {
    Clos shape;
    shape.hosts = hosts;
    shape.host_rate_bps = rate_bps;
    shape.host_delay_ps = delay_ps;
    return shape;
}

switching::Policy trimming(std::uint32_t above_bytes, std::uint32_t mark_bytes) {
    switching::Policy policy;
    for (std::size_t c = 0; c < 7; ++c) {
        for (switching::Thresholds& level : policy.classes[c].level) {
            level.trim_above_bytes = above_bytes;
            level.mark_from_bytes = level.mark_full_bytes = mark_bytes;
        }
    }
    return policy;
}

// Droppable packets are dropped above one depth, critical ones marked above another.
switching::Policy dropping(std::uint32_t droppable_bytes, std::uint32_t mark_bytes, std::uint32_t port_bytes) {
    switching::Policy policy;
    policy.port_bytes = port_bytes;
    for (std::size_t c = 0; c < 7; ++c) {
        for (std::size_t level = 0; level < switching::droppable_levels; ++level)
            policy.classes[c].level[level].drop_above_bytes = droppable_bytes;
        switching::Thresholds& critical = policy.classes[c].level[switching::critical_level];
        critical.mark_from_bytes = critical.mark_full_bytes = mark_bytes;
    }
    return policy;
}

struct World {
    explicit World(const Clos& shape, const switching::Policy& policy = {}, std::uint32_t threads = 1,
                   std::map<std::string, double> parameters = {}) {
        SimulationSettings settings;
        settings.threads = threads;
        settings.check_invariants = true;
        simulation = std::make_unique<Simulation>(Fabric(shape), policy,
                                                  make_transport("dlcp", Parameters(parameters)), settings);
    }
    DlcpTransport& transport() { return static_cast<DlcpTransport&>(simulation->transport()); }
    std::uint32_t add(std::uint32_t source, std::uint32_t destination, std::uint64_t bytes, float loss_ratio = 0,
                      float critical_ratio = 1, std::int64_t start_ps = 0) {
        Flow flow;
        flow.source = source;
        flow.destination = destination;
        flow.bytes = bytes;
        flow.loss_ratio = loss_ratio;
        flow.critical_ratio = critical_ratio;
        flow.start_ps = start_ps;
        return simulation->add_flow(flow);
    }
    bool run() { return simulation->run(seconds_ps(20), -1); }
    static std::int64_t seconds_ps(std::int64_t s) { return s * 1'000'000'000'000; }
    const FlowResult& result(std::uint32_t flow) { return simulation->results()[flow]; }
    double counter(const char* name) { return simulation->transport().counters().at(name); }

    std::unique_ptr<Simulation> simulation;
};

// Every flow there whole, every engine sound and with nothing left to do.
void check_exact(World& world) {
    for (std::size_t f = 0; f < world.simulation->flows().size(); ++f) {
        CAPTURE(f);
        const FlowResult& result = world.simulation->results()[f];
        CHECK(result.delivered_ps >= 0);
        CHECK(result.acknowledged_ps >= result.delivered_ps);
        CHECK(result.delivered_bytes == world.simulation->flows()[f].bytes);
        CHECK(result.abandoned_bytes == 0);
    }
    for (std::uint32_t h = 0; h < world.simulation->fabric().hosts(); ++h)
        if (const Endpoint* engine = world.transport().endpoint(h)) CHECK(engine->check_invariants() == "");
    CHECK(world.counter("messages_failed") == 0);
    CHECK(world.counter("messages_refused") == 0);
    CHECK(world.counter("inconsistent") == 0);
}

std::vector<std::int64_t> ends(World& world) {
    std::vector<std::int64_t> out;
    for (const FlowResult& result : world.simulation->results()) {
        out.push_back(result.delivered_ps);
        out.push_back(result.acknowledged_ps);
        out.push_back(static_cast<std::int64_t>(result.retransmitted_packets));
        out.push_back(static_cast<std::int64_t>(result.abandoned_bytes));
    }
    return out;
}

void incast(World& world, std::uint32_t senders, std::uint64_t bytes, float loss_ratio = 0, float critical = 1) {
    for (std::uint32_t s = 1; s <= senders; ++s) world.add(s, 0, bytes, loss_ratio, critical);
}

Fault fault(FaultKind kind, std::uint32_t port, double value, double value2 = 0, double value3 = 0) {
    Fault out{};
    out.at_ps = 0;
    out.port = port;
    out.kind = kind;
    out.value = value;
    out.value2 = value2;
    out.value3 = value3;
    return out;
}

}  // namespace

TEST_CASE("dlcp: a flow alone takes a few percent more than its bound") {
    World world(tree(4));
    const std::uint32_t flow = world.add(0, 15, 2'000'000);
    CHECK(world.run());
    check_exact(world);
    // What cannot be avoided: headers on the wire, and the last packet over five more links.
    const double wire = 2'000'000.0 * (4096 + 130) / 4096 * 8e12 / rate_bps + 6 * delay_ps + 5 * 4226 * 80.0;
    CHECK(static_cast<double>(world.result(flow).delivered_ps) < 1.02 * wire);
    CHECK(world.result(flow).sent_packets == 489);
    CHECK(world.result(flow).retransmitted_packets == 0);
    // Four answers a window, not one a packet.
    CHECK(world.counter("control_packets_sent") < 489 / 6);
}

TEST_CASE("dlcp: sessions made in simulated time cost a round trip, and then the same") {
    World warm(tree(4)), cold(tree(4), {}, 1, {{"warm_sessions", 0}});
    const std::uint32_t flow = warm.add(0, 15, 500'000);
    cold.add(0, 15, 500'000);
    CHECK(warm.run());
    CHECK(cold.run());
    check_exact(cold);
    const std::int64_t more = cold.result(flow).delivered_ps - warm.result(flow).delivered_ps;
    const std::int64_t rtt = warm.simulation->base_rtt_ps(0, 15, 4226, 4226);
    CHECK(more >= rtt);
    CHECK(more < 2 * rtt);
}

TEST_CASE("dlcp: small and empty flows, many at once and in both directions") {
    World world(tree(4));
    for (std::uint32_t i = 0; i < 200; ++i)
        world.add(i % 16, (i * 7 + 1 + i % 16) % 16 == i % 16 ? (i + 1) % 16 : (i * 7 + 1 + i % 16) % 16, i * 37,
                  0, 1, i * 10'000);
    CHECK(world.run());
    check_exact(world);
}

TEST_CASE("dlcp: every byte arrives through random loss, bursts, trimming and full buffers") {
    SUBCASE("random loss") {
        World world(tree(4));
        for (std::uint32_t h = 0; h < 16; ++h) world.add(h, (h + 5) % 16, 300'000);
        for (std::uint32_t p = 0; p < 8; ++p) world.simulation->add_fault(fault(FaultKind::loss, p, 0.01));
        CHECK(world.run());
        check_exact(world);
        CHECK(world.counter("repair_packets_sent") > 0);
    }
    SUBCASE("bursts") {
        World world(star(6));
        incast(world, 5, 500'000);
        world.simulation->add_fault(fault(FaultKind::burst, 2, 0.02, 0.1, 0.8));
        CHECK(world.run());
        check_exact(world);
        CHECK(world.counter("lost_packets") > 0);
    }
    SUBCASE("trimming") {
        World world(tree(4), trimming(60'000, 40'000), 1, {{"trim_critical", 1}});
        incast(world, 15, 300'000);
        CHECK(world.run());
        check_exact(world);
        CHECK(world.counter("trimmed_packets_received") > 0);
    }
    SUBCASE("full buffers") {
        World world(star(16), dropping(20'000, 60'000, 200'000));
        incast(world, 15, 300'000);
        CHECK(world.run());
        check_exact(world);
        CHECK(world.counter("lost_packets") > 0);
    }
}

TEST_CASE("dlcp: a session whose first packets are all trimmed hears of it without a timeout") {
    World world(star(64), trimming(20'000, switching::never), 1, {{"trim_critical", 1}});
    incast(world, 63, 4000);
    CHECK(world.run());
    check_exact(world);
    CHECK(world.counter("probes_sent") == 0);
    const double bound = 63 * (4000 + 130) * 8e12 / rate_bps;
    for (std::uint32_t f = 0; f < 63; ++f) CHECK(static_cast<double>(world.result(f).delivered_ps) < 4 * bound);
}

TEST_CASE("dlcp: a link that goes down and comes back delays its flows and loses none") {
    World world(tree(4));
    for (std::uint32_t h = 0; h < 16; ++h) world.add(h, 15 - h, 5'000'000);
    const Fabric& fabric = world.simulation->fabric();
    const std::uint32_t port = fabric.first_port(16) + 2;  // an edge switch's way up
    Fault down = fault(FaultKind::down, port, 0), up = fault(FaultKind::up, port, 0);
    down.at_ps = 10'000'000;
    up.at_ps = 3'000'000'000;
    world.simulation->add_fault(down);
    world.simulation->add_fault(up);
    CHECK(world.run());
    check_exact(world);
    // Others carry on: nobody waits for the link. The flow that lost half of its paths ends after 1.7 ms; after 4.3 if its
    // repairs went to paths of which nothing is known, too.
    for (std::uint32_t f = 0; f < 16; ++f) CHECK(world.result(f).delivered_ps < up.at_ps);
}

TEST_CASE("dlcp: the same for any number of threads, through trimming, loss and faults") {
    std::vector<std::vector<std::int64_t>> found;
    for (const std::uint32_t threads : {1u, 2u, 4u}) {
        World world(tree(4), trimming(50'000, 30'000), threads, {{"trim_critical", 1}});
        for (std::uint32_t h = 0; h < 16; ++h) {
            world.add(h, (h * 5 + 3) % 16 == h ? (h + 1) % 16 : (h * 5 + 3) % 16, 200'000 + h * 1000, 0.05F, 0.2F);
            if (h != 0) world.add(h, 0, 60'000, 0, 1, 20'000'000);
        }
        world.simulation->add_fault(fault(FaultKind::loss, 3, 0.02));
        CHECK(world.run());
        found.push_back(ends(world));
    }
    CHECK(found[0] == found[1]);
    CHECK(found[0] == found[2]);
}

TEST_CASE("dlcp: under overload bounded flows lose within their budget, and no critical block") {
    World world(star(17), dropping(30'000, 50'000, 400'000));
    incast(world, 16, 500'000, 0.2F, 0.3F);
    CHECK(world.run());
    std::uint64_t abandoned = 0;
    for (std::uint32_t f = 0; f < 16; ++f) {
        const FlowResult& result = world.result(f);
        CHECK(result.delivered_ps >= 0);
        CHECK(result.abandoned_bytes <= 100'000);
        CHECK(result.delivered_bytes + result.abandoned_bytes == 500'000);
        abandoned += result.abandoned_bytes;
    }
    CHECK(abandoned > 0);
    // A receiver never ends a message without its critical blocks; a sender that is told otherwise fails the message.
    CHECK(world.counter("inconsistent") == 0);
    CHECK(world.counter("messages_failed") == 0);
    CHECK(world.counter("messages_sent") == 16);
    for (std::uint32_t h = 0; h < 17; ++h) CHECK(world.transport().endpoint(h)->check_invariants() == "");
}

TEST_CASE("dlcp: a flow of more bytes than a message can have is several, and one flow") {
    World world(star(2), {}, 1, {{"datagram_bytes", 9152}});
    const std::uint64_t bytes = (std::uint64_t{1} << 32) + 12'345;
    const std::uint32_t flow = world.add(0, 1, bytes);
    CHECK(world.run());
    check_exact(world);
    CHECK(world.counter("messages_sent") == 2);
    CHECK(world.result(flow).sent_packets == bytes / 9088 + 1);
}

TEST_CASE("dlcp: classes keep their order at the hosts too") {
    World world(star(3));
    Flow low;
    low.source = 1;
    low.destination = 0;
    low.bytes = 1'000'000;
    low.traffic_class = 1;
    Flow high = low;
    high.traffic_class = 5;
    high.start_ps = 20'000'000;
    const std::uint32_t slow = world.simulation->add_flow(low), fast = world.simulation->add_flow(high);
    CHECK(world.run());
    check_exact(world);
    CHECK(world.result(fast).delivered_ps < world.result(slow).delivered_ps);
    // The higher class has the link to itself as soon as what is in the network has gone.
    CHECK(world.result(fast).delivered_ps - high.start_ps < 130'000'000);
}

TEST_CASE("dlcp: settings out of range are named") {
    CHECK_THROWS_WITH(make_transport("dlcp", Parameters({{"paths", 65}})),
                      "dlcp.paths is 65; accepted: whole numbers from 1 to 64");
    CHECK_THROWS_WITH(make_transport("dlcp", Parameters({{"congestion", 3}})),
                      "dlcp.congestion is 3; accepted: 0 auto, 1 window, 2 line_rate");
    CHECK_THROWS_WITH(make_transport("dlcp", Parameters({{"no_such", 1}})),
                      "transport \"dlcp\" has no setting \"no_such\"");
}

// --- collectives ----------------------------------------------------------------------------------------------

namespace {

// Everyone sends part j of its input to rank j, who adds them in the order of ranks and sends the sum to all.
std::shared_ptr<const Schedule> direct(std::uint32_t n, std::uint32_t rank, bool lossy) {
    std::vector<ScheduleOp> ops;
    std::vector<Chunk> scratch;
    std::vector<Chunk> operands(n);
    for (std::uint32_t other = 0; other < n; ++other) {
        if (other == rank) continue;
        ScheduleOp send;
        send.kind = ScheduleOp::Kind::send;
        send.lossy = lossy;
        send.peer = other;
        send.operands = {{Space::input, other}};
        send.target = {Space::input, other};
        ops.push_back(send);
    }
    for (std::uint32_t other = 0; other < n; ++other) {
        if (other == rank) {
            operands[other] = {Space::input, rank};
            continue;
        }
        ScheduleOp receive;
        receive.kind = ScheduleOp::Kind::receive;
        receive.lossy = lossy;
        receive.peer = other;
        receive.target = {Space::scratch, static_cast<std::uint32_t>(scratch.size())};
        operands[other] = receive.target;
        scratch.push_back({Space::input, rank});
        ops.push_back(receive);
    }
    ScheduleOp sum;
    sum.kind = ScheduleOp::Kind::combine;
    sum.final = true;
    sum.target = {Space::output, rank};
    sum.operands = operands;
    ops.push_back(sum);
    for (std::uint32_t other = 0; other < n; ++other) {
        if (other == rank) continue;
        ScheduleOp send;
        send.kind = ScheduleOp::Kind::send;
        send.peer = other;
        send.message = 1;
        send.operands = {{Space::output, rank}};
        send.target = {Space::output, rank};
        ops.push_back(send);
        ScheduleOp receive;
        receive.kind = ScheduleOp::Kind::receive;
        receive.final = true;
        receive.peer = other;
        receive.message = 1;
        receive.target = {Space::output, other};
        ops.push_back(receive);
    }
    return std::make_shared<const Schedule>(n, rank, n, n, scratch, ops);
}

CollectiveSpec spec_of(std::uint32_t n, std::uint64_t bytes, bool lossy) {
    CollectiveSpec spec;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        spec.members.push_back(rank);
        spec.schedules.push_back(direct(n, rank, lossy));
        spec.inputs.push_back({nullptr, bytes});
        spec.outputs.push_back({nullptr, bytes});
    }
    return spec;
}

std::vector<std::int64_t> run_collective(World& world, CollectiveSpec spec) {
    const auto n = static_cast<std::uint32_t>(spec.members.size());
    const std::uint32_t index = world.transport().add_collective(std::move(spec));
    std::vector<std::uint32_t> tasks;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        Task task;
        task.kind = TaskKind::collective;
        task.host = rank;
        task.value = std::int64_t{index} << 32 | rank;
        tasks.push_back(world.simulation->tasks().add_task(task));
    }
    CHECK(world.run());
    std::vector<std::int64_t> times;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        const CollectiveOutcome& outcome = world.transport().outcome(index, rank);
        CHECK(outcome.result.error == CollectiveError::none);
        CHECK(world.simulation->tasks().times()[tasks[rank]].finished_ps == outcome.finished_ps);
        times.push_back(outcome.finished_ps);
    }
    return times;
}

}  // namespace

TEST_CASE(
    "dlcp: an all-reduce by the executor, virtual or on memory, ends at the same picoseconds, with the exact "
    "sum") {
    constexpr std::uint32_t n = 6;
    constexpr std::size_t count = 60'000;
    World shadow(tree(4));
    const auto times = run_collective(shadow, spec_of(n, count * 4, false));

    World real(tree(4));
    CollectiveSpec spec = spec_of(n, count * 4, false);
    std::vector<std::vector<float>> inputs(n), outputs(n, std::vector<float>(count));
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        for (std::size_t i = 0; i < count; ++i)
            inputs[rank].push_back(static_cast<float>(i % 977) * 0.37F - static_cast<float>(rank * i % 31));
        spec.inputs[rank].data = reinterpret_cast<std::uint8_t*>(inputs[rank].data());
        spec.outputs[rank].data = reinterpret_cast<std::uint8_t*>(outputs[rank].data());
    }
    CHECK(run_collective(real, std::move(spec)) == times);
    bool equal = true;
    for (std::size_t i = 0; i < count; ++i) {
        float sum = inputs[0][i];
        for (std::uint32_t rank = 1; rank < n; ++rank) sum += inputs[rank][i];
        for (std::uint32_t rank = 0; rank < n; ++rank) equal &= outputs[rank][i] == sum;
    }
    CHECK(equal);
    // 2 (n - 1) / n of the tensor over each link, and little more.
    const double bound_ps = 2.0 * (n - 1) / n * count * 4 * (4226.0 / 4096) * 8e12 / rate_bps;
    for (const std::int64_t time : times) CHECK(static_cast<double>(time) < bound_ps + 30e6);
}

TEST_CASE(
    "dlcp: what a bounded all-reduce loses is missing from the sum, named at both ends, and never critical") {
    constexpr std::uint32_t n = 8;
    constexpr std::size_t count = 80'000;
    World world(star(16), dropping(8'000, 30'000, 400'000), 1, {{"datagram_bytes", 1088}});
    for (std::uint32_t h = 8; h < 16; ++h) world.add(h, h % 3, 400'000);  // others' traffic fills three ports
    CollectiveSpec spec = spec_of(n, count * 4, true);
    spec.loss_ratio = 0.3;
    std::vector<std::vector<float>> inputs(n, std::vector<float>(count)), outputs(n, std::vector<float>(count));
    const std::size_t part = count / n, block = 1024 / 4;
    spec.importance.resize(n);
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        for (std::size_t i = 0; i < count; ++i) inputs[rank][i] = static_cast<float>(1u << rank);
        spec.inputs[rank].data = reinterpret_cast<std::uint8_t*>(inputs[rank].data());
        spec.outputs[rank].data = reinterpret_cast<std::uint8_t*>(outputs[rank].data());
        for (std::uint32_t to = 0; to < n; ++to) {
            auto& blocks = spec.importance[rank].emplace_back();
            for (std::size_t b = 0; to != rank && b < (part + block - 1) / block; ++b)
                blocks.push_back(b % 4 == 0 ? 255 : static_cast<std::uint8_t>(b % 255));
        }
    }
    std::vector<std::vector<std::uint32_t>> expected(n, std::vector<std::uint32_t>(part, (1u << n) - 1));
    run_collective(world, std::move(spec));
    std::uint64_t sent = 0, missing = 0;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        for (const CollectiveResult::Abandoned& each : world.transport().outcome(0, rank).result.abandoned) {
            if (each.sent) {
                sent += each.abandoned_bytes;
                continue;
            }
            missing += each.abandoned_bytes;
            CHECK(each.abandoned_bytes <= part * 4 * 3 / 10);
            for (std::size_t b = 0; b < (part + block - 1) / block; ++b) {
                if (!(each.blocks[b / 64] >> b % 64 & 1)) continue;
                CHECK(b % 4 != 0);
                for (std::size_t i = b * block; i < std::min(part, (b + 1) * block); ++i)
                    expected[rank][i] -= 1u << each.peer;
            }
        }
    }
    CHECK(missing > 0);
    CHECK(sent == missing);
    bool equal = true;
    for (std::uint32_t reader = 0; reader < n; ++reader)
        for (std::uint32_t owner = 0; owner < n; ++owner)
            for (std::size_t i = 0; i < part; ++i)
                equal &= outputs[reader][owner * part + i] == static_cast<float>(expected[owner][i]);
    CHECK(equal);
}

TEST_CASE("dlcp: a collective that is added wrongly is refused") {
    World world(star(4));
    CollectiveSpec spec = spec_of(3, 3000, false);
    spec.members[1] = 0;
    CHECK_THROWS_WITH(world.transport().add_collective(std::move(spec)), "a host is a member twice");
    spec = spec_of(3, 3000, false);
    std::swap(spec.schedules[0], spec.schedules[1]);
    CHECK_THROWS_AS(world.transport().add_collective(std::move(spec)), std::invalid_argument);
}
