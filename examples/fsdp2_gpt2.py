"""FSDP2 of a model of Hugging Face's transformers: GPT-2, small and with random weights.

    torchrun --nproc-per-node 2 examples/fsdp2_gpt2.py

BACKEND=gloo: the same over Gloo. RECIPE: what is done with gradients (docs/gradients.md).
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import GPT2Config, GPT2LMHeadModel

import dlcp.torch

WORDS, LENGTH = 64, 16
backend = os.environ.get("BACKEND", "dlcp")
dist.init_process_group(backend)
torch.manual_seed(0)
sizes = {"n_positions": LENGTH, "n_embd": 32, "n_layer": 2, "n_head": 4}
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=WORDS, **sizes, bos_token_id=0, eos_token_id=0)
).eval()  # no dropout
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
# The head's weights are those of the embedding: both belong to the outermost module.
for module in (*model.transformer.h, model):
    fully_shard(module, mesh=mesh)
if backend == "dlcp":
    state = dlcp.torch.GradientState(model, recipe=os.environ.get("RECIPE", "exact"))
    dlcp.torch.shard_gradients(model, state)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

samples = torch.Generator().manual_seed(dist.get_rank())
for _ in range(20):
    # Each text counts up from a random word.
    text = (torch.randint(WORDS, (8, 1), generator=samples) + torch.arange(LENGTH)) % WORDS
    loss = model(input_ids=text, labels=text).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(f"loss {loss.item():.9g}")
dist.destroy_process_group()
