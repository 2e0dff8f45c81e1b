"""A loop as torchtitan writes it: mesh, fully_shard, clipped gradients, a schedule of rates, a distributed checkpoint.

    torchrun --nproc-per-node 2 examples/mesh_loop.py

Half-way all is made anew and goes on from the checkpoint, without what a recipe keeps (elastic.py saves it).
BACKEND=gloo: the same over Gloo. RECIPE: what is done with gradients (docs/gradients.md).
"""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.fsdp import fully_shard

import dlcp.torch

STEPS = 20
backend = os.environ.get("BACKEND", "dlcp")
dist.init_process_group(backend)
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp_shard",))


def train(first: int, last: int, folder: str) -> float:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4)), nn.Linear(64, 64))
    for module in (*model, model):
        fully_shard(module, mesh=mesh["dp_shard"])
    if backend == "dlcp":
        state = dlcp.torch.GradientState(model, recipe=os.environ.get("RECIPE", "exact"))
        dlcp.torch.shard_gradients(model, state)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, STEPS)
    if first:
        moments = get_optimizer_state_dict(model, optimizer)  # DTensors, into which each rank loads its part
        dcp.load({"model": model, "optimizer": moments, "rate": rate}, checkpoint_id=f"{folder}/{first}")
        set_optimizer_state_dict(model, optimizer, moments)
    for step in range(first, last):
        inputs = torch.randn(32, 64, generator=torch.Generator().manual_seed(2 * step + dist.get_rank()))
        loss = nn.functional.mse_loss(model(inputs), inputs.sin())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
    moments = get_optimizer_state_dict(model, optimizer)
    dcp.save({"model": model, "optimizer": moments, "rate": rate}, checkpoint_id=f"{folder}/{last}")
    return loss.item()


with tempfile.TemporaryDirectory() as own:
    dist.broadcast_object_list(shared := [own])  # rank 0's; with several hosts it is one that all of them see
    train(0, STEPS // 2, shared[0])
    loss = train(STEPS // 2, STEPS, shared[0])
if dist.get_rank() == 0:
    print(f"loss {loss:.9g}")
dist.destroy_process_group()
