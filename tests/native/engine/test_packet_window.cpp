// PacketWindow: which packet numbers are fresh, and what an acknowledgement says of them.
#include <doctest/doctest.h>

#include "engine/packet_window.hpp"

namespace dlcp {
namespace {

TEST_CASE("packet window: a number is fresh until it is inserted") {
    PacketWindow window;
    CHECK(window.empty());
    CHECK(window.fresh(7));
    window.insert(7, false);
    CHECK(!window.empty());
    CHECK(window.largest() == 7);
    CHECK(!window.fresh(7));
    CHECK(window.fresh(6));
    CHECK(window.fresh(8));
}

TEST_CASE("packet window: what is older than its width is not fresh") {
    PacketWindow window;
    window.insert(PacketWindow::width, false);
    CHECK(!window.fresh(0));
    CHECK(window.fresh(1));
}

TEST_CASE("packet window: moving on forgets the numbers a width ago") {
    for (const std::uint64_t step : {1, 63, 64, 65, 1000, 8191, 8192, 20000}) {
        CAPTURE(step);
        PacketWindow window;
        for (std::uint64_t n = 0; n < 200; ++n) window.insert(n, n % 3 == 0);
        window.insert(199 + step, false);
        for (std::uint64_t n = 200; n < 199 + step; n += 7) {
            if (199 + step - n < PacketWindow::width) REQUIRE(window.fresh(n));
        }
        CHECK(window.received_word(199 + step) % 2 == 1);
    }
}

TEST_CASE("packet window: words hold the newest packet in bit 0") {
    PacketWindow window;
    window.insert(100, true);
    window.insert(98, false);
    CHECK(window.received_word(100) == 0b101);
    CHECK(window.ce_word(100) == 0b001);
    CHECK(window.has_ce());
}

TEST_CASE("packet window: a number is covered by the acknowledgement of it and the four after") {
    PacketWindow window;
    window.insert(10, false);
    for (std::uint64_t next = 11; next < 16; ++next) {
        CHECK(window.ack_base() == 10);
        window.acknowledged();
        window.insert(next, false);
    }
    CHECK(window.ack_base() == 11);
}

TEST_CASE("packet window: a refused number is neither fresh nor acknowledged") {
    PacketWindow window;
    window.insert(5, false);
    window.refuse(7);
    CHECK(!window.fresh(7));
    CHECK(window.fresh(6));
    CHECK(window.fresh(8));
    CHECK(window.largest() == 5);
    window.insert(8, false);
    CHECK(window.received_word(8) == 0b1001);
}

TEST_CASE("packet window: a refused number stays refused until the window has left it behind") {
    PacketWindow window;
    window.refuse(7);
    for (std::uint64_t n = 8; n < 8 + PacketWindow::width; n += 100) {
        window.refuse(n);
        REQUIRE(!window.fresh(7));
        REQUIRE(!window.fresh(n));
        REQUIRE(window.fresh(n + 1));
    }
    window.refuse(7 + 2 * PacketWindow::width);
    CHECK(!window.fresh(7));
    CHECK(window.fresh(7 + PacketWindow::width + 1));
}

}  // namespace
}  // namespace dlcp
