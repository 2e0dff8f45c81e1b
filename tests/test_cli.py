"""The `dlcp` command: its door, its complaints and its exit status. What subcommands do is tested with them."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dlcp
from dlcp import _native
from dlcp.cli import COMMANDS, main
from dlcp.requirements import missing
from dlcp.transport.plugins import nccl_net_path


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dlcp", *words], capture_output=True, text=True, env=os.environ | environ
    )


def test_script_is_installed_under_its_name(repository: Path) -> None:
    scripts = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"dlcp": "dlcp.cli:main"}
    module, _, function = scripts["dlcp"].partition(":")
    assert getattr(importlib.import_module(module), function) is main


@pytest.mark.parametrize("words", [("--help",), ("-h",)])
def test_help_is_the_door(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    text = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"  {name:<10}{command.summary}" in text
    assert 'init_process_group("dlcp")' in text
    assert max(map(len, text.splitlines())) <= 80


def test_without_a_command_help_is_shown_and_it_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().out.startswith("usage: dlcp COMMAND")
    assert main(["help"]) == 0
    assert capsys.readouterr().out.startswith("usage: dlcp COMMAND")


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_version_option(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 0
    assert capsys.readouterr().out == f"dlcp {dlcp.__version__}\n"


def test_version_names_what_hosts_should_share() -> None:
    result = run("version")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[:2] == [f"dlcp {dlcp.__version__}", f"wire format {_native.WIRE_VERSION}"]
    assert [line.split()[0] for line in lines[2:]] == [
        "packet",
        f"NCCL_NET_PLUGIN={nccl_net_path()}",
        "Python",
        "torch",
        "numpy",
    ]
    told = json.loads(run("version", "--json").stdout)
    assert (told["dlcp"], told["wire_format"]) == (dlcp.__version__, _native.WIRE_VERSION)
    assert {f"torch {told['torch']}", f"numpy {told['numpy']}"} < set(lines)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("pong",), "dlcp: unknown command 'pong'; did you mean ping? `dlcp --help` lists them"),
        (
            ("xyz",),
            "dlcp: unknown command 'xyz'; accepted: bench, doctor, hub, lab, pays, ping, settings, sim, study, switch,"
            " train, version. `dlcp --help` lists them",
        ),
        (("--verbose",), "dlcp: unknown option '--verbose'; give a command first: `dlcp --help` lists them"),
        (
            ("version", "--xml"),
            "dlcp version: unrecognized arguments: --xml; `dlcp version --help` says what is accepted",
        ),
        (
            ("ping", "--size", "0", "h:1"),
            "dlcp ping: argument --size: '0' is no size; accepted: such as 512M, 8G (1024 each);"
            " `dlcp ping --help` says what is accepted",
        ),
        (
            ("doctor", "--peers", "node1"),
            "dlcp doctor: argument --peers: 'node1'; accepted: host:port, such as node1:7010;"
            " `dlcp doctor --help` says what is accepted",
        ),
    ],
)
def test_bad_input_is_one_line_and_status_2(words: tuple[str, ...], line: str) -> None:
    result = run(*words)
    assert (result.returncode, result.stdout, result.stderr.splitlines()) == (2, "", [line])


def test_error_of_dlcp_is_one_line_and_status_2() -> None:
    result = run("doctor", "--listen", DLCP_PATHS="many")
    assert result.returncode == 2
    assert result.stderr.startswith("dlcp doctor: environment variable DLCP_PATHS is 'many'; accepted:")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    "words", [(), ("--help",), ("--version",), ("version",), *((name, "--help") for name in COMMANDS)]
)
def test_nobody_reads_is_status_141(words: tuple[str, ...], unbuffered: str) -> None:
    """Whether Python writes at once or at its end."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "dlcp", *words],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_output_of_few_characters_is_escaped() -> None:
    done = run("settings", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u2026" in done.stdout


def test_output_that_is_closed_is_no_error() -> None:
    command = f"{sys.executable} -m dlcp --version >&-"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_full_disk_is_one_line_and_status_2() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dlcp", "switch", "policy"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (2, "dlcp switch: output: No space left on device\n")


@pytest.mark.parametrize(
    ("words", "begins", "status"),
    [
        (("bench", "--help"), "python -m bench: ", 2),
        *((("dlcp", name, "status"), f"dlcp {name}: ", 2) for name in ("pays", "ping", "settings")),
        (("dlcp", "sim", "run", "x.toml"), "dlcp sim: ", 2),
        (("dlcp", "study", "speed"), "dlcp study: ", 2),
        (("dlcp", "version"), "", 1),
        (("dlcp", "doctor"), "  fail  engine  ", 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_without_its_engine_every_command_says_so_in_a_line(
    words: tuple[str, ...], begins: str, status: int, repository: Path
) -> None:
    code = (
        "import runpy, sys; sys.modules['dlcp._native'] = None;"
        "runpy.run_module(sys.argv.pop(1), None, '__main__', True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=repository
    )
    assert done.returncode == status, done.stderr
    said = (done.stdout if status == 1 and words[1] == "doctor" else done.stderr).splitlines()
    assert len(said) == 1
    assert said[0].startswith(f"{begins}the compiled engine does not load: ")
    assert said[0].endswith(
        "install dlcp again; in a checkout of dlcp, pip install --no-deps --force-reinstall --no-cache-dir ."
    )


def test_only_what_a_user_can_mend_is_missing() -> None:
    for error, says in (
        (ImportError("cannot import name '_native' from 'dlcp'", name="dlcp"), "the compiled engine does"),
        (
            ImportError("cannot import name '_core' from 'dlcp_sim'", name="dlcp_sim"),
            "the compiled simulator does",
        ),
        (
            ImportError("libssl.so.3: cannot open shared object", name="dlcp._native"),
            "the compiled engine does",
        ),
        (ModuleNotFoundError("No module named 'dlcp_sim'", name="dlcp_sim"), "the compiled simulator does"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "this needs torch"),
    ):
        assert (missing(error) or "").startswith(says)
    for error in (
        ImportError("cannot import name 'Star' from 'dlcp_sim'", name="dlcp_sim"),
        ModuleNotFoundError("No module named 'dlcp.nothing'", name="dlcp.nothing"),
    ):
        assert missing(error) is None


@pytest.mark.parametrize("name", ["doctor", "ping", "version"])
def test_subcommand_has_help_under_its_name(name: str) -> None:
    result = run(name, "--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"usage: dlcp {name}")


def test_door_loads_neither_engine_nor_numpy() -> None:
    code = (
        "import sys, dlcp.cli; dlcp.cli.main(['--version']);"
        "print([m for m in ('numpy', 'torch', 'dlcp._native', 'dlcp.transport') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
