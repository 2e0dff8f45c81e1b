"""Selectors: which k elements of a gradient are worth sending.

    from dlcp.torch.selectors import Largest

    indices = Largest().select(gradient, k)

`Largest` is exact. The others are selectors as published, to compare with: `MSTopK` of Shi et al., and
`Trimmed`, `Binary` and `SampledThreshold` of RedSync. All run on any device; `SELECTORS` has them by name. See
selector.py for what they share.
"""

from __future__ import annotations

from collections.abc import Callable

from dlcp.torch.selectors.largest import Largest
from dlcp.torch.selectors.mstopk import MSTopK
from dlcp.torch.selectors.redsync import Binary, SampledThreshold, Trimmed
from dlcp.torch.selectors.selector import Selector

__all__ = ["SELECTORS", "Binary", "Largest", "MSTopK", "SampledThreshold", "Selector", "Trimmed"]

SELECTORS: dict[str, Callable[..., Selector]] = {
    "largest": Largest,
    "mstopk": MSTopK,
    "trimmed": Trimmed,
    "binary": Binary,
    "sampled_threshold": SampledThreshold,
}
"""By name; called with the options of each, or with none. A program may add its own."""
