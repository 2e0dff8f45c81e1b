"""The shape of the code: lines of a function, parameters, methods of a class, files of a folder.

Of C++ lines and methods are counted. What is over a limit stands below by name, with how far it may be. The lists may
only get shorter and the numbers smaller: a name that is within the limit comes off.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import SLOW, SMOKE

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("dlcp", "sim/dlcp_sim", "bench", "tests")
NATIVE = ("native", "sim/core")
NATIVE_FUNCTIONS = (
    *NATIVE,
    "sim/bind",
    "bench/native",
    "tests/native",
    "tests/sim/native",
    "tests/support/native",
)
Sizes = Mapping[str, int]
"""By the name of what is measured: a folder, or `file:class.function`."""

TORCHS = {"dlcp/torch/process_group.py:ProcessGroup": 1000}
"""Interfaces that torch prescribes."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How much of something there may be."""

    most: int
    known: Mapping[str, int]
    """What is over it, and how far at most; nothing else may be."""


LIMITS = {
    "lines of a function": Limit(
        70,
        {
            "bench/native/optimizer_bench.cpp:main": 101,
            "bench/native/raw_frames.cpp:main": 73,
            "bench/native/reduce_bench.cpp:main": 82,
            "dlcp/hub/command.py:main": 86,
            "dlcp/transport/schedule/checker.py:_check_values": 85,
            "dlcp/transport/schedule/graph.py:Graph._add_rank": 90,
            "dlcp/transport/schedule/interpreter.py:run": 71,
            "native/bind/runtime.cpp:bind_host": 72,
            "native/engine/congestion/window.cpp:end_round": 103,
            "native/switch/aggregation.cpp:AggregationSlots::handle": 87,
            "native/switch/aggregation.cpp:AggregationSlots::take": 85,
            "sim/bind/fabric.cpp:bind_fabric": 128,
            "sim/core/fabric.cpp:Fabric::Fabric": 93,
            "sim/core/tasks.cpp:TaskGraph::State::index": 78,
            "sim/core/transports/dlcp.cpp:DlcpTransport::start_collective": 75,
            "sim/core/transports/tcp_sender.cpp:TcpSender::handle_ack": 74,
            "tests/support/native/virtual_network.cpp:VirtualNetwork::leave_link": 71,
            "tests/support/native/world.cpp:World::judge_packet": 82,
            "tests/switch/test_entries.py:test_small_policy_in_full": 86,
            "tests/vectors/aggregation.py:records": 102,
            "tests/vectors/generate.py:frames": 116,
            "tests/vectors/generate.py:headers": 233,
            "tests/vectors/generate.py:protected": 99,
            "tests/vectors/switch_frames.py:_frames": 169,
        },
    ),
    "parameters of a function": Limit(
        8,
        {
            "dlcp/lab/netlab.py:Lab.__init__": 10,
            "dlcp/switch/software/process.py:start": 10,
            "dlcp/torch/data/cache.py:DataCache.__init__": 11,
            "dlcp/train/plan.py:plan_runs": 10,
            "dlcp/train/training.py:train": 9,
            "dlcp/transport/endpoint.py:Endpoint._start_send": 9,
            "dlcp/transport/endpoint.py:Endpoint.send": 9,
            "dlcp/transport/flight_recorder.py:FlightRecorder.facts": 9,
            "dlcp/transport/gradient.py:mark_importance": 9,
            "dlcp/transport/membership.py:Membership.__init__": 9,
            "dlcp/transport/schedule/interpreter.py:run": 9,
            "sim/dlcp_sim/cosimulation/group.py:SimulatedGroup.bounded_all_reduce": 9,
            "sim/dlcp_sim/cosimulation/training.py:time_to_accuracy": 11,
            "sim/dlcp_sim/fabrics/trees.py:FatTree": 9,
            "sim/dlcp_sim/workloads/collectives.py:_lay_pieces": 10,
            "tests/support/frame_builder.py:dlcp": 9,
            "tests/support/frame_builder.py:ipv4": 11,
            "tests/support/switched_hosts.py:packet": 10,
        },
    ),
    "methods of a class": Limit(
        60,
        {
            **TORCHS,
            "native/collective/executor.hpp:CollectiveExecutor": 95,
            "native/io/runtime.hpp:Runtime": 69,
            "sim/core/domain.hpp:Domain": 78,
        },
    ),
    "files of a folder": Limit(40, {"dlcp/transport": 53, "tests/support": 42}),
}


