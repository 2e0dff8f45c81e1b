"""Which limit binds a hub that adds gradients and updates weights: the balance model of PBox.

PBox (SoCC 2018, arXiv 1805.07891) is in balance where network, memory and cores take in contributions at one rate. All
limits here are bytes of contributions per second, of all workers together. The hub sends as much as it takes in, and
links carry both ways at once. For each byte of a contribution memory carries, if the card writes to no cache:

    1               as the card writes it
    1               as a core reads it; the sum stays in the core's second-level cache
    1               as the card reads what the hub sends
    2 (1 + s) / k   as the optimizer reads and writes weights and s arrays of state, once for k workers
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlcp import checks

NETWORK, MEMORY, CORES, WORKERS = "network", "memory", "cores", "workers"


@dataclass(frozen=True, slots=True)
class HubRates:
    """What was measured or stated of a hub."""

    network_bytes_per_s: float
    """All its ports together, one way."""
    memory_bytes_per_s: float
    """What all cores together read and write of memory."""
    core_bytes_per_s: float
    """Contributions that one core adds and applies, with what it does to receive and to send them."""
    cores: int


@dataclass(frozen=True, slots=True)
class Balance:
    """The limits of a hub with some workers, and which of them binds."""

    limits: dict[str, float]
    """Bytes of contributions per second that each would allow by itself, the least first."""

    @property
    def binding(self) -> str:
        """The name of the least limit."""
        return next(iter(self.limits))

    @property
    def bytes_per_s(self) -> float:
        """Contributions that the hub takes in."""
        return self.limits[self.binding]

    @property
    def following(self) -> str:
        """The limit that binds once the least is removed."""
        return list(self.limits)[1]

    @property
    def factor(self) -> float:
        """How much faster it is once the least limit is removed."""
        return self.limits[self.following] / self.bytes_per_s

    def step_s(self, model_bytes: float, workers: int) -> float:
        """Seconds in which gradients of all workers come in, while weights of the same size go out."""
        return workers * model_bytes / self.bytes_per_s


def traffic_per_byte(workers: int, states: int) -> float:
    """Bytes of memory that are read or written for each byte of a contribution."""
    return 3 + 2 * (1 + states) / workers


def balance(rates: HubRates, workers: int, worker_bytes_per_s: float, states: int = 1) -> Balance:
    """The limits for `workers` that each send at `worker_bytes_per_s` at most.

    `states`: arrays of the optimizer's state (SGD with momentum 1, Adam 2). Of equal limits the first of workers,
    network, memory, cores binds. Raises ArgumentError: a number that is not above 0.
    """
    checks.integer("workers", workers, 1)
    checks.integer("states", states, 0)
    checks.integer("cores", rates.cores, 1)
    for name, rate in (
        ("worker_bytes_per_s", worker_bytes_per_s),
        ("network_bytes_per_s", rates.network_bytes_per_s),
        ("memory_bytes_per_s", rates.memory_bytes_per_s),
        ("core_bytes_per_s", rates.core_bytes_per_s),
    ):
        if not (rate > 0 and math.isinf(rate)):  # without a limit: allowed, as after its removal
            checks.number(name, rate, 0, above=True)
    limits = {
        WORKERS: workers * worker_bytes_per_s,
        NETWORK: rates.network_bytes_per_s,
        MEMORY: rates.memory_bytes_per_s / traffic_per_byte(workers, states),
        CORES: rates.cores * rates.core_bytes_per_s,
    }
    return Balance(dict(sorted(limits.items(), key=lambda one: one[1])))
