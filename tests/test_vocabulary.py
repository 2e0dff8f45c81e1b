"""One word per thing: public names, settings, file names and headings keep to the glossary of ARCHITECTURE.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("dlcp", "sim/dlcp_sim")
GUIDES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def glossary() -> list[tuple[str, str, set[str]]]:
    """Term, meaning, and the words that are not used for it."""
    section = (ROOT / "ARCHITECTURE.md").read_text().split("## Glossary")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([a-z][^|]*?) \| ([^|]+?) \| *([^|]*?) *\|$", section, re.MULTILINE)
    return [
        (term, meaning, set(re.findall(r"[a-z]+", instead)) - {"alone"})
        for term, meaning, instead in rows
        if term != "term"  # the heading
    ]


REFUSED = set().union(*(words for _, _, words in glossary()))


def parts(name: str) -> list[str]:
    """The words of an identifier: in_flight, InFlight, in-flight -> in, flight."""
    return re.findall(r"[a-z]+", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower())


def refused(name: str) -> set[str]:
    """The words of a name that the glossary replaces by others. Plural and singular are one word.

    "In flight" and "under way" are idioms of their own.
    """
    words = parts(name)
    for before, word in (("in", "flight"), ("under", "way")):
        if word in words and words[words.index(word) - 1] == before:
            words.remove(word)
    return {word for word in words if word in REFUSED or word.removesuffix("s") in REFUSED}


def public_names(tree: ast.Module) -> Iterator[str]:
    """Names of functions, classes and methods that do not begin with an underscore."""
    for node in ast.walk(tree):
        if isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        ) and not node.name.startswith("_"):
            yield node.name


def test_glossary_has_one_term_a_row_and_says_each_once() -> None:
    terms = [term for term, _, _ in glossary()]
    assert len(terms) > 40, "nothing was read"
    assert [term for term in terms if "," in term] == []
    assert len(set(terms)) == len(terms)


def test_refused_words_are_found() -> None:
    assert refused("rank_way") == {"way"}
    assert refused("WaysTable") == {"ways"}
    assert refused("bytes_in_flight") == set()
    assert refused("FlightTable") == {"flight"}
    assert refused("always_on") == set()


# torch calls its black box the flight recorder.
TERMS_OF_OTHERS = ("flight_trace", "flight_recorder", "FlightRecorder", "flight recorder")


# Classes of one name that were there before the rule, most of them the lab's or training's beside the simulator's. The
# list only gets shorter.
SHARED_NAMES = (
    *(
        "Abandoned",
        "Configuration",
        "Curve",
        "Exact",
        "Fabric",
        "FabricError",
        "Fault",
        "Flows",
        "GradientExchange",
    ),
    *("Graph", "Layer", "Layout", "Link", "Model", "Moment", "Network", "Pipeline", "Port", "Program"),
    *("ProgramError", "Reduction", "Row", "Settings", "Step", "Store", "Table", "Task"),
)


@pytest.mark.parametrize("package", [*PACKAGES, "bench", "examples", "tests"])
def test_python_names_keep_to_the_glossary(package: str) -> None:
    wrong = []
    for file in sorted((ROOT / package).rglob("*.py")):
        names = [file.stem, *public_names(ast.parse(file.read_text()))]
        # The name of a test is a sentence, in which "on the way" is good English.
        names = [name for name in names if not name.startswith("test_")]
        wrong += [
            f"{file.relative_to(ROOT)}: {name}" for name in names if refused(name) and not _foreign(name)
        ]
    assert wrong == []


def test_cpp_types_and_files_keep_to_the_glossary() -> None:
    wrong = []
    files = [*(ROOT / "native").rglob("*.hpp"), *(ROOT / "sim").rglob("*.hpp")]
    files += [file for folder in ("bench", "tests") for file in (ROOT / folder).rglob("*.?pp")]
    for file in sorted(files):
        types = re.findall(r"^ *(?:class|struct|enum class) (\w+)", file.read_text(), re.MULTILINE)
        wrong += [f"{file.relative_to(ROOT)}: {name}" for name in [file.stem, *types] if refused(name)]
    assert wrong == []


def test_no_two_public_classes_have_one_name() -> None:
    """Left out are programs of one file: studies and benchmarks, whose cases and findings nobody else reads."""
    homes: dict[str, list[str]] = {}
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            name = str(file.relative_to(ROOT))
            if name.startswith("dlcp/study/"):
                continue
            for node in ast.parse(file.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, []).append(name)
    shared = {name: files for name, files in homes.items() if len(files) > 1}
    new = {name: files for name, files in shared.items() if name not in SHARED_NAMES}
    assert new == {}, "qualify the name of the new one"
    assert sorted(set(SHARED_NAMES) - set(shared)) == [], "no longer shared: strike them from the list"


def test_settings_keep_to_the_glossary() -> None:
    native = pytest.importorskip("dlcp._native", reason="the extension module is not built")
    assert [
        setting.name
        for setting in native.settings_table()
        if refused(setting.name) and not _foreign(setting.name)
    ] == []


def test_headings_keep_to_the_glossary() -> None:
    wrong = []
    for guide in GUIDES:
        headings = re.findall(
            r"^#+ (.+)$", re.sub(r"^```.*?^```", "", guide.read_text(), flags=re.M | re.S), re.MULTILINE
        )
        wrong += [f"{guide.relative_to(ROOT)}: {heading}" for heading in headings if refused(heading)]
    assert wrong == []


def _foreign(name: str) -> bool:
    return any(term in name for term in TERMS_OF_OTHERS)
