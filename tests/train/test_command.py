"""`dlcp train` as a program: what it refuses, a tiny run from end to end, and what it leaves behind."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from dlcp.train.errors import TrainError
from dlcp.train.plan import TrainingPlan
from dlcp.train.record import Record

pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
pytest.importorskip("matplotlib", reason="the picture is drawn by matplotlib")


def run(*words: str, timeout_s: float = 250) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dlcp", "train", *words], capture_output=True, text=True, timeout=timeout_s
    )


RECORD = str(Path(__file__).with_name("record.json"))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--world-size", "0"], "'0' is not accepted; accepted: 1 to 16"),
        (["--world-size", "17"], "'17' is not accepted; accepted: 1 to 16"),
        (["--world-size", "four"], "'four' is not accepted; accepted: 1 to 16"),
        (["--loss", "51"], "'51' is not accepted; accepted: 0 to 0.5, or 0% to 50%"),
        (["--loss", "51%"], "'51%' is not accepted; accepted: 0 to 0.5, or 0% to 50%"),
        (["--loss", "5"], "'5' is no fraction; if it is meant in percent, give 5% or 0.05"),
        (["--loss", "1"], "'1' is not accepted; accepted: 0 to 0.5, or 0% to 50%"),
        (["--loss", "nan"], "'nan' is not accepted; accepted: 0 to 0.5, or 0% to 50%"),
        (["--loss", "-1"], "accepted: 0 to 0.5, or 0% to 50%"),
        (["--epochs", "0"], "'0' is not accepted"),
        (["--seeds", "x"], "'x' is not accepted"),
        (["--timeout", "0"], "'0' is not accepted"),
        (["--model", "cats"], "invalid choice: 'cats'"),
        (["--mode", "race"], "invalid choice: 'race'"),
        (["--backend", "nccl"], "invalid choice: 'nccl'"),
        (["--rate", "1G"], "--rate shapes the links of the lab; give --lab too"),
        (["--delay", "5"], "--delay is of the links of the lab; give --lab too"),
        (["--lab", "--delay", "2000"], "'2000' is not accepted; accepted: 0 to 1000 milliseconds"),
        (["--lab", "--rate", "fast"], "'fast' is not a rate; accepted: such as 500k, 100M, 25G"),
        (["--lab", "--world-size", "1"], "give --lab at least 2 ranks"),
        (["--backend", "gloo"], "compared with itself"),
        (["--backend", "gloo", "--mode", "single"], "Gloo loses packets only in the --lab"),
        (["--loss-budget", "51"], "'51' is not accepted; accepted: 0 to 0.5, or 0% to 50%"),
        (
            ["--backend", "gloo", "--mode", "single", "--loss", "0", "--loss-budget", "5%"],
            "--loss-budget is for dlcp; Gloo gives nothing up",
        ),
        (
            ["--exchange", "star"],
            "'star' is not accepted; accepted, each once: ring, hierarchical, hub, switch",
        ),
        (["--exchange", "ring,ring"], "'ring' is not accepted; accepted, each once"),
        (["--exchange", "ring", "--backend", "gloo"], "--exchange is dlcp's; leave out --backend gloo"),
        (["--exchange", "hub", "--fabric", "star"], "--exchange makes its own network; leave out --fabric"),
        (["--exchange", "hub", "--recipe", "low_bit"], "--exchange compares exact sums; leave out --recipe"),
        (["--exchange", "switch", "--delay", "5"], "--exchange switch has links without delay"),
        (["--exchange", "hierarchical", "--ranks-per-host", "1"], "needs several ranks per host"),
        (
            ["--exchange", "hierarchical", "--world-size", "3"],
            "--world-size 3 makes no 2 hosts of 2 ranks each",
        ),
        (["--ranks-per-host", "2"], "--ranks-per-host places ranks for --exchange; give --exchange too"),
        (["--recipe", "top_k"], "invalid choice: 'top_k'"),
        (
            ["--backend", "gloo", "--mode", "single", "--loss", "0", "--recipe", "low_bit"],
            "--recipe low_bit is for dlcp; Gloo's sums are exact",
        ),
        (["--recipe", "exact", "--loss-budget", "5%"], "exact sums give nothing up"),
        (["--recipe", "dlcp", "--loss-budget", "0"], "give it more than 0, or --recipe exact"),
        (["--output", __file__], "is a file; give a folder"),
        (["--output", "/proc/x/y"], "--output /proc/x/y: No such file or directory; give a folder"),
        (["--draw", RECORD, "--output", "/proc/x/y"], "--output /proc/x/y: No such file or directory"),
        (
            ["--draw", "no/record.json"],
            "no/record.json: No such file or directory; give the record.json of a training",
        ),
        (["--rate", "200", "--lab"], "'200' is not accepted; accepted: 1M to 100G bit/s"),
        (["--epoch"], "--epoch"),
        (["fast"], "unrecognized arguments: fast"),
    ],
)
def test_bad_words_are_one_line(words: list[str], complaint: str, capfd: pytest.CaptureFixture[str]) -> None:
    from dlcp.train import main

    try:
        status = main(words)
    except SystemExit as left:
        status = left.code  # type: ignore[assignment]
    output, errors = capfd.readouterr()
    assert status == 2
    assert complaint in errors
    assert errors.count("\n") == 1
    assert output == ""


def test_the_driver_does_not_import_torch() -> None:
    code = "import sys; from dlcp.train import command; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_help_names_what_can_be_chosen() -> None:
    shown = run("--help").stdout
    for word in (
        "--world-size",
        "--model",
        "--loss",
        "--mode",
        "--lab",
        "--rate",
        "--backend",
        "--seeds",
        "--recipe",
        "--loss-budget",
        "--exchange",
        "--ranks-per-host",
    ):
        assert word in shown


@pytest.mark.parametrize(
    ("words", "recipe", "loss_budget"),
    [
        ([], "low_bit", 0.0),
        (["--recipe", "low_bit", "--loss-budget", "10%"], "low_bit", 0.1),
        (["--recipe", "dlcp"], "dlcp", 0.05),
        (["--loss-budget", "0.1"], "dlcp", 0.1),
        (["--loss-budget", "0"], "exact", 0.0),
        (["--mode", "single"], "exact", 0.0),
        (["--mode", "single", "--recipe", "low_bit"], "low_bit", 0.0),
    ],
)
def test_last_run_is_of_the_recipe(words: list[str], recipe: str, loss_budget: float) -> None:
    from dlcp.train.command import _parser, _plan

    parser = _parser()
    last = _plan(parser, parser.parse_args(words)).runs[-1].configuration
    assert (last.backend, last.loss_ratio) == ("dlcp", 0.01)
    assert (last.recipe, last.loss_budget) == (recipe, loss_budget)


def plan_of(*words: str) -> TrainingPlan:
    from dlcp.train.command import _parser, _plan

    parser = _parser()
    return _plan(parser, parser.parse_args(words))


def test_without_root_exchanges_are_refused_in_plain_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(SystemExit):
        plan_of("--exchange", "ring")
    errors = capsys.readouterr().err
    assert "--exchange: the network lab needs root" in errors
    assert errors.count("\n") == 1


def test_exchanges_take_the_place_of_runs_over_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcp.train.command._missing", lambda _: None)
    plan = plan_of("--exchange", "ring,hierarchical,hub", "--model", "digits", "--world-size", "5")
    assert [run.configuration.name for run in plan.runs] == [
        "Gloo, no loss",
        "dlcp ring, no loss",
        "dlcp hierarchical, no loss",
        "dlcp hub, no loss",
    ]
    assert plan.exchanges == ("ring", "hierarchical", "hub")
    assert (plan.hosts, plan.ranks_per_host) == (2, 2)
    alone = plan_of("--exchange", "switch", "--mode", "single", "--model", "digits", "--loss", "2%")
    assert [run.configuration.name for run in alone.runs] == ["dlcp switch, 2 % loss"]
    assert (alone.hosts, alone.ranks_per_host) == (4, 1)


def test_runs_that_were_over_are_kept_when_the_others_are_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dlcp.train.command import _keep

    record = Record.load(Path(RECORD))
    record.runs[2].digests = []  # as while it runs
    _keep(record, 4, tmp_path)
    shown = capsys.readouterr().out
    assert f"dlcp train --draw {tmp_path / 'partial.json'}" in shown
    assert "2 of 4 runs" in shown
    assert Record.load(tmp_path / "partial.json").runs == Record.load(Path(RECORD)).runs[:2]


def test_json_is_the_record_alone(tmp_path: Path) -> None:
    for more in ([], ["--no-picture"]):
        done = run("--draw", RECORD, "--json", "--output", str(tmp_path), *more)
        assert done.returncode == 0
        assert done.stdout == Record.load(Path(RECORD)).text() + "\n"


def test_records_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    for content, complaint in (
        ({"version": 99}, "record of version 99; this program reads version 1"),
        ({"version": 1, "runs": [{}]}, "no record of a training: KeyError"),
        ({"version": 1, "world_size": 4, "runs": []}, "holds no run"),
    ):
        path.write_text(json.dumps(content))
        done = run("--draw", str(path))
        assert done.returncode == 2
        assert complaint in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.needs_root
def test_in_the_lab_every_backend_meets_the_loss(tmp_path: Path) -> None:
    from dlcp.lab import missing

    if (reason := missing()) is not None:
        pytest.skip(reason)
    words = [
        "--lab",
        "--rate",
        "500M",
        "--loss",
        "2%",
        "--model",
        "digits",
        "--epochs",
        "1",
        "--world-size",
        "2",
    ]
    done = run(*words, "--output", str(tmp_path), "--no-picture")
    assert done.returncode == 0, done.stdout + done.stderr
    record = Record.load(tmp_path / "record.json")
    assert [one.run.configuration.name for one in record.runs] == [
        "Gloo, no loss",
        "Gloo, 2 % loss",
        "dlcp, 2 % loss",
        "dlcp low bits, 2 % loss",
    ]
    clean, *lossy = record.runs
    assert clean.links is None
    for one in lossy:
        assert one.links is not None
        assert 0.01 < one.links.loss_ratio < 0.03
    assert lossy[1].network[0].injected_packets == 0
    assert lossy[1].network[0].repair_packets > 0


@pytest.mark.needs_root
def test_every_exchange_trains_and_a_host_sends_what_its_formula_says(tmp_path: Path) -> None:
    from dlcp.lab import missing, switched_lab

    if (reason := missing() or switched_lab.missing()) is not None:
        pytest.skip(reason)
    words = ["--exchange", "ring,hierarchical,hub,switch", "--model", "digits", "--epochs", "1"]
    done = run(*words, "--mode", "single", "--output", str(tmp_path), "--no-picture")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all 4 ranks ended with the same weights, bit for bit" in done.stdout
    found = {one.run.configuration.exchange: one for one in Record.load(tmp_path / "record.json").runs}
    assert all(one.replicas_agree for one in found.values())
    # Two hosts with two ranks each. Tensors that a host sends; half of that for each of its ranks.
    for exchange, tensors in {"ring": 1.5, "hierarchical": 1.0, "hub": 2.0, "switch": 2.0}.items():
        one = found[exchange]
        assert one.step_bytes is not None
        assert 1.0 < 2 * one.step_bytes / (4 * one.parameters * tensors) < 1.3, exchange
    assert found["switch"].sums == {"switch": found["switch"].steps}
    assert not list(tmp_path.rglob("*.key*"))


def test_study_from_end_to_end_and_loss_changes_no_bit_of_the_weights(tmp_path: Path) -> None:
    pytest.importorskip("dlcp._native", reason="the extension module is not built")
    words = ["--mode", "study", "--seeds", "1", "--model", "digits", "--epochs", "1", "--loss", "5%"]
    done = run(*words, "--world-size", "2", "--output", str(tmp_path / "out"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout  # no terminal, no colours
    assert "digits over Gloo, no loss, seed 0" in done.stdout
    assert "epoch  1/1" in done.stdout
    assert "all 2 ranks ended with the same weights, bit for bit" in done.stdout
    assert "Over dlcp loss changed no bit of the final weights (1 of 1 runs)." in done.stdout
    assert "about " in done.stdout
    gloo, clean, lossy, few = Record.load(tmp_path / "out" / "record.json").runs
    assert gloo.steps == len(gloo.step_s) == len(gloo.communication_s) > 5
    assert [epoch.epoch for epoch in gloo.epochs] == [0, 1]
    assert gloo.last.loss < gloo.epochs[0].loss
    assert gloo.replicas_agree
    assert len(gloo.cpu_s) == 2
    assert clean.digests == lossy.digests
    assert abs(lossy.last.accuracy - gloo.last.accuracy) < 0.05
    assert few.replicas_agree
    assert few.digests != clean.digests
    assert few.last.loss < few.epochs[0].loss
    # Two ranks send half of their gradients and half of the sum: in full, or, in these first steps, 8 bits and a scale
    # of every 64.
    exact_bytes = gloo.parameters * 4
    for one, low, high in ((gloo, 1.0, 1.02), (lossy, 1.02, 1.3), (few, 0.25, 0.35)):
        assert one.step_bytes is not None
        assert low * exact_bytes < one.step_bytes < high * exact_bytes, one.run.name
    before, after = clean.totals(), lossy.totals()
    assert before is not None
    assert after is not None
    assert before.injected_packets == 0
    assert after.injected_packets > 10
    assert after.repair_packets > 10
    assert after.gradient_bytes >= before.gradient_bytes > clean.steps * clean.parameters * 4
    log = (tmp_path / "out" / "logs" / "rank-1.log").read_text()
    assert "INJECTED LOSS: 5 % of the packets" in log
    assert (tmp_path / "out" / "training.png").read_bytes().startswith(b"\x89PNG")
    assert "Handwritten digits" in (tmp_path / "out" / "training.html").read_text()
    assert not list((tmp_path / "out").rglob("*.npy"))


def test_bounded_gradients_train_and_say_what_they_gave_up(tmp_path: Path) -> None:
    pytest.importorskip("dlcp._native", reason="the extension module is not built")
    words = ["--mode", "single", "--model", "digits", "--epochs", "2", "--loss", "5%", "--loss-budget", "10%"]
    done = run(*words, "--world-size", "2", "--output", str(tmp_path), "--no-picture")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all 2 ranks ended with the same weights, bit for bit" in done.stdout
    assert "of the gradients were abandoned (budget 10 %)" in done.stdout
    (one,) = Record.load(tmp_path / "record.json").runs
    assert one.run.configuration.loss_budget == 0.1
    assert one.last.loss < one.epochs[0].loss
    for rank in one.gradients:
        # Half of each gradient goes to the other one of two ranks.
        assert rank.sent_bytes == pytest.approx(one.steps * one.parameters * 4 / 2, rel=0.05)
        assert 0 < rank.abandoned_bytes <= 0.1 * rank.sent_bytes
        assert rank.residual_bytes <= rank.abandoned_bytes


def test_without_scikit_learn_digits_are_left_out_unless_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "sklearn" else known(name))
    assert {one.model for one in plan_of().runs} == {"language"}
    assert "digits are left out" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        plan_of("--model", "digits")
    assert "needs scikit-learn" in capsys.readouterr().err


def test_a_file_of_something_else_is_no_record(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    for content, says in (
        (b"{}", "KeyError: 'version'$"),
        (bytes(range(256)), "UnicodeDecodeError: .{,80}$"),
    ):
        other.write_bytes(content)
        with pytest.raises(TrainError, match=f"is no record of a training: {says}"):
            Record.load(other)
