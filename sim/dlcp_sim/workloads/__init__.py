"""What hosts do in a scenario: plain flows, collectives, training jobs, traces.

    from dlcp_sim import workloads

    workloads.permutation(bytes=2_000_000)
    workloads.collective(algorithm="ring", bytes=100_000_000)
    workloads.TrainingJob(model="resnet50", workers=8, scheduler="p3", topology="hub")

Each is a frozen dataclass that builds a `Load`; `WORKLOADS` has them by the names of a scenario's file.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
from dlcp_sim.workloads.training import TrainingJob, TrainingReport, training_report

permutation = Permutation
incast = Incast
all_to_all = AllToAll
poisson = Poisson
cross_traffic = CrossTraffic
collective = CollectiveRun

WORKLOADS: Mapping[str, type[Workload]] = MappingProxyType(
    {
        one.kind: one
        for one in (
            Permutation,
            Incast,
            AllToAll,
            Poisson,
            CrossTraffic,
            Flows,
            CollectiveRun,
            TrainingJob,
            ChakraTrace,
            Together,
        )
    }
)
"""Workloads by kind."""

__all__ = [
    "WORKLOADS",
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
