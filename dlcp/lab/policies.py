"""The policies of a fabric's switches: dlcp's usual thresholds for a rate, a FIFO's, and one fitted to each switch.

Pure. `dlcp.switch` is loaded when it is asked for, as the rest of the lab does without.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlcp.lab.fabric import Fabric
from dlcp.lab.fault import FabricError

if TYPE_CHECKING:
    from dlcp.switch import Policy

CONTROL_CLASS = 7
# Class selectors (RFC 2474, 4.2.2), as dlcp's endpoints use them: class n has DSCP 8n.
DSCP_STEP = 8
# Of a port's rate, what its buffer holds; deep enough for an incast of a few hosts, and a queue that can be seen.
BUFFER_S = 0.02
BUFFER_BYTES_MIN = 128_000


def buffer_bytes(rate_bps: int) -> int:
    """What may wait at a port of this rate."""
    return max(BUFFER_BYTES_MIN, round(rate_bps / 8 * BUFFER_S))


def usual(rate_bps: int) -> Policy:
    """What dlcp expects of a switch with ports of this rate.

    Critical packets are marked from an eighth of the buffer on and dropped only at its end; droppable ones leave from a
    sixteenth to a quarter, the least important first. Control has a class of its own and is served first.
    """
    from dlcp.switch.policy import DROPPABLE_LEVELS, Policy, Thresholds, TrafficClass

    buffer = buffer_bytes(rate_bps)
    critical = Thresholds(mark_from_bytes=buffer // 8)
    first, last = buffer // 16, buffer // 4
    droppable = tuple(
        Thresholds(drop_above_bytes=first + (last - first) * level // (DROPPABLE_LEVELS - 1))
        for level in range(DROPPABLE_LEVELS)
    )
    data = (
        TrafficClass(n, dscp=(DSCP_STEP * n,), critical=critical, droppable=droppable)
        for n in range(CONTROL_CLASS)
    )
    control = TrafficClass(CONTROL_CLASS, "control", (DSCP_STEP * CONTROL_CLASS,))
    return Policy("usual", (*data, control), port_bytes=buffer)


def fifo(rate_bps: int) -> Policy:
    """One queue for everything, as deep as the usual buffer, and drops where it ends.

    It has no classes, so that all traffic is foreign to it: in a class, dlcp's packets would be trimmed there.
    """
    from dlcp.switch.policy import Policy

    return Policy("fifo", port_bytes=buffer_bytes(rate_bps))


def load(fabric: Fabric) -> Policy:
    """The fabric's policy: its file's, or the usual one for its slowest ports. Raises PolicyError."""
    from dlcp.switch.policy import Policy

    if fabric.policy is None:
        return usual(min(link.rate_bps for link in fabric.each_link()))
    try:
        return Policy.load(fabric.policy)
    except OSError as error:
        raise FabricError(f"policy {fabric.policy}: {error.strerror}") from None


def fit(policy: Policy, fabric: Fabric) -> dict[str, Policy]:
    """The policy of each switch: with its ports, at their links' rates, and its ways to the spines.

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
