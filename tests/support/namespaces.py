"""Network namespaces for tests that look at interfaces: made by hand, nothing shaped, nothing compiled.

The benchmarks' lab (bench/lab) is for traffic; this is for the strange hosts that it has none of: an interface that is
down, one without an address, a cable that is cut. A thread can be in a namespace while the rest of the process is not,
so what runs in one is plain Python. Needs root and iproute2.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")
_CLONE_NEWNET = 0x40000000
_serial = itertools.count()


def missing() -> str | None:
    """Why there can be no namespaces here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need ip (Debian: iproute2)"
    name = f"dlcp-{os.getpid()}-probe{next(_serial)}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return f"no network namespaces here: {made.stderr.strip()}" if made.returncode else None


class Namespace:
    """A network of its own with loopback up, from `with` to its end."""

    def __enter__(self) -> Namespace:
        self.name = f"dlcp-{os.getpid()}-t{next(_serial)}"
        self._ip("netns", "add", self.name)
        self.ip("link set lo up")
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)

    def ip(self, words: str) -> None:
        """Runs `ip` in it."""
        self._ip("-n", self.name, *words.split())

    def join(self, other: Namespace, own_name: str = "eth0", other_name: str = "eth0") -> None:
        """A cable between two namespaces, or two interfaces of one; both ends are down."""
        self.ip(f"link add {own_name} type veth peer name {other_name} netns {other.name}")
        for end, name in ((self, own_name), (other, other_name)):
            # No IPv6 of the kernel's own: what is there is what the test put there.
            end.ip(f"link set {name} addrgenmode none")

    def command(self, *words: object) -> list[str]:
        """The command line that runs `words` in it."""
        return ["ip", "netns", "exec", self.name, *map(str, words)]

    def run(self, function: Callable[[], Result]) -> Result:
        """What the function returns or raises when it runs in a thread that is in this namespace."""
        results: list[Result] = []
        errors: list[BaseException] = []

        def inside() -> None:
            try:
                with Path(f"/run/netns/{self.name}").open() as handle:
                    if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), _CLONE_NEWNET) != 0:
                        raise OSError(ctypes.get_errno(), f"setns {self.name}")
                results.append(function())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    @staticmethod
    def _ip(*words: str) -> None:
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
        assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr.strip()}"
