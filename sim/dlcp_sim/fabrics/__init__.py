"""Fabrics to simulate: trees of up to three tiers, a bottleneck, two sites, or any graph from a file.

A fabric is a description, in seconds and bits per second; it says at once what is wrong with it (ArgumentError: the
field, its value, what is accepted) and costs nothing until `build` makes the simulator's own from it. Hosts are
"host 0", "host 1", …; switches of a tree "edge 3", "aggregation 1", "core 0", of other graphs "switch 2", or as the
file calls them. Every link has two directions, each with a queue of its own at the sending end.
"""

from dlcp_sim.fabrics.base import Fabric
from dlcp_sim.fabrics.base import FabricError as FabricError
from dlcp_sim.fabrics.graphs import Cable as Cable
from dlcp_sim.fabrics.graphs import Dumbbell, Graph, GraphFile, TwoSites
from dlcp_sim.fabrics.trees import FatTree, LeafSpine, Star, ThreeTier

__all__ = [
    "Dumbbell",
    "Fabric",
    "FatTree",
    "Graph",
    "GraphFile",
    "LeafSpine",
    "Star",
    "ThreeTier",
    "TwoSites",
]
