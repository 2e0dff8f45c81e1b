"""How the ranks of a job find each other, and what they say when they do not go together.

Ranks are threads of this process, each with a real endpoint on loopback.
"""

from __future__ import annotations

import functools
import json
import random
import re
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlcp import _native, errors
from dlcp.transport import Endpoint, Settings, job_ranks, rank_card, round_trip
from dlcp.transport import job as job_module
from dlcp.transport import meeting as meeting_module
from dlcp.transport.communicator import Communicator
from dlcp.transport.job import Job, _choose_place, for_collectives
from dlcp.transport.meeting import Meeting
from dlcp.transport.rank_card import RankCard, check_reach, check_versions, key_check_value
from dlcp.transport.round_trip import asked_ranks, expect, round_trip_s
from dlcp.transport.schedule.choose import choose
from dlcp.transport.schedule.estimate import Network
from dlcp.transport.span import Span
from dlcp.transport.store import MemoryStore, PrefixStore, wait_for
from tests.support.relay import Header, Relay

# Ends what would hang; far above what anything here takes.
PATIENCE_S = 60.0
Start = Callable[..., list[Any]]


@pytest.fixture(autouse=True)
def _no_other_start_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a rank does not fit, a test need not wait for a start that it fits."""
    for module in (job_module, meeting_module):
        monkeypatch.setattr(module, "STALE_S", 0.05)


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts ranks on one store, together, and returns a Job per rank, or what the rank raised."""
    with ExitStack() as stack:

        def run(size: int, store: Any = None, per_rank: Any = None, **common: Any) -> list[Any]:
            store = MemoryStore() if store is None else store

            def one(rank: int) -> Any:
                own = {} if per_rank is None else per_rank(rank)
                try:
                    return Job(store, rank, **({"size": size, "timeout_s": PATIENCE_S} | common | own))
                except errors.DlcpError as error:
                    return error

            with ThreadPoolExecutor(size) as pool:
                jobs = list(pool.map(one, range(size)))
            for job in jobs:
                if isinstance(job, Job):
                    stack.callback(job.close)
            return jobs

        yield run


def exchange(sender: Job, receiver: Job) -> None:
    """One message from rank to rank over the jobs' endpoints."""
    sender.connect([receiver.rank])
    receiver.connect([sender.rank])
    got = np.zeros(3, np.int32)
    arriving = receiver.endpoint.ireceive(sender.rank, got)
    sender.endpoint.send(receiver.rank, np.arange(3, dtype=np.int32), timeout_s=PATIENCE_S)
    arriving.result(PATIENCE_S)
    assert got.tolist() == [0, 1, 2]


# --- how they meet ------------------------------------------------------------------------------------------


def test_ranks_meet_with_a_drawn_key(start: Start) -> None:
    jobs = start(3)
    assert len({job.settings.job for job in jobs}) == 1
    assert len({job.settings.key for job in jobs}) == 1
    assert jobs[0].settings.job != 0
    assert len(jobs[0].settings.key) == 32
    exchange(jobs[0], jobs[2])
    assert jobs[1].address_of(2) == jobs[2].endpoint.address
    assert jobs[0].endpoint.peers == (2,)  # what nobody talks to is no peer


def test_jobs_do_not_share_keys_or_numbers(start: Start) -> None:
    (a,), (b,) = start(1), start(1)
    assert a.settings.key != b.settings.key
    assert a.settings.job != b.settings.job


def test_start_costs_each_rank_the_same_whatever_the_size(start: Start) -> None:
    class Counting(MemoryStore):
        """Counts all but looks at what is there, which are many while a rank is late."""

        calls = 0

        def set(self, key: str, value: str | bytes) -> None:
            self.calls += 1
            super().set(key, value)

        def get(self, key: str) -> bytes:
            self.calls += 1
            return super().get(key)

        def add(self, key: str, amount: int) -> int:
            self.calls += amount != 0
            return super().add(key, amount)

    for size in (5, 20):
        start(size, store := Counting())
        assert store.calls <= 3 * size


