"""The switch half: the policy that every switch of a fabric is told.

It uses what `p4` compiles to and never `dlcp.transport`; `tests/test_layers.py` checks that.
"""

from dlcp.switch.policy import Policy, PolicyError, Port, Thresholds, TrafficClass

__all__ = ["Policy", "PolicyError", "Port", "Thresholds", "TrafficClass"]
