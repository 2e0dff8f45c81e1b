"""The compiled worker and the compiled slots over loopback: the bits are the fixed-point rule's, whatever is lost."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dlcp import _native
from tests.support.aggregation_relay import Relay, TwoLevels
from tests.support.aggregation_values import fixed_point_sum
from tests.support.bmv2 import Program

LOOPBACK = 0x7F000001
Endpoint = _native.AggregationEndpoint


def endpoints(relay: Relay) -> list[Endpoint]:
    request = relay.request
    ranks = len(request.workers)
    at_switch = ranks // 2 if isinstance(relay, TwoLevels) else ranks
    return [
        Endpoint(
            request.job,
            request.generation,
            number % at_switch,
            at_switch,
            number,
            ranks,
            request.slots,
            request.lanes,
            0.002,
            (LOOPBACK, worker.udp_port),
            (LOOPBACK, relay.port),
        )
        for number, worker in enumerate(request.workers)
    ]


def at_once(calls: list[Callable[[], str]]) -> list[str]:
    """Their answers; each runs in a thread of its own."""
    found = [""] * len(calls)

    def call(number: int) -> None:
        found[number] = calls[number]()

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def agreed_codes(inputs: list[np.ndarray], lanes: int) -> np.ndarray:
    codes = np.zeros((len(inputs), -(-inputs[0].size // lanes)), np.uint8)
    for row, values in zip(codes, inputs, strict=True):
        _native.aggregation_exponent_codes(values.ctypes.data, values.size, lanes, row.ctypes.data)
    largest: np.ndarray = codes.max(axis=0)
    return largest


def all_reduce(
    workers: list[Endpoint],
    inputs: list[np.ndarray],
    lanes: int,
    position: int,
    give_up_s: float = 5.0,
    width: int = 32,
    limit_s: float = 1e12,
) -> tuple[list[str], list[np.ndarray]]:
    codes = agreed_codes(inputs, lanes * (32 // width))
    outs = [np.full(values.size, np.nan, np.float32) for values in inputs]
    ends = at_once(
        [
            lambda w=worker, v=values, o=out: w.all_reduce(
                *(v.ctypes.data, v.size, codes.ctypes.data, o.ctypes.data),
                *(width, 1.0, 5, position, give_up_s, limit_s),
            )
            for worker, values, out in zip(workers, inputs, outs, strict=True)
        ]
    )
    return ends, outs


def some_values(rng: np.random.Generator, size: int) -> np.ndarray:
    """Of very different magnitudes from block to block, with zeros, subnormals and the largest."""
    values = rng.standard_normal(size) * 10.0 ** rng.integers(-44, 37, size // 50 + 1).repeat(50)[:size]
    values[rng.integers(0, size, size // 10)] = 0
    return values.astype(np.float32)


@pytest.mark.parametrize(
    ("workers", "lanes", "width"),
    [(1, 32, 32), (3, 32, 32), (4, 352, 32), (3, 64, 16), (4, 32, 8), (9, 32, 8)],
)
def test_sum_is_the_fixed_point_rules(workers: int, lanes: int, width: int) -> None:
    rng = np.random.default_rng(lanes)
    inputs = [some_values(rng, 6001) for _ in range(workers)]
    with Relay(workers, lanes=lanes) as relay:
        sends = endpoints(relay)
        assert at_once([lambda w=w: w.probe(99, 5, 0, 5.0) for w in sends]) == ["done"] * workers
        ends, outs = all_reduce(sends, inputs, lanes, relay.request.slots, width=width)
    assert ends == ["done"] * workers
    want = fixed_point_sum(inputs, lanes, width).tobytes()
    assert [out.tobytes() == want for out in outs] == [True] * workers


def test_two_levels_of_switches_lose_and_restart_and_make_no_wrong_sum() -> None:
    rng = random.Random(3)
    inputs = [some_values(np.random.default_rng(n), 2000) for n in range(6)]
    want = fixed_point_sum(inputs, 32)
    with TwoLevels(6) as relay:
        relay.take = lambda _worker, _payload: rng.random() > 0.05
        relay.take_up = lambda: rng.random() > 0.1
        sends = endpoints(relay)
        assert at_once([lambda w=w: w.probe(99, 5, 0, 10.0) for w in sends]) == ["done"] * 6
        ends, outs = all_reduce(sends, inputs, 32, 16, 10.0)
        assert ends == ["done"] * 6
        assert {out.tobytes() for out in outs} == {want.tobytes()}

        def take(_worker: int, _payload: bytes) -> bool:
            if rng.random() < 0.005:
                relay.reboot()
            return True

        relay.take = take
        ends, outs = all_reduce(sends, inputs, 32, 16 + 63, 0.2)
        for out in outs:
            there = ~np.isnan(out)
            assert out[there].tobytes() == want[there].tobytes()


def test_sixty_four_ranks_behind_two_levels() -> None:
    inputs = [np.full(300, rank, np.float32) for rank in range(64)]
    with TwoLevels(64) as relay:
        ends, outs = all_reduce(endpoints(relay), inputs, 32, 0, 20.0)
    assert ends == ["done"] * 64
    assert all((out == 64 * 63 / 2).all() for out in outs)


def test_the_p4_program_adds_for_it_too(repository: Path) -> None:
    """As compiled, in the interpreter: the probe, float sums of 32 and of 8 bits, and a drain."""
    program = Program.load(str(repository / "dlcp/switch/compiled" / "aggregation.json"), seed=0)
    inputs = [some_values(np.random.default_rng(n), 32 * 12) for n in range(3)]
    with Relay(3, slots=4, program=program) as relay:
        sends = endpoints(relay)
        assert at_once([lambda w=w: w.probe(99, 5, 0, 10.0) for w in sends]) == ["done"] * 3
        for position, width in ((4, 32), (16, 8)):
            ends, outs = all_reduce(sends, inputs, 32, position, 10.0, width)
            assert ends == ["done"] * 3
            assert {out.tobytes() for out in outs} == {fixed_point_sum(inputs, 32, width).tobytes()}
        relay.take = lambda worker, _payload: worker == 0
        codes = agreed_codes(inputs, 32)
        assert "gave_up" in all_reduce(sends, inputs, 32, 19, 0.05)[0]
        relay.take = lambda _worker, _payload: True
        sent = max(worker.sent_blocks for worker in sends)
        assert at_once([lambda w=w: w.drain(bytes(codes[:sent]), 5, 19, 10.0) for w in sends]) == ["done"] * 3
        ends, outs = all_reduce(sends, inputs, 32, 31, 10.0)
    assert ends == ["done"] * 3
    assert {out.tobytes() for out in outs} == {fixed_point_sum(inputs, 32).tobytes()}


def test_losses_change_no_bit() -> None:
    rng = random.Random(1)
    inputs = [some_values(np.random.default_rng(n), 3000) for n in range(3)]
    with Relay(3) as relay:
        relay.take = lambda _worker, _payload: rng.random() > 0.1
        sends = endpoints(relay)
        ends, outs = all_reduce(sends, inputs, 32, 0)
        assert sum(w.counters()["repeated_packets"] for w in sends) > 0
    assert ends == ["done"] * 3
    assert {out.tobytes() for out in outs} == {fixed_point_sum(inputs, 32).tobytes()}


def test_a_task_is_given_up_when_its_time_is_over() -> None:
    """However long the wait for the next result may be."""
    with Relay(2) as relay:
        relay.take = lambda worker, payload: worker == 0 or int.from_bytes(payload[16:20], "big") < 20
        ends, _ = all_reduce(endpoints(relay), [np.ones(32 * 40, np.float32)] * 2, 32, 0, 1e12, limit_s=0.1)
    assert ends == ["gave_up"] * 2


def test_a_drain_frees_what_a_given_up_task_left() -> None:
    """One worker never sends the second half; its slots are left collecting, until all have drained them."""
    inputs = [np.ones(32 * 40, np.float32)] * 2
    with Relay(2, slots=16) as relay:
        sends = endpoints(relay)
        relay.take = lambda worker, payload: worker == 0 or int.from_bytes(payload[16:20], "big") < 20
        ends, _ = all_reduce(sends, inputs, 32, 0, 0.1)
        assert ends == ["gave_up"] * 2
        relay.take = lambda _worker, _payload: True
        end = max(worker.sent_blocks for worker in sends)
        codes = bytes(agreed_codes(inputs, 32)[:1]) * 16
        relay.works = False
        given_up = at_once([lambda w=w: w.drain(codes, 5, end - 16, 0.05) for w in sends])
        assert given_up == ["gave_up"] * 2, "and it is done again"
        relay.works = True
        drained = at_once([lambda w=w: w.drain(codes, 5, end - 16, 5.0) for w in sends])
        assert drained == ["done"] * 2
        ends, outs = all_reduce(sends, inputs, 32, 80)
    assert ends == ["done"] * 2
    assert all((out == 2).all() for out in outs)


def test_a_switch_that_restarts_makes_no_wrong_sum() -> None:
    """Its slots are empty in mid-task: the task ends well with the right bits, or is given up by all."""
    rng = random.Random(2)
    inputs = [some_values(np.random.default_rng(n), 32 * 300) for n in range(2)]
    with Relay(2) as relay:

        def take(_worker: int, _payload: bytes) -> bool:
            if rng.random() < 0.01:
                relay.reboot()
            return True

        relay.take = take
        _, outs = all_reduce(endpoints(relay), inputs, 32, 0, 0.2)
    want = fixed_point_sum(inputs, 32)
    for out in outs:
        there = ~np.isnan(out)
        assert out[there].tobytes() == want[there].tobytes()


def test_a_probe_of_another_run_fails() -> None:
    with Relay(2) as relay:
        sends = endpoints(relay)
        assert at_once([lambda w=w: w.probe(1, 9, 0, 5.0) for w in sends]) == ["done"] * 2
        # The same run number once more: the switch answers with what the first one left.
        assert "wrong" in at_once([lambda w=w: w.probe(2, 9, 0, 0.2) for w in sends])
        # An older one: nothing is taken.
        assert at_once([lambda w=w: w.probe(3, 8, 0, 0.1) for w in sends]) == ["gave_up"] * 2
        assert at_once([lambda w=w: w.probe(4, 10, 0, 5.0) for w in sends]) == ["done"] * 2


def test_nobody_answers() -> None:
    with Relay(1) as relay:
        relay.works = False
        assert endpoints(relay)[0].probe(1, 1, 0, 0.05) == "gave_up"
