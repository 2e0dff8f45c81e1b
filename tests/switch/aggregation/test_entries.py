"""What a switch is to hold for its jobs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dlcp.errors import SettingsError
from dlcp.switch.aggregation import entries as switch_entries
from dlcp.switch.aggregation.entries import (
    HUB,
    JobRequest,
    bridge_entries,
    flood_entries,
    job_entries,
    place_jobs,
)
from dlcp.switch.entries import Entry, MulticastGroup, TableEntry
from tests.support.aggregation_packet import Kind, participant
from tests.support.aggregation_twin import keys_of, numbered


def request(job: int = 7, slots: int = 128) -> JobRequest:
    return JobRequest(job, (participant(1), participant(2)), participant(3), slots)


def rows(entries: list[Entry]) -> list[TableEntry]:
    return [entry for entry in entries if isinstance(entry, TableEntry)]


def groups(entries: list[Entry]) -> list[MulticastGroup]:
    return [entry for entry in entries if isinstance(entry, MulticastGroup)]


def test_jobs_have_slots_of_their_own() -> None:
    placements = place_jobs([request(1, 1000), request(2, 48), request(3, 1000)], first_group=5)
    assert [(p.first_slot, p.row, p.group) for p in placements] == [(0, 1, 5), (1000, 2, 6), (1048, 3, 7)]
    with pytest.raises(SettingsError, match=r"job\[1\].slots is 1049; accepted: at most 1048, what is left"):
        place_jobs([request(1, 1000), request(2, 1049)])
    with pytest.raises(SettingsError, match=r"job\[1\].job is 1; accepted: a number that no other job has"):
        place_jobs([request(1), request(1)])
    with pytest.raises(SettingsError, match="job has 64 entries; accepted: at most 63"):
        place_jobs([request(job, 2) for job in range(64)])


def test_entries_of_a_job() -> None:
    entries = job_entries(place_jobs([request()])[0])
    assert [numbered(group.ports) for group in groups(entries)] == [((1, 1), (2, 1))]
    admitted = [entry for entry in rows(entries) if entry.table == "participant"]
    assert [keys_of(entry)["worker"] for entry in admitted] == [0, 1, HUB]
    assert [dict(entry.params)["bit_of_worker"] for entry in admitted] == [1, 2, 0]
    assert {dict(entry.params)["everyone"] for entry in admitted} == {3}


def test_workers_behind_one_port_differ_by_instance() -> None:
    workers = (participant(1), participant(2), participant(2, 5001), participant(2, 5002))
    entries = job_entries(place_jobs([JobRequest(7, workers, participant(3))])[0])
    assert [numbered(group.ports) for group in groups(entries)] == [((1, 1), (2, 1), (2, 2), (2, 3))]
    addressed = {
        (keys_of(entry)["port"], keys_of(entry)["instance"]): dict(entry.params)["udp_port"]
        for entry in rows(entries)
        if entry.table == "addressees"
    }
    assert [addressed[2, 2], addressed[2, 3]] == [5001, 5002]
    assert len(addressed) == 5


def test_generations_are_admitted_side_by_side() -> None:
    entries = job_entries(place_jobs([replace(request(), generation=3, generations=2)])[0])
    admitted = [keys_of(entry) for entry in rows(entries) if entry.table == "participant"]
    assert {each["generation"] for each in admitted} == {3, 4}
    assert len(admitted) == 2 * (len(request().workers) + 1)
    many = [replace(request(), job=job, slots=2, generations=16) for job in range(60)]
    with pytest.raises(SettingsError, match="generations is 16; accepted: fewer, since the program has 2112"):
        place_jobs(many)


def test_entries_are_of_the_compiled_program(repository: Path) -> None:
    info = (repository / "dlcp/switch/compiled" / "aggregation.p4info.txtpb").read_text()
    names = set(re.findall(r'(?:name|alias): "([^"]+)"', info))
    told = job_entries(place_jobs([request()])[0]) + bridge_entries({5: 1}) + flood_entries([1, 2], 9)
    for entry in rows(told):
        assert {entry.table, entry.action, *keys_of(entry), *dict(entry.params)} <= names, entry
    assert {entry.table for entry in rows(told)} == {
        "participant",
        "addressees",
        "bridge",
        "flood",
    }


def test_numbers_of_the_program(repository: Path) -> None:
    """Constants that exist twice: in P4 and here."""
    folder = repository / "p4"
    program = (folder / "aggregation.p4").read_text()
    headers = (folder / "blocks" / "aggregation_headers.p4").read_text()
    assert f"#define AGGREGATION_SLOTS {switch_entries.SLOTS}\n" in program
    assert f"#define AGGREGATION_JOBS {switch_entries.MAX_JOBS + 1}\n" in program
    outcomes = re.findall(r"OUTCOME_(\w+) = (\d+);", headers)
    assert [name.lower() for name, _ in outcomes] == list(switch_entries.OUTCOMES)
    assert [int(number) for _, number in outcomes] == list(range(len(outcomes)))
    for kind in (Kind.CONTRIBUTION, Kind.RESULT, Kind.FLUSH, Kind.RELEASE):
        assert f"KIND_{kind.name} = {kind.value};" in headers


TABLE = {
    "job": 7,
    "slots": 64,
    "worker": [{"port": "h1", "mac": "02:00:00:00:00:01", "ip": "10.0.0.1", "udp_port": 5000}],
    "hub": {"port": "h2", "mac": "02:00:00:00:00:02", "ip": "10.0.0.2", "udp_port": 5000},
}


def test_job_from_a_table() -> None:
    got = JobRequest.from_table(TABLE, port_numbers={"h1": 1, "h2": 4})
    assert (got.job, got.slots, got.generation, got.workers[0].port, got.hub.port) == (7, 64, 1, 1, 4)


def test_what_only_the_software_switch_can_is_refused_by_the_program() -> None:
    hub = {name: value for name, value in TABLE["hub"].items() if name != "port"}  # type: ignore[attr-defined]
    for change, text in (
        ({"hub": hub}, "job[0].hub.port is missing; accepted by the P4 program: a port"),
        ({"lanes": 64}, "job[0].lanes is 64; accepted by the P4 program: 32"),
    ):
        got = JobRequest.from_table({**TABLE, **change}, port_numbers={"h1": 1, "h2": 4})
        with pytest.raises(SettingsError, match=re.escape(text)):
            place_jobs([got])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"speed": 1},
            "job.speed is not known; accepted: generation, generations, hub, job, lanes, slots, upper, worker",
        ),
        ({"worker": []}, "job.worker has 0 entries; accepted: 1 to 32"),
        ({"worker": 5}, "job.worker is 5; accepted: a list of tables"),
        (
            {"hub": {**TABLE["hub"], "port": "h9"}},
            "job.hub.port is 'h9'; accepted: a port of the switch: h1, h2",
        ),  # type: ignore[dict-item]
        ({"hub": {**TABLE["hub"], "ip": "::1"}}, "job.hub.ip is '::1'; accepted: an IPv4 address"),  # type: ignore[dict-item]
        ({"hub": {**TABLE["hub"], "mac": "02-00"}}, "job.hub.mac is '02-00'"),  # type: ignore[dict-item]
        ({"hub": {**TABLE["hub"], "ip": "10.0.0.1"}}, "10.0.0.1:5000 is there twice"),  # type: ignore[dict-item]
        ({"hub": {**TABLE["hub"], "ip": "10.0.0.1", "udp_port": 1}}, "accepted: an address of its own"),  # type: ignore[dict-item]
        ({"lanes": 48}, "job.lanes is 48; accepted: multiples of 32 up to 2208"),
        ({"slots": 4096}, "job.slots is 4096; accepted: an integer from 2 to 2048"),
    ],
)
def test_job_from_a_wrong_table(change: dict[str, object], text: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(text)):
        JobRequest.from_table({**TABLE, **change}, port_numbers={"h1": 1, "h2": 4})
