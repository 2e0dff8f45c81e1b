"""The renderers: golden files, and what holds of any policy in any language."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcp.switch import Policy, Port, Thresholds, TrafficClass
from dlcp.switch.policy import MAX_BYTES
from dlcp.switch.render import RENDERERS, RenderError, Weight, render
from tests.support import render_golden as golden
from tests.support.render_policies import policies

SYSTEMS = tuple(RENDERERS)


def test_golden_files_are_what_is_rendered() -> None:
    files = dict(golden.files())
    there = {file.name for file in golden.DIRECTORY.iterdir() if file.suffix != ".toml"}
    assert there == set(files), "run `python -m tests.support.render_golden`"
    for name, text in files.items():
        assert (golden.DIRECTORY / name).read_text(encoding="utf-8") == text, (
            f"{name}: if it is meant, run `python -m tests.support.render_golden`"
        )


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("policy", golden.POLICIES)
def test_caveats_have_lines_that_hold_their_field(policy: str, system: str) -> None:
    done = golden.rendered(policy, system)
    lines = golden.source(policy, system).splitlines()
    for caveat in done.caveats:
        if caveat.weight is Weight.CAVEAT and caveat.field:
            number = re.match(r"line (\d+): ", caveat.text(done.lines))
            assert number is not None, caveat
            # The innermost thing of the field that is written down: a key of its name, or its level's table.
            line = lines[int(number.group(1)) - 1]
            parts = [*re.findall(r"[a-z_]+", caveat.field), "drop_above_bytes"]
            assert any(part in line for part in parts), (caveat.field, line)


@pytest.mark.parametrize("system", SYSTEMS)
@settings(max_examples=60)
@given(data=st.data())
def test_any_policy_is_rendered_the_same_twice_or_refused_by_name(system: str, data: st.DataObject) -> None:
    policy = data.draw(policies(system))
    try:
        first = render(policy, system)
    except RenderError as error:
        refusal = str(error)
        with pytest.raises(RenderError, match=re.escape(refusal)):
            render(policy, system)
        return
    again = render(Policy.from_toml(policy.to_toml()), system)
    assert (first.text, first.notes) == (again.text, again.notes)
    assert first.text.endswith("\n")
    if not any(f.weight is Weight.CAVEAT for f in first.caveats):
        assert render(policy, system, strict=True).text == first.text


# ---- thresholds ----

_THRESHOLDS = {
    "sonic": r'"(?:green|yellow|red)_(?:min|max)_threshold": "(\d+)"|"static_th": "(\d+)"',
    "cumulus": r"_threshold_bytes = (\d+)",
    "nvue": r"-threshold (\d+)",
    "eos": r"-threshold (\d+) bytes",
    "nxos": r"-threshold (\d+) bytes",
}


def written(system: str, text: str) -> Iterator[int]:
    """Thresholds in a rendered text, as depths in the policy's sense."""
    lines = [line for line in text.splitlines() if not line.startswith(("#", "!"))]
    if system == "tc":
        for line in lines:
            if found := re.search(r" red limit (\d+) min (\d+) max (\d+) ", line):
                _, low, high = map(int, found.groups())
                yield low
                # RED acts from max on, the policy above its threshold; a step is one byte wide.
                yield low if high == low + 1 else high
        return
    for line in lines:
        for groups in re.findall(_THRESHOLDS[system], line):
            depths = [int(g) for g in ([groups] if isinstance(groups, str) else groups) if g]
            # Of a buffer: no limit of the queue's own (test_sonic.py).
            yield from (depth for depth in depths if depth != MAX_BYTES)


def depths_of(policy: Policy) -> set[int]:
    """Every threshold in a policy; 1 besides if one is 0, which no queue tells from it."""
    found = set()
    for traffic_class in (*policy.classes, *(c for p in policy.ports for c in p.classes)):
        for level in range(9):
            at = traffic_class.level(level)
            found |= {at.mark_from_bytes, at.mark_full_bytes, at.trim_above_bytes, at.drop_above_bytes}
    depths = {depth for depth in found if depth is not None}
    return depths | ({1} if 0 in depths else set())


@pytest.mark.parametrize("system", SYSTEMS)
@settings(max_examples=60)
@given(data=st.data())
def test_every_threshold_comes_from_the_policy(system: str, data: st.DataObject) -> None:
    policy = data.draw(policies(system))
    try:
        done = render(policy, system)
    except RenderError:
        return
    assert set(written(system, done.text)) <= depths_of(policy)


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_threshold_of_a_golden_policy_that_is_rendered_is_found_again(system: str) -> None:
    # So that the property above does not hold for want of thresholds in the text.
    done = golden.rendered("simple", system)
    assert set(written(system, done.text)) >= {300_000, 50_000, 500_000}


# ---- what a language must say ----


def two_levels() -> Policy:
    levels = tuple(Thresholds(drop_above_bytes=10_000 * (i + 1)) for i in range(8))
    return Policy("p", (TrafficClass(3, dscp=(24,), critical=Thresholds(40_000), droppable=levels),))


