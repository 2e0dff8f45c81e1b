"""Samples kept near the ranks that train on them: a data set's cache in levels, and the order of an epoch.

    remote (the data set)  ->  disk (raw)  ->  memory (decoded, shared out over ranks)  ->  transform

`cache.py` joins the levels, `disk_level.py` and `memory_level.py` are one each, `ownership.py` says whose memory and
disk a sample belongs to, `exchange.py` reads other ranks' memory, `sampler.py` draws each epoch's order.
"""
