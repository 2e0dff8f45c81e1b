"""What the renderers refuse or report: each field of a policy that a system cannot carry out, by path and line."""

from __future__ import annotations

import dataclasses
import re

import pytest

from dlcp.switch import Policy, Thresholds, TrafficClass
from dlcp.switch.render import RENDERERS, RenderError, Weight, render, sonic
from dlcp.switch.render.base import renderer
from dlcp.switch.render.caveat import Caveat, sentences
from dlcp.switch.render.check import check
from dlcp.switch.toml_lines import toml_lines
from tests.support import render_golden as golden

HEAD = 'name = "p"\n'
TRIM = """\
[[class]]
number = 3
dscp = [24]
droppable = {trim_above_bytes = 9000}

[[class]]
number = 7
dscp = [56]
"""


def said(text: str, system: str) -> list[str]:
    """The caveats of a policy that is no error."""
    done = render(Policy.from_toml(text), system, [golden.PORTS[system][0]], source=text)
    return list(done.complaints())


# ---- errors: the opposite of what is asked ----


def test_trimming_that_would_take_critical_packets_is_refused() -> None:
    text = HEAD + TRIM
    with pytest.raises(
        RenderError,
        match=r"^SONiC: line 5: class\[0\].droppable\[0\].trim_above_bytes: droppable packets are trimmed and critical "
        r"ones never; SONiC would trim critical ones as well",
    ) as error:
        render(Policy.from_toml(text), "sonic", ["Ethernet0"], source=text)
    assert [f.weight for f in error.value.caveats] == [Weight.ERROR]


def test_marks_that_would_drop_before_trimming_are_refused() -> None:
    text = HEAD + TRIM.replace(
        "droppable =", "critical = {mark_from_bytes = 5, trim_above_bytes = 9000}\ndroppable ="
    )
    with pytest.raises(
        RenderError, match="drops what is not ECN-capable where it marks, before it could be trimmed"
    ):
        render(Policy.from_toml(text), "sonic", ["Ethernet0"])
    assert "red_enable = true" in render(Policy.from_toml(text), "cumulus", ["swp1"]).text


def test_trimmed_class_without_dscp_is_refused() -> None:
    text = HEAD + TRIM.replace("droppable =", "critical = {trim_above_bytes = 9000}\ndroppable =")
    assert "trim" in render(Policy.from_toml(text), "sonic", ["Ethernet0"]).text
    text = HEAD + "trimmed_class = 5\n" + text[len(HEAD) :]
    with pytest.raises(RenderError, match="line 2: trimmed_class: .* that class has no DSCP value"):
        render(Policy.from_toml(text), "sonic", ["Ethernet0"], source=text)


def test_queue_that_a_switch_has_not_is_refused() -> None:
    four = dataclasses.replace(sonic.SYSTEM, queues=4)
    policy = Policy(classes=(TrafficClass(3, dscp=(1,)), TrafficClass(4, dscp=(2,))))
    errors = [f for f in check(policy, four, ["Ethernet0"]) if f.weight is Weight.ERROR]
    assert [(f.field, f.instead) for f in errors] == [("class[1].number", "SONiC has queues 0 to 3")]


@pytest.mark.parametrize(("system", "most"), [("tc", 2**30 - 2), ("eos", 256_000_000)])
def test_threshold_beyond_what_is_taken_is_refused(system: str, most: int) -> None:
    def policy(depth: int) -> Policy:
        return Policy(classes=(TrafficClass(3, dscp=(1,), droppable=(Thresholds(drop_above_bytes=depth),)),))

    port = golden.PORTS[system][0]
    assert str(most) in render(policy(most), system, [port]).text
    with pytest.raises(
        RenderError, match=rf"class\[0\].droppable: a threshold of {most + 1}; it takes {most} at most"
    ):
        render(policy(most + 1), system, [port])


@pytest.mark.parametrize(
    ("system", "name"),
    [
        (system, name)
        for system in RENDERERS
        for name in (
            "",
            "Ethernet",
            "swp",
            "a port",
            "eth0; reboot",
            "$(reboot)",
            "Ethernet0\nx",
            "x" * 16,
            "-x",
            "~",
            "[a]",
            "!",
            "{a,b}",
        )
        if not (system == "tc" and name.isalpha() and len(name) < 16)  # Linux interfaces may be called so
    ],
)
def test_port_that_the_system_has_not_is_refused(system: str, name: str) -> None:
    with pytest.raises(RenderError, match="a port called .*; .* refuses it: its ports have names like"):
        render(Policy(), system, [name])


