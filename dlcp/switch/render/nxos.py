"""Cisco NX-OS on Nexus 9000: class maps by DSCP, a policy that sets qos-groups, and one that queues by them.

WRED with the word ecn marks ECN-capable packets and drops others. Priority levels count in reverse: level 1 is
served first. Queue 0 is the system's c-out-8q-q-default and takes what the seven levels leave.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlcp.switch.policy import TRAFFIC_CLASSES, Policy
from dlcp.switch.render.queue import Queue, queues_of
from dlcp.switch.render.system import System

SYSTEM = System(
    name="nxos",
    title="Cisco NX-OS (Nexus 9000)",
    comment="!",
    suffix="nxos",
    port_pattern=r"Ethernet\d{1,3}/\d{1,3}(/\d{1,2})?",
    port_example="Ethernet1/1",
    needs_ports=True,
    hashing="`ip load-sharing address source-destination port source-destination` makes UDP ports count.",
    spraying="Dynamic load balancing of newer releases is not rendered.",
    pausing="`priority-flow-control mode on`, and `pause pfc-cos N` in a network-qos policy.",
    install=("configure terminal", "(paste FILE)", "copy running-config startup-config"),
    look=(
        "show policy-map interface PORT type queuing; show queuing interface PORT    # WRED drops, ECN marks",
        "show policy-map system type queuing    # classes c-out-8q-*: the switch is in the 8-queue model",
        "on ACI the same WRED forwards what is not ECN-capable if forward_non_ecn is set: it must not be",
    ),
    sources=(
        "class maps, qos-group, c-out-8q classes, random-detect with ecn and min = max, weight 0: public "
        "configurations of Nexus 9000 (Azure Local, RoCE); meaning of WRED with ecn: Cisco's QoS guide for Nexus 9000;",
        "thresholds in bytes, seven priority levels, and random-detect in a class with a priority level: not verified;",
        "nothing here was tried on hardware",
    ),
    notes=(
        "whether random-detect is accepted in a class with a priority level was not verified: paste a queue first",
        "weight 0: the depth itself, not an average",
        "strict priority with ECN on one queue: Juniper advises against it for its own switches; Cisco not verified",
        "a marked packet no longer tells ECT(0) from ECT(1)",
    ),
)


def body(policy: Policy, ports: Sequence[str], shape: bool) -> list[str]:
    """The configuration; `shape` changes nothing, and check.py says so."""
    lines = []
    classes = sorted((c for c in policy.classes if c.dscp), key=lambda c: c.number)
    for traffic_class in classes:
        values = ",".join(map(str, sorted(traffic_class.dscp)))
        lines += [f"class-map type qos match-any DLCP-{traffic_class.number}", f"  match dscp {values}", "!"]
    lines.append("policy-map type qos DLCP-IN")
    for traffic_class in classes:
        lines += [f"  class DLCP-{traffic_class.number}", f"    set qos-group {traffic_class.number}"]
    lines += ["  class class-default", f"    set qos-group {policy.foreign_class}"]
    base = queues_of(policy, None)
    policy_of: dict[str, str] = {}
    for port in ports:
        queues = queues_of(policy, port)
        name = "DLCP-OUT" if queues == base else f"DLCP-OUT-{port.replace('/', '-')}"
        if name not in policy_of.values():
            lines += ["!", f"policy-map type queuing {name}", *_queuing(queues)]
        policy_of[port] = name
    if policy.path_groups:
        lines += ["!", "ip load-sharing address source-destination port source-destination"]
    for port in ports:
        lines += ["!", f"interface {port}"]
        if policy.pause_above_bytes is None:
            lines.append("  priority-flow-control mode off")
        lines += [
            "  service-policy type qos input DLCP-IN",
            f"  service-policy type queuing output {policy_of[port]}",
        ]
    return lines


def _queuing(queues: Sequence[Queue]) -> list[str]:
    lines = []
    for queue in reversed(queues):
        if queue.number:
            lines += [
                f"  class type queuing c-out-8q-q{queue.number}",
                f"    priority level {TRAFFIC_CLASSES - queue.number}",
            ]
        else:
            lines += ["  class type queuing c-out-8q-q-default", "    bandwidth remaining percent 100"]
        curve = queue.curve
        if curve is not None:
            lines.append(
                f"    random-detect minimum-threshold {SYSTEM.threshold(curve.min_bytes)} bytes maximum-threshold "
                f"{SYSTEM.threshold(curve.max_bytes)} bytes drop-probability {curve.percent} weight 0 ecn"
            )
    return lines
