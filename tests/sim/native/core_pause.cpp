// Priority flow control: what is told in one moment is heard in the order it was told.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>

#include "tests/sim/native/validation.hpp"

using namespace dlcp;
using namespace dlcp::sim;
using namespace dlcp::sim::validation;

// With one threshold for pause and resume, and senders in step with the port that they share, a packet leaves as the next
// one comes: the class is resumed and paused again in one moment. Who then goes on sending fills the buffer.
TEST_CASE("pause: a class that is resumed and paused in one moment is paused") {
    constexpr std::uint32_t senders = 4, packet_bytes = 4160;
    constexpr std::int64_t packet_ps = 332'800,
                           delay_ps = 3 * packet_ps - 6720;  // with the frame, whole packets' times
    Clos star;
    star.hosts = senders + 1;
    star.host_rate_bps = 100 * gbps;
    star.host_delay_ps = delay_ps;
    switching::Policy policy;
    policy.pause_above_bytes = policy.resume_below_bytes = 2 * packet_bytes;
    SimulationSettings settings;
    settings.check_invariants = true;
    Simulation simulation(Fabric(star), policy, make_transport("line_rate", Parameters{}), settings);
    for (std::uint32_t host = 1; host <= senders; ++host) {
        Flow flow;
        flow.source = host;
        flow.bytes = 4096 * 2000;
        simulation.add_flow(flow);
    }
    CHECK(simulation.run(-1, -1));
    for (const FlowResult& result : simulation.results()) CHECK(result.delivered_ps > 0);
    // What is under way for a delay there, a frame and a delay back, and a packet being sent at each end.
    constexpr std::uint32_t under_way_packets = (2 * delay_ps + 6720) / packet_ps + 3;
    const std::uint32_t port = simulation.fabric().reverse(0);
    CHECK(simulation.event_counters(1, 0).pauses > 100);
    CHECK(simulation.max_depth_bytes(port, 0) <= senders * (2 + under_way_packets) * packet_bytes);
    CHECK(simulation.max_depth_bytes(port, 0) > senders * packet_bytes);
}
