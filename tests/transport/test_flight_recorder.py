"""The flight recorder: what it keeps, what it writes, and that torch's own tool understands it."""

from __future__ import annotations

import gc
import io
import json
import logging
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch.distributed.flight_recorder import fr_trace

from dlcp.errors import CollectiveError
from dlcp.transport.communicator import Communicator, DataType, Span
from dlcp.transport.flight_recorder import FlightRecorder
from dlcp.transport.recorder_entry import Entry, RecordedGroup
from tests.support.ranks import World

Ranks = list[tuple[FlightRecorder, RecordedGroup]]


def make_ranks(count: int, folder: Path) -> Ranks:
    recorders = [FlightRecorder(rank, path=folder / f"rank_{rank}") for rank in range(count)]
    return [(recorder, recorder.open_group("0", range(count), "default_pg")) for recorder in recorders]


def analyse(ranks: Ranks, folder: Path) -> tuple[str, list[Any]]:
    """What torch's tool says of the ranks' dumps, and the collectives of its database."""
    for recorder, _ in ranks:
        recorder.dump()
    table = folder.parent / f"{folder.name}.table"
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    tool = logging.getLogger("Flight Recorder")
    tool.addHandler(handler)
    try:
        fr_trace.main([str(folder), "-o", str(table)])
    finally:
        tool.removeHandler(handler)
        gc.enable()  # which the tool disables
    return said.getvalue(), pickle.loads(table.read_bytes())[1].collectives


def done(entry: Entry) -> None:
    entry.start()
    entry.complete()


# --- torch's tool -------------------------------------------------------------------------------------------


def test_torch_matches_every_operation(tmp_path: Path) -> None:
    """Of two ranks that agree, each operation is found on both, and nothing is complained of."""
    ranks = make_ranks(2, tmp_path / "dumps")
    n = len(ranks)
    kinds: list[Callable[[FlightRecorder, RecordedGroup, int, int], Entry]] = [
        lambda r, g, s, rank: r.record(r.facts(g, s, "all_reduce", 4096, 4096, "f32")),
        lambda r, g, s, rank: r.record(r.facts(g, s, "broadcast", 80, 80, "bf16", root=1)),
        lambda r, g, s, rank: r.record(r.facts(g, s, "reduce", 64, 64 if rank == 0 else 0, "f64", root=0)),
        lambda r, g, s, rank: r.record(r.facts(g, s, "all_gather", 24, 24 * n, "f32")),
        lambda r, g, s, rank: r.record(r.facts(g, s, "all_gather_v", 24 + 8 * rank, 24 * n + 8, "i64")),
        lambda r, g, s, rank: r.record(r.facts(g, s, "reduce_scatter", 24 * n, 24, "f16")),
        lambda r, g, s, rank: r.record(r.facts(g, s, "reduce_scatter_v", 72, 24 + 24 * rank, "f16")),
        lambda r, g, s, rank: r.record(r.facts(g, s, "gather", 24, 24 * n if rank == 0 else 0, "u8", root=0)),
        lambda r, g, s, rank: r.record(
            r.facts(g, s, "scatter", 24 * n if rank == 0 else 0, 24, "boolean", root=0)
        ),
        lambda r, g, s, rank: r.record(r.facts(g, s, "all_to_all", 16 + 8 * rank, 24 - 8 * rank, "i32")),
        lambda r, g, s, rank: r.record(r.facts(g, s, "barrier")),
    ]
    for rank, (recorder, group) in enumerate(ranks):
        for sequence, kind in enumerate(kinds):
            done(kind(recorder, group, sequence, rank))
    said, collectives = analyse(ranks, tmp_path / "dumps")
    assert [c.collective_seq_id for c in collectives] == list(range(len(kinds)))
    assert [c.collective_seq_id for c in collectives if not c.pass_check] == [], said
    assert [c.collective_state for c in collectives] == ["completed"] * len(kinds)
    assert "error" not in said.lower()


def test_torch_command_reads_the_folder(tmp_path: Path) -> None:
    """As a person calls it: the folder alone."""
    for recorder, group in make_ranks(2, tmp_path):
        recorder.record(recorder.facts(group, recorder.rank, "barrier")).fail("lost")
        recorder.group_failed(group, "lost")
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "Not all ranks joining collective, sequence number: 0" in result.stderr
    assert "Not all ranks joining collective, sequence number: 1" in result.stderr


