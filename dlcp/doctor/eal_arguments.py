"""What EAL arguments say, as far as the doctor has to know: which options there are, and which devices -a names.

Split as a shell does, which is how they are quoted (native/io/dpdk/eal_arguments.cpp). What is wrong with them is for
DPDK's start to say.
"""

from __future__ import annotations

import itertools
import shlex
from dataclasses import dataclass
from typing import Self

from dlcp.doctor.pci import full_address


@dataclass(frozen=True, slots=True)
class EalArguments:
    """Arguments of DPDK's environment, read."""

    options: frozenset[str] = frozenset()
    """The long ones, without values: "--no-huge"."""
    allowed: tuple[tuple[str, str], ...] = ()
    """Per device that -a or --allow names: its full address, or its name, and what follows behind a comma."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Of a text; DPDK does not start with one whose quotes are not closed."""
        try:
            words = shlex.split(text)
        except ValueError:
            words = text.replace("'", "").replace('"', "").split()
        options = frozenset(word.partition("=")[0] for word in words if word.startswith("--"))
        devices = []
        for word, following in itertools.pairwise([*words, ""]):
            if word in ("-a", "--allow"):
                devices.append(following)
            elif word.startswith("--allow="):
                devices.append(word.removeprefix("--allow="))
            elif word.startswith("-a"):
                devices.append(word.removeprefix("-a"))
        return cls(options, tuple(_device(one) for one in devices if one))

    def probes(self, address: str) -> bool:
        """Whether DPDK's start takes a card that a driver for programs has."""
        if "--no-pci" in self.options:
            return False
        return not self.allowed or address in [device for device, _ in self.allowed]


def _device(text: str) -> tuple[str, str]:
    device, _, more = text.partition(",")
    return full_address(device.removeprefix("pci:")), more
