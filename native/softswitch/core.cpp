#include "softswitch/core.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <stdexcept>

#include "switch/decision.hpp"

namespace dlcp::softswitch {
namespace {

using switching::Frame;
using switching::FrameKind;

constexpr std::uint64_t multicast = std::uint64_t{1} << 40;  // of a MAC address

constexpr std::uint64_t bit(std::uint32_t port) { return std::uint64_t{1} << port; }

// Calls `use` with the number of every bit that is set, lowest first.
template <class Use>
void for_each_port(std::uint64_t ports, Use use) {
    for (; ports != 0; ports &= ports - 1) use(static_cast<std::uint32_t>(std::countr_zero(ports)));
}

std::uint32_t longest(const Settings& settings) {
    if (settings.frame_bytes.empty() || settings.frame_bytes.size() > max_ports)
        throw std::invalid_argument(std::to_string(settings.frame_bytes.size()) + " ports; accepted: 1 to " +
                                    std::to_string(max_ports));
    const std::uint32_t bytes = *std::max_element(settings.frame_bytes.begin(), settings.frame_bytes.end());
    // Depths are of 32 bits, so all memory that can wait has to be.
    const std::uint32_t most = UINT32_MAX / std::max(bytes, 1U);
    if (settings.frames == 0 || settings.frames > most)
        throw std::invalid_argument("frames is " + std::to_string(settings.frames) + "; accepted: 1 to " +
                                    std::to_string(most) + ", of " + std::to_string(bytes) + " bytes each");
    return bytes;
}

}  // namespace

Core::Core(const Settings& settings, const Configuration& configuration)
    : settings_(settings),
      pool_(settings.frames, longest(settings)),
      addresses_(settings.addresses, settings.ageing),
      samples_(settings.samples),
      random_(settings.seed),
      inputs_(settings.frame_bytes.size()),
      outputs_(settings.frame_bytes.size()) {
    if (const std::string wrong = configuration.validate(outputs_.size()); !wrong.empty())
        throw std::invalid_argument(wrong);
    for (std::size_t p = 0; p < outputs_.size(); ++p) {
        outputs_[p].frame_bytes_max = settings.frame_bytes[p];
        outputs_[p].departures.reserve(batch_frames);
    }
    adopt(configuration);
}

// ---- configuration ----

std::string Core::configure(const Configuration& configuration) {
    std::string wrong = configuration.validate(outputs_.size());
    if (!wrong.empty()) return wrong;
    adopt(configuration);
    return {};
}

void Core::adopt(const Configuration& configuration) {
    const bool same_jobs = configuration.aggregation == configuration_.aggregation;
    if (configuration.groups != configuration_.groups || configuration.addresses != configuration_.addresses) {
        addresses_.forget_all();
        for (const auto& [mac, target] : configuration.addresses) addresses_.tell(mac, target);
    }
    configuration_ = configuration;
    if (!same_jobs) aggregation_.configure(configuration_.aggregation);
    groups_.resize(configuration_.groups.size());
    for (Output& output : outputs_) output.group = -1;
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
        for (const std::uint16_t port : configuration_.groups[g])
            outputs_[port].group = static_cast<std::int32_t>(g);
        groups_[g].live.reserve(max_ports);
        find_live(g);
    }
    for (std::uint32_t p = 0; p < outputs_.size(); ++p) set_faults(p, true, outputs_[p].link.faults());
}

void Core::find_live(std::uint32_t group) {
    groups_[group].live.clear();
    for (const std::uint16_t port : configuration_.groups[group]) {
        if (outputs_[port].up) groups_[group].live.push_back(port);
    }
}

void Core::set_faults(std::uint32_t port, bool out, const Faults& faults) {
    if (!out) return inputs_[port].link.set(faults);
    Output& output = outputs_[port];
    // Setting the same again, as configure() does, would begin the random words anew.
    if (&faults != &output.link.faults()) output.link.set(faults);
    std::uint64_t rate = configuration_.ports[port].rate_bps;
    if (faults.rate_bps != 0) rate = rate == 0 ? faults.rate_bps : std::min(rate, faults.rate_bps);
    if (rate == output.rate_bps) return;
    output.rate_bps = rate;
    output.rest = 0;
    // What is on the line now goes on at the new rate.
    const Time on_line = rate == 0 ? Time{} : transmit_time(output.frame_bytes_max + line_overhead_bytes, rate);
    output.free_at = std::clamp(output.free_at, now_, now_ + on_line);
    shaped_waiting_ &= ~bit(port);
    if (output.queues.empty()) return;
    if (rate == 0) return serve(port, now_);
    shaped_waiting_ |= bit(port);
    next_line_ = std::min(next_line_, output.free_at);
}

