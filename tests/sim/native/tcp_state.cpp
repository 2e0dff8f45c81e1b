// TCP's two state machines on a fake path with a virtual clock: acknowledgements, recovery, probes, timeouts.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "sim/core/transports/tcp_receiver.hpp"
#include "sim/core/transports/tcp_sender.hpp"

namespace {

using namespace dlcp::sim;

constexpr std::int64_t us = 1'000'000;
constexpr std::int64_t ms = 1'000 * us;

// A sender, a receiver and a link of one segment per `transmit_ps` between them.
struct Path {
    TcpSenderSettings sender_settings;
    TcpReceiverSettings receiver_settings;
    std::uint32_t segments = 100;
    std::int64_t transmit_ps = 1 * us;
    std::int64_t bottleneck_ps = 0;   // per segment, on a slower link behind it, with a queue; 0: there is none
    std::int64_t delay_ps = 50 * us;  // each way
    // Of the n-th transmission (from 0), its segment and time. True: lost.
    std::function<bool(std::uint64_t, std::uint32_t, std::int64_t)> lose;
    std::function<bool(std::uint64_t)> lose_ack;
    std::function<std::int64_t(std::uint64_t)> late_ps;  // further delay of a transmission
    std::function<bool(std::uint64_t, std::int64_t)> mark;
    std::function<void(std::int64_t, const TcpSender&)> watch;  // after each acknowledgement

    // What was observed
    std::vector<std::pair<std::int64_t, std::uint32_t>> sent;  // time, segment
    std::uint64_t retransmissions = 0;
    std::uint64_t duplicates = 0;
    std::int64_t complete_ps = -1;
    std::int64_t done_ps = -1;

    std::int64_t rtt_ps() const { return 2 * delay_ps + transmit_ps; }

    TcpSender run(std::int64_t until_ps = 1'000'000 * ms) {
        TcpPath path;
        path.window = TcpWindow(sender_settings.window);
        path.start_rtt(rtt_ps());
        return run_from(path, until_ps);
    }

    TcpSender run_from(const TcpPath& path, std::int64_t until_ps) {
        TcpSender sender(sender_settings, path, segments);
        TcpReceiver receiver(receiver_settings, segments);
        struct Event {
            bool ack;
            bool marked;
            std::uint32_t number;
            std::int64_t sent_ps;
            TcpAck content;
        };
        std::multimap<std::int64_t, Event> events;
        std::int64_t now_ps = 0, free_ps = 0, queue_ps = 0, ack_due_ps = -1;
        std::uint64_t transmissions = 0, acks = 0;
        const std::int64_t ack_delay_ps = sender_settings.max_ack_delay_ps;
        const auto acknowledge = [&] {
            const TcpAck ack = receiver.take_ack();
            ack_due_ps = -1;
            if (lose_ack && lose_ack(acks++)) return;
            events.emplace(now_ps + delay_ps, Event{true, false, 0, 0, ack});
        };
        while (!sender.done() && now_ps <= until_ps) {
            while (free_ps <= now_ps) {
                const std::uint32_t number = sender.next_segment(now_ps);
                if (number == none) break;
                retransmissions += sender.retransmitted() ? 1 : 0;
                sent.emplace_back(now_ps, number);
                const std::uint64_t n = transmissions++;
                free_ps = now_ps + transmit_ps;
                if (lose && lose(n, number, now_ps)) continue;
                const std::int64_t late = late_ps ? late_ps(n) : 0;
                queue_ps = std::max(queue_ps, free_ps) + bottleneck_ps;
                events.emplace((bottleneck_ps > 0 ? queue_ps : free_ps) + delay_ps + late,
                               Event{false, mark && mark(n, now_ps), number, now_ps, {}});
            }
            std::int64_t next_ps = INT64_MAX;
            if (!events.empty()) next_ps = events.begin()->first;
            if (sender.deadline_ps() >= 0) next_ps = std::min(next_ps, sender.deadline_ps());
            if (ack_due_ps >= 0) next_ps = std::min(next_ps, ack_due_ps);
            if (sender.can_send() && free_ps > now_ps) next_ps = std::min(next_ps, free_ps);
            REQUIRE(next_ps != INT64_MAX);  // it would hang
            now_ps = std::max(now_ps, next_ps);
            if (sender.deadline_ps() >= 0 && sender.deadline_ps() <= now_ps) sender.handle_deadline(now_ps);
            if (ack_due_ps >= 0 && ack_due_ps <= now_ps) acknowledge();
            while (!events.empty() && events.begin()->first <= now_ps) {
                const Event event = events.begin()->second;
                events.erase(events.begin());
                if (event.ack) {
                    sender.handle_ack(now_ps, event.content);
                    if (watch) watch(now_ps, sender);
                    continue;
                }
                if (receiver.must_acknowledge_before(event.marked)) acknowledge();
                if (!receiver.handle_segment(event.number, event.marked, event.sent_ps)) ++duplicates;
                if (receiver.complete() && complete_ps < 0) complete_ps = now_ps;
                if (receiver.must_acknowledge()) {
                    acknowledge();
                } else if (ack_due_ps < 0) {
                    ack_due_ps = now_ps + ack_delay_ps;
                }
            }
        }
        done_ps = now_ps;
        return sender;
    }
};

Path quick_path(TcpCongestion congestion = TcpCongestion::newreno) {
    Path path;
    path.sender_settings.window.congestion = congestion;
    path.sender_settings.min_rto_ps = 10 * ms;
    path.receiver_settings.ack_every = 1;
    return path;
}

}  // namespace

