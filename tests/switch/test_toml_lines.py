"""The line of every key of a TOML text, whatever way it is written."""

from __future__ import annotations

from dlcp.switch.toml_lines import toml_lines


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
