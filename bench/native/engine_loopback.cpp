// Two endpoints over the UDP driver on loopback, a thread each: packets per second of processor time.
//
// The sender keeps `outstanding` reliable messages of `bytes` under way, read from real memory and placed into real
// memory. Each thread counts its own processor time, so that the two sides are told apart and another program on
// the machine costs nothing but patience. udp_limit moves bare datagrams the same way: the limit to compare with.

#include <atomic>
#include <cstring>
#include <future>
#include <memory>
#include <thread>

#include "clock.hpp"
#include "driven_endpoint.hpp"
#include "json.hpp"

namespace {

using namespace dlcp;
using namespace dlcp::bench;

void require(CommandError error, const char* what) {
    if (error != CommandError::none) die(std::string(what) + ": " + name(error));
}

// What one side did between two readings.
struct Reading {
    double wall_s = bench::wall_s();
    double cpu_s = thread_cpu_s();
    Counters counters;
    dlcp_io_counters io{};

    explicit Reading(DrivenEndpoint& endpoint) : counters(endpoint->counters()), io(endpoint.io_counters()) {}
};

// From when to when both sides measure, in seconds of the monotonic clock; set once the session stands.
struct Schedule {
    std::promise<dlcp_address> receiver_address;
    std::promise<double> start_s;
    std::shared_future<double> started = start_s.get_future().share();
    std::atomic<bool> over{false};  // both have measured
    double warm_up_s = 0.3;
    double seconds = 2;
};

// Runs `endpoint` until its end is reached, and answers what happened between warm-up and end.
template <class Handler>
std::pair<Reading, Reading> measure(DrivenEndpoint& endpoint, double start_s, const Schedule& schedule,
                                    Handler&& handle) {
    const auto run_until = [&](double end_s) {
        while (wall_s() < end_s) endpoint.turn(milliseconds(10), handle);
        return Reading(endpoint);
    };
    const Reading before = run_until(start_s + schedule.warm_up_s);
    return {before, run_until(start_s + schedule.warm_up_s + schedule.seconds)};
}

class Sender {
public:
    Sender(const Arguments& arguments, Schedule& schedule)
        : bytes_(static_cast<std::uint32_t>(arguments.integer("bytes"))),
          outstanding_(arguments.integer("outstanding")),
          payload_(bytes_ * static_cast<std::size_t>(outstanding_), 1),
          schedule_(schedule),
          endpoint_("udp", io_config(arguments), endpoint_config(arguments, 1)) {}

    Json run() {
        const dlcp_address to = schedule_.receiver_address.get_future().get();
        auto connected = endpoint_->connect(endpoint_.now(), 0, to);
        require(connected.error, "connect");
        peer_ = connected.value;
        const auto handler = [this](const Event& event) { handle(event); };
        while (!endpoint_->established(peer_)) endpoint_.turn(milliseconds(10), handler);
        for (std::int64_t i = 0; i < outstanding_; ++i) send();
        const double start_s = wall_s();
        schedule_.start_s.set_value(start_s);
        const auto [before, after] = measure(endpoint_, start_s, schedule_, handler);
        while (!schedule_.over) endpoint_.turn(milliseconds(1), handler);

        const double cpu_s = after.cpu_s - before.cpu_s, wall = after.wall_s - before.wall_s;
        const std::uint64_t packets = after.counters.data_packets_sent - before.counters.data_packets_sent;
        return Json()
            .add("packets", packets)
            .add("cpu_s", cpu_s)
            .add("wall_s", wall)
            .add("kpps_per_cpu_s", static_cast<double>(packets) / cpu_s / 1e3)
            .add("kpps", static_cast<double>(packets) / wall / 1e3)
            .add("lost_packets", after.counters.lost_packets - before.counters.lost_packets)
            .add("spurious_losses", after.counters.spurious_losses - before.counters.spurious_losses)
            .add("control_packets_received",
                 after.counters.control_packets_received - before.counters.control_packets_received)
            .add("tx_calls", after.io.tx_calls - before.io.tx_calls)
            .add("tx_dropped_packets", after.io.tx_dropped_packets - before.io.tx_dropped_packets)
            .add("rtt_us", static_cast<double>(endpoint_->peer_statistics(peer_).rtt.value) * 1e-3)
            .add("window_bytes", endpoint_->peer_statistics(peer_).window.value);
    }

private:
    static dlcp_io_config io_config(const Arguments& arguments) {
        dlcp_io_config config{};
        config.paths = static_cast<std::uint16_t>(arguments.integer("paths"));
        return config;
    }

