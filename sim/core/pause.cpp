// Priority flow control (IEEE 802.1Qbb): a switch that holds too much from one link pauses that class at the other end.
#include <algorithm>

#include "sim/core/domain.hpp"
#include "sim/core/simulation.hpp"

namespace dlcp::sim {
namespace {

constexpr std::uint32_t pause_frame_bytes = 64 + 20;  // with preamble and gap

}  // namespace

// `bytes` more or fewer from `in_port` wait here; signals the other end when that crosses a threshold.
void Domain::hold_upstream(std::uint32_t in_port, std::uint32_t c, std::uint32_t bytes, bool more) {
    Ingress& held = state_.ingress[std::size_t{in_port} * switching::traffic_classes + c];
    held.bytes = more ? held.bytes + bytes : held.bytes - bytes;
    const bool pause = more && !held.paused && held.bytes > state_.policy->pause_above_bytes;
    const bool resume = !more && held.paused && held.bytes <= state_.policy->resume_below_bytes;
    if (!pause && !resume) return;
    held.paused = pause;
    const Fabric& fabric = simulation_.fabric();
    const Port& back = state_.ports[fabric.reverse(in_port)];
    // Frames signalled in one moment are sent one after the other: a departing packet may resume a class and an
    // arriving one pause it again, and the far end must receive both in this order.
    const std::int64_t frame_ps = back.transmit_ps(pause_frame_bytes);
    const std::int64_t at_ps = std::max(now_ps_ + frame_ps + back.delay_ps, held.signalled_ps + frame_ps);
    held.signalled_ps = at_ps;
    const std::uint32_t domain = state_.domain_of_node[fabric.link(in_port).from];
    if (domain == index_)
        schedule(at_ps, pause ? Control::pause : Control::resume, in_port, c);
    else
        out_pauses_[domain].push_back({at_ps, in_port, static_cast<std::uint8_t>(c), pause});
}

void Domain::handle_pause(std::uint32_t port_index, std::uint32_t c, bool pause) {
    Port& port = state_.ports[port_index];
    if (pause) {
        port.paused_classes = static_cast<std::uint8_t>(port.paused_classes | 1u << c);
        ++events_of(port_index, c).pauses;
        return;
    }
    port.paused_classes = static_cast<std::uint8_t>(port.paused_classes & ~(1u << c));
    if (port.service_pending || (port.waiting_classes == 0 && !port.is_host)) return;
    serve_at(port_index, std::max(port.busy_until_ps, now_ps_));
}

}  // namespace dlcp::sim
