// The software switch adds: contributions go in by three ports, and the sum leaves by them; the rest is forwarded.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "softswitch_bench.hpp"
#include "support/native/vectors.hpp"

using namespace dlcp;
using namespace dlcp::softswitch;
using namespace dlcp::softswitch::bench;

namespace {

switching::Participant participant(std::uint16_t port) {
    return {port, 0x020000000000U + port, 0x0a000000U + port, 0xd1c5};
}

// Job 7 of the golden vectors, at ports 1 to 3 of five; its hub behind port 4, or the switch itself.
Configuration adding(bool hub_is_here = false) {
    Configuration out = plain(5, 1'000'000'000);
    switching::AggregationJob job{.job = 7, .generation = 1, .slots = 4};
    job.workers = {participant(1), participant(2), participant(3)};
    job.hub = participant(4);
    job.hub_is_here = hub_is_here;
    out.aggregation = {job};
    for (std::uint16_t port = 1; port <= 4; ++port)
        out.addresses.push_back({participant(port).mac, {port, false}});
    return out;
}

// Puts frames of the vectors in, up to the one of this name, and answers what the last one's ports should have sent.
std::vector<std::string> play(VirtualSwitch& sw, const std::string& until) {
    Time at = 1us;
    for (const auto& record : vectors::load("aggregation.txt")) {
        for (auto& frames : sw.sent) frames.clear();
        sw.handle(static_cast<std::uint32_t>(record.number("port")), record.bytes("bytes"), at += 1ms);
        sw.advance(at + 100us);
        if (record.text("name") == until) return record.all("out");
    }
    FAIL("no such record: " << until);
    return {};
}

std::vector<std::string> sent(const VirtualSwitch& sw) {
    std::vector<std::string> out;
    for (std::size_t port = 0; port < sw.sent.size(); ++port)
        for (const Sent& frame : sw.sent[port])
            out.push_back(std::to_string(port) + " " + vectors::hex(frame.bytes.data(), frame.bytes.size()));
    return out;
}

}  // namespace

TEST_CASE("softswitch: results leave by every worker's port, and what cannot be taken by the hub's") {
    for (const char* name :
         {"second", "last: result for all", "late: result for its sender", "another exponent"}) {
        CAPTURE(name);
        VirtualSwitch sw(adding());
        const std::vector<std::string> expected = play(sw, name);
        CHECK(sent(sw) == expected);
    }
}

TEST_CASE("softswitch: another configuration of the same jobs keeps their sums, another generation does not") {
    VirtualSwitch sw(adding());
    play(sw, "another operation");  // two of three are in
    Configuration other = adding();
    other.ports[0].rate_bps = 1'000'000;
    REQUIRE(sw.core.configure(other).empty());
    const std::vector<std::uint8_t> last = [] {
        for (const auto& record : vectors::load("aggregation.txt"))
            if (record.text("name") == "last: result for all") return record.bytes("bytes");
        return std::vector<std::uint8_t>{};
    }();
    for (auto& frames : sw.sent) frames.clear();
    sw.handle(3, last, 1s);
    sw.advance(2s);
    CHECK(sent(sw).size() == 3);
    other.aggregation[0].generation = 2;
    REQUIRE(sw.core.configure(other).empty());
    for (auto& frames : sw.sent) frames.clear();
    sw.handle(3, last, 3s);
    sw.advance(4s);
    CHECK(sent(sw).size() == 1);  // ordinary traffic: to the hub
    CHECK(sw.core.aggregation().foreign() == 1);
}

TEST_CASE("softswitch: what comes from the address of a hub that is the switch itself is not forwarded") {
    const auto ordinary = [] {
        for (const auto& record : vectors::load("aggregation.txt"))
            if (record.text("name") == "another exponent") return record.bytes("bytes");
        return std::vector<std::uint8_t>{};
    }();
    for (const bool forged : {false, true}) {
        CAPTURE(forged);
        VirtualSwitch sw(adding(true));
        std::vector<std::uint8_t> frame = ordinary;
        frame[5] = 2;       // to worker 1
        frame[42 + 5] = 2;  // a result
        if (forged) {
            ++frame[29];  // from 10.0.0.4, with the checksum of it
            --frame[25];
        }
        sw.handle(0, frame, 1s);
        sw.advance(2s);
        CHECK(sent(sw).size() == (forged ? 0 : 1));
        CHECK(sw.core.counters(0).losses.own_address == forged);
    }
}

TEST_CASE("softswitch: nothing is forwarded to a hub that is the switch itself") {
    VirtualSwitch sw(adding(true));
    play(sw, "another exponent");
    CHECK(sent(sw).empty());
    CHECK(sw.core.counters(3).losses.own_address == 1);
    CHECK(sw.core.aggregation().counts(0)[static_cast<std::size_t>(switching::Outcome::mismatch)] == 1);
}
