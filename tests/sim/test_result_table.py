"""The stored table of every transport's completion times and packets: a change of behaviour is a diff."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from dlcp_sim.transports import TRANSPORTS
from tests.support import simulator_table

STORED = "tests/tables/simulator.txt"


@pytest.fixture(scope="module")
def now() -> str:
    return simulator_table.table()


def test_result_table_is_what_is_stored(repository: Path, now: str) -> None:
    stored = (repository / STORED).read_text(encoding="utf-8")
    if now == stored:
        return
    diff = "\n".join(
        difflib.unified_diff(stored.splitlines(), now.splitlines(), "stored", "now", lineterm="")
    )
    pytest.fail(
        f"behaviour has changed:\n{diff}\n\nIf that is meant, store it and say why in the commit:\n"
        f"  python -m tests.support.simulator_table > {STORED}",
        pytrace=False,
    )


def test_every_transport_finishes_every_scenario(now: str) -> None:
    seen = set()
    for line in filter(None, now.splitlines()[1:]):
        scenario, rest = line[:15].strip(), line[15:].split()
        transport, done = rest[0], rest[1].split("/")
        seen.add((scenario, transport))
        assert done[0] == done[1], line
    expected = {(s, t) for s in simulator_table.SCENARIOS for t in TRANSPORTS}
    repairs_nothing = {(s, "line_rate") for s, (_, _, faults) in simulator_table.SCENARIOS.items() if faults}
    assert seen == expected - repairs_nothing
