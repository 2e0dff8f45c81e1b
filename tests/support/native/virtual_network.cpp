#include "support/native/virtual_network.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/wire.hpp"

namespace dlcp {
namespace {

constexpr std::uint8_t ecn_mask = 3;  // RFC 3168 section 5: 0 Not-ECT, 1 and 2 ECT, 3 CE
constexpr std::uint8_t ecn_ce = 3;

// A class selector's three bits (RFC 2474 section 4.2.2).
std::size_t priority(std::uint8_t tos) { return tos >> 5; }

// Trimmed packets are small and tell of loss: they travel with control (Ultra Ethernet 1.0 does the same).
constexpr std::uint8_t trimmed_tos = 7u << 5;

bool is_droppable(const std::uint8_t* bytes, std::uint32_t length) {
    return length >= wire::short_header_bytes &&
           wire::is_data(static_cast<wire::Type>(bytes[wire::type_offset])) &&
           (bytes[2] & (wire::flag::critical | wire::flag::trimmed)) == 0;
}

}  // namespace

const char* name(Fate fate) {
    switch (fate) {
        case Fate::sent: return "sent";
        case Fate::arrived: return "arrived";
        case Fate::lost_outage: return "lost_outage";
        case Fate::lost_path: return "lost_path";
        case Fate::lost_too_long: return "lost_too_long";
        case Fate::lost_queue: return "lost_queue";
        case Fate::lost_random: return "lost_random";
        case Fate::lost_burst: return "lost_burst";
        case Fate::lost_inbox: return "lost_inbox";
        case Fate::marked: return "marked";
        case Fate::trimmed: return "trimmed";
        case Fate::held_back: return "held_back";
        case Fate::duplicated: return "duplicated";
        case Fate::corrupted: return "corrupted";
        case Fate::truncated: return "truncated";
    }
    return "unknown";
}

struct VirtualNetwork::Link {
    Link(const LinkSettings& s, std::uint64_t seed) : settings(s), random(seed) {}

    // No draw for what cannot happen, so that a fault that is off shifts no other one's dice.
    bool chance(double ratio) {
        if (ratio <= 0.0) return false;
        return static_cast<double>(random.next() >> 11) * 0x1p-53 < ratio;
    }
    Duration up_to(Duration most) {
        if (most.value <= 0) return {0};
        return {static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most.value) + 1))};
    }
    bool out(Time now) const {
        return std::any_of(settings.outages.begin(), settings.outages.end(),
                           [&](const Outage& o) { return o.from <= now && now < o.until; });
    }
    const PathFault* fault_of(std::uint16_t path) const {
        for (const PathFault& fault : settings.paths) {
            if (fault.path == path) return &fault;
        }
        return nullptr;
    }
    // The last arrival of the packet's lane: what jitter must not overtake.
    Time& last_of_lane(const Slot& slot) {
        if (lanes.empty()) lanes.resize(64 * 8);
        return lanes[(slot.path % 64) * std::size_t{8} + priority(slot.tos)];
    }

    LinkSettings settings;
    Random random;
    bool in_burst = false;
    Time burst_since;
    bool sending = false;
    Bytes waiting{0};
    std::array<Chain, 8> queues;  // only the first unless strict_priority
    std::vector<Time> lanes;
};

VirtualNetwork::VirtualNetwork(std::uint64_t seed) : seed_(seed) {}
VirtualNetwork::~VirtualNetwork() = default;

std::uint32_t VirtualNetwork::add_host() {
    const auto host = static_cast<std::uint32_t>(hosts_.size());
    hosts_.emplace_back();
    hosts_.back().address = address(host);
    return host;
}

std::uint32_t VirtualNetwork::hosts() const { return static_cast<std::uint32_t>(hosts_.size()); }

dlcp_address VirtualNetwork::address(std::uint32_t host) {
    dlcp_address result{};
    std::memcpy(result.bytes, &host, sizeof host);
    result.length = sizeof host;
    return result;
}

std::uint32_t VirtualNetwork::host_of(const dlcp_address& address) {
    std::uint32_t host = UINT32_MAX;
    if (address.length == sizeof host) std::memcpy(&host, address.bytes, sizeof host);
    return host;
}

void VirtualNetwork::set_link(std::unique_ptr<Link>& link, const LinkSettings& settings, std::uint64_t stream) {
    if (link) {
        link->settings = settings;
    } else {
        link = std::make_unique<Link>(settings, Random(seed_ ^ (stream * 0x9e3779b97f4a7c15ULL)).next());
    }
}

