// The module `dlcp._native`: the runtime and the pure functions of the wire format, as thin as they can be. What a
// person sees (defaults, units in seconds, typed errors, NumPy masks) is made in dlcp/transport.
#include "bind/bind.hpp"
#include "bind/collective_values.hpp"

NB_MODULE(_native, m) {
    using namespace dlcp::bind;
    m.doc() = "The protocol engine and its drivers. Use dlcp.transport instead.";
    // Endpoints that are still open when the interpreter ends are closed by dlcp.transport; what they own goes with
    // the process, which is no leak worth a message on the user's terminal.
    nb::set_leak_warnings(false);
    bind_errors(m);
    bind_reduce(m);
    bind_gradient(m);
    bind_codec(m);
    bind_select(m);
    bind_optimizer(m);
    bind_update(m);
    bind_value_runs(m);
    bind_options(m);
    bind_collective_values(m);
    bind_host(m);
    bind_wire(m);
    bind_protection(m);
    bind_aggregation(m);
    bind_softswitch(m);
    bind_tensor(m);
}
