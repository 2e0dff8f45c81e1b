"""Entries that a program has no room for or does not know are refused before anything is written."""

from __future__ import annotations

import dataclasses

import pytest

from dlcp.switch import (
    Policy,
    Route,
    SwitchTarget,
    programs,
)
from dlcp.switch.entries import (
    Entry,
    Exact,
    TableEntry,
    desired_entries,
)

pytest.importorskip("finsy", reason="needs the packages of the extra p4")

from dlcp.switch.deploy.codec import canonical
from dlcp.switch.deploy.errors import ProgramError
from dlcp.switch.deploy.pipeline import Pipeline
from dlcp.switch.deploy.transaction import DesiredState

PIPELINE = Pipeline.of(programs.load("v1model"))
SMALL = SwitchTarget("s1", "h:1", {"a": 1, "b": 2, "c": 3})


def test_more_entries_than_a_table_has_room_for_are_refused_before_anything_is_written() -> None:
    macs = tuple(f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}" for n in range(1, 66))
    target = dataclasses.replace(SMALL, router_macs=macs, routes=(Route("::/0", "a", macs[0]),))
    with pytest.raises(ProgramError, match="s1: table 'router_mac' has room for 64 entries, not for 65"):
        DesiredState.of(target, PIPELINE, desired_entries(Policy(), target).entries)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (TableEntry("brigde", (), "to_port"), "the program has no table 'brigde'"),
        (
            TableEntry("bridge", (("dst_mac", Exact(1)),), "fly"),
            "table 'bridge' has no action 'fly'; it has to_port",
        ),
        (
            TableEntry("bridge", (("mac", Exact(1)),), "to_port", (("port", 1),)),
            "table 'bridge' has no 'mac'",
        ),
        (TableEntry("bridge", (), "to_port", (("port", 1),)), "table 'bridge' needs a key for dst_mac"),
        (TableEntry("bridge", (("dst_mac", Exact(1)),), "to_port", ()), "action 'to_port' needs port"),
        (
            TableEntry("bridge", (("dst_mac", Exact(1)),), "to_port", (("port", 512),)),
            "to_port.port is 512; .* 9 bits",
        ),
        (TableEntry("bridge", (("dst_mac", Exact(2**48)),), "to_port", (("port", 1),)), "bridge.dst_mac is"),
        (
            TableEntry("bridge", (("dst_mac", Exact(1)),), "to_port", (("port", 1),), 5),
            "priority 5 does not fit",
        ),
    ],
)
def test_entry_that_the_program_does_not_know_is_named(entry: Entry, said: str) -> None:
    with pytest.raises(ProgramError, match=said):
        canonical(entry, PIPELINE.schema)
