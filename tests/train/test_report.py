"""What is made of a record: table, findings, picture, page. `record.json` is a stored one of three ranks in the lab."""

from __future__ import annotations

import copy
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from dlcp.train import table
from dlcp.train.plan import Configuration, Run, TrainingPlan, plan_runs
from dlcp.train.record import Gradients, Network, Record
from dlcp.train.run_plan import new_record


@pytest.fixture
def record() -> Record:
    return Record.load(Path(__file__).with_name("record.json"))


def with_bounded(record: Record) -> Record:
    """The record, and in it a run of bounded gradients that ended elsewhere."""
    more = copy.deepcopy(record)
    bounded = copy.deepcopy(record.runs[2])
    bounded.run = Run(
        bounded.run.model, Configuration("dlcp", 0.03, 0.05, "dlcp"), bounded.run.seed, bounded.run.epochs
    )
    bounded.digests = ["another"] * record.world_size
    bounded.last.accuracy -= 0.005
    bounded.gradients = [Gradients(10_000_000, 200_000, 50_000, 30_000) for _ in range(record.world_size)]
    more.runs.append(bounded)
    return more


def with_low_bits(record: Record) -> Record:
    """The record with what ranks sent, and in it a run of low bits that sent an eighth of Gloo's in half the time."""
    more = copy.deepcopy(record)
    for one in more.runs:
        one.sent_bytes = [one.steps * 800_000] * record.world_size
    few = copy.deepcopy(more.runs[0])
    few.run = Run(few.run.model, Configuration("dlcp", 0.03, recipe="low_bit"), few.run.seed, few.run.epochs)
    few.digests = ["another"] * record.world_size
    few.last.accuracy += 0.0025
    few.step_s = [step / 2 for step in few.step_s]
    few.sent_bytes = [few.steps * count for count in (90_000, 100_000, 110_000)]
    more.runs.append(few)
    return more


def with_seeds(record: Record, accuracies: dict[Configuration, list[float]]) -> Record:
    """A study: the first run's copies with the given final accuracies, a seed each."""
    study = copy.deepcopy(record)
    study.runs = []
    for configuration, values in accuracies.items():
        for seed, accuracy in enumerate(values):
            one = copy.deepcopy(record.runs[0])
            one.run = Run(one.run.model, configuration, seed, one.run.epochs)
            one.digests = [f"{seed}"] * record.world_size
            one.last.accuracy = accuracy
            study.runs.append(one)
    return study


def test_a_record_comes_back_as_it_was(record: Record, tmp_path: Path) -> None:
    for one in (record, with_bounded(record), with_low_bits(record)):
        one.save(tmp_path / "again.json")
        assert Record.load(tmp_path / "again.json") == one


def test_what_was_abandoned_is_in_the_table_and_no_error(record: Record) -> None:
    record = with_bounded(record)
    lines = list(table.lines(record))
    (row,) = (line for line in lines if line.startswith("  dlcp bounded, 3 % loss"))
    assert row.endswith("2 % (600 kB)")
    (exact,) = (line for line in lines if line.startswith("  dlcp, 3 % loss"))
    assert exact.endswith(" s")
    found = table.findings(record)
    assert (
        "Handwritten digits: over dlcp bounded, 3 % loss, 2 % (600 kB) of the gradients were abandoned (budget 5 %); "
        "150 kB of it were still kept at the end, 90 kB written off." in found
    )
    differences = [line for line in found if "accuracy differs" in line]
    assert [re.sub(r".*over (.*), accuracy.*by (.*) points.*", r"\1: \2", line) for line in differences] == [
        "dlcp, 3 % loss: +0.00",
        "dlcp bounded, 3 % loss: -0.50",
    ]
    # Weights that a bounded run ends with are its own.
    assert not any(line.startswith("WRONG") for line in found)


def test_budgets_of_records_from_before_recipes_are_of_bounded_runs(record: Record) -> None:
    old = asdict(with_bounded(record).runs[-1].run)
    del old["configuration"]["recipe"]
    assert Run.from_dict(old).configuration.recipe == "dlcp"
    old["configuration"]["loss_budget"] = 0.0
    assert Run.from_dict(old).configuration.recipe == "exact"


