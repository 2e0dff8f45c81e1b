"""Accelerate: one line before. Its own argument for a backend refuses names that it does not know.

    torchrun --nproc-per-node 2 examples/with_accelerate.py

BACKEND=gloo: the same over Gloo. RECIPE: what is done with gradients (docs/gradients.md).
"""

import os

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn

import dlcp.torch

backend = os.environ.get("BACKEND", "dlcp")
dist.init_process_group(backend)  # the line
accelerator = Accelerator(cpu=True)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(torch.randn(2560, 32), batch_size=32)
replica, optimizer, loader = accelerator.prepare(model, optimizer, loader)
if backend == "dlcp":
    state = dlcp.torch.GradientState(model, recipe=os.environ.get("RECIPE", "exact"))
    replica.register_comm_hook(state, dlcp.torch.gradient_hook)

for batch in loader:
    loss = nn.functional.mse_loss(replica(batch), batch[:, :1].sin())
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
accelerator.print(f"loss {loss.item():.9g}")
accelerator.end_training()
