"""Scenarios as TOML: everything Python can say a file can say, what is unknown is named with what is near."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dlcp_sim._core", reason="the extension module is not built")

import dlcp_sim as ds
from dlcp.errors import ArgumentError
from dlcp.switch import Policy
from dlcp_sim import toml, workloads
from dlcp_sim.transports import TRANSPORTS
from dlcp_sim.workloads import Workload

WORKLOADS = {
    one.kind: one
    for one in vars(workloads).values()
    if isinstance(one, type) and issubclass(one, Workload) and one.kind
}

SCENARIO = """
name = "all of it"
seed = 7
threads = 2
until_s = 0.25

[fabric]
kind = "leaf_spine"
leaves = 4
spines = 2
hosts_per_leaf = 4
rate_bps = 25e9
uplink_rate_bps = 100e9
link_rates = { "host 3" = 10e9 }

[transport]
kind = "ndp"
window_packets = 20
rto_s = 2e-3

[switch]
kind = "ndp"
queue_packets = 12

[[workload]]
kind = "incast"
senders = 8
bytes = 200_000

[[workload]]
kind = "poisson"
load = 0.2
duration_s = 1e-3

[[faults]]
kind = "random_loss"
link = "edge 0 -> host 3"
ratio = 0.001

[[faults]]
kind = "switch_down"
switch = "aggregation 1"
at_s = 1e-4

[sample]
interval_s = 1e-5
ports = ["edge 0 -> host 0"]

