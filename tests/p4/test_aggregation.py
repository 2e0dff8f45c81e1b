"""The aggregation program as compiled, in the interpreter: vectors, and random frames beside the twin."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dlcp.switch.aggregation.entries import OUTCOMES, JobRequest, job_entries, place_jobs
from dlcp.switch.entries import TableEntry
from tests.support import vectors
from tests.support.aggregation_frames import random_frame
from tests.support.aggregation_packet import Kind, Packet, participant, udp_frame
from tests.support.aggregation_program import InterpretedSwitch
from tests.support.aggregation_twin import AggregatingSwitch, keys_of
from tests.support.bmv2 import Program
from tests.vectors import aggregation


@pytest.fixture
def switch(repository: Path) -> InterpretedSwitch:
    program = Program.load(str(repository / "dlcp/switch/compiled" / "aggregation.json"), seed=0)
    switch = InterpretedSwitch(program)
    switch.write(aggregation.entries())
    return switch


def counted(switch: InterpretedSwitch) -> dict[tuple[int, str], int]:
    cells = switch.program.counter("outcomes")
    return {
        (index // 16, OUTCOMES[index % 16]): cell.packets for index, cell in enumerate(cells) if cell.packets
    }


def test_vectors_are_what_the_generator_writes() -> None:
    text = (vectors.DIRECTORY / "aggregation.txt").read_text(encoding="utf-8")
    assert vectors.read(text) == aggregation.records()


def test_program_obeys_the_vectors(switch: InterpretedSwitch) -> None:
    before: dict[tuple[int, str], int] = {}
    for record in vectors.load("aggregation.txt"):
        got = switch.process(bytes.fromhex(record["bytes"]), int(record["port"]))
        assert sorted(got) == sorted(aggregation.outs(record.get("out"))), record["name"]
        after = counted(switch)
        grown = [f"{row} {name}" for (row, name), n in after.items() if n != before.get((row, name), 0)]
        assert (grown or ["none"]) == [record["outcome"]], record["name"]
        before = after


def test_vectors_reach_every_outcome() -> None:
    reached = {record["outcome"].partition(" ")[2] for record in vectors.load("aggregation.txt")}
    assert set(OUTCOMES) <= reached


@pytest.mark.parametrize("seed", range(4))
def test_program_does_what_the_twin_does(switch: InterpretedSwitch, seed: int) -> None:
    rng = random.Random(seed)
    twin = AggregatingSwitch()
    twin.write(aggregation.entries())
    for index in range(1500):
        port, frame = random_frame(rng)
        expected = twin.process(frame, port)
        assert sorted(switch.process(frame, port)) == sorted(expected), (seed, index, port, frame.hex())
    assert counted(switch) == dict(twin.outcomes)
    assert len(twin.outcomes) > 20, "the frames reach most outcomes of both jobs"


def test_new_generation_finds_its_slots_empty(switch: InterpretedSwitch) -> None:
    """The job is over in mid-block; the next one has its slots, message numbers from 1, and nobody clears registers."""
    old = aggregation.REQUESTS[0]
    values = aggregation.lanes(3)

    def contribute(worker: int, message: int, generation: int) -> list[tuple[int, bytes]]:
        packet = Packet(
            Kind.CONTRIBUTION, 7, message, 0, worker, slot=0, generation=generation, values=values
        )
        place = old.workers[worker]
        return switch.process(udp_frame(place, old.hub, packet.encode()), place.port)

    assert contribute(0, 50, 1) == []
    (placement, _) = place_jobs(aggregation.REQUESTS)
    for entry in job_entries(placement):
        if isinstance(entry, TableEntry) and entry.table == "participant":
            keys = keys_of(entry)
            switch.program.delete(entry.table, keys)
            switch.program.insert(entry.table, {**keys, "generation": 2}, entry.action, dict(entry.params))
    [(port, _)] = contribute(1, 50, 1)
    assert port == old.hub.port, "the old generation goes to the hub"
    assert [contribute(worker, 1, 2) for worker in (0, 1)] == [[], []]
    results = contribute(2, 1, 2)
    assert [port for port, _ in results] == [1, 2, 3]
    assert {raw[78:] for _, raw in results} == {(values * 3).astype(">i4").tobytes()}


def test_workers_behind_one_port_get_a_result_each(repository: Path) -> None:
    program = Program.load(str(repository / "dlcp/switch/compiled" / "aggregation.json"), seed=0)
    switch = InterpretedSwitch(program)
    workers = tuple(participant(1, udp_port) for udp_port in (6000, 6001, 6002))
    request = JobRequest(7, workers, participant(2), slots=4)
    switch.write(job_entries(place_jobs([request])[0]))

    def contribute(worker: int) -> list[tuple[int, int]]:
        packet = Packet(Kind.CONTRIBUTION, 7, 1, 0, worker, generation=1)
        sent = switch.process(udp_frame(workers[worker], request.hub, packet.encode()), 1)
        return [(port, int.from_bytes(raw[36:38], "big")) for port, raw in sent]

    assert [contribute(0), contribute(1)] == [[], []]
    assert sorted(contribute(2)) == [(1, 6000), (1, 6001), (1, 6002)]
    assert [contribute(worker) for worker in range(3)] == [[(1, 6000)], [(1, 6001)], [(1, 6002)]]
