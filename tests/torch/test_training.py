"""What people train with, over dlcp: each feature in ranks of its own, beside the same over Gloo or one process.

World 2, and 4 where the feature needs a mesh. Models are tiny: what is tested is which calls are made and that all of
them come back with the right numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C import _distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

from tests.torch import ranks

STEPS = 3


class Net(nn.Module):
    """A few layers; the last is used only if `tail` is set."""

    def __init__(self, *, tail: bool = True, norm: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(10, 32)
        self.norm = nn.BatchNorm1d(32) if norm else nn.Identity()
        self.second = nn.Linear(32, 32)
        self.last = nn.Linear(32, 4)
        self.tail = tail

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(torch.relu(self.first(batch)))
        if self.tail:
            hidden = torch.relu(self.second(hidden))
        return self.last(hidden)


def batches(rank: int, steps: int = STEPS) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(steps):
        yield torch.randn(8, 10, generator=generator)


def seeded(model: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(1)
    return model()


def train(model: nn.Module, *, optimizer: Any = None, steps: int = STEPS) -> list[torch.Tensor]:
    """Trains on this rank's batches; the parameters afterwards."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches(dist.get_rank(), steps):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def alike(ours: list[torch.Tensor], theirs: list[torch.Tensor], tolerance: float = 1e-5) -> None:
    assert len(ours) == len(theirs)
    assert ours
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)


