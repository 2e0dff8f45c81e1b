// Flows as messages of the shipping engine, collectives as commands of its executor, settings that follow the fabric.
#include "sim/core/transports/dlcp.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "collective/tag.hpp"
#include "engine/bytes.hpp"
#include "sim/core/simulation.hpp"

namespace dlcp::sim {
namespace {

// An acknowledgement's frames, as they usually are.
constexpr std::uint32_t ack_frame_bytes = 52;

// Pairs looked at to find the fabric's round trip: the longest of them counts.
constexpr std::size_t most_measured_pairs = 1024;

// Streams of random words (Domain::random).
constexpr std::uint64_t importance_stream = 0x696d706f72740000ULL;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

// A block's importance: `critical_ratio` of them critical, the others anything below.
std::uint8_t draw_importance(const Domain& domain, std::uint64_t of, std::uint32_t block, double critical_ratio) {
    const std::uint64_t word = domain.random(importance_stream ^ of, block);
    if (static_cast<double>(word >> 11) * 0x1p-53 < critical_ratio) return wire::importance_critical;
    return static_cast<std::uint8_t>((word & 0x7ff) * 255 >> 11);
}

}  // namespace

namespace {

// Those of the engine's protocol settings that follow from the fabric unless a scenario gives them (derive, host).
constexpr std::string_view derived_settings[] = {"target_delay_s", "initial_window_bytes", "max_window_bytes",
                                                 "initial_rtt_s",  "max_ack_delay_s",      "eager_bytes",
                                                 "run_packets"};

// A row of the engine's table as one of a transport's: times in picoseconds, `default_of` the simulator's.
TransportSetting row_of(const SettingRow<EndpointConfig>& row, const EndpointConfig& default_of) {
    const Setting& setting = row.setting;
    const Accepted& accepted = setting.accepted;
    const bool is_time = setting.name.ends_with("_s");
    TransportSetting made{
        std::string(setting.name),    TransportSetting::Kind::number, {}, accepted.low, accepted.high, {},
        std::string(setting.sentence)};
    const bool is_derived = std::ranges::find(derived_settings, setting.name) != std::end(derived_settings);
    const SettingValue value = row.get(default_of, setting);
    if (accepted.kind == SettingKind::choice) {
        made.kind = TransportSetting::Kind::choice;
        for (std::size_t i = 0; !choice_at(accepted.words, i).empty(); ++i) {
            made.choices.emplace_back(choice_at(accepted.words, i));
            if (made.choices.back() == std::get<std::string>(value)) made.otherwise = static_cast<double>(i);
        }
        made.minimum = 0;
        made.maximum = static_cast<double>(made.choices.size() - 1);
        return made;
    }
    if (is_time || accepted.kind == SettingKind::integer) made.kind = TransportSetting::Kind::whole;
    if (is_time) {  // the engine's clock counts whole nanoseconds, so "above 0" begins there
        made.name.replace(made.name.size() - 2, 2, "_ps");
        made.minimum = std::max(accepted.low * 1e12, accepted.above ? 1000.0 : 0.0);
        made.maximum = accepted.high * 1e12;
    }
    const double unit = is_time ? 1e12 : 1;
    if (!is_derived)
        made.otherwise = std::visit(
            [&](const auto& held) -> double {
                if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(held)>>)
                    return static_cast<double>(held) * unit;
                else
                    throw std::logic_error("a protocol setting of the engine is neither a number nor a choice");
            },
            value);
    return made;
}

}  // namespace

DlcpTransport::Settings::Settings() {
    engine.max_datagram_bytes = 4096 + wire::header_bytes;  // blocks as collectives on jumbo frames have
    engine.timer_granularity = nanoseconds(0);
}

void DlcpTransport::Settings::list(SettingsTable& table) {
    table.whole("datagram_bytes", engine.max_datagram_bytes, 576, 9152,
                "UDP payload of a full packet: header and a block");
    table.whole("lower_layer_bytes", lower_layer_bytes, 0, 1000,
                "on the wire below UDP's payload: Ethernet 38, IPv4 20, UDP 8");
    for (const SettingRow<EndpointConfig>& row : protocol_settings) {
        const Setting& setting = row.setting;
        const TransportSetting made = row_of(row, engine);
        const std::optional<double> value = table.row(made);
        if (!value) continue;
        if (made.kind == TransportSetting::Kind::choice)
            row.set(engine, setting, made.choices[static_cast<std::size_t>(*value)]);
        else
            row.set(engine, setting, setting.name.ends_with("_s") ? *value * 1e-12 : *value);
        given.insert(setting.name);
    }
    table.flag("warm_sessions", warm_sessions,
               "sessions are there at time zero, by the real handshake; otherwise made when first needed");
    table.flag("trim", trim, "switches cut the payload off what they would drop (default policy)");
    table.flag("trim_critical", trim_critical, "switches that trim may trim critical packets too");
}

