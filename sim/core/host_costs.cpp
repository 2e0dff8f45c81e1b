// The presets of hosts, and the turns of a host's processor.
#include "sim/core/host_costs.hpp"

#include <stdexcept>

#include "sim/core/domain.hpp"

namespace dlcp::sim {
namespace {

// Measured between two namespaces of one machine (EPYC, two cores), both ways at once, in processor seconds per GB that is
// sent and received, over a veth whose receivers merge: runs of 44 datagrams of 1472 bytes 0.63, of 16 0.77, single
// packets 3.7. A GB is 679,348 such packets, so a packet took 927, 1133 and 5446 ns at both ends together. With
// message / run + packet + 1472 byte, the first and the last give
//     message = (5446 - 927) / (1 - 1/44) = 4.62 us,   packet + 1472 byte = 0.822 us
// and 1111 ns for runs of 16, within 2 %. Where super-packets pass whole (all offloads: 0.24 at 44) no packet is cut or
// merged: 353 ns less 4620 / 44 leave 0.17 ns per byte for copying, and 0.572 us per packet. Each end is charged half.
constexpr HostCosts kernel{.call_ps = 5'000'000,  // a context switch on that machine: 5 us
                           .message_ps = 2'310'000,
                           .packet_ps = 286'000,
                           .byte_ps = 85};

// Below the kernel there are no super-packets and no sockets. Not measured alone: of 1.45 s per GB over sockets 13 % were
// interrupts and the link, 128 ns per packet at both ends; a frame is copied as above.
constexpr HostCosts below_kernel{.call_ps = 5'000'000, .packet_ps = 64'000, .byte_ps = 85};

// dlcp's engine took 0.13 s per GB, 191 ns per packet at both ends, and AES-GCM tags 60 ns at each. The other transports are
// charged the same, as if they were programs like it.
constexpr std::int64_t engine_packet_ps = 96'000 + 60'000;

// The kernel's TCP took 0.98 s per GB where UDP took 0.63, and has neither engine nor tags. With UDP's costs alone the
// simulated TCP takes 0.85 at an MTU of 1500, because of its acknowledgements. The other 0.13 are charged by byte, half at
// each end. Below the kernel TCP would be a program too.
constexpr std::int64_t tcp_byte_ps = 60;

}  // namespace

std::vector<std::string> HostCosts::names() { return {"free", "sockets", "xdp"}; }

std::optional<HostCosts> HostCosts::named(const std::string& hosts, const std::string& transport) {
    if (hosts == "free") return std::nullopt;
    if (hosts != "sockets" && hosts != "xdp")
        throw std::invalid_argument("hosts is \"" + hosts + "\"; accepted: free, sockets, xdp");
    HostCosts costs = hosts == "sockets" ? kernel : below_kernel;
    if (hosts == "sockets" && (transport == "tcp" || transport == "dctcp"))
        costs.byte_ps += tcp_byte_ps;
    else
        costs.packet_ps += engine_packet_ps;
    return costs;
}

void HostProcessors::arrive(Domain& domain, std::uint32_t host, std::uint32_t slot) {
    Host& h = hosts_[host];
    Packet& packet = domain.packet(slot);
    if (h.waiting_bytes + packet.wire_bytes > waiting_bytes_max) {
        ++h.packets_dropped;
        domain.drop_at_host(slot);
        return;
    }
    packet.next = none;
    if (h.head == none)
        h.head = slot;
    else
        domain.packet(h.tail).next = slot;
    h.tail = slot;
    h.waiting_bytes += packet.wire_bytes;
    work(domain, host);
}

void HostProcessors::wake(Domain& domain, std::uint32_t host) {
    hosts_[host].may_send = true;
    work(domain, host);
}

void HostProcessors::work(Domain& domain, std::uint32_t host) {
    Host& h = hosts_[host];
    if (h.paying != none) return;
    const bool has_room = domain.card_has_room(host, message_bytes_max);
    if (h.may_send && has_room && (h.head == none || !h.sending)) {
        const std::uint32_t slot = domain.pull(host, h.may_send);
        if (slot != none) {
            const Packet& p = domain.packet(slot);
            h.sending = true;
            pay(domain, host, slot, h.sent[p.type == data_packet ? 0 : 1],
                std::uint64_t{p.type} << 51 | std::uint64_t{p.traffic_class} << 48 | std::uint64_t{p.path} << 32 |
                    p.destination);
            return;
        }
    }
    if (h.head == none) {
        if (!h.may_send && h.idle_since_ps == busy) h.idle_since_ps = domain.now_ps();
        return;
    }
    const std::uint32_t slot = h.head;
    const Packet& p = domain.packet(slot);
    h.head = p.next;
    h.waiting_bytes -= p.wire_bytes;
    h.sending = false;
    // The packet's sender is that of its flow. An engine's packet of no flow has a number of its pair of hosts instead.
    const std::uint64_t key = std::uint64_t{p.type} << 51 | std::uint64_t{p.traffic_class} << 48 |
                              std::uint64_t{p.path} << 32 | domain.sender_of(slot);
    pay(domain, host, slot, h.received[mix64(key) % h.received.size()], key);
}

void HostProcessors::pay(Domain& domain, std::uint32_t host, std::uint32_t slot, Message& message,
                         std::uint64_t key) {
    Host& h = hosts_[host];
    const std::uint32_t bytes = domain.packet(slot).wire_bytes;
    std::int64_t cost_ps = costs_.packet_ps + costs_.byte_ps * bytes;
    if (h.idle_since_ps < domain.now_ps()) {
        ++h.stretch;
        cost_ps += costs_.call_ps;
    }
    h.idle_since_ps = busy;
    if (message.key != key || message.stretch != h.stretch || message.bytes + bytes > message_bytes_max) {
        message = {key, 0, h.stretch};
        cost_ps += costs_.message_ps;
    }
    message.bytes += bytes;
    h.paying = slot;
    domain.set_paid(domain.now_ps() + cost_ps, host);
}

void HostProcessors::handle_paid(Domain& domain, std::uint32_t host) {
    Host& h = hosts_[host];
    const std::uint32_t slot = h.paying;
    h.paying = none;
    if (h.sending)
        domain.hand_to_card(host, slot);
    else
        domain.hand_to_transport(host, slot);
    work(domain, host);
}

std::uint64_t HostProcessors::packets_dropped() const {
    std::uint64_t sum = 0;
    for (const Host& h : hosts_) sum += h.packets_dropped;
    return sum;
}

}  // namespace dlcp::sim
