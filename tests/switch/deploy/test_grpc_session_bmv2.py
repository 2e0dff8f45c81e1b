"""Deployment to BMv2 itself, where simple_switch_grpc is on PATH: what servers of the tests promise, a real one keeps.

No packets pass here, so it needs no interfaces and no root; tests/p4 has those.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("finsy", reason="needs the packages of the extra p4")

from dlcp.switch import SwitchTarget, programs
from dlcp.switch.deploy.errors import DeployError, OtherPipelineError, OtherPrimaryError, SwitchRefusedError
from dlcp.switch.deploy.grpc_session import GrpcSession
from dlcp.switch.deploy.pipeline import Pipeline, Schema
from dlcp.switch.deploy.session import Session
from dlcp.switch.deploy.shell_session import ShellSession
from dlcp.switch.deploy.status import Monitor
from dlcp.switch.deploy.transaction import DesiredState, Settings, compare, deploy
from dlcp.switch.deploy.update import Update
from dlcp.switch.entries import Exact, TableEntry, desired_entries
from tests.support.deployment import NEW, OLD, PIPELINE, open_session, target
from tests.support.ports import free_port
from tests.support.shell_environment import shell_python

EXECUTABLE = shutil.which("simple_switch_grpc")
pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="simple_switch_grpc is not on PATH")

PLAIN = Settings(undo_s=5.0)


def start(folder: Path, address: str) -> subprocess.Popen[bytes]:
    """One without a program and without ports."""
    words = [
        str(EXECUTABLE),
        "--no-p4",
        "--device-id",
        "1",
        "--thrift-port",
        str(free_port(socket.SOCK_STREAM)),
    ]
    words += ["--", "--grpc-server-addr", address, "--priority-queues", "8"]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, cwd=folder)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Two of them, by their addresses."""
    found = {}
    try:
        for number in range(2):
            address = f"unix:{tmp_path}/p4-{number}.sock"
            found[address] = start(tmp_path, address)
        for address in found:
            wait_for(address)
        yield found
    finally:
        for process in found.values():
            process.kill()
            process.wait()


@pytest.fixture
def addresses(processes: dict[str, subprocess.Popen[bytes]]) -> list[str]:
    """Where they serve."""
    return list(processes)


def wait_for(address: str) -> None:
    """Until it answers."""
    end = time.monotonic() + 20
    while True:
        session = GrpcSession(SwitchTarget("s", address, {"a": 1}, device_id=1), 2.0)
        try:
            session.primary()
            return
        except DeployError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        finally:
            session.close()


def desired_states(addresses: list[str], new: bool = False) -> list[DesiredState]:
    """What both are to hold."""
    places = [target(f"s{n}", address, 1, new) for n, address in enumerate(addresses, 1)]
    return [
        DesiredState.of(place, PIPELINE, desired_entries(NEW if new else OLD, place).entries)
        for place in places
    ]


def held(addresses: list[str]) -> list[tuple[bytes, int, frozenset[bytes]]]:
    """All that can be read of both."""
    found = []
    for address in addresses:
        session = GrpcSession(SwitchTarget("look", address, {"a": 1}, device_id=1), 5.0)
        try:
            pipeline = session.pipeline()
            assert pipeline is not None
            found.append((pipeline.device_config, pipeline.cookie, frozenset(session.read_all())))
        finally:
            session.close()
    return found


def test_both_take_a_policy_and_another_one_and_the_first_again(addresses: list[str]) -> None:
    deploy(desired_states(addresses), open_session, PLAIN)
    first = held(addresses)
    assert not any(seen.changes for seen in compare(desired_states(addresses), open_session))
    deploy(desired_states(addresses, new=True), open_session, PLAIN)
    assert held(addresses) != first
    deploy(desired_states(addresses), open_session, PLAIN)
    assert held(addresses) == first