TEST_CASE("tcp: an acknowledgement survives its packet") {
    TcpAck ack;
    ack.next = 123'456'789;
    ack.echo_ps = 987;
    ack.marked = true;
    ack.duplicate = true;
    ack.ranges = 3;
    ack.range = {{{7, 8}, {200'000'000, 200'000'000 + (1 << 21) - 1}, {5, 1'000'005}}};
    Packet packet{};
    PacketExtra extra;
    write_ack(ack, packet, extra);
    const TcpAck read = read_ack(packet, extra);
    CHECK(read.next == ack.next);
    CHECK(read.echo_ps == ack.echo_ps);
    CHECK(read.marked);
    CHECK(read.duplicate);
    REQUIRE(read.ranges == 3);
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(read.range[i].begin == ack.range[i].begin);
        CHECK(read.range[i].end == ack.range[i].end);
    }
}

TEST_CASE("tcp: the receiver's ranges are those of a plain set, newest first") {
    TcpReceiverSettings settings;
    settings.ack_every = 1;
    std::mt19937 random(7);
    for (int round = 0; round < 50; ++round) {
        constexpr std::uint32_t count = 300;
        TcpReceiver receiver(settings, count);
        std::vector<std::uint32_t> order(count);
        for (std::uint32_t i = 0; i < count; ++i) order[i] = i;
        for (std::uint32_t i = 0; i + 1 < count; ++i) {  // displaced by up to 40 places
            std::swap(order[i], order[std::min<std::size_t>(count - 1, i + random() % 40)]);
        }
        std::set<std::uint32_t> here;
        for (const std::uint32_t number : order) {
            CHECK(receiver.handle_segment(number, false, 0));
            here.insert(number);
            std::uint32_t next = 0;
            while (here.contains(next)) ++next;
            if (!receiver.must_acknowledge()) continue;
            const TcpAck ack = receiver.take_ack();
            REQUIRE(ack.next == next);
            if (number > next) {
                REQUIRE(ack.ranges > 0);
                CHECK(ack.range[0].begin <= number);
                CHECK(number < ack.range[0].end);
            }
            for (std::uint32_t i = 0; i < ack.ranges; ++i) {
                const TcpRange& range = ack.range[i];
                CHECK(range.begin > next);
                CHECK_FALSE(here.contains(range.begin - 1));
                CHECK_FALSE(here.contains(range.end));
                for (std::uint32_t s = range.begin; s < range.end; ++s) REQUIRE(here.contains(s));
            }
        }
        CHECK(receiver.complete());
    }
}

