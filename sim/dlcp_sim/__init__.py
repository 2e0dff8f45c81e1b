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
    from dlcp_sim.fabrics import Dumbbell as Dumbbell
    from dlcp_sim.fabrics import Fabric as Fabric
    from dlcp_sim.fabrics import FatTree as FatTree
    from dlcp_sim.fabrics import Graph as Graph
    from dlcp_sim.fabrics import GraphFile as GraphFile
    from dlcp_sim.fabrics import LeafSpine as LeafSpine
    from dlcp_sim.fabrics import Star as Star
    from dlcp_sim.fabrics import ThreeTier as ThreeTier
    from dlcp_sim.fabrics import TwoSites as TwoSites
    from dlcp_sim.faults import BurstLoss as BurstLoss
    from dlcp_sim.faults import ExtraDelay as ExtraDelay
    from dlcp_sim.faults import Fault as Fault
    from dlcp_sim.faults import Flapping as Flapping
    from dlcp_sim.faults import LinkDown as LinkDown
    from dlcp_sim.faults import RandomLoss as RandomLoss
    from dlcp_sim.faults import SlowLink as SlowLink
    from dlcp_sim.faults import SwitchDown as SwitchDown
    from dlcp_sim.progress import Moment as Moment
    from dlcp_sim.result import Result as Result
    from dlcp_sim.run import Interrupted as Interrupted
    from dlcp_sim.run import InvariantError as InvariantError
    from dlcp_sim.scenario import Sample as Sample
    from dlcp_sim.scenario import Scenario as Scenario
    from dlcp_sim.scenario import Trace as Trace
    from dlcp_sim.store import Store as Store
    from dlcp_sim.sweeps import sweep as sweep
    from dlcp_sim.transports import *  # noqa: F403 - each transport, as its stub lists them
    from dlcp_sim.workloads import AllToAll as AllToAll
    from dlcp_sim.workloads import ChakraTrace as ChakraTrace
    from dlcp_sim.workloads import CollectiveRun as CollectiveRun
    from dlcp_sim.workloads import CrossTraffic as CrossTraffic
    from dlcp_sim.workloads import Flows as Flows
    from dlcp_sim.workloads import Incast as Incast
    from dlcp_sim.workloads import Load as Load
    from dlcp_sim.workloads import Permutation as Permutation
    from dlcp_sim.workloads import Poisson as Poisson
    from dlcp_sim.workloads import SizeDistribution as SizeDistribution
    from dlcp_sim.workloads import Together as Together
    from dlcp_sim.workloads import TrainingJob as TrainingJob
    from dlcp_sim.workloads import TrainingReport as TrainingReport
    from dlcp_sim.workloads import Workload as Workload
    from dlcp_sim.workloads import all_to_all as all_to_all
    from dlcp_sim.workloads import collective as collective
    from dlcp_sim.workloads import cross_traffic as cross_traffic
    from dlcp_sim.workloads import incast as incast
    from dlcp_sim.workloads import permutation as permutation
    from dlcp_sim.workloads import poisson as poisson
    from dlcp_sim.workloads import together as together
    from dlcp_sim.workloads import training_report as training_report

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
