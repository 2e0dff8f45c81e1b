"""ByteScheduler (Peng et al., SOSP 2019, sections 3 to 5): partitions, priority by layer, and a credit in bytes.

Tensors are cut into partitions of one size. Of those that wait the one of the front-most layer leaves first, as long as
the bytes under way stay within the credit: a large credit fills the network, a small one lets a front layer that turns
up late go ahead soon. The paper tunes both sizes for each setting by Bayesian optimisation; here they are given.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlcp.transport.layer_order.queue import SliceQueue

PARTITION_BYTES = 1 << 20
CREDIT_BYTES = 4 << 20


class ByteScheduler(SliceQueue):
    """Partitions, front layers first, within a credit. `together`: see SliceQueue."""

    def __init__(
        self,
        layer_bytes: Sequence[int],
        *,
        partition_bytes: int = PARTITION_BYTES,
        credit_bytes: int = CREDIT_BYTES,
        together: bool = True,
    ) -> None:
        super().__init__(
            layer_bytes,
            key=lambda layer, _: layer,
            slice_bytes=partition_bytes,
            credit_bytes=credit_bytes,
            together=together,
        )