void Core::set_link(std::uint32_t port, bool up) {
    outputs_[port].up = up;
    if (outputs_[port].group >= 0) find_live(static_cast<std::uint32_t>(outputs_[port].group));
}

// ---- lines ----

Time Core::next_time() const { return std::min(next_line_, samples_.next()); }

void Core::advance(Time now) {
    samples_.skip_before(now);
    while (samples_.next() <= now) {
        const Time at = samples_.next();
        if (at >= next_line_) serve_all(at);
        if ((full_ports_ & ~blocked_) != 0) return;  // a line would go on if its frames were sent
        take_sample(at);
        samples_.taken();
    }
    if (now >= next_line_) serve_all(now);
    if (now > now_) now_ = now;
}

void Core::serve_all(Time now) {
    for_each_port(shaped_waiting_, [&](std::uint32_t port) { serve(port, now); });
    next_line_ = no_time;
    for_each_port(shaped_waiting_ & ~full_ports_,
                  [&](std::uint32_t port) { next_line_ = std::min(next_line_, outputs_[port].free_at); });
}

void Core::serve(std::uint32_t port, Time now) {
    Output& output = outputs_[port];
    const PortConfiguration& configuration = configuration_.ports[port];
    while (!output.queues.empty() && output.departures.size() < batch_frames) {
        if (output.rate_bps != 0 && output.free_at > now) break;
        const Slot slot = output.queues.pop(pool_, configuration.policy);
        const FramePool::Header& header = pool_[slot];
        shared_used_bytes_ -= header.bytes;
        const Time at = output.rate_bps != 0 ? output.free_at : now;
        if (output.rate_bps != 0)
            output.free_at += transmit_time(header.bytes + line_overhead_bytes, output.rate_bps, output.rest);
        if (output.link.lose()) {
            ++output.counters.losses.fault_out;
            pool_.give(slot);
            continue;
        }
        output.departures.push_back({pool_.bytes(slot), header.bytes, slot, at});
    }
    if (!output.departures.empty()) departing_ |= bit(port);
    if (output.departures.size() == batch_frames) full_ports_ |= bit(port);
    if (output.queues.empty() || output.rate_bps == 0) shaped_waiting_ &= ~bit(port);
}

void Core::departed(std::uint32_t port, std::size_t count) {
    Output& output = outputs_[port];
    assert(count <= output.departures.size());
    const bool stood = (full_ports_ & blocked_ & bit(port)) != 0;
    blocked_ = count < output.departures.size() ? blocked_ | bit(port) : blocked_ & ~bit(port);
    if (count == 0) return;
    for (std::size_t i = 0; i < count; ++i) {
        const Departure& departure = output.departures[i];
        output.counters.sent[pool_[departure.slot].traffic_class].add(departure.bytes);
        pool_.give(departure.slot);
    }
    output.departures.erase(output.departures.begin(),
                            output.departures.begin() + static_cast<std::ptrdiff_t>(count));
    if (output.departures.empty()) departing_ &= ~bit(port);
    full_ports_ &= ~bit(port);
    // What an interface kept waiting leaves at the line's rate, and not all at once.
    if (stood && output.free_at < now_) output.free_at = now_;
    if (output.queues.empty()) return;
    if (output.rate_bps == 0)
        serve(port, now_);
    else
        next_line_ = std::min(next_line_, output.free_at);
}

// ---- frames ----

void Core::handle_frame(std::uint32_t in, std::span<const std::uint8_t> bytes, Time at) {
    if (at > now_) now_ = at;
    PortCounters& counters = outputs_[in].counters;
    counters.received.add(bytes.size());
    if (inputs_[in].link.lose()) {
        ++counters.losses.fault_in;
        return;
    }
    if (bytes.size() > outputs_[in].frame_bytes_max) {
        ++counters.losses.oversize;
        return;
    }
    const Frame frame = switching::read_frame(bytes, configuration_.classification);
    if (frame.kind == FrameKind::malformed) {
        ++counters.losses.malformed;
        return;
    }
    if (!aggregation_.empty() && aggregate(in, bytes, frame)) return;
    forward(in, bytes, frame, now_);
}

