// Nine packets in ten lost for a while, in both directions: what remains of it when it is over.
#include "native/engine/pair_scenario.hpp"

using namespace dlcp;
using namespace dlcp::test;

namespace {

Duration transfer(const EndpointConfig& config, std::uint32_t bytes, std::uint32_t messages, double loss,
                  Duration lasting, std::uint64_t seed, Duration limit) {
    Net net(config, 2, seed);
    net.connect_all();
    for (int i = 0; i < 3; ++i) {
        net.exchange(message(bytes));
        net.finish();
    }
    const Time start = net.world.now();
    if (loss > 0) {
        net.network().set_between(0, 1, lossy_link(loss));
        net.network().set_between(1, 0, lossy_link(loss));
    }
    for (std::uint32_t i = 0; i < messages; ++i) net.exchange(message(bytes / messages));
    const auto over = [&] { return net.world.open_sends() + net.world.open_receives() == 0; };
    if (!net.world.run(start + lasting, over)) {
        net.network().set_between(0, 1, plain_link());
        net.network().set_between(1, 0, plain_link());
        net.world.run(start + limit, over);
    }
    if (over()) {
        for (const SendRecord& send : net.world.sends())
            if (send.phase != Phase::finished) return Duration{-1};
    }
    return net.world.now() - start;
}

}  // namespace

TEST_CASE("heavy loss: a round that loses nine packets in ten is over within twenty times its time") {
    for (const std::uint32_t bytes : {65'536u, 1u << 20, 8u << 20}) {
        for (const std::uint32_t messages : {1u, 16u}) {
            const Duration clean = transfer(EndpointConfig{}, bytes, messages, 0, Duration{0}, 1, seconds(1));
            for (std::uint64_t seed = 1; seed <= 5; ++seed) {
                CAPTURE(bytes);
                CAPTURE(messages);
                CAPTURE(seed);
                const Duration time = transfer(EndpointConfig{}, bytes, messages, 0.9, clean, seed, seconds(1));
                CHECK(time > Duration{0});
                CHECK(time < clean * 20);
            }
        }
    }
}

TEST_CASE("heavy loss: what lasts ends too") {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        CAPTURE(seed);
        const Duration time = transfer(EndpointConfig{}, 65'536, 1, 0.9, seconds(100), seed, seconds(100));
        CHECK(time > Duration{0});
        CHECK(time < seconds(3));
    }
}
