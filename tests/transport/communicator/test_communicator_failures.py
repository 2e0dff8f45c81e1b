"""What goes wrong between ranks, and what each of them is told: who, what, where, and what to look at.

No test measures time; where an operation is to time out, its time is short and the test waits for the error.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlcp import errors
from dlcp.transport.communicator import Communicator, DataType, Reduction, Span
from dlcp.transport.job import Job
from dlcp.transport.store import FileStore
from tests.support.ranks import PATIENCE_S, World

F32 = DataType.f32
# Elements of what does not leave as a copy: its sender has to wait for the receiver.
LONG = 100_000


@pytest.fixture
def pair() -> Iterator[World]:
    with World(2) as world:
        yield world


def memory(count: int = 1000) -> Span:
    return Span.of(np.zeros(count, np.float32))


def error_of(call: Callable[[], Any]) -> errors.DlcpError | None:
    """What a call, or the operation that it starts, fails of."""
    try:
        call().wait(PATIENCE_S)
    except errors.DlcpError as error:
        return error
    return None


def outcomes(world: World, groups: list[Communicator], *calls: Callable[[Communicator], Any]) -> list[Any]:
    """What each rank's call fails of, all at once."""
    return world.each(groups, lambda group: error_of(lambda: calls[group.rank](group)))


# --- calls that do not go together --------------------------------------------------------------------------


def test_different_operations_are_found_and_both_are_named(pair: World) -> None:
    groups = pair.open()
    pair.each(groups, lambda group: group.barrier().wait(PATIENCE_S))
    for rank, error in enumerate(
        outcomes(
            pair,
            groups,
            lambda group: group.all_reduce(memory(4096), F32, label="gradients"),
            lambda group: group.all_gather(memory(8192), memory(4096)),
        )
    ):
        assert isinstance(error, errors.MismatchError), error
        text = str(error)
        other = 1 - rank
        assert f"rank {other} at {pair.jobs[other].card.place}" in text
        assert f"process {os.getpid()}" in text
        assert "operation 1 of the group" in text
        words = ["all_reduce(f32, 4096 elements, sum)", "all_gather(16384 bytes per rank)"]
        assert f"this rank called {words[rank]}" in text
        assert f"called {words[other]}" in text
        assert ("[gradients]" in text) == (rank == 0)
        assert (error.operation, error.sequence, error.group) == (
            ["all_reduce", "all_gather"][rank],
            1,
            groups[0].name,
        )


@pytest.mark.parametrize(
    "calls",
    [
        (lambda g: g.all_reduce(memory(), F32), lambda g: g.all_reduce(memory(), DataType.i32)),
        (lambda g: g.all_reduce(memory(), F32), lambda g: g.all_reduce(memory(), F32, Reduction.MAX)),
        # Calls whose terms have one CRC-32 in its low 12 bits.
        (
            lambda g: g.all_reduce(memory(936), DataType.i32, algorithm="one_shot"),
            lambda g: g.all_reduce(memory(936), DataType.f64, algorithm="one_shot"),
        ),
        (
            lambda g: g.all_reduce(memory(700), DataType.f64, algorithm="one_shot"),
            lambda g: g.all_reduce(memory(700), DataType.f64, Reduction.PRODUCT, algorithm="one_shot"),
        ),
        (lambda g: g.all_reduce(memory(), F32), lambda g: g.all_reduce(memory(1001), F32)),
        (
            lambda g: g.all_reduce(memory(), F32, algorithm="ring"),
            lambda g: g.all_reduce(memory(), F32, algorithm="direct"),
        ),
        (lambda g: g.broadcast(memory(LONG), 0), lambda g: g.broadcast(memory(LONG), 1)),
        (
            lambda g: g.broadcast(memory(LONG), 0, agree="f32"),
            lambda g: g.broadcast(memory(LONG), 0, agree="i32"),
        ),
        (
            lambda g: g.all_gather([memory(1), memory(3)], memory(1)),
            lambda g: g.all_gather([memory(2), memory(2)], memory(2)),
        ),
        (lambda g: g.barrier(), lambda g: g.all_reduce(memory(), F32)),
    ],
    ids=[
        "type",
        "reduction",
        "type, equal hash",
        "reduction, equal hash",
        "size",
        "algorithm",
        "root",
        "agree",
        "parts",
        "kind",
    ],
)
def test_mismatch_is_found_on_both_ranks(
    pair: World, calls: tuple[Callable[[Communicator], Any], ...]
) -> None:
    """By its own operation, or, if that only sends and has left already, by the next."""
    groups = pair.open()
    for rank, error in enumerate(outcomes(pair, groups, *calls)):
        error = error or error_of(groups[rank].barrier)
        assert isinstance(error, errors.MismatchError), error
        assert "as operation 0 of the group" in str(error)


