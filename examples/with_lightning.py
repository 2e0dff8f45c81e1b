"""Lightning: DDPStrategy(process_group_backend="dlcp"), and a callback for gradients in fewer bits.

    torchrun --nproc-per-node 2 examples/with_lightning.py

BACKEND=gloo: the same over Gloo. RECIPE: what is done with gradients (docs/gradients.md).
"""

import os

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn

from dlcp.torch.lightning import GradientCallback

BACKEND = os.environ.get("BACKEND", "dlcp")


class Sine(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 1))

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        self.loss = nn.functional.mse_loss(self.model(batch), batch[:, :1].sin())
        return self.loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


lightning.seed_everything(0)
module = Sine()
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy=DDPStrategy(process_group_backend=BACKEND),
    callbacks=[GradientCallback(recipe=os.environ.get("RECIPE", "exact"))] if BACKEND == "dlcp" else [],
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
# Lightning gives each rank its share of the samples.
trainer.fit(module, torch.utils.data.DataLoader(torch.randn(2560, 32), batch_size=32))
if trainer.is_global_zero:
    print(f"loss {module.loss.item():.9g}")
