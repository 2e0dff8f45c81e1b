"""What gradients have as a whole, and keep from step to step: the state that hooks and context managers are given.

    state = GradientState(model, loss_budget=0.05)
    model.register_comm_hook(state, gradient_hook)
    …
    state.report()

One state per model and process. It owns the residual memory, the marker, the budget and the ledger; exchanges bring the
buffers. A step begins with its first buffer and ends when the next one begins, or with end_step(): not before, since
only then it is known whether the optimizer used the gradients. It starts no collective of its own but for `verify`.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn

from dlcp.torch.gradient import replicas
from dlcp.torch.gradient.budget import StepBudget
from dlcp.torch.gradient.buffers import BufferPool
from dlcp.torch.gradient.facts import LayoutFacts
from dlcp.torch.gradient.forward_order import ForwardOrder
from dlcp.torch.gradient.hadamard import Hadamard
from dlcp.torch.gradient.importance import Marker
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.ledger import Ledger
from dlcp.torch.gradient.names import ParameterNames
from dlcp.torch.gradient.options import GradientOptions
from dlcp.torch.gradient.patience import Patience
from dlcp.torch.gradient.phase import Phase
from dlcp.torch.gradient.residual import ResidualMemory
from dlcp.torch.gradient.step import Step
from dlcp.transport.bounded import Outcome

if TYPE_CHECKING:
    from dlcp.torch.gradient.exchange import GradientExchange
    from dlcp.torch.gradient.flight import Flight
    from dlcp.torch.process_group import ProcessGroup
    from dlcp.transport.communicator import Communicator

VERSION = 1
"""Of state_dict()."""
BUFFERS_MAX = 65536
"""Of one step: each holds memory until its end."""
# Whether a parameter has a gradient in this step is seen from so many elements, as a rule.
_PROBE_NUMEL = 64


class GradientState:
    """Makes gradients of one model lossy within a budget.

    `model`: whose gradients they are, wrapped in DDP or not, before or after fully_shard; its parameters' names are
    what residuals and budgets go by, and its first forward says which layers come first. None: parameters are numbered,
    and there is no order of layers. `group`: of the DDP hook; None: the default group. `options`, or single ones by
    name: see GradientOptions; the same on all ranks. `scaler`: a torch.amp.GradScaler in use: it is asked for the loss
    scale at the first buffer of each step, and a scale that has fallen since the step before says that the optimizer
    skipped that; on CUDA the question waits for the device. `verify`: compares hashes of the results over the ranks in
    each step, which costs a collective and a wait.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        group: dist.ProcessGroup | None = None,
        options: GradientOptions | None = None,
        *,
        scaler: Any = None,
        verify: bool = False,
        **changes: Any,
    ) -> None:
        self.options: GradientOptions = dataclasses.replace(options or GradientOptions(), **changes)
        """As given; not to be changed."""
        self.verify = verify
        """Whether results are compared over the ranks in each step."""
        self.names = ParameterNames(model)
        """Of the model's parameters."""
        self.lock = threading.RLock()
        """Guards what buffers share: held for moments, never while something is waited for."""
        self.residual = ResidualMemory(self.options.residual) if self.options.fill == "residual" else None
        """What was given up and waits for the next step; None: another fill."""
        self.hadamard = Hadamard(self.options.seed) if self.options.fill == "hadamard" else None
        """What spreads losses; None: another fill."""
        self.marker = Marker(self.options)
        """What says which blocks matter."""
        self.phase = Phase(self.options.phase)
        """Whether less may be lost now."""
        self.patience = Patience(self.options.patience_s)
        """What messages may take."""
        self.ledger = Ledger(dist.get_rank() if dist.is_initialized() else 0)
        """What was sent and lost."""
        self.buffers = BufferPool()
        """Memory of results, valid until the next step begins."""
        self._group = group
        self._scaler = scaler
        self._order = ForwardOrder(self.names.model)
        self.facts = LayoutFacts(self.options, self.names, self._order)
        """What options and model say of a buffer."""
        self._exchanges: dict[tuple[int, int], GradientExchange] = {}
        self._budget = StepBudget(
            loss_cap=self.options.loss_cap, whole_step=self.options.budget_scope == "step"
        )
        # One thread at a time ends a step, which may wait for buffers of it; apart from `lock`, which settling needs.
        self._entering = threading.RLock()
        self._step: Step | None = None
        self._number = 0
        self._digests: dict[ProcessGroup, dict[Hashable, bytes]] = {}
        self._drains: list[Callable[[], None]] = []

    # --- what users call ------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """How many steps have ended."""
        return self._number

    def end_step(self, applied: bool | None = None) -> None:
        """Says that the step is over, and whether the optimizer used its gradients. None under way: nothing.

        Needed where nothing else says it: a loop that skips optimizer steps without a scaler, or makes other calls each
        step. If not `applied`, residuals are again what they were before the step; None: as the scaler says, and
        without one they were used. Blocks for buffers that nobody has waited for, and for a LayerwiseOptimizer's
        updates; with verify=True a collective, which raises ReplicaError.
        """
        self._drain()
        with self._entering:
            if self._step is None:
                return
            if self.verify:
                self.verify_replicas()
            self._end(applied)

    def follow(self, optimizer: torch.optim.Optimizer) -> Any:
        """Ends a step whenever the optimizer has made one. Returns a handle, whose remove() undoes it.

        For loops whose steps nothing else tells apart. A step that a scaler skips is recognised by the scaler. A
        LayerwiseOptimizer needs none, and would wait for all its gradients each time.
        """
        return optimizer.register_step_post_hook(lambda *_: self.end_step(applied=True))

    def drain_with(self, synchronize: Callable[[], None]) -> Callable[[], None]:
        """Has `synchronize` called before a step is ended from outside, so that nothing of it is still to be started.

        For who starts buffers of a step after the optimizer's. Returns what undoes it.
        """
        self._drains.append(synchronize)
        return lambda: self._drains.remove(synchronize)

    def state_dict(self) -> dict[str, Any]:
        """All that the next step needs of this rank: each rank saves its own. Ends the step, as end_step().

        To be called between steps: after the optimizer's, and the scaler's update.
        """
        self._drain()
        with self._entering:
            self._end(None)
            return {
                "version": VERSION,
                "step": self._number,
                "fill": self.options.fill,
                "residual": None if self.residual is None else self.residual.state_dict(),
                "marker": self.marker.state_dict(),
                "phase": self.phase.state_dict(),
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on as the state says; a step under way is forgotten. On all ranks, with states of the same step.

        Of as many ranks as there are now; for others see reshard.py. A state of another fill brings no residuals.
        Raises ValueError: a version, or content, that is not known.
        """
        if state.get("version") != VERSION:
            raise ValueError(
                f"version of the gradients' state is {state.get('version')}; accepted: {VERSION}"
            )
        marker, phase = Marker(self.options), Phase(self.options.phase)
        marker.load_state_dict(state["marker"])
        phase.load_state_dict(state["phase"])
        residual = None
        if self.residual is not None:
            residual = ResidualMemory(self.options.residual)
            if state["residual"] is not None:
                residual.load_state_dict(state["residual"])
        number = int(state["step"])
        # All of it is right: now it counts.
        self._drain()
        with self._entering:
            self._end(False)
            self.marker, self.phase, self.residual, self._number = marker, phase, residual, number

    def report(self) -> dict[str, Any]:
        """What was sent, lost and kept, in steps that have ended, as plain numbers: see Ledger.report."""
        return self.ledger.report()

    def reset(self, names: Iterable[str] | None = None) -> None:
        """Writes off what is kept of these parameters; None: of all. As after loading other weights. Ends the step."""
        self._drain()
        with self._entering:
            self._end(None)
            if self.residual is not None:
                self.residual.reset(names)

    def verify_replicas(self) -> None:
        """Compares the step's results over the ranks of their groups, which all call it. Blocks.

        Only with verify=True there is something to compare. Raises ReplicaError, naming the ranks that differ.
        """
        with self._entering:
            if self._step is not None:
                self._step.wait()
            for group, digests in list(self._digests.items()):
                del self._digests[group]
                order = [flight.key for flight in self._step.flights] if self._step is not None else []
                replicas.compare(group, self._number, [digests[key] for key in order if key in digests])

    # --- what exchanges call --------------------------------------------------------------------------------

    def exchange(
        self, group: dist.ProcessGroup | None = None, communicator: Communicator | None = None
    ) -> GradientExchange:
        """The state's gradients over a group; None: over its own. Raises TypeError: a group of another backend.

        `communicator`: of the group's ranks, for who numbers collectives himself; None: the group's own.
        """
        from dlcp.torch.gradient.exchange import GradientExchange

        group = group or self._group or dist.group.WORLD
        if group is None:
            raise ValueError("there is no process group; accepted: after init_process_group")
        key = (id(group), id(communicator))
        found = self._exchanges.get(key)
        if found is None:
            found = self._exchanges[key] = GradientExchange(group, self, communicator)
            found.group.communicator.job.metrics.include("gradients", self.ledger)
        return found

    def enter(self, key: Hashable, last_of_step: bool | None, group: ProcessGroup) -> Step:
        """The step that a buffer belongs to: a new one if the last is full, or has seen it.

        Step.end_start() is to follow, when the buffer's collective has been started or could not be.
        """
        with self._entering:
            step = self._step
            if step is not None and (step.full or key in step.keys):
                if self.verify:
                    self.verify_replicas()
                # A backward that failed in the middle brings nothing that the optimizer could have used.
                self._end(False if step.has_last and not step.full else None)
                step = None
            if step is None:
                step = self._begin()
            if group not in step.groups:
                step.groups.add(group)
                self.patience.begin_step(group)
            if len(step.keys) >= BUFFERS_MAX:
                raise RuntimeError(
                    f"step {step.number} has {len(step.keys)} buffers; accepted: up to {BUFFERS_MAX}. Is its end never "
                    "said, with end_step() or follow(optimizer)?"
                )
            step.keys.add(key)
            step.full = bool(last_of_step)
            step.has_last |= last_of_step is not None
            step.begin_start()
            return step

    def next_name(self, numel: int) -> str:
        """The name of a buffer that has none: its number among the step's, and its size.

        With the size, since a buffer that is cut anew holds other elements at its offsets.
        """
        step = self._step
        return f"call {0 if step is None or step.full else len(step.keys)} of {numel}"

    def cancel(self, step: Step, flight: Flight | None) -> None:
        """A buffer of a step could not be started; the step's gradients are of no use."""
        with self.lock:
            step.failed = True
            if flight is not None:
                step.flights.remove(flight)
                self._budget.settle(flight, 0.0)

    def mark_last(self) -> None:
        """The step under way has no more buffers."""
        if self._step is not None:
            self._step.full = True

    def before_exchange(self, buffer: torch.Tensor, layout: Layout, critical: frozenset[str]) -> None:
        """What was kept goes along. Called with the lock held."""
        if self.residual is not None:
            self.residual.add_to(buffer, _with_gradient(buffer, layout, critical))

    def after_exchange(self, flight: Flight, outcome: Outcome, lost: NDArray[np.int64] | None) -> None:
        """What was given up is kept, and accounted for. `lost`: runs of elements. Called with the lock held."""
        if self.residual is not None and lost is not None:
            self.residual.keep(flight.memory, flight.layout, lost)
        self._budget.settle(flight, outcome.abandoned_bytes)
        self.patience.note(flight.group, flight.layout.place, outcome.lossy_fastest_s)
        self.ledger.enter(
            flight.name,
            outcome,
            critical_bytes=flight.critical_bytes,
            budget_bytes=int(flight.given_ratio * flight.sent_bytes),
            block_bytes=flight.block_bytes,
            contributed_bytes=flight.sent_bytes,
        )

    def note_digest(self, group: ProcessGroup, flight: Flight, digest: bytes) -> None:
        """The hash of a buffer's result. Called with the lock held."""
        self._digests.setdefault(group, {})[flight.key] = digest

    def give(self, flight: Flight, loss_ratio: float) -> float:
        """The fraction of what a flight sends that it may lose. Called with the lock held."""
        return self._budget.give(flight, flight.sent_bytes, loss_ratio * self.phase.scale)

    # --- steps ----------------------------------------------------------------------------------------------

    def _begin(self) -> Step:
        self._order.finish()
        loss_scale = self._loss_scale()
        self.marker.scale = loss_scale
        if self.residual is not None:
            self.residual.scale = loss_scale
        self._step = Step(self._number, loss_scale)
        return self._step

    def _end(self, applied: bool | None) -> None:
        """Ends the step under way, if there is one. `applied` None: as the scaler says."""
        step = self._step
        if step is None:
            return
        if not step.wait():
            # A collective has failed, and the group with it.
            applied = False
        elif applied is None:
            applied = self._loss_scale() >= step.loss_scale
        with self.lock:
            self._step = None
            self._number += 1
            if self.residual is not None:
                self.residual.end_step(applied)
            self.marker.end_step()
            self.phase.end_step(step.gradient_norm())
            kept = None if self.residual is None else self.residual.report()
            self.ledger.end_step(kept, applied=applied)
            self._budget.end_step()
            self.buffers.recycle()
            self._digests.clear()

    def _drain(self) -> None:
        for synchronize in list(self._drains):
            synchronize()

    def _loss_scale(self) -> float:
        return 1.0 if self._scaler is None else float(self._scaler.get_scale())


def _with_gradient(buffer: torch.Tensor, layout: Layout, critical: frozenset[str]) -> Layout:
    """The layout without critical parameters, of which nothing is kept, and those whose gradient here is all zero.

    The latter may be in use on no rank in this step: then DDP leaves their gradients as they are, and what was added
    would be lost.
    """
    return Layout(
        tuple(
            segment
            for segment in layout.segments
            if segment.name not in critical and _has_gradient(buffer, segment.begin, segment.end)
        ),
        layout.numel,
    )


def _has_gradient(buffer: torch.Tensor, begin: int, end: int) -> bool:
    return bool(buffer[begin : min(end, begin + _PROBE_NUMEL)].any()) or bool(buffer[begin:end].any())
