// The table of functions (io_table.h) of a driver that is a C++ class: plain C around it.
//
// No exception leaves a function of the table, and each takes a null dlcp_io for a closed one. The class has:
//
//   static int open(const dlcp_io_config&, std::unique_ptr<Driver>& out, ErrorText);  // 0 or a negative errno
//   dlcp_io_capabilities capabilities() const;
//   int resolve(const char* text, dlcp_address& out, ErrorText);
//   std::string format(const dlcp_address&) const;  // static, if it takes no driver to tell
//   dlcp_address local_address() const;
//   int tx_get(dlcp_packet*, int);  int tx_put(dlcp_packet*, int);
//   int rx(dlcp_packet*, int);  void rx_done(dlcp_packet*, int) noexcept;
//   void wait(std::int64_t timeout_ns);  void wake();  std::int64_t now_ns() const;
//   dlcp_io_counters counters() const;
//   const std::string& warnings() const;
//
// and may have
//
//   int watch(int descriptor, std::uint8_t* readable);  void unwatch(int descriptor);
//   int events(dlcp_io_event*, int);
//   std::vector<dlcp_io_statistic> statistics() const;
//
// A class that is not opened through a table (lossy_driver.hpp) has no open().
#pragma once

#include <string.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "io/clock.hpp"
#include "io/error_text.hpp"
#include "io/io_table.h"

namespace dlcp {

template <class Driver>
class DriverTable {
public:
    static constexpr dlcp_io_table make(const char* name) {
        dlcp_io_table table = {
            .abi_version = DLCP_IO_ABI_VERSION,
            .name = name,
            .open = open,
            .capabilities =
                [](dlcp_io* io, dlcp_io_capabilities* out) {
                    fill(io, out, [](Driver& driver) { return driver.capabilities(); });
                },
            .resolve = resolve,
            .format = format,
            .local_address =
                [](dlcp_io* io, dlcp_address* out) {
                    fill(io, out, [](Driver& driver) { return driver.local_address(); });
                },
            .tx_get =
                [](dlcp_io* io, dlcp_packet* packets, int count) {
                    return call(io, 0, [&](Driver& driver) { return driver.tx_get(packets, count); });
                },
            .tx_put =
                [](dlcp_io* io, dlcp_packet* packets, int count) {
                    return call(io, 0, [&](Driver& driver) { return driver.tx_put(packets, count); });
                },
            .rx = [](dlcp_io* io, dlcp_packet* packets,
                     int count) { return call(io, 0, [&](Driver& driver) { return driver.rx(packets, count); }); },
            .rx_done =
                [](dlcp_io* io, dlcp_packet* packets, int count) {
                    if (io != nullptr) of(io).rx_done(packets, count);
                },
            .wait =
                [](dlcp_io* io, int64_t timeout_ns) {
                    call(io, 0, [&](Driver& driver) { return driver.wait(timeout_ns), 0; });
                },
            .wake =
                [](dlcp_io* io) {
                    if (io != nullptr) of(io).wake();
                },
            .now_ns = [](dlcp_io* io) { return io != nullptr ? of(io).now_ns() : monotonic_ns(); },
            .counters =
                [](dlcp_io* io, dlcp_io_counters* out) {
                    fill(io, out, [](Driver& driver) { return driver.counters(); });
                },
            .warnings = [](dlcp_io* io) { return io != nullptr ? of(io).warnings().c_str() : ""; },
            .close = [](dlcp_io* io) { delete reinterpret_cast<Driver*>(io); },
        };
        add_optional(table);
        return table;
    }

private:
    // A dlcp_io is a Driver. It is no definition of `struct dlcp_io`, because every driver linked into a program would
    // define that struct differently.
    static Driver& of(dlcp_io* io) { return *reinterpret_cast<Driver*>(io); }

    // What `work` answers; `otherwise` if the driver is closed, or if it throws, for want of memory or of a thread. What
    // a driver promises of its buffers it keeps without an exception; this is the last resort.
    template <class Answer, class Work>
    static Answer call(dlcp_io* io, Answer otherwise, Work&& work) noexcept {
        if (io == nullptr) return otherwise;
        try {
            return work(of(io));
        } catch (const std::exception&) {
            return otherwise;
        }
    }

