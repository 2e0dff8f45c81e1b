"""What hosts do in a scenario: plain flows, collectives, training jobs, traces.

    from dlcp_sim import workloads

    workloads.permutation(bytes=2_000_000)
    workloads.collective(algorithm="ring", bytes=100_000_000)
    workloads.TrainingJob(model="resnet50", workers=8, scheduler="p3", topology="hub")

Each is a frozen dataclass that builds a `Load`; its `kind` is its name in a scenario's file.
"""

from __future__ import annotations

from dlcp_sim.training_times import TrainingReport
from dlcp_sim.workloads.chakra import ChakraTrace
from dlcp_sim.workloads.collectives import CollectiveRun
from dlcp_sim.workloads.flows import (
    AllToAll,
    CrossTraffic,
    Flows,
    Incast,
    Permutation,
    Poisson,
    SizeDistribution,
    Together,
    together,
)
from dlcp_sim.workloads.load import Load, Workload
from dlcp_sim.workloads.training import TrainingJob, training_report

permutation = Permutation
incast = Incast
all_to_all = AllToAll
poisson = Poisson
cross_traffic = CrossTraffic
collective = CollectiveRun

__all__ = [
    "AllToAll",
    "ChakraTrace",
    "CollectiveRun",
    "CrossTraffic",
    "Flows",
    "Incast",
    "Load",
    "Permutation",
    "Poisson",
    "SizeDistribution",
    "Together",
    "TrainingJob",
    "TrainingReport",
    "Workload",
    "all_to_all",
    "collective",
    "cross_traffic",
    "incast",
    "permutation",
    "poisson",
    "together",
    "training_report",
]
