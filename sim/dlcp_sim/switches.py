"""Switch policies for each transport as its authors would set them, from a fabric's rates and round trips.

Each function gives a `dlcp.switch.Policy`, the object that real switches are configured from; every figure in it can be
given instead. `packet_bytes` is a full packet on the wire. What is the same for all: depths do not count the packet
in transmission, the same thresholds hold at every port, and control (class 7) overtakes data. `to_core` makes the
simulator's own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlcp.switch.policy import (
    Policy,
    PolicyError,
    Thresholds,
    TrafficClass,
    importance_levels,
)
from dlcp_sim.fabrics import Fabric

if TYPE_CHECKING:
    from dlcp_sim import _core

CONTROL_CLASS = 7
DATA_CLASSES = range(7)

BUFFER_BYTES_PER_BPS = 16e6 / (32 * 100e9)
"""16 MB for 32 ports of 100 Gb/s (Broadcom Tomahawk): 500 kB per such port."""
BUFFER_BYTES = 128_000
"""Slower ports have had no less: 9 MB for 64 of 10 Gb/s (Trident+), 4 MB for 48 of 1 Gb/s (Triumph)."""


def port_buffer_bytes(fabric: Fabric) -> int:
    """A port's even share of a commodity switch's buffer."""
    return max(round(BUFFER_BYTES_PER_BPS * fabric.rate_bps), BUFFER_BYTES)


def _everywhere(thresholds: Thresholds) -> tuple[TrafficClass, ...]:
    """The same for critical and droppable packets of all data classes."""
    return tuple(TrafficClass(n, critical=thresholds, droppable=(thresholds,)) for n in DATA_CLASSES)


def unbounded(*, path_choice: str = "path_id") -> Policy:
    """Queues without end: nothing is marked or lost. For closed forms and bounds, not a switch that exists."""
    return Policy("unbounded", path_choice=path_choice)


def drop_tail(fabric: Fabric, *, port_bytes: int | None = None, path_choice: str = "flow_hash") -> Policy:
    """First come, first served, until the buffer is full; one path per flow, as TCP wants it."""
    return Policy("drop_tail", path_choice=path_choice, port_bytes=port_bytes or port_buffer_bytes(fabric))


def dctcp_mark_bytes(fabric: Fabric, packet_bytes: int, port_bytes: int) -> int:
    """DCTCP's K: more than C · RTT / 7 (RFC 8257, 4.1), and room for what hosts send back to back.

    The authors took 20 packets at 1 Gb/s and 65 at 10 Gb/s, to let bursts of 30 to 40 packets pass that segmentation
    offload makes (Alizadeh et al., SIGCOMM 2010, 3.4). Simulated hosts make none; 20 packets are enough. Where a
    buffer is too small for that, as at the ends of a long link, half of it.
    """
    return min(max(fabric.bandwidth_delay_bytes(packet_bytes) // 7, 20 * packet_bytes), port_bytes // 2)


def dctcp(
    fabric: Fabric,
    *,
    packet_bytes: int = 4160,
    mark_above_bytes: int | None = None,
    port_bytes: int | None = None,
    path_choice: str = "flow_hash",
) -> Policy:
    """Marks all packets that find more than K waiting (a step on the depth now, no average)."""
    buffer = port_bytes or port_buffer_bytes(fabric)
    mark = dctcp_mark_bytes(fabric, packet_bytes, buffer) if mark_above_bytes is None else mark_above_bytes
    return Policy("dctcp", _everywhere(Thresholds(mark_from_bytes=mark)), path_choice, port_bytes=buffer)


def pfabric(
    fabric: Fabric, *, packet_bytes: int = 1500, port_bytes: int | None = None, path_choice: str = "random"
) -> Policy:
    """A buffer of two bandwidth-delay products, packets sprayed (Alizadeh et al., SIGCOMM 2013, 4.1 and 5).

    Which packet leaves and which is dropped goes by rank, so the port's discipline must be `least_rank`.
    """
    buffer = 2 * fabric.bandwidth_delay_bytes(packet_bytes) if port_bytes is None else port_bytes
    return Policy("pfabric", path_choice=path_choice, port_bytes=max(buffer, 2 * packet_bytes))


def ndp(
    fabric: Fabric, *, packet_bytes: int = 9000, queue_packets: int = 8, path_choice: str = "path_id"
) -> Policy:
    """Queues of eight packets; what finds them full loses its payload and goes on ahead of all data.

    Headers may take as much room as data does (Handley et al., SIGCOMM 2017, 3.1: 1,125 headers of 64 bytes beside
    eight jumbo packets), and go first, but for one data packet after ten of them: on a slow link headers alone would
    otherwise fill it for ever.
    """
    data = Thresholds(trim_above_bytes=(queue_packets - 1) * packet_bytes)
    headers = Thresholds(drop_above_bytes=queue_packets * packet_bytes)
    control = TrafficClass(CONTROL_CLASS, critical=headers, droppable=(headers,))
    classes = (*_everywhere(data), control)
    return Policy("ndp", classes, path_choice, trimmed_class=CONTROL_CLASS, trimmed_run_packets=10)


def lossless(
    fabric: Fabric,
    *,
    packet_bytes: int = 4160,
    mark_from_bytes: int | None = None,
    mark_full_bytes: int | None = None,
    mark_ratio: float = 0.01,
    pause_above_bytes: int | None = None,
    path_choice: str = "flow_hash",
) -> Policy:
    """Priority flow control, and marks for DCQCN: from 5 kB to 200 kB with up to 1 % at 40 Gb/s, all above.

    Figures of Zhu et al., SIGCOMM 2015, table 14, scaled with the rate. An input's class is paused when it has filled a
    port's share of the buffer, and goes on two packets below. Nothing is dropped: headroom is taken to be there.
    """
    scale = fabric.rate_bps / 40e9
    from_bytes = round(5_000 * scale) if mark_from_bytes is None else mark_from_bytes
    full_bytes = round(200_000 * scale) if mark_full_bytes is None else mark_full_bytes
    pause = port_buffer_bytes(fabric) if pause_above_bytes is None else pause_above_bytes
    return Policy(
        "lossless",
        _everywhere(Thresholds(from_bytes, full_bytes, mark_ratio)),
        path_choice,
        pause_above_bytes=pause,
        resume_below_bytes=max(0, pause - 2 * packet_bytes),
    )


def trimming(fabric: Fabric, *, packet_bytes: int = 4160, path_choice: str = "path_id") -> Policy:
    """As Ultra Ethernet's NSCC wants it: marks from 0.2 to 0.8 bandwidth-delay products, cuts off payloads above one.

    Never below two packets, so that short round trips leave room to queue at all, nor above three quarters of a port's
    even share of the buffer. Trimmed packets go ahead of data.
    """
    product = _trim_above_bytes(fabric, packet_bytes)
    thresholds = Thresholds(product // 5, product * 4 // 5, 1.0, trim_above_bytes=product)
    return Policy("trimming", _everywhere(thresholds), path_choice, trimmed_class=CONTROL_CLASS)


def _trim_above_bytes(fabric: Fabric, packet_bytes: int) -> int:
    """A bandwidth-delay product; that of a long link is more than a port's share of the buffer has room for."""
    product = min(fabric.bandwidth_delay_bytes(packet_bytes), port_buffer_bytes(fabric) * 3 // 4)
    return max(product, 5 * packet_bytes)


def dlcp(
    fabric: Fabric,
    *,
    packet_bytes: int = 4160,
    mark_above_bytes: int | None = None,
    drop_from_bytes: int | None = None,
    drop_full_bytes: int | None = None,
    port_bytes: int | None = None,
    trim: bool = True,
    path_choice: str = "adaptive",
) -> Policy:
    """Per class, droppable packets make room before critical ones do; the least important of them first.

    With `trim`, critical packets are marked and trimmed as `trimming` has it, and droppable ones trimmed above
    depths up to that of critical ones, from three quarters of it on. Without, critical packets are marked above
    `mark_above_bytes`, DCTCP's K, and dropped where the buffer ends but for an eighth that is left to control;
    droppable packets are dropped from half of that on, and all of them above three quarters, so that critical ones
    find room. What is dropped early has to be sent again beyond the budget, and leaves a link idle. Importance
    levels begin at `drop_from_bytes` and end at `drop_full_bytes`, in equal steps.
    """
    buffer = port_bytes or port_buffer_bytes(fabric)
    end = buffer * 7 // 8
    if trim:
        end = min(buffer * 3 // 4, _trim_above_bytes(fabric, packet_bytes))
        data = Thresholds(end // 5, end * 4 // 5, trim_above_bytes=end, drop_above_bytes=buffer * 7 // 8)
        if mark_above_bytes is not None:
            data = replace(data, mark_from_bytes=min(mark_above_bytes, end), mark_full_bytes=None)
    else:
        mark = (
            dctcp_mark_bytes(fabric, packet_bytes, buffer) if mark_above_bytes is None else mark_above_bytes
        )
        data = Thresholds(min(mark, end), drop_above_bytes=end)
    first, last = (end * 3 // 4, end) if trim else (end // 2, end * 3 // 4)
    full = last if drop_full_bytes is None else drop_full_bytes
    start = min(first, full) if drop_from_bytes is None else drop_from_bytes
    droppable = importance_levels("trim_above_bytes" if trim else "drop_above_bytes", start, full)
    classes = tuple(TrafficClass(n, critical=data, droppable=droppable) for n in DATA_CLASSES)
    return Policy("dlcp", classes, path_choice, port_bytes=buffer, trimmed_class=CONTROL_CLASS)


def to_core(policy: Policy) -> _core.Policy:
    """The simulator's policy. DSCP values, ports' rates and path groups are not its business: the fabric has them.

    Raises PolicyError for thresholds of single ports, which its switches do not know.
    """
    from dlcp_sim import _core

    for port in policy.ports:
        if port.classes:
            raise PolicyError(
                f"port {port.name!r} has thresholds of its own; accepted: none, simulated ports are alike"
            )
    core = _core.Policy()
    for number, levels in enumerate(policy.resolved().thresholds):
        for level, at in enumerate(levels):
            core.set_thresholds(
                number,
                level,
                mark_from=at.mark_from_bytes,
                mark_full=at.mark_full_bytes,
                mark_ratio=at.mark_ratio,
                trim_above=at.trim_above_bytes,
                drop_above=at.drop_above_bytes,
            )
    limits = ("port_bytes", "shared_bytes", "shared_alpha_log2", "pause_above_bytes", "resume_below_bytes")
    for name in ("path_choice", "trimmed_bytes", "trimmed_class", "trimmed_run_packets", *limits):
        if (value := getattr(policy, name)) is not None:  # None: the core's default, no limit
            setattr(core, name, value)
    error = core.validate()
    assert not error, f"a policy that Python accepts and the core refuses: {error}"
    return core


def with_shared_buffer(policy: Policy, shared_bytes: int, alpha_log2: int = 0) -> Policy:
    """`policy` with one buffer for a whole switch, and dynamic thresholds, in place of one per port."""
    return replace(policy, port_bytes=None, shared_bytes=shared_bytes, shared_alpha_log2=alpha_log2)


BY_NAME = {
    "drop_tail": drop_tail,
    "dctcp": dctcp,
    "pfabric": pfabric,
    "ndp": ndp,
    "lossless": lossless,
    "trimming": trimming,
    "dlcp": dlcp,
}
"""What a scenario's file may name; each takes the fabric and keywords."""
