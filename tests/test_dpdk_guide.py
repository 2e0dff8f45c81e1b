"""docs/dpdk.md holds: what it names is there, what it quotes is said, and what needs no card runs as it stands."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from dlcp.cli import COMMANDS
from dlcp.transport import Settings
from dlcp.transport.settings import OTHER_VARIABLES
from tests.support import dpdk as support

ROOT = Path(__file__).resolve().parent.parent
GUIDE = re.sub(r"^```.*?^```\n", "", (ROOT / "docs" / "dpdk.md").read_text(), flags=re.DOTALL | re.MULTILINE)
BLOCKS: list[str] = re.findall(r"(?:^ {4}.*\n)+", GUIDE, re.MULTILINE)
SPANS = re.findall(r"`([^`]+)`", re.sub(r"^ {4}.*\n", "", GUIDE, flags=re.MULTILINE))
"""What stands between back quotes."""
PROGRAMS = {"apt-get", "dpdk-devbind.py", "echo", "ip", "pip", "#!/bin/sh"}
"""With which a block of commands begins; the other blocks are what some program says."""
# Words with a value that are of DPDK's devices and arguments, or of the kernel's command line.
FOREIGN_WORDS = {"--iova-mode", "--vdev", "bsize", "framesz", "queue_count"}
FOREIGN_WORDS |= {"default_hugepagesz", "hugepages", "hugepagesz", "intel_iommu", "iommu"}


def commands(block: str) -> list[str]:
    """Its lines, those that end with a backslash joined, comments left out."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"(^|\s)#[^!].*", "", block, flags=re.MULTILINE))
    return [line.strip() for line in text.splitlines() if line.strip()]


SCRIPT_LIMIT_S = 200
SCRIPTS = [commands(block) for block in BLOCKS if block.split()[0] in PROGRAMS]


def rows(heading: str) -> list[list[str]]:
    """The cells of the tables below a heading, titles left out."""
    text = GUIDE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [
        [cell.strip() for cell in line.split(" | ")] for table in tables for line in table.splitlines()[2:]
    ]


def source(*folders: str) -> str:
    """C++ and Python below these folders, with texts that go on in the next line in one piece."""
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob("*"))]
    text = "\n".join(file.read_text() for file in files if file.suffix in {".cpp", ".hpp", ".py"})
    return re.sub(r'"\s*\n\s*f?"', "", text)


# --- names --------------------------------------------------------------------------------------------------


def test_variables_are_settings() -> None:
    fields = {f"DLCP_{field.name.upper()}" for field in dataclasses.fields(Settings)}
    named = set(re.findall(r"\bDLCP_[A-Z_]+\b", GUIDE))
    assert {name for name in named - fields if not OTHER_VARIABLES.fullmatch(name)} == set()
    assert len(named) > 10


def variables(script: Iterable[str]) -> list[dict[str, str]]:
    """What each command of a script has of settings: what was exported so far, and its own."""
    exported: dict[str, str] = {}
    found = []
    for line in script:
        line = line.replace("$((RANK + 1))", "1").replace("$role", "server")
        given = {name: value.strip('"') for name, value in re.findall(r'\b(DLCP_\w+)=("[^"]*"|\S*)', line)}
        if line.startswith("export"):
            exported |= given
        if given:
            found.append({**exported, **given})
    return found


@pytest.mark.parametrize(
    "environ", [one for script in SCRIPTS for one in variables(script)], ids=lambda one: "+".join(one)[:60]
)
def test_settings_of_a_command_are_accepted(environ: dict[str, str]) -> None:
    settings = Settings.load(environ=environ)
    if settings.network_driver in ("dpdk", "xdp"):
        settings.need_own_address()


def dlcp_commands() -> list[str]:
    """Each use of the command, as `ping --listen --once`."""
    texts = [line for script in SCRIPTS for line in script if not line.startswith("pip")]
    texts += [span for span in SPANS if span.startswith("dlcp ")]
    return [words.strip() for text in texts for words in re.findall(r"(?:^|\s)dlcp ([^&;|#]+)", text)]