def test_torch_names_the_rank_that_did_not_come(tmp_path: Path) -> None:
    ranks = make_ranks(3, tmp_path / "dumps")
    for rank, (recorder, group) in enumerate(ranks):
        done(recorder.record(recorder.facts(group, 0, "all_reduce", 40, 40, "f32")))
        if rank != 1:
            late = recorder.record(recorder.facts(group, 1, "all_reduce", 80, 80, "f32"))
            late.start()
            late.fail("30 s are over", culprit=1, waiting_for=[(1, True, 80)])
    said, _ = analyse(ranks, tmp_path / "dumps")
    assert "Not all ranks joining collective, sequence number: 1" in said
    assert "missing ranks: {1}" in said


def test_torch_names_the_rank_that_called_something_else(tmp_path: Path) -> None:
    ranks = make_ranks(3, tmp_path / "dumps")
    for rank, (recorder, group) in enumerate(ranks):
        recorder.record(
            recorder.facts(group, 0, "broadcast" if rank == 2 else "all_reduce", 40, 40, "f32", root=0)
        ).start()
    said, _ = analyse(ranks, tmp_path / "dumps")
    assert "Collective sequence number: 0 has errors" in said
    # It takes the first file that it finds for the truth, and names the others.
    assert "Error type: COLLECTIVE_TYPE_MISMATCH" in said
    assert "Culprit rank 2" in said or ("Culprit rank 0" in said and "Culprit rank 1" in said)


def test_torch_names_the_rank_with_another_size(tmp_path: Path) -> None:
    ranks = make_ranks(3, tmp_path / "dumps")
    for rank, (recorder, group) in enumerate(ranks):
        nbytes = 44 if rank == 1 else 40
        recorder.record(recorder.facts(group, 0, "all_reduce", nbytes, nbytes, "f32")).start()
    said, _ = analyse(ranks, tmp_path / "dumps")
    assert "Error type: SIZE_OR_SYNTAX_MISMATCH" in said
    assert "Culprit rank 1" in said or ("Culprit rank 0" in said and "Culprit rank 2" in said)


def test_torch_matches_messages_by_direction(tmp_path: Path) -> None:
    """Both ranks send before they receive, a third one has nothing to do with it, and one receives from anyone."""
    ranks = make_ranks(3, tmp_path / "dumps")
    (zero, group_zero), (one, group_one), _ = ranks
    for recorder, group, peer in ((zero, group_zero, 1), (one, group_one, 0)):
        for nbytes in (40, 48):
            done(recorder.record(recorder.message_facts(group, "send", peer, nbytes, "f32")))
        done(recorder.record(recorder.message_facts(group, "receive", peer, 40, "f32")))
    done(zero.record(zero.message_facts(group_zero, "receive", 1, 48, "f32")))
    anyone = one.record(one.message_facts(group_one, "receive", None, 4096, "f32"))
    anyone.start()
    anyone.complete(source=0, nbytes=48)
    for recorder, group in ranks:
        done(recorder.record(recorder.facts(group, 0, "all_reduce", 4, 4, "f32")))
    said, collectives = analyse(ranks, tmp_path / "dumps")
    assert [c for c in collectives if not c.pass_check] == [], said
    assert sorted((c.group_id, c.p2p_seq_id) for c in collectives) == [
        ("0", 0),
        ("0 0->1", 0),
        ("0 0->1", 1),
        ("0 1->0", 0),
        ("0 1->0", 1),
    ]


def test_torch_names_a_message_that_nobody_sent(tmp_path: Path) -> None:
    ranks = make_ranks(4, tmp_path / "dumps")
    recorder, group = ranks[3]
    recorder.record(recorder.message_facts(group, "receive", 1, 40, "f32")).start()
    recorder.record(recorder.message_facts(group, "receive", None, 40, "f32")).start()
    said, _ = analyse(ranks, tmp_path / "dumps")
    assert "group info: 0 1->3:messages" in said
    assert "missing ranks: {1}" in said
    assert said.count("missing ranks") == 1


