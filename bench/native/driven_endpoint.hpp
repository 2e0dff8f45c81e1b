// One engine on one driver, run by the thread that calls: what a host does, without its thread.
//
// A measurement made with it has the engine's and the driver's cost in it and nothing of the hand-over between
// threads; `now` is read once per step, as the engine's contract asks.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "engine/endpoint.hpp"
#include "io/driver_registry.hpp"
#include "io/io_table.h"

namespace dlcp::bench {

class DrivenEndpoint {
public:
    // Opens driver `driver`; ends the program if that fails. `config` is lowered to what the driver can do.
    DrivenEndpoint(const std::string& driver, const dlcp_io_config& io_config, EndpointConfig config)
        : table_(find_driver(driver)) {
        char error[512] = "";
        if (table_.open(&io_config, &io_, error, sizeof error) < 0) die(error);
        dlcp_io_capabilities capabilities{};
        table_.capabilities(io_, &capabilities);
        config.max_datagram_bytes = static_cast<std::uint16_t>(
            std::min<std::uint32_t>(config.max_datagram_bytes, capabilities.max_datagram_bytes));
        config.receive_buffer = Bytes{capabilities.receive_buffer_bytes};
        if (capabilities.channel_buffer_bytes != 0)
            config.channel_buffer = Bytes{capabilities.channel_buffer_bytes};
        if (const std::string fault = config.validate(); !fault.empty()) die(fault);
        std::random_device entropy;
        const std::uint64_t seed = std::uint64_t{entropy()} << 32 | entropy();
        endpoint_ = std::make_unique<Endpoint>(config, seed, now());
        // As the host does.
        const std::size_t burst = std::clamp<std::size_t>(capabilities.max_burst_packets, 1, 256);
        arrived_.resize(burst);
        leaving_.resize(burst);
    }
    ~DrivenEndpoint() { table_.close(io_); }
    DrivenEndpoint(const DrivenEndpoint&) = delete;
    DrivenEndpoint& operator=(const DrivenEndpoint&) = delete;

    Endpoint& operator*() { return *endpoint_; }
    Endpoint* operator->() { return endpoint_.get(); }
    Time now() const { return Time{table_.now_ns(io_)}; }

    dlcp_address resolve(const std::string& text) const {
        dlcp_address address{};
        char error[512] = "";
        if (table_.resolve(io_, text.c_str(), &address, error, sizeof error) < 0) die(error);
        return address;
    }
    dlcp_address local_address() const {
        dlcp_address address{};
        table_.local_address(io_, &address);
        return address;
    }
    std::string text(const dlcp_address& address) const {
        char out[160] = "";
        table_.format(io_, &address, out, sizeof out);
        return out;
    }
    dlcp_io_counters io_counters() const {
        dlcp_io_counters counters{};
        table_.counters(io_, &counters);
        return counters;
    }

    // One turn: what arrived, then timers, then events to `handle`, then what is to be sent. Sleeps first if the
    // last turn moved nothing, until a packet, the next deadline, or at most `patience`.
    template <class Handler>
    void turn(Duration patience, Handler&& handle) {
        if (!moved_) sleep(patience);
        moved_ = receive();
        if (const Time at = now(); at >= endpoint_->next_deadline()) endpoint_->handle_timer(at);
        for (Event event; endpoint_->poll_event(event); moved_ = true) handle(event);
        moved_ |= transmit();
    }

private:
    bool receive() {
        const int n = table_.rx(io_, arrived_.data(), static_cast<int>(arrived_.size()));
        if (n <= 0) return false;
        endpoint_->handle_packets(now(), {arrived_.data(), static_cast<std::size_t>(n)});
        table_.rx_done(io_, arrived_.data(), n);
        return true;
    }

    bool transmit() {
        for (bool sent = false;; sent = true) {
            const int lent = table_.tx_get(io_, leaving_.data(), static_cast<int>(leaving_.size()));
            if (lent <= 0) return sent;
            const std::span<dlcp_packet> slots(leaving_.data(), static_cast<std::size_t>(lent));
            const Time at = now();
            std::size_t filled = 0;
            bool drained = false;
            while (filled < slots.size() && !drained) {
                const std::size_t more = endpoint_->poll_transmit(at, slots.subspan(filled));
                filled += more;
                drained = more == 0;
            }
            for (dlcp_packet& unused : slots.subspan(filled)) unused.head_bytes = 0;
            table_.tx_put(io_, leaving_.data(), lent);
            if (drained) return sent || filled > 0;
        }
    }

    void sleep(Duration patience) {
        const Time at = now(), due = std::min(endpoint_->next_deadline(), at + patience);
        if (due > at) table_.wait(io_, (due - at).value);
    }

    const dlcp_io_table& table_;
    dlcp_io* io_ = nullptr;
    std::unique_ptr<Endpoint> endpoint_;
    std::vector<dlcp_packet> arrived_, leaving_;
    bool moved_ = true;
};

// The settings that every program of this folder takes by the same names; see `endpoint_config`.
#define DLCP_BENCH_ENDPOINT_ARGUMENTS                                                                         \
    {"paths", "8"}, {"run-packets", "16"}, {"datagram-bytes", "1472"}, {"congestion", "window"},              \
        {"line-rate", "0"}, {"max-window", "16777216"}, {"target-delay-us", "1000"}, {"authenticate", "0"}, { \
        "encrypt", "0"                                                                                        \
    }

inline EndpointConfig endpoint_config(const Arguments& arguments, std::uint32_t rank) {
    EndpointConfig config;
    config.rank = rank;
    config.job = 7;
    config.paths = static_cast<std::uint16_t>(arguments.integer("paths"));
    config.run_packets = static_cast<std::uint16_t>(arguments.integer("run-packets"));
    config.max_datagram_bytes = static_cast<std::uint16_t>(arguments.integer("datagram-bytes"));
    config.max_window = Bytes{static_cast<std::uint64_t>(arguments.integer("max-window"))};
    config.target_delay = microseconds(arguments.integer("target-delay-us"));
    config.line_rate = Rate{static_cast<std::uint64_t>(arguments.integer("line-rate"))};
    config.encrypt = arguments.on("encrypt");
    if (arguments.on("authenticate") || config.encrypt) config.job_key = JobKeyBytes{0x2b, 0x7e, 0x15, 0x16};
    const std::string& congestion = arguments.text("congestion");
    config.congestion = congestion_algorithm(congestion);
    if (static_cast<std::size_t>(config.congestion) >= std::size(congestion_controllers))
        die("--congestion is " + congestion + "; accepted: " + std::string(congestion_names));
    return config;
}

}  // namespace dlcp::bench
