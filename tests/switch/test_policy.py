"""The policy object: TOML in and out, and mistakes named with their field, value and accepted range."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcp.errors import DlcpError
from dlcp.switch import Policy, PolicyError, Port, Thresholds, TrafficClass
from dlcp.switch.policy import importance_levels
from dlcp.switch.policy_file import PolicyFile
from dlcp.switch.port_names import PortNameError, PortNames
from dlcp.switch.toml_lines import toml_lines
from tests.support import vectors
from tests.vectors import switch as golden

TEXT = """\
name = "training"
path_choice = "random"
port_bytes = 200000

[path_groups]
up = ["Ethernet0", "Ethernet4"]

[[class]]
number = 3
name = "front layers"
dscp = [24, 26]
critical = {mark_from_bytes = 60000, drop_above_bytes = 180000}
droppable = {drop_above_bytes = 30000}

[[class]]
number = 7
dscp = [56]

[[port]]
name = "Ethernet0"
rate_bps = 100000000000

[[port]]
name = "Ethernet4"
rate_bps = 400000000000

[[port.class]]
number = 3
critical = {mark_from_bytes = 240000}
"""


def test_toml_is_read() -> None:
    policy = Policy.from_toml(TEXT)
    assert policy.port_bytes == 200_000
    assert policy.class_of_dscp() == {24: 3, 26: 3, 56: 7}
    assert policy.traffic_class(3).critical.mark_full == 60_000
    assert (
        policy.traffic_class(3).level(0)
        == policy.traffic_class(3).level(7)
        == Thresholds(drop_above_bytes=30_000)
    )
    assert policy.traffic_class(3).level(8) == Thresholds(60_000, drop_above_bytes=180_000)
    assert policy.traffic_class(3, "Ethernet0").critical.mark_from_bytes == 60_000
    assert policy.traffic_class(3, "Ethernet4").critical.mark_from_bytes == 240_000
    assert policy.traffic_class(5) == TrafficClass(5)
    assert policy.path_groups == {"up": ("Ethernet0", "Ethernet4")}
    assert policy.to_toml() == TEXT


@pytest.mark.parametrize("policy", golden.POLICIES, ids=lambda policy: policy.name)
def test_golden_policy_survives_toml(policy: Policy, tmp_path: Path) -> None:
    policy.save(tmp_path / "policy.toml")
    assert Policy.load(tmp_path / "policy.toml") == policy


limits = st.none() | st.integers(0, 2**32 - 2)


@st.composite
def thresholds(draw: st.DrawFn) -> Thresholds:
    drop = draw(limits)
    most = 2**32 - 2 if drop is None else drop
    mark_from = draw(st.none() | st.integers(0, most))
    mark_full = None if mark_from is None else draw(st.none() | st.integers(mark_from, 2**32 - 2))
    return Thresholds(
        mark_from, mark_full, draw(st.floats(0, 1)), draw(st.none() | st.integers(0, most)), drop
    )


@st.composite
def levels(draw: st.DrawFn) -> tuple[Thresholds, ...]:
    """One for all, any eight in order, or equal steps of importance."""
    count = draw(st.sampled_from((1, 8, 2)))
    ends = sorted(draw(st.lists(st.integers(0, 2**32 - 2), min_size=count, max_size=count)))
    fate = draw(st.sampled_from(("drop_above_bytes", "trim_above_bytes")))
    if count == 2:
        return importance_levels(fate, *ends)
    return tuple(Thresholds(**{fate: end}) for end in ends)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    dscp = draw(st.permutations(range(64)))
    numbers = draw(st.lists(st.integers(0, 7), unique=True))
    # A few, so that classes have some in common.
    some = draw(st.lists(st.tuples(thresholds(), levels()), min_size=1, max_size=2))
    classes = tuple(
        TrafficClass(
            number,
            draw(st.text()),
            tuple(dscp[8 * i : 8 * i + draw(st.integers(0, 8))]),
            *draw(st.sampled_from(some)),
        )
        for i, number in enumerate(numbers)
    )
    names = draw(st.lists(st.text(min_size=1), unique=True, max_size=3))
    ports = tuple(Port(name, draw(st.integers(1, 10**13))) for name in names)
    groups = {"a group": tuple(names)} if names else {}
    return Policy(
        draw(st.text()), classes, ports=ports, path_groups=groups, port_bytes=draw(st.none() | st.just(9))
    )


@given(policies())
def test_any_policy_survives_toml(policy: Policy) -> None:
    assert Policy.from_toml(policy.to_toml()) == policy


SHORT = """\
name = "short"

