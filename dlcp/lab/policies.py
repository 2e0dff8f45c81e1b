"""The policies of a fabric's switches: the one to begin with for a rate, a FIFO's, and one fitted to each switch.

Pure. `dlcp.switch` is loaded when it is asked for, as the rest of the lab does without.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlcp.lab.fabric import Fabric
from dlcp.lab.fault import FabricError

if TYPE_CHECKING:
    from dlcp.switch import Policy


def usual(rate_bps: int, ports: int = 1, path_choice: str = "adaptive") -> Policy:
    """What `dlcp switch policy` gives for links of this rate; those slower than it knows are taken for 1 Mbit/s."""
    from dlcp.switch.starting_policy import starting_policy

    return starting_policy(max(rate_bps, 10**6), ports=ports, path_choice=path_choice)


def fifo(rate_bps: int) -> Policy:
    """One queue for everything, as deep as a port's share of the usual buffer, and drops where it ends.

    It has no classes, so that all traffic is foreign to it: in a class, dlcp's packets would be trimmed there.
    """
    from dlcp.switch.policy import Policy
    from dlcp.switch.starting_policy import share_bytes

    return Policy("fifo", port_bytes=share_bytes(rate_bps))


def load(fabric: Fabric) -> Policy:
    """The fabric's policy: its file's, or the usual one for its slowest ports. Raises PolicyError."""
    if fabric.policy is not None:
        return read(fabric.policy)
    ports = max(len(fabric.ports(switch)) for switch in fabric.switch_names)
    choice = "path_id" if fabric.switch == "kernel" else "adaptive"  # routes hash
    return usual(min(link.rate_bps for link in fabric.each_link()), ports, choice)


def read(path: Path) -> Policy:
    """A file's policy. Raises PolicyError, also if it cannot be read."""
    from dlcp.switch.policy_file import PolicyFile

    return PolicyFile.load(path).policy


def fit(policy: Policy, fabric: Fabric) -> dict[str, Policy]:
    """The policy of each switch: with its ports, at their links' rates, and its next hops, the spines.

    Of the policy's own ports those called as one here (h0, s1) keep their thresholds; FabricError for any other.
    """
    from dlcp.switch.policy import Port

    known = {port for switch in fabric.switch_names for port in fabric.ports(switch)}
    for own in policy.ports:
        if own.name not in known:
            raise FabricError(
                f"the policy's port {own.name!r} is not in this fabric; accepted: {', '.join(sorted(known))}"
            )
    own_classes = {port.name: port.classes for port in policy.ports}
    return {
        switch: replace(
            policy,
            ports=tuple(
                Port(name, link.rate_bps, own_classes.get(name, ()))
                for name, link in fabric.ports(switch).items()
            ),
            path_groups=fabric.path_groups(switch),
        )
        for switch in fabric.switch_names
    }
