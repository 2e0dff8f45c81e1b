#include "support/native/virtual_driver.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "io/driver_table.hpp"

namespace dlcp {

class VirtualDriver;

// Which hosts take part, and who works. Everything is guarded by `mutex`.
class VirtualFabric::Impl {
public:
    Impl(std::uint64_t seed, std::uint32_t expected) : network(seed), expected_hosts(expected) {}

    // Hosts up to this port exist afterwards. Port p is host p - 1.
    std::uint32_t host_of_port(std::uint16_t port) {
        while (network.hosts() < port) network.add_host();
        return port - 1u;
    }

    // Somebody stopped working, or something became due: lets the next host work, moving the clock if none could.
    void pass_on();

    mutable std::mutex mutex;
    VirtualNetwork network;
    std::uint32_t expected_hosts;
    std::uint32_t took_part = 0;       // hosts that ever waited
    std::vector<VirtualDriver*> open;  // by port
    VirtualDriver* working = nullptr;
    std::thread::id worker;  // who works for `working`
};

namespace {

constexpr std::uint32_t burst = 64;
constexpr std::uint32_t default_receive_buffer_bytes = 4u << 20;
constexpr std::uint32_t default_max_datagram_bytes = 9152;

struct Registry {
    std::mutex mutex;
    std::map<std::string, std::weak_ptr<VirtualFabric::Impl>> fabrics;
};
Registry& registry() {
    static Registry instance;
    return instance;
}

}  // namespace

// One host of a fabric. Everything but the heads is guarded by the fabric's mutex.
class VirtualDriver {
public:
    static int open(const dlcp_io_config& config, std::unique_ptr<VirtualDriver>& out, ErrorText error);
    ~VirtualDriver();

    dlcp_io_capabilities capabilities() const;
    int resolve(const char* text, dlcp_address& out, ErrorText error) const;
    static std::string format(const dlcp_address& address) {
        return "virtual:" + std::to_string(VirtualNetwork::host_of(address) + 1);
    }
    dlcp_address local_address() const { return VirtualNetwork::address(host); }
    int tx_get(dlcp_packet* packets, int n);
    int tx_put(dlcp_packet* packets, int n);
    int rx(dlcp_packet* packets, int n);
    void rx_done(dlcp_packet* packets, int n);
    void wait(std::int64_t timeout_ns);
    void wake();
    std::int64_t now_ns() const;
    dlcp_io_counters counters() const;
    const std::string& warnings() const { return no_warnings; }

    bool due() const {
        const VirtualNetwork& network = fabric->network;
        return woken || network.readable(host) || deadline <= network.now();
    }

