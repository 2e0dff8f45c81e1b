"""Groups over time: made again, left open, in odd company, under torchrun; and how programs end."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dlcp import errors
from tests.torch import exit_soak, ranks

# --- making groups ------------------------------------------------------------------------------------------


def summed(group: dist.ProcessGroup | None = None) -> float:
    tensor = torch.ones(100)
    dist.all_reduce(tensor, group=group)
    return float(tensor[0])


def again() -> None:
    # On one store, as under torchrun: what the first left there is not the second's.
    for _ in range(3):
        dist.init_process_group("dlcp")
        group = dist.new_group([0, 1])
        assert summed() == summed(group) == 2.0
        dist.destroy_process_group()
    assert threading.active_count() <= 2 + callback_threads()


def callback_threads() -> int:
    return sum(thread.name.startswith("dlcp-callback") for thread in threading.enumerate())


def test_init_after_destroy() -> None:
    ranks.run(again, backend=None)


def beside_gloo() -> None:
    # The default group is Gloo's: a group of dlcp opens a job of its own.
    for members in ([0, 1, 2], [2, 0]):
        group = dist.new_group(members, backend="dlcp", sort_ranks=False)
        if dist.get_rank() in members:
            assert dist.get_backend(group) == "dlcp"
            assert summed(group) == len(members)
            dist.destroy_process_group(group)


def test_group_of_dlcp_in_a_world_of_gloo() -> None:
    ranks.run(beside_gloo, 3, backend="gloo")


def created() -> None:
    import dlcp.torch

    rank = int(os.environ["RANK"])
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=False)
    first = dlcp.torch.create(dist.PrefixStore("first", store), rank, 2, timedelta(seconds=45))
    # Ranks of its own, beside a group of other ranks.
    second = dlcp.torch.create(dist.PrefixStore("second", store), 1 - rank, 2, 45, name="second")
    assert first.communicator.timeout_s == second.communicator.timeout_s == 45
    assert summed(first) == summed(second) == 2.0
    first.broadcast([tensor := torch.full((3,), float(rank))], dist.BroadcastOptions()).wait()
    assert tensor[0] == 0.0
    second.broadcast([tensor := torch.full((3,), float(rank))], dist.BroadcastOptions()).wait()
    assert tensor[0] == 1.0
    # As torchft calls it.
    first.allreduce(
        [tensor := torch.full((3,), float(rank))], dist.ReduceOp.MAX, timedelta(seconds=45)
    ).wait()
    assert tensor[0] == 1.0
    model = DistributedDataParallel(torch.nn.Linear(2, 1), process_group=first)
    model(torch.full((1, 2), float(rank))).sum().backward()
    assert torch.equal(model.module.weight.grad, torch.full((1, 2), 0.5))
    first.shutdown()
    assert first.communicator.job.closed
    assert summed(second) == 2.0
    second.shutdown()
    with pytest.raises(errors.ArgumentError, match="timeout_s is 0"):
        dlcp.torch.create(store, rank, 2, 0)
    if rank == 0:
        with pytest.raises(errors.StoreTimeoutError, match="rank 1"):
            dlcp.torch.create(dist.PrefixStore("alone", store), rank, 2, timedelta(milliseconds=300))


def test_group_created_from_a_store() -> None:
    ranks.run(created, backend=None)


def dropped() -> None:
    import dlcp.torch

    rank = int(os.environ["RANK"])
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=False)
    group = dlcp.torch.create(store, rank, 2, ranks.GROUP_TIMEOUT_S)
    assert summed(group) == 2.0
    if rank == 0:
        with pytest.raises(errors.PeerFailedError, match="rank 1 .* has closed its endpoint"):
            summed(group)
        group.abort()
    else:
        endpoint = group.communicator.job.endpoint
        del group
        while not endpoint.closed:
            time.sleep(0.01)


def test_a_created_group_closes_with_its_last_reference() -> None:
    ranks.run(dropped, backend=None)


def created_again_and_again() -> None:
    import dlcp.torch

    rank = int(os.environ["RANK"])
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=False)
    held = []
    for number in range(21):
        group = dlcp.torch.create(dist.PrefixStore(str(number), store), rank, 2, ranks.GROUP_TIMEOUT_S)
        assert summed(group) == 2.0
        group.abort()
        gc.collect()
        held.append([len(list(Path(f"/proc/self/{kind}").iterdir())) for kind in ("fd", "task")])
    assert held[-1] == held[0], held


def test_aborted_groups_leave_no_file_and_no_thread() -> None:
    ranks.run(created_again_and_again, backend=None)


def mixed() -> None:
    assert summed() == 2.0
    dist.barrier()
    gathered: list[object] = [None, None]
    dist.all_gather_object(gathered, dist.get_rank())
    assert gathered == [0, 1]


@pytest.mark.parametrize("backend", ["cpu:dlcp,cuda:dlcp", "cpu:dlcp", "cuda:dlcp"])
def test_backend_by_device(backend: str) -> None:
    ranks.run(mixed, backend=backend)


@pytest.mark.skipif(torch.__version__ >= "2.14", reason="tests/torch/test_backend.py")
def test_backends_that_torch_would_drop_are_refused() -> None:
    for backend, other in (("cpu:gloo,cuda:dlcp", "gloo"), ("cpu:dlcp,cuda:gloo", "gloo")):
        with pytest.raises(ValueError, match=rf"the backend is .*torch would drop {other}; .*new_group\("):
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


def world_of_one() -> None:
    tensor = torch.arange(4.0)
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    outputs = [torch.empty(4)]
    dist.all_gather(outputs, tensor)
    assert torch.equal(outputs[0], torch.arange(4.0))
    dist.reduce_scatter(output := torch.empty(4), [tensor])
    assert torch.equal(output, tensor)
    dist.all_to_all_single(output, tensor)
    dist.barrier()
    assert dist.all_reduce(tensor, async_op=True).get_future().wait()[0] is tensor
    dist.isend(tensor, 0)
    dist.irecv(output, 0).wait()


def test_world_of_one() -> None:
    ranks.run(world_of_one, 1)


def shared_job() -> None:
    import dlcp.torch

    world = dist.group.WORLD
    plain = dist.new_group([0, 1])
    assert plain.communicator.job is world.communicator.job
    # Settings of its own need an endpoint of their own.
    other = dist.new_group([0, 1], pg_options=dlcp.torch.Options(max_datagram_bytes=1472))
    assert other.communicator.job is not world.communicator.job
    assert other.communicator.job.settings.max_datagram_bytes == 1472
    assert summed(plain) == summed(other) == 2.0
    dist.destroy_process_group(other)
    assert other.communicator.job.closed
    assert not world.communicator.job.closed
    with pytest.raises((errors.ClosedError, errors.CollectiveError)):
        other.barrier()


def test_subgroups_share_the_job() -> None:
    ranks.run(shared_job)


def options() -> None:
    import dlcp.torch

    for given in (
        dlcp.torch.Options(algorithm="ring", traffic_class=3, segmentation_offload=False),
        {"algorithm": "all_reduce=direct,broadcast=tree"},
    ):
        dist.init_process_group("dlcp", pg_options=given)
        assert summed() == 2.0
        dist.broadcast(torch.ones(3), 0)
        dist.destroy_process_group()
    with pytest.raises(errors.SettingsError, match="did you mean"):
        dlcp.torch.Options(interfacee="eth0")
    with pytest.raises(errors.TrafficClassError, match="0 to 6"):
        dlcp.torch.Options(traffic_class=7)
    with pytest.raises(errors.TrafficClassError, match="traffic_class is True; accepted"):
        dlcp.torch.Options(traffic_class=True)
    with pytest.raises(errors.ArgumentError, match="ring"):
        dlcp.torch.Options(algorithm="rings")
    with pytest.raises(errors.ArgumentError, match="settings is 5; accepted"):
        dlcp.torch.Options(settings=5)
    with pytest.raises(errors.ArgumentError, match="gradients is 'x'; accepted"):
        dlcp.torch.Options(gradients="x")


def test_options() -> None:
    ranks.run(options, backend=None)


def by_variables() -> int:
    assert summed() == 2.0
    return int(dist.group.WORLD.communicator.job.settings.max_datagram_bytes)


def test_variables_are_settings() -> None:
    environment = {"DLCP_MAX_DATAGRAM_BYTES": "1472", "DLCP_SHM": "0"}
    assert ranks.run(by_variables, environment=environment) == [1472, 1472]


def group_timeout() -> tuple[float, float]:
    dist.init_process_group("dlcp", timeout=timedelta(seconds=77))
    group = dist.new_group([0, 1], timeout=timedelta(seconds=33))
    found = dist.group.WORLD.communicator.timeout_s, group.communicator.timeout_s
    dist.destroy_process_group()
    return found


def test_timeout_of_each_group() -> None:
    assert ranks.run(group_timeout, backend=None) == [(77.0, 33.0)] * 2


def timeout_setting() -> float:
    return float(dist.group.WORLD.communicator.timeout_s)


def test_timeout_by_variable() -> None:
    assert ranks.run(timeout_setting, environment={"DLCP_TIMEOUT_S": "21"}) == [21.0, 21.0]


def detail() -> None:
    assert dist.get_debug_level() == dist.DebugLevel.DETAIL
    assert summed() == 2.0
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4)).sum().backward()
    outputs = [torch.empty(rank + 1) for rank in range(2)]
    dist.all_gather(outputs, torch.ones(dist.get_rank() + 1))


def test_distributed_debug_detail() -> None:
    ranks.run(detail, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})


# --- torchrun -----------------------------------------------------------------------------------------------

SCRIPT = """
    import os, torch, torch.distributed as dist
    import dlcp.torch
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dist.init_process_group("dlcp")
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    print(f"attempt {attempt}: rank {dist.get_rank()} has {tensor[0]:g}", flush=True)
    dist.barrier()
    if attempt == 0 and dist.get_rank() == 1:
        os._exit(3)
    dist.barrier()
    dist.destroy_process_group()
"""


def test_torchrun_starts_ranks_again(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    line = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "--max-restarts=1",
    ]
    done = subprocess.run(
        [*line, "--monitor-interval=0.1", str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=100,
        env=os.environ | {"OMP_NUM_THREADS": "1", "DLCP_PEER_TIMEOUT_S": "5", "PYTHONPATH": str(Path.cwd())},
    )
    assert done.returncode == 0, done.stderr
    for attempt in range(2):
        for rank in range(2):
            assert f"attempt {attempt}: rank {rank} has 2" in done.stdout


# --- the end ------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_programs_end_cleanly() -> None:
    """Each way of ending once, two at a time: one waits. `python -m tests.torch.exit_soak --runs 200` is for more."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.torch.exit_soak",
            "--runs",
            str(len(exit_soak.SCENARIOS)),
            "--at-once",
            "2",
        ],
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