def test_torch_matches_subgroups(tmp_path: Path) -> None:
    """Ranks of a group in an order of their own, two groups of one name, and sizes that differ between groups."""
    recorders = [FlightRecorder(rank, path=tmp_path / "dumps" / f"rank_{rank}") for rank in range(4)]
    ranks = []
    for members in ((3, 1), (0, 2)):
        for rank in members:
            group = recorders[rank].open_group("pair", members, "pairs")
            again = recorders[rank].open_group("pair", members, "pairs")
            done(
                recorders[rank].record(
                    recorders[rank].facts(group, 0, "all_reduce", members[0] * 8, members[0] * 8, "f32")
                )
            )
            done(recorders[rank].record(recorders[rank].facts(again, 0, "all_reduce", 16, 16, "f32")))
            done(
                recorders[rank].record(
                    recorders[rank].message_facts(group, "send", 1 - members.index(rank), 8)
                )
            )
            done(
                recorders[rank].record(
                    recorders[rank].message_facts(group, "receive", 1 - members.index(rank), 8)
                )
            )
            ranks.append((recorders[rank], group))
    said, collectives = analyse(ranks, tmp_path / "dumps")
    assert len(collectives) == 8
    assert all(c.pass_check for c in collectives), said


def test_torch_reads_what_a_real_failure_leaves(tmp_path: Path) -> None:
    """Three ranks; the last one does not call the second all-reduce."""
    folder = tmp_path / "dumps"
    with World(3, flight_recorder_dir=str(folder), flight_recorder_entries=16) as world:
        groups = world.open()

        def one(group: Communicator) -> str:
            data = np.ones(1000, np.float32)
            group.all_reduce(Span.of(data), DataType.f32).wait()
            if group.rank == 2:
                return str(group.job.recorder.dump())
            with pytest.raises(CollectiveError) as raised:
                group.all_reduce(Span.of(data), DataType.f32, timeout_s=0.2).wait()
            return str(raised.value)

        said_by_ranks = world.each(groups, one)
    for rank in (0, 1):
        assert str(folder / f"rank_{rank}") in said_by_ranks[rank]
    said, collectives = analyse([], folder)
    assert "Not all ranks joining collective, sequence number: 1" in said
    assert "missing ranks: {2}" in said
    assert [each.pass_check for each in collectives if each.collective_seq_id == 0] == [True], said
    failed = pickle.loads((folder / "rank_0").read_bytes())["entries"][1]
    assert failed["failure"] is not None
    assert failed["input_sizes"] == [[1000]]


# --- what is kept -------------------------------------------------------------------------------------------


def test_oldest_operation_goes() -> None:
    recorder = FlightRecorder(0, entries=3)
    group = recorder.open_group("0", [0])
    for sequence in range(5):
        recorder.record(recorder.facts(group, sequence, "barrier"))
    assert [entry.sequence for entry in recorder.entries()] == [2, 3, 4]
    assert [entry["record_id"] for entry in recorder.trace()["entries"]] == [2, 3, 4]


def test_state_follows_the_operation() -> None:
    recorder = FlightRecorder(1)
    group = recorder.open_group("tp", [4, 1], "tensor parallel")
    entry = recorder.record(
        recorder.facts(group, 7, "reduce", 40, 0, "f32", root=0, timeout_s=2.5, label="loss")
    )
    assert entry.state == "scheduled"
    entry.start()
    assert entry.state == "started"
    entry.fail("rank 4 is silent", culprit=0, waiting_for=[(0, False, 40)])
    assert entry.state == "failed"
    described = recorder.snapshot()[0]
    times = [described.pop(name) for name in ("created_ns", "started_ns", "completed_ns")]
    assert times == sorted(times)
    assert described == {
        "id": 0,
        "group": "tp",
        "operation": "reduce",
        "sequence": 7,
        "label": "loss",
        "input_bytes": 40,
        "output_bytes": 0,
        "dtype": "f32",
        "peer": 4,
        "tag": None,
        "state": "failed",
        "timeout_s": 2.5,
        "failure": "rank 4 is silent",
        "culprit": 4,
        "waiting_for": [{"rank": 4, "for_arrival": False, "missing_bytes": 40}],
    }
    traced = json.loads(json.dumps(recorder.trace()))
    assert traced["pg_status"]["0"] == {
        "last_enqueued_collective": "7",
        "last_started_collective": "7",
        "last_completed_collective": "-1",
    }
    assert (traced["entries"][0]["state"], traced["entries"][0]["retired"]) == ("started", True)
    assert traced["entries"][0]["timeout_ms"] == 2500


