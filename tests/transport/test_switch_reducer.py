"""All-reduces by a switch that adds, of ranks that agree over their sessions: sums, and every way back to the ring."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from dlcp.errors import AddressError, SettingsError
from dlcp.transport.aggregation import reducer as module
from dlcp.transport.aggregation.address import SwitchAddress
from dlcp.transport.aggregation.reducer import SwitchReducer
from dlcp.transport.communicator import DataType, Span
from dlcp.transport.settings import Settings
from tests.support.aggregation_relay import Relay
from tests.support.aggregation_values import fixed_point_sum
from tests.support.ranks import World

RANKS = 3
Arrays = list[np.ndarray[Any, Any]]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GIVE_UP_S", 0.2)
    monkeypatch.setattr(module, "PROBE_GIVE_UP_S", 0.1)
    monkeypatch.setattr(module, "RETRANSMIT_S", 0.003)
    monkeypatch.setattr(module, "_FIRST_REST", 1)


class Bed:
    """Ranks with a reducer each, and the switch that they ask."""

    def __init__(self, world: World, relay: Relay) -> None:
        self.world, self.relay = world, relay
        self.groups = world.open()
        address = SwitchAddress.parse(relay.setting)
        self.reducers = [
            SwitchReducer(address, rank, RANKS, self.groups[rank].job.place_on_host(rank))
            for rank in range(RANKS)
        ]

    def all_reduce(self, inputs: Arrays, *, average: bool = False) -> Arrays:
        results = [values.copy() for values in inputs]
        self.world.each(
            self.groups,
            lambda group: self.reducers[group.rank].all_reduce(
                group,
                Span.of(results[group.rank]),
                average=average,
                call={},
            ),
        )
        return results

    def ring(self, inputs: Arrays) -> Arrays:
        """The same by the group alone: what a fall-back has to give, bit for bit."""
        results = [values.copy() for values in inputs]
        self.world.each(
            self.groups, lambda group: group.all_reduce(Span.of(results[group.rank]), DataType.f32).wait()
        )
        return results

    def counted(self) -> tuple[int, dict[str, int]]:
        """How many by the switch, and by the ring; the same on all ranks."""
        found = [reducer.account.snapshot() for reducer in self.reducers]
        assert all(
            (f["by_switch"], f["by_ring"]) == (found[0]["by_switch"], found[0]["by_ring"]) for f in found
        )
        return found[0]["by_switch"], found[0]["by_ring"]


@contextmanager
def bed(**relay: int) -> Iterator[Bed]:  # of Relay
    with World(RANKS) as world, Relay(RANKS, **relay) as switch:
        yield Bed(world, switch)


def inputs_of(seed: int, size: int = 5000) -> Arrays:
    rng = np.random.default_rng(seed)
    return [
        (rng.standard_normal(size) * 10.0 ** rng.integers(-3, 4)).astype(np.float32) for _ in range(RANKS)
    ]


def same(found: Arrays, wanted: Arrays) -> None:
    assert [f.tobytes() == w.tobytes() for f, w in zip(found, wanted, strict=True)] == [True] * RANKS


def test_sums_and_averages_are_the_fixed_point_rules() -> None:
    with bed(lanes=64, slots=32) as at:
        for turn in range(3):
            inputs = inputs_of(turn)
            same(at.all_reduce(inputs), [fixed_point_sum(inputs, 64)] * RANKS)
        inputs = inputs_of(9)
        same(at.all_reduce(inputs, average=True), [fixed_point_sum(inputs, 64) / np.float32(RANKS)] * RANKS)
        assert at.counted() == (4, {})


def test_a_switch_without_the_program_is_a_ring_and_asked_again_later() -> None:
    with bed() as at:
        at.relay.works = False
        inputs = inputs_of(1)
        ring = at.ring(inputs)
        same(at.all_reduce(inputs), ring)
        at.relay.works = True
        same(at.all_reduce(inputs), ring)
        assert at.counted() == (0, {"no_switch": 1, "resting": 1})
        same(at.all_reduce(inputs), [fixed_point_sum(inputs, 32)] * RANKS)
        assert at.counted()[0] == 1


def lose_of_worker(worker: int, after: int) -> Callable[[int, bytes], bool]:
    """Loses what a worker sends after so many packets: it alone misses what the others may have."""
    left = [after]

    def take(sender: int, _payload: bytes) -> bool:
        if sender == worker:
            left[0] -= 1
        return sender != worker or left[0] >= 0

    return take


@pytest.mark.parametrize("restarts", [False, True])
def test_nobody_uses_a_part_of_a_sum(restarts: bool) -> None:
    """In mid-collective one rank is cut off, and the switch may restart: all take the ring, then the switch again."""
    with bed() as at:
        same(at.all_reduce(inputs_of(0)), [fixed_point_sum(inputs_of(0), 32)] * RANKS)
        at.relay.take = lose_of_worker(1, 70)
        inputs = inputs_of(1)
        ring = at.ring(inputs)
        same(at.all_reduce(inputs), ring)
        if restarts:
            at.relay.reboot()
        at.relay.take = lambda _worker, _payload: True
        same(at.all_reduce(inputs), ring)
        assert at.counted() == (1, {"gave_up": 1, "resting": 1})
        same(at.all_reduce(inputs), [fixed_point_sum(inputs, 32)] * RANKS)
        assert at.counted()[0] == 2


@pytest.mark.parametrize("generations", [1, 2])
def test_a_run_after_one_that_was_killed_makes_no_wrong_sum(generations: int) -> None:
    """It finds slots that collect for the old one. With another generation they count as empty; else: the ring."""
    with bed(generations=generations) as at:
        same(at.all_reduce(inputs_of(0)), [fixed_point_sum(inputs_of(0), 32)] * RANKS)
        at.relay.take = lose_of_worker(1, 70)
        at.all_reduce(inputs_of(1))
        at.relay.take = lambda _worker, _payload: True
        for reducer in at.reducers:  # as a new process, some seconds later: it knows nothing of the old one
            reducer._run, reducer._left, reducer._rest = 0, None, 0
        inputs = inputs_of(2)
        if generations == 1:
            same(at.all_reduce(inputs), at.ring(inputs))
            assert at.counted() == (1, {"gave_up": 1, "no_switch": 1})
        else:
            same(at.all_reduce(inputs), [fixed_point_sum(inputs, 32)] * RANKS)
            assert at.counted() == (2, {"gave_up": 1})


def test_sums_that_differ_between_ranks_are_nobodys() -> None:
    with bed() as at:
        inputs = inputs_of(5)
        ring = at.ring(inputs)
        same(at.all_reduce(inputs), [fixed_point_sum(inputs, 32)] * RANKS)
        at.relay.give = lambda worker, payload: (
            payload[:-1] + bytes([payload[-1] ^ 4]) if worker == 1 else payload
        )
        same(at.all_reduce(inputs), ring)
        assert at.counted() == (1, {"unequal": 1})


def test_values_that_are_not_finite_take_the_ring() -> None:
    with bed() as at:
        inputs = inputs_of(1)
        inputs[1][17] = np.inf
        same(at.all_reduce(inputs), at.ring(inputs))
        assert at.counted() == (0, {"not_finite": 1})


def test_ranks_of_a_host_have_ports_in_a_row() -> None:
    assert [SwitchAddress.parse("switch://10.0.0.1:5").port_of(place) for place in range(3)] == [5, 6, 7]
    address = SwitchAddress.parse("switch://10.0.0.1:5?port=65534")
    assert [address.port_of(place) for place in range(2)] == [65534, 65535]
    with pytest.raises(
        SettingsError, match="port 65534 for the first of a host's ranks, of which this is number 2"
    ):
        address.port_of(2)


def test_a_port_that_another_socket_has_is_named_with_what_to_do() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("0.0.0.0", 0))
        port = other.getsockname()[1]
        address = SwitchAddress.parse(f"switch://127.0.0.1:5?port={port}")
        with pytest.raises(
            AddressError, match=f"in use: {port}, .* take ports outside net.ipv4.ip_local_port_range"
        ):
            SwitchReducer(address, 0, RANKS, 0)


def test_ranks_are_at_switches_in_their_order() -> None:
    one, two = (SwitchAddress.parse(f"switch://10.0.0.1:5{more}") for more in ("", "?workers=3"))
    assert [one.place_of(rank, 6) for rank in range(6)] == [(rank, 6) for rank in range(6)]
    assert [two.place_of(rank, 6) for rank in range(6)] == [(rank % 3, 3) for rank in range(6)]
    uneven = SwitchAddress.parse("switch://10.0.0.1:5?workers=3&worker=2")
    assert uneven.place_of(4, 5) == (2, 3)


def test_few_bits_serve_few_ranks() -> None:
    address = SwitchAddress.parse("switch://10.0.0.1:5?bits=8&worker=0&workers=32")
    assert address.serves(32)
    with pytest.raises(SettingsError, match="bits=8 for 64 ranks; accepted: at most 32 ranks"):
        address.serves(64)
    assert not SwitchAddress.parse("switch://10.0.0.1:5").serves(64)


def test_switches_without_numbers_are_equally_full() -> None:
    with pytest.raises(SettingsError, match="workers=4 for 6 ranks; accepted: a divisor of 6, or worker too"):
        SwitchAddress.parse("switch://10.0.0.1:5?workers=4").serves(6)
    assert SwitchAddress.parse("switch://10.0.0.1:5?workers=3").serves(6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("10.0.0.1:5", "accepted: IPv4 address and port"),
        ("switch://10.0.0.1", "accepted: IPv4 address and port"),
        ("switch://[::1]:5", "accepted: IPv4 address and port"),
        ("switch://10.0.0.1:5?lanes=33", "accepted: multiples of 32"),
        ("switch://10.0.0.1:5?lanes=2240", "accepted: an integer from 32 to 2208"),
        ("switch://10.0.0.1:5?generation=65535&generations=2", "accepted: up to generation 65535"),
        ("switch://10.0.0.1:5?bits=12", "accepted: 32, 16, 8"),
        ("switch://10.0.0.1:5?worker=3", "worker and workers go together"),
        ("switch://10.0.0.1:5?worker=0", "worker and workers go together"),
        ("switch://10.0.0.1:5?worker=3&workers=3", "the number below the count"),
        ("switch://10.0.0.1:5?speed=1", "accepted, each once: job, generation, generations"),
    ],
)
def test_setting_names_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        Settings(aggregation=text)
