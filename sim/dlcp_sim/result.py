"""What a run found: columns of flows, counters of ports, series, times of tasks, and how the run itself went.

Everything is NumPy arrays in a user's units (seconds, bytes, bits per second); what did not happen is NaN. A result
stands on its own: it keeps the scenario that made it, and `save` and `load` keep every bit of it. Nothing here draws.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlcp.errors import ArgumentError
from dlcp.units import PS_PER_S, aligned, duration, grouped, rate
from dlcp_sim.hosts import host_lines
from dlcp_sim.training_times import report_in

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    Counts = NDArray[np.uint64]
    Array = NDArray[Any]

FORMAT = 1
"""Of a saved result; another number is refused."""


@dataclass(frozen=True)
class Flows:
    """A row per flow, in the order in which the workload made them."""

    source: Array
    destination: Array
    bytes: Array
    label: Array
    """Which of `labels`: the workload's own division, a layer or a job."""
    start_s: Numbers
    """When it started; NaN: it did not."""
    completion_s: Numbers
    """From its start to its last byte at the receiver; NaN: not there by the end of the run."""
    acknowledged_s: Numbers
    """From its start until the sender knew."""
    bound_s: Numbers
    """No transport can be faster: payload at the slowest link of the path, the first packet on the others, delays."""
    delivered_bytes: Array
    abandoned_bytes: Array
    """Within the flow's loss ratio."""
    sent_packets: Array
    retransmitted_packets: Array
    timeouts: Array
    labels: tuple[str, ...] = ()
    """Names of the labels; empty: the workload gave none."""

    def __len__(self) -> int:
        """How many flows."""
        return len(self.source)

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Whether every byte was delivered or abandoned."""
        return np.isfinite(self.completion_s)

    @cached_property
    def slowdown(self) -> Numbers:
        """Completion over its bound: 1 is ideal."""
        return self.completion_s / self.bound_s

    @cached_property
    def goodput_bps(self) -> Numbers:
        """Delivered payload over completion."""
        return 8.0 * self.delivered_bytes / self.completion_s

    def of(self, label: str | int) -> NDArray[np.bool_]:
        """Which flows have a label, by its name or number: `flows.completion_s[flows.of("layer 3")]`."""
        if isinstance(label, str):
            if label not in self.labels:
                raise ArgumentError(
                    f"label {label!r} is unknown; accepted: {', '.join(self.labels) or 'none'}"
                )
            label = self.labels.index(label)
        chosen: NDArray[np.bool_] = self.label == label
        return chosen


@dataclass(frozen=True)
class Ports:
    """A row per port, the sending end of a directed link; counters are [ports, 8], a column per traffic class."""

    sender: Array
    """Nodes: hosts first, then switches."""
    receiver: Array
    rate_bps: Array
    delay_s: Numbers
    node_names: tuple[str, ...]
    packets_sent: Counts
    bytes_sent: Counts
    packets_dropped: Counts
    packets_marked: Counts
    packets_trimmed: Counts
    packets_lost: Counts
    """By faults, on the link."""
    packets_in: Counts
    max_depth_bytes: Counts
    pauses: Counts
    """How often the other end paused this class, where there is priority flow control."""

    def __len__(self) -> int:
        """How many ports."""
        return len(self.sender)

    def name(self, port: int) -> str:
        """Where a port leads, such as "edge 3 → host 12"."""
        return f"{self.node_names[self.sender[port]]} → {self.node_names[self.receiver[port]]}"

    def utilization(self, duration_s: float) -> Numbers:
        """The share of `duration_s` in which each port was sending."""
        sent: Numbers = self.bytes_sent.sum(axis=1) * 8.0 / (self.rate_bps * duration_s)
        return sent


@dataclass(frozen=True)
class Samples:
    """Time series of some ports: what waited, and what had been sent, at every interval."""

    time_s: Numbers
    ports: Array
    depth_bytes: Array
    """[times, ports, 8]"""
    bytes_sent: Array
    """[times, ports, 8], since the beginning."""

    def rate_bps(self) -> Numbers:
        """[times - 1, ports, 8]: what was sent between one time and the next."""
        sent = self.bytes_sent.astype(np.float64)
        step_s: Numbers = (self.time_s[1:] - self.time_s[:-1])[:, None, None]
        return (sent[1:] - sent[:-1]) * 8.0 / step_s


@dataclass(frozen=True)
class Tasks:
    """When each task of the workload could start, started and finished, at its own host; NaN: it did not."""

    ready_s: Numbers
    start_s: Numbers
    finish_s: Numbers


@dataclass(frozen=True)
class Collectives:
    """A row per collective and rank, of collectives that the transport's own executor ran (`executor=True`)."""

    number: Array
    """Which collective, in the order of the workload."""
    rank: Array
    start_s: Numbers
    finish_s: Numbers
    """When the rank's part was over; NaN: it was not."""
    sent_bytes: Array
    received_bytes: Array
    retransmitted_bytes: Array
    retransmitted_packets: Array
    abandoned_bytes: Array
    """Of messages to this rank, within the loss ratio."""


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """What a run found. `flows`, `ports`, `samples`, `trace`, `tasks`, `collectives` are views of its `arrays`."""

    metadata: Mapping[str, Any]
    """Plain data: scenario, seed, versions, wall and CPU seconds, events, hops, whether it is partial."""
    arrays: Mapping[str, Array]
    """Everything else, as it is saved: "flow.source", "port.bytes_sent", …"""

    def __repr__(self) -> str:
        """What it is of, and how far it came."""
        flows = self.flows
        partial = ", partial" if self.partial else ""
        return f"<Result: {self.metadata['title']}, {flows.finished.sum()} of {len(flows)} flows finished{partial}>"

    # ---- what happened ----

    @cached_property
    def flows(self) -> Flows:
        """A row per flow."""
        columns = self._table("flow.")
        start_ps = columns.pop("start_ps")
        return Flows(
            **{name: columns[name] for name in Flows.__dataclass_fields__ if name in columns},
            start_s=_seconds(start_ps),
            completion_s=_seconds(columns["delivered_ps"], start_ps),
            acknowledged_s=_seconds(columns["acknowledged_ps"], start_ps),
            bound_s=columns["bound_ps"] / PS_PER_S,
            labels=tuple(self.metadata["labels"]),
        )

    @cached_property
    def ports(self) -> Ports:
        """A row per port."""
        columns = self._table("port.")
        return Ports(
            delay_s=columns.pop("delay_ps") / PS_PER_S,
            node_names=tuple(self.metadata["node_names"]),
            **columns,
        )

    @cached_property
    def samples(self) -> Samples | None:
        """Time series, if the scenario asked for them."""
        columns = self._table("sample.")
        if not columns:
            return None
        return Samples(time_s=columns.pop("time_ps") / PS_PER_S, **columns)

    @cached_property
    def trace(self) -> dict[str, Array] | None:
        """Records of packets, if the scenario asked for them: columns by name, times in picoseconds."""
        return self._table("trace.") or None

    @cached_property
    def tasks(self) -> Tasks | None:
        """Times of the workload's tasks, if it has any."""
        columns = self._table("task.")
        if not columns:
            return None
        return Tasks(*(_seconds(columns[name]) for name in ("ready_ps", "started_ps", "finished_ps")))

    @cached_property
    def collectives(self) -> Collectives | None:
        """What collectives of the transport's own executor did, if the workload has any."""
        columns = self._table("collective.")
        if not columns:
            return None
        times = {"start_s": columns.pop("started_ps"), "finish_s": columns.pop("finished_ps")}
        return Collectives(**columns, **{name: _seconds(column) for name, column in times.items()})

    @property
    def partial(self) -> bool:
        """Whether the run was stopped before it was over; until_s is not being stopped."""
        return bool(self.metadata["partial"])

    @property
    def seed(self) -> int:
        """The scenario's."""
        return int(self.metadata["seed"])

    @property
    def simulated_s(self) -> float:
        """Simulated time at the end of the run."""
        return float(self.metadata["simulated_s"])

    @property
    def scenario(self) -> Mapping[str, Any]:
        """What was run, as the tables of a scenario's file."""
        scenario: Mapping[str, Any] = self.metadata["scenario"]
        return scenario

    @property
    def name(self) -> str:
        """What to call it beside others: the scenario's name, or its transport."""
        scenario = self.scenario
        return str(scenario.get("name") or scenario.get("transport", {}).get("kind", "run"))

    def _table(self, prefix: str) -> dict[str, Array]:
        return {name.removeprefix(prefix): a for name, a in self.arrays.items() if name.startswith(prefix)}

    # ---- in words ----

    def figures(self) -> dict[str, float]:
        """The figures that sweeps tabulate; NaN where nothing finished."""
        flows = self.flows
        done = flows.finished
        found = {"flows": float(len(flows)), "finished": float(done.sum())}
        for name, values in (("completion", flows.completion_s[done]), ("slowdown", flows.slowdown[done])):
            unit = "_s" if name == "completion" else ""
            found |= {f"{name}_mean{unit}": float(values.mean()) if len(values) else np.nan}
            for word, share in (("p50", 50), ("p99", 99), ("max", 100)):
                found[f"{name}_{word}{unit}"] = float(np.percentile(values, share)) if len(values) else np.nan
        found |= {
            "delivered_bytes": float(flows.delivered_bytes.sum()),
            "abandoned_bytes": float(flows.abandoned_bytes.sum()),
            "retransmitted_packets": float(flows.retransmitted_packets.sum()),
            "timeouts": float(flows.timeouts.sum()),
        }
        if (collectives := self.collectives) is not None:
            found["delivered_bytes"] += float(collectives.received_bytes.sum())
            found["abandoned_bytes"] += float(collectives.abandoned_bytes.sum())
            found["retransmitted_packets"] += float(collectives.retransmitted_packets.sum())
        for counter in ("packets_dropped", "packets_marked", "packets_trimmed", "packets_lost"):
            found[counter] = float(self.arrays[f"port.{counter}"].sum())
        iterations = self.metadata.get("iteration_s") or []
        if iterations:
            found["iteration_mean_s"] = float(np.mean(iterations))
        for name in ("simulated_s", "wall_s", "cpu_s", "events", "hops"):
            found[name] = float(self.metadata[name])
        return found

    def summary(self) -> str:
        """The run in a few lines of text."""
        return "\n".join(self._summary())

    def _summary(self) -> Iterator[str]:
        figures, metadata, flows = self.figures(), self.metadata, self.flows
        yield str(metadata["title"])
        stopped = {
            "interrupt": ", stopped before it was over",
            "stalled": ", then nothing got on any more",
            "over": ", the others never did" if figures["finished"] < len(flows) else "",
        }.get(metadata["ended_by"], "")
        ended, of, things = int(figures["finished"]), len(flows), "flows"
        if not of and self.tasks is not None:  # as of collectives that the transport's executor runs
            ended, of, things = int(np.isfinite(self.tasks.finish_s).sum()), len(self.tasks.finish_s), "tasks"
        yield (
            f"{ended} of {of} {things} finished in {duration(self.simulated_s)} of simulated time{stopped}"
        )
        yield from host_lines(metadata)
        groups: list[tuple[str, NDArray[np.bool_]]] = [("all", flows.finished)]
        present = [label for label in range(len(flows.labels)) if (flows.label == label).any()]
        if 1 < len(present) <= 12:
            groups += [(flows.labels[label], flows.finished & (flows.label == label)) for label in present]
        rows = [["", "flows", "mean", "p50", "p99", "max", "slowdown", "p99", "goodput"]]
        for name, chosen in groups:
            times, slowdown = flows.completion_s[chosen], flows.slowdown[chosen]
            if not len(times):
                continue
            shares = [times.mean(), *np.percentile(times, (50, 99, 100))]
            rows.append(
                [
                    name,
                    str(len(times)),
                    *(duration(value) for value in shares),
                    f"{slowdown.mean():.2f}",
                    f"{np.percentile(slowdown, 99):.2f}",
                    rate(float(flows.goodput_bps[chosen].mean())),
                ]
            )
        if len(rows) > 1:
            yield ""
            yield from aligned(rows)
        if metadata.get("iteration_s"):
            for job in range(len(metadata["jobs"])):
                report = report_in(metadata, self.arrays, job)
                if len(report.iteration_s):
                    yield report.summary()
        yield ""
        yield (
            f"packets: {grouped(figures['packets_dropped'])} dropped, {grouped(figures['packets_trimmed'])} trimmed, "
            f"{grouped(figures['packets_marked'])} marked, {grouped(figures['packets_lost'])} lost to faults, "
            f"{grouped(figures['retransmitted_packets'])} sent again; {grouped(figures['timeouts'])} timeouts"
        )
        if dropped := metadata.get("packets_dropped_at_hosts"):
            yield f"hosts: {grouped(dropped)} packets dropped, for which a processor had no time"
        if figures["abandoned_bytes"]:
            total = figures["abandoned_bytes"] + figures["delivered_bytes"]
            yield f"given up: {100 * figures['abandoned_bytes'] / total:.3f} % of the bytes"
        for note in metadata.get("notes", ()):
            yield f"note: {note}"
        threads = "1 thread" if metadata["threads"] == 1 else f"{metadata['threads']} threads"
        yield (
            f"{duration(metadata['wall_s'])} on {threads}: {grouped(metadata['hops'])} hops, "
            f"{metadata['ns_per_hop']:.0f} ns of CPU per hop, "
            f"{100 * metadata['outside_ratio']:.1f} % of the time outside the native loop"
        )

    # ---- kept ----

    def to_bytes(self) -> bytes:
        """The result as one block: a NumPy archive with the metadata inside."""
        content = io.BytesIO()
        text = json.dumps({"format": FORMAT} | dict(self.metadata)).encode()
        np.savez_compressed(
            content, allow_pickle=False, metadata=np.frombuffer(text, np.uint8), **dict(self.arrays)
        )
        return content.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Result:
        """What `to_bytes` made a block of. Raises ArgumentError if it is anything else."""
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            metadata = json.loads(arrays.pop("metadata").tobytes())
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
            why = str(error) if content[:2] == b"PK" else "not an archive of NumPy's"
            raise ArgumentError(f"not a result of the simulator: {why}") from None
        if not isinstance(metadata, dict) or metadata.pop("format", None) != FORMAT:
            raise ArgumentError(f"a result of another version; accepted: format {FORMAT}")
        return cls(metadata, arrays)

    def save(self, path: Path | str) -> Path:
        """Writes it to a file, `.npz` if the name has no ending, or to `result.npz` in a folder. Returns the path."""
        path = Path(path)
        if path.is_dir():
            path = path / "result.npz"
        elif not path.suffix:
            path = path.with_suffix(".npz")
        path.parent.mkdir(parents=True, exist_ok=True)
        # A file that is there is a whole one: who looks while it is written, or after a crash, finds the old one.
        unfinished = path.with_name(f".{path.name}.part")
        unfinished.write_bytes(self.to_bytes())
        unfinished.replace(path)
        return path

    @classmethod
    def load(cls, path: Path | str) -> Result:
        """A result that was saved; a folder stands for its `result.npz`."""
        path = Path(path)
        if path.is_dir():
            path = path / "result.npz"
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ArgumentError(f"{path}: {error.strerror or error}") from None
        try:
            return cls.from_bytes(content)
        except ArgumentError as error:
            raise ArgumentError(f"{path}: {error}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        """Results travel between processes as they are saved."""
        return (Result.from_bytes, (self.to_bytes(),))


# ---- helpers ----


def _seconds(times_ps: Array, since_ps: Array | int = 0) -> Numbers:
    """Picoseconds as seconds; what is negative did not happen."""
    seconds: Numbers = (np.asarray(times_ps) - since_ps).astype(np.float64) / PS_PER_S
    seconds[times_ps < 0] = np.nan
    return seconds