def test_completion_out_of_order_keeps_the_highest() -> None:
    recorder = FlightRecorder(0)
    group = recorder.open_group("0", [0, 1])
    entries = [recorder.record(recorder.facts(group, sequence, "barrier")) for sequence in range(3)]
    for sequence in (0, 2, 1):
        entries[sequence].complete()
    assert recorder.trace()["pg_status"]["0"]["last_completed_collective"] == "2"


def test_closed_group_stays_as_long_as_its_operations() -> None:
    recorder = FlightRecorder(0, entries=1)
    first = recorder.open_group("first", [0, 1])
    second = recorder.open_group("second", [0, 2])
    recorder.record(recorder.facts(first, 0, "barrier"))
    recorder.close_group(first)
    recorder.close_group(first)
    assert recorder.trace()["pg_config"].keys() == {"first", "second"}
    recorder.record(recorder.facts(second, 0, "barrier"))
    assert recorder.trace()["pg_config"].keys() == {"second"}


class Operation:
    """What a recorder follows: ends when told."""

    def __init__(self) -> None:
        self.over = False
        self.completion: tuple[float, int, int] | None = None
        self.result: Any = None

    def end(self, error: str | None = None, **known: Any) -> None:
        ended = {
            "error": error,
            "cause": None,
            "culprit": None,
            "peer": None,
            "bytes": 0,
            "waited_s": 0.25,
            "sent_bytes": 0,
            "received_bytes": 0,
            "waiting_for": [],
        }
        self.result = SimpleNamespace(**(ended | known))
        moved = self.result.waited_s, self.result.sent_bytes, self.result.received_bytes
        self.completion = moved if error is None else None
        self.over = True


def test_end_is_found_when_somebody_looks() -> None:
    recorder = FlightRecorder(1)
    group = recorder.open_group("tp", [4, 1])
    collective, message, doomed = Operation(), Operation(), Operation()
    recorder.follow(recorder.facts(group, 0, "all_reduce", 80, 80), collective)
    recorder.follow(recorder.message_facts(group, "receive", None, 4096), message)
    recorder.follow(recorder.facts(group, 1, "all_reduce", 80, 80), doomed)
    assert [entry["state"] for entry in recorder.snapshot()] == ["started"] * 3
    assert len(recorder.under_way) == 3
    collective.end(sent_bytes=60, received_bytes=40)
    message.end(peer=0, bytes=16, received_bytes=16)
    waiting = SimpleNamespace(peer=0, for_arrival=True, missing_bytes=40)
    doomed.end("group_failed", cause="timeout", culprit=0, waiting_for=[waiting], sent_bytes=8)
    reduced, received, failed = recorder.snapshot()
    assert reduced["state"] == "completed"
    assert reduced["completed_ns"] - reduced["started_ns"] == 250_000_000
    assert (received["state"], received["peer"], received["output_bytes"]) == ("completed", 4, 16)
    assert (failed["state"], failed["failure"], failed["culprit"]) == ("failed", "group_failed (timeout)", 4)
    assert failed["waiting_for"] == [{"rank": 4, "for_arrival": True, "missing_bytes": 40}]
    assert recorder.under_way == []
    counts = {operation: counts.describe() for operation, counts in group.counts.items()}
    reduces = counts["all_reduce"]
    assert (reduces["started"], reduces["completed"], reduces["failed"]) == (2, 1, 1)
    assert (reduces["sent_bytes"], reduces["received_bytes"]) == (68, 40)
    assert (reduces["duration_s"], reduces["duration_s_max"], sum(reduces["duration_counts"])) == (
        0.25,
        0.25,
        1,
    )
    assert group.counts["all_reduce"].waited_for == {0: 1}
    assert (counts["receive"]["completed"], counts["receive"]["received_bytes"]) == (1, 16)


def test_what_is_over_is_let_go_of_behind_one_that_never_ends() -> None:
    """Memory of an operation may hang on what is followed: it must not pile up."""
    recorder = FlightRecorder(0)
    group = recorder.open_group("0", [0, 1])
    recorder.follow(recorder.message_facts(group, "receive", None, 8), Operation())
    followed = []
    for sequence in range(20):
        operation = Operation()
        recorder.follow(recorder.facts(group, sequence, "barrier"), operation)
        operation.end()
        followed.append(weakref.ref(operation))
        del operation
    assert sum(reference() is not None for reference in followed) <= 2