@pytest.mark.parametrize("words", sorted(set(dlcp_commands())))
def test_command_has_its_options(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, *rest = words.split()
    assert name in COMMANDS
    with pytest.raises(SystemExit) as end:
        COMMANDS[name].run(["--help"])
    assert end.value.code == 0
    accepted = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    assert {word for word in rest if word.startswith("--")} - accepted == set()


def own_words(driver: str) -> list[str]:
    """As the head of its options.hpp lists them: one at the beginning of a line, and more of them two blanks on."""
    head = (ROOT / "native" / "io" / driver / "options.hpp").read_text().partition("#pragma once")[0]
    lines = re.findall(r"^//   (\w.*)", head, re.MULTILINE)
    return [word for line in lines for word in re.findall(r"(?:^|  )(\w+)=", line) or [line.split()[0]]]


def test_every_word_of_the_drivers_is_listed() -> None:
    assert re.findall(r"^\| `(\w+)=[^`]*` \|", GUIDE, re.MULTILINE) == own_words("dpdk")
    for word in own_words("xdp"):
        assert re.search(rf"`{word}=?`", GUIDE.partition("## AF_XDP")[2]), word


def test_every_word_is_one_of_the_drivers() -> None:
    known = {*own_words("dpdk"), *own_words("xdp"), *FOREIGN_WORDS}
    spans = [span.split() for span in SPANS]
    used = {
        word.partition("=")[0]
        for words in spans
        for word in words
        if all(re.fullmatch(r"[a-z_-]+=\S*", one) for one in words)
    }
    assert used - known == set()


# --- what it quotes -----------------------------------------------------------------------------------------


def test_sentences_of_failures_are_those_of_the_code() -> None:
    code = source("native/io", "native/ipstack", "dlcp")
    parts = [
        part.strip() for cells in rows("When it fails") for part in re.split("[…;]", cells[0].strip("| "))
    ]
    sentences = [part for part in parts if len(part.split()) > 2 and "`" not in part]
    assert [part for part in sentences if part not in code] == []
    assert len(sentences) > 8


def test_counters_and_events_are_those_of_the_code() -> None:
    code = source("native/io", "native/ipstack")
    cells = [row[0].strip("| ") for row in rows("Events and counters")]
    counters = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert [name for name in counters if name not in code] == []
    kinds = [kind for cell in cells if "`" not in cell for kind in event_kinds(cell)]
    assert [kind for kind in kinds if f'"{kind}"' not in code] == []
    assert len(counters) > 8
    assert len(kinds) > 6


def event_kinds(cell: str) -> list[str]:
    """link_down and link_up, where the guide says "link down, up"."""
    first, *others = cell.split(", ")
    return [first.replace(" ", "_"), *(f"{first.split()[0]}_{other}" for other in others)]


# --- what it lets one run -----------------------------------------------------------------------------------


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script[0][:40])
def test_commands_are_those_of_a_shell(script: list[str]) -> None:
    done = subprocess.run(["bash", "-n"], input="\n".join(script), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


LISTENERS = {
    name: line
    for script in SCRIPTS
    for line in script
    for name in re.findall("--vdev=(net_[a-z_]+).*--listen|DLCP_DRIVER=(xdp).*--listen", line)
    for name in name
    if name
}
"""Commands that listen for `dlcp ping` in the namespaces of the guide's first try, by device."""


def run_script(lines: Iterable[str]) -> str:
    """What it says, as root in mounts and processes of its own, so that names of networks are free; they go with it."""
    if reason := support.missing_bed():
        pytest.skip(reason)
    paths = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    begin = "mkdir -p /run/netns; mount -t tmpfs none /run/netns; set -e"
    try:
        done = subprocess.run(
            [
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "bash",
                "-c",
                "\n".join([begin, *lines]),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SCRIPT_LIMIT_S,
            env={**os.environ, "PATH": paths},
        )
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"not over within {SCRIPT_LIMIT_S} s; it said:\n{error.stdout}")
    assert done.returncode == 0, done.stdout
    return done.stdout


def script_with(command: str) -> list[str]:
    """The guide's script that has a command beginning so."""
    (script,) = (script for script in SCRIPTS if any(line.startswith(command) for line in script))
    return script


@pytest.mark.needs_root
@pytest.mark.timeout(SCRIPT_LIMIT_S + 60)
@pytest.mark.parametrize("device", LISTENERS)
def test_try_without_a_card(device: str) -> None:
    if "xdp" in device and not support.PLUGIN.with_name("libdlcp_io_xdp.so").exists():
        pytest.skip("no libdlcp_io_xdp.so beside the module: apt-get install libxdp-dev, then make setup")
    script = script_with("ip netns add")
    listen = script.index(LISTENERS["net_af_packet"])
    said = run_script(
        [
            *script[:listen],
            LISTENERS[device].removesuffix("&") + " &",
            # On a busy machine DPDK's start takes longer than the guide's ping is patient.
            "for i in $(seq 60); do ip netns exec right ping -c 1 -W 1 10.0.0.1 && break; done",
            *script[listen + 1 :],
            "wait",
        ]
    )
    assert re.search(r"messages +200 in ", said), said  # lines of both ends, perhaps in one


@pytest.mark.needs_root
@pytest.mark.timeout(SCRIPT_LIMIT_S + 60)
def test_job_without_a_card() -> None:
    script = script_with("ip netns add")
    setup = script[: script.index(LISTENERS["net_af_packet"])]
    said = run_script([*setup, *script_with("export WORLD_SIZE"), "wait"])
    for line in ("all 2 pairs of 2 are open", "every pair carries datagrams of 1472 bytes"):
        assert line in said, said
        assert line in GUIDE
