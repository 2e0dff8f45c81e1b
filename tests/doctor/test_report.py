"""How the doctor's findings look: golden texts."""

from __future__ import annotations

import json

from dlcp.doctor.finding import Finding, Topic, Verdict, worst
from dlcp.doctor.probe import RankPair
from dlcp.doctor.report import Examination, Host, finding_lines, pair_lines, summary_line

FINDINGS = [
    Topic("mtu").ok("eth0 has MTU 1500", "ip link set dev eth0 mtu 9000"),
    Topic("buffers").warn("the receive buffer gets 208 KiB", "sysctl -w net.core.rmem_max=8388608"),
    Topic("key").fail("key file k is a directory"),
]


def open_pair(source: int, target: int, goodput_bps: float = 1e9, lost: int = 0) -> RankPair:
    return RankPair(
        source=source,
        target=target,
        rtt_s=100e-6,
        echo_s=200e-6,
        goodput_bps=goodput_bps,
        sent_packets=1000,
        lost_packets=lost,
        datagram_bytes=1472,
        datagram_bytes_own=1472,
        clock_offset_s=0.0,
    )


def test_findings_are_a_line_each_with_what_mends_it() -> None:
    assert (
        "\n".join(finding_lines(FINDINGS))
        == """\
  ok    mtu      eth0 has MTU 1500
                   better: ip link set dev eth0 mtu 9000
  warn  buffers  the receive buffer gets 208 KiB
                   mend: sysctl -w net.core.rmem_max=8388608
  fail  key      key file k is a directory"""
    )
    assert summary_line(FINDINGS) == "1 failed, 1 warning, 1 in order"


def test_what_is_in_order_is_a_line_and_the_interface() -> None:
    way = Topic("interface").ok("dlcp binds 10.0.0.1 on eth0")
    fine = [way, *(Topic(f"topic {number}").ok("fine") for number in range(9))]
    host = Host("a", [*fine, *FINDINGS[1:]])
    lines = list(Examination([], [host], [], []).lines(verbose=False, colour=False))
    assert lines[:4] == [
        "a:",
        "  ok    interface  dlcp binds 10.0.0.1 on eth0",
        "  warn  buffers    the receive buffer gets 208 KiB",
        "                     mend: sysctl -w net.core.rmem_max=8388608",
    ]
    assert lines[5:7] == [
        "  9 in order: topic 0, topic 1, topic 2, topic 3, topic 4, topic 5, topic 6,",
        "  topic 7, topic 8 (--verbose shows them)",
    ]
    whole = list(Examination([], [host], [], []).lines(verbose=True, colour=False))
    assert [line.split()[0] for line in whole[1:-1]] == [*["ok"] * 10, "warn", "mend:", "fail"]
    assert lines[-1] == whole[-1] == "\n1 failed, 1 warning, 10 in order"


def test_long_sentences_fit_the_terminal_and_commands_stay_whole() -> None:
    long = Topic("interface").warn("some-words " * 12 + "are said", "a command " * 12)
    lines = list(finding_lines([long], True, 60))
    assert [line.replace("\x1b[33mwarn\x1b[0m", "warn") for line in lines[:2]] == [
        "  warn  interface  " + " ".join(["some-words"] * 3),
        "                   " + " ".join(["some-words"] * 3),
    ]
    assert lines[-1].endswith(f"mend: {long.remedy}")
    assert len(list(finding_lines([long]))) == 2


def test_colour_is_around_the_verdict_only() -> None:
    assert list(finding_lines(FINDINGS[2:], colour=True)) == [
        "  \x1b[31mfail\x1b[0m  key  key file k is a directory"
    ]


def test_tables_show_open_closed_and_unknown_ways() -> None:
    pairs = [
        open_pair(0, 1, 9.4e9),
        open_pair(1, 0, 0.94e9, lost=12),
        RankPair(source=0, target=2, error="no answer"),
        open_pair(1, 2),
    ]
    assert (
        "\n".join(pair_lines(["rank 0", "rank 1", "node-two:7010"], pairs))
        == """\

least round trip, µs (row to column)
                       rank 0        rank 1 node-two:7010
         rank 0             ·           100          none
         rank 1           100             ·           100
  node-two:7010             ?             ?             ·

goodput, Gbit/s (row to column)
                       rank 0        rank 1 node-two:7010
         rank 0             ·          9.40          none
         rank 1          0.94             ·          1.00
  node-two:7010             ?             ?             ·

packets lost, % (row to column)
                       rank 0        rank 1 node-two:7010
         rank 0             ·          0.00          none
         rank 1          1.20             ·          0.00
  node-two:7010             ?             ?             ·

largest datagram, bytes (row to column)
                       rank 0        rank 1 node-two:7010
         rank 0             ·          1472          none
         rank 1          1472             ·          1472
  node-two:7010             ?             ?             ·"""
    )


def test_tables_of_nothing_are_left_out() -> None:
    closed = [RankPair(source=0, target=1, error="x"), RankPair(source=1, target=0, error="x")]
    assert list(pair_lines(["rank 0", "rank 1"], closed)) == []


def test_many_ranks_are_shown_by_their_extremes() -> None:
    names = [f"rank {rank}" for rank in range(20)]
    pairs = [open_pair(a, b, 1e9 + a * 1e7 + b * 1e5) for a in range(20) for b in range(20) if a != b]
    lines = [line for line in pair_lines(names, pairs) if line]
    assert len(lines) == 4
    assert lines[1] == "goodput, Gbit/s: 1.00 (rank 0 to rank 1), median 1.10, 1.19 (rank 19 to rank 18)"


def test_json_round_trips_and_names_the_worst() -> None:
    found = Examination(["a"], [Host("a", FINDINGS)], [], [open_pair(0, 1)])
    report = json.loads(json.dumps(found.to_json()))
    assert report["hosts"][0].keys() == {"name", "findings"}
    assert report["verdict"] == "fail"
    assert [Finding.from_json(one) for one in report["hosts"][0]["findings"]] == FINDINGS
    assert RankPair(**report["pairs"][0]) == open_pair(0, 1)


def test_worst_of_nothing_is_ok() -> None:
    assert worst([]) == Verdict.OK
    assert worst([FINDINGS[0], FINDINGS[1]]) == Verdict.WARN
