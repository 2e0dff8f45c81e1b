// Packets of one size through a driver's table, with no engine: what dpdk_limit is for DPDK alone.
//
// The sender fills buffers as an engine does: 64 bytes of header are written to `head`, and the rest is `body`, which
// lies in `memory-bytes` of memory that is sent in turn. With --payload none everything is said to be in `head` and
// nothing is written, as testpmd's `txonly` does. `run` packets in a row are of one path; with --paths N the next run is of
// the next path, and with --mixed 1 every packet is of another path and TOS than the one before.
//
// The receiver takes what is there and gives it back. One line of JSON; see rate_loop.hpp.

#include <cstring>

#include "arguments.hpp"
#include "io/driver_registry.hpp"
#include "json.hpp"
#include "rate_loop.hpp"

namespace {

using namespace dlcp;
using namespace dlcp::bench;

constexpr std::uint32_t own_header_bytes = 64;
constexpr int burst_packets_max = 512;

class Driver {
public:
    explicit Driver(const Arguments& arguments) : table_(find_driver(arguments.text("driver"))) {
        dlcp_io_config config{};
        config.bind_host = arguments.text("bind").c_str();
        config.port = static_cast<std::uint16_t>(arguments.integer("port"));
        config.paths = static_cast<std::uint16_t>(arguments.integer("paths"));
        if (!arguments.on("offload")) config.flags = DLCP_IO_NO_GSO | DLCP_IO_NO_GRO;
        if (!arguments.text("extra").empty()) config.extra = arguments.text("extra").c_str();
        char error[512] = "";
        if (table_.open(&config, &io_, error, sizeof error) < 0) die(error);
        dlcp_io_capabilities capabilities{};
        table_.capabilities(io_, &capabilities);
        const auto bytes = static_cast<std::uint32_t>(arguments.integer("bytes"));
        if (capabilities.max_datagram_bytes < bytes)
            die("datagrams have " + std::to_string(capabilities.max_datagram_bytes) + " bytes at most");
        burst_ = std::min(static_cast<int>(arguments.integer("burst")),
                          std::min<int>(burst_packets_max, static_cast<int>(capabilities.max_burst_packets)));
    }
    ~Driver() { table_.close(io_); }
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

    const dlcp_io_table& table() const { return table_; }
    dlcp_io* io() const { return io_; }
    int burst() const { return burst_; }
    std::string address() const {
        dlcp_address address{};
        table_.local_address(io_, &address);
        char text[160] = "";
        table_.format(io_, &address, text, sizeof text);
        return text;
    }
    dlcp_address resolve(const std::string& text) const {
        dlcp_address address{};
        char error[512] = "";
        if (table_.resolve(io_, text.c_str(), &address, error, sizeof error) < 0) die(error);
        return address;
    }
    void add_counters(Json& json) const {
        dlcp_io_counters counters{};
        table_.counters(io_, &counters);
        json.add("tx_dropped_packets", counters.tx_dropped_packets)
            .add("rx_dropped_datagrams", counters.rx_dropped_datagrams);
    }

private:
    const dlcp_io_table& table_;
    dlcp_io* io_ = nullptr;
    int burst_ = 0;
};

class Sender {
public:
    Sender(const Arguments& arguments, const Driver& driver)
        : driver_(driver),
          to_(driver.resolve(arguments.text("to"))),
          bytes_(static_cast<std::uint32_t>(arguments.integer("bytes"))),
          body_(arguments.text("payload") == "body"),
          mixed_(arguments.on("mixed")),
          run_(static_cast<std::uint64_t>(arguments.integer("run"))),
          paths_(static_cast<std::uint64_t>(arguments.integer("paths"))),
          memory_(static_cast<std::size_t>(arguments.integer("memory-bytes")), 1) {
        if (memory_.size() < bytes_) die("--memory-bytes is less than a packet");
    }

    std::pair<std::uint64_t, std::uint64_t> burst() {
        dlcp_packet packets[burst_packets_max];
        const int lent = driver_.table().tx_get(driver_.io(), packets, driver_.burst());
        if (lent <= 0) {
            driver_.table().wait(driver_.io(), 100'000);
            return {driver_.burst(), 0};
        }
        for (int i = 0; i < lent; ++i) prepare(packets[i]);
        const int taken = driver_.table().tx_put(driver_.io(), packets, lent);
        return {static_cast<std::uint64_t>(lent), static_cast<std::uint64_t>(std::max(0, taken))};
    }

private:
    void prepare(dlcp_packet& packet) {
        packet.address = &to_;
        packet.tail_bytes = 0;
        packet.flags = 0;
        packet.tos = 0;
        if (mixed_) {
            packet.path = static_cast<std::uint16_t>(count_ % paths_);
            packet.tos = static_cast<std::uint8_t>((count_ & 7) << 5);
        } else {
            packet.path = static_cast<std::uint16_t>(count_ / run_ % paths_);
        }
        ++count_;
        if (!body_) {
            packet.head_bytes = bytes_;
            packet.body_bytes = 0;
            packet.body = nullptr;
            return;
        }
        std::memset(packet.head, static_cast<int>(next_), own_header_bytes);
        packet.head_bytes = own_header_bytes;
        packet.body_bytes = bytes_ - own_header_bytes;
        if (next_ + packet.body_bytes > memory_.size()) next_ = 0;
        packet.body = &memory_[next_];
        next_ += packet.body_bytes;
    }

    const Driver& driver_;
    const dlcp_address to_;
    const std::uint32_t bytes_;
    const bool body_, mixed_;
    const std::uint64_t run_, paths_;
    std::vector<std::uint8_t> memory_;
    std::size_t next_ = 0;
    std::uint64_t count_ = 0;
};

std::uint64_t receive_burst(const Driver& driver) {
    dlcp_packet packets[burst_packets_max];
    const int n = driver.table().rx(driver.io(), packets, driver.burst());
    if (n <= 0) return 0;
    driver.table().rx_done(driver.io(), packets, n);
    return static_cast<std::uint64_t>(n);
}

}  // namespace

int main(int argc, char** argv) {
    const Arguments arguments(argc, argv,
                              {{"driver", "udp"},
                               {"bind", "127.0.0.1"},
                               {"port", "0"},
                               {"to", ""},  // send: the receiver's address
                               {"extra", ""},
                               {"offload", "1"},  // UDP_SEGMENT and UDP_GRO
                               {"payload", "body"},
                               {"memory-bytes", "1048576"},
                               {"run", "16"},
                               {"paths", "1"},
                               {"mixed", "0"},
                               DLCP_BENCH_RATE_ARGUMENTS});
    RateLoop loop(arguments);
    Driver driver(arguments);
    Json ready, answer;
    ready.add("address", driver.address());
    if (arguments.text("role") == "send") {
        Sender sender(arguments, driver);
        answer = loop.send(ready, [&] { return sender.burst(); });
    } else {
        const bool sleeps = arguments.on("sleep");
        answer = loop.receive(
            ready, [&] { return receive_burst(driver); },
            [&] {
                if (sleeps) driver.table().wait(driver.io(), 1'000'000);
            });
    }
    driver.add_counters(answer);
    answer.print();
}
