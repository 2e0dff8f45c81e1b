"""The outcome of one all-reduce: the sums, and the workers in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class AggregationResult:
    """The same at every worker, except `applied` and `by_hub`.

    A block is LANES elements, the last one fewer.
    """

    values: npt.NDArray[np.generic]
    """The sums, in the type and shape of what was given."""
    contributors: npt.NDArray[np.uint32]
    """Per block, bits of the workers that are in its sum."""
    applied: npt.NDArray[np.generic]
    """What the sums contain of this worker's values: to be taken from them for the residual. 0 where it is not in."""
    saturated: npt.NDArray[np.bool_]
    """Per element: the sum left the 32 bits, so its value is only an end of the range. Never of floats."""
    by_hub: int
    """Blocks that this worker has from the hub: the switch could not."""

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Per block, how many workers are in its sum."""
        return np.array([int(bits).bit_count() for bits in self.contributors], np.int64)