// Lets the slots have a frame; whether it goes no further as it came.
bool Core::aggregate(std::uint32_t in, std::span<const std::uint8_t> bytes, const Frame& frame) {
    using Whom = switching::AggregationSlots::Whom;
    const switching::AggregationSlots::Verdict verdict =
        aggregation_.handle(static_cast<std::uint16_t>(in), bytes);
    if (verdict.whom == Whom::ordinary || verdict.whom == Whom::forward) {
        // No host has it: the packet has come as far as it can, or is forged.
        if (aggregation_.owns(mac_at(&bytes[0])) || aggregation_.is_forged(bytes)) {
            learn(in, mac_at(&bytes[6]), now_);
            ++outputs_[in].counters.losses.own_address;
            return true;
        }
        if (!verdict.changed) return false;
        forward(in, aggregation_.frame(), frame, now_);
        return true;
    }
    learn(in, mac_at(&bytes[6]), now_);
    // Class and flow are those of the frame that it was made of; its length is the same.
    if (verdict.whom == Whom::sender) {
        enqueue(in, aggregation_.frame(), frame, now_);
    } else if (verdict.whom == Whom::everyone) {
        const auto workers = static_cast<std::uint16_t>(aggregation_.job(verdict.job).workers.size());
        for (std::uint16_t worker = 0; worker < workers; ++worker) {
            const std::uint32_t port = aggregation_.address(verdict.job, worker).port;
            enqueue(port, aggregation_.frame(), frame, now_);
        }
    } else if (verdict.whom == Whom::upper) {
        enqueue(aggregation_.job(verdict.job).upper->hub.port, aggregation_.frame(), frame, now_);
    } else if (verdict.whom == Whom::asker) {
        enqueue(in, aggregation_.frame(),
                switching::read_frame(aggregation_.frame(), configuration_.classification), now_);
    }
    return true;
}

// IEEE 802, 8.2.2: the lowest bit of the first byte; nobody sends from such an address.
void Core::learn(std::uint32_t in, std::uint64_t source, Time at) {
    if ((source & multicast) != 0) return;
    const std::int32_t group = outputs_[in].group;
    const bool grouped = group >= 0;
    addresses_.learn(source,
                     {static_cast<std::uint16_t>(grouped ? static_cast<std::uint32_t>(group) : in), grouped}, at);
}

void Core::forward(std::uint32_t in, std::span<const std::uint8_t> bytes, const Frame& frame, Time at) {
    Losses& losses = outputs_[in].counters.losses;
    const std::int32_t group_in = outputs_[in].group;
    learn(in, mac_at(&bytes[6]), at);
    const std::uint64_t destination = mac_at(&bytes[0]);
    if (destination >> 4 == 0x0180c200000) {
        ++losses.reserved;
        return;
    }
    const Target* target = (destination & multicast) != 0 ? nullptr : addresses_.find(destination, at);
    if (target == nullptr) return flood(in, bytes, frame, at);
    if (target->is_group ? group_in == target->index : in == target->index) {
        ++losses.same_port;
        return;
    }
    std::uint32_t port = target->index;
    if (target->is_group) port = choose(target->index, frame);
    if (port == max_ports) {
        ++losses.no_port;
        return;
    }
    enqueue(port, bytes, frame, at);
}

// With split horizon: to every port outside groups and to one of each group, but not to where it came from.
void Core::flood(std::uint32_t in, std::span<const std::uint8_t> bytes, const Frame& frame, Time at) {
    bool any = false;
    for (std::uint32_t port = 0; port < outputs_.size(); ++port) {
        if (port == in || outputs_[port].group >= 0) continue;
        enqueue(port, bytes, frame, at);
        any = true;
    }
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
        if (outputs_[in].group == static_cast<std::int32_t>(g)) continue;
        const std::uint32_t port = choose(g, frame);
        if (port == max_ports) continue;
        enqueue(port, bytes, frame, at);
        any = true;
    }
    if (!any) ++outputs_[in].counters.losses.no_port;
}

std::uint32_t Core::choose(std::uint32_t index, const Frame& frame) {
    Group& group = groups_[index];
    if (group.live.empty()) return max_ports;
    const switching::PathChoice choice = configuration_.ports[group.live[0]].policy.path_choice;
    switching::PathInputs inputs;
    inputs.flow = frame.flow;
    inputs.path = frame.path;
    inputs.salt = settings_.salt;
    inputs.turn = group.turn++;
    if (choice == switching::PathChoice::random || choice == switching::PathChoice::adaptive)
        inputs.random = random_.next();
    const switching::PathPair pair =
        switching::choose_path(choice, inputs, static_cast<std::uint32_t>(group.live.size()));
    std::uint32_t port = group.live[pair.first];
    if (pair.second != pair.first) {
        const std::uint32_t other = group.live[pair.second];
        if (outputs_[other].queues.bytes() < outputs_[port].queues.bytes()) port = other;
    }
    ++outputs_[port].counters.chosen;
    return port;
}