def test_what_low_bits_save_is_in_the_table_and_no_error(record: Record) -> None:
    assert "bytes/step" not in "\n".join(table.lines(record))
    record = with_low_bits(record)
    lines = list(table.lines(record))
    (row,) = (line for line in lines if line.startswith("  dlcp low bits, 3 % loss"))
    assert " 100 kB " in row
    (exact,) = (line for line in lines if line.startswith("  dlcp, 3 % loss"))
    assert " 800 kB " in exact
    assert "abandoned" not in "\n".join(lines)
    found = table.findings(record)
    assert (
        "Handwritten digits: over dlcp low bits, 3 % loss, a rank sends 100 kB per step (0.12 of Gloo's 800 kB), and "
        "the median step takes 0.50 of the time of Gloo's without loss." in found
    )
    assert (
        "Handwritten digits: over dlcp low bits, 3 % loss, accuracy differs from Gloo's by +0.25 points."
        in found
    )
    # Weights that few bits end with are their own.
    assert not any(line.startswith("WRONG") for line in found)


def test_that_loopback_costs_no_bytes_is_said_where_few_bits_met_it(record: Record) -> None:
    few = with_low_bits(record)
    assert not any("loopback" in line for line in table.findings(few))
    plan = TrainingPlan(tuple(one.run for one in few.runs), 3, Path())
    few.network = new_record(plan).network
    says = (
        "On loopback bytes cost next to nothing, so fewer bits save little or no time here;"
        " --lab shows a network, as root."
    )
    assert table.findings(few)[-1] == says
    record.network = few.network
    assert says not in table.findings(record)


def test_a_rank_alone_sends_nothing_and_is_not_compared(record: Record) -> None:
    alone = with_low_bits(record)
    for one in alone.runs:
        one.sent_bytes = [0]
    assert any(" 0 B " in line for line in table.lines(alone))
    assert not any("per step" in line for line in table.findings(alone))


def test_recipes_are_planned_where_there_is_something_to_compare() -> None:
    def names(mode: str, recipe: str, loss_budget: float = 0.0) -> list[str]:
        runs = plan_runs(mode, ["digits"], "dlcp", 0.01, [0], None, recipe=recipe, loss_budget=loss_budget)
        return [run.configuration.name for run in runs]

    assert names("compare", "low_bit") == ["Gloo, no loss", "dlcp, 1 % loss", "dlcp low bits, 1 % loss"]
    assert names("study", "dlcp", 0.05) == [
        "Gloo, no loss",
        "dlcp, no loss",
        "dlcp, 1 % loss",
        "dlcp bounded, 1 % loss",
    ]
    assert names("single", "low_bit") == ["dlcp low bits, 1 % loss"]
    assert names("compare", "exact") == ["Gloo, no loss", "dlcp, 1 % loss"]
    assert names("single", "exact") == ["dlcp, 1 % loss"]


def test_estimate_grows_with_epochs_and_runs() -> None:
    def estimate_s(*names: str, epochs: int | None) -> float:
        return TrainingPlan(plan_runs("compare", names, "dlcp", 0.01, [0], epochs), 4, Path()).estimate_s

    both = estimate_s("digits", "language", epochs=None)
    assert 30 < both < 120
    assert estimate_s("digits", epochs=None) < estimate_s("language", epochs=None) < both
    assert estimate_s("language", epochs=16) > 1.5 * estimate_s("language", epochs=8)


def test_table_has_a_row_per_way_and_what_the_links_dropped(record: Record) -> None:
    lines = list(table.lines(record))
    assert "Handwritten digits: 151 306 parameters, 33 steps, 3 ranks" in lines
    text = "\n".join(lines)
    for name in ("Gloo, no loss", "Gloo, 3 % loss", "dlcp, 3 % loss"):
        assert re.search(rf"^  {name} +2\.0508 +65\.7 % .* ms .* s$", text, re.MULTILINE)
    assert re.search(r"^  digits over Gloo, 3 % loss +76 716 +2 321 \(3\.03 %\)$", text, re.MULTILINE)
    assert re.search(
        r"^  digits over dlcp, 3 % loss +68 313 +89\.6 MB +2 040 \(2\.98 %\)", text, re.MULTILINE
    )
    assert not any(line != line.rstrip() for line in lines)


