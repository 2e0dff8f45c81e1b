"""The account of a model's gradients, from step to step: the state that hooks and context managers take.

    state = GradientState(model, loss_budget=0.05)
    model.register_comm_hook(state, gradient_hook)
    …
    state.report()

One state per model and process. It counts steps and bytes, knows names and rules, and holds the recipe's pipeline,
which does the work; exchanges bring the buffers. A step begins with its first buffer. It ends when the next step
begins, or with end_step(): only then is it known whether the optimizer used the gradients. The state starts no
collective except for `verify`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from dlcp import checks
from dlcp.errors import ArgumentError
from dlcp.torch.gradient.buffer import replicas
from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.gradient.buffer.ledger import Ledger
from dlcp.torch.gradient.buffer.peers import Peers
from dlcp.torch.gradient.buffer.pipeline import Pipeline
from dlcp.torch.gradient.buffer.pool import BufferPool
from dlcp.torch.gradient.options import GradientOptions
from dlcp.torch.gradient.recipes.auto import AutoPipeline
from dlcp.torch.gradient.recipes.table import RECIPES, checked
from dlcp.torch.gradient.rules.forward_order import ForwardOrder
from dlcp.torch.gradient.rules.layout_rules import LayoutRules
from dlcp.torch.gradient.rules.names import ParameterNames
from dlcp.torch.gradient.step import Step
from dlcp.torch.gradient.unused import warn_if_unused
from dlcp.torch.gradient.watched import WatchedGradients
from dlcp.torch.tensors import type_text

if TYPE_CHECKING:
    from dlcp.torch.gradient.buffer.pending_buffer import PreparedBuffer
    from dlcp.torch.gradient.residual.feedback import FeedbackMemory
    from dlcp.torch.gradient.residual.memory import ResidualMemory
    from dlcp.transport.communicator import Communicator

logger = logging.getLogger("dlcp")

VERSION = 1
"""Of state_dict()."""
BUFFERS_MAX = 65536
"""Of one step: each holds memory until its end."""


class GradientState:
    """The gradients of one model, reduced by a recipe: fewer bits, less important blocks lost, or all exact.

    `model`: the model of the gradients, wrapped in DDP or not, before or after fully_shard. Residuals and budgets use
    its parameters' names, and its first forward determines the order of layers. None: parameters are numbered, and
    there is no order of layers. `group`: of the DDP hook; None: the default group. `options`, or single ones by name:
    see GradientOptions; the same on all ranks. `scaler`: a torch.amp.GradScaler in use: it is asked for the loss scale
    at the first buffer of each step, and a scale that has fallen since the step before says that the optimizer skipped
    that; on CUDA the question waits for the device. `verify`: compares hashes of the results over the ranks in each
    step, which costs a collective and a wait.

    A copy, or what is unpickled, goes on from what state_dict() says, with the copied model, the default group, no
    scaler and a report of its own. Torch's copy of a model in DDP has no hook until one is registered.
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
        _check_arguments(model, group, options, scaler, verify, changes)
        self.options: GradientOptions = checked(dataclasses.replace(options or GradientOptions(), **changes))
        """As given, and with the name of a recipe; not to be changed."""
        self._recipe = self.options.recipe or ""
        self._agree = self.options.agree()
        self.verify = verify
        """Whether results are compared over the ranks in each step."""
        self.names = ParameterNames(model)
        """Of the model's parameters."""
        if model is not None:
            self.options.check_names(self.names.parameters)
        self.lock = threading.RLock()
        """Guards what buffers share: held for moments, never while something is waited for."""
        self.ledger = Ledger(dist.get_rank() if dist.is_initialized() else 0)
        """The ledger: bytes sent and lost."""
        self.buffers = BufferPool()
        """Memory of results, valid until the next step begins."""
        self.group = group
        """The group of the gradients; None: the default group."""
        self._scaler = scaler
        self.watched = WatchedGradients(self.names)
        """What DistributedDataParallel does with the results."""
        self._order = ForwardOrder(self.names.model)
        self.rules = LayoutRules(self.options, self.names, self._order)
        """The rules for each buffer."""
        self.pipeline: Pipeline = RECIPES[self._recipe].build(self)
        """What becomes of each buffer: the recipe's."""
        # One thread at a time ends a step, which may wait for buffers of it; apart from `lock`, which settling needs.
        self._entering = threading.RLock()
        self._step: Step | None = None
        self._number = 0
        self._digests: dict[Peers, dict[Hashable, bytes]] = {}
        self._drains: list[Callable[[], None]] = []
        if model is not None:
            warn_if_unused(self, model)

    # --- what users call ------------------------------------------------------------------------------------

    @property
    def residual(self) -> ResidualMemory | FeedbackMemory | None:
        """Values that wait for the next step; None: the recipe keeps nothing."""
        return self.pipeline.residual

    @property
    def recipe(self) -> str:
        """The recipe by which gradients travel: under "auto" that until it has chosen, then "exact" or "low_bit".

        That is few bits as "auto" has them: int8, by hosts. Where this rank's groups differ it stays "auto".
        """
        chosen = self.pipeline.chosen if isinstance(self.pipeline, AutoPipeline) else None
        return chosen or self._recipe

    @property
    def used(self) -> bool:
        """Whether a gradient has ever come."""
        return self._step is not None or self._number > 0

    @property
    def step(self) -> int:
        """How many steps have ended."""
        return self._number

    def end_step(self, applied: bool | None = None) -> None:
        """Ends the step; `applied` says whether the optimizer used its gradients. Without a step: does nothing.

        Needed where the state cannot tell: in a loop that skips optimizer steps without a scaler, or makes other calls
        each step. If not `applied`, residuals are again what they were before the step; None: as the scaler says, and
        without one they were used. Blocks for buffers that are still pending, and for a LayerwiseOptimizer's updates;
        with verify=True a collective, which raises ReplicaError.
        """
        self._drain()
        with self._entering:
            if self._step is None:
                return
            self.verify_replicas()
            self._end(applied)

    def follow(self, optimizer: torch.optim.Optimizer) -> Any:
        """Ends a step whenever the optimizer has made one. Returns a handle, whose remove() undoes it.

        For loops in which the state cannot recognise steps by itself. A step that a scaler skips is recognised by the
        scaler. A LayerwiseOptimizer needs none, and would wait for all its gradients each time.
        """
        return optimizer.register_step_post_hook(lambda *_: self.end_step(applied=True))

    def drain_with(self, synchronize: Callable[[], None]) -> Callable[[], None]:
        """Calls `synchronize` before a step is ended from outside, so that none of its buffers is still to be started.

        For callers that start buffers of a step after the optimizer's step. Returns a function that undoes it.
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
                "recipe": self._recipe,
            } | self.pipeline.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state_dict(); a step under way is forgotten. On all ranks, with states of the same step.

        Of as many ranks as there are now; for others see reshard.py. Raises ValueError: a version, or content, that is
        not known; a state of another recipe, codec or model.
        """
        self._check_saved(state)
        number = int(state["step"])
        self._drain()
        with self._entering:
            self._end(False)
            self.pipeline.load_state_dict(state)
            self._number = number

    def __getstate__(self) -> dict[str, Any]:
        # For torch's copies of a model in DDP, which hold its hook's state.
        if self.group is not None or self._scaler is not None:
            logger.warning(
                "a copy of a GradientState has the default group and no scaler: groups and scalers cannot be copied"
            )
        return {
            "model": self.names.model,
            "options": self.options,
            "verify": self.verify,
            "saved": self.state_dict(),
        }

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        GradientState.__init__(self, state["model"], options=state["options"], verify=state["verify"])
        self.load_state_dict(state["saved"])

    def _check_saved(self, state: object) -> None:
        if not isinstance(state, Mapping):
            raise ArgumentError(checks.refusal("state", state, "what state_dict() returned"))
        if state.get("version") != VERSION:
            raise ValueError(
                f"version of the gradients' state is {state.get('version')}; accepted: {VERSION}"
            )
        saved = state.get("recipe", "dlcp")
        if saved != self.options.recipe:
            raise ArgumentError(
                f"the state is of recipe {saved!r}; accepted: {self.options.recipe!r}, this one's"
            )
        try:
            int(state["step"])
            names = list(self.pipeline.names_in(state))
        except (KeyError, TypeError, AttributeError) as error:
            raise ArgumentError(f"the state has no {error}; accepted: what state_dict() returned") from None
        known = self.names.parameters
        if self.names.model is None:
            return
        if foreign := [name for name in names if name not in known]:
            raise ArgumentError(
                f"the state is another model's: it knows {', '.join(map(repr, foreign[:3]))}; accepted: a state of "
                f"a model with {', '.join(map(repr, list(known)[:3]))}"
            )
        for name, needed in _elements(state):
            if name in known and needed > known[name].numel():
                raise ArgumentError(
                    f"the state is another model's: it has {needed} elements of {name!r}; accepted: up to "
                    f"{known[name].numel()}"
                )

    def report(self) -> dict[str, Any]:
        """What was sent, lost and kept, in steps that have ended, as plain numbers: see Ledger.report."""
        return self.ledger.report()

    def reset(self, names: Iterable[str] | None = None) -> None:
        """Writes off what is kept of these parameters; None: of all. As after loading other weights. Ends the step."""
        self._drain()
        with self._entering:
            self._end(None)
            self.pipeline.reset(names)

    def verify_replicas(self) -> None:
        """Compares the step's results over the ranks of their groups, which all call it. Blocks.

        Without verify=True: nothing. Raises ReplicaError, naming the ranks that differ.
        """
        if not self.verify:
            return
        with self._entering:
            if self._step is not None:
                self._step.wait()
            for group, digests in list(self._digests.items()):
                del self._digests[group]
                order = [] if self._step is None else [one.prepared.key for one in self._step.buffers]
                replicas.compare(
                    group.private_communicator("replicas"),
                    self._number,
                    [digests[key] for key in order if key in digests],
                )

    # --- what exchanges call --------------------------------------------------------------------------------

    def enter(self, key: Hashable, last_of_step: bool | None) -> Step:
        """The step that a buffer belongs to: a new one if the last is full, or has seen it.

        Step.end_start() is to follow, when the buffer's collective has been started or could not be.
        """
        with self._entering:
            step = self._step
            if step is not None and (step.full or key in step.keys):
                self.verify_replicas()
                # A backward that failed in the middle has no gradients that the optimizer could have used.
                self._end(False if step.has_last and not step.full else None)
                step = None
            if step is None:
                step = self._begin()
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

    def cancel(self, step: Step, key: Hashable) -> None:
        """A buffer of a step could not be started; the step's gradients are of no use."""
        with self.lock:
            step.failed = True
            self.pipeline.cancel(key)

    def mark_last(self) -> None:
        """The current step has no more buffers."""
        if self._step is not None:
            self._step.full = True

    def end_backward(self, discarded: Collection[str]) -> None:
        """The current step has no more buffers, and nobody applies its results for these parameters."""
        if self._step is not None:
            self._step.full, self._step.discarded = True, discarded

    def starting(
        self, buffer: GradientBuffer, collective: str, keep: object, place: int = 0, agree: str = ""
    ) -> contextlib.AbstractContextManager[tuple[Communicator, Any]]:
        """`with` around the start of a buffer's collective: gives the communicator and how to start it.

        `keep`: the collective's memory. `place`: of the collective among the buffer's. `agree`: what must be equal on
        all ranks besides the options, and the buffer's length and type, which coded memory does not show.
        """
        call = buffer.call
        traffic_class = call.traffic_class
        if traffic_class is None:
            traffic_class = self.rules.of(buffer.layout).traffic_class
        start = buffer.group.starting(collective, call.opts, keep, on=buffer.communicator)
        if call.sequence is not None:
            start.call["sequence"] = call.sequence + place
        if traffic_class is not None:
            start.call["traffic_class"] = traffic_class
        keywords: Any = start.call
        of = f"{buffer.values.numel()} of {type_text(buffer.values.dtype)}"
        keywords["agree"] = ", ".join(filter(None, (self._agree, of, agree)))
        return start

    def note_result(self, prepared: PreparedBuffer, group: Peers) -> float | None:
        """A buffer's result is in its output, but for the call's factor. Its squared L2 norm; None: no rule asks."""
        output = prepared.output
        if prepared.factor is not None:
            output.mul_(prepared.factor)
        # Of a reduce-scatter each rank has its own; a part of a buffer (by_hosts.py) is compared with all of it.
        step = self._step
        whole = step is not None and prepared.key in step.keys
        if self.verify and whole and output.numel() == prepared.layout.numel:
            hashed = replicas.digest(output)
            with self.lock:
                self._digests.setdefault(group, {})[prepared.key] = hashed
        if not self.pipeline.wants_norm:
            return None
        return float(torch.linalg.vector_norm(output, dtype=torch.float64)) ** 2

    # --- steps ----------------------------------------------------------------------------------------------

    def _begin(self) -> Step:
        self._order.finish()
        loss_scale = self._loss_scale()
        with self.lock:
            self.pipeline.begin_step(loss_scale)
        self._step = Step(self._number, loss_scale)
        return self._step

    def _end(self, applied: bool | None) -> None:
        """Ends the current step, if there is one. `applied` None: as the scaler says."""
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
            if step.discarded and self.residual is not None:
                self.residual.discard(step.discarded)
            kept = self.pipeline.end_step(applied=applied, gradient_norm=step.gradient_norm())
            self.ledger.end_step(kept, applied=applied)
            self.buffers.recycle()
            self._digests.clear()

    def _drain(self) -> None:
        for synchronize in list(self._drains):
            synchronize()

    def _loss_scale(self) -> float:
        return 1.0 if self._scaler is None else float(self._scaler.get_scale())


