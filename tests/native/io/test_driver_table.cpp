// The table around a driver's class: what it does for all of them, whatever the class does.
#include "io/driver_table.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <stdexcept>
#include <string>

namespace dlcp {
namespace {

// A driver that fails as it is asked to.
struct Plain {
    static int open(const dlcp_io_config& config, std::unique_ptr<Plain>& out, ErrorText error) {
        switch (config.port) {
            case 1: return error.fail(EADDRINUSE, "port 1 is in use");
            case 2: throw std::bad_alloc();
            case 3: throw std::runtime_error("no thread");
        }
        error.fail(EADDRNOTAVAIL, "the first address is not there");  // and the second is
        out = std::make_unique<Plain>();
        return 0;
    }
    ~Plain() { ++closed; }

    dlcp_io_capabilities capabilities() const { return {.max_burst_packets = 5}; }
    int resolve(const char* text, dlcp_address& out, ErrorText error) {
        if (strcmp(text, "throw") == 0) throw std::bad_alloc();
        if (strcmp(text, "refuse") == 0) return error.fail(EINVAL, "refused");
        out.length = 4;
        return 0;
    }
    std::string format(const dlcp_address&) const { return "0123456789"; }
    dlcp_address local_address() const { return {.length = 4}; }
    int tx_get(dlcp_packet*, int count) { return count; }
    int tx_put(dlcp_packet*, int) { throw std::bad_alloc(); }
    int rx(dlcp_packet*, int count) { return count + 1; }
    void rx_done(dlcp_packet*, int) noexcept {}
    void wait(std::int64_t) { throw std::bad_alloc(); }
    void wake() {}
    static std::int64_t now_ns() { return 42; }
    dlcp_io_counters counters() const { return {.tx_packets = 3}; }
    const std::string& warnings() const { return text; }

    std::string text = "careful\n";
    inline static int closed = 0;
};

// The same with all that a driver may have.
struct Full : Plain {
    static int open(const dlcp_io_config&, std::unique_ptr<Full>& out, ErrorText) {
        out = std::make_unique<Full>();
        return 0;
    }
    int watch(int, std::uint8_t*) { throw std::bad_alloc(); }
    void unwatch(int) {}
    int events(dlcp_io_event*, int count) { return count; }
    std::vector<dlcp_io_statistic> statistics() const { return {{"one", 1}, {"two", 2}, {"three", 3}}; }
};

constexpr dlcp_io_table plain = driver_table<Plain>("plain");
constexpr dlcp_io_table full = driver_table<Full>("full");

template <class Work>
void with_open(const dlcp_io_table& table, Work&& work) {
    const dlcp_io_config config{};
    dlcp_io* io = nullptr;
    char text[64] = "x";
    REQUIRE(table.open(&config, &io, text, sizeof text) == 0);
    CHECK(std::string(text).empty());  // nothing of an attempt before the one that worked
    work(io);
    table.close(io);
}

}  // namespace

TEST_CASE("driver table: what a driver does not have is not in its table") {
    CHECK(plain.abi_version == DLCP_IO_ABI_VERSION);
    CHECK(std::string(plain.name) == "plain");
    CHECK((plain.watch == nullptr));
    CHECK((plain.unwatch == nullptr));
    CHECK((plain.events == nullptr));
    CHECK((plain.statistics == nullptr));
    CHECK((full.watch != nullptr));
    CHECK((full.unwatch != nullptr));
    CHECK((full.events != nullptr));
    CHECK((full.statistics != nullptr));
}

TEST_CASE("driver table: open answers by errno and sentence, also for what is thrown") {
    const struct {
        std::uint16_t port;
        int result;
        const char* sentence;
    } cases[] = {{1, -EADDRINUSE, "port 1 is in use"},
                 {2, -ENOMEM, "not enough memory for the driver and its packet buffers"},
                 {3, -EAGAIN, "the driver cannot start: no thread"}};
    for (const auto& one : cases) {
        dlcp_io_config config{};
        config.port = one.port;
        dlcp_io* io = reinterpret_cast<dlcp_io*>(&config);
        char text[64] = "";
        CHECK(plain.open(&config, &io, text, sizeof text) == one.result);
        CHECK(std::string(text) == one.sentence);
        CHECK(io == nullptr);
    }
    dlcp_io* io = nullptr;
    CHECK(plain.open(nullptr, &io, nullptr, 0) == -EINVAL);
}

TEST_CASE("driver table: an exception becomes the answer of a driver that can do nothing now") {
    with_open(full, [](dlcp_io* io) {
        dlcp_packet packet{};
        CHECK(full.tx_get(io, &packet, 1) == 1);
        CHECK(full.rx(io, &packet, 1) == 2);
        CHECK(full.tx_put(io, &packet, 1) == 0);
        full.wait(io, -1);
        std::uint8_t readable = 0;
        CHECK(full.watch(io, 0, &readable) == -ENOMEM);
        dlcp_address address{};
        char text[64] = "";
        CHECK(full.resolve(io, "throw", &address, text, sizeof text) == -ENOMEM);
        CHECK(std::string(text) == "not enough memory to look up 'throw'");
        CHECK(full.resolve(io, "refuse", &address, text, sizeof text) == -EINVAL);
        CHECK(full.resolve(io, nullptr, &address, text, sizeof text) == -EINVAL);
        CHECK(full.resolve(io, "found", nullptr, text, sizeof text) == -EINVAL);
        CHECK(full.resolve(io, "found", &address, text, sizeof text) == 0);
    });
}

TEST_CASE("driver table: text is cut to the caller's room and ends with NUL") {
    with_open(plain, [](dlcp_io* io) {
        const dlcp_address address{.length = 4}, none{};
        char text[5] = "";
        plain.format(io, &address, text, sizeof text);
        CHECK(std::string(text) == "0123");
        char whole[32] = "";
        plain.format(io, &none, whole, sizeof whole);
        CHECK(std::string(whole) == "(no address)");
        plain.format(io, nullptr, whole, sizeof whole);
        CHECK(std::string(whole) == "(no address)");
        plain.format(io, &address, whole, 0);
    });
}

TEST_CASE("driver table: of statistics, as many as fit, and how many there are") {
    with_open(full, [](dlcp_io* io) {
        dlcp_io_statistic out[2] = {};
        CHECK(full.statistics(io, nullptr, 0) == 3);
        CHECK(full.statistics(io, out, 2) == 3);
        CHECK(std::string(out[1].name) == "two");
    });
}

TEST_CASE("driver table: closing deletes the driver; a closed one answers and does nothing") {
    const int before = Plain::closed;
    with_open(plain, [](dlcp_io*) {});
    CHECK(Plain::closed == before + 1);
    dlcp_packet packet{};
    dlcp_io_counters counters{.tx_packets = 9};
    CHECK(full.tx_put(nullptr, &packet, 1) == 0);
    full.counters(nullptr, &counters);
    CHECK(counters.tx_packets == 0);
    CHECK(full.now_ns(nullptr) > 0);
    CHECK(std::string(full.warnings(nullptr)).empty());
    CHECK(full.statistics(nullptr, nullptr, 0) == 0);
    full.close(nullptr);
}

}  // namespace dlcp
