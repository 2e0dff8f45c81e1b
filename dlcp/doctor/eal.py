"""Starts DPDK and says on standard output, as JSON, what it finds: for `dlcp doctor`, in a process of its own.

DPDK is started once per process and takes devices and memory until the process ends; the doctor must not keep them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

from dlcp.errors import DlcpError
from dlcp.transport import dpdk

# A machine with hundreds of GiB of huge pages clears them first.
_TIMEOUT_S = 120.0


def ask_eal(arguments: str) -> dict[str, Any]:
    """What DPDK finds when it is started with these arguments: `ports` and `log`, or `error`, a sentence.

    In this process, where DPDK runs already, with what it was started with. Blocks for DPDK's start.
    """
    if dpdk.started():
        return _look()
    words = [sys.executable, "-m", "dlcp.doctor.eal", arguments]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return {"error": f"DPDK has not started within {_TIMEOUT_S:g} s"}
    try:
        # Libraries below DPDK may print as well.
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        return {"error": f"DPDK ends the process that starts it, with {how}: {last}"}
    return found


def _look() -> dict[str, Any]:
    try:
        return {"ports": [asdict(port) for port in dpdk.ports()], "log": dpdk.log()}
    except DlcpError as error:
        return {"error": str(error)}


def _main(arguments: str) -> None:
    try:
        dpdk.start(arguments)
    except DlcpError as error:
        print(json.dumps({"error": str(error)}))
    else:
        print(json.dumps(_look()))


if __name__ == "__main__":
    _main(sys.argv[1])