def defined(
    tree: ast.AST, within: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Every function and class of a file with its full name, those inside others too."""
    for node in ast.iter_child_nodes(tree):
        name = within
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{within}.{node.name}".lstrip(".")
            yield name, node
        yield from defined(node, name)


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many a caller sees: without self and cls; *args and **kwargs are one each."""
    given = node.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    stars = (given.vararg is not None) + (given.kwarg is not None)
    return len(names) + stars - (names[:1] in (["self"], ["cls"]))


COMMENTS_AND_STRINGS = re.compile(r'//[^\n]*|"(?:\\.|[^"\\])*"|^\s*#.*$', re.MULTILINE)
CLASS = re.compile(r"\b(?:class|struct)\s+(?:alignas\([^)]*\)\s+)?(\w+)(?:\s+final)?(?:\s*:[^;{]*)?\s*\{")
OPERATOR, ANGLES = re.compile(r"\boperator\W+\("), re.compile(r"<[^<>;]*>")
# Laid out by clang-format: a function ends with the brace below its first line's beginning.
NATIVE_FUNCTION = re.compile(
    r"^( *)(?!\s|(?:if|for|while|switch|else|do|return|case|namespace|class|struct|union|enum|extern|catch|try)\b)"
    r"[^\n;{}()]*?(?P<name>[\w~:]+|operator\W+)\([^;]*?\)[^;{}=]*(?:: [^;]*?)?\{\n.*?^\1\}",
    re.MULTILINE | re.DOTALL,
)
LINE_COMMENT = re.compile(r"//[^\n]*")
NO_FUNCTION = re.compile(
    r"\s*(?:(?:public|private|protected):\s*)?(?:static_assert|using|friend|enum)\b|[^(]*=[^=(]*\("
)


def native_methods(text: str) -> Iterator[tuple[str, int]]:
    """Each class of a C++ header, and how many functions it declares itself."""
    text = COMMENTS_AND_STRINGS.sub("", text)
    for begin in CLASS.finditer(text):
        depth, own = 1, []
        for character in text[begin.end() :]:
            depth += {"{": 1, "}": -1}.get(character, 0)
            if depth == 0:
                break
            if depth == 1:
                own.append(";" if character == "}" else character)
        flat = OPERATOR.sub("operator(", "".join(own))
        while (without := ANGLES.sub("", flat)) != flat:
            flat = without
        statements = flat.split(";")
        yield begin[1], sum("(" in one and not NO_FUNCTION.match(one) for one in statements)


def measured(root: Path) -> dict[str, dict[str, int]]:
    """All sizes, by kind. Of equal names the largest counts."""
    sizes: dict[str, dict[str, int]] = {kind: {} for kind in LIMITS}

    def note(kind: str, name: str, size: int) -> None:
        sizes[kind][name] = max(size, sizes[kind].get(name, 0))

    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            place, inside = file.relative_to(root), file.parent.relative_to(root).as_posix()
            note("files of a folder", inside, sizes["files of a folder"].get(inside, 0) + 1)
            for name, node in defined(ast.parse(file.read_text(), str(file))):
                if isinstance(node, ast.ClassDef):
                    methods = [
                        each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                    ]
                    note("methods of a class", f"{place}:{name}", len(methods))
                else:
                    assert node.end_lineno is not None
                    note("lines of a function", f"{place}:{name}", node.end_lineno - node.lineno + 1)
                    note("parameters of a function", f"{place}:{name}", parameters(node))
    for folder in NATIVE_FUNCTIONS:
        for file in sorted((root / folder).rglob("*.[ch]pp")):
            for function in NATIVE_FUNCTION.finditer(LINE_COMMENT.sub("", file.read_text())):
                if function["name"] not in ("TEST_CASE", "TEST_SUITE"):
                    name = f"{file.relative_to(root)}:{function['name']}"
                    note("lines of a function", name, function[0].count("\n") + 1)
    for folder in NATIVE:
        for file in sorted((root / folder).rglob("*.hpp")):
            for name, count in native_methods(file.read_text()):
                note("methods of a class", f"{file.relative_to(root)}:{name}", count)
    return sizes


@pytest.fixture(scope="module")
def sizes(repository: Path) -> dict[str, dict[str, int]]:
    found = measured(repository)
    assert len(found["lines of a function"]) > 5000, "nothing was checked"
    return found


@pytest.mark.parametrize("kind", LIMITS)
def test_nothing_more_is_over_the_limit(kind: str, sizes: Mapping[str, Sizes]) -> None:
    limit = LIMITS[kind]
    over = {name: size for name, size in sizes[kind].items() if size > limit.known.get(name, limit.most)}
    assert over == {}, f"{kind}: at most {limit.most}, or what stands beside the name"
    within = [name for name in limit.known if sizes[kind].get(name, 0) <= limit.most]
    assert within == [], "these are within the limit: take them off the list"


def test_sizes_are_counted(tmp_path: Path) -> None:
    text = (
        "class A:\n"
        "    def f(self, a, /, b, *more, c=1, **others):\n"
        "        def g():\n"
        "            return 1\n"
        "\n"
        "    @property\n"
        "    async def h(self):\n"
        "        pass\n"
    )
    for name in ("bench/a.py", "bench/b.py", "bench/deep/c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text if name == "bench/a.py" else "")
    (tmp_path / "native").mkdir()
    (tmp_path / "native" / "a.hpp").write_text(
        "// class C { void f(); };\n"
        "class alignas(64) B final : public A {\n"
        "public:\n"
        "    explicit B(int a) : a_{a} {}\n"
        "    friend bool operator==(B, B) = default;\n"
        "    B& operator=(const B&) = delete;\n"
        "    std::function<void(int)> f_;\n"
        "    [[gnu::always_inline]] inline void f(int a, int b) const;\n"
        "    struct D { int g() { return h(1); } };\n"
        "private:\n"
        "    static constexpr int c = std::max(1, 2);\n"
        "    int a_ = 0;\n"
        "};\n"
    )
    (tmp_path / "native" / "a.cpp").write_text(
        "namespace a {\n"
        "A::A(int a)  // as f() {\n"
        "    : a_{a}, b_(2) {\n"
        "    f(1);\n"
        "}\n"
        "int A::f(int a,\n"
        "         int b) {\n"
        "    if (a) {\n"
        "    }\n"
        "}\n"
        "}  // namespace a\n"
    )
    assert measured(tmp_path) == {
        "lines of a function": {
            "bench/a.py:A.f": 3,
            "bench/a.py:A.f.g": 2,
            "bench/a.py:A.h": 2,
            "native/a.cpp:A::f": 5,
            "native/a.cpp:A::A": 4,
        },
        "parameters of a function": {"bench/a.py:A.f": 5, "bench/a.py:A.f.g": 0, "bench/a.py:A.h": 0},
        "methods of a class": {"bench/a.py:A": 2, "native/a.hpp:B": 3, "native/a.hpp:D": 1},
        "files of a folder": {"bench": 2, "bench/deep": 1},
    }


@pytest.mark.parametrize("prefix", [*SLOW, *SMOKE])
def test_chosen_tests_are_there(prefix: str) -> None:
    """A test that moves must not leave the fast or the smoke tests without a word."""
    file, _, name = prefix.partition("::")
    place = ROOT / file
    assert place.exists()
    if name:
        assert f"def {name.partition('[')[0]}" in place.read_text()
