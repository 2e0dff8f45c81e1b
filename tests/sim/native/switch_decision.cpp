// The switch's decision and choice of paths against the golden vectors, and what a policy may hold.
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "support/native/vectors.hpp"
#include "switch/decision.hpp"
#include "switch/policy.hpp"

using namespace dlcp;
using namespace dlcp::switching;

namespace {

std::uint32_t bytes_of(const std::string& text) {
    return text == "never" ? never : static_cast<std::uint32_t>(std::stoul(text));
}

constexpr std::array<const char*, 5> choice_names{"flow_hash", "path_id", "random", "round_robin", "adaptive"};
constexpr std::array<const char*, 4> action_names{"keep", "mark", "trim", "drop"};

PathChoice choice_of(const std::string& text) {
    for (std::size_t i = 0; i < choice_names.size(); ++i) {
        if (text == choice_names[i]) return static_cast<PathChoice>(i);
    }
    FAIL("no such choice: ", text);
    return {};
}

std::map<std::string, Policy> load_policies() {
    std::map<std::string, Policy> out;
    for (const auto& record : vectors::load("switch_policies.txt")) {
        Policy& policy = out[record.text("name")];
        policy.path_choice = choice_of(record.text("path_choice"));
        policy.port_bytes = bytes_of(record.text("port_bytes"));
        const std::uint32_t shared = bytes_of(record.text("shared_bytes"));
        policy.shared_bytes = shared == never ? 0 : shared;
        policy.shared_alpha_log2 = static_cast<std::int8_t>(std::stoi(record.text("shared_alpha_log2")));
        policy.trimmed_bytes = static_cast<std::uint16_t>(record.number("trimmed_bytes"));
        policy.trimmed_class = static_cast<std::uint8_t>(record.number("trimmed_class"));
        policy.pause_above_bytes = bytes_of(record.text("pause_above_bytes"));
        policy.resume_below_bytes = static_cast<std::uint32_t>(record.number("resume_below_bytes"));
        for (const std::string& cell : record.all("cell")) {
            std::istringstream in(cell);
            std::size_t traffic_class = 0, level = 0;
            std::string mark_from, mark_full, trim, drop;
            unsigned ratio = 0;
            in >> traffic_class >> level >> mark_from >> mark_full >> ratio >> trim >> drop;
            REQUIRE(in);
            policy.classes.at(traffic_class).level.at(level) = {bytes_of(mark_from), bytes_of(mark_full),
                                                                static_cast<std::uint16_t>(ratio), bytes_of(trim),
                                                                bytes_of(drop)};
        }
        CHECK(policy.validate() == "");
    }
    return out;
}

// What validate() says of a policy that `change` has spoilt.
template <class Change>
std::string complaint(Change change) {
    Policy policy;
    change(policy);
    return policy.validate();
}

}  // namespace

TEST_CASE("switch: decisions are those of the golden vectors") {
    const auto policies = load_policies();
    std::array<int, action_names.size()> seen{};
    for (const auto& record : vectors::load("switch_decisions.txt")) {
        CAPTURE(record.text("name"));
        const auto number = [&record](const char* key) { return static_cast<std::uint32_t>(record.number(key)); };
        PacketHeaders packet;
        packet.traffic_class = static_cast<std::uint8_t>(number("traffic_class"));
        packet.importance = static_cast<std::uint8_t>(number("importance"));
        packet.ecn_capable = number("ecn_capable") != 0;
        packet.trimmable = number("trimmable") != 0;
        packet.bytes = number("bytes");
        const Depths depths{number("queue_bytes"), number("port_bytes"), number("shared_free_bytes")};
        const auto action =
            static_cast<std::size_t>(decide(policies.at(record.text("policy")), packet, depths, number("random")));
        ++seen[action];
        CHECK(record.text("expect") == action_names[action]);
    }
    for (const int count : seen) CHECK(count > 0);
}

TEST_CASE("switch: verdicts are those of the golden vectors, of foreign packets too") {
    const auto policies = load_policies();
    std::map<std::string, int> seen;
    for (const auto& record : vectors::load("switch_verdicts.txt")) {
        CAPTURE(record.text("name"));
        const auto number = [&record](const char* key) { return static_cast<std::uint32_t>(record.number(key)); };
        PacketHeaders packet;
        packet.traffic_class = static_cast<std::uint8_t>(number("traffic_class"));
        packet.importance = static_cast<std::uint8_t>(number("importance"));
        packet.ecn_capable = number("ecn_capable") != 0;
        packet.trimmable = number("trimmable") != 0;
        packet.foreign = number("foreign") != 0;
        packet.bytes = number("bytes");
        const Depths depths{number("queue_bytes"), number("port_bytes"), number("shared_free_bytes")};
        Depths trimmed_depths = depths;
        trimmed_depths.queue_bytes = number("trimmed_queue_bytes");
        const Verdict verdict = admit(policies.at(record.text("policy")), packet, depths, number("random"),
                                      number("trimmed_bytes"), trimmed_depths);
        const std::string& expect = record.text("expect");
        ++seen[expect];
        CHECK(verdict.marked == (expect == "mark"));
        CHECK(verdict.trimmed == (expect == "trim" || expect == "trim drop"));
        CHECK(verdict.dropped == (expect == "drop" || expect == "trim drop"));
    }
    CHECK(seen.size() == 5);
}

