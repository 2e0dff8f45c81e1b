"""Ray Train: TorchConfig(backend="dlcp").

    python examples/ray_train.py

BACKEND=gloo: the same over Gloo. RECIPE: what is done with gradients (docs/gradients.md).
"""

import os
import tempfile

import ray.train
import torch
from ray.train.torch import TorchConfig, TorchTrainer
from torch import nn


def train(settings: dict[str, str]) -> float:
    import dlcp.torch

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 1))
    replica = ray.train.torch.prepare_model(model)
    if settings["backend"] == "dlcp":
        state = dlcp.torch.GradientState(model, recipe=settings["recipe"])
        replica.register_comm_hook(state, dlcp.torch.gradient_hook)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    samples = torch.Generator().manual_seed(ray.train.get_context().get_world_rank())
    for _ in range(40):
        inputs = torch.randn(32, 32, generator=samples)
        loss = nn.functional.mse_loss(replica(inputs), inputs[:, :1].sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    backend = os.environ.get("BACKEND", "dlcp")
    ray.init(num_cpus=2, include_dashboard=False)
    with tempfile.TemporaryDirectory() as folder:
        result = TorchTrainer(
            train,
            train_loop_config={"backend": backend, "recipe": os.environ.get("RECIPE", "exact")},
            torch_config=TorchConfig(backend=backend),
            scaling_config=ray.train.ScalingConfig(num_workers=2),
            run_config=ray.train.RunConfig(storage_path=folder),
        ).fit()
    print(f"loss {result.return_value:.9g}")
