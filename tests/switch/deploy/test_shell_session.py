"""Deployment by p4runtime-shell, for real: its processes, under its own Python, against the same servers.

What transactions do is tested in test_transaction.py; here is what the shell adds: processes that end, hang or do not
start, and errors that end the process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("finsy", reason="needs the packages of the extra p4")

from dlcp.cli import main
from dlcp.switch import SwitchTarget, programs
from dlcp.switch.deploy.errors import (
    DeployError,
    OtherPipelineError,
    OtherPrimaryError,
    ShellError,
    SwitchRefusedError,
    SwitchTimeoutError,
    UnreachableError,
)
from dlcp.switch.deploy.session import Session
from dlcp.switch.deploy.shell_session import ShellSession
from dlcp.switch.deploy.transaction import DesiredState, Settings, compare, deploy
from dlcp.switch.programs import Decision, decisions_index
from tests.support.deployment import NEW, PIPELINE, desired, open_session, state, topology_text
from tests.support.p4runtime import P4RuntimeServer
from tests.support.shell_environment import shell_python
from tests.switch.deploy.test_transaction import foreign_config, occupied

PLAIN = Settings(undo_s=10.0)
GRACE_S = 0.2
HANG_S = 6.0  # of a switch that hangs once; before that it has to answer, on a busy machine too
SILENCE_S = 1.0  # of one that never answers
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def python() -> Path:
    return shell_python()


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that hangs is not given the second that it has otherwise."""
    monkeypatch.setattr("dlcp.switch.deploy.shell_session.GRACE_S", GRACE_S)


@pytest.fixture
def by_shell(python: Path) -> Callable[[SwitchTarget], Session]:
    return lambda place: ShellSession(place, python, PATIENCE_S)


@pytest.fixture
def server() -> Iterator[P4RuntimeServer]:
    """A switch that holds the old policy."""
    with P4RuntimeServer(device_id=2**33) as one:
        deploy([desired(one)], open_session, PLAIN)
        yield one


