"""Jobs that a lab's software switches add for: the file of jobs of a fabric, and its switches told.

Ranks of one leaf: the leaf adds. Ranks of several leaves: each leaf adds for its own, and the first spine adds what
the leaves have summed. A switch is its own hub, at an address that no host of the lab has, the same one at all leaves.
So all ranks have one setting. Ranks are in the order of their hosts, as many on each leaf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dlcp.lab.fabric import Fabric
from dlcp.lab.fault import FabricError
from dlcp.lab.network import host_mac
from dlcp.switch.aggregation.entries import (
    LANES,
    MAX_LANES,
    NO_PORT,
    JobRequest,
    Participant,
    UpperSwitch,
    in_a_row,
)
from dlcp.switch.aggregation.job_command import UDP_PORT
from dlcp.switch.aggregation.job_file import job_tables, job_text

if TYPE_CHECKING:
    from dlcp.lab.switched_lab import SwitchedLab

SLOTS = 512  # what is on the way at a gigabit per second
# Hosts have 10.78.0.1 to 64, and 02:78:00 to 02:78:02 in front.
_HUB = Participant(NO_PORT, "02:78:03:00:00:00", "10.78.0.254", UDP_PORT)
_UPPER_HUB = Participant(NO_PORT, "02:78:03:00:00:01", "10.78.0.253", UDP_PORT)
_IP_BYTES, _UDP_BYTES, _HEADER_BYTES = 20, 8, 36


def lanes_of(mtu: int) -> int:
    """The most values of a packet that fit into so many bytes of IP."""
    values = (mtu - _IP_BYTES - _UDP_BYTES - _HEADER_BYTES) // 4
    return min(values // LANES * LANES, MAX_LANES)


def jobs_of(
    fabric: Fabric, host_of: Sequence[int], *, udp_port: int = UDP_PORT, **numbers: int
) -> dict[str, JobRequest]:
    """By switch, leaves first: a job of ranks on these hosts, rank 0 first. `numbers`: JobRequest's, such as slots.

    FabricError: the switches do not add, or ranks are not as many on each leaf. SettingsError: a number cannot be.
    """
    _check_kind(fabric)
    leaf_of = [fabric.leaf_of(host) for host in host_of]
    leaves = list(dict.fromkeys(leaf_of))
    each = len(leaf_of) // max(len(leaves), 1)
    if not leaves or leaf_of != [leaf for leaf in leaves for _ in range(each)]:
        there = ", ".join(leaf_of) or "no leaf"
        raise FabricError(f"ranks are on {there}; accepted: leaf by leaf, as many on each")
    settings: dict[str, Any] = {"job": 1, "slots": SLOTS, "lanes": lanes_of(fabric.mtu), **numbers}
    hub = replace(_HUB, udp_port=udp_port)
    found: dict[str, JobRequest] = {}
    for leaf in leaves:
        numbers_of = _port_numbers(fabric, leaf)
        workers = in_a_row(
            Participant(numbers_of[f"h{host}"], host_mac(fabric, host), fabric.address(host), udp_port)
            for host, at in zip(host_of, leaf_of, strict=True)
            if at == leaf
        )
        found[leaf] = JobRequest(workers=workers, hub=hub, **settings)
    if len(leaves) > 1:
        spine = fabric.spine_names[0]
        ports = _port_numbers(fabric, spine)
        upper_hub = replace(_UPPER_HUB, udp_port=udp_port)
        own = [_leaf_at_spine(leaf, ports[leaf], udp_port) for leaf in leaves]
        for number, leaf in enumerate(leaves):
            to_spine = _port_numbers(fabric, leaf)[spine]
            upper = UpperSwitch(
                number, replace(upper_hub, port=to_spine), replace(own[number], port=to_spine)
            )
            found[leaf] = replace(found[leaf], upper=upper)
        found[spine] = JobRequest(workers=tuple(own), hub=upper_hub, **settings)
    for switch, request in found.items():
        request.validate(f"{switch}: job")
    return found


def file_text(fabric: Fabric, jobs: Mapping[str, JobRequest]) -> str:
    """The file of jobs, each with its switch; the first line says what the ranks are told."""
    tables = [
        {"switch": switch, **request.to_table({n: name for name, n in _port_numbers(fabric, switch).items()})}
        for switch, request in jobs.items()
    ]
    return f"# On every rank: DLCP_AGGREGATION='{setting_of(jobs)}'\n{job_text(tables)}"


def setting_of(jobs: Mapping[str, JobRequest]) -> str:
    """The setting `aggregation` of all ranks."""
    return next(iter(jobs.values())).ranks_setting


def add_for(lab: SwitchedLab, host_of: Sequence[int]) -> str:
    """Has the switches add for ranks on these hosts, rank 0 first; the setting of the ranks. Raises as jobs_of."""
    return set_jobs(lab, file_text(lab.fabric, jobs_of(lab.fabric, host_of)))


def set_jobs(lab: SwitchedLab, text: str) -> str:
    """Has the lab's switches add for the jobs of a file; the setting of the ranks of the first.

    FabricError: the switches do not add, or one is not there. SettingsError, SwitchError: a job cannot be.
    """
    _check_kind(lab.fabric)
    names = lab.fabric.switch_names
    tables: dict[str, list[dict[str, object]]] = {}
    jobs: dict[str, JobRequest] = {}
    for index, table in enumerate(job_tables(text)):
        switch = table.pop("switch", None)
        if switch not in names:
            raise FabricError(f"job[{index}].switch is {switch!r}; accepted: {', '.join(names)}")
        request = JobRequest.from_table(table, f"job[{index}]", _port_numbers(lab.fabric, switch))
        jobs.setdefault(switch, request)
        tables.setdefault(switch, []).append(table)
    if not jobs:
        raise FabricError("no job in the file; accepted: [[job]] tables, as `dlcp lab jobs` writes them")
    for switch, own in tables.items():
        with lab.switches.control(switch) as control:  # type: ignore[attr-defined]
            control.set_jobs(job_text(own))
    return setting_of(jobs)


def _check_kind(fabric: Fabric) -> None:
    if fabric.switch != "software":
        raise FabricError(f"switch is {fabric.switch!r}; accepted where switches add: 'software'")


def _port_numbers(fabric: Fabric, switch: str) -> dict[str, int]:
    return {name: number for number, name in enumerate(fabric.ports(switch))}


def _leaf_at_spine(leaf: str, port: int, udp_port: int) -> Participant:
    number = int(leaf[1:])
    return Participant(port, f"02:78:03:01:00:{number:02x}", f"10.78.0.{200 + number}", udp_port)
