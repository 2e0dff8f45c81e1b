"""Cumulus Linux 5.4 and later by NVUE: the same as cumulus.py, as commands.

Without ports everything goes into the default-global profiles; ports are named only where the policy has thresholds of
their own, or where a shaper is asked for. `red` and `ecn` are set for every queue: the default marks queue 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dlcp.switch.policy import TRAFFIC_CLASSES, Policy
from dlcp.switch.render import cumulus
from dlcp.switch.render.check import clamped_alpha
from dlcp.switch.render.queue import Curve, Queue, dscp_of_queues, queues_of

SYSTEM = dataclasses.replace(
    cumulus.SYSTEM,
    name="nvue",
    title="Cumulus Linux 5 (NVUE)",
    suffix="nv",
    needs_ports=False,
    notes=(*cumulus.SYSTEM.notes, "so do thresholds, but for ports with some of their own"),
    install=("sh FILE    # each line is a command; the last one asks before it applies",),
    look=(
        "nv config diff    # before it is applied",
        "nv show qos congestion-control default-global; nv show qos egress-scheduler default-global",
        "nv show interface PORT counters qos    # wred-discards, ecn-marked-packets",
    ),
    sources=(
        "commands and defaults: NVIDIA's Cumulus Linux 5 manual and NVUE reference (5.4 and later);",
        "shared-alpha per traffic class: NVUE reference and public configurations of SN5600;",
        "equal min and max thresholds: not in the manual, not verified; nothing here was tried on hardware",
    ),
)


def body(policy: Policy, ports: Sequence[str], shape: bool) -> list[str]:
    """The commands, down to the one that applies them."""
    owner = dscp_of_queues(policy)
    lines = [
        "nv set qos mapping default-global trust l3",
        f"nv set qos mapping default-global port-default-sp {policy.foreign_class}",
    ]
    for number in range(TRAFFIC_CLASSES):
        values = ",".join(str(d) for d, q in owner.items() if q == number)
        if values:
            lines.append(f"nv set qos mapping default-global dscp {values} switch-priority {number}")
    for number in range(TRAFFIC_CLASSES):
        lines.append(
            f"nv set qos egress-queue-mapping default-global switch-priority {number} traffic-class {number}"
        )
    lines.append("nv set qos egress-scheduler default-global traffic-class 0,1,2,3,4,5,6,7 mode strict")
    base = queues_of(policy, None)
    lines += _congestion("default-global", base)
    for port in ports:
        queues = queues_of(policy, port)
        if queues != base:
            lines += _congestion(f"dlcp-{port}", queues)
            lines.append(f"nv set interface {port} qos congestion-control profile dlcp-{port}")
    if policy.shared_bytes is not None:
        alpha = cumulus.alpha_name(clamped_alpha(policy, SYSTEM))
        start = "nv set qos advance-buffer-config default-global egress-lossy-buffer traffic-class"
        lines += [f"{start} {n} shared-alpha {alpha}" for n in range(TRAFFIC_CLASSES)]
    for entry in policy.ports if shape else ():
        if entry.name in ports:
            lines += _shaper(entry.name, max(1, entry.rate_bps // 1000))
    return [*lines, "nv config apply"]


def _congestion(profile: str, queues: Sequence[Queue]) -> list[str]:
    alike: dict[Curve | None, list[str]] = {}
    for queue in queues:
        alike.setdefault(queue.curve, []).append(str(queue.number))
    lines = []
    for curve, numbers in alike.items():
        start = f"nv set qos congestion-control {profile} traffic-class {','.join(numbers)}"
        if curve is None:
            lines += [f"{start} ecn disable", f"{start} red disable"]
            continue
        lines += [
            f"{start} min-threshold {SYSTEM.threshold(curve.min_bytes)}",
            f"{start} max-threshold {SYSTEM.threshold(curve.max_bytes)}",
            f"{start} probability {curve.percent}",
            f"{start} ecn enable",
            f"{start} red {'enable' if curve.drops else 'disable'}",
        ]
    return lines


def _shaper(port: str, kbps: int) -> list[str]:
    start = f"nv set qos egress-shaper dlcp-{port}"
    lines = [f"{start} traffic-class {n} max-rate {kbps}" for n in range(TRAFFIC_CLASSES)]
    return [
        *lines,
        f"{start} port-max-rate {kbps}",
        f"nv set interface {port} qos egress-shaper profile dlcp-{port}",
    ]
