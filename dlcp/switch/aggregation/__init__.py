"""Jobs of a switch that adds, as its control plane has them: the file of jobs, a switch's entries, their deployment.

p4/aggregation.md explains the protocol, whose other end is the ranks' (`dlcp.transport.aggregation`). The switch reads
and changes the values, so nothing of a sum is authenticated: who can send from a worker's port can falsify it.
"""
