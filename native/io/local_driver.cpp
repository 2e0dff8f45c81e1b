// Options of the local driver, and which packets take a channel.
#include "io/local_driver.hpp"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <memory>
#include <string>
#include <string_view>

#include "io/driver_handle.hpp"
#include "io/driver_registry.hpp"
#include "io/driver_table.hpp"
#include "io/error_text.hpp"
#include "io/io_error.hpp"
#include "io/shm_channels.hpp"
#include "io/udp_driver.hpp"

namespace dlcp::local {

namespace {

// Two of them per pair of ranks that talk. Processor time of a side for 64 MiB each way at once (measured; cores with
// 2 MiB of second-level cache): 256 KiB 22.6 ms, 512 KiB 18.6, 1 MiB 17.0, 2 MiB 16.7, 4 MiB 15.2, 8 MiB 15.1. Beyond
// 2 MiB the memory of many ranks that all talk to each other weighs more.
constexpr std::uint32_t ring_bytes_default = 2 * 1024 * 1024;
// The engine has at most as many packets in flight as the acknowledged window is wide (engine/packet_window.hpp), and a
// packet takes up to 71 bytes of the ring beyond its own; control packets, which are not counted in flight, get what an
// acknowledgement of the whole window takes, some forty times.
constexpr std::uint32_t packets_in_flight_max = 8192;
constexpr std::uint32_t slot_overhead_bytes_max = 71;
constexpr std::uint32_t control_reserve_bytes = 48 * 1024;

// While the channels have packets, the other driver is asked every so many calls.
constexpr std::uint32_t rx_calls_between_inner = 16;

constexpr std::string_view inner_key = "inner=";

// A dlcp_io of this driver: the driver for other hosts, and the channels to processes of this one.
class Driver : public DriverHandle {
public:
    static int open(const dlcp_io_config& config, std::unique_ptr<Driver>& out, ErrorText error);

    Driver(const dlcp_io_table& inner, dlcp_io* io, std::uint32_t ring_bytes);

