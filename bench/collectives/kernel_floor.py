"""The kernel alone beside the backends: what the bytes of an all-reduce of two ranks cost without a protocol.

Two processes at the ranks' places send to each other at once and add what comes, for as long as a backend's turn: over
one TCP connection, and over one UDP socket each in super-packets of 44 packets. Nothing is acknowledged, checked or
repaired.
"""

from __future__ import annotations

from bench import programs
from bench.collectives.timing import Timing
from bench.collectives.world import Backend, Place

NAME = "kernel"
UDP = Backend("kernel alone, UDP", NAME, {"transport": "udp"})
TCP = Backend("kernel alone, TCP", NAME, {"transport": "tcp"})
BACKENDS = (UDP, TCP)


def build() -> None:
    """Compiles the program. Raises ProgramError."""
    programs.build("kernel_floor")


def time_exchange(backend: Backend, place: Place, nbytes: int, seconds: float) -> list[list[Timing]]:
    """Per rank one timing, as of all-reduces of `nbytes` one after the other. Raises ProgramError."""
    addresses = place.addresses or (place.address,) * place.world
    where = {
        f"{option}_{side}": value
        for side, namespace, address in zip("ab", place.namespaces, addresses, strict=True)
        for option, value in (("namespace", namespace or ""), ("address", address))
    }
    told = programs.ask("kernel_floor", seconds=seconds, **backend.environment, **where)
    return [
        [
            Timing(
                nbytes=nbytes,
                # The slower side's, so that both have taken part in each.
                times_s=[told["seconds"] * nbytes / min(one["bytes"] for one in told["sides"])],
                wall_s=told["seconds"],
                cpu_s=side["cpu_s"] * nbytes / side["bytes"],
                wrong=0,
                wire_bytes=0,
                kernel={},
                engine={},
                path={},
            )
        ]
        for side in told["sides"]
    ]
