#include "io/udp_driver.hpp"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "io/clock.hpp"
#include "io/error_text.hpp"
#include "io/poller.hpp"
#include "io/udp_address.hpp"
#include "io/udp_receive.hpp"
#include "io/udp_socket.hpp"
#include "io/udp_transmit.hpp"

namespace dlcp::udp {

namespace {

constexpr unsigned paths_max = 64;
// What the wire format carries (engine/config.hpp); a head buffer holds it with its tag.
constexpr std::uint32_t datagram_bytes_min = 576;
constexpr std::uint32_t datagram_bytes_max = 9152;
static_assert(datagram_bytes_max <= DLCP_HEAD_CAPACITY);
// Enough for the engine's default receive credit of 2 MiB by the conservative third of what is granted, which is
// twice what is asked: 8 MiB x 2 / 3.
constexpr std::uint32_t socket_buffer_bytes_default = 8 * 1024 * 1024;

// A dlcp_io is one of these. It is not a definition of `struct dlcp_io`, because every driver linked into a program
// would define that struct differently.
struct Driver {
    int family = AF_INET;
    dlcp_address local = {};
    std::uint32_t datagram_bytes = 0;
    bool loopback = false;
    std::string warnings;
    dlcp_io_counters counters = {};
    std::vector<Socket> sockets;  // one per path
    Poller poller;
    std::unique_ptr<Transmitter> transmitter;
    std::unique_ptr<Receiver> receiver;
};

Driver* driver_of(dlcp_io* io) { return reinterpret_cast<Driver*>(io); }

int check_config(const dlcp_io_config& config, ErrorText error) {
    if (config.paths < 1 || config.paths > paths_max) {
        return error.fail(EINVAL, "paths is %u: choose 1 to %u", static_cast<unsigned>(config.paths), paths_max);
    }
    if (config.max_datagram_bytes != 0 && config.max_datagram_bytes < datagram_bytes_min) {
        return error.fail(EINVAL, "max_datagram_bytes is %u: choose %u to %u, or 0 for what the interface allows",
                          config.max_datagram_bytes, datagram_bytes_min, datagram_bytes_max);
    }
    if ((config.flags & ~(DLCP_IO_NO_GSO | DLCP_IO_NO_GRO)) != 0) {
        return error.fail(EINVAL, "flags 0x%x: only DLCP_IO_NO_GSO (1) and DLCP_IO_NO_GRO (2) are known",
                          config.flags);
    }
    if (config.extra != nullptr && config.extra[0] != '\0') {
        return error.fail(EDOM, "driver_options is '%s'; the udp driver takes none", config.extra);
    }
    return 0;
}

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

int bind_path_zero(Driver& driver, const dlcp_io_config& config, const std::vector<Interface>& interfaces,
                   const Interface* wanted, SocketOptions& options, ErrorText error) {
    std::vector<dlcp_address> candidates;
    if (const int result = choose_addresses(config, wanted, candidates, error); result < 0) return result;
    int result = -EADDRNOTAVAIL;
    for (dlcp_address candidate : candidates) {
        set_port(candidate, config.port);
        result = driver.sockets[0].open(candidate, options, error);
        // Before Linux 5.7 binding to a device takes a privilege. Binding to an address of the interface does
        // nearly the same: packets to other addresses are not received, but may leave through other interfaces.
        if (result == -EPERM && !options.device.empty() && find_owner(interfaces, candidate) == wanted) {
            options.device.clear();
            result = driver.sockets[0].open(candidate, options, error);
            if (result == 0) {
                driver.warnings += "not allowed to bind to interface " + wanted->name + ", bound to its address " +
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

void warn_of_small_buffer(Driver& driver, const char* what, const char* sysctl, std::uint32_t granted_bytes,
                          std::uint32_t asked_bytes) {
    if (granted_bytes / 2 >= asked_bytes) return;  // the kernel reports twice what it took the request for
    driver.warnings += std::string("the kernel granted a ") + what + " buffer of " +
                       std::to_string(granted_bytes / 2) + " of the " + std::to_string(asked_bytes) +
                       " bytes asked for; bursts may be lost on this host. "
                       "Raise it: sysctl -w " +
                       sysctl + "=" + std::to_string(asked_bytes) + "\n";
}

int open_driver(const dlcp_io_config& config, Driver& driver, ErrorText error) {
    if (const int result = check_config(config, error); result < 0) return result;

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
    SocketOptions options = {.device = wanted != nullptr ? wanted->name : "",
                             .buffer_bytes = buffer_bytes,
                             .want_gro = (config.flags & DLCP_IO_NO_GRO) == 0};
    driver.sockets.resize(config.paths);
    if (const int result = bind_path_zero(driver, config, interfaces, wanted, options, error); result < 0)
        return result;
    const Socket& main_socket = driver.sockets[0];
    driver.local = main_socket.local_address();
    driver.family = family_of(driver.local);
    dlcp_address free_port = driver.local;
    set_port(free_port, 0);
    for (std::size_t path = 1; path < driver.sockets.size(); ++path) {
        if (const int result = driver.sockets[path].open(free_port, options, error); result < 0) return result;
    }

    if (const int result = driver.poller.open(error); result < 0) return result;
    for (std::size_t path = 0; path < driver.sockets.size(); ++path) {
        const int result =
            driver.poller.add(driver.sockets[path].descriptor(), static_cast<unsigned>(path), error);
        if (result < 0) return result;
    }

    driver.loopback = is_loopback(driver.local);
    driver.datagram_bytes =
        std::min(largest_datagram_bytes(narrowest_interface(interfaces, wanted, driver.local), driver.family),
                 config.max_datagram_bytes != 0 ? std::min(config.max_datagram_bytes, datagram_bytes_max)
                                                : datagram_bytes_max);

    warn_of_small_buffer(driver, "receive", "net.core.rmem_max", main_socket.granted_receive_bytes(),
                         buffer_bytes);
    warn_of_small_buffer(driver, "send", "net.core.wmem_max", main_socket.granted_send_bytes(), buffer_bytes);
    const bool use_gso = (config.flags & DLCP_IO_NO_GSO) == 0 && main_socket.supports_gso();
    if ((config.flags & DLCP_IO_NO_GSO) == 0 && !use_gso) {
        driver.warnings +=
            "this kernel has no UDP segmentation offload (Linux 4.18): sending costs about ten times more "
            "CPU per packet\n";
    }
    if (options.want_gro && !main_socket.has_gro()) {
        driver.warnings +=
            "this kernel has no UDP_GRO (Linux 5.0): receiving costs several times more CPU per packet\n";
    }

    driver.transmitter = std::make_unique<Transmitter>(driver.sockets, driver.family, use_gso, driver.counters);
    driver.receiver = std::make_unique<Receiver>(driver.sockets, driver.family, main_socket.has_gro(),
                                                 driver.poller, driver.counters);
    return 0;
}

// The functions of the table. None lets an exception out; all take a null dlcp_io for a closed one.

int open(const dlcp_io_config* config, dlcp_io** out, char* text, size_t text_bytes) {
    const ErrorText error = {text, text_bytes};
    if (text != nullptr && text_bytes > 0) text[0] = '\0';
    if (config == nullptr || out == nullptr)
        return error.fail(EINVAL, "open needs a configuration and a place for the result");
    *out = nullptr;
    try {
        auto driver = std::make_unique<Driver>();
        if (const int result = open_driver(*config, *driver, error); result < 0) return result;
        *out = reinterpret_cast<dlcp_io*>(driver.release());
        if (text != nullptr && text_bytes > 0) text[0] = '\0';  // of an address tried before the one that worked
        return 0;
    } catch (const std::bad_alloc&) {
        return error.fail(ENOMEM, "not enough memory for the packet buffers (about 7 MB of address space)");
    }
}

void capabilities(dlcp_io* io, dlcp_io_capabilities* out) {
    if (out == nullptr) return;
    *out = {};
    if (io == nullptr) return;
    const Driver& driver = *driver_of(io);
    out->max_datagram_bytes = driver.datagram_bytes;
    out->max_burst_packets = Transmitter::burst_packets_max;
    out->receive_buffer_bytes = payload_capacity_bytes(driver.sockets[0].granted_receive_bytes());
    out->wants_runs = driver.transmitter->uses_gso();
    out->reports_ecn = 1;
    out->pollable = 1;
    out->is_loopback = driver.loopback;
}

int resolve(dlcp_io* io, const char* text, dlcp_address* out, char* error_text, size_t error_bytes) {
    const ErrorText error = {error_text, error_bytes};
    if (io == nullptr) return error.fail(EBADF, "the driver is closed");
    if (out == nullptr) return error.fail(EINVAL, "resolve needs a place for the result");
    if (text == nullptr) return error.fail(EINVAL, "resolve needs an address");
    try {
        const std::string own(text, strcspn(text, "+"));
        return resolve_endpoint(own.c_str(), driver_of(io)->family, *out, error);
    } catch (const std::bad_alloc&) {
        return error.fail(ENOMEM, "not enough memory to look up '%s'", text);
    }
}

void format(dlcp_io*, const dlcp_address* address, char* text, size_t text_bytes) {
    if (text == nullptr || text_bytes == 0) return;
    const std::string formatted = address != nullptr ? format_address(*address) : "(no address)";
    const std::size_t copied_bytes = std::min(formatted.size(), text_bytes - 1);
    memcpy(text, formatted.data(), copied_bytes);
    text[copied_bytes] = '\0';
}

void local_address(dlcp_io* io, dlcp_address* out) {
    if (out != nullptr) *out = io != nullptr ? driver_of(io)->local : dlcp_address{};
}

int tx_get(dlcp_io* io, dlcp_packet* packets, int count) {
    return io != nullptr ? driver_of(io)->transmitter->get(packets, count) : 0;
}

int tx_put(dlcp_io* io, dlcp_packet* packets, int count) {
    return io != nullptr ? driver_of(io)->transmitter->put(packets, count) : 0;
}

int rx(dlcp_io* io, dlcp_packet* packets, int count) {
    return io != nullptr ? driver_of(io)->receiver->receive(packets, count) : 0;
}

void rx_done(dlcp_io* io, dlcp_packet* packets, int count) {
    if (io != nullptr) driver_of(io)->receiver->done(packets, count);
}

void wait(dlcp_io* io, int64_t timeout_ns) {
    if (io == nullptr || driver_of(io)->receiver->has_work()) return;
    driver_of(io)->receiver->note_readable(driver_of(io)->poller.wait(timeout_ns));
}

void wake(dlcp_io* io) {
    if (io != nullptr) driver_of(io)->poller.wake();
}

int64_t now_ns(dlcp_io*) { return monotonic_ns(); }

void counters(dlcp_io* io, dlcp_io_counters* out) {
    if (out == nullptr) return;
    *out = {};
    if (io == nullptr) return;
    *out = driver_of(io)->counters;
    for (const Socket& socket : driver_of(io)->sockets) out->rx_dropped_datagrams += socket.dropped_datagrams();
}

const char* warnings(dlcp_io* io) { return io != nullptr ? driver_of(io)->warnings.c_str() : ""; }

void close(dlcp_io* io) { delete driver_of(io); }

int watch(dlcp_io* io, int descriptor, std::uint8_t* readable) {
    return io != nullptr ? driver_of(io)->poller.watch(descriptor, readable) : -EBADF;
}

void unwatch(dlcp_io* io, int descriptor) {
    if (io != nullptr) driver_of(io)->poller.unwatch(descriptor);
}

}  // namespace

}  // namespace dlcp::udp

const dlcp_io_table* dlcp_udp_driver() {
    using namespace dlcp::udp;
    static const dlcp_io_table table = {
        .abi_version = DLCP_IO_ABI_VERSION,
        .name = "udp",
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
        .watch = watch,
        .unwatch = unwatch,
    };
    return &table;
}
