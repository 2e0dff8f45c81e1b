"""A hub as a job's ranks see it: how they join, announce what comes next, and have it added there.

    control.py       the connection by which a rank joins and opens groups
    announcement.py  what a worker says before each collective
    buffer.py        what is reduced at a time
    coded.py         what it says of a coded sum
    plan.py          the plan of an all-reduce over a hub, for workers and cores
    client.py        a rank's connections to hubs
    group.py         a worker's end of a group with a hub

The service itself is `dlcp hub` (dlcp/hub).
"""
