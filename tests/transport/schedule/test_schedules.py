"""Every algorithm is the collective that it claims to be, in every world size; and costs what it says."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from math import ceil, log2

import pytest

from dlcp.errors import ArgumentError
from dlcp.transport.schedule import ALGORITHMS, MAX_MESSAGES, MAX_WORLD_SIZE, ROOTED, Combine, Space, build
from dlcp.transport.schedule.checker import Cost, check, cost
from dlcp.transport.schedule.layout import BOUNDED, CODED, REDUCING
from tests.support.schedules import PAIRS, build_all, roots

# All small ones; of the larger ones, powers of two and what is beside and between them.
WORLD_SIZES = [*range(1, 34), 48, 63, 64]


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """The checker makes millions of objects and no cycles; looking through them takes a third of the time."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
def test_every_world_size_is_right(collective: str, algorithm: str) -> None:
    for world_size in WORLD_SIZES:
        for root in roots(collective, world_size):
            check(build_all(collective, algorithm, world_size, root), collective, root)


@pytest.mark.parametrize(("collective", "algorithm"), [pair for pair in PAIRS if pair[0] in ROOTED])
def test_every_root_is_right(collective: str, algorithm: str) -> None:
    for world_size in range(1, 14):
        for root in range(world_size):
            check(build_all(collective, algorithm, world_size, root), collective, root)


@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
def test_largest_world_fits_the_message_numbers(collective: str, algorithm: str) -> None:
    for rank in (0, MAX_WORLD_SIZE // 2 - 1, MAX_WORLD_SIZE - 1):
        schedule = build(collective, algorithm, MAX_WORLD_SIZE, rank)
        messages = [op.message for op in schedule.operations if not isinstance(op, Combine)]
        assert max(messages, default=0) < MAX_MESSAGES


def cost_of(collective: str, algorithm: str, world_size: int) -> Cost:
    return cost(build_all(collective, algorithm, world_size), collective)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8, 16, 33])
def test_cost_is_what_the_algorithms_promise(n: int) -> None:
    rounds = ceil(log2(n))
    # Of the tensor, per rank and direction: without help in the network no algorithm sends less.
    least = (n - 1) / n

    one_shot = cost_of("all_reduce", "one_shot", n)
    assert (one_shot.steps, one_shot.sent_ratio) == (1, n - 1)
    assert cost_of("all_reduce", "ring", n) == Cost(
        steps=2 * (n - 1),
        messages=2 * (n - 1),
        sent_ratio=2 * least,
        received_ratio=2 * least,
        scratch_ratio=0,
        peers=min(2, n - 1),
    )
    direct = cost_of("all_reduce", "direct", n)
    assert (direct.steps, direct.sent_ratio, direct.received_ratio) == (2, 2 * least, 2 * least)
    halving = cost_of("all_reduce", "halving_doubling", n)
    assert (halving.sent_ratio, halving.scratch_ratio) == (2 * least, 0)
    assert halving.steps <= 2 * rounds  # parts that skip a round make it less where n is no power of two
    assert halving.peers <= 2 * rounds
    for collective in ("reduce_scatter", "all_gather"):
        for algorithm, steps in (("ring", n - 1), ("direct", 1), ("halving_doubling", rounds)):
            counted = cost_of(collective, algorithm, n)
            assert (counted.sent_ratio, counted.received_ratio) == (least, least)
            assert counted.steps <= steps
    for collective in BOUNDED:
        counted, like = (
            cost_of(collective, "direct", n),
            cost_of(collective.removeprefix("bounded_").removeprefix("coded_"), "direct", n),
        )
        assert replace(counted, scratch_ratio=0) == replace(like, scratch_ratio=0)
        # Unless values are coded, the first message is added as it comes.
        assert counted.scratch_ratio == (n - 1 if collective in CODED else n - 2) / n
    for collective in ("broadcast", "reduce"):
        assert cost_of(collective, "tree", n).peers <= rounds
        for algorithm, steps in (("ring", n - 1), ("direct", 1)):
            assert cost_of(collective, algorithm, n).steps == steps
        assert cost_of(collective, "tree", n).steps <= rounds
    assert cost_of("all_to_all", "pairwise", n).steps == 1


@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
def test_alone_nothing_is_sent(collective: str, algorithm: str) -> None:
    assert all(isinstance(op, Combine) for op in build(collective, algorithm, 1, 0).operations)


@pytest.mark.parametrize(("collective", "algorithm"), [pair for pair in PAIRS if pair[0] != "all_reduce"])
def test_scratch_is_only_used_to_add(collective: str, algorithm: str) -> None:
    """What only moves goes from the caller's memory into the caller's memory."""
    for schedule in build_all(collective, algorithm, 6):
        assert not schedule.scratch or collective in REDUCING
        assert all(like.space is not Space.SCRATCH for like in schedule.scratch)


def test_same_arguments_give_the_same_object() -> None:
    assert build("all_reduce", "ring", 4, 1) is build("all_reduce", "ring", 4, 1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("all_reduce", "pairwise", 4, 0),
            "algorithm='pairwise' does not serve all_reduce: use one of one_shot, ",
        ),
        (("all_red", "ring", 4, 0), "collective='all_red' is unknown: use one of all_reduce, "),
        (("all_reduce", "ring", 0, 0), "world_size=0 is out of range: 1 to 2048"),
        (("all_reduce", "ring", 2049, 0), "world_size=2049 is out of range: 1 to 2048"),
        (("all_reduce", "ring", 4, 4), "rank=4 is out of range: 0 to 3"),
        (("all_reduce", "ring", 4, -1), "rank=-1 is out of range: 0 to 3"),
        (("broadcast", "ring", 4, 0, 4), "root=4 is out of range: 0 to 3"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[str, str, int, int], text: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        build(*arguments)
    assert text in str(raised.value)


def test_algorithms_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        ALGORITHMS["all_reduce"] = {}  # type: ignore[index]
