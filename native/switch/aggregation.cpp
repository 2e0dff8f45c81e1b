#include "switch/aggregation.hpp"

#include <algorithm>

#include "switch/aggregation_frame.hpp"
#include "switch/aggregation_sums.hpp"

namespace dlcp::switching {
namespace {

using namespace aggregation;
using namespace aggregation_frame;

std::string text(std::uint64_t number) { return std::to_string(number); }

}  // namespace

std::string validate(std::span<const AggregationJob> jobs, std::size_t ports) {
    if (jobs.size() > max_aggregation_jobs)
        return text(jobs.size()) + " jobs are aggregated; accepted: at most " + text(max_aggregation_jobs);
    std::uint32_t slots = 0;
    for (std::size_t index = 0; index < jobs.size(); ++index) {
        const AggregationJob& job = jobs[index];
        const std::string where = "job " + text(job.job) + ": ";
        for (std::size_t other = 0; other < index; ++other)
            if (jobs[other].job == job.job) return where + "it is there twice; accepted: once";
        if (!is_lane_count(job.lanes))
            return where + "lanes is " + text(job.lanes) + "; accepted: multiples of " + text(lane_unit) +
                   " up to " + text(max_lanes);
        if (job.generations == 0 || job.generation + job.generations > 65536)
            return where + "generations is " + text(job.generations) + "; accepted: 1 to " +
                   text(std::min(65535, 65536 - job.generation));
        if (job.workers.empty() || job.workers.size() > max_workers)
            return where + text(job.workers.size()) + " workers; accepted: 1 to " + text(max_workers);
        if (job.slots < 2 || slots + job.slots > max_aggregation_slots)
            return where + "slots is " + text(job.slots) + "; accepted: 2 to " +
                   text(max_aggregation_slots - slots) + ", what is left";
        slots += job.slots;
        for (const Participant& worker : job.workers)
            if (worker.port >= ports)
                return where + "a worker is at port " + text(worker.port) + ", which is not there";
        if (job.upper && job.upper->hub.port >= ports)
            return where + "the switch above is at port " + text(job.upper->hub.port) + ", which is not there";
        if (job.upper && job.upper->worker >= max_workers)
            return where + "it is worker " + text(job.upper->worker) + " of the switch above; accepted: up to " +
                   text(max_workers - 1);
        if (!job.hub_is_here && job.hub.port >= ports)
            return where + "the hub is at port " + text(job.hub.port) + ", which is not there";
    }
    return {};
}

void AggregationSlots::configure(const std::vector<AggregationJob>& jobs) {
    std::vector<Table> tables;
    for (const AggregationJob& job : jobs) {
        const auto same = std::find_if(tables_.begin(), tables_.end(), [&](const Table& table) {
            return table.job.job == job.job && table.job.slots == job.slots && table.job.lanes == job.lanes &&
                   (table.job.workers == job.workers || table.job.generation != job.generation);
        });
        Table table = same == tables_.end() ? Table{} : std::move(*same);
        table.job = job;
        table.everyone = static_cast<std::uint32_t>((std::uint64_t{1} << job.workers.size()) - 1);
        table.slots.resize(job.slots);
        table.sums.resize(std::size_t{job.slots} * job.lanes);
        tables.push_back(std::move(table));
    }
    tables_ = std::move(tables);
}

bool AggregationSlots::owns(std::uint64_t mac) const {
    return std::any_of(tables_.begin(), tables_.end(),
                       [mac](const Table& table) { return table.job.hub_is_here && table.job.hub.mac == mac; });
}

bool AggregationSlots::is_forged(std::span<const std::uint8_t> frame) const {
    if (frame.size() < udp_at || read16(&frame[12]) != type_ipv4) return false;
    const std::uint32_t source = read32(&frame[ip_at + 12]);
    return std::any_of(tables_.begin(), tables_.end(), [source](const Table& table) {
        return table.job.hub_is_here && table.job.hub.ip == source;
    });
}

AggregationSlots::Verdict AggregationSlots::handle(std::uint16_t port, std::span<const std::uint8_t> frame) {
    const std::uint32_t lanes = lanes_of(frame);
    if (lanes == 0) {
        if (answer_arp(port, frame)) return {.whom = Whom::asker, .changed = true};
        return {};
    }
    const std::uint8_t* packet = frame.data() + payload_at;
    const std::uint8_t kind = packet[at_kind];
    const auto is = [kind](Kind one) { return kind == static_cast<std::uint8_t>(one); };
    if (is(Kind::result)) {
        for (std::size_t index = 0; index < tables_.size(); ++index) {
            const AggregationJob& job = tables_[index].job;
            if (job.upper && job.upper->hub.port == port && job.lanes == lanes &&
                job.job == read32(packet + at_job) && job.admits(read16(packet + at_generation)) &&
                job.upper->own.ip == read32(frame.data() + ip_at + 16))
                return take_upper_result(index, frame);
        }
    }
    if (!is(Kind::contribution) && !is(Kind::flush) && !is(Kind::release)) return {};

    // Who may take part: by port, job, generation and worker number.
    const std::uint32_t number = read32(packet + at_job);
    const auto found = std::find_if(tables_.begin(), tables_.end(),
                                    [number](const Table& table) { return table.job.job == number; });
    Verdict out{.whom = Whom::forward};
    const std::uint8_t worker = packet[at_worker];
    Table* table = found == tables_.end() ? nullptr : &*found;
    const Participant* sender = nullptr;
    if (table != nullptr && table->job.lanes == lanes && table->job.admits(read16(packet + at_generation))) {
        if (worker < table->job.workers.size())
            sender = &table->job.workers[worker];
        else if (worker == hub && !table->job.hub_is_here)
            sender = &table->job.hub;
    }
    if (sender == nullptr || sender->port != port) {
        if (table == nullptr || !table->job.upper) {
            ++foreign_;
            return out;
        }
        // The switch above would take it for one of this switch, by whose port it came.
        ++table->counts[static_cast<std::size_t>(Outcome::foreign)];
        out.whom = Whom::nobody;
        return out;
    }
    const bool is_hub = worker == hub;
    out.job = static_cast<std::uint16_t>(found - tables_.begin());
    out.participant = static_cast<std::uint16_t>(is_hub ? table->job.workers.size() : worker);
    const auto count = [table](Outcome outcome) { ++table->counts[static_cast<std::size_t>(outcome)]; };
    payload_sum_ = sum_words(packet, packet_bytes(lanes));
    if (!checksums_are_right(frame.data(), payload_sum_)) {
        count(Outcome::damaged);
        return out;
    }
    if ((packet[at_flags] & flag_to_hub) != 0) {
        count(Outcome::to_hub);
        return out;
    }
    if (frame.size() > out_.size()) {  // longer than any line's frame: its tail would not fit
        count(Outcome::refused);
        return out;
    }
    std::copy(frame.begin(), frame.end(), out_.begin());
    out_bytes_ = frame.size();
    std::uint8_t* changed = out_.data() + payload_at;
    Outcome outcome = Outcome::refused;
    const bool refused = read16(packet + at_slot) >= table->job.slots || (is(Kind::contribution) && is_hub) ||
                         (is(Kind::release) && !is_hub);
    if (!refused) outcome = take(*table, is_hub ? 0 : std::uint32_t{1} << worker, changed, out.whom);
    count(outcome);
    if (out.whom == Whom::nobody) return out;
    out.changed = true;
    if (out.whom == Whom::forward) changed[at_flags] |= flag_to_hub;
    payload_sum_ = sum_words(changed, packet_bytes(lanes));
    if (out.whom == Whom::forward) write_checksums(out_.data(), payload_sum_);
    if (out.whom == Whom::forward) return out;
    if (out.whom == Whom::upper) {
        address_upwards(table->job);
        return out;
    }
    // A result comes from whom the packet was for, so that a worker hears everything from one address.
    std::uint8_t* sent = out_.data();
    std::copy_n(sent, 6, sent + 6);
    std::copy_n(sent + ip_at + 16, 4, sent + ip_at + 12);
    std::copy_n(sent + udp_at + 2, 2, sent + udp_at);
    if (out.whom == Whom::sender) address(out.job, out.participant);
    return out;
}

// What a contribution, a flush and a release do to a slot. `packet` becomes the result where there is one.
Outcome AggregationSlots::take(Table& table, std::uint32_t bit, std::uint8_t* packet, Whom& whom) {
    const std::uint32_t lanes = table.job.lanes;
    const std::size_t index = read16(packet + at_slot);
    const std::uint64_t tenant = std::uint64_t{table.job.job} << 16 | read16(packet + at_generation);
    const std::uint64_t key = key_at(packet);
    const auto shape = static_cast<std::uint16_t>(packet[at_operation] << 8 | packet[at_exponent]);
    const auto kind = static_cast<Kind>(packet[at_kind]);
    std::uint8_t* values = packet + header_bytes;
    std::uint32_t* sums = table.sums.data() + index * lanes;
    Slot& kept = table.slots[index];
    Slot slot = kept;
    if (slot.tenant != tenant) {  // what it holds is nobody's any more
        slot.tenant = tenant;
        slot.key = 0;
        slot.state = State::free;
    }
    const bool same = key == slot.key;
    const auto answer = [&](Whom to) {
        whom = to;
        become_result(table, slot, packet);
        if (to == Whom::upper) {
            packet[at_kind] = static_cast<std::uint8_t>(Kind::contribution);
            packet[at_worker] = table.job.upper->worker;
        }
    };
    if (kind == Kind::release) {
        if (same || (key > slot.key && (slot.state == State::free || slot.state == State::done))) {
            slot.key = key;
            slot.state = State::free;
        }
        kept = slot;
        whom = Whom::nobody;
        return Outcome::released;
    }
    if (kind == Kind::flush) {
        if (!same || slot.state == State::free) return Outcome::absent;
        if (slot.state == State::done) {
            answer(Whom::sender);
            return Outcome::repeated;
        }
        if (slot.count < packet[at_quorum] || table.job.upper) return Outcome::below_quorum;
        slot.state = State::done;
        kept = slot;
        answer(Whom::everyone);
        return Outcome::flushed;
    }
    if (same && (slot.state == State::collecting || slot.state == State::summed)) {
        if (shape != slot.shape) return Outcome::mismatch;
        if ((slot.bitmap & bit) != 0) {
            whom = Whom::nobody;
            // A rank that sends again misses the result: a packet on the way up or down may be lost.
            if (slot.state == State::summed) answer(Whom::upper);
            return Outcome::duplicate;
        }
        slot.bitmap |= bit;
        ++slot.count;
        if (packet[at_operation] == operation_sum)
            slot.saturated |= add(sums, values, lanes);
        else
            take_maximum(sums, values, lanes);
    } else if (same && slot.state == State::done) {
        answer(Whom::sender);
        return Outcome::repeated;
    } else if (key <= slot.key) {
        return Outcome::stale;
    } else if (slot.state == State::collecting || slot.state == State::summed) {
        return Outcome::collision;
    } else {
        slot = {
            .tenant = tenant, .key = key, .bitmap = bit, .shape = shape, .count = 1, .state = State::collecting};
        put(sums, values, lanes);
    }
    whom = Whom::nobody;
    Outcome outcome = Outcome::added;
    if (slot.bitmap == table.everyone && table.job.upper) {
        slot.state = State::summed;
        answer(Whom::upper);
    } else if (slot.bitmap == table.everyone) {
        slot.state = State::done;
        answer(Whom::everyone);
        outcome = Outcome::completed;
    }
    kept = slot;
    return outcome;
}

// The packet's sender and key stay, the rest is the slot's.
void AggregationSlots::become_result(const Table& table, const Slot& slot, std::uint8_t* packet) const {
    packet[at_kind] = static_cast<std::uint8_t>(Kind::result);
    packet[at_flags] = 0;
    write32(packet + at_bitmap, slot.bitmap);
    packet[at_count] = slot.count;
    packet[at_operation] = static_cast<std::uint8_t>(slot.shape >> 8);
    packet[at_exponent] = static_cast<std::uint8_t>(slot.shape);
    write32(packet + at_saturated, slot.saturated);
    packet[at_quorum] = 0;
    const std::size_t index = read16(packet + at_slot);
    get(packet + header_bytes, table.sums.data() + index * table.job.lanes, table.job.lanes);
}

// The sum of all switches, for the workers of this one: it takes the place of their own, which it contains.
AggregationSlots::Verdict AggregationSlots::take_upper_result(std::size_t index,
                                                              std::span<const std::uint8_t> frame) {
    Table& table = tables_[index];
    const AggregationJob& job = table.job;
    Verdict out{.whom = Whom::nobody, .job = static_cast<std::uint16_t>(index)};
    const std::uint8_t* packet = frame.data() + payload_at;
    const auto count = [&table](Outcome outcome) { ++table.counts[static_cast<std::size_t>(outcome)]; };
    if (!checksums_are_right(frame.data(), sum_words(packet, packet_bytes(job.lanes)))) {
        count(Outcome::damaged);
        return out;
    }
    const std::size_t at = read16(packet + at_slot);
    const std::uint64_t tenant = std::uint64_t{job.job} << 16 | read16(packet + at_generation);
    const auto shape = static_cast<std::uint16_t>(packet[at_operation] << 8 | packet[at_exponent]);
    if (at >= table.slots.size() || frame.size() > out_.size()) {
        count(Outcome::refused);
        return out;
    }
    Slot& slot = table.slots[at];
    if (slot.tenant != tenant || slot.key != key_at(packet) || slot.state != State::summed ||
        slot.shape != shape) {
        count(Outcome::stale);
        return out;
    }
    put(table.sums.data() + at * job.lanes, packet + header_bytes, job.lanes);
    slot.saturated |= read32(packet + at_saturated);
    slot.state = State::done;
    count(Outcome::completed);
    std::copy(frame.begin(), frame.end(), out_.begin());
    out_bytes_ = frame.size();
    become_result(table, slot, out_.data() + payload_at);
    payload_sum_ = sum_words(out_.data() + payload_at, packet_bytes(job.lanes));
    write48(out_.data() + 6, job.hub.mac);
    write32(out_.data() + ip_at + 12, job.hub.ip);
    write16(out_.data() + udp_at, job.hub.udp_port);
    out.whom = Whom::everyone;
    out.changed = true;
    return out;
}

void AggregationSlots::address_upwards(const AggregationJob& job) {
    std::uint8_t* frame = out_.data();
    write48(frame, job.upper->hub.mac);
    write48(frame + 6, job.upper->own.mac);
    write32(frame + ip_at + 12, job.upper->own.ip);
    write32(frame + ip_at + 16, job.upper->hub.ip);
    write16(frame + udp_at, job.upper->own.udp_port);
    write16(frame + udp_at + 2, job.upper->hub.udp_port);
    write_checksums(frame, payload_sum_);
}

const Participant& AggregationSlots::address(std::uint16_t job, std::uint16_t participant) {
    const AggregationJob& of = tables_[job].job;
    const Participant& to = participant == of.workers.size() ? of.hub : of.workers[participant];
    std::uint8_t* frame = out_.data();
    write48(frame, to.mac);
    write32(frame + ip_at + 16, to.ip);
    write16(frame + udp_at + 2, to.udp_port);
    write_checksums(frame, payload_sum_);
    return to;
}

// Who asks for a hub's address that is the switch's own is told its MAC address.
bool AggregationSlots::answer_arp(std::uint16_t port, std::span<const std::uint8_t> frame) {
    if (frame.size() < ip_at + arp_bytes || read16(&frame[12]) != type_arp) return false;
    const std::uint8_t* arp = frame.data() + ip_at;
    constexpr std::uint8_t request[] = {0, 1, 8, 0, 6, 4, 0, 1};  // Ethernet, IPv4, lengths, request
    if (!std::equal(std::begin(request), std::end(request), arp)) return false;
    const std::uint32_t wanted = read32(arp + 24);
    for (const Table& table : tables_) {
        const AggregationJob& job = table.job;
        const bool asked = job.hub_is_here && job.hub.ip == wanted &&
                           std::any_of(job.workers.begin(), job.workers.end(),
                                       [port](const Participant& worker) { return worker.port == port; });
        if (!asked) continue;
        std::copy_n(frame.begin(), ip_at + arp_bytes, out_.begin());
        out_bytes_ = ip_at + arp_bytes;
        std::uint8_t* out = out_.data();
        std::copy_n(arp + 8, 6, out);  // to the one who asks
        write48(out + 6, job.hub.mac);
        write16(out + ip_at + 6, 2);  // an answer
        std::copy_n(arp + 8, 10, out + ip_at + 18);
        write48(out + ip_at + 8, job.hub.mac);
        write32(out + ip_at + 14, wanted);
        return true;
    }
    return false;
}

}  // namespace dlcp::switching