def test_findings_of_a_comparison(record: Record) -> None:
    found = table.findings(record)
    assert found[0] == "In every run all 3 ranks ended with the same weights, bit for bit."
    assert "Over Gloo loss changed no bit of the final weights (1 of 1 runs)." in found
    assert any("accuracy differs from Gloo's by +0.00 points" in line for line in found)
    assert any(re.search(r"3\.\d\d times over Gloo.* and 1\.\d\d times over dlcp", line) for line in found)


def test_ranks_that_disagree_are_wrong(record: Record) -> None:
    record.runs[2].digests[1] = "0"
    found = table.findings(record)
    assert "WRONG: the ranks of digits over dlcp, 3 % loss, seed 0 ended with different weights." in found
    assert not any("In every run" in line for line in found)


def test_weights_that_loss_changed_are_wrong(record: Record) -> None:
    record.runs[1].digests = ["0"] * 3
    assert "WRONG: over Gloo loss changed the final weights in 1 of 1 runs." in table.findings(record)


def test_study_compares_with_the_spread_of_seeds(record: Record) -> None:
    gloo, clean, lossy = Configuration("gloo"), Configuration("dlcp"), Configuration("dlcp", 0.01)
    same = with_seeds(record, {gloo: [0.97, 0.98, 0.99], clean: [0.98] * 3, lossy: [0.97, 0.98, 0.98]})
    assert any(
        "Gloo's own seeds are 2.00 points apart, so it is within them" in line
        for line in table.findings(same)
    )
    assert any(
        "Over dlcp loss changed no bit of the final weights (3 of 3" in line for line in table.findings(same)
    )
    assert "98.0 ± 1.0 %" in "\n".join(table.lines(same))
    worse = with_seeds(record, {gloo: [0.97, 0.98, 0.99], lossy: [0.94, 0.95, 0.96]})
    assert any("so it is OUTSIDE them" in line for line in table.findings(worse))


def test_losses_that_only_endpoints_counted(record: Record) -> None:
    one = record.runs[2]
    one.links = None
    one.network = [Network(received_packets=990, injected_packets=10) for _ in range(3)]
    lost = one.lost()
    assert lost is not None
    assert (lost.packets, lost.dropped_packets, lost.loss_ratio) == (3000, 30, 0.01)
    one.network = []
    assert one.lost() is None


def test_picture_of_every_kind_of_record(record: Record, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the picture is drawn by matplotlib")
    from matplotlib.image import imread

    from dlcp.train.figure import draw

    study = with_seeds(record, {Configuration("gloo"): [0.9, 0.91], Configuration("dlcp", 0.01): [0.9, 0.91]})
    single = copy.deepcopy(record)
    single.runs = single.runs[:1]
    for name, some in (
        ("compare", record),
        ("bounded", with_bounded(record)),
        ("low bits", with_low_bits(record)),
        ("study", study),
        ("single", single),
    ):
        draw(some, tmp_path / f"{name}.png")
        picture = imread(tmp_path / f"{name}.png")
        height, width, _ = picture.shape
        assert width == 2100
        assert 600 < height < 2000
        assert picture[..., :3].std() > 0.05  # not a blank sheet
        # Nothing runs over the edge.
        assert picture[:, :8, :3].min() == picture[:, -8:, :3].min() == 1.0


def test_page_stands_alone(record: Record, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the picture is drawn by matplotlib")
    from dlcp.train.page import write_page

    record.runs[0].sample = "def <script>alert(1)</script>"
    write_page(record, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    links = re.findall(r'(?:href|src|url)\s*[=(]\s*["\']?([^"\')> ]+)', page)
    assert all(link.startswith(("#", "data:")) for link in links), links
    assert "<svg" in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "2 040 (2.98 %)" in page
