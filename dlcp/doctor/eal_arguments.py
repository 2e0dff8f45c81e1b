"""What EAL arguments say, as far as the doctor has to know: which options there are, and which devices -a names.

Split as a shell does, which is how they are quoted (native/io/dpdk/eal_arguments.cpp). What is wrong with them is for
DPDK's start to say.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
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
    blocked: frozenset[str] = frozenset()
    """The devices that -b or --block names."""
    virtual: tuple[tuple[str, str], ...] = ()
    """Per device that --vdev makes: its name, and what follows behind a comma."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Of a text; DPDK does not start with one whose quotes are not closed."""
        try:
            words = shlex.split(text)
        except ValueError:
            words = text.replace("'", "").replace('"', "").split()
        options = frozenset(word.partition("=")[0] for word in words if word.startswith("--"))
        return cls(
            options,
            tuple(map(_device, _values(words, "-a", "--allow"))),
            frozenset(_device(value)[0] for value in _values(words, "-b", "--block")),
            tuple(map(_device, _values(words, None, "--vdev"))),
        )

    def probes(self, address: str) -> bool:
        """Whether DPDK's start takes a card that a driver for programs has."""
        if "--no-pci" in self.options:
            return False
        allowed = [device for device, _ in self.allowed]
        return address not in self.blocked and (not allowed or address in allowed)


def _values(words: Sequence[str], letter: str | None, name: str) -> list[str]:
    """The values of an option, however it is written."""
    found = []
    for word, following in itertools.pairwise([*words, ""]):
        if word in (letter, name):
            found.append(following)
        elif word.startswith(f"{name}="):
            found.append(word.removeprefix(f"{name}="))
        elif letter is not None and word.startswith(letter):
            found.append(word.removeprefix(letter))
    return [value for value in found if value]


def _device(text: str) -> tuple[str, str]:
    device, _, more = text.partition(",")
    return full_address(device.removeprefix("pci:")), more
