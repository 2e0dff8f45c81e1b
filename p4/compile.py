"""Compiles the switch programs into dlcp/switch/compiled: `python p4/compile.py [PROGRAM ...]`, p4c-bm2-ss on PATH.

The outputs are committed, since most machines have no P4 compiler; `manifest.toml` beside them says what they were made
from and by what, so that a test can tell when they are stale. Same sources and compiler, same bytes: nothing depends on
the folder or the time, and the JSON is without `source_info`, which repeats the source and only debuggers read.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
COMPILED = HERE.parent / "dlcp" / "switch" / "compiled"
COMPILER = "p4c-bm2-ss"
FLAGS = ("--std", "p4-16", "--Werror")
# Each is a composition beside this file.
PROGRAMS = tuple(name for name in ("v1model", "aggregation") if (HERE / f"{name}.p4").exists())


@dataclass(frozen=True)
class Outputs:
    """What a compiler made of one program."""

    json: bytes
    p4info: bytes


def sources(program: str) -> list[Path]:
    """Our files that a program is made of, in the order of their names; the compiler's own go with its version."""
    found: set[Path] = set()
    waiting = [HERE / f"{program}.p4"]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        text = path.read_text(encoding="utf-8")
        waiting += [
            (path.parent / name).resolve()
            for name in re.findall(r'^\s*#include "([^"]+)"', text, re.MULTILINE)
        ]
    return sorted(found, key=lambda path: path.relative_to(HERE).as_posix())


def sources_sha256(program: str) -> str:
    """Over name and bytes of each source."""
    digest = hashlib.sha256()
    for path in sources(program):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(HERE).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def compiler_version(compiler: str) -> str:
    """As the compiler tells it: `1.2.4.2`."""
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    match = re.search(r"Version (\S+)", text)
    if match is None:
        raise SystemExit(f"{compiler} --version says {text!r}")
    return match.group(1)


def without_source_info(tree: Any) -> Any:
    """The JSON without its memory of the source."""
    if isinstance(tree, dict):
        return {key: without_source_info(value) for key, value in tree.items() if key != "source_info"}
    if isinstance(tree, list):
        return [without_source_info(value) for value in tree]
    return tree


def compile_program(program: str, compiler: str) -> Outputs:
    """Outputs of one program; the compiler's complaint ends the process."""
    with tempfile.TemporaryDirectory() as folder:
        bmv2, p4info = Path(folder) / "bmv2.json", Path(folder) / "p4info.txt"
        command = [compiler, *FLAGS, "-o", str(bmv2), "--p4runtime-files", str(p4info), f"{program}.p4"]
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        tree = without_source_info(json.loads(bmv2.read_text(encoding="utf-8")))
        return Outputs(json_text(tree).encode(), p4info.read_bytes())


def json_text(tree: dict[str, object]) -> str:
    """One line per part of the program, so that a change shows where it is."""
    lines = (f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in tree.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def entry(program: str, outputs: Outputs, version: str) -> dict[str, object]:
    """What the manifest says of one program."""
    return {
        "sources_sha256": sources_sha256(program),
        "compiler": COMPILER,
        "compiler_version": version,
        "flags": list(FLAGS),
        "json_sha256": hashlib.sha256(outputs.json).hexdigest(),
        "p4info_sha256": hashlib.sha256(outputs.p4info).hexdigest(),
    }


def manifest_text(entries: dict[str, dict[str, object]]) -> str:
    """As TOML, whose strings and lists of strings are JSON's."""
    lines = ["# Written by p4/compile.py."]
    for program, values in sorted(entries.items()):
        lines += ["", f"[{program}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def main(names: Sequence[str]) -> None:
    """Compiles the programs of these names, or all."""
    compiler = shutil.which(COMPILER)
    if compiler is None:
        raise SystemExit(f"no {COMPILER} on PATH")
    unknown = sorted(set(names) - set(PROGRAMS))
    if unknown:
        raise SystemExit(f"no such program: {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    COMPILED.mkdir(exist_ok=True)
    listed = COMPILED / "manifest.toml"
    entries = tomllib.loads(listed.read_text(encoding="utf-8")) if listed.exists() else {}
    version = compiler_version(compiler)
    for program in names or PROGRAMS:
        outputs = compile_program(program, compiler)
        entries[program] = entry(program, outputs, version)
        (COMPILED / f"{program}.json").write_bytes(outputs.json)
        (COMPILED / f"{program}.p4info.txtpb").write_bytes(outputs.p4info)
        print(f"{program}: {len(outputs.json)} bytes of JSON")
    entries = {program: values for program, values in entries.items() if program in PROGRAMS}
    listed.write_text(manifest_text(entries), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
