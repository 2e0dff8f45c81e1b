"""The base of transports' settings: ranges, native names and units, and that each native transport knows its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dlcp_sim._core", reason="the extension module is not built")

import dlcp_sim as ds
from dlcp import _native
from dlcp.errors import ArgumentError
from dlcp_sim.transports import TRANSPORTS, transport_named
from dlcp_sim.transports.base import Transport, setting
from dlcp_sim.transports.engine_settings import with_engine_settings


@dataclass(frozen=True)
class Example(Transport):
    """One setting of each kind."""

    name = "example"
    window_packets: int = setting(30, minimum=1, maximum=100)
    min_rto_s: float = setting(1e-3, minimum=1e-6)
    rtt_s: float | None = setting(None, minimum=0)
    burst: int | None = setting(None, minimum=1)
    control: str = setting("cubic", choices={"newreno": 0, "cubic": 1})
    sack: bool = setting(True, native="selective")

    def check(self) -> None:
        """What the base cannot know."""
        if self.burst is not None and self.burst > self.window_packets:
            raise ArgumentError(f"example.burst is {self.burst}; accepted: up to window_packets")


def test_settings_become_native_names_and_picoseconds() -> None:
    assert Example().parameters() == {
        "window_packets": 30.0,
        "min_rto_ps": 1e9,
        "control": 1.0,
        "selective": 1.0,
    }
    assert Example(rtt_s=1.5e-12, burst=3, sack=False).parameters()["rtt_ps"] == 2.0
    assert Example(sack=False).parameters()["selective"] == 0.0


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


def test_a_setting_that_the_native_side_lacks_is_refused_by_name() -> None:
    @dataclass(frozen=True)
    class Wrong(ds.LineRate):
        window_packets: int = setting(3, minimum=1)

    with pytest.raises(ArgumentError, match='transport "line_rate" has no setting "window_packets"'):
        ds.Scenario(fabric=ds.Star(2), transport=Wrong(), workload=ds.permutation()).run()


def test_transport_dlcp_takes_its_ranges_from_the_engine() -> None:
    entries = {entry.name: entry for entry in _native.settings_table()}
    names = ds.Dlcp.setting_names()
    for name, entry in entries.items():
        if entry.layer == "protocol":
            assert name in names
    with pytest.raises(ArgumentError, match=r"dlcp.paths is 65; accepted: whole numbers from 1 to 64"):
        ds.Dlcp(paths=65)
    assert ds.Dlcp(congestion="credit").parameters()["congestion"] == 2.0


def test_setting_of_the_engine_that_the_transport_does_not_declare_is_its_setting_too() -> None:
    @dataclass(frozen=True)
    @with_engine_settings
    class Bare(Transport):
        """Declares none."""

        name = "bare"

    assert set(Bare.setting_names()) == {
        entry.name for entry in _native.settings_table() if entry.layer == "protocol"
    }
    assert Bare().parameters() == {}
    assert Bare(min_rto_s=1e-3, paths=4).parameters() == {"min_rto_ps": 1e9, "paths": 4.0}  # type: ignore[call-arg]
