"""Writes `__init__.pyi` of this package from the native tables of settings: `python -m dlcp_sim.transports`."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

from dlcp_sim.transports import CLASSES, Transport

HEAD = '''"""Written by `python -m dlcp_sim.transports`: the transports and their settings, typed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlcp_sim.transports.base import Transport as Transport
from dlcp_sim.transports.base import native as native
from dlcp_sim.transports.base import setting as setting

TRANSPORTS: dict[str, type[Transport]]
CLASSES: dict[str, type[Transport]]

def transport_named(name: str, settings: Mapping[str, Any] | None = None) -> Transport: ...
'''


def stub() -> str:
    """The text of the stub."""
    bases = {base for kind in CLASSES.values() for base in kind.__bases__} - {Transport}
    imports = sorted(f"from {base.__module__} import {base.__name__} as {base.__name__}\n" for base in bases)
    classes = sorted([*CLASSES, "Transport"])
    names = ["CLASSES", "TRANSPORTS", *classes, "native", "setting", "transport_named"]
    listed = "".join(f'    "{name}",\n' for name in names)
    return "\n".join(
        [HEAD.replace("\nTRANSPORTS:", "".join(imports) + "\nTRANSPORTS:", 1)]
        + [class_stub(kind) for kind in CLASSES.values()]
        + [f"__all__ = [\n{listed}]\n"]
    )


def class_stub(kind: type[Transport]) -> str:
    """One class: properties of its own body, and fields, of which a type checker makes the constructor."""
    lines = ["@dataclass(frozen=True, kw_only=True)", f"class {kind.__name__}({kind.__bases__[0].__name__}):"]
    for name, value in vars(kind).items():
        if isinstance(value, property) and value.fget is not None:
            returned = inspect.get_annotations(value.fget)["return"]
            lines += ["    @property", f"    def {name}(self) -> {returned}: ..."]
    lines += [f"    {field.name}: {field.type} = {field.default!r}" for field in dataclasses.fields(kind)]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    Path(__file__).with_name("__init__.pyi").write_text(stub(), encoding="utf-8")
