// Ranks whose executors run collectives over the virtual network, all in one group: what most cases begin with.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "support/native/collective_world.hpp"
#include "support/native/schedule_vectors.hpp"

namespace dlcp::test {

inline const std::vector<ScheduleSet>& schedules() {
    static const std::vector<ScheduleSet> sets = load_schedules();
    return sets;
}

inline const ScheduleSet& schedule(const std::string& name) {
    const auto found =
        std::find_if(schedules().begin(), schedules().end(), [&](const auto& set) { return set.name == name; });
    REQUIRE_MESSAGE(found != schedules().end(), name);
    return *found;
}

inline LinkSettings quiet() {
    LinkSettings way;
    way.delay = microseconds(50);
    return way;
}

inline LinkSettings unkind() {
    LinkSettings way = quiet();
    way.loss_ratio = 0.05;
    way.duplicate_ratio = 0.1;
    way.reorder_ratio = 0.2;
    way.reorder_delay = microseconds(400);
    return way;
}

// All ranks are in group 0; more groups may be added. A case sees results when all is over.
class Ranks {
public:
    explicit Ranks(std::uint32_t ranks, const std::function<void(std::uint32_t, EndpointConfig&)>& change = {},
                   std::uint64_t network_seed = 1)
        : world(1, network_seed) {
        std::vector<std::uint32_t> members(ranks);
        std::iota(members.begin(), members.end(), 0);
        for (const std::uint32_t rank : members) {
            EndpointConfig config;
            config.peer_timeout = seconds(2);
            if (change) change(rank, config);
            world.add_host(config);
        }
        set_between_all(quiet());
        world.add_group(5, members);
        world.check_invariants_every(16);
    }
    void set_between_all(const LinkSettings& way) {
        for (std::uint32_t from = 0; from < world.hosts(); ++from)
            for (std::uint32_t to = 0; to < world.hosts(); ++to)
                if (from != to) world.network().set_between(from, to, way);
    }
    void set_ports(const LinkSettings& port) {
        for (std::uint32_t host = 0; host < world.hosts(); ++host) {
            world.network().set_uplink(host, port);
            world.network().set_downlink(host, port);
        }
    }
    std::size_t plan(const std::string& name, std::uint32_t elements, DataType type = DataType::f32,
                     ReduceOp op = ReduceOp::sum, Duration timeout = Duration{-1}) {
        CollectivePlan plan;
        plan.set = &schedule(name);
        plan.sequence = sequence++;
        plan.signature = static_cast<std::uint16_t>(0x4000 + plan.sequence);
        plan.type = type;
        plan.op = op;
        plan.part_elements.assign(plan.set->parts, elements);
        plan.timeout = timeout;
        return world.add(plan);
    }
    void start(std::size_t plan, const std::set<std::uint32_t>& without = {}) {
        const auto& members = world.members(world.collectives()[plan].group);
        for (std::uint32_t member = 0; member < members.size(); ++member)
            if (!without.contains(member)) world.start_collective(plan, member);
    }
    // Until all is over, or for `limit`.
    void run(Duration limit = seconds(60)) {
        world.run(world.now() + limit, [&] { return world.all_over(); });
        CHECK_MESSAGE(world.failure() == "", world.failure());
        for (const Operation& each : world.operations())
            CHECK_MESSAGE(each.phase != Operation::Phase::running, world.describe(each));
    }
    void wait(Duration duration) {
        world.run_until(world.now() + duration);
        CHECK_MESSAGE(world.failure() == "", world.failure());
    }
    void finish() {
        world.finish();
        CHECK_MESSAGE(world.failure() == "", world.failure());
    }
    const CollectiveResult& result(std::size_t plan, std::uint32_t member,
                                   Operation::Kind kind = Operation::Kind::collective) const {
        const auto found =
            std::find_if(world.operations().begin(), world.operations().end(), [&](const Operation& each) {
                return each.kind == kind && each.plan == plan && each.member == member;
            });
        REQUIRE(found != world.operations().end());
        return found->result;
    }
    // Every rank but the culprit fails in time, and blames it: in all operations from the `first` on.
    void check_blamed(std::uint32_t culprit, Duration timeout, std::size_t first = 0) {
        for (const Operation& each : std::span(world.operations()).subspan(first)) {
            if (each.member == culprit || each.phase == Operation::Phase::lost) continue;
            CAPTURE(world.describe(each));
            CHECK(each.result.error != CollectiveError::none);
            CAPTURE(std::string(name(each.result.error)));
            CAPTURE(std::string(name(each.result.engine_error)));
            CHECK(each.result.culprit == culprit);
            CHECK(each.over - each.started <= timeout + seconds(1));
        }
    }

    CollectiveWorld world;
    std::uint32_t sequence = 100;
};

// The time-out of collectives in most cases of a failure.
inline constexpr Duration limit = seconds(1);

}  // namespace dlcp::test
