"""Chakra traces: the wire format by an encoder of the test's own, both forms alike, and a job that runs as it says."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlcp_sim import _core
from dlcp_sim.fabrics import ThreeTier
from dlcp_sim.transports import Dlcp
from dlcp_sim.workloads.chakra import (
    ChakraTrace,
    Node,
    NodeType,
    TraceError,
    read_json,
    read_protobuf,
    read_trace,
)
from dlcp_sim.workloads.load import Load

STAR = ThreeTier(hosts_per_edge=4, rate_bps=100e9)
PACKET_PS, DELAY_PS, US = 4160 * 80, 10**6, 10**6


def varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def encode(node: Node, *, packed: bool = True) -> bytes:
    """A Node message of et_def.proto."""
    out = field(1, node.id) + field(2, node.name.encode()) + field(3, int(node.type))
    if packed and node.after:
        out += field(5, b"".join(map(varint, node.after)))
    else:
        out += b"".join(field(4, one) for one in node.after)
    out += field(6, 3) + field(7, node.duration_us)
    for name, value in node.attributes.items():
        if value is None:
            continue
        body = field(1, name.encode())
        body += field(29, value.encode()) if isinstance(value, str) else field(9, value)
        out += field(10, body)
    out += field(8, field(1, b"inputs that nobody reads"))
    out += varint(15 << 3 | 1) + b"12345678" + varint(16 << 3 | 5) + b"1234"  # fields of later versions
    return out


def write(path: Path, nodes: list[Node], *, packed: bool = True) -> None:
    messages = [field(1, b"0.0.4"), *(encode(node, packed=packed) for node in nodes)]
    path.write_bytes(b"".join(varint(len(message)) + message for message in messages))


def compute(number: int, duration_us: int, *after: int) -> Node:
    return Node(number, f"compute {number}", NodeType.COMP_NODE, after, duration_us)


def collective(number: int, kind: int, nbytes: int, *after: int, group: str | None = None) -> Node:
    attributes: dict[str, Any] = {"comm_type": kind, "comm_size": nbytes}
    if group is not None:
        attributes["pg_name"] = group
    return Node(number, "collective", NodeType.COMM_COLL_NODE, after, 0, attributes)


def send(number: int, to: int, nbytes: int, *after: int, tag: int = 0) -> Node:
    return Node(
        number,
        "send",
        NodeType.COMM_SEND_NODE,
        after,
        0,
        {"comm_dst": to, "comm_size": nbytes, "comm_tag": tag},
    )


def receive(number: int, source: int, *after: int, tag: int = 0) -> Node:
    return Node(number, "receive", NodeType.COMM_RECV_NODE, after, 0, {"comm_src": source, "comm_tag": tag})


def build(folder: Path, traces: list[list[Node]], **settings: Any) -> tuple[Load, _core.Simulation]:
    for rank, nodes in enumerate(traces):
        write(folder / f"job.{rank}.et", nodes)
    load = ChakraTrace(prefix=str(folder / "job"), **settings).build(STAR, 1)
    simulation = _core.Simulation(STAR.build(), _core.Policy(), "line_rate", {})
    load.apply(simulation)
    return load, simulation


@pytest.mark.parametrize("packed", [True, False])
def test_what_is_written_is_read(tmp_path: Path, packed: bool) -> None:
    nodes = [
        compute(1, 300),
        collective(2**40, 0, 10**10, 1, group="world"),
        Node(7, "odd", NodeType.COMP_NODE, (1, 2**40), 5, {"negative": -3, "flag": 1}),
    ]
    write(tmp_path / "a.0.et", nodes, packed=packed)
    assert read_trace(tmp_path / "a.0.et") == nodes


def test_both_forms_are_the_same(tmp_path: Path) -> None:
    """JSON as protobuf prints it: names in camel case, 64-bit numbers as text, enums by name; or plain."""
    printed = """{"version": "0.0.4"}
      {"id": "1", "name": "compute 1", "type": "COMP_NODE", "durationMicros": "300"}
      {"id": "9", "name": "collective", "type": "COMM_COLL_NODE", "dataDeps": ["1"], "attr":
        [{"name": "comm_type", "int64Val": "0"}, {"name": "comm_size", "int64Val": "4096"}]}"""
    plain = {
        "nodes": [
            {"id": 1, "name": "compute 1", "type": 4, "duration_micros": 300},
            {
                "id": 9,
                "name": "collective",
                "type": "COMM_COLL_NODE",
                "ctrl_deps": [1],
                "attr": [{"name": "comm_type", "int64_val": 0}, {"name": "comm_size", "int64_val": 4096}],
            },
        ]
    }
    expected = [compute(1, 300), collective(9, 0, 4096, 1)]
    assert read_json(printed) == expected
    assert read_json(json.dumps(plain)) == expected
    (tmp_path / "b.0.json").write_text(printed)
    assert read_trace(tmp_path / "b.0.json") == expected


def test_a_job_takes_the_time_that_it_says(tmp_path: Path) -> None:
    """Compute, all-reduce by a ring of two, compute; exact."""
    ranks = [
        [compute(1, 10), collective(2, 0, 2 * 4096, 1), compute(3, 5, 2)],
        [compute(1, 20), collective(2, 0, 8192, 1)],
    ]
    load, simulation = build(tmp_path, ranks)
    assert simulation.run()
    finished = simulation.task_times()["finished_ps"]
    assert (finished >= 0).all()
    # Rank 1 begins at 20 us and has rank 0's half by then: it sends its own and the sum, a packet each, over two links.
    assert finished.max() == 20 * US + 3 * PACKET_PS + 2 * DELAY_PS + 5 * US
    assert load.flows["bytes"].sum() == 2 * 2 * 4096


def test_sends_and_receives_pair_by_tag(tmp_path: Path) -> None:
    ranks = [
        [send(1, 1, 4096, tag=5), send(2, 1, 40_960, tag=6), compute(3, 7, 1)],
        [receive(1, 0, tag=6), receive(2, 0, tag=5), compute(3, 1, 1), compute(4, 1, 2)],
    ]
    load, simulation = build(tmp_path, ranks)
    assert simulation.run()
    times = simulation.task_times()
    flows = simulation.flow_results()
    by_tag = {6: flows["delivered_ps"][1], 5: flows["delivered_ps"][0]}
    ends = sorted(times["finished_ps"][load.tasks["host"] == 1])
    assert ends[-1] == max(by_tag.values()) + US
    assert by_tag[5] + US in ends


def test_a_rank_computes_one_thing_at_a_time_if_serial(tmp_path: Path) -> None:
    ranks = [[compute(1, 10), compute(2, 10), compute(3, 10)], [compute(1, 1)]]
    ends = {}
    for serial in (True, False):
        _, simulation = build(tmp_path, ranks, serial=serial)
        simulation.run()
        ends[serial] = simulation.task_times()["finished_ps"].max()
    assert ends == {True: 30 * US, False: 10 * US}


def test_process_groups_and_other_collectives(tmp_path: Path) -> None:
    ranks = [
        [collective(1, 7, 40_000, group="a"), collective(2, 2, 40_000, 1, group="a"), collective(3, 9, 0, 2)],
        [collective(1, 7, 40_000, group="a"), collective(2, 2, 40_000, 1, group="a"), collective(3, 9, 0, 2)],
        [collective(1, 6, 40_000, group="b"), collective(3, 9, 0, 1)],
        [collective(1, 6, 40_000, group="b"), collective(3, 9, 0, 1)],
    ]
    load, simulation = build(tmp_path, ranks, groups={"a": (0, 1), "b": (2, 3)}, hosts=(3, 2, 1, 0))
    assert simulation.run()
    assert (simulation.task_times()["finished_ps"] >= 0).all()
    pairs = set(zip(load.flows["source"].tolist(), load.flows["destination"].tolist(), strict=True))
    assert {(3, 2), (2, 3), (1, 0), (0, 1)} <= pairs
    assert set(load.labels) == {"send", "reduce_scatter", "all_gather", "all_to_all", "all_reduce"}


@pytest.mark.parametrize(
    ("ranks", "match"),
    [
        ([[send(1, 1, 5)], [compute(1, 1)]], "does not receive"),
        ([[compute(1, 1)], [receive(1, 0)]], "does not send"),
        ([[collective(1, 0, 8)], [compute(1, 1)]], "as many each"),
        ([[collective(1, 0, 8)], [collective(1, 0, 9)]], "disagree"),
        ([[compute(1, 1, 5)], []], "node 5"),
        ([[compute(1, 1), compute(1, 2)], []], "same id"),
        ([[collective(1, 12, 8)], [collective(1, 12, 8)]], "job.0.et: rank 0, node 1: comm_type is 12"),
        ([[send(1, 7, 5)], []], "job.0.et: rank 0, node 1: comm_dst is 7"),
        ([[compute(4, 1, 2), compute(2, 1, 4)], []], "node 4 of rank 0, node 2 of rank 0"),
        ([[send(1, 1, 5, 2), receive(2, 1)], [receive(8, 0), send(9, 0, 5, 8)]], "node 8 of rank 1"),
        ([[collective(1, 0, 8), send(2, 1, 5, 1)], [receive(1, 0), collective(2, 0, 8, 1)]], "node 1 of"),
        ([[Node(1, type=NodeType(0))], []], "node 1: type is 0"),
        ([[replace(compute(3, 0), attributes={"num_ops": 9})], []], "node 3: duration_micros is missing"),
        *[
            ([[replace(node, attributes={**node.attributes, name: None})], []], f"{name} is missing")
            for node in (collective(1, 0, 8), send(1, 1, 5), receive(1, 1))
            for name in node.attributes
        ],
    ],
)
def test_traces_that_contradict_are_refused(tmp_path: Path, ranks: list[list[Node]], match: str) -> None:
    with pytest.raises(TraceError, match=match):
        build(tmp_path, ranks)


def test_files_that_are_no_traces_are_refused(tmp_path: Path) -> None:
    whole = b"".join(varint(len(m)) + m for m in (field(1, b"1"), encode(compute(1, 2))))
    for cut in range(5, len(whole)):  # up to 4 there is metadata alone: a trace of nothing
        with pytest.raises(TraceError):
            read_protobuf(whole[:cut])
    with pytest.raises(TraceError):
        read_json("{")
    with pytest.raises(TraceError, match="is not there"):
        ChakraTrace(prefix=str(tmp_path / "none")).build(STAR, 1)
    (tmp_path / "x.0.et").write_bytes(b"\xff" * 40)
    with pytest.raises(TraceError, match="x.0.et"):
        ChakraTrace(prefix=str(tmp_path / "x")).build(STAR, 1)


def test_a_root_need_not_wait_for_who_comes_later(tmp_path: Path) -> None:
    broadcast = collective(1, 5, 4096)
    ranks = [[broadcast, send(2, 1, 4096, 1)], [receive(2, 0), replace(broadcast, after=(2,))]]
    load, simulation = build(tmp_path, ranks)
    assert simulation.run()
    assert "no comm_root of a broadcast" in next(Dlcp().notes(load))


def test_json_that_is_no_trace_is_refused_by_file_and_rank(tmp_path: Path) -> None:
    """PyTorch's own trace; and of a good one with any part replaced nothing worse than TraceError comes."""
    good = """[{"type": "COMP_NODE", "durationMicros": "3"}, {"id": "1", "type": "COMM_COLL_NODE", "dataDeps": ["0"],
        "attr": [{"name": "comm_type", "stringVal": "BROADCAST"}, {"name": "comm_size", "int64Val": "8"},
        {"name": "comm_root", "int32Val": 0}]}]"""  # protobuf's JSON leaves an id of 0 out
    pytorch = """{"schema": "1.1.1", "nodes": [{"id": 1, "name": "process", "ctrl_deps": 1, "attrs": []}]}"""

    def build_of(trace: str) -> Load:
        (tmp_path / "job.0.json").write_text(trace)
        return ChakraTrace(prefix=str(tmp_path / "job")).build(STAR, 1)

    assert len(build_of(good).tasks) == 2
    with pytest.raises(TraceError, match=r"job\.0\.json: rank 0, PyTorch's own"):
        build_of(pytorch)
    for part in re.finditer(r'"[^"]*"|\d|\[.*?\]|\{[^{]*?\}', good, re.DOTALL):
        for other in ("null", "-1", "1.5", str(2**70), '"ALL"', "[]", "[1]", "{}", '{"name": 1}'):
            with contextlib.suppress(TraceError):
                build_of(good[: part.start()] + other + good[part.end() :])
