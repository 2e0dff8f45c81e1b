"""The setting `aggregation`: switch://HOST:PORT, the address of the job's hub, and the job as the switch has it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, fields
from typing import Self
from urllib.parse import parse_qsl, urlsplit

from dlcp import _native
from dlcp.errors import SettingsError

LANE_UNIT = 32
MAX_WORKERS = 32  # of one switch
MAX_RANKS = 1024  # of two levels of switches
# What ranks may have of their own: their socket, and with two levels their switch.
_OWN = ("host", "hub_port", "worker", "workers", "port")
LEAST_BITS = 2  # that are left of a value beside its sign
_EXAMPLE = "switch://10.0.0.100:23701?job=7&slots=256&lanes=352"


@dataclass(frozen=True, kw_only=True)
class SwitchAddress:
    """Whom contributions are addressed to, and the job as the switch has it."""

    host: str
    """IPv4 address in numbers."""
    hub_port: int
    job: int = 1
    generation: int = 1
    generations: int = 1
    """So many are admitted at the switch, from `generation` on. With more than one, a run after one that was killed
    finds its slots empty."""
    slots: int = 128
    lanes: int = LANE_UNIT
    """Of a packet, as the switch has them; the P4 program has 32."""
    bits: int = 32
    """Of a value on the way: 32, or 16 or 8, of which a lane carries two or four. The sum of n ranks keeps
    bits - 1 - ceil(log2 n) bits of each value, counted from the largest of its block."""
    worker: int | None = None
    """This rank's number at its switch, for two levels whose switches have different numbers of ranks."""
    workers: int | None = None
    """How many ranks its switch has as workers, for two levels of switches; None: all."""
    port: int = 0
    """UDP port of the first rank of this host, as the switch was told; the others of the host have the next ones, in
    the order of their ranks. 0: that of the hub."""
    min_bytes: int = 1 << 20
    """Shorter tensors take the usual algorithms."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """From the setting. Raises SettingsError: it names what is wrong."""
        parts = urlsplit(text)
        try:
            host = str(ipaddress.IPv4Address(parts.hostname or ""))
            port = parts.port or 0
        except ValueError:
            host, port = "", 0
        if parts.scheme != "switch" or not host or not port or parts.path or parts.fragment or "@" in text:
            raise SettingsError(
                f"aggregation is {text!r}; accepted: IPv4 address and port, such as {_EXAMPLE}"
            )
        bounds = {
            "job": (0, 2**32 - 1),
            "generation": (0, 2**16 - 1),
            "generations": (1, 2**16 - 1),
            "slots": (2, 2**16 - 1),
            "lanes": (LANE_UNIT, _native.AGGREGATION_MAX_LANES),
            "bits": (8, 32),
            "worker": (0, MAX_WORKERS - 1),
            "workers": (1, MAX_WORKERS),
            "port": (1, 2**16 - 1),
            "min_bytes": (4, 2**62),
        }
        values: dict[str, int] = {}
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            if name not in bounds or name in values:
                raise SettingsError(
                    f"aggregation has {name}={value}; accepted, each once: {', '.join(bounds)}"
                )
            least, most = bounds[name]
            if not value.isdecimal() or not least <= int(value) <= most:
                raise SettingsError(
                    f"aggregation has {name}={value}; accepted: an integer from {least} to {most}"
                )
            values[name] = int(value)
        if values.get("bits", 32) not in (8, 16, 32):
            raise SettingsError(f"aggregation has bits={values['bits']}; accepted: 32, 16, 8")
        if values.get("lanes", LANE_UNIT) % LANE_UNIT:
            raise SettingsError(
                f"aggregation has lanes={values['lanes']}; accepted: multiples of {LANE_UNIT}"
            )
        if values.get("generation", 1) + values.get("generations", 1) > 2**16:
            raise SettingsError(
                f"aggregation has generations={values['generations']}; accepted: up to generation {2**16 - 1}"
            )
        if "worker" in values and values["worker"] >= values.get("workers", 0):
            raise SettingsError("aggregation: worker and workers go together, the number below the count")
        return cls(host=host, hub_port=port, **values)

    @property
    def block_values(self) -> int:
        """Values per packet."""
        return self.lanes * (32 // self.bits)

    def port_of(self, place: int) -> int:
        """The UDP port of rank number `place` of a host, from 0. Raises SettingsError: there is none left."""
        first = self.port or self.hub_port
        if first + place >= 2**16:
            raise SettingsError(
                f"aggregation has port {first} for the first of a host's ranks, of which this is number {place}; "
                f"accepted: ports up to {2**16 - 1} for all of them"
            )
        return first + place

    def place_of(self, rank: int, size: int) -> tuple[int, int]:
        """The number of a rank of `size` at its switch, and how many workers that has.

        Without `worker`, ranks are at switches in their order, each switch as full as the others.
        """
        workers = size if self.workers is None else self.workers
        return (rank % workers if self.worker is None else self.worker), workers

    @property
    def agreed(self) -> str:
        """What must be the same on all ranks."""
        shared = (each.name for each in fields(self) if each.name not in _OWN)
        return " ".join(f"{name} {getattr(self, name)}" for name in shared)

    def serves(self, size: int) -> bool:
        """Whether so many ranks find a place: on one switch, or said to be on several.

        Raises SettingsError: their sum leaves too little of a value; switches are not equally full.
        """
        if self.worker is None and self.workers is not None and size % self.workers:
            raise SettingsError(
                f"aggregation has workers={self.workers} for {size} ranks; accepted: a divisor of {size}, or worker too"
            )
        if not 1 < size <= (MAX_WORKERS if self.workers is None else MAX_RANKS):
            return False
        if self.bits - 1 - (size - 1).bit_length() < LEAST_BITS:
            raise SettingsError(
                f"aggregation has bits={self.bits} for {size} ranks; accepted: at most "
                f"{2 ** (self.bits - 1 - LEAST_BITS)} ranks, or more bits"
            )
        return True