def test_size_that_only_two_ranks_know_is_found(pair: World) -> None:
    error, _ = outcomes(
        pair,
        pair.open(timeout_s=2.0),
        lambda g: g.gather([memory(10), memory(20)], memory(10), 0),
        lambda g: g.gather(None, memory(21), 0),
    )
    assert isinstance(error, errors.MismatchError), error
    assert "84 bytes" in str(error)
    assert "80" in str(error)


def test_memory_that_is_only_read_stays_as_it_was(pair: World) -> None:
    source = np.ones(2000, np.float32)
    outcomes(
        pair,
        pair.open(),
        lambda g: g.reduce_scatter(memory(), Span.of(source), F32),
        lambda g: g.all_to_all(memory(2000), memory(2000)),
    )
    assert (source == 1).all()


# --- ranks that do not come ---------------------------------------------------------------------------------


def test_timeout_names_the_rank_that_did_not_come() -> None:
    with World(3) as world:
        groups = world.open(timeout_s=0.1)
        world.each(groups, lambda group: group.barrier(timeout_s=PATIENCE_S).wait(PATIENCE_S))
        found = world.each(
            groups[:2], lambda group: error_of(lambda: group.all_reduce(memory(), F32, algorithm="direct"))
        )
        absent = world.jobs[2].card.place
        for rank, error in enumerate(found):
            assert isinstance(error, errors.CollectiveTimeoutError), error
            assert isinstance(error, TimeoutError)
            text = str(error)
            assert f"rank 2 at {absent}" in text
            assert f"on rank {rank} at {world.jobs[rank].card.place}" in text
            assert error.culprit == 2
            assert error.sequence == 1
            assert "py-spy dump --pid" in text
        # At least one of the two saw it with its own eyes.
        assert any("bytes have not come from it" in str(error) for error in found)
        # The one that comes too late learns of it.
        late = error_of(lambda: groups[2].all_reduce(memory(), F32, algorithm="direct"))
        assert isinstance(late, errors.CollectiveError), late
        assert groups[2].failed is not None


def test_addresses_are_known_before_the_store_is_gone() -> None:
    with World(4) as world:
        groups = world.open()
        world.each(groups, lambda group: group.all_reduce(memory(), F32, algorithm="ring").wait(PATIENCE_S))
        # The first member leaves its card before any other can open the group.
        assert all(job.known_card(0) is not None for job in world.jobs)


def test_timeout_says_what_the_others_say_they_called(pair: World) -> None:
    """Rank 1 waits for something else meanwhile, so it has an account to give."""
    groups = pair.open(timeout_s=0.3)
    first, second = pair.each(
        groups,
        lambda group: error_of(
            lambda: group.broadcast(memory(), 1 - group.rank) if group.rank == 0 else _after_skipping(group)
        ),
    )
    for error in (first, second):
        assert isinstance(error, errors.CollectiveError), error


def _after_skipping(group: Communicator) -> Any:
    group.reserve(1)  # as a rank does that left out one call
    return group.broadcast(memory(), 0)


def test_time_of_one_call_is_its_own(pair: World) -> None:
    groups = pair.open()
    error = error_of(lambda: groups[0].all_reduce(memory(), F32, timeout_s=0.05))
    assert isinstance(error, errors.CollectiveTimeoutError)
    assert re.search(r"was not over after 0\.\d+ s", str(error))


