"""Priority at the packet: whole layers leave at once, and packets of front layers overtake those under way.

Holding slices back, as P3 and ByteScheduler do, is how to have priorities over a transport that has none. dlcp's has
classes: the sender takes the highest class with work for each run of packets, and switches queue by it. So nothing is
cut and nothing waits for an answer, a front layer goes ahead after one run rather than one slice, and no credit can
make ranks wait for each other. The price: there are seven classes, so layers share them.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlcp.transport.order.queue import SliceQueue

# Class 7 is the engine's own, for control.
CLASS_MAX = 6


class LayerPriority(SliceQueue):
    """Everything leaves at once; the class says who overtakes.

    Classes from `class_max` (front) down to `class_min` get about as many bytes each.
    """

    def __init__(self, layer_bytes: Sequence[int], *, class_min: int = 0, class_max: int = CLASS_MAX) -> None:
        if not 0 <= class_min <= class_max <= CLASS_MAX:
            raise ValueError(
                f"classes are {class_min} to {class_max}; accepted: 0 to {CLASS_MAX}, the least first"
            )
        count, total, before = class_max - class_min + 1, sum(layer_bytes), 0
        classes = []
        for nbytes in layer_bytes:
            classes.append(class_max - before * count // total if total else class_max)
            before += nbytes
        super().__init__(layer_bytes, key=lambda layer, _: layer, classes=classes)
