// Priority flow control (IEEE 802.1Qbb): who holds too much that came by one link has the other end pause that class.
#include <algorithm>

#include "sim/core/domain.hpp"
#include "sim/core/simulation.hpp"

namespace dlcp::sim {
namespace {

constexpr std::uint32_t pause_frame_bytes = 64 + 20;  // with preamble and gap

}  // namespace

// `bytes` more or fewer that came by `in_port` wait here; tells the other end when that crosses a threshold.
void Domain::hold_upstream(std::uint32_t in_port, std::uint32_t c, std::uint32_t bytes, bool more) {
    std::uint32_t& held = ingress_bytes_[std::size_t{in_port} * switching::traffic_classes + c];
    std::uint8_t& paused = ingress_paused_[in_port];
    held = more ? held + bytes : held - bytes;
    const bool is_paused = paused >> c & 1;
    const bool pause = more && !is_paused && held > policy_->pause_above_bytes;
    const bool resume = !more && is_paused && held <= policy_->resume_below_bytes;
    if (!pause && !resume) return;
    paused = static_cast<std::uint8_t>(paused ^ 1u << c);
    const Fabric& fabric = simulation_.fabric();
    const Port& back = ports_[fabric.reverse(in_port)];
    const std::int64_t at_ps = now_ps_ + back.transmit_ps(pause_frame_bytes) + back.delay_ps;
    const std::uint32_t domain = domain_of_node_[fabric.link(in_port).from];
    if (domain == index_)
        schedule(at_ps, pause ? Control::pause : Control::resume, in_port, c);
    else
        out_pauses_[domain].push_back({at_ps, in_port, static_cast<std::uint8_t>(c), pause});
}

void Domain::handle_pause(std::uint32_t port_index, std::uint32_t c, bool pause) {
    Port& port = ports_[port_index];
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
