// Validation 4 and 5: one queue under random traffic, against queueing theory. Every seed is fixed; what is drawn is
// compared within four standard errors of its own (one seed in 16,000 would fail by chance), every time exactly.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/sim/native/validation.hpp"

using namespace dlcp;
using namespace dlcp::sim;
using namespace dlcp::sim::validation;

namespace {

constexpr std::uint32_t packet_bytes = 1500;
constexpr std::int64_t service_ps = packet_bytes * Bottleneck::ps_per_byte;  // 1.2 us

// Starts of packets of `bytes`, as a Poisson process that loads the bottleneck with `rho`.
std::vector<std::int64_t> poisson(Draw& draw, double rho, std::size_t packets,
                                  std::uint32_t bytes = packet_bytes) {
    std::vector<std::int64_t> starts;
    const double gap_ps = static_cast<double>(bytes * Bottleneck::ps_per_byte) / rho;
    double at_ps = 0;
    for (std::size_t i = 0; i < packets; ++i) {
        at_ps += draw.exponential(gap_ps);
        starts.push_back(static_cast<std::int64_t>(at_ps));
    }
    return starts;
}

// Of the packets, less a tenth at the start, when the queue was still filling.
std::vector<double> waits_ps(const Bottleneck& run, const std::vector<std::uint32_t>& flows) {
    std::vector<double> waits;
    for (std::size_t i = flows.size() / 10; i < flows.size(); ++i)
        waits.push_back(static_cast<double>(run.waited_ps(flows[i])));
    return waits;
}

std::vector<std::uint32_t> all_flows(const Bottleneck& run) {
    std::vector<std::uint32_t> flows(run.simulation->flows().size());
    std::iota(flows.begin(), flows.end(), 0);
    return flows;
}

// The share of packets that M/D/1 with `waiting` places loses (and one in service), from the Markov chain of what a
// departing packet leaves behind (Gross and Harris, Fundamentals of Queueing Theory, 5.1.8): a_j, the chance of j
// arrivals in a service, gives the chain's steady state pi, and P(block) = 1 - 1 / (pi_0 + rho).
double loss_of_md1k(double rho, std::size_t waiting) {
    const std::size_t places = waiting + 1;
    std::vector<double> a(places + 1);
    a[0] = std::exp(-rho);
    for (std::size_t j = 1; j <= places; ++j) a[j] = a[j - 1] * rho / static_cast<double>(j);
    // pi_{j+1} a_0 = pi_j - pi_0 a_j - sum_{i=1..j} pi_i a_{j-i+1}, up to a factor.
    std::vector<double> pi(places, 0);
    pi[0] = 1;
    for (std::size_t j = 0; j + 1 < places; ++j) {
        double rest = pi[j] - pi[0] * a[j];
        for (std::size_t i = 1; i <= j; ++i) rest -= pi[i] * a[j - i + 1];
        pi[j + 1] = rest / a[0];
    }
    const double sum = std::accumulate(pi.begin(), pi.end(), 0.0);
    return 1 - 1 / (pi[0] / sum + rho);
}

}  // namespace

TEST_CASE(
    "validation 4: each packet of M/D/1 leaves when Lindley says, and waits rho s / (2 (1 - rho)) in the mean") {
    for (const double rho : {0.3, 0.5, 0.7, 0.8, 0.9, 0.95}) {
        CAPTURE(rho);
        Bottleneck run{switching::Policy{}};
        Draw draw(1);
        const std::size_t packets = rho > 0.85 ? 400'000 : 100'000;
        for (const std::int64_t start_ps : poisson(draw, rho, packets)) run.add(start_ps, packet_bytes);
        REQUIRE(run.simulation->run(-1, -1));

        // First come, first served, never idle while something waits (Lindley 1952).
        const std::vector<std::uint32_t> order = all_flows(run);
        std::int64_t free_ps = 0;
        std::size_t different = 0;
        for (const std::uint32_t f : order) {
            const std::int64_t came_ps =
                run.simulation->flows()[f].start_ps + Bottleneck::uplink_ps(packet_bytes) + Bottleneck::delay_ps;
            free_ps = std::max(free_ps, came_ps) + service_ps;
            if (run.simulation->results()[f].delivered_ps != free_ps + Bottleneck::delay_ps) ++different;
        }

        CHECK(different == 0);
        const double theory = rho * static_cast<double>(service_ps) / (2 * (1 - rho));
        check_near(estimate(waits_ps(run, order)), theory, rho > 0.9 ? 0.06 : 0.03);
    }
}

