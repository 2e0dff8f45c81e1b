// DCTCP (RFC 8257): TCP whose window shrinks by the fraction of marks.
#include "sim/core/transports/tcp_transport.hpp"

namespace dlcp::sim {
namespace {

struct Settings : TcpSettings {
    Settings() {
        ecn = true;
        receiver.per_state_echo = true;
        sender.min_rto_ps = 10'000'000'000;
        sender.window.congestion = TcpCongestion::dctcp;
    }
    void list(SettingsTable& table) {
        TcpSettings::list(table);
        table.number("gain", sender.window.dctcp_gain, 1e-4, 1, "g, the weight of the last round trip's marks");
    }
};

const TransportKind dctcp = TransportKind::of<TcpTransport, Settings>("dctcp");

}  // namespace
}  // namespace dlcp::sim
