"""Arista EOS: one qos profile for ports with the policy's thresholds, and one more for each port with its own.

Only `random-detect ecn` is written. `random-detect drop` drops ECN-capable packets as well, by Arista's own words, and
that would be critical ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlcp.switch.policy import TRAFFIC_CLASSES, Policy
from dlcp.switch.render.queue import Queue, dscp_of_queues, queues_of
from dlcp.switch.render.system import System

SYSTEM = System(
    name="eos",
    title="Arista EOS",
    comment="!",
    suffix="eos",
    port_pattern=r"Ethernet\d{1,2}(/\d{1,2}){0,2}",
    port_example="Ethernet1 or Ethernet1/1",
    needs_ports=True,
    shapes=True,
    threshold_bytes=range(1, 256_000_001),  # arista.avd's schema
    hashing="`show load-balance destination` names the fields; UDP ports are among them by default.",
    spraying="Dynamic load balancing differs by platform and is not rendered.",
    pausing="`priority-flow-control on` with `priority-flow-control priority N no-drop` in the profile.",
    install=("configure session dlcp", "(paste FILE)", "show session-config diffs", "commit"),
    look=(
        "show qos profile; show qos interfaces PORT; show qos interfaces PORT ecn",
        "show interfaces PORT counters queue; `random-detect ecn count` counts marks where the platform can",
        "send packets that are not ECN-capable through a full queue: whether they are dropped above the threshold "
        "differs by platform, and the whole policy rests on it",
    ),
    sources=(
        "qos profile, uc-tx-queue and random-detect ecn: public configurations (Arista 7388, leaf-spine of RoCE) and "
        "arista.avd's schema, with min = max among its tests; `random-detect drop` on ECN-capable packets: an Arista "
        "article; not Arista's manual;",
        "`shape rate` of an interface, and strict priority beside random-detect on all queues: not verified;",
        "nothing here was tried on hardware",
    ),
    notes=(
        "the fate of packets that are not ECN-capable above the threshold depends on the platform: verify it first",
        "platforms of the Jericho family (7280R, 7500R, 7800R) say tx-queue where this says uc-tx-queue",
        "weight 0: the depth itself, not an average",
        "strict priority with ECN on one queue: Juniper advises against it for its own switches; Arista not verified",
        "a marked packet no longer tells ECT(0) from ECT(1)",
    ),
)


def body(policy: Policy, ports: Sequence[str], shape: bool) -> list[str]:
    owner = dscp_of_queues(policy)
    lines = []
    for number in range(TRAFFIC_CLASSES):
        values = " ".join(str(d) for d, q in owner.items() if q == number)
        if values:
            lines.append(f"qos map dscp {values} to traffic-class {number}")
    lines += [f"qos map traffic-class {n} to uc-tx-queue {n}" for n in range(TRAFFIC_CLASSES)]
    base = queues_of(policy, None)
    profile_of: dict[str, str] = {}
    for port in ports:
        queues = queues_of(policy, port)
        name = "DLCP" if queues == base else f"DLCP-{port.replace('/', '-')}"
        if name not in profile_of.values():
            lines += _profile(policy, name, queues)
        profile_of[port] = name
    for port in ports:
        lines += ["!", f"interface {port}", f"   service-profile {profile_of[port]}"]
        described = policy.port(port)
        if shape and described is not None:
            lines.append(f"   shape rate {max(1, described.rate_bps // 1000)} kbps")
    return lines


def _profile(policy: Policy, name: str, queues: Sequence[Queue]) -> list[str]:
    lines = ["!", f"qos profile {name}", "   qos trust dscp"]
    if policy.pause_above_bytes is None:
        lines.append("   no priority-flow-control")
    for queue in reversed(queues):
        lines += ["   !", f"   uc-tx-queue {queue.number}", "      priority strict"]
        curve = queue.curve
        if curve is not None:
            low, high = SYSTEM.threshold(curve.min_bytes), SYSTEM.threshold(curve.max_bytes)
            lines.append(
                f"      random-detect ecn minimum-threshold {low} bytes maximum-threshold {high} bytes "
                f"max-mark-probability {curve.percent} weight 0"
            )
    return lines