def test_entry_that_bmv2_refuses_changes_nothing_on_either(addresses: list[str]) -> None:
    deploy(desired_states(addresses), open_session, PLAIN)
    before = held(addresses)
    one, two = desired_states(addresses, new=True)
    # One more than there is room for; our own check would find it, so it is passed by.
    macs = [
        TableEntry("router_mac", (("dst_mac", Exact(0x020000000100 + n)),), "to_router") for n in range(65)
    ]
    others = [e for e in two.entries if not (isinstance(e, TableEntry) and e.table == "router_mac")]
    full = DesiredState(two.target, PIPELINE, (*others, *macs))
    with pytest.raises(SwitchRefusedError, match=r"s2 .* refuses to insert router_mac "):
        deploy([one, full], open_session, PLAIN)
    assert held(addresses) == before


def test_other_pipeline_is_refused_then_replaced_and_comes_back(addresses: list[str]) -> None:
    other = Pipeline.of(programs.load("aggregation"))
    places = [one.target for one in desired_states(addresses)]
    deploy([DesiredState.of(place, other, []) for place in places], open_session, PLAIN)
    before = held(addresses)
    with pytest.raises(OtherPipelineError, match="runs another pipeline"):
        deploy(desired_states(addresses), open_session, PLAIN)
    one, two = desired_states(addresses)
    macs = [
        TableEntry("router_mac", (("dst_mac", Exact(0x020000000100 + n)),), "to_router") for n in range(65)
    ]
    full = DesiredState(two.target, PIPELINE, tuple(macs))
    with pytest.raises(SwitchRefusedError):
        deploy([one, full], open_session, Settings(replace_pipeline=True))
    assert held(addresses) == before
    deploy([one, two], open_session, Settings(replace_pipeline=True))
    assert not any(seen.changes for seen in compare([one, two], open_session))


def test_primary_is_left_alone_and_taken_over_when_told_to(addresses: list[str]) -> None:
    deploy(desired_states(addresses), open_session, PLAIN)
    somebody = GrpcSession(target("s1", addresses[0], 1), 5.0)
    try:
        assert somebody.become_primary() == 1
        before = held(addresses)
        with pytest.raises(OtherPrimaryError, match="with election id 1;"):
            deploy(desired_states(addresses, new=True), open_session, PLAIN)
        assert held(addresses) == before
        (first, second) = Monitor([o.target for o in desired_states(addresses)], 5.0).read()
        assert (first.primary, second.primary) == (1, None)
        deploy(desired_states(addresses, new=True), open_session, Settings(take_over=True))
    finally:
        somebody.close()
    assert not any(seen.changes for seen in compare(desired_states(addresses, new=True), open_session))


def test_switch_that_crashes_in_the_middle_and_comes_back_empty_gets_back_what_it_held(
    addresses: list[str], processes: dict[str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    deploy(desired_states(addresses), open_session, PLAIN)
    before = held(addresses)
    crashes = iter([True])

    class Crashing(GrpcSession):
        def write(self, updates: Sequence[Update], schema: Schema) -> None:
            super().write(updates[:5], schema)
            if next(crashes, False):
                processes[addresses[1]].kill()
                processes[addresses[1]].wait()
                processes[addresses[1]] = start(tmp_path, addresses[1])
            super().write(updates[5:], schema)

    def opener(place: SwitchTarget) -> Session:
        return Crashing(place, 5.0) if place.name == "s2" else open_session(place)

    with pytest.raises(DeployError, match="s2"):
        deploy(desired_states(addresses, new=True), opener, PLAIN)
    assert held(addresses) == before


def test_several_may_ask_at_once_who_is_primary(addresses: list[str]) -> None:
    place = target("s1", addresses[0], 1)
    deploy(desired_states(addresses), open_session, PLAIN)
    with ThreadPoolExecutor(8) as pool:
        readings = list(pool.map(lambda _: Monitor([place], 5.0).read()[0], range(24)))
    assert [reading.error for reading in readings] == [""] * 24
    assert {reading.primary for reading in readings} == {None}


def test_shell_writes_the_same(addresses: list[str]) -> None:
    python = shell_python()

    def by_shell(place: SwitchTarget) -> Session:
        return ShellSession(place, python, 5.0)

    deploy(desired_states(addresses, new=True), open_session, PLAIN)
    expected = held(addresses)
    deploy(desired_states(addresses), by_shell, PLAIN)
    assert held(addresses) != expected
    deploy(desired_states(addresses, new=True), by_shell, PLAIN)
    assert held(addresses) == expected