DlcpTransport::DlcpTransport(const Settings& settings) : settings_(settings), config_(settings.engine) {
    foresees_ = true;
    EndpointConfig& c = config_;
    // Simulated hosts have the memory, and their applications have asked for all that comes.
    c.receive_buffer = Bytes{std::uint64_t{1} << 40};
    c.max_unexpected = Bytes{std::uint64_t{1} << 40};
    c.max_unexpected_message = Bytes{std::uint64_t{1} << 40};
    c.max_messages_per_peer = 1u << 20;
    c.max_peers = 65535;
    c.announce_unexpected = true;
    c.virtual_payload = true;
    network_.lower_layer_bytes = settings.lower_layer_bytes;
    network_.trim_critical = settings.trim_critical;

    // Every host's config is checked when it is made; here what does not depend on the fabric.
    EndpointConfig check = c;
    check.line_rate = Rate{1};
    check.max_window = std::max(c.max_window, c.initial_window);
    check.max_rto = std::max(c.max_rto, c.min_rto);
    check.peer_timeout = std::max(c.peer_timeout, c.min_rto);
    if (const std::string problem = check.validate(); !problem.empty()) refuse(problem);
    for (std::size_t i = 0; i < c.dscp.size(); ++i)
        network_.class_of_dscp[c.dscp[i]] = static_cast<std::uint8_t>(i);
}

DlcpTransport::~DlcpTransport() = default;

std::uint32_t DlcpTransport::payload_bytes() const {
    return (config_.max_datagram_bytes - static_cast<std::uint32_t>(wire::header_bytes)) / 16 * 16;
}
std::uint32_t DlcpTransport::header_bytes() const {
    return static_cast<std::uint32_t>(wire::header_bytes) + network_.lower_layer_bytes;
}

// --- before the run -------------------------------------------------------------------------------------------

// Hosts that talk to each other, smaller number first, each pair once.
std::vector<DlcpTransport::Pair> DlcpTransport::pairs(const Simulation& simulation) const {
    std::vector<Pair> pairs;
    for (const Flow& flow : const_cast<Simulation&>(simulation).flows())
        pairs.emplace_back(std::minmax(flow.source, flow.destination));
    for (const auto& collective : collectives_) {
        const auto& members = collective->spec.members;
        for (std::uint32_t rank = 0; rank < members.size(); ++rank)
            for (const std::uint32_t other : collective->spec.schedules[rank]->peers())
                pairs.emplace_back(std::minmax(members[rank], members[other]));
    }
    for (const GroupOf& group : groups_)
        if (group.all_pairs)
            for (const std::uint32_t a : group.members)
                for (const std::uint32_t b : group.members)
                    if (a < b) pairs.emplace_back(a, b);
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    return pairs;
}

// What a deployer would set for this fabric: its round trip, and what is in flight in one.
namespace {

// Round trips of one site: under one switch and over three tiers of them differ by less than this.
constexpr std::int64_t site_over_shortest = 8;

}  // namespace

void DlcpTransport::derive(Simulation& simulation, const std::vector<Pair>& pairs) {
    const std::uint32_t data = payload_bytes() + header_bytes();
    const std::uint32_t ack = header_bytes() + ack_frame_bytes;
    const std::size_t step = std::max<std::size_t>(1, pairs.size() / most_measured_pairs);
    std::int64_t shortest_ps = INT64_MAX;
    const auto measure = [&](std::uint32_t a, std::uint32_t b) {
        const std::int64_t rtt_ps = simulation.base_rtt_ps(a, b, data, ack);
        longest_rtt_ps_ = std::max(longest_rtt_ps_, rtt_ps);
        shortest_ps = std::min(shortest_ps, rtt_ps);
    };
    for (std::size_t i = 0; i < pairs.size(); i += step) measure(pairs[i].first, pairs[i].second);
    if (pairs.empty()) measure(0, simulation.fabric().hosts() - 1);
    // An endpoint has one target and one floor for all its peers. Those of a far site would let the queues of its own grow to
    // the bandwidth-delay product of that path; a far peer's round trip is measured soon enough.
    site_rtt_ps_ = std::min(longest_rtt_ps_, shortest_ps * site_over_shortest);

    const auto derive_time = [&](std::string_view name, Duration& field, double ps) {
        if (!settings_.has(name)) field = nanoseconds(std::llround(ps / 1000));
        field = std::max(field, nanoseconds(1));
    };
    const double rtt = static_cast<double>(site_rtt_ps_);
    derive_time("initial_rtt_s", config_.initial_rtt, static_cast<double>(longest_rtt_ps_));
    derive_time("target_delay_s", config_.target_delay, 0.75 * rtt);
    derive_time("max_ack_delay_s", config_.max_ack_delay, rtt / 4);
    if (!settings_.has("run_packets") && !simulation.hosts_want_runs())  // as drivers below the kernel have it
        config_.run_packets = config_.min_run_packets;
    config_.max_rto = std::max(config_.max_rto, config_.min_rto);
    config_.peer_timeout = std::max(config_.peer_timeout, config_.min_rto);
}

