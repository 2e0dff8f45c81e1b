"""Jobs brought onto a switch by the deployment of policies, over real gRPC, and what the switch then does."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("finsy", reason="P4Runtime needs finsy: pip install '.[p4]'")

from dlcp.cli import main
from dlcp.errors import SettingsError
from dlcp.switch import BridgeEntry, SwitchTarget, Topology, programs
from dlcp.switch.aggregation.deployment import wanted_jobs
from dlcp.switch.aggregation.entries import MAX_JOBS, JobRequest
from dlcp.switch.deploy.grpc_session import GrpcSession
from dlcp.switch.deploy.pipeline import Pipeline
from dlcp.switch.deploy.transaction import MAX_MULTICAST_GROUP, DesiredState, Settings, deploy
from dlcp.switch.entries import MulticastGroup
from tests.support.aggregation_packet import UDP_PORT, Kind, Packet, decode, participant, udp_frame
from tests.support.p4runtime import P4RuntimeServer

PIPELINE = Pipeline.of(programs.load("aggregation"))
PORTS = {"h1": 1, "h2": 2, "h3": 3, "uplink": 8}


def target(address: str = "127.0.0.1:1", name: str = "rack") -> SwitchTarget:
    bridge = (BridgeEntry("02:00:00:00:00:99", "uplink"),)
    return SwitchTarget(name, address, PORTS, device_id=1, bridge=bridge)


def request(generation: int = 1) -> JobRequest:
    return JobRequest(7, (participant(1), participant(2)), participant(3), slots=16, generation=generation)


@pytest.fixture(name="server")
def fixture_server() -> Iterator[P4RuntimeServer]:
    with P4RuntimeServer(1) as server:
        yield server


def bring(server: P4RuntimeServer, *jobs: JobRequest) -> None:
    order = DesiredState.of(target(server.address), PIPELINE, wanted_jobs(target(server.address), jobs))
    deploy([order], lambda place: GrpcSession(place, 20.0), Settings())


def contribute(
    server: P4RuntimeServer, worker: int, message: int, generation: int
) -> list[tuple[int, bytes]]:
    values = np.arange(32, dtype=np.int32) * (worker + 1)
    packet = Packet(Kind.CONTRIBUTION, 7, message, 0, worker, slot=0, generation=generation, values=values)
    place = request().workers[worker]
    return server.process(udp_frame(place, request().hub, packet.encode()), place.port)


def test_jobs_are_deployed_and_aggregated(server: P4RuntimeServer) -> None:
    bring(server, request())
    assert contribute(server, 0, 1, 1) == []
    results = contribute(server, 1, 1, 1)
    assert [port for port, _ in results] == [1, 2]
    for _, raw in results:
        result = decode(raw[42:])
        assert (result.kind, result.bitmap, result.count) == (Kind.RESULT, 3, 2)
        assert result.values.tolist() == [3 * lane for lane in range(32)]


def test_deploying_twice_writes_once(server: P4RuntimeServer) -> None:
    bring(server, request())
    before = server.writes, server.pushes
    bring(server, request())
    assert (server.writes, server.pushes) == before


def test_new_generation_replaces_the_old_one(server: P4RuntimeServer) -> None:
    bring(server, request())
    assert contribute(server, 0, 9, 1) == []
    bring(server, request(generation=2))
    assert [port for port, _ in contribute(server, 1, 9, 1)] == [3], "to the hub"
    assert contribute(server, 0, 1, 2) == []
    assert [port for port, _ in contribute(server, 1, 1, 2)] == [1, 2]
    bring(server)
    # No job left: nothing is taken in, and the bridge does not know the hub any more.
    assert [port for port, _ in contribute(server, 0, 2, 2)] == [2, 3, 8]


def test_jobs_groups_lie_behind_those_of_all_ports(server: P4RuntimeServer) -> None:
    """As many groups as there can be: they are read back, and found the second time."""
    place = replace(target(server.address), ports={f"h{n}": n for n in range(64)}, bridge=())
    jobs = [JobRequest(n, (participant(1), participant(2)), participant(3), slots=2) for n in range(MAX_JOBS)]
    order = DesiredState.of(place, PIPELINE, wanted_jobs(place, jobs))
    assert max(e.group_id for e in order.entries if isinstance(e, MulticastGroup)) == MAX_MULTICAST_GROUP
    for _ in range(2):
        (seen,) = deploy([order], lambda place: GrpcSession(place, 20.0), Settings())
    assert not seen.changes


def test_other_traffic_goes_where_the_topology_says(server: P4RuntimeServer) -> None:
    bring(server, request())
    frame = bytes.fromhex("020000000099") + bytes(6) + b"\x88\xb5" + bytes(46)
    assert server.process(frame, 1) == [(8, frame)]
    everybody = b"\xff" * 6 + frame[6:]
    assert sorted(server.process(everybody, 2)) == [(1, everybody), (3, everybody), (8, everybody)]


JOBS = """
[[job]]
switch = "rack"
job = 7
slots = 16
hub = {port = "h3", mac = "02:00:00:00:00:03", ip = "10.0.0.3", udp_port = 23701}