def test_connect_again_asks_the_store_nothing(start: Start) -> None:
    store = MemoryStore()
    a, b = start(2, store)
    a.connect([1])
    store._values.clear()
    a.connect([0, 1])
    assert a.address_of(1) == b.endpoint.address
    assert a.endpoint.peers == (1,)


def test_second_job_on_the_same_store_reads_nothing_old(start: Start) -> None:
    store = MemoryStore()
    first = start(2, store)
    second = start(2, store)
    assert first[0].settings.job != second[0].settings.job
    assert second[1].address_of(0) == second[0].endpoint.address
    exchange(second[0], second[1])
    exchange(first[0], first[1])


@pytest.mark.parametrize("seed", range(4))
def test_ranks_meet_on_a_store_of_failed_starts_and_other_sizes(
    start: Start, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """As a launcher restarts them: some never come, each counts other restarts, and rank 0 is the last of all."""
    chance = random.Random(seed)
    store = MemoryStore()
    for module in (job_module, meeting_module):
        monkeypatch.setattr(module, "STALE_S", PATIENCE_S)
    for _ in range(6):
        size = chance.randint(2, 4)
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(chance.randrange(9)))
        absent = {rank for rank in range(size) if chance.random() < 0.3}
        begun = threading.Event()

        def one(
            rank: int, size: int = size, absent: set[int] = absent, begun: threading.Event = begun
        ) -> Any:
            if rank == 0:
                begun.wait(PATIENCE_S)
            return None if rank in absent else Job(store, rank, size, timeout_s=0.2 if absent else PATIENCE_S)

        with ThreadPoolExecutor(size) as pool:
            jobs = [pool.submit(one, rank) for rank in range(size)]
            begun.set()
        if absent:
            for rank, job in enumerate(jobs):
                if rank not in absent:
                    assert isinstance(job.exception(), errors.StoreTimeoutError | errors.JobError)
            continue
        whole = [job.result() for job in jobs]
        exchange(whole[-1], whole[0])
        for job in whole:
            job.close()


def test_rank_follows_rank_0_to_another_start() -> None:
    store = MemoryStore()

    def begin() -> None:
        Meeting(store, 0, 2, PATIENCE_S).begin()
        store.set(f"dlcp/{store.add('dlcp/starts', 0)}/job", b"{}")

    begin()
    rank = Meeting(store, 1, 2, PATIENCE_S)
    rank.find()
    with ThreadPoolExecutor(1) as pool:
        arrived = pool.submit(rank.arrive, card(1), lambda: None)
        wait_for(store, "dlcp/1/rank/1", PATIENCE_S, "rank 1")
        begin()
        assert not arrived.result(PATIENCE_S)
    rank.find()
    assert store.check(["dlcp/2/job"])


def test_world_of_one_needs_no_store(start: Start) -> None:
    store = MemoryStore()
    (job,) = start(1, store)
    assert store._values == {}
    assert job.address_of(0) == job.endpoint.address


@pytest.mark.parametrize(
    ("machines", "processors", "crowded"),
    [
        ("aa", (2, 2), False),
        ("aab", (2, 2, 1), False),
        ("aaa", (2, 2, 2), True),
        ("baa", (8, 1, 1), True),
        ("aaa", (4, 4, 2), True),  # one that may use fewer than the others
        ("aaa", (0, 0, 0), False),  # they do not say
    ],
)
def test_ranks_are_crowded_where_a_machine_has_fewer_processors_than_ranks(
    start: Start, machines: str, processors: tuple[int, ...], crowded: bool
) -> None:
    (job,) = start(1)
    # Containers of one machine have a namespace each.
    job.add_cards(
        card(rank, where=f"{machine}/{rank}", processors=count)
        for rank, (machine, count) in enumerate(zip(machines, processors, strict=True))
    )
    assert job.is_crowded(range(len(machines))) is crowded


def test_card_names_this_process(start: Start) -> None:
    a, b = start(2)
    card = a.card_of(1)
    assert card == b.card
    assert card.pid > 0
    assert card.interface == "lo"
    assert f"rank 1 at {b.card.place} (host {card.host}, lo, process {card.pid})" == card.describe()


