"""One end of a transfer across the lab, run as a program: JSON settings in, JSON findings out.

transfer_peer.py receive '{"bind": "10.77.0.2", …}'     prints {"ready": …} first
transfer_peer.py send '{"bind": "10.77.0.1", "to": "10.77.0.2:7500", …}'
"""

from __future__ import annotations

import json
import sys

import numpy as np

from dlcp.transport import IMPORTANCE_CRITICAL, Endpoint

PORT = 7500
UNTOUCHED = 0xA5


def content(message: int, size: int) -> np.ndarray:
    """The bytes of one message: no two messages, and no two places in one, are alike for long."""
    return np.random.default_rng(message).integers(0, 256, size, np.uint8)


def importance(blocks: int) -> np.ndarray:
    """Every third block critical, the others droppable in ascending order of worth."""
    scores = np.linspace(0, 254, blocks).astype(np.uint8)
    scores[::3] = IMPORTANCE_CRITICAL
    return scores


def open_endpoint(rank: int, options: dict) -> Endpoint:
    """An endpoint on the lab's address, with whatever the test changes."""
    settings = {"allow_unauthenticated": True, **options.get("settings", {})}
    if "key" in settings:
        settings["key"] = bytes.fromhex(settings["key"])
    return Endpoint(rank, bind_host=options["bind"], **settings)


def receive(options: dict) -> None:
    """Takes every message in turn and says what is wrong with it."""
    found = []
    with open_endpoint(1, {**options, "settings": {**options.get("settings", {}), "port": PORT}}) as endpoint:
        print(json.dumps({"ready": endpoint.address}), flush=True)
        endpoint.wait_for_peer(0, timeout_s=20)
        for message in range(options["messages"]):
            buffer = np.full(options["bytes"], UNTOUCHED, np.uint8)
            outcome = endpoint.receive(0, buffer, tag=message, timeout_s=20)
            expected = content(message, options["bytes"])
            for begin, end in outcome.abandoned_ranges():
                expected[begin:end] = UNTOUCHED
            critical = importance(outcome.blocks) == IMPORTANCE_CRITICAL
            found.append(
                {
                    "wrong_bytes": int(np.count_nonzero(buffer != expected)),
                    "abandoned_bytes": outcome.abandoned_bytes,
                    "abandoned_critical_blocks": int(np.count_nonzero(outcome.abandoned & critical)),
                    "accounted_bytes": outcome.delivered_bytes + outcome.abandoned_bytes,
                }
            )
        # The sender leaves first, so that its last message is over on both sides.
        print(json.dumps(found), flush=True)
        sys.stdin.read()


def send(options: dict) -> None:
    """Sends every message in turn, and says what it was told became of it."""
    found = []
    with open_endpoint(0, options) as endpoint:
        endpoint.connect(1, options["to"], timeout_s=20)
        how = dict(options["how"])
        if how.get("delivery", "reliable") != "reliable":
            how["importance"] = importance(endpoint.block_count(1, options["bytes"]))
        for message in range(options["messages"]):
            outcome = endpoint.send(1, content(message, options["bytes"]), tag=message, timeout_s=20, **how)
            found.append(
                {
                    "abandoned_bytes": outcome.abandoned_bytes,
                    "retransmitted_bytes": outcome.retransmitted_bytes,
                    "block_bytes": outcome.block_bytes,
                }
            )
        down = [path.path for path in endpoint.path_stats(1) if not path.up]
    print(json.dumps({"messages": found, "paths_down": down}), flush=True)


if __name__ == "__main__":
    {"receive": receive, "send": send}[sys.argv[1]](json.loads(sys.argv[2]))