def test_recorder_that_is_off_counts_all_the_same(tmp_path: Path) -> None:
    recorder = FlightRecorder(0, entries=0, path=tmp_path / "rank_0")
    group = recorder.open_group("0", [0, 1])
    done(recorder.record(recorder.facts(group, 0, "barrier")))
    recorder.record(recorder.message_facts(group, "send", 1, 8)).fail("lost")
    assert recorder.group_failed(group, "lost") is None
    assert recorder.entries() == []
    assert list(tmp_path.iterdir()) == []
    assert (group.counts["barrier"].completed, group.counts["send"].failed) == (1, 1)


def test_what_never_ends_stays_when_the_recorder_is_full() -> None:
    recorder = FlightRecorder(0, entries=3)
    group = recorder.open_group("0", [0, 1])
    recorder.follow(recorder.facts(group, 0, "all_reduce"), Operation())
    for sequence in range(1, 9):
        operation = Operation()
        recorder.follow(recorder.facts(group, sequence, "barrier"), operation)
        operation.end()
    assert [entry.sequence for entry in recorder.entries()] == [0, 6, 7, 8]


def started(recorder: FlightRecorder) -> int:
    """Operations of the one open group."""
    ((group, under_way),) = recorder.groups
    return sum(counts.describe()["started"] for counts in group.counts.values()) + len(under_way)


def test_many_threads_record_while_one_looks() -> None:
    recorder = FlightRecorder(0, entries=64)
    group = recorder.open_group("0", [0])

    def record() -> None:
        for sequence in range(3000):
            operation = Operation()
            recorder.follow(recorder.facts(group, sequence, "barrier"), operation)
            operation.end()

    threads = [threading.Thread(target=record) for _ in range(3)]
    for thread in threads:
        thread.start()
    begun = 0
    while any(thread.is_alive() for thread in threads):
        ids = [entry["record_id"] for entry in recorder.trace()["entries"]]
        assert ids == sorted(set(ids))
        ((_, under_way),) = recorder.groups
        assert all(entry.state == "started" for entry in under_way)
        begun, before = started(recorder), begun
        assert begun >= before
    for thread in threads:
        thread.join()
    assert len(recorder.entries()) == 64
    assert max(entry.id for entry in recorder.entries()) == 8999
    assert (started(recorder), group.counts["barrier"].completed) == (9000, 9000)
    assert recorder.under_way == []


# --- files --------------------------------------------------------------------------------------------------


def test_first_failure_of_a_group_is_written(tmp_path: Path) -> None:
    path = tmp_path / "made" / "on the way" / "rank_0"
    recorder = FlightRecorder(0, path=path)
    one, other = recorder.open_group("one", [0, 1]), recorder.open_group("other", [0, 2])
    operation = Operation()
    recorder.follow(recorder.facts(one, 0, "barrier"), operation)
    assert not path.exists()
    operation.end("timeout")
    assert recorder.group_failed(one, "barrier() of group one took too long") == path
    written = pickle.loads(path.read_bytes())
    assert written["entries"][0]["failure"] == "timeout"
    assert written["failures"] == {"one": "barrier() of group one took too long"}
    assert recorder.group_failed(one, "again") is None
    assert recorder.group_failed(other, "this one, too") == path
    assert pickle.loads(path.read_bytes())["failures"].keys() == {"one", "other"}
    assert [file.name for file in path.parent.iterdir()] == ["rank_0"]
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o077) == (0o600, 0)


def test_failure_without_a_place_to_write_is_no_second_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    recorder = FlightRecorder(0, path=tmp_path / "file" / "rank_0")
    assert recorder.group_failed(recorder.open_group("0", [0, 1]), "lost") is None
    with pytest.raises(FileExistsError):
        recorder.dump()
    homeless = FlightRecorder(0)
    assert homeless.group_failed(homeless.open_group("0", [0, 1]), "lost") is None
    with pytest.raises(ValueError, match="no path of its own"):
        homeless.dump()


def test_dump_on_demand_goes_where_it_is_told(tmp_path: Path) -> None:
    recorder = FlightRecorder(3)
    recorder.record(recorder.facts(recorder.open_group("0", [0, 3]), 0, "barrier"))
    assert recorder.dump(tmp_path / "trace_3") == tmp_path / "trace_3"
    assert pickle.loads((tmp_path / "trace_3").read_bytes()) == recorder.trace()
