"""One buffer of gradients on its way: what every recipe stands on.

`pipeline` is the interface of a recipe. A recipe sees no group and no state, but the `peers` with whom it exchanges and
the `account` that counts. `pending_buffer` is what it gives back, and the rest is what several recipes share.
"""
