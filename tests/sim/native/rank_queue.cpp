// The queue that pFabric's switches keep, against a slow and obvious one.
#include "sim/core/rank_queue.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "sim/core/domain.hpp"
#include "sim/core/simulation.hpp"

using namespace dlcp::sim;

namespace {

// Packets need a domain to live in; nothing runs.
struct Slots {
    Slots() : simulation(star(), {}, make_transport("pfabric", Parameters()), {}) {
        Flow later;
        later.destination = 1;
        later.bytes = 1;
        later.start_ps = 1'000'000;
        simulation.add_flow(later);
        simulation.run(0, -1);  // domains are there from the first run on
        domain = &simulation.domain_of(0);
    }

    static Fabric star() {
        Clos clos;
        clos.host_rate_bps = 100'000'000'000;
        clos.host_delay_ps = 1'000'000;
        return Fabric(clos);
    }
    std::uint32_t make(std::uint32_t flow, std::uint32_t rank, std::uint32_t bytes = 1500, bool reverse = false) {
        const std::uint32_t slot = domain->take_packet();
        domain->packet(slot).flow = flow;
        domain->packet(slot).wire_bytes = static_cast<std::uint16_t>(bytes);
        domain->packet(slot).reverse = reverse;
        domain->extra(slot).rank = rank;
        return slot;
    }
    std::vector<std::uint32_t> chain(std::uint32_t slot) {
        std::vector<std::uint32_t> slots;
        for (; slot != none; slot = domain->packet(slot).next) slots.push_back(slot);
        return slots;
    }

    Simulation simulation;
    Domain* domain = nullptr;
};

constexpr std::uint32_t roomy = 1'000'000;

}  // namespace

TEST_CASE("rank queue: the flow with the least rank is served, its earliest packet first") {
    Slots s;
    RankQueue queue;
    const std::uint32_t long_first = s.make(1, 9000), short_first = s.make(2, 3000), long_second = s.make(1, 7500);
    const std::uint32_t short_second = s.make(2, 1500), last = s.make(1, 2000);
    for (const std::uint32_t slot : {long_first, short_first, long_second, short_second, last})
        CHECK(queue.push(*s.domain, slot, roomy) == none);
    CHECK(queue.bytes() == 5 * 1500);
    CHECK(queue.pop(*s.domain) == short_first);
    CHECK(queue.pop(*s.domain) == short_second);
    CHECK(queue.pop(*s.domain) == long_first);
    CHECK(queue.pop(*s.domain) == long_second);
    CHECK(queue.pop(*s.domain) == last);
    CHECK(queue.empty());
    CHECK(queue.bytes() == 0);
    CHECK(queue.pop(*s.domain) == none);
}

TEST_CASE("rank queue: the two directions of a flow are two flows") {
    Slots s;
    RankQueue queue;
    const std::uint32_t data = s.make(1, 9000), acknowledgement = s.make(1, 0, 40, true);
    queue.push(*s.domain, data, roomy);
    queue.push(*s.domain, acknowledgement, roomy);
    CHECK(queue.pop(*s.domain) == acknowledgement);
    CHECK(queue.pop(*s.domain) == data);
}

TEST_CASE("rank queue: of equal ranks the flow that came first is served, and goes on") {
    Slots s;
    RankQueue queue;
    const std::uint32_t a = s.make(7, 3000), b = s.make(3, 3000), c = s.make(7, 3000);
    for (const std::uint32_t slot : {a, b, c}) queue.push(*s.domain, slot, roomy);
    CHECK(queue.pop(*s.domain) == a);
    CHECK(queue.pop(*s.domain) == c);
    CHECK(queue.pop(*s.domain) == b);
}

TEST_CASE("rank queue: without room the highest rank is pushed out, of equal ones the newcomer") {
    Slots s;
    RankQueue queue;
    const std::uint32_t low = s.make(1, 1500), high = s.make(2, 9000);
    queue.push(*s.domain, low, 3000);
    queue.push(*s.domain, high, 3000);
    const std::uint32_t equal = s.make(3, 9000);
    CHECK(queue.push(*s.domain, equal, 3000) == equal);
    const std::uint32_t middle = s.make(4, 4000);
    CHECK(queue.push(*s.domain, middle, 3000) == high);
    CHECK(queue.bytes() == 3000);
    CHECK(queue.pop(*s.domain) == low);
    CHECK(queue.pop(*s.domain) == middle);
}

