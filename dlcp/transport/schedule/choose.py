"""Which algorithm runs a collective, unless the call names one: the one that is estimated to take the least time.

All ranks must choose alike, so the choice depends only on what all of them know, such as who is on which host and what
the hosts' links carry: never on load or time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dlcp.errors import ArgumentError
from dlcp.transport.schedule import PLACED, ROOTED, algorithms
from dlcp.transport.schedule.estimate import RANKS_MAX, Network, time_ns
from dlcp.transport.schedule.hierarchical import ranks_by_host, suits

_KIB = 1024
# The network is read from every rank's card. Worlds of more than RANKS_MAX do not read them for smaller calls.
_SMALL_BYTES = 32 * _KIB
# Next ranks are in one rack as far as ranks are numbered so; distant ones may be behind a thin up-link, of which nobody
# tells the ranks. So large data goes by algorithms whose messages go to the next rank or host where they are not much
# slower.
_NEAR = frozenset({"ring", "hierarchical"})
_NEAR_COUNTS = 0.9
_NEAR_FROM_BYTES = 1024 * _KIB
# What a tree's link may take, of ranks that share processors: as long as the messages that it saves.
_TREE_LINK_S = 100e-6


def choose(
    collective: str,
    world_size: int,
    nbytes: int,
    overrides: Mapping[str, str] | None = None,
    network: Callable[[], Network | None] = lambda: None,
    crowded: Callable[[], bool] = lambda: False,
) -> str:
    """The name of the algorithm, for `build`.

    `nbytes`: the whole tensor, as all ranks know it: what is reduced or broadcast; for gathers and scatters all parts
    together. `overrides`: algorithms by collective, as `parse_algorithms` answers them; they win. `network`: answers
    what is between the ranks, or None where that is not known: then each has a host of its own; `crowded`: whether some
    ranks share a processor. Both are called where it matters only. Raises ArgumentError.
    """
    known = algorithms(collective)
    if overrides is not None and (said := overrides.get(collective)) is not None:
        if said not in known:
            raise ArgumentError(
                f"algorithm={said!r} does not serve {collective}: use one of {', '.join(known)}"
            )
        return said
    if len(known) == 1:
        return next(iter(known))
    asks = world_size <= RANKS_MAX or nbytes >= _SMALL_BYTES
    between = (network() if asks else None) or Network(tuple(range(world_size)))
    placed = suits(between.hosts)
    if world_size > RANKS_MAX:
        return _of_many(collective, nbytes, between, placed)
    if collective == "all_reduce" and asks and crowded():
        names = _where_crowded(between, nbytes, placed)
        between = between._replace(message_ns=0.0)  # the names are of few messages
    else:
        names = tuple(name for name in known if placed or name not in PLACED)
    return min(names, key=lambda name: _counted_ns(collective, name, nbytes, between))


def _counted_ns(collective: str, name: str, nbytes: int, between: Network) -> float:
    near = name in _NEAR and nbytes >= _NEAR_FROM_BYTES
    return time_ns(collective, name, nbytes, between) * (_NEAR_COUNTS if near else 1)


def _where_crowded(between: Network, nbytes: int, placed: bool) -> tuple[str, ...]:
    """All-reduces of ranks that share processors, where time goes with how many messages all of them send together.

    Of n ranks a tree sends 2 (n - 1), halving_doubling 2 n log n, direct exchange and a ring 2 n (n - 1), and going by
    hosts with s shards more than s (s - 1) on each host. Over a tree a link carries more, which costs nothing where
    there is none. The bounds are measured: 3, 4 and 8 ranks of one host, 4 and 8 hosts, and 2 hosts of 2 and 4, on 2
    processors, over links from 100 Mbit/s on; 3 hosts, and hosts of different sizes, are taken to be like these.
    """
    by_host = ranks_by_host(between.hosts)
    ranks = len(between.hosts)
    if ranks == 2 and nbytes <= 128 * _KIB:
        return ("one_shot",)
    if placed:
        if len(by_host) == 2 and min(map(len, by_host)) >= 4 and nbytes <= 1024 * _KIB:
            return ("tree",)
        return ("hierarchical", "tree")
    if len(by_host) == 1:
        if nbytes <= 64 * _KIB or (ranks > 2 and nbytes <= 256 * _KIB * ranks):
            return ("tree",)
    elif ranks <= 4 and nbytes <= 128 * _KIB:
        return ("direct",)
    elif ranks > 4 and nbytes <= min(64 * _KIB, between.link_bps / 8 * _TREE_LINK_S):
        return ("tree",)
    return ("halving_doubling",) if nbytes <= 512 * _KIB else ("ring",)


def _of_many(collective: str, nbytes: int, between: Network, placed: bool) -> str:
    """Of more ranks than are looked at: few peers, and by hosts once the ring between them carries much at a time."""
    if collective in ROOTED:
        return "tree" if nbytes <= 256 * _KIB else "ring"
    if placed and nbytes >= 16 * _KIB * len(ranks_by_host(between.hosts)):
        return "hierarchical"
    if placed and collective == "all_reduce":
        return "tree"
    return "halving_doubling" if nbytes <= 4096 * _KIB else "ring"


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