    std::shared_ptr<VirtualFabric::Impl> fabric;
    std::uint32_t host = 0;
    std::uint32_t max_datagram_bytes = 0;
    std::uint32_t receive_buffer_bytes = 0;
    std::string no_warnings;
    std::vector<std::uint8_t> heads;  // burst × DLCP_HEAD_CAPACITY
    dlcp_io_counters counted{};
    bool takes_part = false;
    bool waiting = false;
    bool woken = false;
    Time deadline = time_never;
    std::condition_variable granted;
};

int VirtualDriver::open(const dlcp_io_config& config, std::unique_ptr<VirtualDriver>& out, ErrorText error) {
    const std::string name = config.extra != nullptr ? config.extra : "";
    std::shared_ptr<VirtualFabric::Impl> fabric;
    {
        const std::lock_guard lock(registry().mutex);
        if (const auto found = registry().fabrics.find(name); found != registry().fabrics.end())
            fabric = found->second.lock();
    }
    if (!fabric) return error.fail(ENODEV, "there is no virtual network named '%s'", name.c_str());

    const std::lock_guard lock(fabric->mutex);
    const auto taken = [&](std::uint32_t host) {
        return std::any_of(fabric->open.begin(), fabric->open.end(),
                           [&](const VirtualDriver* other) { return other->host == host; });
    };
    std::uint16_t port = config.port;
    if (port == 0) {
        for (port = 1; taken(port - 1u);) ++port;
    } else if (taken(port - 1u)) {
        return error.fail(EADDRINUSE, "virtual port %u is open already", unsigned{port});
    }
    out = std::make_unique<VirtualDriver>();
    out->fabric = fabric;
    out->host = fabric->host_of_port(port);
    out->max_datagram_bytes = config.max_datagram_bytes != 0
                                  ? std::min(config.max_datagram_bytes, default_max_datagram_bytes)
                                  : default_max_datagram_bytes;
    out->receive_buffer_bytes =
        config.socket_buffer_bytes != 0 ? config.socket_buffer_bytes : default_receive_buffer_bytes;
    out->heads.resize(std::size_t{burst} * DLCP_HEAD_CAPACITY);
    const auto place = std::find_if(fabric->open.begin(), fabric->open.end(),
                                    [&](const VirtualDriver* other) { return other->host > out->host; });
    fabric->open.insert(place, out.get());
    return 0;
}

VirtualDriver::~VirtualDriver() {
    const std::lock_guard lock(fabric->mutex);
    std::erase(fabric->open, this);
    fabric->network.clear_inbox(host);
    if (fabric->working == this) fabric->working = nullptr;
    if (fabric->working == nullptr) fabric->pass_on();
}

dlcp_io_capabilities VirtualDriver::capabilities() const {
    return {.max_datagram_bytes = max_datagram_bytes,
            .max_burst_packets = burst,
            .receive_buffer_bytes = receive_buffer_bytes,
            .reports_ecn = 1,
            .pollable = 1,
            .is_loopback = 1};
}

int VirtualDriver::resolve(const char* text, dlcp_address& out, ErrorText error) const {
    const std::string whole = text;
    const std::size_t colon = whole.rfind(':');
    char* end = nullptr;
    const char* const digits = colon == std::string::npos ? "" : whole.c_str() + colon + 1;
    const unsigned long port = std::strtoul(digits, &end, 10);
    if (*digits == '\0' || *end != '\0' || port == 0 || port > UINT16_MAX)
        return error.fail(EINVAL, "'%s' is not a virtual address; write virtual:PORT", text);
    out = VirtualNetwork::address(static_cast<std::uint32_t>(port - 1));
    return 0;
}

int VirtualDriver::tx_get(dlcp_packet* packets, int n) {
    const int count = std::clamp(n, 0, static_cast<int>(burst));
    for (int i = 0; i < count; ++i) {
        packets[i] = {};
        packets[i].head = heads.data() + static_cast<std::size_t>(i) * DLCP_HEAD_CAPACITY;
        packets[i].cookie = static_cast<std::uint64_t>(i);
    }
    return count;
}

int VirtualDriver::tx_put(dlcp_packet* packets, int n) {
    const std::lock_guard lock(fabric->mutex);
    ++counted.tx_calls;
    for (int i = 0; i < n; ++i) {
        if (packets[i].head_bytes == 0) continue;
        ++counted.tx_packets;
        counted.tx_bytes += packets[i].head_bytes + packets[i].body_bytes + packets[i].tail_bytes;
        fabric->network.send(host, packets[i]);
    }
    if (fabric->working == nullptr) fabric->pass_on();
    return n;
}

int VirtualDriver::rx(dlcp_packet* packets, int n) {
    const std::lock_guard lock(fabric->mutex);
    ++counted.rx_calls;
    const auto room = static_cast<std::size_t>(std::clamp(n, 0, static_cast<int>(burst)));
    const std::size_t count = fabric->network.receive(host, {packets, room});
    for (std::size_t i = 0; i < count; ++i) {
        ++counted.rx_packets;
        counted.rx_bytes += packets[i].head_bytes + packets[i].body_bytes;
        if ((packets[i].tos & 3) == 3) ++counted.ce_packets;
    }
    return static_cast<int>(count);
}

void VirtualDriver::rx_done(dlcp_packet* packets, int n) {
    const std::lock_guard lock(fabric->mutex);
    fabric->network.release({packets, static_cast<std::size_t>(std::max(n, 0))});
}

void VirtualDriver::wait(std::int64_t timeout_ns) {
    std::unique_lock lock(fabric->mutex);
    if (!std::exchange(takes_part, true)) ++fabric->took_part;
    deadline = timeout_ns < 0 ? time_never : fabric->network.now() + nanoseconds(timeout_ns);
    const bool worked =
        fabric->working == this || (fabric->working != nullptr && fabric->worker == std::this_thread::get_id());
    if (worked) fabric->working = nullptr;
    if (fabric->working == nullptr && due()) {
        fabric->working = this;
    } else {
        waiting = true;
        fabric->pass_on();
        granted.wait(lock, [&] { return !waiting; });
    }
    fabric->worker = std::this_thread::get_id();
    woken = false;
}

void VirtualDriver::wake() {
    const std::lock_guard lock(fabric->mutex);
    woken = true;
    if (fabric->working == nullptr) fabric->pass_on();
}

std::int64_t VirtualDriver::now_ns() const {
    const std::lock_guard lock(fabric->mutex);
    return fabric->network.now().value;
}

dlcp_io_counters VirtualDriver::counters() const {
    const std::lock_guard lock(fabric->mutex);
    return counted;
}

void VirtualFabric::Impl::pass_on() {
    if (working != nullptr) return;
    for (;;) {
        Time next = network.next_event();
        bool anyone = false;
        for (VirtualDriver* io : open) {
            if (!io->waiting) continue;
            anyone = true;
            if (io->due()) {
                io->waiting = false;
                working = io;
                worker = {};  // until its thread has come back from wait()
                io->granted.notify_one();
                return;
            }
            next = std::min(next, io->deadline);
        }
        if (!anyone || next == time_never) return;
        if (took_part < expected_hosts) return;
        network.advance(next);
    }
}

VirtualFabric::VirtualFabric(std::string name, std::uint64_t seed, std::uint32_t expected_hosts)
    : impl_(std::make_shared<Impl>(seed, expected_hosts)) {
    const std::lock_guard lock(registry().mutex);
    registry().fabrics[std::move(name)] = impl_;
}

VirtualFabric::~VirtualFabric() {
    const std::lock_guard lock(registry().mutex);
    std::erase_if(registry().fabrics, [&](const auto& entry) { return entry.second.lock() == impl_; });
}

void VirtualFabric::set_uplink(std::uint16_t port, const LinkSettings& settings) {
    const std::lock_guard lock(impl_->mutex);
    impl_->network.set_uplink(impl_->host_of_port(port), settings);
}

void VirtualFabric::set_downlink(std::uint16_t port, const LinkSettings& settings) {
    const std::lock_guard lock(impl_->mutex);
    impl_->network.set_downlink(impl_->host_of_port(port), settings);
}

void VirtualFabric::set_between(std::uint16_t from, std::uint16_t to, const LinkSettings& settings) {
    const std::lock_guard lock(impl_->mutex);
    const std::uint32_t source = impl_->host_of_port(from);
    impl_->network.set_between(source, impl_->host_of_port(to), settings);
}

void VirtualFabric::set_inbox(std::uint16_t port, Bytes limit) {
    const std::lock_guard lock(impl_->mutex);
    impl_->network.set_inbox(impl_->host_of_port(port), limit);
}

Time VirtualFabric::now() const {
    const std::lock_guard lock(impl_->mutex);
    return impl_->network.now();
}

std::uint64_t VirtualFabric::count(Fate fate) const {
    const std::lock_guard lock(impl_->mutex);
    return impl_->network.count(fate);
}

}  // namespace dlcp

const dlcp_io_table* dlcp_virtual_driver() {
    static constexpr dlcp_io_table table = dlcp::driver_table<dlcp::VirtualDriver>("virtual");
    return &table;
}