def shell_processes() -> list[int]:
    """Processes of ours that run the shell's program."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may end meanwhile
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"shell_program.py" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


# --- what goes well -------------------------------------------------------------------------------------------


def test_shell_writes_what_grpc_writes(
    server: P4RuntimeServer, by_shell: Callable[[SwitchTarget], Session]
) -> None:
    before = state(server)
    deploy([desired(server, new=True)], by_shell, PLAIN)
    assert state(server) != before
    assert not compare([desired(server, new=True)], open_session)[0].changes
    writes = server.writes
    deploy([desired(server, new=True)], by_shell, PLAIN)
    assert server.writes == writes
    with P4RuntimeServer(device_id=2) as one, P4RuntimeServer(device_id=2) as other:
        deploy([desired(one, new=True)], by_shell, PLAIN)
        deploy([desired(other, new=True)], open_session, PLAIN)
        assert state(one) == state(other)
    assert shell_processes() == []


def test_shell_reads_counters(server: P4RuntimeServer, by_shell: Callable[[SwitchTarget], Session]) -> None:
    server.process(bytes.fromhex("02000000000a 020000000099 0806") + bytes(46), 2)
    session = by_shell(desired(server).target)
    try:
        place = decisions_index(1, 0, programs.FOREIGN_LEVEL, Decision.KEPT)
        assert session.counters(PIPELINE.schema, "decisions", [place, place + 1]) == {place: (1, 60)}
    finally:
        session.close()


def test_command_deploys_by_the_shell(server: P4RuntimeServer, python: Path, tmp_path: Path) -> None:
    NEW.save(tmp_path / "p.toml")
    (tmp_path / "t.toml").write_text(topology_text(server))
    words = ["switch", "deploy", str(tmp_path / "p.toml"), "--target", str(tmp_path / "t.toml")]
    assert main([*words, "--via", "shell", "--shell-python", str(python)]) == 0
    writes = server.writes
    assert main(words) == 0
    assert server.writes == writes


# --- what goes wrong at the switch ----------------------------------------------------------------------------


def test_refused_update_changes_nothing(
    server: P4RuntimeServer, by_shell: Callable[[SwitchTarget], Session]
) -> None:
    before = state(server)
    server.faults.fail_update(12, message="no room")
    with pytest.raises(SwitchRefusedError, match=r"s1 .*asked to (insert|modify|delete) .*INTERNAL: no room"):
        deploy([desired(server, new=True)], by_shell, PLAIN)
    assert state(server) == before


def test_lost_connection_changes_nothing(
    server: P4RuntimeServer, by_shell: Callable[[SwitchTarget], Session]
) -> None:
    before = state(server)
    server.faults.drop_at_update(10)
    with pytest.raises(DeployError, match="s1"):
        deploy([desired(server, new=True)], by_shell, PLAIN)
    assert state(server) == before


def test_switch_that_hangs_is_not_waited_for(
    server: P4RuntimeServer, python: Path, short_grace: None
) -> None:
    before = state(server)
    server.faults.hang_at_update(6)

    def release() -> None:
        assert server.faults.hanging.wait(60)
        time.sleep(HANG_S + GRACE_S + 0.2)
        server.faults.release()

    releaser = threading.Thread(target=release)
    releaser.start()
    with pytest.raises(SwitchTimeoutError, match=f"does not answer within {HANG_S:g} s, asked to"):
        deploy([desired(server, new=True)], lambda place: ShellSession(place, python, HANG_S), PLAIN)
    releaser.join()
    assert state(server) == before
    assert shell_processes() == []


def test_other_primary_is_left_alone_and_taken_over_when_told_to(
    server: P4RuntimeServer, by_shell: Callable[[SwitchTarget], Session]
) -> None:
    somebody = server.occupy(2**90)
    before = state(server)
    with pytest.raises(OtherPrimaryError, match=f"with election id {2**90}; nothing is taken from it"):
        deploy([desired(server, new=True)], by_shell, PLAIN)
    assert state(server) == before
    assert somebody.is_primary
    deploy([desired(server, new=True)], by_shell, Settings(take_over=True))
    assert not somebody.is_primary


def test_other_pipeline_is_refused_and_comes_back(
    server: P4RuntimeServer, by_shell: Callable[[SwitchTarget], Session]
) -> None:
    occupied(server)
    before = state(server)
    with pytest.raises(OtherPipelineError, match="somebody.p4 7"):
        deploy([desired(server)], by_shell, PLAIN)
    server.faults.fail_update(8)
    with pytest.raises(SwitchRefusedError):
        deploy([desired(server, new=True)], by_shell, Settings(replace_pipeline=True))
    assert state(server) == before
    server.hold(foreign_config())
    deploy([desired(server)], by_shell, Settings(replace_pipeline=True))
    assert not compare([desired(server)], open_session)[0].changes


def test_stream_of_an_earlier_session_is_waited_for(
    server: P4RuntimeServer,
    by_shell: Callable[[SwitchTarget], Session],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    earlier = server.occupy(0)
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: earlier.leave())
    monkeypatch.setattr("dlcp.switch.deploy.session.time", clock)
    with contextlib.closing(by_shell(desired(server).target)) as session:
        assert session.pipeline() is not None


def test_nothing_listens_there(by_shell: Callable[[SwitchTarget], Session]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        far = DesiredState.of(SwitchTarget("far", address, {"a": 1}), PIPELINE, [])
        with pytest.raises(
            UnreachableError, match=f"far \\({address}\\) cannot be reached when asked who is primary"
        ):
            deploy([far], by_shell, PLAIN)


def test_who_says_nothing_is_given_up_in_time(python: Path, short_grace: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = SwitchTarget("far", f"127.0.0.1:{silent.getsockname()[1]}", {"a": 1})
        with pytest.raises(SwitchTimeoutError, match=f"does not answer within {SILENCE_S:g} s"):
            deploy(
                [DesiredState.of(place, PIPELINE, [])],
                lambda place: ShellSession(place, python, SILENCE_S),
                PLAIN,
            )


def test_fresh_switch_without_a_pipeline_is_no_error(by_shell: Callable[[SwitchTarget], Session]) -> None:
    # The shell's own set-up ends the process here: "Error when retrieving P4Info".
    with P4RuntimeServer(device_id=1) as fresh:
        (seen,) = compare([desired(fresh)], by_shell)
        assert seen.holds.name == "none"


# --- what goes wrong with the process -------------------------------------------------------------------------


def test_python_without_the_shell_is_named_with_what_to_do(server: P4RuntimeServer) -> None:
    with pytest.raises(ShellError, match=r"has no p4runtime-shell .*-m pip install p4runtime-shell==0.0.6"):
        deploy([desired(server)], lambda place: ShellSession(place, Path(sys.executable), 5.0), PLAIN)


def test_program_that_is_no_python_is_named(server: P4RuntimeServer, tmp_path: Path) -> None:
    nothing = tmp_path / "python"
    nothing.write_text("#!/no/such/interpreter\n")
    nothing.chmod(0o755)
    with pytest.raises(ShellError, match="cannot be started: No such file"):
        deploy([desired(server)], lambda place: ShellSession(place, nothing, 5.0), PLAIN)
    with pytest.raises(ShellError, match=r"p4runtime-shell ended with status 1"):
        deploy([desired(server)], lambda place: ShellSession(place, Path("/bin/false"), 5.0), PLAIN)


def test_program_that_says_something_else_is_named(server: P4RuntimeServer) -> None:
    with pytest.raises(ShellError, match=r"/bin/echo is no Python with p4runtime-shell: it says '-I "):
        deploy([desired(server)], lambda place: ShellSession(place, Path("/bin/echo"), 5.0), PLAIN)


def test_process_that_does_not_read_is_given_up_in_time(python: Path, short_grace: None) -> None:
    """What is sent to it is more than a pipe takes: without a bound the write itself would wait for ever."""
    session = ShellSession(SwitchTarget("far", "127.0.0.1:1", {"a": 1}), python, PATIENCE_S)
    try:
        session._start()
        session.timeout_s = 0.2
        assert session._process is not None
        os.kill(session._process.pid, signal.SIGSTOP)
        with pytest.raises(ShellError, match="ended with status -9"):
            session.set_pipeline(PIPELINE)
    finally:
        session.close()


def test_process_that_is_killed_in_the_middle_changes_nothing(
    server: P4RuntimeServer, by_shell: Callable[[SwitchTarget], Session]
) -> None:
    before = state(server)
    server.faults.hang_at_update(9)

    def kill() -> None:
        assert server.faults.hanging.wait(60)
        for process in shell_processes():
            os.kill(process, signal.SIGKILL)
        server.faults.release()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(ShellError, match="p4runtime-shell ended with status -9"):
        deploy([desired(server, new=True)], by_shell, PLAIN)
    killer.join()
    assert state(server) == before


def test_update_that_breaks_the_shell_is_an_error_and_not_its_end(
    server: P4RuntimeServer, by_shell: Callable[[SwitchTarget], Session]
) -> None:
    session = by_shell(desired(server).target)
    assert isinstance(session, ShellSession)
    session.become_primary()
    try:
        with pytest.raises(SwitchRefusedError, match="DecodeError"):
            session._ask("written to", "write", update="AAAA")
        with pytest.raises(SwitchRefusedError, match="TypeError"):
            session._ask("written to", "write", entry="AAAA")
        assert session.read(PIPELINE.schema), "the process is still there"
    finally:
        session.close()
