"""SONiC: tables against CONFIG_DB's models, what the file replaces, and what the instructions leave alone."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcp.switch import Policy, Thresholds, TrafficClass
from dlcp.switch.render import RenderError, render, sonic
from tests.support import render_golden as golden
from tests.support import render_schema
from tests.support.render_policies import policies

ROOT = Path(__file__).resolve().parents[3]
PORTS = ("Ethernet0", "Ethernet4")
TRIMS = Thresholds(trim_above_bytes=90_000)
MARKS = TrafficClass(4, dscp=(32,), critical=Thresholds(mark_from_bytes=50_000))
TOP = TrafficClass(7, dscp=(56,))
CLASSES = (TrafficClass(2, dscp=(16,), critical=TRIMS, droppable=(TRIMS,)), MARKS, TOP)


def tables(policy: Policy) -> dict[str, dict[str, dict[str, str]]]:
    return json.loads(render(policy, "sonic", PORTS).text)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "policy",
    [Policy(classes=CLASSES), Policy(classes=(MARKS,), shared_bytes=10**7)],
    ids=["one class trims", "shared buffer"],
)
def test_every_queue_has_a_buffer_where_one_has(policy: Policy) -> None:
    rows = tables(policy)["BUFFER_QUEUE"]
    # The vendor's rows may be ranges over several queues; a queue of theirs that is not here would have no buffer left.
    assert sorted(rows) == sorted(f"{port}|{queue}" for port in PORTS for queue in range(8))


def test_queue_that_does_not_trim_ends_with_its_pool() -> None:
    profiles = tables(Policy(classes=CLASSES))["BUFFER_PROFILE"]
    assert profiles["DLCP_Q2"] == {
        "pool": "egress_lossy_pool",
        "size": "0",
        "static_th": "90000",
        "packet_discard_action": "trim",
    }
    assert profiles["DLCP_Q4"]["static_th"] == str(2**32 - 2)
    assert profiles["DLCP_Q4"]["packet_discard_action"] == "drop"


def test_policy_without_buffers_leaves_the_vendors() -> None:
    assert not {"BUFFER_QUEUE", "BUFFER_PROFILE"} & set(tables(Policy(classes=(MARKS,))))


@pytest.mark.parametrize("place", ["docs/switch/operating_systems.md", "the rendered notes"])
def test_instructions_keep_the_buffer_pools(place: str) -> None:
    text = "\n".join(sonic.SYSTEM.install) if place.startswith("the") else (ROOT / place).read_text("utf-8")
    for sentence in text.replace("\n", " ").split(". "):
        assert "config qos clear" not in sentence or "ever type" in sentence or "never `config" in sentence
    assert "EXISTS 'BUFFER_POOL|egress_lossy_pool'" in text
    assert "QUEUE $(grep -om1 BUFFER_QUEUE" in text


# ---- CONFIG_DB's models ----


@pytest.mark.parametrize("policy", golden.POLICIES)
def test_golden_tables_follow_the_models(policy: str) -> None:
    tables = json.loads(golden.rendered(policy, "sonic").text)
    assert list(render_schema.faults(tables)) == []


@settings(max_examples=50)
@given(policies("sonic"), st.booleans())
def test_any_tables_follow_the_models(policy: Policy, shape: bool) -> None:
    try:
        done = render(policy, "sonic", shape=shape)
    except RenderError:
        return
    tables = json.loads(done.text)
    assert list(render_schema.faults(tables)) == []
    assert tables["DSCP_TO_TC_MAP"]["DLCP"] == {
        str(value): str(policy.class_of_dscp().get(value, policy.foreign_class)) for value in range(64)
    }


def _set(*path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(tables: dict[str, Any]) -> None:
        at = tables
        for name in path[:-1]:
            at = at[name]
        at[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("WRED_PROFILE", "DLCP_Q4", "green_max_threshold", value="1"),
        _set("WRED_PROFILE", "DLCP_Q4", "green_max_threshold", value=300000),
        _set("WRED_PROFILE", "DLCP_Q4", "ecn", value="ecn_some"),
        _set("WRED_PROFILE", "DLCP_Q4", "green_drop_probability", value="101"),
        _set("WRED_PROFILE", "DLCP_Q4", "green_min", value="1"),
        _set("QUEUE", "Ethernet0|4", "wred_profile", value="DLCP_Q6"),
        _set("QUEUE", "Ethernet12|4", value={"scheduler": "DLCP_STRICT"}),
        _set("QUEUE", "Ethernet0-4", value={}),
        _set("DSCP_TO_TC_MAP", "DLCP", "64", value="0"),
        _set("PORT_QOS_MAP", "Ethernet0", "pfc_enable", value="8"),
        _set("SCHEDULER", "DLCP_STRICT", "type", value="STRONG"),
        lambda tables: tables.update(ELSE={"x": {}}),
    ],
)
def test_schema_finds_what_the_models_refuse(change: Callable[[dict[str, Any]], None]) -> None:
    tables = copy.deepcopy(json.loads(golden.rendered("simple", "sonic").text))
    change(tables)
    assert list(render_schema.faults(tables)) != []
