"""`dlcp pays`: its estimates beside what was measured where links are the limit, and its complaints."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dlcp.transport.pays import Training, exchange_s, main

DOCS = Path(__file__).resolve().parents[2] / "docs"
GRADIENTS = (DOCS / "gradients.md").read_text()
WORDS = ["--parameters", "25M", "--step", "100ms", "--rate", "1G", "--ranks", "4"]
# By row of the first table of docs/gradients.md: what ran there. 64 MB of floats, and the demo's transformer, 192 wide.
FLOATS, TRANSFORMER = 64 * 2**20 // 4, 1_396_416
ROWS = {
    "of 64 MB, 2 hosts of 2 ranks, 1 Gbit/s between": Training(FLOATS, 0, 1e9, 4, 2),
    "of 64 MB, 4 hosts, 250 Mbit/s each": Training(FLOATS, 0, 250e6, 4),
    "a step of a transformer, 4 hosts, 1 Gbit/s each, 42 ms of it computation": Training(
        TRANSFORMER, 0.042, 1e9, 4
    ),
    "a step of larger batches, 123 ms of it computation": Training(TRANSFORMER, 0.123, 1e9, 4),
    "a step of still larger ones, 405 ms of it computation": Training(TRANSFORMER, 0.405, 1e9, 4),
}


@pytest.mark.parametrize("row", ROWS)
def test_estimates_are_near_what_was_measured(row: str) -> None:
    gloo, _, _, exact, low_bit = re.findall(
        r"\|([^|]*)", GRADIENTS.partition(f"| {row} ")[2].partition("\n")[0]
    )[:5]
    training = ROWS[row]
    estimates = exchange_s(training)
    for name, cell in {"Gloo": gloo, "exact": exact, "4 bits": low_bit}.items():
        measured_s = float(cell.split()[0]) / 1000
        assert 0.86 < (training.step_s + estimates[name]) / measured_s < 1.07, name


@pytest.mark.parametrize(("hosts", "row"), [(4, "4 hosts, 200 Mbit/s each"), (2, "2 hosts, 200 Mbit/s each")])
def test_what_8_bits_save_is_near_what_was_measured(hosts: int, row: str) -> None:
    exact, coded = re.findall(r"\| (\d+) ms ", GRADIENTS.partition(f"| {row} ")[2].partition("\n")[0])[:2]
    estimates = exchange_s(Training(1_400_000, 0, 200e6, hosts))
    saved_s = estimates["exact"] - estimates["8 bits"]
    assert 0.9 < saved_s / ((int(exact) - int(coded)) / 1000) < 1.1


def test_report_has_every_recipe_beside_gloo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(WORDS) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        "25 000 000 parameters; 4 ranks on 4 hosts, 1.000 Gb/s each;\n100.0 ms without an exchange\n"
    )
    rows = re.findall(r"^(Gloo|exact|8 bits|4 bits) +([\d.]+)% .* ([\d.]+)$", text, re.MULTILINE)
    assert [name for name, _, _ in rows] == ["Gloo", "exact", "8 bits", "4 bits"]
    assert [part for _, part, _ in rows] == ["100.0", "100.0", "25.8", "13.3"]
    assert rows[0][2] == "1.00"
    assert textwrap.indent(text, "    ") in (DOCS / "pays.md").read_text(), (
        "docs/pays.md shows another report"
    )
    assert "loss " not in text
    assert main([*WORDS, "--loss", "1%"]) == 0
    assert "loss " in capsys.readouterr().out


def test_json_has_the_figures_of_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["parameters"], found["step_s"], found["rate_bps"], found["ranks"]) == (
        25_000_000,
        0.1,
        1e9,
        4,
    )
    estimates = exchange_s(Training(25_000_000, 0.1, 1e9, 4))
    assert {name: one["exchange_s"] for name, one in found["estimates"].items()} == estimates
    assert found["estimates"]["Gloo"]["gloo_ratio"] == 1
    assert 0.13 < found["estimates"]["4 bits"]["bytes_ratio"] < 0.14


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--parameters", "many"], "argument --parameters: 'many' is not accepted; accepted: 1 to 1000B"),
        (["--rate", "25"], "--rate: 25 bits a second; accepted: at least 1M, such as 25G"),
        (["--step", "100"], "argument --step: '100' is not accepted; accepted: such as 100ms"),
        (["--ranks", "65"], "argument --ranks: '65' is not accepted; accepted: 2 to 64"),
        (["--per-host", "3"], "--per-host 3: accepted: a divisor of --ranks"),
        (["--per-host", "4"], "--per-host 4: accepted: a divisor of --ranks"),
        (["--loss", "60%"], "argument --loss: '60%' is not accepted; accepted: 0 to 0.5, or 0% to 50%"),
    ],
)
def test_bad_words_are_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*WORDS, *words])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_torch_is_not_needed() -> None:
    code = (
        f"import sys; from dlcp.cli import main; main({['pays', *WORDS]}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
