"""A switched lab: a fabric's namespaces, cables and switches, from `with` to its end, or standing until taken down.

    with SwitchedLab(Fabric.preset("star")) as lab:
        process = lab.start(0, ["iperf3", "-s"])
        lab.set_fault("h1-l0", Fault(loss_ratio=0.01))
        print(lab.counts()["l0"]["h1"].classes[0].dropped)

Invariant: leaving the context ends what runs in the lab and removes it. If this process is killed, its reaper does so;
if that is killed too, the next lab does. Any process may look at a lab and change it: `SwitchedLab.find(name)`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlcp.lab import namespaces, policies, state
from dlcp.lab.counts import Counts
from dlcp.lab.fabric import Fabric
from dlcp.lab.fault import NO_FAULT, FabricError, Fault
from dlcp.lab.network import Network
from dlcp.lab.next_hops import left_out, lost_next_hops
from dlcp.lab.reaper import Reaper
from dlcp.lab.state import LabState
from dlcp.lab.switches import Switches

if TYPE_CHECKING:
    from dlcp.switch import Policy

# Kinds whose switches route; the others bridge.
ROUTED = ("kernel", "none")


class SwitchedLab:
    """A lab. `policy`: in place of the fabric's own. `name`: for `dlcp lab --name`; None: one of its own.

    sample_s: how often a software switch notes its queues. Raises FabricError for what the fabric, the policy or the
    system does not let be, LabError if a command fails.
    """

    def __init__(
        self,
        fabric: Fabric,
        *,
        policy: Policy | None = None,
        name: str | None = None,
        sample_s: float | None = None,
    ) -> None:
        own_name = name or state.fresh_name()
        self.fabric = fabric
        self._sample_s = sample_s
        self._policy = policy
        pid = os.getpid()
        holder = (pid, namespaces.started_at(pid))
        self._use(LabState(own_name, fabric, namespaces.prefix_of(own_name), holder))

    def _use(self, found: LabState) -> None:
        self._state = found
        self.network = Network(
            found.fabric, found.prefix, routed=found.fabric.switch in ROUTED, around=found.around
        )

    @classmethod
    def find(cls, name: str) -> SwitchedLab:
        """A lab that is up, to look at and change; not for a `with`, which makes one. FabricError: it is not up."""
        found = LabState.load(name)
        if found.is_orphan:
            raise FabricError(
                f"lab {name!r} lost the process that held it; `dlcp lab down --name {name}` clears it away"
            )
        lab = cls.__new__(cls)
        lab.fabric, lab._sample_s, lab._policy = found.fabric, None, None
        if found.policy:
            from dlcp.switch.policy import Policy

            lab._policy = Policy.from_toml(found.policy)
        lab._use(found)
        lab.switches = _switches(lab.network, found.directory, lab._policy)
        return lab

    # ---- from beginning to end ----

    def __enter__(self) -> SwitchedLab:
        if (reason := missing()) is not None:
            raise FabricError(reason)
        state.remove_orphans()
        if self._policy is None and self.fabric.switch != "none":
            self._policy = policies.load(self.fabric)
        self._state.policy = "" if self._policy is None else self._policy.to_toml()
        self.switches = _switches(self.network, self._state.directory, self._policy, self._sample_s)
        self._state.create()
        self._reaper = Reaper(self._state.prefix, self._state.directory)
        try:
            self.network.build()
            self.switches.start()
            for link in self.fabric.each_link():
                if link.fault:
                    self.set_fault(link.name, link.fault)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Takes it down."""
        self.network.end()
        self.take_down()
        self._reaper.dismiss()

    def let_stand(self) -> None:
        """Leaves it standing when this process ends; nobody holds it from now on."""
        self._state.holder = None
        self._state.save()
        self._reaper.dismiss(stand=True)

    def take_down(self) -> None:
        """Takes down a lab that was found."""
        with contextlib.suppress(Exception):
            self.switches.stop()
        self._state.remove()

    # ---- what runs in it ----

    @property
    def name(self) -> str:
        """For `dlcp lab --name`."""
        return self._state.name

    @property
    def holder(self) -> int | None:
        """The process that it ends with; None: it stands."""
        return None if self._state.holder is None else self._state.holder[0]

    @property
    def directory(self) -> Path:
        """For logs and sockets; goes with the lab."""
        return self._state.directory

    @property
    def hosts(self) -> int:
        return self.fabric.hosts

    @property
    def addresses(self) -> list[str]:
        """IPv4, by host."""
        return [self.fabric.address(host) for host in range(self.hosts)]

    def namespace(self, host: int) -> str:
        """The name of that host's network namespace, for `ip -n` and setns(2)."""
        return self.network.namespace(host)

    def command(self, host: int, words: Iterable[object]) -> list[str]:
        """The command line that runs `words` on that host."""
        return self.network.command(host, words)

    def start(self, host: int, words: Iterable[object], **popen: object) -> subprocess.Popen[Any]:
        """A process on that host, with text pipes for output and errors; ended with the lab at the latest."""
        return self.network.start(host, words, **popen)

    # ---- what is wrong with it, and what it does ----

    @property
    def faults(self) -> dict[str, Fault]:
        """By link, those that are not none."""
        return dict(self._state.faults)

    @property
    def around(self) -> list[str]:
        """Cut links that routing knows of."""
        return list(self._state.around)

    @property
    def policy(self) -> Policy | None:
        """What the switches obey; None: nothing."""
        return self._policy

    def set_fault(self, name: str, fault: Fault, *, converge: bool = True) -> None:
        """Makes a link's fault so, in place of what it was. FabricError: no such link, or the switches cannot.

        converge: where it cuts or mends a cable, other leaves go around it from now on, as a routing protocol lets
        them; without, until `converge()` is called, they go on sending by the spine that misses a leaf.
        """
        link = self.fabric.link(name)
        before = self.faults.get(link.name, NO_FAULT)
        self.switches.set_fault(link, fault)
        self._state.faults = {**self._state.faults, link.name: fault}
        if fault == NO_FAULT:
            del self._state.faults[link.name]
        self._state.save()
        if converge and fault.down != before.down:
            self.converge()

    def converge(self) -> None:
        """Lets routing know of all cables that are cut now: leaves use none of them, as far as they can."""
        cut = self._cut
        if cut != set(self._state.around):
            self.switches.go_around(cut)
            self._state.around = sorted(cut)
            self._state.save()

    @property
    def _cut(self) -> set[str]:
        """Links between switches whose cable is out."""
        return {name for name, fault in self.faults.items() if fault.down and not name.startswith("h")}

    def lost_next_hops(self) -> list[tuple[str, str, str]]:
        """(leaf, other leaf, spine) for every next hop that leaves use now though it leads nowhere."""
        routed, sees_own = self.network.routed, self.fabric.switch != "bmv2"  # it does not look at its cables
        around = self._state.around
        return list(lost_next_hops(self.fabric, self._cut, around, routed=routed, sees_own=sees_own))

    @property
    def left_out(self) -> dict[str, tuple[str, ...]]:
        """By leaf, the spines that it could send by and does not, at least to some leaf."""
        found = {}
        for leaf in self.fabric.leaf_names if self.fabric.spines else []:
            avoided = left_out(self.fabric, leaf, self._state.around)
            uncut = (spine for spine in self.fabric.spine_names if f"{leaf}-{spine}" not in self._cut)
            found[leaf] = tuple(spine for spine in uncut if spine in avoided)
        return found

    def set_policy(self, policy: Policy) -> None:
        """Another policy for all switches, live."""
        self.switches.set_policies(policies.fit(policy, self.fabric))
        self._policy, self._state.policy = policy, policy.to_toml()
        self._state.save()

    def counts(self) -> Counts:
        return self.switches.counts()


def missing() -> str | None:
    """Why no lab can be made here, or None. What a kind of switch needs besides, it says itself."""
    return namespaces.missing("the lab", " (`dlcp lab run` makes do with `unshare -Urnm`)")


def _switches(
    network: Network, directory: Path, policy: Policy | None, sample_s: float | None = None
) -> Switches:
    """Those of the fabric's kind. Kinds are loaded when they are asked for."""
    fabric = network.fabric
    if fabric.switch == "none":
        from dlcp.lab.plain import PlainSwitches

        return PlainSwitches(network, directory, {})
    assert policy is not None
    by_switch = policies.fit(policy, fabric)
    if fabric.switch == "kernel":
        from dlcp.lab.kernel import KernelSwitches

        return KernelSwitches(network, directory, by_switch)
    if fabric.switch == "bmv2":
        from dlcp.lab.bmv2 import Bmv2Switches

        return Bmv2Switches(network, directory, by_switch)
    from dlcp.lab.software import SoftwareSwitches

    return SoftwareSwitches(network, directory, by_switch, sample_s)
