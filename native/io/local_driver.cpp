#include "io/local_driver.hpp"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "io/driver_registry.hpp"
#include "io/error_text.hpp"
#include "io/runtime_error.hpp"
#include "io/shm_channels.hpp"
#include "io/udp_driver.hpp"

namespace dlcp::local {

namespace {

// Two of them per pair of ranks that talk. Processor time of a side for 64 MiB each way at once (shm_bench, cores with
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

constexpr std::string_view inner_word = "inner=";

// A dlcp_io is one of these (see udp_driver.cpp).
struct Driver {
    const dlcp_io_table* inner = dlcp_udp_driver();
    dlcp_io* inner_io = nullptr;
    std::uint32_t ring_bytes = ring_bytes_default;
    std::unique_ptr<shm::Channels> channels;  // nullptr: no shared memory
    std::string text;                         // the address in full
    dlcp_address local{};
    std::string warnings;
    std::uint32_t rx_calls_to_inner = 0;

    ~Driver() {
        channels.reset();
        if (inner_io != nullptr) inner->close(inner_io);
    }
};

Driver* driver_of(dlcp_io* io) { return reinterpret_cast<Driver*>(io); }

// What the word after `key` says, if `words` begins with that key; takes it off.
std::string_view take_word(std::string_view& words, std::string_view key) {
    if (!words.starts_with(key)) return {};
    const std::string_view word = words.substr(0, words.find(' '));
    words.remove_prefix(std::min(words.size(), word.size() + 1));
    return word.substr(key.size());
}

// "inner=NAME" first: the driver for other hosts, udp if there is no such word. Then "ring_bytes=N". What follows is for
// a driver that was named; the UDP driver takes no words.
int parse_extra(const char* extra, Driver& driver, std::string& inner_extra, ErrorText error) {
    const std::string_view given = extra != nullptr ? extra : "";
    std::string_view rest = given;
    const std::string inner(take_word(rest, inner_word));
    if (!inner.empty()) driver.inner = &find_driver(inner);
    bool understood = rest.empty() || !inner.empty();
    if (const std::string_view number = take_word(rest, "ring_bytes="); !number.empty()) {
        const char* const end = number.data() + number.size();
        const auto parsed = std::from_chars(number.data(), end, driver.ring_bytes);
        understood = parsed.ec == std::errc() && parsed.ptr == end && driver.ring_bytes >= shm::ring_bytes_min &&
                     driver.ring_bytes <= shm::ring_bytes_max &&
                     (driver.ring_bytes & (driver.ring_bytes - 1)) == 0 && (rest.empty() || !inner.empty());
    }
    if (!understood) {
        return error.fail(
            EDOM,
            "driver_options is '%s'; the local driver takes ring_bytes=N, a power of two from %u to %u, "
            "and no more",
            extra, shm::ring_bytes_min, shm::ring_bytes_max);
    }
    inner_extra = rest;
    return 0;
}

int open_driver(const dlcp_io_config& config, Driver& driver, char* text, size_t text_bytes) {
    std::string inner_extra;
    if (const int result = parse_extra(config.extra, driver, inner_extra, {text, text_bytes}); result < 0)
        return result;
    dlcp_io_config inner_config = config;
    inner_config.extra = inner_extra.empty() ? nullptr : inner_extra.c_str();
    if (const int result = driver.inner->open(&inner_config, &driver.inner_io, text, text_bytes); result < 0)
        return result;
    driver.warnings = driver.inner->warnings(driver.inner_io);
    driver.inner->local_address(driver.inner_io, &driver.local);
    char own[1024];  // as many addresses as there are ports
    driver.inner->format(driver.inner_io, &driver.local, own, sizeof own);
    driver.text = own;

    auto channels = std::make_unique<shm::Channels>(*driver.inner, driver.inner_io, driver.ring_bytes);
    if (const std::string why = channels->open(driver.text); !why.empty()) {
        // It is the inner driver then: said, and no reason to fail.
        driver.warnings += "no shared memory between the ranks of this host (" + why + "): they use the network\n";
        return 0;
    }
    driver.channels = std::move(channels);
    driver.text = driver.channels->address();
    return 0;
}

// The functions of the table. None lets an exception out; all take a null dlcp_io for a closed one.

int open(const dlcp_io_config* config, dlcp_io** out, char* text, size_t text_bytes) {
    const ErrorText error = {text, text_bytes};
    if (config == nullptr || out == nullptr)
        return error.fail(EINVAL, "open needs a configuration and a place for the result");
    *out = nullptr;
    try {
        auto driver = std::make_unique<Driver>();
        if (const int result = open_driver(*config, *driver, text, text_bytes); result < 0) return result;
        *out = reinterpret_cast<dlcp_io*>(driver.release());
        return 0;
    } catch (const RuntimeError& refused) {  // there is no such inner driver
        return error.fail(ENOSYS, "%s", refused.what());
    } catch (const std::bad_alloc&) {
        return error.fail(ENOMEM, "not enough memory for the driver");
    }
}

void capabilities(dlcp_io* io, dlcp_io_capabilities* out) {
    if (out == nullptr) return;
    *out = {};
    if (io == nullptr) return;
    const Driver& driver = *driver_of(io);
    driver.inner->capabilities(driver.inner_io, out);
    if (!driver.channels) return;
    constexpr std::uint32_t reserve = packets_in_flight_max * slot_overhead_bytes_max + control_reserve_bytes;
    // A ring too small for that many small packets holds them only if they are not the smallest; losing some is
    // repaired.
    out->channel_buffer_bytes =
        std::max(driver.ring_bytes - std::min(driver.ring_bytes, reserve), driver.ring_bytes / 2);
}

int resolve(dlcp_io* io, const char* text, dlcp_address* out, char* error_text, size_t error_bytes) {
    const ErrorText error = {error_text, error_bytes};
    if (io == nullptr) return error.fail(EBADF, "the driver is closed");
    Driver& driver = *driver_of(io);
    const int result = driver.inner->resolve(driver.inner_io, text, out, error_text, error_bytes);
    if (result < 0 || !driver.channels) return result;
    try {
        if (driver.channels->connect(text, *out) == 0) return 0;
        return error.fail(
            EINVAL, "'%s' names no endpoint in shared memory: take the address as the endpoint gives it", text);
    } catch (const std::bad_alloc&) {
        return error.fail(ENOMEM, "not enough memory to open a channel to '%s'", text);
    }
}

void format(dlcp_io* io, const dlcp_address* address, char* text, size_t text_bytes) {
    if (text == nullptr || text_bytes == 0) return;
    const Driver* driver = io != nullptr ? driver_of(io) : nullptr;
    const std::string* known = nullptr;
    if (driver != nullptr && address != nullptr) {
        if (address->flags & DLCP_ADDRESS_TRUSTED) {
            if (driver->channels) known = driver->channels->text_of(*address);
        } else if (address->length == driver->local.length &&
                   memcmp(address->bytes, driver->local.bytes, sizeof address->bytes) == 0) {
            known = &driver->text;
        }
    }
    if (known == nullptr) {
        const dlcp_io_table& table = driver != nullptr ? *driver->inner : *dlcp_udp_driver();
        table.format(driver != nullptr ? driver->inner_io : nullptr, address, text, text_bytes);
        return;
    }
    const std::size_t copied_bytes = std::min(known->size(), text_bytes - 1);
    memcpy(text, known->data(), copied_bytes);
    text[copied_bytes] = '\0';
}

void local_address(dlcp_io* io, dlcp_address* out) {
    if (out != nullptr) *out = io != nullptr ? driver_of(io)->local : dlcp_address{};
}

int tx_get(dlcp_io* io, dlcp_packet* packets, int count) {
    return io != nullptr ? driver_of(io)->inner->tx_get(driver_of(io)->inner_io, packets, count) : 0;
}

// Packets for channels are copied and then left out of what the other driver sends.
int tx_put(dlcp_io* io, dlcp_packet* packets, int count) {
    if (io == nullptr) return 0;
    Driver& driver = *driver_of(io);
    int taken = 0;
    if (driver.channels) {
        for (int i = 0; i < count; ++i) {
            dlcp_packet& packet = packets[i];
            if (packet.head_bytes == 0 || packet.address == nullptr ||
                !(packet.address->flags & DLCP_ADDRESS_TRUSTED))
                continue;
            taken += driver.channels->put(packet);
            packet.head_bytes = 0;
        }
        driver.channels->show_written();
    }
    return taken + driver.inner->tx_put(driver.inner_io, packets, count);
}

int rx(dlcp_io* io, dlcp_packet* packets, int count) {
    if (io == nullptr || count <= 0) return 0;
    Driver& driver = *driver_of(io);
    const int received = driver.channels ? driver.channels->receive(packets, count) : 0;
    if (received > 0 && ++driver.rx_calls_to_inner < rx_calls_between_inner) return received;
    driver.rx_calls_to_inner = 0;
    if (received == count) return received;
    const int more = driver.inner->rx(driver.inner_io, packets + received, count - received);
    return more > 0 ? received + more : received;
}

void rx_done(dlcp_io* io, dlcp_packet* packets, int count) {
    if (io == nullptr) return;
    Driver& driver = *driver_of(io);
    for (int i = 0; i < count;) {
        const int first = i;
        const std::uint64_t cookie = packets[i].cookie;
        if ((cookie & shm::ring_cookie) != 0) {
            while (i < count && packets[i].cookie == cookie) ++i;
            if (driver.channels) driver.channels->give_back(cookie, static_cast<std::uint32_t>(i - first));
        } else if (cookie == shm::word_cookie) {
            ++i;
        } else {
            while (i < count && (packets[i].cookie & (shm::ring_cookie | shm::word_cookie)) == 0) ++i;
            driver.inner->rx_done(driver.inner_io, packets + first, i - first);
        }
    }
    if (driver.channels) driver.channels->free_retired();
}

void wait(dlcp_io* io, int64_t timeout_ns) {
    if (io == nullptr) return;
    Driver& driver = *driver_of(io);
    if (driver.channels) {
        // Announced to all, then looked at all again.
        if (driver.channels->anything_to_read() || !driver.channels->arm()) return;
        constexpr std::int64_t greeting_wait_ns = shm::Channels::greeting_wait_ns;
        if (driver.channels->expecting() && (timeout_ns < 0 || timeout_ns > greeting_wait_ns))
            timeout_ns = greeting_wait_ns;
    }
    driver.inner->wait(driver.inner_io, timeout_ns);
}

void wake(dlcp_io* io) {
    if (io != nullptr) driver_of(io)->inner->wake(driver_of(io)->inner_io);
}

int64_t now_ns(dlcp_io* io) {
    if (io == nullptr) return dlcp_udp_driver()->now_ns(nullptr);
    return driver_of(io)->inner->now_ns(driver_of(io)->inner_io);
}

void counters(dlcp_io* io, dlcp_io_counters* out) {
    if (out == nullptr) return;
    *out = {};
    if (io == nullptr) return;
    const Driver& driver = *driver_of(io);
    driver.inner->counters(driver.inner_io, out);
    if (!driver.channels) return;
    const dlcp_io_counters& own = driver.channels->counters();
    out->tx_packets += own.tx_packets;
    out->tx_bytes += own.tx_bytes;
    out->rx_packets += own.rx_packets;
    out->rx_bytes += own.rx_bytes;
    out->tx_dropped_packets += own.tx_dropped_packets;
    out->channel_tx_packets = own.tx_packets;
    out->channel_tx_bytes = own.tx_bytes;
    out->channel_rx_packets = own.rx_packets;
    out->channel_rx_bytes = own.rx_bytes;
    out->channels = own.channels;
}

const char* warnings(dlcp_io* io) { return io != nullptr ? driver_of(io)->warnings.c_str() : ""; }

void close(dlcp_io* io) { delete driver_of(io); }

int watch(dlcp_io* io, int descriptor, std::uint8_t* readable) {
    return io != nullptr ? driver_of(io)->inner->watch(driver_of(io)->inner_io, descriptor, readable) : -EBADF;
}

void unwatch(dlcp_io* io, int descriptor) {
    if (io != nullptr) driver_of(io)->inner->unwatch(driver_of(io)->inner_io, descriptor);
}

int events(dlcp_io* io, dlcp_io_event* out, int count) {
    if (io == nullptr || driver_of(io)->inner->events == nullptr) return 0;
    return driver_of(io)->inner->events(driver_of(io)->inner_io, out, count);
}

int statistics(dlcp_io* io, dlcp_io_statistic* out, int count) {
    if (io == nullptr || driver_of(io)->inner->statistics == nullptr) return 0;
    return driver_of(io)->inner->statistics(driver_of(io)->inner_io, out, count);
}

}  // namespace

}  // namespace dlcp::local

const dlcp_io_table* dlcp_local_driver() {
    using namespace dlcp::local;
    static const dlcp_io_table table = {
        .abi_version = DLCP_IO_ABI_VERSION,
        .name = "local",
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
        .events = events,
        .statistics = statistics,
    };
    return &table;
}