void VirtualNetwork::set_uplink(std::uint32_t host, const LinkSettings& settings) {
    set_link(hosts_[host].uplink, settings, std::uint64_t{1} << 32 | host);
}

void VirtualNetwork::set_downlink(std::uint32_t host, const LinkSettings& settings) {
    set_link(hosts_[host].downlink, settings, std::uint64_t{2} << 32 | host);
}

void VirtualNetwork::set_between(std::uint32_t from, std::uint32_t to, const LinkSettings& settings) {
    auto& ways = hosts_[from].ways;
    if (ways.size() <= to) ways.resize(to + std::size_t{1});
    set_link(ways[to], settings, std::uint64_t{3} << 32 | from << 16 | to);
}

void VirtualNetwork::set_inbox(std::uint32_t host, Bytes limit) { hosts_[host].inbox_limit = limit; }

std::uint32_t VirtualNetwork::take_slot() {
    if (free_ == none) {
        slots_.emplace_back();
        return static_cast<std::uint32_t>(slots_.size() - 1);
    }
    return std::exchange(free_, slots_[free_].next);
}

void VirtualNetwork::free_slot(std::uint32_t slot) { slots_[slot].next = std::exchange(free_, slot); }

void VirtualNetwork::push(Chain& chain, std::uint32_t slot) {
    slots_[slot].next = none;
    if (chain.head == none) {
        chain.head = slot;
    } else {
        slots_[chain.tail].next = slot;
    }
    chain.tail = slot;
}

std::uint32_t VirtualNetwork::pop(Chain& chain) {
    const std::uint32_t slot = chain.head;
    if (slot != none) chain.head = slots_[slot].next;
    return slot;
}

namespace {
constexpr auto later = [](const auto& a, const auto& b) {
    return std::pair(a.at, a.order) > std::pair(b.at, b.order);
};
}

void VirtualNetwork::schedule(Time at, std::uint32_t slot, Link* link) {
    events_.push_back({at, order_++, slot, link});
    std::push_heap(events_.begin(), events_.end(), later);
}

Time VirtualNetwork::next_event() const { return events_.empty() ? time_never : events_.front().at; }

void VirtualNetwork::advance(Time until) {
    while (!events_.empty() && events_.front().at <= until) {
        std::pop_heap(events_.begin(), events_.end(), later);
        const Event event = events_.back();
        events_.pop_back();
        now_ = event.at;
        if (event.link == nullptr) {
            enter_hop(event.slot);
        } else {
            event.link->sending = false;
            leave_link(*event.link, event.slot);
            start_sending(*event.link);
        }
    }
    now_ = std::max(now_, until);
}

void VirtualNetwork::tell(Fate fate, const Slot& slot) {
    ++counts_[static_cast<std::size_t>(fate)];
    if (!observer_) return;
    observer_({now_,
               fate,
               slot.from,
               slot.to,
               {slot.bytes.data(), slot.length},
               slot.virtual_bytes,
               slot.path,
               slot.tos});
}

void VirtualNetwork::lose(Fate fate, std::uint32_t slot) {
    tell(fate, slots_[slot]);
    free_slot(slot);
}

void VirtualNetwork::trim(Slot& slot) {
    slot.length = std::min<std::uint32_t>(slot.length, wire::header_bytes);
    slot.virtual_bytes = 0;
    slot.bytes[2] |= wire::flag::trimmed;
    slot.tos = trimmed_tos;
    tell(Fate::trimmed, slot);
}

void VirtualNetwork::send(std::uint32_t host, std::span<const dlcp_packet> packets) {
    const auto bytes = [](const dlcp_packet& p) { return p.head_bytes + p.body_bytes + p.tail_bytes; };
    for (std::size_t first = 0, end = 0; first < packets.size(); first = end) {
        const dlcp_packet& head = packets[first];
        const auto joins = [&](const dlcp_packet& last, const dlcp_packet& next) {
            return bytes(last) == bytes(head) && bytes(next) <= bytes(head) && next.path == head.path &&
                   next.tos == head.tos && ((last.flags | next.flags) & DLCP_PACKET_ALONE) == 0 &&
                   head.address != nullptr && next.address != nullptr &&
                   host_of(*next.address) == host_of(*head.address);
        };
        for (end = first + 1; end < packets.size() && joins(packets[end - 1], packets[end]);) ++end;
        for (std::size_t i = first; i < end; ++i) send(host, packets[i], end - first > 1);
    }
}

