// The software switch while it is changed: policies, faults, rates; and that no frame is unaccounted for.
#include <doctest/doctest.h>

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <system_error>

#include "softswitch/capture.hpp"
#include "softswitch_bench.hpp"

using namespace dlcp;
using namespace dlcp::softswitch;
using namespace dlcp::softswitch::bench;

namespace {

constexpr std::uint64_t rate_bps = 100'000'000;
constexpr std::uint64_t far = 0x020000000002;

Configuration to_port_1() {
    Configuration out = plain(2, rate_bps);
    out.addresses = {{far, {1, false}}};
    return out;
}

}  // namespace

TEST_CASE("softswitch: another policy holds from the next frame on, and what waits stays") {
    VirtualSwitch sw(to_port_1());
    Made made;
    made.dscp = 16;
    made.type = 2;
    for (int i = 0; i < 50; ++i) sw.handle(0, made.bytes(), 0s);
    Configuration strict = to_port_1();
    for (auto& level : strict.ports[1].policy.classes[2].level) level.drop_above_bytes = 1'000;
    REQUIRE(sw.core.configure(strict) == "");
    Made foreign = made;
    foreign.dscp = 1;
    for (int i = 0; i < 50; ++i) {
        sw.handle(0, made.bytes(), 0s);
        sw.handle(0, foreign.bytes(), 0s);
    }
    sw.drain();
    CHECK(sw.core.counters(1).sent[2].packets == 50);
    CHECK(sw.fate(1, Fate::dropped_threshold) == 50);
    CHECK(sw.core.counters(1).sent[0].packets == 50);
    CHECK(sw.core.counters(1).dropped[0] == 0);
}

TEST_CASE("softswitch: a configuration that cannot be is refused, and the old one stays") {
    VirtualSwitch sw(to_port_1());
    const auto complaint = [&](auto change) {
        Configuration wrong = to_port_1();
        change(wrong);
        return sw.core.configure(wrong);
    };
    CHECK(complaint([](Configuration& c) { c.ports.pop_back(); }) == "1 ports are configured; accepted: 2");
    CHECK(complaint([](Configuration& c) { c.groups = {{0, 7}}; }) == "group 0 names port 7; accepted: 0 to 1");
    CHECK(complaint([](Configuration& c) {
              c.groups = {{0}, {0}};
          }) == "port 0 is in two groups; accepted: one at most");
    CHECK(complaint([](Configuration& c) { c.groups = {{}}; }) == "group 0 has no ports; accepted: at least one");
    CHECK(complaint([](Configuration& c) {
              c.addresses = {{far, {0, true}}};
          }) == "an address lies behind group 0, which is not there");
    CHECK(complaint([](Configuration& c) { c.ports[1].policy.pause_above_bytes = 5; }).find("pause") !=
          std::string::npos);
    CHECK(complaint([](Configuration& c) { c.ports[0].policy.trimmed_class = 9; }) ==
          "port 0: trimmed_class is 9; accepted: 0 to 7");
    CHECK(sw.core.configuration().groups.empty());
    CHECK_THROWS_AS(VirtualSwitch(Configuration{}), std::invalid_argument);
}

TEST_CASE("softswitch: a line goes on at its new rate") {
    VirtualSwitch sw(to_port_1());
    const auto frame = Made{}.bytes();
    for (int i = 0; i < 100; ++i) sw.handle(0, frame, 0s);
    // Ten times slower, by a fault: the rest of the queue takes ten times as long.
    Faults slow;
    slow.rate_bps = rate_bps / 10;
    sw.core.set_faults(1, true, slow);
    sw.advance(transmit_time(frame.size() + 24, rate_bps) * 101);
    CHECK(sw.sent[1].size() < 13);
    sw.core.set_faults(1, true, {});
    sw.advance(sw.core.now() + transmit_time(frame.size() + 24, rate_bps) * 100);
    CHECK(sw.sent[1].size() == 100);
    // Without a rate what waits leaves at once.
    for (int i = 0; i < 50; ++i) sw.handle(0, frame, sw.core.now());
    Configuration open = to_port_1();
    open.ports[1].rate_bps = 0;
    REQUIRE(sw.core.configure(open) == "");
    sw.advance(sw.core.now());
    CHECK(sw.sent[1].size() == 150);
}

