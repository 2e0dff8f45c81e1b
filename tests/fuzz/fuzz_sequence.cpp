// A program of commands, time, losses and restarts for two endpoints.
//
// Invariant, whatever two applications do and the network loses: everything that the test world checks holds
// (support/native/world.hpp). Once the network is whole again and every message that still waits for a partner is
// cancelled, every message has ended.
//
// Input: four bytes of settings, then commands of three bytes: what, and two operands.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "support/native/world.hpp"

namespace {

using namespace dlcp;
using namespace dlcp::test;

constexpr std::uint32_t sizes[] = {0, 1, 500, 1'391, 1'392, 1'393, 5'000, 20'000, 60'000};
constexpr double ratios[] = {0.0, 0.02, 0.3, 0.99};

class Program {
public:
    explicit Program(const std::uint8_t* settings) : world_(settings[0]) {
        EndpointConfig config;
        config.peer_timeout = milliseconds(250);
        config.max_rto = milliseconds(5);
        config.initial_rtt = microseconds(200);
        config.paths = static_cast<std::uint16_t>(1 + settings[1] % 4);
        config.run_packets = settings[1] >= 128 ? 1 : 16;
        config.congestion = static_cast<CongestionAlgorithm>(settings[2] % std::size(congestion_controllers));
        config.line_rate = Rate{10'000'000'000};
        if ((settings[2] & 64) != 0) {
            config.job_key.emplace();
            config.job_key->fill(1);
            config.encrypt = (settings[2] & 128) != 0;
            config.crypto_library = CryptoLibrary::openssl;
        }
        config.max_unexpected = Bytes{(settings[3] & 1) != 0 ? 10'000u : 10'000'000u};
        config.max_messages_per_peer = (settings[3] & 2) != 0 ? 4 : 1'000;
        HostSettings host;
        host.wake_delay = (settings[3] & 4) != 0 ? microseconds(40) : Duration{0};
        for (int i = 0; i < 2; ++i) world_.add_host(config, host);
        world_.allowed = {.timeouts = true, .restarts = true, .closes = true};
        keyed_ = config.job_key.has_value();
        link_.delay = microseconds(10);
        set_link();
    }

    void run(std::uint8_t what, std::uint8_t a, std::uint8_t b) {
        if (world_.failed()) return;
        const std::uint32_t host = a & 1;
        switch (what % 16) {
            case 0: world_.connect(host, 1 - host); break;
            case 1:
            case 2: {
                SendPlan plan;
                plan.from = host;
                plan.to = 1 - host;
                plan.tag = a >> 1 & 7;
                plan.message_bytes = sizes[b % 9];
                plan.traffic_class = static_cast<std::uint8_t>((a >> 4) % 7);
                plan.delivery = static_cast<Delivery>((b >> 4) % 3);
                plan.loss_ratio = ratios[b >> 6];
                plan.deadline = plan.delivery == Delivery::deadline ? microseconds(100) : Duration{0};
                plan.critical_ratio = what >= 128 ? 0.2 : what >= 64 ? 0.0 : -1.0;
                world_.send(plan);
                break;
            }
            case 3:
            case 4: {
                ReceivePlan plan;
                plan.at = host;
                plan.from = what >= 128 ? ReceivePlan::anyone : 1 - host;
                plan.tag = a >> 1 & 7;
                plan.capacity_bytes = (b & 128) != 0 ? sizes[b % 9] : 60'000;
                world_.receive(plan);
                break;
            }
            case 5:
            case 6:
            case 7: world_.run_until(world_.now() + microseconds(std::int64_t{1} << b % 16)); break;
            case 8:
                link_.loss_ratio = a / 512.0;
                link_.duplicate_ratio = b / 512.0;
                set_link();
                break;
            case 9:
                link_.jitter = microseconds(a % 64);
                link_.reorder_ratio = b / 512.0;
                link_.reorder_delay = microseconds(a * 10);
                set_link();
                break;
            case 10:
                link_.trim_ratio = a / 512.0;
                link_.corrupt_ratio = keyed_ ? b / 512.0 : 0.0;
                link_.truncate_ratio = keyed_ ? a / 1'024.0 : 0.0;
                set_link();
                break;
            case 11:
                link_.paths = {{static_cast<std::uint16_t>(a % 4), b / 255.0, {0}}};
                set_link();
                break;
            case 12:
                if (!world_.sends().empty()) world_.cancel_send((a * 256u + b) % world_.sends().size());
                break;
            case 13:
                if (!world_.receives().empty()) world_.cancel_receive((a * 256u + b) % world_.receives().size());
                break;
            case 14:
                if (b < 32) {
                    world_.restart(host);
                } else if (b < 48) {
                    world_.close(host);
                } else {
                    world_.advance_key_epoch(host);
                }
                break;
            case 15: world_.scribble(); break;
        }
    }

    void finish() {
        link_ = {};
        link_.delay = microseconds(10);
        set_link();
        world_.run_until(world_.now() + seconds(2));
        for (std::size_t i = 0; i < world_.sends().size(); ++i) world_.cancel_send(i);
        for (std::size_t i = 0; i < world_.receives().size(); ++i) world_.cancel_receive(i);
        world_.run_until(world_.now() + milliseconds(1));
        if (!world_.failed() && world_.open_sends() + world_.open_receives() != 0)
            world_.fail("a cancelled message does not end");
        world_.finish();
        if (!world_.failed()) return;
        std::fprintf(stderr, "broken: %s\n", world_.failure().c_str());
        std::abort();
    }

private:
    void set_link() {
        world_.network().set_between(0, 1, link_);
        world_.network().set_between(1, 0, link_);
    }

    World world_;
    LinkSettings link_;
    bool keyed_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 4 || size > 3'000) return 0;
    Program program(data);
    for (std::size_t at = 4; at + 3 <= size; at += 3) program.run(data[at], data[at + 1], data[at + 2]);
    program.finish();
    return 0;
}