TEST_CASE("tcp: a segment that comes twice is reported as such") {
    TcpReceiverSettings settings;
    TcpReceiver receiver(settings, 10);
    CHECK(receiver.handle_segment(0, false, 5));
    CHECK(receiver.handle_segment(2, false, 6));
    (void)receiver.take_ack();
    CHECK_FALSE(receiver.handle_segment(2, false, 7));
    const TcpAck above = receiver.take_ack();
    CHECK(above.duplicate);
    CHECK(above.range[0].begin == 2);
    CHECK_FALSE(receiver.handle_segment(0, false, 8));
    const TcpAck below = receiver.take_ack();
    CHECK(below.duplicate);
    CHECK(below.range[0].begin == 0);
    CHECK(below.echo_ps == 8);
}

TEST_CASE("tcp: every second segment is acknowledged, the last of a flow at once") {
    TcpReceiverSettings settings;
    TcpReceiver receiver(settings, 3);
    CHECK(receiver.handle_segment(0, false, 5));
    CHECK_FALSE(receiver.must_acknowledge());
    CHECK(receiver.handle_segment(1, false, 6));
    CHECK(receiver.must_acknowledge());
    CHECK(receiver.take_ack().echo_ps == 5);  // of the earlier one (RFC 7323 §4.3)
    CHECK(receiver.handle_segment(2, false, 7));
    CHECK(receiver.must_acknowledge());
}

TEST_CASE("tcp: what comes after a silence is acknowledged at once") {
    TcpReceiverSettings settings;
    settings.quick_after_ps = 500 * us;
    TcpReceiver receiver(settings, 10);
    CHECK(receiver.handle_segment(0, false, 0));
    CHECK(receiver.handle_segment(1, false, 10 * us));
    (void)receiver.take_ack();
    CHECK(receiver.handle_segment(2, false, 1 * ms));
    CHECK(receiver.must_acknowledge());
    (void)receiver.take_ack();
    CHECK(receiver.handle_segment(3, false, 1 * ms + us));
    CHECK_FALSE(receiver.must_acknowledge());
}

TEST_CASE("dctcp: a change of marks is acknowledged at once, with what was before") {
    TcpReceiverSettings settings;
    settings.per_state_echo = true;
    TcpReceiver receiver(settings, 100);
    CHECK_FALSE(receiver.must_acknowledge_before(false));
    (void)receiver.handle_segment(0, false, 0);
    CHECK(receiver.must_acknowledge_before(true));
    const TcpAck before = receiver.take_ack();
    CHECK_FALSE(before.marked);
    CHECK(before.next == 1);
    (void)receiver.handle_segment(1, true, 0);
    CHECK_FALSE(receiver.must_acknowledge());
    (void)receiver.handle_segment(2, true, 0);
    CHECK(receiver.must_acknowledge());
    CHECK(receiver.take_ack().marked);
}

TEST_CASE("tcp: slow start doubles the window each round trip") {
    Path path = quick_path();
    path.segments = 10 + 20 + 40 + 80;
    path.transmit_ps = 10'000;  // the link is no limit
    const TcpSender sender = path.run();
    CHECK(path.retransmissions == 0);
    CHECK(path.complete_ps / path.rtt_ps() == 3);
    CHECK(sender.path().window.packets() >= 80);
}

TEST_CASE("tcp: several losses of one window are repaired in one recovery, each once") {
    Path path = quick_path();
    path.segments = 400;
    const std::set<std::uint32_t> holes{60, 61, 64, 70, 75, 76, 77, 90};
    path.lose = [&](std::uint64_t n, std::uint32_t number, std::int64_t) {
        return n == number && holes.contains(number);
    };
    const TcpSender sender = path.run();
    CHECK(sender.timeouts() == 0);
    CHECK(sender.recoveries() == 1);
    CHECK(sender.undone() == 0);
    CHECK(path.retransmissions == holes.size());
    CHECK(path.duplicates == 0);
}

TEST_CASE("tcp: a lost retransmission is found without a timeout") {
    Path path = quick_path();
    path.segments = 400;
    int left = 3;
    path.lose = [&](std::uint64_t, std::uint32_t number, std::int64_t) { return number == 60 && left-- > 0; };
    const TcpSender sender = path.run();
    CHECK(sender.timeouts() == 0);
    CHECK(path.retransmissions == 3);
}

