"""What a policy's buffer lets one queue hold. Pure."""

from __future__ import annotations

import math

from dlcp.switch.policy import Policy


def queue_end_bytes(policy: Policy) -> int | None:
    """The most that ever waits in a queue, which is when all others are empty. None: there is no end.

    Of a shared buffer a queue holds at most alpha times what is left, so alpha / (1 + alpha) of the whole.
    """
    if policy.shared_bytes is None:
        return policy.port_bytes
    return math.floor(policy.shared_bytes / (1 + 2.0**-policy.shared_alpha_log2))
