// What faults do: a link's state changes when its moment has come, and decides what becomes of packets that leave.
#include "sim/core/faults.hpp"

#include "sim/core/domain.hpp"
#include "sim/core/simulation.hpp"

namespace dlcp::sim {

void Domain::handle_fault(std::uint32_t index) {
    const Fault& fault = simulation_.faults_[index];
    if (fault.kind == FaultKind::reroute) {
        table_ = simulation_.route_versions_.table(index);
        return;
    }
    Port& port = state_.ports[fault.port];
    if (port.fault == none) {
        port.fault = static_cast<std::uint32_t>(port_faults_.size());
        port_faults_.emplace_back();
    }
    PortFault& state = port_faults_[port.fault];
    switch (fault.kind) {
        case FaultKind::down: port.down = true; break;
        case FaultKind::up: port.down = false; break;
        case FaultKind::loss: state.loss_ratio = fault.value; break;
        case FaultKind::burst:
            state.burst_enter_ratio = fault.value;
            state.burst_exit_ratio = fault.value2;
            state.burst_loss_ratio = fault.value3;
            state.in_burst = false;
            break;
        case FaultKind::rate: port.ps_per_byte_q16 = Simulation::ps_per_byte_q16(fault.value); break;
        case FaultKind::delay: state.extra_delay_ps = static_cast<std::int64_t>(fault.value); break;
        case FaultKind::reroute: break;
    }
}

// Whether the link loses the packet that leaves now.
bool Domain::lost(Port& port, std::uint32_t port_index) {
    PortFault& state = port_faults_[port.fault];
    if (port.down) return true;
    const auto happens = [&](double ratio) {
        if (ratio <= 0) return false;
        const std::uint64_t word = random(std::uint64_t{0x6c6f7373} << 32 | port_index, ++state.draws);
        return static_cast<double>(word >> 11) * 0x1p-53 < ratio;
    };
    if (state.burst_enter_ratio > 0) {
        state.in_burst = state.in_burst ? !happens(state.burst_exit_ratio) : happens(state.burst_enter_ratio);
        if (state.in_burst && happens(state.burst_loss_ratio)) return true;
    }
    return happens(state.loss_ratio);
}

}  // namespace dlcp::sim
