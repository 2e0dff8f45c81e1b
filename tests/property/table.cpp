#include "table.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <string>
#include <vector>

#include "support/native/world.hpp"

namespace dlcp::test {
namespace {

constexpr Rate link_rate{10'000'000'000};
constexpr std::uint32_t message_bytes = 262'144;
constexpr std::uint64_t messages_per_sender = 100;

struct Loss {
    const char* name;
    double ratio;
    bool bursts;
};
constexpr Loss losses[] = {
    {"0", 0.0, false}, {"0.1%", 0.001, false}, {"1%", 0.01, false}, {"5%", 0.05, false}, {"bursts", 0.0, true}};

struct Load {
    const char* name;
    std::uint32_t senders;
    std::uint32_t percent;  // of the link, each
};
constexpr Load loads[] = {{"0.5", 1, 50}, {"0.9", 1, 90}, {"2.0", 2, 100}};

struct Mode {
    const char* name;
    Delivery delivery;
    double loss_ratio;
    Duration deadline;
    double critical_ratio;
};
constexpr Mode modes[] = {{"reliable", Delivery::reliable, 0.0, {0}, -1.0},
                          {"bounded 2%", Delivery::bounded, 0.02, {0}, 0.1},
                          {"bounded 10%", Delivery::bounded, 0.1, {0}, 0.1},
                          {"deadline", Delivery::deadline, 0.1, microseconds(500), 0.1}};

struct Row {
    double p50_us = 0, p99_us = 0, goodput_gbps = 0, retransmitted_percent = 0, abandoned_percent = 0;
    std::string failure;
};

Row measure(const Loss& loss, const Load& load, const Mode& mode) {
    World world(1);
    world.check_invariants_every(UINT32_MAX);
    EndpointConfig config;
    for (std::uint32_t i = 0; i <= load.senders; ++i) world.add_host(config);
    LinkSettings port;
    port.rate = link_rate;
    port.queue = Bytes{500'000};
    port.ecn_mark_above = Bytes{100'000};
    port.droppable_above = Bytes{200'000};
    port.strict_priority = true;
    LinkSettings way;
    way.delay = microseconds(20);
    way.jitter = microseconds(2);
    way.loss_ratio = loss.ratio;
    if (loss.bursts) {  // 20 packets lost in a row, 1 % of all
        way.burst_enter_ratio = 0.0005;
        way.burst_exit_ratio = 0.05;
        way.burst_longest = microseconds(200);
    }
    for (std::uint32_t i = 0; i <= load.senders; ++i) {
        LinkSettings uplink = port;
        uplink.queue = uplink.ecn_mark_above = uplink.droppable_above = Bytes{0};  // a host does not drop its own
        world.network().set_uplink(i, uplink);
        world.network().set_downlink(i, port);
        if (i == 0) continue;
        world.network().set_between(0, i, way);
        world.network().set_between(i, 0, way);
        world.connect(i, 0);
    }
    world.run_until(world.now() + milliseconds(10));

    // Arrivals: gaps uniform around the mean (an exponential would need a logarithm, which differs by machine).
    const Time start = world.now();
    const Duration mean = time_to_send(Bytes{message_bytes}, link_rate) * 100 / load.percent;
    Dice dice(7);
    std::vector<std::pair<Time, std::uint32_t>> arrivals;
    for (std::uint32_t sender = 1; sender <= load.senders; ++sender) {
        Time at = start;
        for (std::uint64_t i = 0; i < messages_per_sender; ++i) {
            at = at + dice.up_to(mean * 2);
            arrivals.emplace_back(at, sender);
        }
    }
    std::sort(arrivals.begin(), arrivals.end());
    std::uint64_t tag = 0;
    for (const auto& [at, sender] : arrivals) {
        world.run_until(at);
        world.receive(
            {.at = 0, .from = sender, .tag = ++tag, .capacity_bytes = message_bytes, .is_virtual = true});
        world.send({.from = sender,
                    .to = 0,
                    .tag = tag,
                    .message_bytes = message_bytes,
                    .is_virtual = true,
                    .delivery = mode.delivery,
                    .loss_ratio = mode.loss_ratio,
                    .deadline = mode.deadline,
                    .critical_ratio = mode.critical_ratio});
    }
    world.run(world.now() + seconds(60), [&] { return world.open_sends() + world.open_receives() == 0; });
    if (world.open_sends() + world.open_receives() != 0) world.fail("messages do not end");
    world.finish();

    Row row;
    row.failure = world.failure();
    std::vector<std::int64_t> times;
    std::uint64_t delivered = 0, retransmitted = 0, abandoned = 0;
    Time end = start;
    for (const ReceiveRecord& receive : world.receives()) {
        times.push_back((receive.over - receive.posted).value);
        delivered += receive.outcome.delivered_bytes;
        abandoned += receive.outcome.abandoned_bytes;
        end = std::max(end, receive.over);
    }
    for (const SendRecord& send : world.sends()) retransmitted += send.outcome.retransmitted_bytes;
    std::sort(times.begin(), times.end());
    const double total = static_cast<double>(times.size()) * message_bytes;
    row.p50_us = static_cast<double>(times[times.size() / 2]) / 1e3;
    row.p99_us = static_cast<double>(times[times.size() * 99 / 100]) / 1e3;
    row.goodput_gbps = static_cast<double>(delivered) * 8 / static_cast<double>((end - start).value);
    row.retransmitted_percent = 100 * static_cast<double>(retransmitted) / total;
    row.abandoned_percent = 100 * static_cast<double>(abandoned) / total;
    return row;
}

}  // namespace

void print_table(std::FILE* file) {
    std::fprintf(
        file,
        "Messages of 256 KiB over one port of 10 Gbit/s, 20 us away; 1 block in 10 critical unless reliable.\n"
        "Load 2.0: two senders of 1.0 each. Deadline: 500 us, budget 10%%. Bursts: 20 packets, 1%% of all.\n"
        "Completion from the send to the receiver's end. %% of the messages' bytes.\n\n"
        "loss    load  mode          p50 us    p99 us  Gbit/s  retransmitted %%  abandoned %%\n");
    for (const Loss& loss : losses) {
        for (const Load& load : loads) {
            for (const Mode& mode : modes) {
                const Row row = measure(loss, load, mode);
                std::fprintf(file, "%-6s  %4s  %-11s %8.1f  %8.1f  %6.2f  %15.2f  %11.2f\n", loss.name, load.name,
                             mode.name, row.p50_us, row.p99_us, row.goodput_gbps, row.retransmitted_percent,
                             row.abandoned_percent);
                if (!row.failure.empty()) std::fprintf(file, "FAILED %s\n", row.failure.c_str());
            }
        }
    }
}

}  // namespace dlcp::test
