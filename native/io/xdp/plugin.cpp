// The table of the xdp driver: plain C around Driver, so that no exception leaves the plugin.
#include <errno.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>

#include "io/clock.hpp"
#include "io/udp_address.hpp"
#include "io/xdp/driver.hpp"

namespace dlcp::xdp {

namespace {

Driver* driver_of(dlcp_io* io) { return reinterpret_cast<Driver*>(io); }

int open(const dlcp_io_config* config, dlcp_io** out, char* error_text, size_t error_bytes) {
    const ErrorText error = {error_text, error_bytes};
    if (out != nullptr) *out = nullptr;
    if (config == nullptr || out == nullptr)
        return error.fail(EINVAL, "open needs a configuration and a place for the driver");
    try {
        std::unique_ptr<Driver> driver;
        const int result = Driver::open(*config, driver, error);
        if (result == 0) *out = reinterpret_cast<dlcp_io*>(driver.release());
        return result;
    } catch (const std::bad_alloc&) {
        return error.fail(ENOMEM, "not enough memory for the xdp driver");
    }
}

void capabilities(dlcp_io* io, dlcp_io_capabilities* out) {
    if (out == nullptr) return;
    *out = {};
    if (io != nullptr) driver_of(io)->capabilities(*out);
}

int resolve(dlcp_io* io, const char* text, dlcp_address* out, char* error_text, size_t error_bytes) {
    const ErrorText error = {error_text, error_bytes};
    if (io == nullptr) return error.fail(EBADF, "the driver is closed");
    if (text == nullptr || out == nullptr)
        return error.fail(EINVAL, "resolve needs an address and a place for the result");
    try {
        return driver_of(io)->resolve(text, *out, error);
    } catch (const std::bad_alloc&) {
        return error.fail(ENOMEM, "not enough memory to look up '%s'", text);
    }
}

void format(dlcp_io*, const dlcp_address* address, char* text, size_t text_bytes) {
    if (text == nullptr || text_bytes == 0) return;
    text[0] = '\0';
    try {
        const std::string formatted = address != nullptr ? udp::format_address(*address) : "(no address)";
        const std::size_t copied_bytes = std::min(formatted.size(), text_bytes - 1);
        memcpy(text, formatted.data(), copied_bytes);
        text[copied_bytes] = '\0';
    } catch (const std::bad_alloc&) {  // no text then
    }
}

void local_address(dlcp_io* io, dlcp_address* out) {
    if (out != nullptr) *out = io != nullptr ? driver_of(io)->local_address() : dlcp_address{};
}

// What drives the engine allocates seldom, for a new destination or a packet that waits. Where even that is not to be
// had, buffers would be lost half way through a burst: the process ends instead.

int tx_get(dlcp_io* io, dlcp_packet* packets, int count) noexcept {
    return io != nullptr ? driver_of(io)->tx_get(packets, count) : 0;
}

int tx_put(dlcp_io* io, dlcp_packet* packets, int count) noexcept {
    return io != nullptr ? driver_of(io)->tx_put(packets, count) : 0;
}

int rx(dlcp_io* io, dlcp_packet* packets, int count) noexcept {
    return io != nullptr ? driver_of(io)->rx(packets, count) : 0;
}

void rx_done(dlcp_io* io, dlcp_packet* packets, int count) noexcept {
    if (io != nullptr) driver_of(io)->rx_done(packets, count);
}

void wait(dlcp_io* io, int64_t timeout_ns) noexcept {
    if (io != nullptr) driver_of(io)->wait(timeout_ns);
}

void wake(dlcp_io* io) {
    if (io != nullptr) driver_of(io)->poller().wake();
}

int64_t now_ns(dlcp_io*) { return monotonic_ns(); }

void counters(dlcp_io* io, dlcp_io_counters* out) {
    if (out == nullptr) return;
    *out = {};
    if (io != nullptr) driver_of(io)->counters(*out);
}

const char* warnings(dlcp_io* io) { return io != nullptr ? driver_of(io)->warnings() : ""; }

void close(dlcp_io* io) { delete driver_of(io); }

int watch(dlcp_io* io, int descriptor, std::uint8_t* readable) {
    return io != nullptr ? driver_of(io)->poller().watch(descriptor, readable) : -EBADF;
}

void unwatch(dlcp_io* io, int descriptor) {
    if (io != nullptr) driver_of(io)->poller().unwatch(descriptor);
}

int events(dlcp_io* io, dlcp_io_event* out, int count) noexcept {
    return io != nullptr && out != nullptr ? driver_of(io)->events(out, count) : 0;
}

int statistics(dlcp_io* io, dlcp_io_statistic* out, int count) {
    return io != nullptr && (out != nullptr || count <= 0) ? driver_of(io)->statistics(out, count) : 0;
}

}  // namespace

}  // namespace dlcp::xdp

const dlcp_io_table* dlcp_io_driver() {
    using namespace dlcp::xdp;
    static const dlcp_io_table table = {
        .abi_version = DLCP_IO_ABI_VERSION,
        .name = "xdp",
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
