"""What a caller may get wrong in an operation of a group: one sentence names the value, and nothing is sent for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlcp import errors
from dlcp.transport.bounded import LossRules
from dlcp.transport.call_options import call_options
from dlcp.transport.communicator import Communicator, DataType, Reduction, Span
from tests.support.ranks import World

F32 = DataType.f32
DATA = np.zeros(1024, np.float32)
MEMORY = Span.of(DATA)


def reduce_with(**how: Any) -> Callable[[Communicator], object]:
    return lambda group: group.all_reduce(MEMORY, F32, **how)


def reduce_of(data: Any) -> Callable[[Communicator], object]:
    return lambda group: group.all_reduce(data, F32)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (reduce_of(None), "data is None; accepted: a Span, as Span.of(array) makes"),
        (reduce_of(DATA), "; accepted: a Span, as Span.of(array) makes"),
        (reduce_of(Span(0, 4096)), "data has 4096 bytes at a null pointer; accepted: the address of memory"),
        (reduce_of(Span(MEMORY.address + 1, 1024)), "accepted: an address that is a multiple of 4"),
        (reduce_of(Span(MEMORY.address, -4)), "data.nbytes is -4; accepted: an integer from 0"),
        (reduce_of(Span(-64, 64)), "data.address is -64; accepted: an integer from 0"),
        (reduce_with(factor="x"), "factor is 'x'; accepted: a number, or None"),
        (reduce_with(factor=2.0, op=Reduction.MAX), "accepted: a factor with Reduction.SUM only"),
        (
            reduce_with(timeout_s="x"),
            "timeout_s is 'x'; accepted: a number of seconds from 0, or None: no limit",
        ),
        (reduce_with(timeout_s=-1), "timeout_s is -1; accepted"),
        (reduce_with(timeout_s=float("nan")), "timeout_s is nan; accepted"),
        (reduce_with(traffic_class=7), "traffic_class is 7; accepted: an integer from 0 to 6"),
        (reduce_with(traffic_class=True), "traffic_class is True; accepted"),
        (reduce_with(sequence=-1), "sequence is -1; accepted: an integer from 0"),
        (reduce_with(sequence="x"), "sequence is 'x'; accepted"),
        (reduce_with(label=5), "label is 5; accepted: a text, or None"),
        (reduce_with(wait_follows=1), "wait_follows is 1; accepted: True or False"),
        (reduce_with(timeout=5), "unknown argument 'timeout'; did you mean timeout_s?"),
        (reduce_with(algorithm=[]), "algorithm is []; accepted: the name of a schedule, or None"),
        (lambda group: group.all_reduce(MEMORY, "f32"), "dtype is 'f32'; accepted: DataType."),  # type: ignore[arg-type]
        (lambda group: group.all_reduce(MEMORY, F32, "sum"), "op is 'sum'; accepted: Reduction."),  # type: ignore[arg-type]
        (lambda group: group.all_gather(5, MEMORY), "outputs is 5; accepted: a Span, or one Span per rank"),  # type: ignore[arg-type]
        (lambda group: group.all_gather([MEMORY, None], MEMORY), "outputs is None; accepted: a Span"),  # type: ignore[list-item]
        (
            lambda group: group.bounded_all_reduce(MEMORY, MEMORY, F32, loss=None),  # type: ignore[arg-type]
            "loss is None; accepted: LossRules",
        ),
        (lambda group: group.reserve("x"), "count is 'x'; accepted: an integer from 0"),  # type: ignore[arg-type]
        (lambda group: group.reserve(-1), "count is -1; accepted: an integer from 0"),
        (lambda group: group.send(MEMORY, True), "destination is True; accepted: a rank of group"),
        (
            lambda group: group.send(MEMORY, 1 - group.rank, tag=-1),
            "tag is -1; accepted: an integer from 0",
        ),
        (
            lambda group: group.send(MEMORY, 1 - group.rank, sequence=3),  # type: ignore[call-arg]
            "sequence is 3; accepted: only collectives have one",
        ),
    ],
)
def test_wrong_argument_raises_at_once(
    world: Callable[[int], World], call: Callable[[Communicator], object], sentence: str
) -> None:
    group = world(2).open()[0]
    sequence = group.sequence
    with pytest.raises(errors.ArgumentError) as caught:
        call(group)
    assert sentence in str(caught.value)
    assert group.failed is None
    assert group.under_way == 0
    assert group.sequence == sequence


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ({"loss_ratio": 1.0}, "loss_ratio is 1.0; accepted: a number from 0 to less than 1"),
        ({"loss_ratio": "x"}, "loss_ratio is 'x'; accepted"),
        ({"loss_ratio": float("nan")}, "loss_ratio is nan; accepted"),
        ({"loss_ratio": 0.1, "rescale": 1}, "rescale is 1; accepted: True or False"),
        ({"loss_ratio": 0.1, "deadline_s": 0}, "deadline_s is 0; accepted: a number of seconds above 0"),
        ({"loss_ratio": 0.1, "deadline_s": True}, "deadline_s is True; accepted"),
        ({"loss_ratio": 0.1, "patience_s": -1}, "patience_s is -1; accepted: a number of seconds from 0"),
        ({"loss_ratio": 0.1, "patience_s": []}, "patience_s is []; accepted"),
    ],
)
def test_wrong_rules_of_loss_raise_at_once(rules: dict[str, Any], sentence: str) -> None:
    with pytest.raises(errors.ArgumentError) as caught:
        LossRules(**rules)
    assert sentence in str(caught.value)


def test_options_take_the_groups_defaults_where_none_are_given() -> None:
    options = call_options({"timeout_s": None, "traffic_class": None}, 30.0, 6)
    assert (options.timeout_s, options.traffic_class, options.sequence) == (30.0, 6, None)
    given = call_options({"timeout_s": np.float32(2), "traffic_class": np.int64(3), "keep": DATA}, 30.0)
    assert (given.timeout_s, given.traffic_class, given.keep is DATA) == (2.0, 3, True)


def test_infinite_timeout_is_none() -> None:
    assert call_options({"timeout_s": float("inf")}, 30.0).timeout_s is None
