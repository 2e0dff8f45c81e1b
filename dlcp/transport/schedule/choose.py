"""Which algorithm runs a collective: by world size, bytes, hosts and processors, unless the call names one.

All ranks must choose alike, so the choice depends only on what all of them know, such as who is on which host: never
on load or time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from dlcp.errors import ArgumentError
from dlcp.transport.schedule import PLACED, Hosts, algorithms
from dlcp.transport.schedule.hierarchical import ranks_by_host, suits

_KIB = 1024
_BYTES_PER_HOST = 16 * _KIB
# Hosts and processors are read from every rank's card. Larger worlds do not read them for smaller calls.
_ASKS_AT_ONCE_MAX = 16
_SMALL_BYTES = 32 * _KIB


class Rule(NamedTuple):
    """An algorithm, and up to where it is taken: both bounds are inclusive, None is no bound.

    `where`: "hosts": several of them have several ranks each; "crowded": some ranks share a processor; "": anywhere.
    """

    algorithm: str
    world_size_max: int | None
    nbytes_max: int | None
    where: Literal["", "hosts", "crowded"] = ""

    def holds(
        self, world_size: int, nbytes: int, hosts: Callable[[], Hosts | None], crowded: Callable[[], bool]
    ) -> bool:
        """Whether this is the algorithm for such a call. Asks others last: that may cost the caller something."""
        if self.world_size_max is not None and world_size > self.world_size_max:
            return False
        if self.nbytes_max is not None and nbytes > self.nbytes_max:
            return False
        if not self.where:
            return True
        if world_size > _ASKS_AT_ONCE_MAX and nbytes < _SMALL_BYTES:
            return False
        if self.where == "crowded":
            return crowded()
        found = hosts()
        return found is not None and suits(found) and (self.algorithm not in PLACED or _pays(found, nbytes))


def _pays(hosts: Hosts, nbytes: int) -> bool:
    """Whether to go by hosts: the ring between m of them has 2 (m - 1) hops, a tree over all n ranks 2 log n.

    Inside a host four hops take as long as one between hosts.
    """
    ranks = ranks_by_host(hosts)
    if nbytes >= _BYTES_PER_HOST * len(ranks):
        return True
    inside = max(map(len, ranks)) - 1
    return inside / 2 + 2 * (len(ranks) - 1) <= 2 * (len(hosts) - 1).bit_length()


# The first rule that holds is taken. Three things decide: hops for small data, what the busiest link carries for large
# data, and in large worlds the number of peers, since each is a session with its handshake. The bounds follow from
# counting these (checker.cost), with a hop taken as 50 us and a link as 1 GB/s: a hop is worth 50 KB.
#
# Where ranks share processors a fourth decides: how many messages all of them send together, since each costs a
# processor what a hop costs the network. Of n ranks a tree sends 2 (n - 1), halving_doubling 2 n log n, direct exchange
# and a ring 2 n (n - 1).
#
# Ranks of a host are consecutive, as torchrun numbers them, so a ring crosses from host to host once each way where
# algorithms with distant peers cross with most of what they send: rings for large data, and better hierarchical, which
# crosses with 2 (m - 1) / m of the tensor over m hosts where a ring over n ranks has 2 (n - 1) / n.
#
# Half an all-reduce has the same places, but one hop instead of two makes direct the smallest as well.
_HALF = (
    Rule("direct", 8, 32 * _KIB),
    Rule("hierarchical", None, None, "hosts"),
    Rule("direct", 8, 256 * _KIB),
    Rule("halving_doubling", None, 256 * _KIB),
    Rule("ring", 8, None),
    Rule("halving_doubling", None, 4096 * _KIB),
    Rule("ring", None, None),
)
# The busiest link, the root's, carries n - 1, log n and one tensors, in 1, log n and n - 1 hops.
_ROOTED = (Rule("direct", 4, 32 * _KIB), Rule("tree", None, 256 * _KIB), Rule("ring", None, None))
RULES: Mapping[str, tuple[Rule, ...]] = {
    "all_reduce": (
        # One hop, for n - 1 tensors sent; two hops send 2 (n - 1) / n: as much with 2 ranks, half with 4.
        Rule("one_shot", 2, 128 * _KIB),
        # The least between hosts; a tree has fewer hops, and crosses from host to host a few times where the others
        # of few hops do with most messages.
        Rule("hierarchical", None, None, "hosts"),
        Rule("tree", None, None, "hosts"),
        Rule("tree", 8, 64 * _KIB, "crowded"),
        Rule("halving_doubling", 8, 256 * _KIB, "crowded"),
        # Two hops, the bytes of a ring. The incast of n - 1 parts is short while the tensor is.
        Rule("direct", 16, 256 * _KIB),
        # 2 log n hops and log n peers, the bytes of a ring, no incast.
        Rule("halving_doubling", None, 256 * _KIB),
        # Few hops. With 4 ranks on 2 hosts a byte of the tensor crosses the link 1.64 times in a ring, 2.19 directly,
        # 2.74 by halving_doubling (measured); on one host the three take the same time within a sixth.
        Rule("ring", 8, None),
        Rule("halving_doubling", None, 4096 * _KIB),
        # 2 (n - 1) hops; each link carries the least.
        Rule("ring", None, None),
    ),
    "reduce_scatter": _HALF,
    "all_gather": _HALF,
    "broadcast": _ROOTED,
    "reduce": _ROOTED,
    # One sensible way each.
    "gather": (Rule("direct", None, None),),
    "scatter": (Rule("direct", None, None),),
    "all_to_all": (Rule("pairwise", None, None),),
    "bounded_all_reduce": (Rule("direct", None, None),),
    "bounded_reduce_scatter": (Rule("direct", None, None),),
    "coded_all_reduce": (Rule("direct", None, None),),
    "coded_reduce_scatter": (Rule("direct", None, None),),
}


def choose(
    collective: str,
    world_size: int,
    nbytes: int,
    overrides: Mapping[str, str] | None = None,
    hosts: Callable[[], Hosts | None] = lambda: None,
    crowded: Callable[[], bool] = lambda: False,
) -> str:
    """The name of the algorithm, for `build`.

    `nbytes`: the whole tensor, as all ranks know it: what is reduced or broadcast; for gathers and scatters all parts
    together. `overrides`: algorithms by collective, as `parse_algorithms` answers them; they win. `hosts`: answers per
    rank the number of its host, or None where that is not known; `crowded`: whether some ranks share a processor. Both
    are called where it matters only. Raises ArgumentError.
    """
    known = algorithms(collective)
    if overrides is not None and (said := overrides.get(collective)) is not None:
        if said not in known:
            raise ArgumentError(
                f"algorithm={said!r} does not serve {collective}: use one of {', '.join(known)}"
            )
        return said
    return next(
        rule.algorithm for rule in RULES[collective] if rule.holds(world_size, nbytes, hosts, crowded)
    )


def parse_algorithms(text: str) -> dict[str, str]:
    """Algorithms by collective, from text like "all_reduce=ring,broadcast=tree"; empty text names none.

    Raises ArgumentError, naming what is accepted.
    """
    parsed: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        collective, equals, algorithm = (piece.strip() for piece in entry.partition("="))
        if not equals:
            raise ArgumentError(
                f"{entry!r}: write collective=algorithm, as in all_reduce=ring,broadcast=tree"
            )
        if collective in parsed:
            raise ArgumentError(f"{entry!r}: {collective} is there twice")
        known = algorithms(collective)
        if algorithm not in known:
            raise ArgumentError(f"{entry!r}: {collective} is served by {', '.join(known)}")
        parsed[collective] = algorithm
    return parsed
