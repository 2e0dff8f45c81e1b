"""`dlcp bench`: its words, its table, and two ranks of this machine."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlcp.benchmark.command import _parser
from dlcp.benchmark.samples import BUS_FACTORS, TimedCalls, heading, row
from dlcp.cli import main
from tests.torch import ranks

BENCH = [sys.executable, "-m", "dlcp", "bench"]
# Of a rank whose all-reduce is off by one in one value of one call.
WRONG = """
import sys, torch.distributed as dist
right, calls = dist.all_reduce, []
def wrong(tensor, *rest, **options):
    work = right(tensor, *rest, **options)
    calls.append(tensor)
    if len(calls) == 9 and dist.get_rank() == 1:
        tensor[3] += 1
    return work
dist.all_reduce = wrong
from dlcp.cli import main
sys.exit(main(["bench", "--sizes", "4K", "--seconds", "1"]))
"""


def launched(rank: int, port: int) -> dict[str, str]:
    rendezvous = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return os.environ | {"RANK": str(rank)} | rendezvous


@pytest.fixture
def port() -> Iterator[int]:
    """A TCP port that is given to nobody else; rank 0's store may listen on it, since this socket does not."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def sample(backend: str = "dlcp", collective: str = "all_reduce", **changes: object) -> TimedCalls:
    times_s = [1e-3] * 98 + [2e-3, 3e-3]
    values = {"ranks": 4, "nbytes": 1 << 20, "times_s": times_s, "wrong": 0, "algorithm": "halving_doubling"}
    return TimedCalls(collective=collective, backend=backend, **(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("4K-64K", [4096, 16384, 65536]),
        ("4K-63K", [4096, 16384]),
        ("1M", [1 << 20]),
        ("100, 4K,1MiB", None),
        ("100,4K,1MiB", [100, 4096, 1 << 20]),
    ],
)
def test_sizes_are_a_range_or_a_list(text: str, sizes: list[int] | None) -> None:
    if sizes is None:
        with pytest.raises(SystemExit):
            _parser().parse_args(["--sizes", text])
    else:
        assert _parser().parse_args(["--sizes", text]).sizes == sizes


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--sizes", "lots"], "'lots' is no size; accepted: such as 512M"),
        (["--sizes", "64K-4K"], "accepted: such as 4K-64M or 4K,1M"),
        (["--sizes", "5G"], "up to 4G"),
        (["--ranks", "0"], "'0' is not accepted; accepted: 1 to 64"),
        (["--output", "bench.txt"], "accepted: FILE.png, .svg or .pdf"),
        (["--output", "absent/bench.png"], "in a folder that is there"),
    ],
)
def test_bad_words_are_one_line(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["bench", *words])
    errors = capsys.readouterr().err
    assert (caught.value.code, errors.count("\n")) == (2, 1)
    assert complaint in errors


def test_ranks_of_a_launcher_are_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in launched(0, 1).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        main(["bench", "--ranks", "3"])
    assert "the launcher says how many" in capsys.readouterr().err


def test_without_torch_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SystemExit):
        main(["bench"])
    assert "pip install torch" in capsys.readouterr().err


def test_bandwidths_are_as_nccl_tests_count_them() -> None:
    assert {name: factor(4) for name, factor in BUS_FACTORS.items()} == {
        "all_reduce": 1.5,
        "all_gather": 0.75,
        "reduce_scatter": 0.75,
        "broadcast": 1,
        "all_to_all": 0.75,
    }
    one = sample()
    assert (one.p50_s, one.p99_s) == (1e-3, 2e-3)
    assert one.algorithm_bandwidth_bps == 8 * (1 << 20) / 1e-3
    assert one.bus_bandwidth_bps == 1.5 * one.algorithm_bandwidth_bps
    assert sample(times_s=[1e-3, 5e-3]).p99_s == 5e-3


def test_table_fits_80_columns() -> None:
    lines = heading("reduce_scatter", 4, 2, ["dlcp", "gloo"])
    lines += [row(sample(), sample("gloo", times_s=[2.5e-3] * 5)), row(sample("gloo", algorithm=""), None)]
    assert lines == [
        "reduce_scatter of float32, 4 ranks on 2 hosts, over dlcp and gloo in turns",
        "ratio: how much longer the median call takes over the other than over dlcp",
        "",
        "  size  over       p50       p99    GB/s     bus  wrong  ratio  algorithm",
        "    1M  dlcp  1.000 ms  2.000 ms   1.049   1.573      0   2.50  halving_doubling",
        "    1M  gloo  1.000 ms  2.000 ms   1.049   1.573      0",
    ]
    assert max(map(len, lines)) <= 80


def test_two_ranks_beside_gloo(tmp_path: Path) -> None:
    words = ["--sizes", "4K,64K", "--beside", "gloo", "--json"]
    picture = tmp_path / "bench.png"
    if importlib.util.find_spec("matplotlib") is not None:
        words += ["--output", str(picture)]
    done = subprocess.run([*BENCH, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["hosts"] == 1
    assert [(one["nbytes"], one["backend"]) for one in told["samples"]] == [
        *((4096, "dlcp"), (4096, "gloo")),
        *((65536, "dlcp"), (65536, "gloo")),
    ]
    for one in told["samples"]:
        assert (one["ranks"], one["wrong"]) == (2, 0)
        assert one["calls"] >= 5
        assert 0 < one["p50_s"] <= one["p99_s"]
        assert bool(one["algorithm"]) == (one["backend"] == "dlcp")
    assert picture.exists() == ("--output" in words)


def two_rows_are_right(table: str) -> None:
    rows = [line.split() for line in table.splitlines()[3:]]
    assert [(cells[0], cells[1], cells[8]) for cells in rows] == [("12", "dlcp", "0"), ("4092", "dlcp", "0")]


def test_three_ranks_of_its_own() -> None:
    words = ["--collective", "all_gather", "--ranks", "3", "--sizes", "10,4K"]
    done = subprocess.run([*BENCH, *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    two_rows_are_right(done.stdout)


def benched(words: list[str]) -> tuple[int, str, str]:
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        status = main(["bench", *words])
    return status, output.getvalue(), errors.getvalue()


@pytest.mark.parametrize(
    "collective", [name for name in BUS_FACTORS if name not in ("all_reduce", "all_gather")]
)
def test_other_collectives_of_three_ranks(collective: str) -> None:
    """As under a launcher: these ranks are forked, which costs less than ranks of its own."""
    words = ["--collective", collective, "--sizes", "10,4K"]
    (status, table, errors), *others = ranks.run(benched, 3, backend=None, words=words)
    assert (status, errors) == (0, "")
    assert others == [(0, "", "")] * 2
    two_rows_are_right(table)


def test_a_wrong_value_is_said_and_status_1(port: int) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRONG],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=launched(rank, port),
        )
        for rank in range(2)
    ]
    (output, errors), _ = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [1, 0]
    assert "WRONG: all_reduce of 4K over dlcp: 1 values" in errors
    assert output.splitlines()[-1].split()[8] == "1"


def test_ctrl_c_ends_all_ranks_and_keeps_what_is_done() -> None:
    process = subprocess.Popen(
        [*BENCH, "--sizes", ",".join(["4K"] * 60)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    children = []
    while not children or "dlcp  " not in process.stdout.readline():
        assert process.poll() is None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=100)
    assert (process.returncode, errors) == (130, "")
    assert len(children) == 2
    assert not any(Path("/proc", child).exists() for child in children)
