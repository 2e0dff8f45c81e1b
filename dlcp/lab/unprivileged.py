"""`dlcp lab run` without root: the same command again, in namespaces of its own where the user is root.

A user namespace gives network namespaces, cables, queues and packet sockets, and no BPF (measured: Linux 6.18). Names
of network namespaces lie under /run/netns, so /run becomes a folder in memory that only this command sees.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from dlcp.lab.fault import FabricError
from dlcp.lab.namespaces import NETNS, run

_INSIDE = "DLCP_LAB_INSIDE"
_UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]


def run_again(words: list[str]) -> None:
    """Replaces this process by `dlcp` with these words, as root of its own namespaces. FabricError: that is refused."""
    if shutil.which(_UNSHARE[0]) is None:
        raise FabricError("without root the lab needs unshare (Debian: util-linux)")
    probe = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True)
    if probe.returncode:
        raise FabricError(
            f"the lab needs root, or user namespaces, which are refused: {probe.stderr.strip()}"
        )
    sys.stdout.flush()
    os.environ[_INSIDE] = "1"
    os.execvp(_UNSHARE[0], [*_UNSHARE, sys.executable, "-m", "dlcp", *words])


def settle_in() -> None:
    """To be called first inside: makes room for names. Outside: does nothing."""
    if os.environ.pop(_INSIDE, None) is None:
        return
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    NETNS.mkdir()
    run("ip", "link", "set", "lo", "up")
    # Its XDG folder has just disappeared.
    os.environ.pop("XDG_RUNTIME_DIR", None)
