#include "world.hpp"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdarg>
#include <cstring>
#include <utility>

#include "engine/frames.hpp"

namespace dlcp::test {
namespace {

// A probe or a piece in a data class: alone in its packet, so that nothing else waits behind data.
bool is_control_among_data(const EndpointConfig& config, const dlcp_packet& packet,
                           const wire::Datagram& datagram) {
    const wire::Header& h = datagram.header;
    if (h.type != wire::Type::control) return false;
    const auto data_classes = std::span(config.dscp).first(wire::control_class);
    if (std::find(data_classes.begin(), data_classes.end(), packet.tos >> 2) == data_classes.end()) return false;
    if ((h.flags & wire::flag::encrypted) != 0) return true;
    wire::FrameReader reader({datagram.payload, h.payload_bytes});
    wire::Frame frame;
    if (!reader.next(frame)) return false;
    const bool asks = (h.flags & wire::flag::ack_request) != 0;
    const bool fits = asks ? frame.type == wire::FrameType::probe : frame.type == wire::FrameType::piece;
    return fits && !reader.next(frame);
}

constexpr std::uint8_t canary = 0xc9;        // a receive buffer before anything arrived
constexpr std::uint8_t over_receive = 0xee;  // a receive buffer whose message is over
constexpr std::uint8_t over_send = 0xdd;     // a payload whose message is over: must not be sent any more

// Nothing that works takes this many steps at one moment, or wakes this often for nothing.
constexpr std::uint64_t max_steps_now = 20'000;
constexpr std::uint32_t max_idle_timers = 1'000;
constexpr std::size_t max_packets_per_drain = 100'000;

std::uint64_t scatter(std::uint64_t z) {  // SplitMix64's finaliser
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

// What message `serial` holds at [from, from + bytes): no two messages, and no two places, look alike.
void fill_pattern(std::uint32_t serial, std::size_t from, std::span<std::uint8_t> out) {
    for (std::size_t i = 0; i < out.size();) {
        const std::size_t at = from + i;
        const std::uint64_t word = scatter((std::uint64_t{serial} << 32 | at / 8) + 0x9e3779b97f4a7c15ULL);
        std::uint8_t bytes[8];
        std::memcpy(bytes, &word, 8);
        const std::size_t skip = at % 8;
        const std::size_t count = std::min<std::size_t>(8 - skip, out.size() - i);
        std::memcpy(out.data() + i, bytes + skip, count);
        i += count;
    }
}

bool all_are(std::span<const std::uint8_t> bytes, std::uint8_t value) {
    if (bytes.empty()) return true;
    return bytes[0] == value && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

bool bit(const std::vector<std::uint64_t>& words, std::uint32_t i) {
    return i / 64 < words.size() && (words[i / 64] >> i % 64 & 1) != 0;
}

// The bytes that block `i` holds.
std::uint32_t block_length(std::uint32_t message_bytes, std::uint16_t block_bytes, std::uint32_t i) {
    const std::uint64_t start = std::uint64_t{i} * block_bytes;
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(block_bytes, message_bytes - start));
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

const char* word(Delivery delivery) {
    switch (delivery) {
        case Delivery::reliable: return "reliable";
        case Delivery::bounded: return "bounded";
        case Delivery::deadline: return "deadline";
    }
    return "unknown";
}

}  // namespace

std::string describe(const SendRecord& send) {
    return format("send #%u %u->%u tag %" PRIu64 " (%u bytes, %s, loss ratio %g)", send.serial, send.plan.from,
                  send.plan.to, send.tag, send.plan.message_bytes, word(send.plan.delivery), send.plan.loss_ratio);
}

std::string describe(const ReceiveRecord& receive) {
    const std::string from =
        receive.plan.from == ReceivePlan::anyone ? "anyone" : std::to_string(receive.plan.from);
    return format("receive at %u from %s tag %" PRIu64 " (room for %u bytes)", receive.plan.at, from.c_str(),
                  receive.tag, receive.plan.capacity_bytes);
}

World::World(std::uint64_t seed, Time origin) : network_(scatter(seed)), dice_(scatter(seed + 1)), seed_(seed) {
    network_.advance(origin);
    network_.observe([this](const PacketRecord& packet) {
        mix(static_cast<std::uint64_t>(packet.at.value));
        mix(std::uint64_t{packet.from} << 48 | std::uint64_t{packet.to} << 32 |
            std::uint64_t{static_cast<std::uint8_t>(packet.fate)} << 24 | std::uint64_t{packet.tos} << 16 |
            packet.path);
        if (packet.fate == Fate::sent || packet.fate == Fate::arrived) mix(packet.bytes);
        if (trace_ != nullptr) {
            wire::Datagram datagram;
            const std::string head = format("%u->%u %-11s", packet.from, packet.to, name(packet.fate));
            if (wire::parse(packet.bytes, packet.virtual_bytes, datagram) != wire::ParseError::none) {
                log("%s %zu bytes that do not parse", head.c_str(), packet.bytes.size());
                return;
            }
            const wire::Header& h = datagram.header;
            if (wire::is_data(h.type)) {
                log("%s data    session %08x number %-5" PRIu64
                    " path %-2u class %u message %u block %u/%u importance %u%s%s%s%s",
                    head.c_str(), h.session, h.packet_number, h.path, h.traffic_class, h.message_id, h.block_index,
                    h.block_bytes == 0 ? 1 : wire::block_count(h.message_bytes, h.block_bytes), h.importance,
                    (h.flags & wire::flag::repair) != 0 ? " repair" : "",
                    (h.flags & wire::flag::first_pass_over) != 0 ? " first_pass_over" : "",
                    (h.flags & wire::flag::ack_request) != 0 ? " ack_request" : "",
                    (h.flags & wire::flag::trimmed) != 0 ? " trimmed" : "");
            } else {
                log("%s %s session %08x number %-5" PRIu64 " path %-2u floor %u, %u bytes", head.c_str(),
                    h.type == wire::Type::hello ? "hello  " : "control", h.session, h.packet_number, h.path,
                    h.message_id, h.payload_bytes);
            }
        }
    });
}

World::~World() = default;

std::uint32_t World::add_host(EndpointConfig config, HostSettings settings) {
    const std::uint32_t rank = network_.add_host();
    config.rank = rank;
    config.virtual_payload = true;
    if (const std::string complaint = config.validate(); !complaint.empty()) fail("settings: " + complaint);
    Host& host = hosts_.emplace_back();
    host.config = std::move(config);
    host.settings = settings;
    host.heads.reset(new std::uint8_t[std::size_t{settings.slots} * DLCP_HEAD_CAPACITY]);
    host.slots.resize(settings.slots);
    start_endpoint(rank);
    return rank;
}

void World::start_endpoint(std::uint32_t rank) {
    Host& host = hosts_[rank];
    // Seeds of incarnations must differ, since session ids must.
    const std::uint64_t seed = scatter(scatter(seed_ + 2) + (std::uint64_t{rank} << 32 | host.life));
    host.endpoint = std::make_unique<Endpoint>(host.config, seed, now());
    host.sends_finished = host.receives_finished = host.messages_failed = 0;
    host.abandoned_bytes = host.abandoned_by_peer_bytes = host.delivered_bytes = 0;
    host.closed = false;
}

void World::fail(const std::string& what) {
    if (failed()) return;
    failure_ = format("at %.6f ms: ", static_cast<double>(now().value) / 1e6) + what;
    if (trace_ == nullptr) return;
    std::fprintf(trace_, "FAILED %s\n", failure_.c_str());
    for (std::uint32_t i = 0; i < hosts_.size(); ++i) {
        if (!alive(i)) continue;
        const Counters& c = hosts_[i].endpoint->counters();
        std::fprintf(trace_,
                     "host %u dropped: foreign job %" PRIu64 ", stale session %" PRIu64 ", bad tag %" PRIu64
                     ", unauthenticated %" PRIu64 ", replayed %" PRIu64 ", malformed frames %" PRIu64
                     ", inconsistent %" PRIu64 ", held %" PRIu64 "\n",
                     i, c.foreign_job, c.stale_session, c.bad_tag, c.unauthenticated, c.replayed,
                     c.malformed_frames, c.inconsistent, c.held_packets);
    }
}

void World::log(const char* text, ...) {
    if (trace_ == nullptr) return;
    std::fprintf(trace_, "%14.3f us  ", static_cast<double>(now().value) / 1e3);
    va_list arguments;
    va_start(arguments, text);
    std::vfprintf(trace_, text, arguments);
    va_end(arguments);
    std::fputc('\n', trace_);
}

void World::mix(std::uint64_t value) { hash_ = std::rotl((hash_ ^ value) * 0x9e3779b97f4a7c15ULL, 29); }

void World::mix(std::span<const std::uint8_t> bytes) {
    std::uint64_t value;
    while (bytes.size() >= sizeof value) {
        std::memcpy(&value, bytes.data(), sizeof value);
        mix(value);
        bytes = bytes.subspan(sizeof value);
    }
    value = bytes.size();
    for (const std::uint8_t byte : bytes) value = value << 8 | byte;
    mix(value);
}

// Commands.

CommandError World::connect(std::uint32_t from, std::uint32_t to) {
    if (!alive(from)) return CommandError::closed;
    const dlcp_address address = VirtualNetwork::address(to);
    const auto result = hosts_[from].endpoint->connect(now(), to, address);
    log("host %u: connect to %u: %s", from, to, name(result.error));
    drain(from);
    return result.error;
}

bool World::established(std::uint32_t from, std::uint32_t to) const {
    const auto& endpoint = hosts_[from].endpoint;
    if (!endpoint) return false;
    const auto peer = endpoint->find_peer(to);
    return peer && endpoint->established(*peer);
}

std::size_t World::send(const SendPlan& plan) {
    const std::size_t index = sends_.size();
    SendRecord& record = sends_.emplace_back();
    record.plan = plan;
    record.host = plan.from;
    record.life = hosts_[plan.from].life;
    record.tag = plan.tag;
    record.serial = static_cast<std::uint32_t>(index);
    record.posted = record.over = now();
    record.phase = Phase::refused_at_once;
    if (!alive(plan.from)) {
        record.error = CommandError::closed;
        return index;
    }
    Endpoint& endpoint = *hosts_[plan.from].endpoint;
    const auto peer = endpoint.connect(now(), plan.to, VirtualNetwork::address(plan.to));
    if (!peer) {
        record.error = peer.error;
        return index;
    }
    record.peer = peer.value;
    record.block_bytes = endpoint.block_bytes(peer.value);
    record.established = endpoint.established(peer.value);
    if (!plan.is_virtual) {
        record.memory.resize(plan.message_bytes);
        fill_pattern(record.serial, 0, record.memory);
    }
    if (plan.critical_ratio >= 0.0) {
        Dice dice(scatter(seed_ + 3) + index);
        record.importance.resize(wire::block_count(plan.message_bytes, record.block_bytes));
        for (std::uint8_t& importance : record.importance) {
            importance = dice.chance(plan.critical_ratio) ? wire::importance_critical
                                                          : static_cast<std::uint8_t>(dice.below(255));
        }
    }
    SendCommand command;
    command.peer = peer.value;
    command.tag = plan.tag;
    command.payload = plan.is_virtual ? nullptr : record.memory.data();
    command.message_bytes = plan.message_bytes;
    command.traffic_class = plan.traffic_class;
    command.delivery = plan.delivery;
    command.loss_ratio = plan.loss_ratio;
    command.deadline = plan.deadline;
    command.patience = plan.patience;
    command.importance = record.importance;
    const auto result = endpoint.send(now(), command);
    record.error = result.error;
    log("host %u: %s class %u: %s, message %u.%u", plan.from, describe(record).c_str(), plan.traffic_class,
        name(result.error), result.value.slot, result.value.generation);
    if (result) {
        record.phase = Phase::open;
        record.id = result.value;
        hosts_[plan.from].open_sends.push_back(index);
    }
    drain(plan.from);
    return index;
}

std::size_t World::receive(const ReceivePlan& plan) {
    const std::size_t index = receives_.size();
    ReceiveRecord& record = receives_.emplace_back();
    record.plan = plan;
    record.host = plan.at;
    record.life = hosts_[plan.at].life;
    record.tag = plan.tag;
    record.posted = record.over = now();
    record.phase = Phase::refused_at_once;
    record.error = CommandError::closed;
    if (!alive(plan.at)) return index;
    Endpoint& endpoint = *hosts_[plan.at].endpoint;
    ReceiveCommand command;
    if (plan.from != ReceivePlan::anyone) {
        const auto peer = endpoint.connect(now(), plan.from, VirtualNetwork::address(plan.from));
        record.error = peer.error;
        if (!peer) return index;
        record.peer = peer.value;
        command.peer = peer.value;
    }
    if (!plan.is_virtual) record.memory.assign(plan.capacity_bytes, canary);
    command.tag = plan.tag;
    command.buffer = plan.is_virtual ? nullptr : record.memory.data();
    command.capacity_bytes = plan.capacity_bytes;
    const auto result = endpoint.receive(now(), command);
    record.error = result.error;
    log("host %u: %s: %s, message %u.%u", plan.at, describe(record).c_str(), name(result.error), result.value.slot,
        result.value.generation);
    if (result) {
        record.phase = Phase::open;
        record.id = result.value;
        hosts_[plan.at].open_receives.push_back(index);
    }
    drain(plan.at);
    return index;
}

void World::cancel_send(std::size_t index) {
    SendRecord& record = sends_[index];
    if (record.phase != Phase::open) return;
    record.cancelled = true;
    const CommandError error = hosts_[record.host].endpoint->cancel(now(), record.id);
    log("host %u: cancel %s: %s", record.host, describe(record).c_str(), name(error));
    if (error != CommandError::none) fail(describe(record) + ": cancel before the final event: " + name(error));
    drain(record.host);
}

void World::cancel_receive(std::size_t index) {
    ReceiveRecord& record = receives_[index];
    if (record.phase != Phase::open) return;
    record.cancelled = true;
    const CommandError error = hosts_[record.host].endpoint->cancel(now(), record.id);
    log("host %u: cancel %s: %s", record.host, describe(record).c_str(), name(error));
    if (error != CommandError::none) fail(describe(record) + ": cancel before the final event: " + name(error));
    drain(record.host);
}

void World::advance_key_epoch(std::uint32_t host) {
    if (!alive(host)) return;
    log("host %u: advance_key_epoch: %s", host, name(hosts_[host].endpoint->advance_key_epoch()));
    drain(host);
}

void World::close(std::uint32_t host) {
    if (!alive(host)) return;
    log("host %u: close", host);
    hosts_[host].closed = true;
    hosts_[host].endpoint->close(now());
    drain(host);
    if (!hosts_[host].open_sends.empty() || !hosts_[host].open_receives.empty()) {
        fail(format("host %u: closed, but messages are not over", host));
    }
}

void World::lose_records(std::uint32_t host) {
    for (const std::size_t index : hosts_[host].open_sends) sends_[index].phase = Phase::lost;
    for (const std::size_t index : hosts_[host].open_receives) receives_[index].phase = Phase::lost;
    hosts_[host].open_sends.clear();
    hosts_[host].open_receives.clear();
}

void World::stop(std::uint32_t host) {
    log("host %u: stops", host);
    lose_records(host);
    hosts_[host].endpoint.reset();
    hosts_[host].next_number.clear();
    hosts_[host].restarted = true;
    hosts_[host].wake_pending = false;
    ++hosts_[host].life;
    network_.clear_inbox(host);
}

void World::restart(std::uint32_t host) {
    stop(host);
    log("host %u: starts again", host);
    start_endpoint(host);
}

void World::scribble() {
    for (Host& host : hosts_) {
        for (const std::size_t index : host.open_receives) {
            ReceiveRecord& receive = receives_[index];
            // Only where it is certain which message this buffer is for.
            const SendRecord* only = nullptr;
            int candidates = 0;
            for (const SendRecord& send : sends_) {
                if (send.plan.to != receive.plan.at || send.tag != receive.tag) continue;
                ++candidates;
                only = &send;
            }
            if (candidates != 1 || only->memory.empty() || only->plan.message_bytes > receive.memory.size())
                continue;
            if (only->phase == Phase::refused_at_once || !only->established) continue;
            const std::uint32_t blocks = wire::block_count(only->plan.message_bytes, only->block_bytes);
            if (receive.scribbled.empty()) {
                receive.scribbled.resize(blocks);
                receive.scribbled_block_bytes = only->block_bytes;
            }
            for (std::uint32_t i = 0; i < blocks; ++i) {
                if (receive.scribbled[i]) continue;
                const std::uint32_t length = block_length(only->plan.message_bytes, only->block_bytes, i);
                if (length < 16) continue;  // too short to be sure
                const std::span<std::uint8_t> block(receive.memory.data() + std::size_t{i} * only->block_bytes,
                                                    length);
                scratch_.resize(length);
                fill_pattern(only->serial, std::size_t{i} * only->block_bytes, scratch_);
                if (std::memcmp(block.data(), scratch_.data(), length) != 0) continue;
                for (std::uint8_t& byte : block) byte = static_cast<std::uint8_t>(~byte);
                receive.scribbled[i] = true;
            }
        }
    }
}

// The loop.

Time World::next_time() const {
    Time next = network_.next_event();
    for (std::uint32_t i = 0; i < hosts_.size(); ++i) {
        const Host& host = hosts_[i];
        if (host.endpoint) next = std::min(next, host.endpoint->next_deadline());
        if (host.wake_pending) {
            next = std::min(next, host.wake_at);
        } else if (network_.readable(i)) {
            next = std::min(next, now());
        }
    }
    return next;
}

bool World::nothing_under_way() const { return next_time() == time_never; }

bool World::run_until(Time until) {
    run(until, [] { return false; });
    return !failed() && !nothing_under_way();
}

bool World::run(Time limit, const std::function<bool()>& done) {
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

void World::step(Time at) {
    steps_now_ = at > now() ? 0 : steps_now_ + 1;
    if (steps_now_ > max_steps_now) return fail("time stands still: too many steps at one moment");
    network_.advance(at);
    ++steps_;
    for (std::uint32_t i = 0; i < hosts_.size() && !failed(); ++i) {
        Host& host = hosts_[i];
        if (!host.endpoint) {
            network_.clear_inbox(i);
            continue;
        }
        if (!host.wake_pending && network_.readable(i)) {
            host.wake_pending = true;
            host.wake_at = now() + dice_.up_to(host.settings.wake_delay);
        }
        if (host.wake_pending && host.wake_at <= now()) {
            host.wake_pending = false;
            host.idle_timers = 0;
            read(i);
        }
        if (host.endpoint->next_deadline() <= now()) {
            host.endpoint->handle_timer(now());
            const std::size_t moved = drain(i);
            if (moved == 0 && host.endpoint->next_deadline() <= now()) {
                if (++host.idle_timers > max_idle_timers) {
                    fail(format("host %u: next_deadline() stays in the past and nothing comes of it", i));
                }
            } else {
                host.idle_timers = 0;
            }
        }
        if (steps_ % check_every_ == 0) {
            if (const std::string broken = host.endpoint->check_invariants(); !broken.empty()) {
                fail(format("host %u: invariant: ", i) + broken);
            }
        }
    }
}

void World::read(std::uint32_t rank) {
    Host& host = hosts_[rank];
    dlcp_packet packets[64];
    const std::size_t batch = std::min<std::size_t>(host.settings.batch, std::size(packets));
    for (;;) {
        const std::size_t count = network_.receive(rank, {packets, batch});
        if (count == 0) return;
        host.endpoint->handle_packets(now(), {packets, count});
        // The engine must have kept nothing of them.
        for (std::size_t i = 0; i < count; ++i) std::memset(packets[i].head, 0xbd, packets[i].head_bytes);
        network_.release({packets, count});
        drain(rank);
        if (failed() || !host.endpoint) return;
    }
}

std::size_t World::drain(std::uint32_t rank) {
    Host& host = hosts_[rank];
    std::size_t moved = 0;
    for (;;) {
        for (std::size_t i = 0; i < host.slots.size(); ++i) {
            host.slots[i] = {};
            host.slots[i].head = host.heads.get() + i * DLCP_HEAD_CAPACITY;
        }
        const std::size_t count = host.endpoint->poll_transmit(now(), host.slots);
        if (count > host.slots.size())
            fail(format("host %u: poll_transmit filled more slots than it was given", rank));
        for (std::size_t i = 0; i < count && !failed(); ++i) {
            judge_packet(rank, host.slots[i]);
        }
        network_.send(rank, std::span(host.slots).first(failed() ? 0 : count));
        moved += count;
        if (count == 0 || failed()) break;
        if (moved > max_packets_per_drain) fail(format("host %u: poll_transmit never comes to an end", rank));
    }
    Event event;
    while (!failed() && host.endpoint->poll_event(event)) {
        ++moved;
        handle_event(rank, event);
    }
    return moved;
}

// What an engine sends.

namespace {

// Gives a short header what an earlier one said of the message. False: the message has no such block.
bool lengthen(wire::Header& h, const wire::Header& said) {
    h.type = wire::Type::data;
    h.tag = said.tag;
    h.message_bytes = said.message_bytes;
    h.critical_blocks = said.critical_blocks;
    h.block_bytes = said.block_bytes;
    h.budget = said.budget;
    h.deadline = said.deadline;
    return h.block_index < wire::block_count(h.message_bytes, h.block_bytes) &&
           h.payload_bytes == block_length(h.message_bytes, h.block_bytes, h.block_index);
}

}  // namespace

void World::judge_packet(std::uint32_t rank, const dlcp_packet& packet) {
    Host& host = hosts_[rank];
    const auto broken = [&](const std::string& what) { fail(format("host %u sent a packet: ", rank) + what); };

    const std::uint32_t to = packet.address != nullptr ? VirtualNetwork::host_of(*packet.address) : UINT32_MAX;
    if (to >= hosts_.size() || to == rank) return broken("to an address of nobody");
    const std::uint64_t length = std::uint64_t{packet.head_bytes} + packet.body_bytes + packet.tail_bytes;
    if (packet.head_bytes < wire::short_header_bytes ||
        packet.head_bytes + packet.tail_bytes > DLCP_HEAD_CAPACITY) {
        return broken("its head does not fit");
    }
    if (length > host.config.max_datagram_bytes) return broken(format("of %" PRIu64 " bytes", length));
    if (packet.path >= host.config.paths) return broken(format("on path %u", packet.path));
    const bool is_virtual = (packet.flags & DLCP_PACKET_VIRTUAL) != 0;
    if (packet.body_bytes != 0 && (packet.body == nullptr) != is_virtual) return broken("its body is not there");

    wire::Datagram datagram;
    // The header alone is read; the length is that of the whole.
    const wire::ParseError error = wire::parse({packet.head, length - (is_virtual ? packet.body_bytes : 0)},
                                               is_virtual ? packet.body_bytes : 0, datagram);
    if (error != wire::ParseError::none) return broken(std::string("that does not parse: ") + wire::name(error));
    if (length < wire::header_bytes) return broken("shorter than a long header");
    wire::Header& h = datagram.header;
    std::uint64_t& next = host.next_number[{to, host.own_session[to], h.session}];
    if (h.type == wire::Type::data) host.described.insert_or_assign({to, h.session, h.message_id}, h);
    if (h.type == wire::Type::short_data) {
        h.packet_number = wire::expand_packet_number(h.packet_number, next);
        const auto known = host.described.find({to, h.session, h.message_id});
        if (known == host.described.end()) {
            // The long header may have left in pieces, which are not read here.
            if (host.endpoint->counters().datagrams_shrunk == 0)
                return broken("a short header of a message not yet described");
            next = h.packet_number + 1;
            return;
        }
        // From here on as if it had the long header: the rest must hold for it all the same.
        h.source_rank = rank;
        if (!lengthen(h, known->second)) return broken("with a short header for a block that its message has not");
    }
    if ((h.flags & wire::flag::trimmed) != 0) return broken("flagged as trimmed");
    if (((h.flags & wire::flag::authenticated) != 0) != host.config.job_key.has_value()) {
        return broken("its tag does not follow the settings");
    }
    if (h.job != host.config.job || h.source_rank != rank) return broken("of another job or rank");
    if (h.path != packet.path) return broken("its path is not the one in its header");
    if (packet.tos >> 2 != host.config.dscp[h.traffic_class] &&
        !is_control_among_data(host.config, packet, datagram))
        return broken(format("with TOS 0x%02x", packet.tos));
    if (h.type == wire::Type::data) {
        const bool ecn_capable = (packet.tos & 3) == 2;
        if (ecn_capable != ((h.flags & wire::flag::critical) != 0) || (packet.tos & 1) != 0) {
            return broken("its ECN bits do not say whether it is critical");
        }
    }
    if (h.type == wire::Type::hello) {
        wire::FrameReader frames({packet.head + wire::header_bytes, h.payload_bytes});
        wire::Frame frame;
        wire::Hello hello;
        if (!frames.next(frame) || !wire::read_hello(frame, hello)) return broken("a hello without one");
        host.own_session[to] = hello.own_session;
    } else {
        if (h.packet_number < next) return broken(format("number %" PRIu64 " again", h.packet_number));
        next = h.packet_number + 1;
    }
    if (h.type == wire::Type::data && packet.body_bytes != 0 && !is_virtual) {
        const auto owner = std::find_if(host.open_sends.begin(), host.open_sends.end(), [&](std::size_t index) {
            const auto& memory = sends_[index].memory;
            return packet.body >= memory.data() &&
                   packet.body + packet.body_bytes <= memory.data() + memory.size();
        });
        if (owner == host.open_sends.end()) return broken("with a payload of no message under way");
        SendRecord& send = sends_[*owner];
        const auto offset = static_cast<std::uint64_t>(packet.body - send.memory.data());
        if (h.tag != send.tag || send.plan.to != to || h.message_bytes != send.plan.message_bytes ||
            offset != std::uint64_t{h.block_index} * h.block_bytes) {
            return broken("its header names another place than its payload: " + describe(send));
        }
        if (h.traffic_class != send.plan.traffic_class) return broken("in another class: " + describe(send));
        if (!says_importance(send, h)) return broken(format("with importance %u", h.importance));
    }
    if (watcher_) watcher_(rank, h);
}

// Whether a block's header states the importance that the application gave. Without a deadline the last droppable block
// of a message is critical, and all are if the budget is below a block.
bool World::says_importance(SendRecord& send, const wire::Header& h) {
    if (send.importance.empty()) return h.importance == wire::importance_critical;
    if (h.block_bytes != send.block_bytes || h.importance == send.importance[h.block_index]) return true;
    if (h.importance != wire::importance_critical || h.deadline != 0) return false;
    if (wire::budget_bytes(h.message_bytes, h.budget) < h.block_bytes) return true;
    if (!send.ended_by) send.ended_by = h.block_index;
    return *send.ended_by == h.block_index;
}

// What an engine says.

void World::handle_event(std::uint32_t rank, const Event& event) {
    mix(static_cast<std::uint64_t>(event.kind) << 32 | static_cast<std::uint64_t>(event.error) << 24 | rank);
    mix(event.tag ^ static_cast<std::uint64_t>(now().value));
    log("host %u: %s %s, message %u.%u tag %" PRIu64 " value %u", rank, name(event.kind), name(event.error),
        event.message.slot, event.message.generation, event.tag, event.value);
    Host& host = hosts_[rank];
    switch (event.kind) {
        case EventKind::send_finished:
        case EventKind::send_failed: handle_final(rank, event, true); break;
        case EventKind::receive_finished:
        case EventKind::receive_failed: handle_final(rank, event, false); break;
        case EventKind::peer_down:
            if (event.error == CommandError::peer_timeout && !allowed.timeouts) {
                fail(format("host %u: a peer that answers was given up", rank));
            }
            for (const std::size_t index : host.open_sends) {
                if (sends_[index].peer == event.peer && sends_[index].posted < now()) {
                    fail("peer_down before the final event of " + describe(sends_[index]));
                }
            }
            break;
        case EventKind::peer_established:
        case EventKind::path_down:
        case EventKind::path_up:
        case EventKind::bound_reached:
        case EventKind::message_unexpected: break;
    }
    if (on_event) on_event(rank, event);
}

void World::handle_final(std::uint32_t rank, const Event& event, bool sending) {
    Host& host = hosts_[rank];
    auto& open = sending ? host.open_sends : host.open_receives;
    const auto record_at = [&](std::size_t index) -> Record& {
        return sending ? static_cast<Record&>(sends_[index]) : static_cast<Record&>(receives_[index]);
    };
    const auto found = std::find_if(open.begin(), open.end(),
                                    [&](std::size_t index) { return record_at(index).id == event.message; });
    if (found == open.end()) {
        return fail(format("host %u: %s for message %u.%u, which is not under way", rank, name(event.kind),
                           event.message.slot, event.message.generation));
    }
    const std::size_t index = *found;
    open.erase(found);
    Record& record = record_at(index);
    const std::string who = sending ? describe(sends_[index]) : describe(receives_[index]);
    const bool finished = event.kind == EventKind::send_finished || event.kind == EventKind::receive_finished;
    record.phase = finished ? Phase::finished : Phase::failed;
    record.error = event.error;
    record.over = now();
    if (event.tag != record.tag) return fail(who + ": its final event has another tag");
    if (finished != (event.error == CommandError::none)) return fail(who + ": event and error disagree");
    if (event.waited != record.over - record.posted) {
        return fail(who + format(": says it waited %" PRId64 " ns, not %" PRId64, event.waited.value,
                                 (record.over - record.posted).value));
    }
    if (!finished) {
        ++host.messages_failed;
        sending ? judge_send_error(sends_[index]) : judge_receive_error(receives_[index]);
    } else {
        take_outcome(record, event);
        if (failed()) return;
        if (sending) {
            SendRecord& send = sends_[index];
            ++host.sends_finished;
            host.abandoned_by_peer_bytes += record.outcome.abandoned_bytes;
            if (record.outcome.message_bytes != send.plan.message_bytes)
                return fail(who + ": outcome of another length");
            judge_budget(send, record.outcome, record.abandoned, record.over);
            if (send.receive >= 0) judge_pair(send, receives_[static_cast<std::size_t>(send.receive)]);
        } else {
            ++host.receives_finished;
            host.abandoned_bytes += record.outcome.abandoned_bytes;
            host.delivered_bytes += record.outcome.delivered_bytes;
            match(receives_[index], index, host.endpoint->rank_of(event.peer));
        }
    }
    // From here on the memory is the application's again: using it is an error, and shows.
    std::fill(record.memory.begin(), record.memory.end(), sending ? over_send : over_receive);
    if (dice_.chance(0.5)) {
        if (host.endpoint->release(record.id) != CommandError::none) fail(who + ": cannot be released");
        record.released = true;
    }
}

void World::take_outcome(Record& record, const Event& event) {
    const auto result = hosts_[record.host].endpoint->outcome(event.message);
    if (!result) return fail(std::string("no outcome after ") + name(event.kind) + ": " + name(result.error));
    record.outcome = result.value;
    record.abandoned.assign(result.value.abandoned.begin(), result.value.abandoned.end());
    record.outcome.abandoned = record.abandoned;
    mix(std::uint64_t{record.outcome.delivered_bytes} << 32 | record.outcome.abandoned_bytes);
    judge_outcome(record);
}

void World::judge_outcome(const Record& record) {
    const MessageOutcome& o = record.outcome;
    const std::string who = format("outcome of tag %" PRIu64 " at host %u: ", record.tag, record.host);
    if (o.message_bytes != 0 && o.block_bytes == 0) return fail(who + "block_bytes is 0");
    const std::uint32_t blocks = o.message_bytes == 0 ? 1 : wire::block_count(o.message_bytes, o.block_bytes);
    if (o.blocks != blocks) return fail(who + format("%u blocks, should be %u", o.blocks, blocks));
    std::uint64_t count = 0, bytes = 0;
    for (std::uint32_t i = 0; i < record.abandoned.size() * 64; ++i) {
        if (!bit(record.abandoned, i)) continue;
        if (i >= blocks) return fail(who + "a block that does not exist was abandoned");
        ++count;
        if (o.message_bytes != 0) bytes += block_length(o.message_bytes, o.block_bytes, i);
    }
    if (count != o.abandoned_blocks || bytes != o.abandoned_bytes) {
        return fail(who + format("says %u blocks, %u bytes abandoned; its bits say %" PRIu64 ", %" PRIu64,
                                 o.abandoned_blocks, o.abandoned_bytes, count, bytes));
    }
    if (o.delivered_bytes + std::uint64_t{o.abandoned_bytes} != o.message_bytes) {
        return fail(who + format("%u delivered + %u abandoned is not %u bytes", o.delivered_bytes,
                                 o.abandoned_bytes, o.message_bytes));
    }
}

void World::judge_budget(const SendRecord& send, const MessageOutcome& o,
                         const std::vector<std::uint64_t>& abandoned, Time over) {
    if (o.abandoned_blocks == 0) return;
    const std::string who = describe(send) + ": ";
    if (send.plan.delivery == Delivery::reliable) return fail(who + "blocks of a reliable message were abandoned");
    if (send.importance.empty()) return fail(who + "blocks were abandoned, though all are critical");
    if (o.block_bytes == send.block_bytes) {
        for (std::uint32_t i = 0; i < o.blocks; ++i) {
            if (bit(abandoned, i) && send.importance[i] == wire::importance_critical) {
                return fail(who + format("critical block %u was abandoned", i));
            }
        }
    }
    const std::uint32_t budget =
        wire::budget_bytes(send.plan.message_bytes, wire::encode_budget(send.plan.loss_ratio));
    if (o.abandoned_bytes <= budget) return;
    if (send.plan.delivery == Delivery::bounded) {
        return fail(who + format("%u bytes abandoned, budget %u", o.abandoned_bytes, budget));
    }
    if (over < send.posted + send.plan.deadline) {
        return fail(who + format("%u bytes abandoned, budget %u, before its deadline", o.abandoned_bytes, budget));
    }
}

void World::judge_send_error(const SendRecord& send) {
    const auto about_tag = [&](auto&& predicate) {
        return std::any_of(receives_.begin(), receives_.end(), [&](const ReceiveRecord& receive) {
            return receive.host == send.plan.to && receive.tag == send.tag && predicate(receive);
        });
    };
    bool justified = false;
    switch (send.error) {
        case CommandError::cancelled: justified = send.cancelled; break;
        case CommandError::refused:
            justified =
                about_tag([&](const ReceiveRecord& r) { return r.plan.capacity_bytes < send.plan.message_bytes; });
            break;
        case CommandError::peer_cancelled:
            justified = about_tag([](const ReceiveRecord& r) { return r.cancelled; });
            break;
        case CommandError::peer_timeout: justified = allowed.timeouts; break;
        case CommandError::peer_restarted: justified = allowed.restarts || allowed.timeouts; break;
        case CommandError::peer_closed: justified = allowed.closes; break;
        case CommandError::closed: justified = hosts_[send.host].closed; break;
        default: break;
    }
    if (!justified) fail(describe(send) + ": failed without a cause: " + name(send.error));
}

void World::judge_receive_error(const ReceiveRecord& receive) {
    const auto about_tag = [&](auto&& predicate) {
        return std::any_of(sends_.begin(), sends_.end(), [&](const SendRecord& send) {
            return send.plan.to == receive.host && send.tag == receive.tag && predicate(send);
        });
    };
    bool justified = false;
    switch (receive.error) {
        case CommandError::cancelled: justified = receive.cancelled; break;
        case CommandError::receive_too_small:
            justified =
                about_tag([&](const SendRecord& s) { return receive.plan.capacity_bytes < s.plan.message_bytes; });
            break;
        case CommandError::peer_cancelled:
            // A sender that leaves gives its messages up first.
            justified = allowed.closes || about_tag([](const SendRecord& s) { return s.cancelled; });
            break;
        case CommandError::peer_timeout: justified = allowed.timeouts; break;
        case CommandError::peer_restarted: justified = allowed.restarts || allowed.timeouts; break;
        case CommandError::peer_closed: justified = allowed.closes; break;
        case CommandError::closed: justified = hosts_[receive.host].closed; break;
        default: break;
    }
    if (!justified) fail(describe(receive) + ": failed without a cause: " + name(receive.error));
    const std::span<const std::uint8_t> memory(receive.memory);
    if (receive.error == CommandError::receive_too_small && !all_are(memory, canary)) {
        fail(describe(receive) + ": refused, but its buffer was written");
    }
}

// Both ends.

void World::match(ReceiveRecord& receive, std::size_t receive_index, std::uint32_t from) {
    if (receive.plan.from != ReceivePlan::anyone && receive.plan.from != from) {
        return fail(describe(receive) + format(": got a message of host %u", from));
    }
    if (receive.outcome.message_bytes > receive.plan.capacity_bytes) {
        return fail(describe(receive) + format(": got a message of %u bytes", receive.outcome.message_bytes));
    }
    std::string difference = "nobody sent such a message";
    std::int32_t best = -1;
    int fitting = 0;
    for (std::size_t i = 0; i < sends_.size(); ++i) {
        const SendRecord& send = sends_[i];
        if (send.plan.from != from || send.plan.to != receive.host || send.tag != receive.tag ||
            send.receive >= 0 || send.plan.message_bytes != receive.outcome.message_bytes ||
            send.phase == Phase::refused_at_once || send.plan.is_virtual != receive.plan.is_virtual) {
            continue;
        }
        const std::string why = compare_content(receive, send);
        if (why.empty()) {
            ++fitting;
            if (best < 0) best = static_cast<std::int32_t>(i);
        } else if (best < 0) {
            difference = why;
        }
    }
    if (best < 0) return fail(describe(receive) + ": " + difference);
    SendRecord& send = sends_[static_cast<std::size_t>(best)];
    receive.send = best;
    send.receive = static_cast<std::int32_t>(receive_index);
    send.ambiguous = fitting > 1;
    if (!send.ambiguous) {
        judge_budget(send, receive.outcome, receive.abandoned, receive.over);
        if (send.phase == Phase::finished) judge_pair(send, receive);
    }
}

std::string World::compare_content(const ReceiveRecord& receive, const SendRecord& send) const {
    if (receive.plan.is_virtual || receive.outcome.message_bytes == 0) {
        return all_are(receive.memory, canary) ? "" : "bytes were written for a message without any";
    }
    const std::uint32_t bytes = receive.outcome.message_bytes;
    const std::uint16_t block_bytes = receive.outcome.block_bytes;
    std::vector<std::uint8_t> expected(block_bytes);
    for (std::uint32_t i = 0; i < receive.outcome.blocks; ++i) {
        const std::size_t start = std::size_t{i} * block_bytes;
        const std::uint32_t length = block_length(bytes, block_bytes, i);
        const std::span<const std::uint8_t> block(receive.memory.data() + start, length);
        const bool scribbled =
            receive.scribbled_block_bytes == block_bytes && i < receive.scribbled.size() && receive.scribbled[i];
        if (bit(receive.abandoned, i)) {
            if (scribbled) return format("block %u arrived and was abandoned", i);
            if (!all_are(block, canary)) return format("block %u was abandoned, but its place was written", i);
            continue;
        }
        const std::span<std::uint8_t> pattern(expected.data(), length);
        fill_pattern(send.serial, start, pattern);
        if (scribbled) {
            if (std::memcmp(block.data(), pattern.data(), length) == 0)
                return format("block %u was placed twice", i);
            for (std::uint8_t& byte : pattern) byte = static_cast<std::uint8_t>(~byte);
        }
        if (std::memcmp(block.data(), pattern.data(), length) != 0) {
            return format("block %u (%u bytes at %zu) was delivered, but is not what was sent", i, length, start);
        }
    }
    if (!all_are(std::span(receive.memory).subspan(bytes), canary)) return "bytes behind the message were written";
    return "";
}

void World::judge_pair(const SendRecord& send, const ReceiveRecord& receive) {
    if (send.ambiguous) return;
    const MessageOutcome& a = send.outcome;
    const MessageOutcome& b = receive.outcome;
    if (a.block_bytes != b.block_bytes && a.message_bytes != 0) {
        return fail(describe(send) + format(": %u-byte blocks here, %u there", a.block_bytes, b.block_bytes));
    }
    for (std::uint32_t i = 0; i < a.blocks; ++i) {
        if (bit(send.abandoned, i) != bit(receive.abandoned, i)) {
            return fail(describe(send) + format(": the ends disagree whether block %u was abandoned", i));
        }
    }
}

std::size_t World::open_sends() const {
    std::size_t count = 0;
    for (const Host& host : hosts_) count += host.open_sends.size();
    return count;
}

std::size_t World::open_receives() const {
    std::size_t count = 0;
    for (const Host& host : hosts_) count += host.open_receives.size();
    return count;
}

void World::finish() {
    for (const SendRecord& send : sends_) {
        if (send.phase != Phase::open && send.phase != Phase::lost && send.phase != Phase::refused_at_once &&
            !all_are(send.memory, over_send)) {
            fail(describe(send) + ": its memory was written");
        }
    }
    for (const ReceiveRecord& receive : receives_) {
        if (receive.phase != Phase::open && receive.phase != Phase::lost &&
            receive.phase != Phase::refused_at_once && !all_are(receive.memory, over_receive)) {
            fail(describe(receive) + ": its buffer was written after the final event");
        }
    }
    const auto release = [&](Record& record, const std::string& who) {
        if (record.phase != Phase::finished && record.phase != Phase::failed) return;
        if (record.life != hosts_[record.host].life || !alive(record.host)) return;
        Endpoint& endpoint = *hosts_[record.host].endpoint;
        if (!record.released && endpoint.release(record.id) != CommandError::none)
            fail(who + ": cannot be released");
        record.released = true;
        if (endpoint.outcome(record.id).error != CommandError::unknown_message) {
            fail(who + ": still known after its release");
        }
    };
    for (SendRecord& send : sends_) release(send, describe(send));
    for (ReceiveRecord& receive : receives_) release(receive, describe(receive));

    for (std::uint32_t i = 0; i < hosts_.size() && !failed(); ++i) {
        const Host& host = hosts_[i];
        if (!host.endpoint) continue;
        if (const std::string broken = host.endpoint->check_invariants(); !broken.empty()) {
            fail(format("host %u: invariant: ", i) + broken);
        }
        const Counters& c = host.endpoint->counters();
        const auto equal = [&](const char* what, std::uint64_t counted, std::uint64_t seen) {
            if (counted != seen) {
                fail(format("host %u: %s is %" PRIu64 ", events say %" PRIu64, i, what, counted, seen));
            }
        };
        equal("messages_sent", c.messages_sent, host.sends_finished);
        equal("messages_received", c.messages_received, host.receives_finished);
        equal("messages_failed", c.messages_failed, host.messages_failed);
        // Messages that nobody asked for count as well.
        const bool all_received = std::all_of(sends_.begin(), sends_.end(), [&](const SendRecord& send) {
            return send.plan.to != i || send.phase == Phase::refused_at_once || send.receive >= 0;
        });
        if (host.messages_failed == 0) {
            if (all_received) equal("abandoned_bytes", c.abandoned_bytes, host.abandoned_bytes);
            equal("abandoned_by_peer_bytes", c.abandoned_by_peer_bytes, host.abandoned_by_peer_bytes);
        }
        if (c.data_bytes_placed < host.delivered_bytes) fail(format("host %u: data_bytes_placed is too small", i));
    }
}

}  // namespace dlcp::test
