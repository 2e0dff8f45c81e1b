"""All-reduce through a switch that adds: the host's side of p4/aggregation.p4.

`Worker` and `Hub` are protocol engines like the transport's: they are given packets and the time, and answer packets
and events; they open no socket and read no clock. `udp` drives them over sockets, `entries` says what a switch is told
for a job. p4/aggregation.md explains the protocol, and why all workers end with the same bits.

The switch reads and changes the values, so nothing here can be authenticated end to end: any host that can send from a
worker's port can falsify a sum. It is for networks and switches that are trusted, and has to be asked for by name
(`JobSettings(trust_switch=True)`). An authenticated dlcp job never uses it.
"""

from dlcp.switch.aggregation.entries import JobPlacement, Participant, job_entries
from dlcp.switch.aggregation.hub import Hub
from dlcp.switch.aggregation.result import AggregationResult
from dlcp.switch.aggregation.settings import JobSettings
from dlcp.switch.aggregation.worker import Failed, Finished, Worker

__all__ = [
    "AggregationResult",
    "Failed",
    "Finished",
    "Hub",
    "JobPlacement",
    "JobSettings",
    "Participant",
    "Worker",
    "job_entries",
]
