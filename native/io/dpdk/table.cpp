// The driver's table of functions (io_table.h). None lets an exception out; all take a null dlcp_io for a closed one.
#include <errno.h>
#include <string.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <new>

#include "io/clock.hpp"
#include "io/dpdk/dpdk_driver.hpp"

namespace dlcp::dpdk {

namespace {

Driver* driver_of(dlcp_io* io) { return reinterpret_cast<Driver*>(io); }

// What `work` answers, or `otherwise` if it throws: no memory, or no thread. The parts of a driver that can keep their
// promises without do so themselves (transmit.hpp, receive.hpp); this is the last line.
template <class Work, class Answer>
Answer guarded(Work&& work, Answer otherwise) noexcept {
    try {
        return static_cast<Answer>(work());
    } catch (const std::exception&) {
        return otherwise;
    }
}
template <class Work>
void guarded(Work&& work) noexcept {
    guarded([&] { return work(), 0; }, 0);
}

int open(const dlcp_io_config* config, dlcp_io** out, char* text, size_t text_bytes) {
    const ErrorText error = {text, text_bytes};
    if (text != nullptr && text_bytes > 0) text[0] = '\0';
    if (config == nullptr || out == nullptr)
        return error.fail(EINVAL, "open needs a configuration and a place for the result");
    *out = nullptr;
    try {
        auto driver = std::make_unique<Driver>();
        if (const int result = driver->open(*config, error); result < 0) return result;
        *out = reinterpret_cast<dlcp_io*>(driver.release());
        return 0;
    } catch (const std::bad_alloc&) {
        return error.fail(ENOMEM, "not enough memory for the driver");
    } catch (const std::exception& failure) {  // no thread to start DPDK on
        return error.fail(EAGAIN, "the driver cannot start: %s", failure.what());
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
    if (out == nullptr) return error.fail(EINVAL, "resolve needs a place for the result");
    if (text == nullptr) return error.fail(EINVAL, "resolve needs an address");
    try {
        return driver_of(io)->resolve(text, *out, error);
    } catch (const std::exception&) {
        return error.fail(ENOMEM, "not enough memory to look up '%s'", text);
    }
}

void format(dlcp_io* io, const dlcp_address* address, char* text, size_t text_bytes) {
    if (text == nullptr || text_bytes == 0) return;
    text[0] = '\0';
    guarded([&] {
        std::string formatted = "(no address)";
        if (io != nullptr && address != nullptr)
            formatted = driver_of(io)->text_of(*address);
        else if (address != nullptr && address->length != 0)
            formatted = to_text(ipstack::from_dlcp(*address));
        const std::size_t copied_bytes = std::min(formatted.size(), text_bytes - 1);
        memcpy(text, formatted.data(), copied_bytes);
        text[copied_bytes] = '\0';
    });
}

void local_address(dlcp_io* io, dlcp_address* out) {
    if (out != nullptr) *out = io != nullptr ? driver_of(io)->local_address() : dlcp_address{};
}

int tx_get(dlcp_io* io, dlcp_packet* packets, int count) {
    if (io == nullptr) return 0;
    return guarded([&] { return driver_of(io)->get(packets, count); }, 0);
}

int tx_put(dlcp_io* io, dlcp_packet* packets, int count) {
    if (io == nullptr) return 0;
    return guarded([&] { return driver_of(io)->put(packets, count); }, 0);
}

int rx(dlcp_io* io, dlcp_packet* packets, int count) {
    if (io == nullptr) return 0;
    return guarded([&] { return driver_of(io)->receive(packets, count); }, 0);
}

void rx_done(dlcp_io* io, dlcp_packet* packets, int count) {
    if (io != nullptr) driver_of(io)->done(packets, count);
}

void wait(dlcp_io* io, int64_t timeout_ns) {
    if (io == nullptr) return;
    guarded([&] { driver_of(io)->wait(timeout_ns); });
}

void wake(dlcp_io* io) {
    if (io != nullptr) driver_of(io)->waiter().wake();
}

int64_t now_ns(dlcp_io*) { return monotonic_ns(); }

void counters(dlcp_io* io, dlcp_io_counters* out) {
    if (out == nullptr) return;
    *out = {};
    if (io != nullptr) guarded([&] { *out = driver_of(io)->counters(); });
}

const char* warnings(dlcp_io* io) { return io != nullptr ? driver_of(io)->warnings().c_str() : ""; }

void close(dlcp_io* io) {
    if (io == nullptr) return;
    delete driver_of(io);
}

int watch(dlcp_io* io, int descriptor, std::uint8_t* readable) {
    if (io == nullptr) return -EBADF;
    return guarded([&] { return driver_of(io)->waiter().watch(descriptor, readable); }, -ENOMEM);
}

void unwatch(dlcp_io* io, int descriptor) {
    if (io != nullptr) driver_of(io)->waiter().unwatch(descriptor);
}

int events(dlcp_io* io, dlcp_io_event* out, int count) {
    return io != nullptr && out != nullptr ? driver_of(io)->events(out, count) : 0;
}

int statistics(dlcp_io* io, dlcp_io_statistic* out, int count) {
    if (io == nullptr) return 0;
    return guarded(
        [&] {
            const std::vector<dlcp_io_statistic> all = driver_of(io)->statistics();
            if (out != nullptr && count > 0)
                std::copy_n(all.begin(), std::min(all.size(), static_cast<std::size_t>(count)), out);
            return static_cast<int>(all.size());
        },
        0);
}

}  // namespace

}  // namespace dlcp::dpdk

const dlcp_io_table* dlcp_io_driver(void) {
    using namespace dlcp::dpdk;
    static const dlcp_io_table table = {
        .abi_version = DLCP_IO_ABI_VERSION,
        .name = "dpdk",
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
