"""The switch half: the policy that every switch of a fabric has, and how it gets there.

`Policy` is written once; `Topology` says which P4Runtime switches take it. `dlcp.switch.deploy` brings it onto those,
`dlcp.switch.render` writes it in the languages of ordinary switches, `dlcp.switch.software` is a switch itself; none of
them is loaded from here. It uses what `p4` compiles to and never `dlcp.transport`; `tests/test_layers.py` checks that.
"""

from dlcp.switch.policy import Policy, PolicyError, Port, Thresholds, TrafficClass
from dlcp.switch.topology import BridgeEntry, Route, SwitchTarget, Topology, TopologyError

__all__ = [
    "BridgeEntry",
    "Policy",
    "PolicyError",
    "Port",
    "Route",
    "SwitchTarget",
    "Thresholds",
    "Topology",
    "TopologyError",
    "TrafficClass",
]
