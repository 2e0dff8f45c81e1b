"""What `dlcp lab status` prints: hosts, links, queues, ways. Text from values; nothing is asked of a switch here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dlcp.lab.bed import Bed
from dlcp.lab.counts import CLASSES, Counts, PortCount, shares
from dlcp.lab.fault import NO_FAULT, rate_words


def lines(bed: Bed, *, notes: bool = True) -> Iterator[str]:
    """The lab for people. notes: what its switches do differently from the policy as well."""
    fabric, counts = bed.fabric, bed.counts()
    form = f"{fabric.leaves} leaves, {fabric.spines} spines" if fabric.spines else "one switch"
    policy = "" if bed.policy is None else f", policy {bed.policy.name or fabric.policy or 'without a name'}"
    yield f"lab {bed.name}: {fabric.hosts} hosts, {form}, switches: {fabric.switch}{policy}, MTU {fabric.mtu}"
    yield from (f"note: {note}" for note in (bed.switches.notes() if notes else []))
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
                str(bed.faults.get(link.name, NO_FAULT)),
                "" if up is None else str(up.sent),
                "" if down is None else str(down.sent),
                str(lost),
            ]
        )
    yield from _table(rows)
    yield ""
    rows = [["port", "state", "class", "sent", "dropped", "marked", "trimmed", "waiting", "most waiting"]]
    for switch, peer, port in _ports(counts):
        left_out = peer in bed.left_out.get(switch, ())
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
    if bed.around:
        yield f"left out: no packets are sent there, because of {', '.join(bed.around)}"
    yield from (f"note: {note}" for note in lost_words(bed))
    for switch in fabric.switch_names:
        for group, members in fabric.path_groups(switch).items():
            ways = ", ".join(f"{name} {part:.3f}" for name, part in shares(counts[switch], members).items())
            yield f"{switch}, {group}: {ways}"


def to_json(bed: Bed) -> dict[str, Any]:
    """The lab for programs."""
    counts = bed.counts()
    return {
        "name": bed.name,
        "fabric": bed.fabric.to_table(),
        "policy": None if bed.policy is None else bed.policy.name,
        "notes": bed.switches.notes(),
        "namespaces": {
            node: bed.network.namespace(node) for node in (*bed.fabric.host_names, *bed.fabric.switch_names)
        },
        "addresses": bed.addresses,
        "links": [
            {
                "name": link.name,
                "rate_bps": link.rate_bps,
                "fault": bed.faults.get(link.name, NO_FAULT).to_table(),
            }
            for link in bed.fabric.each_link()
        ],
        "ports": {
            switch: {name: port.to_json() for name, port in ports.items()} for switch, ports in counts.items()
        },
        "left_out": bed.left_out,
        "lost_ways": bed.lost_ways(),
        "shares": {
            switch: shares(counts[switch], members)
            for switch in bed.fabric.switch_names
            for members in bed.fabric.path_groups(switch).values()
        },
    }


def lost_words(bed: Bed) -> list[str]:
    """For people: who still sends by a way that leads nowhere."""
    return [f"{leaf} still sends to {other} by {spine}: lost" for leaf, other, spine in bed.lost_ways()]


def _ports(counts: Counts) -> Iterator[tuple[str, str, PortCount]]:
    for switch, ports in counts.items():
        for name, port in ports.items():
            yield switch, name, port


def _table(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