TEST_CASE("validation 4: strict priority, not preemptive: each class waits R / ((1 - sigma_k-1) (1 - sigma_k))") {
    // Three classes with packets of different sizes; 6 is served first.
    struct Class {
        std::uint8_t number;
        double rho;
        std::uint32_t bytes;
        std::vector<std::int64_t> starts{};
        std::vector<std::uint32_t> flows{};
    };
    for (const double load : {0.5, 0.8, 0.9}) {
        CAPTURE(load);
        std::vector<Class> classes{{6, 0.2 * load, 300}, {3, 0.5 * load, 1500}, {0, 0.3 * load, 9000}};
        Bottleneck run{switching::Policy{}};
        Draw draw(2);
        // The same time for all, long enough for the rarest.
        const double time_ps = 30'000 * 9000.0 * Bottleneck::ps_per_byte / classes[2].rho;
        std::vector<std::pair<std::int64_t, std::size_t>> starts;
        double residual_ps = 0;
        for (std::size_t i = 0; i < classes.size(); ++i) {
            const double s_ps = classes[i].bytes * static_cast<double>(Bottleneck::ps_per_byte);
            const auto count = static_cast<std::size_t>(time_ps * classes[i].rho / s_ps);
            for (const std::int64_t start_ps : poisson(draw, classes[i].rho, count, classes[i].bytes))
                starts.emplace_back(start_ps, i);
            residual_ps += classes[i].rho / s_ps * s_ps * s_ps / 2;
        }
        std::sort(starts.begin(), starts.end());
        for (const auto& [start_ps, i] : starts) {
            classes[i].flows.push_back(static_cast<std::uint32_t>(run.simulation->flows().size()));
            run.add(start_ps, classes[i].bytes, classes[i].number);
        }
        REQUIRE(run.simulation->run(-1, -1));
        double before = 0;  // sigma_k-1
        for (const Class& c : classes) {
            CAPTURE(int{c.number});
            const double sigma = before + c.rho;
            check_near(estimate(waits_ps(run, c.flows)), residual_ps / ((1 - before) * (1 - sigma)), 0.05);
            before = sigma;
        }
    }
}

TEST_CASE("validation 4: a finite buffer loses what the Markov chain of M/D/1/K says") {
    CHECK(loss_of_md1k(0.8, 0) == doctest::Approx(0.8 / 1.8));  // no place to wait: Erlang's formula
    struct Case {
        double rho;
        std::uint32_t waiting;
    };
    for (const Case& c : {Case{0.5, 1}, Case{0.8, 4}, Case{0.95, 10}, Case{1.0, 5}, Case{1.3, 20}}) {
        CAPTURE(c.rho);
        CAPTURE(c.waiting);
        switching::Policy policy;
        policy.port_bytes = c.waiting * packet_bytes;
        Bottleneck run{policy};
        Draw draw(3);
        constexpr std::size_t packets = 400'000;
        for (const std::int64_t start_ps : poisson(draw, c.rho, packets)) run.add(start_ps, packet_bytes);
        REQUIRE(run.simulation->run(-1, -1));
        std::vector<double> lost;
        for (const FlowResult& result : run.simulation->results()) lost.push_back(result.delivered_ps < 0 ? 1 : 0);
        check_near(estimate(lost), loss_of_md1k(c.rho, c.waiting), 0.03);
        CHECK(run.simulation->event_counters(run.port, 0).packets_dropped ==
              static_cast<std::uint32_t>(std::accumulate(lost.begin(), lost.end(), 0.0)));
        CHECK(run.simulation->max_depth_bytes(run.port, 0) == policy.port_bytes);
    }
}

