"""The base of transports' settings: ranges, native names and units, and that each native transport knows its own."""

from __future__ import annotations

import ast
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dlcp_sim._core", reason="the extension module is not built")

import dlcp_sim as ds
from dlcp import _native
from dlcp.errors import ArgumentError
from dlcp_sim import _core
from dlcp_sim.transports import TRANSPORTS, transport_named
from dlcp_sim.transports.__main__ import stub
from dlcp_sim.transports.base import Transport, setting


@dataclass(frozen=True)
class Example(Transport):
    """One setting of each kind."""

    name = "example"
    window_packets: int = setting(30, minimum=1, maximum=100)
    min_rto_s: float = setting(1e-3, minimum=1e-6)
    rtt_s: float | None = setting(None, minimum=0)
    burst: int | None = setting(None, minimum=1, whole=True)
    control: str = setting("cubic", choices={"newreno": 0, "cubic": 1})
    sack: bool = setting(True)

    def check(self) -> None:
        """What the base cannot know."""
        if self.burst is not None and self.burst > self.window_packets:
            raise ArgumentError(f"example.burst is {self.burst}; accepted: up to window_packets")


def test_settings_become_native_names_and_picoseconds() -> None:
    assert Example().parameters() == {
        "window_packets": 30.0,
        "min_rto_ps": 1e9,
        "control": 1.0,
        "sack": 1.0,
    }
    assert Example(rtt_s=1.5e-12, burst=3, sack=False).parameters()["rtt_ps"] == 2.0
    assert Example(sack=False).parameters()["sack"] == 0.0


def test_numbers_of_numpy_are_kept_as_pythons() -> None:
    made = Example(window_packets=np.int64(7), min_rto_s=np.float32(0.5))  # type: ignore[arg-type]
    assert made == Example(window_packets=7, min_rto_s=0.5)
    assert type(made.window_packets) is int
    assert made.as_dict() == {
        "kind": "example",
        "window_packets": 7,
        "min_rto_s": 0.5,
        "control": "cubic",
        "sack": True,
    }


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"window_packets": 0}, "example.window_packets is 0; accepted: whole numbers from 1 to 100"),
        ({"window_packets": 101}, "accepted: whole numbers from 1 to 100"),
        ({"window_packets": 1.5}, "example.window_packets is 1.5"),
        ({"window_packets": None}, "example.window_packets is None"),
        ({"min_rto_s": 0}, "example.min_rto_s is 0; accepted: numbers from 1e-06"),
        ({"min_rto_s": float("nan")}, "example.min_rto_s is nan"),
        ({"min_rto_s": "1"}, "example.min_rto_s is '1'"),
        ({"burst": 1.5}, "example.burst is 1.5; accepted: whole numbers from 1"),
        ({"burst": 31}, "example.burst is 31; accepted: up to window_packets"),
        ({"control": "bbr"}, "example.control is 'bbr'; accepted: newreno, cubic"),
        ({"control": []}, r"example.control is \[\]; accepted: newreno, cubic"),
        ({"sack": 1}, "example.sack is 1; accepted: true or false"),
    ],
)
def test_what_is_out_of_range_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        Example(**settings)


def test_a_base_has_no_policy_of_its_own() -> None:
    with pytest.raises(NotImplementedError, match="Example has no switch policy"):
        Example().policy(ds.Star(2))


@pytest.mark.parametrize("kind", TRANSPORTS)
def test_native_transports_know_every_setting_of_theirs(kind: str) -> None:
    """An unknown one would be refused by name, so a run with all of them is the proof."""
    transport = transport_named(kind)
    result = ds.Scenario(
        fabric=ds.Star(2), transport=transport, workload=ds.Flows(rows=((0, 1, 10_000),))
    ).run()
    assert result.flows.finished.all()


@pytest.mark.parametrize("kind", TRANSPORTS)
def test_what_is_beyond_a_bound_is_refused_by_every_transport(kind: str) -> None:
    for field in dataclasses.fields(TRANSPORTS[kind]):
        for end, step in (("minimum", -1), ("maximum", 1)):
            bound = field.metadata[end]
            if bound is not None and not isinstance(field.default, bool):
                with pytest.raises(ArgumentError, match=f"{kind}.{field.name} is .*; accepted: "):
                    TRANSPORTS[kind](**{field.name: bound + step})


def test_a_setting_that_the_native_side_lacks_is_refused_by_name() -> None:
    @dataclass(frozen=True)
    class Wrong(ds.LineRate):
        window_packets: int = setting(3, minimum=1)

    with pytest.raises(ArgumentError, match='transport "line_rate" has no setting "window_packets"'):
        Wrong()


def test_what_the_native_side_refuses_together_is_refused_when_the_object_is_made() -> None:
    with pytest.raises(ArgumentError, match=r"uet.entropies is 100; accepted: powers of two"):
        ds.Uet(entropies=100)


def test_a_native_class_takes_fields_ranges_and_docstring_from_the_table() -> None:
    rows = {row.name: row for row in _core.transport_settings("uet")}
    fields = {field.name: field for field in dataclasses.fields(ds.Uet)}
    assert [name.replace("_ps", "_s") for name in rows] == list(fields)
    assert fields["base_rtt_s"].metadata["minimum"] == rows["base_rtt_ps"].minimum / 1e12
    assert fields["ack_bytes"].default == 16_384
    for row in rows.values():
        assert row.sentence in str(ds.Uet.__doc__)


def test_every_native_transport_has_a_class() -> None:
    assert sorted(TRANSPORTS) == _core.transport_names()


def test_the_stub_is_what_the_tables_say(repository: Path) -> None:
    written = (repository / "sim/dlcp_sim/transports/__init__.pyi").read_text()
    assert ast.dump(ast.parse(written)) == ast.dump(ast.parse(stub())), "run python -m dlcp_sim.transports"


def test_transport_dlcp_takes_its_ranges_from_the_engine() -> None:
    entries = {entry.name: entry for entry in _native.settings_table()}
    names = ds.Dlcp.setting_names()
    for name, entry in entries.items():
        if entry.layer == "protocol":
            assert name in names
    with pytest.raises(ArgumentError, match=r"dlcp.paths is 65; accepted: whole numbers from 1 to 64"):
        ds.Dlcp(paths=65)
    assert ds.Dlcp(congestion="line_rate").parameters()["congestion"] == 2.0