@pytest.mark.parametrize("system", SYSTEMS)
def test_levels_become_the_most_important_ones(system: str) -> None:
    done = render(two_levels(), system, [golden.PORTS[system][0]])
    assert 80_000 in set(written(system, done.text))
    assert 10_000 not in set(written(system, done.text))
    assert any("by importance" in complaint and "80000" in complaint for complaint in done.complaints())


@pytest.mark.parametrize(
    ("system", "line"),
    [
        ("tc", r"red .* ecn$"),
        ("sonic", r'"wred_green_enable": "true"'),
        ("cumulus", r"\.red_enable = true"),
        ("nvue", r"traffic-class 3 red enable"),
        ("eos", r"random-detect ecn .* weight 0"),
        ("nxos", r"random-detect .* weight 0 ecn$"),
    ],
)
def test_dropping_mode_is_said_and_no_default_relied_on(system: str, line: str) -> None:
    policy = Policy(classes=(TrafficClass(3, dscp=(24,), droppable=(Thresholds(drop_above_bytes=9_000),)),))
    text = render(policy, system, [golden.PORTS[system][0]]).text
    assert re.search(line, text, re.MULTILINE)
    body = "\n".join(row for row in text.splitlines() if not row.startswith(("#", "!")))
    assert "nodrop" not in body
    assert "harddrop" not in body
    assert "random-detect drop" not in body


@pytest.mark.parametrize("system", ["tc", "cumulus", "nvue"])
def test_marks_without_drops_keep_what_is_not_ecn_capable(system: str) -> None:
    policy = Policy(classes=(TrafficClass(3, dscp=(24,), critical=Thresholds(9_000)),))
    text = render(policy, system, [golden.PORTS[system][0]], strict=True).text
    wanted = {"tc": "ecn nodrop", "cumulus": "red_enable = false", "nvue": "traffic-class 3 red disable"}
    assert wanted[system] in text


@pytest.mark.parametrize("system", ["sonic", "eos", "nxos"])
def test_marks_without_drops_are_a_caveat_where_a_mark_is_a_drop(system: str) -> None:
    policy = Policy(classes=(TrafficClass(3, dscp=(24,), critical=Thresholds(9_000)),))
    with pytest.raises(RenderError, match=r"class\[0\].critical.mark_from_bytes: .* kept; what is not ECN"):
        render(policy, system, [golden.PORTS[system][0]], strict=True)


def test_pause_is_switched_off_where_vendors_have_it_on() -> None:
    policy = Policy(classes=(TrafficClass(3, dscp=(24,)),))
    assert '"pfc_enable": ""' in render(policy, "sonic", ["Ethernet0"]).text
    assert "priority-flow-control mode off" in render(policy, "nxos", ["Ethernet1/1"]).text
    assert "no priority-flow-control" in render(policy, "eos", ["Ethernet1"]).text
    paused = Policy(classes=policy.classes, pause_above_bytes=100_000)
    assert "pfc_enable" not in render(paused, "sonic", ["Ethernet0"]).text


def test_cumulus_default_profile_marks_nobody() -> None:
    # As it is delivered, it marks queue 0 of every port (NVIDIA's manual, Explicit Congestion Notification).
    for policy in (Policy(), two_levels()):
        lines = render(policy, "cumulus", ["swp1"]).text.splitlines()
        assert "default_ecn_red_conf.ecn_enable = false" in lines
        assert "default_ecn_red_conf.red_enable = false" in lines


def test_trimmed_packets_get_the_first_dscp_of_their_class_and_keep_their_header() -> None:
    # The first in the policy's order, as the program and the software switch write it.
    levels = Thresholds(trim_above_bytes=9_000, drop_above_bytes=20_000)
    policy = Policy(
        classes=(
            TrafficClass(3, dscp=(24,), critical=Thresholds(trim_above_bytes=9_000), droppable=(levels,)),
            TrafficClass(7, dscp=(58, 56)),
        ),
        trimmed_bytes=126,
    )
    assert '"dscp_value": "58"' in render(policy, "sonic", ["Ethernet0"]).text
    for left, told in ((126, False), (125, True)):
        done = render(dataclasses.replace(policy, trimmed_bytes=left), "sonic", ["Ethernet0"])
        assert any("trimmed_bytes" in sentence for sentence in done.complaints()) is told


def test_shaper_is_the_ports_rate() -> None:
    for system, line in [
        ("sonic", '"pir": "1250000000"'),
        ("cumulus", ".port.shaper = 10000000"),
        ("nvue", "port-max-rate 10000000"),
        ("eos", "shape rate 10000000 kbps"),
        ("tc", "htb rate 10000000000bit"),
    ]:
        port = golden.PORTS[system][0]
        policy = Policy(ports=(Port(port, 10**10),))
        assert line in render(policy, system, shape=True).text
        assert line not in render(policy, system, shape=False).text


def test_trimming_is_rendered_where_it_exists() -> None:
    text = golden.rendered("trimming", "sonic").text
    assert '"packet_discard_action": "trim"' in text
    assert '"dscp_value": "56"' in text
    assert '"dynamic_th": "-2"' in text