@pytest.mark.parametrize(
    ("said", "rate_bps"),
    [("25000", 25_000_000_000), ("-1", 0), ("4294967295", 0), ("0", 0), ("fast", 0), (None, 0)],
)
def test_card_has_the_line_rate_that_the_driver_says(
    said: str | None, rate_bps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if said is not None:
        (tmp_path / "eth9").mkdir()
        (tmp_path / "eth9" / "speed").write_text(f"{said}\n")
    monkeypatch.setattr(rank_card, "INTERFACES", tmp_path)
    assert RankCard.of_this_process(0, "10.0.0.1:1", "eth9").line_rate_bps == rate_bps


def test_card_has_the_line_rate_that_was_set(start: Start) -> None:
    """An interface whose link is slower than its own rate, or that says none: algorithms count what was set."""
    first, second = start(2, line_rate_bps=2_000_000_000)
    assert first.card.line_rate_bps == second.card.line_rate_bps == 2_000_000_000
    network = first.network_of(range(2))
    assert network is not None
    assert network.link_bps == 2e9


def test_a_network_is_as_fast_as_its_slowest_link(start: Start) -> None:
    (job,) = start(1)
    for rates, link_bps in (((0, 25e9, 1e9), 1e9), ((0, 0, 0), 10e9), ((0, 100e9, 0), 100e9)):
        job.add_cards(
            card(rank, where=f"m/{rank}", line_rate_bps=int(rate)) for rank, rate in enumerate(rates)
        )
        network = job.network_of(range(3))
        assert network is not None
        assert (network.hosts, network.link_bps) == ((0, 1, 2), link_bps)


def test_round_trip_is_of_ranks_of_other_hosts(start: Start) -> None:
    a, *others = start(4)
    hosts = ("here", "there", "here", "elsewhere")
    cards = [replace(job.card, where=where) for job, where in zip((a, *others), hosts, strict=True)]
    far = others[0], others[2]
    for job in far:
        expect(job.endpoint)
    measured_s = round_trip_s(a.endpoint, cards[0], cards[1:])
    assert a.endpoint.peers == (1, 3)
    assert 0 < (measured_s or 0) < PATIENCE_S
    for job in far:
        assert job.endpoint.runtime.statistics()["outstanding_operations"] == 0


def test_a_host_that_does_not_answer_is_left_out_of_the_round_trip(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = start(2)
    monkeypatch.setattr(round_trip, "_WAIT_S", 0.5)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        cards = [replace(b.card, where="there"), card(2, address=address, where="silent")]
        cards += [card(3, address="not an address", where="wrong")]
        assert round_trip_s(a.endpoint, a.card, cards) is not None
        assert a.endpoint.peers == (1,)
        assert round_trip_s(a.endpoint, a.card, cards[1:]) is None


@pytest.mark.parametrize("size", [2, 3, 8, 9, 1000])
def test_few_ranks_are_asked_for_the_round_trip_near_and_far(size: int) -> None:
    asked = asked_ranks(size)
    assert set(asked) <= set(range(1, size))
    assert len(asked) <= 11
    assert {1, size - 1} <= set(asked)


def test_all_ranks_take_the_round_trip_that_rank_0_measured(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "round_trip_s", lambda *_: 0.25)
    jobs = start(3)
    for job in jobs:
        job.add_cards(card(rank, where=f"m/{rank}") for rank in range(3))
        network = job.network_of(range(3))
        assert network is not None
        assert network.hop_ns == 125e6 + job_ranks._ACTING_NS
    # 64 KB wait for one hop in place of four.
    assert choose("all_reduce", 3, 65536, network=lambda: network) == "one_shot"
    alone = start(2)[1].network_of([0, 1])
    assert alone is not None
    assert alone.hop_ns == Network(()).hop_ns


# --- job keys -----------------------------------------------------------------------------------------------


def key_file(path: Path, fill: int) -> str:
    path.write_bytes(bytes([fill]) * 32)
    return str(path)


def test_own_key_does_not_pass_through_the_store(start: Start, tmp_path: Path) -> None:
    store = MemoryStore()
    path = key_file(tmp_path / "key", 7)
    jobs = start(2, store, key_file=path)
    assert [job.settings.job_key() for job in jobs] == [b"\7" * 32] * 2
    assert not any(bytes([7] * 32).hex().encode() in value for value in store._values.values())
    exchange(jobs[0], jobs[1])


def test_different_keys_are_named_as_the_cause(start: Start, tmp_path: Path) -> None:
    first, second = start(2, per_rank=lambda rank: {"key_file": key_file(tmp_path / str(rank), rank)})
    assert isinstance(second, errors.JobError)
    assert "rank 0 and rank 1 have different job keys" in str(second)
    with pytest.raises(errors.JobError, match="rank 1 .* did not start: .*different job keys"):
        first.connect([1])


def test_key_on_one_side_alone_is_named(start: Start, tmp_path: Path) -> None:
    path = key_file(tmp_path / "key", 1)
    _, second = start(2, per_rank=lambda rank: {"key_file": path} if rank == 0 else {})
    assert "rank 0 has a job key of its own (DLCP_KEY_FILE), rank 1 has no job key of its own" in str(second)


def test_without_authentication_packets_carry_no_key(start: Start) -> None:
    jobs = start(2, allow_unauthenticated=True)
    assert [job.settings.job_key() for job in jobs] == [None, None]
    exchange(jobs[0], jobs[1])


def test_key_that_is_drawn_can_encrypt(start: Start) -> None:
    jobs = start(2, encrypt=True, shm=False)
    exchange(jobs[0], jobs[1])
    (error,) = start(1, encrypt=True, allow_unauthenticated=True)
    assert "encrypt is set, but there is no job key" in str(error)


@pytest.mark.parametrize("encrypting", [0, 1])
def test_encryption_on_one_side_alone_is_named(start: Start, encrypting: int) -> None:
    first, second = start(2, per_rank=lambda rank: {"encrypt": rank == encrypting})
    assert isinstance(second, errors.JobError)
    assert f"rank {encrypting} encrypts what it sends and rank {1 - encrypting} does not" in str(second)
    with pytest.raises(errors.JobError, match="rank 1 .* did not start: .*DLCP_ENCRYPT"):
        first.connect([1])


def test_rank_of_an_earlier_start_is_a_stranger(start: Start, tmp_path: Path) -> None:
    """With the same store, key file, job number and port of rank 0: a frozen rank, after the launcher's restart."""
    common = {"key_file": key_file(tmp_path / "key", 3), "job": 77, "shm": False}
    first, left_over = start(2, store := MemoryStore(), **common)
    port = int(first.endpoint.address.rpartition(":")[2])
    first.close()
    again, _ = start(2, store, lambda rank: {"port": port} if rank == 0 else {}, **common)
    with pytest.raises(errors.PeerTimeoutError):
        left_over.endpoint.connect(0, again.endpoint.address, timeout_s=0.5)
    assert again.endpoint.peers == ()
    assert again.endpoint.stats().engine.bad_tag > 0


def test_key_check_value_differs_by_key_and_job() -> None:
    values = {key_check_value(bytes([fill]) * 32, job) for fill in range(4) for job in range(4)}
    assert len(values) == 16
    assert key_check_value(None, 1) == ""


# --- who does not go together -------------------------------------------------------------------------------


def card(rank: int = 0, **changes: Any) -> RankCard:
    return replace(RankCard.of_this_process(rank, "10.0.0.1:4000", "eth0"), **changes)


def test_versions_that_differ_are_named() -> None:
    check_versions(card(0), card(1))
    with pytest.raises(
        errors.JobError, match=r"rank 1 .*host b.* runs dlcp 9.9 .* rank 0 on host a runs dlcp"
    ):
        check_versions(card(0, host="a"), card(1, host="b", version="9.9"))
    with pytest.raises(errors.JobError, match=r"wire version 77"):
        check_versions(card(0), card(1, wire_version=77))


def test_rank_of_another_version_finds_out_and_is_found_out(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_this_process = RankCard.of_this_process

    def other_version(rank: int, *arguments: Any, **more: Any) -> RankCard:
        return replace(
            of_this_process(rank, *arguments, **more), **({"version": "0.0.1"} if rank == 1 else {})
        )

    monkeypatch.setattr(RankCard, "of_this_process", other_version)
    first, second = start(2)
    assert "rank 1 on host" in str(second)
    assert "runs dlcp 0.0.1" in str(second)
    with pytest.raises(errors.JobError, match=r"rank 1 .* runs dlcp 0.0.1"):
        first.address_of(1)


@pytest.mark.parametrize("address", ["127.0.0.1:4000", "[::1]:4000", "shm x;127.0.0.2:5"])
def test_loopback_between_hosts_is_named(address: str) -> None:
    near = card(0, address=address, host="a", where="kernel a")
    far = card(1, address="10.0.0.2:4000", host="b", where="kernel b")
    for own, other in ((near, far), (far, near)):
        with pytest.raises(
            errors.JobError, match=r"rank 0 on host a is at .*rank 1 is on host b; .*DLCP_INTERFACE"
        ):
            check_reach(own, other)
    check_reach(near, replace(far, where="kernel a"))


@pytest.mark.parametrize("address", ["10.127.0.1:4000", "[fe80::1]:4000", "192.168.127.0:1", "[2001::1]:80"])
def test_other_addresses_are_not_taken_for_loopback(address: str) -> None:
    check_reach(card(0, address=address, where="a"), card(1, address="10.0.0.2:4000", where="b"))


def test_size_that_differs_is_named(start: Start) -> None:
    first, second = start(2, per_rank=lambda rank: {"size": 2 + rank})
    assert isinstance(first, Job)
    assert "rank 0 began a job of 2 ranks, rank 1 one of 3" in str(second)


def test_job_number_that_differs_is_named(start: Start) -> None:
    _, second = start(2, per_rank=lambda rank: {"job": 5 + rank})
    assert "rank 0 has job number 5, rank 1 has 6" in str(second)


def test_absent_rank_0_is_named() -> None:
    with pytest.raises(errors.StoreTimeoutError, match="rank 0's entry .* was not in the store after 0.01 s"):
        Job(MemoryStore(), 1, 2, timeout_s=0.01)


def test_absent_ranks_are_named() -> None:
    with pytest.raises(errors.StoreTimeoutError, match=r"the address of rank 1, rank 2 \(not started"):
        Job(MemoryStore(), 0, 3, timeout_s=0.01)


def test_rank_0_that_cannot_start_is_named_by_the_others(start: Start) -> None:
    def settings(rank: int) -> dict[str, Any]:
        return {"bind_host": "198.51.100.77"} if rank == 0 else {}

    first, second = start(2, per_rank=settings)
    assert isinstance(first, errors.DlcpError)
    assert re.search("rank 0 .*did not start: .*198.51.100.77", str(second))


def test_settings_of_rank_0_that_are_wrong_are_named_by_the_others(start: Start) -> None:
    first, second = start(2, per_rank=lambda rank: {"paths": 1000} if rank == 0 else {})
    assert isinstance(first, errors.SettingsError)
    assert isinstance(second, errors.JobError)
    assert "rank 0 did not start: setting paths is 1000" in str(second)


def test_store_of_another_program_is_named() -> None:
    store = MemoryStore()
    store.set("dlcp/1/job", "something else")
    store.add("dlcp/starts", 1)
    with pytest.raises(errors.JobError, match="what rank 0 left in the store is not this dlcp's"):
        Job(store, 1, 2)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"rank": 2}, "rank is 2; accepted: an integer from 0 to 1"),
        ({"rank": True}, "rank is True"),
        ({"size": 0}, "size is 0"),
        ({"size": 10**9}, "size is 1000000000; accepted: an integer from 1 to 1048576"),
        ({"store": None}, "store is None; accepted: what has set, get, add and check"),
        ({"store": 5}, "store is 5"),
        ({"timeout_s": "x"}, "timeout_s is 'x'; accepted: more than 0 seconds"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"timeout_s": float("nan")}, "timeout_s is nan"),
        ({"settings": 5}, "settings is 5; accepted: a Settings, or None"),
        ({"toward": 5}, "toward is 5; accepted: the name or address of a host"),
    ],
    ids=str,
)
def test_arguments_are_checked(arguments: dict[str, Any], sentence: str) -> None:
    values = {"store": MemoryStore(), "rank": 0, "size": 2} | arguments
    with pytest.raises(errors.ArgumentError, match=sentence):
        Job(**values)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": None}, "name is None; accepted: a text"),
        ({"members": 5}, "members is 5; accepted: distinct ranks from 0 to 0"),
        ({"members": [True]}, r"members is \[True\]"),
        ({"members": []}, r"members is \[\]"),
        ({"timeout_s": -1}, "timeout_s is -1; accepted: more than 0 seconds"),
        ({"timeout_s": "x"}, "timeout_s is 'x'"),
    ],
    ids=str,
)
def test_arguments_of_a_group_are_checked(start: Start, arguments: dict[str, Any], sentence: str) -> None:
    (job,) = start(1)
    with pytest.raises(errors.ArgumentError, match=sentence):
        job.open_communicator(**({"name": "group"} | arguments))


