"""Who did what when in some steps of training: layers' forward and backward, and gradients under way."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

# Steps that a picture shows; those before fill the pipeline.
SHOWN, SKIPPED = 2, 2
Kind = Literal["forward", "backward", "gradient"]


@dataclass(frozen=True)
class Interval:
    """Something that a layer had to do with."""

    kind: Kind
    layer: int
    begin_s: float
    end_s: float


@dataclass
class Timeline:
    """Times by time.perf_counter, of one rank."""

    layers: int
    intervals: list[Interval] = field(default_factory=list)
    steps_s: list[float] = field(default_factory=list)
    """When steps began, and when the last one ended."""

    def mark(self) -> None:
        """A step begins, or the last one has ended."""
        self.steps_s.append(time.perf_counter())

    @contextlib.contextmanager
    def watch(
        self,
        layers: Sequence[nn.Module],
        communicator: Any,
        layers_of: Callable[[str | None, int, int], list[int]],
    ) -> Iterator[None]:
        """Notes what the modules and the communicator's all-reduces do meanwhile.

        `layers_of(label, bytes before in this step, bytes)`: whose gradients a message carries.
        """
        handles: list[Any] = []
        for place, layer in enumerate(layers):
            handles += self._hooks(place, layer)
        start = communicator.all_reduce
        steps, before_bytes = -1, 0

        def all_reduce(data: Any, *arguments: Any, **how: Any) -> Any:
            nonlocal steps, before_bytes
            if steps != len(self.steps_s):
                steps, before_bytes = len(self.steps_s), 0
            begin_s = time.perf_counter()
            work = start(data, *arguments, **how)
            of = layers_of(how.get("label"), before_bytes, data[1])
            before_bytes += data[1]

            def at_end(_: object) -> None:
                end_s = time.perf_counter()
                self.intervals += [Interval("gradient", layer, begin_s, end_s) for layer in of]

            work.add_done_callback(at_end)
            return work

        communicator.all_reduce = all_reduce
        try:
            yield
        finally:
            del communicator.all_reduce
            for handle in handles:
                handle.remove()

    def _hooks(self, place: int, layer: Any) -> list[Any]:
        began: dict[str, float] = {}

        def begin(kind: Kind) -> None:
            began[kind] = time.perf_counter()

        def end(kind: Kind) -> None:
            self.intervals.append(Interval(kind, place, began[kind], time.perf_counter()))

        def forward(_: object, __: object, result: Any) -> None:
            end("forward")
            if result.requires_grad:
                result.register_hook(lambda _: begin("backward"))

        return [
            # Of the linear part: what waits for its gradient has waited before.
            layer.linear.register_forward_pre_hook(lambda *_: begin("forward")),
            layer.register_forward_hook(forward),
            layer.linear.weight.register_post_accumulate_grad_hook(lambda _: end("backward")),
        ]
