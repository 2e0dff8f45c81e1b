"""An optimizer's hooks on its model: for gradients, forwards, and parameters that are about to be read or written.

The model holds the listener's methods weakly, so the hooks do nothing once the optimizer is gone; and a copy of the
model, deep or pickled, has hooks that do nothing.
"""

from __future__ import annotations

import gc
import itertools
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from dlcp.torch import dynamo
from dlcp.torch.layerwise.bucket import Bucket


class Listeners:
    """The hooks on a model and its parameters. `remove` takes them off.

    `on_gradient(bucket, place)`: a parameter has got its gradient. `on_forward(module)`: a forward begins.
    `on_state()`: state_dict() or load_state_dict() begins. Bound methods, all three.
    """

    def __init__(
        self,
        model: nn.Module,
        buckets: Iterable[Bucket],
        on_gradient: Callable[[Bucket, int], None],
        on_forward: Callable[[nn.Module], None],
        on_state: Callable[[], None],
    ) -> None:
        self._handles: list[Any] = []
        buckets = list(buckets)
        self._claimed = list(itertools.chain(*(bucket.parameters for bucket in buckets)))
        for parameter in self._claimed:
            _claim(parameter, self)
        for bucket in buckets:
            for place, parameter in enumerate(bucket.parameters):
                hooked: Any = parameter
                hook = _GradientHook(on_gradient, bucket, place)
                self._handles.append(hooked.register_post_accumulate_grad_hook(hook))
        for module in model.modules():
            watched: Any = module
            self._handles += [
                watched.register_forward_pre_hook(_ForwardHook(on_forward)),
                watched.register_state_dict_pre_hook(_StateHook(on_state)),
                watched.register_load_state_dict_pre_hook(_StateHook(on_state)),
            ]

    def remove(self) -> None:
        """Takes the hooks off. May be called again."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for parameter in self._claimed:
            _owners.pop(parameter, None)  # type: ignore[no-untyped-call]
        self._claimed = []


def _claim(parameter: nn.Parameter, owner: Listeners) -> None:
    """Raises ValueError: a LayerwiseOptimizer that is still in use has the parameter."""
    before = _owners.get(parameter)  # type: ignore[no-untyped-call]
    if before is not None and before() is not None:
        # One that is no longer used may be part of a reference cycle.
        gc.collect()
        if before() is not None:
            raise ValueError(
                "a parameter of the model belongs to another LayerwiseOptimizer; accepted: one for each parameter"
            )
    _owners[parameter] = weakref.ref(owner)


# Which listeners a parameter has.
_owners: WeakIdKeyDictionary = WeakIdKeyDictionary()


class _Hook:
    """Calls a method as long as its object is there."""

    def __init__(self, method: Callable[..., None] | None = None) -> None:
        self._method = None if method is None else weakref.WeakMethod(method)

    def call(self, *arguments: object) -> None:
        method = None if self._method is None else self._method()
        if method is not None:
            method(*arguments)

    def __call__(self, *arguments: object, **named: object) -> None:
        """As a copy is called."""

    def __reduce__(self) -> tuple[type[_Hook], tuple[()]]:
        return _Hook, ()


class _GradientHook(_Hook):
    """Says which parameter it is that has got a gradient."""

    def __init__(self, method: Callable[..., None], bucket: Bucket, place: int) -> None:
        super().__init__(method)
        self._bucket, self._place = bucket, place

    def __call__(self, *_: object, **__: object) -> None:
        self.call(self._bucket, self._place)


class _ForwardHook(_Hook):
    """Says which module's forward begins."""

    def __call__(self, *arguments: object, **_: object) -> None:
        self.call(arguments[0])


class _StateHook(_Hook):
    """Says only that it is so."""

    def __call__(self, *_: object, **__: object) -> None:
        self.call()


# A compiled model calls the hooks between two graphs.
dynamo.skip(sys.modules[__name__])
