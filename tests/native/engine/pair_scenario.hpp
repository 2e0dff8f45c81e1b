// Endpoints on a fake network with a virtual clock, and the scenario that most of their tests are: connect, exchange
// messages over given links, compare what came of it with what is expected.
//
// The world (support/native/world.hpp) checks everything else at every step.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <doctest/doctest.h>

#include "support/native/world.hpp"

namespace dlcp::test {

inline EndpointConfig plain_config() {
    EndpointConfig config;
    config.peer_timeout = seconds(1);
    config.max_rto = milliseconds(20);
    config.initial_rtt = milliseconds(1);
    return config;
}

inline EndpointConfig keyed_config(bool encrypt = false) {
    EndpointConfig config = plain_config();
    config.job_key.emplace();
    config.job_key->fill(0x42);
    config.encrypt = encrypt;
    return config;
}

// What leads from a host to another one: 20 us, and no limit of its own.
inline LinkSettings plain_link() { return {.delay = microseconds(20)}; }
inline LinkSettings lossy_link(double loss_ratio) { return {.delay = microseconds(20), .loss_ratio = loss_ratio}; }
// What leads from a host to the network and back: 10 Gbit/s unless said otherwise. The queue holds more than the
// window's target delay puts there.
inline LinkSettings port(std::uint64_t bits_per_s = 10'000'000'000) {
    return {.rate = Rate{bits_per_s}, .queue = Bytes{4'000'000}};
}

inline SendPlan message(std::uint32_t bytes, std::uint32_t from = 0, std::uint32_t to = 1) {
    return {.from = from, .to = to, .message_bytes = bytes};
}
inline SendPlan bounded_message(std::uint32_t bytes, double loss_ratio, double critical_ratio) {
    SendPlan plan = message(bytes);
    plan.delivery = Delivery::bounded;
    plan.loss_ratio = loss_ratio;
    plan.critical_ratio = critical_ratio;
    return plan;
}
inline SendPlan deadline_message(std::uint32_t bytes, Duration deadline, double critical_ratio) {
    SendPlan plan = bounded_message(bytes, 0.01, critical_ratio);
    plan.delivery = Delivery::deadline;
    plan.deadline = deadline;
    return plan;
}

inline Duration took(const Record& record) { return record.over - record.posted; }

// Hosts that know each other, on plain links and ports.
struct Net {
    explicit Net(const EndpointConfig& config = plain_config(), std::uint32_t hosts = 2, std::uint64_t seed = 1)
        : world(seed) {
        for (std::uint32_t i = 0; i < hosts; ++i) world.add_host(config);
        for (std::uint32_t i = 0; i < hosts; ++i) {
            network().set_uplink(i, port());
            network().set_downlink(i, port());
            for (std::uint32_t j = 0; j < hosts; ++j) {
                if (i != j) network().set_between(i, j, plain_link());
            }
        }
    }
    VirtualNetwork& network() { return world.network(); }
    const SendRecord& send(std::size_t i) const { return world.sends().at(i); }
    const ReceiveRecord& receive(std::size_t i) const { return world.receives().at(i); }

