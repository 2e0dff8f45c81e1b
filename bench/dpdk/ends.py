"""Two processes at the ends of a link, each on a core of its own: through shared memory, a veth cable or loopback.

A device is named by what DPDK is started with, so that DPDK alone (dpdk_limit) and the dpdk driver get the same one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import huge_pages, programs
from dlcp import lab

# Of the first end, which asks and sends, and of the second. The kernel has other addresses, so that it answers none of
# what DPDK sends over its interfaces.
ADDRESSES = ("10.78.0.1", "10.78.0.2")
KERNEL_ADDRESSES = ("10.78.1.1", "10.78.1.2")
MACS = ("02:00:00:00:78:01", "02:00:00:00:78:02")
PORT = 7000
PREFIX_BITS = 24
NO_PAGES = "--no-huge -m 128"
PAGES = "--in-memory -m 64"
PAGES_EACH = 32  # of 2 MB
LINK_S = 0.3  # until both ends of a link know that it stands
LIMIT_S = 60

Words = dict[str, object]


@dataclass(frozen=True)
class Device:
    """A virtual device of DPDK, by end. `{folder}` becomes a folder that both ends share."""

    arguments: tuple[str, str]
    name: str
    window: int  # packets that its rings hold for sure
    namespaces: bool = False
    mtu: int = 0


MEMIF = Device(
    (
        f"--vdev=net_memif0,role=client,socket={{folder}}/m.sock,socket-abstract=no,bsize=2048,rsize=10,mac={MACS[0]}",
        f"--vdev=net_memif0,role=server,socket={{folder}}/m.sock,socket-abstract=no,bsize=2048,rsize=10,mac={MACS[1]}",
    ),
    "net_memif0",
    window=768,
)
# framesz: a slot of the kernel's ring, with its header.
AF_PACKET = Device(
    ("--vdev=net_af_packet0,iface=eth0,framesz=2048,framecnt=1024",) * 2,
    "net_af_packet0",
    window=384,
    namespaces=True,
)
NULL = Device(("--vdev=net_null0,no-rx=1",) * 2, "net_null0", window=0)
NULL_JUMBO = Device(NULL.arguments, "net_null0", window=0, mtu=9000)


def eal(device: Device, end: int, memory: str = NO_PAGES) -> str:
    """What DPDK is started with at one end."""
    separate = "" if "--in-memory" in memory else f" --no-shconf --file-prefix=dlcp-bench-{os.getpid()}-{end}"
    return f"{memory}{separate} --no-pci --no-telemetry --log-level=error {device.arguments[end]}"


def driver(device: Device, end: int, options: str = "", memory: str = NO_PAGES) -> Words:
    """Words that open the dpdk driver there; the other end's Ethernet address is told, so that nobody need ask."""
    extra = f"port={device.name} neighbour={ADDRESSES[1 - end]}@{MACS[1 - end]}"
    extra += f" mtu={device.mtu}" if device.mtu else ""
    extra += f" {options}" if options else ""
    return {
        "driver": "dpdk",
        "bind": f"{ADDRESSES[end]}/{PREFIX_BITS}",
        "port": PORT,
        "extra": f"{extra} -- {eal(device, end, memory)}",
    }


def without_driver() -> str | None:
    """Why the driver cannot be measured, or None."""
    if (programs.path("driver_rate").parent / "libdlcp_io_dpdk.so").is_file():
        return without_dpdk()
    return "the dpdk driver is not built (Debian: libdpdk-dev, dpdk, pkgconf)"


def without_dpdk() -> str | None:
    """Why DPDK alone cannot be measured, or None."""
    try:
        programs.path("dpdk_limit")
    except programs.ProgramError as error:
        return str(error)
    return None


def cores() -> tuple[int, int]:
    """One for each end; the same twice on a machine that has no other."""
    mine = sorted(os.sched_getaffinity(0))
    return mine[0], mine[-1]