DlcpTransport::Host& DlcpTransport::host(std::uint32_t index) {
    std::unique_ptr<Host>& place = hosts_[index];
    if (place) return *place;
    EndpointConfig config = config_;
    config.rank = index;
    config.line_rate = Rate{fabric_->link(index).rate_bps};
    // What is in flight in a round trip, and half as much again: an acknowledgement comes every quarter of a window, so
    // with one product alone the link would idle between them.
    const double bytes_per_ps = static_cast<double>(config.line_rate.value_bps) / 8e12;
    // Eight packets: with four, those on the way and the answer about them leave the link idle at 10 Gb/s and 1 us.
    const double least = 8.0 * config.max_datagram_bytes;
    const auto window_for = [&](std::int64_t rtt_ps) {
        return std::max(1.5 * bytes_per_ps * static_cast<double>(rtt_ps), least);
    };
    const auto derive_bytes = [&](std::string_view name, Bytes& field, double bytes) {
        if (!settings_.has(name)) field = Bytes{static_cast<std::uint64_t>(bytes)};
    };
    derive_bytes("max_window_bytes", config.max_window, window_for(longest_rtt_ps_));
    derive_bytes("initial_window_bytes", config.initial_window,
                 std::min(static_cast<double>(config.max_window.value), window_for(site_rtt_ps_)));
    derive_bytes(
        "eager_bytes", config.eager,
        std::min(tebibyte, static_cast<double>(std::max(config.eager.value, 2 * config.max_window.value))));
    if (const std::string problem = config.validate(); !problem.empty()) refuse(problem);
    place = std::make_unique<Host>(network_, config, mix64(seed_ ^ mix64(index + 1)),
                                   bodies_[fabric_->region_of(index)], network_.origin);
    return *place;
}

// The real handshake, ahead of simulated time: hellos as large as data, each for as long as an empty path takes.
void DlcpTransport::warm(std::uint32_t a, std::uint32_t b, Duration one_way, Time& clock) {
    std::array<EngineHost*, 2> ends = {&host(a).engine, &host(b).engine};
    if (!ends[0]->endpoint.find_peer(b)) ends[0]->endpoint.connect(clock, b, network_.addresses[b]);
    std::array<std::vector<std::uint8_t>, 2> memory;
    for (int round = 0; round < 8; ++round) {
        bool any = false;
        for (std::size_t from = 0; from < 2; ++from) {
            alignas(64) std::uint8_t head[DLCP_HEAD_CAPACITY];
            dlcp_packet packet{};
            packet.head = head;
            while (ends[from]->endpoint.poll_transmit(clock, {&packet, 1}) == 1) {
                any = true;
                clock = clock + one_way;
                packet.address = &network_.addresses[ends[from]->host()];
                ends[1 - from]->endpoint.handle_packets(clock, {&packet, 1});
            }
        }
        if (!any) break;
    }
    for (std::size_t i = 0; i < 2; ++i) {
        Endpoint& endpoint = ends[i]->endpoint;
        const auto other = endpoint.find_peer(ends[1 - i]->host());
        if (!other || !endpoint.established(*other))
            throw std::logic_error("hosts " + std::to_string(a) + " and " + std::to_string(b) +
                                   " found no session");
        Event event;
        while (endpoint.poll_event(event)) {}
        ends[i]->advance(clock);
    }
}

