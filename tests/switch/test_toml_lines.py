"""The line of every key of a TOML text, whatever way it is written."""

from __future__ import annotations

from dlcp.switch import Policy
from dlcp.switch.render import Weight, render
from dlcp.switch.render.caveat import Caveat, sentences
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


def test_lines_of_every_way_to_write_a_field() -> None:
    lines = toml_lines(
        """\
# a comment with [brackets] and "quotes
name = "a # b [c] = {"
path_groups.up = ["x",
  "y"]

[[class]] # one
number = 1
critical.mark_from_bytes = 5
droppable = [
  {drop_above_bytes = 1}, # {
  {trim_above_bytes = 1, drop_above_bytes = 2},
]

[[ class ]]
"number" = 2
note = '''
droppable = no
'''
[class.critical]
mark_from_bytes = 6

[[port]]
name = "x"
[[port.class]]
number = 1
[[port]]
[[port.class]]
[[port.class]]
critical = {mark_from_bytes = 1, drop_above_bytes = 2}
"""
    )
    assert lines["name"] == 2
    assert lines["path_groups.up"] == 3
    assert lines["path_groups.up[1]"] == 4
    assert lines["class[0]"] == 6
    assert lines["class[0].critical.mark_from_bytes"] == 8
    assert lines["class[0].droppable"] == 9
    assert lines["class[0].droppable[1].drop_above_bytes"] == 11
    assert lines["class[1].number"] == 15
    assert lines["class[1].critical.mark_from_bytes"] == 20
    assert "class[1].droppable" not in lines
    assert lines["port[0].class[0].number"] == 25
    assert lines["port[1].class[1].critical.drop_above_bytes"] == 29


def test_thresholds_in_common_have_the_lines_where_they_are_written() -> None:
    lines = toml_lines(
        """\
[thresholds.data]
critical = {mark_from_bytes = 5}
[[class]]
number = 1
thresholds = "data"
critical = {drop_above_bytes = 9}
[[port]]
[[port.class]]
thresholds = "data"
"""
    )
    assert lines["class[0].critical"] == 6
    assert lines["class[0].critical.drop_above_bytes"] == 6
    assert lines["port[0].class[0].critical.mark_from_bytes"] == 2


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
