// TCP with NewReno or CUBIC; parameters in dlcp_sim.transports.tcp.
#include <algorithm>
#include <stdexcept>

#include "sim/core/transports/registry.hpp"
#include "sim/core/transports/tcp_transport.hpp"

namespace dlcp::sim {

std::unique_ptr<Transport> make_tcp(Parameters parameters) {
    TcpSettings settings;
    settings.ecn = parameters.take("ecn", 0) != 0;
    TcpWindowSettings& window = settings.sender.window;
    window.congestion = parameters.take("cubic", 1) != 0 ? TcpCongestion::cubic : TcpCongestion::newreno;
    window.cubic_c = parameters.take("cubic_c", window.cubic_c);
    window.cubic_beta = parameters.take("cubic_beta", window.cubic_beta);
    if (!(window.cubic_c > 0)) throw std::invalid_argument("cubic_c: accepted is above 0");
    if (!(window.cubic_beta > 0 && window.cubic_beta < 1)) {
        throw std::invalid_argument("cubic_beta: accepted is between 0 and 1");
    }
    window.fast_convergence = parameters.take("fast_convergence", 1) != 0;
    window.reno_friendly = parameters.take("reno_friendly", 1) != 0;
    window.hystart = parameters.take("hystart", 0) != 0;
    window.hystart_min_ps = parameters.take_integer("hystart_min_ps", window.hystart_min_ps);
    window.hystart_max_ps =
        std::max(parameters.take_integer("hystart_max_ps", window.hystart_max_ps), window.hystart_min_ps);
    settings = TcpSettings::take(parameters, settings);
    parameters.done("tcp");
    return std::make_unique<TcpTransport>(settings);
}

}  // namespace dlcp::sim