switching::Depths Core::depths_of(const Output& output, const switching::Policy& policy, std::size_t c) const {
    const std::uint32_t shared = policy.shared_bytes;
    return {output.queues.queue(c).bytes, output.queues.bytes(),
            shared > shared_used_bytes_ ? shared - shared_used_bytes_ : 0};
}

void Core::enqueue(std::uint32_t port, std::span<const std::uint8_t> bytes, const Frame& frame, Time at) {
    Output& output = outputs_[port];
    if (bytes.size() > output.frame_bytes_max) {
        ++output.counters.losses.oversize;
        return;
    }
    const switching::PacketHeaders& headers = frame.headers;
    const switching::Policy& policy = configuration_.ports[port].policy;
    const switching::Depths depths = depths_of(output, policy, headers.traffic_class);
    const std::uint32_t cut_bytes = headers.trimmable ? switching::trimmed_bytes(frame) : 0;
    const switching::Verdict verdict =
        switching::admit(policy, headers, depths, static_cast<std::uint32_t>(random_.next()), cut_bytes,
                         headers.trimmable ? depths_of(output, policy, policy.trimmed_class) : depths);

    const std::size_t level = switching::level_of(headers);
    auto& fates_of_level =
        output.counters.decisions[headers.traffic_class][headers.foreign ? foreign_level : level];
    const auto drop = [&](Fate fate) {
        fates_of_level[static_cast<std::size_t>(fate)].add(bytes.size());
        ++output.counters.dropped[headers.traffic_class];
    };
    if (verdict.dropped) {
        if (verdict.trimmed) return drop(Fate::dropped_trimmed);
        const switching::Thresholds& at_level = policy.classes[headers.traffic_class].level[level];
        const bool by_threshold = !headers.foreign && depths.queue_bytes > at_level.drop_above_bytes;
        return drop(by_threshold ? Fate::dropped_threshold : Fate::dropped_buffer);
    }
    const Slot slot = pool_.take();
    if (slot == no_slot) return drop(Fate::dropped_memory);

    FramePool::Header& header = pool_[slot];
    std::uint8_t* copy = pool_.bytes(slot);
    header.bytes = verdict.trimmed ? cut_bytes : static_cast<std::uint32_t>(bytes.size());
    header.traffic_class = verdict.trimmed ? policy.trimmed_class : headers.traffic_class;
    std::memcpy(copy, bytes.data(), header.bytes);
    if (verdict.trimmed)
        switching::trim({copy, header.bytes}, frame, configuration_.classification);
    else if (verdict.marked)
        switching::mark({copy, header.bytes}, frame);
    const Fate fate = verdict.trimmed ? Fate::trimmed : verdict.marked ? Fate::marked : Fate::kept;
    fates_of_level[static_cast<std::size_t>(fate)].add(header.bytes);

    if (output.queues.empty() && output.free_at < at) {
        output.free_at = at;
        output.rest = 0;
    }
    output.queues.push(pool_, slot);
    shared_used_bytes_ += header.bytes;
    if (output.rate_bps != 0) {
        shaped_waiting_ |= bit(port);
        if (output.free_at > at) {
            if ((full_ports_ & bit(port)) == 0) next_line_ = std::min(next_line_, output.free_at);
            output.queues.note_depths(header.traffic_class);
            return;
        }
    }
    serve(port, at);
    output.queues.note_depths(header.traffic_class);
}

void Core::take_sample(Time at) {
    for (std::uint32_t port = 0; port < outputs_.size(); ++port) {
        const Output& output = outputs_[port];
        Sample sample;
        sample.at = at;
        sample.port = port;
        for (std::size_t c = 0; c < switching::traffic_classes; ++c) {
            sample.waiting_bytes[c] = output.queues.queue(c).bytes;
            sample.sent_packets[c] = output.counters.sent[c].packets;
        }
        sample.dropped_packets = output.counters.dropped;
        samples_.add(sample);
    }
}

}  // namespace dlcp::softswitch
