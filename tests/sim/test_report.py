"""Tables, pictures and the page: their numbers are the result's, and the page stands alone."""

from __future__ import annotations

import csv
import io
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dlcp.units import duration
from dlcp_sim.fabrics import FatTree
from dlcp_sim.report import comparison, pictures, timeline, write_report
from dlcp_sim.report.tables import Table, names, run_costs
from dlcp_sim.result import Result
from dlcp_sim.scenario import Sample, Scenario
from dlcp_sim.transports import LineRate, Ndp
from dlcp_sim.workloads.flows import Incast

pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install '.[sim]'")

SCENARIO = Scenario(
    fabric=FatTree(4, rate_bps=100e9, delay_s=1e-6),
    transport=Ndp(),
    workload=Incast(senders=8, bytes=100_000),
    seed=7,
    sample=Sample(1e-6, "switches"),
    name="trimmed",
)


@pytest.fixture(scope="module")
def result() -> Result:
    return SCENARIO.run()


@pytest.fixture(scope="module")
def other() -> Result:
    return replace(SCENARIO, transport=LineRate(), name="blind").run()


# --- tables ---------------------------------------------------------------------------------------------------


def test_table_says_the_same_as_text_markdown_html_and_csv() -> None:
    table = Table("title", ("name", "a|b"))
    table.add("x<y", ("1.50 µs", 1.5e-6))
    assert table.text() == "title\nname      a|b\nx<y   1.50 µs"
    assert table.markdown().splitlines()[2:] == ["| name | a\\|b |", "|---|---:|", "| x<y | 1.50 µs |"]
    assert "<td>x&lt;y</td><td>1.50 µs</td>" in table.html()
    assert list(csv.reader(io.StringIO(table.csv()))) == [["name", "a|b"], ["x<y", "1.5e-06"]]


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        Table("", ("a", "b")).add("x")


def test_comparison_has_the_figures_of_the_results(result: Result, other: Result) -> None:
    rows = list(csv.DictReader(io.StringIO(comparison([result, other]).csv())))
    assert [row[""] for row in rows] == ["trimmed", "blind"]
    for row, one in zip(rows, (result, other), strict=True):
        times = one.flows.completion_s
        assert float(row["mean"]) == pytest.approx(times.mean(), rel=1e-12)
        assert float(row["max"]) == times.max()
        assert int(row["trimmed"]) == one.ports.packets_trimmed.sum()
    ratio = other.flows.completion_s.mean() / result.flows.completion_s.mean()
    assert float(rows[1]["beside first"]) == pytest.approx(ratio, rel=1e-12)


def test_results_of_one_name_are_told_apart(result: Result) -> None:
    other_seed = replace(SCENARIO, seed=8).run()
    assert names([result, other_seed]) == ["trimmed, seed 7", "trimmed, seed 8"]
    assert len(set(names([result, result]))) == 2
    other_transport = replace(SCENARIO, transport=LineRate()).run()
    assert names([result, other_transport]) == ["trimmed, ndp", "trimmed, line_rate"]
    wider = replace(SCENARIO, transport=Ndp(window_packets=9)).run()
    assert names([wider, result])[0] == "trimmed, window_packets=9"


def test_costs_are_those_of_the_run(result: Result) -> None:
    (row,) = list(csv.DictReader(io.StringIO(run_costs([result]).csv())))
    assert int(row["hops"]) == result.metadata["hops"]
    assert float(row["CPU"]) == result.metadata["cpu_s"]


# --- pictures -------------------------------------------------------------------------------------------------


def test_distribution_reaches_the_share_that_finished(result: Result) -> None:
    figure = pictures.completion_distribution([result])
    (line,) = [one for one in figure.axes[0].lines if len(one.get_xdata()) > 2]
    assert max(line.get_ydata()) == 100.0
    assert max(line.get_xdata()) == pytest.approx(1e6 * result.flows.completion_s.max())
    # Half of the flows never finish: the curve ends at 50 %.
    ends = result.arrays["flow.delivered_ps"].copy()
    ends[::2] = -1
    half = Result(result.metadata, {**result.arrays, "flow.delivered_ps": ends})
    (line,) = [
        one for one in pictures.completion_distribution([half]).axes[0].lines if len(one.get_xdata()) > 2
    ]
    assert max(line.get_ydata()) == 50.0


def test_link_series_shows_the_deepest_queue(result: Result) -> None:
    figure = pictures.link_series(result)
    upper, lower = figure.axes
    assert result.samples is not None
    deepest = result.samples.depth_bytes.sum(axis=2).max()
    assert max(max(line.get_ydata()) for line in lower.lines) * 1e3 == pytest.approx(deepest)
    assert max(max(line.get_ydata()) for line in upper.lines) == 100


def test_class_series_adds_up_to_what_was_sent(result: Result) -> None:
    figure = pictures.class_series(result)
    assert result.samples is not None
    rate = result.samples.rate_bps().sum(axis=(1, 2)).max()
    top = max(area.get_paths()[0].vertices[:, 1].max() for area in figure.axes[0].collections)
    unit = {"Tb/s": 1e12, "Gb/s": 1e9}[figure.axes[0].get_ylabel().rsplit(" ", 1)[1]]
    assert top * unit == pytest.approx(rate)


