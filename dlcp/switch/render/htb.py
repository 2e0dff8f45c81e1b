"""Strict priority by HTB, for kernels without sch_prio and sch_red: it neither marks nor drops selectively.

Each class is a leaf with next to no rate of its own, the whole rate as ceiling, and its priority in borrowing; so what
a higher class leaves goes to the next. It wants the port's rate. Only apply.py uses it, and says what it lacks.
"""

from __future__ import annotations

from dlcp.switch.policy import TRAFFIC_CLASSES, Policy, Port
from dlcp.switch.render import tc
from dlcp.switch.render.queue import queues_of

LACKS = "it neither marks nor drops by importance: every queue drops at its end, whoever comes last"
_LEAF = 0x10
_TOKEN_BPS = 8000  # HTB serves a class's own rate first, whatever its priority: as little as can be


def commands(policy: Policy, port: Port) -> list[str]:
    """The commands of tc for one port, without the word tc."""
    name, rate_bps = port.name, tc.rate_of(port)
    burst = max(rate_bps // 8000, 3000)
    minor_of = {number: _LEAF + tc.band_of(number) for number in range(TRAFFIC_CLASSES)}
    lines = [
        f"qdisc add dev {name} root handle {tc.ROOT}: htb default {minor_of[policy.foreign_class]:x}",
        f"class add dev {name} parent {tc.ROOT}: classid {tc.ROOT}:1 htb rate {rate_bps}bit ceil {rate_bps}bit "
        f"burst {burst} cburst {burst} quantum 3000",
    ]
    for queue in reversed(queues_of(policy, name)):
        minor = minor_of[queue.number]
        lines += [
            f"class add dev {name} parent {tc.ROOT}:1 classid {tc.ROOT}:{minor:x} htb rate {_TOKEN_BPS}bit "
            f"ceil {rate_bps}bit burst 2000 cburst {burst} prio {tc.band_of(queue.number)} quantum 3000",
            f"qdisc add dev {name} parent {tc.ROOT}:{minor:x} handle dc3{tc.band_of(queue.number)}: "
            f"bfifo limit {tc.limit_of(policy, queue)}",
        ]
    return lines + tc.filters(policy, name, tc.ROOT, minor_of)
