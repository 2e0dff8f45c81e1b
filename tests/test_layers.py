"""The arrows between the rooms of ARCHITECTURE.md, read from C++ includes and Python imports.

A room that is not in the tables below fails, so that a new one gets its arrows on purpose. What the check
cannot see: a name passed to dlopen, and an imported name that is put together.
"""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# --- C++ ----------------------------------------------------------------------------------------------------

# Which rooms each room of C++ may include, besides itself. Rooms of native/ go by their folder's name, as they are
# included; those of sim/ by "sim/…".
CPP_ARROWS = {
    "engine": set(),
    "aggregation": set(),
    "switch": {"aggregation"},
    "softswitch": {"switch"},
    "collective": {"engine"},
    "ipstack": {"engine"},
    "io": {"aggregation", "collective", "engine", "ipstack"},  # ipstack: the drivers dpdk and xdp
    "bind": {"io", "collective", "engine", "softswitch", "switch"},
    "nccl": {"io", "engine"},
    "sim/core": {"aggregation", "collective", "engine", "switch"},
    "sim/bind": {"bind", "sim/core", "switch"},
}
BIND_ROOMS = {"bind", "sim/bind"}

# The engine opens no socket, starts no thread, reads no clock, draws no randomness; so it includes neither.
ENGINE_HEADERS = re.compile(
    r"""
      [a-z_]+                          # the C++ library, less what is forbidden below
    | (stdint|stddef|string|assert)\.h # C headers for the ABI
    | openssl/\w+\.h | intel-ipsec-mb\.h | dlfcn\.h # the crypto libraries, two of them loaded at run time
    | (imm|x86|cpu)(intrin|id)\.h | arm_neon\.h | sys/auxv\.h # what the processor has
    """,
    re.VERBOSE,
)
ENGINE_FORBIDDEN_HEADERS = {
    *("chrono", "ctime"),
    *("condition_variable", "future", "semaphore", "stop_token", "thread"),
    "random",
    *("fstream", "iostream"),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)


def cpp_room(path: Path) -> str:
    """The room of a file by its path under native/, or under the root if that begins with sim/."""
    return "/".join(path.parts[:2]) if path.parts[0] == "sim" else path.parts[0]


