"""What reports judge: bars of figures that the run measured, over links that let TCP fill them."""

from __future__ import annotations

import ast
import builtins
import re
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


def constant_bars(source: str) -> list[int]:
    """Lines of bars whose figure is made of constants alone: whatever the run found, it would be the same."""
    found = set()
    for function in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)):
        assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
        values = {
            one.id: node.value for node in assigned for one in node.targets if isinstance(one, ast.Name)
        }
        for node in ast.walk(function):
            is_bar = isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("at_least", "at_most")
            if is_bar and not any(map(is_variable, leaves(node.args[2], values))):
                found.add(node.lineno)
    return sorted(found)


def leaves(value: ast.expr, values: dict[str, ast.expr]) -> set[str]:
    """Names that go into it, those that were simply assigned followed to what they were assigned from."""
    names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    rest = {name: of for name, of in values.items() if name not in names}
    return names - values.keys() | {
        leaf for name in names & values.keys() for leaf in leaves(values[name], rest)
    }


def is_variable(name: str) -> bool:
    """Neither a constant nor what makes a figure of one. Functions of the bench count: they see what was measured."""
    return not name.lstrip("_").isupper() and name not in {"Figure", "ratios", *dir(builtins)}


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