TEST_CASE("softswitch: loss and bursts are as asked, and the same seed loses the same") {
    const auto lost = [](double ratio, double burst, std::uint64_t seed) {
        Configuration configuration = to_port_1();
        configuration.ports[1].rate_bps = 0;
        VirtualSwitch sw(configuration);
        sw.core.set_faults(1, true, {.loss_ratio = ratio, .burst_packets = burst, .seed = seed});
        Made made;
        made.payload_bytes = 10;
        std::vector<bool> out(50'000, true);
        for (std::uint32_t i = 0; i < out.size(); ++i) {
            made.number = i;
            sw.handle(0, made.bytes(), 1us * i);
        }
        for (const Sent& sent : sw.sent[1]) out[sent.number()] = false;
        CHECK(sw.core.counters(1).losses.fault_out + sw.sent[1].size() == out.size());
        return out;
    };
    const auto share = [](const std::vector<bool>& out) {
        return static_cast<double>(std::count(out.begin(), out.end(), true)) / static_cast<double>(out.size());
    };
    const auto mean_burst = [](const std::vector<bool>& out) {
        int bursts = 0;
        for (std::size_t i = 1; i < out.size(); ++i) bursts += out[i] && !out[i - 1];
        return static_cast<double>(std::count(out.begin(), out.end(), true)) / bursts;
    };
    const auto single = lost(0.05, 0, 1);
    CHECK(share(single) == doctest::Approx(0.05).epsilon(0.1));
    CHECK(mean_burst(single) == doctest::Approx(1 / 0.95).epsilon(0.05));
    const auto bursts = lost(0.05, 8, 1);
    CHECK(share(bursts) == doctest::Approx(0.05).epsilon(0.25));
    CHECK(mean_burst(bursts) == doctest::Approx(8).epsilon(0.2));
    CHECK(bursts == lost(0.05, 8, 1));
    CHECK(bursts != lost(0.05, 8, 2));
    CHECK(share(lost(1, 0, 1)) == 1);
}

TEST_CASE("softswitch: faults of what comes in, and a cut") {
    VirtualSwitch sw(to_port_1());
    sw.core.set_faults(0, false, {.down = true});
    for (int i = 0; i < 10; ++i) sw.handle(0, Made{}.bytes(), 0s);
    CHECK(sw.core.counters(0).losses.fault_in == 10);
    sw.core.set_faults(0, false, {});
    sw.handle(0, Made{}.bytes(), 0s);
    CHECK(sw.sent[1].size() == 1);
    CHECK(Faults{.loss_ratio = 1.5}.validate() == "loss_ratio is 1.500000; accepted: 0 to 1");
    CHECK(Faults{.burst_packets = 0.5}.validate() == "burst_packets is 0.500000; accepted: 0, or 1 to 1000000000");
}

TEST_CASE("softswitch: samples follow the queue at their times") {
    VirtualSwitch sw(to_port_1());
    const auto frame = Made{}.bytes();
    const Time each = transmit_time(frame.size() + 24, rate_bps);
    sw.core.sample_every(10 * each);
    for (int i = 0; i < 100; ++i) sw.handle(0, frame, 0s);
    sw.advance(100 * each);
    const auto samples = sw.core.samples().since(0, 1'000);
    REQUIRE(samples.size() == 20);  // of two ports
    for (const Sample& sample : samples) {
        if (sample.port != 1) continue;
        // At k times ten frames' time, ten k are through and one more is on the line.
        const auto through = static_cast<std::uint64_t>(sample.at / each) + 1;
        CHECK(sample.waiting_bytes[0] == (through >= 100 ? 0 : (100 - through) * frame.size()));
    }
    CHECK(sw.core.samples().since(15, 3).front().index == 15);
}

TEST_CASE("softswitch: property: what comes in is sent, counted as dropped, or waits") {
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        const auto draw = [&](std::uint64_t n) { return random() % n; };
        Configuration configuration = plain(5, 0);
        configuration.groups = {{3, 4}};
        for (std::uint16_t i = 0; i < 5; ++i)
            configuration.addresses.push_back({0x020000000000 + i, i < 3 ? Target{i, false} : Target{0, true}});
        const auto shuffle_policies = [&] {
            const auto choice = static_cast<switching::PathChoice>(draw(5));
            const std::uint32_t shared = draw(3) == 0 ? static_cast<std::uint32_t>(20'000 + draw(80'000)) : 0;
            for (PortConfiguration& port : configuration.ports) {
                port.rate_bps = draw(4) == 0 ? 0 : 5'000'000 + draw(200'000'000);
                port.policy = {};
                port.policy.path_choice = choice;
                port.policy.shared_bytes = shared;
                if (shared == 0) port.policy.port_bytes = static_cast<std::uint32_t>(5'000 + draw(100'000));
                port.policy.trimmed_run_packets = static_cast<std::uint8_t>(draw(4));
                for (auto& of_class : port.policy.classes) {
                    std::uint32_t drop = static_cast<std::uint32_t>(draw(30'000));
                    for (auto& level : of_class.level) {
                        level.drop_above_bytes = drop += static_cast<std::uint32_t>(draw(5'000));
                        level.trim_above_bytes = drop / 2;
                        level.mark_from_bytes = level.mark_full_bytes = drop / 3;
                    }
                }
            }
        };
        shuffle_policies();
        Settings settings;
        settings.frames = static_cast<std::uint32_t>(20 + draw(300));
        settings.seed = seed;
        VirtualSwitch sw(configuration, settings);
        sw.keep = false;
        const auto copies = [&] {
            std::uint64_t packets = 0;
            for (std::uint32_t p = 0; p < 5; ++p) packets += sw.offered(p);
            return packets;
        };
        const auto filtered = [&] {
            std::uint64_t packets = 0;
            for (std::uint32_t p = 0; p < 5; ++p) {
                const Losses& l = sw.core.counters(p).losses;
                packets += l.malformed + l.oversize + l.same_port + l.reserved + l.no_port + l.fault_in;
            }
            return packets;
        };
        std::uint64_t in = 0, used_max = 0;
        Time now{};
        for (int i = 0; i < 8'000; ++i) {
            now += Time(draw(60'000));
            if (draw(500) == 0) {
                shuffle_policies();
                REQUIRE(sw.core.configure(configuration) == "");
            }
            if (draw(700) == 0)
                sw.core.set_faults(static_cast<std::uint32_t>(draw(5)), draw(2) == 0,
                                   {.loss_ratio = draw(2) == 0 ? 0 : 0.2, .rate_bps = draw(2) * 3'000'000});
            if (draw(700) == 0) sw.core.set_link(static_cast<std::uint32_t>(3 + draw(2)), draw(2) == 0);
            Made made;
            const auto port = static_cast<std::uint32_t>(draw(5));
            made.source = 0x020000000000 + port;
            made.destination = draw(20) == 0 ? 0xffffffffffff : 0x020000000000 + draw(5);
            made.dscp = static_cast<unsigned>(draw(8) * 8 + (draw(9) == 0));
            made.ecn = static_cast<unsigned>(draw(4));
            made.ipv6 = draw(2) == 0;
            made.type = draw(4) == 0 ? 2 : 1;
            made.importance = static_cast<unsigned>(draw(255));
            made.payload_bytes = static_cast<std::uint32_t>(draw(1'300));
            auto bytes = made.bytes();
            if (draw(30) == 0) bytes.resize(draw(bytes.size()));
            const std::uint64_t copies_before = copies(), filtered_before = filtered();
            sw.handle(port, bytes, now);
            ++in;
            // Filtered, or offered to just the ports that it is for.
            const std::uint64_t copied = copies() - copies_before, dropped = filtered() - filtered_before;
            const bool to_all = made.destination == 0xffffffffffff;
            const bool from_group = port >= 3;
            const std::uint64_t others = from_group ? 3 : 2 + (sw.core.link(3) || sw.core.link(4) ? 1 : 0);
            REQUIRE(copied == (dropped == 1 ? 0 : to_all ? others : 1));
            used_max = std::max<std::uint64_t>(used_max, sw.core.frames_used());
        }
        std::uint64_t received = 0, joined = 0, sent = 0, lost_out = 0;
        const auto count = [&] {
            received = joined = sent = lost_out = 0;
            for (std::uint32_t p = 0; p < 5; ++p) {
                const PortCounters& counters = sw.core.counters(p);
                received += counters.received.packets;
                joined += sw.fate(p, Fate::kept) + sw.fate(p, Fate::marked) + sw.fate(p, Fate::trimmed);
                sent += sw.sent_packets(p);
                lost_out += counters.losses.fault_out;
            }
        };
        count();
        CHECK(received == in);
        CHECK(joined == sent + lost_out + sw.core.frames_used());
        CHECK(used_max <= settings.frames);
        sw.drain();
        count();
        CHECK(joined == sent + lost_out);
        CHECK(sw.core.frames_used() == 0);
        for (std::uint32_t p = 0; p < 5; ++p) CHECK(sw.core.queues(p).bytes() == 0);
    }
}

TEST_CASE("softswitch: the same frames and the same seed meet the same fate") {
    const auto run = [](std::uint64_t seed) {
        Configuration configuration = to_port_1();
        for (auto& level : configuration.ports[1].policy.classes[2].level) {
            level.mark_from_bytes = 5'000;
            level.mark_full_bytes = 100'000;
        }
        Settings settings;
        settings.seed = seed;
        VirtualSwitch sw(configuration, settings);
        Made made;
        made.dscp = 16;
        made.ecn = 1;
        for (int i = 0; i < 500; ++i) sw.handle(0, made.bytes(), 60us * i);
        sw.drain();
        std::string out;
        for (const Sent& sent : sw.sent[1]) out += static_cast<char>('0' + sent.ecn());
        return out;
    };
    CHECK(run(1) == run(1));
    CHECK(run(1) != run(2));
}

TEST_CASE("softswitch: a capture is a pcap file of nanoseconds") {
    const std::string path = "/tmp/dlcp-" + std::to_string(getpid()) + ".pcap";
    const auto frame = Made{}.bytes();
    {
        Capture capture(path);
        capture.write(frame, 3s + 7ns);
    }
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> read((std::istreambuf_iterator<char>(file)), {});
    std::remove(path.c_str());
    REQUIRE(read.size() == 24 + 16 + frame.size());
    std::array<std::uint32_t, 10> words{};
    std::memcpy(words.data(), read.data(), 40);
    CHECK(words[0] == 0xa1b23c4d);
    CHECK(words[5] == 1);
    CHECK(words[6] == 3);
    CHECK(words[7] == 7);
    CHECK(words[8] == frame.size());
    CHECK(std::equal(frame.begin(), frame.end(), read.begin() + 40,
                     [](std::uint8_t a, char b) { return a == static_cast<std::uint8_t>(b); }));
    CHECK_THROWS_AS(Capture("/nowhere/at/all"), std::system_error);
}
