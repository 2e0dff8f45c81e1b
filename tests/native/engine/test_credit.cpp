// Credit: senders send at the pace at which the receiver grants.
#include <doctest/doctest.h>

#include <numeric>
#include <vector>

#include "support/native/world.hpp"

namespace dlcp::test {
namespace {

// The network carries ten times what the receiver grants, so that grants alone set the pace: a sender that ignored
// them, or a receiver that granted everything at once, would be done in a tenth of the time; a sender that heard none
// would never be done.
TEST_CASE("credit: what several senders send arrives at the receiver's line rate") {
    constexpr std::uint32_t message_bytes = 1'000'000;
    constexpr Rate granted{1'000'000'000};
    for (const std::uint32_t senders : {1, 3}) {
        CAPTURE(senders);
        World world(1);
        LinkSettings port;
        port.rate = Rate{10'000'000'000};
        port.queue = Bytes{4'000'000};
        for (std::uint32_t host = 0; host <= senders; ++host) {
            EndpointConfig config;
            config.congestion = congestion_algorithm("credit");
            config.line_rate = host == 0 ? granted : port.rate;
            config.initial_window = Bytes{16 * 1024};
            world.add_host(config);
            world.network().set_uplink(host, port);
            world.network().set_downlink(host, port);
        }
        LinkSettings way;
        way.delay = microseconds(20);
        for (std::uint32_t host = 1; host <= senders; ++host) {
            world.network().set_between(host, 0, way);
            world.network().set_between(0, host, way);
            world.receive({.at = 0, .from = host, .tag = 1, .capacity_bytes = message_bytes, .is_virtual = true});
            world.send({.from = host, .to = 0, .tag = 1, .message_bytes = message_bytes, .is_virtual = true});
        }
        REQUIRE(world.run(world.now() + seconds(1), [&] { return world.open_sends() == 0; }));
        const double expected_ns = senders * 8.0 * (message_bytes - 16 * 1024) / 1.0;  // 1 Gbit/s: 1 ns a bit
        CHECK(static_cast<double>(world.now().value) > 0.95 * expected_ns);
        CHECK(static_cast<double>(world.now().value) < 1.25 * expected_ns);
        CHECK(world.failure() == "");
    }
}

// Four senders to one receiver. In turns the messages end one after the other, the last no later than by windows.
TEST_CASE("credit: under an incast auto gives turns, and messages end sooner than by windows") {
    constexpr std::uint32_t message_bytes = 4'000'000;
    constexpr std::uint32_t senders = 4;
    const auto ends = [&](const char* algorithm) {
        World world(1);
        LinkSettings port;
        port.rate = Rate{10'000'000'000};
        port.queue = Bytes{500'000};
        port.ecn_mark_above = Bytes{100'000};
        for (std::uint32_t host = 0; host <= senders; ++host) {
            EndpointConfig config;
            config.congestion = congestion_algorithm(algorithm);
            config.line_rate = port.rate;
            config.target_delay = microseconds(30);
            world.add_host(config);
            world.network().set_uplink(host, port);
            world.network().set_downlink(host, port);
        }
        LinkSettings way;
        way.delay = microseconds(10);
        for (std::uint32_t host = 1; host <= senders; ++host) {
            world.network().set_between(host, 0, way);
            world.network().set_between(0, host, way);
            world.receive({.at = 0, .from = host, .tag = 1, .capacity_bytes = message_bytes, .is_virtual = true});
            world.send({.from = host, .to = 0, .tag = 1, .message_bytes = message_bytes, .is_virtual = true});
        }
        std::vector<std::int64_t> found;
        for (std::uint32_t left = senders; left-- > 0;) {
            REQUIRE(world.run(world.now() + seconds(1), [&] { return world.open_sends() <= left; }));
            found.push_back(world.now().value);
        }
        CHECK(world.failure() == "");
        return found;
    };
    const std::vector<std::int64_t> window = ends("window");
    const std::vector<std::int64_t> turns = ends("auto");
    const auto sum = [](const std::vector<std::int64_t>& times) {
        return std::accumulate(times.begin(), times.end(), std::int64_t{0});
    };
    CHECK(sum(turns) < sum(window) * 8 / 10);
    CHECK(turns.back() < window.back() * 105 / 100);
}

}  // namespace
}  // namespace dlcp::test
