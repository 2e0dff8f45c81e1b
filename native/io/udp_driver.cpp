// Opens one socket per path and joins transmitter, receiver and poller.
#include "io/udp_driver.hpp"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "io/clock.hpp"
#include "io/driver_config.hpp"
#include "io/driver_table.hpp"
#include "io/error_text.hpp"
#include "io/poller.hpp"
#include "io/udp_address.hpp"
#include "io/udp_receive.hpp"
#include "io/udp_sockets.hpp"
#include "io/udp_transmit.hpp"

namespace dlcp::udp {

namespace {

// Enough for the engine's default receive credit of 2 MiB by the conservative third of what is granted, which is
// twice what is asked: 8 MiB x 2 / 3.
constexpr std::uint32_t socket_buffer_bytes_default = 8 * 1024 * 1024;

// A dlcp_io of this driver.
class Driver {
public:
    static int open(const dlcp_io_config& config, std::unique_ptr<Driver>& out, ErrorText error) {
        out = std::make_unique<Driver>();
        return out->configure(config, error);
    }

    dlcp_io_capabilities capabilities() const;
    int resolve(const char* text, dlcp_address& out, ErrorText error) const {
        const std::string own(text, strcspn(text, "+"));
        return resolve_endpoint(own.c_str(), family_, out, error);
    }
    static std::string format(const dlcp_address& address) { return format_address(address); }
    const dlcp_address& local_address() const { return local_; }
    int tx_get(dlcp_packet* packets, int count) { return transmitter_->get(packets, count); }
    int tx_put(dlcp_packet* packets, int count) { return transmitter_->put(packets, count); }
    int rx(dlcp_packet* packets, int count) { return receiver_->receive(packets, count); }
    void rx_done(dlcp_packet* packets, int count) { receiver_->done(packets, count); }
    void wait(std::int64_t timeout_ns) {
        if (!receiver_->has_work()) receiver_->note_readable(poller_.wait(timeout_ns));
    }
    void wake() { poller_.wake(); }
    static std::int64_t now_ns() { return monotonic_ns(); }
    dlcp_io_counters counters() const;
    const std::string& warnings() const { return warnings_; }
    int watch(int descriptor, std::uint8_t* readable) { return poller_.watch(descriptor, readable); }
    void unwatch(int descriptor) { poller_.unwatch(descriptor); }

private:
    int configure(const dlcp_io_config& config, ErrorText error);
    int open_sockets(const dlcp_io_config& config, const std::vector<Interface>& interfaces,
                     const Interface* wanted, SocketOptions& options, ErrorText error);
    int bind_advertised(const dlcp_io_config& config, const std::vector<Interface>& interfaces,
                        const Interface* wanted, SocketOptions& options, ErrorText error);
    void warn_of_small_buffer(const char* what, const char* sysctl, std::uint32_t granted_bytes,
                              std::uint32_t asked_bytes);
    void warn_of_offloads(bool asked_gso, bool has_gso, bool asked_gro, bool has_gro);

