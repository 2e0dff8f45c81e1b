"""What reports judge: bars of figures that the run measured, over links that let TCP fill them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from bench.report import Figure, Report
from dlcp.lab.tcp_fill import TcpFill

BENCH = Path(__file__).resolve().parents[2] / "bench"
SOURCES = {str(path.relative_to(BENCH)): path.read_text() for path in BENCH.rglob("*.py")}
FULL, PART = TcpFill(0.986, "cubic"), TcpFill(0.71, "cubic")


def test_nothing_is_judged_over_a_link_that_tcp_does_not_fill() -> None:
    report = Report("made up", {"rate": "1 Gbit/s"}, fills={"link": PART, "other": FULL})
    for words in ("link", "loopback", "other link"):
        report.at_least(1.0, f"{words}: bandwidth", Figure.of([2.0]))
    assert [bar.met for bar in report.bars] == [None, True, True]
    shown = report.show()
    assert "rate 1 Gbit/s, link: TCP cubic fills 71.0 % of the link, other: TCP cubic fills 98.6 %" in shown
    assert "not judged: TCP cubic fills 71.0 % of the link, 97 % is needed" in shown


def test_all_is_judged_over_a_link_that_tcp_fills() -> None:
    report = Report("made up", {}, fills={"": FULL})
    report.at_most(1.0, "time", Figure.of([2.0]))
    assert report.bars[0].met is False


def test_benches_over_shaped_links_say_what_tcp_fills_of_them() -> None:
    shaped = re.compile(r"Lab\([^)]*rate_bps|SwitchedLab\(")
    beside = re.compile(r"\bGLOO\b|\bDLCP\b|tcp_peer|DLCP_HUB")
    found = {name for name, text in SOURCES.items() if shaped.search(text) and beside.search(text)}
    assert len(found) >= 15
    told = {name for name, text in SOURCES.items() if "tcp_fill.measure(" in text and "fills" in text}
    assert found - told == set()


# --- figures of bars ------------------------------------------------------------------------------------------


def constant_bars(source: str) -> list[int]:
    """Lines of bars whose figure is made of constants alone: whatever the run found, it would be the same."""
    tree = ast.parse(source)
    found = []
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            found += [call.lineno for call in bars(function) if not is_measured(call.args[2], function)]
    return sorted(set(found))


def bars(function: ast.FunctionDef) -> Iterator[ast.Call]:
    for node in ast.walk(function):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 3
        if is_call and node.func.attr in ("at_least", "at_most"):
            yield node


def is_measured(figure: ast.expr, function: ast.FunctionDef, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a variable goes into it that was not assigned from constants; calls count by what they are given.

    A function inside this one sees its variables.
    """
    inner = {node.name for node in ast.walk(function) if isinstance(node, ast.FunctionDef)}
    called = {node.func for node in ast.walk(figure) if isinstance(node, ast.Call)}
    for node in ast.walk(figure):
        if not isinstance(node, ast.Name) or node.id in seen or node.id.lstrip("_").isupper():
            continue
        name = node.id
        if node in called and name in inner:
            return True
        if node in called or name == "Figure":
            continue
        values = [
            node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
        ]
        # One that is not simply assigned is an argument, a loop's or unpacked.
        if not values or any(is_measured(value, function, seen | {name}) for value in values):
            return True
    return False


def test_a_bar_of_constants_is_found() -> None:
    source = """
def run(report, found):
    share = Figure.of([OWN_BYTES / DATAGRAM_BYTES])
    report.at_most(LIMIT, "constant", share)
    report.at_most(LIMIT, "number", Figure.of([0.5]))
    report.at_most(LIMIT, "measured", Figure.of([found / DATAGRAM_BYTES]))
"""
    assert constant_bars(source) == [4, 5]


def test_figures_of_bars_come_from_the_run() -> None:
    assert {name: lines for name, text in SOURCES.items() if (lines := constant_bars(text))} == {}