TEST_CASE("rank queue: a long packet pushes out as many short ones as it needs") {
    Slots s;
    RankQueue queue;
    std::vector<std::uint32_t> shorts;
    for (std::uint32_t i = 0; i < 4; ++i) {
        shorts.push_back(s.make(10 + i, 5000 + i, 500));
        queue.push(*s.domain, shorts.back(), 2000);
    }
    const std::uint32_t full = s.make(1, 100, 1500);
    const std::vector<std::uint32_t> out = s.chain(queue.push(*s.domain, full, 2000));
    CHECK(out == std::vector<std::uint32_t>{shorts[1], shorts[2], shorts[3]});
    CHECK(queue.bytes() == 2000);
    CHECK(queue.pop(*s.domain) == full);
    CHECK(queue.pop(*s.domain) == shorts[0]);
}

TEST_CASE("rank queue: a packet longer than the whole buffer is refused") {
    Slots s;
    RankQueue queue;
    const std::uint32_t slot = s.make(1, 1);
    CHECK(queue.push(*s.domain, slot, 1000) == slot);
    CHECK(queue.empty());
}

TEST_CASE("rank queue: random packets come out as from a list that is searched") {
    struct Listed {
        std::uint32_t slot, flow, rank, bytes, since;
    };
    Slots s;
    for (std::uint32_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        std::mt19937 dice(seed);
        RankQueue queue;
        std::vector<Listed> list;  // in order of arrival; since: when its flow last joined
        std::uint32_t joined = 0, bytes = 0;
        const auto erase = [&](std::size_t i) {
            bytes -= list[i].bytes;
            list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
        };
        for (int step = 0; step < 2000; ++step) {
            if (dice() % 5 < 3) {
                Listed p{none, static_cast<std::uint32_t>(dice() % 6), static_cast<std::uint32_t>(dice() % 20), 0,
                         0};
                p.bytes = dice() % 2 ? 1500 : 100;
                p.slot = s.make(p.flow, p.rank, p.bytes);
                std::vector<std::uint32_t> expected;
                bool refused = false;
                while (bytes + p.bytes > 15'000 && !refused) {
                    std::size_t worst = 0;
                    for (std::size_t i = 1; i < list.size(); ++i)
                        if (list[i].rank > list[worst].rank ||
                            (list[i].rank == list[worst].rank && list[i].since >= list[worst].since))
                            worst = i;
                    refused = p.rank >= list[worst].rank;
                    if (!refused) {
                        expected.push_back(list[worst].slot);
                        erase(worst);
                    }
                }
                if (refused) {
                    expected.push_back(p.slot);
                } else {
                    const auto same =
                        std::find_if(list.begin(), list.end(), [&](const Listed& l) { return l.flow == p.flow; });
                    p.since = same == list.end() ? joined++ : same->since;
                    list.push_back(p);
                    bytes += p.bytes;
                }
                std::reverse(expected.begin(), expected.end());
                const std::vector<std::uint32_t> out = s.chain(queue.push(*s.domain, p.slot, 15'000));
                CHECK(out == expected);
                for (const std::uint32_t slot : out) s.domain->free_packet(slot);
            } else {
                std::uint32_t expected = none;
                if (!list.empty()) {
                    std::size_t best = 0;
                    for (std::size_t i = 1; i < list.size(); ++i)
                        if (list[i].rank < list[best].rank ||
                            (list[i].rank == list[best].rank && list[i].since < list[best].since))
                            best = i;
                    const auto first = std::find_if(list.begin(), list.end(),
                                                    [&](const Listed& l) { return l.flow == list[best].flow; });
                    expected = first->slot;
                    erase(static_cast<std::size_t>(first - list.begin()));
                }
                const std::uint32_t slot = queue.pop(*s.domain);
                CHECK(slot == expected);
                if (slot != none) s.domain->free_packet(slot);
            }
            CHECK(queue.bytes() == bytes);
            CHECK(queue.empty() == list.empty());
        }
    }
}
