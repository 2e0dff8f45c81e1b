"""Hugging Face's Trainer: one line before. Its argument ddp_backend refuses names that it does not know.

    torchrun --nproc-per-node 2 examples/hf_trainer.py

BACKEND=gloo: the same over Gloo. RECIPE: what is done with gradients (docs/gradients.md).
"""

import os
import tempfile

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

import dlcp.torch

BACKEND = os.environ.get("BACKEND", "dlcp")
dist.init_process_group(BACKEND)  # the line


class Gradients(TrainerCallback):
    """Registers dlcp's hook once the Trainer has wrapped the model."""

    def on_train_begin(self, *_: object, **__: object) -> None:
        state = dlcp.torch.GradientState(model, recipe=os.environ.get("RECIPE", "exact"))
        trainer.model_wrapped.register_comm_hook(state, dlcp.torch.gradient_hook)


torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, **sizes))
# Each text counts up from its number.
texts = [(number + torch.arange(16)) % 64 for number in range(320)]
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model,
        TrainingArguments(
            folder,
            use_cpu=True,
            max_steps=20,
            learning_rate=3e-3,
            logging_steps=20,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=[{"input_ids": text, "labels": text} for text in texts],
        callbacks=[Gradients()] if BACKEND == "dlcp" else [],
    )
    result = trainer.train()
if dist.get_rank() == 0:
    print(f"loss {result.training_loss:.9g}")
dist.destroy_process_group()
