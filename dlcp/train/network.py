"""What one rank gave to the network, and what the network did to it.

Of dlcp the counters of the endpoint behind the default group; of Gloo the kernel's, of TCP. Where exchanges
are compared, the counter of the host's interface, whoever sends.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import torch.distributed as dist

from dlcp.train import tcp
from dlcp.train.record import Network

if TYPE_CHECKING:
    from dlcp.transport import Endpoint


def count_sent_bytes(sharers: int = 0) -> int | None:
    """Payload of UDP or TCP that this rank has sent: gradients, headers above IP's and TCP's, control, repairs.

    `sharers`: ranks on this host of a lab. If it is not 0, an equal part of what the host's interface has sent,
    with all headers. None: nobody counts. Meant for differences: TCP's is of all connections that are open.
    """
    if sharers:
        from dlcp.lab.namespaces import INTERFACE, interface_bytes

        return interface_bytes(INTERFACE) // sharers
    endpoint = _endpoint()
    return tcp.sent_bytes() if endpoint is None else endpoint.stats().io.tx_bytes


def count_network() -> Network | None:
    """Everything since the group was made; None if the default group is another backend's."""
    endpoint = _endpoint()
    if endpoint is None:
        return None
    counted = endpoint.stats()
    engine, io = counted.engine, counted.io
    times_s = [endpoint.peer_stats(peer).rtt_s_min for peer in endpoint.peers]
    return Network(
        sent_packets=io.tx_packets,
        sent_bytes=io.tx_bytes,
        gradient_bytes=engine.data_bytes_sent - engine.repair_bytes_sent,
        repair_packets=engine.repair_packets_sent,
        repair_bytes=engine.repair_bytes_sent,
        received_packets=io.rx_packets,
        injected_packets=counted.injected_lost_packets,
        lost_packets=max(0, engine.lost_packets - engine.spurious_losses),
        marked_packets=engine.ce_packets_received,
        refused_packets=engine.foreign_job
        + engine.stale_session
        + engine.bad_tag
        + engine.unauthenticated
        + engine.replayed
        + engine.malformed_frames
        + engine.inconsistent
        + sum(engine.malformed.values()),
        abandoned_bytes=engine.abandoned_bytes,
        rtt_s=median(times_s) if times_s else 0.0,
    )


def _endpoint() -> Endpoint | None:
    """The default group's; None: it is another backend's."""
    communicator = getattr(dist.group.WORLD, "communicator", None)
    return None if communicator is None else communicator.job.endpoint


def count_sums() -> dict[str, int] | None:
    """All-reduces that a switch was asked for, by who added them: "switch", or why the ring did. None: none was."""
    communicator = getattr(dist.group.WORLD, "communicator", None)
    counted = None if communicator is None else communicator.job.metrics.snapshot()["aggregation"]
    return None if counted is None else {"switch": counted["by_switch"], **counted["by_ring"]}
