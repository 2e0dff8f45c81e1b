"""What the benchmarks of collectives make of their samples, and how they place ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.collectives import kernel_floor, limited_link, mpi
from bench.collectives.compare import KIB, MIB, Comparison, Sample, size_words
from bench.collectives.timing import Timing, kernel_counters
from bench.collectives.world import DLCP, GLOO, Place
from bench.faults import Notes, Raised, faults_of
from dlcp.lab import Lab
from dlcp.lab.namespaces import interface_bytes


def timing(times_s: list[float], *, cpu_s: float = 1.0, wire_bytes: int = 0, **engine: int) -> Timing:
    return Timing(MIB, times_s, sum(times_s), cpu_s, 0, wire_bytes, {}, engine, {})


def test_an_iteration_takes_as_long_as_its_slowest_rank() -> None:
    sample = Sample(MIB, [timing([1.0, 2.0, 9.0]), timing([2.0, 1.0, 3.0])])
    assert sample.times_s == [2.0, 2.0, 9.0]
    assert sample.bandwidth_bps == 8 * MIB / 2.0
    assert sample.time_s(99) == 9.0


def test_processor_time_is_per_rank_and_gigabyte() -> None:
    sample = Sample(MIB, [timing([1.0, 1.0], cpu_s=2.0), timing([1.0, 1.0], cpu_s=4.0)])
    assert sample.cpu_s_per_gb == pytest.approx(3.0 / (2 * MIB / 1e9))


def test_wire_and_repairs_are_shares() -> None:
    sample = Sample(
        MIB,
        [
            timing([1.0, 1.0], wire_bytes=3 * MIB, data_packets_sent=90, repair_packets_sent=3),
            timing([1.0, 1.0], wire_bytes=7 * MIB, data_packets_sent=10, repair_packets_sent=7),
        ],
    )
    assert sample.wire_ratio == 1.5  # of the first rank's host
    assert sample.repair_ratio == 0.1


def test_ratios_are_of_the_same_repetition() -> None:
    found = Comparison()
    for backend, times_s in ((GLOO, (4.0, 9.0)), (DLCP, (2.0, 3.0))):
        for time_s in times_s:
            found.add(backend, "here", [[timing([time_s])], [timing([time_s])]])
    ratio = found.ratio(GLOO, DLCP, "here", MIB, lambda sample: sample.time_s(50))
    assert (ratio.low, ratio.high) == (2.0, 3.0)


def test_wrong_results_are_said_loudly() -> None:
    found = Comparison()
    wrong = Timing(MIB, [1.0], 1.0, 1.0, 5, 0, {}, {}, {})
    found.add(DLCP, "here", [[wrong], [timing([1.0])]])
    assert found.notes() == ["WRONG: here, dlcp, 1 MB: 5 elements"]


def test_utilisation_of_a_link_that_is_full() -> None:
    # 64 MB between two ranks cross once each way: 46 348 datagrams' worth of 1448 bytes, 1514 on the link.
    needed_s = 8 * 64 * MIB * 1514 / 1448 / 1e9
    sample = Sample(64 * MIB, [timing([needed_s])])
    assert limited_link.utilisation(GLOO, 2, sample, 10**9) == pytest.approx(1.0)
    # Of four ranks in a ring, half as much again.
    assert limited_link.utilisation(GLOO, 4, sample, 10**9) == pytest.approx(1.5)


def test_headers_of_dlcp_are_those_that_its_engine_counted() -> None:
    # Ten packets of 1392 bytes with a short header and a tag, 48, below 42 of Ethernet, IP and UDP.
    counted = {"data_packets_sent": 10, "data_bytes_sent": 13920, "header_bytes_sent": 480}
    sample = Sample(MIB, [timing([8 * MIB / 1e9], **counted)])
    assert limited_link.utilisation(DLCP, 2, sample, 10**9) == pytest.approx(1482 / 1392)
    assert sample.header_share == 48 / 1440


@pytest.mark.skipif((why_not := mpi.missing()) is not None, reason=why_not or "")
def test_ranks_of_open_mpi_sum_what_they_time() -> None:
    for backend in (mpi.SHM, mpi.TCP):
        timings = mpi.time_all_reduce(backend, 2, [4 * KIB, 64 * KIB], 0.0, 2000)
        assert [[one.nbytes for one in rank] for rank in timings] == [[4 * KIB, 64 * KIB]] * 2
        assert all(len(one.times_s) == 5 and one.wrong == 0 for rank in timings for one in rank)


def test_sizes_as_people_write_them() -> None:
    assert [size_words(n) for n in (4 * KIB, 256 * KIB, MIB, 64 * MIB)] == ["4 KB", "256 KB", "1 MB", "64 MB"]


def test_counters_of_this_namespace_are_found() -> None:
    assert {"RetransSegs", "RcvbufErrors", "TCPTimeouts"} <= kernel_counters().keys()
    assert interface_bytes("lo") >= 0
    with pytest.raises(LookupError, match="no interface dlcp-none"):
        interface_bytes("dlcp-none")


def test_ranks_are_placed_in_blocks() -> None:
    lab = Lab(hosts=2)  # only drawn, not built
    place = Place.of_lab(lab, 4)
    assert place.namespaces == tuple(lab.namespace(host) for host in (0, 0, 1, 1))
    assert place.address == "10.77.0.1"


def test_notes_are_shared_by_all_who_open_them(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.touch()
    judge, rank = Notes(path, 3), Notes(path, 3)
    rank.begin(2, 7)
    rank.end(2, 6)
    assert judge.of(2) == (7, 6)
    assert judge.of(0) == (0, 0)


GOOD = (
    "all_reduce(f32, 8 elements, sum), operation 5 of group 0, on rank 1 at 10.0.0.2:7 (host a, eth-lab, process 3),"
    " was not over after 3 s. It waited for rank 2 at 10.0.0.3:8. See whether process 4 is alive."
)


def complaints(
    text: str = GOOD, *, culprit: int | None = 2, late_s: float = 0.5, sequence: int = 5
) -> list[str]:
    said = Raised("CollectiveTimeoutError", text, "all_reduce", sequence, culprit, late_s)
    return list(faults_of(said, rank=1, victim=2))


def test_an_error_in_full_and_in_time_is_well() -> None:
    assert complaints() == []


@pytest.mark.parametrize(
    ("without", "complaint"),
    [
        ("all_reduce(", "does not name the operation"),
        ("operation 5", "sequence number"),
        (" at 10.0.0.3:8", "the address of the rank that was struck"),
        ("eth-lab", "no interface"),
        ("See whether", "what to look at"),
    ],
)
def test_an_error_that_leaves_something_out_is_not(without: str, complaint: str) -> None:
    (said,) = complaints(GOOD.replace(without, ""))
    assert complaint in said


def test_an_error_that_is_late_or_names_another_rank_is_not() -> None:
    assert complaints(late_s=1.1) == ["raised more than 1 s after the timeout"]
    assert complaints(culprit=3) == ["the error does not name the rank that was struck"]
    assert complaints(culprit=None) == ["the error does not name the rank that was struck"]


def test_the_kernel_alone_is_timed_as_all_reduces_of_two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    def ask(name: str, **options: object) -> dict:
        asked.append(options)
        return {
            "seconds": 2.0,
            "sides": [{"bytes": 4 * MIB, "cpu_s": 2.0}, {"bytes": 2 * MIB, "cpu_s": 1.0}],
        }

    monkeypatch.setattr(kernel_floor.programs, "ask", ask)
    there = Place(("a", "b"), "10.0.0.1", addresses=("10.0.0.1", "10.0.0.2"))
    for place in (Place.loopback(2), there):
        timings = kernel_floor.time_exchange(kernel_floor.UDP, place, MIB, 2.0)
        sample = Sample(MIB, [of_rank[0] for of_rank in timings])
        assert sample.time_s(50) == 1.0  # the slower side moved 2 MB in 2 s
        assert sample.cpu_s_per_gb == pytest.approx(0.5 / (MIB / 1e9))
    assert asked[0]["address_b"] == "127.0.0.1"
    assert asked[0]["namespace_b"] == ""
    assert asked[1]["address_b"] == "10.0.0.2"
    assert asked[1]["namespace_a"] == "a"