    int family_ = AF_INET;
    dlcp_address local_ = {};
    std::uint32_t datagram_bytes_ = 0;  // largest UDP payload
    bool loopback_ = false;             // only this host can reach it
    std::string warnings_;
    dlcp_io_counters counters_ = {};
    Poller poller_;
    Sockets sockets_{poller_};
    std::unique_ptr<Transmitter> transmitter_;
    std::unique_ptr<Receiver> receiver_;
};

std::string host_without_brackets(const char* host) {
    std::string text = host;
    if (text.size() >= 2 && text.front() == '[' && text.back() == ']') return text.substr(1, text.size() - 2);
    return text;
}

// The addresses to try in turn, port 0.
int choose_addresses(const dlcp_io_config& config, const Interface* wanted, std::vector<dlcp_address>& out,
                     ErrorText error) {
    if (config.bind_host != nullptr && config.bind_host[0] != '\0') {
        return resolve_host(host_without_brackets(config.bind_host), AF_UNSPEC, out, error);
    }
    if (wanted == nullptr) return resolve_host("127.0.0.1", AF_UNSPEC, out, error);
    out = wanted->addresses;
    std::stable_partition(out.begin(), out.end(),
                          [](const dlcp_address& address) { return family_of(address) == AF_INET; });
    if (out.empty()) {
        return error.fail(EADDRNOTAVAIL, "interface %s has no address: give it one, or choose another of %s",
                          wanted->name.c_str(), describe(list_interfaces()).c_str());
    }
    return 0;
}

// The smallest MTU a packet may meet on leaving: of the interface that has the address, or for a wildcard of all
// interfaces that are up and lead out.
const Interface* narrowest_interface(const std::vector<Interface>& interfaces, const Interface* wanted,
                                     const dlcp_address& local) {
    if (wanted != nullptr) return wanted;
    if (!is_wildcard(local)) return find_owner(interfaces, local);
    const Interface* narrowest = nullptr;
    for (const Interface& interface : interfaces) {
        const bool usable =
            interface.up && !interface.loopback && interface.mtu_bytes > 0 &&
            std::any_of(interface.addresses.begin(), interface.addresses.end(),
                        [&](const dlcp_address& own) { return family_of(own) == family_of(local); });
        if (usable && (narrowest == nullptr || interface.mtu_bytes < narrowest->mtu_bytes)) narrowest = &interface;
    }
    return narrowest;
}

}  // namespace

int Driver::bind_advertised(const dlcp_io_config& config, const std::vector<Interface>& interfaces,
                            const Interface* wanted, SocketOptions& options, ErrorText error) {
    std::vector<dlcp_address> candidates;
    if (const int result = choose_addresses(config, wanted, candidates, error); result < 0) return result;
    int result = -EADDRNOTAVAIL;
    for (dlcp_address candidate : candidates) {
        set_port(candidate, config.port);
        result = sockets_.open_advertised(candidate, options, error);
        // Before Linux 5.7 binding to a device takes a privilege. Binding to an address of the interface does
        // nearly the same: packets to other addresses are not received, but may leave through other interfaces.
        if (result == -EPERM && !options.device.empty() && find_owner(interfaces, candidate) == wanted) {
            options.device.clear();
            result = sockets_.open_advertised(candidate, options, error);
            if (result == 0) {
                warnings_ += "not allowed to bind to interface " + wanted->name + ", bound to its address " +
                             format_host(candidate) +
                             " instead: routing decides where packets leave. "
                             "Grant CAP_NET_RAW for a strict binding.\n";
            }
        }
        // A name with several addresses: the next one may be ours. Any other failure is worth stopping for.
        if (result != -EADDRNOTAVAIL && result != -EAFNOSUPPORT) break;
    }
    return result;
}

void Driver::warn_of_small_buffer(const char* what, const char* sysctl, std::uint32_t granted_bytes,
                                  std::uint32_t asked_bytes) {
    if (granted_bytes / 2 >= asked_bytes) return;  // the kernel reports twice what it took the request for
    warnings_ += std::string("the kernel granted a ") + what + " buffer of " + std::to_string(granted_bytes / 2) +
                 " of the " + std::to_string(asked_bytes) +
                 " bytes asked for; bursts may be lost on this host. Raise it: sysctl -w " + sysctl + "=" +
                 std::to_string(asked_bytes) + "\n";
}

void Driver::warn_of_offloads(bool asked_gso, bool has_gso, bool asked_gro, bool has_gro) {
    if (asked_gso && !has_gso) {
        warnings_ +=
            "this kernel has no UDP segmentation offload (Linux 4.18): sending costs about ten times more "
            "CPU per packet\n";
    }
    if (asked_gro && !has_gro)
        warnings_ += "this kernel has no UDP_GRO (Linux 5.0): receiving costs several times more CPU per packet\n";
}

int Driver::open_sockets(const dlcp_io_config& config, const std::vector<Interface>& interfaces,
                         const Interface* wanted, SocketOptions& options, ErrorText error) {
    if (const int result = bind_advertised(config, interfaces, wanted, options, error); result < 0) return result;
    local_ = sockets_.advertised().local_address();
    family_ = family_of(local_);
    if (const int result = poller_.open(error); result < 0) return result;
    return sockets_.open_paths(config.paths, options, error);
}

int Driver::configure(const dlcp_io_config& config, ErrorText error) {
    if (const int result = check_config(config, error); result < 0) return result;
    if (config.extra != nullptr && config.extra[0] != '\0')
        return error.fail(EDOM, "driver_options is '%s'; the udp driver takes none", config.extra);

    const std::vector<Interface> interfaces = list_interfaces();
    const Interface* wanted = nullptr;
    if (config.interface_name != nullptr && config.interface_name[0] != '\0') {
        const auto found = std::find_if(interfaces.begin(), interfaces.end(), [&](const Interface& interface) {
            return interface.name == config.interface_name;
        });
        if (found == interfaces.end()) {
            return error.fail(ENODEV, "this host has no interface '%s': choose one of %s", config.interface_name,
                              describe(interfaces).c_str());
        }
        wanted = &*found;
    }

    const std::uint32_t buffer_bytes =
        config.socket_buffer_bytes != 0 ? config.socket_buffer_bytes : socket_buffer_bytes_default;
    const bool asked_gso = (config.flags & DLCP_IO_NO_GSO) == 0;
    const bool asked_gro = (config.flags & DLCP_IO_NO_GRO) == 0;
    SocketOptions options = {
        .device = wanted != nullptr ? wanted->name : "", .buffer_bytes = buffer_bytes, .want_gro = asked_gro};
    if (const int result = open_sockets(config, interfaces, wanted, options, error); result < 0) return result;

    loopback_ = is_loopback(local_);
    datagram_bytes_ =
        std::min(largest_datagram_bytes(narrowest_interface(interfaces, wanted, local_), family_),
                 config.max_datagram_bytes != 0 ? std::min(config.max_datagram_bytes, datagram_bytes_max)
                                                : datagram_bytes_max);

    const Socket& main_socket = sockets_.advertised();
    warn_of_small_buffer("receive", "net.core.rmem_max", main_socket.granted_receive_bytes(), buffer_bytes);
    warn_of_small_buffer("send", "net.core.wmem_max", main_socket.granted_send_bytes(), buffer_bytes);
    const bool use_gso = asked_gso && main_socket.supports_gso();
    warn_of_offloads(asked_gso, use_gso, asked_gro, main_socket.has_gro());

    transmitter_ = std::make_unique<Transmitter>(sockets_, family_, use_gso, counters_);
    receiver_ = std::make_unique<Receiver>(sockets_, family_, main_socket.has_gro(), counters_);
    return 0;
}

dlcp_io_capabilities Driver::capabilities() const {
    dlcp_io_capabilities out = {};
    out.max_datagram_bytes = datagram_bytes_;
    out.max_burst_packets = Transmitter::burst_packets_max;
    out.receive_buffer_bytes = payload_capacity_bytes(sockets_.advertised().granted_receive_bytes());
    out.wants_runs = transmitter_->uses_gso();
    out.reports_ecn = 1;
    out.pollable = 1;
    out.is_loopback = loopback_;
    return out;
}

dlcp_io_counters Driver::counters() const {
    dlcp_io_counters out = counters_;
    out.rx_dropped_datagrams += sockets_.dropped_datagrams();
    return out;
}

}  // namespace dlcp::udp

const dlcp_io_table* dlcp_udp_driver() {
    static constexpr dlcp_io_table table = dlcp::driver_table<dlcp::udp::Driver>("udp");
    return &table;
}