@dataclass
class Ends:
    """Where the two processes run: words before their commands, and a folder that both see."""

    folder: Path
    prefixes: Sequence[Sequence[str]] = field(default_factory=lambda: ((), ()))

    def line(self, end: int, program: str, words: Words) -> list[str]:
        line = [*self.prefixes[end], "timeout", str(LIMIT_S), "taskset", "-c", str(cores()[end])]
        return line + [word.replace("{folder}", str(self.folder)) for word in programs.words(program, words)]

    def move(
        self, sender: tuple[str, Words], receiver: tuple[str, Words], **both: object
    ) -> tuple[dict, dict]:
        """Runs a sender and a receiver of rate_loop.hpp; what each says in the end."""
        both["progress"] = str(self.folder / "progress")
        with self._started(1, receiver[0], {"role": "receive", **receiver[1], **both}) as to:
            ready = _answer(to)
            words = dict(sender[1])
            if sender[0] == "driver_rate":
                words["to"] = ready.get("address", f"{ADDRESSES[1]}:{PORT}")
            with self._started(0, sender[0], {"role": "send", **words, **both}) as of:
                _answer(of)
                start = f"{time.monotonic() + LINK_S}\n"
                for process in (of, to):
                    process.stdin.write(start)
                    process.stdin.flush()
                received = _answer(to)
                to.communicate()  # it goes first
                of.stdin.close()
                answers = _answer(of), received
        self._clear()
        return answers

    def send(self, program: str, words: Words, **more: object) -> dict:
        """A sender of rate_loop.hpp that nobody listens to."""
        if program == "driver_rate":
            words = {**words, "to": f"{ADDRESSES[1]}:{PORT}"}
        with self._started(0, program, {"role": "send", **words, **more}) as of:
            _answer(of)
            of.stdin.write("0\n")
            of.stdin.flush()
            return _answer(of)

    def ask(self, asking: Words, answering: Words, **both: object) -> tuple[dict, dict]:
        """Runs the two roles of driver_messages; what each says in the end."""
        with self._started(1, "driver_messages", {"role": "answer", **answering, **both}) as to:
            address = _answer(to)["address"]
            with self._started(0, "driver_messages", {"role": "ask", "to": address, **asking, **both}) as of:
                asked = _answer(of)
                to.terminate()
                answers = asked, _answer(to)
                to.communicate()  # it goes first
        self._clear()
        return answers

    @contextlib.contextmanager
    def _started(self, end: int, program: str, words: Words) -> Iterator[subprocess.Popen[str]]:
        line = self.line(end, program, words)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(line, text=True, **pipes)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                pipe.close()

    def _clear(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()


def _answer(process: subprocess.Popen[str]) -> dict:
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    if not line:
        said = " ".join(process.stderr.read().strip().splitlines()[-5:])
        raise programs.ProgramError(f"{' '.join(process.args)} ended with {process.wait()}: {said}")
    return json.loads(line)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder for sockets; afterwards it is gone, and with it what DPDK leaves of its processes (eal_filesystem.h)."""
    try:
        with tempfile.TemporaryDirectory(prefix="dlcp-bench-") as folder:
            yield Path(folder)
    finally:
        for base in ("/var/run", os.environ.get("XDG_RUNTIME_DIR", "/tmp"), "/tmp"):
            for left in Path(base, "dpdk").glob(f"dlcp-bench-{os.getpid()}-*"):
                shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def here() -> Iterator[Ends]:
    """Both ends in this network namespace."""
    with _folder() as folder:
        yield Ends(folder)


@contextlib.contextmanager
def cable() -> Iterator[Ends]:
    """Each end in a namespace of its own, eth0 to eth0. Needs what the network lab needs."""
    names = [f"dlcp-{os.getpid()}-dpdk{end}" for end in (0, 1)]
    with contextlib.ExitStack() as exits:
        folder = exits.enter_context(_folder())
        for name in names:
            programs.run(["ip", "netns", "add", name])
            exits.callback(subprocess.run, ["ip", "netns", "del", name], capture_output=True)
        programs.run(f"ip -n {names[0]} link add eth0 type veth peer name eth0 netns {names[1]}".split())
        prefixes = [["ip", "netns", "exec", name] for name in names]
        for end, name in enumerate(names):
            for which in ("all", "default"):
                setting = f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6"
                programs.run([*prefixes[end], "sh", "-c", f"echo 1 > {setting}"])
            programs.run(f"ip -n {name} link set eth0 address {MACS[end]}".split())
            programs.run(f"ip -n {name} addr add {KERNEL_ADDRESSES[end]}/{PREFIX_BITS} dev eth0".split())
            programs.run(f"ip -n {name} link set eth0 up".split())
        yield Ends(folder, prefixes)


def no_cable() -> str | None:
    """Why there can be no cable, or None."""
    return lab.missing()


def pages() -> contextlib.AbstractContextManager[str | None]:
    """Two processes' worth of 2 MB pages, as long as it lasts; why there are none, or None."""
    return huge_pages.reserve(2 * PAGES_EACH)