def same_on_all_ranks(tensors: list[torch.Tensor]) -> None:
    """Bit for bit."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    others = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(others, flat)
    assert all(torch.equal(flat.view(torch.int32), other.view(torch.int32)) for other in others)


def gloo() -> dist.ProcessGroup:
    return dist.new_group(backend="gloo")


# --- DistributedDataParallel --------------------------------------------------------------------------------

DDP_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "small_buckets": {"bucket_cap_mb": 0.001},
    "bucket_view": {"gradient_as_bucket_view": True},
    "static_graph": {"static_graph": True},
    "unused_parameters": {"find_unused_parameters": True},
    "no_buffers": {"broadcast_buffers": False},
}


def ddp(options: dict[str, Any]) -> None:
    unused = options.get("find_unused_parameters", False)

    def build() -> nn.Module:
        return Net(tail=not unused, norm=True)

    results = []
    for group in (dist.group.WORLD, gloo()):
        # A few bytes off on purpose: DDP broadcasts rank 0's parameters first.
        model = seeded(build)
        with torch.no_grad():
            model.first.weight.add_(dist.get_rank())
        wrapped = DistributedDataParallel(model, process_group=group, **options)
        results.append(train(wrapped))
    alike(*results)
    same_on_all_ranks(results[0])


@pytest.mark.parametrize("name", DDP_OPTIONS)
def test_ddp(name: str) -> None:
    ranks.run(ddp, options=DDP_OPTIONS[name])


def ddp_no_sync() -> None:
    model = DistributedDataParallel(seeded(Net))
    first, second = batches(dist.get_rank(), 2)
    with model.no_sync():
        model(first).sum().backward()
    model(second).sum().backward()
    same_on_all_ranks([parameter.grad for parameter in model.parameters()])


def test_ddp_no_sync() -> None:
    ranks.run(ddp_no_sync)


def ddp_join() -> None:
    model = DistributedDataParallel(seeded(Net), bucket_cap_mb=0.001)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for batch in batches(dist.get_rank(), 2 + 3 * dist.get_rank()):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()


def test_ddp_join_with_uneven_inputs() -> None:
    ranks.run(ddp_join)


def ddp_sparse_embedding() -> None:
    results = []
    for group in (dist.group.WORLD, gloo()):
        model = seeded(lambda: nn.EmbeddingBag(20, 4, sparse=True, mode="sum"))
        wrapped = DistributedDataParallel(model, process_group=group)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        for step in range(STEPS):
            optimizer.zero_grad()
            indices = torch.tensor([[step, step + 5 + dist.get_rank(), step]])
            wrapped(indices).square().sum().backward()
            optimizer.step()
        results.append([parameter.detach().clone() for parameter in wrapped.parameters()])
    alike(*results)
    same_on_all_ranks(results[0])


def test_ddp_with_sparse_gradients() -> None:
    ranks.run(ddp_sparse_embedding)


def ddp_hook(name: str) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    import dlcp.torch

    model = DistributedDataParallel(seeded(Net), bucket_cap_mb=0.001)
    plain = train(DistributedDataParallel(seeded(Net), process_group=gloo()))
    tolerance = 1e-5
    match name:
        case "all_reduce":
            model.register_comm_hook(None, default_hooks.allreduce_hook)
        case "torch_fp16":
            model.register_comm_hook(None, default_hooks.fp16_compress_hook)
            tolerance = 1e-2
        case "own_fp16":
            model.register_comm_hook(None, dlcp.torch.fp16_compress_hook)
            tolerance = 1e-2
        case "own_bf16":
            model.register_comm_hook(None, dlcp.torch.bfloat16_compress_hook)
            tolerance = 5e-2
        case "builtin_fp16":
            model._register_builtin_comm_hook(c10d.BuiltinCommHookType.FP16_COMPRESS)
            tolerance = 1e-2
        case "power_sgd":
            # Its callback waits for another collective, one per bucket.
            state = powerSGD_hook.PowerSGDState(
                None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=0.5
            )
            model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
            tolerance = float("inf")
        case "own":
            model.register_comm_hook(None, gather_hook)
    trained = train(model)
    if tolerance < float("inf"):
        alike(trained, plain, tolerance)
    same_on_all_ranks(trained)


def gather_hook(state, bucket):  # type: ignore[no-untyped-def]  # register_comm_hook refuses annotations that are text
    """Averages by gathering, in a callback of one collective that waits for another."""
    gradients = bucket.buffer()
    outputs = [torch.empty_like(gradients) for _ in range(dist.get_world_size())]

    def average(_: torch.futures.Future[Any]) -> torch.Tensor:
        dist.all_gather(outputs, gradients)
        return gradients.copy_(torch.stack(outputs).mean(0))

    return dist.barrier(async_op=True).get_future().then(average)


@pytest.mark.parametrize(
    "name", ["all_reduce", "torch_fp16", "own_fp16", "own_bf16", "builtin_fp16", "power_sgd", "own"]
)
def test_ddp_comm_hook(name: str) -> None:
    ranks.run(ddp_hook, name=name)


def zero_redundancy() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    results = []
    for group in (dist.group.WORLD, gloo()):
        model = DistributedDataParallel(seeded(Net), process_group=group)
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.AdamW, process_group=group, lr=0.01
        )
        results.append(train(model, optimizer=optimizer))
        optimizer.consolidate_state_dict(to=0)
    alike(*results)
    same_on_all_ranks(results[0])


def test_zero_redundancy_optimizer() -> None:
    ranks.run(zero_redundancy)


def model_averaging() -> None:
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

    model = seeded(Net)
    averager = PeriodicModelAverager(period=1, warmup_steps=0)
    for batch in batches(dist.get_rank()):
        model(batch).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=0.1)
        averager.average_parameters(model.parameters())
    same_on_all_ranks(list(model.parameters()))


def test_model_averaging() -> None:
    ranks.run(model_averaging)


# --- sharding -----------------------------------------------------------------------------------------------


def reference(steps: int = STEPS) -> list[torch.Tensor]:
    """The same training over Gloo and DDP, whose numbers every way of sharding must reproduce."""
    return train(DistributedDataParallel(seeded(Net), process_group=gloo()), steps=steps)


def fsdp1(strategy: str) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    expected = reference()
    model = FullyShardedDataParallel(
        seeded(Net),
        sharding_strategy=ShardingStrategy[strategy],
        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    train(model)
    with FullyShardedDataParallel.summon_full_params(model):
        full = [parameter.detach().clone() for parameter in model.parameters()]
    alike(full, expected)


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP"])
@pytest.mark.filterwarnings("ignore")
def test_fsdp1(strategy: str) -> None:
    ranks.run(fsdp1, strategy=strategy)


def fsdp2(hybrid: bool) -> None:
    from torch.distributed.fsdp import fully_shard

    expected = reference()
    size = dist.get_world_size()
    if hybrid:
        mesh = dist.init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("copies", "shards"))
    else:
        mesh = dist.init_device_mesh("cpu", (size,))
    model = seeded(Net)
    for layer in (model.first, model.second, model.last):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    alike([parameter.full_tensor() for parameter in train(model)], expected)


@pytest.mark.parametrize(("hybrid", "world_size"), [(False, 2), (True, 4)], ids=["full", "hybrid"])
def test_fsdp2(hybrid: bool, world_size: int) -> None:
    ranks.run(fsdp2, world_size, hybrid=hybrid)


def dtensor() -> None:
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    size = dist.get_world_size()
    mesh = dist.init_device_mesh("cpu", (size,))
    whole = torch.arange(48.0).reshape(8, 6)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(sharded.full_tensor(), whole)
    assert torch.equal(sharded.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    assert torch.equal(
        (sharded @ distribute_tensor(whole.t(), mesh, [Replicate()])).full_tensor(), whole @ whole.t()
    )
    partial = type(sharded).from_local(torch.ones(4), mesh, [Partial()])
    assert torch.equal(partial.redistribute(mesh, [Replicate()]).to_local(), torch.full((4,), float(size)))

    model = seeded(Net)
    batch = next(batches(0))
    expected = copy.deepcopy(model)(batch)
    parallel = parallelize_module(model, mesh, {"first": ColwiseParallel(), "second": RowwiseParallel()})
    torch.testing.assert_close(parallel(batch), expected)


def test_dtensor_and_tensor_parallel() -> None:
    ranks.run(dtensor)


def checkpoint(folder: str) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    model = seeded(Net)
    fully_shard(model, mesh=mesh)
    train(model)
    saved = get_model_state_dict(model)
    dcp.save(saved, checkpoint_id=f"{folder}/now")
    later = dcp.async_save(saved, checkpoint_id=f"{folder}/later")
    later.result()
    for kind in ("now", "later"):
        fresh = Net()
        fully_shard(fresh, mesh=mesh)
        loaded = get_model_state_dict(fresh)
        dcp.load(loaded, checkpoint_id=f"{folder}/{kind}")
        for name, tensor in saved.items():
            assert torch.equal(loaded[name].to_local(), tensor.to_local()), name


def test_distributed_checkpoint(tmp_path: Path) -> None:
    ranks.run(checkpoint, folder=str(tmp_path))


def pipeline() -> None:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, size = dist.get_rank(), dist.get_world_size()
    layers = [seeded(lambda: nn.Linear(10, 10)) for _ in range(size)]
    stage = PipelineStage(layers[rank], rank, size, torch.device("cpu"))
    schedule = ScheduleGPipe(
        stage, n_microbatches=4, loss_fn=lambda out, target: (out - target).square().mean()
    )
    batch, target = torch.randn(8, 10, generator=torch.Generator().manual_seed(1)), torch.zeros(8, 10)
    if rank == 0:
        schedule.step(batch)
    else:
        losses: list[torch.Tensor] = []
        output = schedule.step(target=target, losses=losses)
        expected = batch
        for layer in layers:
            expected = layer(expected)
        torch.testing.assert_close(output, expected)


def test_pipeline_parallel() -> None:
    ranks.run(pipeline)


# --- torch.compile ------------------------------------------------------------------------------------------


def compiled(what: str) -> None:
    from torch._inductor import config

    # In this process: a pool of compiler processes costs more than these few kernels.
    config.compile_threads = 1
    expected = reference(2)
    match what:
        case "ddp":
            model = torch.compile(DistributedDataParallel(seeded(Net)), backend="aot_eager")
            trained = train(model, steps=2)
        case "ddp_norm":
            # Buffers: DDP broadcasts them from C++ in the middle of the compiled forward.
            model = torch.compile(
                DistributedDataParallel(seeded(lambda: Net(norm=True))), backend="aot_eager"
            )
            train(model, steps=2)
            return
        case "fsdp2":
            from torch.distributed.fsdp import fully_shard

            model = seeded(Net)
            fully_shard(model, mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
            trained = train(torch.compile(model, backend="aot_eager"), steps=2)
            trained = [parameter.full_tensor() for parameter in trained]
        case "fsdp1":
            from torch.distributed.fsdp import FullyShardedDataParallel

            model = FullyShardedDataParallel(seeded(Net), device_id=torch.device("cpu"), use_orig_params=True)
            train(torch.compile(model, backend="aot_eager"), steps=2)
            with FullyShardedDataParallel.summon_full_params(model):
                trained = [parameter.detach().clone() for parameter in model.parameters()]
        case "collectives":
            in_place_and_functional()
            return
    alike(trained, expected)


def in_place_and_functional() -> None:
    import torch.distributed._functional_collectives as functional

    size = dist.get_world_size()

    @torch.compile(backend="aot_eager", fullgraph=True)
    def reduced(tensor: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(tensor * 2, "sum", dist.group.WORLD) + 1

    assert torch.equal(reduced(torch.ones(4)), torch.full((4,), 2.0 * size + 1))

    @torch.compile(backend="aot_eager")
    def in_place(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor * 2
        dist.all_reduce(tensor)
        output = torch.empty(4 * size)
        dist.all_gather_single(output, tensor)
        return output

    assert torch.equal(in_place(torch.ones(4)), torch.full((4 * size,), 2.0 * size))


@pytest.mark.parametrize("what", ["ddp", "ddp_norm", "fsdp1", "fsdp2", "collectives"])
@pytest.mark.timeout(180)
def test_compile(what: str) -> None:
    ranks.run(compiled, what=what, timeout_s=150)
