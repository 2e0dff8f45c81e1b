"""An optimizer of which the updates are made at a hub: gradients go there, weights come back.

    optimizer = dlcp.torch.HubOptimizer(torch.optim.AdamW(model.parameters()))    # the model is not in DDP
    for batch in batches:
        optimizer.zero_grad()
        loss(model(batch)).backward()
        optimizer.step()    # blocks until the new weights are here

A worker sends and receives what an all-reduce over the hub does, and neither keeps the optimizer's state nor updates.
The hub's cores add a block of gradients, divide it, update the weights and send them in one pass (PHub, SoCC 2018). All
workers get the same bits: those that torch's optimizer with foreach=False computes of the same averaged gradient, as
far as torch rounds square roots to nearest (native/collective/optimizer.hpp).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from dlcp.checks import integer, not_copied
from dlcp.errors import ArgumentError, DlcpError
from dlcp.torch.failures import for_torch
from dlcp.torch.hub_buffer import HubBuffer, rule_of, state_names, steps_of
from dlcp.torch.process_group import ProcessGroup
from dlcp.torch.tensors import span
from dlcp.transport.call_options import CollectiveKeywords
from dlcp.transport.hub.group import HubGroup
from dlcp.transport.hub.rule import OptimizerRule
from dlcp.transport.work import Work

BUFFER_BYTES = 25 * 1024 * 1024
"""Of a buffer, about: parameters of one group that travel together."""


class HubOptimizer(torch.optim.Optimizer):
    """Makes the steps of `optimizer` at the group's hub.

    `optimizer`: SGD (also with momentum, Nesterov), Adam or AdamW of torch, which must not be stepped itself; its
    `param_groups` are this one's, so learning-rate schedules work on either and hyperparameters count from the next
    step on. Its state must be empty. Parameters are dense float32. `group`: of the backend dlcp, with a hub; None: the
    default group. `buffer_bytes`: about how many travel together. `average`: gradients' mean, as DDP; False: their sum.

    Gradients are this rank's own until step(): clipping or scaling them by what one rank sees, as clip_grad_norm_ and
    GradScaler do, makes another mean, and ranks that skip a step alone leave the others waiting.

    `overlap`: a buffer leaves when backward has made the last of its gradients. Then there is one backward per step,
    and gradients are not changed before step(), which no longer sees them.

    All ranks make their optimizers of a group in the same order, for the same parameters. Begins with rank 0's weights
    on all ranks. Blocks for that. Raises ArgumentError: an optimizer that a hub does not have, such as LARS, which
    needs whole layers; average its gradients over the hub instead (all_reduce, DDP). HubError: the hub has no memory
    for it.

    The state (momentum) is at the hub and is lost with the group; `state_dict` fetches it.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        group: dist.ProcessGroup | None = None,
        *,
        buffer_bytes: int = BUFFER_BYTES,
        average: bool = True,
        overlap: bool = False,
    ) -> None:
        integer("buffer_bytes", buffer_bytes, 4)
        process_group = ProcessGroup.within(given := dist.group.WORLD if group is None else group)
        if process_group is None:
            raise ArgumentError(f"group is {given!r}; accepted: a group of the backend dlcp")
        hub = process_group.communicator.hub_group
        if hub is None:
            raise ArgumentError(
                "the group has no hub; set hub (DLCP_HUB, or Options(hub=...)) before it is made"
            )
        if optimizer.state:
            raise ArgumentError("optimizer has been stepped already; accepted: one with no state yet")
        super().__init__(optimizer.param_groups, optimizer.defaults)
        # One list of groups, so that whoever changes one changes the other.
        optimizer.param_groups = self.param_groups
        self._optimizer = optimizer
        self._hub: HubGroup = hub
        self._average = average
        self._steps = 0
        self._group = process_group
        self._numbering = process_group.communicator
        cut = list(self._cut(buffer_bytes))
        first = hub.take_weights(len(cut))
        self._buffers = [HubBuffer(first + place, *each) for place, each in enumerate(cut)]
        self._load()
        self._first = self._numbering.reserve(len(self._buffers))
        if overlap:
            for buffer in self._buffers:
                for parameter in buffer.parameters:
                    hook = partial(self._has_gradient, buffer)
                    parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def _cut(self, buffer_bytes: int) -> Iterator[tuple[int, list[torch.Tensor]]]:
        """Index of the group and parameters of each buffer."""
        for index, group in enumerate(self.param_groups):
            rule_of(self._optimizer, group)  # raises what cannot be
            chosen: list[torch.Tensor] = []
            for parameter in group["params"]:
                if not parameter.requires_grad:
                    continue
                if parameter.dtype != torch.float32 or parameter.layout != torch.strided:
                    raise ArgumentError(
                        f"a parameter is {parameter.dtype}, {parameter.layout}; accepted: dense float32"
                    )
                chosen.append(parameter)
                if 4 * sum(each.numel() for each in chosen) >= buffer_bytes:
                    yield index, chosen
                    chosen = []
            if chosen:
                yield index, chosen

    def _load(self) -> None:
        """Rank 0's weights, on all ranks and at the hub."""
        works = []
        for buffer in self._buffers:
            buffer.gather(buffer.parameters)
            self._broadcast(buffer.flat)
            with _torch_errors():
                rule, how = self._rule(buffer), CollectiveKeywords(keep=buffer.flat)
                works.append(self._hub.load(buffer.number, span(buffer.flat), rule, how))
        self._finish(works)

    def _broadcast(self, flat: torch.Tensor) -> None:
        """Rank 0's: a load takes the greatest of what ranks bring."""
        dist.broadcast(flat, dist.get_global_rank(self._group, 0), group=self._group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Sends all gradients and waits for the weights. Returns the closure's result.

        Raises ArgumentError: a parameter has no dense gradient, or a hyperparameter is out of range; nothing has
        happened then, but for what `overlap` has sent. The group's errors: then some parameters may have new values and
        others old ones, and the hub's state is lost.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        left = [buffer for buffer in self._buffers if buffer.work is None]
        # Of all before the first leaves: the hub would wait for the rest of a step.
        for buffer in left:
            buffer.check_gradients()
            self._hub.check_rule(buffer.number, self._rule(buffer))
        for buffer in left:
            self._send(buffer)
        works = [buffer.take_work() for buffer in self._buffers]
        self._steps += 1
        self._first = self._numbering.reserve(len(self._buffers))
        self._finish(works)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's. A backward that an exception has ended counts no more."""
        super().zero_grad(set_to_none)
        for buffer in self._buffers:
            if buffer.work is None:
                buffer.ready.clear()

    def _has_gradient(self, buffer: HubBuffer, parameter: torch.Tensor) -> None:
        """In backward: a parameter's gradient is there."""
        if buffer.work is not None:
            raise RuntimeError(
                "a gradient was made after its buffer had left; accepted: one backward per step, or overlap=False"
            )
        buffer.ready.add(id(parameter))
        if len(buffer.ready) == len(buffer.parameters):
            buffer.check_gradients()
            with torch.no_grad():
                self._send(buffer)

    def _send(self, buffer: HubBuffer) -> None:
        """Starts a buffer's step. Numbers are the buffers', since backward may end in another order on other ranks."""
        buffer.gather([parameter.grad for parameter in buffer.parameters])
        with _torch_errors():
            buffer.work = self._hub.step(
                buffer.number,
                span(buffer.flat),
                self._rule(buffer),
                self._steps + 1,
                average=self._average,
                how={"keep": buffer.flat, "sequence": self._first + self._buffers.index(buffer)},
            )

    def _rule(self, buffer: HubBuffer) -> OptimizerRule:
        return rule_of(self._optimizer, self.param_groups[buffer.group])

    def _finish(self, works: list[Work]) -> None:
        for buffer, work in zip(self._buffers, works, strict=True):
            with _torch_errors():
                work.wait()
            buffer.scatter()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Only while it is made: the hub has the weights of what is there then. Raises ArgumentError."""
        if hasattr(self, "_buffers"):
            raise ArgumentError(
                "a parameter group was added; accepted: all of them when the optimizer is made"
            )
        super().add_param_group(param_group)

    __getstate__ = not_copied

    def state_dict(self) -> dict[str, Any]:
        """As the wrapped optimizer's after the same steps, with the state fetched from the hub. All ranks call it.

        Blocks. Also a plain optimizer of the same kind can load it. Raises ArgumentError: a step is under way.
        """
        self._check_between_steps()
        state = self._optimizer.state
        for buffer in self._buffers:
            rule = self._rule(buffer)
            arrays = [self._fetch(buffer, part) for part in range(1, rule.states + 1)]
            for place, parameter in enumerate(buffer.parameters):
                values = [array[place].view(parameter.shape).to(parameter.device) for array in arrays]
                if self._steps and (values or not rule.is_sgd):
                    state[parameter] = dict(zip(state_names(rule), values, strict=True))
                    if not rule.is_sgd:
                        state[parameter]["step"] = torch.tensor(float(self._steps))
        try:
            return self._optimizer.state_dict()
        finally:
            state.clear()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes hyperparameters and state, as of `state_dict`, and the parameters as the weights.

        All ranks call it, with the same hyperparameters; then they have rank 0's parameters and state. Blocks. Raises
        ArgumentError: parameters have made different steps, or some have state and others none; a step is under way;
        what the wrapped optimizer's own raises.
        """
        self._check_between_steps()
        self._optimizer.load_state_dict(state_dict)
        self.param_groups = self._optimizer.param_groups
        state, works = self._optimizer.state, []
        steps = {steps_of(state.get(each)) for buffer in self._buffers for each in buffer.parameters}
        if len(steps) > 1:
            raise ArgumentError(
                f"parameters have made {sorted(steps)} steps; accepted: all have made the same"
            )
        self._steps = steps.pop() if steps else 0
        for buffer in self._buffers:
            rule = self._rule(buffer)
            sources: list[list[torch.Tensor]] = [buffer.parameters]
            if self._steps:
                sources += [[state[each][name] for each in buffer.parameters] for name in state_names(rule)]
            for part, source in enumerate(sources):
                flat = torch.empty_like(buffer.flat)
                buffer.gather(source, flat)
                self._broadcast(flat)
                if part == 0:
                    buffer.scatter(flat)
                with _torch_errors():
                    how = CollectiveKeywords(keep=flat)
                    works.append(self._hub.load(buffer.number, span(flat), rule, how, part=part))
        state.clear()
        for work in works:
            with _torch_errors():
                work.wait()

    def _check_between_steps(self) -> None:
        if any(buffer.work is not None for buffer in self._buffers):
            raise ArgumentError("gradients have left in backward (overlap=True); accepted: after step()")

    def _fetch(self, buffer: HubBuffer, part: int) -> tuple[torch.Tensor, ...]:
        flat = torch.zeros_like(buffer.flat)
        with _torch_errors():
            self._hub.fetch(buffer.number, span(flat), {"keep": flat}, part=part).wait()
        return buffer.pieces_of(flat)


@contextlib.contextmanager
def _torch_errors() -> Iterator[None]:
    try:
        yield
    except DlcpError as error:
        raise for_torch(error) from None