def _elements(state: Any) -> Iterator[tuple[str, int]]:
    """Names of parameters, and how many elements they have at least, by all batches of values in a saved state."""
    if isinstance(state, Mapping) and {"names", "parameter", "offset", "count"} <= state.keys():
        ends = np.zeros(len(state["names"]), np.int64)
        np.maximum.at(ends, np.asarray(state["parameter"]), np.asarray(state["offset"] + state["count"]))
        yield from zip(state["names"], ends.tolist(), strict=True)
    elif isinstance(state, Mapping):
        for value in state.values():
            yield from _elements(value)
    elif isinstance(state, list | tuple):
        for value in state:
            yield from _elements(value)


def _check_arguments(
    model: object, group: object, options: object, scaler: object, verify: object, changes: Mapping[str, Any]
) -> None:
    """Raises TypeError or ArgumentError for what GradientState cannot take."""
    if not isinstance(model, nn.Module | None):
        raise TypeError(f"model is a {type(model).__name__}; accepted: a torch.nn.Module, or None")
    if not isinstance(group, dist.ProcessGroup | None):
        raise TypeError(f"group is a {type(group).__name__}; accepted: a process group, or None")
    if not isinstance(options, GradientOptions | None):
        raise TypeError(f"options is a {type(options).__name__}; accepted: GradientOptions, or None")
    if scaler is not None and not callable(getattr(scaler, "get_scale", None)):
        raise TypeError(f"scaler is a {type(scaler).__name__}; accepted: a torch.amp.GradScaler, or None")
    checks.boolean("verify", verify)
    checks.known("option", changes, [field.name for field in dataclasses.fields(GradientOptions)])