[[job.worker]]
port = "h1"
mac = "02:00:00:00:00:01"
ip = "10.0.0.1"
udp_port = 23701

[[job.worker]]
port = "h2"
mac = "02:00:00:00:00:02"
ip = "10.0.0.2"
udp_port = 23701
"""


@pytest.fixture(name="files")
def fixture_files(server: P4RuntimeServer, tmp_path: Path) -> list[str]:
    """The words of a command: jobs and topology."""
    Topology((target(server.address), target("127.0.0.1:1", "idle"))).save(tmp_path / "topology.toml")
    (tmp_path / "jobs.toml").write_text(JOBS)
    return [str(tmp_path / "jobs.toml"), "--target", str(tmp_path / "topology.toml")]


def test_commands(server: P4RuntimeServer, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["switch", "jobs", "status", *files]) == 1
    assert capsys.readouterr().out == "rack: runs nothing\n"
    assert main(["switch", "jobs", "deploy", *files, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "participant" in shown
    assert "pipeline aggregation, where nothing ran" in shown
    assert server.writes == 0
    assert main(["switch", "jobs", "deploy", *files]) == 0
    assert "1 switch holds its jobs, read back and verified" in capsys.readouterr().out
    assert contribute(server, 0, 1, 1) == []
    assert len(contribute(server, 1, 1, 1)) == 2
    contribute(server, 1, 2, 5)
    assert main(["switch", "jobs", "status", *files]) == 0
    assert capsys.readouterr().out == "rack: of no job: foreign 1\nrack: job 7: added 1, completed 1\n"


def test_job_file_is_written_from_the_topology(
    server: P4RuntimeServer, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two hosts of two ranks, the second first: `write` prints what is deployed, and sums reach every rank's port."""
    macs = [f"02:00:00:00:00:0{port}" for port in (1, 2, 3)]
    hosts = [f"h2=10.0.0.2,{macs[1]}", f"h1=10.0.0.1,{macs[0]}"]
    words = ["--switch", "rack", "--hosts", *hosts, "--hub", f"h3=10.0.0.3,{macs[2]}", "--job", "7"]
    words += ["--slots", "16", "--ranks-per-host", "2", "--udp-port", str(UDP_PORT)]
    assert main(["switch", "jobs", "write", *files[1:], *words]) == 0
    text = capsys.readouterr().out
    setting = f"switch://10.0.0.3:{UDP_PORT}?job=7&slots=16&lanes=32"
    assert text.startswith(f"# On every rank: DLCP_AGGREGATION='{setting}'\n[[job]]\n")
    Path(files[0]).write_text(text)
    assert main(["switch", "jobs", "deploy", *files]) == 0
    writes = server.writes
    assert main(["switch", "jobs", "deploy", *files]) == 0
    assert server.writes == writes
    ranks = [participant(port, UDP_PORT + place) for port in (2, 1) for place in (0, 1)]

    def send(rank: int) -> list[tuple[int, int]]:
        packet = Packet(Kind.CONTRIBUTION, 7, 1, 0, rank, generation=1)
        out = server.process(udp_frame(ranks[rank], participant(3), packet.encode()), ranks[rank].port)
        return sorted((port, int.from_bytes(raw[36:38], "big")) for port, raw in out)

    assert [send(rank) for rank in range(3)] == [[], [], []]
    assert send(3) == sorted((rank.port, rank.udp_port) for rank in ranks)
    assert send(0) == [(2, UDP_PORT)]


