// Two processes on this host, an engine and a driver each: bytes per second of messages one way and both ways at once,
// through shared memory (--driver local) or loopback (--driver udp), against a plain memcpy of the same bytes.
//
// "both" is what a rank of a two-rank all-reduce does: as many bytes out as in, at the same time. Times are of the rank
// that measures, from the moment both are ready; the least and the median of the repetitions are told.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "clock.hpp"
#include "driven_endpoint.hpp"
#include "json.hpp"

namespace {

using namespace dlcp;
using namespace dlcp::bench;

void require(CommandError error, const char* what) {
    if (error != CommandError::none) die(std::string(what) + ": " + name(error));
}

dlcp_io_config io_config(const Arguments& arguments) {
    dlcp_io_config config{};
    config.paths = 1;
    if (!arguments.text("extra").empty()) config.extra = arguments.text("extra").c_str();
    return config;
}

std::string read_line(int descriptor) {
    std::string line;
    for (char c = 0; read(descriptor, &c, 1) == 1 && c != '\n';) line += c;
    return line;
}

class Rank {
public:
    Rank(const Arguments& arguments, std::uint32_t rank)
        : rank_(rank),
          bytes_(static_cast<std::uint32_t>(arguments.integer("bytes"))),
          repetitions_(static_cast<int>(arguments.integer("repetitions"))),
          out_(bytes_, static_cast<std::uint8_t>(rank + 1)),
          in_(bytes_),
          endpoint_(arguments.text("driver"), io_config(arguments), settings(arguments, rank)) {}

    std::string address() const { return endpoint_.text(endpoint_.local_address()); }

    void connect(const std::string& text) {
        const auto connected = endpoint_->connect(endpoint_.now(), 1 - rank_, endpoint_.resolve(text));
        require(connected.error, "connect");
        peer_ = connected.value;
    }
    void await_peer() {
        until([&] {
            return endpoint_->find_peer(1 - rank_) && endpoint_->established(*endpoint_->find_peer(1 - rank_));
        });
        peer_ = *endpoint_->find_peer(1 - rank_);
    }

    // Seconds per repetition. `out`, `in`: whether this rank sends and receives.
    std::vector<double> run(bool out, bool in) {
        std::vector<double> took;
        for (int i = 0; i < repetitions_; ++i) {
            barrier();
            const double start_s = wall_s();
            const int before = over_;
            if (in) receive(in_, 100);
            if (out) send(out_, 100);
            const int wanted = before + out + in;
            until([&] { return over_ >= wanted; });
            took.push_back(wall_s() - start_s);
            if (in && (in_.front() != 2 - rank_ || in_.back() != 2 - rank_)) die("wrong bytes");
        }
        std::sort(took.begin(), took.end());
        return took;
    }

    DrivenEndpoint& endpoint() { return endpoint_; }

private:
    static EndpointConfig settings(const Arguments& arguments, std::uint32_t rank) {
        EndpointConfig config = endpoint_config(arguments, rank);
        config.paths = 1;
        config.channel_datagram_bytes = static_cast<std::uint16_t>(arguments.integer("channel-datagram-bytes"));
        return config;
    }
    void barrier() {
        std::uint8_t byte = 0;
        std::vector<std::uint8_t> out{1}, in{byte};
        const int wanted = over_ + 2;
        receive(in, 1);
        send(out, 1);
        until([&] { return over_ >= wanted; });
    }
    void send(const std::vector<std::uint8_t>& from, std::uint64_t tag) {
        require(endpoint_
                    ->send(endpoint_.now(), {.peer = peer_,
                                             .tag = tag,
                                             .payload = from.data(),
                                             .message_bytes = static_cast<std::uint32_t>(from.size()),
                                             .importance = {}})
                    .error,
                "send");
    }
    void receive(std::vector<std::uint8_t>& to, std::uint64_t tag) {
        ReceiveCommand command;
        command.peer = peer_;
        command.tag = tag;
        command.buffer = to.data();
        command.capacity_bytes = static_cast<std::uint32_t>(to.size());
        require(endpoint_->receive(endpoint_.now(), command).error, "receive");
    }
    template <class Done>
    void until(Done&& done) {
        while (!done())
            endpoint_.turn(milliseconds(10), [&](const Event& event) {
                if (event.kind == EventKind::send_failed || event.kind == EventKind::receive_failed)
                    die(std::string("a message failed: ") + name(event.error));
                if (event.kind != EventKind::send_finished && event.kind != EventKind::receive_finished) return;
                ++over_;
                endpoint_->release(event.message);
            });
    }

    std::uint32_t rank_;
    std::uint32_t bytes_;
    int repetitions_;
    std::vector<std::uint8_t> out_, in_;
    DrivenEndpoint endpoint_;
    PeerId peer_;
    int over_ = 0;
};

void measure(Rank& rank, const char* what, bool out, bool in, std::uint32_t bytes, Json& json) {
    const double cpu_s = process_cpu_s();
    const auto took = rank.run(out, in);
    const double each_s = (process_cpu_s() - cpu_s) / static_cast<double>(took.size());
    const std::string name = what;
    json.add((name + "_ms").c_str(), took[took.size() / 2] * 1e3)
        .add((name + "_ms_min").c_str(), took.front() * 1e3)
        .add((name + "_gbytes_per_s").c_str(), bytes * 1e-9 / took[took.size() / 2])
        .add((name + "_cpu_ms").c_str(), each_s * 1e3);
}

}  // namespace

int main(int argc, char** argv) {
    const Arguments arguments(argc, argv,
                              {{"driver", "local"},
                               {"bytes", "67108864"},
                               {"repetitions", "15"},
                               {"extra", ""},
                               {"channel-datagram-bytes", "61504"},
                               DLCP_BENCH_ENDPOINT_ARGUMENTS});
    const auto bytes = static_cast<std::uint32_t>(arguments.integer("bytes"));
    int to_child[2], to_parent[2];
    if (pipe(to_child) != 0 || pipe(to_parent) != 0) die("no pipe");
    const pid_t child = fork();
    if (child < 0) die("no process");
    if (child == 0) {
        close(to_child[1]);  // so that the parent's end is seen
        Rank rank(arguments, 1);
        const std::string line = rank.address() + "\n";
        if (write(to_parent[1], line.data(), line.size()) < 0) return 1;
        rank.await_peer();
        rank.run(false, true);
        rank.run(true, true);
        read_line(to_child[0]);
        return 0;
    }
    Json json;
    {
        Rank rank(arguments, 0);
        rank.connect(read_line(to_parent[0]));
        json.add("driver", arguments.text("driver")).add("bytes", bytes);
        measure(rank, "one_way", true, false, bytes, json);
        measure(rank, "both", true, true, bytes, json);
        std::vector<std::uint8_t> from(bytes, 1), to(bytes);
        double best_s = 1e9;
        for (int i = 0; i < 7; ++i) {
            const double start_s = wall_s();
            std::memcpy(to.data(), from.data(), bytes);
            best_s = std::min(best_s, wall_s() - start_s);
        }
        const dlcp_io_counters io = rank.endpoint().io_counters();
        const Counters counters = rank.endpoint()->counters();
        json.add("memcpy_ms_min", best_s * 1e3 + 0.0 * to[bytes / 2])
            .add("channel_tx_packets", io.channel_tx_packets)
            .add("tx_dropped_packets", io.tx_dropped_packets)
            .add("lost_packets", counters.lost_packets)
            .add("probes_sent", counters.probes_sent);
    }
    close(to_child[1]);
    waitpid(child, nullptr, 0);
    json.print();
}
