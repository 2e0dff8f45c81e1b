// Whose turn it is at a host's network card: control packets first, then flows, a packet each.
#include "sim/core/flow_transport.hpp"

#include "sim/core/domain.hpp"
#include "sim/core/simulation.hpp"

namespace dlcp::sim {

void FlowTransport::prepare(Simulation& simulation) {
    announces_more_ = true;
    flows_ = &simulation.flows();
    outboxes_.resize(simulation.fabric().hosts());
    next_turn_.assign(flows_->size(), not_waiting);
}

void FlowTransport::ready(Domain& domain, std::uint32_t flow) {
    if (next_turn_[flow] != not_waiting) return;
    const std::uint32_t host = (*flows_)[flow].source;
    queue_turn(outboxes_[host], flow);
    domain.wake(host);
}

void FlowTransport::queue_turn(Outbox& box, std::uint32_t flow, bool goes_on) {
    if (goes_on && box.turn_head != none) {
        next_turn_[flow] = box.turn_head;
        box.turn_head = flow;
        return;
    }
    next_turn_[flow] = none;
    if (box.turn_head == none)
        box.turn_head = flow;
    else
        next_turn_[box.turn_tail] = flow;
    box.turn_tail = flow;
}

void FlowTransport::send_control(Domain& domain, std::uint32_t host, std::uint32_t slot) {
    Outbox& box = outboxes_[host];
    domain.packet(slot).next = none;
    if (box.control_head == none)
        box.control_head = slot;
    else
        domain.packet(box.control_tail).next = slot;
    box.control_tail = slot;
    domain.wake(host);
}

std::uint32_t FlowTransport::pull_packet(Domain& domain, std::uint32_t host) {
    Outbox& box = outboxes_[host];
    if (box.control_head != none) {
        const std::uint32_t slot = box.control_head;
        box.control_head = domain.packet(slot).next;
        if (box.control_head != none || box.turn_head != none) domain.wake(host);
        return slot;
    }
    const std::uint32_t paused = domain.paused_classes(host);
    std::uint32_t first_passed_over = none;
    while (box.turn_head != none && box.turn_head != first_passed_over) {
        const std::uint32_t flow = box.turn_head;
        box.turn_head = next_turn_[flow];
        next_turn_[flow] = not_waiting;
        if (paused >> (*flows_)[flow].traffic_class & 1) {
            if (first_passed_over == none) first_passed_over = flow;
            queue_turn(box, flow);
            continue;
        }
        const std::uint32_t slot = next_data(domain, flow);
        if (slot == none) {
            box.turn_bytes = 0;
            continue;
        }
        box.turn_bytes += domain.packet(slot).wire_bytes;
        if (next_turn_[flow] != not_waiting || box.turn_bytes >= turn_bytes_) box.turn_bytes = 0;
        if (next_turn_[flow] == not_waiting) queue_turn(box, flow, box.turn_bytes != 0);
        domain.wake(host);
        return slot;
    }
    return none;
}

std::uint32_t FlowTransport::make_packet(Domain& domain, std::uint32_t flow, bool reverse, std::uint32_t type,
                                         std::uint32_t number, std::uint32_t wire_bytes) {
    const Flow& f = (*flows_)[flow];
    const std::uint32_t slot = domain.take_packet();
    Packet& p = domain.packet(slot);
    p.flow = flow;
    p.destination = (reverse ? f.source : f.destination) & 0xffffff;
    p.reverse = reverse;
    p.type = type & 0xf;
    p.number = number & 0xfffffff;
    p.wire_bytes = static_cast<std::uint16_t>(wire_bytes);
    p.traffic_class = f.traffic_class & 7;
    p.ecn_capable = 1;
    return slot;
}

}  // namespace dlcp::sim