# --- where it binds -----------------------------------------------------------------------------------------


def test_host_on_loopback_means_loopback(start: Start) -> None:
    (job,) = start(1, toward="127.0.0.1")
    assert job.endpoint.address.startswith("127.0.0.1:")
    assert job.card.interface == "lo"


def test_pattern_of_interfaces_chooses_the_address(start: Start) -> None:
    jobs = start(2, interface="=lo")
    assert [job.card.interface for job in jobs] == ["lo", "lo"]
    exchange(*jobs)


def test_address_that_is_given_wins(start: Start) -> None:
    (job,) = start(1, bind_host="127.0.0.5", toward="198.51.100.1")
    assert job.endpoint.address.startswith("127.0.0.5:")


# --- how it ends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", ["dpdk", "xdp"])
def test_below_the_kernel_an_address_must_be_set(driver: str) -> None:
    words = (
        rf"driver is '{driver}', where the kernel gives no address to eth9: set bind_host \(DLCP_BIND_HOST="
    )
    with pytest.raises(errors.SettingsError, match=words):
        Job(MemoryStore(), 0, 1, driver=driver, interface="eth9", toward="127.0.0.1")


@pytest.mark.parametrize(
    ("driver", "shm", "expected"),
    [
        ("udp", True, "local"),
        ("udp", False, "udp"),
        ("dpdk", True, "local+dpdk"),
        ("dpdk", False, "dpdk"),
        ("xdp", True, "local+xdp"),
        ("local+xdp", True, "local+xdp"),
        ("mine", True, "mine"),
    ],
)
def test_ranks_of_a_host_share_memory_whatever_leads_out_of_it(driver: str, shm: bool, expected: str) -> None:
    assert for_collectives(Settings(driver=driver, shm=shm)).driver == expected