void VirtualNetwork::send(std::uint32_t host, const dlcp_packet& packet, bool in_run) {
    const std::uint32_t index = take_slot();
    Slot& slot = slots_[index];
    slot.is_virtual = (packet.flags & DLCP_PACKET_VIRTUAL) != 0;
    const std::uint32_t body_bytes = slot.is_virtual ? 0 : packet.body_bytes;
    slot.length = packet.head_bytes + body_bytes + packet.tail_bytes;
    slot.virtual_bytes = slot.is_virtual ? packet.body_bytes : 0;
    if (slot.bytes.size() < slot.length) slot.bytes.resize(std::max<std::size_t>(slot.length, 2048));
    std::uint8_t* out = slot.bytes.data();
    std::memcpy(out, packet.head, packet.head_bytes);
    if (body_bytes != 0) std::memcpy(out + packet.head_bytes, packet.body, body_bytes);
    if (packet.tail_bytes != 0) {
        std::memcpy(out + packet.head_bytes + body_bytes, packet.head + packet.head_bytes, packet.tail_bytes);
    }
    slot.from = host;
    slot.to = packet.address != nullptr ? host_of(*packet.address) : none;
    slot.path = packet.path;
    slot.tos = packet.tos;
    slot.hop = 0;
    slot.in_run = in_run;
    tell(Fate::sent, slot);
    if (slot.to >= hosts_.size()) return lose(Fate::lost_path, index);
    enter_hop(index);
}

void VirtualNetwork::enter_hop(std::uint32_t index) {
    const Slot& slot = slots_[index];
    while (slot.hop < 3) {
        Link* link = nullptr;
        switch (slots_[index].hop++) {
            case 0: link = hosts_[slot.from].uplink.get(); break;
            case 1: {
                const auto& ways = hosts_[slot.from].ways;
                link = slot.to < ways.size() ? ways[slot.to].get() : nullptr;
                break;
            }
            default: link = hosts_[slot.to].downlink.get(); break;
        }
        if (link != nullptr) return enter_link(*link, index);
    }
    arrive(index);
}

void VirtualNetwork::enter_link(Link& link, std::uint32_t index) {
    Slot& slot = slots_[index];
    const LinkSettings& settings = link.settings;
    if (link.out(now_)) return lose(Fate::lost_outage, index);
    if (settings.max_datagram.value != 0 && slot.length + slot.virtual_bytes > settings.max_datagram.value &&
        !(settings.runs_pass && slot.in_run)) {
        return lose(Fate::lost_too_long, index);
    }
    if (settings.rate.value_bps == 0) return leave_link(link, index);

    const auto fits = [&](Bytes limit) {
        const std::uint64_t size = slot.length + slot.virtual_bytes + lower_layer_bytes;
        return limit.value == 0 || link.waiting.value + size <= limit.value;
    };
    const bool droppable = is_droppable(slot.bytes.data(), slot.length);
    if (droppable && (!fits(settings.queue) || !fits(settings.droppable_above))) {
        if (!settings.trim) return lose(Fate::lost_queue, index);
        trim(slot);
    }
    if (!fits(settings.queue)) return lose(Fate::lost_queue, index);
    if (settings.ecn_mark_above.value != 0 && link.waiting > settings.ecn_mark_above &&
        (slot.tos & ecn_mask) != 0) {
        slot.tos |= ecn_ce;
        tell(Fate::marked, slot);
    }
    link.waiting += Bytes{std::uint64_t{slot.length} + slot.virtual_bytes + lower_layer_bytes};
    push(link.queues[settings.strict_priority ? priority(slot.tos) : 0], index);
    start_sending(link);
}

void VirtualNetwork::start_sending(Link& link) {
    if (link.sending) return;
    for (std::size_t i = link.queues.size(); i-- > 0;) {
        const std::uint32_t index = pop(link.queues[i]);
        if (index == none) continue;
        const Bytes size{std::uint64_t{slots_[index].length} + slots_[index].virtual_bytes + lower_layer_bytes};
        link.waiting -= size;
        link.sending = true;
        return schedule(now_ + time_to_send(size, link.settings.rate), index, &link);
    }
}

