"""The backend "dlcp" of torchcomms: what its communicators do, and what it makes of torchcomms' arguments."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dlcp import errors
from dlcp.torch.torchcomms_arguments import HINTS, rank_and_size, read_hints, reduce_op
from tests.torch import ranks

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def torchcomms() -> Any:
    return pytest.importorskip("torchcomms", reason="torchcomms is not installed")


# --- communicators ------------------------------------------------------------------------------------------


def communicator(name: str = "main", **options: Any) -> Any:
    import torchcomms

    return torchcomms.new_comm("dlcp", CPU, name=name, timeout=timedelta(seconds=45), **options)


def row(rank: int) -> torch.Tensor:
    return torch.arange(1.0, 5.0) * (rank + 1)


def rows(count: int = 2) -> torch.Tensor:
    return torch.stack([row(rank) for rank in range(count)])


def every_reduction(is_async: bool) -> None:
    from torchcomms import ReduceOp

    comm = communicator(hints={"dlcp.async": str(is_async).lower()})
    rank, both = comm.get_rank(), rows()
    expected = {
        ReduceOp.SUM: both.sum(0),
        ReduceOp.AVG: both.mean(0),
        ReduceOp.PRODUCT: both.prod(0),
        ReduceOp.MIN: both.min(0).values,
        ReduceOp.MAX: both.max(0).values,
    }
    for op, result in expected.items():
        comm.all_reduce(tensor := row(rank), op, is_async).wait()
        assert torch.equal(tensor, result)
    whole = both.int()
    for op, function in (
        (ReduceOp.BAND, torch.bitwise_and),
        (ReduceOp.BOR, torch.bitwise_or),
        (ReduceOp.BXOR, torch.bitwise_xor),
    ):
        comm.all_reduce(bits := row(rank).int(), op, is_async).wait()
        assert torch.equal(bits, function(whole[0], whole[1]))
    with pytest.raises(errors.ArgumentError, match="op is PREMUL_SUM"):
        comm.all_reduce(row(rank), ReduceOp.PREMUL_SUM(2.0), is_async)
    comm.reduce(tensor := row(rank), 1, ReduceOp.SUM, is_async).wait()
    assert torch.equal(tensor, both.sum(0) if rank == 1 else row(0))
    share, summed = torch.zeros(4), both.sum(0) * (rank + 1)
    comm.reduce_scatter(share, [row(rank), 2 * row(rank)], ReduceOp.SUM, is_async).wait()
    assert torch.equal(share, summed)
    comm.reduce_scatter_single(
        share.zero_(), torch.cat([row(rank), 2 * row(rank)]), ReduceOp.SUM, is_async
    ).wait()
    assert torch.equal(share, summed)
    uneven = torch.zeros(1 + rank)
    comm.reduce_scatter_v(
        uneven, [row(rank)[:1].clone(), row(rank)[:2].clone()], ReduceOp.SUM, is_async
    ).wait()
    assert torch.equal(uneven, both.sum(0)[: 1 + rank])
    comm.finalize()


def every_move(is_async: bool) -> None:
    comm = communicator(hints={"dlcp.async": str(is_async).lower()})
    rank, both = comm.get_rank(), rows()
    comm.broadcast(tensor := row(rank), 1, is_async).wait()
    assert torch.equal(tensor, row(1))
    gathered = [torch.zeros(4), torch.zeros(4)]
    comm.all_gather(gathered, row(rank), is_async).wait()
    assert torch.equal(torch.stack(gathered), both)
    uneven = [torch.zeros(1), torch.zeros(2)]
    comm.all_gather_v(uneven, row(rank)[: 1 + rank].clone(), is_async).wait()
    assert torch.equal(uneven[0], row(0)[:1])
    assert torch.equal(uneven[1], row(1)[:2])
    comm.all_gather_single(flat := torch.zeros(8), row(rank), is_async).wait()
    assert torch.equal(flat, both.flatten())
    swapped = torch.cat([row(other) * (rank + 1) for other in range(2)])
    comm.all_to_all_single(flat.zero_(), torch.cat([row(rank), 2 * row(rank)]), is_async).wait()
    assert torch.equal(flat, swapped)
    parts = [torch.zeros(4), torch.zeros(4)]
    comm.all_to_all(parts, [row(rank), 2 * row(rank)], is_async).wait()
    assert torch.equal(torch.cat(parts), swapped)
    # One row for rank 0, two for rank 1, and rows that nobody gets.
    source = torch.cat([row(rank)[:3], torch.full((1,), -1.0)])
    target = torch.full((5,), 7.0)
    comm.all_to_all_v_single(target, source, [rank + 1] * 2, [1, 2], is_async).wait()
    pieces = [row(other)[:1] if rank == 0 else row(other)[1:3] for other in range(2)]
    assert torch.equal(target[: 2 * (rank + 1)], torch.cat(pieces))
    assert (target[2 * (rank + 1) :] == 7.0).all()
    comm.scatter(tensor.zero_(), list(both) if rank == 0 else [], 0, is_async).wait()
    assert torch.equal(tensor, row(rank))
    comm.gather(parts if rank == 0 else [], row(rank), 0, is_async).wait()
    assert rank == 1 or torch.equal(torch.stack(parts), both)
    comm.gather_single(flat.zero_(), row(rank), 0, is_async).wait()
    assert rank == 1 or torch.equal(flat, both.flatten())
    works = [comm.send(row(rank), 1 - rank, is_async)] if is_async or rank == 0 else []
    comm.recv(tensor.zero_(), 1 - rank, is_async).wait()
    works += [] if works else [comm.send(row(rank), 0, is_async)]
    works[0].wait()
    assert torch.equal(tensor, row(1 - rank))
    comm.barrier(is_async).wait()
    comm.finalize()


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("operations", [every_reduction, every_move])
def test_operations(torchcomms: Any, operations: Any, is_async: bool) -> None:
    ranks.run(operations, backend=None, is_async=is_async)


def halves_and_again() -> None:
    import torchcomms

    sum_ = torchcomms.ReduceOp.SUM
    for _ in range(2):
        comm = communicator()
        assert (comm.get_backend(), comm.get_size()) == ("dlcp", 3)
        rank = comm.get_rank()
        mine = [2, 0] if rank != 1 else [1]
        for _ in range(2):
            half = comm.split(mine, "half", timeout=timedelta(seconds=45))
            assert (half.get_rank(), half.get_name()) == (mine.index(rank), f"half_{min(mine)}")
            half.all_reduce(tensor := row(rank), sum_, False)
            assert torch.equal(tensor, sum(row(other) for other in mine))
            half.finalize()
        assert comm.split([] if rank == 1 else [0, 2], "pair") is None or rank != 1
        for wrong in ([rank, rank], [(rank + 1) % 3], [rank, 3]):
            with pytest.raises(RuntimeError, match="ranks is"):
                comm.split(wrong, "wrong")
        comm.all_reduce(tensor := row(rank), sum_, False)
        assert torch.equal(tensor, rows(3).sum(0))
        comm.finalize()
        comm.finalize()
        assert (comm.get_rank(), comm.get_size()) == (rank, 3)
        with pytest.raises(errors.ClosedError, match="'main' is finalized"):
            comm.barrier(False)


@pytest.mark.parametrize("is_served", [True, False])
def test_split_and_the_same_name_again(torchcomms: Any, is_served: bool) -> None:
    # As under torchrun, whose agent serves the store; and without, where rank 0 does.
    environment = {}
    if not is_served:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        environment = {"TORCHELASTIC_USE_AGENT_STORE": "False", "MASTER_PORT": port}
    ranks.run(halves_and_again, 3, backend=None, environment=environment)


def timeouts_and_hints() -> None:
    import torchcomms

    rank = int(os.environ["RANK"])
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=False)
    if rank == 0:
        with pytest.raises(errors.StoreTimeoutError, match="rank 1"):
            torchcomms.new_comm(
                "dlcp", CPU, name="a", store=dist.PrefixStore("a", store), timeout=timedelta(seconds=0.3)
            )
    with pytest.raises(errors.ArgumentError, match=r"unknown hint 'dlcp.loss'.*dlcp.loss_budget"):
        communicator(hints={"dlcp.loss": "0.1"})
    for hints in ({"dlcp.precision": "int8", "hostname": "of another backend"}, {"dlcp.loss_budget": "0.05"}):
        comm = communicator("b", store=dist.PrefixStore("b", store), hints=hints)
        exact = torch.linspace(0, 1, 1000)
        comm.all_reduce(tensor := exact * (rank + 1), torchcomms.ReduceOp.AVG, True).wait()
        error = (tensor - 1.5 * exact).abs().max()
        assert 0 < error < 0.02 if "dlcp.precision" in hints else error < 1e-6
        comm.reduce_scatter_single(tensor := torch.zeros(500), exact, torchcomms.ReduceOp.SUM, False)
        assert (tensor - 2 * exact[500 * rank :][:500]).abs().max() < 0.03
        if "dlcp.precision" in hints:
            comm.finalize()
    comm.set_timeout(timedelta(seconds=0.3))
    if rank == 0:
        with pytest.raises(errors.CollectiveTimeoutError):
            comm.barrier(False)
        store.set("over", "")
    store.wait(["over"])
    comm.finalize()


def test_timeouts_and_hints(torchcomms: Any) -> None:
    ranks.run(timeouts_and_hints, backend=None)


def under_torch_distributed() -> None:
    torch.distributed.config.use_torchcomms = True
    dist.init_process_group("dlcp", timeout=timedelta(seconds=45))
    rank = dist.get_rank()
    # A future that nobody waits for by its work, as DDP's reducer does.
    work = dist.all_reduce(tensor := row(rank), async_op=True)
    assert torch.equal(work.get_future().wait()[0], rows().sum(0))
    assert torch.equal(tensor, rows().sum(0))
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    model(torch.full((1, 2), float(rank))).sum().backward()
    assert torch.equal(model.module.weight.grad, torch.full((1, 2), 0.5))
    group = dist.new_group([0, 1])
    dist.all_reduce(tensor := row(rank), group=group)
    assert torch.equal(tensor, rows().sum(0))
    dist.destroy_process_group()
    # A communicator that is wrapped by hand: C++ lets go of the reducer's works without Python's lock.
    from torchcomms.device_mesh import init_device_mesh

    comm = communicator()
    mesh = init_device_mesh(mesh_dim_comms=(comm,), mesh_dim_names=("main",))
    model = DistributedDataParallel(torch.nn.Linear(2, 1), process_group=mesh.get_group("main"))
    model(torch.full((1, 2), float(rank))).sum().backward()
    assert torch.equal(model.module.weight.grad, torch.full((1, 2), 0.5))
    comm.finalize()


def test_under_torch_distributed(torchcomms: Any) -> None:
    if not hasattr(torch.distributed.config, "use_torchcomms"):
        pytest.skip("torch.distributed takes torchcomms from 2.13 on")
    ranks.run(under_torch_distributed, backend=None)


# --- arguments, without torchcomms --------------------------------------------------------------------------


def test_hints() -> None:
    options, precision, is_async = read_hints({"persistent_store": "true"})
    assert (options.traffic_class, options.gradients, precision, is_async) == (None, None, None, False)
    hints = {"dlcp.class": "2", "dlcp.algorithm": "ring", "dlcp.precision": "int8", "dlcp.async": "true"}
    options, precision, is_async = read_hints(hints)
    assert (options.traffic_class, options.algorithms["all_reduce"]) == (2, "ring")
    assert (precision, is_async) == ("int8", True)
    gradients = read_hints({"dlcp.loss_budget": "0.1", "dlcp.patience_s": "auto"})[0].gradients
    assert (gradients.loss_budget, gradients.patience_s) == (0.1, "auto")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("hints", "said"),
    [
        ({"dlcp.budget": "0.1"}, f"accepted: dlcp.{', dlcp.'.join(HINTS)}"),
        ({"dlcp.async": "yes"}, "dlcp.async is 'yes'; accepted: true, false"),
        ({"dlcp.class": "7"}, "dlcp.class is '7'; accepted: an integer from 0 to 6"),
        ({"dlcp.loss_budget": "much"}, "dlcp.loss_budget is 'much'; accepted: a number"),
        ({"dlcp.loss_budget": "1"}, "loss_budget is 1.0"),
        ({"dlcp.precision": "int7"}, "dlcp.precision is 'int7'"),
        (
            {"dlcp.precision": "int8", "dlcp.patience_s": "1"},
            "dlcp.precision and dlcp.patience_s are both given",
        ),
    ],
)
def test_hints_that_are_refused(hints: dict[str, str], said: str) -> None:
    with pytest.raises(errors.ArgumentError) as refused:
        read_hints(hints)
    assert said in str(refused.value)


def test_rank_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHCOMM", "OMPI_COMM_WORLD", "PMI"):
        monkeypatch.delenv(f"{name}_RANK", raising=False)
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(errors.ArgumentError, match="rank and size are not in the environment"):
        rank_and_size()
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert rank_and_size() == (1, 2)
    monkeypatch.setenv("TORCHCOMM_RANK", "3")
    monkeypatch.setenv("TORCHCOMM_SIZE", "4")
    assert rank_and_size() == (3, 4)


def test_reduction_that_is_not_there() -> None:
    class Op:
        class type:  # noqa: A001, N801
            name = "MEDIAN"

    with pytest.raises(errors.ArgumentError, match="op of all_reduce is 'MEDIAN'; accepted: SUM"):
        reduce_op(Op, "all_reduce")
