#include "collective_world.hpp"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdarg>
#include <cstring>
#include <utility>

#include "support/native/collective_loss.hpp"

namespace dlcp::test {
namespace {

constexpr std::uint8_t guard = 0xc9;   // between chunks
constexpr std::uint8_t nobody = 0xee;  // memory of an operation that is over: whoever uses it shows

constexpr std::uint64_t max_steps_now = 20'000;
constexpr std::uint32_t max_idle_timers = 1'000;
constexpr std::size_t max_packets_per_drain = 200'000;
constexpr std::size_t guard_bytes = 64;

std::uint64_t scatter(std::uint64_t z) {  // SplitMix64's finaliser
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

std::string format(const char* text, ...) __attribute__((format(printf, 1, 2)));
std::string format(const char* text, ...) {
    char buffer[512];
    va_list arguments;
    va_start(arguments, text);
    std::vsnprintf(buffer, sizeof buffer, text, arguments);
    va_end(arguments);
    return buffer;
}

// Bits of one element. Floating-point values are mostly of about one size, so that the order of a sum shows in its
// last bits, and now and then anything: infinities, NaNs, denormals.
std::uint64_t random_element(Dice& dice, DataType type) {
    const auto floating = [&](unsigned exponent_bits, unsigned mantissa_bits) {
        const std::uint64_t word = dice.word();
        if (dice.chance(0.01)) return word;
        const std::uint64_t exponent = (1u << (exponent_bits - 1)) - 4 + dice.below(6);
        const std::uint64_t mantissa = word & ((std::uint64_t{1} << mantissa_bits) - 1);
        return (word >> 63) << (exponent_bits + mantissa_bits) | exponent << mantissa_bits | mantissa;
    };
    switch (type) {
        case DataType::f32: return floating(8, 23);
        case DataType::f64: return floating(11, 52);
        case DataType::f16: return floating(5, 10);
        case DataType::bf16: return floating(8, 7);
        case DataType::boolean: return dice.chance(0.1) ? dice.word() : dice.below(2);
        default: return dice.word();
    }
}

std::vector<std::uint8_t> random_chunk(std::uint64_t seed, DataType type, std::size_t elements) {
    Dice dice(seed);
    const std::size_t width = element_bytes(type);
    std::vector<std::uint8_t> out(elements * width);
    for (std::size_t i = 0; i < elements; ++i) {
        const std::uint64_t bits = random_element(dice, type);
        std::memcpy(out.data() + i * width, &bits, width);
    }
    return out;
}

}  // namespace

CollectiveWorld::CollectiveWorld(std::uint64_t seed, std::uint64_t network_seed)
    : network_(scatter(network_seed)), dice_(scatter(network_seed + 1)), seed_(seed) {
    network_.observe([this](const PacketRecord& packet) {
        mix(static_cast<std::uint64_t>(packet.at.value));
        mix(std::uint64_t{packet.from} << 48 | std::uint64_t{packet.to} << 32 |
            std::uint64_t{static_cast<std::uint8_t>(packet.fate)} << 24 | std::uint64_t{packet.tos} << 16 |
            packet.path);
        if (packet.fate == Fate::sent)
            for (std::size_t i = 0; i + 8 <= std::min<std::size_t>(packet.bytes.size(), 64); i += 8) {
                std::uint64_t word;
                std::memcpy(&word, packet.bytes.data() + i, 8);
                mix(word);
            }
        if (trace_ == nullptr) return;
        wire::Datagram datagram;
        if (wire::parse(packet.bytes, packet.virtual_bytes, datagram) != wire::ParseError::none) return;
        const wire::Header& h = datagram.header;
        if (wire::is_data(h.type))
            log("%u->%u %-11s data    number %-5" PRIu64 " class %u message %u tag %016" PRIx64
                " block %u of %u bytes%s",
                packet.from, packet.to, name(packet.fate), h.packet_number, h.traffic_class, h.message_id, h.tag,
                h.block_index, h.message_bytes, (h.flags & wire::flag::repair) != 0 ? " repair" : "");
        else
            log("%u->%u %-11s %s number %-5" PRIu64 " %u bytes", packet.from, packet.to, name(packet.fate),
                h.type == wire::Type::hello ? "hello  " : "control", h.packet_number, h.payload_bytes);
    });
}

CollectiveWorld::~CollectiveWorld() = default;

std::uint32_t CollectiveWorld::add_host(EndpointConfig config, HostSettings settings) {
    const std::uint32_t rank = network_.add_host();
    config.rank = rank;
    config.announce_unexpected = true;
    if (const std::string complaint = config.validate(); !complaint.empty()) fail("settings: " + complaint);
    Host& host = hosts_.emplace_back();
    host.config = config;
    host.settings = settings;
    host.heads.reset(new std::uint8_t[std::size_t{settings.slots} * DLCP_HEAD_CAPACITY]);
    host.slots.resize(settings.slots);
    host.endpoint = std::make_unique<Endpoint>(config, scatter(scatter(seed_ + 2) + rank), now());
    host.executor = std::make_unique<CollectiveExecutor>(*host.endpoint);
    return rank;
}

std::uint32_t CollectiveWorld::add_group(std::uint32_t number, std::vector<std::uint32_t> members) {
    groups_.push_back({number, members, std::vector<bool>(members.size())});
    return static_cast<std::uint32_t>(groups_.size() - 1);
}

std::size_t CollectiveWorld::add(const CollectivePlan& plan) {
    collectives_.push_back(plan);
    return collectives_.size() - 1;
}

std::size_t CollectiveWorld::add(const MessagePlan& plan) {
    messages_.push_back(plan);
    taken_.push_back(false);
    return messages_.size() - 1;
}

void CollectiveWorld::fail(const std::string& what) {
    if (failed()) return;
    failure_ = format("at %.6f ms: ", static_cast<double>(now().value) / 1e6) + what;
    if (trace_ != nullptr) std::fprintf(trace_, "FAILED %s\n", failure_.c_str());
}

void CollectiveWorld::log(const char* text, ...) {
    if (trace_ == nullptr) return;
    std::fprintf(trace_, "%14.3f us  ", static_cast<double>(now().value) / 1e3);
    va_list arguments;
    va_start(arguments, text);
    std::vfprintf(trace_, text, arguments);
    va_end(arguments);
    std::fputc('\n', trace_);
}

void CollectiveWorld::mix(std::uint64_t value) { hash_ = std::rotl((hash_ ^ value) * 0x9e3779b97f4a7c15ULL, 29); }

std::string CollectiveWorld::describe(const Operation& operation) const {
    const Group& group = groups_[operation.group];
    const std::string where =
        format("rank %u (host %u) of group %u: ", operation.member, operation.host, group.number);
    if (operation.kind == Operation::Kind::collective) {
        const CollectivePlan& plan = collectives_[operation.plan];
        return where + format("%s, sequence %u, %s %s", plan.set->name.c_str(), plan.sequence, name(plan.type),
                              name(plan.op));
    }
    const MessagePlan& plan = messages_[operation.plan];
    return where + format("%s %u->%s%u tag %u, %u bytes",
                          operation.kind == Operation::Kind::send ? "send" : "receive", plan.from,
                          plan.from_anyone ? "(anyone) " : "", plan.to, plan.tag, plan.bytes);
}

// What an application does.

void CollectiveWorld::connect(Host& host, std::uint32_t rank) {
    if (!host.endpoint->connect(now(), rank, VirtualNetwork::address(rank))) fail("cannot connect");
}

void CollectiveWorld::open_group(std::uint32_t index, std::uint32_t member) {
    Group& group = groups_[index];
    if (group.open[member]) return;
    group.open[member] = true;
    const std::uint32_t host = group.members[member];
    if (!hosts_[host].executor->open_group(now(), group.number, group.members, member))
        fail(format("group %u is open already at host %u", group.number, host));
    log("host %u: opens group %u", host, group.number);
    drain(host);
}

// What each rank's chunks hold before a collective.
std::vector<RankMemory> CollectiveWorld::contents(std::size_t index) const {
    const CollectivePlan& plan = collectives_[index];
    std::vector<RankMemory> out;
    for (std::uint32_t rank = 0; rank < plan.set->world_size(); ++rank) {
        const RankPlan& chunks = plan.set->ranks[rank];
        RankMemory& memory = out.emplace_back();
        const auto fill = [&](const std::vector<std::uint32_t>& parts, std::uint64_t space, auto& into) {
            for (std::size_t i = 0; i < parts.size(); ++i)
                into.push_back(
                    random_chunk(scatter(scatter(seed_ + index) + (std::uint64_t{rank} << 32 | space << 24 | i)),
                                 plan.type, plan.part_elements[parts[i]]));
        };
        fill(chunks.input_parts, 0, memory.input);
        fill(chunks.output_parts, 1, memory.output);
        if (plan.all_ones)
            for (auto* side : {&memory.input, &memory.output})
                for (auto& chunk : *side)
                    for (std::size_t at = 0; at < chunk.size(); at += sizeof(float)) {
                        const float one = 1.0f;
                        std::memcpy(chunk.data() + at, &one, sizeof one);
                    }
        if (plan.in_place && chunks.in_place) {
            memory.in_place = chunks.in_place;
            memory.output[chunks.in_place->second] = memory.input[chunks.in_place->first];
        }
    }
    return out;
}

const std::vector<RankMemory>& CollectiveWorld::expected(std::size_t index) {
    auto found = wanted_.find(index);
    if (found == wanted_.end()) {
        const CollectivePlan& plan = collectives_[index];
        found = wanted_.emplace(index, contents(index)).first;
        run_slowly(*plan.set, plan.type, plan.op, plan.average_over, found->second);
    }
    return found->second;
}

LossJudge& CollectiveWorld::losses_of(std::size_t index) {
    std::unique_ptr<LossJudge>& judge = lossy_[index];
    if (!judge) judge = std::make_unique<LossJudge>(collectives_[index]);
    return *judge;
}

// Of each message that may lose, by blocks as they are cut now.
void CollectiveWorld::choose_importance(Operation& operation) {
    const CollectivePlan& plan = collectives_[operation.plan];
    const RankLoss& rules = plan.loss->ranks[operation.member];
    const Group& group = groups_[operation.group];
    const Endpoint& endpoint = *hosts_[operation.host].endpoint;
    Dice dice(scatter(seed_ + 55) + operation.plan * 64 + operation.member);
    operation.importance.resize(group.members.size());
    operation.block_bytes.resize(group.members.size());
    for (const Schedule::Step& step : plan.set->ranks[operation.member].schedule->steps()) {
        if (step.kind != ScheduleOp::Kind::send || !step.lossy || rules.all_critical) continue;
        const std::uint32_t part = plan.set->ranks[operation.member].input_parts[step.operands[0].chunk.index];
        const auto bytes = static_cast<std::uint32_t>(plan.part_elements[part] * element_bytes(plan.type));
        const std::uint16_t block_bytes = endpoint.block_bytes(*endpoint.find_peer(group.members[step.peer]));
        operation.block_bytes[step.peer] = block_bytes;
        if (bytes == 0) continue;
        std::vector<std::uint8_t>& importance = operation.importance[step.peer];
        for (std::uint32_t left = wire::block_count(bytes, block_bytes); left > 0; --left)
            importance.push_back(dice.chance(rules.critical_ratio)
                                     ? wire::importance_critical
                                     : static_cast<std::uint8_t>(dice.below(wire::importance_critical)));
    }
}

std::vector<std::uint8_t> CollectiveWorld::message_content(std::size_t index) const {
    return random_chunk(scatter(seed_ + 77) + index, DataType::u8, messages_[index].bytes);
}

void CollectiveWorld::lay_out(Operation& operation, const RankMemory& memory) {
    Dice dice(scatter(seed_ + 99) + operations_.size());
    std::vector<std::uint8_t>& arena = operation.arena;
    const auto place = [&](const std::vector<std::uint8_t>& chunk) {
        arena.insert(arena.end(), guard_bytes + dice.below(64), guard);
        const Operation::Place at{arena.size(), chunk.size()};
        arena.insert(arena.end(), chunk.begin(), chunk.end());
        return at;
    };
    for (const auto& chunk : memory.output) operation.output.push_back(place(chunk));
    for (std::size_t i = 0; i < memory.input.size(); ++i)
        operation.input.push_back(memory.in_place && memory.in_place->first == i
                                      ? operation.output[memory.in_place->second]
                                      : place(memory.input[i]));
    arena.insert(arena.end(), guard_bytes, guard);
    operation.at_start = arena;
    operation.written.assign(arena.size(), 0);
    for (const Operation::Place& each : operation.output)
        std::fill_n(operation.written.begin() + static_cast<std::ptrdiff_t>(each.at), each.bytes, std::uint8_t{1});
}

std::size_t CollectiveWorld::start_collective(std::size_t index, std::uint32_t member, Deviation deviation) {
    const CollectivePlan& plan = collectives_[index];
    const RankPlan& chunks = plan.set->ranks[member];
    open_group(plan.group, member);
    Operation& operation = operations_.emplace_back();
    operation.plan = index;
    operation.group = plan.group;
    operation.member = member;
    operation.host = groups_[plan.group].members[member];
    operation.deviation = deviation;
    operation.started = now();
    Host& host = hosts_[operation.host];
    for (const std::uint32_t peer : chunks.schedule->peers()) connect(host, groups_[plan.group].members[peer]);

    CollectiveCommand command;
    std::vector<ChunkMemory> input, output;
    if (plan.is_virtual) {
        const auto lengths = [&](const std::vector<std::uint32_t>& parts, std::vector<ChunkMemory>& into) {
            for (const std::uint32_t part : parts)
                into.push_back({nullptr, plan.part_elements[part] * std::uint64_t{element_bytes(plan.type)}});
        };
        lengths(chunks.input_parts, input);
        lengths(chunks.output_parts, output);
    } else {
        RankMemory memory = contents(index)[member];
        for (auto* side : {&memory.input, &memory.output})
            for (auto& chunk : *side)
                chunk.resize(chunk.size() + deviation.more_elements * element_bytes(plan.type));
        lay_out(operation, memory);
        const auto point = [&](const std::vector<Operation::Place>& places, std::vector<ChunkMemory>& into) {
            for (const Operation::Place& each : places)
                into.push_back({operation.arena.data() + each.at, each.bytes});
        };
        point(operation.input, input);
        point(operation.output, output);
    }
    command.group = groups_[plan.group].number;
    command.schedule = chunks.schedule;
    command.sequence = plan.sequence;
    command.signature = plan.signature ^ deviation.signature_bits;
    command.input = input;
    command.output = output;
    command.type = plan.type;
    command.op = plan.op;
    command.average_over = plan.average_over;
    command.traffic_class = plan.traffic_class;
    command.timeout = deviation.timeout.value_or(plan.timeout);
    LossRules loss;
    std::vector<std::span<const std::uint8_t>> importance;
    if (plan.loss && !deviation.reliable) {
        choose_importance(operation);
        const RankLoss& rules = plan.loss->ranks[member];
        importance.assign(operation.importance.begin(), operation.importance.end());
        loss.loss_ratio = rules.loss_ratio;
        loss.deadline = rules.deadline;
        loss.patience = rules.patience;
        loss.rescale = plan.loss->rescale;
        if (!rules.all_critical) loss.importance = importance;
        command.loss = &loss;
    }
    begin(operations_.size() - 1, host.executor->start(now(), command));
    return operations_.size() - 1;
}

std::size_t CollectiveWorld::start_message(std::size_t index, bool sending) {
    const MessagePlan& plan = messages_[index];
    const std::uint32_t member = sending ? plan.from : plan.to;
    open_group(plan.group, member);
    Operation& operation = operations_.emplace_back();
    operation.kind = sending ? Operation::Kind::send : Operation::Kind::receive;
    operation.plan = index;
    operation.group = plan.group;
    operation.member = member;
    operation.host = groups_[plan.group].members[member];
    operation.started = now();
    Host& host = hosts_[operation.host];
    const bool from_anyone = plan.from_anyone && !sending;
    const std::uint32_t peer = sending ? plan.to : plan.from;
    if (!from_anyone) connect(host, groups_[plan.group].members[peer]);

    MessageCommand command;
    command.group = groups_[plan.group].number;
    command.sending = sending;
    command.peer = from_anyone ? UINT32_MAX : peer;
    command.tag = plan.tag;
    command.memory.bytes = plan.bytes + (sending ? 0 : plan.more_bytes);
    command.traffic_class = plan.traffic_class;
    command.timeout = plan.timeout;
    if (!plan.is_virtual) {
        RankMemory memory;
        if (sending)
            memory.input.push_back(message_content(index));
        else
            memory.output.emplace_back(command.memory.bytes);
        lay_out(operation, memory);
        command.memory.data = operation.arena.data() + (sending ? operation.input : operation.output)[0].at;
    }
    begin(operations_.size() - 1, host.executor->start(now(), command));
    return operations_.size() - 1;
}

void CollectiveWorld::begin(std::size_t index, CollectiveId id) {
    Operation& operation = operations_[index];
    operation.id = id;
    Host& host = hosts_[operation.host];
    log("%s: starts as %u.%u", describe(operation).c_str(), id.slot, id.generation);
    if (!host.running.emplace(std::uint64_t{id.generation} << 32 | id.slot, index).second)
        fail(describe(operation) + ": got the id of another operation");
    if (!operation.arena.empty()) arenas_.emplace(operation.arena.data(), index);
    drain(operation.host);
}

void CollectiveWorld::close_group(std::uint32_t index, std::uint32_t member, bool tell) {
    Group& group = groups_[index];
    const std::uint32_t host = group.members[member];
    if (!group.open[member] || hosts_[host].stopped) return;
    log("host %u: closes group %u%s", host, group.number, tell ? " and says so" : "");
    group.open[member] = false;
    hosts_[host].executor->close_group(now(), group.number, tell);
    drain(host);
}

void CollectiveWorld::close(std::uint32_t host) {
    log("host %u: closes its endpoint", host);
    hosts_[host].endpoint->close(now());
    drain(host);
}

void CollectiveWorld::stop(std::uint32_t host) {
    log("host %u: stops", host);
    hosts_[host].stopped = true;
    network_.clear_inbox(host);
    for (const auto& [id, operation] : hosts_[host].running) operations_[operation].phase = Operation::Phase::lost;
}

void CollectiveWorld::freeze(std::uint32_t host) {
    log("host %u: freezes", host);
    hosts_[host].frozen = true;
}

void CollectiveWorld::thaw(std::uint32_t host) {
    log("host %u: goes on", host);
    hosts_[host].frozen = false;
}

// The loop.

Time CollectiveWorld::next_time() const {
    Time next = network_.next_event();
    for (std::uint32_t i = 0; i < hosts_.size(); ++i) {
        const Host& host = hosts_[i];
        if (!driven(host)) continue;
        next = std::min({next, host.endpoint->next_deadline(), host.executor->next_deadline()});
        if (host.wake_pending)
            next = std::min(next, host.wake_at);
        else if (network_.readable(i))
            next = std::min(next, now());
    }
    return next;
}

bool CollectiveWorld::all_over() const {
    return std::none_of(operations_.begin(), operations_.end(),
                        [](const Operation& each) { return each.phase == Operation::Phase::running; });
}

bool CollectiveWorld::run_until(Time until) {
    run(until, [] { return false; });
    return !failed();
}

bool CollectiveWorld::run(Time limit, const std::function<bool()>& done) {
    while (!failed()) {
        if (done()) return true;
        const Time next = next_time();
        if (next > limit || next == time_never) {
            if (limit != time_never && limit > now()) network_.advance(limit);
            return done();
        }
        step(std::max(next, now()));
    }
    return false;
}

void CollectiveWorld::step(Time at) {
    steps_now_ = at > now() ? 0 : steps_now_ + 1;
    if (steps_now_ > max_steps_now) return fail("time stands still: too many steps at one moment");
    network_.advance(at);
    ++steps_;
    for (std::uint32_t i = 0; i < hosts_.size() && !failed(); ++i) {
        Host& host = hosts_[i];
        if (host.stopped) network_.clear_inbox(i);
        if (!driven(host)) continue;
        if (!host.wake_pending && network_.readable(i)) {
            host.wake_pending = true;
            host.wake_at = now() + dice_.up_to(host.settings.wake_delay);
        }
        if (host.wake_pending && host.wake_at <= now()) {
            host.wake_pending = false;
            host.idle_timers = 0;
            read(i);
        }
        if (std::min(host.endpoint->next_deadline(), host.executor->next_deadline()) <= now()) {
            host.endpoint->handle_timer(now());
            host.executor->handle_timer(now());
            const std::size_t moved = drain(i);
            const bool still = std::min(host.endpoint->next_deadline(), host.executor->next_deadline()) <= now();
            host.idle_timers = moved == 0 && still ? host.idle_timers + 1 : 0;
            if (host.idle_timers > max_idle_timers)
                fail(format("host %u: a deadline stays in the past and nothing comes of it", i));
        }
        if (steps_ % check_every_ == 0)
            if (const std::string broken = host.endpoint->check_invariants(); !broken.empty())
                fail(format("host %u: invariant: ", i) + broken);
    }
}

void CollectiveWorld::read(std::uint32_t rank) {
    Host& host = hosts_[rank];
    dlcp_packet packets[64];
    const std::size_t batch = std::min<std::size_t>(host.settings.batch, std::size(packets));
    for (;;) {
        const std::size_t count = network_.receive(rank, {packets, batch});
        if (count == 0) return;
        host.endpoint->handle_packets(now(), {packets, count});
        // Nothing may have been kept of them.
        for (std::size_t i = 0; i < count; ++i) std::memset(packets[i].head, 0xbd, packets[i].head_bytes);
        network_.release({packets, count});
        drain(rank);
        if (failed()) return;
    }
}

// Until nothing more comes of it: an event may start a message, and a packet end one.
std::size_t CollectiveWorld::drain(std::uint32_t rank) {
    Host& host = hosts_[rank];
    if (!driven(host)) return 0;
    std::size_t moved = 0;
    for (bool more = true; more && !failed();) {
        more = false;
        for (std::size_t i = 0; i < host.slots.size(); ++i) {
            host.slots[i] = {};
            host.slots[i].head = host.heads.get() + i * DLCP_HEAD_CAPACITY;
        }
        const std::size_t count = host.endpoint->poll_transmit(now(), host.slots);
        for (std::size_t i = 0; i < count && !failed(); ++i) {
            check_packet(rank, host.slots[i]);
            if (on_packet) on_packet(rank, host.slots[i]);
        }
        network_.send(rank, std::span(host.slots).first(failed() ? 0 : count));
        moved += count;
        more |= count > 0;
        Event event;
        while (!failed() && host.endpoint->poll_event(event)) {
            ++moved;
            more = true;
            log("host %u: %s %s peer %u tag %016" PRIx64 " value %u", rank, name(event.kind), name(event.error),
                host.endpoint->rank_of(event.peer), event.tag, event.value);
            mix(static_cast<std::uint64_t>(event.kind) << 32 | static_cast<std::uint64_t>(event.error) << 24 |
                rank);
            if (on_event) on_event(rank, event);
            host.executor->handle_event(now(), event);
        }
        take_over(rank);
        if (moved > max_packets_per_drain) fail(format("host %u: poll_transmit never comes to an end", rank));
    }
    return moved;
}

// A payload in the memory of an operation that is over would be somebody else's by now.
void CollectiveWorld::check_packet(std::uint32_t rank, const dlcp_packet& packet) {
    if (packet.body == nullptr || packet.body_bytes == 0) return;
    auto found = arenas_.upper_bound(packet.body);
    if (found == arenas_.begin()) return;
    const Operation& operation = operations_[(--found)->second];
    if (packet.body >= operation.arena.data() + operation.arena.size()) return;
    if (operation.host != rank) return fail(describe(operation) + ": another host sends its memory");
    if (operation.phase == Operation::Phase::over)
        return fail(describe(operation) + ": is over, but its memory is still being sent");
    const auto at = static_cast<std::size_t>(packet.body - operation.arena.data());
    const auto holds = [&](const Operation::Place& place) {
        return place.at <= at && at + packet.body_bytes <= place.at + place.bytes;
    };
    if (std::none_of(operation.input.begin(), operation.input.end(), holds) &&
        std::none_of(operation.output.begin(), operation.output.end(), holds))
        fail(describe(operation) + ": a packet carries bytes outside its chunks");
}

void CollectiveWorld::take_over(std::uint32_t rank) {
    Host& host = hosts_[rank];
    CollectiveId id;
    CollectiveResult result;
    while (!failed() && host.executor->poll_over(id, result)) {
        const auto found = host.running.find(std::uint64_t{id.generation} << 32 | id.slot);
        if (found == host.running.end())
            return fail(
                format("host %u: operation %u.%u is over, but not under way", rank, id.slot, id.generation));
        Operation& operation = operations_[found->second];
        host.running.erase(found);
        operation.phase = Operation::Phase::over;
        operation.over = now();
        operation.result = std::move(result);
        const CollectiveResult& r = operation.result;
        log("%s: over: %s, cause %s, %s, culprit %d, reporter %d", describe(operation).c_str(), name(r.error),
            name(r.cause), name(r.engine_error), static_cast<int>(r.culprit), static_cast<int>(r.reporter));
        mix(static_cast<std::uint64_t>(r.error) << 32 | r.culprit);
        judge(operation);
        if (on_over) on_over(operation);
        std::fill(operation.arena.begin(), operation.arena.end(), nobody);
    }
}

// What is over.

void CollectiveWorld::judge(Operation& operation) {
    const CollectiveResult& result = operation.result;
    judge_memory(operation);
    const bool may_lose = operation.kind == Operation::Kind::collective && collectives_[operation.plan].loss;
    if (!result.abandoned.empty() && !may_lose)
        return fail(describe(operation) + ": says that something was given up, of what may not lose");
    if (result.waited != operation.over - operation.started)
        fail(describe(operation) + format(": says it waited %" PRId64 " ns", result.waited.value));
    if (result.error != CollectiveError::none) {
        if (!errors_allowed) fail(describe(operation) + ": fails: " + name(result.error));
        return;
    }
    if (operation.kind != Operation::Kind::collective) return judge_message(operation);
    const CollectivePlan& plan = collectives_[operation.plan];
    std::uint64_t sent = 0, received = 0;
    const auto bytes_of = [&](Chunk chunk) {
        const RankPlan& chunks = plan.set->ranks[operation.member];
        if (chunk.space == Space::scratch) chunk = chunks.schedule->scratch()[chunk.index];
        const auto& parts = chunk.space == Space::input ? chunks.input_parts : chunks.output_parts;
        return (plan.part_elements[parts[chunk.index]] + operation.deviation.more_elements) *
               std::uint64_t{element_bytes(plan.type)};
    };
    for (const Schedule::Step& step : plan.set->ranks[operation.member].schedule->steps()) {
        if (step.kind == ScheduleOp::Kind::send) sent += bytes_of(step.operands[0].chunk);
        if (step.kind == ScheduleOp::Kind::receive) received += bytes_of(step.target);
    }
    for (const CollectiveResult::Abandoned& each : result.abandoned)
        if (!each.sent) received -= each.abandoned_bytes;
    if (result.sent_bytes != sent || result.received_bytes != received)
        return fail(describe(operation) + format(": says %" PRIu64 " bytes sent, %" PRIu64
                                                 " received; the schedule has %" PRIu64 ", %" PRIu64,
                                                 result.sent_bytes, result.received_bytes, sent, received));
    if (operation.deviation.more_elements != 0 || !contents_judged) return;
    if (plan.loss) {
        if (const std::string wrong = losses_of(operation.plan).take(operation); !wrong.empty())
            fail(describe(operation) + ": " + wrong);
        return;
    }
    if (plan.is_virtual) return;
    const RankMemory& wanted = expected(operation.plan)[operation.member];
    std::uint64_t hash = scatter(operation.plan * 64 + operation.member);
    for (std::size_t i = 0; i < operation.output.size(); ++i) {
        const Operation::Place& place = operation.output[i];
        const std::uint8_t* got = operation.arena.data() + place.at;
        for (std::size_t b = 0; b < place.bytes; ++b) hash = (hash ^ got[b]) * 0x100000001b3ULL;
        const std::vector<std::uint8_t>& want = wanted.output[i];
        if (std::equal(want.begin(), want.end(), got)) continue;
        const auto at =
            static_cast<std::size_t>(std::mismatch(want.begin(), want.end(), got).first - want.begin());
        return fail(describe(operation) +
                    format(": output %zu is wrong from byte %zu of %zu on", i, at, place.bytes));
    }
    result_hash_ ^= hash;
}

void CollectiveWorld::judge_memory(const Operation& operation) {
    for (std::size_t i = 0; i < operation.arena.size(); ++i) {
        if (operation.written[i] != 0 || operation.arena[i] == operation.at_start[i]) continue;
        const bool input = std::any_of(operation.input.begin(), operation.input.end(), [&](const auto& place) {
            return place.at <= i && i < place.at + place.bytes;
        });
        return fail(describe(operation) +
                    (input ? ": its input was written" : ": memory beside its chunks was written"));
    }
}

void CollectiveWorld::judge_message(const Operation& operation) {
    const CollectiveResult& result = operation.result;
    const MessagePlan& plan = messages_[operation.plan];
    const bool sending = operation.kind == Operation::Kind::send;
    if (sending || !contents_judged) return;
    if (!plan.from_anyone && result.peer != plan.from)
        return fail(describe(operation) + format(": came from rank %u", result.peer));
    // Those of one sender and one tag come in order.
    std::size_t sent = 0;
    for (; sent < messages_.size(); ++sent) {
        const MessagePlan& other = messages_[sent];
        if (!taken_[sent] && other.group == plan.group && other.to == plan.to && other.tag == plan.tag &&
            other.from == result.peer)
            break;
    }
    if (sent == messages_.size())
        return fail(describe(operation) + format(": nobody sent it (rank %u is said to have)", result.peer));
    taken_[sent] = true;
    if (result.bytes != messages_[sent].bytes || result.received_bytes != result.bytes)
        return fail(describe(operation) + format(": says %" PRIu64 " bytes came", result.bytes));
    if (plan.is_virtual) return;
    const std::vector<std::uint8_t> wanted = message_content(sent);
    if (!std::equal(wanted.begin(), wanted.end(),
                    operation.arena.begin() + static_cast<std::ptrdiff_t>(operation.output[0].at)))
        fail(describe(operation) + ": holds other bytes than were sent");
}

void CollectiveWorld::finish() {
    for (const auto& [plan, judge] : lossy_)
        if (const std::string wrong = judge->judge(contents(plan)); !wrong.empty())
            fail(collectives_[plan].set->name + format(", sequence %u: ", collectives_[plan].sequence) + wrong);
    for (const Operation& operation : operations_) {
        if (operation.phase != Operation::Phase::over) continue;
        if (std::any_of(operation.arena.begin(), operation.arena.end(),
                        [](std::uint8_t byte) { return byte != nobody; }))
            fail(describe(operation) + ": its memory was written after it was over");
    }
    for (std::uint32_t i = 0; i < hosts_.size(); ++i)
        if (const std::string broken = hosts_[i].endpoint->check_invariants(); !broken.empty())
            fail(format("host %u: invariant: ", i) + broken);
}

}  // namespace dlcp::test
