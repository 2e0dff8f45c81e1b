"""Which limit binds if this host is a hub: its rates, measured or stated, and the balance model of them.

The network's rate is stated, or the card's. The memory's is that of sums of arrays beyond the caches, on all cores at
once. A core's is made of what it does with a byte of a contribution one after the other: it receives and sends it, as
two endpoints do over loopback, and adds it and applies the sum, as an optimizer with momentum does.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator

import numpy as np

from dlcp import _native as native
from dlcp.doctor.balance import CORES, MEMORY, NETWORK, WORKERS, Balance, HubRates, balance, traffic_per_byte
from dlcp.doctor.ethtool import read_card
from dlcp.doctor.finding import Finding, Topic, listed
from dlcp.doctor.loopback import loopback_pair
from dlcp.doctor.network import choose_place
from dlcp.errors import DlcpError
from dlcp.transport import Settings
from dlcp.transport.interfaces import list_interfaces

HUB = Topic("hub")
# Of one array of one core: with two of them, more than a core's share of any cache; and of all together at most.
_ARRAY_BYTES = 32 << 20
_MEMORY_BYTES_MAX = 4 << 30
# The best of them counts: what else runs on the host only ever takes away.
_TURNS = 9
_FLOAT_BYTES = 4
_NAMES = {WORKERS: "the workers' links", NETWORK: "its network", MEMORY: "its memory", CORES: "its cores"}
_REMEDIES = {
    NETWORK: "more ports or faster ones, or several hubs that share the keys",
    MEMORY: "more memory channels in use, or several hubs that share the keys",
    CORES: "more cores for the hub, or several hubs that share the keys",
}


@listed
def look_at_hub(
    settings: Settings, workers: int, worker_bps: float, hub_bps: float | None, toward: str | None = None
) -> Iterator[Finding]:
    """Findings about this host as a hub of `workers` with links of `worker_bps` each.

    `hub_bps`: the rate of its own links; None: the setting line_rate_bps, or that of the card that leads to `toward`,
    and no limit where neither says. Takes about a second, of all processors that this process may use.
    """
    if hub_bps is None:
        hub_bps, whose = _line_rate(settings, toward)
    else:
        whose = "--hub-gbps"
    try:
        pair = loopback_pair()
    except DlcpError as error:
        yield HUB.fail(f"no endpoint opens on loopback: {error}")
        return
    if pair.goodput_bps is None:
        yield HUB.fail(f"two endpoints of this process do not reach each other over loopback: {pair.error}")
        return
    cores = len(os.sched_getaffinity(0))
    memory = memory_bytes_per_s(cores)
    update = update_bytes_per_s(workers)
    packets = pair.goodput_bps / 8
    rates = HubRates(
        math.inf if hub_bps is None else hub_bps / 8, memory, 1 / (2 / packets + 1 / update), cores
    )
    if hub_bps is None:
        text = f"network: the line rate of {whose} is not known, so it is taken for no limit"
        yield HUB.warn(text, "dlcp doctor --hub --hub-gbps N, with the rate of the hub's link")
    else:
        yield HUB.ok(f"network: {_rate(rates.network_bytes_per_s)} one way ({whose})")
    per_byte = traffic_per_byte(workers, 1)
    yield HUB.ok(
        f"memory: {_rate(memory)} by {cores} cores; {per_byte:.1f} bytes of it for each of a contribution, with SGD and"
        " momentum"
    )
    yield HUB.ok(
        f"cores: {cores} of {_rate(rates.core_bytes_per_s)} each, which receive and send at {_rate(packets)} and add"
        f" and update at {_rate(update)}"
    )
    yield describe(balance(rates, workers, worker_bps / 8), workers)


def describe(found: Balance, workers: int) -> Finding:
    """The limit that binds, and the factor to the next."""
    text = (
        f"it takes in {_rate(found.bytes_per_s)} from {workers} workers, bound by {_NAMES[found.binding]}; the next"
        f" limit is {_NAMES[found.following]}, at {found.factor:.2f} times that"
    )
    if found.binding == WORKERS:
        return HUB.ok(text)
    return HUB.warn(text, _REMEDIES[found.binding])


def memory_bytes_per_s(cores: int) -> float:
    """What `cores` threads together read and write of memory: sums of two arrays into one of them."""
    count = min(_ARRAY_BYTES, _MEMORY_BYTES_MAX // (2 * cores)) // _FLOAT_BYTES
    # Not zeros, which the kernel would all read from one page.
    arrays = [np.full((2, count), 0.5, np.float32) for _ in range(cores)]
    together = threading.Barrier(cores)
    # Each thread's own times: another might look at the clock late.
    spans_s = [[(0.0, 0.0)] * _TURNS for _ in range(cores)]

    def add(own: list[tuple[float, float]], a: int, b: int) -> None:
        for turn in range(_TURNS):
            together.wait()
            begin_s = time.perf_counter()
            native.reduce(native.DataType.f32, native.ReduceOp.sum, a, a, b, count)
            own[turn] = (begin_s, time.perf_counter())

    threads = [
        threading.Thread(target=add, args=(own, *(one.ctypes.data for one in pair)), daemon=True)
        for own, pair in zip(spans_s, arrays, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times_s: list[float] = [
        max(end_s for _, end_s in turn) - min(begin_s for begin_s, _ in turn)
        for turn in zip(*spans_s, strict=True)
    ]
    return 3 * count * _FLOAT_BYTES * cores / min(times_s)


def update_bytes_per_s(workers: int) -> float:
    """Contributions of `workers` (of 8, if there are more) that one core adds and applies, as memory brings them."""
    parts = min(workers, 8)
    memory = np.full((parts + 1, _ARRAY_BYTES // _FLOAT_BYTES), 0.5, np.float32)
    weights, *contributions = (one.ctypes.data for one in memory)
    optimizer = native.Optimizer(native.Sgd(0.1, momentum=0.9), memory.shape[1])
    times_s = []
    for _ in range(_TURNS):
        begin_s = time.thread_time()
        optimizer.step(contributions, weights, divisor=parts)
        times_s.append(time.thread_time() - begin_s)
    return parts * _ARRAY_BYTES / min(times_s)


def _line_rate(settings: Settings, toward: str | None) -> tuple[float | None, str]:
    """As set, or of the interface that dlcp would use; and whose it is."""
    if settings.line_rate_bps:
        return float(settings.line_rate_bps), "line_rate_bps"
    if settings.below_kernel:
        return None, f"a port of {settings.network_driver}"
    try:
        name = choose_place(settings, toward, list_interfaces()).interface
    except DlcpError:
        name = None
    if name is None:
        return None, "the interface"
    return read_card(name).speed_bps, name


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s * 1e-9:.2f} GB/s"
