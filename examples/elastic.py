"""torchrun starts ranks again after one has died, and they go on from their checkpoint.

    torchrun --standalone --nproc-per-node 2 --max-restarts 1 examples/elastic.py CHECKPOINTS

CHECKPOINTS is an empty folder that all hosts see. Rank 1 kills itself once, after step 25. BACKEND=gloo: the same over
Gloo, which does not always connect again. RECIPE: what is done with gradients (docs/gradients.md).
"""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dlcp.torch

STEPS, EVERY, DEATH = 40, 10, 25
folder = Path(sys.argv[1])
latest = folder / "latest"
backend = os.environ.get("BACKEND", "dlcp")
dist.init_process_group(backend)
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 1))
replica = DistributedDataParallel(model)
parts = {"model": model, "optimizer": torch.optim.Adam(model.parameters(), lr=1e-3)}
if backend == "dlcp":
    # What a rank has not sent yet is its own, so each rank keeps a file of its own.
    parts["gradients"] = dlcp.torch.GradientState(model, recipe=os.environ.get("RECIPE", "exact"))
    replica.register_comm_hook(parts["gradients"], dlcp.torch.gradient_hook)
first = int(latest.read_text()) if latest.exists() else 0
if first:
    saved = torch.load(folder / f"step{first}" / f"rank{rank}.pt")
    for name, part in parts.items():
        part.load_state_dict(saved[name])
    print(f"rank {rank} goes on from step {first}", flush=True)

for step in range(first, STEPS):
    inputs = torch.randn(64, 32, generator=torch.Generator().manual_seed(2 * step + rank))
    loss = nn.functional.mse_loss(replica(inputs), inputs[:, :1].sin())
    parts["optimizer"].zero_grad()
    loss.backward()
    parts["optimizer"].step()
    if (step + 1) % EVERY == 0:
        place = folder / f"step{step + 1}"
        place.mkdir(parents=True, exist_ok=True)
        torch.save({name: part.state_dict() for name, part in parts.items()}, place / f"rank{rank}.pt")
        dist.barrier()  # a checkpoint counts once all ranks have written theirs
        if rank == 0:
            (folder / "next").write_text(str(step + 1))
            (folder / "next").rename(latest)
    if rank == 1 and step == DEATH and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
        os.kill(os.getpid(), signal.SIGKILL)
if rank == 0 and first < STEPS:
    print(f"loss {loss.item():.9g}")
dist.destroy_process_group()
