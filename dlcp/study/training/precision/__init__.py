"""How many bits a gradient needs, and who should decide: `dlcp study precision`.

Small models train in one process. Four workers exchange whole gradients in few bits, with a residual at the sender and
at the owner (exchange.py). A flat code gives every value the same bits. A layered one sends a base and refines it where
capacity is left, most important blocks first (arm.py, capacity.py).
"""
