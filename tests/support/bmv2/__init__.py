"""Programs compiled by p4c-bm2-ss, run in plain Python: neither the compiler nor BMv2 is needed.

`Program` loads the JSON and holds the state that entries, registers and counters are; `Switch` puts it between ports
with rates in virtual time. What a program needs and is not here raises `UnsupportedError` with its name when the
program is loaded, so nothing is passed over in silence. `docs/JSON_format.md` of behavioral-model describes the
format; what it leaves open follows `simple_switch` 1.15.
"""

from __future__ import annotations

from .layout import UnsupportedError
from .packet import Packet
from .primitives import RandomSource, Seeded, Words
from .program import Program
from .switch import PortRate, Sent, Switch
from .tables import Entry, Table, TableError
from .v1model import Queued

__all__ = [
    "Entry",
    "Packet",
    "PortRate",
    "Program",
    "Queued",
    "RandomSource",
    "Seeded",
    "Sent",
    "Switch",
    "Table",
    "TableError",
    "UnsupportedError",
    "Words",
]
