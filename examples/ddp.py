"""Plain torch: DistributedDataParallel over dlcp.

    torchrun --nproc-per-node 2 examples/ddp.py

BACKEND=gloo: the same over Gloo. RECIPE: what is done with gradients (docs/gradients.md), as low_bit:
4 bits a value.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dlcp.torch

backend = os.environ.get("BACKEND", "dlcp")
dist.init_process_group(backend)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
replica = DistributedDataParallel(model)
state = None
if backend == "dlcp":
    state = dlcp.torch.GradientState(model, recipe=os.environ.get("RECIPE", "exact"))
    replica.register_comm_hook(state, dlcp.torch.gradient_hook)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

samples = torch.Generator().manual_seed(dist.get_rank())
for _ in range(40):
    inputs = torch.randn(64, 32, generator=samples)
    loss = nn.functional.mse_loss(replica(inputs), inputs[:, :1].sin())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if state is not None:
    state.end_step()

if dist.get_rank() == 0:
    print(f"loss {loss.item():.9g}")
    if state is not None:
        print(f"sent {state.report()['total']['value_bytes'] / 1e6:.1f} MB of gradients")
dist.destroy_process_group()