    template <class Out, class Get>
    static void fill(dlcp_io* io, Out* out, Get get) {
        if (out != nullptr) *out = call(io, Out{}, get);
    }

    static int open(const dlcp_io_config* config, dlcp_io** out, char* text, size_t text_bytes) {
        const ErrorText error = {text, text_bytes};
        if (text != nullptr && text_bytes > 0) text[0] = '\0';
        if (out != nullptr) *out = nullptr;
        if (config == nullptr || out == nullptr)
            return error.fail(EINVAL, "open needs a configuration and a place for the result");
        if constexpr (requires { &Driver::open; }) {
            try {
                std::unique_ptr<Driver> driver;
                if (const int result = Driver::open(*config, driver, error); result < 0) return result;
                *out = reinterpret_cast<dlcp_io*>(driver.release());
                if (text != nullptr && text_bytes > 0) text[0] = '\0';  // of an attempt before the one that worked
                return 0;
            } catch (const std::bad_alloc&) {
                return error.fail(ENOMEM, "not enough memory for the driver and its packet buffers");
            } catch (const std::exception& failure) {
                return error.fail(EAGAIN, "the driver cannot start: %s", failure.what());
            }
        }
        return error.fail(ENOTSUP, "this driver is not opened by a configuration");
    }

    static int resolve(dlcp_io* io, const char* text, dlcp_address* out, char* error_text, size_t error_bytes) {
        const ErrorText error = {error_text, error_bytes};
        if (io == nullptr) return error.fail(EBADF, "the driver is closed");
        if (out == nullptr) return error.fail(EINVAL, "resolve needs a place for the result");
        if (text == nullptr) return error.fail(EINVAL, "resolve needs an address");
        try {
            return of(io).resolve(text, *out, error);
        } catch (const std::exception&) {
            return error.fail(ENOMEM, "not enough memory to look up '%s'", text);
        }
    }

    static std::string formatted(dlcp_io* io, const dlcp_address* address) {
        if (address == nullptr || address->length == 0) return "(no address)";
        if constexpr (requires { Driver::format(*address); })
            return Driver::format(*address);
        else
            return call(io, std::string(), [&](Driver& driver) { return driver.format(*address); });
    }

    static void format(dlcp_io* io, const dlcp_address* address, char* text, size_t text_bytes) {
        if (text == nullptr || text_bytes == 0) return;
        const std::string formatted = DriverTable::formatted(io, address);
        const std::size_t copied_bytes = std::min(formatted.size(), text_bytes - 1);
        memcpy(text, formatted.data(), copied_bytes);
        text[copied_bytes] = '\0';
    }

    static constexpr void add_optional(dlcp_io_table& table) {
        if constexpr (requires { &Driver::watch; }) {
            table.watch = [](dlcp_io* io, int descriptor, std::uint8_t* readable) {
                if (io == nullptr) return -EBADF;
                return call(io, -ENOMEM, [&](Driver& driver) { return driver.watch(descriptor, readable); });
            };
            table.unwatch = [](dlcp_io* io, int descriptor) {
                if (io != nullptr) of(io).unwatch(descriptor);
            };
        }
        if constexpr (requires { &Driver::events; }) {
            table.events = [](dlcp_io* io, dlcp_io_event* out, int count) {
                if (out == nullptr) return 0;
                return call(io, 0, [&](Driver& driver) { return driver.events(out, count); });
            };
        }
        if constexpr (requires { &Driver::statistics; }) {
            table.statistics = [](dlcp_io* io, dlcp_io_statistic* out, int count) {
                return call(io, 0, [&](Driver& driver) {
                    const std::vector<dlcp_io_statistic> all = driver.statistics();
                    if (out != nullptr && count > 0)
                        std::copy_n(all.begin(), std::min(all.size(), static_cast<std::size_t>(count)), out);
                    return static_cast<int>(all.size());
                });
            };
        }
    }
};

// The table of `Driver`, which open_refusal() and people know by `name`.
template <class Driver>
constexpr dlcp_io_table driver_table(const char* name) {
    return DriverTable<Driver>::make(name);
}

}  // namespace dlcp
