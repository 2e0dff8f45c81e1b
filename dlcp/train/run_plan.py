"""Carries out a plan: data, network, ranks, one run after another; the result is a record.

Loss is the network's in the lab and the driver's elsewhere, so the same plan runs with and without root.
"""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlcp import __version__
from dlcp.train.data import prepare
from dlcp.train.errors import TrainError
from dlcp.train.exchange import Exchanges, open_exchanges, open_lab
from dlcp.train.plan import LabLinks, Run, TrainingPlan
from dlcp.train.ranks import TrainingRanks
from dlcp.train.record import LOOPBACK, Epoch, Gradients, LinkCounts, Network, Record, RunRecord
from dlcp.train.view import View

if TYPE_CHECKING:
    from dlcp.lab import Lab
    from dlcp.lab.switched_lab import SwitchedLab

# UDP payload of a full Ethernet frame. Loopback would carry six times as much, and one loss would be another thing.
ETHERNET_DATAGRAM_BYTES = 1472


@dataclass(slots=True)
class _Hearing:
    """Collects what the ranks say of one run."""

    current: RunRecord
    view: View
    done: dict[int, dict[str, Any]] = field(default_factory=dict)

    def listen(self, rank: int, report: dict[str, Any]) -> None:
        event = report.pop("event")
        if event == "step":
            self.view.stepped(self.current, report["step"], report["steps"])
        elif event == "epoch":
            self.current.epochs.append(Epoch(**report))
            self.view.epoch_over(self.current)
        elif event == "done":
            self.done[rank] = report

    def finish(self) -> None:
        by_rank = [self.done[rank] for rank in sorted(self.done)]
        for name in ("parameters", "steps", "wall_s", "step_s", "communication_s", "sample", "sums"):
            setattr(self.current, name, by_rank[0][name])
        self.current.cpu_s = [one["cpu_s"] for one in by_rank]
        self.current.digests = [one["digest"] for one in by_rank]
        self.current.network = [Network(**one["network"]) for one in by_rank if one["network"] is not None]
        self.current.sent_bytes = [one["sent_bytes"] for one in by_rank if one["sent_bytes"] is not None]
        self.current.gradients = [
            Gradients(**one["gradients"]) for one in by_rank if one["gradients"] is not None
        ]


def new_record(plan: TrainingPlan) -> Record:
    """The record of a plan before its first run."""
    return Record(
        world_size=plan.world_size,
        host=_describe_host(),
        network=_describe_network(plan),
        started=datetime.now(UTC).astimezone().isoformat(" ", "minutes"),
    )


def run_plan(plan: TrainingPlan, record: Record, view: View) -> None:
    """Does all runs of a plan and adds them to its new record. Blocks to the end.

    Raises RankError: a rank failed; TrainError: the data or the lab's tools are not here. Runs that were over before
    are in the record then.
    """
    start_s = time.monotonic()
    plan.output.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="data-", dir=plan.output) as folder,
        _network(plan, record) as network,
        _ranks(plan, network) as ranks,
    ):
        view.begin(record, plan)
        # While the ranks import torch.
        data = {model: prepare(model, Path(folder)) for model in plan.models}
        for run in plan.runs:
            hearing = _Hearing(RunRecord(run), view)
            record.runs.append(hearing.current)
            options = network.prepare(run)
            view.run_begins(hearing.current)
            ranks.train(
                run,
                data[run.model],
                options=options,
                own_options=network.own_options(run),
                sharers=plan.ranks_per_host if plan.exchanges else 0,
                timeout_s=plan.step_timeout_s,
                listen=hearing.listen,
            )
            hearing.finish()
            hearing.current.links = network.count()
            view.run_over(hearing.current)
            record.wall_s = time.monotonic() - start_s


# --- the network ----------------------------------------------------------------------------------------------


class _Loopback:
    """All ranks on 127.0.0.1; what is lost is lost by dlcp's own driver."""

    host = "127.0.0.1"  # of rank 0
    environment: Mapping[str, str] = {"GLOO_SOCKET_IFNAME": "lo"}
    exchanges: Exchanges | None = None

    def command(self, rank: int, words: list[str]) -> list[str]:
        """The command line that runs `words` where this rank is."""
        return words

    def prepare(self, run: Run) -> dict[str, Any]:
        """What the ranks' dlcp groups are to be opened with."""
        options: dict[str, Any] = {"shm": False}  # a network is what there is to see
        if run.configuration.loss_ratio:
            options["inject_loss_ratio"] = run.configuration.loss_ratio
        if "DLCP_MAX_DATAGRAM_BYTES" not in os.environ:
            options["max_datagram_bytes"] = ETHERNET_DATAGRAM_BYTES
        return options

    def own_options(self, run: Run) -> Sequence[Mapping[str, Any]]:
        """By rank, what its group is opened with besides; empty: all ranks alike."""
        return self.exchanges.options(run.configuration.exchange) if self.exchanges is not None else ()

    def count(self) -> LinkCounts | None:
        """What the links counted since the run began; None: they do not count."""
        return None


