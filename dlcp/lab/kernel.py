"""Switches made of the kernel: routes, HTB's strict priority, and the policy in a BPF program in front of it.

Obeyed are classes, thresholds, the marking ramp and a buffer per port. A shared buffer is obeyed as if each port had it
to itself, since ports do not know of each other, which `notes` says. Spines are chosen by a flow's addresses and ports,
so by a dlcp path, which is a source port. What else a policy asks is refused by name, but for trimming: such a
threshold drops, which `notes` says.

HTB's classes have next to no rate of their own and all of the port's to borrow, in order of their priority, which makes
it strict (measured: tests/lab/test_switches.py).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlcp.lab import bpf_map
from dlcp.lab.counts import CLASSES, CRITICAL_LEVEL, ClassCount, PortCount
from dlcp.lab.fabric import Link
from dlcp.lab.fault import FabricError
from dlcp.lab.losses import missing
from dlcp.lab.namespaces import batch
from dlcp.lab.plain import PlainSwitches

if TYPE_CHECKING:
    from dlcp.switch import Policy
    from dlcp.switch.policy import Thresholds

_NEVER = 2**32 - 1
_FOREIGN = 0xFF
_LEVELS = CRITICAL_LEVEL + 1
_FIRST_CLASS = 0x10
# Behind the virtual queues the real ones only hold back, with room to spare.
_HOLD_BYTES = 16_000_000
# What leaves besides the frame that tc sees: checksum, preamble and gap (IEEE 802.3, 3.1.1 and 4.4.2).
_OVERHEAD_BYTES = 24
# struct config, count and queues of policy.bpf.c; the last begins with a lock and a gap, a time, and two arrays.
_CONFIG = struct.Struct(f"=QII4B4x64B{CLASSES * _LEVELS * 4}I")
_COUNT = struct.Struct("=4Q")
_QUEUES = struct.Struct(f"=8xQ{2 * CLASSES}Q")
# A virtual queue drains frames by their bytes; the line spends this much more on each, taken at a full frame's size.
_FRAME_BYTES = 14


class KernelSwitches(PlainSwitches):
    """Routers that obey policies, one per switch."""

    def notes(self) -> list[str]:
        trims = any(
            at.trim_above_bytes is not None
            for policy in self._policies.values()
            for traffic_class in policy.classes
            for at in (traffic_class.critical, *traffic_class.droppable)
        )
        shares = any(policy.shared_bytes is not None for policy in self._policies.values())
        return [
            *["trim_above_bytes: the kernel does not trim; what it would trim is dropped"] * trims,
            *["shared_bytes: ports do not know of each other; each has all of the buffer"] * shares,
        ]

    @property
    def _program(self) -> Path:
        return self._directory / "policy.o"

    def start(self) -> None:
        if (reason := missing()) is not None:
            raise FabricError(f"switch is 'kernel': {reason}; accepted: software, none")
        for policy in self._policies.values():
            check(policy)
        bpf_map.compile_program("policy", self._program)
        super().start()

    def set_policies(self, policies: Mapping[str, Policy]) -> None:
        for policy in policies.values():
            check(policy)
        self._policies = dict(policies)
        for switch in self._fabric.switch_names:
            for port, link in self._fabric.ports(switch).items():
                self._configure(switch, port, self._count(switch, port, link).rate_bps)

    def _start(self, switch: str) -> None:
        namespace = self._network.namespace(switch)
        for port in self._fabric.ports(switch):
            bpf_map.attach(namespace, port, "egress", self._program)
            batch("tc", namespace, [f"qdisc add dev {port} root handle 1: htb default {_FIRST_CLASS:x}"])
        super()._start(switch)
        for port in self._fabric.ports(switch):
            queues = (
                f"qdisc add dev {port} parent 1:{_FIRST_CLASS + n:x} handle {_FIRST_CLASS + n:x}: bfifo "
                f"limit {_HOLD_BYTES}"
                for n in range(CLASSES)
            )
            batch("tc", namespace, list(queues))

    def _set_rate(self, switch: str, port: str, rate_bps: int) -> None:
        batch("tc", self._network.namespace(switch), list(self._class_lines(port, rate_bps)))
        self._configure(switch, port, rate_bps)

    def _class_lines(self, port: str, rate_bps: int) -> Iterator[str]:
        frame_bytes = self._fabric.mtu + _FRAME_BYTES
        burst = max(2 * frame_bytes, rate_bps // 8000)
        common = f"overhead {_OVERHEAD_BYTES}"
        yield (
            f"class replace dev {port} parent 1: classid 1:1 htb rate {rate_bps}bit ceil {rate_bps}bit "
            f"burst {burst} cburst {burst} {common}"
        )
        for number in range(CLASSES):
            yield (
                f"class replace dev {port} parent 1:1 classid 1:{_FIRST_CLASS + number:x} htb rate 8kbit "
                f"ceil {rate_bps}bit burst 2k cburst {burst} prio {CLASSES - 1 - number} quantum {frame_bytes} {common}"
            )

    def _configure(self, switch: str, port: str, rate_bps: int) -> None:
        frame_bytes = self._fabric.mtu + _FRAME_BYTES
        rate_bytes = rate_bps * frame_bytes // (8 * (frame_bytes + _OVERHEAD_BYTES))
        with self._map(switch, port, "config") as config:
            config.write(layout(self._policies[switch], port, rate_bytes))

    def _map(self, switch: str, port: str, name: str) -> bpf_map.Map:
        program = bpf_map.attached(self._network.namespace(switch), port, "egress")
        assert program is not None, f"{switch}, {port}: no policy is attached"
        return bpf_map.Map(program, name)

    def _count(self, switch: str, port: str, link: Link) -> PortCount:
        plain = super()._count(switch, port, link)
        with self._map(switch, port, "counts") as counts, self._map(switch, port, "queues") as queues:
            found = [_COUNT.unpack(counts.read(key)) for key in range(CLASSES * (_LEVELS + 1))]
            last_ns, *depths = _QUEUES.unpack(queues.read())
        with self._map(switch, port, "config") as config:
            rate_bytes = _CONFIG.unpack(config.read())[0]
        # The program drains its queues when a packet comes, by the clock that this one is too.
        left = rate_bytes * max(0, time.monotonic_ns() - last_ns) // 10**9
        for number in reversed(range(CLASSES)):
            served = min(depths[number], left)
            depths[number] -= served
            left -= served
        frame_bytes = self._fabric.mtu + _FRAME_BYTES
        rate_bps = round(rate_bytes * 8 * (frame_bytes + _OVERHEAD_BYTES) / frame_bytes)
        classes = []
        for number in range(CLASSES):
            levels = found[number * (_LEVELS + 1) : (number + 1) * (_LEVELS + 1)]
            packets, _, dropped, marked = (sum(column) for column in zip(*levels, strict=True))
            classes.append(
                ClassCount(packets - dropped, dropped, marked, 0, depths[number], depths[CLASSES + number])
            )
        dropped_at = [
            sum(found[n * (_LEVELS + 1) + level][2] for n in range(CLASSES)) for level in range(_LEVELS + 1)
        ]
        return replace(
            plain,
            rate_bps=rate_bps,
            classes=tuple(classes),
            critical_kept=sum(found[n * (_LEVELS + 1) + CRITICAL_LEVEL][0] for n in range(CLASSES))
            - dropped_at[CRITICAL_LEVEL],
            critical_dropped=dropped_at[CRITICAL_LEVEL],
            droppable_dropped=sum(dropped_at[:CRITICAL_LEVEL]),
        )


def check(policy: Policy) -> None:
    """FabricError if the policy asks what the kernel cannot do, beyond what `notes` says."""
    if policy.path_choice not in ("flow_hash", "path_id"):
        raise FabricError(
            f"switch is 'kernel': path_choice is {policy.path_choice!r}; accepted: flow_hash, path_id "
            "(routes hash addresses and ports)"
        )
    if policy.pause_above_bytes is not None:
        raise FabricError(
            f"switch is 'kernel': pause_above_bytes is {policy.pause_above_bytes}; accepted: none: nobody is paused"
        )


def layout(policy: Policy, port: str, rate_bytes: int) -> bytes:
    """The policy at a port as policy.bpf.c reads it."""
    class_of_dscp = [_FOREIGN] * 64
    for dscp, number in policy.class_of_dscp().items():
        class_of_dscp[dscp] = number
    thresholds: list[int] = []
    for number in range(CLASSES):
        for level in range(_LEVELS):
            thresholds += _four(policy.traffic_class(number, port).level(level))
    buffer_bytes = policy.port_bytes if policy.shared_bytes is None else policy.shared_bytes
    return _CONFIG.pack(
        rate_bytes,
        _NEVER if buffer_bytes is None else buffer_bytes,
        1 << 16 | _FIRST_CLASS,
        policy.foreign_class,
        policy.shared_bytes is not None,
        max(policy.shared_alpha_log2, 0),
        max(-policy.shared_alpha_log2, 0),
        *class_of_dscp,
        *thresholds,
    )


def _four(at: Thresholds) -> list[int]:
    fates = [value for value in (at.trim_above_bytes, at.drop_above_bytes) if value is not None]
    mark_full = at.mark_full
    return [
        _NEVER if at.mark_from_bytes is None else at.mark_from_bytes,
        _NEVER if mark_full is None else mark_full,
        min(round(at.mark_ratio * 65536), 65535),
        min(fates, default=_NEVER),
    ]
