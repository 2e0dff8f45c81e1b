// One Ethernet interface with an IP address, for drivers below the kernel: who is where, who asks for us, and what of
// the frames that come in is a datagram for the driver. Pure: is given frames and the time, and answers frames.
//
// It asks and answers ARP (RFC 826) and neighbour discovery (RFC 4861: solicitation, advertisement; no routers are
// learnt), looks whether its address is free, announces and defends it (RFC 5227; RFC 4862, 5.4), reports its IPv6 group
// to switches that snoop (RFC 3810), answers echo requests (RFC 792, RFC 4443), and keeps neighbours as RFC 4861, 7.3
// says: incomplete, reachable, stale, delay, probe. Bounds: neighbours_max, destinations_max, own_frames_max; what is
// beyond is dropped and counted. It reassembles nothing: fragments are counted and dropped.
//
// One thread at a time. Nothing is allocated per packet once a destination is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/units.hpp"
#include "ipstack/address.hpp"
#include "ipstack/counters.hpp"
#include "ipstack/headers.hpp"

namespace dlcp::ipstack {

struct StaticNeighbour {
    IpAddress ip;
    MacAddress mac;
};

struct InterfaceConfig {
    MacAddress mac{};
    IpAddress address;
    unsigned prefix_bits = 0;        // of the link's network; 0: everybody is on the link
    IpAddress gateway;               // for hosts that are not on the link; absent: they cannot be reached
    std::uint16_t vlan = 0;          // 1..4094: frames carry this tag; 0: none
    std::uint32_t mtu_bytes = 1500;  // of IP packets
    std::uint16_t port = 0;          // UDP port that datagrams come to
    std::uint16_t ports = 1;         // and path_port(port, 1…): what we send from may be answered there
    bool answers_echo = true;
    // Never asked for, never forgotten; static_neighbours_max at most. Those of the other family are for another
    // interface.
    std::vector<StaticNeighbour> neighbours;
};

// What happened; the driver tells it on (io_table.h). A neighbour is lost when three requests to all were not answered,
// and reported once, until it is found. At most 256 wait to be taken; the oldest goes.
struct InterfaceEvent {
    enum class Kind : std::uint8_t { neighbour_lost, neighbour_found, address_taken };
    Kind kind;
    IpAddress ip;
    MacAddress mac;
};

// Whether our address is ours (address_claim.hpp). In the last two nobody is asked or answered in its name.
enum class AddressState : std::uint8_t { ours, probing, taken };

enum class FrameKind : std::uint8_t {
    datagram,  // UDP to our address and port
    other,     // for handle_frame()
    refused,   // counted; nothing more to do with it
};

// What a card says of a frame's checksums. `bad` is looked at again here, for there are cards that say so of a datagram
// without a checksum.
enum class CardChecksum : std::uint8_t { unknown, good, bad };

class Interface {
public:
    static constexpr std::size_t neighbours_max = 8192;
    static constexpr std::size_t static_neighbours_max = neighbours_max / 2;  // so that others can be asked for
    static constexpr std::size_t destinations_max = 8192;
    static constexpr std::size_t own_frames_max = 64;

    explicit Interface(const InterfaceConfig& config);
    ~Interface();
    Interface(const Interface&) = delete;
    Interface& operator=(const Interface&) = delete;

    const InterfaceConfig& config() const;
    // Payload bytes of the largest datagram.
    std::uint32_t max_datagram_bytes() const;
    // Ethernet groups to listen to: of an IPv6 address, all nodes and its solicited-node group (RFC 4861, 7.2.1);
    // broadcast goes without saying.
    std::span<const MacAddress> groups() const;

    // ---- sending ----

    // How `to` is reached, asking for its Ethernet address if that is not known. Valid as long as the interface is.
    // nullptr: another family, or not on the link and no gateway, or destinations_max.
    const Destination* reach(Time now, const UdpAddress& to);
    // Asks again if nobody is asking, once a second at the most; cheap. For a driver that has packets for a destination
    // that is not resolved.
    void ask(Time now, const Destination& destination);
    // Rises whenever a destination becomes resolved, so that a driver with waiting packets knows when to look.
    std::uint64_t resolutions() const;
    // A packet was sent there: a stale neighbour is asked anew. Once per burst and destination will do.
    void used(Time now, const Destination& destination);

    // ---- receiving ----

    // A whole frame, without its check sequence, contiguous, with its tag if it has one. Fills `out` if it is a
    // datagram: to our Ethernet address (not to all), our IP address and one of our ports.
    FrameKind read(std::span<const std::uint8_t> frame, CardChecksum ip, CardChecksum udp, Datagram& out);
    // What read() called `other`: ARP, neighbour discovery, echo, queries for listeners. May queue answers and resolve
    // destinations.
    void handle_frame(Time now, std::span<const std::uint8_t> frame);
    // Datagrams come from there, which is taken for a sign that ours arrive there (neighbours.hpp). Once per burst and
    // source will do.
    void heard(Time now, const Datagram& datagram);

    // ---- what it wants to send itself ----

    // The next frame; 0: none. `out` has at least 18 bytes more than the MTU.
    std::size_t next_frame(std::span<std::uint8_t> out);
    // Looks whether our address is free, then announces it: at the start, with a link. It takes 60 ms to know, in which
    // nothing is sent from the address.
    void claim(Time now);
    AddressState address_state() const;
    // The station that has it, once it is taken.
    const MacAddress& address_holder() const;
    // Announces our address, when a link is back. Once now and once two seconds later (RFC 5227, 2.3).
    void announce(Time now);

    // ---- time ----

    Time next_deadline() const;
    void handle_timer(Time now);

    std::optional<InterfaceEvent> next_event();
    const InterfaceCounters& counters() const;
    // The neighbour's Ethernet address, if it is known.
    std::optional<MacAddress> mac_of(const IpAddress& ip) const;

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace dlcp::ipstack
