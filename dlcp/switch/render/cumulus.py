"""Cumulus Linux 5 by its files: lines for qos_features.conf, and for qos_infra.conf where the buffer is shared.

A queue's curve is a port group of ecn_red; queues and ports with equal curves share one. `red_enable` is written in
every group: its default, false, marks only and would keep what is to be dropped. The default profile is switched off.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlcp.switch.policy import TRAFFIC_CLASSES, Policy
from dlcp.switch.render.check import clamped_alpha
from dlcp.switch.render.queue import Curve, dscp_of_queues, queues_of
from dlcp.switch.render.system import System

SYSTEM = System(
    name="cumulus",
    title="Cumulus Linux 5 (qos_features.conf)",
    comment="#",
    suffix="conf",
    port_pattern=r"swp\d{1,3}(s\d)?",
    port_example="swp1 or swp1s0",
    needs_ports=True,
    marks_without_drops=True,
    alpha_log2=range(-7, 7),
    shapes=True,
    hashing=(
        "ECMP hashes UDP ports by default (`nv show system forwarding ecmp-hash`), so a source port chooses the next "
        "hop."
    ),
    spraying="Adaptive routing is per packet, but for RoCEv2 alone.",
    pausing="`nv set qos pfc` takes xoff-threshold and xon-threshold.",
    install=(
        "put these lines in place of the same keys in /etc/cumulus/datapath/qos/qos_features.conf",
        "(egress_buffer lines: /etc/mlx/datapath/qos/qos_infra.conf)",
        "cl-consistency-check --datapath-syntax-check",
        "sudo systemctl reload switchd.service    # qos_infra.conf: may lose packets for a moment",
        "not on a switch that NVUE configures: it writes these files itself; render --os nvue",
    ),
    look=("nv show interface PORT counters qos    # wred-discards, ecn-marked-packets", "nv show qos buffer"),
    sources=(
        "keys and defaults: NVIDIA's Cumulus Linux 5 manual, Quality of Service;",
        "several ecn_red port groups on one port, for different queues: not in the manual, not verified;",
        "equal min and max thresholds: not in the manual, not verified; nothing here was tried on hardware",
    ),
    notes=(
        "on averaged depths: the manual does not say over how long",
        "strict priority with ECN on one queue: Juniper advises against it for its own switches, NVIDIA says nothing",
        "a marked packet no longer tells ECT(0) from ECT(1)",
        "packet trimming of newer releases (Spectrum-4) is not rendered",
        "DSCP values and strict priority hold for every port of the switch, also those not named",
    ),
)


def body(policy: Policy, ports: Sequence[str], shape: bool) -> list[str]:
    """The lines, by section of the file."""
    owner = dscp_of_queues(policy)
    lines = ["traffic.packet_priority_source_set = [dscp]"]
    lines.append(f"traffic.port_default_priority = {policy.foreign_class}")
    for number in range(TRAFFIC_CLASSES):
        values = ",".join(str(d) for d, q in owner.items() if q == number)
        lines.append(f"traffic.cos_{number}.priority_source.dscp = [{values}]")
    lines.append("")
    lines += [f"default_egress_sched.egr_queue_{n}.bw_percent = 0" for n in range(TRAFFIC_CLASSES)]
    lines += _curves(policy, ports)
    if shape:
        lines += _shapers(policy, ports)
    if policy.shared_bytes is not None:
        alpha = alpha_name(clamped_alpha(policy, SYSTEM)).upper()
        lines.append("")
        lines += [f"egress_buffer.egr_queue_{n}.uc.dynamic_quota = {alpha}" for n in range(TRAFFIC_CLASSES)]
    return lines


def alpha_name(exponent: int) -> str:
    """2^exponent as NVIDIA writes it."""
    return f"alpha_1_{2**-exponent}" if exponent < 0 else f"alpha_{2**exponent}"


def _curves(policy: Policy, ports: Sequence[str]) -> list[str]:
    # Which ports have which queues with a curve; then the queues that have a curve at the same ports.
    places: dict[tuple[Curve, int], list[str]] = {}
    for port in ports:
        for queue in queues_of(policy, port):
            if queue.curve is not None:
                places.setdefault((queue.curve, queue.number), []).append(port)
    groups: dict[tuple[Curve, tuple[str, ...]], list[int]] = {}
    for (curve, number), at in sorted(places.items(), key=lambda item: item[0][1]):
        groups.setdefault((curve, tuple(at)), []).append(number)
    # The default profile marks queue 0 of every port from 150000 bytes on, whoever is in it.
    lines = ["", "default_ecn_red_conf.ecn_enable = false", "default_ecn_red_conf.red_enable = false"]
    if not groups:
        return lines
    names = [f"dlcp_{index}" for index in range(len(groups))]
    lines += ["", f"ecn_red.port_group_list = [{','.join(names)}]"]
    for name, ((curve, where), numbers) in zip(names, groups.items(), strict=True):
        lines += [
            f"{name}.egress_queue_list = [{','.join(map(str, numbers))}]",
            f"{name}.port_set = {','.join(where)}",
            f"{name}.ecn_enable = true",
            f"{name}.red_enable = {'true' if curve.drops else 'false'}",
            f"{name}.min_threshold_bytes = {SYSTEM.threshold(curve.min_bytes)}",
            f"{name}.max_threshold_bytes = {SYSTEM.threshold(curve.max_bytes)}",
            f"{name}.probability = {curve.percent}",
        ]
    return lines


def _shapers(policy: Policy, ports: Sequence[str]) -> list[str]:
    shaped = [p for p in policy.ports if p.name in ports]
    if not shaped:
        return []
    lines = ["", f"shaping.port_group_list = [{','.join(f'dlcp_{p.name}' for p in shaped)}]"]
    for port in shaped:
        name = f"shaping.dlcp_{port.name}"
        lines.append(f"{name}.port_set = {port.name}")
        # Only queues that the group names are shaped, so all are, with no minimum.
        kbps = max(1, port.rate_bps // 1000)
        lines += [f"{name}.egr_queue_{n}.shaper = [0, {kbps}]" for n in range(TRAFFIC_CLASSES)]
        lines.append(f"{name}.port.shaper = {kbps}")
    return lines