void DlcpTransport::prepare(Simulation& simulation) {
    fabric_ = &simulation.fabric();
    seed_ = mix64(simulation.seed());
    const std::uint32_t hosts = fabric_->hosts();
    if (hosts > config_.max_peers + 1)
        refuse("a fabric of " + std::to_string(hosts) + " hosts; accepted with dlcp: up to " +
               std::to_string(config_.max_peers + 1));
    hosts_.resize(hosts);
    network_.addresses.resize(hosts);
    for (std::uint32_t h = 0; h < hosts; ++h) {
        dlcp_address& address = network_.addresses[h];
        std::memcpy(address.bytes, &h, sizeof h);
        address.length = sizeof h;
    }
    bodies_.assign(fabric_->regions(), BodyPool(depot_));
    const std::vector<Pair> talking = pairs(simulation);
    derive(simulation, talking);
    if (settings_.warm_sessions) {
        const std::uint32_t data = payload_bytes() + header_bytes();
        Time clock{0};
        for (const auto& [a, b] : talking)
            warm(a, b, nanoseconds(simulation.base_rtt_ps(a, b, data, data) / 2000), clock);
        network_.origin = clock;
        for (const auto& each : hosts_) {
            if (!each) continue;
            each->engine.advance(clock);
            each->engine.endpoint.handle_timer(clock);
        }
    }
    prepared_ = true;
    if (switch_sums_ != nullptr) {
        switch_sums_->prepare(simulation, bodies_);
        acts_in_switches_ = true;
        engine_next_.assign(hosts, 1);
    }
    for (std::uint32_t group = 0; group < groups_.size(); ++group)
        for (std::uint32_t rank = 0; rank < groups_[group].members.size(); ++rank)
            open_group(host(groups_[group].members[rank]), group, rank);
}

void DlcpTransport::add_group(const std::vector<std::uint32_t>& members) {
    groups_[group_number(members)].all_pairs = true;
}

std::uint32_t DlcpTransport::group_number(const std::vector<std::uint32_t>& members) {
    const auto [found, is_new] = group_of_.try_emplace(members, static_cast<std::uint32_t>(groups_.size()));
    if (is_new) {
        if (found->second >= FlowTag::group)
            refuse("more than " + std::to_string(FlowTag::group) + " groups of hosts run collectives");
        groups_.push_back({members, 0, false});
    }
    return found->second;
}

std::uint32_t DlcpTransport::add_collective(CollectiveSpec spec) {
    const std::size_t ranks = spec.members.size();
    if (ranks == 0) refuse("a collective has no members");
    if (spec.schedules.size() != ranks || spec.inputs.size() != ranks || spec.outputs.size() != ranks)
        refuse("a collective of " + std::to_string(ranks) + " members has " +
               std::to_string(spec.schedules.size()) + " schedules, " + std::to_string(spec.inputs.size()) +
               " inputs and " + std::to_string(spec.outputs.size()) + " outputs");
    std::vector<std::uint32_t> sorted = spec.members;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) refuse("a host is a member twice");
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
        if (spec.schedules[rank]->world_size() != ranks || spec.schedules[rank]->rank() != rank)
            refuse("schedule " + std::to_string(rank) + " is for another rank or number of ranks");
    if (!spec.importance.empty() && spec.importance.size() != ranks)
        refuse("importance has " + std::to_string(spec.importance.size()) + " entries; accepted: one per rank");
    if (spec.traffic_class >= wire::control_class)
        refuse("traffic_class is " + std::to_string(spec.traffic_class) + "; accepted: 0 to 6");
    auto collective = std::make_unique<Collective>();
    collective->group = group_number(spec.members);
    collective->sequence = groups_[collective->group].collectives++;
    collective->late = prepared_;
    collective->outcomes.resize(ranks);
    collective->spec = std::move(spec);
    collectives_.push_back(std::move(collective));
    return static_cast<std::uint32_t>(collectives_.size() - 1);
}

std::uint32_t DlcpTransport::add_switch_sum(const Fabric& fabric, const SwitchSumSpec& spec) {
    if (prepared_) refuse("switches are told their jobs before the run");
    if (switch_sums_ == nullptr)
        switch_sums_ = std::make_unique<SwitchSums>(
            network_.lower_layer_bytes,
            [this](Domain& domain, const SwitchSums::Over& over) { switch_sum_over(domain, over); });
    auto collective = std::make_unique<Collective>();
    collective->switch_sum = switch_sums_->add(fabric, spec);
    collective->outcomes.resize(spec.members.size());
    collective->tasks.resize(spec.members.size(), none);
    collectives_.push_back(std::move(collective));
    switch_specs_.push_back(spec);
    switch_sum_of_.push_back(static_cast<std::uint32_t>(collectives_.size() - 1));
    return switch_sum_of_.back();
}

