"""Few of many values: how many travel, in which frames, and what waits.

`pipeline` joins these to one that lacks only the choice, which is what the recipes mstopk and redsync are.
"""
