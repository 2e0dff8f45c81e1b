// TCP over queues that drop at the tail: NewReno or CUBIC, as Linux runs them.
#include <algorithm>

#include "sim/core/transports/tcp_transport.hpp"

namespace dlcp::sim {
namespace {

struct Settings : TcpSettings {
    void list(SettingsTable& table) {
        TcpSettings::list(table);
        TcpWindowSettings& window = sender.window;
        table.choice("congestion", window.congestion, {"newreno", "cubic"}, "RFC 5681 and 6582, or RFC 9438");
        table.flag("ecn", ecn, "whether marks count as losses, once a round trip (RFC 3168)");
        table.number("cubic_c", window.cubic_c, 1e-6, 1e9, "CUBIC's C, segments per second cubed");
        table.number("cubic_beta", window.cubic_beta, 0.01, 0.99, "what CUBIC keeps at a loss");
        table.flag("fast_convergence", window.fast_convergence, "CUBIC's, for newcomers");
        table.flag("reno_friendly", window.reno_friendly, "whether CUBIC is never slower than Reno");
        table.flag("hystart", window.hystart, "whether slow start ends when delay rises (HyStart++, RFC 9406)");
        table.whole("hystart_min_ps", window.hystart_min_ps, 0, 10e12, "the least rise; longer than most fabrics");
        table.whole("hystart_max_ps", window.hystart_max_ps, 0, 10e12, "the most that is waited for");
        window.hystart_max_ps = std::max(window.hystart_max_ps, window.hystart_min_ps);
    }
};

const TransportKind tcp = TransportKind::of<TcpTransport, Settings>("tcp");

}  // namespace
}  // namespace dlcp::sim
