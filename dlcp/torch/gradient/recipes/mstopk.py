"""The recipe "mstopk": the k largest of a buffer, and what is not sent waits.

Shi et al., "Towards Scalable Distributed Training of Deep Learning on Public Cloud Clusters", MLSys 2021, arXiv
2010.10458; its selector, error feedback, and an all-gather of k values and indices from each rank. Every rank chooses
for itself; the paper's hierarchy of hosts is by_hosts.py around this. With selector="largest" the choice is exact, and
takes less time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dlcp import checks
from dlcp.errors import ArgumentError
from dlcp.torch.gradient.buffer.account import Account
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.sparse.density import Density
from dlcp.torch.gradient.sparse.frame import Choice, Section
from dlcp.torch.gradient.sparse.pipeline import SparsePipeline
from dlcp.torch.gradient.sparse.stream import STREAM_MAX
from dlcp.torch.selectors import SELECTORS, MSTopK, Selector

if TYPE_CHECKING:
    from dlcp.torch.gradient.options import GradientOptions

DENSITY = 0.01
"""If the options give none."""


class WholeChooser:
    """Chooses from all of a frame's elements at once."""

    fixed_length = True
    shares = False

    def __init__(self, options: GradientOptions) -> None:
        name = checks.choice("selector", options.selector or "mstopk", SELECTORS)
        self._selector: Selector | None = None if name == "mstopk" else SELECTORS[name]()
        if self._selector is not None and not self._selector.fixed_length:
            raise ArgumentError(
                f"selector is {name!r}, which selects more or fewer than it is asked for, under recipe "
                f"{options.recipe!r}, whose frames have a fixed length; accepted: mstopk, largest, trimmed; or recipe "
                "'redsync'"
            )
        self._seed = options.seed

    def sections(self, stream: Layout, begin: int, end: int) -> Sequence[Section]:
        return [
            Section(at, min(at + STREAM_MAX, end), False, ("", at, 0)) for at in range(begin, end, STREAM_MAX)
        ]

    def choose(self, values: Tensor, section: Section, count: int, step: int) -> Choice:
        # Of the step and the place alone: a resumed run draws the same.
        selector = self._selector or MSTopK(seed=abs(hash((self._seed, step, section.begin, len(values)))))
        indices = selector.select(values, count)
        return Choice(indices, torch.index_select(values, 0, indices))


class MSTopKPipeline(SparsePipeline):
    """Buffers of one state; see buffer/pipeline.py."""

    def __init__(self, account: Account) -> None:
        options = account.options
        super().__init__(account, WholeChooser(options), Density(options, DENSITY))
