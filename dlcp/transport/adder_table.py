"""The table of the adders that settings ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from dlcp.transport.aggregation.sums import Opener, open_switch_sums
from dlcp.transport.communicator import Communicator
from dlcp.transport.hub.client import HubClient
from dlcp.transport.hub.group import open_hub_group
from dlcp.transport.logger import RankLogger
from dlcp.transport.schedule.adders import Adder
from dlcp.transport.store import Store


class Opening(NamedTuple):
    """What an adder is opened with."""

    communicator: Communicator
    store: Store
    timeout_s: float
    hub_client: HubClient
    opener: Opener


ADDERS: dict[str, Callable[[Opening], Adder | None]] = {
    "aggregation": lambda given: open_switch_sums(given.communicator, given.store, given.opener),
    "hub": lambda given: open_hub_group(given.communicator, given.store, given.timeout_s, given.hub_client),
}
"""What opens an adder, or finds that it cannot serve, by the setting that asks for it; in the order of asking."""


def open_adders(given: Opening) -> Iterator[Adder]:
    """Opens those that the job's settings ask for, one by one. Blocks and raises as what opens them."""
    communicator = given.communicator
    for setting, opener in ADDERS.items():
        asked = getattr(communicator.job.settings, setting)
        if asked is not None and (adder := opener(given)) is not None:
            if communicator.rank == 0:
                said = RankLogger(communicator.job.rank, communicator.name)
                said.info("%s=%s is asked about calls that add", setting, asked)
            yield adder