class _InLab(_Loopback):
    """Ranks on hosts of a lab, all or the first few, in blocks, as launchers place them."""

    def __init__(self, lab: Lab | SwitchedLab, world_size: int, hosts: int | None = None) -> None:
        from dlcp.lab.namespaces import INTERFACE

        self._hosts = [rank * (hosts or lab.hosts) // world_size for rank in range(world_size)]
        self._command = lab.command
        self.host = lab.addresses[self._hosts[0]]
        self.environment = {"GLOO_SOCKET_IFNAME": INTERFACE, "DLCP_INTERFACE": INTERFACE}

    @property
    def host_of(self) -> Sequence[int]:
        """By rank."""
        return self._hosts

    def command(self, rank: int, words: list[str]) -> list[str]:
        return self._command(self._hosts[rank], words)


class _AtHub(_InLab):
    """What is lost is lost on arrival in the kernel, whatever the backend."""

    def __init__(self, lab: Lab, world_size: int, hosts: int | None = None) -> None:
        super().__init__(lab, world_size, hosts)
        self._lab = lab

    def prepare(self, run: Run) -> dict[str, Any]:
        from dlcp.lab import Loss

        self._lab.set_loss(Loss(run.configuration.loss_ratio))
        return {"shm": False}

    def count(self) -> LinkCounts | None:
        seen = [self._lab.arrivals(host) for host in range(self._lab.hosts)]
        packets = sum(one.packets for one in seen)
        return LinkCounts(packets, sum(one.dropped for one in seen)) if packets else None


class _InFabric(_InLab):
    """A run's loss is of the hosts' links, half of it at either end of a path."""

    def __init__(self, lab: SwitchedLab, world_size: int, hosts: int | None = None) -> None:
        super().__init__(lab, world_size, hosts)
        self._lab = lab
        self._before = (0, 0)

    def prepare(self, run: Run) -> dict[str, Any]:
        kept = (1 - run.configuration.loss_ratio) ** 0.5
        for link in self._lab.fabric.each_link():
            if link.lower.startswith("h"):
                whole = 1 - (1 - link.fault.loss_ratio) * kept
                self._lab.set_fault(link.name, replace(link.fault, loss_ratio=whole))
        self._before = self._counted()
        return {"shm": False}

    def count(self) -> LinkCounts:
        """What arrived at hosts or was lost on the way, by links and switches, since the run began."""
        packets, dropped = (now - before for now, before in zip(self._counted(), self._before, strict=True))
        return LinkCounts(packets, dropped)

    def _counted(self) -> tuple[int, int]:
        counts = self._lab.counts()
        ports = [port for of_switch in counts.values() for port in of_switch.values()]
        dropped = sum(p.faults_lost + p.arrivals_lost + sum(c.dropped for c in p.classes) for p in ports)
        sent = sum(p.sent for of in counts.values() for name, p in of.items() if name.startswith("h"))
        return sent + dropped, dropped


def _ranks(plan: TrainingPlan, network: _Loopback) -> TrainingRanks:
    logs = plan.output / "logs"
    environment, command = network.environment, network.command
    return TrainingRanks(plan.world_size, logs, host=network.host, environment=environment, command=command)


@contextlib.contextmanager
def _network(plan: TrainingPlan, record: Record) -> Iterator[_Loopback]:
    """The plan's network. What a plain TCP stream makes of a lab's links goes into the record: Gloo uses TCP."""
    links, world_size = plan.links, plan.world_size
    if links is None:
        yield _Loopback()
        return
    from dlcp.lab import Lab, LabError
    from dlcp.lab.switched_lab import SwitchedLab
    from dlcp.lab.tcp_fill import measure

    try:
        if isinstance(links, LabLinks) and plan.exchanges:
            with open_lab(plan, links) as opened:
                record.network += f"; {measure(opened)}"
                kind: Any = _AtHub if isinstance(opened, Lab) else _InFabric
                network: _InLab = kind(opened, world_size, plan.hosts)
                with open_exchanges(plan, opened, network.host_of, plan.output / "logs") as exchanges:
                    network.exchanges = exchanges
                    yield network
        elif isinstance(links, LabLinks):
            with Lab(hosts=world_size, rate_bps=links.rate_bps, delay_s=links.delay_s) as lab:
                record.network += f"; {measure(lab)}"
                yield _AtHub(lab, world_size)
        else:
            with SwitchedLab(links) as switched:
                record.network += f"; {measure(switched)}"
                yield _InFabric(switched, world_size)
    except LabError as error:
        raise TrainError(f"the network lab: {error}") from error


def _describe_network(plan: TrainingPlan) -> str:
    if plan.links is not None and not isinstance(plan.links, LabLinks):
        fabric = plan.links
        form = f"{fabric.leaves} leaves, {fabric.spines} spines" if fabric.spines else "one switch"
        rate = f"{fabric.host_rate_bps / 1e6:g} Mbit/s to hosts"
        if fabric.spines:
            rate += f", {fabric.fabric_rate_bps / 1e6:g} between switches"
        return f"{plan.world_size} hosts, {form} ({fabric.switch}), {rate}, MTU {fabric.mtu}; loss on hosts' links"
    if plan.links is not None:
        rate = f"{plan.links.rate_bps / 1e6:g} Mbit/s"
        if plan.exchanges:
            between = "a software switch" if "switch" in plan.exchanges else "a bridge"
            rate = f"{rate} each on {between}"
            hub = f"; the hub's link {plan.world_size * plan.links.rate_bps / 1e6:g} Mbit/s"
            ranks = f"{plan.world_size} ranks on {plan.hosts} hosts (network namespaces), {rate}"
            return ranks + (hub if "hub" in plan.exchanges else "")
        if plan.links.delay_s:
            rate += f" and {plan.links.delay_s * 1e3:g} ms"
        words, where = f"{plan.world_size} network namespaces, {rate} each, MTU 1500", "in the kernel"
    else:
        words, where = f"{LOOPBACK}, datagrams of Ethernet's size, no shared memory", "in the engine"
    if any(run.configuration.loss_ratio for run in plan.runs):
        words += f"; loss injected per packet on arrival, {where}"
    return words


def _describe_host() -> dict[str, str]:
    return {
        "dlcp": __version__,
        "torch": metadata.version("torch"),
        "Python": platform.python_version(),
        "Linux": platform.release(),
        "processor": f"{_processor()}, {len(os.sched_getaffinity(0))} cores",
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
