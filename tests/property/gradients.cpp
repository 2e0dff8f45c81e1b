#include "gradients.hpp"

#include <algorithm>
#include <cinttypes>
#include <optional>
#include <string>
#include <vector>

#include "collective/reduce.hpp"
#include "collectives.hpp"
#include "support/native/collective_world.hpp"
#include "support/native/schedule_vectors.hpp"

namespace dlcp::test {
namespace {

const std::vector<ScheduleSet>& schedules() {
    static const std::vector<ScheduleSet> sets = load_schedules();
    return sets;
}

struct Start {
    Time at;
    std::uint32_t plan = 0;
    std::uint32_t member = 0;
};

struct GradientScenario {
    std::uint64_t seed = 0;
    std::vector<EndpointConfig> hosts;
    std::vector<HostSettings> host_settings;
    LinkSettings port;
    std::vector<std::pair<std::pair<std::uint32_t, std::uint32_t>, LinkSettings>> ways;
    std::vector<std::pair<std::uint32_t, std::vector<std::uint32_t>>> groups;  // number, members
    std::vector<CollectivePlan> collectives;
    std::vector<Start> starts;            // by time
    std::optional<Duration> early;        // everybody opens the groups and shakes hands this long before
    std::optional<std::uint32_t> killed;  // host
    Time killed_at;
};

LinkSettings random_port(Dice& dice) {
    LinkSettings port;
    port.rate = Rate{dice.pick<std::uint64_t>({0, 0, 1'000'000'000, 10'000'000'000, 100'000'000'000})};
    if (port.rate.value_bps == 0) return port;
    if (dice.chance(0.7)) port.queue = Bytes{dice.pick<std::uint64_t>({30'000, 200'000, 1'000'000})};
    if (dice.chance(0.5)) port.ecn_mark_above = port.queue.value != 0 ? port.queue / 4 : Bytes{30'000};
    if (dice.chance(0.5)) port.droppable_above = port.queue.value != 0 ? port.queue / 2 : Bytes{40'000};
    port.trim = dice.chance(0.4);
    port.strict_priority = dice.chance(0.5);
    return port;
}

// No link is so bad that a peer may be taken for gone: two seconds of silence take some fifty probes lost in a row.
LinkSettings random_way(Dice& dice, Duration delay, double most_loss) {
    LinkSettings way;
    way.delay = delay;
    if (dice.chance(0.5)) way.jitter = delay / 2 + microseconds(5);
    if (dice.chance(0.7)) way.loss_ratio = dice.unit() * most_loss;
    if (dice.chance(0.3)) {
        way.burst_enter_ratio = dice.unit() * 0.03;
        way.burst_exit_ratio = 0.2 + dice.unit() * 0.8;
        way.burst_loss_ratio = 0.5 + dice.unit() * 0.5;
        way.burst_longest = dice.pick({microseconds(100), milliseconds(3)});
    }
    if (dice.chance(0.3)) {
        way.reorder_ratio = dice.unit() * 0.3;
        way.reorder_delay = dice.pick({microseconds(20), microseconds(300), milliseconds(3)});
    }
    if (dice.chance(0.2)) way.duplicate_ratio = dice.unit() * 0.2;
    if (dice.chance(0.3)) way.trim_ratio = dice.unit() * 0.3;
    return way;
}

class Author {
public:
    explicit Author(std::uint64_t seed) : dice_(seed * 0x9e3779b97f4a7c15ULL + 0x67726164) { s_.seed = seed; }

    GradientScenario write() {
        const auto hosts = dice_.pick<std::uint32_t>({1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6, 7, 8});
        write_hosts(hosts);
        write_network(hosts);
        std::vector<std::uint32_t> members(hosts);
        for (std::uint32_t i = 0; i < hosts; ++i) members[i] = i;
        const std::uint64_t groups = dice_.between(1, 2);
        for (std::uint64_t i = 0; i < groups; ++i) {
            for (std::size_t at = members.size(); at > 1; --at)
                std::swap(members[at - 1], members[dice_.below(at)]);
            if (i > 0) members.resize(dice_.between(1, hosts));
            s_.groups.emplace_back(static_cast<std::uint32_t>(dice_.below(1u << 10) * 2 + i), members);
        }
        if (hosts > 1 && dice_.chance(0.12)) s_.killed = static_cast<std::uint32_t>(dice_.below(hosts));
        if (dice_.chance(0.7)) s_.early = milliseconds(200);
        Time last{0};
        for (std::uint32_t group = 0; group < s_.groups.size(); ++group) last = std::max(last, write_group(group));
        s_.killed_at = Time{static_cast<std::int64_t>(dice_.below(static_cast<std::uint64_t>(last.value) + 1))};
        std::stable_sort(s_.starts.begin(), s_.starts.end(),
                         [](const Start& a, const Start& b) { return a.at < b.at; });
        return std::move(s_);
    }

private:
    void write_hosts(std::uint32_t hosts) {
        const EndpointConfig common = random_config(dice_);
        const bool alike = dice_.chance(0.4);
        std::optional<JobKeyBytes> key;
        if (dice_.chance(0.2)) key.emplace().fill(7);
        for (std::uint32_t i = 0; i < hosts; ++i) {
            EndpointConfig config = alike ? common : random_config(dice_);
            config.job_key = key;
            config.crypto_library = CryptoLibrary::openssl;
            s_.hosts.push_back(config);
            HostSettings settings;
            if (dice_.chance(0.4)) settings.wake_delay = dice_.pick({microseconds(10), microseconds(300)});
            settings.batch = dice_.pick<std::uint32_t>({1, 8, 64});
            settings.slots = dice_.pick<std::uint32_t>({1, 5, 32});
            s_.host_settings.push_back(settings);
        }
    }

    // Loss is uneven: most ways are one host's, or as good as the best.
    void write_network(std::uint32_t hosts) {
        s_.port = random_port(dice_);
        const Duration delay = dice_.pick({microseconds(1), microseconds(20), microseconds(200), milliseconds(2)});
        const LinkSettings common = random_way(dice_, delay, dice_.pick({0.002, 0.02, 0.1, 0.3}));
        const double apart = dice_.pick({0.0, 0.0, 0.2, 1.0});
        for (std::uint32_t from = 0; from < hosts; ++from)
            for (std::uint32_t to = 0; to < hosts; ++to)
                if (from != to)
                    s_.ways.push_back(
                        {{from, to},
                         dice_.chance(apart) ? random_way(dice_, delay, dice_.pick({0.0, 0.02, 0.3})) : common});
    }

    // When the last of it starts.
    Time write_group(std::uint32_t group) {
        const auto members = static_cast<std::uint32_t>(s_.groups[group].second.size());
        const std::uint64_t count = dice_.between(1, 5);
        const auto first = static_cast<std::uint32_t>(dice_.chance(0.1) ? (1u << 20) - 2 : dice_.below(1000));
        const Duration pause = dice_.pick({microseconds(0), microseconds(0), microseconds(50), milliseconds(5)});
        const Duration spread = dice_.pick({microseconds(0), microseconds(10), milliseconds(1), milliseconds(20)});
        // Numbers that were reserved together are taken in any order.
        const bool in_order = s_.killed || dice_.chance(0.7);
        std::vector<std::uint32_t> plans;
        for (std::uint64_t i = 0; i < count; ++i) {
            plans.push_back(static_cast<std::uint32_t>(s_.collectives.size()));
            s_.collectives.push_back(
                random_collective(group, first + static_cast<std::uint32_t>(i), dice_.chance(0.75)));
        }
        Time last{0};
        for (std::uint32_t member = 0; member < members; ++member) {
            if (!in_order)
                for (std::size_t at = plans.size(); at > 1; --at) std::swap(plans[at - 1], plans[dice_.below(at)]);
            Time at = s_.early ? Time{0} + *s_.early : Time{0};
            for (const std::uint32_t plan : plans) {
                at = at + pause + dice_.up_to(spread);
                s_.starts.push_back({at, plan, member});
            }
            last = std::max(last, at);
        }
        return last;
    }

    CollectivePlan random_collective(std::uint32_t group, std::uint32_t sequence, bool bounded) {
        const auto members = static_cast<std::uint32_t>(s_.groups[group].second.size());
        CollectivePlan plan;
        plan.group = group;
        plan.sequence = sequence;
        plan.signature = static_cast<std::uint16_t>(dice_.word());
        do plan.set = &schedules()[dice_.below(schedules().size())];
        while (plan.set->world_size() != members || plan.set->bounded() != bounded);
        plan.type = dice_.chance(0.5)   ? DataType::f32
                    : dice_.chance(0.5) ? DataType::i32
                                        : static_cast<DataType>(dice_.below(data_types));
        plan.op = ReduceOp::sum;
        if (dice_.chance(0.3)) plan.average_over = members;
        const auto width = static_cast<std::uint32_t>(element_bytes(plan.type));
        const std::uint16_t datagram = s_.hosts[dice_.below(s_.hosts.size())].max_datagram_bytes;
        const bool alike = dice_.chance(0.4);
        const bool small = members > 4 && dice_.chance(0.6);
        for (std::uint32_t part = 0; part < plan.set->parts; ++part)
            plan.part_elements.push_back(part > 0 && alike ? plan.part_elements[0]
                                                           : random_elements(dice_, width, datagram, small));
        plan.traffic_class = static_cast<std::uint8_t>(dice_.below(7));
        plan.in_place = dice_.chance(0.3);
        plan.is_virtual = dice_.chance(0.05);
        if (s_.killed) plan.timeout = seconds(1);
        if (bounded && dice_.chance(0.95)) plan.loss = random_loss(plan, members);
        return plan;
    }

    LossPlan random_loss(const CollectivePlan& plan, std::uint32_t members) {
        LossPlan loss;
        const bool is_floating = plan.type == DataType::f32 || plan.type == DataType::f64 ||
                                 plan.type == DataType::f16 || plan.type == DataType::bf16;
        loss.rescale = is_floating && dice_.chance(0.4);
        const bool alike = dice_.chance(0.4);
        for (std::uint32_t rank = 0; rank < members; ++rank) {
            if (alike && rank > 0) {
                loss.ranks.push_back(loss.ranks[0]);
                continue;
            }
            RankLoss rules;
            rules.loss_ratio = dice_.pick({0.0, 0.001, 0.01, 0.05, 0.1, 0.5, 0.9, 0.999});
            rules.critical_ratio = dice_.pick({0.0, 0.0, 0.1, 0.1, 0.5, 1.0});
            if (dice_.chance(0.3))
                rules.deadline = dice_.pick({microseconds(10), microseconds(300), milliseconds(5)});
            rules.all_critical = dice_.chance(0.1);
            if (dice_.chance(0.3))
                rules.patience =
                    dice_.pick({microseconds(0), microseconds(100), milliseconds(1), milliseconds(10)});
            loss.ranks.push_back(rules);
        }
        return loss;
    }

    Dice dice_;
    GradientScenario s_;
};

void print(const GradientScenario& s, std::FILE* file) {
    std::fprintf(file, "scenario %" PRIu64, s.seed);
    if (s.killed) std::fprintf(file, ": host %u is killed at %" PRId64 " ns", *s.killed, s.killed_at.value);
    std::fputc('\n', file);
    for (std::size_t i = 0; i < s.hosts.size(); ++i)
        std::fprintf(file, "host %zu: %sdatagram %u, paths %u, congestion %u, unexpected %" PRIu64 "\n", i,
                     s.hosts[i].job_key ? "key, " : "", s.hosts[i].max_datagram_bytes, s.hosts[i].paths,
                     static_cast<unsigned>(s.hosts[i].congestion), s.hosts[i].max_unexpected.value);
    std::fprintf(file, "port: rate %" PRIu64 " bps, queue %" PRIu64 ", droppable above %" PRIu64 "%s\n",
                 s.port.rate.value_bps, s.port.queue.value, s.port.droppable_above.value,
                 s.port.trim ? ", trim" : "");
    for (const auto& [pair, way] : s.ways)
        std::fprintf(file, "way %u->%u: delay %" PRId64 " ns, loss %.3f, bursts %.3f/%.3f/%.3f, trim %.3f\n",
                     pair.first, pair.second, way.delay.value, way.loss_ratio, way.burst_enter_ratio,
                     way.burst_exit_ratio, way.burst_loss_ratio, way.trim_ratio);
    for (const auto& [number, members] : s.groups) {
        std::fprintf(file, "group %u:", number);
        for (const std::uint32_t member : members) std::fprintf(file, " %u", member);
        std::fputc('\n', file);
    }
    for (const CollectivePlan& plan : s.collectives) {
        std::fprintf(file, "group %u sequence %u, %s, %s over %u%s%s, elements", s.groups[plan.group].first,
                     plan.sequence, plan.set->name.c_str(), name(plan.type), plan.average_over,
                     plan.is_virtual ? ", virtual" : "", plan.loss && plan.loss->rescale ? ", rescaled" : "");
        for (const std::uint32_t elements : plan.part_elements) std::fprintf(file, " %u", elements);
        if (plan.loss)
            for (const RankLoss& rules : plan.loss->ranks)
                std::fprintf(file,
                             "; may lose %.3f, %.1f critical, deadline %" PRId64 " ns, patience %" PRId64 " ns",
                             rules.loss_ratio, rules.all_critical ? 1.0 : rules.critical_ratio,
                             rules.deadline.value, rules.patience.value);
        std::fputc('\n', file);
    }
}

class Run {
public:
    Run(const GradientScenario& scenario, std::uint64_t network_seed, std::FILE* trace)
        : s_(scenario), world_(scenario.seed, network_seed) {
        world_.trace_to(trace);
        world_.check_invariants_every(16);
        for (std::uint32_t i = 0; i < s_.hosts.size(); ++i) {
            world_.add_host(s_.hosts[i], s_.host_settings[i]);
            world_.network().set_uplink(i, s_.port);
            world_.network().set_downlink(i, s_.port);
        }
        for (const auto& [pair, way] : s_.ways) world_.network().set_between(pair.first, pair.second, way);
        for (const auto& [number, members] : s_.groups) world_.add_group(number, members);
        for (const CollectivePlan& plan : s_.collectives) world_.add(plan);
        farewell_ = world_.add(farewell());
        world_.errors_allowed = s_.killed.has_value();
    }

    Verdict run() {
        if (s_.early) shake_hands();
        bool alive = true;
        for (const Start& start : s_.starts) {
            if (s_.killed && alive && s_.killed_at <= start.at) {
                if (!world_.run_until(s_.killed_at)) break;
                world_.stop(*s_.killed);
                alive = false;
            }
            if (!world_.run_until(start.at)) break;
            const std::uint32_t host = s_.groups[s_.collectives[start.plan].group].second[start.member];
            if (alive || host != *s_.killed) world_.start_collective(start.plan, start.member);
        }
        world_.run(world_.now() + seconds(60), [&] { return world_.all_over(); });
        for (const Operation& each : world_.operations()) {
            if (each.phase == Operation::Phase::running) world_.fail(world_.describe(each) + ": does not end");
            const Duration timeout = world_.collectives()[each.plan].timeout;
            if (each.phase == Operation::Phase::over && timeout >= Duration{0} &&
                each.over - each.started > timeout + seconds(1))
                world_.fail(world_.describe(each) + ": ends more than a second after its time");
        }
        if (!s_.killed) wind_down();
        world_.finish();
        return {world_.failure(), world_.trace_hash(),  world_.network().count(Fate::sent),
                world_.now(),     world_.result_hash(), !world_.errors_allowed};
    }

private:
    // So that blocks are cut for good before anything starts; without it, they are cut again under way.
    void shake_hands() {
        for (std::uint32_t from = 0; from < world_.hosts(); ++from)
            for (std::uint32_t to = 0; to < world_.hosts(); ++to)
                if (from != to) world_.endpoint(from).connect(world_.now(), to, VirtualNetwork::address(to));
        for (std::uint32_t host = 0; host < world_.hosts(); ++host) world_.serve(host);
    }

    // Everybody sends something to everybody.
    CollectivePlan farewell() const {
        CollectivePlan plan;
        const auto everybody = static_cast<std::uint32_t>(s_.groups[0].second.size());
        plan.set = &*std::find_if(schedules().begin(), schedules().end(), [&](const ScheduleSet& set) {
            return set.algorithm == "one_shot" && set.world_size() == everybody;
        });
        for (const CollectivePlan& each : s_.collectives)
            if (each.group == 0) plan.sequence = std::max(plan.sequence, each.sequence + 1);
        plan.part_elements.assign(plan.set->parts, 1);
        return plan;
    }

    // Everybody leaves its groups; then there is peace, and nothing is left of them. What a receiver has given up of a
    // message it keeps until it hears that the sender knows, with whatever comes next.
    void wind_down() {
        world_.run_until(world_.now() + seconds(8));
        for (std::uint32_t member = 0; member < s_.groups[0].second.size(); ++member)
            world_.start_collective(farewell_, member);
        world_.run_until(world_.now() + seconds(8));
        for (std::uint32_t group = 0; group < s_.groups.size(); ++group)
            for (std::uint32_t member = 0; member < s_.groups[group].second.size(); ++member)
                world_.close_group(group, member, false);
        world_.run_until(world_.now() + seconds(8));
        const std::uint64_t before = world_.network().count(Fate::sent);
        world_.run_until(world_.now() + seconds(8));
        if (world_.failed()) return;
        if (world_.network().count(Fate::sent) != before)
            return world_.fail("everything is over, but packets are still sent");
        for (std::uint32_t host = 0; host < world_.hosts(); ++host) {
            const KeptMessages kept = world_.endpoint(host).kept_messages();
            if (kept.outgoing + kept.incoming + kept.unexpected.value != 0 || world_.executor(host).draining())
                return world_.fail("host " + std::to_string(host) + ": everything is over, but " +
                                   std::to_string(kept.outgoing) + " outgoing and " +
                                   std::to_string(kept.incoming) + " incoming messages are kept");
        }
    }

    const GradientScenario& s_;
    CollectiveWorld world_;
    std::size_t farewell_ = 0;
};

}  // namespace

Verdict run_gradients(std::uint64_t seed, std::uint64_t network_seed, std::FILE* trace) {
    const GradientScenario scenario = Author(seed).write();
    if (trace != nullptr) print(scenario, trace);
    return Run(scenario, network_seed, trace).run();
}

}  // namespace dlcp::test
