#include "scenario.hpp"

#include <algorithm>
#include <cinttypes>

namespace dlcp::test {
namespace {

constexpr Duration active = milliseconds(20);  // applications act within this time

EndpointConfig random_config(Dice& dice) {
    EndpointConfig config;
    config.job = static_cast<std::uint32_t>(dice.word());
    if (dice.chance(0.5)) {
        config.job_key.emplace();
        for (auto& byte : *config.job_key) byte = static_cast<std::uint8_t>(dice.word());
        config.encrypt = dice.chance(0.4);
        config.crypto_library = CryptoLibrary::openssl;  // on every machine the same
    }
    config.max_datagram_bytes = dice.pick<std::uint16_t>({576, 600, 1472, 1472, 1472, 8972});
    config.paths = dice.pick<std::uint16_t>({1, 2, 3, 4, 5, 6, 7, 8, 16, 64});
    config.run_packets = dice.pick<std::uint16_t>({1, 2, 4, 16, 64});
    config.min_run_packets = dice.pick<std::uint16_t>({1, 1, config.run_packets});
    config.switches_spray =
        dice.pick<SwitchesSpray>({SwitchesSpray::automatic, SwitchesSpray::no, SwitchesSpray::yes});
    config.congestion =
        dice.pick({congestion_algorithm("window"), congestion_algorithm("window"),
                   congestion_algorithm("line_rate"), congestion_algorithm("auto"), congestion_algorithm("auto")});
    config.target_delay = dice.pick({microseconds(10), microseconds(100), milliseconds(1)});
    config.initial_window = Bytes{dice.pick<std::uint64_t>({9200, 16'384, 65'536})};
    config.max_window = Bytes{dice.pick<std::uint64_t>({65'536, 1 << 20, 16 << 20})};
    if (config.congestion != congestion_algorithm("window") || dice.chance(0.3)) {
        config.line_rate = Rate{dice.pick<std::uint64_t>({100'000'000, 1'000'000'000, 100'000'000'000})};
    }
    config.receive_buffer = Bytes{dice.pick<std::uint64_t>({16'384, 65'536, 2 << 20, 2 << 20})};
    config.initial_rtt = dice.pick({microseconds(100), milliseconds(1), milliseconds(10)});
    config.max_rto = dice.pick({milliseconds(5), milliseconds(10), milliseconds(25)});
    config.max_ack_delay = dice.pick({microseconds(0), microseconds(100), microseconds(500)});
    // Long enough that silence through bad luck is out of the question (see `may_time_out`).
    config.peer_timeout = config.max_rto * 50;
    config.max_messages_per_peer = dice.pick<std::uint32_t>({2, 8, 16384, 16384});
    config.max_unexpected = Bytes{dice.pick<std::uint64_t>({0, 4096, 65'536, 64 << 20, 64 << 20})};
    return config;
}

struct Network {
    LinkSettings port;
    LinkSettings way;
};

Network random_network(Dice& dice, bool authenticated, std::uint16_t paths) {
    Network network;
    LinkSettings& port = network.port;
    LinkSettings& way = network.way;
    way.delay = dice.pick(
        {microseconds(0), microseconds(1), microseconds(10), microseconds(100), milliseconds(1), milliseconds(5)});
    if (dice.chance(0.5)) way.jitter = way.delay / 4 + microseconds(5);
    port.rate = Rate{dice.pick<std::uint64_t>({0, 100'000'000, 1'000'000'000, 10'000'000'000, 100'000'000'000})};
    if (port.rate.value_bps != 0) {
        if (dice.chance(0.7)) port.queue = Bytes{dice.pick<std::uint64_t>({20'000, 100'000, 1'000'000})};
        if (dice.chance(0.5)) port.ecn_mark_above = port.queue.value != 0 ? port.queue / 4 : Bytes{30'000};
        if (dice.chance(0.5)) port.droppable_above = port.queue.value != 0 ? port.queue / 2 : Bytes{40'000};
        port.trim = dice.chance(0.3);
        port.strict_priority = dice.chance(0.5);
    }
    if (dice.chance(0.3)) return network;  // a third of all networks is kind

    const auto maybe = [&](double probability, double most) {
        return dice.chance(probability) ? dice.unit() * most : 0.0;
    };
    way.loss_ratio = maybe(0.5, dice.pick({0.01, 0.05, 0.3}));
    if (dice.chance(0.2)) {
        way.burst_enter_ratio = dice.unit() * 0.05;
        way.burst_exit_ratio = 0.1 + dice.unit() * 0.9;
        way.burst_loss_ratio = 0.5 + dice.unit() * 0.5;
        way.burst_longest = dice.pick({microseconds(0), microseconds(100), milliseconds(3)});
    }
    if (dice.chance(0.3)) {
        way.reorder_ratio = dice.unit() * 0.3;
        way.reorder_delay = dice.pick({microseconds(10), microseconds(200), milliseconds(3)});
    }
    way.duplicate_ratio = maybe(0.3, 0.3);
    // Without a tag, damage is not seen: UDP's checksum, which drops such a packet, stands in the network's place.
    if (authenticated) {
        way.corrupt_ratio = maybe(0.3, 0.1);
        way.truncate_ratio = maybe(0.2, 0.1);
    }
    way.trim_ratio = maybe(0.2, 0.3);
    if (paths > 1 && dice.chance(0.2)) {
        // At most half: a pair without a path is a partition, which has its own place below.
        const std::uint64_t bad = dice.between(1, paths / 2);
        for (std::uint16_t path = 0; path < bad; ++path) {
            way.paths.push_back({path, dice.chance(0.5) ? 1.0 : dice.unit(),
                                 dice.chance(0.3) ? dice.up_to(milliseconds(1)) : Duration{0}});
        }
    }
    return network;
}

// Whether silence for 50 longest timeouts is possible though nobody is gone: a round trip of probes must fail 50
// times in a row. At 35 % loss each way that happens once in 10^12.
bool may_time_out(const LinkSettings& way) {
    const double kept = (1 - way.loss_ratio) * (1 - way.corrupt_ratio) * (1 - way.truncate_ratio);
    const bool long_bursts = way.burst_enter_ratio > 0 && way.burst_exit_ratio < 0.5;
    return kept < 0.65 || long_bursts || !way.paths.empty();
}

std::uint32_t random_size(Dice& dice, std::uint32_t datagram_bytes) {
    const double kind = dice.unit();
    if (kind < 0.05) return 0;
    if (kind < 0.10) return 1;
    if (kind < 0.45) return static_cast<std::uint32_t>(dice.below(3000));
    if (kind < 0.60) {  // near a multiple of a block
        const std::uint64_t about = dice.between(1, 6) * (datagram_bytes - 80u);
        return static_cast<std::uint32_t>(about + dice.below(41) - 20);
    }
    if (kind < 0.92) return static_cast<std::uint32_t>(dice.below(20'000));
    if (kind < 0.985) return static_cast<std::uint32_t>(dice.below(60'000));
    return static_cast<std::uint32_t>(dice.below(200'000));
}

}  // namespace

Scenario make_scenario(std::uint64_t seed) {
    Dice dice(seed * 0x9e3779b97f4a7c15ULL + 0x7f4a7c15);
    Scenario s;
    s.seed = seed;
    // Sometimes close before the 32 bits of a timestamp wrap.
    s.origin = Time{dice.chance(0.3) ? (std::int64_t{1} << 32) - static_cast<std::int64_t>(dice.below(20'000'000))
                                     : static_cast<std::int64_t>(dice.below(std::uint64_t{1} << 50))};

    const auto hosts = dice.pick<std::uint32_t>({2, 2, 2, 2, 3, 4});
    const EndpointConfig common = random_config(dice);
    const bool alike = dice.chance(0.7);
    for (std::uint32_t i = 0; i < hosts; ++i) {
        EndpointConfig config = common;
        if (!alike) {
            config = random_config(dice);
            config.job = common.job;
            config.job_key = common.job_key;
            config.encrypt = common.encrypt;
            config.crypto_library = common.crypto_library;
        }
        if (dice.chance(0.1)) config.max_peers = hosts - 1;
        s.hosts.push_back(config);
        HostSettings settings;
        if (dice.chance(0.5))
            settings.wake_delay = dice.pick({microseconds(5), microseconds(50), microseconds(300)});
        settings.batch = dice.pick<std::uint32_t>({1, 4, 64, 64});
        settings.slots = dice.pick<std::uint32_t>({1, 5, 32, 32});
        s.host_settings.push_back(settings);
    }
    const bool authenticated = common.job_key.has_value();

    std::uint16_t paths = common.paths;
    for (const EndpointConfig& config : s.hosts) paths = std::min(paths, config.paths);
    const Network network = random_network(dice, authenticated, paths);
    s.port = network.port;
    Duration shortest_timeout = seconds(3600);
    Duration slowest{0};
    for (std::uint32_t i = 0; i < hosts; ++i) {
        // A target below what the network and the hosts add by chance would be a mistake of whoever set it.
        const Duration noise = network.way.jitter + s.host_settings[i].wake_delay;
        s.hosts[i].target_delay = std::max(s.hosts[i].target_delay, noise * 2);
        shortest_timeout = std::min(shortest_timeout, s.hosts[i].peer_timeout);
        slowest = std::max(slowest, s.hosts[i].peer_timeout);
    }
    if (dice.chance(0.1)) s.inbox = Bytes{30'000};
    if (dice.chance(0.05)) s.port.max_datagram = Bytes{dice.pick<std::uint64_t>({576, 1000, 1472})};
    s.allowed.timeouts = may_time_out(network.way);
    for (std::uint32_t from = 0; from < hosts; ++from) {
        for (std::uint32_t to = 0; to < hosts; ++to) {
            if (from != to) s.ways.push_back({{from, to}, network.way});
        }
    }
    if (dice.chance(0.12)) {
        // A partition of one host, in both directions or one; it heals soon, late, or never.
        const auto alone = static_cast<std::uint32_t>(dice.below(hosts));
        Outage outage;
        outage.from = s.origin + dice.up_to(active);
        const double kind = dice.unit();
        if (kind < 0.4) {
            outage.until = outage.from + dice.up_to(milliseconds(30));
        } else if (kind < 0.7) {
            outage.until = outage.from + dice.up_to(common.peer_timeout * 2);
        }
        // A long outage doubles timeouts; one that heals soon must not end a session.
        if (outage.until - outage.from > shortest_timeout / 4) s.allowed.timeouts = true;
        const bool both = dice.chance(0.7);
        for (auto& [pair, way] : s.ways) {
            if (pair.first == alone || (both && pair.second == alone)) way.outages.push_back(outage);
        }
    }

    const auto act = [&](Time at, Action::Kind kind, std::size_t first, std::size_t second = 0) {
        s.actions.push_back({at, kind, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(second)});
    };
    const auto some_time = [&] { return s.origin + dice.up_to(active); };
    for (std::uint32_t from = 0; from < hosts; ++from) {
        for (std::uint32_t to = 0; to < hosts; ++to) {
            if (from != to && dice.chance(0.6))
                act(dice.chance(0.7) ? s.origin : some_time(), Action::Kind::connect, from, to);
        }
    }

    // Messages. A tag belongs to one receiver; its receives are all from one sender, or all from anyone.
    const bool is_virtual = !common.encrypt && dice.chance(0.1);
    const auto groups = dice.between(1, 8);
    std::uint64_t total_bytes = 0;
    for (std::uint64_t group = 0; group < groups; ++group) {
        const auto to = static_cast<std::uint32_t>(dice.below(hosts));
        const bool anyone = dice.chance(0.3);
        const std::uint64_t tag = dice.chance(0.5) ? group : dice.word();
        const auto one_sender = static_cast<std::uint32_t>((to + 1 + dice.below(hosts - 1)) % hosts);
        const bool reused = dice.chance(0.4);
        const std::uint64_t count = reused ? dice.between(2, 5) : 1;
        const bool too_small = !reused && dice.chance(0.04);
        std::uint32_t most = 0;
        std::vector<SendPlan> plans;
        for (std::uint64_t i = 0; i < count; ++i) {
            SendPlan plan;
            plan.to = to;
            plan.from = anyone ? static_cast<std::uint32_t>((to + 1 + dice.below(hosts - 1)) % hosts) : one_sender;
            plan.tag = tag;
            plan.message_bytes = random_size(dice, common.max_datagram_bytes);
            if (total_bytes > 250'000) plan.message_bytes %= 2000;
            plan.is_virtual = is_virtual;
            plan.traffic_class = static_cast<std::uint8_t>(dice.below(7));
            plan.delivery =
                dice.pick({Delivery::reliable, Delivery::bounded, Delivery::bounded, Delivery::deadline});
            plan.loss_ratio = dice.pick({0.0, 0.01, 0.02, 0.1, 0.5, 0.99});
            if (plan.delivery == Delivery::deadline) {
                plan.deadline =
                    microseconds(1) + dice.up_to(dice.pick({microseconds(50), milliseconds(1), milliseconds(20)}));
            }
            if (plan.delivery == Delivery::bounded && dice.chance(0.4))
                plan.patience = dice.up_to(dice.pick({microseconds(0), microseconds(100), milliseconds(5)}));
            plan.critical_ratio = dice.pick({-1.0, 0.0, 0.05, 0.3, 1.0});
            total_bytes += plan.message_bytes;
            most = std::max(most, plan.message_bytes);
            plans.push_back(plan);
        }
        for (const SendPlan& plan : plans) {
            const Time at = some_time();
            act(at, Action::Kind::send, s.sends.size());
            if (dice.chance(0.05))
                act(at + dice.up_to(milliseconds(5)), Action::Kind::cancel_send, s.sends.size());
            s.sends.push_back(plan);

            ReceivePlan receive;
            receive.at = to;
            receive.from = anyone ? ReceivePlan::anyone : one_sender;
            receive.tag = tag;
            receive.is_virtual = is_virtual;
            receive.capacity_bytes = reused ? most + static_cast<std::uint32_t>(dice.below(3))
                                            : plan.message_bytes + static_cast<std::uint32_t>(dice.below(100));
            if (too_small && plan.message_bytes > 0) {
                receive.capacity_bytes = static_cast<std::uint32_t>(dice.below(plan.message_bytes));
            }
            const double when = dice.unit();
            const Time posted = when < 0.4   ? s.origin
                                : when < 0.7 ? at + dice.up_to(milliseconds(10))
                                             : some_time();
            act(posted, Action::Kind::receive, s.receives.size());
            if (dice.chance(0.03)) {
                act(posted + dice.up_to(milliseconds(10)), Action::Kind::cancel_receive, s.receives.size());
            }
            s.receives.push_back(receive);
        }
    }

    if (authenticated && dice.chance(0.2)) {
        for (std::uint64_t i = dice.between(1, 3); i-- > 0;) {
            const auto host = dice.below(hosts);  // one draw per statement: compilers order arguments differently
            act(some_time(), Action::Kind::advance_key_epoch, host);
        }
    }
    if (dice.chance(0.3)) {
        for (std::uint64_t i = dice.between(1, 6); i-- > 0;) act(some_time(), Action::Kind::scribble, 0);
    }
    if (dice.chance(0.1)) {
        const auto host = dice.below(hosts);
        const bool returns = dice.chance(0.7);
        act(some_time(), returns ? Action::Kind::restart : Action::Kind::stop, host);
        s.allowed.restarts = true;
        s.allowed.timeouts = true;
    } else if (dice.chance(0.05)) {
        const auto host = dice.below(hosts);
        act(some_time(), Action::Kind::close, host);
        s.allowed.closes = true;
        s.allowed.timeouts = true;  // the goodbye may be lost
    }
    // Where many packets get lost, a block in many pieces hardly ever arrives whole.
    const bool gentle = network.way.loss_ratio <= 0.05 && network.way.burst_enter_ratio == 0 &&
                        network.way.corrupt_ratio <= 0.01 && network.way.truncate_ratio <= 0.01;
    const bool narrows = gentle && dice.chance(0.1);
    if (narrows) {
        const auto most = dice.pick<std::uint64_t>({548, 600, 1000, 1280, 1400, 1471, 4000});
        act(some_time(), Action::Kind::narrow, most);
        s.port.runs_pass = dice.chance(0.3);
    }
    std::stable_sort(s.actions.begin(), s.actions.end(),
                     [](const Action& a, const Action& b) { return a.at < b.at; });

    s.patience = slowest * 3 + seconds(1);
    if (s.port.rate.value_bps != 0) s.patience += time_to_send(Bytes{total_bytes}, s.port.rate) * 20;
    // The smallest window, two blocks, once per round trip.
    const Duration round_trip = network.way.delay * 2 + network.way.reorder_delay + milliseconds(1);
    s.patience += round_trip * static_cast<std::int64_t>(total_bytes / 1024);
    if (narrows) s.patience = s.patience * 3;
    if (s.allowed.timeouts) s.patience = s.patience * 3;  // the network may be so bad that little gets through
    return s;
}

namespace {

const char* name(Action::Kind kind) {
    switch (kind) {
        case Action::Kind::connect: return "connect";
        case Action::Kind::send: return "send";
        case Action::Kind::receive: return "receive";
        case Action::Kind::cancel_send: return "cancel send";
        case Action::Kind::cancel_receive: return "cancel receive";
        case Action::Kind::advance_key_epoch: return "advance key epoch";
        case Action::Kind::close: return "close";
        case Action::Kind::stop: return "stop";
        case Action::Kind::restart: return "restart";
        case Action::Kind::scribble: return "scribble";
        case Action::Kind::narrow: return "narrow";
    }
    return "unknown";
}

void print_link(const char* what, const LinkSettings& l, std::FILE* file) {
    std::fprintf(file,
                 "%s: rate %" PRIu64 " bps, queue %" PRIu64 ", mark above %" PRIu64 ", droppable above %" PRIu64
                 "%s%s, max datagram %" PRIu64 ", delay %" PRId64 " ns, jitter %" PRId64
                 " ns, loss %.3f, bursts %.3f/%.3f/%.3f, reorder %.3f up to %" PRId64
                 " ns, duplicate %.3f, corrupt %.3f, truncate %.3f, trim %.3f\n",
                 what, l.rate.value_bps, l.queue.value, l.ecn_mark_above.value, l.droppable_above.value,
                 l.trim ? ", trim" : "", l.strict_priority ? ", priority" : "", l.max_datagram.value,
                 l.delay.value, l.jitter.value, l.loss_ratio, l.burst_enter_ratio, l.burst_exit_ratio,
                 l.burst_loss_ratio, l.reorder_ratio, l.reorder_delay.value, l.duplicate_ratio, l.corrupt_ratio,
                 l.truncate_ratio, l.trim_ratio);
    for (const PathFault& path : l.paths) {
        std::fprintf(file, "  path %u: loss %.3f, delay %" PRId64 " ns\n", path.path, path.loss_ratio,
                     path.delay.value);
    }
    for (const Outage& outage : l.outages) {
        std::fprintf(file, "  outage from %" PRId64 " to %" PRId64 "\n", outage.from.value, outage.until.value);
    }
}

// The run itself: a world, and which record each planned message became.
class Run {
public:
    Run(const Scenario& scenario, std::FILE* trace) : s_(scenario), world_(scenario.seed, scenario.origin) {
        world_.trace_to(trace);
        world_.allowed = s_.allowed;
        for (std::size_t i = 0; i < s_.hosts.size(); ++i) {
            const std::uint32_t host = world_.add_host(s_.hosts[i], s_.host_settings[i]);
            world_.network().set_uplink(host, s_.port);
            world_.network().set_downlink(host, s_.port);
            world_.network().set_inbox(host, s_.inbox);
        }
        for (const auto& [pair, way] : s_.ways) world_.network().set_between(pair.first, pair.second, way);
        send_record_.assign(s_.sends.size(), none);
        receive_record_.assign(s_.receives.size(), none);
    }

    Verdict run() {
        for (const Action& action : s_.actions) {
            world_.run_until(action.at);
            if (world_.failed()) break;
            act(action);
        }
        wind_down();
        world_.finish();
        return {world_.failure(), world_.trace_hash(), world_.network().count(Fate::sent), world_.now(), 0, false};
    }

private:
    static constexpr std::size_t none = SIZE_MAX;

    void act(const Action& action) {
        switch (action.kind) {
            case Action::Kind::connect: accept(world_.connect(action.first, action.second)); break;
            case Action::Kind::send:
                send_record_[action.first] = world_.send(s_.sends[action.first]);
                accept(world_.sends().back());
                break;
            case Action::Kind::receive:
                receive_record_[action.first] = world_.receive(s_.receives[action.first]);
                accept(world_.receives().back());
                break;
            case Action::Kind::cancel_send:
                if (send_record_[action.first] != none) world_.cancel_send(send_record_[action.first]);
                break;
            case Action::Kind::cancel_receive:
                if (receive_record_[action.first] != none) world_.cancel_receive(receive_record_[action.first]);
                break;
            case Action::Kind::advance_key_epoch: world_.advance_key_epoch(action.first); break;
            case Action::Kind::close: world_.close(action.first); break;
            case Action::Kind::stop: world_.stop(action.first); break;
            case Action::Kind::restart: restart(action.first); break;
            case Action::Kind::scribble: world_.scribble(); break;
            case Action::Kind::narrow: narrow(Bytes{action.first}); break;
        }
    }

    void narrow(Bytes most) {
        LinkSettings port = s_.port;
        if (port.max_datagram.value == 0 || port.max_datagram > most) port.max_datagram = most;
        for (std::uint32_t host = 0; host < world_.hosts(); ++host) {
            world_.network().set_uplink(host, port);
            world_.network().set_downlink(host, port);
        }
    }

    void accept(const Record& record) {
        if (record.phase == Phase::refused_at_once) accept(record.error);
    }

    // Commands may be refused for a bound or because the endpoint is gone; never for a mistake, since we make none.
    void accept(CommandError error) {
        switch (error) {
            case CommandError::none:
            case CommandError::closed:
            case CommandError::too_many_messages: return;
            case CommandError::too_many_peers:
                for (const EndpointConfig& config : s_.hosts) {
                    if (config.max_peers < s_.hosts.size()) return;
                }
                break;
            default: break;
        }
        world_.fail(std::string("a correct command was refused: ") + dlcp::name(error));
    }

    void restart(std::uint32_t host) {
        std::vector<std::size_t> lost;
        for (std::size_t i = 0; i < s_.receives.size(); ++i) {
            if (receive_record_[i] == none) continue;
            const ReceiveRecord& record = world_.receives()[receive_record_[i]];
            if (record.host == host && record.phase == Phase::open && !record.cancelled) lost.push_back(i);
        }
        world_.restart(host);
        for (std::uint32_t other = 0; other < world_.hosts(); ++other) {
            if (other != host) accept(world_.connect(host, other));
        }
        for (const std::size_t i : lost) {
            receive_record_[i] = world_.receive(s_.receives[i]);
            accept(world_.receives().back());
        }
    }

    // A send whose receive may be missing: then it is no fault that it does not end.
    bool starved(const SendRecord& send) const {
        if (!world_.alive(send.plan.to)) return false;  // it must time out
        std::size_t sends = 0, receives = 0;
        for (const SendRecord& other : world_.sends()) {
            if (other.plan.to == send.plan.to && other.tag == send.tag && other.phase != Phase::refused_at_once)
                ++sends;
        }
        for (const ReceiveRecord& receive : world_.receives()) {
            if (receive.host != send.plan.to || receive.tag != send.tag) continue;
            if (receive.phase == Phase::open || receive.phase == Phase::finished) ++receives;
        }
        return receives < sends;
    }

    // The same, or it waits behind such a one: the receiver tracks only so many messages of one sender.
    bool excused(const SendRecord& send) const {
        if (starved(send)) return true;
        if (s_.hosts[send.plan.to].max_messages_per_peer >= s_.sends.size()) return false;
        return std::any_of(world_.sends().begin(), world_.sends().end(), [&](const SendRecord& other) {
            return other.plan.from == send.plan.from && other.plan.to == send.plan.to && starved(other);
        });
    }

    // An open receive for which a message was delivered that nobody got.
    bool owed(const ReceiveRecord& receive) const {
        if (s_.allowed.timeouts || s_.allowed.restarts || s_.allowed.closes) return false;
        std::size_t delivered = 0, taken = 0;
        for (const SendRecord& send : world_.sends()) {
            if (send.plan.to == receive.host && send.tag == receive.tag && send.phase == Phase::finished)
                ++delivered;
        }
        for (const ReceiveRecord& other : world_.receives()) {
            if (other.host == receive.host && other.tag == receive.tag &&
                (other.phase == Phase::finished || other.phase == Phase::failed)) {
                ++taken;
            }
        }
        return delivered > taken;
    }

    void wind_down() {
        const auto all_over = [&] { return world_.open_sends() == 0 && world_.open_receives() == 0; };
        world_.run(world_.now() + s_.patience, all_over);
        if (world_.failed()) return;

        for (std::size_t i = 0; i < world_.sends().size(); ++i) {
            const SendRecord& send = world_.sends()[i];
            if (send.phase != Phase::open) continue;
            if (!excused(send)) return world_.fail(describe(send) + ": does not end");
        }
        for (std::size_t i = 0; i < world_.receives().size(); ++i) {
            const ReceiveRecord& receive = world_.receives()[i];
            if (receive.phase != Phase::open) continue;
            if (owed(receive))
                return world_.fail(describe(receive) + ": does not end, though its message was delivered");
        }
        for (std::size_t i = 0; i < world_.sends().size(); ++i) world_.cancel_send(i);
        for (std::size_t i = 0; i < world_.receives().size(); ++i) world_.cancel_receive(i);
        world_.run(world_.now() + milliseconds(1), all_over);
        if (!world_.failed() && !all_over()) return world_.fail("a cancelled message does not end");

        // Then there is peace: whoever still talks after a long time will never stop.
        world_.run_until(world_.now() + s_.patience);
        const std::uint64_t before = world_.network().count(Fate::sent);
        world_.run_until(world_.now() + s_.patience);
        if (world_.failed()) return;
        if (world_.network().count(Fate::sent) != before) {
            world_.fail("everything is over, but packets are still sent");
        }
    }

    const Scenario& s_;
    World world_;
    std::vector<std::size_t> send_record_, receive_record_;
};

}  // namespace

void print(const Scenario& s, std::FILE* file) {
    std::fprintf(file, "scenario %" PRIu64 ", from %" PRId64 " ns\n", s.seed, s.origin.value);
    for (std::size_t i = 0; i < s.hosts.size(); ++i) {
        const EndpointConfig& c = s.hosts[i];
        std::fprintf(file,
                     "host %zu: %s%s, datagram %u, paths %u, run %u, congestion %u, line rate %" PRIu64
                     ", window %" PRIu64 "..%" PRIu64 ", buffer %" PRIu64 ", initial rtt %" PRId64
                     ", max rto %" PRId64 ", ack delay %" PRId64 ", timeout %" PRId64
                     ", peers %u, messages %u, unexpected %" PRIu64 "; wakes within %" PRId64
                     " ns, batch %u, slots %u\n",
                     i, c.job_key ? "key" : "no key", c.encrypt ? ", encrypted" : "", c.max_datagram_bytes,
                     c.paths, c.run_packets, static_cast<unsigned>(c.congestion), c.line_rate.value_bps,
                     c.initial_window.value, c.max_window.value, c.receive_buffer.value, c.initial_rtt.value,
                     c.max_rto.value, c.max_ack_delay.value, c.peer_timeout.value, c.max_peers,
                     c.max_messages_per_peer, c.max_unexpected.value, s.host_settings[i].wake_delay.value,
                     s.host_settings[i].batch, s.host_settings[i].slots);
    }
    print_link("port", s.port, file);
    for (const auto& [pair, way] : s.ways) {
        std::fprintf(file, "way %u->%u ", pair.first, pair.second);
        print_link("", way, file);
    }
    for (const Action& action : s.actions) {
        std::fprintf(file, "%14.3f us  %s %u %u\n", static_cast<double>(action.at.value) / 1e3, name(action.kind),
                     action.first, action.second);
    }
    std::fprintf(file, "allowed:%s%s%s\n", s.allowed.timeouts ? " timeouts" : "",
                 s.allowed.restarts ? " restarts" : "", s.allowed.closes ? " closes" : "");
}

Verdict run(const Scenario& scenario, std::FILE* trace) {
    if (trace != nullptr) print(scenario, trace);
    return Run(scenario, trace).run();
}

}  // namespace dlcp::test