namespace {

// What of two Poisson streams is delivered, as shares of the link's rate: {high, low}; and how many of high are lost.
struct Shares {
    double high = 0, low = 0;
    std::size_t high_lost = 0;
};

Shares overload(const switching::Policy& policy, double lambda_high, double lambda_low, bool by_class) {
    Bottleneck run{policy};
    Draw draw(4);
    constexpr double time_ps = 60'000 * double{service_ps};
    std::vector<std::pair<std::int64_t, bool>> starts;
    for (const bool high : {true, false}) {
        const double lambda = high ? lambda_high : lambda_low;
        for (const std::int64_t start_ps : poisson(draw, lambda, static_cast<std::size_t>(lambda * 60'000)))
            starts.emplace_back(start_ps, high);
    }
    std::sort(starts.begin(), starts.end());
    for (const auto& [start_ps, high] : starts)
        run.add(start_ps, packet_bytes, by_class && high ? 5 : 0, by_class || high);
    REQUIRE(run.simulation->run(-1, -1));
    Shares shares;
    for (std::size_t f = 0; f < starts.size(); ++f) {
        const bool delivered = run.simulation->results()[f].delivered_ps >= 0;
        if (delivered) (starts[f].second ? shares.high : shares.low) += service_ps / time_ps;
        if (!delivered && starts[f].second) ++shares.high_lost;
    }
    return shares;
}

}  // namespace

TEST_CASE("validation 5: under overload the high class loses nothing and the low one gets what is left") {
    switching::Policy policy;
    for (switching::ClassPolicy& c : policy.classes)
        for (switching::Thresholds& at : c.level) at.drop_above_bytes = 100 * packet_bytes;
    for (const auto& [high, low] : {std::pair{0.2, 1.0}, {0.5, 0.9}, {0.8, 1.0}}) {
        CAPTURE(high);
        const Shares shares = overload(policy, high, low, true);
        CHECK(shares.high_lost == 0);
        // Of 60,000 services: 100 packets' worth of the queue's end, and what was drawn of high (three standard
        // deviations are 1.5 %).
        CHECK(shares.high == doctest::Approx(high).epsilon(0.015 / high));
        CHECK(shares.low == doctest::Approx(1 - shares.high).epsilon(0.01 / (1 - high)));
    }
}

TEST_CASE("validation 5: in one queue, critical packets lose nothing and droppable ones get what is left") {
    switching::Policy policy;
    for (std::size_t level = 0; level < switching::droppable_levels; ++level)
        policy.classes[0].level[level].drop_above_bytes = 100 * packet_bytes;
    policy.port_bytes = 400 * packet_bytes;
    for (const auto& [high, low] : {std::pair{0.2, 1.0}, {0.5, 0.9}, {0.8, 1.0}}) {
        CAPTURE(high);
        const Shares shares = overload(policy, high, low, false);
        CHECK(shares.high_lost == 0);
        CHECK(shares.high == doctest::Approx(high).epsilon(0.015 / high));
        CHECK(shares.low == doctest::Approx(1 - shares.high).epsilon(0.01 / (1 - high)));
    }
}

TEST_CASE("validation 5: the most important droppable packets get through first") {
    // Level i is dropped above (i + 1) 20 packets: the queue stands at the level that overload reaches, those below it
    // get nothing, those above lose nothing.
    switching::Policy policy;
    for (std::uint32_t level = 0; level < switching::droppable_levels; ++level)
        policy.classes[0].level[level].drop_above_bytes = (level + 1) * 20 * packet_bytes;
    Bottleneck run{policy};
    Draw draw(5);
    // 1.6 times what fits, evenly over 255 importances: 62.5 % is delivered. Level i has 12.5 % (7: 12.2 %), so 7 to 3
    // fit.
    for (const std::int64_t start_ps : poisson(draw, 1.6, 100'000)) run.add(start_ps, packet_bytes, 0, false);
    REQUIRE(run.simulation->run(-1, -1));
    std::vector<double> sent(8, 0), delivered(8, 0);
    for (std::size_t f = 0; f < 100'000; ++f) {
        const std::size_t level = f % 255 / 32;
        ++sent[level];
        if (run.simulation->results()[f].delivered_ps >= 0) ++delivered[level];
    }
    for (std::size_t level = 0; level < 8; ++level) {
        CAPTURE(level);
        const double share = delivered[level] / sent[level];
        if (level >= 4) CHECK(share > 0.995);
        if (level <= 1) CHECK(share < 0.01);
        if (level > 0) CHECK(share >= delivered[level - 1] / sent[level - 1]);
    }
    CHECK(std::accumulate(delivered.begin(), delivered.end(), 0.0) ==
          doctest::Approx(100'000 / 1.6).epsilon(0.01));
}
