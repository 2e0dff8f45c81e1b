"""The fields of a scenario, and their checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from dlcp.errors import ArgumentError
from dlcp.switch.policy import Policy
from dlcp_sim.annotations import check_fields
from dlcp_sim.fabrics.base import Fabric, ports_of
from dlcp_sim.faults import Fault
from dlcp_sim.transports.base import Transport
from dlcp_sim.workloads.load import Workload

if TYPE_CHECKING:
    from dlcp_sim import _core

MAX_THREADS = 1024
MAX_TRACE = 100_000_000
PORT_GROUPS = ("all", "hosts", "switches")

PortChoice = str | Sequence[int | str]
"""Ports to look at: "all", "hosts" or "switches" (those at which they send), or a list of numbers and of links by name
("edge 0 -> host 3", "edge 0 - core 1" both directions, "switch 2" all that it sends at)."""


def refuse(name: str, value: object, accepted: str) -> NoReturn:
    """Raises ArgumentError."""
    raise ArgumentError(f"{name} is {value!r}; accepted: {accepted}")


def _check_number(name: str, value: object, least: float, most: float, words: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        refuse(name, value, words)


def _check_integer(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        refuse(name, value, f"a whole number from {least} to {most}")


def _check_ports(name: str, choice: PortChoice) -> None:
    if isinstance(choice, str):
        if choice not in PORT_GROUPS:
            refuse(name, choice, f"{', '.join(PORT_GROUPS)}, or a list of ports")
    elif not isinstance(choice, Sequence) or not all(
        isinstance(port, int | str) and not isinstance(port, bool) for port in choice
    ):
        refuse(name, choice, f"{', '.join(PORT_GROUPS)}, or a list of numbers and names of links")


@dataclass(frozen=True)
class Sample:
    """Time series of ports, taken at every interval."""

    interval_s: float
    ports: PortChoice = "all"

    def __post_init__(self) -> None:
        """Checks."""
        _check_number("sample.interval_s", self.interval_s, 1e-9, 1e3, "1e-9 to 1e3 seconds")
        _check_ports("sample.ports", self.ports)


@dataclass(frozen=True)
class Trace:
    """Records of single packets at ports, the first `limit` of them (per thread)."""

    ports: PortChoice = "all"
    limit: int = 100_000

    def __post_init__(self) -> None:
        """Checks."""
        _check_ports("trace.ports", self.ports)
        _check_integer("trace.limit", self.limit, 1, MAX_TRACE)


@dataclass(frozen=True, kw_only=True)
class ScenarioFields:
    """What a scenario says. Checked when it is made, as far as it can be without building anything."""

    fabric: Fabric
    transport: Transport
    workload: Workload
    switch: Policy | None = None
    """The switches' policy; None: as the transport's authors would set it."""
    faults: Sequence[Fault] = ()
    hosts: str = "free"
    """What packets cost hosts: "free" nothing, "sockets" what the kernel's UDP or TCP takes, "xdp" a driver's part."""
    seed: int = 1
    threads: int = 1
    until_s: float | None = None
    """Simulated time at which the run ends; None: when nothing is left to happen."""
    sample: Sample | None = None
    trace: Trace | None = None
    check_invariants: bool = True
    """After the run: what went into each port and class has left it, was dropped or waits. Costs next to nothing."""
    name: str = ""
    """What to call it beside others."""

    def __post_init__(self) -> None:
        """Checks everything that can be checked without building."""
        from dlcp_sim import _core

        parts: tuple[tuple[str, Any, str], ...] = (
            ("fabric", Fabric, "a fabric, such as FatTree(8)"),
            ("transport", Transport, "a transport, such as Ndp()"),
            ("workload", Workload, "a workload, such as permutation(bytes=2_000_000)"),
            ("switch", Policy | None, "a policy, such as switches.drop_tail(fabric), or None"),
            ("sample", Sample | None, "Sample(interval_s), or None"),
            ("trace", Trace | None, "Trace(), or None"),
        )
        for name, kind, words in parts:
            if not isinstance(value := getattr(self, name), kind):
                refuse(name, value, words)
        check_fields("fabric", self.fabric)
        check_fields("workload", self.workload)
        if not isinstance(self.faults, Iterable):
            refuse("faults", self.faults, "a list of faults")
        object.__setattr__(self, "faults", tuple(self.faults))
        for fault in self.faults:
            if not isinstance(fault, Fault):
                refuse("faults", fault, "faults, such as RandomLoss('edge 0 -> host 3', ratio=0.01)")
        if self.hosts not in (known := _core.host_names()):
            refuse("hosts", self.hosts, ", ".join(known))
        _check_integer("seed", self.seed, 0, 2**63 - 1)
        _check_integer("threads", self.threads, 1, MAX_THREADS)
        if self.until_s is not None:
            _check_number("until_s", self.until_s, 1e-12, 1e6, "above 0 and up to 1e6 seconds, or None")
        if not isinstance(self.check_invariants, bool):
            refuse("check_invariants", self.check_invariants, "true or false")
        if not isinstance(self.name, str):
            refuse("name", self.name, "text")

    @property
    def policy(self) -> Policy:
        """The switches' policy: `switch`, or the transport's own."""
        return self.transport.policy(self.fabric) if self.switch is None else self.switch

    def ports(self, choice: PortChoice, core: _core.Fabric) -> list[int]:
        """Numbers of the ports that are chosen; ArgumentError names one that is not there."""
        if choice == "all":
            return list(range(core.ports))
        if choice == "hosts":
            return list(range(core.hosts))
        if choice == "switches":
            return list(range(core.hosts, core.ports))
        found: dict[int, None] = {}
        for port in choice:
            if isinstance(port, str):
                found |= dict.fromkeys(ports_of(core, self.fabric, port, both=False))
            elif 0 <= port < core.ports:
                found[port] = None
            else:
                refuse("port", port, f"0 to {core.ports - 1}, or a link such as 'edge 0 -> host 3'")
        return list(found)
