"""`dlcp sim`: what its words do, what they refuse in one line, and what Ctrl-C leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("dlcp_sim._core", reason="the extension module is not built")

import dlcp_sim as ds
from dlcp.cli import main

TEXT = """
[fabric]
kind = "star"
hosts = 8

[transport]
kind = "ndp"
window_packets = 12

[workload]
kind = "permutation"
bytes = 200_000
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scenario.toml"
    path.write_text(TEXT)
    return path


def sim(*words: object) -> int:
    return main(["sim", *map(str, words)])


def program(*words: object) -> list[str]:
    return [sys.executable, "-m", "dlcp", "sim", *map(str, words)]


# ---- run ----


def test_run_prints_the_summary(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sim("run", file) == 0
    output = capsys.readouterr()
    assert output.out.startswith(
        "permutation on 8 hosts (three_tier) over ndp, seed 1\n8 of 8 flows finished"
    )
    assert output.err == "", "no progress where nobody looks"


def test_run_takes_settings_from_its_words(file: Path, tmp_path: Path) -> None:
    words = ("--set", "transport.paths=16", "--set", "fabric.rate_bps=25e9", "--seed", 5, "--threads", 2)
    assert sim("run", file, *words, "--output", tmp_path / "out") == 0
    result = ds.Result.load(tmp_path / "out")
    assert result.seed == 5
    assert result.scenario["threads"] == 2
    assert result.scenario["transport"]["paths"] == 16
    assert result.scenario["transport"]["window_packets"] == 12
    assert (result.ports.rate_bps == 25e9).all()


def test_a_saved_scenario_gives_the_same_result(file: Path, tmp_path: Path) -> None:
    assert sim("run", file, "--output", tmp_path / "a") == 0
    assert sim("run", tmp_path / "a" / "result.toml", "--output", tmp_path / "b") == 0
    first, second = (ds.Result.load(tmp_path / name) for name in "ab")
    assert (first.flows.completion_s == second.flows.completion_s).all()
    assert first.scenario == second.scenario


def test_a_module_of_ones_own_may_be_imported(file: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from dlcp_sim.workloads import Permutation\n\nclass Own(Permutation):\n    kind = 'own'\n"
    )
    command = program("run", file, "--set", "workload.kind=own")
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "workload.kind is 'own'; " in refused.stderr
    done = subprocess.run([*command, "--import", "own"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.startswith("own on 8 hosts"), done.stderr


# ---- compare ----


def test_compare_runs_the_same_load(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sim("compare", file, "--transport", "ndp,line_rate", "--output", tmp_path / "out") == 0
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line.startswith(("ndp ", "line_rate "))]
    assert len(table) == 2
    assert " 1.000 " in table[0], "the first is what others are compared with"
    ndp, line_rate = (ds.Result.load(tmp_path / "out" / f"{kind}.npz") for kind in ("ndp", "line_rate"))
    assert (ndp.flows.source == line_rate.flows.source).all()
    assert ndp.scenario["transport"]["window_packets"] == 12, "the file's own transport keeps its settings"
    ratio = line_rate.flows.completion_s.mean() / ndp.flows.completion_s.mean()
    assert f" {ratio:.3f} " in table[1]


def test_json_has_the_figures_of_each_row_and_nothing_else(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compared, store = str(tmp_path / "compared"), str(tmp_path / "s.sqlite")
    for words, count, key in (
        (("run", str(file)), 1, "name"),
        (("compare", str(file), "--transport", "ndp,dctcp", "--output", compared), 2, "name"),
        (("report", compared), 2, "name"),
        (("sweep", str(file), "--vary", "seed=1,2", "--store", store, "--jobs", "1"), 2, "seed"),
    ):
        assert sim(*words, "--json") == 0
        rows = json.loads(capsys.readouterr().out)
        assert len({row[key] for row in rows}) == count
        assert all(0 < row["completion_mean_s"] < 1 for row in rows)


def test_compare_runs_nothing_if_one_is_unknown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sim("compare", file, "--transport", "ndp,dtcp") == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "transport 'dtcp' is unknown; did you mean dctcp?" in output.err


def test_report_of_a_comparison_compares_with_the_same_transport(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first of --transport, though another name comes first in the folder."""
    assert sim("compare", file, "--transport", "ndp,line_rate", "--output", tmp_path / "out") == 0
    compared = capsys.readouterr().out
    assert sim("report", tmp_path / "out") == 0
    reported = capsys.readouterr().out
    assert [line for line in compared.splitlines() if not line.startswith("saved")] == reported.splitlines()


# ---- sweep and report ----


def test_sweep_goes_on_and_its_store_is_reported(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "sweep.sqlite"
    words = ("sweep", file, "--store", store, "--jobs", 2, "--vary", "transport.kind=ndp,line_rate")
    assert sim(*words, "--vary", "seed=1..2") == 0
    output = capsys.readouterr().out
    assert output.startswith(f"4 points: 4 run, 0 failed; in {store}\n")
    assert re.search(r"^ndp +2 +100 %", output, re.MULTILINE)
    assert sim(*words, "--vary", "seed=1..3") == 0
    assert "6 points: 2 run, 4 were done before, 0 failed" in capsys.readouterr().out
    assert sim("report", store, "--csv", tmp_path / "points.csv") == 0
    assert "completion time" in capsys.readouterr().out
    assert (tmp_path / "points.csv").read_text().startswith("transport.kind,seed,flows,finished,")


def test_sweep_tells_what_failed(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--vary", "workload.bytes=1000,-1", "--store", tmp_path / "sweep.sqlite")
    assert sim("sweep", file, *words) == 1
    output = capsys.readouterr().out
    assert output.startswith("2 points: 1 run, 1 failed")
    assert "failed: workload.bytes=-1: workload: bytes is -1; accepted: 0 bytes or more" in output


def test_a_damaged_store_is_told_in_a_line(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "sweep.sqlite"
    assert sim("sweep", file, "--vary", "seed=1..2", "--store", store) == 0
    content = store.read_bytes()
    store.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    assert sim("report", store) == 2
    assert capsys.readouterr().err.startswith(f"dlcp sim: the store {store}: ")


def test_report_of_one_result_is_its_summary(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sim("run", file, "--output", tmp_path / "out") == 0
    summary = capsys.readouterr().out.split("saved: ")[0]
    assert sim("report", tmp_path / "out") == 0
    assert capsys.readouterr().out == summary


def test_report_writes_a_page_that_needs_nothing_else(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    assert sim("run", file, "--output", tmp_path / "out") == 0
    assert sim("report", tmp_path / "out", "--output", tmp_path / "report.html") == 0
    page = (tmp_path / "report.html").read_text()
    assert "<svg" in page or "<img" in page
    assert not re.findall(r"(?:src|href)=\"https?:", page)
    targets = ("--output", tmp_path / "both.html", "--chrome-trace", tmp_path / "run.json")
    assert sim("report", tmp_path / "out", *targets) == 0
    assert (tmp_path / "both.html").is_file()
    assert (tmp_path / "run.json").is_file()


def test_report_exports_what_other_programs_read(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--set", "trace.limit=20", "--output", tmp_path / "out")
    assert sim("run", file, *words) == 0
    targets = ("--chrome-trace", tmp_path / "run.json", "--pcap", tmp_path / "run.pcap")
    assert sim("report", tmp_path / "out", *targets) == 0
    assert json.loads((tmp_path / "run.json").read_text())
    assert (tmp_path / "run.pcap").stat().st_size > 20 * 64
    assert sim("report", tmp_path / "out", tmp_path / "out", *targets) == 2
    assert "there are 2 results; --chrome-trace and --pcap are for one" in capsys.readouterr().err


# ---- Ctrl-C ----


def started(command: list[str], seen: Path | None = None) -> subprocess.Popen[bytes]:
    """A program that is at work: it has shown progress, or `seen` exists."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None
    if seen is None:
        process.stderr.read(40)
    while seen is not None and not seen.exists():
        assert process.poll() is None
        time.sleep(0.02)
    return process


def test_ctrl_c_prints_and_saves_what_there_is(file: Path, tmp_path: Path) -> None:
    words = ("--set", "workload.bytes=50_000_000_000", "--progress", "--output", tmp_path / "out")
    process = started(program("run", file, *words))
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "stopped before it was over" in output.decode()
    result = ds.Result.load(tmp_path / "out")
    assert result.partial
    assert result.ports.bytes_sent.sum() > 0


def test_ctrl_c_in_a_sweep_keeps_what_is_done_and_goes_on(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "sweep.sqlite"
    vary = ("--vary", "workload.bytes=1000,2000,50_000_000_000", "--store", store)
    process = started(program("sweep", file, *vary, "--jobs", 1, "--progress"))
    until = time.monotonic() + 100
    while True:
        assert time.monotonic() < until
        if store.exists() and store.stat().st_size:
            with ds.Store(store) as opened:
                if len(opened.done()) == 2:
                    break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 130
    text = output.decode()
    assert text.startswith("3 points: 2 run, 0 failed")
    assert text.endswith("stopped; the same command goes on\n")
    assert sim("sweep", file, "--vary", "workload.bytes=1000,2000,3000", "--store", store) == 0
    assert "3 points: 1 run, 2 were done before" in capsys.readouterr().out


# ---- Ray ----


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_sweep_on_a_local_ray_cluster(file: Path, tmp_path: Path) -> None:
    """Six points by two tasks at a time, one of them bad, one whose process is killed; then it goes on without Ray."""
    pytest.importorskip("ray", reason="ray is not installed: pip install '.[ray]'")
    store = tmp_path / "sweep.sqlite"
    vary = "workload.bytes=50_000_000_000,1000,-1,2000"
    command = program("sweep", file, "--vary", vary, "--store", store, "--ray", "local", "--jobs", 2)
    for _ in range(5):
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        if has_rows(store, 3, process):
            break
        assert process.stdout is not None
        with process.stdout as stream:
            output = stream.read()
        # Ray gives its own processes thirty seconds to start, whatever else the machine does.
        assert process.wait() == 2
        assert "timed out during startup" in output
    try:
        # Only the long one is left; its process is of the program's session.
        victims = [
            int(folder.name) for folder in Path("/proc").glob("[0-9]*") if is_task(folder, process.pid)
        ]
        assert victims
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    assert process.returncode == 1, output
    assert "4 points: 2 run, 2 failed" in output
    assert "workload.bytes=-1: workload: bytes is -1" in output
    assert "workload.bytes=50000000000: its Ray task was lost: " in output
    with ds.Store(store) as opened:
        assert sorted(result.flows.bytes[0] for result in opened.results()) == [1000, 2000]


def has_rows(store: Path, count: int, process: subprocess.Popen[str]) -> bool:
    """Waits until a store has so many; False: the process ended before."""
    until = time.monotonic() + 100
    while process.poll() is None:
        if time.monotonic() > until:
            process.kill()
            pytest.fail(f"{store} does not get {count} rows")
        if store.exists() and store.stat().st_size:
            with ds.Store(store) as opened:
                if len(opened.rows()) == count:
                    return True
        time.sleep(0.1)
    return False


def is_task(folder: Path, program_pid: int) -> bool:
    """Whether a process is at work on a task of ours, for the cluster that `program_pid` started."""
    try:
        if b"ray::_simulate" not in (folder / "cmdline").read_bytes():
            return False
        pid = int(folder.name)
        while pid > 1:
            if pid == program_pid:
                return True
            pid = int((Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        pass
    return False


def test_a_ray_address_where_nobody_is_is_told_at_once(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install '.[ray]'")
    words = ("sweep", file, "--vary", "seed=1", "--store", tmp_path / "s.sqlite")
    assert sim(*words, "--ray", "127.0.0.1:1") == 2
    assert "no Ray cluster at '127.0.0.1:1': " in capsys.readouterr().err
    assert sim(*words, "--ray", "here") == 2
    assert "ray is 'here'; accepted: local, auto, host:port, ray://host:port" in capsys.readouterr().err


# ---- what is refused ----


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("run", "none.toml"), "dlcp sim: none.toml: No such file or directory"),
        (
            ("run", "{file}", "--set", "fabric.host=3"),
            "dlcp sim: fabric (star) has no setting 'host'; did you mean",
        ),
        (
            ("run", "{file}", "--set", "fabric"),
            "argument --set: 'fabric' is not accepted; accepted: SETTING=VALUE",
        ),
        (("run", "{file}", "--set", "workload.hosts=99"), "dlcp sim: workload: hosts is 99; accepted"),
        (("run", "{file}", "--threads", "0"), "argument --threads: '0' is not accepted; accepted: 1 to 1024"),
        (("run", "{file}", "--seed", "-1"), "argument --seed: '-1' is not accepted"),
        (("run", "{file}", "--output", "{file}"), "dlcp sim: --output "),
        (("compare", "{file}", "--transport", "ndp", "--output", "{file}"), "dlcp sim: --output "),
        (("compare", "{file}", "--transport", ","), "argument --transport: ',' is not accepted"),
        (
            ("run", "{file}", "--import", "none_such"),
            "dlcp sim: --import none_such: No module named 'none_such'",
        ),
        (("compare", "{file}"), "the following arguments are required: --transport"),
        (("sweep", "{file}", "--store", "s"), "the following arguments are required: --vary"),
        (("sweep", "{file}", "--vary", "seed", "--store", "s"), "argument --vary: 'seed' is not accepted"),
        (
            ("sweep", "{file}", "--vary", "seed=1", "--store", "{file}"),
            "scenario.toml: file is not a database",
        ),
        (
            ("sweep", "{file}", "--vary", "seed=1", "--vary", "seed=2", "--store", "s"),
            "--vary seed is given twice",
        ),
        (("report", "none.npz"), "none.npz: No such file or directory; give what `dlcp sim run --output`"),
        (("report", "{file}"), "scenario.toml: not a result of the simulator"),
        (("report", "{folder}"), "no result; run a scenario first"),
        (("report", "{folder}", "--csv", "x"), "--csv and --parquet are for the store of a sweep"),
        (("report", "{file}", "--csv", "x"), "--csv and --parquet are for the store of a sweep"),
        (("walk",), "argument ACTION: invalid choice: 'walk'"),
        ((), "the following arguments are required: ACTION"),
    ],
)
def test_bad_words_are_one_line(
    words: tuple[str, ...],
    line: str,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(file.parent)
    try:
        status = sim(*(word.format(file=file, folder=file.parent) for word in words))
    except SystemExit as stop:
        status = stop.code  # type: ignore[assignment]
    assert status == 2
    error = capsys.readouterr().err
    assert line in error
    assert len(error.splitlines()) == 1


def test_studies_of_the_simulator_are_listed_with_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    from dlcp.study.network import studies

    with pytest.raises(SystemExit):
        main(["study", "--help"])
    text = capsys.readouterr().out
    for name in ("tolerance", "mse", *studies()):
        assert re.search(rf"^ +{name}( |$)", text, re.MULTILINE), name