def test_running_job_is_not_moved_to_other_slots(
    server: P4RuntimeServer, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A block that has a result in its old slot would get another one in the new one."""
    assert main(["switch", "jobs", "deploy", *files]) == 0
    other = JOBS.replace("job = 7", "job = 8").replace("23701", "23702")
    writes = server.writes
    Path(files[0]).write_text(other + JOBS)
    for words in (["--dry-run"], []):
        assert main(["switch", "jobs", "deploy", *files, *words]) == 2
        said = capsys.readouterr().err
        assert (
            "dlcp switch: rack: job 7 has generation 1 already, with base 0 in place of 16; accepted: its next"
            in said
        )
        assert server.writes == writes
    newer = "\ngeneration = 2\nslots"
    for text in (JOBS + other, other.replace("\nslots", newer) + JOBS.replace("\nslots", newer)):
        Path(files[0]).write_text(text)
        assert main(["switch", "jobs", "deploy", *files]) == 0


def test_interrupted_deployment_says_so_and_leaves_nothing(
    server: P4RuntimeServer,
    files: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    bring(server)
    server.faults.hang_at_update(3)

    def terminate() -> None:
        assert server.faults.hanging.wait(100)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
        server.faults.release()

    killer = threading.Thread(target=terminate)
    killer.start()
    assert main(["switch", "jobs", "deploy", *files]) == 130
    killer.join()
    assert "interrupted; every switch holds what it held before" in capsys.readouterr().err
    before = server.writes
    bring(server)
    assert server.writes == before


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (
            'switch = "rack"',
            'switch = "roof"',
            "job[0].switch is 'roof'; accepted: a switch of the",
        ),
        (
            'port = "h1"',
            'port = "h9"',
            "job[0].worker[0].port is 'h9'; accepted: a port of the switch: h1, h2",
        ),
        ('switch = "rack"', 'switch = ["rack"]', "job[0].switch is ['rack']; accepted: a switch of the"),
        ('port = "h1"', 'port = ["h1"]', "job[0].worker[0].port is ['h1']; accepted: a port of the switch"),
        ("slots = 16", 'slots = 16\n"\\n" = 1', "job[0].\\n is"),
        ("slots = 16", "slots = " + "9" * 5000, "no jobs: Exceeds the limit"),
        ("slots = 16", "slots = 0x" + "f" * 5000, "Exceeds the limit"),
        ("[[job]]", "[[jobs]]", "jobs is not known; accepted: job"),
        ("slots = 16", "slots = ", "not TOML"),
    ],
)
def test_jobs_file_that_is_wrong(
    server: P4RuntimeServer,
    files: list[str],
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    text: str,
) -> None:
    changed = JOBS.replace(old, new, 1)
    if new == "[[jobs]]":
        changed = changed.replace("[[job.", "[[jobs.")
    Path(files[0]).write_text(changed)
    assert main(["switch", "jobs", "deploy", *files]) == 2
    assert f"dlcp switch: {files[0]}: {text}" in capsys.readouterr().err
    assert server.pushes == 0


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (
            JobRequest(7, (participant(5),), participant(3)),
            "rack: job[0].worker[0].port is 5; accepted: a port of the switch: 1 (h1), 2 (h2), 3 (h3), 8 (uplink)",
        ),
        (
            JobRequest(7, (participant(1),), replace(participant(3), mac="02:00:00:00:00:01")),
            "rack: job[0].hub.mac is 02:00:00:00:00:01, which lies behind h1; accepted: one port",
        ),
    ],
)
def test_jobs_that_do_not_fit_the_switch(job: JobRequest, text: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(text)):
        wanted_jobs(target(), [job])
