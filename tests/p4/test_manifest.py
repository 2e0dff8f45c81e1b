"""What is committed of the switch programs belongs together: sources, outputs, manifest, and the words in Python."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import pytest

from dlcp.switch import policy, programs
from dlcp.switch.resolved import NEVER_BYTES

AGAIN = "run: python p4/compile.py (p4c-bm2-ss on PATH), and commit dlcp/switch/compiled with the sources"


@pytest.fixture(scope="module")
def compiler(repository: Path) -> ModuleType:
    """p4/compile.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("p4_compile", repository / "p4" / "compile.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["p4_compile"] = importlib.util.module_from_spec(spec)  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_every_program_is_in_the_manifest(compiler: ModuleType) -> None:
    assert programs.names() == sorted(compiler.PROGRAMS), AGAIN


@pytest.mark.parametrize("name", programs.names())
def test_outputs_are_of_these_sources(compiler: ModuleType, name: str) -> None:
    assert compiler.sources_sha256(name) == programs.load(name).manifest["sources_sha256"], AGAIN


@pytest.mark.parametrize("name", programs.names())
def test_outputs_are_as_the_compiler_left_them(name: str) -> None:
    program = programs.load(name)
    assert sha256(program.json).hexdigest() == program.manifest["json_sha256"], AGAIN
    assert sha256(program.p4info.encode()).hexdigest() == program.manifest["p4info_sha256"], AGAIN


@pytest.mark.parametrize("name", programs.names())
def test_compiling_again_gives_the_same_bytes(compiler: ModuleType, name: str) -> None:
    found = shutil.which(compiler.COMPILER)
    if found is None:
        pytest.skip(f"no {compiler.COMPILER} on PATH")
    program = programs.load(name)
    again = compiler.compile_program(name, found)
    version = compiler.compiler_version(found)
    if version == program.manifest["compiler_version"]:
        assert again.json == program.json, AGAIN
    assert again.p4info.decode() == program.p4info, AGAIN
    if version != program.manifest["compiler_version"]:
        pytest.skip(
            f"P4Info is the same; JSON not compared: {version}, not {program.manifest['compiler_version']}"
        )


def test_a_changed_source_is_noticed(
    compiler: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is only included."""
    shutil.copytree(compiler.HERE / "blocks", tmp_path / "blocks")
    shutil.copy(compiler.HERE / "v1model.p4", tmp_path)
    monkeypatch.setattr(compiler, "HERE", tmp_path)
    before = compiler.sources_sha256("v1model")
    assert before == programs.load("v1model").manifest["sources_sha256"]
    block = tmp_path / "blocks" / "mark.p4"
    block.write_text(block.read_text() + "// one more line\n")
    assert compiler.sources_sha256("v1model") != before


def test_an_unknown_program_is_named() -> None:
    with pytest.raises(programs.ProgramError, match=r"program is 'v2model'; accepted: .*v1model"):
        programs.load("v2model")


# --- words that P4 and Python share --------------------------------------------------------------------------


def p4_enum(text: str, name: str) -> dict[str, int]:
    """Members of an enumeration with their values."""
    match = re.search(rf"enum bit<\d+> {name} \{{(.*?)\n\}}", text, re.DOTALL)
    assert match is not None, name
    members = re.findall(r"^\s+(\w+) = (\d+),?", match.group(1), re.MULTILINE)
    return {member: int(value) for member, value in members}


@pytest.mark.parametrize("words", [programs.Arrival, programs.Decision, programs.PathChoice])
def test_words_are_those_of_the_program(repository: Path, words: type[programs.Arrival]) -> None:
    text = (repository / "p4" / "blocks" / "metadata.p4").read_text()
    assert p4_enum(text, words.__name__) == {member.name.lower(): member.value for member in words}


def test_choices_of_a_path_are_the_policys() -> None:
    assert [choice.name.lower() for choice in programs.PathChoice] == list(policy.PATH_CHOICES)


def test_numbers_are_those_of_the_program(repository: Path) -> None:
    text = (repository / "p4" / "blocks" / "metadata.p4").read_text()
    found = dict(re.findall(r"^const \S+ (\w+) = (\w+);", text, re.MULTILINE))
    assert {name: int(value, 0) for name, value in found.items() if value[0].isdigit()} == {
        "PORTS": programs.MAX_PORTS,
        "QUEUES": programs.MAX_PORTS * programs.CLASSES,
        "GROUPS": programs.MAX_GROUPS + 1,
        "NEVER": NEVER_BYTES,
        "NO_DSCP": programs.KEEP_DSCP,
        "UNKNOWN_IMPORTANCE": 254,
        "CRITICAL_LEVEL": policy.DROPPABLE_LEVELS,
        "FOREIGN_LEVEL": programs.FOREIGN_LEVEL,
    }
