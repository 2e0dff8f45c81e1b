// Loss injected around the UDP driver: how much, of what, that it is repeatable and counted, and that messages arrive
// whole all the same. On loopback a datagram is in the receiver's socket when the sending call returns.
#include <doctest/doctest.h>
#include <string.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "io/lossy_driver.hpp"
#include "io/runtime.hpp"
#include "io/udp_driver.hpp"

namespace dlcp {
namespace {

constexpr Duration patience = seconds(60);
const dlcp_io_table& udp = *dlcp_udp_driver();

dlcp_io* open_udp() {
    dlcp_io_config config = {};
    config.paths = 1;
    char text[512] = "";
    dlcp_io* io = nullptr;
    REQUIRE_MESSAGE(udp.open(&config, &io, text, sizeof text) == 0, std::string(text));
    return io;
}

// A UDP driver that sends numbered packets, and one that receives them behind a LossyDriver.
struct Line {
    explicit Line(double loss_ratio, std::uint64_t seed = 1)
        : sender(open_udp()), lossy(*new LossyDriver(udp, open_udp(), loss_ratio, seed)) {
        lossy.table().local_address(lossy.io(), &to);
    }
    ~Line() {
        udp.close(sender);
        lossy.table().close(lossy.io());
    }

    // Sends `count` packets in a row, so that the kernel merges them, and returns the numbers that come through.
    std::vector<std::uint32_t> pass(std::uint32_t count, std::uint32_t first = 0) {
        std::vector<dlcp_packet> packets(64);
        for (std::uint32_t sent = 0; sent < count;) {
            const int lent = udp.tx_get(sender, packets.data(), 64);
            REQUIRE(lent > 0);
            for (int i = 0; i < lent; ++i) {
                packets[i].head_bytes = 0;
                if (sent == count) continue;
                packets[i].head_bytes = 200;
                packets[i].body_bytes = packets[i].tail_bytes = 0;
                packets[i].address = &to;
                packets[i].path = 0;
                packets[i].tos = 0;
                const std::uint32_t number = first + sent++;
                memset(packets[i].head, 0, 200);
                memcpy(packets[i].head, &number, sizeof number);
            }
            udp.tx_put(sender, packets.data(), lent);
        }
        std::vector<std::uint32_t> arrived;
        // The loop ends when all are accounted for; a packet that vanished would end the test by its time limit.
        while (arrived.size() + (lossy.dropped_packets() - dropped_before) < count) {
            const int received = lossy.table().rx(lossy.io(), packets.data(), 64);
            REQUIRE(received >= 0);
            for (int i = 0; i < received; ++i) {
                CHECK(packets[i].head_bytes == 200);
                std::uint32_t number = 0;
                memcpy(&number, packets[i].head, sizeof number);
                arrived.push_back(number);
            }
            lossy.table().rx_done(lossy.io(), packets.data(), received);
        }
        dropped_before = lossy.dropped_packets();
        return arrived;
    }

    dlcp_io_counters counters() {
        dlcp_io_counters out;
        lossy.table().counters(lossy.io(), &out);
        return out;
    }

    dlcp_io* sender;
    LossyDriver& lossy;  // deleted by its close()
    dlcp_address to{};
    std::uint64_t dropped_before = 0;
};

RuntimeOptions lossy_options(std::uint32_t rank, double loss_ratio) {
    RuntimeOptions options;
    options.engine.rank = rank;
    options.inject_loss_ratio = loss_ratio;
    return options;
}

}  // namespace

TEST_CASE("lossy driver: drops single packets, about as many as asked, and counts them") {
    Line line(0.1);
    std::vector<std::uint32_t> arrived;
    for (std::uint32_t first = 0; first < 10'000; first += 500) {
        const auto some = line.pass(500, first);
        arrived.insert(arrived.end(), some.begin(), some.end());
    }
    const std::uint64_t dropped = line.lossy.dropped_packets();
    CHECK(arrived.size() + dropped == 10'000);
    CHECK(dropped > 850);  // five standard deviations of 30
    CHECK(dropped < 1150);
    CHECK(line.counters().rx_packets == arrived.size());
    CHECK(line.counters().rx_bytes == arrived.size() * 200);
    std::uint32_t gaps = 0;
    for (std::size_t i = 1; i < arrived.size(); ++i) gaps += arrived[i] != arrived[i - 1] + 1;
    CHECK(gaps > dropped / 2);  // never whole merged datagrams
}

TEST_CASE("lossy driver: the same seed loses the same packets, another one others") {
    const auto once = Line(0.3, 7).pass(500);
    CHECK(Line(0.3, 7).pass(500) == once);
    CHECK(Line(0.3, 8).pass(500) != once);
}

TEST_CASE("lossy driver: nothing is lost at 0, everything at 1") {
    Line none(0.0), all(1.0);
    CHECK(none.pass(300).size() == 300);
    CHECK(none.lossy.dropped_packets() == 0);
    CHECK(all.pass(300).empty());
    CHECK(all.lossy.dropped_packets() == 300);
}

TEST_CASE("lossy driver: has the inner driver's name, and says loudly what it does") {
    Line line(0.015);
    CHECK(std::string(line.lossy.table().name) == "udp");
    const std::string warnings = line.lossy.table().warnings(line.lossy.io());
    CHECK(warnings.find("INJECTED LOSS: 1.5 %") != std::string::npos);
}

TEST_CASE("host: messages arrive whole while a fifth of the packets is dropped on purpose") {
    Runtime left(lossy_options(0, 0.2)), right(lossy_options(1, 0.2));
    left.connect(1, right.local_address());
    REQUIRE(left.wait_established(1, patience));
    std::vector<std::uint8_t> sent(2'000'000), got(sent.size());
    std::iota(sent.begin(), sent.end(), std::uint8_t{0});
    ReceiveCommand receive;
    receive.buffer = got.data();
    receive.capacity_bytes = static_cast<std::uint32_t>(got.size());
    const auto there = right.receive({}, receive);  // from anyone: left's last packet of the handshake may be lost
    SendCommand send;
    send.payload = sent.data();
    send.message_bytes = static_cast<std::uint32_t>(sent.size());
    const auto here = left.send(1, send);
    REQUIRE(left.wait(here, patience));
    REQUIRE(right.wait(there, patience));
    CHECK(here->error == CommandError::none);
    CHECK(got == sent);
    CHECK(right.statistics().injected_lost_packets > 0);
    CHECK(left.statistics().engine.repair_packets_sent > 0);
    right.close();
    CHECK(right.statistics().injected_lost_packets > 0);
    CHECK(right.driver_name() == "udp");
}

TEST_CASE("host: a loss that is no ratio is refused before a port is opened") {
    for (const double wrong : {-0.1, 1.5, std::nan("")}) {
        const auto open = [&] { Runtime host(lossy_options(0, wrong)); };
        CHECK_THROWS_AS(open(), IoError);
    }
}

}  // namespace dlcp