void DlcpTransport::start_collective_at(Simulation& simulation, std::uint32_t index, std::uint32_t rank,
                                        std::int64_t at_ps) {
    if (index >= collectives_.size() || rank >= collectives_[index]->spec.members.size())
        refuse("there is no rank " + std::to_string(rank) + " of a collective " + std::to_string(index));
    if (!prepared_) refuse("the simulation has not run yet: start the collective by a task");
    const std::uint32_t at = collectives_[index]->spec.members[rank];
    if (at >= fabric_->hosts()) refuse("host " + std::to_string(at) + " does not exist");
    planned_.push_back({index, rank});
    simulation.domain_of(at).set_timer(at_ps, at, static_cast<std::uint32_t>(planned_.size()));
}

const CollectiveOutcome& DlcpTransport::outcome(std::uint32_t index, std::uint32_t rank) const {
    if (index >= collectives_.size() || rank >= collectives_[index]->outcomes.size())
        refuse("there is no rank " + std::to_string(rank) + " of a collective " + std::to_string(index));
    return collectives_[index]->outcomes[rank];
}

std::uint32_t DlcpTransport::ranks(std::uint32_t index) const {
    if (index >= collectives_.size()) refuse("there is no collective " + std::to_string(index));
    return static_cast<std::uint32_t>(collectives_[index]->outcomes.size());
}

void DlcpTransport::forget_collective(std::uint32_t index) {
    for (std::uint32_t rank = 0; rank < ranks(index); ++rank)
        if (outcome(index, rank).finished_ps < 0) refuse("collective " + std::to_string(index) + " is not over");
    collectives_[index]->spec = {};
    collectives_[index]->outcomes.clear();
}

const Endpoint* DlcpTransport::endpoint(std::uint32_t host) const {
    return host < hosts_.size() && hosts_[host] ? &hosts_[host]->engine.endpoint : nullptr;
}

// --- packets and time -----------------------------------------------------------------------------------------

void DlcpTransport::handle_packet(Domain& domain, std::uint32_t index, std::uint32_t slot) {
    if (domain.packet(slot).type == SwitchSums::packet_type) {
        switch_sums_->handle_packet(domain, index, slot);
        return;
    }
    Host& h = host(index);
    h.engine.handle_packet(domain, slot);
    serve(domain, h);
}

std::uint32_t DlcpTransport::pull_packet(Domain& domain, std::uint32_t index) {
    if (switch_sums_ == nullptr) return hosts_[index] ? hosts_[index]->engine.pull(domain) : none;
    // Two sockets share the card: who was first last time is second now.
    for (int i = 0; i < 2; ++i) {
        engine_next_[index] ^= 1;
        const bool engine = engine_next_[index] == 0;
        if (engine && !hosts_[index]) continue;
        const std::uint32_t slot =
            engine ? hosts_[index]->engine.pull(domain) : switch_sums_->pull_packet(domain, index);
        if (slot != none) return slot;
    }
    return none;
}

bool DlcpTransport::handle_at_switch(Domain& domain, std::uint32_t node, std::uint32_t slot) {
    if (domain.packet(slot).type != SwitchSums::packet_type) return false;
    switch_sums_->handle_at_switch(domain, node, slot);
    return true;
}

void DlcpTransport::foresee(Domain& domain, std::span<const Visit> visits) const {
    // More at once would fill the processor's first cache.
    std::array<Endpoint::Foresight, 16> calls;
    std::size_t count = 0;
    for (const Visit& v : visits.first(std::min(visits.size(), calls.size())))
        if (hosts_[v.host] && (v.slot == none || domain.packet(v.slot).type != SwitchSums::packet_type))
            calls[count++] = hosts_[v.host]->engine.foresee(domain, v.slot);
    Endpoint::foresee({calls.data(), count});
}

void DlcpTransport::packet_gone(Domain& domain, std::uint32_t slot) {
    depot_.give_back(body_of(domain.extra(slot)));
}

const std::uint8_t* DlcpTransport::header_of(Domain& domain, std::uint32_t slot) const {
    const EngineBody* const body = body_of(domain.extra(slot));
    return domain.packet(slot).type == SwitchSums::packet_type ? SwitchSums::header_of(*body) : body->bytes();
}

