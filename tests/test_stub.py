"""The stubs of the compiled modules against these: the same names, and the same parameters in the same order.

What the stub says of types is not checked: nanobind knows less about them than the stub.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

STUBS = {"dlcp._native": "dlcp/_native.pyi", "dlcp_sim._core": "sim/dlcp_sim/_core.pyi"}


def parameters(signature: str) -> list[str]:
    """The parameter names in what nanobind says of a function, `def f(a: int, *, b: str) -> int`; stars too."""
    inside = signature[signature.index("(") + 1 : signature.rindex(")", 0, (signature + " ->").index(" ->"))]
    names, depth, start = [], 0, 0
    for position, letter in enumerate([*inside, ","]):
        depth += (letter in "[({") - (letter in "])}")
        if letter == "," and depth == 0:
            names += re.findall(r"^\s*([*\w]+)", "".join(inside[start:position]))
            start = position + 1
    return [name for name in names if name not in ("self", "/")]


def stub_parameters(function: ast.FunctionDef) -> list[str]:
    spec = function.args
    names = [argument.arg for argument in [*spec.posonlyargs, *spec.args] if argument.arg != "self"]
    if spec.kwonlyargs:
        names += ["*", *(argument.arg for argument in spec.kwonlyargs)]
    return names


def stub_names(body: list[ast.stmt], prefix: str = "") -> dict[str, list[str] | None]:
    """Every public name of a stub, with its parameters where it is a function."""
    found: dict[str, list[str] | None] = {}
    for node in body:
        match node:
            case ast.FunctionDef(name=name, decorator_list=decorators):
                is_property = any(isinstance(d, ast.Name) and d.id == "property" for d in decorators)
                found[prefix + name] = None if is_property else stub_parameters(node)
            case ast.ClassDef(name=name):
                found[prefix + name] = None
                found |= stub_names(node.body, f"{prefix}{name}.")
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found[prefix + name] = None
    return {name: value for name, value in found.items() if not name.split(".")[-1].startswith("_")}


def module_names(thing: Any, prefix: str = "") -> dict[str, list[str] | None]:
    found: dict[str, list[str] | None] = {}
    for name, value in vars(thing).items():
        if name.startswith("_"):
            continue
        signatures = getattr(value, "__nb_signature__", None)
        found[prefix + name] = parameters(signatures[0][0]) if signatures and callable(value) else None
        if isinstance(value, type) and value.__module__ in STUBS:
            found |= module_names(value, f"{prefix}{name}.")
    return found


@pytest.mark.parametrize("name", STUBS)
def test_stub_names_what_the_module_has(repository: Path, name: str) -> None:
    module = pytest.importorskip(name, reason="the extension module is not built")
    stub = stub_names(ast.parse((repository / STUBS[name]).read_text()).body)
    assert any(stub.values()), "no function was read"
    assert stub == module_names(module)


@pytest.mark.parametrize(
    ("signature", "names"),
    [
        ("def f() -> None", []),
        ("def f(self, a: int, b: str = \\0) -> dict[str, int]", ["a", "b"]),
        (
            "def f(a: ndarray[dtype=uint8, shape=(*), order='C'], *, b: tuple[int, int]) -> None",
            ["a", "*", "b"],
        ),
    ],
)
def test_parameters_of_a_signature(signature: str, names: list[str]) -> None:
    assert parameters(signature) == names
