"""One rank as a process: `python -m dlcp.train.worker RANK WORLD_SIZE DESCRIPTOR HOST`.

It takes orders from standard input and reports to the pipe DESCRIPTOR, a JSON object per line; what it and the
libraries print goes to a log file, so that the reports stay clean. It trains one run after another, so that importing
torch is paid once. Rank 0 serves the store where the ranks of a run meet, at HOST.

    orders    {"store": [host, port], "number": 0, "run": {…}, "data": "…", "options": {…}, "sharers": 0,
               "timeout_s": 60}
    reports   {"event": "ready", "port": …}, then per run "step", "epoch", "done", or "error" with "text", the last word

It never outlives the driver: at the end of its input, also in the middle of a run, it ends.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, TextIO

import torch
from torch._C._distributed_c10d import PrefixStore, TCPStore

from dlcp.train.plan import Run
from dlcp.train.training import train, warm_up


def main(words: list[str]) -> int:
    """Serves until the input ends. Returns the exit status."""
    rank, world_size, host = int(words[0]), int(words[1]), words[3]
    torch.set_num_threads(1)  # a process per rank is parallel enough
    warm_up()
    reports = os.fdopen(int(words[2]), "w", buffering=1)
    orders = _read_orders()
    # Served even before others connect, and on any free port, which the driver tells them.
    store = TCPStore(host, 0, world_size, True, wait_for_workers=False) if rank == 0 else None
    _say(reports, "ready", {"port": store.port if store is not None else None})
    while (order := orders.get()) is not None:
        if store is None:
            host, port = order["store"]
            store = TCPStore(host, port, world_size, False)
        run = Run.from_dict(order["run"])
        try:
            train(
                run,
                Path(order["data"]),
                PrefixStore(f"run {order['number']}", store),
                rank=rank,
                world_size=world_size,
                options=order["options"],
                sharers=order["sharers"],
                timeout_s=order["timeout_s"],
                report=lambda event, values: _say(reports, event, values),
            )
        except Exception as error:
            traceback.print_exc()
            # C++ adds its stack; that is in the log.
            _say(reports, "error", {"text": f"{type(error).__name__}: {error}".partition("\n")[0]})
            return 1
    return 0


def _say(reports: TextIO, event: str, values: dict[str, Any]) -> None:
    reports.write(json.dumps({"event": event, **values}) + "\n")


def _read_orders() -> queue.SimpleQueue[dict[str, Any] | None]:
    """What the driver wants, None at its end. A run under way when the driver ends is not worth finishing."""
    orders: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            order = json.loads(line)
            orders.put(order)
            if order is None:
                return
        os._exit(1)  # without a word of goodbye: the driver is gone

    threading.Thread(target=read, name="orders", daemon=True).start()
    return orders


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
