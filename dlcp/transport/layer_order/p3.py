"""Priority-based parameter propagation (P3; Jayarajan et al., MLSys 2019, sections 3 and 4).

Parameters are cut into slices of at most 50,000 elements; slices wait by layer, front layers first, and leave one after
the other, so that a front layer has to wait for one slice at most. In the paper a slice has left when the socket has
taken it, which lets a few be on their way; `slices_under_way` says how many.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlcp.transport.layer_order.queue import SliceQueue

SLICE_ELEMENTS = 50_000


class P3(SliceQueue):
    """Small slices, front layers first, a few under way.

    `element_bytes`: of the gradients' type. `together`: see SliceQueue; the paper's parameter servers have it False.
    """

    def __init__(
        self,
        layer_bytes: Sequence[int],
        *,
        element_bytes: int = 4,
        slices_under_way: int = 4,
        together: bool = True,
    ) -> None:
        if element_bytes not in (1, 2, 4, 8):
            raise ValueError(f"element_bytes is {element_bytes}; accepted: 1, 2, 4, 8")
        if slices_under_way < 1:
            raise ValueError(f"slices_under_way is {slices_under_way}; accepted: 1 or more")
        slice_bytes = SLICE_ELEMENTS * element_bytes // 64 * 64
        super().__init__(
            layer_bytes,
            key=lambda layer, _: layer,
            slice_bytes=slice_bytes,
            credit_bytes=slices_under_way * slice_bytes,
            together=together,
        )