void DlcpTransport::handle_timer(Domain& domain, std::uint32_t index, std::uint32_t timer) {
    if (timer >= SwitchSums::first_timer) {
        switch_sums_->handle_timer(domain, index, timer);
        return;
    }
    if (timer > 0) {
        const Planned planned = planned_[timer - 1];
        start_collective(domain, planned.index, planned.rank, none);
        return;
    }
    Host& h = host(index);
    if (h.engine.handle_timer(domain)) serve(domain, h);
}

// Handles events until none is left. Events that this causes at the same host return here, and are found pending.
void DlcpTransport::serve(Domain& domain, Host& h) {
    if (h.engine.serving) return;
    h.engine.serving = true;
    Event event;
    for (;;) {
        if (h.engine.endpoint.poll_event(event)) {
            if (event.kind == EventKind::peer_down) ++h.peers_lost;
            if (event.kind == EventKind::path_down) ++h.paths_left;
            if (FlowTag::is(event.tag))
                flow_event(domain, h, event);
            else if (h.engine.executor != nullptr)
                h.engine.executor->handle_event(h.engine.now(), event);
        } else if (h.engine.executor != nullptr) {
            CollectiveId id;
            CollectiveResult result;
            if (!h.engine.executor->poll_over(id, result)) break;
            collective_over(domain, h, id, std::move(result));
        } else {
            break;
        }
    }
    h.engine.serving = false;
    h.engine.arm(domain);
    if (h.engine.endpoint.may_transmit()) domain.wake(h.engine.host());
}

// --- flows ----------------------------------------------------------------------------------------------------

namespace {

// A message's length has 32 bits; pieces are whole blocks.
std::uint64_t most_message_bytes(std::uint32_t block_bytes) {
    return UINT32_MAX / block_bytes * std::uint64_t{block_bytes};
}

}  // namespace

std::uint32_t DlcpTransport::pieces(const Flow& flow) const {
    const std::uint64_t most = most_message_bytes(payload_bytes());
    return flow.bytes <= most ? 1 : static_cast<std::uint32_t>((flow.bytes + most - 1) / most);
}

PeerId DlcpTransport::peer(EngineHost& engine, std::uint32_t other) {
    if (const auto known = engine.endpoint.find_peer(other)) return *known;
    return engine.endpoint.connect(engine.now(), other, network_.addresses[other]).value;
}

void DlcpTransport::start_flow(Domain& domain, std::uint32_t index) {
    const Flow& flow = domain.flow(index);
    Host& h = host(flow.source);
    const Time now = h.engine.time(domain);
    SendCommand command;
    command.peer = peer(h.engine, flow.destination);
    command.traffic_class = flow.traffic_class;
    const bool bounded = flow.loss_ratio > 0 && flow.critical_ratio < 1;
    if (bounded) {
        command.delivery = Delivery::bounded;
        command.loss_ratio = flow.loss_ratio;
        if (flow.patience_ps >= 0) command.patience = nanoseconds(flow.patience_ps / 1000);
    }
    const std::uint32_t count = pieces(flow);
    if (count > 1) h.outgoing[index].left = count;
    const std::uint64_t most = most_message_bytes(payload_bytes());
    std::vector<std::uint8_t> importance;
    for (std::uint32_t piece = 0; piece < count; ++piece) {
        command.tag = FlowTag::of(index, piece);
        command.message_bytes = static_cast<std::uint32_t>(std::min(most, flow.bytes - piece * most));
        if (bounded) {
            importance.resize(
                wire::block_count(command.message_bytes, h.engine.endpoint.block_bytes(command.peer)));
            for (std::uint32_t block = 0; block < importance.size(); ++block)
                importance[block] =
                    draw_importance(domain, std::uint64_t{piece} << 32 | index, block, flow.critical_ratio);
            command.importance = importance;
        }
        if (!h.engine.endpoint.send(now, command)) ++h.messages_refused;
    }
    serve(domain, h);
}

