"""DeepSpeed: init_distributed(dist_backend="dlcp"), with ZeRO.

    torchrun --nproc-per-node 2 examples/with_deepspeed.py

BACKEND=gloo: the same over Gloo. The first run compiles for minutes, over Gloo too.
"""

import os

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

deepspeed.init_distributed(dist_backend=os.environ.get("BACKEND", "dlcp"))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 1))
settings = {
    "train_micro_batch_size_per_gpu": 32,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 2},
}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)

samples = torch.Generator().manual_seed(dist.get_rank())
for _ in range(40):
    inputs = torch.randn(32, 32, generator=samples)
    loss = nn.functional.mse_loss(engine(inputs), inputs[:, :1].sin())
    engine.backward(loss)
    engine.step()
if dist.get_rank() == 0:
    print(f"loss {loss.item():.9g}")
dist.destroy_process_group()
