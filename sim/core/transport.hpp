// The simulator's interface of a transport: a state machine per host, driven by packets, timers and a free network
// card.
//
// One object serves all hosts. Calls for different hosts may come from different threads at the same time, so state is
// per host, or per end of a flow, and nothing else: the sender's half of a flow is touched in calls for its source host
// only, the receiver's half in calls for its destination. What a call may use of the simulator is `Domain`.
//
// The network card pulls: when it is free and `Domain::wake` has been called since it last found nothing, it asks
// pull_packet for the next packet, so that a transport decides at the last moment what leaves.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>

#include "sim/core/flow.hpp"
#include "sim/core/packet.hpp"
#include "sim/core/transport_settings.hpp"

namespace dlcp::sim {

class Domain;
class Simulation;

class Transport {
public:
    virtual ~Transport() = default;
    // Once, before anything else: flows may be looked at, state allocated. Single-threaded.
    virtual void prepare(Simulation&) {}
    // In the source's domain, at the flow's start.
    virtual void start_flow(Domain&, std::uint32_t flow) = 0;
    // A packet has reached `host`. The callee owns the slot: it frees it, or sends it on.
    virtual void handle_packet(Domain&, std::uint32_t host, std::uint32_t slot) = 0;
    // The next packet to leave `host`, or `none`.
    virtual std::uint32_t pull_packet(Domain&, std::uint32_t host) = 0;
    // True: a transport with more to send after pull_packet calls wake() in it. False: the card asks until it gets
    // `none`.
    bool announces_more() const { return announces_more_; }
    // A timer set with Domain::set_timer. Timers are not cancelled: check whether it still matters, set it anew if not.
    virtual void handle_timer(Domain&, std::uint32_t host, std::uint32_t timer) = 0;
    // A collective that the transport runs itself (only dlcp's executor does): rank `rank` of collective `index` joins.
    virtual void start_collective(Domain&, std::uint32_t /*index*/, std::uint32_t /*rank*/,
                                  std::uint32_t /*task*/) {
        throw std::invalid_argument("this transport runs no collectives by itself; build them of flows");
    }
    // How many bytes of payload a full packet carries, and bytes on the wire beside the payload: for bounds and reports.
    virtual std::uint32_t payload_bytes() const = 0;
    virtual std::uint32_t header_bytes() const = 0;
    // A packet was dropped or lost in the network and its slot will be freed: releases what belongs to it
    // (PacketExtra). Called in the domain where that happened; in no other.
    virtual void packet_gone(Domain&, std::uint32_t) {}
    // The first 64 bytes of a packet's own header, for traces; nullptr: it has none.
    virtual const std::uint8_t* header_of(Domain&, std::uint32_t) const { return nullptr; }
    // A host's near future: a packet arrives, or, with slot `none`, its card pulls.
    struct Visit {
        std::uint32_t host;
        std::uint32_t slot;
    };
    // True: foresee() is called before each of the calls that it names, to bring their memory into the cache: for
    // transports with so much of it per host that it has left the cache in between.
    bool foresees() const { return foresees_; }
    virtual void foresee(Domain&, std::span<const Visit>) const {}
    // True: programs of the transport run in switches, so that handle_at_switch() is called.
    bool acts_in_switches() const { return acts_in_switches_; }
    // A packet has reached a switch, in the switch's domain. True: the callee owns the slot, as in handle_packet. False:
    // the switch forwards it as any other.
    virtual bool handle_at_switch(Domain&, std::uint32_t /*node*/, std::uint32_t /*slot*/) { return false; }
    // What the transport counted, by name. Called between runs.
    virtual std::map<std::string, double> counters() const { return {}; }

protected:
    bool announces_more_ = false;
    bool foresees_ = false;
    bool acts_in_switches_ = false;
};

}  // namespace dlcp::sim
