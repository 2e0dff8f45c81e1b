"""One rank's part of one run: plain PyTorch data-parallel training, as a user would write it.

What carries the gradients is one word to init_process_group. Everything else is equal for every backend: seeds, order
of the data, weights at the start. So over exact collectives the loss curve does not depend on the network.
"""

from __future__ import annotations

import hashlib
import math
import resource
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dlcp.train.network import count_network, count_sent_bytes, count_sums
from dlcp.train.plan import CODEC, Run
from dlcp.train.record import Epoch, Gradients
from dlcp.train.tasks import Task, open_task

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from dlcp.torch import GradientState

# Steps in which the learning rate rises to its full value; from then on it falls along a cosine.
WARMUP_STEPS = 30
# No more often than a person can see.
PROGRESS_S = 0.1

Report = Callable[[str, dict[str, Any]], None]


def train(
    run: Run,
    data: Path,
    store: Store,
    *,
    rank: int,
    world_size: int,
    options: dict[str, Any],
    sharers: int,
    timeout_s: float,
    report: Report,
) -> None:
    """Trains, and reports "step" and "epoch" (rank 0) and "done" (every rank), with the fields of a RunRecord.

    `store`: fresh, where the ranks of this run meet. `options`: settings of a dlcp group. `sharers`: as
    count_sent_bytes takes it. `timeout_s`: of a collective. Blocks to the end. Raises what torch.distributed and dlcp
    raise.
    """
    backend = run.configuration.backend
    if backend == "dlcp":
        import dlcp.torch

        dlcp.torch.register()
    dist.init_process_group(
        backend,
        store=store,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout_s),
        pg_options=options if backend == "dlcp" else None,
    )
    torch.manual_seed(run.seed)
    task = open_task(run.model, data, seed=run.seed, rank=rank, world_size=world_size)
    cpu_s = _cpu_s()
    trainee = _Trainee(run, task, report if rank == 0 else _say_nothing, sharers)
    trainee.run()
    done = {
        "digest": weights_digest(trainee.model),
        "cpu_s": _cpu_s() - cpu_s,
        "network": asdict(network) if (network := count_network()) is not None else None,
        "sent_bytes": trainee.sent_bytes,
        "gradients": asdict(gradients) if (gradients := trainee.gradients()) is not None else None,
    }
    if rank == 0:
        done |= trainee.summary()
    report("done", done)
    dist.barrier()  # nobody leaves while another one counts
    # Not after an error: the process ends then, and its words should not wait for the group.
    dist.destroy_process_group()


def warm_up() -> None:
    """One step of nothing: what torch loads and prepares at the first one is not to be the first run's cost."""
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    model(torch.zeros(1, 1, 3, 3)).sum().backward()
    optimizer.step()


