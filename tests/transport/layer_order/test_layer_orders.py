"""Orders over many random rounds: what leaves is right, within the credit, by priority; and ranks never lock up."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from dlcp.transport.layer_order import ORDERS, P3, ByteScheduler, Fifo, LayerPriority, Order, Slice
from tests.support.seeds import for_each_seed

SEEDS = range(100)
SMALL = 256  # bytes of a partition in these tests, so that layers have many
Maker = Callable[[list[int]], Order]
MAKERS: dict[str, Maker] = {
    "fifo": Fifo,
    "p3": lambda layers: P3([1000 * nbytes for nbytes in layers]),
    "byte_scheduler": lambda layers: ByteScheduler(layers, partition_bytes=SMALL, credit_bytes=3 * SMALL),
    "byte_scheduler, one at a time": lambda layers: ByteScheduler(
        layers, partition_bytes=SMALL, credit_bytes=SMALL
    ),
    "byte_scheduler to servers": lambda layers: ByteScheduler(
        layers, partition_bytes=SMALL, credit_bytes=3 * SMALL, together=False
    ),
    "layer_priority": LayerPriority,
}


@pytest.fixture(params=MAKERS, ids=lambda name: name.replace(" ", "_"))
def maker(request: pytest.FixtureRequest) -> Maker:
    return MAKERS[request.param]


def layers_of(draw: random.Random) -> list[int]:
    return [draw.randint(1, 2000) for _ in range(draw.randint(1, 12))]


def polled(order: Order) -> Iterator[Slice]:
    while (piece := order.poll_slice()) is not None:
        yield piece


def play(order: Order, draw: random.Random, watch: Callable[[Slice], None] = lambda _: None) -> list[Slice]:
    """One round of random events on one rank: the slices in the order in which they left."""
    layers = max(piece.layer for piece in order.slices) + 1
    absent, under_way, left = draw.sample(range(layers), layers), [], []
    while absent or under_way:
        if absent and (not under_way or draw.random() < 0.4):
            order.handle_ready(absent.pop())
        else:
            order.handle_finished(under_way.pop(draw.randrange(len(under_way))))
        for piece in polled(order):
            watch(piece)
            under_way.append(piece)
            left.append(piece)
    return left


# --- what leaves ----------------------------------------------------------------------------------------------


@for_each_seed(SEEDS)
def test_every_byte_leaves_once_and_the_round_ends(maker: Maker, seed: int) -> None:
    draw = random.Random(seed)
    layers = layers_of(draw)
    order = maker(layers)
    for _ in range(2):
        assert order.idle
        left = play(order, draw)
        assert order.idle
        assert order.poll_slice() is None
        assert len({piece.number for piece in left}) == len(left)
        for layer in range(len(layers)):
            pieces = sorted((piece.offset, piece.nbytes) for piece in left if piece.layer == layer)
            ends = [offset + nbytes for offset, nbytes in pieces]
            assert [offset for offset, _ in pieces] == [0, *ends[:-1]]
            whole = sum(piece.nbytes for piece in order.slices if piece.layer == layer)
            assert ends[-1] == whole


def test_layers_keep_their_sizes() -> None:
    for make in (Fifo, P3, ByteScheduler, LayerPriority):
        order = make([100, 3_000_000, 64])
        sizes = [sum(piece.nbytes for piece in order.slices if piece.layer == layer) for layer in range(3)]
        assert sizes == [100, 3_000_000, 64]


@for_each_seed(SEEDS)
def test_a_slice_leaves_only_when_its_layer_is_ready(maker: Maker, seed: int) -> None:
    draw = random.Random(seed)
    order = maker(layers_of(draw))
    layers = max(piece.layer for piece in order.slices) + 1
    ready: set[int] = set()
    for layer in draw.sample(range(layers), layers):
        order.handle_ready(layer)
        ready.add(layer)
        for piece in polled(order):
            assert piece.layer in ready
            order.handle_finished(piece)


@for_each_seed(SEEDS)
def test_same_events_same_answers(maker: Maker, seed: int) -> None:
    layers = layers_of(random.Random(seed))
    one, other = (play(maker(layers), random.Random(seed + 1)) for _ in range(2))
    assert one == other


# --- credit and priority --------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False])
@for_each_seed(SEEDS)
def test_credit_is_kept_but_for_one_slice_in_the_lowest_class(seed: int, together: bool) -> None:
    draw = random.Random(seed)
    credit = SMALL * draw.randint(1, 5)
    order = ByteScheduler(layers_of(draw), partition_bytes=SMALL, credit_bytes=credit, together=together)
    under_way: dict[int, Slice] = {}
    absent = list(range(max(piece.layer for piece in order.slices) + 1))
    draw.shuffle(absent)
    while absent or under_way:
        if absent and (not under_way or draw.random() < 0.5):
            order.handle_ready(absent.pop())
        else:
            number = draw.choice(list(under_way))
            order.handle_finished(under_way.pop(number))
        for piece in polled(order):
            under_way[piece.number] = piece
        beyond = [piece for piece in under_way.values() if together and piece.traffic_class == 0]
        assert len(beyond) <= 1
        within = sum(piece.nbytes for piece in under_way.values()) - sum(piece.nbytes for piece in beyond)
        assert within <= credit
        assert within == order.under_way_bytes


@for_each_seed(SEEDS)
def test_the_front_most_slice_that_waits_leaves_first(seed: int) -> None:
    draw = random.Random(seed)
    order = ByteScheduler(
        layers_of(draw), partition_bytes=SMALL, credit_bytes=2 * SMALL, together=draw.random() < 0.5
    )
    waiting: set[tuple[int, int]] = set()
    ready = order.handle_ready

    def handle_ready(layer: int) -> None:
        waiting.update((piece.layer, piece.offset) for piece in order.slices if piece.layer == layer)
        ready(layer)

    def watch(piece: Slice) -> None:
        place = (piece.layer, piece.offset)
        if piece.traffic_class or not order._together:
            assert place == min(waiting)
        waiting.remove(place)

    order.handle_ready = handle_ready  # type: ignore[method-assign]
    play(order, draw, watch)
    assert not waiting


def test_fifo_sends_as_layers_become_ready() -> None:
    order = Fifo([10, 20, 30])
    left = []
    for layer in (2, 0, 1):
        order.handle_ready(layer)
        left += [piece.layer for piece in polled(order)]
    assert left == [2, 0, 1]
    assert {piece.traffic_class for piece in order.slices} == {0}


def test_p3_cuts_at_fifty_thousand_elements() -> None:
    order = P3([4 * 120_000], element_bytes=4)
    assert [piece.nbytes for piece in order.slices] == [200_000, 200_000, 80_000]
    assert all(piece.nbytes <= 2 * 50_000 for piece in P3([10**6], element_bytes=2).slices)


@for_each_seed(SEEDS)
def test_layer_priority_gives_front_layers_the_higher_classes(seed: int) -> None:
    draw = random.Random(seed)
    layers = [draw.choice([1, 100]) * draw.randint(1, 60_000) for _ in range(draw.randint(1, 60))]
    class_min, class_max = sorted(draw.choices(range(7), k=2))
    order = LayerPriority(layers, class_min=class_min, class_max=class_max)
    of_layer = {piece.layer: piece.traffic_class for piece in order.slices}
    small = {of_layer[layer] for layer, nbytes in enumerate(layers) if nbytes <= 65536}
    large = [of_layer[layer] for layer, nbytes in enumerate(layers) if nbytes > 65536]
    assert small <= {class_max}
    assert large == sorted(large, reverse=True)
    assert large[:1] in ([class_max], [])
    assert all(class_min <= one <= class_max for one in large)
    if class_max - class_min >= 2 and len(large) >= 2:
        assert large.count(class_max) == large.count(class_min) == 1


def test_layer_priority_spreads_equal_layers_over_all_classes() -> None:
    of_layer = {piece.layer: piece.traffic_class for piece in LayerPriority([10**6] * 12).slices}
    assert [of_layer[layer] for layer in range(12)] == [6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0]


# --- several ranks, whose slices end together -----------------------------------------------------------------


def all_reduce(orders: Sequence[Order], draw: random.Random) -> bool:
    """Whether a round ends in which layers become ready at random times, and a slice ends once all have started it."""
    layers = max(piece.layer for piece in orders[0].slices) + 1
    # Backward's order, but on one rank in four some other.
    absent = [
        list(range(layers)) if draw.random() < 0.75 else draw.sample(range(layers), layers) for _ in orders
    ]
    started: list[dict[int, Slice]] = [{} for _ in orders]
    ended: list[set[int]] = [set() for _ in orders]
    for _ in range(len(orders) * (layers + len(orders[0].slices))):
        common = set(started[0]).intersection(*started[1:])
        choices: list[tuple[int, Slice | None]] = [(rank, None) for rank, left in enumerate(absent) if left]
        choices += [
            (rank, started[rank][number])
            for rank in range(len(orders))
            for number in sorted(common - ended[rank])
        ]
        if not choices:
            return False
        rank, piece = draw.choice(choices)
        if piece is None:
            orders[rank].handle_ready(absent[rank].pop())
        else:
            ended[rank].add(piece.number)
            orders[rank].handle_finished(piece)
        for fresh in polled(orders[rank]):
            started[rank][fresh.number] = fresh
    return all(order.idle for order in orders)


@pytest.mark.parametrize("name", [name for name in MAKERS if "servers" not in name])
@for_each_seed(SEEDS)
def test_ranks_that_spend_their_credit_apart_still_end(name: str, seed: int) -> None:
    draw = random.Random(seed)
    layers = layers_of(draw)
    orders = [MAKERS[name](layers) for _ in range(draw.randint(2, 5))]
    assert all_reduce(orders, draw)


def test_a_credit_alone_would_lock_ranks_up() -> None:
    def ends(seed: int) -> bool:
        draw = random.Random(seed)
        layers = layers_of(draw)
        orders = [
            ByteScheduler(layers, partition_bytes=SMALL, credit_bytes=SMALL, together=False) for _ in range(3)
        ]
        return all_reduce(orders, draw)

    assert not all(ends(seed) for seed in SEEDS)


# --- mistakes of the caller -----------------------------------------------------------------------------------


def test_a_layer_is_ready_once_a_round(maker: Maker) -> None:
    order = maker([10, 10])
    order.handle_ready(1)
    with pytest.raises(ValueError, match="ready twice"):
        order.handle_ready(1)
    with pytest.raises(ValueError, match="layer is 2; accepted: 0 to 1"):
        order.handle_ready(2)


def test_only_what_is_under_way_can_finish(maker: Maker) -> None:
    order = maker([10, 10])
    with pytest.raises(ValueError, match="accepted: a slice under way"):
        order.handle_finished(order.slices[0])
    order.handle_ready(0)
    (piece,) = polled(order)
    order.handle_finished(piece)
    with pytest.raises(ValueError, match="accepted: a slice under way"):
        order.handle_finished(piece)


@pytest.mark.parametrize("layers", [[], [0], [5, -1]])
def test_layers_have_bytes(layers: list[int]) -> None:
    for make in ORDERS.values():
        with pytest.raises(ValueError, match="layer_bytes"):
            make(layers)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ByteScheduler([1], partition_bytes=100), "multiple of 64"),
        (lambda: ByteScheduler([1], partition_bytes=128, credit_bytes=64), "credit is 64 bytes"),
        (lambda: P3([1], slices_under_way=0), "slices_under_way is 0"),
        (lambda: P3([1], element_bytes=3), "element_bytes is 3"),
        (lambda: LayerPriority([1], class_min=3, class_max=2), "classes are 3 to 2"),
        (lambda: LayerPriority([1], class_max=7), "classes are 0 to 7"),
    ],
)
def test_settings_out_of_range_are_refused(make: Callable[[], Order], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
