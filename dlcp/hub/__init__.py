"""The hub's service: `dlcp hub`. It adds for the workers of many jobs at once, each apart from the others.

    command.py   the command line
    keys.py      the file with the jobs' keys
    service.py   accepts ranks, and keeps the jobs
    job.py       one job: its cores, its memory, the ranks that are connected
    group.py     one group: follows what the workers announce
    deadlines.py calls what is due
    core.py      one core: an endpoint with its thread, and a bound on memory
    core_group.py, memory.py    a core's end of a group; the memory of its keys

How ranks see it: dlcp/transport/hub.
"""
