// One host that runs the shipping engine: an Endpoint, and a CollectiveExecutor once there are collectives, between the
// simulator's packets and picoseconds and the engine's datagrams and nanoseconds.
//
// It carries packets and keeps time; it takes no decision of the protocol. What the engine's events mean to flows and
// collectives, the transport says (dlcp.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "collective/executor.hpp"
#include "engine/endpoint.hpp"
#include "engine/wire.hpp"
#include "sim/core/domain.hpp"
#include "sim/core/transports/engine_body.hpp"

namespace dlcp::sim {

// What the engines of one simulation share. Constant once prepared.
struct EngineNetwork {
    std::uint32_t lower_layer_bytes = 66;  // Ethernet with preamble and gap 38, IPv4 20, UDP 8
    bool trim_critical = false;            // switches may trim critical packets as well
    Time origin{0};                        // the engines' time at simulated time zero
    std::array<std::uint8_t, 64> class_of_dscp{};
    std::vector<dlcp_address> addresses;  // by host

    Time time(std::int64_t now_ps) const { return {origin.value + now_ps / 1000}; }
    std::int64_t ps_of(Time time) const { return (time.value - origin.value) * 1000; }
};

// Flows name their messages as an executor's users do theirs, in a group that no collective has (collective/tag.hpp).
struct FlowTag {
    static constexpr std::uint32_t group = (1u << 14) - 1;
    static std::uint64_t of(std::uint32_t flow, std::uint32_t piece) {
        return std::uint64_t{group} << 50 | std::uint64_t{1} << 48 | std::uint64_t{piece} << 32 | flow;
    }
    static bool is(std::uint64_t tag) { return tag >> 48 == (std::uint64_t{group} << 2 | 1); }
    static std::uint32_t flow(std::uint64_t tag) { return static_cast<std::uint32_t>(tag); }
    static std::uint32_t piece(std::uint64_t tag) { return static_cast<std::uint32_t>(tag >> 32) & 0xffff; }
};

class EngineHost {
public:
    EngineHost(const EngineNetwork& network, const EndpointConfig& config, std::uint64_t seed, BodyPool& bodies,
               Time now)
        : endpoint(config, seed, now), network_(&network), bodies_(&bodies), host_(config.rank), now_(now) {}

    Endpoint endpoint;
    std::unique_ptr<CollectiveExecutor> executor;  // made with the first group
    bool serving = false;                          // its events are being looked at

    std::uint32_t host() const { return host_; }
    // The engine's time at the domain's present; never back.
    Time time(const Domain& domain);
    Time now() const { return now_; }
    void advance(Time to) { now_ = std::max(now_, to); }

    // A packet to be handled, or a pull (`none`), as the engine's call to come; what is this host's own is on its way.
    Endpoint::Foresight foresee(Domain& domain, std::uint32_t slot) const;
    // The next packet that the engine lets go, or `none`.
    std::uint32_t pull(Domain& domain);
    // Hands an arrived packet to the engine and frees its slot.
    void handle_packet(Domain& domain, std::uint32_t slot);
    // True if something was due: then the engine has been called.
    bool handle_timer(Domain& domain);
    // Sees to it that the domain calls at the engine's next deadline.
    void arm(Domain& domain);

private:
    // Where packets cost time, a burst as the runtime asks for (up to 256 there): after each call the next peer has its
    // turn, so that of single packets no run would go to one peer.
    static constexpr std::size_t packets_at_once = 64;

    template <std::size_t most>
    std::uint32_t poll(Domain& domain);
    std::uint32_t packet_of(Domain& domain, const dlcp_packet& out);
    Time next_deadline() const;
    std::uint32_t pair_flow(std::uint32_t destination) const;

    const EngineNetwork* network_;
    BodyPool* bodies_;
    std::uint32_t host_;
    Time now_;
    std::uint32_t pulled_ =
        none;  // packets that the engine has let go, chained by `next`; with free hosts there are none
    std::int64_t armed_ps_ = INT64_MAX;  // the earliest timer set; others come too, and are ignored
};

}  // namespace dlcp::sim