def test_every_tier_of_the_tree_is_in_the_use_of_links(result: Result) -> None:
    labels = [label.get_text() for label in pictures.link_use([result]).axes[0].get_yticklabels()]
    assert labels[0] == "host → edge"
    assert labels[-1] == "edge → host"
    assert len(labels) == 6


def test_what_a_result_does_not_hold_is_said(other: Result) -> None:
    bare = replace(SCENARIO, sample=None).run()
    with pytest.raises(pictures.PictureError, match="no time series"):
        pictures.link_series(bare)
    with pytest.raises(pictures.PictureError, match='"completion", "slowdown"'):
        pictures.completion_distribution([other], "speed")
    with pytest.raises(pictures.PictureError, match="port 0 was not sampled"):
        pictures.link_series(other, ports=[0])


def test_exposed_communication_is_what_no_computation_covers() -> None:
    def interval(kind: str, begin: float, end: float) -> timeline.Interval:
        return timeline.Interval(0, kind, begin, end)

    what = timeline.Iterations(
        ["layer"],
        [
            interval("forward", 0, 2),
            interval("backward", 2, 5),
            interval("communication", 4, 7),
            interval("communication", 6, 8),
            interval("forward", 7.5, 9),
        ],
        [(0.0, 9.0)],
    )
    assert what.exposed() == [(5, 7.5)]
    words = [text.get_text() for text in timeline.iteration_timeline(what).axes[0].texts]
    assert words == ["9 s, 28 % exposed"]


@pytest.mark.parametrize(
    ("intervals", "holes", "left"),
    [
        ([(0, 10)], [], [(0, 10)]),
        ([(0, 10)], [(0, 10)], []),
        ([(0, 10)], [(2, 3), (5, 6)], [(0, 2), (3, 5), (6, 10)]),
        ([(0, 1), (4, 6)], [(0.5, 5)], [(0, 0.5), (5, 6)]),
    ],
)
def test_intervals_without_others(intervals: list, holes: list, left: list) -> None:
    assert timeline.without(intervals, holes) == left


def test_the_same_picture_is_the_same_file(result: Result, tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg", "one.png", "two.png"):
        pictures.save(pictures.link_use([result]), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


# --- the page -------------------------------------------------------------------------------------------------


def test_page_stands_alone_and_says_how_to_repeat_it(result: Result, other: Result, tmp_path: Path) -> None:
    text = write_report([result, other], tmp_path / "page.html", title="Two <ways>").read_text(
        encoding="utf-8"
    )
    assert "Two &lt;ways&gt;" in text
    # Nothing is fetched: what looks like an address is an XML namespace, or metadata inside an <svg>.
    assert not re.search(r'(src|href)="(?!#)(?!data:)', text.replace("xlink:href", "href"))
    assert "<script" not in text
    assert 'name="viewport"' in text
    assert "prefers-color-scheme: dark" in text
    assert text.count("<figure") == text.count("</figure>") >= 5
    assert "var(--ink)" in text
    for one in (result, other):
        assert f"seed {one.seed}" in text
    assert "senders = 8" in text


def test_page_begins_with_what_was_simulated(result: Result, other: Result, tmp_path: Path) -> None:
    others = [
        Result({**other.metadata, "scenario": {**other.scenario, "transport": {"kind": kind}}}, other.arrays)
        for kind in "abcd"
    ]
    text = write_report([result, *others], tmp_path / "page.html").read_text()
    (said,) = re.findall("<h1>.*</h1>\n<p>(.*)</p>", text)
    least, most = sorted((result.simulated_s, other.simulated_s))
    assert said == (
        "Simulated: 16 hosts (three_tier, links of 100.0 Gb/s); incast: 8 flows, "
        f"{duration(least)} to {duration(most)} of simulated time; over ndp, a, b, c, d."
    )


def test_page_of_a_result_that_was_stopped_says_so(result: Result, tmp_path: Path) -> None:
    partial = Result({**result.metadata, "partial": True}, result.arrays)
    assert "was stopped before it was over" in write_report(partial, tmp_path / "page.html").read_text()


def test_page_without_matplotlib_has_its_tables_and_says_what_is_missing(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = write_report(result, tmp_path / "page.html").read_text()
    assert "pip install" in text
    assert "<table>" in text
    assert "<figure" not in text


def test_page_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pictures.PictureError, match="at least one result"):
        write_report([], tmp_path / "page.html")


def test_a_saved_result_gives_the_same_page(result: Result, tmp_path: Path) -> None:
    loaded = Result.load(result.save(tmp_path / "run.npz"))
    pages = [write_report(one, tmp_path / "page.html").read_bytes() for one in (result, loaded)]
    assert pages[0] == pages[1]
    assert np.array_equal(loaded.flows.completion_s, result.flows.completion_s)


def test_a_heading_fits_its_figure_and_stands_clear_of_the_panels() -> None:
    with pictures.new_figure(
        2, heading="What a loss budget costs and saves in a step, by switch and size"
    ) as (
        figure,
        (upper, _),
    ):
        figure.canvas.draw()
        (words,) = [text for text in figure.texts if "budget" in text.get_text()]
        extent = words.get_window_extent()
        assert extent.x1 <= figure.bbox.width
        assert upper.get_window_extent().y1 <= extent.y0
