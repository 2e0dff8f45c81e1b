// The software switch's queues and lines, on a virtual clock: who is served, marked, cut and dropped.
#include <doctest/doctest.h>

#include <array>

#include "softswitch_bench.hpp"

using namespace dlcp;
using namespace dlcp::softswitch;
using namespace dlcp::softswitch::bench;
using switching::critical_level;
using switching::never;

namespace {

constexpr std::uint64_t rate_bps = 100'000'000;
constexpr std::uint64_t far = 0x020000000002;

// Two ports, and the receiver's address is known behind port 1.
Configuration to_port_1(const switching::Policy& policy = {}) {
    Configuration out = plain(2, rate_bps);
    out.ports[0].policy = out.ports[1].policy = policy;
    out.addresses = {{far, {1, false}}};
    return out;
}

// How long the line is busy with the frame.
Time time_of(const std::vector<std::uint8_t>& frame) { return transmit_time(frame.size() + 24, rate_bps); }

switching::Policy buffer_of(std::uint32_t bytes) {
    switching::Policy policy;
    policy.port_bytes = bytes;
    return policy;
}

}  // namespace

TEST_CASE("softswitch: at twice the line's rate in four classes, two are delivered whole and two hardly at all") {
    switching::Policy policy;
    // Each class may hold 64 kB, so what is served last does not keep the others out.
    for (auto& of_class : policy.classes)
        for (auto& level : of_class.level) level.drop_above_bytes = 64'000;
    VirtualSwitch sw(to_port_1(policy));
    std::array<Made, 4> made;
    for (unsigned c = 0; c < 4; ++c) made[c].dscp = 8 * (c + 1);
    const Time period = 2 * time_of(made[0].bytes());  // each class sends half of the line's rate
    constexpr int rounds = 20'000;
    for (int i = 0; i < rounds; ++i)
        for (unsigned c = 0; c < 4; ++c) sw.handle(0, made[c].bytes(), i * period + period * c / 4);
    const auto& sent = sw.core.counters(1).sent;
    CHECK(sent[4].packets >= rounds - 1);   // the last may be behind a lower one on the line
    CHECK(sent[3].packets >= rounds - 10);  // a few wait
    CHECK(sw.core.counters(1).dropped[3] == 0);
    CHECK(sent[2].packets < rounds * 0.01);
    CHECK(sent[1].packets < rounds * 0.01);
    CHECK(sw.core.counters(1).dropped[1] > rounds * 0.98);
}

