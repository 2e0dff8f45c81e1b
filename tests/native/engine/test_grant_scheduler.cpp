// GrantScheduler: shares the line rate between those that want to send.
#include <doctest/doctest.h>

#include <vector>

#include "engine/grant_scheduler.hpp"

namespace dlcp {
namespace {

constexpr Bytes quantum{1000};
constexpr Rate line_rate{8'000'000'000};  // a quantum a microsecond
constexpr auto none = GrantScheduler::none;

TEST_CASE("grant scheduler: nothing is granted that nobody wants") {
    GrantScheduler grants(line_rate, quantum);
    CHECK(grants.next() == time_never);
    CHECK(grants.granted(3) == Bytes{0});
    CHECK(grants.grant(Time{0}) == none);
}

TEST_CASE("grant scheduler: a demand is granted by quanta, one each time that the line could carry one") {
    GrantScheduler grants(line_rate, quantum);
    grants.want(Time{0}, 0, Bytes{2500});
    std::vector<std::uint64_t> granted;
    for (Time now = grants.next(); now != time_never; now = grants.next()) {
        const auto peer = grants.grant(now);
        if (peer == none) break;
        CHECK(now == Time{0} + microseconds(static_cast<std::int64_t>(granted.size())));
        granted.push_back(grants.granted(0).value);
    }
    CHECK(granted == std::vector<std::uint64_t>{1000, 2000, 2500});
}

TEST_CASE("grant scheduler: the peer with the least left is first, equal ones take turns, and nobody starves") {
    GrantScheduler grants(line_rate, quantum);
    grants.want(Time{0}, 0, Bytes{30'000});
    grants.want(Time{0}, 1, Bytes{20'000});
    grants.want(Time{0}, 2, Bytes{2000});
    std::vector<std::uint32_t> order;
    for (int i = 0; i < 16; ++i) order.push_back(grants.grant(grants.next()));
    CHECK(order == std::vector<std::uint32_t>{2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0});
}

TEST_CASE("grant scheduler: a late host catches up by one quantum, not by all it missed") {
    GrantScheduler grants(line_rate, quantum);
    grants.want(Time{0}, 0, Bytes{100'000});
    const Time late = Time{0} + microseconds(50);
    int at_once = 0;
    while (grants.next() <= late) {
        grants.grant(late);
        ++at_once;
    }
    CHECK(at_once == 2);
}

TEST_CASE("grant scheduler: without a line rate everything is granted at once") {
    GrantScheduler grants(Rate{0}, quantum);
    grants.want(Time{0}, 4, Bytes{1'000'000});
    CHECK(grants.grant(Time{0}) == 4);
    CHECK(grants.granted(4) == Bytes{1'000'000});
}

TEST_CASE("grant scheduler: totals only grow, and a peer that is forgotten starts again") {
    GrantScheduler grants(line_rate, quantum);
    grants.want(Time{0}, 0, Bytes{1000});
    grants.grant(Time{0});
    grants.want(Time{0}, 0, Bytes{500});
    CHECK(grants.granted(0) == Bytes{1000});
    grants.forget(0);
    CHECK(grants.granted(0) == Bytes{0});
}

}  // namespace
}  // namespace dlcp
