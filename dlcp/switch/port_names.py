"""Ports as a person types them for one device: `eth1=up1,eth2`, what they are called there and in the policy.

A policy is of a whole fabric, so its names of ports need not be those of a device. On the left stands the device's
name, on the right the policy's; a word alone is both. Pure: it does not check whether the device has such a port.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dlcp.errors import SettingsError
from dlcp.switch.policy import Policy


class PortNameError(SettingsError):
    """A port that is not there, is named twice, or is missing from where it has to be."""


@dataclass(frozen=True)
class PortNames:
    """Ports of one device; see `parse`."""

    option: str
    """As the person called it: --ports, --dev."""
    ports: tuple[str, ...]
    """By the device's names, in the order typed."""
    renamed: Mapping[str, str]
    """The policy's name of a port → the device's, where they differ."""

    @classmethod
    def parse(cls, words: Iterable[str], option: str, drop_prefix: str = "") -> PortNames:
        """`words` with or without commas between them. PortNameError: one is empty, or a port is named twice.

        `drop_prefix`: what may stand before a device's name and is no part of it for the policy, as `tap:`.
        """
        ports: list[str] = []
        renamed: dict[str, str] = {}
        for word in (word for each in words for word in each.split(",")):
            port, equals, policys = word.partition("=")
            name = port.removeprefix(drop_prefix)
            if not name or (equals and not policys):
                raise PortNameError(
                    f"{option}: {word!r}; accepted: PORT, or PORT=NAME with the policy's name of it"
                )
            if name in [other.removeprefix(drop_prefix) for other in ports]:
                raise PortNameError(f"{option}: port {name!r} is named twice; accepted: each once")
            if policys and policys in renamed:
                raise PortNameError(
                    f"{option}: {name} and {renamed[policys]} are both the policy's {policys!r}; accepted: one of them"
                )
            ports.append(port)
            if policys:
                renamed[policys] = name
        return cls(option, tuple(ports), renamed)

    def check(self, policy: Policy) -> None:
        """PortNameError: the policy has no port of a name that was typed as its own."""
        named = policy.named_ports()
        for policys, port in self.renamed.items():
            if policys not in named:
                accepted = ", ".join(sorted(named)) or "none, it names no port"
                raise PortNameError(
                    f"{self.option}: {port}={policys}: the policy names no port {policys!r}; accepted: {accepted}"
                )

    def applied(self, policy: Policy) -> Policy:
        """The policy with the device's names; PortNameError as by `check`."""
        self.check(policy)
        return policy.renamed_ports(self.renamed)