[trace]
limit = 1000
"""


def read(text: str, folder: Path | None = None) -> ds.Scenario:
    return ds.Scenario.from_dict(tomllib.loads(text), folder)


def test_a_file_says_all_that_python_says() -> None:
    fabric = ds.LeafSpine(4, 2, 4, rate_bps=25e9, uplink_rate_bps=100e9, link_rates={"host 3": 10e9})
    assert read(SCENARIO) == ds.Scenario(
        name="all of it",
        seed=7,
        threads=2,
        until_s=0.25,
        fabric=fabric,
        transport=ds.Ndp(window_packets=20, rto_s=2e-3),
        switch=ds.switches.ndp(fabric, queue_packets=12),
        workload=ds.together(ds.incast(senders=8, bytes=200_000), ds.poisson(load=0.2, duration_s=1e-3)),
        faults=(
            ds.RandomLoss("edge 0 -> host 3", ratio=0.001),
            ds.SwitchDown("aggregation 1", at_s=1e-4),
        ),
        sample=ds.Sample(1e-5, ("edge 0 -> host 0",)),
        trace=ds.Trace(limit=1000),
    )


@pytest.mark.parametrize(
    "fabric",
    [
        ds.FatTree(4),
        ds.FatTree(4, oversubscription=2, core_rate_bps=40e9),
        ds.Star(3),
        ds.Dumbbell(2, 3, bottleneck_bps=10e9),
        ds.TwoSites(2, 1, 2, long_delay_s=1e-3),
    ],
    ids=repr,
)
def test_a_scenario_and_its_text_are_the_same(fabric: ds.Fabric) -> None:
    scenario = ds.Scenario(fabric=fabric, transport=ds.LineRate(), workload=ds.permutation(bytes=1000))
    again = read(scenario.to_toml())
    assert again == scenario
    assert again.as_dict() == scenario.as_dict()


def test_the_full_scenario_and_its_text_are_the_same() -> None:
    scenario = read(SCENARIO)
    text = scenario.to_toml()
    assert read(text) == scenario
    assert read(text).to_toml() == text


@pytest.mark.parametrize("kind", TRANSPORTS)
def test_every_transport_is_read_as_it_was_written(kind: str) -> None:
    transport = TRANSPORTS[kind]()
    scenario = ds.Scenario(fabric=ds.Star(4), transport=transport, workload=ds.permutation())
    again = read(scenario.to_toml())
    assert again.transport == transport
    # What its authors would tell switches can be told.
    assert isinstance(again.policy, Policy)


@pytest.mark.parametrize("kind", sorted(WORKLOADS))
def test_every_workload_is_a_kind(kind: str) -> None:
    assert toml.workload_kinds()[kind] is WORKLOADS[kind]


def test_a_graph_stands_alone_once_it_was_read(tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text(
        """
        hosts = ["alice", "bob"]
        switches = 1
        rate_bps = 10e9
        delay_s = 1e-6
        link_rates = { "alice" = 1e9 }
        [[cable]]
        from = "alice"
        to = "switch 0"
        [[cable]]
        from = "bob"
        to = "switch 0"
        """
    )
    text = """
        [fabric]
        kind = "graph_file"
        path = "lab.toml"
        [transport]
        kind = "line_rate"
        [workload]
        kind = "flows"
        rows = [[0, 1, 5000]]
    """
    scenario = read(text, tmp_path)
    assert "lab.toml" not in scenario.to_toml()
    again = read(scenario.to_toml())
    assert again.as_dict() == scenario.as_dict()
    assert again.fabric.link_rates == {"alice": 1e9}
    assert scenario.run().ports.name(0) == "alice → switch 0"
    assert again.run().flows.finished.all()


def test_a_switchs_own_file_is_found_beside_the_scenario(tmp_path: Path) -> None:
    ds.switches.drop_tail(ds.Star(4), port_bytes=5000).save(tmp_path / "policy.toml")
    (tmp_path / "scenario.toml").write_text(
        """
        fabric = { kind = "star", hosts = 4 }
        transport = { kind = "line_rate" }
        workload = { kind = "permutation" }
        switch = { path = "policy.toml" }
        """
    )
    assert ds.Scenario.load(tmp_path / "scenario.toml").policy.port_bytes == 5000


MINIMAL: dict[str, Any] = {
    "fabric": {"kind": "star", "hosts": 4},
    "transport": {"kind": "ndp"},
    "workload": {"kind": "permutation"},
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sead": 1}, "the scenario has no setting 'sead'; did you mean seed? accepted: "),
        ({"fabric": 3}, "fabric is 3; accepted: a table"),
        ({"fabric": {}}, "fabric has no kind; accepted: fat_tree, "),
        ({"fabric": {"kind": "fattree"}}, "fabric.kind is 'fattree'; did you mean fat_tree?"),
        ({"fabric": {"kind": ["star"]}}, "fabric.kind is"),
        ({"fabric": {"kind": "star"}}, "fabric (star) needs hosts"),
        ({"fabric": {"kind": "star", "host": 4}}, "fabric (star) has no setting 'host'; did you mean hosts?"),
        ({"fabric": {"kind": "star", "hosts": 4, "rate_bps": -1}}, "fabric (star): rate_bps is -1; accepted"),
        ({"fabric": {"kind": "star", "hosts": "4"}}, "fabric (star)"),
        ({"fabric": {"kind": "graph_file", "path": "none.toml"}}, "there is no file none.toml"),
        ({"fabric": {"kind": "graph", "hosts": 1}}, "fabric (graph): switches is None"),
        ({"transport": {"kind": "npd"}}, "transport 'npd' is unknown; did you mean ndp?"),
        ({"transport": {"window_packets": 3}}, "transport.kind is None; accepted: "),
        (
            {"transport": {"kind": "ndp", "window": 3}},
            "ndp has no setting 'window'; did you mean window_packets?",
        ),
        ({"transport": {"kind": "ndp", "window_packets": "3"}}, "ndp.window_packets is '3'; accepted: whole"),
        ({"workload": {"kind": "incst"}}, "workload.kind is 'incst'; did you mean incast?"),
        ({"workload": {"kind": "incast", "sender": 3}}, "workload (incast) has no setting 'sender'"),
        (
            {"workload": {"kind": "incast", "senders": "x"}},
            "senders is 'x'; accepted: a whole number, or a list",
        ),
        ({"workload": {"kind": "incast", "bytes": 1.5}}, "(incast): bytes is 1.5; accepted: a whole number"),
        (
            {"workload": {"kind": "incast", "bytes": True}},
            "(incast): bytes is True; accepted: a whole number",
        ),
        ({"workload": {"kind": "poisson", "load": float("nan")}}, "load is nan; accepted: a number"),
        (
            {"workload": {"kind": "flows", "rows": [[0, 1, "x"]]}},
            "accepted: a list, each a list, each a number",
        ),
        (
            {"workload": {"kind": "cross_traffic", "pairs": [[1]]}},
            "each a list of 2: a whole number, a whole number",
        ),
        (
            {"fabric": {"kind": "star", "hosts": 4, "link_rates": "x"}},
            "link_rates is 'x'; accepted: a table, each",
        ),
        ({"workload": [{"kind": "incst"}]}, "workload[0].kind is 'incst'"),
        ({"switch": {"kind": "red"}}, "switch.kind is 'red'; accepted: unbounded, "),
        ({"switch": {"kind": "drop_tail", "fabric": 3}}, "switch (drop_tail) has no setting 'fabric'"),
        ({"switch": {"port_byts": 3}}, "switch: port_byts is unknown"),
        ({"switch": {"path": "none.toml"}}, "there is no file none.toml"),
        ({"faults": {"kind": "random_loss"}}, "faults is {'kind': 'random_loss'}; accepted: tables"),
        ({"faults": [{"kind": "random_los"}]}, "faults[0].kind is 'random_los'; did you mean random_loss?"),
        ({"faults": [{"kind": "random_loss"}]}, "faults[0] (random_loss) needs link"),
        ({"sample": {}}, "sample needs interval_s"),
        ({"sample": {"interval_s": 1, "port": "all"}}, "sample has no setting 'port'; did you mean ports?"),
        ({"trace": {"limit": 0}}, "trace.limit is 0"),
        ({"threads": 1.5}, "threads is 1.5"),
    ],
)
def test_what_a_file_may_not_say(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        ds.Scenario.from_dict(MINIMAL | changes)
    assert words in str(caught.value)


@pytest.mark.parametrize("missing", ["fabric", "transport", "workload"])
def test_what_a_file_must_say(missing: str) -> None:
    with pytest.raises(ArgumentError, match=rf"has no \[{missing}\]"):
        ds.Scenario.from_dict({name: table for name, table in MINIMAL.items() if name != missing})


@pytest.mark.parametrize(
    ("content", "words"), [(b"seed = ", "Invalid value"), (b"\xff\xfe", "codec"), (None, "No such file")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "scenario.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ArgumentError, match=words) as caught:
        ds.Scenario.load(path)
    assert str(path) in str(caught.value)


def test_whole_numbers_may_be_written_as_floats_that_are_whole() -> None:
    scenario = ds.Scenario.from_dict({**MINIMAL, "workload": {"kind": "permutation", "bytes": 2e6}})
    assert scenario == ds.Scenario.from_dict(
        {**MINIMAL, "workload": {"kind": "permutation", "bytes": 2_000_000}}
    )
    tables = ds.Scenario(
        fabric=ds.Star(4), transport=ds.Ndp(), workload=ds.permutation(bytes=np.int64(5000))
    ).as_dict()
    assert json.loads(json.dumps(tables))["workload"]["bytes"] == 5000


# ---- one setting at a time ----


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("30", 30),
        (" 1e-3 ", 1e-3),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ('"30"', "30"),
        ("ndp", "ndp"),
        ("edge 0 -> host 3", "edge 0 -> host 3"),
        ("1\nseed = 2", "1\nseed = 2"),
        ("", ""),
    ],
)
def test_values_of_the_command_line(text: str, value: object) -> None:
    assert toml.read_value(text) == value


def test_a_setting_is_changed_by_its_dotted_name() -> None:
    tables = {**MINIMAL, "faults": [{"kind": "random_loss", "ratio": 0.1}]}
    changed = toml.with_setting(tables, "transport.window_packets", 30)
    assert changed["transport"] == {"kind": "ndp", "window_packets": 30}
    assert toml.with_setting(tables, "faults.0.ratio", 0.2)["faults"] == [
        {"kind": "random_loss", "ratio": 0.2}
    ]
    assert toml.with_setting(tables, "sample.interval_s", 1e-6)["sample"] == {"interval_s": 1e-6}
    assert tables["transport"] == {"kind": "ndp"}, "the tables themselves must not change"


def test_another_kind_takes_the_former_ones_settings_away() -> None:
    tables = toml.with_setting(MINIMAL, "transport.window_packets", 30)
    assert toml.with_setting(tables, "transport.kind", "line_rate")["transport"] == {"kind": "line_rate"}
    assert toml.with_setting(tables, "transport.kind", "ndp")["transport"]["window_packets"] == 30


@pytest.mark.parametrize(
    "name", ["", "transport.", ".kind", "seed.x", "faults.0.ratio", "faults.x.ratio", "faults.0"]
)
def test_a_name_that_leads_nowhere_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match="setting is"):
        toml.with_setting({**MINIMAL, "seed": 1, "faults": []}, name, 1)


# ---- the examples and the guide ----

DOCS = Path(__file__).resolve().parents[2] / "docs"
EXAMPLES = sorted((DOCS / "simulator").glob("*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(path: Path) -> None:
    """For five simulated milliseconds at most, which is the whole of most."""
    scenario = replace(ds.Scenario.load(path), until_s=5e-3)
    result = scenario.run()
    assert result.ports.bytes_sent.sum() > 0
    assert read(scenario.to_toml()) == scenario


def test_the_guides_files_are_a_graph_and_a_scenario(tmp_path: Path) -> None:
    graph, text = re.findall(
        r"^```toml\n(.*?)^```", (DOCS / "simulator.md").read_text(), re.DOTALL | re.MULTILINE
    )
    (tmp_path / "graph.toml").write_text(graph, encoding="utf-8")
    assert ds.GraphFile(tmp_path / "graph.toml").hosts == 2
    assert read(text).run().flows.finished.all()


def test_the_guide_names_every_kind_there_is() -> None:
    text = (DOCS / "simulator.md").read_text()
    kinds = [*toml.FABRICS, *TRANSPORTS, *(kind for kind in WORKLOADS if kind != "together")]
    assert [kind for kind in kinds if f"| `{kind}` |" not in text] == []
