"""dlcp's software switch, one process per switch of the fabric, each in its namespace (dlcp.switch.software).

A switch shapes its own ports, so only hosts are shaped by the kernel. A link's losses are made at one end, where
a switch can lose what leaves by a port and what arrives there; a lower rate is made at both. The process is reached
through a socket in the lab's folder, so that any process may ask and change it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import zlib
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlcp.lab.counts import CRITICAL_LEVEL, ClassCount, Counts, PortCount
from dlcp.lab.fabric import Link
from dlcp.lab.fault import FabricError, Fault
from dlcp.lab.namespaces import launch
from dlcp.lab.network import Network, each_of, host_places
from dlcp.lab.next_hops import left_out
from dlcp.lab.switches import Switches

if TYPE_CHECKING:
    from dlcp.switch import Policy
    from dlcp.switch.software import Control

_DROPS = ("dropped_threshold", "dropped_buffer", "dropped_trimmed", "dropped_memory")


class SoftwareSwitches(Switches):
    """One process per switch. `sample_s`: how often each notes its queues."""

    def __init__(
        self, network: Network, directory: Path, policies: Mapping[str, Policy], sample_s: float | None = None
    ) -> None:
        super().__init__(network, directory, policies)
        self._sample_s = sample_s
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        each_of(self._fabric.switch_names, self._start)

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()

    def set_policies(self, policies: Mapping[str, Policy]) -> None:
        for switch, policy in policies.items():
            with self.control(switch) as control:
                control.set_policy(policy)
        self._policies = dict(policies)

    def set_fault(self, link: Link, fault: Fault) -> None:
        burst = fault.burst
        if burst is not None and (burst.loss_ratio != 1 or fault.loss_ratio):
            what = "burst.loss_ratio" if burst.loss_ratio != 1 else "loss_ratio"
            value = burst.loss_ratio if burst.loss_ratio != 1 else fault.loss_ratio
            accepted = "1" if burst.loss_ratio != 1 else "0, beside bursts"
            raise FabricError(f"switch is 'software': {what} is {value}; accepted: {accepted}; kernel can")
        losses: dict[str, Any] = {"loss_ratio": fault.loss_ratio}
        if burst is not None and burst.enter_ratio:
            losses = {"loss_ratio": burst.mean_ratio, "burst_packets": 1 / burst.leave_ratio}
        slow_bps = 0 if fault.rate_bps is None or fault.rate_bps >= link.rate_bps else fault.rate_bps
        if not fault.down:
            self._network.set_down(link, False)
        # A host's link has one switch, at its upper end; of two switches the lower one loses.
        loser = link.upper if link.lower.startswith("h") else link.lower
        for switch, port in link.ends:
            if switch.startswith("h"):
                self._network.set_host_rate(switch, slow_bps or link.rate_bps)
                continue
            out: dict[str, Any] = {"rate_bps": slow_bps, **(losses if switch == loser else {})}
            with self.control(switch) as control:
                control.set_faults(port, "out", seed=_seed(switch, port), **out)
                # It would see so by itself, but some time after the cable is out.
                control.set_link(port, not fault.down and port not in self._left_out(switch))
                if switch == loser:
                    control.set_faults(port, "in", seed=_seed(port, switch), **losses)
        if fault.down:
            self._network.set_down(link, True)

    def go_around(self, links: Collection[str]) -> None:
        """Leaves leave out spines that miss another leaf, as long as one reaches all: their port there is held down."""
        before = {leaf: self._left_out(leaf) for leaf in self._fabric.leaf_names}
        self._network.go_around(links)
        for leaf, avoided in before.items():
            for spine in avoided ^ self._left_out(leaf):
                # A port whose own cable is cut is held down by its fault.
                with self.control(leaf) as control:
                    control.set_link(spine, spine in avoided and f"{leaf}-{spine}" not in links)

    def _left_out(self, switch: str) -> frozenset[str]:
        return left_out(self._fabric, switch, self._network.around)

    def counts(self) -> Counts:
        found: Counts = {}
        for switch in self._fabric.switch_names:
            with self.control(switch) as control:
                ports = control.status()["ports"]
            found[switch] = {name: _count(ports[name]) for name in self._fabric.ports(switch)}
        for leaf in self._fabric.leaf_names:
            for spine in self._left_out(leaf):
                # It is held down for its group's sake; whether there is a cable, the other end says.
                found[leaf][spine] = replace(found[leaf][spine], up=found[spine][leaf].up)
        for link in self._fabric.each_link():
            if not link.lower.startswith("h"):
                # The lower switch loses in both directions; this one is what the upper one sends.
                lower, upper = found[link.lower][link.upper], found[link.upper][link.lower]
                found[link.upper][link.lower] = replace(
                    upper, faults_lost=upper.faults_lost + lower.arrivals_lost
                )
                found[link.lower][link.upper] = replace(lower, arrivals_lost=0)
        return found

    def control(self, switch: str) -> contextlib.AbstractContextManager[Control]:
        """A connection to that switch."""
        from dlcp.switch.software import connect

        return contextlib.closing(connect(self._socket(switch)))

    # ---- processes ----

    def _socket(self, switch: str) -> Path:
        return self._directory / f"{switch}.sock"

    def _start(self, switch: str) -> None:
        policy = self._directory / f"{switch}.toml"
        self._policies[switch].save(policy)
        words: list[object] = [sys.executable, "-m", "dlcp", "switch", "run", policy]
        words += ["--ports", ",".join(self._fabric.ports(switch)), "--control", self._socket(switch)]
        words += ["--salt", _seed(switch, "salt"), "--seed", _seed(switch, "seed")]
        if self._sample_s is not None:
            words += ["--sample", f"{self._sample_s * 1e6:.0f}us"]
        for mac, place in host_places(self._fabric, switch).items():
            words += ["--address", f"{mac}={place}"]
        command, log = self._network.command(switch, words), self._directory / f"{switch}.log"
        process = launch(f"switch {switch}", command, log, lambda _: b"ready:" in log.read_bytes())
        self._processes[switch] = process


def _count(port: Mapping[str, Any]) -> PortCount:
    """From the switch's own account."""
    names = [each.name for each in fields(ClassCount)]
    classes = tuple(ClassCount(**{name: one[name] for name in names}) for one in port["classes"])
    dropped = [d for d in port["decisions"] if d["fate"] in _DROPS]
    critical = [d for d in port["decisions"] if d["level"] == CRITICAL_LEVEL]
    drops = dict(port["drops"])
    return PortCount(
        rate_bps=port["rate_bps"],
        up=bool(port["link"]),
        sent=port["sent_packets"],
        waiting_bytes=port["waiting_bytes"],
        classes=classes,
        critical_kept=sum(d["packets"] for d in critical if d["fate"] not in _DROPS),
        critical_dropped=sum(d["packets"] for d in critical if d["fate"] in _DROPS),
        droppable_dropped=sum(d["packets"] for d in dropped if d["level"] < CRITICAL_LEVEL),
        faults_lost=drops.pop("fault_out", 0),
        arrivals_lost=drops.pop("fault_in", 0),
        other=drops,
    )


def _seed(*words: str) -> int:
    """The same in every lab, and another for each switch and direction."""
    return zlib.crc32("-".join(words).encode()) & 0x7FFF_FFFF
