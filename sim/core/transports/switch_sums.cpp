// Frames to packets and verdicts to packets; a rank's sums one after the other.
#include "sim/core/transports/switch_sums.hpp"

#include <algorithm>
#include <span>
#include <stdexcept>

#include "sim/core/simulation.hpp"
#include "switch/aggregation_frame.hpp"
#include "switch/decision.hpp"
#include "switch/frame.hpp"

namespace dlcp::sim {
namespace {

using namespace switching::aggregation_frame;

constexpr std::uint32_t run_number = 1;
// As dlcp/transport/aggregation/reducer.py: without a new result for so long a task is given up.
constexpr std::int64_t give_up_ns = 1'000'000'000;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

std::int64_t ns_of(const Domain& domain) { return domain.now_ps() / 1000; }

}  // namespace

// --- values ---------------------------------------------------------------------------------------------------

void KnownBlocks::write(std::uint32_t block, std::uint8_t* values) const {
    const std::uint32_t own = first(block) + rank_;
    for (std::uint32_t lane = 0; lane < lanes_; ++lane)
        aggregation::write32(values + std::size_t{4} * lane, own + lane);
}

bool KnownBlocks::take(std::uint32_t block, const std::uint8_t* values) {
    const std::uint32_t sum = ranks_ * first(block) + ranks_ * (ranks_ - 1) / 2;
    std::uint32_t wrong = 0;
    for (std::uint32_t lane = 0; lane < lanes_; ++lane)
        wrong |= aggregation::read32(values + std::size_t{4} * lane) ^ (sum + ranks_ * lane);
    return wrong == 0;
}

// --- before the run -------------------------------------------------------------------------------------------

std::uint32_t SwitchSums::add(const Fabric& fabric, const SwitchSumSpec& spec) {
    if (!aggregation::is_lane_count(spec.lanes))
        refuse("lanes is " + std::to_string(spec.lanes) + "; accepted: multiples of " +
               std::to_string(aggregation::lane_unit) + " up to " + std::to_string(aggregation::max_lanes));
    if (spec.slots < 2 || spec.slots > switching::max_aggregation_slots)
        refuse("slots is " + std::to_string(spec.slots) + "; accepted: 2 to " +
               std::to_string(switching::max_aggregation_slots));
    if (!aggregation::is_width(spec.bits))
        refuse("bits is " + std::to_string(spec.bits) + "; accepted: 32, 16, 8");
    const std::uint64_t values = (spec.bytes + 3) / 4;
    const std::uint32_t per_block = aggregation::values_per_block(spec.lanes, spec.bits);
    const std::uint64_t blocks = (values + per_block - 1) / per_block;
    if (blocks > UINT32_MAX)
        refuse("bytes is " + std::to_string(spec.bytes) + "; accepted: up to 2^32 - 1 blocks");
    const auto [found, is_new] =
        job_of_.try_emplace({spec.members, spec.slots, spec.lanes}, static_cast<std::uint32_t>(jobs_.size()));
    if (is_new) {
        Job job;
        job.members = spec.members;
        job.plan = plan_switch_sums(fabric, found->second + 1, spec.members,
                                    static_cast<std::uint16_t>(spec.slots), spec.lanes);
        job.slots = spec.slots;
        job.lanes = spec.lanes;
        jobs_.push_back(std::move(job));
    }
    Job& job = jobs_[found->second];
    const auto index = static_cast<std::uint32_t>(sums_.size());
    sums_.push_back({found->second, static_cast<std::uint32_t>(job.sums.size()),
                     static_cast<std::uint32_t>(blocks), job.blocks});
    job.sums.push_back(index);
    job.blocks += blocks;
    if (job.blocks > UINT32_MAX)
        refuse("a job sums " + std::to_string(job.blocks) + " blocks; accepted: up to 2^32 - 1");
    return index;
}

void SwitchSums::prepare(Simulation& simulation, std::vector<BodyPool>& bodies) {
    if (simulation.settings().host_costs)
        refuse("hosts take time; accepted where switches add: free, since the worker's cost is not known");
    fabric_ = &simulation.fabric();
    bodies_ = &bodies;
    hosts_.resize(fabric_->hosts());
    switches_.resize(fabric_->switches());
    std::map<std::uint32_t, std::vector<switching::AggregationJob>> told;
    for (std::uint32_t index = 0; index < jobs_.size(); ++index) {
        Job& job = jobs_[index];
        for (const SwitchPlan::Adder& adder : job.plan.adders) told[adder.index].push_back(adder.job);
        for (const SwitchPlan::Route& route : job.plan.routes) {
            auto& place = switches_[route.index];
            if (place == nullptr) place = std::make_unique<Switch>();
            place->routes[std::uint64_t{index + 1} << 32 | route.ip] = route.port;
        }
        for (std::uint32_t rank = 0; rank < job.members.size(); ++rank) {
            const SwitchPlan::Place at = job.plan.places[rank];
            aggregation::WorkerSettings settings;
            settings.job = index + 1;
            settings.workers = static_cast<std::uint32_t>(job.plan.adders[at.leaf].job.workers.size());
            settings.worker = at.worker;
            settings.ranks = static_cast<std::uint32_t>(job.members.size());
            settings.rank = rank;
            settings.slots = static_cast<std::uint16_t>(job.slots);
            settings.lanes = job.lanes;
            Host& host = hosts_[job.members[rank]];
            job.member_at.push_back(static_cast<std::uint32_t>(host.members.size()));
            Member& member = *host.members.emplace_back(std::make_unique<Member>(settings));
            member.job = index;
            member.rank = rank;
            member.asked.resize(job.sums.size());
            write_head(member, job.members[rank]);
        }
    }
    for (const auto& [index, jobs] : told) {
        const std::uint32_t node = fabric_->hosts() + index;
        const std::uint32_t ports = fabric_->first_port(node + 1) - fabric_->first_port(node);
        if (const std::string problem = switching::validate(jobs, ports); !problem.empty())
            refuse(fabric_->name(node) + " adds: " + problem);
        if (switches_[index] == nullptr) switches_[index] = std::make_unique<Switch>();
        switches_[index]->slots.configure(jobs);
    }
}

// Ethernet, IPv4 and UDP, but for the checksums.
void SwitchSums::write_head(Member& member, std::uint32_t host) const {
    const Job& job = jobs_[member.job];
    const switching::AggregationJob& at = job.plan.adders[job.plan.places[member.rank].leaf].job;
    const switching::Participant& own = at.workers[member.worker.settings().worker];
    std::uint8_t* head = member.head.data();
    const auto udp_length = static_cast<std::uint32_t>(udp_bytes + aggregation::packet_bytes(job.lanes));
    write48(head, at.hub.mac);
    write48(head + 6, mac_of(host_ip(host)));
    aggregation::write16(head + 12, type_ipv4);
    head[ip_at] = 0x45;
    aggregation::write16(head + ip_at + 2, static_cast<std::uint32_t>(ip_bytes) + udp_length);
    aggregation::write16(head + ip_at + 6, 0x4000);  // not to be cut up
    head[ip_at + 8] = 64;
    head[ip_at + 9] = protocol_udp;
    aggregation::write32(head + ip_at + 12, own.ip);
    aggregation::write32(head + ip_at + 16, at.hub.ip);
    aggregation::write16(head + udp_at, own.udp_port);
    aggregation::write16(head + udp_at + 2, at.hub.udp_port);
    aggregation::write16(head + udp_at + 4, udp_length);
}

// --- hosts ----------------------------------------------------------------------------------------------------

void SwitchSums::start(Domain& domain, std::uint32_t index, std::uint32_t rank) {
    const Sum& sum = sums_[index];
    const Job& job = jobs_[sum.job];
    const std::uint32_t host = job.members[rank];
    Member& member = *hosts_[host].members[job.member_at[rank]];
    member.asked[sum.in_job] = true;
    begin_next(domain, member, host);
}

void SwitchSums::begin_next(Domain& domain, Member& member, std::uint32_t host) {
    const Job& job = jobs_[member.job];
    if (member.busy || member.next == job.sums.size() || !member.asked[member.next]) return;
    const Sum& sum = sums_[job.sums[member.next]];
    const auto ranks = static_cast<std::uint32_t>(job.members.size());
    member.busy = true;
    member.blocks.emplace(sum.blocks, sum.position, job.lanes, ranks, member.rank);
    member.repeated_before = member.worker.counters().repeated_packets;
    member.worker.begin(*member.blocks, run_number, sum.position, ns_of(domain));
    if (member.worker.done())
        finish(domain, member, host);  // of no values
    else
        domain.wake(host);
}

void SwitchSums::finish(Domain& domain, Member& member, std::uint32_t host) {
    const std::uint32_t sum = jobs_[member.job].sums[member.next++];
    member.busy = false;
    over_(domain, {sum, member.rank, member.worker.counters().repeated_packets - member.repeated_before});
    begin_next(domain, member, host);
}

std::uint32_t SwitchSums::pull_packet(Domain& domain, std::uint32_t host) {
    Host& h = hosts_[host];
    for (std::size_t tried = 0; tried < h.members.size(); ++tried) {
        const std::size_t place = h.turn++ % h.members.size();
        Member& member = *h.members[place];
        if (!member.busy || member.gave_up) continue;
        const std::size_t packet = aggregation::packet_bytes(member.worker.settings().lanes);
        EngineBody* const body = bodies_at(host).take(static_cast<std::uint32_t>(payload_at + packet));
        std::uint8_t* const payload = body->bytes() + payload_at;
        const bool sends = member.worker.poll_packet(ns_of(domain), payload);
        arm(domain, member, host, place);
        if (!sends) {
            bodies_at(host).give_back(body);
            continue;
        }
        std::copy(member.head.begin(), member.head.end(), body->bytes());
        write_checksums(body->bytes(), sum_words(payload, packet));
        body->length = static_cast<std::uint16_t>(payload_at + packet);
        return packet_of(domain, body, host, host);
    }
    return none;
}

void SwitchSums::handle_packet(Domain& domain, std::uint32_t host, std::uint32_t slot) {
    EngineBody* const body = body_of(domain.extra(slot));
    const std::uint16_t port = aggregation::read16(body->bytes() + udp_at + 2);
    for (const auto& member : hosts_[host].members) {
        if (udp_port_of(member->job + 1) != port || member->gave_up) continue;
        member->worker.handle_packet({body->bytes() + payload_at, body->length - payload_at}, ns_of(domain));
        if (member->worker.failed())
            throw std::logic_error("rank " + std::to_string(member->rank) +
                                   " has a sum of switches that is wrong");
        if (member->busy && member->worker.done())
            finish(domain, *member, host);
        else
            domain.wake(host);
        break;
    }
    bodies_at(host).give_back(body);
    domain.free_packet(slot);
}

void SwitchSums::arm(Domain& domain, Member& member, std::uint32_t host, std::size_t place) {
    if (member.worker.next_time_ns() == INT64_MAX) return;
    const std::int64_t next_ns = std::min(member.worker.next_time_ns(), member.worker.progress_ns() + give_up_ns);
    const std::int64_t at_ps = std::max(next_ns * 1000, domain.now_ps());
    if (at_ps >= member.armed_ps) return;
    member.armed_ps = at_ps;
    domain.set_timer(at_ps, host, first_timer + static_cast<std::uint32_t>(place));
}

void SwitchSums::handle_timer(Domain& domain, std::uint32_t host, std::uint32_t timer) {
    Member& member = *hosts_[host].members[timer - first_timer];
    if (domain.now_ps() != member.armed_ps) return;
    member.armed_ps = INT64_MAX;
    if (!member.busy || member.gave_up) return;
    member.gave_up = ns_of(domain) - member.worker.progress_ns() >= give_up_ns;
    if (!member.gave_up) domain.wake(host);
}

// --- packets --------------------------------------------------------------------------------------------------

// A packet of this frame. Neither ECN-capable nor trimmable, of class 0: the worker's socket sets no DSCP. Switches look
// at nothing else: who forwards it goes by the frame.
std::uint32_t SwitchSums::packet_of(Domain& domain, EngineBody* body, std::uint32_t from, std::uint32_t to) {
    const std::uint32_t slot = domain.take_packet();
    PacketExtra& extra = domain.extra(slot);
    extra.engine = {.body = body, .virtual_bytes = 0, .source = from};
    body->tos = 0;
    body->is_virtual = false;
    Packet& packet = domain.packet(slot);
    packet.type = packet_type & 0xf;
    packet.flow = 1U << 31 | switching::mix(from, to) >> 2;
    packet.number = aggregation::read32(body->bytes() + payload_at + aggregation::at_block) & ((1U << 28) - 1);
    packet.destination = (to < fabric_->hosts() ? to : 0) & 0xffffff;
    packet.importance = switching::unknown_importance;
    packet.wire_bytes = static_cast<std::uint16_t>(body->length - payload_at + lower_layer_bytes_);
    return slot;
}

const std::uint8_t* SwitchSums::header_of(const EngineBody& body) { return body.bytes() + payload_at; }

// --- switches -------------------------------------------------------------------------------------------------

void SwitchSums::handle_at_switch(Domain& domain, std::uint32_t node, std::uint32_t slot) {
    using Whom = switching::AggregationSlots::Whom;
    Switch& at = *switches_[node - fabric_->hosts()];
    EngineBody* const body = body_of(domain.extra(slot));
    const std::uint32_t came_by = fabric_->reverse(domain.packet(slot).port);
    const std::uint32_t first_port = fabric_->first_port(node);
    switching::AggregationSlots::Verdict verdict;
    if (!at.slots.empty())
        verdict = at.slots.handle(static_cast<std::uint16_t>(came_by - first_port), {body->bytes(), body->length});
    switch (verdict.whom) {
        case Whom::ordinary:
        case Whom::forward: forward(domain, at, node, slot); return;
        case Whom::nobody: break;
        case Whom::asker:
        case Whom::sender: emit(domain, node, came_by, at.slots.frame()); break;
        case Whom::upper:
            emit(domain, node, first_port + at.slots.job(verdict.job).upper->hub.port, at.slots.frame());
            break;
        case Whom::everyone: {
            const auto workers = static_cast<std::uint16_t>(at.slots.job(verdict.job).workers.size());
            for (std::uint16_t worker = 0; worker < workers; ++worker) {
                const std::uint32_t port = first_port + at.slots.address(verdict.job, worker).port;
                emit(domain, node, port, at.slots.frame());
            }
        }
    }
    bodies_at(node).give_back(body);
    domain.free_packet(slot);
}

void SwitchSums::emit(Domain& domain, std::uint32_t node, std::uint32_t port,
                      std::span<const std::uint8_t> frame) {
    EngineBody* const body = bodies_at(node).take(static_cast<std::uint32_t>(frame.size()));
    std::copy(frame.begin(), frame.end(), body->bytes());
    body->length = static_cast<std::uint16_t>(frame.size());
    domain.send_from_switch(port, packet_of(domain, body, node, fabric_->link(port).to));
}

// On towards another switch. What is for an address of this one, and not taken, ends here, as at the software switch.
void SwitchSums::forward(Domain& domain, Switch& at, std::uint32_t node, std::uint32_t slot) {
    EngineBody* const body = body_of(domain.extra(slot));
    const std::uint64_t job = aggregation::read32(header_of(*body) + aggregation::at_job);
    const auto found = at.routes.find(job << 32 | aggregation::read32(body->bytes() + ip_at + 16));
    if (found != at.routes.end()) {
        domain.send_from_switch(found->second, slot);
        return;
    }
    ++at.ended;
    bodies_at(node).give_back(body);
    domain.free_packet(slot);
}

// --- after the run --------------------------------------------------------------------------------------------

void SwitchSums::add_counters(std::map<std::string, double>& sums) const {
    const auto add = [&sums](const char* name, std::uint64_t value) { sums[name] += static_cast<double>(value); };
    for (const Host& host : hosts_)
        for (const auto& member : host.members) {
            const aggregation::WorkerCounters& c = member->worker.counters();
            add("contributions_sent", c.sent_packets);
            add("contributions_repeated", c.repeated_packets);
            add("sums_received", c.results);
            add("sums_late", c.late_results);
            add("sums_wrong", c.wrong_packets);
            add("sums_given_up", member->gave_up ? 1 : 0);
        }
    // In the order of switching::Outcome.
    static constexpr const char* names[switching::outcomes] = {
        "slots_added",    "slots_completed", "slots_flushed", "slots_duplicate", "slots_repeated",
        "slots_released", "slots_collision", "slots_stale",   "slots_mismatch",  "slots_below_quorum",
        "slots_absent",   "slots_refused",   "slots_to_hub",  "slots_damaged",   "slots_foreign"};
    for (const auto& at : switches_) {
        if (at == nullptr) continue;
        for (std::size_t job = 0; job < at->slots.size(); ++job)
            for (std::size_t outcome = 0; outcome < switching::outcomes; ++outcome)
                add(names[outcome], at->slots.counts(job)[outcome]);
        add("slots_foreign", at->slots.foreign());
        add("switch_frames_ended", at->ended);
    }
}

}  // namespace dlcp::sim
