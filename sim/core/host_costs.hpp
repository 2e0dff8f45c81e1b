// What sending and receiving cost a host's processor, and when that lets packets go: for hosts that are not free.
//
// A host has one processor for both. It takes a packet that has come and a packet to send in turns, pays for it, and only
// then hands it to the transport or to the card. Up to one message of packets waits in the card. What comes meanwhile
// waits, up to `waiting_bytes_max`; beyond that it is dropped and counted, as by a full socket buffer.
//
// A message is a super-packet of the kernel (GSO, GRO): packets of one sender to one destination over one path, of one class
// and kind, with at most 64 KB in 1472-byte datagrams. It goes on as long as the processor has found work since its last
// packet; sent packets must follow each other, received ones may come between those of other senders, as in GRO.
// Not modelled: other processors, and computations that compete for this one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/packet.hpp"

namespace dlcp::sim {

class Domain;

// Of one end; the processor's time, in picoseconds.
struct HostCosts {
    std::int64_t call_ps = 0;     // to wake, once for all that is found to do
    std::int64_t message_ps = 0;  // a message begins
    std::int64_t packet_ps = 0;
    std::int64_t byte_ps = 0;  // on the wire

    // Presets by name: free (none: hosts take no time), sockets, xdp. Throws std::invalid_argument.
    static std::optional<HostCosts> named(const std::string& hosts, const std::string& transport);
    static std::vector<std::string> names();
    // What an unloaded round trip takes longer: three wake-ups, and four ends of a message of one packet.
    std::int64_t rtt_ps(std::uint32_t data_bytes, std::uint32_t ack_bytes) const {
        return 3 * call_ps + 4 * (message_ps + packet_ps) + 2 * byte_ps * (std::int64_t{data_bytes} + ack_bytes);
    }
};

// The processors of all hosts; each is touched in its host's domain only.
class HostProcessors {
public:
    static constexpr std::uint32_t waiting_bytes_max = 4'000'000;
    static constexpr std::uint32_t message_bytes_max = 44 * (1472 + 66);  // on the wire

    HostProcessors(const HostCosts& costs, std::uint32_t hosts) : costs_(costs), hosts_(hosts) {}

    const HostCosts& costs() const { return costs_; }
    // A packet has reached its host.
    void arrive(Domain& domain, std::uint32_t host, std::uint32_t slot);
    // The transport has something to send.
    void wake(Domain& domain, std::uint32_t host);
    // Begins the next piece of work unless one is under way: also when the card has room again.
    void work(Domain& domain, std::uint32_t host);
    // The packet that was worked on is paid for.
    void handle_paid(Domain& domain, std::uint32_t host);
    std::uint64_t packets_dropped() const;

private:
    struct Message {
        std::uint64_t key = UINT64_MAX;
        std::uint32_t bytes = 0;
        std::uint32_t stretch = 0;  // of the host, when its last packet was paid for
    };
    static constexpr std::int64_t busy = INT64_MAX;
    struct Host {
        std::uint32_t paying = none;  // the packet that is worked on
        bool sending = false;         // that packet leaves
        bool may_send = false;        // the transport has said so, and has not answered a pull with `none` since
        std::int64_t idle_since_ps = -1;  // when it found nothing to do; busy: it has work, or waits for the card
        std::uint32_t stretch = 0;        // counts the times that it has woken
        std::uint32_t head = none;        // packets that wait, chained by `next`
        std::uint32_t tail = none;
        std::uint32_t waiting_bytes = 0;
        std::uint64_t packets_dropped = 0;
        std::array<Message, 2> sent;       // of data, of all else
        std::array<Message, 64> received;  // as many as GRO holds (8 lists of 8); by a hash of the key
    };
    void pay(Domain& domain, std::uint32_t host, std::uint32_t slot, Message& message, std::uint64_t key);

    const HostCosts costs_;
    std::vector<Host> hosts_;
};

}  // namespace dlcp::sim
