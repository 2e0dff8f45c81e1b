"""What `dlcp lab status` prints: hosts, links, queues, ways. Text from values; nothing is asked of a switch here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dlcp.lab.bed import Bed
from dlcp.lab.counts import CLASSES, Counts, PortCount, shares
from dlcp.lab.fault import NO_FAULT, rate_words


def lines(bed: Bed) -> Iterator[str]:
    """The lab for people."""
    fabric, counts = bed.fabric, bed.counts()
    form = f"{fabric.leaves} leaves, {fabric.spines} spines" if fabric.spines else "one switch"
    policy = "" if bed.policy is None else f", policy {bed.policy.name or fabric.policy or 'without a name'}"
    yield f"lab {bed.name}: {fabric.hosts} hosts, {form}, switches: {fabric.switch}{policy}, MTU {fabric.mtu}"
    yield from (f"note: {note}" for note in bed.switches.notes())
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
    rows = [["port", "class", "sent", "dropped", "marked", "trimmed", "waiting", "most waiting"]]
    for name, port in _ports(counts):
        for number in reversed(range(CLASSES)):
            if number < len(port.classes) and (port.classes[number].sent or port.classes[number].dropped):
                one = port.classes[number]
                rows.append(
                    [
                        name,
                        str(number),
                        *(str(n) for n in (one.sent, one.dropped, one.marked, one.trimmed)),
                        f"{one.waiting_bytes} B",
                        f"{one.max_waiting_bytes} B",
                    ]
                )
        other = {reason: n for reason, n in port.other.items() if n}
        if not port.up or other:
            words = [*([] if port.up else ["down"]), *(f"{reason} {n}" for reason, n in other.items())]
            rows.append([name, "", "", ", ".join(words), "", "", f"{port.waiting_bytes} B", ""])
    if len(rows) > 1:
        yield from _table(rows)
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
        "shares": {
            switch: shares(counts[switch], members)
            for switch in bed.fabric.switch_names
            for members in bed.fabric.path_groups(switch).values()
        },
    }


def _ports(counts: Counts) -> Iterator[tuple[str, PortCount]]:
    for switch, ports in counts.items():
        for name, port in ports.items():
            yield f"{switch} → {name}", port


def _table(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