TEST_CASE("tcp: any loss of segments and acknowledgements ends well") {
    for (const TcpCongestion congestion : {TcpCongestion::newreno, TcpCongestion::cubic, TcpCongestion::dctcp}) {
        for (const double loss : {0.001, 0.02, 0.2, 0.6}) {
            for (unsigned seed = 1; seed <= 10; ++seed) {
                CAPTURE(loss);
                CAPTURE(seed);
                std::mt19937 random(seed);
                std::bernoulli_distribution lost(loss), slow(0.05);
                Path path = quick_path(congestion);
                path.segments = 1 + random() % 600;
                path.receiver_settings.ack_every = 1 + random() % 2;
                path.receiver_settings.per_state_echo = congestion == TcpCongestion::dctcp;
                path.sender_settings.max_ack_delay_ps = 1 * ms;
                path.sender_settings.max_rto_ps = 300 * ms;
                path.sender_settings.pacing = random() % 2 == 0;
                path.lose = [&](std::uint64_t, std::uint32_t, std::int64_t) { return lost(random); };
                path.lose_ack = [&](std::uint64_t) { return lost(random); };
                path.late_ps = [&](std::uint64_t) { return slow(random) ? random() % (300 * us) : 0; };
                path.mark = [&](std::uint64_t, std::int64_t) { return slow(random); };
                path.watch = [&](std::int64_t, const TcpSender& sender) {
                    REQUIRE(sender.in_flight() <= path.segments);
                    REQUIRE(sender.window_packets() < 1e7);
                };
                const TcpSender sender = path.run();
                CHECK(sender.done());
                CHECK(path.complete_ps >= 0);
            }
        }
    }
}

TEST_CASE("tcp: without reordering nothing is undone, however many losses") {
    for (unsigned seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        std::mt19937 random(seed);
        std::bernoulli_distribution lost(0.03);
        Path path = quick_path(TcpCongestion::cubic);
        path.segments = 3000;
        path.lose = [&](std::uint64_t, std::uint32_t, std::int64_t) { return lost(random); };
        path.lose_ack = [&](std::uint64_t) { return lost(random); };
        const TcpSender sender = path.run();
        CHECK(sender.recoveries() > 5);
        CHECK(sender.undone() == 0);
        CHECK_FALSE(sender.path().reordering);
    }
}

TEST_CASE("rack: slight reordering of single segments causes no retransmission") {
    Path path = quick_path();
    path.segments = 2000;
    path.transmit_ps = 12 * us;  // an eighth of a round trip: overtaken by two
    path.late_ps = [](std::uint64_t n) { return n % 7 == 3 ? 20 * us : 0; };  // a quarter is allowed
    const TcpSender sender = path.run();
    CHECK(path.retransmissions == 0);
    CHECK(sender.path().reordering);
}

TEST_CASE("rack: a path that reorders is learnt, and what was held lost is undone") {
    Path path = quick_path();
    path.segments = 5000;
    path.late_ps = [](std::uint64_t n) { return n % 50 == 3 ? 20 * us : 0; };  // overtaken by twenty
    const TcpSender sender = path.run();
    CHECK(sender.timeouts() == 0);
    CHECK(sender.path().reordering);
    CHECK(sender.undone() > 0);
    CHECK(path.retransmissions < 8);  // of 100 late ones
}

TEST_CASE("tlp: a lost tail is repaired in two round trips, not by a timeout") {
    Path path = quick_path();
    path.sender_settings.min_rto_ps = 200 * ms;
    path.segments = 10;
    std::uint32_t holes = 1;
    path.lose = [&](std::uint64_t n, std::uint32_t number, std::int64_t) {
        return n == number && number >= 10 - holes;
    };
    SUBCASE("one segment") { holes = 1; }
    SUBCASE("three segments") { holes = 3; }
    SUBCASE("without a probe the timeout repairs it, not before its minimum") {
        path.sender_settings.tail_probe = false;
        const TcpSender sender = path.run();
        CHECK(sender.timeouts() == 1);
        CHECK(path.complete_ps > 200 * ms);
        CHECK(path.complete_ps < 202 * ms);
        return;
    }
    const TcpSender sender = path.run();
    CHECK(sender.timeouts() == 0);
    CHECK(sender.probes() == 1);
    // The probe leaves two round trips after the last acknowledgement (one after the start). Its own shows what else is
    // missing, of which half a window's worth leaves at a time: here one.
    REQUIRE(path.sent.size() > 10);
    CHECK(path.sent[10].second == 9);
    CHECK(std::abs(path.sent[10].first - 3 * path.rtt_ps()) < path.rtt_ps() / 4);
    CHECK(path.complete_ps < (holes == 1 ? 4 : 6) * path.rtt_ps());
    CHECK_FALSE(sender.path().window.slow_start());  // a loss, for the connection's next flow
}

