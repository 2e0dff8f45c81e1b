"""BMv2 in the lab: the shipped P4 program on simple_switch_grpc, one per switch, each in its namespace.

The policy comes onto it by deployment (dlcp.switch.deploy), as onto any P4Runtime switch; only what P4Runtime has no
words for goes another way. It is for trying the program, not for figures: BMv2 forwards some ten thousand packets a
second. A port's rate is in packets, here of full size. It holds for each of the port's queues alone, so that classes do
not compete for a link (simple_switch.py). Losses are refused: BMv2 takes packets off a cable before the kernel could
lose them.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlcp.lab import simple_switch
from dlcp.lab.counts import CLASSES, CRITICAL_LEVEL, ClassCount, Counts, PortCount
from dlcp.lab.fabric import Link
from dlcp.lab.fault import FabricError, Fault
from dlcp.lab.namespaces import NETNS, run
from dlcp.lab.network import Network, each_of, host_places
from dlcp.lab.next_hops import shared_next_hops
from dlcp.lab.simple_switch import Runtime, SimpleSwitch
from dlcp.lab.switches import Switches

if TYPE_CHECKING:
    from dlcp.switch import Policy
    from dlcp.switch.entries import Entry
    from dlcp.switch.programs import Decision
    from dlcp.switch.topology import SwitchTarget

# Of a frame besides the IP packet on its cable: header, checksum, preamble and gap (IEEE 802.3, 3.1.1 and 4.4.2).
_OVERHEAD_BYTES = 14 + 24
_PROGRAM = "v1model"
# A queue that nothing else here has; of no length it loses all.
_CUT = "pfifo"


class Bmv2Switches(Switches):
    """One process per switch."""

    def __init__(self, network: Network, directory: Path, policies: Mapping[str, Policy]) -> None:
        super().__init__(network, directory, policies)
        self._started: list[SimpleSwitch] = []

    # ---- what every kind of switch can do ----

    def start(self) -> None:
        from dlcp.switch.deploy.packages import require

        if (reason := simple_switch.missing()) is not None:
            raise FabricError(f"switch is 'bmv2': {reason}")
        require()
        each_of(self._fabric.switch_names, self._start)
        self.set_policies(self._policies)

    def stop(self) -> None:
        # Together: each may take seconds to end.
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(SimpleSwitch.stop, self._started))
        self._started = []

    def notes(self) -> list[str]:
        from dlcp.switch.entries import desired_entries

        limits = {
            f"{limit.line}: {limit.why}; instead {limit.instead}"
            for switch, policy in self._policies.items()
            for limit in desired_entries(policy, self._target(switch)).limits
            if limit.line != "port.rate_bps"
        }
        rates = "BMv2's rates are in packets, here of full size, and hold for each class alone: classes do not compete"
        return [*sorted(limits), rates]

    def set_policies(self, policies: Mapping[str, Policy]) -> None:
        """As of every kind, on all switches or on none. DeployError: a switch does not take it."""
        from dlcp.switch import programs
        from dlcp.switch.deploy import transaction
        from dlcp.switch.deploy.grpc_session import GrpcSession
        from dlcp.switch.deploy.pipeline import Pipeline
        from dlcp.switch.entries import desired_entries

        pipeline = Pipeline.of(programs.load(_PROGRAM))
        orders = [
            transaction.DesiredState.of(
                target, pipeline, self._around(switch, desired_entries(policy, target).entries)
            )
            for switch, policy in policies.items()
            for target in [self._target(switch)]
        ]
        transaction.deploy(orders, GrpcSession, transaction.Settings())
        self._policies = dict(policies)

    def set_fault(self, link: Link, fault: Fault) -> None:
        if fault.loss_ratio or fault.burst is not None:
            what = "burst" if fault.burst is not None else "loss_ratio"
            raise FabricError(f"switch is 'bmv2': {what} is {fault}; accepted: none; software and kernel can")
        rate_bps = min(link.rate_bps, fault.rate_bps or link.rate_bps)
        for node, peer in link.ends:
            if node.startswith("h"):
                self._network.set_host_rate(node, rate_bps)
            else:
                with self._runtime(node) as runtime:
                    runtime.set_rate(self._packets_per_s(rate_bps), self._ports(node)[peer])
        self._set_cut(link, fault.down)

    def _set_cut(self, link: Link, cut: bool) -> None:
        """Both ends lose all that they send; carriers stay.

        Of an interface that goes down, BMv2's reader stands still for its other interfaces as well (seen with 1.15.5).
        """
        for node, peer in link.ends:
            words = ["tc", "-n", self._network.namespace(node), "qdisc"]
            at = ["dev", self._network.interface(node, peer), "root"]
            if cut:
                run(*words, "replace", *at, _CUT, "limit", 0)
            elif not node.startswith("h"):  # a host's was just shaped anew
                subprocess.run([*words, "del", *at], capture_output=True)

    def go_around(self, links: Collection[str]) -> None:
        """Leaves leave out spines that miss another leaf, or themselves, as long as one reaches all."""
        self._network.go_around(links)
        self.set_policies(self._policies)

    def _around(self, switch: str, entries: Sequence[Entry]) -> list[Entry]:
        """The same, with another spine's port in place of one that is left out; where frames may arrive stays."""
        from dlcp.switch.entries import MulticastGroup, TableEntry

        if not switch.startswith("l") or self._fabric.spines < 2:
            return list(entries)
        chosen = shared_next_hops(self._fabric, switch, self._network.around)
        ports = self._ports(switch)
        left_out = [spine for spine in self._fabric.spine_names if spine not in chosen]
        instead = {ports[s]: ports[chosen[i % len(chosen)]] for i, s in enumerate(left_out)}
        changed: list[Entry] = []
        for entry in entries:
            if isinstance(entry, MulticastGroup):
                entry = replace(entry, ports=tuple(sorted(instead.get(port, port) for port in entry.ports)))
            elif isinstance(entry, TableEntry) and entry.table in ("member", "member_other"):
                entry = replace(
                    entry, params=tuple((n, instead.get(v, v) if n == "port" else v) for n, v in entry.params)
                )
            changed.append(entry)
        return changed

    def counts(self) -> Counts:
        return {switch: self._count(switch) for switch in self._fabric.switch_names}

    # ---- what a switch is ----

    def _ports(self, switch: str) -> dict[str, int]:
        """Numbers of its ports. From 1: P4Runtime on BMv2 takes no copy of a multicast group to port 0."""
        return {peer: number for number, peer in enumerate(self._fabric.ports(switch), 1)}

    def _target(self, switch: str) -> SwitchTarget:
        from dlcp.switch.topology import BridgeEntry, SwitchTarget

        groups = self._fabric.path_groups(switch)
        return SwitchTarget(
            switch,
            simple_switch.address(self._folder(switch)),
            self._ports(switch),
            device_id=1,
            bridge=tuple(
                BridgeEntry(mac, group=place) if place in groups else BridgeEntry(mac, port=place)
                for mac, place in host_places(self._fabric, switch).items()
            ),
        )

    def _packets_per_s(self, rate_bps: int) -> int:
        return max(1, rate_bps // 8 // (self._fabric.mtu + _OVERHEAD_BYTES))

    def _runtime(self, switch: str) -> contextlib.closing[Runtime]:
        """A connection to that switch's Thrift server."""
        return contextlib.closing(Runtime(NETNS / self._network.namespace(switch)))

    def _folder(self, switch: str) -> Path:
        return self._directory / switch

    def _start(self, switch: str) -> None:
        """Starts a switch, and sets the rates of its ports."""
        interfaces = {number: peer for peer, number in self._ports(switch).items()}
        prefix = self._network.command(switch, [])
        folder, name = self._folder(switch), f"switch {switch}"
        process = SimpleSwitch(interfaces, prefix=prefix, folder=folder, name=name)
        self._started.append(process)
        process.start()
        for peer, link in self._fabric.ports(switch).items():
            process.runtime.set_rate(self._packets_per_s(link.rate_bps), self._ports(switch)[peer])
        process.runtime.close()  # whoever changes something connects anew

    # ---- counts ----

    def _count(self, switch: str) -> dict[str, PortCount]:
        ports = self._ports(switch)
        decisions = self._decisions(switch)
        shown = run("ip", "-n", self._network.namespace(switch), "-j", "-s", "link", "show")
        interfaces: dict[str, Any] = {one["ifname"]: one for one in json.loads(shown)}
        counts = {}
        with self._runtime(switch) as runtime:
            for peer, link in self._fabric.ports(switch).items():
                waiting = [
                    runtime.read_register("queue_bytes", ports[peer] * CLASSES + n) for n in range(CLASSES)
                ]
                classes, lost = self._classes(switch, decisions, ports[peer], waiting)
                counts[peer] = PortCount(
                    rate_bps=link.rate_bps,
                    # `operstate` lags by up to a second.
                    up={"UP", "LOWER_UP"} <= set(interfaces[peer]["flags"])
                    and interfaces[peer]["qdisc"] != _CUT,
                    sent=interfaces[peer]["stats64"]["tx"]["packets"],
                    waiting_bytes=sum(waiting),
                    classes=classes,
                    critical_dropped=lost[0],
                    droppable_dropped=lost[1],
                )
        return counts

    def _decisions(self, switch: str) -> dict[tuple[int, int, int, Decision], int]:
        """(port, class, level, what became of it) → packets."""
        from dlcp.switch import programs
        from dlcp.switch.deploy.grpc_session import GrpcSession
        from dlcp.switch.deploy.pipeline import Pipeline
        from dlcp.switch.programs import Decision

        cells = {
            programs.decisions_index(port, number, level, decision): (port, number, level, decision)
            for port in self._ports(switch).values()
            for number in range(programs.CLASSES)
            for level in range(programs.LEVELS)
            for decision in Decision
        }
        schema = Pipeline.of(programs.load(_PROGRAM)).schema
        with contextlib.closing(GrpcSession(self._target(switch))) as session:
            found = session.counters(schema, "decisions", list(cells))
        return {cells[index]: packets for index, (packets, _) in found.items()}

    def _classes(
        self,
        switch: str,
        decisions: Mapping[tuple[int, int, int, Decision], int],
        port: int,
        waiting: list[int],
    ) -> tuple[tuple[ClassCount, ...], tuple[int, int]]:
        """Of one port: its classes, and how many critical and how many droppable packets it dropped."""
        from dlcp.switch.programs import FOREIGN_LEVEL, Decision

        drops = (Decision.DROPPED_THRESHOLD, Decision.DROPPED_BUFFER, Decision.DROPPED_TRIMMED)
        sent, dropped, marked, trimmed = ([0] * CLASSES for _ in range(4))
        critical = droppable = 0
        for (at, number, level, decision), packets in decisions.items():
            if at != port:
                continue
            if decision in drops:
                dropped[number] += packets
                critical += packets * (level == CRITICAL_LEVEL)
                droppable += packets * (level not in (CRITICAL_LEVEL, FOREIGN_LEVEL))
            elif decision is Decision.TRIMMED:
                trimmed[number] += packets
                sent[self._policies[switch].trimmed_class] += packets
            else:
                marked[number] += packets * (decision is Decision.MARKED)
                sent[number] += packets
        classes = tuple(
            ClassCount(sent[n], dropped[n], marked[n], trimmed[n], waiting[n]) for n in range(CLASSES)
        )
        return classes, (critical, droppable)
