"""A callback for Lightning that registers the hook of gradients. DDPStrategy's own argument does so on CUDA alone.

    from dlcp.torch.lightning import GradientCallback

    trainer = lightning.Trainer(
        strategy=DDPStrategy(process_group_backend="dlcp"), callbacks=[GradientCallback(recipe="low_bit")]
    )

Nothing else of dlcp imports this, or Lightning. What a recipe keeps for later is each rank's own and not in Lightning's
checkpoints: a training that goes on from one begins without it.
"""

from __future__ import annotations

from typing import Any

try:
    import lightning
except ModuleNotFoundError as error:
    if error.name != "lightning":
        raise
    raise ImportError("dlcp.torch.lightning needs Lightning: pip install lightning") from error

from dlcp.torch.gradient.hook import gradient_hook
from dlcp.torch.gradient.state import GradientState


class GradientCallback(lightning.Callback):  # type: ignore[misc]
    """Each fit has a GradientState of its own, `state`, with the options given here; before the first it is None."""

    def __init__(self, **options: Any) -> None:
        """The options are those of GradientState, beside the model."""
        super().__init__()
        self.options = options
        self.state: GradientState | None = None

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Registers the hook. Raises TypeError: the strategy has not wrapped the module in DistributedDataParallel."""
        from torch.nn.parallel import DistributedDataParallel

        replica = trainer.strategy.model
        # FSDP1 has a method of that name too, for hooks of another kind.
        if not isinstance(replica, DistributedDataParallel):
            raise TypeError(
                f"the trainer's strategy is a {type(trainer.strategy).__name__}; accepted: DDPStrategy, "
                "with process_group_backend='dlcp'"
            )
        self.state = GradientState(module, **self.options)
        replica.register_comm_hook(self.state, gradient_hook)
