#include "io/lossy_driver.hpp"

#include <cerrno>
#include <cmath>
#include <cstdio>

namespace dlcp {

// The functions of the table, as C sees them: a dlcp_io is a LossyDriver here.
struct LossyDriver::Functions {
    static LossyDriver& of(dlcp_io* io) { return *reinterpret_cast<LossyDriver*>(io); }

    static int open(const dlcp_io_config*, dlcp_io**, char* error, size_t error_bytes) {
        if (error != nullptr && error_bytes > 0)
            std::snprintf(error, error_bytes, "loss is injected into a driver that is open already");
        return -ENOTSUP;
    }
    static void capabilities(dlcp_io* io, dlcp_io_capabilities* out) {
        of(io).inner_.capabilities(of(io).inner_io_, out);
    }
    static int resolve(dlcp_io* io, const char* text, dlcp_address* out, char* error, size_t error_bytes) {
        return of(io).inner_.resolve(of(io).inner_io_, text, out, error, error_bytes);
    }
    static void format(dlcp_io* io, const dlcp_address* address, char* text, size_t text_bytes) {
        of(io).inner_.format(of(io).inner_io_, address, text, text_bytes);
    }
    static void local_address(dlcp_io* io, dlcp_address* out) {
        of(io).inner_.local_address(of(io).inner_io_, out);
    }
    static int tx_get(dlcp_io* io, dlcp_packet* packets, int count) {
        return of(io).inner_.tx_get(of(io).inner_io_, packets, count);
    }
    static int tx_put(dlcp_io* io, dlcp_packet* packets, int count) {
        return of(io).inner_.tx_put(of(io).inner_io_, packets, count);
    }
    static int rx(dlcp_io* io, dlcp_packet* packets, int count) { return of(io).receive(packets, count); }
    static void rx_done(dlcp_io* io, dlcp_packet* packets, int count) {
        of(io).inner_.rx_done(of(io).inner_io_, packets, count);
    }
    static void wait(dlcp_io* io, int64_t timeout_ns) { of(io).inner_.wait(of(io).inner_io_, timeout_ns); }
    static void wake(dlcp_io* io) { of(io).inner_.wake(of(io).inner_io_); }
    static int64_t now_ns(dlcp_io* io) { return of(io).inner_.now_ns(of(io).inner_io_); }
    static void counters(dlcp_io* io, dlcp_io_counters* out) {
        if (out == nullptr) return;
        of(io).inner_.counters(of(io).inner_io_, out);
        // What a network had lost would not have been counted as received.
        out->rx_packets -= of(io).dropped_packets_.load(std::memory_order_relaxed);
        out->rx_bytes -= of(io).dropped_bytes_.load(std::memory_order_relaxed);
    }
    static const char* warnings(dlcp_io* io) { return of(io).warnings_.c_str(); }
    static void close(dlcp_io* io) { of(io).inner_.close(of(io).inner_io_); }
    static int events(dlcp_io* io, dlcp_io_event* out, int count) {
        return of(io).inner_.events(of(io).inner_io_, out, count);
    }
    static int statistics(dlcp_io* io, dlcp_io_statistic* out, int count) {
        return of(io).inner_.statistics(of(io).inner_io_, out, count);
    }
};

LossyDriver::LossyDriver(const dlcp_io_table& inner, dlcp_io* io, double loss_ratio, std::uint64_t seed)
    : inner_(inner),
      inner_io_(io),
      table_{.abi_version = DLCP_IO_ABI_VERSION,
             .name = inner.name,
             .open = Functions::open,
             .capabilities = Functions::capabilities,
             .resolve = Functions::resolve,
             .format = Functions::format,
             .local_address = Functions::local_address,
             .tx_get = Functions::tx_get,
             .tx_put = Functions::tx_put,
             .rx = Functions::rx,
             .rx_done = Functions::rx_done,
             .wait = Functions::wait,
             .wake = Functions::wake,
             .now_ns = Functions::now_ns,
             .counters = Functions::counters,
             .warnings = Functions::warnings,
             .close = Functions::close,
             .events = inner.events != nullptr ? Functions::events : nullptr,
             .statistics = inner.statistics != nullptr ? Functions::statistics : nullptr},
      warnings_(inner.warnings(io)),
      threshold_(static_cast<std::uint64_t>(std::llround(loss_ratio * 4294967296.0))),
      random_(seed) {
    char line[160];
    std::snprintf(line, sizeof line,
                  "INJECTED LOSS: %g %% of the packets that arrive here are dropped on purpose; unset "
                  "inject_loss_ratio for real work\n",
                  loss_ratio * 100);
    warnings_ += line;
}

// What is kept moves to the front; what is dropped goes back at once. An answer of fewer packets than there are is
// no harm: wait() returns at once while the inner driver has more.
int LossyDriver::receive(dlcp_packet* packets, int count) {
    const int received = inner_.rx(inner_io_, packets, count);
    int kept = 0;
    std::uint64_t dropped_bytes = 0;
    dropped_.clear();
    for (int i = 0; i < received; ++i) {
        // A channel is not a network: what comes out of one, and word that its other end has gone, is let through.
        const bool network = (packets[i].flags & DLCP_PACKET_TRUSTED) == 0;
        if (network && (random_.next() >> 32) < threshold_) {
            dropped_bytes += packets[i].head_bytes;
            dropped_.push_back(packets[i]);
        } else {
            packets[kept++] = packets[i];
        }
    }
    if (!dropped_.empty()) {
        dropped_packets_.fetch_add(dropped_.size(), std::memory_order_relaxed);
        dropped_bytes_.fetch_add(dropped_bytes, std::memory_order_relaxed);
        inner_.rx_done(inner_io_, dropped_.data(), static_cast<int>(dropped_.size()));
    }
    return received < 0 ? received : kept;
}

}  // namespace dlcp
