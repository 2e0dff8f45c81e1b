"""Runs a scenario: builds the native simulation, drives it in slices, and collects what it found.

The native loop runs without Python's lock for a slice at a time, so that Ctrl-C, progress and other threads get their
turn. What is built and collected in Python is arrays, never a loop over flows or ports: nearly all of a run's time is
the native loop's, and every result says how much was not.
"""

from __future__ import annotations

import platform
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dlcp import __version__
from dlcp.errors import ArgumentError
from dlcp.progress import Line
from dlcp.units import PS_PER_S
from dlcp_sim import _core, faults, switches
from dlcp_sim.hosts import beside_shipped
from dlcp_sim.progress import Moment, Progress
from dlcp_sim.result import Result
from dlcp_sim.toml import tables_of

if TYPE_CHECKING:
    from dlcp_sim.scenario_fields import ScenarioFields
    from dlcp_sim.transports.base import Transport
    from dlcp_sim.workloads.load import Load

SLICE_S = 0.15
"""Real time between looks at signals and progress: a person notices no delay, the loop loses nothing."""
STALL_S = 250
"""Simulated; more than twice what any timeout of a transport backs off to (TCP's: 120 s)."""
RECENT = 0.3
"""Weight of the last slice in the shown speed."""


class InvariantError(AssertionError):
    """The simulator contradicts itself: bytes that do not add up, a flow faster than it can be. A fault of ours."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run. `result` is what was found until then, with `partial` set."""

    def __init__(self, result: Result) -> None:
        """`result`: what was found until then."""
        super().__init__("the run was interrupted; what it found until then is in `result`")
        self.result = result


