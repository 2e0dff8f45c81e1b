"""What the network did to one rank: the counters of the endpoint behind the default group, as a report shows them."""

from __future__ import annotations

from statistics import median

import torch.distributed as dist

from dlcp.train.record import Network


def count_network() -> Network | None:
    """Everything since the group was made; None if the default group is another backend's."""
    communicator = getattr(dist.group.WORLD, "communicator", None)
    if communicator is None:
        return None
    endpoint = communicator.job.endpoint
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
