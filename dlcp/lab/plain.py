"""Switches that know nothing: the kernel routes, and every port has one queue, first in first out, at the link's rate.

What a fabric does without any policy; the other kinds are compared with it. Spines are chosen by
a flow's addresses and ports, so by a dlcp path, which is a source port.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dlcp.lab import losses
from dlcp.lab.counts import Counts, PortCount
from dlcp.lab.fabric import Link
from dlcp.lab.fault import FabricError, Fault
from dlcp.lab.losses import Loss
from dlcp.lab.namespaces import run
from dlcp.lab.network import each_of
from dlcp.lab.switches import Switches

if TYPE_CHECKING:
    from dlcp.switch import Policy

# What may wait at a port: so much time of it, as in a switch of a few megabytes at 10 Gbit/s.
QUEUE_S = 0.02


class PlainSwitches(Switches):
    """Routers with one queue per port: what a fabric does without any policy."""

    def start(self) -> None:
        each_of(self._fabric.switch_names, self._start)

    def set_policies(self, policies: Mapping[str, Policy]) -> None:
        raise FabricError("switch is 'none': it obeys no policy; accepted: software, kernel, bmv2")

    def set_fault(self, link: Link, fault: Fault) -> None:
        loses = bool(fault.loss_ratio or fault.burst)
        if loses and (reason := losses.missing()) is not None:
            raise FabricError(f"link {link.name}: no losses here: {reason}")
        for place in self._places(link):
            losses.set_loss(*place, self._directory / "fault.o", Loss(fault.loss_ratio), fault.burst)
        rate_bps = min(link.rate_bps, fault.rate_bps or link.rate_bps)
        for node, peer in link.ends:
            if node.startswith("h"):
                self._network.set_host_rate(node, rate_bps)
            else:
                self._set_rate(node, peer, rate_bps)
        self._network.set_down(link, fault.down)

    def counts(self) -> Counts:
        return {
            switch: {
                port: self._count(switch, port, link) for port, link in self._fabric.ports(switch).items()
            }
            for switch in self._fabric.switch_names
        }

    def _start(self, switch: str) -> None:
        for port, link in self._fabric.ports(switch).items():
            self._set_rate(switch, port, link.rate_bps)

    def _set_rate(self, switch: str, port: str, rate_bps: int) -> None:
        self._network.shape(switch, port, rate_bps, round(rate_bps / 8 * QUEUE_S))

    def _count(self, switch: str, port: str, link: Link) -> PortCount:
        root = self._root(switch, port)
        lower, upper = self._places(link)
        far, near = (lower, upper) if switch == link.upper else (upper, lower)
        return PortCount(
            rate_bps=int(root.get("options", {}).get("rate", 0)) * 8 or link.rate_bps,
            up=self._is_up(switch, port),
            sent=int(root.get("packets", 0)),
            waiting_bytes=int(root.get("backlog", 0)),
            faults_lost=losses.count_arrivals(*far).dropped,
            arrivals_lost=losses.count_arrivals(*near).dropped if port.startswith("h") else 0,
            other={"queue_full": int(root.get("drops", 0))},
        )

    def _places(self, link: Link) -> list[tuple[str, str]]:
        """Namespace and interface of the link's lower and upper end."""
        return [(self._network.namespace(n), self._network.interface(n, peer)) for n, peer in link.ends]

    def _root(self, switch: str, port: str) -> dict[str, Any]:
        """The account that tc gives of the port's root queue."""
        shown = run("tc", "-n", self._network.namespace(switch), "-s", "-j", "qdisc", "show", "dev", port)
        return next((one for one in json.loads(shown) if one.get("root")), {})

    def _is_up(self, switch: str, port: str) -> bool:
        shown = run("ip", "-n", self._network.namespace(switch), "-j", "link", "show", "dev", port)
        # Not `operstate`, which the kernel brings up to date once a second only.
        return {"UP", "LOWER_UP"} <= set(json.loads(shown)[0]["flags"])