def weights_digest(model: torch.nn.Module) -> str:
    """SHA-256 of all parameters' bytes: equal if and only if the weights are the same bit for bit."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class _Trainee:
    """The loop over epochs and steps, and what it measures."""

    def __init__(self, run: Run, task: Task, report: Report, sharers: int) -> None:
        self.task = task
        self.epochs = run.epochs
        self.steps = run.epochs * task.steps_per_epoch
        self.model = DistributedDataParallel(task.model())
        # So that every step says when its all-reduces began and ended, not one in a hundred.
        self.model._set_ddp_runtime_logging_sample_rate(1)  # type: ignore[no-untyped-call]
        self.state: GradientState | None = None
        """None: DDP's own all-reduce."""
        self.may_abandon = run.configuration.loss_budget > 0
        if not run.configuration.is_exact:
            from dlcp.torch import GradientState, gradient_hook

            recipe = run.configuration.recipe
            self.state = GradientState(
                self.model.module,
                recipe=recipe,
                codec=CODEC if recipe == "low_bit" else None,
                loss_budget=run.configuration.loss_budget,
            )
            self.model.register_comm_hook(self.state, gradient_hook)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=task.learning_rate, betas=(0.9, 0.98))
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self._learning_rate)
        self.step_s: list[float] = []
        self.communication_s: list[float] = []
        self.sent_bytes: int | None = None
        """From the first step to the last."""
        self._report = report
        self._sharers = sharers
        self._reported_s = 0.0

    def _learning_rate(self, step: int) -> float:
        """The share of the full learning rate."""
        warm = min(1.0, (step + 1) / WARMUP_STEPS)
        return warm * (0.5 + 0.5 * math.cos(math.pi * step / max(1, self.steps)))

    def run(self) -> None:
        self._evaluate(0, None)
        before_bytes = count_sent_bytes(self._sharers)
        self._start_s = time.perf_counter()
        step = 0
        for epoch in range(1, self.epochs + 1):
            loss_sum = 0.0
            for _ in range(self.task.steps_per_epoch):
                loss_sum += self._step(step)
                step += 1
                self._progress(epoch, step)
            self._evaluate(epoch, loss_sum / self.task.steps_per_epoch)
        self.wall_s = time.perf_counter() - self._start_s
        after_bytes = count_sent_bytes(self._sharers)
        if before_bytes is not None and after_bytes is not None:
            self.sent_bytes = after_bytes - before_bytes

    def _step(self, step: int) -> float:
        start_s = time.perf_counter()
        self.optimizer.zero_grad()
        loss = self.task.loss(self.model, step)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.schedule.step()
        self.step_s.append(time.perf_counter() - start_s)
        # The first step builds the buckets and has no times yet.
        logged = self.model._get_ddp_logging_data()  # type: ignore[no-untyped-call]
        self.communication_s.append(logged.get("backward_comm_time", 0) * 1e-9)
        return loss.item()

    def _progress(self, epoch: int, step: int) -> None:
        now_s = time.perf_counter()
        if now_s - self._reported_s >= PROGRESS_S or step == self.steps:
            self._reported_s = now_s
            self._report("step", {"epoch": epoch, "step": step, "steps": self.steps})

    def _evaluate(self, epoch: int, train_loss: float | None) -> None:
        """Loss and accuracy on what was kept out, each rank its part."""
        self.model.eval()
        with torch.no_grad():
            counted = self.task.evaluate(self.model.module)
        self.model.train()  # type: ignore[no-untyped-call]
        sums = torch.cat([counted, torch.tensor([train_loss or 0.0], dtype=torch.float64)])
        dist.all_reduce(sums)
        loss_sum, right, answers, train_sum = sums.tolist()
        result = Epoch(
            epoch=epoch,
            train_loss=None if train_loss is None else train_sum / dist.get_world_size(),
            loss=loss_sum / answers,
            accuracy=right / answers,
            wall_s=time.perf_counter() - self._start_s if epoch else 0.0,
        )
        self._report("epoch", asdict(result))

    def gradients(self) -> Gradients | None:
        """What this rank abandoned; None: nothing could be."""
        if self.state is None or not self.may_abandon:
            return None
        self.state.end_step()
        report = self.state.report()
        total, residual = report["total"], report["residual"]
        return Gradients(
            sent_bytes=total["contributed_bytes"],
            abandoned_bytes=total["abandoned_bytes"],
            residual_bytes=residual["nbytes"],
            written_off_bytes=residual["total"]["nbytes"],
        )

    def summary(self) -> dict[str, Any]:
        """What rank 0 says of the run as a whole."""
        self.model.eval()
        with torch.no_grad():
            sample = self.task.sample(self.model.module)
        return {
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "steps": self.steps,
            "wall_s": self.wall_s,
            "step_s": self.step_s,
            "communication_s": self.communication_s,
            "sample": sample,
            "sums": count_sums(),
        }


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _say_nothing(event: str, values: dict[str, Any]) -> None:
    """Ranks other than 0 do not report progress."""
