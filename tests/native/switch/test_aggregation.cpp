// The switch that adds, against the golden vectors that hold the P4 program too.
#include <doctest/doctest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "support/native/vectors.hpp"
#include "switch/aggregation.hpp"

using namespace dlcp;
using namespace dlcp::switching;

namespace {

constexpr const char* outcome_names[] = {"added",    "completed", "flushed", "duplicate", "repeated",
                                         "released", "collision", "stale",   "mismatch",  "below_quorum",
                                         "absent",   "refused",   "to_hub",  "damaged",   "foreign"};
static_assert(std::size(outcome_names) == outcomes);

Participant participant(std::uint16_t port) { return {port, 0x020000000000U + port, 0x0a000000U + port, 0xd1c5}; }

// Those of tests/vectors/aggregation.py.
std::vector<AggregationJob> jobs() {
    AggregationJob seven{.job = 7, .generation = 1, .slots = 4};
    seven.workers = {participant(1), participant(2), participant(3)};
    seven.hub = participant(4);
    AggregationJob nine{.job = 9, .generation = 300, .slots = 4};
    nine.workers = {participant(5), participant(6)};
    nine.hub = participant(7);
    return {seven, nine};
}

using Counts = std::map<std::string, std::uint64_t>;

Counts counts_of(const AggregationSlots& slots) {
    Counts out;
    const auto note = [&](std::size_t row, std::size_t outcome, std::uint64_t count) {
        if (count != 0) out[std::to_string(row) + " " + outcome_names[outcome]] = count;
    };
    note(0, static_cast<std::size_t>(Outcome::foreign), slots.foreign());
    for (std::size_t job = 0; job < slots.size(); ++job)
        for (std::size_t i = 0; i < outcomes; ++i) note(job + 1, i, slots.counts(job)[i]);
    return out;
}

std::string line(std::uint16_t port, std::span<const std::uint8_t> frame) {
    return std::to_string(port) + " " + vectors::hex(frame.data(), frame.size());
}

}  // namespace

TEST_CASE("aggregation: outcomes and results are those of the golden vectors") {
    AggregationSlots slots;
    REQUIRE(validate(jobs(), 8).empty());
    slots.configure(jobs());
    Counts before;
    for (const auto& record : vectors::load("aggregation.txt")) {
        CAPTURE(record.text("name"));
        const std::vector<std::uint8_t> frame = record.bytes("bytes");
        const auto port = static_cast<std::uint16_t>(record.number("port"));
        const AggregationSlots::Verdict verdict = slots.handle(port, frame);
        const std::vector<std::string> outs = record.all("out");
        switch (verdict.whom) {
            case AggregationSlots::Whom::nobody: CHECK(outs.empty()); break;
            case AggregationSlots::Whom::sender:
                CHECK(outs == std::vector<std::string>{line(port, slots.frame())});
                break;
            case AggregationSlots::Whom::everyone: {
                std::vector<std::string> expected;
                for (std::uint16_t w = 0; w < slots.job(verdict.job).workers.size(); ++w) {
                    const std::uint16_t to = slots.address(verdict.job, w).port;
                    expected.push_back(line(to, slots.frame()));
                }
                CHECK(outs == expected);
                break;
            }
            default:
                // Forwarded, by whichever port: that is the bridge's business, not the slots'.
                for (const std::string& out : outs) {
                    const auto bytes = verdict.changed ? slots.frame() : std::span<const std::uint8_t>(frame);
                    CHECK(out.substr(out.find(' ') + 1) == vectors::hex(bytes.data(), bytes.size()));
                }
        }
        const Counts after = counts_of(slots);
        std::string outcome = "none";
        for (const auto& [name, count] : after)
            if (before[name] != count) outcome = name;
        CHECK(outcome == record.text("outcome"));
        before = after;
    }
}

TEST_CASE(
    "aggregation: another of the admitted generations finds its slots empty, and one that is not is foreign") {
    std::vector<AggregationJob> admitted = jobs();
    admitted[0].generations = 2;
    AggregationSlots slots;
    slots.configure(admitted);
    const std::vector<std::uint8_t> first = vectors::load("aggregation.txt").front().bytes("bytes");
    const auto of_generation = [&first](std::uint8_t generation) {
        std::vector<std::uint8_t> out = first;
        out[14 + 20 + 8 + aggregation::at_generation + 1] = generation;
        out[40] = out[41] = 0;  // UDP without a checksum
        return out;
    };
    using Whom = AggregationSlots::Whom;
    CHECK(slots.handle(1, of_generation(1)).whom == Whom::nobody);
    CHECK(slots.handle(1, of_generation(2)).whom == Whom::nobody);
    CHECK(slots.counts(0)[static_cast<std::size_t>(Outcome::added)] == 2);
    CHECK(slots.handle(1, of_generation(3)).whom == Whom::forward);
    CHECK(slots.foreign() == 1);
}

TEST_CASE("aggregation: of two levels, the lower switch sends nothing up in its name that is not its sum") {
    const std::vector<std::uint8_t> frame = vectors::load("aggregation.txt").front().bytes("bytes");
    for (const bool two_levels : {false, true}) {
        CAPTURE(two_levels);
        std::vector<AggregationJob> all = jobs();
        if (two_levels) all[0].upper = UpperSwitch{.hub = participant(7), .own = participant(6), .worker = 0};
        AggregationSlots slots;
        slots.configure(all);
        // By a port of none of the job's workers.
        const AggregationSlots::Whom forwarded = AggregationSlots::Whom::forward;
        CHECK(slots.handle(0, frame).whom == (two_levels ? AggregationSlots::Whom::nobody : forwarded));
        CHECK(slots.counts(0)[static_cast<std::size_t>(Outcome::foreign)] == (two_levels ? 1 : 0));
        CHECK(slots.foreign() == (two_levels ? 0 : 1));
    }
}

TEST_CASE("aggregation: a configuration that cannot be is refused with what is wrong") {
    std::vector<AggregationJob> bad = jobs();
    bad[0].lanes = 40;
    CHECK(validate(bad, 8) == "job 7: lanes is 40; accepted: multiples of 32 up to 2208");
    bad = jobs();
    bad[1].job = 7;
    CHECK(validate(bad, 8) == "job 7: it is there twice; accepted: once");
    bad = jobs();
    bad[1].slots = 2045;
    CHECK(validate(bad, 8) == "job 9: slots is 2045; accepted: 2 to 2044, what is left");
    CHECK(validate(jobs(), 7) == "job 9: the hub is at port 7, which is not there");
}