    dlcp_io_capabilities capabilities() const;
    int resolve(const char* text, dlcp_address& out, ErrorText error) const;
    std::string format(const dlcp_address& address) const;
    int tx_put(dlcp_packet* packets, int count);
    int rx(dlcp_packet* packets, int count);
    void rx_done(dlcp_packet* packets, int count);
    void wait(std::int64_t timeout_ns) const;
    dlcp_io_counters counters() const;
    const std::string& warnings() const { return warnings_; }

private:
    const std::uint32_t ring_bytes_;
    std::string text_;  // the address in full
    const dlcp_address local_;
    std::string warnings_;
    std::unique_ptr<shm::Channels> channels_;  // nullptr: no shared memory
    std::uint32_t rx_calls_to_inner_ = 0;      // since the inner driver was last asked for packets
};

// What the user wrote for this driver and for the one within.
struct Options {
    std::string inner;  // its name; empty: udp
    std::uint32_t ring_bytes = ring_bytes_default;
    std::string inner_options;
};

// The value after `key`, if `options` begins with that key; takes it off.
std::string_view take_option(std::string_view& options, std::string_view key) {
    if (!options.starts_with(key)) return {};
    const std::string_view option = options.substr(0, options.find(' '));
    options.remove_prefix(std::min(options.size(), option.size() + 1));
    return option.substr(key.size());
}

// "inner=NAME" first, then "ring_bytes=N". What follows is for the driver that was named; the UDP driver takes no options.
int parse_options(const char* extra, Options& out, ErrorText error) {
    std::string_view rest = extra != nullptr ? extra : "";
    out.inner = take_option(rest, inner_key);
    bool understood = rest.empty() || !out.inner.empty();
    if (const std::string_view number = take_option(rest, "ring_bytes="); !number.empty()) {
        const char* const end = number.data() + number.size();
        const auto parsed = std::from_chars(number.data(), end, out.ring_bytes);
        understood = parsed.ec == std::errc() && parsed.ptr == end && out.ring_bytes >= shm::ring_bytes_min &&
                     out.ring_bytes <= shm::ring_bytes_max && std::has_single_bit(out.ring_bytes) &&
                     (rest.empty() || !out.inner.empty());
    }
    if (!understood) {
        return error.fail(
            EDOM,
            "driver_options is '%s'; the local driver takes ring_bytes=N, a power of two from %u to %u, "
            "and no more",
            extra, shm::ring_bytes_min, shm::ring_bytes_max);
    }
    out.inner_options = rest;
    return 0;
}

}  // namespace

int Driver::open(const dlcp_io_config& config, std::unique_ptr<Driver>& out, ErrorText error) {
    Options options;
    if (const int result = parse_options(config.extra, options, error); result < 0) return result;
    const dlcp_io_table* inner = dlcp_udp_driver();
    try {
        if (!options.inner.empty()) inner = &find_driver(options.inner);
    } catch (const IoError& refused) {
        return error.fail(ENOSYS, "%s", refused.what());
    }
    dlcp_io_config inner_config = config;
    inner_config.extra = options.inner_options.empty() ? nullptr : options.inner_options.c_str();
    dlcp_io* io = nullptr;
    if (const int result = inner->open(&inner_config, &io, error.text, error.bytes); result < 0) return result;
    out = std::make_unique<Driver>(*inner, io, options.ring_bytes);
    return 0;
}

Driver::Driver(const dlcp_io_table& inner, dlcp_io* io, std::uint32_t ring_bytes)
    : DriverHandle(inner, io),
      ring_bytes_(ring_bytes),
      local_(local_address()),
      warnings_(inner.warnings(io)),
      channels_(std::make_unique<shm::Channels>(*this, ring_bytes)) {
    text_ = DriverHandle::format(local_);
    if (const std::string why = channels_->open(text_); why.empty()) {
        text_ = channels_->address();
    } else {
        // It is the inner driver then: said, and no reason to fail.
        warnings_ += "no shared memory between the ranks of this host (" + why + "): they use the network\n";
        channels_.reset();
    }
}

dlcp_io_capabilities Driver::capabilities() const {
    dlcp_io_capabilities out = DriverHandle::capabilities();
    if (!channels_) return out;
    constexpr std::uint32_t reserve = packets_in_flight_max * slot_overhead_bytes_max + control_reserve_bytes;
    // A ring too small for that many small packets holds them only if they are not the smallest; losing some is
    // repaired.
    out.channel_buffer_bytes = std::max(ring_bytes_ - std::min(ring_bytes_, reserve), ring_bytes_ / 2);
    return out;
}

int Driver::resolve(const char* text, dlcp_address& out, ErrorText error) const {
    const int result = DriverHandle::resolve(text, out, error);
    if (result < 0 || !channels_ || channels_->connect(text, out) == 0) return result;
    return error.fail(EINVAL, "'%s' names no endpoint in shared memory: take the address as the endpoint gives it",
                      text);
}

std::string Driver::format(const dlcp_address& address) const {
    if (address.flags & DLCP_ADDRESS_TRUSTED) {
        const std::string* const known = channels_ ? channels_->text_of(address) : nullptr;
        if (known != nullptr) return *known;
    } else if (address.length == local_.length && memcmp(address.bytes, local_.bytes, sizeof address.bytes) == 0) {
        return text_;
    }
    return DriverHandle::format(address);
}

// Packets for channels are copied and then left out of what the inner driver sends.
int Driver::tx_put(dlcp_packet* packets, int count) {
    int taken = 0;
    if (channels_) {
        for (int i = 0; i < count; ++i) {
            dlcp_packet& packet = packets[i];
            if (packet.head_bytes == 0 || packet.address == nullptr ||
                !(packet.address->flags & DLCP_ADDRESS_TRUSTED))
                continue;
            taken += channels_->put(packet);
            packet.head_bytes = 0;
        }
        channels_->show_written();
    }
    return taken + DriverHandle::tx_put(packets, count);
}

int Driver::rx(dlcp_packet* packets, int count) {
    if (count <= 0) return 0;
    const int received = channels_ ? channels_->receive(packets, count) : 0;
    if (received > 0 && ++rx_calls_to_inner_ < rx_calls_between_inner) return received;
    rx_calls_to_inner_ = 0;
    if (received == count) return received;
    const int more = DriverHandle::rx(packets + received, count - received);
    return more > 0 ? received + more : received;
}

void Driver::rx_done(dlcp_packet* packets, int count) {
    for (int i = 0; i < count;) {
        const int first = i;
        const std::uint64_t cookie = packets[i].cookie;
        if ((cookie & shm::ring_cookie) != 0) {
            while (i < count && packets[i].cookie == cookie) ++i;
            if (channels_) channels_->give_back(cookie, static_cast<std::uint32_t>(i - first));
        } else if (cookie == shm::gone_cookie) {
            ++i;
        } else {
            while (i < count && (packets[i].cookie & (shm::ring_cookie | shm::gone_cookie)) == 0) ++i;
            DriverHandle::rx_done(packets + first, i - first);
        }
    }
    if (channels_) channels_->free_retired();
}

void Driver::wait(std::int64_t timeout_ns) const {
    if (channels_) {
        // Announced to all, then looked at all again.
        if (channels_->anything_to_read() || !channels_->arm()) return;
        constexpr std::int64_t greeting_wait_ns = shm::Channels::greeting_wait_ns;
        if (channels_->expecting() && (timeout_ns < 0 || timeout_ns > greeting_wait_ns))
            timeout_ns = greeting_wait_ns;
    }
    DriverHandle::wait(timeout_ns);
}

dlcp_io_counters Driver::counters() const {
    dlcp_io_counters out = DriverHandle::counters();
    if (!channels_) return out;
    const dlcp_io_counters& own = channels_->counters();
    out.tx_packets += own.tx_packets;
    out.tx_bytes += own.tx_bytes;
    out.rx_packets += own.rx_packets;
    out.rx_bytes += own.rx_bytes;
    out.tx_dropped_packets += own.tx_dropped_packets;
    out.channel_tx_packets = own.tx_packets;
    out.channel_tx_bytes = own.tx_bytes;
    out.channel_rx_packets = own.rx_packets;
    out.channel_rx_bytes = own.rx_bytes;
    out.channels = own.channels;
    return out;
}

}  // namespace dlcp::local

const dlcp_io_table* dlcp_local_driver() {
    static constexpr dlcp_io_table table = dlcp::driver_table<dlcp::local::Driver>("local");
    return &table;
}