TEST_CASE("tlp: a tail that was late, not lost, costs a probe and no window") {
    Path path = quick_path();
    path.segments = 10;
    path.late_ps = [](std::uint64_t n) { return n == 9 ? 250 * us : 0; };
    const TcpSender sender = path.run();
    CHECK(sender.probes() == 1);
    CHECK(sender.path().window.slow_start());
}

TEST_CASE("tcp: timeouts respect the minimum and double") {
    for (const std::int64_t minimum_ps : {10 * us, 1 * ms, 200 * ms}) {
        CAPTURE(minimum_ps);
        Path path = quick_path();
        path.sender_settings.min_rto_ps = minimum_ps;
        path.sender_settings.tail_probe = false;
        path.segments = 1;
        path.lose = [](std::uint64_t n, std::uint32_t, std::int64_t) { return n < 5; };
        const TcpSender sender = path.run();
        CHECK(sender.timeouts() == 5);
        REQUIRE(path.sent.size() == 6);
        const std::int64_t first_ps = path.sent[1].first - path.sent[0].first;
        CHECK(first_ps == path.rtt_ps() + std::max(minimum_ps, 4 * (path.rtt_ps() / 2)));
        for (std::size_t i = 1; i < 5; ++i) CHECK(path.sent[i + 1].first - path.sent[i].first == first_ps << i);
    }
}

TEST_CASE("tcp: a timeout for a delay, not a loss, is undone") {
    Path path = quick_path();
    path.sender_settings.min_rto_ps = 500 * us;
    path.sender_settings.tail_probe = false;
    path.segments = 3000;
    double before = 0, after = 0;
    // From 1 ms to 3 ms the path holds everything back, in order.
    Path* self = &path;
    path.late_ps = [self](std::uint64_t n) {
        const std::int64_t at_ps = self->sent[n].first;
        return at_ps >= 1 * ms && at_ps < 3 * ms ? 3 * ms - at_ps + (at_ps - 1 * ms) / 10 : 0;
    };
    path.watch = [&](std::int64_t now_ps, const TcpSender& sender) {
        if (now_ps < 1 * ms) before = sender.window_packets();
        if (sender.undone() > 0 && after == 0) after = sender.window_packets();
    };
    const TcpSender sender = path.run();
    CHECK(sender.timeouts() >= 1);
    CHECK(sender.undone() >= 1);
    CHECK(after >= before);
}

TEST_CASE("prr: recovery sends in proportion and ends at the new window") {
    Path path = quick_path(TcpCongestion::cubic);
    path.segments = 3000;
    path.transmit_ps = 10'000;
    path.sender_settings.window.initial_packets = 200;
    path.sender_settings.window.max_packets = 200;
    path.lose = [](std::uint64_t n, std::uint32_t, std::int64_t) { return n == 500; };
    std::int64_t lost_ps = 0;
    std::vector<std::uint32_t> flights;
    double least = 1e9;
    path.watch = [&](std::int64_t now_ps, const TcpSender& sender) {
        if (sender.recoveries() == 1 && lost_ps == 0) lost_ps = now_ps;
        if (lost_ps > 0 && now_ps < lost_ps + 3 * path.rtt_ps())
            least = std::min(least, double(sender.in_flight()));
    };
    const TcpSender sender = path.run();
    CHECK(sender.recoveries() == 1);
    // No pause for half a round trip: what is in flight falls evenly from 200 to 140 and no lower.
    CHECK(least >= 135);
    std::map<std::int64_t, int> in_window;
    for (const auto& [at_ps, number] : path.sent) {
        if (at_ps >= lost_ps && at_ps < lost_ps + path.rtt_ps())
            ++in_window[(at_ps - lost_ps) * 4 / path.rtt_ps()];
    }
    int sum = 0;
    for (const auto& [quarter, count] : in_window) sum += count;
    CHECK(sum == doctest::Approx(140).epsilon(0.05));
}

