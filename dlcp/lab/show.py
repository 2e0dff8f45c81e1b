"""What `dlcp lab status` prints: hosts, links, queues, shares of equal next hops. Pure: values in, text out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dlcp.lab.counts import CLASSES, Counts, PortCount, shares
from dlcp.lab.fault import NO_FAULT, rate_words
from dlcp.lab.switched_lab import SwitchedLab


def lines(lab: SwitchedLab, *, notes: bool = True) -> Iterator[str]:
    """The lab for people. notes: what its switches do differently from the policy as well."""
    fabric, counts = lab.fabric, lab.counts()
    form = f"{fabric.leaves} leaves, {fabric.spines} spines" if fabric.spines else "one switch"
    policy = "" if lab.policy is None else f", policy {lab.policy.name or fabric.policy or 'without a name'}"
    yield f"lab {lab.name}: {fabric.hosts} hosts, {form}, switches: {fabric.switch}{policy}, MTU {fabric.mtu}"
    yield from (f"note: {note}" for note in (lab.switches.notes() if notes else []))
    yield ""
    rows = [["link", "rate", "fault", "sent up", "sent down", "lost by fault"]]
    for link in fabric.each_link():
        down = counts.get(link.upper, {}).get(link.lower)
        up = counts.get(link.lower, {}).get(link.upper)
        lost = sum(port.faults_lost + port.arrivals_lost for port in (up, down) if port is not None)
        rows.append(
            [
                link.name,
                rate_words(link.rate_bps),
                str(lab.faults.get(link.name, NO_FAULT)),
                "" if up is None else str(up.sent),
                "" if down is None else str(down.sent),
                str(lost),
            ]
        )
    yield from _table(rows)
    yield ""
    rows = [["port", "state", "class", "sent", "dropped", "marked", "trimmed", "waiting", "most waiting"]]
    for switch, peer, port in _ports(counts):
        left_out = peer in lab.left_out.get(switch, ())
        state = "down" if not port.up else "left out" if left_out else "up"
        before = len(rows)
        for number in reversed(range(CLASSES)):
            if number < len(port.classes) and (port.classes[number].sent or port.classes[number].dropped):
                one = port.classes[number]
                rows.append(
                    [
                        f"{switch} → {peer}",
                        state,
                        str(number),
                        *(str(n) for n in (one.sent, one.dropped, one.marked, one.trimmed)),
                        f"{one.waiting_bytes} B",
                        f"{one.max_waiting_bytes} B",
                    ]
                )
        other = {reason: n for reason, n in port.other.items() if n}
        if other or (state != "up" and len(rows) == before):
            words = ", ".join(f"{reason} {n}" for reason, n in other.items())
            row = [f"{switch} → {peer}", state, "", "", words, "", "", f"{port.waiting_bytes} B", ""]
            rows.append(row)
    if len(rows) > 1:
        yield from _table(rows)
    if lab.around:
        yield f"left out: no packets are sent there, because of {', '.join(lab.around)}"
    yield from (f"note: {note}" for note in lost_words(lab))
    for switch in fabric.switch_names:
        for group, members in fabric.path_groups(switch).items():
            parts = ", ".join(f"{name} {part:.3f}" for name, part in shares(counts[switch], members).items())
            yield f"{switch}, {group}: {parts}"


def to_json(lab: SwitchedLab) -> dict[str, Any]:
    """The lab for programs."""
    counts = lab.counts()
    return {
        "name": lab.name,
        "fabric": lab.fabric.to_table(),
        "policy": None if lab.policy is None else lab.policy.name,
        "notes": lab.switches.notes(),
        "namespaces": {
            node: lab.network.namespace(node) for node in (*lab.fabric.host_names, *lab.fabric.switch_names)
        },
        "addresses": lab.addresses,
        "links": [
            {
                "name": link.name,
                "rate_bps": link.rate_bps,
                "fault": lab.faults.get(link.name, NO_FAULT).to_table(),
            }
            for link in lab.fabric.each_link()
        ],
        "ports": {
            switch: {name: port.to_json() for name, port in ports.items()} for switch, ports in counts.items()
        },
        "left_out": lab.left_out,
        "lost_next_hops": lab.lost_next_hops(),
        "shares": {
            switch: shares(counts[switch], members)
            for switch in lab.fabric.switch_names
            for members in lab.fabric.path_groups(switch).values()
        },
    }


def lost_words(lab: SwitchedLab) -> list[str]:
    """For people: which leaf still sends by a spine that leads nowhere."""
    return [f"{leaf} still sends to {other} by {spine}: lost" for leaf, other, spine in lab.lost_next_hops()]


def _ports(counts: Counts) -> Iterator[tuple[str, str, PortCount]]:
    for switch, ports in counts.items():
        for name, port in ports.items():
            yield switch, name, port


def _table(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
