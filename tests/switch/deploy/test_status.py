"""`dlcp switch status`: what switches run and count, without being primary of anything."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlcp.cli import main
from dlcp.switch import SwitchTarget
from dlcp.switch.entries import level_name
from dlcp.switch.programs import FOREIGN_LEVEL, Arrival, Decision, decisions_index

pytest.importorskip("finsy", reason="needs the packages of the extra p4")

from dlcp.switch.deploy.status import ASK_PORTS, Monitor, Reading, document, lines
from dlcp.switch.deploy.transaction import Settings, deploy
from tests.support import frame_builder as build
from tests.support.deployment import MACS, OLD, PIPELINE, desired, open_session, target, topology_text
from tests.support.p4runtime import P4RuntimeServer

TO_A = bytes.fromhex(MACS[10].replace(":", ""))
Printed = pytest.CaptureFixture[str]


@pytest.fixture
def server() -> Iterator[P4RuntimeServer]:
    """A switch that holds the old policy."""
    with P4RuntimeServer(device_id=2) as one:
        deploy([desired(one)], open_session, Settings())
        yield one


def frame(dscp: int, ecn: int, importance: int = 0, payload: int = 100) -> bytes:
    """A dlcp packet to port a, number 1."""
    packet = build.ipv4(build.udp(build.dlcp(payload, importance=importance)), tos=dscp << 2 | ecn)
    return build.ethernet(packet, build.IPV4, destination=TO_A)


def read(*targets: SwitchTarget) -> list[Reading]:
    monitor = Monitor(targets, 60.0)
    try:
        return monitor.read()
    finally:
        monitor.close()


def place(server: P4RuntimeServer, name: str = "s1") -> SwitchTarget:
    return target(name, server.address, server.device_id)


# --- counters -------------------------------------------------------------------------------------------------


def test_counts_are_shown_by_port_class_importance_and_what_became_of_it(server: P4RuntimeServer) -> None:
    for _ in range(3):
        server.process(frame(8, 2), 2)
    server.process(frame(8, 0, importance=40), 2)
    server.process(frame(56, 0, importance=254), 2)
    server.process(frame(63, 0), 2)
    server.process(bytes(12) + b"\x08\x06" + bytes(46), 4)
    with server.lock:
        server.program.register("queue_bytes")[1 * 8 + 1] = 501  # more than OLD lets droppable packets find
    server.process(frame(8, 0, importance=254), 2)
    (reading,) = read(place(server))
    shown = list(lines(reading))
    assert shown[0] == f"s1 ({server.address}): v1model, cookie {PIPELINE.cookie:#018x}; no controller"
    rows = [re.split(r"  +", line.strip()) for line in shown[1:-1]]
    assert rows[0] == ["port", "class", "level", *(d.name.lower() for d in Decision)]
    assert rows[1:] == [
        ["a", "7", "importance 224+", "1", "–", "–", "–", "–", "–"],
        ["a", "1", "critical", "3", "–", "–", "–", "–", "–"],
        ["a", "1", "importance 224+", "–", "–", "–", "1", "–", "–"],
        ["a", "1", "importance 32+", "1", "–", "–", "–", "–", "–"],
        ["a", "0", "foreign", "1", "–", "–", "–", "–", "–"],
    ]
    assert shown[-1] == "  not to an output queue: flooded 1"


def test_document_has_the_same_in_packets_and_bytes(server: P4RuntimeServer) -> None:
    packet = frame(8, 2)
    server.process(packet, 2)
    (reading,) = read(place(server))
    found = document(reading)
    assert found["decisions"] == [
        {"port": "a", "class": 1, "level": "critical", "kept": {"packets": 1, "bytes": len(packet)}}
    ]
    assert found["arrivals"] == [{"port": "b", "what": "forwarded", "packets": 1, "bytes": len(packet)}]
    assert found["cookie"] == PIPELINE.cookie
    assert found["runs_program"]
    json.dumps(found)


def test_rates_are_what_was_added_since() -> None:
    here = SwitchTarget("s", "h:1", {"a": 1})
    kept = decisions_index(1, 2, FOREIGN_LEVEL - 1, Decision.KEPT)
    marked = decisions_index(1, 2, FOREIGN_LEVEL - 1, Decision.MARKED)
    before = Reading(here, 10.0, runs_program=True, decisions={kept: (100, 1000), marked: (5, 50)})
    after = Reading(here, 12.0, runs_program=True, decisions={kept: (4100, 41000), marked: (5, 50)})
    shown = list(lines(after, before))
    assert re.split(r"  +", shown[2].strip()) == ["a", "2", "critical", "2 000/s", "–", "–", "–", "–", "–"]
    found = document(after, before)
    assert found["interval_s"] == 2.0
    assert found["decisions_per_s"] == [
        {"port": "a", "class": 2, "level": "critical", "kept": {"packets": 2000, "bytes": 20000}}
    ]


def test_counters_that_began_anew_do_not_go_backwards() -> None:
    here = SwitchTarget("s", "h:1", {"a": 1})
    place = decisions_index(1, 0, 0, Decision.KEPT)
    before = Reading(here, 1.0, runs_program=True, decisions={place: (100, 1000)})
    after = Reading(here, 2.0, runs_program=True, decisions={place: (7, 70)})
    assert document(after, before)["decisions_per_s"][0]["kept"] == {"packets": 7, "bytes": 70}


def test_port_without_a_name_is_shown_by_number() -> None:
    lost = 9 << 3 | Arrival.MALFORMED
    reading = Reading(
        SwitchTarget("s", "h:1", {"a": 1}),
        runs_program=True,
        decisions={9 << 10: (1, 1)},
        arrivals={lost: (2, 2)},
    )
    assert "\n  9 " in "\n".join(lines(reading))
    assert list(lines(reading))[-1] == "  not to an output queue: malformed 2"


def test_all_counters_are_asked_for_at_once_where_there_are_many_ports(server: P4RuntimeServer) -> None:
    server.process(frame(8, 2), 2)
    many = {f"p{n}": n for n in range(ASK_PORTS + 1)}
    (reading,) = read(SwitchTarget("s1", server.address, many, device_id=server.device_id))
    assert [row["port"] for row in document(reading)["decisions"]] == ["p1"]


def test_levels_have_names() -> None:
    assert [level_name(level) for level in (0, 7, 8, 9)] == [
        "importance 0+",
        "importance 224+",
        "critical",
        "foreign",
    ]


# --- who and what ---------------------------------------------------------------------------------------------


def test_controller_is_named_and_not_disturbed(server: P4RuntimeServer) -> None:
    somebody = server.occupy(44)
    writes = server.writes
    (reading,) = read(place(server))
    assert "controller 44 is primary" in next(lines(reading))
    assert somebody.is_primary
    assert len(somebody.heard) == 1
    assert server.writes == writes


def test_switch_that_runs_nothing_or_something_else_is_said(server: P4RuntimeServer) -> None:
    with P4RuntimeServer(device_id=1) as fresh:
        one, two = read(place(fresh), place(server, "s2"))
    assert list(lines(one)) == [f"s1 ({fresh.address}): runs nothing yet, cookie {0:#018x}; no controller"]
    assert not one.runs_program
    assert two.runs_program


def test_switch_that_does_not_answer_is_a_line_and_the_others_are_shown(
    server: P4RuntimeServer, tmp_path: Path, capsys: Printed
) -> None:
    with P4RuntimeServer(device_id=1) as other:
        path = tmp_path / "t.toml"
        path.write_text(topology_text(server, other))
        other.stop()
        assert main(["switch", "status", "--target", str(path), "--timeout", "2"]) == 1
        shown = capsys.readouterr().out
        assert f"s1 ({server.address}): v1model" in shown
        assert f"NO ANSWER: s2 ({other.address}) cannot be reached" in shown
        assert main(["switch", "status", "--target", str(path), "--json", "--timeout", "2"]) == 1
        switches = json.loads(capsys.readouterr().out)["switches"]
        assert switches[0]["error"] is None
        assert "cannot be reached" in switches[1]["error"]


def test_monitor_finds_a_switch_again_that_comes_back(server: P4RuntimeServer) -> None:
    monitor = Monitor([place(server)], 5.0)
    try:
        assert not monitor.read()[0].error
        server.stop()
        assert "cannot be reached" in monitor.read()[0].error
        server.start()
        assert not monitor.read()[0].error
    finally:
        monitor.close()


def test_status_of_all_is_0(server: P4RuntimeServer, tmp_path: Path, capsys: Printed) -> None:
    path = tmp_path / "t.toml"
    path.write_text(topology_text(server))
    assert main(["switch", "status", "--target", str(path)]) == 0
    assert "nothing was counted" in capsys.readouterr().out


def test_watch_shows_rates_until_it_is_interrupted(server: P4RuntimeServer, tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(topology_text(server))
    words = ["status", "--target", str(path), "--watch", "0.1", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dlcp", "switch", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())["switches"][0]
        assert "decisions_per_s" not in first
        server.process(frame(8, 2), 2)
        for _ in range(100):
            reading = json.loads(process.stdout.readline())["switches"][0]
            assert reading["interval_s"] > 0
            if reading["decisions_per_s"]:
                break
        assert reading["decisions_per_s"][0]["level"] == "critical"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=100)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    assert err == ""


@pytest.mark.parametrize("text", ["0", "x", "nan", "1e9"])
def test_interval_out_of_range_is_one_line(text: str, tmp_path: Path, capsys: Printed) -> None:
    OLD.save(tmp_path / "p.toml")
    with pytest.raises(SystemExit) as end:
        main(["switch", "status", "--target", "x", "--watch", text])
    assert end.value.code == 2
    assert "accepted: a number from 0.1 to 3600" in capsys.readouterr().err