def test_port_of_another_system_is_refused_by_its_line() -> None:
    text = golden.source("simple", "nxos")
    line = text.splitlines().index('name = "Ethernet1/1"') + 1
    with pytest.raises(
        RenderError, match=rf"SONiC: line {line}: port\[0\].name: .*'Ethernet1/1'.*Ethernet0 .and 1 more"
    ):
        render(Policy.from_toml(text), "sonic", source=text)


def test_ports_are_wanted_where_a_language_names_them() -> None:
    for system in set(RENDERERS) - {"nvue"}:
        with pytest.raises(RenderError, match="wants ports by name"):
            render(Policy(), system)
    assert "default-global" in render(Policy(), "nvue").text


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("sonics", "did you mean sonic?"),
        ("NXOS", "did you mean nxos?"),
        ("junos", "accepted: tc,"),
        ("zzz", "accepted: tc, sonic, cumulus, nvue, eos, nxos"),
    ],
)
def test_unknown_system_is_named_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(RenderError, match=f"no operating system '{name}'; {re.escape(hint)}"):
        renderer(name)


# ---- caveats: less than is asked, or something else ----


CAVEATS: list[tuple[str, str, str]] = [
    ("port_bytes = 9000\n", "port_bytes: a port holds 9000 bytes", "tc sonic cumulus nvue eos nxos"),
    ("shared_bytes = 9000\n", r"shared_bytes: a queue may grow to 2\^0", "tc eos nxos"),
    (
        "shared_bytes = 9000\nshared_alpha_log2 = 9\n",
        "shared_alpha_log2: .* is the nearest that can be set",
        "sonic cumulus nvue",
    ),
    (
        "pause_above_bytes = 9000\n",
        "pause_above_bytes: .* nothing is paused",
        "tc sonic cumulus nvue eos nxos",
    ),
    (
        'path_choice = "round_robin"\n[path_groups]\nup = ["a"]\n',
        "path_choice: each packet takes a next hop of its own",
        "tc sonic cumulus nvue eos nxos",
    ),
    (
        "foreign_class = 3\n[[class]]\nnumber = 3\ndscp = [24]\ndroppable = {drop_above_bytes = 9000}\n",
        "foreign_class: foreign traffic is left alone",
        "tc sonic cumulus nvue eos nxos",
    ),
    (
        "[[class]]\nnumber = 3\ndscp = [0]\ndroppable = {drop_above_bytes = 9000}\n",
        r"class\[0\].dscp: DSCP 0 belongs to this class; all best-effort traffic",
        "tc sonic cumulus nvue eos nxos",
    ),
    (
        "[[class]]\nnumber = 3\ndscp = [56, 48]\ndroppable = {drop_above_bytes = 9000}\n",
        r"class\[0\].dscp: DSCP 48 and 56 in a class that drops; .* dropped above 9000 bytes",
        "tc sonic cumulus nvue eos nxos",
    ),
    (
        '[path_groups]\nup = ["a", "b"]\n',
        "path_groups.up: equal next hops by 'a', 'b'; not among the ports given",
        "tc sonic cumulus nvue eos nxos",
    ),
    (
        "[[class]]\nnumber = 3\n[[port]]\nname = 'a'\nrate_bps = 9\n[[port.class]]\nnumber = 3\n",
        r"port\[0\]: 'a' has thresholds( and a rate)? of its own; not rendered: it is not among the ports given",
        "tc sonic cumulus nvue eos nxos",
    ),
    (
        "[[port]]\nname = 'a'\nrate_bps = 9\n",  # a shaper is usual there alone
        r"port\[0\]: 'a' has a rate of its own; not rendered",
        "tc",
    ),
    (
        "[[class]]\nnumber = 3\ndscp = [1]\ndroppable = {drop_above_bytes = 9000}\n",
        r"class\[0\].critical: critical packets are never marked; they are marked above 9000",
        "tc sonic cumulus nvue eos nxos",
    ),
    (
        "[[class]]\nnumber = 3\ncritical = {mark_from_bytes = 5000}\ndroppable = {drop_above_bytes = 9000}\n",
        r"class\[0\].critical.mark_from_bytes: .* all are from 9000, .* a mark too late costs less",
        "sonic cumulus nvue eos nxos",
    ),
    (
        "[[class]]\nnumber = 3\ncritical = {mark_from_bytes = 50000}\ndroppable = {drop_above_bytes = 9000}\n",
        r"class\[0\].critical.mark_from_bytes: critical packets are marked from 50000; all are from 9000",
        "tc sonic cumulus nvue eos nxos",
    ),
    (
        "[[class]]\nnumber = 3\ncritical = {mark_from_bytes = 1, mark_full_bytes = 9, mark_ratio = 0.125}\n",
        r"class\[0\].critical.mark_ratio: a ratio of 0.125; 12 per cent",
        "sonic cumulus nvue eos nxos",
    ),
    (
        "[[class]]\nnumber = 3\ncritical = {drop_above_bytes = 9000}\n",
        r"class\[0\].critical.drop_above_bytes: .* they are kept as long as the buffer lasts",
        "sonic cumulus nvue eos nxos",
    ),
    (
        "[[class]]\nnumber = 3\ncritical = {drop_above_bytes = 9000}\n",
        r"class\[0\].critical.drop_above_bytes: .* droppable ones never; everything is",
        "tc",
    ),
    (
        "[[class]]\nnumber = 3\ncritical = {trim_above_bytes = 9000}\n",
        r"class\[0\].critical.trim_above_bytes: .* they are kept, whole",
        "tc cumulus nvue eos nxos",
    ),
    (
        "trimmed_run_packets = 10\n" + TRIM,
        "trimmed_run_packets: after 10 trimmed packets",
        "tc cumulus nvue eos nxos",
    ),
    (
        "[[class]]\nnumber = 3\ndroppable = {drop_above_bytes = 0}\n",
        r"class\[0\].droppable: a threshold of 0; 1 is the least",
        "tc cumulus nvue eos nxos",
    ),
]


