"""FSDP2: a small transformer, sharded over the ranks, whose gradients follow a recipe.

    torchrun --nproc-per-node 2 examples/fsdp2.py

BACKEND=gloo: the same over Gloo. RECIPE: what is done with gradients (docs/gradients.md).
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import dlcp.torch

WORDS, LENGTH, WIDTH = 64, 16, 32


class Transformer(nn.Module):
    """Predicts the next word from the ones before it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layers = [nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True) for _ in range(2)]
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        hidden = self.words(text) + self.places.weight[: text.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(text.shape[1])
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        return self.head(hidden.flatten(0, 1))


backend = os.environ.get("BACKEND", "dlcp")
dist.init_process_group(backend)
torch.manual_seed(0)
model = Transformer()
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
for module in (*model.layers, model):
    fully_shard(module, mesh=mesh)
if backend == "dlcp":
    state = dlcp.torch.GradientState(model, recipe=os.environ.get("RECIPE", "exact"))
    dlcp.torch.shard_gradients(model, state)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

samples = torch.Generator().manual_seed(dist.get_rank())
for _ in range(20):
    # Each text counts up from a random word.
    text = (torch.randint(WORDS, (8, 1), generator=samples) + torch.arange(LENGTH + 1)) % WORDS
    loss = nn.functional.cross_entropy(model(text[:, :-1]), text[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(f"loss {loss.item():.9g}")
dist.destroy_process_group()