void DlcpTransport::flow_event(Domain& domain, Host& h, const Event& event) {
    const std::uint32_t index = FlowTag::flow(event.tag);
    const Flow& flow = domain.flow(index);
    Endpoint& endpoint = h.engine.endpoint;
    // The last of several messages, or the only one; sums what was abandoned.
    const auto last = [&](std::unordered_map<std::uint32_t, Host::Pieces>& flows, std::uint64_t& abandoned_bytes) {
        const std::uint32_t count = pieces(flow);
        if (count == 1) return true;
        Host::Pieces& pieces = flows.try_emplace(index, Host::Pieces{count, 0}).first->second;
        pieces.abandoned_bytes += abandoned_bytes;
        if (--pieces.left > 0) return false;
        abandoned_bytes = pieces.abandoned_bytes;
        flows.erase(index);
        return true;
    };
    switch (event.kind) {
        case EventKind::message_unexpected: {
            // Its receiver has always been waiting for it.
            ReceiveCommand command;
            command.peer = event.peer;
            command.tag = event.tag;
            command.capacity_bytes = UINT32_MAX;
            command.part = flow.task != none;  // what waits for a task waits for others too
            if (!endpoint.receive(h.engine.now(), command)) ++h.messages_refused;
            break;
        }
        case EventKind::receive_finished: {
            const auto outcome = endpoint.outcome(event.message);
            std::uint64_t abandoned_bytes = outcome.value.abandoned_bytes;
            endpoint.release(event.message);
            if (last(h.incoming, abandoned_bytes)) domain.flow_delivered(index, abandoned_bytes);
            break;
        }
        case EventKind::send_finished: {
            const auto outcome = endpoint.outcome(event.message);
            FlowResult& result = domain.result(index);
            result.sent_packets += outcome.value.blocks;
            if (outcome.value.block_bytes != 0)
                result.retransmitted_packets +=
                    (outcome.value.retransmitted_bytes + outcome.value.block_bytes - 1) /
                    outcome.value.block_bytes;
            endpoint.release(event.message);
            std::uint64_t abandoned_bytes = 0;
            if (last(h.outgoing, abandoned_bytes)) domain.flow_acknowledged(index);
            break;
        }
        case EventKind::send_failed:
        case EventKind::receive_failed: endpoint.release(event.message); break;  // counted by the engine
        default: break;
    }
}

// --- collectives ----------------------------------------------------------------------------------------------

void DlcpTransport::open_group(Host& h, std::uint32_t group, std::uint32_t own) {
    if (std::find(h.groups.begin(), h.groups.end(), group) != h.groups.end()) return;
    if (h.engine.executor == nullptr) h.engine.executor = std::make_unique<CollectiveExecutor>(h.engine.endpoint);
    h.engine.executor->open_group(h.engine.now(), group, groups_[group].members, own);
    h.groups.push_back(group);
}

void DlcpTransport::start_collective(Domain& domain, std::uint32_t index, std::uint32_t rank, std::uint32_t task) {
    if (index < collectives_.size() && collectives_[index]->switch_sum != none &&
        rank < collectives_[index]->outcomes.size()) {
        Collective& collective = *collectives_[index];
        collective.outcomes[rank].started_ps = domain.now_ps();
        collective.tasks[rank] = task;
        switch_sums_->start(domain, collective.switch_sum, rank);
        return;
    }
    if (index >= collectives_.size() || rank >= collectives_[index]->spec.members.size())
        throw std::logic_error("task " + std::to_string(task) + " is rank " + std::to_string(rank) +
                               " of collective " + std::to_string(index) + ", which does not exist");
    Collective& collective = *collectives_[index];
    const CollectiveSpec& spec = collective.spec;
    Host& h = host(spec.members[rank]);
    const Time now = h.engine.time(domain);
    const Schedule& schedule = *spec.schedules[rank];
    open_group(h, collective.group, rank);
    if (collective.late || !settings_.warm_sessions)
        for (const std::uint32_t other : schedule.peers()) peer(h.engine, spec.members[other]);

    const std::vector<ChunkMemory> inputs = partition(spec.inputs[rank], schedule.chunks(Space::input), spec.type);
    const std::vector<ChunkMemory> outputs =
        partition(spec.outputs[rank], schedule.chunks(Space::output), spec.type);
    CollectiveCommand command;
    command.group = collective.group;
    command.schedule = spec.schedules[rank];
    command.sequence = collective.sequence;
    command.input = inputs;
    command.output = outputs;
    command.type = spec.type;
    command.op = spec.op;
    command.average_over = spec.average_over;
    command.traffic_class = spec.traffic_class;

    LossRules loss;
    std::vector<std::vector<std::uint8_t>> drawn;
    std::vector<std::span<const std::uint8_t>> importance;
    const bool given = !spec.importance.empty();
    if (spec.loss_ratio > 0 || spec.deadline > Duration{0}) {
        loss.loss_ratio = spec.loss_ratio;
        loss.patience = spec.patience;
        loss.deadline = spec.deadline;
        loss.rescale = spec.rescale;
        importance.resize(spec.members.size());
        if (given) {
            for (std::size_t other = 0; other < spec.importance[rank].size() && other < importance.size(); ++other)
                importance[other] = spec.importance[rank][other];
        } else if (spec.critical_ratio < 1) {
            drawn.resize(spec.members.size());
            for (const Schedule::Step& step : schedule.steps()) {
                if (step.kind != ScheduleOp::Kind::send || !step.lossy) continue;
                const Chunk chunk = step.operands[0].chunk;
                if (chunk.space == Space::scratch) continue;
                const std::uint64_t bytes = (chunk.space == Space::input ? inputs : outputs)[chunk.index].bytes;
                if (bytes == 0) continue;
                const auto to = h.engine.endpoint.find_peer(spec.members[step.peer]);
                auto& blocks = drawn[step.peer];
                blocks.resize(
                    wire::block_count(static_cast<std::uint32_t>(bytes), h.engine.endpoint.block_bytes(*to)));
                const std::uint64_t of =
                    std::uint64_t{1} << 63 | std::uint64_t{index} << 24 | rank << 12 | step.peer;
                for (std::uint32_t block = 0; block < blocks.size(); ++block)
                    blocks[block] = draw_importance(domain, of, block, spec.critical_ratio);
                importance[step.peer] = blocks;
            }
        }
        loss.importance = importance;
        command.loss = &loss;
    }
    collective.outcomes[rank].started_ps = domain.now_ps();
    const CollectiveId id = h.engine.executor->start(now, command);
    h.active.push_back({id, index, rank, task});
    serve(domain, h);
}

