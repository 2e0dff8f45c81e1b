// The module `dlcp_sim._core`: the simulator's core, as thin as it can be. Columns go in and out as NumPy arrays, times in
// picoseconds. What a person sees is made in dlcp_sim.
#include "sim/bind/bind.hpp"

NB_MODULE(_core, m) {
    using namespace dlcp::sim::bind;
    m.doc() = "The simulator's core. Use dlcp_sim instead.";
    nb::set_leak_warnings(false);
    bind_fabric(m);
    bind_simulation(m);
    bind_cosimulation(m);
}
