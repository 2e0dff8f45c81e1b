"""The simulator's core. Use dlcp_sim instead."""

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from dlcp import _native

NONE: int

class Clos:
    def __init__(
        self,
        pods: int,
        edges: int,
        hosts: int,
        aggregations: int,
        cores: int,
        host_rate_bps: int,
        edge_rate_bps: int,
        core_rate_bps: int,
        host_delay_ps: int,
        edge_delay_ps: int,
        core_delay_ps: int,
    ) -> None: ...

class Fabric:
    @overload
    def __init__(self, clos: Clos) -> None: ...
    @overload
    def __init__(
        self,
        hosts: int,
        switches: int,
        cables: Sequence[tuple[int, int, int, int]],
        regions: Sequence[int] = ...,
    ) -> None: ...
    hosts: int
    switches: int
    ports: int
    def link(self, port: int) -> tuple[int, int, int, int]: ...
    def port_between(self, source: int, target: int) -> int: ...
    def first_port(self, node: int) -> int: ...
    def reverse(self, port: int) -> int: ...
    def set_rate(self, port: int, rate_bps: int) -> None: ...
    def name(self, node: int) -> str: ...
    def columns(self) -> dict[str, NDArray[Any]]: ...

class Policy:
    def __init__(self) -> None: ...
    def set_thresholds(
        self,
        traffic_class: int,
        level: int,
        *,
        mark_from: int = ...,
        mark_full: int = ...,
        mark_ratio: int = ...,
        trim_above: int = ...,
        drop_above: int = ...,
    ) -> None: ...
    path_choice: str
    port_bytes: int
    shared_bytes: int
    shared_alpha_log2: int
    trimmed_bytes: int
    trimmed_class: int
    trimmed_run_packets: int
    pause_above_bytes: int
    resume_below_bytes: int
    def validate(self) -> str: ...

class TransportSetting:
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> Literal["whole", "number", "flag", "choice"]: ...
    @property
    def default(self) -> float | None: ...
    @property
    def minimum(self) -> float: ...
    @property
    def maximum(self) -> float: ...
    @property
    def choices(self) -> list[str]: ...
    @property
    def sentence(self) -> str: ...

def transport_names() -> list[str]: ...
def host_names() -> list[str]: ...
def engine_settings(parameters: dict[str, float]) -> dict[str, tuple[Any, Any]]: ...
def transport_settings(name: str) -> list[TransportSetting]: ...
def check_transport(name: str, parameters: dict[str, float]) -> None: ...

class Simulation:
    def __init__(
        self,
        fabric: Fabric,
        policy: Policy,
        transport: str,
        parameters: dict[str, float],
        *,
        seed: int = 1,
        threads: int = 1,
        discipline: str = "strict_priority",
        check_invariants: bool = False,
        event_queue: str = "wheel",
        hosts: str = "free",
    ) -> None: ...
    def add_flows(
        self,
        source: NDArray[np.uint32],
        destination: NDArray[np.uint32],
        bytes: NDArray[np.uint64],  # noqa: A002
        start_ps: NDArray[np.int64],
        traffic_class: NDArray[np.uint8],
        loss_ratio: NDArray[np.float64],
        critical_ratio: NDArray[np.float64],
        patience_ps: NDArray[np.int64],
        label: NDArray[np.uint32],
    ) -> int: ...
    def add_tasks(
        self,
        kind: NDArray[np.uint8],
        host: NDArray[np.uint32],
        value: NDArray[np.int64],
        channel: NDArray[np.uint32],
        priority: NDArray[np.int64],
        channel_bytes: NDArray[np.uint64],
        returned_by: NDArray[np.uint32],
    ) -> int: ...
    def add_edges(
        self, before: NDArray[np.uint32], after: NDArray[np.uint32], when: NDArray[np.uint8]
    ) -> None: ...
    def add_channel(self, credit_bytes: int, together: bool = False) -> int: ...
    def add_faults(self, faults: Sequence[tuple[int, int, str, float, float, float]]) -> None: ...
    def sample(self, ports: Sequence[int], interval_ps: int) -> None: ...
    def trace(self, ports: Sequence[int], limit: int) -> None: ...
    def run(self, until_ps: int = -1, wall_s: float = -1.0) -> bool: ...
    now_ps: int
    events: int
    hops: int
    flows_finished: int
    packets_unroutable: int
    packets_dropped_at_hosts: int
    payload_bytes: int
    header_bytes: int
    cpu_s: float
    def base_rtt_ps(self, source: int, destination: int, data_bytes: int, ack_bytes: int) -> int: ...
    def flow_bounds(self) -> NDArray[np.int64]: ...
    def flow_results(self) -> dict[str, NDArray[Any]]: ...
    def port_counters(self) -> dict[str, NDArray[np.uint64]]: ...
    def samples(self) -> dict[str, NDArray[Any]]: ...
    def trace_records(self) -> dict[str, NDArray[Any]]: ...
    def task_times(self) -> dict[str, NDArray[np.int64]]: ...
    def transport_counters(self) -> dict[str, float]: ...

def add_collective(
    simulation: Simulation,
    members: Sequence[int],
    schedules: Sequence[_native.Schedule],
    inputs: Sequence[tuple[int, int]],
    outputs: Sequence[tuple[int, int]],
    *,
    traffic_class: int = 0,
    average_over: int = 0,
    loss: _native.LossRules | None = None,
    critical_ratio: float = 1.0,
    importance: list[list[NDArray[np.uint8] | None]] | None = None,
) -> int: ...
def add_switch_sum(
    simulation: Simulation, members: Sequence[int], *, nbytes: int, slots: int, lanes: int, bits: int
) -> int: ...
def add_collective_group(simulation: Simulation, members: Sequence[int]) -> None: ...
def keep_open(simulation: Simulation) -> None: ...
def start_collective(simulation: Simulation, index: int, at_ps: Sequence[int]) -> None: ...
def collective_ranks_over(simulation: Simulation, index: int) -> int: ...
def collective_results(simulation: Simulation, index: int) -> dict[str, Any]: ...
def collective_result(simulation: Simulation, index: int, rank: int) -> _native.CollectiveResult: ...
def forget_collective(simulation: Simulation, index: int) -> None: ...
def collective_block_bytes(simulation: Simulation) -> int: ...
