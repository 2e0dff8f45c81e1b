"""How an optimizer hears of a model: of gradients, of forwards, of parameters about to be read or written.

The model holds the listener's methods weakly, so an optimizer that is gone hears nothing; and a copy of the model, deep
or pickled, has hooks that do nothing: what it does is not the original's business.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

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
        for bucket in buckets:
            for place, parameter in enumerate(bucket.parameters):
                told: Any = parameter
                hook = _GradientHook(on_gradient, bucket, place)
                self._handles.append(told.register_post_accumulate_grad_hook(hook))
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