    void send() {
        const std::uint8_t* payload =
            payload_.data() + bytes_ * (next_ % static_cast<std::uint64_t>(outstanding_));
        const SendCommand command{
            .peer = peer_, .tag = next_++, .payload = payload, .message_bytes = bytes_, .importance = {}};
        require(endpoint_->send(endpoint_.now(), command).error, "send");
    }

    void handle(const Event& event) {
        if (event.kind == EventKind::send_failed || event.kind == EventKind::peer_down)
            die(std::string(name(event.kind)) + ": " + name(event.error));
        if (event.kind != EventKind::send_finished) return;
        require(endpoint_->release(event.message), "release");
        send();
    }

    const std::uint32_t bytes_;
    const std::int64_t outstanding_;
    const std::vector<std::uint8_t> payload_;
    std::uint64_t next_ = 0;
    PeerId peer_;
    Schedule& schedule_;
    DrivenEndpoint endpoint_;
};

class Receiver {
public:
    Receiver(const Arguments& arguments, Schedule& schedule)
        : bytes_(static_cast<std::uint32_t>(arguments.integer("bytes"))),
          // One more than the sender has under way, so that every message finds its receive.
          posted_(arguments.integer("outstanding") + 1),
          buffer_(bytes_ * static_cast<std::size_t>(posted_)),
          schedule_(schedule),
          endpoint_("udp", io_config(arguments), endpoint_config(arguments, 0)) {}

    Json run() {
        for (std::int64_t i = 0; i < posted_; ++i) receive();
        schedule_.receiver_address.set_value(endpoint_.local_address());
        const auto handler = [this](const Event& event) { handle(event); };
        while (schedule_.started.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
            endpoint_.turn(milliseconds(1), handler);
        const auto [before, after] = measure(endpoint_, schedule_.started.get(), schedule_, handler);
        schedule_.over = true;

        const double cpu_s = after.cpu_s - before.cpu_s, wall = after.wall_s - before.wall_s;
        const std::uint64_t packets = after.counters.data_packets_received - before.counters.data_packets_received;
        return Json()
            .add("packets", packets)
            .add("cpu_s", cpu_s)
            .add("wall_s", wall)
            .add("kpps_per_cpu_s", static_cast<double>(packets) / cpu_s / 1e3)
            .add("kpps", static_cast<double>(packets) / wall / 1e3)
            .add("goodput_bps",
                 8.0 * static_cast<double>(after.counters.data_bytes_placed - before.counters.data_bytes_placed) /
                     wall)
            .add("duplicate_blocks", after.counters.duplicate_blocks - before.counters.duplicate_blocks)
            .add("control_packets_sent",
                 after.counters.control_packets_sent - before.counters.control_packets_sent)
            .add("rx_calls", after.io.rx_calls - before.io.rx_calls)
            .add("rx_dropped_datagrams", after.io.rx_dropped_datagrams - before.io.rx_dropped_datagrams);
    }

private:
    static dlcp_io_config io_config(const Arguments& arguments) {
        dlcp_io_config config{};
        config.paths = static_cast<std::uint16_t>(arguments.integer("paths"));
        return config;
    }

    void receive() {
        std::uint8_t* buffer = buffer_.data() + bytes_ * (next_ % static_cast<std::uint64_t>(posted_));
        require(endpoint_->receive(endpoint_.now(), {any_peer, next_++, buffer, bytes_}).error, "receive");
    }

    void handle(const Event& event) {
        if (event.kind == EventKind::receive_failed) die(std::string("receive_failed: ") + name(event.error));
        if (event.kind != EventKind::receive_finished) return;
        require(endpoint_->release(event.message), "release");
        receive();
    }

    const std::uint32_t bytes_;
    const std::int64_t posted_;
    std::vector<std::uint8_t> buffer_;
    std::uint64_t next_ = 0;
    Schedule& schedule_;
    DrivenEndpoint endpoint_;
};

}  // namespace

int main(int argc, char** argv) {
    const Arguments arguments(
        argc, argv, {{"seconds", "2"}, {"bytes", "4194304"}, {"outstanding", "4"}, DLCP_BENCH_ENDPOINT_ARGUMENTS});
    Schedule schedule;
    schedule.seconds = arguments.real("seconds");
    Json sender, receiver;
    std::thread receiving([&] { receiver = Receiver(arguments, schedule).run(); });
    std::thread sending([&] { sender = Sender(arguments, schedule).run(); });
    sending.join();
    receiving.join();
    Json()
        .add("sender", std::vector<Json>{sender})
        .add("receiver", std::vector<Json>{receiver})
        .add("crypto", std::string(fastest_crypto_library()))
        .print();
}
