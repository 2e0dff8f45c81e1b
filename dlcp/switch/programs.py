"""The compiled switch programs, and the words of their counters.

`load` gives a program as a switch takes it: BMv2's JSON and the P4Info. They are made by `p4/compile.py` and committed,
so nobody needs a P4 compiler. The lists of words are those of `p4/blocks/metadata.p4`; a test holds them together.
Nothing here talks to a switch.
"""

from __future__ import annotations

import enum
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlcp.errors import SettingsError

CLASSES = 8
MAX_PORTS = 64  # of a switch that runs v1model.p4; their numbers are 0 … 63
MAX_GROUPS = 255  # of equal next hops; their numbers are 1 … 255
KEEP_DSCP = 255  # of trimmed packets: theirs
FOREIGN_LEVEL = 9  # in counters, behind eight droppable levels and the critical one
LEVELS = FOREIGN_LEVEL + 1


class ProgramError(SettingsError):
    """A program that is not there."""


class Arrival(enum.IntEnum):
    """What became of a frame between its port and its output queue."""

    FORWARDED = 0
    FLOODED = 1
    MALFORMED = 2
    TTL_EXPIRED = 3
    NO_ROUTE = 4
    NO_WAY = 5
    FILTERED = 6


class Decision(enum.IntEnum):
    """What became of a packet at its output queue."""

    KEPT = 0
    MARKED = 1
    TRIMMED = 2
    DROPPED_THRESHOLD = 3
    DROPPED_BUFFER = 4
    DROPPED_TRIMMED = 5


class PathChoice(enum.IntEnum):
    """How one of equal next hops is chosen; in lower case, `Policy.path_choice`."""

    FLOW_HASH = 0
    PATH_ID = 1
    RANDOM = 2
    ROUND_ROBIN = 3
    ADAPTIVE = 4


@dataclass(frozen=True)
class Program:
    """A compiled program."""

    name: str
    json: bytes
    """What BMv2 runs: the device configuration of P4Runtime's SetForwardingPipelineConfig."""
    p4info: str
    """Its tables, actions and counters with their ids: a P4Info message in text format."""
    manifest: Mapping[str, Any]
    """What it was made of, and by what: its table in manifest.toml, which p4/compile.py writes."""


def folder() -> Path:
    """Where the compiled programs are."""
    return Path(__file__).resolve().parent / "compiled"


def names() -> list[str]:
    return sorted(_manifest())


def load(name: str) -> Program:
    """The program of this name; ProgramError lists those that there are."""
    entries = _manifest()
    if name not in entries:
        raise ProgramError(f"program is {name!r}; accepted: {', '.join(sorted(entries))}")
    where = folder()
    return Program(
        name,
        (where / f"{name}.json").read_bytes(),
        (where / f"{name}.p4info.txtpb").read_text(encoding="utf-8"),
        entries[name],
    )


def _manifest() -> dict[str, Any]:
    path = folder() / "manifest.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProgramError(f"no compiled switch programs: {error}") from None


def decisions_index(port: int, traffic_class: int, level: int, decision: Decision) -> int:
    """Place in the counter `decisions` of what was to leave by `port`, with the class and level that it came with."""
    return port << 10 | traffic_class << 7 | level << 3 | decision
