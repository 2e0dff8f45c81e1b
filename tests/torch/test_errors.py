"""Wrong calls, which raise before anything is sent, and failures, which every rank hears of with names and numbers."""

from __future__ import annotations

import inspect
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp import errors
from tests.torch import ranks

# A timeout in tests of timeouts; the group's own where another one is to end a call is ranks.GROUP_TIMEOUT_S.
SHORT_S = 1.0


def default_store() -> dist.Store:
    store = dist.PrefixStore("test", dist.distributed_c10d._get_default_store())
    store.set_timeout(timedelta(seconds=ranks.GROUP_TIMEOUT_S))
    return store


def raised(kind: type[Exception], call: Callable[[], Any]) -> Any:
    """What the call raised."""
    with pytest.raises(kind) as caught:
        call()
    return caught.value


def refuses(kind: type[Exception], words: str, call: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=words):
        call()


# --- wrong calls --------------------------------------------------------------------------------------------


def wrong_calls() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    one = torch.ones(4)
    group = dist.group.WORLD
    expanded = torch.ones(1).expand(4)
    refuses(ValueError, "share memory", lambda: dist.all_reduce(expanded))
    refuses(ValueError, "share memory", lambda: dist.broadcast(torch.ones(6).unfold(0, 3, 1), 1 - rank))
    refuses(TypeError, "dtype is torch.uint16", lambda: dist.all_reduce(torch.ones(4, dtype=torch.uint16)))
    refuses(TypeError, "float8", lambda: dist.all_reduce(one.to(torch.float8_e5m2)))
    refuses(ValueError, "BAND of torch.float32", lambda: dist.all_reduce(one, dist.ReduceOp.BAND))
    refuses(ValueError, "MAX", lambda: dist.all_reduce(one.to(torch.complex64), dist.ReduceOp.MAX))
    refuses(
        ValueError,
        "MAX of torch.complex64",
        lambda: dist.reduce(one.to(torch.complex64), 0, dist.ReduceOp.MAX),
    )
    refuses(ValueError, "layout", lambda: dist.broadcast(torch.eye(3).to_sparse(), 0))
    refuses(ValueError, "meta", lambda: dist.all_reduce(torch.ones(3, device="meta")))
    refuses(ValueError, "root is 9", lambda: dist.broadcast(one, group_src=9))
    refuses(ValueError, "destination is -1", lambda: group.send([one], -1, 0))
    refuses(ValueError, "tag is -3", lambda: dist.isend(one, 1 - rank, tag=-3))
    refuses(ValueError, "outputs holds 1", lambda: dist.all_gather([one], one))
    refuses(ValueError, "accepted: 5", lambda: dist.all_gather([torch.ones(5), torch.ones(5)], one))
    refuses(ValueError, f"accepted: {4 * size}", lambda: dist.all_gather_single(torch.empty(7), one))
    refuses(TypeError, "dtype", lambda: dist.all_gather_single(torch.empty(4 * size, dtype=torch.int32), one))
    refuses(ValueError, f"accepted: {4 * size}", lambda: dist.reduce_scatter_single(one, torch.ones(5)))
    refuses(ValueError, "3 rows", lambda: dist.all_to_all_single(torch.empty(3), torch.empty(3)))
    refuses(ValueError, "a sum of 4", lambda: dist.all_to_all_single(one, one.clone(), [1, 1], [1, 1]))
    refuses(ValueError, "split sizes", lambda: dist.all_to_all_single(one, one.clone(), [4], [4]))
    refuses(TypeError, "pg_options is a int", lambda: dist.new_group(pg_options=7))
    # Nothing of all that was sent: the group works.
    dist.all_reduce(one)
    assert torch.equal(one, torch.full((4,), float(size)))


def test_wrong_calls_are_refused_before_anything_is_sent() -> None:
    ranks.run(wrong_calls)


# --- ranks that call different things -----------------------------------------------------------------------