TEST_CASE("switch: paths are those of the golden vectors") {
    int records = 0;
    for (const auto& record : vectors::load("switch_paths.txt")) {
        CAPTURE(record.text("name"));
        PathInputs in;
        in.flow = static_cast<std::uint32_t>(record.number("flow"));
        in.path = static_cast<std::uint16_t>(record.number("path"));
        in.salt = static_cast<std::uint32_t>(record.number("salt"));
        in.turn = static_cast<std::uint32_t>(record.number("turn"));
        in.random = record.number("random");
        const auto paths = static_cast<std::uint32_t>(record.number("paths"));
        const PathPair pair = choose_path(choice_of(record.text("choice")), in, paths);
        CHECK(pair.first == record.number("first"));
        CHECK(pair.second == record.number("second"));
        ++records;
    }
    CHECK(records > 100);
}

TEST_CASE("switch: marks between the thresholds rise from step to step, up to the ratio") {
    Thresholds at;
    at.mark_from_bytes = 5'000;
    at.mark_full_bytes = 200'000;
    at.mark_ratio = 655;
    std::uint32_t before = 0, sum = 0;
    for (std::uint32_t depth = at.mark_from_bytes + 1; depth < at.mark_full_bytes; ++depth) {
        const std::uint32_t ratio = mark_ratio_at(at, depth);
        REQUIRE(ratio >= before);
        before = ratio;
        sum += ratio;
    }
    CHECK(before < at.mark_ratio);
    CHECK(before > at.mark_ratio * 15 / 16);
    // The mean of a straight ramp.
    CHECK(static_cast<double>(sum) / 195'000 == doctest::Approx(655 / 2.0).epsilon(0.005));
}

TEST_CASE("switch: paths of many flows, ids and switches are spread evenly") {
    for (const std::uint32_t paths : {2u, 4u, 16u}) {
        for (const PathChoice choice : {PathChoice::flow_hash, PathChoice::path_id}) {
            std::array<int, 16> by_flow{}, by_salt{};
            constexpr int draws = 16'000;
            for (std::uint32_t i = 0; i < draws; ++i) {
                PathInputs in;
                in.flow = i;
                ++by_flow[choose_path(choice, in, paths).first];
                in.flow = 7;
                in.salt = i;
                ++by_salt[choose_path(choice, in, paths).first];
            }
            const double mean = double{draws} / paths;
            // Five standard deviations of a binomial draw.
            const double tolerance = 5 * std::sqrt(mean * (1 - 1.0 / paths));
            for (std::uint32_t p = 0; p < paths; ++p) {
                CHECK(by_flow[p] == doctest::Approx(mean).epsilon(tolerance / mean));
                CHECK(by_salt[p] == doctest::Approx(mean).epsilon(tolerance / mean));
            }
        }
    }
}

TEST_CASE("switch: a policy that cannot be carried out is refused by field, value and accepted range") {
    CHECK(Policy{}.validate() == "");
    CHECK(complaint([](Policy& p) {
              p.classes[3].level[critical_level].mark_from_bytes = 100;
              p.classes[3].level[critical_level].mark_full_bytes = 99;
          }) == "class 3 critical mark_full_bytes is 99; accepted: at least mark_from_bytes, 100");
    CHECK(complaint([](Policy& p) {
              p.classes[0].level[critical_level] = {100, 100, 0, never, 99};
          }) == "class 0 critical mark_from_bytes is 100; accepted: at most drop_above_bytes, 99");
    CHECK(complaint([](Policy& p) {
              for (Thresholds& at : p.classes[7].level) at = {never, never, 0, 100, 99};
          }) == "class 7 droppable level 0 trim_above_bytes is 100; accepted: at most drop_above_bytes, 99");
    CHECK(complaint([](Policy& p) {
              p.classes[1].level[0].drop_above_bytes = 500;
              p.classes[1].level[1].drop_above_bytes = 499;
          }) ==
          "class 1 droppable level 1 drop_above_bytes is 499; accepted: at least that of the level below, 500");
    CHECK(
        complaint([](Policy& p) { p.classes[1].level[5].trim_above_bytes = 9; }) ==
        "class 1 droppable level 5 trim_above_bytes is 9; accepted: at least that of the level below, 4294967295");
    CHECK(complaint([](Policy& p) { p.path_choice = static_cast<PathChoice>(5); }) ==
          "path_choice is 5; accepted: 0 to 4");
    CHECK(complaint([](Policy& p) { p.port_bytes = 0; }) == "port_bytes is 0; accepted: 1 to 4294967295");
    CHECK(complaint([](Policy& p) { p.shared_alpha_log2 = 11; }) ==
          "shared_alpha_log2 is 11; accepted: -10 to 10");
    CHECK(complaint([](Policy& p) { p.shared_alpha_log2 = -11; }) ==
          "shared_alpha_log2 is -11; accepted: -10 to 10");
    CHECK(complaint([](Policy& p) { p.trimmed_bytes = 19; }) == "trimmed_bytes is 19; accepted: 20 to 65535");
    CHECK(complaint([](Policy& p) { p.trimmed_class = 8; }) == "trimmed_class is 8; accepted: 0 to 7");
    CHECK(complaint([](Policy& p) {
              p.pause_above_bytes = 10;
              p.resume_below_bytes = 11;
          }) == "resume_below_bytes is 11; accepted: at most pause_above_bytes, 10");
}
