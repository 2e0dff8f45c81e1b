"""Priority at the packet: whole layers leave at once, and packets of front layers overtake those under way.

Holding slices back, as P3 and ByteScheduler do, is how to have priorities over a transport that has none. dlcp's has
classes: the sender takes the highest class with work for each run of packets, and switches queue by it. So nothing is
cut and nothing waits for an answer, a front layer goes ahead after one run rather than one slice, and no credit can
make ranks wait for each other. The price: there are seven classes, so layers share them, and within a class what
became ready first leaves first. Three rules make that cheap:

- the first layer has the highest class to itself: forward stands still until it is in;
- the last layer has the lowest to itself: what is still under way when forward comes to the end is it alone, and the
  network stands still until backward has made the next gradient;
- small layers, of which the others do not notice anything, go with the first.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlcp.transport.layer_order.queue import SliceQueue

# Class 7 is the engine's own, for control.
CLASS_MAX = 6
# About half a millisecond at 1 Gbit/s.
SMALL_BYTES = 64 * 1024


class LayerPriority(SliceQueue):
    """Everything leaves at once; the class says who overtakes.

    Classes `class_max` (front) down to `class_min`: those between the first and the last get about as many bytes each.
    """

    def __init__(self, layer_bytes: Sequence[int], *, class_min: int = 0, class_max: int = CLASS_MAX) -> None:
        if not 0 <= class_min <= class_max <= CLASS_MAX:
            raise ValueError(
                f"classes are {class_min} to {class_max}; accepted: 0 to {CLASS_MAX}, the least first"
            )
        classes = classes_of(layer_bytes, class_min, class_max)
        super().__init__(layer_bytes, key=lambda layer, _: layer, classes=classes)


def classes_of(layer_bytes: Sequence[int], class_min: int, class_max: int) -> list[int]:
    """The classes of layers, front first."""
    classes = [class_max] * len(layer_bytes)
    large = [layer for layer, nbytes in enumerate(layer_bytes) if nbytes > SMALL_BYTES]
    if len(large) < 2:
        return classes
    classes[large[-1]] = class_min
    middle = large[1:-1]
    total, before = sum(layer_bytes[layer] for layer in middle), 0
    # With two classes there is none between; all but the first share the lowest.
    highest, count = max(class_max - 1, class_min), max(class_max - class_min - 1, 1)
    for layer in middle:
        classes[layer] = highest - before * count // total
        before += layer_bytes[layer]
    return classes
