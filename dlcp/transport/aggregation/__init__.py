"""All-reduce through a switch that adds (p4/aggregation.md), for groups that ask for it.

The ranks' sessions carry the control: they agree on exponents before, and afterwards on whether everyone has every sum.
Only then does anyone use one; else the whole collective takes the ring. So a switch that is absent, restarts or loses
packets costs time, and no sum is wrong or in part the switch's. What the switch says is not authenticated.
"""
