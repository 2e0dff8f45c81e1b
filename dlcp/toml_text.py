"""Keys and values as TOML 1.0 writes them, on one line; what has tables of its own arranges them.

tomllib reads and does not write. A library that writes (tomlkit) keeps no line numbers, and would be needed at run time
by everything that saves a policy, a topology or a scenario.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from numbers import Integral, Real

from dlcp.errors import ArgumentError


def toml_key(name: str) -> str:
    """A key, quoted where it has to be."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)


def toml_value(value: object) -> str:
    """A truth value, number, text, list or (inline) table. Raises ArgumentError for anything else."""
    match value:
        case bool():
            return "true" if value else "false"
        case Integral():  # NumPy's too
            return str(int(value))
        case Real():
            return repr(float(value))
        case str():
            escaped = (f"\\u{ord(c):04x}" if c in '"\\' or ord(c) < 32 or ord(c) == 127 else c for c in value)
            return f'"{"".join(escaped)}"'
        case list() | tuple():
            return f"[{', '.join(map(toml_value, value))}]"
        case Mapping():
            return f"{{{', '.join(f'{toml_key(k)} = {toml_value(v)}' for k, v in value.items())}}}"
    raise ArgumentError(f"{value!r} has no form in TOML")