@contextmanager
def _interrupt() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; a second one is raised as ever. Outside the main thread: never set."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.getsignal(signal.SIGINT)

    def handle(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def run(scenario: ScenarioFields, progress: Progress | Literal[True] | None = None) -> Result:
    """Simulates a scenario; `Scenario.run` says how."""
    begin = time.perf_counter()
    line = Line() if progress is True else None
    try:
        load = scenario.workload.build(scenario.fabric, scenario.seed)
    except ArgumentError as error:
        raise ArgumentError(f"workload: {error}") from None
    simulation, fabric = _built(scenario, load)
    built = time.perf_counter()
    with _interrupt() as stop:
        try:
            loop_s, ended = _driven(scenario, simulation, fabric, load, line or progress, stop)  # type: ignore[arg-type]
        finally:
            if line is not None:
                line.clear()
        result = _collected(scenario, simulation, fabric, load, ended=ended)
    wall_s = time.perf_counter() - begin
    hops = int(result.metadata["hops"])
    result.metadata.update(  # type: ignore[attr-defined]
        wall_s=wall_s,
        loop_s=loop_s,
        set_up_s=built - begin,
        outside_ratio=max(0.0, 1 - loop_s / wall_s),
        ns_per_hop=1e9 * result.metadata["cpu_s"] / hops if hops else 0.0,
    )
    if stop.is_set():
        raise Interrupted(result)
    return result


def _built(scenario: ScenarioFields, load: Load) -> tuple[_core.Simulation, _core.Fabric]:
    """The native simulation, and a native fabric for looking things up."""
    transport, fabric = scenario.transport, scenario.fabric.build()
    try:
        simulation = _core.Simulation(
            fabric,
            switches.to_core(scenario.policy),
            transport.name,
            transport.parameters(),
            seed=scenario.seed,
            threads=scenario.threads,
            discipline=transport.discipline,
            check_invariants=scenario.check_invariants,
            hosts=scenario.hosts,
        )
        load.apply(simulation)
        if scenario.faults:
            simulation.add_faults(faults.events(scenario.faults, scenario.fabric, fabric))
        if scenario.sample is not None:
            interval_ps = max(1, round(scenario.sample.interval_s * PS_PER_S))
            simulation.sample(scenario.ports(scenario.sample.ports, fabric), interval_ps)
        if scenario.trace is not None:
            simulation.trace(scenario.ports(scenario.trace.ports, fabric), scenario.trace.limit)
    except ValueError as error:
        raise _as_argument_error(error) from None
    return simulation, fabric


def _driven(
    scenario: ScenarioFields,
    simulation: _core.Simulation,
    fabric: _core.Fabric,
    load: Load,
    progress: Progress | None,
    stop: threading.Event,
) -> tuple[float, str]:
    """Runs until something ends it: seconds in the native loop, and "over", "until", "stalled", or "" for Ctrl-C."""
    until_ps = -1 if scenario.until_s is None else round(scenario.until_s * PS_PER_S)
    watch = _Watch(scenario, load, fabric) if progress is not None else None
    stall = _Stall(scenario, load)
    loop_s = 0.0
    while True:
        before = time.perf_counter()
        try:
            over = simulation.run(stall.look_ps if until_ps < 0 else min(stall.look_ps, until_ps), SLICE_S)
        except ValueError as error:  # what can be seen only now: a task graph that has a cycle
            raise _as_argument_error(error) from None
        except RuntimeError as error:
            raise InvariantError(f"{error} (seed {scenario.seed}, {scenario.threads} threads)") from None
        loop_s += time.perf_counter() - before
        if over:
            return loop_s, "over"
        if until_ps >= 0 and simulation.now_ps >= until_ps:
            return loop_s, "until"
        if stop.is_set():
            return loop_s, ""
        if stall.found(simulation):
            return loop_s, "stalled"
        if progress is not None and watch is not None:
            progress(watch.moment(simulation))


class _Stall:
    """Notices a run that would go on for ever: hosts repeat their packets to a host that is cut off.

    It looks whenever STALL_S of simulated time have passed, never in between, so that the end of a run does not depend
    on the speed of this machine. A run is stalled if between two looks no flow ended and no packet was sent for the
    first time. Looks count from when all flows by the clock have started and the last fault has come.
    """

    def __init__(self, scenario: ScenarioFields, load: Load) -> None:
        times_s = [
            0.0,
            *(time_s for f in scenario.faults for time_s in (f.at_s, f.until_s) if time_s is not None),
        ]
        self._settled_ps = max(round(max(times_s) * PS_PER_S), int(load.flows["start_ps"].max(initial=0)))
        self.look_ps = STALL_S * PS_PER_S
        self._before: tuple[int, int] | None = None

    def found(self, simulation: _core.Simulation) -> bool:
        """Whether the run is stalled."""
        if simulation.now_ps < self.look_ps:
            return False
        before, self._before = self._before, None
        if self.look_ps >= self._settled_ps:
            sent = int(simulation.flow_results()["sent_packets"].sum())
            self._before = (simulation.flows_finished, sent)
        self.look_ps += STALL_S * PS_PER_S
        return before is not None and self._before == before


class _Watch:
    """Makes moments of where a simulation is.

    The share of the run that is over is that of the bytes that have reached hosts, because flows often end all at once.
    Headers and acknowledgements count as well, so the share is some percent too high.
    """

    def __init__(self, scenario: ScenarioFields, load: Load, fabric: _core.Fabric) -> None:
        self._until_s = scenario.until_s
        self._flows = len(load.flows)
        self._bytes = float(load.flows["bytes"].sum())
        self._to_hosts = fabric.columns()["target"] < fabric.hosts
        self._begin = self._last = time.perf_counter()
        self._events = 0
        self._speed = 0.0

    def moment(self, simulation: _core.Simulation) -> Moment:
        """Now."""
        now, events, finished = time.perf_counter(), simulation.events, simulation.flows_finished
        simulated_s = simulation.now_ps / PS_PER_S
        speed = (events - self._events) / max(1e-9, now - self._last)
        self._speed = speed if self._speed == 0 else RECENT * speed + (1 - RECENT) * self._speed
        self._last, self._events = now, events
        arrived = float(simulation.port_counters()["bytes_sent"][self._to_hosts].sum())
        share = min(0.99, arrived / self._bytes) if self._bytes else 0.0
        if self._until_s is not None:
            share = max(share, simulated_s / self._until_s)
        return Moment(
            simulated_s, finished, self._flows, events, now - self._begin, self._speed, min(1.0, share)
        )


def _as_argument_error(error: ValueError) -> ArgumentError:
    return error if isinstance(error, ArgumentError) else ArgumentError(str(error))


# --- what was found -------------------------------------------------------------------------------------------


def _collected(
    scenario: ScenarioFields, simulation: _core.Simulation, fabric: _core.Fabric, load: Load, *, ended: str
) -> Result:
    """The result, less what only the end of the run knows."""
    arrays: dict[str, Any] = {}

    def add(table: str, columns: Mapping[str, Any]) -> None:
        arrays.update({f"{table}.{name}": column for name, column in columns.items()})

    columns = load.flows.columns()
    add("flow", {name: columns[name] for name in ("source", "destination", "bytes", "label")})
    found = simulation.flow_results()
    started_ps = found.pop("started_ps")
    add("flow", found | {"start_ps": started_ps, "bound_ps": simulation.flow_bounds()})
    add("port", simulation.port_counters())
    links = fabric.columns()
    for name, column in (("sender", "source"), ("receiver", "target"), ("rate_bps",) * 2, ("delay_ps",) * 2):
        arrays[f"port.{name}"] = links[column]
    add("collective", _collectives(simulation, len(load.collectives)))
    iteration_s: list[float] = []
    if len(load.tasks):
        times = simulation.task_times()
        add("task", times)
        iteration_s = load.iteration_s(times["finished_ps"])
    if scenario.sample is not None:
        add("sample", simulation.samples())
    if scenario.trace is not None:
        add("trace", simulation.trace_records())
    arrays |= load.arrays()
    tables = tables_of(scenario)
    metadata = {
        "title": _title(scenario, tables),
        "scenario": tables,
        "seed": scenario.seed,
        "threads": scenario.threads,
        "versions": _versions(),
        "partial": not ended,
        "ended_by": ended or "interrupt",
        "simulated_s": simulation.now_ps / PS_PER_S,
        "events": int(simulation.events),
        "hops": int(simulation.hops),
        "cpu_s": float(simulation.cpu_s),
        "payload_bytes": int(simulation.payload_bytes),
        "header_bytes": int(simulation.header_bytes),
        "connections": scenario.transport.connections(load),
        "tuned": _tuned(scenario.transport),
        "beside_shipped": {name: list(both) for name, both in beside_shipped(scenario.transport).items()},
        "notes": list(scenario.transport.notes(load)),
        "transport_counters": simulation.transport_counters(),
        "iteration_s": iteration_s,
        "hosts": fabric.hosts,
        "switches": fabric.switches,
        "node_names": list(scenario.fabric._own_names())
        or [fabric.name(n) for n in range(fabric.hosts + fabric.switches)],
        "packets_unroutable": int(simulation.packets_unroutable),
        "packets_dropped_at_hosts": int(simulation.packets_dropped_at_hosts),
        **load.metadata(),
    }
    return Result(metadata, arrays)


def _collectives(simulation: _core.Simulation, count: int) -> dict[str, Any]:
    """What collectives of the transport's own executor did, a row per collective and rank; empty: there are none."""
    if not count:
        return {}
    found = [_core.collective_results(simulation, number) for number in range(count)]
    columns = {name: [each[name] for each in found] for name in found[0] if name != "error"}
    ranks = [len(column) for column in columns["started_ps"]]
    return {name: np.concatenate(column) for name, column in columns.items()} | {
        "number": np.repeat(np.arange(count), ranks),
        "rank": np.concatenate([np.arange(size) for size in ranks]),
    }


def _title(scenario: ScenarioFields, tables: Mapping[str, Any]) -> str:
    """A scenario in a line."""
    kinds = [tables[part]["kind"] for part in ("workload", "fabric", "transport")]
    name = f"{scenario.name}: " if scenario.name else ""
    hosts = f"{scenario.fabric.hosts} hosts ({kinds[1]})"
    return f"{name}{kinds[0]} on {hosts} over {kinds[2]}, seed {scenario.seed}"


def _tuned(transport: Transport) -> dict[str, Any]:
    """The transport's settings that are not its defaults."""
    settings = {field.name: getattr(transport, field.name) for field in fields(transport)}
    return {
        field.name: settings[field.name]
        for field in fields(transport)
        if settings[field.name] != field.default
    }


def _versions() -> dict[str, str]:
    """What the result was made with."""
    return {"dlcp": __version__, "python": platform.python_version(), "numpy": np.__version__}
