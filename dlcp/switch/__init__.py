"""The switch half: settings to table entries, then pushing them to a target.

Empty for now. It uses what `p4` compiles to and never `dlcp.transport`; `tests/test_layers.py` checks that.
"""
