// What transports of single flows have in common: at each host, control packets leave first, then flows with something
// to send take turns, a packet each.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/core/simulation.hpp"
#include "sim/core/transport.hpp"

namespace dlcp::sim {

class FlowTransport : public Transport {
public:
    void prepare(Simulation& simulation) override;
    std::uint32_t pull_packet(Domain& domain, std::uint32_t host) final;

protected:
    // The flow's next data packet, filled in, or `none`: then it takes no more turns until `ready` is called again.
    // Called at the source only.
    virtual std::uint32_t next_data(Domain& domain, std::uint32_t flow) = 0;

    // Bytes on the wire after which another flow has its turn; 0: after each packet.
    std::uint32_t turn_bytes_ = 0;

    // The flow has something to send. Idempotent.
    void ready(Domain& domain, std::uint32_t flow);
    // Sends a packet ahead of all data, in the order of the calls.
    void send_control(Domain& domain, std::uint32_t host, std::uint32_t slot);
    // A packet of the flow with type, addresses, sizes and class set; `reverse`: from destination to source. ECN-capable
    // and not trimmable unless the caller says otherwise.
    std::uint32_t make_packet(Domain& domain, std::uint32_t flow, bool reverse, std::uint32_t type,
                              std::uint32_t number, std::uint32_t wire_bytes);

private:
    struct Outbox {
        std::uint32_t control_head = none;
        std::uint32_t control_tail = none;
        std::uint32_t turn_head = none;  // flows, chained by next_turn_
        std::uint32_t turn_tail = none;
        std::uint32_t turn_bytes = 0;  // sent in the present turn
    };
    // `goes_on`: its turn is not over.
    void queue_turn(Outbox& box, std::uint32_t flow, bool goes_on = false);

    std::vector<Outbox> outboxes_;
    std::vector<std::uint32_t> next_turn_;  // per flow; `not_waiting`: not in a turn
    static constexpr std::uint32_t not_waiting = none - 1;
    const std::vector<Flow>* flows_ = nullptr;
};

// What a transport of single flows keeps: its settings, the state of both ends of every flow, and counters.
//
// `Base` is FlowTransport or Transport. `Counters` is a struct of what one host counts, with `names`, an array of pairs of
// a name and a pointer to its member. A transport that makes states when a flow starts has them as std::unique_ptr.
template <class Base, class SettingsOf, class Sender, class Receiver, class Counters>
class FlowStates : public Base {
public:
    using Settings = SettingsOf;

    explicit FlowStates(const Settings& settings) : settings_(settings) {}

    void prepare(Simulation& simulation) override {
        Base::prepare(simulation);
        senders_.resize(simulation.flows().size());
        receivers_.resize(simulation.flows().size());
        counters_.resize(simulation.fabric().hosts());
    }
    std::uint32_t payload_bytes() const final { return settings_.payload_bytes; }
    std::uint32_t header_bytes() const final { return settings_.header_bytes; }
    std::map<std::string, double> counters() const final {
        std::map<std::string, double> sums;
        for (const auto& [name, member] : Counters::names)
            for (const Counters& host : counters_) sums[name] += static_cast<double>(host.*member);
        return sums;
    }

protected:
    // A full data packet on the wire.
    std::uint32_t full_packet_bytes() const { return settings_.payload_bytes + settings_.header_bytes; }

    const Settings settings_;
    std::vector<Sender> senders_;      // per flow; touched in calls for its source only
    std::vector<Receiver> receivers_;  // per flow; touched in calls for its destination only
    std::vector<Counters> counters_;   // per host; touched in calls for it only
};

}  // namespace dlcp::sim