TEST_CASE("softswitch: in one class at 1.3 of the rate, what is droppable takes the whole loss") {
    switching::Policy policy = buffer_of(400'000);
    auto& levels = policy.classes[3].level;
    for (std::size_t i = 0; i < 8; ++i)
        levels[i].drop_above_bytes = 50'000 + 10'000 * static_cast<std::uint32_t>(i);
    levels[critical_level].mark_from_bytes = levels[critical_level].mark_full_bytes = 30'000;
    VirtualSwitch sw(to_port_1(policy));
    Made made;
    made.dscp = 24;
    const Time gap = time_of(made.bytes()) * 10 / 13;
    constexpr int packets = 50'000;
    int critical = 0;
    for (int i = 0; i < packets; ++i) {
        const bool is_critical = i % 10 == 0;
        critical += is_critical;
        made.ecn = is_critical ? 2 : 0;
        made.importance = is_critical ? 255 : static_cast<unsigned>(i * 31 % 255);
        sw.handle(0, made.bytes(), i * gap);
    }
    sw.drain();
    const auto& of_level = sw.core.counters(1).decisions[3];
    const auto dropped = [&](std::size_t level) {
        return of_level[level][static_cast<std::size_t>(Fate::dropped_threshold)].packets;
    };
    CHECK(dropped(critical_level) == 0);
    CHECK(sw.fate(1, Fate::dropped_buffer) == 0);
    // 0.3 of 1.3 is too much; it comes from the least important.
    std::uint64_t lost = 0;
    for (std::size_t level = 0; level < 8; ++level) lost += dropped(level);
    CHECK(static_cast<double>(lost) / packets == doctest::Approx(0.3 / 1.3).epsilon(0.02));
    CHECK(dropped(0) > 0.9 * packets * 0.9 * 32 / 255);
    CHECK(dropped(4) == 0);
    CHECK(of_level[critical_level][static_cast<std::size_t>(Fate::marked)].packets > 0.9 * critical);
    CHECK(sw.sent_packets(1) == packets - lost);
}

TEST_CASE("softswitch: a frame leaves when the line is free of the one before, however late it is looked") {
    VirtualSwitch sw(to_port_1());
    Made made;
    const Time each = time_of(made.bytes());
    for (std::uint32_t i = 0; i < 200; ++i) {
        made.number = i;
        sw.handle(0, made.bytes(), 1us * i);
    }
    sw.advance(1s);  // all at once, long after
    REQUIRE(sw.sent[1].size() == 200);
    for (std::uint32_t i = 0; i < 200; ++i) {
        CHECK(sw.sent[1][i].number() == i);
        CHECK(sw.sent[1][i].at == i * each);
    }
    // The line has been idle: what comes now leaves now.
    sw.handle(0, made.bytes(), 2s);
    CHECK(sw.sent[1].back().at == 2s);
    // The frame on the line does not wait, the other 199 did at most.
    CHECK(sw.core.queues(1).bytes_max() == 199 * made.bytes().size() - (200us / each) * made.bytes().size());
}

TEST_CASE("softswitch: a port without a rate hands over as much as is taken, and queues the rest") {
    Configuration configuration = to_port_1();
    configuration.ports[1].rate_bps = 0;
    Settings settings;
    settings.frame_bytes = {1518, 1518};
    Core core(settings, configuration);
    const auto frame = Made{}.bytes();
    for (int i = 0; i < 100; ++i) core.handle_frame(0, frame, 1us * i);
    CHECK(core.departures(1).size() == batch_frames);
    CHECK(core.wants_sending());
    CHECK(core.queues(1).bytes() == (100 - batch_frames) * frame.size());
    core.departed(1, 10);
    CHECK(core.departures(1).size() == batch_frames);
    core.departed(1, batch_frames);
    core.departed(1, core.departures(1).size());
    CHECK(core.queues(1).empty());
    CHECK(core.frames_used() == 0);
    CHECK(core.counters(1).sent[0].packets == 100);
}

TEST_CASE("softswitch: marks are set above the threshold only, and headers stay sound") {
    switching::Policy policy;
    auto& critical = policy.classes[2].level[critical_level];
    critical.mark_from_bytes = critical.mark_full_bytes = 10'000;
    for (const bool ipv6 : {false, true}) {
        CAPTURE(ipv6);
        VirtualSwitch sw(to_port_1(policy));
        Made made;
        made.dscp = 16;
        made.ecn = 2;
        made.ipv6 = ipv6;
        for (std::uint32_t i = 0; i < 40; ++i) {
            made.number = i;
            sw.handle(0, made.bytes(), 0s);
        }
        sw.drain();
        REQUIRE(sw.sent[1].size() == 40);
        const std::size_t size = made.bytes().size();
        for (const Sent& frame : sw.sent[1]) {
            // Frame 0 is on the line; before frame i wait i - 1.
            const bool deep = frame.number() > 0 && (frame.number() - 1) * size > 10'000;
            CHECK(frame.ecn() == (deep ? 3 : 2));
            if (!ipv6) CHECK(Made::complement_sum(frame.bytes, 14, 34) == 0xffff);
        }
        CHECK(sw.fate(1, Fate::marked) > 20);
    }
}

TEST_CASE("softswitch: a cut packet overtakes, and is a sound packet of its flow") {
    switching::Policy policy;
    for (auto& level : policy.classes[2].level) level.trim_above_bytes = 10'000;
    policy.trimmed_class = 7;
    Configuration configuration = to_port_1(policy);
    configuration.classification.trimmed_dscp = 56;
    for (const bool ipv6 : {false, true}) {
        CAPTURE(ipv6);
        VirtualSwitch sw(configuration);
        Made made;
        made.dscp = 16;
        made.ipv6 = ipv6;
        const switching::Frame whole = switching::read_frame(made.bytes(), configuration.classification);
        for (std::uint32_t i = 0; i < 40; ++i) {
            made.number = i;
            sw.handle(0, made.bytes(), 0s);
        }
        sw.drain();
        REQUIRE(sw.sent[1].size() == 40);
        std::size_t trimmed = 0;
        for (std::size_t i = 0; i < 40; ++i) {
            const Sent& frame = sw.sent[1][i];
            if (!frame.trimmed()) continue;
            ++trimmed;
            CHECK(i == trimmed);  // behind the one that was on the line, before all others
            CHECK(frame.bytes.size() == (ipv6 ? 126 : 106));
            CHECK(frame.dscp() == 56);
            const switching::Frame again = switching::read_frame(frame.bytes, configuration.classification);
            CHECK(again.flow == whole.flow);
            CHECK(again.dlcp_offset == whole.dlcp_offset);
            if (ipv6) {
                // UDP's sum over pseudo header and packet: RFC 8200, 8.1.
                const unsigned pseudo = Made::complement_sum(frame.bytes, 22, 54, 72 + 17);
                CHECK(Made::complement_sum(frame.bytes, 54, 126, pseudo) == 0xffff);
            } else {
                CHECK(Made::complement_sum(frame.bytes, 14, 34) == 0xffff);
            }
        }
        CHECK(trimmed > 20);
        CHECK(sw.fate(1, Fate::trimmed) == trimmed);
    }
}

TEST_CASE("softswitch: of trimmed packets a bounded run leaves while others wait") {
    switching::Policy policy;
    for (auto& level : policy.classes[2].level) level.trim_above_bytes = 10'000;
    policy.trimmed_run_packets = 3;
    VirtualSwitch sw(to_port_1(policy));
    Made made;
    made.dscp = 16;
    for (int i = 0; i < 60; ++i) sw.handle(0, made.bytes(), 0s);
    sw.drain();
    std::string order;
    for (const Sent& frame : sw.sent[1]) order += frame.trimmed() ? 't' : 'w';
    CHECK(order.substr(0, 13) == "wtttwtttwtttw");
}

TEST_CASE("softswitch: where the buffer ends, foreign frames are dropped as well, and only there") {
    VirtualSwitch sw(to_port_1(buffer_of(10'000)));
    Made foreign;
    foreign.dscp = 3;  // of no class
    foreign.ecn = 1;
    const auto frame = foreign.bytes();
    for (int i = 0; i < 20; ++i) sw.handle(0, frame, 0s);
    sw.drain();
    const std::size_t fit = 1 + 10'000 / frame.size();
    REQUIRE(sw.sent[1].size() == fit);
    for (const Sent& sent : sw.sent[1]) CHECK(sent.bytes == frame);
    CHECK(sw.fate(1, Fate::dropped_buffer) == 20 - fit);
    CHECK(sw.core.counters(1).decisions[0][foreign_level][0].packets == fit);
}

TEST_CASE("softswitch: queues of all ports share a buffer by dynamic thresholds") {
    switching::Policy policy;
    policy.shared_bytes = 90'000;
    policy.shared_alpha_log2 = 0;
    Configuration configuration = plain(3, rate_bps);
    for (PortConfiguration& port : configuration.ports) port.policy = policy;
    configuration.addresses = {{far, {1, false}}, {far + 1, {2, false}}};
    VirtualSwitch sw(configuration);
    Made made;
    made.type = 2;  // control: what has no room is not cut
    const std::size_t size = made.bytes().size();
    for (int i = 0; i < 200; ++i) sw.handle(0, made.bytes(), 0s);
    // One queue may take as much as it leaves: half of all.
    CHECK(sw.core.queues(1).bytes() == doctest::Approx(45'000).epsilon(1.5 * static_cast<double>(size) / 45'000));
    made.destination = far + 1;
    for (int i = 0; i < 200; ++i) sw.handle(0, made.bytes(), 0s);
    CHECK(sw.core.queues(2).bytes() == doctest::Approx(22'500).epsilon(1.5 * static_cast<double>(size) / 22'500));
    sw.drain();
    // All of it is free again: the first queue may take half once more.
    made.destination = far;
    const Time later = sw.core.now();
    for (int i = 0; i < 200; ++i) sw.handle(0, made.bytes(), later);
    CHECK(sw.core.queues(1).bytes() > 45'000 - 2 * size);
}

TEST_CASE("softswitch: with no frame memory left, frames are dropped and counted, and nothing breaks") {
    Settings settings;
    settings.frames = 50;
    VirtualSwitch sw(to_port_1(), settings);
    for (int i = 0; i < 200; ++i) sw.handle(0, Made{}.bytes(), 0s);
    CHECK(sw.fate(1, Fate::dropped_memory) == 200 - 51);  // one is through already
    sw.drain();
    CHECK(sw.sent[1].size() == 51);
    CHECK(sw.core.frames_used() == 0);
}

TEST_CASE("softswitch: a line keeps its rate to the nanosecond, also where a frame is none of whole ones") {
    for (const std::uint64_t rate : {10'000'000'000ULL, 7'777'777'777ULL, 400'000'000'000ULL, 9'999'999ULL}) {
        CAPTURE(rate);
        Configuration configuration = to_port_1();
        configuration.ports[1].rate_bps = rate;
        VirtualSwitch sw(configuration);
        const auto frame = Made{.payload_bytes = 1}.bytes();
        constexpr int frames = 10'000;
        for (int i = 0; i < frames; ++i) sw.handle(0, frame, 0s);
        sw.drain();
        REQUIRE(sw.sent[1].size() == frames);
        CHECK(sw.sent[1].back().at == transmit_time((frame.size() + 24) * (frames - 1), rate));
    }
}

TEST_CASE("softswitch: what an interface kept waiting leaves at the line's rate afterwards") {
    Settings settings;
    settings.frame_bytes = {1518, 1518};
    Core core(settings, to_port_1());
    const auto frame = Made{}.bytes();
    for (int i = 0; i < 300; ++i) core.handle_frame(0, frame, 0s);
    core.advance(1s);
    REQUIRE(core.departures(1).size() == batch_frames);
    core.departed(1, 0);  // blocked
    core.advance(2s);
    core.departed(1, batch_frames);
    core.advance(2s);
    CHECK(core.departures(1).size() == 1);
    core.advance(2s + 10 * time_of(frame));
    CHECK(core.departures(1).size() == 11);
}

TEST_CASE("softswitch: no more memory of frames than depths can count") {
    Settings settings;
    settings.frame_bytes = {9'018, 1518};
    settings.frames = 1 << 20;
    CHECK_THROWS_WITH_AS(Core(settings, to_port_1()),
                         "frames is 1048576; accepted: 1 to 476266, of 9018 bytes each", std::invalid_argument);
}

TEST_CASE("softswitch: a port that gets a rate does not make up for the time before it had one") {
    Configuration configuration = to_port_1();
    configuration.ports[1].rate_bps = 0;
    Settings settings;
    settings.frame_bytes = {1518, 1518};
    Core core(settings, configuration);
    for (int i = 0; i < 300; ++i) core.handle_frame(0, Made{}.bytes(), 0s);
    core.advance(5s);
    REQUIRE(core.configure(to_port_1()) == "");
    core.departed(1, batch_frames);
    core.advance(5s);
    CHECK(core.departures(1).size() == 1);
}

TEST_CASE("softswitch: after a long silence no more samples are made good than are kept") {
    Settings settings;
    settings.samples = 100;
    VirtualSwitch sw(to_port_1(), settings);
    sw.core.sample_every(1ms);
    sw.advance(10ms);
    sw.advance(1000s + 500us);
    const auto samples = sw.core.samples().since(0, 1'000);
    REQUIRE(samples.size() == 100);
    CHECK(samples.back().at == 1000s);
    CHECK(samples.back().index < 300);
}