// The packet is on the wire: what may befall it there, then its arrival at the next hop.
void VirtualNetwork::leave_link(Link& link, std::uint32_t index) {
    const LinkSettings& settings = link.settings;
    {
        Slot& slot = slots_[index];
        if (link.out(now_)) return lose(Fate::lost_outage, index);
        const PathFault* const fault = link.fault_of(slot.path);
        if (fault != nullptr && link.chance(fault->loss_ratio)) return lose(Fate::lost_path, index);
        if (fault != nullptr && fault->max_datagram.value != 0 &&
            slot.length + slot.virtual_bytes > fault->max_datagram.value)
            return lose(Fate::lost_path, index);
        if (link.chance(settings.loss_ratio)) return lose(Fate::lost_random, index);
        if (link.in_burst && settings.burst_longest.value != 0 &&
            now_ - link.burst_since >= settings.burst_longest) {
            link.in_burst = false;
        }
        if (link.chance(link.in_burst ? settings.burst_exit_ratio : settings.burst_enter_ratio)) {
            link.in_burst = !link.in_burst;
            link.burst_since = now_;
        }
        if (link.in_burst && link.chance(settings.burst_loss_ratio)) return lose(Fate::lost_burst, index);

        if (is_droppable(slot.bytes.data(), slot.length) && link.chance(settings.trim_ratio)) trim(slot);
        if (link.chance(settings.corrupt_ratio) && slot.length != 0) {
            for (std::uint64_t flips = 1 + link.random.below(8); flips-- > 0;) {
                const std::uint64_t bit = link.random.below(std::uint64_t{slot.length} * 8);
                slot.bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
            }
            tell(Fate::corrupted, slot);
        }
        if (link.chance(settings.truncate_ratio) && slot.length != 0) {
            slot.length = static_cast<std::uint32_t>(link.random.below(slot.length));
            tell(Fate::truncated, slot);
        }
    }

    const auto fly = [&](std::uint32_t flying) {
        const Slot& slot = slots_[flying];
        Time at = now_ + settings.delay;
        if (const PathFault* fault = link.fault_of(slot.path)) at = at + fault->delay;
        if (settings.jitter.value > 0) {
            at = at + link.up_to(settings.jitter);
            Time& last = link.last_of_lane(slot);
            at = std::max(at, last);
            last = at;
        }
        if (link.chance(settings.reorder_ratio)) {
            at = at + link.up_to(settings.reorder_delay);
            tell(Fate::held_back, slot);
        }
        schedule(at, flying, nullptr);
    };
    if (link.chance(settings.duplicate_ratio)) {
        const std::uint32_t copy = take_slot();
        Slot& to = slots_[copy];
        const Slot& from = slots_[index];
        if (to.bytes.size() < from.length) to.bytes.resize(from.bytes.size());
        std::memcpy(to.bytes.data(), from.bytes.data(), from.length);
        to.length = from.length;
        to.virtual_bytes = from.virtual_bytes;
        to.from = from.from;
        to.to = from.to;
        to.path = from.path;
        to.tos = from.tos;
        to.hop = from.hop;
        to.is_virtual = from.is_virtual;
        tell(Fate::duplicated, to);
        fly(index);
        return fly(copy);
    }
    fly(index);
}

void VirtualNetwork::arrive(std::uint32_t index) {
    const Slot& slot = slots_[index];
    Host& host = hosts_[slot.to];
    const Bytes size{std::uint64_t{slot.length} + slot.virtual_bytes};
    if (host.inbox_limit.value != 0 && host.inbox_bytes + size > host.inbox_limit) {
        return lose(Fate::lost_inbox, index);
    }
    host.inbox_bytes += size;
    tell(Fate::arrived, slot);
    push(host.inbox, index);
}

bool VirtualNetwork::readable(std::uint32_t host) const { return hosts_[host].inbox.head != none; }

std::size_t VirtualNetwork::receive(std::uint32_t host, std::span<dlcp_packet> out) {
    Host& reader = hosts_[host];
    std::size_t count = 0;
    while (count < out.size()) {
        const std::uint32_t index = pop(reader.inbox);
        if (index == none) break;
        Slot& slot = slots_[index];
        reader.inbox_bytes -= Bytes{std::uint64_t{slot.length} + slot.virtual_bytes};
        dlcp_packet& packet = out[count++];
        packet = {};
        packet.head = slot.bytes.data();
        packet.head_bytes = slot.length;
        packet.address = &hosts_[slot.from].address;
        packet.body_bytes = slot.virtual_bytes;
        packet.path = slot.path;
        packet.tos = slot.tos;
        packet.flags = slot.is_virtual && slot.virtual_bytes != 0 ? DLCP_PACKET_VIRTUAL : 0;
        packet.cookie = index;
    }
    return count;
}

void VirtualNetwork::release(std::span<const dlcp_packet> packets) {
    for (const dlcp_packet& packet : packets) free_slot(static_cast<std::uint32_t>(packet.cookie));
}

void VirtualNetwork::clear_inbox(std::uint32_t host) {
    Host& reader = hosts_[host];
    for (std::uint32_t index; (index = pop(reader.inbox)) != none;) free_slot(index);
    reader.inbox_bytes = Bytes{0};
}

}  // namespace dlcp
