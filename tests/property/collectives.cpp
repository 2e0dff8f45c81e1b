#include "collectives.hpp"

#include <algorithm>
#include <cinttypes>
#include <map>
#include <optional>

#include "collective/reduce.hpp"
#include "support/native/collective_world.hpp"
#include "support/native/schedule_vectors.hpp"

namespace dlcp::test {

EndpointConfig random_config(Dice& dice) {
    EndpointConfig config;
    config.max_datagram_bytes = dice.pick<std::uint16_t>({576, 600, 1000, 1472, 1472, 1472, 8972});
    config.paths = dice.pick<std::uint16_t>({1, 2, 3, 4, 5, 6, 7, 8, 16, 64});
    config.run_packets = dice.pick<std::uint16_t>({1, 4, 16, 64});
    config.min_run_packets = dice.pick<std::uint16_t>({1, 1, config.run_packets});
    config.switches_spray =
        dice.pick<SwitchesSpray>({SwitchesSpray::automatic, SwitchesSpray::no, SwitchesSpray::yes});
    config.congestion =
        dice.pick({congestion_algorithm("window"), congestion_algorithm("window"),
                   congestion_algorithm("line_rate"), congestion_algorithm("auto"), congestion_algorithm("auto")});
    config.target_delay = milliseconds(1);
    config.initial_window = Bytes{dice.pick<std::uint64_t>({9200, 65'536})};
    if (config.congestion != congestion_algorithm("window") || dice.chance(0.3))
        config.line_rate = Rate{dice.pick<std::uint64_t>({1'000'000'000, 100'000'000'000})};
    config.receive_buffer = Bytes{dice.pick<std::uint64_t>({65'536, 2 << 20})};
    config.initial_rtt = dice.pick({microseconds(200), milliseconds(5)});
    config.max_rto = dice.pick({milliseconds(5), milliseconds(20)});
    config.peer_timeout = seconds(2);
    config.max_unexpected = Bytes{dice.pick<std::uint64_t>({0, 2048, 20'000, 64 << 20, 64 << 20})};
    config.max_unexpected_message = Bytes{dice.pick<std::uint64_t>({0, 1000, 64 << 10, 64 << 20})};
    return config;
}

std::uint32_t random_elements(Dice& dice, std::uint32_t width, std::uint32_t datagram_bytes, bool small) {
    const double kind = dice.unit();
    if (kind < 0.08) return 0;
    if (kind < 0.18) return 1;
    if (small || kind < 0.45) return static_cast<std::uint32_t>(dice.below(600 / width + 2));
    if (kind < 0.65) {  // about a number of blocks
        const std::uint64_t about = dice.between(1, 4) * (datagram_bytes - 80u) / width;
        return static_cast<std::uint32_t>(about + dice.below(9) - 4);
    }
    if (kind < 0.95) return static_cast<std::uint32_t>(dice.below(20'000 / width));
    // Longer than what leaves from a copy, rarely: it takes long.
    const std::uint64_t longest = kind < 0.985 ? 60'000 : 300'000;
    return static_cast<std::uint32_t>((longest - dice.below(20'000)) / width);
}

namespace {

const std::vector<ScheduleSet>& schedules() {
    static const std::vector<ScheduleSet> sets = load_schedules();
    return sets;
}

// How one rank goes wrong, in one group.
enum class Fault : std::uint8_t {
    none,
    stops,     // is killed
    closes,    // leaves in good order, but too early
    freezes,   // for less than any timeout: nobody fails
    aborts,    // close_group, and says so
    leaves,    // in good order, when its part of everything is over: nobody fails
    absent,    // never calls one collective, nor any after it
    mistakes,  // calls something else
    mis_sizes  // calls the same with other sizes
};
const char* name(Fault fault) {
    switch (fault) {
        case Fault::none: return "none";
        case Fault::stops: return "stops";
        case Fault::closes: return "closes";
        case Fault::freezes: return "freezes";
        case Fault::aborts: return "aborts";
        case Fault::leaves: return "leaves";
        case Fault::absent: return "absent";
        case Fault::mistakes: return "mistakes";
        case Fault::mis_sizes: return "mis_sizes";
    }
    return "unknown";
}
// Somebody's operations may fail.
bool breaks(Fault fault) { return fault != Fault::none && fault != Fault::freezes && fault != Fault::leaves; }

struct CollectiveAction {
    enum class Kind : std::uint8_t { start, send, receive, stop, close, freeze, thaw, abort };
    Time at;
    Kind kind = Kind::start;
    std::uint32_t first = 0;   // plan; stop, close, freeze, thaw: host; abort: group
    std::uint32_t second = 0;  // start, abort: member
    Deviation deviation;
};

struct CollectiveScenario {
    std::uint64_t seed = 0;
    std::vector<EndpointConfig> hosts;
    std::vector<HostSettings> host_settings;
    LinkSettings port;
    LinkSettings way;
    std::vector<std::pair<std::uint32_t, std::vector<std::uint32_t>>> groups;  // number, members
    std::vector<CollectivePlan> collectives;
    std::vector<MessagePlan> messages;
    std::vector<CollectiveAction> actions;  // by time
    Fault fault = Fault::none;
    std::uint32_t culprit = 0;  // host
    std::uint32_t fault_group = 0;
    Duration patience;
};

void random_network(Dice& dice, CollectiveScenario& s, bool harsh) {
    s.way.delay = dice.pick({microseconds(1), microseconds(20), microseconds(200), milliseconds(2)});
    if (dice.chance(0.5)) s.way.jitter = s.way.delay / 2 + microseconds(5);
    s.port.rate = Rate{dice.pick<std::uint64_t>({0, 1'000'000'000, 100'000'000'000})};
    if (s.port.rate.value_bps != 0 && dice.chance(0.5)) {
        s.port.queue = Bytes{200'000};
        s.port.ecn_mark_above = Bytes{50'000};
        s.port.strict_priority = dice.chance(0.5);
    }
    if (dice.chance(0.3)) return;
    if (dice.chance(0.6)) s.way.loss_ratio = dice.unit() * (harsh ? dice.pick({0.01, 0.05, 0.3}) : 0.03);
    if (dice.chance(0.4)) {
        s.way.reorder_ratio = dice.unit() * 0.3;
        s.way.reorder_delay = dice.pick({microseconds(20), microseconds(300), milliseconds(3)});
    }
    if (dice.chance(0.3)) s.way.duplicate_ratio = dice.unit() * 0.2;
}

CollectivePlan random_collective(Dice& dice, const CollectiveScenario& s, std::uint32_t group,
                                 std::uint32_t sequence, bool small) {
    const auto world_size = static_cast<std::uint32_t>(s.groups[group].second.size());
    CollectivePlan plan;
    plan.group = group;
    plan.sequence = sequence;
    plan.signature = static_cast<std::uint16_t>(dice.word());
    do plan.set = &schedules()[dice.below(schedules().size())];
    while (plan.set->world_size() != world_size);
    plan.type = static_cast<DataType>(dice.below(data_types));
    do plan.op = static_cast<ReduceOp>(dice.below(reduce_ops));
    while (find_reduce(plan.type, plan.op) == nullptr);
    if (plan.op == ReduceOp::sum && dice.chance(0.3)) plan.average_over = world_size;
    const std::uint16_t datagram = s.hosts[dice.below(s.hosts.size())].max_datagram_bytes;
    const auto width = static_cast<std::uint32_t>(element_bytes(plan.type));
    const bool alike = dice.chance(0.4);
    for (std::uint32_t part = 0; part < plan.set->parts; ++part)
        plan.part_elements.push_back(part > 0 && alike ? plan.part_elements[0]
                                                       : random_elements(dice, width, datagram, small));
    plan.traffic_class = static_cast<std::uint8_t>(dice.below(7));
    plan.in_place = dice.chance(0.3);
    plan.is_virtual = dice.chance(0.05);
    return plan;
}

// Hosts may call at different times, but each calls what its group calls in the same order.
class Author {
public:
    explicit Author(std::uint64_t seed) : dice_(seed * 0x9e3779b97f4a7c15ULL + 0x7f4a7c17) { s_.seed = seed; }

    CollectiveScenario write() {
        s_.fault = dice_.chance(0.6) ? Fault::none : static_cast<Fault>(dice_.between(1, 8));
        const bool faulty = breaks(s_.fault);
        const auto hosts = dice_.pick<std::uint32_t>({1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8});
        const EndpointConfig common = random_config(dice_);
        std::optional<JobKeyBytes> key;
        if (dice_.chance(0.2)) key.emplace().fill(7);
        const bool alike = dice_.chance(0.4);
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
        random_network(dice_, s_, !faulty);
        spread_ = dice_.pick({microseconds(10), milliseconds(1), milliseconds(20), milliseconds(100)});
        make_groups(hosts);
        s_.culprit = static_cast<std::uint32_t>(dice_.below(hosts));
        s_.fault_group = group_of(s_.culprit);
        if (s_.groups[s_.fault_group].second.size() < 2) s_.fault = Fault::none;
        Time last{0};
        for (std::uint32_t group = 0; group < s_.groups.size(); ++group) last = std::max(last, write_group(group));
        write_fault(last);
        std::stable_sort(s_.actions.begin(), s_.actions.end(),
                         [](const CollectiveAction& a, const CollectiveAction& b) { return a.at < b.at; });
        s_.patience = seconds(60);
        return std::move(s_);
    }

private:
    void make_groups(std::uint32_t hosts) {
        std::vector<std::uint32_t> everybody(hosts);
        for (std::uint32_t i = 0; i < hosts; ++i) everybody[i] = i;
        const std::uint64_t count = dice_.between(1, 3);
        for (std::uint64_t i = 0; i < count; ++i) {
            std::vector<std::uint32_t> members = everybody;
            // Any subset, in any order.
            for (std::size_t at = members.size(); at > 1; --at)
                std::swap(members[at - 1], members[dice_.below(at)]);
            if (i > 0) members.resize(dice_.between(1, hosts));
            s_.groups.emplace_back(static_cast<std::uint32_t>(dice_.below(1u << 10) * 8 + i), members);
        }
    }

    std::uint32_t group_of(std::uint32_t host) const {
        for (std::uint32_t i = static_cast<std::uint32_t>(s_.groups.size()); i-- > 0;)
            if (std::count(s_.groups[i].second.begin(), s_.groups[i].second.end(), host) > 0) return i;
        return 0;
    }

    // When the last of it starts.
    Time write_group(std::uint32_t group) {
        const auto members = static_cast<std::uint32_t>(s_.groups[group].second.size());
        const bool faulty = breaks(s_.fault);
        const std::uint64_t count = dice_.between(1, 5);
        const auto first = static_cast<std::uint32_t>(dice_.chance(0.2) ? (1u << 20) - 2 : dice_.below(1000));
        std::vector<Time> free(members, Time{0});
        const Duration pause = dice_.pick({microseconds(0), microseconds(50), milliseconds(5)});
        // In time with the first, whoever calls: a rank that waits for one that is not late by its own timeout.
        const Duration timeout = dice_.pick({milliseconds(300), seconds(1), seconds(3)});
        for (std::uint64_t i = 0; i < count; ++i) {
            const auto plan = static_cast<std::uint32_t>(s_.collectives.size());
            s_.collectives.push_back(random_collective(dice_, s_, group, first + static_cast<std::uint32_t>(i),
                                                       members > 4 && dice_.chance(0.7)));
            if (faulty) s_.collectives.back().timeout = timeout;
            for (std::uint32_t member = 0; member < members; ++member) {
                free[member] = free[member] + pause + dice_.up_to(spread_);
                s_.actions.push_back({free[member], CollectiveAction::Kind::start, plan, member, {}});
            }
            if (members > 1 && dice_.chance(0.3)) write_messages(group, free, faulty ? timeout : Duration{-1});
        }
        return *std::max_element(free.begin(), free.end());
    }

    void write_messages(std::uint32_t group, const std::vector<Time>& free, Duration timeout) {
        const auto members = static_cast<std::uint32_t>(free.size());
        const auto to = static_cast<std::uint32_t>(dice_.below(members));
        const bool anyone = dice_.chance(0.5);
        const auto from = static_cast<std::uint32_t>((to + 1 + dice_.below(members - 1)) % members);
        const auto tag = static_cast<std::uint32_t>(dice_.word());
        const std::uint64_t count = dice_.between(1, 4);
        const std::uint32_t bytes = random_elements(dice_, 1, 1472, false);
        for (std::uint64_t i = 0; i < count; ++i) {
            MessagePlan plan;
            plan.group = group;
            plan.to = to;
            plan.from = anyone ? static_cast<std::uint32_t>((to + 1 + dice_.below(members - 1)) % members) : from;
            plan.from_anyone = anyone;
            plan.tag = tag;
            plan.bytes = bytes;
            plan.traffic_class = static_cast<std::uint8_t>(dice_.below(7));
            plan.timeout = timeout;
            const auto index = static_cast<std::uint32_t>(s_.messages.size());
            s_.messages.push_back(plan);
            s_.actions.push_back({free[plan.from], CollectiveAction::Kind::send, index, 0, {}});
            s_.actions.push_back({free[plan.to], CollectiveAction::Kind::receive, index, 0, {}});
        }
    }

    void write_fault(Time last) {
        const auto& members = s_.groups[s_.fault_group].second;
        const auto member =
            static_cast<std::uint32_t>(std::find(members.begin(), members.end(), s_.culprit) - members.begin());
        const Time when{static_cast<std::int64_t>(dice_.below(static_cast<std::uint64_t>(last.value) + 1))};
        switch (s_.fault) {
            case Fault::none:
            case Fault::leaves: return;
            case Fault::stops:
                s_.actions.push_back({when, CollectiveAction::Kind::stop, s_.culprit, 0, {}});
                return;
            case Fault::closes:
                s_.actions.push_back({when, CollectiveAction::Kind::close, s_.culprit, 0, {}});
                return;
            case Fault::freezes:
                s_.actions.push_back({when, CollectiveAction::Kind::freeze, s_.culprit, 0, {}});
                s_.actions.push_back(
                    {when + dice_.up_to(milliseconds(300)), CollectiveAction::Kind::thaw, s_.culprit, 0, {}});
                return;
            case Fault::aborts:
                s_.actions.push_back({when, CollectiveAction::Kind::abort, s_.fault_group, member, {}});
                return;
            case Fault::absent:
            case Fault::mistakes:
            case Fault::mis_sizes: break;
        }
        std::vector<std::uint32_t> plans;
        for (std::uint32_t i = 0; i < s_.collectives.size(); ++i)
            if (s_.collectives[i].group == s_.fault_group) plans.push_back(i);
        const std::uint32_t plan = plans[dice_.below(plans.size())];
        if (s_.fault == Fault::mis_sizes) s_.collectives[plan].is_virtual = false;
        std::optional<Time> gone;
        for (const CollectiveAction& action : s_.actions)
            if (action.kind == CollectiveAction::Kind::start && action.first == plan && action.second == member)
                gone = action.at;
        if (s_.fault == Fault::absent) {
            std::erase_if(s_.actions, [&](const CollectiveAction& action) {
                const bool of_group = action.kind == CollectiveAction::Kind::start
                                          ? s_.collectives[action.first].group == s_.fault_group
                                          : s_.messages[action.first].group == s_.fault_group;
                const std::uint32_t who = action.kind == CollectiveAction::Kind::start ? action.second
                                          : action.kind == CollectiveAction::Kind::send
                                              ? s_.messages[action.first].from
                                              : s_.messages[action.first].to;
                return of_group && who == member && action.at >= *gone;
            });
            return;
        }
        for (CollectiveAction& action : s_.actions) {
            if (action.kind != CollectiveAction::Kind::start || action.first != plan || action.second != member)
                continue;
            if (s_.fault == Fault::mistakes)
                action.deviation.signature_bits = static_cast<std::uint16_t>(1 + dice_.below(65535));
            else
                action.deviation.more_elements = static_cast<std::uint32_t>(dice_.between(1, 400));
        }
    }

    Dice dice_;
    CollectiveScenario s_;
    Duration spread_;
};

void print(const CollectiveScenario& s, std::FILE* file) {
    std::fprintf(file, "scenario %" PRIu64 ": fault %s of host %u in group %u\n", s.seed, name(s.fault), s.culprit,
                 s.groups[s.fault_group].first);
    for (std::size_t i = 0; i < s.hosts.size(); ++i) {
        const EndpointConfig& c = s.hosts[i];
        std::fprintf(file,
                     "host %zu: %sdatagram %u, paths %u, run %u, congestion %u, unexpected %" PRIu64
                     " (message %" PRIu64 "), wakes within %" PRId64 " ns, batch %u, slots %u\n",
                     i, c.job_key ? "key, " : "", c.max_datagram_bytes, c.paths, c.run_packets,
                     static_cast<unsigned>(c.congestion), c.max_unexpected.value, c.max_unexpected_message.value,
                     s.host_settings[i].wake_delay.value, s.host_settings[i].batch, s.host_settings[i].slots);
    }
    std::fprintf(file,
                 "port: rate %" PRIu64 " bps, queue %" PRIu64 "; way: delay %" PRId64 " ns, jitter %" PRId64
                 " ns, loss %.3f, reorder %.3f up to %" PRId64 " ns, duplicate %.3f\n",
                 s.port.rate.value_bps, s.port.queue.value, s.way.delay.value, s.way.jitter.value,
                 s.way.loss_ratio, s.way.reorder_ratio, s.way.reorder_delay.value, s.way.duplicate_ratio);
    for (const auto& [number, members] : s.groups) {
        std::fprintf(file, "group %u:", number);
        for (const std::uint32_t member : members) std::fprintf(file, " %u", member);
        std::fputc('\n', file);
    }
    for (const CollectivePlan& plan : s.collectives) {
        std::fprintf(file,
                     "collective %zu: group %u sequence %u, %s, %s %s over %u, class %u, timeout %" PRId64
                     " ns%s%s, elements",
                     static_cast<std::size_t>(&plan - s.collectives.data()), s.groups[plan.group].first,
                     plan.sequence, plan.set->name.c_str(), name(plan.type), name(plan.op), plan.average_over,
                     plan.traffic_class, plan.timeout.value, plan.in_place ? ", in place" : "",
                     plan.is_virtual ? ", virtual" : "");
        for (const std::uint32_t elements : plan.part_elements) std::fprintf(file, " %u", elements);
        std::fputc('\n', file);
    }
}

class Run {
public:
    Run(const CollectiveScenario& scenario, std::uint64_t network_seed, std::FILE* trace)
        : s_(scenario), world_(scenario.seed, network_seed) {
        world_.trace_to(trace);
        world_.check_invariants_every(8);
        for (std::uint32_t i = 0; i < s_.hosts.size(); ++i) {
            world_.add_host(s_.hosts[i], s_.host_settings[i]);
            world_.network().set_uplink(i, s_.port);
            world_.network().set_downlink(i, s_.port);
        }
        for (std::uint32_t from = 0; from < s_.hosts.size(); ++from)
            for (std::uint32_t to = 0; to < s_.hosts.size(); ++to)
                if (from != to) world_.network().set_between(from, to, s_.way);
        for (const auto& [number, members] : s_.groups) world_.add_group(number, members);
        for (const CollectivePlan& plan : s_.collectives) world_.add(plan);
        for (const MessagePlan& plan : s_.messages) world_.add(plan);
        world_.errors_allowed = breaks(s_.fault);
    }

    Verdict run() {
        for (const CollectiveAction& action : s_.actions) {
            world_.run(action.at, [&] { return leave_if_over(false); });
            if (world_.failed()) break;
            act(action);
        }
        world_.run(world_.now() + s_.patience, [&] { return leave_if_over(world_.all_over()); });
        for (const Operation& each : world_.operations())
            if (each.phase == Operation::Phase::running) world_.fail(world_.describe(each) + ": does not end");
        if (!world_.failed()) judge();
        wind_down();
        world_.finish();
        return {world_.failure(), world_.trace_hash(),  world_.network().count(Fate::sent),
                world_.now(),     world_.result_hash(), !world_.errors_allowed};
    }

private:
    // The host that leaves does so once nobody waits for anything that it has not sent. Returns `done`.
    bool leave_if_over(bool done) {
        if (s_.fault != Fault::leaves || gone_ || world_.executor(s_.culprit).draining()) return done;
        const auto own = [&](const auto& each) { return host_of(each) == s_.culprit; };
        std::ptrdiff_t over = 0;
        for (const Operation& each : world_.operations())
            over += each.host == s_.culprit && each.phase == Operation::Phase::over;
        if (over < std::count_if(s_.actions.begin(), s_.actions.end(), own)) return done;
        gone_ = true;
        world_.close(s_.culprit);
        return done;
    }

    // Whose process is stopped for a while does nothing meanwhile.
    void act(const CollectiveAction& action) {
        if (frozen_ && host_of(action) == s_.culprit && action.kind != CollectiveAction::Kind::thaw) {
            later_.push_back(action);
            return;
        }
        const auto runs = [&](std::uint32_t host) { return !(gone_ && host == s_.culprit); };
        switch (action.kind) {
            case CollectiveAction::Kind::start: {
                const CollectivePlan& plan = s_.collectives[action.first];
                const std::uint32_t host = s_.groups[plan.group].second[action.second];
                if (runs(host) && !(aborted_ && host == s_.culprit && plan.group == s_.fault_group))
                    world_.start_collective(action.first, action.second, action.deviation);
                return;
            }
            case CollectiveAction::Kind::send:
            case CollectiveAction::Kind::receive: {
                const MessagePlan& plan = s_.messages[action.first];
                const bool sending = action.kind == CollectiveAction::Kind::send;
                const std::uint32_t host = s_.groups[plan.group].second[sending ? plan.from : plan.to];
                if (runs(host) && !(aborted_ && host == s_.culprit && plan.group == s_.fault_group))
                    world_.start_message(action.first, sending);
                return;
            }
            case CollectiveAction::Kind::stop: gone_ = true; return world_.stop(action.first);
            case CollectiveAction::Kind::close: gone_ = true; return world_.close(action.first);
            case CollectiveAction::Kind::freeze: frozen_ = true; return world_.freeze(action.first);
            case CollectiveAction::Kind::thaw:
                frozen_ = false;
                world_.thaw(action.first);
                for (const CollectiveAction& each : later_) act(each);
                return;
            case CollectiveAction::Kind::abort:
                aborted_ = true;
                world_.open_group(action.first, action.second);
                return world_.close_group(action.first, action.second, true);
        }
    }

    std::uint32_t host_of(const CollectiveAction& action) const {
        using Kind = CollectiveAction::Kind;
        switch (action.kind) {
            case Kind::start: return s_.groups[s_.collectives[action.first].group].second[action.second];
            case Kind::send:
            case Kind::receive: {
                const MessagePlan& plan = s_.messages[action.first];
                return s_.groups[plan.group].second[action.kind == Kind::send ? plan.from : plan.to];
            }
            case Kind::abort: return s_.groups[action.first].second[action.second];
            default: return action.first;
        }
    }

    // Who is to blame, and was it in time?
    void judge() {
        if (!breaks(s_.fault)) return;
        std::map<std::pair<std::uint32_t, std::uint32_t>, const Operation*>
            failed;  // by host and group, the first
        for (const Operation& each : world_.operations()) {
            if (each.phase != Operation::Phase::over || each.result.error == CollectiveError::none) continue;
            if (each.host == s_.culprit) continue;
            if (const std::string wrong = judge_error(each); !wrong.empty())
                return world_.fail(world_.describe(each) + ": " + wrong);
            if (each.kind != Operation::Kind::collective) continue;
            const Operation*& first = failed[{each.host, each.group}];
            if (first == nullptr || each.over < first->over) first = &each;
        }
        for (const Operation& each : world_.operations()) {
            if (each.phase != Operation::Phase::over) continue;
            const auto found = failed.find({each.host, each.group});
            if (found == failed.end() || each.started <= found->second->over) continue;
            if (each.result.error != CollectiveError::group_failed || each.over != each.started)
                return world_.fail(world_.describe(each) + ": started in a group that had failed, but ends with " +
                                   name(each.result.error));
            if (each.result.culprit != found->second->result.culprit)
                return world_.fail(world_.describe(each) + ": the group's failure has another culprit now");
        }
    }

    // Of this collective of the fault's group, and of all before it.
    bool has_result(std::uint32_t sequence) const {
        std::uint32_t have = 0, first = sequence;
        for (const Operation& each : world_.operations()) {
            if (each.host != s_.culprit || each.group != s_.fault_group ||
                each.kind != Operation::Kind::collective)
                continue;
            const std::uint32_t number = s_.collectives[each.plan].sequence;
            first = std::min(first, number);
            have += number <= sequence && each.phase == Operation::Phase::over &&
                    each.result.error == CollectiveError::none;
        }
        return have == sequence - first + 1;
    }

    std::string judge_error(const Operation& operation) const {
        const CollectiveResult& r = operation.result;
        const auto& members = s_.groups[operation.group].second;
        const auto found = std::find(members.begin(), members.end(), s_.culprit);
        if (found == members.end())
            return std::string("fails in a group without the culprit: ") + dlcp::name(r.error);
        const bool of_fault_group = operation.group == s_.fault_group;
        if (!of_fault_group && s_.fault != Fault::stops && s_.fault != Fault::closes)
            return std::string("fails in a group that nothing happened to: ") + dlcp::name(r.error);
        const bool single = operation.kind != Operation::Kind::collective;
        const Duration timeout =
            single ? s_.messages[operation.plan].timeout : s_.collectives[operation.plan].timeout;
        if (operation.over - operation.started > timeout + seconds(1))
            return "ends " + std::to_string((operation.over - operation.started).value) +
                   " ns after its start, later than a second after its timeout";
        const auto culprit = static_cast<std::uint32_t>(found - members.begin());
        const CollectiveError first = r.error == CollectiveError::group_failed ? r.cause : r.error;
        if (s_.fault == Fault::mistakes || s_.fault == Fault::mis_sizes) {
            // Each of the two calls of different things sees the other one as wrong.
            if (single) return "";
            const std::uint32_t reporter =
                r.error == CollectiveError::group_failed ? r.reporter : operation.member;
            if (r.culprit != culprit && reporter != culprit)
                return "blames rank " + std::to_string(static_cast<int>(r.culprit)) + " by word of rank " +
                       std::to_string(static_cast<int>(reporter)) + ", not " + std::to_string(culprit) + " (" +
                       dlcp::name(r.error) + ", cause " + dlcp::name(r.cause) + ", " + dlcp::name(r.engine_error) +
                       ")";
            return "";
        }
        if (s_.fault == Fault::aborts && !single && has_result(s_.collectives[operation.plan].sequence))
            return "fails, though the rank that aborts the group has its result";
        // A message from anyone has nobody to blame.
        if (single && r.error == CollectiveError::timeout && s_.messages[operation.plan].from_anyone) return "";
        if (r.culprit != culprit)
            return "blames rank " + std::to_string(static_cast<int>(r.culprit)) + ", not " +
                   std::to_string(culprit) + " (" + dlcp::name(r.error) + ", cause " + dlcp::name(r.cause) + ", " +
                   dlcp::name(r.engine_error) + ", said rank " + std::to_string(static_cast<int>(r.reporter)) +
                   ")";
        if (s_.fault == Fault::aborts && first != CollectiveError::aborted)
            return std::string("an abort is seen as ") + dlcp::name(first);
        return "";
    }

    // Everybody has been in every group, and leaves; then there is peace, and nothing is left of them.
    void wind_down() {
        if (world_.failed()) return;
        for (std::uint32_t group = 0; group < s_.groups.size(); ++group)
            for (std::uint32_t member = 0; member < s_.groups[group].second.size(); ++member)
                if (!gone_ || s_.groups[group].second[member] != s_.culprit) world_.open_group(group, member);
        world_.run_until(world_.now() + seconds(8));
        for (std::uint32_t group = 0; group < s_.groups.size(); ++group)
            for (std::uint32_t member = 0; member < s_.groups[group].second.size(); ++member)
                world_.close_group(group, member, false);
        world_.run_until(world_.now() + seconds(8));
        const std::uint64_t before = world_.network().count(Fate::sent);
        world_.run_until(world_.now() + seconds(8));
        if (world_.failed()) return;
        // What nobody wants any more is on hold for ever where there is no room for it.
        const bool cramped = std::any_of(s_.hosts.begin(), s_.hosts.end(), [](const EndpointConfig& config) {
            return std::min(config.max_unexpected, config.max_unexpected_message) < Bytes{1 << 20};
        });
        if (cramped && world_.errors_allowed) return;
        if (world_.network().count(Fate::sent) != before)
            return world_.fail("everything is over, but packets are still sent");
        for (std::uint32_t host = 0; host < world_.hosts(); ++host) {
            if (gone_ && host == s_.culprit) continue;
            if (world_.executor(host).draining())
                return world_.fail("host " + std::to_string(host) + ": everything is over, but it drains");
            const KeptMessages kept = world_.endpoint(host).kept_messages();
            if (kept.outgoing + kept.incoming + kept.unexpected.value != 0)
                return world_.fail("host " + std::to_string(host) + ": everything is over, but " +
                                   std::to_string(kept.outgoing) + " outgoing and " +
                                   std::to_string(kept.incoming) + " incoming messages are kept, " +
                                   std::to_string(kept.unexpected.value) + " bytes nobody has asked for");
        }
    }

    const CollectiveScenario& s_;
    CollectiveWorld world_;
    bool gone_ = false;
    bool aborted_ = false;
    bool frozen_ = false;
    std::vector<CollectiveAction> later_;
};

}  // namespace

Verdict run_collectives(std::uint64_t seed, std::uint64_t network_seed, std::FILE* trace) {
    const CollectiveScenario scenario = Author(seed).write();
    if (trace != nullptr) print(scenario, trace);
    return Run(scenario, network_seed, trace).run();
}

}  // namespace dlcp::test