TEST_CASE("newreno: one segment more per round trip, half at a loss") {
    Path path = quick_path();
    path.segments = 20'000;
    path.transmit_ps = 10'000;
    path.sender_settings.window.initial_packets = 50;
    std::int64_t lost_ps = -1;
    path.lose = [&](std::uint64_t n, std::uint32_t, std::int64_t now_ps) {
        if (n != 30) return false;
        lost_ps = now_ps;
        return true;
    };
    std::vector<std::pair<std::int64_t, double>> windows;
    double at_loss = 0;
    path.watch = [&](std::int64_t now_ps, const TcpSender& sender) {
        if (sender.recoveries() == 0) at_loss = sender.window_packets();
        if (sender.recoveries() == 1) windows.emplace_back(now_ps, sender.window_packets());
    };
    (void)path.run();
    const auto window_at = [&](std::int64_t at_ps) {
        double last = 0;
        for (const auto& [when_ps, window] : windows) {
            if (when_ps <= at_ps) last = window;
        }
        return last;
    };
    const double start = window_at(lost_ps + 3 * path.rtt_ps());
    CHECK(start == doctest::Approx(at_loss / 2).epsilon(0.1));
    for (int rounds = 10; rounds <= 80; rounds += 10) {
        CHECK(window_at(lost_ps + (3 + rounds) * path.rtt_ps()) - start == doctest::Approx(rounds).epsilon(0.05));
    }
}

