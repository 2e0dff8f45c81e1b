"""Items of different sizes over bins that should be equally full: keys over a hub's cores, layers over ranks."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from dlcp import checks


def longest_first(sizes: Sequence[int], bins: int) -> list[int]:
    """The bin of each item: the largest items are given out first, each to the bin with the least so far.

    The fullest bin holds at most (4 - 1 / bins) / 3 of what it would with the best packing (longest processing time
    first: Graham, SIAM Journal on Applied Mathematics 17(2), 1969). Of equal sizes the first item goes first, of equal
    bins to the first: all ranks find the same. `sizes`: in any unit. Raises ArgumentError: no bins, a size below 0.
    """
    checks.integer("bins", bins, 1)
    if sizes:
        checks.integer("the least size", min(sizes), 0)
    loads = [(0, each) for each in range(bins)]
    places = [0] * len(sizes)
    for item in sorted(range(len(sizes)), key=lambda item: (-sizes[item], item)):
        load, place = loads[0]
        places[item] = place
        heapq.heapreplace(loads, (load + sizes[item], place))
    return places
