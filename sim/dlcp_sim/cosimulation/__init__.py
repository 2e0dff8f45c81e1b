"""Co-simulation: real values through the simulated network, so that loss hits what a switch would drop.

    import dlcp_sim as ds
    from dlcp_sim.cosimulation import SimulatedGroup, time_to_accuracy

    group = SimulatedGroup(ds.Star(4, rate_bps=10e9, delay_s=1e-6))
    group.all_reduce([gradient_of_rank_0, …]).results

`time_to_accuracy` trains a small model that way and says what loss it had reached at what simulated time; it needs
torch and scikit-learn, which are imported when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlcp_sim.cosimulation.configurations import Baseline, Bounded, Configuration, Exact
from dlcp_sim.cosimulation.group import Abandoned, CosimulationError, Reduction, SimulatedGroup

if TYPE_CHECKING:
    from dlcp_sim.cosimulation.training import Curve, table, time_to_accuracy


def __getattr__(name: str) -> Any:
    """What needs torch, when it is asked for."""
    if name not in ("Curve", "table", "time_to_accuracy"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dlcp_sim.cosimulation import training

    return getattr(training, name)


__all__ = [
    "Abandoned",
    "Baseline",
    "Bounded",
    "Configuration",
    "CosimulationError",
    "Curve",
    "Exact",
    "Reduction",
    "SimulatedGroup",
    "table",
    "time_to_accuracy",
]
