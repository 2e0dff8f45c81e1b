"""The optimizer that the training loop sees.

    optimizer = LayerwiseOptimizer(torch.optim.AdamW(model.parameters()), model)
    for batch in batches:
        optimizer.zero_grad()
        loss(model(batch)).backward()    # gradients leave as they are made
        optimizer.step()                 # only permits the updates
    optimizer.synchronize()              # makes the remaining updates

The numbers are those of the plain loop that averages every gradient and then calls step(): the same bits with one or
two ranks. With more, whose values are added first depends on where a value lies in a collective, so a plain loop has
the same bits if it averages the same pieces: `buckets`, cut as the order cuts them.

What differs is when: a layer is updated in the next forward, just before it is used, or earlier, while
forward waits for another. So parameters that are read other than by the forward of a module of the model, state_dict(),
or this optimizer's own methods are read after `synchronize()`; and between backward() and step(), gradients are the
network's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn

from dlcp import checks
from dlcp.errors import DlcpError
from dlcp.torch.failures import for_torch
from dlcp.torch.gradient.exchange import exchange_of
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.layerwise.arguments import check_arguments
from dlcp.torch.layerwise.bucket import Bucket, BucketState, buckets_of
from dlcp.torch.layerwise.deferred import DeferredUpdates, Settings
from dlcp.torch.layerwise.forward_trace import ForwardTrace
from dlcp.torch.layerwise.group import agree_on, communicator_of, spread
from dlcp.torch.layerwise.listeners import Listeners
from dlcp.torch.layerwise.sender import Sender
from dlcp.torch.layerwise.slice_reducer import ExactReducer, GradientReducer, SliceReducer
from dlcp.torch.process_group import ProcessGroup
from dlcp.transport.communicator import Work
from dlcp.transport.layer_order import LayerPriority, OrderMaker

if TYPE_CHECKING:
    from dlcp.torch.gradient.state import GradientState


class LayerwiseOptimizer(torch.optim.Optimizer):
    """Averages gradients over the ranks of a group and updates each layer when its gradient is in.

    `optimizer`: any of torch's whose update of a parameter depends on that parameter alone (SGD, Adam, AdamW, …), of
    parameters of `model`; it must not be stepped itself. `group`: of the backend dlcp; None: the default group.
    `order`: what leaves next (dlcp.transport.layer_order), equal on all ranks. `algorithm`: of the all-reduces; None:
    by size. `gradients`: gradients follow its recipe (types that cannot are refused); None: all arrive.
    `broadcast`: begin with rank 0's parameters and buffers on all ranks. Blocks for that and for the store.

    All ranks make their optimizers of a group in the same order, for models of the same parameters. Parameters of other
    types than the transport can average, or that are not the model's, raise TypeError or ValueError.

    In the loop:

    - A module's forward waits for the module's parameters. Which modules have a forward of their own is traced in the
      first step; parameters of those that have none are waited for by the nearest module above. A parameter that nobody
      waited for raises RuntimeError in backward. Under no_grad in eval mode everything is waited for at once.
    - One backward per step. More go under `no_sync()`, all but the last; a second one raises RuntimeError, and then the
      gradients of this step are lost.
    - A parameter without a gradient counts as zero on ranks that have none, and is left alone if no rank has one.
    - `param_groups`, `clip_grad_norm_` and with them torch.amp.GradScaler, used between backward() and step(), wait for
      all gradients first: right, but without the overlap with forward. Learning-rate schedules belong after step().
      torch.nn.utils.clip_grad_norm_(model.parameters()) cannot know that: use the one here.
    - torch.compile gives the same numbers, but cuts the graph wherever a module waits.
    - A failed collective raises the transport's error (also a torch.distributed.DistBackendError) in the next forward,
      step() or synchronize(); parameters not updated by then keep their old values.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: nn.Module,
        *,
        group: dist.ProcessGroup | None = None,
        order: OrderMaker = LayerPriority,
        algorithm: str | None = None,
        gradients: GradientState | None = None,
        broadcast: bool = True,
    ) -> None:
        group = ProcessGroup.within(given := dist.group.WORLD if group is None else group)
        if group is None:
            raise TypeError(f"group is a {type(given).__name__}; accepted: a group of the backend dlcp")
        check_arguments(optimizer, model, order, algorithm, gradients)
        # What Optimizer.__init__ would set up but for parameters and state, which stay with the optimizer inside.
        super().__setstate__({"defaults": optimizer.defaults})
        self.optimizer = optimizer
        """The wrapped optimizer. Its state may be behind; use this object's instead."""
        self._updates = DeferredUpdates(optimizer)
        trained = [parameter for said in optimizer.param_groups for parameter in said["params"]]
        self.buckets: Sequence[Bucket] = tuple(buckets_of(model, trained))
        """Gradients that travel together, in the order of the model's modules."""
        self._communicator = communicator_of(group)
        self._group = group
        self._order, self._algorithm, self._gradients = order, algorithm, gradients
        self._trace = ForwardTrace(model)
        # None: the first backward has not begun.
        self._sender: Sender | None = None
        self._needs: dict[nn.Module, tuple[Bucket, ...]] = {}
        # No forward can wait for these: step() does.
        self._unneeded: list[Bucket] = []
        # Front layers first.
        self._due: dict[Bucket, Settings] = {}
        self._sends = True
        self._used: tuple[torch.Tensor, Work] | None = None
        # Before the state's step ends, its remaining gradients must be sent.
        self._undrain = gradients.drain_with(self.synchronize) if gradients is not None else _nothing
        if broadcast:
            spread(model, group)
        self._listeners = Listeners(
            model, self.buckets, self._handle_gradient, self._handle_forward, self.synchronize
        )

    # --- the loop ---------------------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Lets every parameter be updated, by the settings that hold now, as soon as its averaged gradient is in.

        Blocks only for updates of the step before that no forward has asked for. Raises ValueError: a closure.
        """
        if closure is not None:
            raise ValueError(
                "step() was given a closure; accepted: none, since gradients leave in backward()"
            )
        self._update_all()
        self._send_the_rest()
        settings = self._updates.settings()
        for bucket in sorted(self.buckets, key=lambda one: one.layer):
            delivered = bucket.state is BucketState.DELIVERED
            bucket.state = BucketState.DUE
            self._due[bucket] = settings
            if delivered:
                self._update(bucket, [parameter.grad for parameter in bucket.parameters])
        for bucket in self._unneeded:
            self._bring_up_to_date(bucket)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets gradients, or makes them zero: those whose update is still to be made, after it.

        Between backward() and step() it waits for all gradients, and throws them away.
        """
        if any(bucket.state in (BucketState.SENT, BucketState.DELIVERED) for bucket in self.buckets):
            self._deliver_all()
            if self._gradients is not None:
                self._gradients.end_step(applied=False)
        for bucket in self.buckets:
            if bucket.state is BucketState.DUE:
                bucket.forgotten, bucket.zeroed = set_to_none, not set_to_none
            else:
                bucket.reopen()
        waiting = set() if set_to_none else {one for bucket in self._due for one in bucket.parameters}
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None or parameter in waiting:
                    continue
                # Detached: backward(create_graph=True) leaves its history. Not in place, which views do not allow.
                parameter.grad = None if set_to_none else parameter.grad.detach().zero_()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward inside only adds to the gradients of this rank; the next one outside sends the sums."""
        before, self._sends = self._sends, False
        try:
            yield
        finally:
            self._sends = before

    @torch.no_grad()
    def synchronize(self) -> None:
        """Waits for all that is pending: makes the updates that are due, and after backward() averages `grad`."""
        if self._sender is None:
            return
        self._update_all()
        if any(bucket.state is BucketState.SENT for bucket in self.buckets):
            self._deliver_all()

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Clips the averaged gradients by their global norm, which it returns. Between backward() and step().

        The norm needs every gradient, so this waits for all of them; forward of the next step waits for none then.
        """
        self.synchronize()
        parameters = [one for group in self.optimizer.param_groups for one in group["params"]]
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)

    def detach(self) -> None:
        """Waits for all that is pending and takes the hooks off the model. The optimizer inside is up to date then."""
        self.synchronize()
        self._listeners.remove()
        self._undrain()

    # --- what torch asks of an optimizer ----------------------------------------------------------------------

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Those of the optimizer inside. Between backward() and step() this waits for all gradients."""
        # The caller is about to read gradients: a GradScaler, or manual clipping.
        if any(bucket.state is BucketState.SENT for bucket in self.buckets):
            self.synchronize()
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """That of the optimizer inside, after the updates that are due."""
        self.synchronize()
        return self.optimizer.state

    def state_dict(self) -> dict[str, Any]:
        """That of the optimizer inside, after the updates that are due: either can load it."""
        self.synchronize()
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads it into the optimizer inside; updates that are due are made before."""
        self.synchronize()
        self.optimizer.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> NoReturn:
        """Raises RuntimeError: what travels together is settled at the start."""
        raise RuntimeError(
            "a LayerwiseOptimizer takes no more parameters; accepted: add_param_group of the optimizer inside, before"
        )

    def __repr__(self) -> str:
        return f"LayerwiseOptimizer({self.optimizer!r}, {len(self.buckets)} buckets)"

    __getstate__ = checks.not_copied

    # --- backward: gradients leave ----------------------------------------------------------------------------

    def _handle_gradient(self, bucket: Bucket, place: int) -> None:
        """A parameter has got its gradient."""
        if not self._sends:
            return
        if self._sender is not None:
            self._sender.check()
        if bucket.state is BucketState.DUE:
            raise RuntimeError(
                f"{bucket.names[place]} has got a gradient before its update of the step before was made: it was used "
                "without the forward of a module that waits for it; call synchronize() before such use"
            )
        if bucket.state is not BucketState.OPEN or place in bucket.arrived:
            raise RuntimeError(
                f"{bucket.names[place]} has got a second gradient before step(); accepted: one backward() per step, "
                "others under no_sync()"
            )
        bucket.arrived.add(place)
        if bucket.complete:
            self._send(bucket)

    def _send(self, bucket: Bucket) -> None:
        sender = self._ready_sender()
        if self._due and not any(other.state is BucketState.SENT for other in self.buckets):
            # Of modules that this forward has not used: a step's layers all go after the last step's.
            self._update_all()
        with torch.no_grad():
            memory = bucket.pack()
        bucket.state = BucketState.SENT
        sender.send(bucket.layer, memory, bucket.label)

    def _send_the_rest(self) -> None:
        """Sends what backward did not, so that every rank sends all gradients. The step is then complete."""
        if all(bucket.state is BucketState.DELIVERED for bucket in self.buckets):
            return
        for bucket in self.buckets:
            if bucket.state is BucketState.OPEN:
                self._send(bucket)
        given = [flag for bucket in self.buckets for flag in bucket.given]
        flags = torch.tensor(given, dtype=torch.uint8)
        self._used = flags, self._ready_sender().agree(flags)

    def _ready_sender(self) -> Sender:
        """The sender; made at the first gradient, when the first forward has been traced."""
        if self._sender is None:
            needs = self._trace.needs(self.buckets)
            self._needs = {module: tuple(buckets) for module, buckets in needs.items()}
            waited_for = {bucket for buckets in needs.values() for bucket in buckets}
            self._unneeded = [bucket for bucket in self.buckets if bucket not in waited_for]
            # Ranks agree on rank 0's order: slices are numbered by it.
            places = agree_on(self._trace.in_order(self.buckets), self._communicator)
            in_order = [self.buckets[place] for place in places]
            for layer, bucket in enumerate(in_order):
                bucket.layer = layer
            order = self._order([bucket.nbytes for bucket in in_order])
            self._sender = Sender(self._reducer(in_order), order, len(in_order))
        return self._sender

    def _reducer(self, in_order: Sequence[Bucket]) -> SliceReducer:
        state = self._gradients
        if state is None:
            return ExactReducer(self._communicator, [bucket.dtype for bucket in in_order], self._algorithm)
        layouts = [
            Layout.of((state.names.of(one), one.numel()) for one in bucket.parameters) for bucket in in_order
        ]
        return GradientReducer(exchange_of(state, self._group, self._communicator), in_order, layouts)

    # --- forward: updates are made ----------------------------------------------------------------------------

    def _handle_forward(self, module: nn.Module) -> None:
        """The forward of a module begins."""
        if self._sender is None:
            self._trace.note(module)
        elif self._due:
            if not (module.training or torch.is_grad_enabled()):
                # Fast paths of torch's modules use the parameters of submodules without calling their forward.
                self.synchronize()
                return
            for bucket in self._needs.get(module, ()):
                self._bring_up_to_date(bucket)

    @torch.no_grad()
    def _bring_up_to_date(self, bucket: Bucket) -> None:
        """Makes the update of a bucket if it is due; meanwhile those of others that are in."""
        while bucket.state is BucketState.DUE:
            sender = self._ready_sender()
            if not sender.is_in(bucket.layer):
                other = next((one for one in self._due if sender.is_in(one.layer)), None)
                if other is not None:
                    self._update(other, self._averages(other))
                    continue
            self._update(bucket, self._averages(bucket))

    def _update_all(self) -> None:
        for bucket in list(self._due):
            self._bring_up_to_date(bucket)

    def _update(self, bucket: Bucket, gradients: Sequence[torch.Tensor | None]) -> None:
        settings = self._due[bucket]
        kept = [parameter.grad for parameter in bucket.parameters]
        changed = []
        for parameter, gradient in zip(bucket.parameters, gradients, strict=True):
            parameter.grad = gradient
            if gradient is not None:
                changed.append(parameter)
        if changed:
            self._updates.apply(changed, settings)
        for parameter, gradient, before in zip(bucket.parameters, gradients, kept, strict=True):
            if bucket.forgotten or before is None:
                parameter.grad = None
            elif bucket.zeroed and gradient is not None:
                gradient.zero_()
        bucket.reopen()
        del self._due[bucket]
        self._end_step_if_over()

    def _deliver_all(self) -> None:
        """Waits for every gradient of the current step, and makes the averages `grad`."""
        with torch.no_grad():
            self._send_the_rest()
            for bucket in self.buckets:
                if bucket.state is BucketState.SENT:
                    averages = self._averages(bucket)
                    for parameter, gradient in zip(bucket.parameters, averages, strict=True):
                        parameter.grad = gradient
                    bucket.state = BucketState.DELIVERED
            self._end_step_if_over()

    def _averages(self, bucket: Bucket) -> list[torch.Tensor | None]:
        """The averaged gradients of a bucket, None where no rank has one. Blocks; raises the transport's errors."""
        self._ready_sender().wait(bucket.layer)
        averages: list[torch.Tensor | None] = list(bucket.averages())
        if not all(bucket.given):
            assert self._used is not None
            flags, work = self._used
            try:
                work.wait()
            except DlcpError as error:
                raise for_torch(error) from None
            begin = sum(len(before.parameters) for before in self.buckets[: self.buckets.index(bucket)])
            for place in range(len(averages)):
                if not flags[begin + place]:
                    averages[place] = None
        return averages

    def _end_step_if_over(self) -> None:
        """When nothing is pending any more, the sender may begin another step."""
        if any(bucket.state in (BucketState.SENT, BucketState.DUE) for bucket in self.buckets):
            return
        if self._used is not None:
            try:
                self._used[1].wait()
            except DlcpError as error:
                raise for_torch(error) from None
            self._used = None
            self._ready_sender().end_step()


def _nothing() -> None:
    pass
