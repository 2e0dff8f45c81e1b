// DCTCP (RFC 8257): TCP whose window shrinks by the fraction of marks; parameters in dlcp_sim.transports.tcp.
#include <stdexcept>

#include "sim/core/transports/registry.hpp"
#include "sim/core/transports/tcp_transport.hpp"

namespace dlcp::sim {

std::unique_ptr<Transport> make_dctcp(Parameters parameters) {
    TcpSettings settings;
    settings.ecn = true;
    settings.receiver.per_state_echo = true;
    settings.sender.min_rto_ps = 10'000'000'000;  // what its authors ran with (Alizadeh et al. 2010, §4)
    TcpWindowSettings& window = settings.sender.window;
    window.congestion = TcpCongestion::dctcp;
    window.dctcp_gain = parameters.take("gain", window.dctcp_gain);
    if (!(window.dctcp_gain > 0 && window.dctcp_gain <= 1)) {
        throw std::invalid_argument("gain: accepted is above 0, up to 1");
    }
    settings = TcpSettings::take(parameters, settings);
    parameters.done("dctcp");
    return std::make_unique<TcpTransport>(settings);
}

}  // namespace dlcp::sim