@pytest.mark.parametrize(("text", "complaint", "systems"), CAVEATS, ids=lambda value: str(value)[:24])
def test_caveat_is_said_where_it_applies_and_nowhere_else(text: str, complaint: str, systems: str) -> None:
    policy = Policy.from_toml(HEAD + text)
    for system in RENDERERS:
        port = golden.PORTS[system][0]
        try:
            done = render(policy, system, [port], source=HEAD + text)
        except RenderError:
            assert (system, "trim" in text) == ("sonic", True)  # tested above
            continue
        found = [said for said in done.complaints() if re.search(complaint, said)]
        assert bool(found) == (system in systems.split()), (system, found, list(done.complaints()))
        if found:
            assert found[0].startswith("caveat: line "), found
            with pytest.raises(RenderError):
                render(policy, system, [port], strict=True)


def test_field_that_is_not_written_down_has_the_line_around_it() -> None:
    text = HEAD + TRIM
    assert any(
        complaint.startswith("caveat: line 5: class[0].droppable[0].trim_above_bytes: ")
        for complaint in said(text, "nxos")
    )
    # Written as one table for all levels, so level 0 has no line of its own.
    assert "class[0].droppable[0]" not in toml_lines(text)


def test_what_several_classes_have_in_common_is_said_once() -> None:
    levels = "droppable = {drop_above_bytes = 9000}\n"
    text = HEAD + "".join(f"[[class]]\nnumber = {n}\n{levels}" for n in (1, 2, 3))
    assert [sentence for sentence in said(text, "tc") if "never marked" in sentence] == [
        "caveat: line 2: class[0].critical: critical packets are never marked; they are marked above 9000, where "
        "others are dropped: that is what keeps them (also class[1–2])"
    ]


def test_places_alike_are_listed_by_runs() -> None:
    fields = [f"class[{n}].critical" for n in (0, 1, 2, 4, 5)] + [
        f"port[1].class[{n}].critical" for n in (0, 1)
    ]
    findings = [Caveat(Weight.CAVEAT, field, "a", "b") for field in (*fields, "path_choice", fields[0])]
    assert sentences(findings) == [
        "class[0].critical: a; b (also class[1–2, 4–5], port[1].class[0–1], path_choice)"
    ]