def unused(table: dict[str, set[str]], arrows: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """The arrows of a table that nothing uses."""
    return sorted((room, other) for room in table for other in table[room] if (room, other) not in arrows)


def forbidden_includes(root: Path, arrows: set[tuple[str, str]]) -> Iterator[str]:
    """Every #include of native and sim against the arrows, as `file: what is wrong`; adds to `arrows` what it saw."""
    native = root / "native"
    places = [(file, file.relative_to(native)) for file in native.rglob("*")]
    places += [(file, file.relative_to(root)) for file in (root / "sim").rglob("*")]
    for file, place in sorted(places):
        if file.suffix not in {".h", ".hpp", ".c", ".cpp", ".inc"}:
            continue
        name = file.relative_to(root)
        room = cpp_room(place)
        if room not in CPP_ARROWS:
            yield f"{name}: no arrows are written for {name.parent}"
            continue
        for quoted, bracketed in INCLUDE.findall(file.read_text()):
            if quoted:
                used = cpp_room(Path(quoted))
                arrows.add((room, used))
                if not ((root if used.startswith("sim/") else native) / quoted).is_file():
                    yield f'{name}: "{quoted}" is not a file under native/ or sim/'
                elif used != room and used not in CPP_ARROWS[room]:
                    yield f"{name}: {room} may not use {quoted}"
            elif (native / bracketed).is_file() or (
                bracketed.startswith("sim/") and (root / bracketed).is_file()
            ):
                yield f'{name}: <{bracketed}> is ours: write it "{bracketed}"'
            elif bracketed.startswith(("nanobind/", "Python.h")) and room not in BIND_ROOMS:
                yield f"{name}: only bind knows Python, not {room}: <{bracketed}>"
            elif room == "engine" and (
                bracketed in ENGINE_FORBIDDEN_HEADERS or not ENGINE_HEADERS.fullmatch(bracketed)
            ):
                yield f"{name}: the engine may not use <{bracketed}>"
            elif room in ("switch", "aggregation") and bracketed in ENGINE_FORBIDDEN_HEADERS:
                yield f"{name}: {room} is pure, and may not use <{bracketed}>"


# --- Python -------------------------------------------------------------------------------------------------

# Rooms by the longest prefix of a module's name, and which rooms each may import, besides itself and the
# standard library. Third-party packages are rooms too: what is not named here is not allowed.
PYTHON_ARROWS = {
    "dlcp": {"argcomplete"},  # loaded when a shell asks for completions
    "dlcp._native": set(),
    "dlcp.transport": {"dlcp", "dlcp._native", "numpy"},
    "dlcp.transport.scapy": {"scapy"},  # reads captures, on its own; nothing imports it
    "dlcp.hub": {"dlcp", "dlcp._native", "dlcp.transport", "numpy"},
    "dlcp.numpy": {"dlcp", "dlcp.transport", "numpy"},
    "dlcp.jax": {"dlcp", "dlcp.numpy", "dlcp.transport", "jax", "numpy"},
    "dlcp.torch": {"dlcp", "dlcp.transport", "numpy", "torch"},
    # Loaded by torchcomms; nothing imports it.
    "dlcp.torch.torchcomms": {"dlcp", "dlcp.torch", "torch", "torchcomms"},
    "dlcp.torch.lightning": {"dlcp.torch", "lightning", "torch"},  # the same
    "dlcp.torch.data": {"dlcp", "dlcp.torch", "dlcp.transport", "numpy", "torch"},
    "dlcp.switch": {"dlcp"},
    "dlcp.switch.software": {"dlcp", "dlcp._native", "dlcp.switch"},
    # P4Runtime: loaded when somebody deploys. The program for p4runtime-shell runs under another Python.
    "dlcp.switch.deploy": {"dlcp", "dlcp.switch", "finsy", "google", "grpc"},
    "dlcp.switch.deploy.shell_program": {"p4", "p4runtime_sh", "google"},
    "dlcp.lab": {"dlcp"},  # commands of the operating system; a switch's software when it is asked for
    "dlcp.lab.figure": {"dlcp", "dlcp.lab", "matplotlib"},  # loaded when a picture is asked for
    "dlcp.lab.switch_jobs": {"dlcp.lab", "dlcp.switch"},  # loaded when switches are asked to add
    "dlcp.benchmark": {"dlcp"},
    "dlcp.benchmark.measure": {"dlcp", "dlcp.benchmark", "torch"},  # what runs in the ranks
    "dlcp.benchmark.figure": {"dlcp", "dlcp.benchmark", "matplotlib"},  # loaded when a picture is asked for
    "dlcp.cli": {"dlcp"},
    "dlcp.doctor": {"dlcp", "dlcp._native", "dlcp.transport", "numpy"},
    "dlcp.train": {"dlcp", "dlcp.transport", "dlcp.torch", "numpy", "torch"},
    "dlcp.train.figure": {
        "dlcp",
        "dlcp.train",
        "matplotlib",
    },  # these two are loaded when a picture is asked for
    "dlcp.train.page": {"dlcp.train", "dlcp.train.figure"},
    "dlcp_sim": {"dlcp", "dlcp._native", "dlcp.transport", "dlcp.switch", "numpy"},
    # Real training over a simulated network: all of it that needs torch, loaded when it is asked for.
    "dlcp_sim.cosimulation.training": {
        "dlcp",
        "dlcp.switch",
        "dlcp_sim",
        "dlcp_sim.cosimulation.tasks",
        "numpy",
        "torch",
    },
    "dlcp_sim.cosimulation.tasks": {"dlcp.train", "dlcp_sim.cosimulation.models", "numpy", "torch"},
    "dlcp_sim.cosimulation.models": {"torch"},
    # Research on what dlcp does; nothing but the command loads it.
    "dlcp.study": {"dlcp"},
    "dlcp.study.training": {
        "dlcp",
        "dlcp.torch",
        "dlcp.transport",
        "dlcp_sim.cosimulation.models",
        "dlcp_sim.cosimulation.tasks",
        "torch",
    },
    "dlcp.study.network": {"dlcp", "dlcp.switch", "dlcp_sim", "numpy"},
    "dlcp.study.training.page": {"dlcp", "matplotlib"},
    "dlcp.study.training.figure": {
        "dlcp",
        "dlcp.study.training",
        "dlcp.study.training.page",
        "dlcp_sim.cosimulation.tasks",
        "matplotlib",
    },
    "dlcp.study.training.mse_figure": {"dlcp.study.training", "dlcp.study.training.page", "matplotlib"},
    "dlcp.study.training.precision.figure": {
        "dlcp",
        "dlcp.study.training",
        "dlcp.study.training.page",
        "dlcp_sim.cosimulation.tasks",
        "matplotlib",
    },
    "bench": {
        "dlcp",
        "dlcp._native",
        "dlcp.lab",
        "dlcp.lab.switch_jobs",
        "dlcp.transport",
        "dlcp.torch",
        "dlcp.switch",
        "dlcp.switch.deploy",
        "dlcp.switch.software",
        "dlcp_sim",
        "numpy",
        "torch",
    },
}
# Allowed too when it is loaded inside a function: optional packages, and what the command line is asked for.
LAZY_PYTHON_ARROWS = {
    "dlcp": {"dlcp.transport", "dlcp.cli"},
    "dlcp.benchmark": {"dlcp.benchmark.measure", "dlcp.benchmark.figure", "torch"},
    "dlcp.cli": {
        "dlcp.benchmark",
        "dlcp.hub",
        "dlcp._native",
        "dlcp.transport",
        "dlcp.doctor",
        "dlcp.lab",
        "dlcp.switch",
        "dlcp.train",
        "dlcp.study",
        "dlcp_sim",
    },
    "dlcp.hub": {"dlcp.torch"},  # its square root
    "dlcp.switch": {"dlcp.switch.deploy", "dlcp.switch.software"},
    "dlcp.lab": {
        "dlcp.lab.figure",
        "dlcp.lab.switch_jobs",
        "dlcp.switch",
        "dlcp.switch.deploy",
        "dlcp.switch.software",
    },
    "dlcp.study.training": {
        "dlcp.study.training.figure",
        "dlcp.study.training.mse_figure",
        "dlcp.study.training.precision.figure",
    },
    "dlcp.doctor": {"torch"},
    "dlcp.study": {"dlcp.study.network", "dlcp.study.training"},
    "dlcp.study.network": {"bench", "matplotlib"},  # the benchmarks' native programs
    "dlcp_sim": {"dlcp_sim.cosimulation.training", "matplotlib", "pyarrow", "ray"},
    "dlcp.train": {
        "dlcp.lab",
        "dlcp.lab.switch_jobs",
        "dlcp.train.figure",
        "dlcp.train.page",
        "sklearn",
        "rich",
    },
    "bench": {"dlcp.train"},  # the demo's tasks
}
# The rooms inside dlcp.torch.gradient, from the bottom up, and which of the rooms above its row each may use,
# annotations counted. A folder is a room, and so is a file beside the folders. Recipes see the state as
# buffer/account.py and the group as buffer/peers.py; only the state looks recipes up.
GRADIENT = "dlcp.torch.gradient"
GRADIENT_ARROWS = {
    "layout": set(),
    "element_runs": set(),
    "loss": set(),
    "residual": {"layout", "element_runs"},
    "fills": {"layout", "residual"},
    "options": {"fills", "loss", "residual"},
    "rules": {"layout", "options"},
    "buffer": {"element_runs", "layout", "options", "residual", "rules"},
    "importance": {"layout", "options"},
    "coding": {"buffer", "layout", "residual"},
    "sparse": {"buffer", "coding", "layout", "options", "residual"},
    "flow": {"buffer", "coding", "element_runs", "layout", "sparse"},
    "recipes": {
        *("buffer", "coding", "fills", "flow", "importance", "layout", "loss", "options"),
        *("residual", "sparse"),
    },
    "recipes.table": {"buffer", "options", "recipes", "residual", "sparse"},
    "reshard": {"recipes", "recipes.table"},
    "step": {"buffer"},
    "unused": set(),
    "watched": {"layout", "rules"},
    "state": {
        *("buffer", "options", "recipes", "recipes.table", "residual", "rules"),
        *("step", "unused", "watched"),
    },
    "scope": {"state"},
    "exchange": {"buffer", "layout", "state"},
    "hook": {"buffer", "exchange", "layout", "state"},
    "context": {"buffer", "exchange", "layout", "options", "scope", "state"},
    "fsdp": {"buffer", "exchange", "layout", "state"},
}
MODULE = re.compile(r"(dlcp|dlcp_sim|bench)(\.\w+)+")
# Where modules lie: folder under the root, and the package that it is.
PYTHON_FOLDERS = {"dlcp": "dlcp", "sim/dlcp_sim": "dlcp_sim", "bench": "bench"}


def room_of(module: str) -> str:
    """The room of a module: its longest prefix in PYTHON_ARROWS, or its first word."""
    words = module.split(".")
    for end in range(len(words), 0, -1):
        if (prefix := ".".join(words[:end])) in PYTHON_ARROWS:
            return prefix
    return words[0]


def imported_modules(tree: ast.Module, package: str) -> Iterator[tuple[str, bool]]:
    """Every module that a file imports, and whether only when a function runs."""
    names_modules = any(
        isinstance(node, ast.Attribute) and node.attr == "import_module" for node in ast.walk(tree)
    )

    def visit(node: ast.AST, lazy: bool) -> Iterator[tuple[str, bool]]:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                # Types cost no import, but an arrow of meaning is an arrow: as lazy ones.
                for child in ast.iter_child_nodes(node):
                    yield from visit(child, True)
                return
            case ast.Import(names=names):
                yield from ((alias.name, lazy) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                base = [*base, *(module.split(".") if module else [])]
                # `from dlcp import transport`: a module or a thing in one; the longer name finds the room.
                yield from ((".".join([*base, alias.name]), lazy) for alias in names)
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield module, lazy
                return
            case ast.Constant(value=str(module)) if names_modules and MODULE.fullmatch(module):
                yield module, True  # a table of modules, one of which is imported when it is asked for
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, lazy)

    yield from visit(tree, False)


def forbidden_imports(root: Path, arrows: set[tuple[str, str]]) -> Iterator[str]:
    """Every import of Python packages against the arrows, as `file: what is wrong`; adds to `arrows` what it saw."""
    for folder, package in PYTHON_FOLDERS.items():
        for file in sorted((root / folder).rglob("*.py")):
            name = file.relative_to(root)
            parts = [package, *file.relative_to(root / folder).with_suffix("").parts]
            is_package = parts[-1] == "__init__"
            if is_package:
                parts.pop()
            module = ".".join(parts)
            room = room_of(module)
            if room == "dlcp" and len(parts) > 2:
                yield f"{name}: no arrows are written for {'.'.join(parts[:2])}"
                continue
            for used, lazy in imported_modules(
                ast.parse(file.read_text(), str(file)), module if is_package else ".".join(parts[:-1])
            ):
                used_room = room_of(used)
                if used_room.split(".")[0] in sys.stdlib_module_names or used_room == room:
                    continue
                arrows.add((room, used_room))
                allowed = PYTHON_ARROWS[room] | (LAZY_PYTHON_ARROWS.get(room, set()) if lazy else set())
                if used_room not in allowed:
                    yield f"{name}: {room} may not use {used}{'' if lazy else ' when it is imported'}"


def gradient_room_of(module: str) -> str:
    """The room of a module inside dlcp.torch.gradient; nothing for the package itself."""
    inside = module.removeprefix(GRADIENT).lstrip(".")
    return inside if inside in GRADIENT_ARROWS else inside.split(".")[0]


def forbidden_in_gradient(graph: dict[str, set[str]]) -> Iterator[str]:
    """Every import inside dlcp.torch.gradient against its arrows, of modules with what each uses."""
    for module, used in sorted(graph.items()):
        room = gradient_room_of(module)
        if not module.startswith(f"{GRADIENT}."):
            continue
        if room not in GRADIENT_ARROWS:
            yield f"{module}: no arrows are written for {room}"
            continue
        for other in sorted(used):
            other_room = gradient_room_of(other)
            if (
                other.startswith(f"{GRADIENT}.")
                and other_room != room
                and other_room not in GRADIENT_ARROWS[room]
            ):
                yield f"{module}: {room} may not use {other_room}"


# --- what holds ---------------------------------------------------------------------------------------------


def test_cpp_includes_follow_the_arrows(repository: Path) -> None:
    assert list((repository / "native" / "engine").glob("*.hpp")), "nothing was checked"
    arrows: set[tuple[str, str]] = set()
    assert list(forbidden_includes(repository, arrows)) == []
    assert unused(CPP_ARROWS, arrows) == []


def modules_used(root: Path, *, lazily: bool) -> dict[str, set[str]]:
    """Which modules of ours each module of ours imports when it is loaded; `lazily`: in functions and for types too."""
    files = {}
    for folder, package in PYTHON_FOLDERS.items():
        # Of an extension module there is a stub alone; beside a stub of types the module itself counts.
        for file in (*(root / folder).rglob("*.pyi"), *(root / folder).rglob("*.py")):
            parts = [package, *file.relative_to(root / folder).with_suffix("").parts]
            files[".".join(parts).removesuffix(".__init__")] = (file, parts)
    graph: dict[str, set[str]] = {}
    for module, (file, parts) in files.items():
        package = module if parts[-1] == "__init__" else module.rpartition(".")[0]
        graph[module] = set()
        for used, lazy in imported_modules(ast.parse(file.read_text()), package):
            # `from package import thing`: the thing is a module, or it is in the package.
            found = used if used in files else used.rpartition(".")[0]
            if (lazily or not lazy) and found in files and found != module:
                graph[module].add(found)
    return graph


def in_circles(graph: dict[str, set[str]]) -> set[str]:
    """The modules that use themselves by way of others."""

    def reached(module: str) -> set[str]:
        found: set[str] = set()
        left = list(graph[module])
        while left:
            if (one := left.pop()) not in found:
                found.add(one)
                left.extend(graph[one])
        return found

    return {module for module in graph if module in reached(module)}


def test_no_module_imports_itself_in_a_circle(repository: Path) -> None:
    graph = modules_used(repository, lazily=False)
    assert len(graph) > 300, "nothing was checked"
    try:
        list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        pytest.fail(f"imports in a circle: {' <- '.join(error.args[1])}")


def test_no_module_is_in_a_circle_by_annotations(repository: Path) -> None:
    assert sorted(in_circles(modules_used(repository, lazily=True))) == []


def test_gradient_imports_follow_the_arrows(repository: Path) -> None:
    graph = modules_used(repository, lazily=True)
    assert len([module for module in graph if module.startswith(GRADIENT)]) > 60, "nothing was checked"
    assert list(forbidden_in_gradient(graph)) == []


def test_gradient_arrows_point_upwards_in_the_table() -> None:
    rooms = list(GRADIENT_ARROWS)
    for place, room in enumerate(rooms):
        assert GRADIENT_ARROWS[room] <= set(rooms[:place]), room


def test_python_imports_follow_the_arrows(repository: Path) -> None:
    assert (repository / "dlcp" / "__init__.py").is_file(), "nothing was checked"
    arrows: set[tuple[str, str]] = set()
    assert list(forbidden_imports(repository, arrows)) == []
    assert unused(PYTHON_ARROWS, arrows) + unused(LAZY_PYTHON_ARROWS, arrows) == []


@pytest.mark.parametrize("module", ["dlcp", "dlcp.transport", "dlcp.switch", "dlcp.cli", "dlcp_sim"])
def test_import_loads_nothing_that_is_optional(module: str) -> None:
    optional = ("torch", "scapy", "finsy", "grpc", "ray", "matplotlib", "pyarrow", "tests")
    code = f"import sys, {module}; print([m for m in {optional} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"


# --- the check itself can fail ------------------------------------------------------------------------------


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


# A tree with every legal kind of arrow; each case below adds one file that breaks one.
LEGAL = {
    "native/engine/wire.hpp": "#pragma once\n#include <cstdint>\n#include <openssl/evp.h>\n",
    "native/engine/wire.cpp": '#include "engine/wire.hpp"\n',
    "native/collective/reduce.cpp": '#include "collective/reduce.hpp"\n#include "engine/wire.hpp"\n',
    "native/collective/reduce.hpp": "#pragma once\n",
    "native/io/host.hpp": '#include "collective/reduce.hpp"\n',
    "native/io/udp.hpp": '#include "engine/wire.hpp"\n#include <sys/socket.h>\n#include <thread>\n',
    "native/switch/policy.hpp": "#pragma once\n#include <array>\n",
    "sim/core/packet.hpp": "#pragma once\n",
    "sim/core/transports/dlcp.cpp": '#include "engine/wire.hpp"\n#include "sim/core/packet.hpp"\n#include <thread>\n',
    "sim/bind/module.cpp": '#include <nanobind/nanobind.h>\n#include "sim/core/packet.hpp"\n',
    "native/bind/module.cpp": '#include <nanobind/nanobind.h>\n#include "io/udp.hpp"\n',
    "dlcp/__init__.py": "def main():\n    import dlcp.cli\n",
    "dlcp/transport/__init__.py": "import numpy\nfrom dlcp import _native, __version__\nfrom . import ring\n",
    "dlcp/transport/ring.py": "import os.path\nfrom dlcp.transport import x\n",
    "dlcp/transport/scapy.py": "import scapy.all\n",
    "dlcp/torch/__init__.py": "import torch\nfrom ..transport import ring\n",
    "dlcp/switch/__init__.py": "import json\n",
    "dlcp/__main__.py": "def main():\n    from dlcp.cli import main\n",
    "dlcp/cli.py": "import argparse\ndef doctor():\n    from dlcp.doctor import main\n",
    "dlcp/doctor/__init__.py": "from dlcp.transport import ring\ndef store():\n    import torch\n",
    "dlcp/train/__init__.py": "import torch, dlcp.torch\ndef draw():\n    import dlcp.train.figure, sklearn\n",
    "dlcp/train/figure.py": "import matplotlib\n",
    "sim/dlcp_sim/__init__.py": "from dlcp.transport import ring\nfrom dlcp import _native\n",
    "sim/dlcp_sim/report.py": "def draw():\n    import matplotlib\n    import dlcp_sim.cosimulation.training\n",
    "sim/dlcp_sim/cosimulation/training.py": "import torch\nfrom dlcp_sim.cosimulation import tasks\n",
    "dlcp/study/training/command.py": "from dlcp_sim.cosimulation.tasks import open_task\n",
    "bench/__main__.py": "import torch, dlcp_sim\n",
}


def test_legal_tree_passes(tmp_path: Path) -> None:
    write_tree(tmp_path, LEGAL)
    assert [*forbidden_includes(tmp_path, set()), *forbidden_imports(tmp_path, set())] == []


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("native/engine/a.cpp", '#include "io/udp.hpp"', "engine may not use io/udp.hpp"),
        ("native/engine/a.cpp", '  #  include "bind/module.cpp"', "engine may not use bind"),
        ("native/engine/a.cpp", "#include <thread>", "engine may not use <thread>"),
        ("native/engine/a.cpp", "#include <sys/socket.h>", "engine may not use <sys/socket.h>"),
        ("native/engine/a.cpp", "#include <Python.h>", "only bind knows Python"),
        ("native/engine/a.cpp", "#include <engine/wire.hpp>", "is ours"),
        ("native/engine/a.cpp", '#include "../io/udp.hpp"', "is not a file under native/"),
        ("native/io/a.cpp", '#include "bind/module.cpp"', "io may not use bind"),
        ("native/io/a.cpp", "#include <nanobind/nanobind.h>", "only bind knows Python"),
        (
            "native/engine/a.cpp",
            '#include "collective/reduce.hpp"',
            "engine may not use collective/reduce.hpp",
        ),
        ("native/collective/a.cpp", '#include "io/udp.hpp"', "collective may not use io/udp.hpp"),
        ("native/attic/a.cpp", "", "no arrows are written for native/attic"),
        ("native/engine/a.cpp", '#include "sim/core/packet.hpp"', "engine may not use sim/core/packet.hpp"),
        ("native/io/a.cpp", '#include "sim/core/packet.hpp"', "io may not use sim/core/packet.hpp"),
        ("native/switch/a.cpp", '#include "engine/wire.hpp"', "switch may not use engine/wire.hpp"),
        ("native/switch/a.cpp", "#include <chrono>", "switch is pure"),
        ("sim/core/a.cpp", '#include "io/udp.hpp"', "sim/core may not use io/udp.hpp"),
        ("sim/core/a.cpp", '#include "sim/bind/module.cpp"', "sim/core may not use sim/bind/module.cpp"),
        ("sim/core/transports/a.cpp", '#include "packet.hpp"', "is not a file under native/ or sim/"),
        ("sim/core/a.cpp", "#include <sim/core/packet.hpp>", "is ours"),
        ("sim/core/a.cpp", "#include <nanobind/nanobind.h>", "only bind knows Python, not sim/core"),
        ("sim/bind/a.cpp", '#include "io/udp.hpp"', "sim/bind may not use io/udp.hpp"),
        ("sim/attic/a.cpp", "", "no arrows are written for sim/attic"),
        ("dlcp/__init__.py", "import torch", "dlcp may not use torch when it is imported"),
        ("dlcp/__init__.py", "import dlcp_sim", "dlcp may not use dlcp_sim when it is imported"),
        ("dlcp/transport/a.py", "import torch", "dlcp.transport may not use torch"),
        ("dlcp/transport/a.py", "def f():\n    import torch.nn", "dlcp.transport may not use torch.nn"),
        ("dlcp/transport/a.py", "from dlcp import switch", "dlcp.transport may not use dlcp.switch"),
        (
            "dlcp/transport/a.py",
            "from ..switch import tables",
            "dlcp.transport may not use dlcp.switch.tables",
        ),
        ("dlcp/transport/a.py", "import dlcp_sim", "dlcp.transport may not use dlcp_sim"),
        ("dlcp/transport/a.py", "import scapy.all", "dlcp.transport may not use scapy.all"),
        ("dlcp/transport/a.py", "from . import scapy", "dlcp.transport may not use dlcp.transport.scapy"),
        ("dlcp/transport/a.py", "import requests", "dlcp.transport may not use requests"),
        ("dlcp/transport/a.py", "from tests import conftest", "dlcp.transport may not use tests.conftest"),
        (
            "dlcp/transport/a.py",
            "import importlib\nimportlib.import_module('dlcp.torch')",
            "dlcp.transport may not use dlcp.torch",
        ),
        ("dlcp/switch/a.py", "from dlcp.transport import ring", "dlcp.switch may not use dlcp.transport"),
        ("dlcp/switch/a.py", "import dlcp._native", "dlcp.switch may not use dlcp._native"),
        ("dlcp/torch/a.py", "from dlcp import _native", "dlcp.torch may not use dlcp._native"),
        ("dlcp/attic/a.py", "", "no arrows are written for dlcp.attic"),
        ("dlcp/cli.py", "import dlcp.train", "dlcp.cli may not use dlcp.train when it is imported"),
        ("dlcp/cli.py", "def f():\n    import torch", "dlcp.cli may not use torch"),
        ("dlcp/doctor/a.py", "import torch", "dlcp.doctor may not use torch when it is imported"),
        ("dlcp/doctor/a.py", "from dlcp import train", "dlcp.doctor may not use dlcp.train"),
        ("dlcp/train/a.py", "import rich", "dlcp.train may not use rich when it is imported"),
        ("dlcp/transport/a.py", "def f():\n    import dlcp.cli", "dlcp.transport may not use dlcp.cli"),
        ("sim/dlcp_sim/a.py", "import dlcp.torch", "dlcp_sim may not use dlcp.torch"),
        ("sim/dlcp_sim/a.py", "import matplotlib", "dlcp_sim may not use matplotlib when it is imported"),
        ("sim/dlcp_sim/a.py", "import ray", "dlcp_sim may not use ray when it is imported"),
        (
            "sim/dlcp_sim/a.py",
            "def f():\n    import dlcp.study.training",
            "dlcp_sim may not use dlcp.study.training",
        ),
        (
            "sim/dlcp_sim/a.py",
            "import dlcp_sim.cosimulation.training",
            "may not use dlcp_sim.cosimulation.training",
        ),
        ("dlcp/switch/b.py", "def f():\n    import dlcp_sim", "dlcp.switch may not use dlcp_sim"),
        ("bench/a.py", "import tests.conftest", "bench may not use tests"),
    ],
)
def test_forbidden_arrow_is_found(tmp_path: Path, file: str, text: str, complaint: str) -> None:
    write_tree(tmp_path, LEGAL | {file: text + "\n"})
    found = [*forbidden_includes(tmp_path, set()), *forbidden_imports(tmp_path, set())]
    assert len(found) == 1, found
    assert found[0].startswith(f"{file}: ")
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("module", "used", "complaint"),
    [
        ("recipes.exact", "state", "recipes may not use state"),
        ("recipes.auto", "recipes.table", "recipes may not use recipes.table"),
        ("buffer.account", "recipes.exact", "buffer may not use recipes"),
        ("attic.a", "layout", "no arrows are written for attic"),
    ],
)
def test_forbidden_arrow_in_gradient_is_found(module: str, used: str, complaint: str) -> None:
    legal = {f"{GRADIENT}.recipes.exact": {f"{GRADIENT}.buffer.account", "dlcp.checks"}}
    assert list(forbidden_in_gradient(legal)) == []
    (found,) = forbidden_in_gradient({f"{GRADIENT}.{module}": {f"{GRADIENT}.{used}"}})
    assert found == f"{GRADIENT}.{module}: {complaint}"


def test_circle_of_annotations_is_found(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a"), ("c", "a")):
        text = f"if TYPE_CHECKING:\n    from dlcp.torch.{other} import X\n"
        write_tree(tmp_path, {f"dlcp/torch/{name}.py": text})
    assert in_circles(modules_used(tmp_path, lazily=True)) == {"dlcp.torch.a", "dlcp.torch.b"}
