"""The engine's settings as settings of transport "dlcp": ranges and meaning come from the engine's table.

A scenario may give every setting that says how the engine sends and receives; identity, keys and bounds are the
simulator's own.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, TypeVar

from dlcp import _native
from dlcp_sim.transports.base import Transport, setting

if TYPE_CHECKING:
    from collections.abc import Mapping

Value = TypeVar("Value")
Kind = TypeVar("Kind", bound=Transport)

# The engine's clock counts whole nanoseconds, so "above 0" begins there.
_LEAST_S = 1e-9


@cache
def _table() -> Mapping[str, _native.Setting]:
    return {each.name: each for each in _native.settings_table()}


def engine_setting(name: str, default: Value, *, native: str | None = None) -> Value:
    """A field that is the engine's setting `name`, with a default of the simulator's. None: see the transport.

    `native`: what the native transport calls it, if not so.
    """
    entry = _table()[name]
    if entry.kind == "choice":
        words = entry.accepted.split(", ")
        return setting(default, help=entry.sentence, choices={word: i for i, word in enumerate(words)})
    return setting(
        default,
        help=entry.sentence,
        minimum=max(entry.low, _LEAST_S) if entry.above else entry.low,
        maximum=entry.high,
        native=native,
    )


def with_engine_settings(kind: type[Kind]) -> type[Kind]:
    """The class with every protocol setting of the engine that it does not declare; for `dataclass` to make fields of.

    These are None by default, which leaves the engine's default.
    """
    for name, entry in _table().items():
        if entry.layer == "protocol" and name not in kind.__annotations__:
            kind.__annotations__[name] = "int | None" if entry.kind == "integer" else "float | None"
            setattr(kind, name, engine_setting(name, None))
    return kind