[thresholds.data]
critical = {mark_from_bytes = 64000, drop_above_bytes = 112000}
droppable = {drop_from_bytes = 32000, drop_to_bytes = 64000}

[[class]]
number = 1
dscp = [8]
thresholds = "data"

[[class]]
number = 2
dscp = [16]
thresholds = "data"
"""


def test_thresholds_are_said_once_for_several_classes() -> None:
    policy = Policy.from_toml(SHORT)
    assert policy.to_toml() == SHORT
    for number in (1, 2):
        of_class = policy.traffic_class(number)
        assert of_class.critical == Thresholds(64_000, drop_above_bytes=112_000)
        dropped_above = [of_class.level(i).drop_above_bytes for i in range(8)]
        assert dropped_above == [32_000, 36_571, 41_143, 45_714, 50_286, 54_857, 59_429, 64_000]


def test_a_class_may_say_otherwise() -> None:
    policy = Policy.from_toml(SHORT + "critical = {mark_from_bytes = 9}\n")
    assert policy.traffic_class(2).critical == Thresholds(9)
    assert policy.traffic_class(2).droppable == policy.traffic_class(1).droppable


def with_line(line: str) -> Callable[[], object]:
    return lambda: Policy.from_toml(line)


def with_class(**values: object) -> Callable[[], object]:
    return lambda: Policy(classes=(TrafficClass(**({"number": 0} | values)),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (with_line("colour = 3"), "colour is unknown; accepted: class, foreign_class, name, path_choice"),
        (
            with_line(SHORT.replace('"data"', '"date"', 1)),
            r"class\[0\].thresholds is 'date'; accepted: a name under \[thresholds\]: data",
        ),
        (with_line(SHORT.replace("critical", "critcal")), "thresholds.data.critcal is unknown"),
        (
            with_line(SHORT.replace("drop_to_bytes = 64000", "mark_from_bytes = 5")),
            "thresholds.data.droppable.drop_to_bytes is missing; accepted: both of drop_from_bytes and drop_to_bytes",
        ),
        (
            with_line(SHORT.replace("= 64000}", "= 31999}")),
            "thresholds.data.droppable.drop_to_bytes is 31999; accepted: at least drop_from_bytes, 32000$",
        ),
        (
            with_line(SHORT.replace("= 64000}", "= 64000, drop_above_bytes = 5}")),
            "thresholds.data.droppable.drop_above_bytes is 5; accepted: none, when drop_from_bytes",
        ),
        (
            with_line(SHORT.replace("drop_to_bytes", "drop_too_bytes")),
            "thresholds.data.droppable.drop_too_bytes is unknown; accepted: .*drop_from_bytes, drop_to_bytes",
        ),
        (
            with_line(SHORT.replace("= 64000}", "= 64000, trim_from_bytes = 5, trim_to_bytes = 9}")),
            "droppable.trim_from_bytes is 5; accepted: none, when drop_from_bytes and drop_to_bytes are set",
        ),
        (
            with_line(SHORT.replace("= 112000", "= 63999")),
            "^thresholds.data.critical.mark_from_bytes is 64000; accepted: at most drop_above_bytes, 63999",
        ),
        (with_line("port_bytes ="), "not TOML"),
        (with_line("port_bytes = " + "9" * 5000), "not TOML that can be read"),
        (with_line("port_bytes = " + "[" * 20_000), "not TOML that can be read"),
        (with_line("port_bytes = 0"), "port_bytes is 0; accepted: an integer from 1 to 4294967294"),
        (with_line("port_bytes = 1.5"), "port_bytes is 1.5; accepted: an integer"),
        (with_line("port_bytes = true"), "port_bytes is True; accepted: an integer"),
        (
            with_line("port_bytes = 9\nshared_bytes = 9"),
            "shared_bytes is 9; accepted: none, when port_bytes is set",
        ),
        (
            with_line("shared_alpha_log2 = -11"),
            "shared_alpha_log2 is -11; accepted: an integer from -10 to 10",
        ),
        (with_line('path_choice = "ecmp"'), "path_choice is 'ecmp'; accepted: flow_hash, path_id, random"),
        (with_line("trimmed_bytes = 19"), "trimmed_bytes is 19; accepted: an integer from 20 to 65535"),
        (with_line("trimmed_class = 8"), "trimmed_class is 8; accepted: an integer from 0 to 7"),
        (
            with_line("pause_above_bytes = 5\nresume_below_bytes = 6"),
            "resume_below_bytes is 6; accepted: .* 0 to 5",
        ),
        (with_line("name = 3"), "name is 3; accepted: a text"),
        (with_line("class = 3"), r"class is 3; accepted: tables, each headed \[\[class\]\]"),
        (with_line("[class]\nnumber = 1"), r"class is .*; accepted: tables, each headed \[\[class\]\]"),
        (
            with_line("[[port]]\nname = 'x'\nrate_bps = 1\n[port.class]\nnumber = 1"),
            r"port\[0\].class is .*; accepted: tables, each headed \[\[port.class\]\]",
        ),
        (with_line("class = [3]"), r"class\[0\] is 3; accepted: a table"),
        (with_line("[[class]]\nname = 'x'"), r"class\[0\].number is missing"),
        (
            with_line("[[class]]\nnumber = 0\ndepth = 3"),
            r"class\[0\].depth is unknown; accepted: critical, droppable",
        ),
        (with_line("[[class]]\nnumber = 0\ncritical = 3"), r"class\[0\].critical is 3; accepted: a table"),
        (with_line("[[class]]\nnumber = 0\ncritical = {x = 1}"), r"class\[0\].critical.x is unknown"),
        (with_line("[[class]]\nnumber = 0\ndscp = 3"), r"class\[0\].dscp is 3; accepted: a list"),
        (
            with_line("[[class]]\nnumber = 0\ndscp = ['AF11']"),
            r"class\[0\].dscp is 'AF11'; accepted: an integer",
        ),
        (with_line("[[port]]\nname = 'x'"), r"port\[0\].rate_bps is missing; accepted: bits per second"),
        (
            with_line("[[port]]\nname = 'x'\nrate_bps = 0"),
            r"port\[0\].rate_bps is 0; accepted: an integer from 1",
        ),
        (with_line("[path_groups]\nup = 3"), "path_groups.up is 3; accepted: a list of names"),
        (with_line("[path_groups]\nup = []"), r"path_groups.up is \[\]; accepted: at least one port"),
        (with_class(number=8), r"class\[0\].number is 8; accepted: an integer from 0 to 7"),
        (with_class(dscp=(64,)), r"class\[0\].dscp is 64; accepted: an integer from 0 to 63"),
        (with_class(dscp=(5, 5)), r"class\[0\].dscp is 5; accepted: a value that no other class has"),
        (
            with_class(critical=Thresholds(mark_full_bytes=5)),
            "critical.mark_full_bytes is 5; accepted: none, unless",
        ),
        (
            with_class(critical=Thresholds(6, 5)),
            "critical.mark_full_bytes is 5; accepted: at least mark_from_bytes, 6",
        ),
        (with_class(critical=Thresholds(6, mark_ratio=1.5)), "critical.mark_ratio is 1.5; accepted: 0 to 1"),
        (
            with_class(critical=Thresholds(6, mark_ratio=float("nan"))),
            "critical.mark_ratio is nan; accepted: 0 to 1",
        ),
        (
            with_class(critical=Thresholds(6, drop_above_bytes=5)),
            "critical.mark_from_bytes is 6; accepted: at most drop_above_bytes, 5",
        ),
        (
            with_class(droppable=(Thresholds(trim_above_bytes=6, drop_above_bytes=5),)),
            r"droppable\[0\].trim_above_bytes is 6; accepted: at most drop_above_bytes, 5",
        ),
        (with_class(droppable=(Thresholds(), Thresholds())), "droppable is 2; accepted: 1 or 8 sets"),
        (
            with_class(droppable=tuple(Thresholds(drop_above_bytes=80 - i) for i in range(8))),
            r"droppable\[1\].drop_above_bytes is 79; accepted: at least that of droppable\[0\], 80",
        ),
        (
            lambda: Policy(classes=(TrafficClass(1, dscp=(9,)), TrafficClass(2, dscp=(9,)))),
            r"class\[1\].dscp is 9; accepted: a value that no other class has; class 1 has it",
        ),
        (
            lambda: Policy(classes=(TrafficClass(1), TrafficClass(1))),
            r"class\[1\].number is 1; accepted: a number",
        ),
        (
            lambda: Policy(ports=(Port("a", 1), Port("a", 1))),
            r"port\[1\].name is 'a'; accepted: a name that no other",
        ),
        (
            lambda: Policy(ports=(Port("a", 1, (TrafficClass(1),)),)),
            r"port\[0\].class\[0\].number is 1; accepted: a class of the policy: there is none",
        ),
        (
            lambda: Policy(classes=(TrafficClass(1),), ports=(Port("a", 1, (TrafficClass(1),) * 2),)),
            r"port\[0\].class\[1\].number is 1; accepted: a number that no other class of the port has",
        ),
        (
            lambda: Policy(classes=(TrafficClass(1),), ports=(Port("a", 1, (TrafficClass(1, dscp=(3,)),)),)),
            r"port\[0\].class\[0\].dscp is \[3\]; accepted: none: who is in a class is the same at all ports",
        ),
        (
            lambda: Policy(ports=(Port("a", 1),), path_groups={"up": ("b",)}),
            r"path_groups.up is 'b'; accepted: a port of the policy: a$",
        ),
        (
            lambda: Policy(path_groups={"up": ("a", "b"), "down": ("b", "c")}),
            "path_groups.down is 'b'; accepted: a port of no other group, and once; up has it",
        ),
        (
            lambda: Policy(path_groups={"up": ("a", "a")}),
            "path_groups.up is 'a'; accepted: a port of no other group, and once; up has it",
        ),
    ],
)
def test_mistake_is_named(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(PolicyError, match=complaint) as error:
        make()
    assert isinstance(error.value, DlcpError | ValueError)


def test_file_is_named_in_its_errors(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("port_bytes = 0\n", encoding="utf-8")
    with pytest.raises(PolicyError, match=r"policy.toml:1: port_bytes is 0"):
        Policy.load(file)
    file.write_bytes(b"name = '\xff'\n")
    with pytest.raises(PolicyError, match=r"policy.toml: not UTF-8"):
        Policy.load(file)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            TEXT.replace("dscp = [56]", "dscp = [64]"),
            r":17: class\[1\].dscp \(class number 7\) is 64; accepted",
        ),
        (TEXT.replace("number = 7", "number = 9"), r":16: class\[1\].number is 9; accepted"),
        (TEXT.replace("number = 7", "name = 'x'"), r":15: class\[1\].number is missing"),
        (
            TEXT.replace("= 240000", "= -1"),
            r":29: port\[1\].class\[0\].critical.mark_from_bytes \(class number 3\) is -1",
        ),
        (TEXT.replace("[[port.class]]", "[port.class]"), r":27: port\[1\].class is .*; accepted: tables"),
        (TEXT.replace("port_bytes =", "port_byte ="), ":3: port_byte is unknown"),
        (TEXT + "[x\n", ":30: not TOML: "),
        (
            SHORT.replace("= 64000}", "= 31999}"),
            ":5: thresholds.data.droppable.drop_to_bytes is 31999; accepted",
        ),
        ("class = [3]", r":1: class\[0\] is 3"),
        ("class = 3", ":1: class is 3"),
        ("[port]\nname = 'x'", ":1: port is "),
    ],
)
def test_line_is_named_in_its_errors(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(PolicyError, match=f"policy.toml{complaint}"):
        Policy.load(file)
    with pytest.raises(PolicyError, match=f"^{file}{complaint}"):
        PolicyFile.load(file)


@given(policies())
def test_every_table_of_any_policy_has_its_line(policy: Policy) -> None:
    text = policy.to_toml()
    lines, rows = toml_lines(text), text.split("\n")
    for array, tables in (("class", policy.classes), ("port", policy.ports)):
        assert all(rows[lines[f"{array}[{i}]"] - 1] == f"[[{array}]]" for i in range(len(tables)))


def test_quotes_in_headings_and_at_the_end_of_texts_are_no_trouble() -> None:
    text = '[path_groups."a]b"]\n[\'c[\']\nx = """he said "no"""""\ny = 1\n'
    assert toml_lines(text)["c[.y"] == 4


# ---- names of ports ----


def test_ports_are_renamed_wherever_the_policy_names_them() -> None:
    policy = Policy.from_toml(TEXT)
    names = {"Ethernet0": "Ethernet4", "Ethernet4": "swp1"}
    renamed = policy.renamed_ports(names)
    assert renamed == Policy.from_toml(TEXT.replace("Ethernet4", "swp1").replace("Ethernet0", "Ethernet4"))
    assert policy.named_ports() == {
        "Ethernet0": ("path_groups.up", "port[0]"),
        "Ethernet4": ("path_groups.up", "port[1]"),
    }
    with pytest.raises(
        PolicyError, match=r"port\[1\].name is 'Ethernet4'; accepted: a name that no other port"
    ):
        policy.renamed_ports({"Ethernet0": "Ethernet4"})


@given(policies())
def test_names_given_back_give_the_policy_back(policy: Policy) -> None:
    names = {name: f"{index}" * 9 for index, name in enumerate(policy.named_ports())}
    renamed = policy.renamed_ports(names)
    assert set(renamed.named_ports()) == set(names.values())
    assert renamed.renamed_ports({new: old for old, new in names.items()}) == policy
    assert policy.renamed_ports({}) == policy


def test_ports_are_read_as_typed() -> None:
    names = PortNames.parse(["eth1=up1,tap:t0=up2", "eth3"], "--dev", drop_prefix="tap:")
    assert names.ports == ("eth1", "tap:t0", "eth3")
    assert names.renamed == {"up1": "eth1", "up2": "t0"}
    policy = Policy(path_groups={"up": ("up1", "up2")})
    assert names.applied(policy).path_groups == {"up": ("eth1", "t0")}
    with pytest.raises(
        PortNameError, match="--dev: eth1=up1: the policy names no port 'up1'; accepted: up2, up3"
    ):
        names.applied(Policy(path_groups={"up": ("up2", "up3")}))


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("", "--ports: ''; accepted: PORT, or PORT=NAME"),
        ("a,", "--ports: ''; accepted"),
        ("a=", "--ports: 'a='; accepted"),
        ("=up", "--ports: '=up'; accepted"),
        ("a,b,a", "--ports: port 'a' is named twice; accepted: each once"),
        ("a=up,a", "--ports: port 'a' is named twice"),
        ("a=up,b=up", "--ports: b and a are both the policy's 'up'; accepted: one of them"),
    ],
)
def test_ports_that_cannot_be_meant_are_refused(word: str, complaint: str) -> None:
    with pytest.raises(PortNameError, match=complaint):
        PortNames.parse([word], "--ports")


def test_replaced_field_is_checked() -> None:
    with pytest.raises(PolicyError, match="trimmed_class is 9"):
        dataclasses.replace(Policy(), trimmed_class=9)


def test_golden_decisions_meet_every_fate_under_every_kind_of_buffer() -> None:
    records = vectors.load("switch_decisions.txt")
    fates = {(record["policy"], record["expect"]) for record in records}
    assert {fate for _, fate in fates} == {"keep", "mark", "trim", "drop"}
    assert {
        ("selective drop", "drop"),
        ("shared, alpha 1/4", "drop"),
        ("trimming", "trim"),
        ("ramp", "mark"),
    } <= fates