def mismatch(what: str) -> str:
    rank = dist.get_rank()
    one = torch.ones(8)
    calls: dict[str, Callable[[], Any]] = {
        "size": lambda: dist.all_reduce(torch.ones(8 + rank)),
        "dtype": lambda: dist.all_reduce(torch.ones(8, dtype=[torch.float32, torch.int32][rank])),
        "dtype_moved": lambda: dist.broadcast(torch.ones(8, dtype=[torch.float32, torch.int32][rank]), 0),
        "kind": lambda: [dist.all_reduce, lambda tensor: dist.broadcast(tensor, 0)][rank](one),
        "root": lambda: dist.broadcast(one, rank),
        "op": lambda: dist.all_reduce(one, [dist.ReduceOp.SUM, dist.ReduceOp.MAX][rank]),
        "shape": lambda: dist.all_reduce(torch.ones([(2, 4), (4, 2)][rank])),
        "shapes_gathered": lambda: dist.all_gather(
            [torch.ones([(2, 4), (4, 2)][rank]) for _ in range(2)], torch.ones([(2, 4), (4, 2)][rank])
        ),
        "complex": lambda: dist.all_reduce([torch.ones(16), torch.ones(8, dtype=torch.complex64)][rank]),
        "complex_scattered": lambda: dist.reduce_scatter_tensor(
            [torch.ones(8), torch.ones(4, dtype=torch.complex64)][rank],
            [torch.ones(16), torch.ones(8, dtype=torch.complex64)][rank],
        ),
    }

    def call_and_barrier() -> None:
        # A rank that only sends may be done before anybody can tell it.
        calls[what]()
        dist.barrier()

    error = raised(errors.CollectiveError, call_and_barrier)
    assert isinstance(error, dist.DistBackendError)
    # Whatever comes next on this group says that it has failed, and of what.
    with pytest.raises(errors.CollectiveError):
        dist.barrier()
    return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(
    "what",
    [
        "size",
        "dtype",
        "dtype_moved",
        "kind",
        "root",
        "op",
        "shape",
        "shapes_gathered",
        "complex",
        "complex_scattered",
    ],
)
def test_mismatch_is_named(what: str) -> None:
    environment = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"} if what.startswith("shape") else {}
    for text in ranks.run(mismatch, what=what, environment=environment):
        assert "MismatchError" in text
        assert "rank 0" in text
        assert "rank 1" in text


def message_of_another_length() -> str:
    # The receive comes first: a message that nobody has asked for yet is kept, and its send is over.
    rank = dist.get_rank()
    work = dist.irecv(torch.empty(5), 0) if rank == 1 else None
    dist.barrier()
    work = work or dist.isend(torch.ones(100_000), 1)
    error = raised(errors.MismatchError, work.wait)
    dist.barrier()
    return str(error)


def test_message_of_another_length_is_named_and_the_group_goes_on() -> None:
    for text in ranks.run(message_of_another_length):
        assert "bytes" in text


# --- time ---------------------------------------------------------------------------------------------------


def timeout(level: str) -> tuple[str, float]:
    rank = dist.get_rank()
    dist.all_reduce(torch.ones(1))
    start_s = time.monotonic()
    if rank == 1:
        default_store().wait(["rank 0 has raised"])
        return "", 0.0
    if level == "set_timeout":
        dist.group.WORLD.set_timeout(timedelta(seconds=SHORT_S))
    calls: dict[str, Callable[[], Any]] = {
        "group": lambda: dist.all_reduce(torch.ones(1000)),
        "call": lambda: dist.barrier(timeout=timedelta(seconds=SHORT_S)),
        "set_timeout": lambda: dist.broadcast(torch.ones(1), 1),
    }
    error = raised(errors.CollectiveTimeoutError, calls[level])
    waited_s = time.monotonic() - start_s
    default_store().set("rank 0 has raised", "")
    return str(error), waited_s


def timeout_of_group() -> tuple[str, float]:
    dist.init_process_group("dlcp", timeout=timedelta(seconds=SHORT_S))
    return timeout("group")


def late(results: list[tuple[str, float]]) -> None:
    text, waited_s = results[0]
    assert SHORT_S * 0.9 <= waited_s < ranks.GROUP_TIMEOUT_S
    assert "rank 1" in text


@pytest.mark.parametrize("level", ["call", "set_timeout"])
def test_timeout_names_the_late_rank(level: str) -> None:
    if level == "call" and "timeout" not in inspect.signature(dist.barrier).parameters:
        pytest.skip("before torch 2.12 no call of torch.distributed takes a timeout")
    late(ranks.run(timeout, level=level))


def test_timeout_of_the_group_names_the_late_rank() -> None:
    late(ranks.run(timeout_of_group, backend=None))


def own_timeout_of_wait() -> None:
    rank = dist.get_rank()
    if rank == 0:
        tensor = torch.ones(3)
        work = dist.all_reduce(tensor, async_op=True)
        with pytest.raises(errors.WaitTimeoutError):
            work.wait(timedelta(milliseconds=50))
        dist.send(torch.ones(1), 1)
        # It went on all the same.
        work.wait()
        assert torch.equal(tensor, torch.full((3,), 2.0))
    else:
        dist.recv(torch.ones(1), 0)
        dist.all_reduce(torch.ones(3))


def test_timeout_of_a_wait_leaves_the_work_under_way() -> None:
    ranks.run(own_timeout_of_wait)


def own_timeout_of_a_message_to_itself() -> None:
    received = torch.zeros(3)
    work = dist.irecv(received, dist.get_rank())
    with pytest.raises(errors.WaitTimeoutError, match=r"is not over after 0\.\d s \(timeout\)"):
        work.wait(timedelta(milliseconds=50))
    dist.isend(torch.ones(3), dist.get_rank())
    work.wait()
    assert torch.equal(received, torch.ones(3))


def test_timeout_of_a_message_to_itself_leaves_it_under_way() -> None:
    ranks.run(own_timeout_of_a_message_to_itself, 1)


