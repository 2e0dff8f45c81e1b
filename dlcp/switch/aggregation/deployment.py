"""All entries of an aggregating switch: its jobs, the bridge to their hosts and the topology's, and flooding.

Pure; `dlcp.switch.deploy` brings the entries onto switches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlcp.errors import SettingsError
from dlcp.switch.aggregation.entries import (
    JobRequest,
    bridge_entries,
    flood_entries,
    job_entries,
    place_jobs,
)
from dlcp.switch.entries import Entry, Exact, TableEntry
from dlcp.switch.topology import SwitchTarget, mac_number


def wanted_jobs(target: SwitchTarget, jobs: Sequence[JobRequest]) -> tuple[Entry, ...]:
    """All entries of one switch. SettingsError: it has no room for the jobs, or its ports do not fit them."""
    places = _places(target, jobs)
    # Groups of flooding are numbered behind the ports, jobs behind those.
    entries = flood_entries(target.ports.values(), first_group=1)
    entries += bridge_entries(dict(sorted(places.items())))
    for placement in place_jobs(jobs, first_group=len(target.ports) + 1):
        entries += job_entries(placement)
    return tuple(entries)


def check_unmoved(target: SwitchTarget, held: Iterable[Entry], wanted: Iterable[Entry]) -> None:
    """SettingsError if a job would move to other slots, or change its workers, without a new generation.

    The switch would find what is in its slots under other numbers, and a block could get two results.
    """
    participants = {
        entry.identity: dict(entry.params)
        for entry in held
        if isinstance(entry, TableEntry) and entry.table == "participant"
    }
    for entry in wanted:
        before = participants.get(entry.identity)
        if before is None or not isinstance(entry, TableEntry):
            continue
        keys = {name: key.value for name, key in entry.match if isinstance(key, Exact)}
        now = dict(entry.params)
        for name in ("base", "slots_of_job", "everyone", "bit_of_worker"):
            if now[name] != before[name]:
                raise SettingsError(
                    f"{target.name}: job {keys['job']} has generation {keys['generation']} already, with {name} "
                    f"{before[name]} in place of {now[name]}; accepted: its next generation, or the jobs before "
                    "it and its own slots and workers left as they are (new jobs go behind)"
                )


def _places(target: SwitchTarget, jobs: Sequence[JobRequest]) -> dict[int, int]:
    """MAC address → port number."""
    places: dict[int, int] = {}
    names = {number: name for name, number in target.ports.items()}
    for index, job in enumerate(jobs):
        for who, participant in [
            *((f"worker[{n}]", p) for n, p in enumerate(job.workers)),
            ("hub", job.hub),
        ]:
            where = f"{target.name}: job[{index}].{who}"
            if participant.port not in names:
                known = ", ".join(f"{number} ({name})" for number, name in sorted(names.items()))
                raise SettingsError(
                    f"{where}.port is {participant.port}; accepted: a port of the switch: {known}"
                )
            if places.setdefault(participant.mac_number, participant.port) != participant.port:
                there = names[places[participant.mac_number]]
                raise SettingsError(
                    f"{where}.mac is {participant.mac}, which lies behind {there}; accepted: one port"
                )
    for entry in target.bridge:
        if entry.port is None:
            raise SettingsError(
                f"{target.name}: bridge entry {entry.mac}: accepted: a port; path groups are v1model's"
            )
        places.setdefault(mac_number("mac", entry.mac), target.ports[entry.port])
    return places
