"""What every kind of switch of a fabric can do; each kind is a module of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dlcp.lab.counts import Counts
from dlcp.lab.fabric import Link
from dlcp.lab.fault import Fault
from dlcp.lab.network import Network

if TYPE_CHECKING:
    from dlcp.switch import Policy


class Switches(ABC):
    """All switches of a fabric, of one kind. Found again by another process from the network and the lab's folder.

    policies: by switch.
    """

    def __init__(self, network: Network, directory: Path, policies: Mapping[str, Policy]) -> None:
        self._network = network
        self._fabric = network.fabric
        self._directory = directory
        self._policies = dict(policies)

    @abstractmethod
    def start(self) -> None:
        """Makes them forward. Raises FabricError: the policy or the system does not let it; LabError."""

    def stop(self) -> None:  # noqa: B027, since most kinds have nothing to end
        """Ends what this object started; what goes with the namespaces need not be ended."""

    @abstractmethod
    def set_policies(self, policies: Mapping[str, Policy]) -> None:
        """Another policy for each, live: what waits stays. FabricError: this kind cannot."""

    @abstractmethod
    def set_fault(self, link: Link, fault: Fault) -> None:
        """Makes the link's fault so, and no other. FabricError: this kind cannot, or the system does not let it."""

    def go_around(self, links: Collection[str]) -> None:
        """Routing knows that these links are cut, and of no others; leaves choose their spines by it (next_hops.py)."""
        self._network.go_around(links)

    @abstractmethod
    def counts(self) -> Counts:
        """What all ports did so far."""

    def notes(self) -> list[str]:
        """What they do differently from the policy, for people."""
        return []