def test_rank_that_closes_early_is_named(pair: World) -> None:
    groups = pair.open()
    pair.each(groups, lambda group: group.barrier().wait(PATIENCE_S))
    work = groups[0].all_reduce(memory(100_000), F32)
    address = pair.jobs[1].card.place
    pair.jobs[1].close()
    with pytest.raises(
        errors.PeerFailedError, match=f"rank 1 at {address} .* has closed its endpoint"
    ) as caught:
        work.wait(PATIENCE_S)
    assert caught.value.culprit == 1


RANK_1 = """
    import sys
    import numpy as np
    from dlcp.transport.communicator import DataType, Span
    from dlcp.transport.job import Job
    from dlcp.transport.store import FileStore
    settings = dict(peer_timeout_s=0.5, timeout_s=60, flight_recorder_entries=0, shm=sys.argv[2] == "True")
    job = Job(FileStore(sys.argv[1]), 1, 2, **settings)
    group = job.open_communicator("all")
    group.barrier().wait()
    print("ready", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("shm", [False, True], ids=["network", "shm"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_process_that_dies_is_named(tmp_path: Path, how: signal.Signals, shm: bool) -> None:
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", textwrap.dedent(RANK_1), str(tmp_path), str(shm)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        with Job(
            FileStore(tmp_path),
            0,
            2,
            peer_timeout_s=0.5,
            timeout_s=PATIENCE_S,
            flight_recorder_entries=0,
            shm=shm,
        ) as job:
            group = job.open_communicator("all")
            group.barrier().wait(PATIENCE_S)
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            child.send_signal(how)
            error = error_of(lambda: group.all_reduce(memory(100_000), F32, timeout_s=5.0))
            assert isinstance(error, errors.PeerFailedError | errors.CollectiveTimeoutError), error
            assert error.culprit == 1
            text = str(error)
            assert f"rank 1 at {job.card_of(1).place} " in text
            if shm and f"process {child.pid})'s process ended" in text:
                # The other end of shared memory knows that the process is gone; there is no network to look at. A
                # session that came about over the network before the memory was there does not know it.
                assert how is signal.SIGKILL
                return
            assert f"process {child.pid} on host" in text
            assert "dlcp doctor" in text
            assert "(lo)" in text
    finally:
        child.kill()
        child.communicate()


# --- groups that have failed --------------------------------------------------------------------------------


def test_failed_group_takes_no_calls_and_says_why(pair: World) -> None:
    groups = pair.open()
    first = error_of(lambda: groups[0].barrier(timeout_s=0.05))
    assert groups[0].failed is first
    for call in (lambda: groups[0].barrier(), lambda: groups[0].send(memory(), 1)):
        with pytest.raises(
            errors.GroupFailedError, match="failed before.* The first failure: barrier"
        ) as caught:
            call()
        assert caught.value.culprit == 1
    with pytest.raises(errors.GroupFailedError):
        groups[0].all_reduce(memory(), F32, factor=2.0)
    assert "failed" in repr(groups[0])


def test_memory_is_not_scaled_by_a_call_that_a_failed_group_refuses(pair: World) -> None:
    groups = pair.open()
    data = np.ones(10, np.float32)
    pair.each(groups, lambda group: group.all_reduce(Span.of(data.copy()), F32, factor=2.0).wait(PATIENCE_S))
    error_of(lambda: groups[0].barrier(timeout_s=0.05))
    with pytest.raises(errors.GroupFailedError):
        groups[0].all_reduce(Span.of(data), F32, factor=2.0)
    assert data.tolist() == [1.0] * 10


def test_everything_under_way_fails_with_the_group(pair: World) -> None:
    groups = pair.open()
    works = [groups[0].all_reduce(memory(), F32) for _ in range(5)]
    last = groups[0].barrier(timeout_s=0.05)
    found = [error_of(lambda work=work: work) for work in [*works, last]]
    assert all(isinstance(error, errors.CollectiveTimeoutError) for error in found)
    assert [error.sequence for error in found if isinstance(error, errors.CollectiveError)] == list(range(6))
    assert found[0] is works[0].exception()
    assert "operation 5 of the group failed first" in str(found[0]) or "operation 5 was not over" in str(
        found[0]
    )


def test_other_groups_go_on(pair: World) -> None:
    failing, well = pair.open(), pair.open()
    error_of(lambda: failing[0].barrier(timeout_s=0.05))
    pair.each(well, lambda group: group.barrier().wait(PATIENCE_S))
    assert well[0].failed is None


def test_first_call_after_a_failure_that_nobody_has_seen_fails_of_it(pair: World) -> None:
    groups = pair.open()
    pair.each(groups, lambda group: group.barrier().wait(PATIENCE_S))
    unseen = groups[1].receive(memory(), 0)
    groups[0].abort("enough")
    while not unseen.done():
        pair.jobs[1].endpoint.progress(0.01)
    assert groups[1].failed is None
    with pytest.raises(
        errors.CollectiveAbortedError, match=r"barrier\(\), operation 1 .*rank 0 .* aborted the group"
    ):
        groups[1].barrier().wait(PATIENCE_S)
    with pytest.raises(errors.GroupFailedError, match="rank 0 .* aborted the group"):
        groups[1].barrier()


def test_failed_group_leaves_a_trace_and_names_it(tmp_path: Path) -> None:
    with World(2, flight_recorder_entries=16, flight_recorder_dir=str(tmp_path)) as world:
        groups = world.open()
        error = error_of(lambda: groups[0].barrier(timeout_s=0.05))
        assert str(tmp_path / "rank_0") in str(error)
        assert (tmp_path / "rank_0").is_file()


# --- abort and close ----------------------------------------------------------------------------------------


def test_abort_wakes_waiters_here_and_there(pair: World) -> None:
    groups = pair.open()
    pair.each(groups, lambda group: group.barrier().wait(PATIENCE_S))
    # Each waits for the other: neither can end.
    works = [groups[0].receive(memory(), 1), groups[1].all_reduce(memory(), F32)]

    def one(rank: int) -> errors.DlcpError | None:
        if rank == 0:
            groups[0].abort("the user pressed a button")
        return error_of(lambda: works[rank])

    own, other = pair.run(one)
    assert isinstance(own, errors.CollectiveAbortedError)
    assert "given up by this rank: the user pressed a button" in str(own)
    assert isinstance(other, errors.CollectiveAbortedError)
    assert other.culprit == 0
    assert re.search(r"rank 0 at .* aborted the group", str(other))
    for group in groups:
        with pytest.raises(errors.GroupFailedError, match="aborted"):
            group.barrier()


def test_a_sum_that_its_call_waits_for_fails_as_others_do(pair: World) -> None:
    """Its error has its own number, whichever operation of the group failed first."""
    groups = pair.open()

    def one(group: Communicator) -> errors.CollectiveError | None:
        data = memory()
        group.run_sum(*data, F32, data)
        if group.rank == 1:
            group.abort("enough")
            return None
        first = group.all_reduce(memory(), F32)
        with pytest.raises(errors.CollectiveError) as raised:
            group.run_sum(*data, F32, data)
        failed = first.exception()
        assert failed is not None
        assert failed.sequence == 1
        return raised.value

    error, _ = pair.each(groups, one)
    assert isinstance(error, errors.CollectiveAbortedError)
    assert error.sequence == 2
    assert "operation 2" in str(error)
    with pytest.raises(errors.GroupFailedError, match="aborted"):
        groups[0].run_sum(*(data := memory()), F32, data)


def test_a_sum_that_its_call_waits_for_has_the_groups_time(pair: World) -> None:
    groups = pair.open()
    pair.each(groups, lambda group: group.run_sum(*(data := memory()), F32, data))
    groups[0].timeout_s = 0.05
    with pytest.raises(errors.CollectiveTimeoutError, match=r"was not over after 0\.\d+ s"):
        groups[0].run_sum(*(data := memory()), F32, data)


def test_close_gives_up_what_cannot_end(pair: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcp.transport.membership._CLOSE_S", 0.05)
    groups = pair.open()
    pair.each(groups, lambda group: group.barrier().wait(PATIENCE_S))
    works = [groups[0].all_reduce(memory(), F32), groups[1].receive(memory(), 0)]
    groups[0].close()
    for work in works:
        assert isinstance(error_of(lambda work=work: work), errors.CollectiveAbortedError)


def test_closing_the_job_wakes_waiters(pair: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcp.transport.membership._CLOSE_S", 0.05)
    groups = pair.open()
    work = groups[0].barrier()

    def one(rank: int) -> errors.DlcpError | None:
        if rank == 1:
            pair.jobs[0].close()
            return None
        return error_of(lambda: work)

    error, _ = pair.run(one)
    assert isinstance(error, errors.DlcpError)


# --- processes ----------------------------------------------------------------------------------------------


def run(script: str, *arguments: str, sends: signal.Signals | None = None) -> tuple[int, str, str]:
    # From Python 3.12 on who forks a process with threads is warned.
    child = subprocess.Popen(
        [sys.executable, "-P", "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if sends is not None:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        child.send_signal(sends)
    out, err = child.communicate(timeout=PATIENCE_S)
    return child.returncode, out, err


START = """
    import os, signal, sys, threading
    import numpy as np
    from concurrent.futures import ThreadPoolExecutor
    from dlcp.transport.communicator import DataType, Span
    from dlcp.transport.job import Job
    from dlcp.transport.store import MemoryStore
    store = MemoryStore()
    with ThreadPoolExecutor(2) as pool:
        jobs = list(pool.map(lambda rank: Job(store, rank, 2, flight_recorder_entries=0), range(2)))
        groups = list(pool.map(lambda job: job.open_communicator("all"), jobs))