def monitored() -> str:
    import dlcp.torch

    dist.barrier()
    rank, store = dist.get_rank(), default_store()
    if rank in (1, 3):
        store.wait(["rank 0 has raised", "rank 2 has raised"])
        return ""
    barrier = dlcp.torch.monitored_barrier
    error = raised(errors.CollectiveTimeoutError, lambda: barrier(timeout=SHORT_S, wait_all_ranks=True))
    store.set(f"rank {rank} has raised", "")
    return str(error)


def test_monitored_barrier_names_the_missing_ranks_everywhere() -> None:
    results = ranks.run(monitored, 4)
    assert "[1, 3]" in results[0]
    assert "(timeout" in results[0]
    assert "[1, 3]" in results[2]


# --- ranks that go ------------------------------------------------------------------------------------------


def dead_peer(how: str) -> None:
    rank = dist.get_rank()
    dist.barrier()
    if rank == 1:
        # Not before the barrier is over on the other rank too.
        dist.recv(torch.empty(1), 0)
        if how == "exit":
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.isend(torch.ones(1), 1)
    start_s = time.monotonic()

    def several() -> None:
        works = [dist.all_reduce(torch.ones(100_000), async_op=True) for _ in range(3)]
        for work in works:
            work.wait()

    error = raised(errors.CollectiveError, several)
    assert "rank 1" in str(error)
    assert time.monotonic() - start_s < ranks.GROUP_TIMEOUT_S


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_dead_peer_is_named(how: str) -> None:
    only_the_dead(dead_peer, how=how)


def died_between_calls() -> None:
    dist.barrier()
    if dist.get_rank() == 1:
        dist.recv(torch.empty(1), 0)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.send(torch.ones(1), 1)
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    runtime = group.communicator.job.endpoint.runtime
    while runtime.established(1):
        time.sleep(0.001)
    # Its channel has said so, while nothing was under way.
    error = raised(errors.PeerFailedError, lambda: dist.all_reduce(torch.ones(4)))
    assert "ended without leaving the group" in str(error)
    raised(errors.GroupFailedError, lambda: dist.recv(torch.ones(1), 1))


def test_a_rank_that_died_between_calls_is_named() -> None:
    only_the_dead(died_between_calls)


def only_the_dead(function: Callable[..., Any], **arguments: Any) -> None:
    """Runs it on two ranks of which number 1 dies on purpose; number 0 has nothing to complain of."""
    with pytest.raises(ranks.RanksError) as caught:
        ranks.run(function, environment={"DLCP_PEER_TIMEOUT_S": "2"}, **arguments)
    text = str(caught.value)
    assert "--- rank 0 ---" not in text, text


def dead_peer_in_backward() -> None:
    model = DistributedDataParallel(nn.Linear(10, 10))
    loss = model(torch.ones(2, 10)).sum()
    if dist.get_rank() == 1:
        os._exit(0)
    # C++ keeps the text of an error, not its class.
    error = raised(RuntimeError, loss.backward)
    assert "PeerFailedError" in str(error)
    assert "rank 1" in str(error)


def test_backward_raises_what_the_collective_failed_of() -> None:
    only_the_dead(dead_peer_in_backward)


# --- giving up ----------------------------------------------------------------------------------------------


def abort() -> str:
    import threading

    rank = dist.get_rank()
    dist.barrier()
    if rank == 0:
        threading.Timer(0.5, dist.group.WORLD.abort).start()
    with pytest.raises(errors.CollectiveAbortedError) as caught:
        # Nobody else comes: rank 1 waits for another one.
        dist.recv(torch.ones(1), 1 - rank)
    with pytest.raises((errors.CollectiveError, errors.ClosedError)):
        dist.all_reduce(torch.ones(1))
    return str(caught.value)


def test_abort_wakes_waiters_on_every_rank() -> None:
    assert all("abort" in text for text in ranks.run(abort))


def exceptions_of_futures() -> None:
    """An error is the same wherever one looks."""
    work = dist.all_reduce(torch.ones(4 + dist.get_rank()), async_op=True)
    future = work.get_future()
    after = future.then(lambda done: done.value()[0] * 2)
    with pytest.raises(errors.MismatchError):
        future.wait()
    with pytest.raises(errors.MismatchError):
        after.wait()
    with pytest.raises(errors.MismatchError):
        work.wait()
    assert work.is_completed()
    assert not work.is_success()
    assert isinstance(work.exception(), errors.MismatchError)


def test_futures_carry_the_error() -> None:
    ranks.run(exceptions_of_futures)


# --- what this backend does not do --------------------------------------------------------------------------


def refused() -> None:
    scalar = torch.ones(())
    with pytest.raises(ValueError, match="has no dimension to split; accepted: one dimension or more"):
        dist.all_to_all_single(torch.empty(()), scalar)
    with pytest.raises(NotImplementedError, match="accepted: init_process_group with all ranks"):
        dist.group.WORLD.merge_remote_group(None, 4)  # type: ignore[union-attr]


def test_what_would_do_nothing_is_refused() -> None:
    ranks.run(refused)
