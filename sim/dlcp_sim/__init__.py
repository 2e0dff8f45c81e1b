"""The simulator, installed as `dlcp_sim`: networks of thousands of hosts, packet by packet, on one machine.

    import dlcp_sim as ds

    result = ds.Scenario(
        fabric=ds.FatTree(8, rate_bps=100e9, delay_s=1e-6),
        transport=ds.Ndp(),
        workload=ds.permutation(bytes=2_000_000),
    ).run()
    print(result.summary())

docs/simulator.md is the guide. What is here is loaded when it is first used, so that importing the package costs
nothing and needs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlcp_sim import switches as switches
    from dlcp_sim.fabrics import *  # noqa: F403
    from dlcp_sim.faults import *  # noqa: F403
    from dlcp_sim.progress import Moment as Moment
    from dlcp_sim.result import Result as Result
    from dlcp_sim.run import Interrupted as Interrupted
    from dlcp_sim.run import InvariantError as InvariantError
    from dlcp_sim.scenario import Sample as Sample
    from dlcp_sim.scenario import Scenario as Scenario
    from dlcp_sim.scenario import Trace as Trace
    from dlcp_sim.store import Store as Store
    from dlcp_sim.sweeps import sweep as sweep
    from dlcp_sim.transports import *  # noqa: F403  as its stub lists them
    from dlcp_sim.workloads import *  # noqa: F403

# Where each name lives, but for the transports: dlcp_sim.transports finds those itself.
_HOMES = {
    "fabrics": "Dumbbell Fabric FatTree Graph GraphFile LeafSpine Star ThreeTier TwoSites",
    "faults": "BurstLoss ExtraDelay Fault Flapping LinkDown RandomLoss SlowLink SwitchDown",
    "progress": "Moment",
    "result": "Result",
    "run": "Interrupted InvariantError",
    "scenario": "Sample Scenario Trace",
    "store": "Store",
    "sweeps": "sweep",
    "transports": "Transport",
    "workloads": "AllToAll ChakraTrace CollectiveRun CrossTraffic Flows Incast Load Permutation Poisson "
    "SizeDistribution Together TrainingJob TrainingReport Workload all_to_all collective cross_traffic incast "
    "permutation poisson together training_report",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Loads what is asked for."""
    if name in _HOME_OF:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    elif name == "switches":
        value = importlib.import_module(f"{__name__}.switches")
    elif name == "__all__":
        value = [*_HOME_OF, *_transports(), "switches"]
    elif name[:1].isupper() and name in _transports():
        value = _transports()[name]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def _transports() -> dict[str, Any]:
    classes: dict[str, Any] = importlib.import_module(f"{__name__}.transports").CLASSES
    return classes


def __dir__() -> list[str]:
    """All names, loaded or not."""
    return sorted({*globals(), *__getattr__("__all__")})