def test_device_below_the_kernel_is_not_looked_up_in_the_kernel() -> None:
    settings = Settings(driver="dpdk", interface="0000:3b:00.0", bind_host="10.0.0.1/24")
    assert _choose_place(settings, "10.0.0.9") == ({}, "0000:3b:00.0", "asked for")


def test_closed_job_opens_no_group(start: Start) -> None:
    (job,) = start(1)
    job.close()
    job.close()
    assert job.closed
    with pytest.raises(errors.ClosedError):
        job.open_communicator("g")


def test_close_answers_a_peer_that_missed_the_last_acknowledgement(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver has everything and closes; what tells the sender so was lost on the way, several times.

    The time that the receiver gives the sender to ask again is up when the sender needs no more.
    """
    a, b = start(2, allow_unauthenticated=True, paths=1, shm=False)
    lost = 0

    def drops(header: Header, towards_server: bool) -> bool:
        nonlocal lost
        # All that rank 1, the server, says once the data has come, until the sender has asked twice.
        if armed and not towards_server and lost < 3:
            lost += 1
            return True
        return False

    armed: list[bool] = []
    with Relay(b.endpoint.address, drops) as relay:
        a.endpoint.connect(1, relay.address, timeout_s=PATIENCE_S)
        got = np.zeros(100, np.uint8)
        arriving = b.endpoint.ireceive(0, got)
        armed.append(True)
        sending = a.endpoint.isend(1, np.ones(100, np.uint8))
        arriving.result(PATIENCE_S)
        answers = functools.partial(job_module._settle, sleep=lambda _: sending.result(PATIENCE_S))
        monkeypatch.setattr(job_module, "_settle", answers)
        b.close()
        sending.result(PATIENCE_S)
    assert lost == 3
    assert got.all()


@pytest.mark.parametrize(
    ("rtt_s", "packets_come_s", "closes_at_s"),
    [
        (0.0, (), 0.05),  # once more after the first look, which finds nothing new
        (0.0, (0.04, 0.09, 0.13), 0.2),
        (0.1, (0.3,), 0.8),  # four round trips long
        (9.0, (), 1.0),  # at most a second long
        (0.0, tuple(np.arange(0, 9, 0.01)), 2.0),  # somebody who never stops
    ],
)
def test_close_waits_until_peers_are_quiet(
    rtt_s: float, packets_come_s: tuple[float, ...], closes_at_s: float
) -> None:
    now_s = 0.0

    class Runtime:
        def peers(self) -> list[int]:
            return [1]

        def established(self, rank: int) -> bool:
            return True

        def peer_statistics(self, rank: int) -> dict[str, float]:
            return {"rtt_s": rtt_s}

        def statistics(self) -> dict[str, Any]:
            received = sum(at <= now_s for at in packets_come_s)
            return {
                "outstanding_operations": 0,
                "engine": {"data_packets_received": received, "control_packets_received": 0},
            }

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    job_module._settle(Runtime(), sleep, lambda: now_s)  # type: ignore[arg-type]
    assert now_s == pytest.approx(closes_at_s)


@pytest.fixture
def groups(start: Start) -> Callable[..., list[Communicator]]:
    """The communicators of a group of two ranks, which keep no message that nobody asks for."""

    def run(**settings: Any) -> list[Communicator]:
        jobs = start(2, flight_recorder_entries=0, **({"max_unexpected_bytes": 0} | settings))
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda job: job.open_communicator("g"), jobs))

    return run


Groups = Callable[..., list[Communicator]]
DATA = np.arange(1000, dtype=np.uint8)


def test_close_waits_until_peers_have_what_was_sent(
    groups: Groups, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = groups()
    a.send(Span.of(DATA), 1).wait()
    monkeypatch.setattr(job_module, "_DELIVERY_QUIET_S", 0.01)
    got = np.zeros_like(DATA)
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(a.job.close)
        while "up to 60 s more, until the others have received what this rank has sent" not in caplog.text:
            assert not closing.done()
        b.receive(Span.of(got), 0).wait(PATIENCE_S)
        closing.result(PATIENCE_S)
    assert np.array_equal(got, DATA)
    assert "is lost" not in caplog.text


@pytest.mark.parametrize("leaves", [False, True])
def test_close_says_what_was_not_received(
    groups: Groups, caplog: pytest.LogCaptureFixture, *, leaves: bool
) -> None:
    """It does not wait for a peer that has left, nor long while an exception is under way."""
    a, b = groups()
    a.send(Span.of(DATA), 1).wait()
    a.job.endpoint.wait_for_peer(1, timeout_s=PATIENCE_S)
    if leaves:
        b.job.close()
        a.job.close()
    else:
        with pytest.raises(ZeroDivisionError), a.job:
            1 / 0  # noqa: B018
    assert "is lost: 1000 bytes to rank 1" in caplog.text


def test_message_of_a_rank_that_has_left_with_the_store(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver has it, and needs neither the sender nor its entry in the store."""
    a, b = groups(max_unexpected_bytes=1 << 20)
    a.send(Span.of(DATA), 1).wait()
    a.job.close()
    monkeypatch.delattr(MemoryStore, "check")
    got = np.zeros_like(DATA)
    b.receive(Span.of(got), 0).wait(PATIENCE_S)
    assert np.array_equal(got, DATA)


def test_bound_of_messages_says_its_name(groups: Groups) -> None:
    a, _ = groups(max_messages_per_peer=1)
    a.send(Span.of(DATA), 1)
    with pytest.raises(errors.LimitError, match=r"1 messages with rank 1 .* raise max_messages_per_peer"):
        a.send(Span.of(DATA), 1).wait()
    a.abort()


def test_process_that_forgets_to_close_ends_well() -> None:
    script = """
        from concurrent.futures import ThreadPoolExecutor
        from dlcp.transport.job import Job
        from dlcp.transport.store import MemoryStore
        store = MemoryStore()
        with ThreadPoolExecutor(2) as pool:
            jobs = list(pool.map(lambda rank: Job(store, rank, 2), range(2)))
        jobs[0].connect([1])
        jobs[0].endpoint.wait_for_peer(1, timeout_s=30)
        print("over")
    """
    ended = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "over\n", "")


