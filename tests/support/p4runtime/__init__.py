"""A P4Runtime server over the interpreter, so that deployment is tested over real gRPC.

It follows the P4Runtime specification 1.4 (arbitration, bytestrings, entities, RPCs), and is strict: identifiers,
widths, don't-care bits, priorities, duplicates and who may write are all checked. Where the specification leaves a
choice, or BMv2 takes another way, the place says so. `Faults` makes it misbehave on order.
"""

from __future__ import annotations

from .faults import Faults
from .server import P4RuntimeServer
from .status import Refused

__all__ = ["Faults", "P4RuntimeServer", "Refused"]