    // True if `holds` does for each ordered pair of hosts.
    template <class Holds>
    bool each_pair(Holds&& holds) {
        for (std::uint32_t i = 0; i < world.hosts(); ++i) {
            for (std::uint32_t j = 0; j < world.hosts(); ++j) {
                if (i != j && !holds(i, j)) return false;
            }
        }
        return true;
    }
    void connect_all() {
        REQUIRE(each_pair([&](auto i, auto j) { return world.connect(i, j) == CommandError::none; }));
        REQUIRE(world.run(world.now() + seconds(1),
                          [&] { return each_pair([&](auto i, auto j) { return world.established(i, j); }); }));
    }
    // Posts the receive that a send needs; of `capacity_bytes`, or of the message's bytes.
    std::size_t post_receive(const SendPlan& plan, std::optional<std::uint32_t> capacity_bytes = {}) {
        return world.receive({.at = plan.to,
                              .from = plan.from,
                              .tag = plan.tag,
                              .capacity_bytes = capacity_bytes.value_or(plan.message_bytes),
                              .is_virtual = plan.is_virtual});
    }
    // Posts the receive, then the send. A message without a tag gets the next one: 1, 2, ... in a world's order.
    void exchange(SendPlan plan, std::optional<std::uint32_t> capacity_bytes = {}) {
        if (plan.tag == 0) plan.tag = world.sends().size() + 1;
        post_receive(plan, capacity_bytes);
        world.send(plan);
    }
    void run_for(Duration time) { world.run_until(world.now() + time); }
    // Waits until no message is open.
    void finish(Duration within = seconds(10)) {
        REQUIRE(world.run(world.now() + within, [&] { return world.open_sends() + world.open_receives() == 0; }));
    }
    // The world has seen nothing wrong, also after a while of rest.
    void check(Duration rest = seconds(5)) {
        run_for(rest);
        world.finish();
        CHECK(world.failure() == "");
    }
    World world;
};

// Links of a pair that differ from the plain ones; those not named stay as they are.
struct Links {
    std::optional<LinkSettings> there;   // from host 0 to host 1
    std::optional<LinkSettings> back;    // from host 1 to host 0
    std::optional<LinkSettings> uplink;  // of host 0
};

// What is expected of every message; and, in `also`, of the rest.
struct Expected {
    CommandError send_error = CommandError::none;
    CommandError receive_error = CommandError::none;
    Duration received_after{0};                   // from the receive's command to its end: at least this
    Duration received_within = seconds(10);       // and less than this
    bool abandons = false;                        // blocks are abandoned at the end; otherwise they may be
    std::optional<double> abandoned_ratio_above;  // of the message's bytes
    std::optional<double> abandoned_ratio_below;
    std::function<void(Net&)> also;  // called when the last message is over
};

// One test of two endpoints.
struct Scenario {
    EndpointConfig config = plain_config();
    std::uint64_t seed = 1;
    Links links;        // from the start
    Links links_later;  // once the endpoints are connected
    std::vector<SendPlan> messages;
    std::optional<std::uint32_t> capacity_bytes;  // of each receive; none: as the message
    bool one_at_a_time = false;                   // each message leaves when the one before is over
    Expected expected;
};

inline void set_links(VirtualNetwork& network, const Links& links) {
    if (links.there) network.set_between(0, 1, *links.there);
    if (links.back) network.set_between(1, 0, *links.back);
    if (links.uplink) network.set_uplink(0, *links.uplink);
}

inline void check_message(const SendRecord& send, const ReceiveRecord& receive, const Expected& expected) {
    CAPTURE(send.tag);
    CHECK(send.error == expected.send_error);
    CHECK(receive.error == expected.receive_error);
    CHECK((send.phase == Phase::finished) == (expected.send_error == CommandError::none));
    CHECK((receive.phase == Phase::finished) == (expected.receive_error == CommandError::none));
    CHECK(took(receive) >= expected.received_after);
    CHECK(took(receive) < expected.received_within);
    for (const Record* const end : {static_cast<const Record*>(&send), static_cast<const Record*>(&receive)}) {
        const double bytes = send.plan.message_bytes;
        const auto abandoned_bytes = static_cast<double>(end->outcome.abandoned_bytes);
        if (expected.abandons) CHECK(end->outcome.abandoned_blocks > 0);
        if (expected.abandoned_ratio_above) CHECK(abandoned_bytes > *expected.abandoned_ratio_above * bytes);
        if (expected.abandoned_ratio_below) CHECK(abandoned_bytes < *expected.abandoned_ratio_below * bytes);
    }
}

inline void run(const Scenario& scenario) {
    Net net(scenario.config, 2, scenario.seed);
    set_links(net.network(), scenario.links);
    net.connect_all();
    set_links(net.network(), scenario.links_later);
    for (const SendPlan& plan : scenario.messages) {
        net.exchange(plan, scenario.capacity_bytes);
        if (scenario.one_at_a_time) net.finish();
    }
    if (!scenario.one_at_a_time) net.finish();
    REQUIRE(net.world.sends().size() == scenario.messages.size());
    for (std::size_t i = 0; i < net.world.sends().size(); ++i)
        check_message(net.send(i), net.receive(i), scenario.expected);
    if (scenario.expected.also) scenario.expected.also(net);
    net.check();
}

}  // namespace dlcp::test
