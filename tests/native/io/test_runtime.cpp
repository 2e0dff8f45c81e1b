// The runtime: which thread drives, how operations end, what is refused, and how it closes; over virtual network and UDP.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "io/runtime.hpp"
#include "io/udp_driver.hpp"
#include "support/native/virtual_driver.hpp"

namespace dlcp {
namespace {

// Ends what would hang.
constexpr Duration patience = seconds(60);

RuntimeOptions udp_options(std::uint32_t rank) {
    RuntimeOptions options;
    options.engine.rank = rank;
    return options;
}

// Two hosts over UDP that know each other.
struct Pair {
    explicit Pair(RuntimeOptions a = udp_options(0), RuntimeOptions b = udp_options(1)) {
        left = std::make_unique<Runtime>(a);
        right = std::make_unique<Runtime>(b);
        left->connect(1, right->local_address());
        REQUIRE(left->wait_established(1, patience));
        REQUIRE(right->wait_established(0, patience));
    }
    std::unique_ptr<Runtime> left;
    std::unique_ptr<Runtime> right;
};

OperationPtr send(Runtime& runtime, std::uint32_t rank, std::span<const std::uint8_t> bytes,
                  std::uint64_t tag = 0) {
    SendCommand command;
    command.tag = tag;
    command.payload = bytes.data();
    command.message_bytes = static_cast<std::uint32_t>(bytes.size());
    return runtime.send(rank, command);
}

OperationPtr receive(Runtime& runtime, std::uint32_t rank, std::span<std::uint8_t> bytes, std::uint64_t tag = 0) {
    ReceiveCommand command;
    command.tag = tag;
    command.buffer = bytes.data();
    command.capacity_bytes = static_cast<std::uint32_t>(bytes.size());
    return runtime.receive(rank, command);
}

std::vector<std::uint8_t> counting(std::size_t bytes) {
    std::vector<std::uint8_t> out(bytes);
    std::iota(out.begin(), out.end(), std::uint8_t{0});
    return out;
}

template <class Call>
IoErrorKind refused(Call&& call) {
    try {
        call();
    } catch (const IoError& error) {
        CHECK(std::string(error.what()).size() > 20);
        return error.kind;
    }
    FAIL("nothing was refused");
    return {};
}

}  // namespace

TEST_CASE("runtime: a message arrives, whoever drives") {
    Pair pair;
    const auto sent = counting(300'000);
    std::vector<std::uint8_t> got(sent.size());
    const auto there = receive(*pair.right, 0, got, 5);
    const auto here = send(*pair.left, 1, sent, 5);
    REQUIRE(pair.left->wait(here, patience));
    REQUIRE(pair.right->wait(there, patience));
    CHECK(here->error == CommandError::none);
    CHECK(there->error == CommandError::none);
    CHECK(there->rank == 0);
    CHECK(there->outcome.message_bytes == sent.size());
    CHECK(got == sent);
    CHECK(pair.left->statistics().outstanding_operations == 0);
}

TEST_CASE("runtime: without an I/O thread callers alone drive") {
    auto options = udp_options(0);
    options.io_thread = false;
    auto other = udp_options(1);
    other.io_thread = false;
    Runtime left(options), right(other);
    left.connect(1, right.local_address());
    while (!left.established(1) || !right.established(0)) {
        left.progress(Duration{0});
        right.progress(Duration{0});
    }
    const auto sent = counting(50'000);
    std::vector<std::uint8_t> got(sent.size());
    const auto there = receive(right, 0, got);
    const auto here = send(left, 1, sent);
    while (!here->over || !there->over) {
        left.progress(milliseconds(1));
        right.progress(milliseconds(1));
    }
    CHECK(got == sent);
}

TEST_CASE("runtime: over the virtual network, lossy and slow, in virtual time") {
    VirtualFabric fabric("host-test", 7, 2);
    LinkSettings link;
    link.rate = Rate{10'000'000'000};
    link.delay = milliseconds(5);
    link.loss_ratio = 0.01;
    RuntimeOptions options = udp_options(0), other = udp_options(1);
    for (RuntimeOptions* each : {&options, &other}) {
        each->table = dlcp_virtual_driver();
        each->driver_options = "host-test";
        each->seed = 11 + each->engine.rank;
        each->linger = Duration{0};
    }
    Pair pair(options, other);
    for (const std::uint16_t port : {std::uint16_t{1}, std::uint16_t{2}}) fabric.set_uplink(port, link);
    const auto sent = counting(2'000'000);
    std::vector<std::uint8_t> got(sent.size());
    const auto there = receive(*pair.right, 0, got);
    const auto here = send(*pair.left, 1, sent);
    REQUIRE(pair.left->wait(here, patience));
    REQUIRE(pair.right->wait(there, patience));
    CHECK(here->error == CommandError::none);
    CHECK(got == sent);
    CHECK(pair.left->statistics().engine.lost_packets > 0);
    CHECK(here->waited >= milliseconds(10));
}

TEST_CASE(
    "runtime: what is under way goes on when its caller has left, however long the I/O thread may stay away") {
    RuntimeOptions options = udp_options(0);
    options.linger = seconds(3600);
    Pair pair(options, udp_options(1));
    const auto sent = counting(1000);
    std::vector<std::uint8_t> got(sent.size()), later(sent.size());
    for (int round = 0; round < 20; ++round) {
        const auto there = receive(*pair.left, 1, got, 1);
        const auto after = receive(*pair.left, 1, later, 2);
        const auto first = send(*pair.right, 0, sent, 1);
        REQUIRE(pair.left->wait(there, patience));
        REQUIRE(pair.right->wait(first, patience));
        // Nobody calls left any more: what takes and acknowledges this is its I/O thread.
        REQUIRE(pair.right->wait(send(*pair.right, 0, sent, 2), patience));
        REQUIRE(pair.left->wait(after, patience));
        CHECK(later == sent);
    }
}

TEST_CASE("runtime: callers that wait at once each get their own") {
    Pair pair;
    constexpr int lanes = 8, rounds = 50;
    std::atomic<int> right_ones{0};
    std::vector<std::thread> threads;
    for (int lane = 0; lane < lanes; ++lane) {
        threads.emplace_back([&, lane] {
            std::vector<std::uint8_t> got(1000);
            for (int i = 0; i < rounds; ++i) {
                const auto there = receive(*pair.right, 0, got, static_cast<std::uint64_t>(lane));
                if (pair.right->wait(there, patience) && got[0] == static_cast<std::uint8_t>(lane * rounds + i))
                    ++right_ones;
            }
        });
        threads.emplace_back([&, lane] {
            for (int i = 0; i < rounds; ++i) {
                const std::vector<std::uint8_t> bytes(1000, static_cast<std::uint8_t>(lane * rounds + i));
                pair.left->wait(send(*pair.left, 1, bytes, static_cast<std::uint64_t>(lane)), patience);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(right_ones == lanes * rounds);
}

TEST_CASE("runtime: an operation that is watched is named once when it is over") {
    Pair pair;
    std::uint8_t byte = 0;
    const auto there = receive(*pair.right, 0, {&byte, 1});
    REQUIRE(pair.right->watch(there, 42));
    CHECK(pair.right->next_finished(Duration{0}).empty());
    const std::uint8_t one = 1;
    pair.left->wait(send(*pair.left, 1, {&one, 1}), patience);
    CHECK(pair.right->next_finished(patience) == std::vector<std::uint64_t>{42});
    CHECK(pair.right->wait(there, patience));
    CHECK_FALSE(pair.right->watch(there, 43));
    CHECK(pair.right->next_finished(Duration{0}).empty());
    CHECK(byte == 1);
}

TEST_CASE("runtime: a wait that times out changes nothing") {
    Pair pair;
    std::uint8_t byte = 0;
    const auto there = receive(*pair.right, 0, {&byte, 1});
    CHECK_FALSE(pair.right->wait(there, milliseconds(1)));
    CHECK_FALSE(pair.right->wait(there, Duration{0}));
    CHECK_FALSE(there->over);
    CHECK(pair.right->cancel(there));
    CHECK(pair.right->wait(there, patience));
    CHECK(there->error == CommandError::cancelled);
    CHECK_FALSE(pair.right->cancel(there));
}

TEST_CASE("runtime: closing ends every operation and wakes every caller") {
    Pair pair;
    std::uint8_t bytes[4] = {};
    std::vector<OperationPtr> operations;
    for (std::uint64_t tag = 0; tag < 4; ++tag)
        operations.push_back(receive(*pair.left, 1, {&bytes[tag], 1}, tag));
    std::vector<std::thread> threads;
    std::atomic<int> woken{0};
    for (const auto& operation : operations)
        threads.emplace_back([&pair, &woken, operation] {
            try {
                pair.left->wait(operation, patience);
            } catch (const IoError&) {  // closed before it came to wait
            }
            ++woken;
        });
    pair.left->close();
    for (std::thread& thread : threads) thread.join();
    CHECK(woken == 4);
    for (const auto& operation : operations) {
        CHECK(operation->over);
        CHECK(operation->error == CommandError::closed);
    }
    CHECK(pair.left->closed());
    CHECK(pair.left->next_finished(patience).empty());
    CHECK(refused([&] { receive(*pair.left, 1, {bytes, 1}); }) == IoErrorKind::closed);
    CHECK(pair.left->statistics().io.tx_packets > 0);
    pair.left->close();
}

TEST_CASE("runtime: mistakes are refused by kind and change nothing") {
    Pair pair;
    Runtime& runtime = *pair.left;
    std::uint8_t byte = 0;
    SendCommand command;
    command.payload = &byte;
    command.message_bytes = 1;

    SUBCASE("traffic class") {
        command.traffic_class = 7;
        CHECK(refused([&] { runtime.send(1, command); }) == IoErrorKind::traffic_class);
    }
    SUBCASE("loss ratio") {
        command.delivery = Delivery::bounded;
        command.loss_ratio = 1.0;
        CHECK(refused([&] { runtime.send(1, command); }) == IoErrorKind::loss_ratio);
    }
    SUBCASE("deadline") {
        command.delivery = Delivery::deadline;
        CHECK(refused([&] { runtime.send(1, command); }) == IoErrorKind::deadline);
    }
    SUBCASE("importance") {
        const std::uint8_t scores[3] = {};
        command.importance = scores;
        CHECK(refused([&] { runtime.send(1, command); }) == IoErrorKind::importance);
    }
    SUBCASE("unknown peer") {
        CHECK(refused([&] { runtime.send(9, command); }) == IoErrorKind::unknown_peer);
        CHECK(refused([&] { runtime.disconnect(9); }) == IoErrorKind::unknown_peer);
    }
    SUBCASE("own rank, taken rank, bad address") {
        CHECK(refused([&] { runtime.connect(0, "127.0.0.1:9"); }) == IoErrorKind::duplicate_rank);
        CHECK(refused([&] { runtime.connect(1, "127.0.0.1:9"); }) == IoErrorKind::duplicate_rank);
        CHECK(refused([&] { runtime.connect(3, "127.0.0.1"); }) == IoErrorKind::address);
    }
    SUBCASE("no key") {
        CHECK(refused([&] { runtime.advance_key_epoch(); }) == IoErrorKind::no_key);
    }
    CHECK(runtime.statistics().outstanding_operations == 0);
    CHECK(runtime.peers() == std::vector<std::uint32_t>{1});
}

TEST_CASE("runtime: importance needs the handshake") {
    Runtime left(udp_options(0));
    left.connect(1, "127.0.0.1:9");
    SendCommand command;
    command.delivery = Delivery::bounded;
    CHECK(refused([&] { left.send(1, command, 1); }) == IoErrorKind::not_established);
}

TEST_CASE("runtime: opening refuses by kind") {
    auto options = udp_options(0);
    SUBCASE("port in use") {
        Runtime first(options);
        options.port = static_cast<std::uint16_t>(std::stoi(first.local_address().substr(10)));
        CHECK(refused([&] { Runtime second(options); }) == IoErrorKind::port_in_use);
    }
    SUBCASE("interface") {
        options.interface_name = "absent0";
        CHECK(refused([&] { Runtime runtime(options); }) == IoErrorKind::interface);
    }
    SUBCASE("address") {
        options.bind_host = "192.0.2.1";
        CHECK(refused([&] { Runtime runtime(options); }) == IoErrorKind::address);
    }
    SUBCASE("reachable without a key") {
        options.bind_host = "0.0.0.0";
        CHECK(refused([&] { Runtime runtime(options); }) == IoErrorKind::unauthenticated);
        options.allow_unauthenticated = true;
        CHECK_NOTHROW(Runtime{options});
    }
    SUBCASE("settings") {
        options.engine.paths = 65;
        CHECK(refused([&] { Runtime runtime(options); }) == IoErrorKind::settings);
        options.engine.paths = 8;
        options.max_datagram_bytes = 70'000;
        CHECK(refused([&] { Runtime runtime(options); }) == IoErrorKind::settings);
        options.max_datagram_bytes = 100;
        CHECK(refused([&] { Runtime runtime(options); }) == IoErrorKind::settings);
    }
    SUBCASE("driver") {
        options.driver = "absent";
        CHECK(refused([&] { Runtime runtime(options); }) == IoErrorKind::driver);
        options.driver = "../absent.so";
        CHECK(refused([&] { Runtime runtime(options); }) == IoErrorKind::driver);
        options.driver = "Bad Name";
        CHECK(refused([&] { Runtime runtime(options); }) == IoErrorKind::driver);
        options.driver = "";
        CHECK(refused([&] { Runtime runtime(options); }) == IoErrorKind::driver);
    }
}

TEST_CASE("runtime: the engine's limits come from the driver, and from the caller if lower") {
    Runtime runtime(udp_options(0));
    CHECK(runtime.config().max_datagram_bytes == std::min(runtime.capabilities().max_datagram_bytes, 9152u));
    CHECK(runtime.config().receive_buffer.value == runtime.capabilities().receive_buffer_bytes);
    auto options = udp_options(1);
    options.max_datagram_bytes = 1000;
    options.receive_buffer_bytes = 100'000;
    Runtime lower(options);
    CHECK(lower.config().max_datagram_bytes == 1000);
    CHECK(lower.config().receive_buffer.value == 100'000);
}

TEST_CASE("runtime: the log tells of peers, the oldest first") {
    Pair pair;
    const auto entries = pair.left->drain_log();
    REQUIRE(entries.size() == 1);
    CHECK(entries[0].kind == EventKind::peer_established);
    CHECK(entries[0].rank == 1);
    CHECK(pair.left->drain_log().empty());
}

TEST_CASE("runtime: what happens to a driver is in the log, and its own counters have names") {
    // The UDP driver, to which something happens once.
    static std::atomic<bool> told;
    told = false;
    static dlcp_io_table table = *dlcp_udp_driver();
    table.events = [](dlcp_io*, dlcp_io_event* out, int count) {
        if (count < 2 || told.exchange(true)) return 0;
        out[0] = {.time_ns = 7, .kind = DLCP_IO_LINK_DOWN, .text = "port0 has no link"};
        out[1] = {.time_ns = 8, .kind = DLCP_IO_LINK_UP, .text = "port0 has a link again"};
        return 2;
    };
    table.statistics = [](dlcp_io*, dlcp_io_statistic* out, int count) {
        for (int i = 0; i < std::min(count, 100); ++i) {
            out[i] = {.name = "", .value = static_cast<std::uint64_t>(i)};
            std::snprintf(out[i].name, sizeof out[i].name, "counter_%d_packets", i);
        }
        return 100;  // more than are asked for at first
    };
    RuntimeOptions options = udp_options(0);
    options.table = &table;
    SUBCASE("as it is") {}
    SUBCASE("where loss is injected") { options.inject_loss_ratio = 0.5; }
    Runtime runtime(options);
    std::vector<RuntimeLogEntry> log;
    while (log.size() < 2) {
        runtime.progress(Duration{0});
        for (RuntimeLogEntry& entry : runtime.drain_log()) log.push_back(std::move(entry));
    }
    CHECK(log[0].driver_event == "link_down");
    CHECK(log[0].text == "port0 has no link");
    CHECK(log[0].time.value == 7);
    CHECK(log[1].driver_event == "link_up");
    const auto statistics = runtime.driver_statistics();
    REQUIRE(statistics.size() == 100);
    CHECK(statistics[99].first == "counter_99_packets");
    CHECK(statistics[99].second == 99);
    CHECK(Runtime(udp_options(1)).driver_statistics().empty());
}

}  // namespace dlcp
