#include "io/virtual_driver.hpp"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace dlcp {

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
    std::uint32_t took_part = 0;  // hosts that ever waited
    std::vector<dlcp_io*> open;   // by port
    dlcp_io* working = nullptr;
    std::thread::id worker;  // who works for `working`
};

}  // namespace dlcp

struct dlcp_io {
    std::shared_ptr<dlcp::VirtualFabric::Impl> fabric;
    std::uint32_t host = 0;
    std::uint32_t max_datagram_bytes = 0;
    std::uint32_t receive_buffer_bytes = 0;
    std::string warnings;
    std::vector<std::uint8_t> heads;  // burst × DLCP_HEAD_CAPACITY
    dlcp_io_counters counters{};
    bool takes_part = false;
    bool waiting = false;
    bool woken = false;
    dlcp::Time deadline = dlcp::time_never;
    std::condition_variable granted;
};

namespace dlcp {
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

int fail(int code, char* error, std::size_t error_bytes, const std::string& text) {
    if (error != nullptr && error_bytes != 0) std::snprintf(error, error_bytes, "%s", text.c_str());
    return -code;
}

bool due(const dlcp_io& io) {
    const VirtualNetwork& network = io.fabric->network;
    return io.woken || network.readable(io.host) || io.deadline <= network.now();
}

int open(const dlcp_io_config* config, dlcp_io** out, char* error, std::size_t error_bytes) {
    const std::string name = config->extra != nullptr ? config->extra : "";
    std::shared_ptr<VirtualFabric::Impl> fabric;
    {
        const std::lock_guard lock(registry().mutex);
        if (const auto found = registry().fabrics.find(name); found != registry().fabrics.end()) {
            fabric = found->second.lock();
        }
    }
    if (!fabric) return fail(ENODEV, error, error_bytes, "there is no virtual network named '" + name + "'");

    const std::lock_guard lock(fabric->mutex);
    const auto taken = [&](std::uint32_t host) {
        return std::any_of(fabric->open.begin(), fabric->open.end(),
                           [&](dlcp_io* io) { return io->host == host; });
    };
    std::uint16_t port = config->port;
    if (port == 0) {
        for (port = 1; taken(port - 1u);) ++port;
    } else if (taken(port - 1u)) {
        return fail(EADDRINUSE, error, error_bytes, "virtual port " + std::to_string(port) + " is open already");
    }
    auto io = std::make_unique<dlcp_io>();
    io->fabric = fabric;
    io->host = fabric->host_of_port(port);
    io->max_datagram_bytes = config->max_datagram_bytes != 0
                                 ? std::min(config->max_datagram_bytes, default_max_datagram_bytes)
                                 : default_max_datagram_bytes;
    io->receive_buffer_bytes =
        config->socket_buffer_bytes != 0 ? config->socket_buffer_bytes : default_receive_buffer_bytes;
    io->heads.resize(std::size_t{burst} * DLCP_HEAD_CAPACITY);
    const auto place = std::find_if(fabric->open.begin(), fabric->open.end(),
                                    [&](const dlcp_io* other) { return other->host > io->host; });
    fabric->open.insert(place, io.get());
    *out = io.release();
    return 0;
}

void capabilities(dlcp_io* io, dlcp_io_capabilities* out) {
    *out = {};
    out->max_datagram_bytes = io->max_datagram_bytes;
    out->max_burst_packets = burst;
    out->receive_buffer_bytes = io->receive_buffer_bytes;
    out->reports_ecn = 1;
    out->pollable = 1;
    out->is_loopback = 1;
}

int resolve(dlcp_io*, const char* text, dlcp_address* out, char* error, std::size_t error_bytes) {
    const std::string whole = text != nullptr ? text : "";
    const std::size_t colon = whole.rfind(':');
    char* end = nullptr;
    const char* const digits = colon == std::string::npos ? "" : whole.c_str() + colon + 1;
    const unsigned long port = std::strtoul(digits, &end, 10);
    if (*digits == '\0' || *end != '\0' || port == 0 || port > UINT16_MAX) {
        return fail(EINVAL, error, error_bytes, "'" + whole + "' is not a virtual address; write virtual:PORT");
    }
    *out = VirtualNetwork::address(static_cast<std::uint32_t>(port - 1));
    return 0;
}

void format(dlcp_io*, const dlcp_address* address, char* text, std::size_t text_bytes) {
    if (text_bytes == 0) return;
    std::snprintf(text, text_bytes, "virtual:%u", VirtualNetwork::host_of(*address) + 1);
}

void local_address(dlcp_io* io, dlcp_address* out) { *out = VirtualNetwork::address(io->host); }

int tx_get(dlcp_io* io, dlcp_packet* packets, int n) {
    const int count = std::clamp(n, 0, static_cast<int>(burst));
    for (int i = 0; i < count; ++i) {
        packets[i] = {};
        packets[i].head = io->heads.data() + static_cast<std::size_t>(i) * DLCP_HEAD_CAPACITY;
        packets[i].cookie = static_cast<std::uint64_t>(i);
    }
    return count;
}

int tx_put(dlcp_io* io, dlcp_packet* packets, int n) {
    const std::lock_guard lock(io->fabric->mutex);
    ++io->counters.tx_calls;
    for (int i = 0; i < n; ++i) {
        if (packets[i].head_bytes == 0) continue;
        ++io->counters.tx_packets;
        io->counters.tx_bytes += packets[i].head_bytes + packets[i].body_bytes + packets[i].tail_bytes;
        io->fabric->network.send(io->host, packets[i]);
    }
    if (io->fabric->working == nullptr) io->fabric->pass_on();
    return n;
}

int rx(dlcp_io* io, dlcp_packet* packets, int n) {
    const std::lock_guard lock(io->fabric->mutex);
    ++io->counters.rx_calls;
    const auto room = static_cast<std::size_t>(std::clamp(n, 0, static_cast<int>(burst)));
    const std::size_t count = io->fabric->network.receive(io->host, {packets, room});
    for (std::size_t i = 0; i < count; ++i) {
        ++io->counters.rx_packets;
        io->counters.rx_bytes += packets[i].head_bytes + packets[i].body_bytes;
        if ((packets[i].tos & 3) == 3) ++io->counters.ce_packets;
    }
    return static_cast<int>(count);
}

void rx_done(dlcp_io* io, dlcp_packet* packets, int n) {
    const std::lock_guard lock(io->fabric->mutex);
    io->fabric->network.release({packets, static_cast<std::size_t>(std::max(n, 0))});
}

void wait(dlcp_io* io, std::int64_t timeout_ns) {
    VirtualFabric::Impl& fabric = *io->fabric;
    std::unique_lock lock(fabric.mutex);
    if (!std::exchange(io->takes_part, true)) ++fabric.took_part;
    io->deadline = timeout_ns < 0 ? time_never : fabric.network.now() + nanoseconds(timeout_ns);
    const bool worked =
        fabric.working == io || (fabric.working != nullptr && fabric.worker == std::this_thread::get_id());
    if (worked) fabric.working = nullptr;
    if (fabric.working == nullptr && due(*io)) {
        fabric.working = io;
    } else {
        io->waiting = true;
        fabric.pass_on();
        io->granted.wait(lock, [&] { return !io->waiting; });
    }
    fabric.worker = std::this_thread::get_id();
    io->woken = false;
}

void wake(dlcp_io* io) {
    const std::lock_guard lock(io->fabric->mutex);
    io->woken = true;
    if (io->fabric->working == nullptr) io->fabric->pass_on();
}

std::int64_t now_ns(dlcp_io* io) {
    const std::lock_guard lock(io->fabric->mutex);
    return io->fabric->network.now().value;
}

void counters(dlcp_io* io, dlcp_io_counters* out) {
    const std::lock_guard lock(io->fabric->mutex);
    *out = io->counters;
}

const char* warnings(dlcp_io* io) { return io->warnings.c_str(); }

void close(dlcp_io* io) {
    const std::unique_ptr<dlcp_io> owned(io);
    const std::lock_guard lock(io->fabric->mutex);
    std::erase(io->fabric->open, io);
    io->fabric->network.clear_inbox(io->host);
    if (io->fabric->working == io) io->fabric->working = nullptr;
    if (io->fabric->working == nullptr) io->fabric->pass_on();
}

}  // namespace

void VirtualFabric::Impl::pass_on() {
    if (working != nullptr) return;
    for (;;) {
        Time next = network.next_event();
        bool anyone = false;
        for (dlcp_io* io : open) {
            if (!io->waiting) continue;
            anyone = true;
            if (due(*io)) {
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

void VirtualFabric::set_way(std::uint16_t from, std::uint16_t to, const LinkSettings& settings) {
    const std::lock_guard lock(impl_->mutex);
    const std::uint32_t source = impl_->host_of_port(from);
    impl_->network.set_way(source, impl_->host_of_port(to), settings);
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

extern "C" const dlcp_io_table* dlcp_virtual_driver(void) {
    using namespace dlcp;
    static const dlcp_io_table table = {
        .abi_version = DLCP_IO_ABI_VERSION,
        .name = "virtual",
        .open = open,
        .capabilities = capabilities,
        .resolve = resolve,
        .format = format,
        .local_address = local_address,
        .tx_get = tx_get,
        .tx_put = tx_put,
        .rx = rx,
        .rx_done = rx_done,
        .wait = wait,
        .wake = wake,
        .now_ns = now_ns,
        .counters = counters,
        .warnings = warnings,
        .close = close,
    };
    return &table;
}
