// How cheap a packet's hop can be on this machine: the yardstick beside which the simulator's own figure stands.
//
// A k-ary fat-tree and nothing else: a port is the moment until which it is busy, an event is a packet by value, a bucket of
// the wheel is handled in the order in which it was filled. Sources keep a window of packets under way, receivers answer
// each, switches draw the way up. No queues, classes, drops, losses, results or order of ties: what a simulator must add
// to this is what its features cost. Its completion times mean nothing and are not printed.
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "clock.hpp"
#include "json.hpp"

using namespace dlcp;

namespace {

constexpr std::int64_t ps_per_byte = 80;  // 100 Gb/s
constexpr std::int64_t delay_ps = 1'000'000;
constexpr std::uint32_t data_bytes = 4160, ack_bytes = 64, payload_bytes = 4096;
constexpr unsigned bucket_log2 = 9, wheel_log2 = 16;  // half a nanosecond; 33 microseconds ahead

struct Flow {
    std::uint32_t source, destination, packets, sent = 0;
};
struct Event {
    std::uint32_t offset_ps;  // within the bucket
    std::uint32_t node;       // where the packet arrives
    std::uint32_t flow;
    std::uint32_t is_ack;
};

class Floor {
public:
    Floor(std::uint32_t k, std::uint32_t window, std::vector<Flow> flows)
        : half_(k / 2),
          hosts_(k * half_ * half_),
          tier_(k * half_),
          window_(window),
          flows_(std::move(flows)),
          busy_until_ps_(hosts_ + 2 * tier_ * k + half_ * half_ * k),
          wheel_(std::size_t{1} << wheel_log2) {}

    std::uint64_t run() {
        for (std::uint32_t f = 0; f < flows_.size(); ++f)
            for (std::uint32_t i = 0; i < window_; ++i) send_data(f);
        while (under_way_ != 0) {
            std::vector<Event>& bucket = wheel_[static_cast<std::size_t>(bucket_) & (wheel_.size() - 1)];
            // No link is shorter than a revolution's bucket: nothing is filed into the one that is open.
            for (const Event& event : bucket) handle(event);
            under_way_ -= bucket.size();
            bucket.clear();
            ++bucket_;
        }
        return hops_;
    }

private:
    void handle(const Event& event) {
        ++hops_;
        now_ps_ = (bucket_ << bucket_log2) + event.offset_ps;
        const Flow& flow = flows_[event.flow];
        if (event.node >= hosts_) {
            forward(event.node - hosts_, event.is_ack ? flow.source : flow.destination, event);
        } else if (event.is_ack) {
            send_data(event.flow);
        } else {
            leave(event.node, edge_of(event.node), event.flow, 1);
        }
    }
    void forward(std::uint32_t node, std::uint32_t host, const Event& event) {
        const std::uint32_t k = 2 * half_, edge = host / half_, pod = edge / half_;
        if (node < tier_) {
            const std::uint32_t way = edge == node ? host % half_ : half_ + draw();
            const std::uint32_t next = edge == node ? host : hosts_ + tier_ + node / half_ * half_ + way - half_;
            leave(hosts_ + node * k + way, next, event.flow, event.is_ack);
        } else if (node < 2 * tier_) {
            const std::uint32_t a = node - tier_;
            const bool down = a / half_ == pod;
            const std::uint32_t way = down ? edge % half_ : half_ + draw();
            const std::uint32_t next = down ? hosts_ + edge : hosts_ + 2 * tier_ + a % half_ * half_ + way - half_;
            leave(hosts_ + (tier_ + a) * k + way, next, event.flow, event.is_ack);
        } else {
            const std::uint32_t core = node - 2 * tier_;
            leave(hosts_ + (2 * tier_ + core) * k + pod, hosts_ + tier_ + pod * half_ + core / half_, event.flow,
                  event.is_ack);
        }
    }
    void send_data(std::uint32_t f) {
        Flow& flow = flows_[f];
        if (flow.sent == flow.packets) return;
        ++flow.sent;
        leave(flow.source, edge_of(flow.source), f, 0);
    }
    void leave(std::uint32_t port, std::uint32_t node, std::uint32_t flow, std::uint32_t is_ack) {
        std::int64_t& busy = busy_until_ps_[port];
        busy = std::max(busy, now_ps_) + (is_ack ? ack_bytes : data_bytes) * ps_per_byte;
        const std::int64_t at_ps = busy + delay_ps, bucket = at_ps >> bucket_log2;
        if (bucket - bucket_ >= static_cast<std::int64_t>(wheel_.size()))
            bench::die("more waits than the wheel holds");
        wheel_[static_cast<std::size_t>(bucket) & (wheel_.size() - 1)].push_back(
            {static_cast<std::uint32_t>(at_ps & ((1 << bucket_log2) - 1)), node, flow, is_ack});
        ++under_way_;
    }
    std::uint32_t edge_of(std::uint32_t host) const { return hosts_ + host / half_; }
    std::uint32_t draw() {
        random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
        return static_cast<std::uint32_t>((random_ >> 32) * half_ >> 32);
    }

    const std::uint32_t half_, hosts_, tier_, window_;
    std::vector<Flow> flows_;
    std::vector<std::int64_t> busy_until_ps_;
    std::vector<std::vector<Event>> wheel_;
    std::int64_t bucket_ = 0, now_ps_ = 0;
    std::uint64_t under_way_ = 0, hops_ = 0, random_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
    const bench::Arguments arguments(argc, argv, {{"k", "8"}, {"flows", ""}, {"window", "24"}});
    std::ifstream file(arguments.text("flows"));
    if (!file) bench::die("--flows FILE: lines of source, destination, bytes");
    std::vector<Flow> flows;
    std::uint64_t bytes = 0;
    for (Flow flow{}; file >> flow.source >> flow.destination >> bytes;) {
        flow.packets = static_cast<std::uint32_t>((bytes + payload_bytes - 1) / payload_bytes);
        flows.push_back(flow);
    }
    Floor floor(static_cast<std::uint32_t>(arguments.integer("k")),
                static_cast<std::uint32_t>(arguments.integer("window")), std::move(flows));
    const double before_s = bench::thread_cpu_s();
    const std::uint64_t hops = floor.run();
    const double cpu_s = bench::thread_cpu_s() - before_s;
    bench::Json()
        .add("hops", hops)
        .add("cpu_s", cpu_s)
        .add("ns_per_hop", cpu_s * 1e9 / static_cast<double>(hops))
        .print();
    return 0;
}