def test_forked_child_leaves_the_job_alone() -> None:
    script = """
        import os
        from dlcp.errors import ForkError
        from concurrent.futures import ThreadPoolExecutor
        from dlcp.transport.job import Job
        from dlcp.transport.store import MemoryStore
        store = MemoryStore()
        with ThreadPoolExecutor(2) as pool:
            jobs = list(pool.map(lambda rank: Job(store, rank, 2), range(2)))
        if (pid := os.fork()) == 0:
            jobs[0].close()
            try:
                jobs[1].connect([0])
            except ForkError:
                raise SystemExit(7)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        jobs[0].connect([1])
        jobs[0].endpoint.wait_for_peer(1, timeout_s=30)
        print(status)
    """
    ended = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (ended.returncode, ended.stdout) == (0, "7\n"), ended.stderr


def test_start_is_one_line_at_level_info(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "dlcp"):
        first, _ = start(2, metrics_port=0)
    (line,) = [text for text in caplog.messages if text.startswith("rank 0: dlcp ")]
    assert (
        f"one of 2 ranks, at {first.card.place}, interface lo (default); driver udp (default), shared memory with ranks"
        in line
    )
    costs_ns = _native.offered_ciphers()
    assert f"packets are authenticated by {min(costs_ns, key=lambda name: costs_ns[name])}" in line
    assert line.endswith(f"; metrics at {first.metrics_server.url}")
    first.card = replace(first.card, line_rate_bps=25_000_000_000)
    assert ", interface lo (default) of 25 Gbit/s by its driver; driver udp" in first._describe_start()
    first.settings = first.settings.replace(line_rate_bps=25_000_000_000)
    assert ", interface lo (default) of 25 Gbit/s as set; driver udp" in first._describe_start()
    first.card = replace(first.card, line_rate_bps=0, address="10.0.0.1:4000")
    unknown = (
        ", interface lo (default) of unknown rate (10 Gbit/s assumed; line_rate_bps sets it); driver udp"
    )
    assert unknown in first._describe_start()
    first.settings = first.settings.replace(cipher="aes_128_gcm", encrypt=True)
    assert "packets are encrypted by aes_128_gcm; metrics" in first._describe_start()


def test_start_says_why_it_is_this_interface(start: Start) -> None:
    for changes, toward, why in (
        ({}, "127.0.0.1", "on the route to 127.0.0.1"),
        ({"interface": "lo"}, "127.0.0.1", "asked for"),
    ):
        (job,) = start(1, toward=toward, **changes)
        assert f", interface lo ({why})" in job._describe_start()


def test_record_in_the_store_is_readable_text(start: Start) -> None:
    store = MemoryStore()
    start(2, PrefixStore("job", store))
    assert json.loads(store.get("job/dlcp/1/rank/1"))["rank"] == 1


def test_settings_may_be_given_as_a_whole(start: Start) -> None:
    (job,) = start(1, settings=Settings(paths=2))
    assert job.settings.paths == 2
    assert isinstance(job.endpoint, Endpoint)
