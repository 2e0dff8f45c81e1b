// Messages between two processes over any driver, an engine each and no thread but the one that drives.
//
// `ask` sends a reliable message of `bytes` and waits for an answer of `answer-bytes`, `messages` times or for `seconds`,
// one at a time: short both ways it measures the round trip, long one way goodput. The first `warm-up-messages` do not
// count. With --mode idle it waits for `seconds` with nothing to do, and tells the processor time of that. It stays until
// its standard input ends.
//
// `answer` answers, says {"ready": 1, "address": …} when it can, and ends at SIGTERM. One line of JSON each.

#include <signal.h>

#include <cstring>
#include <vector>

#include "clock.hpp"
#include "driven_endpoint.hpp"
#include "json.hpp"

namespace {

using namespace dlcp;
using namespace dlcp::bench;

constexpr std::uint64_t answer_bit = std::uint64_t{1} << 63;

volatile sig_atomic_t stopped = 0;

void require(CommandError error, const char* what) {
    if (error != CommandError::none) die(std::string(what) + ": " + name(error));
}

dlcp_io_config io_config(const Arguments& arguments) {
    dlcp_io_config config{};
    config.bind_host = arguments.text("bind").c_str();
    config.port = static_cast<std::uint16_t>(arguments.integer("port"));
    config.paths = static_cast<std::uint16_t>(arguments.integer("paths"));
    if (!arguments.on("offload")) config.flags = DLCP_IO_NO_GSO | DLCP_IO_NO_GRO;
    if (!arguments.text("extra").empty()) config.extra = arguments.text("extra").c_str();
    return config;
}

class Party {
public:
    Party(const Arguments& arguments, std::uint32_t rank)
        : asks_(rank == 1),
          out_(static_cast<std::size_t>(arguments.integer(asks_ ? "bytes" : "answer-bytes")), 1),
          in_(static_cast<std::size_t>(arguments.integer(asks_ ? "answer-bytes" : "bytes"))),
          endpoint_(arguments.text("driver"), io_config(arguments), endpoint_config(arguments, rank)) {}

    void answer() {
        Json().add("address", endpoint_.text(endpoint_.local_address())).add("ready", 1).print();
        while (!stopped) turn(milliseconds(50));
        Json json;
        json.add("role", std::string("answer")).add("messages", received_).add("cpu_s", process_cpu_s());
        add_counters(json);
        json.print();
    }

    void ask(const Arguments& arguments) {
        const auto connected = endpoint_->connect(endpoint_.now(), 0, endpoint_.resolve(arguments.text("to")));
        require(connected.error, "connect");
        peer_ = connected.value;
        const double connecting_s = wall_s();
        while (!endpoint_->established(peer_)) {
            turn(milliseconds(50));
            if (wall_s() > connecting_s + 20) die("no peer in 20 s");
        }
        const auto warm_up = static_cast<std::uint64_t>(arguments.integer("warm-up-messages"));
        for (std::uint64_t i = 0; i < warm_up; ++i) exchange();
        const auto messages = static_cast<std::uint64_t>(arguments.integer("messages"));
        const bool idle = arguments.text("mode") == "idle";
        std::vector<double> times_us;
        const double start_s = wall_s(), start_cpu_s = process_cpu_s(), seconds = arguments.real("seconds");
        while (wall_s() < start_s + seconds && times_us.size() < messages) {
            if (idle) {
                turn(microseconds(static_cast<std::int64_t>((start_s + seconds - wall_s()) * 1e6)));
                continue;
            }
            const double before_s = wall_s();
            exchange();
            times_us.push_back((wall_s() - before_s) * 1e6);
        }
        Json json;
        json.add("role", std::string("ask"))
            .add("messages", times_us.size())
            .add("wall_s", wall_s() - start_s)
            .add("cpu_s", process_cpu_s() - start_cpu_s);
        if (!times_us.empty()) {
            std::sort(times_us.begin(), times_us.end());
            json.add("median_us", times_us[times_us.size() / 2])
                .add("least_us", times_us.front())
                .add("p99_us", times_us[times_us.size() * 99 / 100]);
        }
        json.add("block_bytes", endpoint_->block_bytes(peer_));
        add_counters(json);
        json.print();
        // DPDK's memif gives back what its poller reads when the other end goes: the one that answers goes first.
        while (std::getchar() != EOF) {}
    }

private:
    // One message and its answer.
    void exchange() {
        const std::uint64_t index = sent_;
        post(index | answer_bit);
        send(index);
        while (received_ <= index || over_ <= index) turn(milliseconds(50));
    }

    void turn(Duration patience) {
        endpoint_.turn(patience, [this](const Event& event) { handle(event); });
    }
    void handle(const Event& event) {
        switch (event.kind) {
            case EventKind::peer_established:
                if (asks_) break;
                peer_ = event.peer;
                post(0);
                break;
            case EventKind::send_finished:
                ++over_;
                require(endpoint_->release(event.message), "release");
                break;
            case EventKind::receive_finished:
                ++received_;
                require(endpoint_->release(event.message), "release");
                if (asks_) break;
                post(received_);
                send(event.tag | answer_bit);
                break;
            case EventKind::send_failed:
            case EventKind::receive_failed:
                // The other has gone, which ends the answering one's work.
                if (asks_) die(std::string(name(event.kind)) + ": " + name(event.error));
                require(endpoint_->release(event.message), "release");
                break;
            default: break;
        }
    }
    void post(std::uint64_t tag) {
        require(
            endpoint_->receive(endpoint_.now(), {peer_, tag, in_.data(), static_cast<std::uint32_t>(in_.size())})
                .error,
            "receive");
    }
    void send(std::uint64_t tag) {
        ++sent_;
        const SendCommand command{.peer = peer_,
                                  .tag = tag,
                                  .payload = out_.data(),
                                  .message_bytes = static_cast<std::uint32_t>(out_.size()),
                                  .importance = {}};
        require(endpoint_->send(endpoint_.now(), command).error, "send");
    }
    void add_counters(Json& json) {
        const dlcp_io_counters io = endpoint_.io_counters();
        const Counters& counters = endpoint_->counters();
        json.add("lost_packets", counters.lost_packets)
            .add("spurious_losses", counters.spurious_losses)
            .add("data_packets_sent", counters.data_packets_sent)
            .add("data_packets_received", counters.data_packets_received)
            .add("tx_dropped_packets", io.tx_dropped_packets)
            .add("rx_dropped_datagrams", io.rx_dropped_datagrams);
    }

    const bool asks_;
    const std::vector<std::uint8_t> out_;
    std::vector<std::uint8_t> in_;
    DrivenEndpoint endpoint_;
    PeerId peer_;
    std::uint64_t sent_ = 0, over_ = 0, received_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
    const Arguments arguments(argc, argv,
                              {{"role", "answer"},
                               {"mode", "messages"},  // or idle
                               {"driver", "udp"},
                               {"bind", "127.0.0.1"},
                               {"port", "0"},
                               {"to", ""},  // ask: the other's address
                               {"extra", ""},
                               {"offload", "1"},
                               {"bytes", "64"},
                               {"answer-bytes", "64"},
                               {"messages", "1000000000"},
                               {"warm-up-messages", "1"},
                               {"seconds", "0.5"},
                               DLCP_BENCH_ENDPOINT_ARGUMENTS});
    struct sigaction stop {};
    stop.sa_handler = [](int) { stopped = 1; };
    sigaction(SIGTERM, &stop, nullptr);
    if (arguments.text("role") == "ask")
        Party(arguments, 1).ask(arguments);
    else
        Party(arguments, 0).answer();
}