TEST_CASE("cubic: between two losses the window follows RFC 9438's curve") {
    // A long path, so that the curve and not the Reno-friendly region rules: 100 ms, some 1000 segments.
    Path path = quick_path(TcpCongestion::cubic);
    path.segments = 400'000;
    path.transmit_ps = 10'000;
    path.delay_ps = 50 * ms;
    path.sender_settings.window.initial_packets = 1000;
    path.sender_settings.min_rto_ps = 1000 * ms;
    bool lost = false;
    path.lose = [&](std::uint64_t n, std::uint32_t, std::int64_t) { return !lost && n == 500 && (lost = true); };
    std::vector<std::pair<std::int64_t, double>> windows;
    double peak = 0;
    path.watch = [&](std::int64_t now_ps, const TcpSender& sender) {
        if (sender.recoveries() == 0) peak = std::max(peak, sender.window_packets());
        if (sender.recoveries() == 1) windows.emplace_back(now_ps, sender.path().window.packets());
    };
    const TcpSender sender = path.run(30'000 * ms);
    REQUIRE(sender.recoveries() == 1);
    const double c = 0.4, beta = 0.7;
    const double k_s = std::cbrt(peak * (1 - beta) / c);
    REQUIRE(k_s > 5);
    // The epoch starts when growth does, after recovery.
    std::int64_t epoch_ps = 0;
    for (const auto& [at_ps, window] : windows) {
        if (window <= beta * peak + 1e-9) epoch_ps = at_ps;
    }
    double worst = 0;
    int checked = 0;
    for (const auto& [at_ps, window] : windows) {
        const double t_s = double(at_ps - epoch_ps) * 1e-12;
        if (t_s < 1 || t_s > 2 * k_s) continue;
        ++checked;
        worst = std::max(worst, std::abs(window / (c * std::pow(t_s - k_s, 3) + peak) - 1));
    }
    CHECK(checked > 1000);
    CHECK(worst < 0.02);
}

TEST_CASE("cubic: fast convergence and the Reno-friendly region") {
    TcpWindowSettings settings;
    settings.initial_packets = 100;
    TcpWindow window(settings);
    window.lose();
    CHECK(window.packets() == doctest::Approx(70));
    // On a round trip of 100 µs Reno is faster than the curve: 3(1-β)/(1+β) a round trip until 100, then 1.
    const std::int64_t rtt_ps = 100 * us;
    std::int64_t now_ps = 0;
    int rounds = 0;
    for (; window.packets() < 99.5; ++rounds, now_ps += rtt_ps) {
        window.grow(static_cast<std::uint32_t>(window.packets()), now_ps, rtt_ps);
    }
    CHECK(rounds == doctest::Approx(29.5 / (3 * 0.3 / 1.7)).epsilon(0.03));
    for (int i = 0; i < 100; ++i, now_ps += rtt_ps) {
        window.grow(static_cast<std::uint32_t>(window.packets()), now_ps, rtt_ps);
    }
    CHECK(window.packets() == doctest::Approx(200).epsilon(0.03));
    // A loss below the last plateau gives way: the next plateau is (1 + β) / 2 of the window, not the window.
    TcpWindow falling(settings);
    falling.lose();  // at 100, now 70
    falling.lose();  // at 70: plateau 59.5, now 49
    settings.reno_friendly = false;
    now_ps = 0;
    falling.grow(1, now_ps, 0);
    const double k_s = std::cbrt((59.5 - 49) / 0.4);
    for (int i = 0; i < 2000; ++i) {
        now_ps += static_cast<std::int64_t>(k_s * 1e12 / 2000);
        falling.grow(49, now_ps, 0);
    }
    CHECK(falling.packets() == doctest::Approx(59.5).epsilon(0.01));
}

TEST_CASE("dctcp: alpha is the fraction of marks, the window falls by half of it") {
    TcpWindowSettings settings;
    settings.congestion = TcpCongestion::dctcp;
    settings.initial_packets = 100;
    TcpWindow window(settings);
    CHECK(window.dctcp_alpha() == 1);
    for (int round = 0; round < 200; ++round) {
        window.count(75, false);
        window.count(25, true);
        window.end_round();
    }
    CHECK(window.dctcp_alpha() == doctest::Approx(0.25).epsilon(0.001));
    window.mark();
    CHECK(window.packets() == doctest::Approx(100 * (1 - 0.125)).epsilon(0.001));
    // One round of none: (1 - g) of it is left.
    window.count(100, false);
    window.end_round();
    CHECK(window.dctcp_alpha() == doctest::Approx(0.25 * 15 / 16).epsilon(0.001));
}

TEST_CASE("dctcp: at most one reduction per round trip") {
    Path path = quick_path(TcpCongestion::dctcp);
    path.receiver_settings.per_state_echo = true;
    path.segments = 5000;
    path.transmit_ps = 10'000;
    path.sender_settings.window.initial_packets = 64;
    path.mark = [](std::uint64_t, std::int64_t) { return true; };  // all
    double last = 64;
    std::vector<std::int64_t> reductions;
    path.watch = [&](std::int64_t now_ps, const TcpSender& sender) {
        if (sender.window_packets() < last - 0.5) reductions.push_back(now_ps);
        last = sender.window_packets();
    };
    (void)path.run();
    REQUIRE(reductions.size() >= 4);
    for (std::size_t i = 1; i < reductions.size(); ++i) CHECK(reductions[i] - reductions[i - 1] >= path.rtt_ps());
    CHECK(last <= 3);
}

TEST_CASE("hystart: slow start ends when the queue delays, before a loss") {
    const auto window_after = [](bool hystart) {
        Path path = quick_path();
        path.segments = 8000;
        path.transmit_ps = 10'000;
        path.bottleneck_ps = 1 * us;  // 100 segments fill the path; more queue
        path.sender_settings.window.hystart = hystart;
        path.sender_settings.window.hystart_min_ps = 10 * us;
        path.sender_settings.window.hystart_max_ps = 50 * us;
        const TcpSender sender = path.run();
        CHECK(sender.path().window.slow_start() == !hystart);
        return sender.window_packets();
    };
    CHECK(window_after(false) > 7000);
    CHECK(window_after(true) < 1500);
}

TEST_CASE("tcp: pacing spreads a window over the round trip") {
    Path path = quick_path();
    path.segments = 100;
    path.transmit_ps = 1000;
    path.sender_settings.pacing = true;
    path.sender_settings.window.initial_packets = 20;
    (void)path.run();
    // In slow start at twice the window per round trip.
    CHECK(path.sent[19].first == doctest::Approx(19 * double(path.rtt_ps()) / 40).epsilon(0.05));
}