"""


def test_ctrl_c_ends_a_wait_and_the_process() -> None:
    script = (
        START
        + """
    work = groups[0].barrier()
    try:
        print("waiting", flush=True)
        work.wait()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    """
    )
    code, out, err = run(script, sends=signal.SIGINT)
    assert (code, out, err) == (0, "interrupted\n", "")


def test_process_ends_with_operations_under_way_and_waited_for() -> None:
    script = (
        START
        + """
    works = [groups[0].all_reduce(Span.of(np.zeros(100_000, np.float32)), DataType.f32) for _ in range(10)]
    works[0].add_done_callback(lambda work: None)
    def wait():
        try:
            works[0].wait()
        except Exception:
            pass
    threading.Thread(target=wait, daemon=True).start()
    print("over", flush=True)
    """
    )
    code, out, err = run(script)
    assert (code, out, err) == (0, "over\n", "")


def test_forked_child_leaves_groups_alone() -> None:
    script = (
        START
        + """
    from dlcp.errors import DlcpError
    if (pid := os.fork()) == 0:
        try:
            groups[0].barrier()
        except DlcpError as error:
            groups[0].close()
            jobs[0].close()
            sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    works = [group.barrier() for group in groups]
    for work in works:
        work.wait(60)
    """
    )
    code, out, err = run(script)
    assert (code, out, err) == (0, "7\n", "")


def test_ranks_as_processes_agree(tmp_path: Path) -> None:
    script = """
        import sys
        import numpy as np
        from dlcp.transport.communicator import DataType, Span
        from dlcp.transport.job import Job
        from dlcp.transport.store import FileStore
        rank = int(sys.argv[2])
        with Job(FileStore(sys.argv[1]), rank, 3, timeout_s=60) as job:
            group = job.open_communicator("all")
            data = np.full(100_001, rank + 1, np.float32)
            for _ in range(5):
                group.all_reduce(Span.of(data), DataType.f32).wait()
                data /= 6
            print(data.sum())
    """
    children = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", textwrap.dedent(script), str(tmp_path), str(rank)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    results = [child.communicate(timeout=PATIENCE_S) for child in children]
    assert [child.returncode for child in children] == [0, 0, 0], results
    assert len({out for out, _ in results}) == 1
    assert {err for _, err in results} == {""}