void DlcpTransport::collective_over(Domain& domain, Host& h, CollectiveId id, CollectiveResult result) {
    const auto found =
        std::find_if(h.active.begin(), h.active.end(), [&](const Active& each) { return each.id == id; });
    const Active active = *found;
    h.active.erase(found);
    CollectiveOutcome& outcome = collectives_[active.index]->outcomes[active.rank];
    outcome.finished_ps = domain.now_ps();
    const bool failed = result.error != CollectiveError::none;
    outcome.result = std::move(result);
    // One that failed finishes nothing: what depends on it never starts, and the error says why.
    if (!failed && active.task != none) domain.task_finished(active.task);
}

void DlcpTransport::switch_sum_over(Domain& domain, const SwitchSums::Over& over) {
    Collective& collective = *collectives_[switch_sum_of_[over.sum]];
    const SwitchSumSpec& spec = switch_specs_[over.sum];
    CollectiveOutcome& outcome = collective.outcomes[over.rank];
    outcome.finished_ps = domain.now_ps();
    outcome.result.sent_bytes = outcome.result.received_bytes = spec.bytes * spec.bits / 32;
    outcome.result.retransmitted_bytes = over.repeated_packets * spec.lanes * 4;
    if (const std::uint32_t task = collective.tasks[over.rank]; task != none) domain.task_finished(task);
}

// --- after the run --------------------------------------------------------------------------------------------

std::map<std::string, double> DlcpTransport::counters() const {
    std::map<std::string, double> sums;
    if (switch_sums_ != nullptr) switch_sums_->add_counters(sums);
    for (const auto& each : hosts_) {
        if (!each) continue;
        const Counters& c = each->engine.endpoint.counters();
        const auto add = [&sums](const char* name, std::uint64_t value) {
            sums[name] += static_cast<double>(value);
        };
        add("engines", 1);
        add("data_packets_sent", c.data_packets_sent);
        add("control_packets_sent", c.control_packets_sent);
        add("repair_packets_sent", c.repair_packets_sent);
        add("acked_packets", c.acked_packets);
        add("lost_packets", c.lost_packets);
        add("spurious_losses", c.spurious_losses);
        add("probes_sent", c.probes_sent);
        add("data_packets_received", c.data_packets_received);
        add("duplicate_blocks", c.duplicate_blocks);
        add("late_blocks", c.late_blocks);
        add("ce_packets_received", c.ce_packets_received);
        add("trimmed_packets_received", c.trimmed_packets_received);
        add("held_packets", c.held_packets);
        add("messages_sent", c.messages_sent);
        add("messages_received", c.messages_received);
        add("messages_failed", c.messages_failed);
        add("abandoned_bytes", c.abandoned_bytes);
        add("stale_session", c.stale_session);
        add("inconsistent", c.inconsistent);
        add("peers_lost", each->peers_lost);
        add("paths_left", each->paths_left);
        add("messages_refused", each->messages_refused);
    }
    return sums;
}

namespace {

const TransportKind dlcp = TransportKind::of<DlcpTransport>("dlcp");

}  // namespace

}  // namespace dlcp::sim
