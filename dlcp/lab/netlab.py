"""Network namespaces joined by virtual Ethernet, with a rate and with loss.

    with Lab(hosts=2, rate_bps=10**9, loss=Loss(ratio=0.01)) as lab:
        process = lab.start(0, ["iperf3", "-s"])

Two hosts are joined directly, and each shapes what it sends. More hang on a bridge in a namespace of its
own, the hub, whose ports are shaped too: a port's queue is where an incast meets. Host i is 10.77.0.(i + 1)
on `eth-lab`. At a hub single links may be slower or lose more than the others (link.py).

Loss is random, per packet, on arrival. Segmentation is switched off on every interface, so that what is lost
is one packet and never a 64 KB super-packet of TCP's or UDP_SEGMENT's. The algorithm of TCP is a property of
the route, as the sysctl is refused in namespaces; without it a host that defaults to BBR would measure BBR.

Invariant: leaving the context ends the processes that `start` began and removes the namespaces, whatever
happened; what a killed run left is removed by the next one. Needs root, iproute2, ethtool and clang with
libbpf's headers: `missing()` says what is not there. Only a delay needs netem, which not every kernel has.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlcp.errors import DlcpError
from dlcp.lab.link import NO_LOSS, Arrivals, Link, Loss

INTERFACE = "eth-lab"
_LOSS_SOURCE = Path(__file__).with_name("loss.bpf.c")
_NAME = re.compile(r"dlcp-(\d+)-\d+-(\d+|hub)")
_serial = itertools.count()

# 8 ms of queue at 1 Gbit/s, as in a switch with a deep port buffer; the burst is what a hardware interface
# takes from its ring at once.
QUEUE_BYTES = 1_000_000
BURST_BYTES = 64 * 1024
# Delayed at once: 10 Gbit/s of full frames for 100 ms. netem's own default, 1000, would drop most of them.
DELAYED_PACKETS_MAX = 100_000


class LabError(DlcpError, RuntimeError):
    """A command that builds the lab failed; the message holds the command and its words."""


def missing() -> str | None:
    """Why no lab can be made here, or None."""
    if os.geteuid() != 0:
        return "the network lab needs root"
    for tool, package in (("ip", "iproute2"), ("tc", "iproute2"), ("ethtool", "ethtool"), ("clang", "clang")):
        if shutil.which(tool) is None:
            return f"the network lab needs {tool} (Debian: {package})"
    if not Path("/usr/include/bpf/bpf_helpers.h").exists():
        return "the network lab needs bpf/bpf_helpers.h (Debian: libbpf-dev)"
    probe = f"dlcp-{os.getpid()}-{next(_serial)}-0"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True)
    return f"no network namespaces here: {made.stderr.strip()}" if made.returncode else None


class Lab:
    """A network of `hosts` hosts, from `with` to its end.

    rate_bps: what each interface carries; None: as fast as the processor. delay_s: of what a host sends; needs
    netem. loss: on arrival at every host. links: by host, those that differ from the rest; 3 hosts or more. mtu in
    bytes. congestion: TCP's. offload: leave segmentation on (only without loss).
    Raises LabError if a step fails, and ValueError for settings that contradict each other.
    """

    def __init__(
        self,
        *,
        hosts: int = 2,
        rate_bps: int | None = None,
        queue_bytes: int = QUEUE_BYTES,
        delay_s: float = 0.0,
        loss: Loss = NO_LOSS,
        links: Mapping[int, Link] | None = None,
        mtu: int = 1500,
        congestion: str = "cubic",
        offload: bool = False,
    ) -> None:
        if not 2 <= hosts <= 64:
            raise ValueError(f"hosts is {hosts}; accepted: 2 to 64")
        if not 0 <= delay_s <= 10:
            raise ValueError(f"delay_s is {delay_s}; accepted: 0 to 10")
        links = dict(links or {})
        if links and hosts == 2:
            raise ValueError(
                "hosts is 2: they share one link; links of their own hang on a hub, with 3 hosts or more"
            )
        for host in links:
            if not 0 <= host < hosts:
                raise ValueError(f"links has host {host}; accepted: 0 to {hosts - 1}")
        if offload and (loss or any(link.loss for link in links.values())):
            raise ValueError("with offload one drop would be a super-packet; take loss or offload")
        self.hosts = hosts
        self.rate_bps = rate_bps
        self.queue_bytes = queue_bytes
        self.delay_s = delay_s
        self.mtu = mtu
        self.congestion = congestion
        self.offload = offload
        self.addresses = [f"10.77.0.{i + 1}" for i in range(hosts)]
        self._loss = loss
        self._links = links
        self._prefix = f"dlcp-{os.getpid()}-{next(_serial)}"
        self._started: list[subprocess.Popen[str]] = []
        self._scratch = contextlib.ExitStack()

    def __enter__(self) -> Lab:
        _remove_orphans()
        self._directory = Path(self._scratch.enter_context(tempfile.TemporaryDirectory(prefix="dlcp-lab-")))
        try:
            self._build()
            self.set_loss(self._loss)
        except BaseException:
            self._tear_down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._tear_down()

    # What runs in it.

    def command(self, host: int, words: Sequence[str | os.PathLike[str]]) -> list[str]:
        """The command line that runs `words` on that host."""
        return ["ip", "netns", "exec", self._namespace(host), *map(str, words)]

    def start(
        self, host: int, words: Sequence[str | os.PathLike[str]], **popen: object
    ) -> subprocess.Popen[str]:
        """A process on that host, with text pipes for output and errors; ended with the lab at the latest."""
        options: dict[str, object] = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            **popen,
        }
        process: subprocess.Popen[str] = subprocess.Popen(  # type: ignore[call-overload]
            self.command(host, words), **options
        )
        self._started.append(process)
        return process

    def namespace(self, host: int) -> str:
        """The name of that host's network namespace, for `ip -n` and setns(2)."""
        return self._namespace(host)

    # What is wrong with it.

    def set_link(self, host: int, *, up: bool) -> None:
        """Pulls a host's cable out of the hub, or plugs it in again. Raises ValueError: there is no hub."""
        if self.hosts == 2:
            raise ValueError("hosts is 2: a cable can be pulled at a hub, with 3 hosts or more")
        # At the hub's end: the host keeps its address and routes, as it does when a switch fails.
        _run("ip", "-n", self._namespace("hub"), "link", "set", f"port{host}", "up" if up else "down")

    def set_loss(self, loss: Loss) -> None:
        """Changes the loss of every host whose link has none of its own, and counts arrivals from zero everywhere."""
        self._loss = loss
        programs: dict[Loss, Path] = {}
        for host in range(self.hosts):
            own = self._links[host].loss if host in self._links else None
            here = loss if own is None else own
            if here and here not in programs:
                programs[here] = self._compile(here, f"loss-{len(programs)}.o")
            for place in self._loss_places(host):
                self._attach(programs.get(here), *place)

    def arrivals(self, host: int) -> Arrivals:
        """What the loss programs of that host's link saw; zeros without loss."""
        packets = dropped = 0
        for place in self._loss_places(host):
            for qdisc in self._qdiscs(*place):
                if qdisc["kind"] == "clsact":
                    # `packets` counts what the hook was given, dropped ones included.
                    packets += qdisc["packets"]
                    dropped += qdisc["drops"]
        return Arrivals(packets, dropped)

    def queue_drops(self) -> int:
        """Packets that overflowed a shaped queue anywhere in the network."""
        ports = [(self._namespace(i), INTERFACE) for i in range(self.hosts)]
        if self.hosts > 2:
            ports += [(self._namespace("hub"), f"port{i}") for i in range(self.hosts)]
        return sum(q["drops"] for port in ports for q in self._qdiscs(*port) if q["kind"] == "tbf")

    # How it is made.

    def _namespace(self, host: int | str) -> str:
        return f"{self._prefix}-{host}"

    def _rate_bps(self, host: int) -> int | None:
        """What that host's link carries; None: as fast as the processor."""
        own = self._links[host].rate_bps if host in self._links else None
        return self.rate_bps if own is None else own

    def _loss_places(self, host: int) -> list[tuple[str, str]]:
        """Namespaces and interfaces where packets of that host's link are lost, on arrival."""
        places = [(self._namespace(host), INTERFACE)]
        if host in self._links and self._links[host].loss is not None:
            places.append((self._namespace("hub"), f"port{host}"))
        return places

    def _compile(self, loss: Loss, name: str) -> Path:
        program = self._directory / name
        # clang's BPF target does not search the host's architecture directory, where Debian keeps asm/.
        include = f"-I/usr/include/{os.uname().machine}-linux-gnu"
        _run(
            "clang", "-O2", "-g", "-target", "bpf", include, *loss.defines(), "-c", _LOSS_SOURCE, "-o", program
        )  # fmt: skip
        return program

    def _attach(self, program: Path | None, namespace: str, interface: str) -> None:
        """Loses what arrives there as `program` says; None: loses nothing. Counts from zero."""
        tc = ["tc", "-n", namespace]
        subprocess.run([*tc, "qdisc", "del", "dev", interface, "clsact"], capture_output=True)
        if program is not None:
            _run(*tc, "qdisc", "add", "dev", interface, "clsact")
            _run(*tc, "filter", "add", "dev", interface, "ingress", "bpf", "da", "obj", program, "sec", "tc")

    def _qdiscs(self, namespace: str, interface: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(
            _run("tc", "-n", namespace, "-s", "-j", "qdisc", "show", "dev", interface) or "[]"
        )
        return found

    def _build(self) -> None:
        for host in range(self.hosts):
            _run("ip", "netns", "add", self._namespace(host))
            _run("ip", "-n", self._namespace(host), "link", "set", "lo", "up")
        if self.hosts == 2:
            _run(
                "ip",
                "-n",
                self._namespace(0),
                "link",
                "add",
                INTERFACE,
                "type",
                "veth",
                "peer",
                "name",
                INTERFACE,
                "netns",
                self._namespace(1),
            )
        else:
            self._build_hub()
        for host, address in enumerate(self.addresses):
            namespace = self._namespace(host)
            # No IPv6: its announcements would be packets that nobody in the measurement sent.
            _run("ip", "-n", namespace, "link", "set", INTERFACE, "mtu", self.mtu, "addrgenmode", "none")
            _run("ip", "-n", namespace, "addr", "add", f"{address}/24", "dev", INTERFACE)
            _run("ip", "-n", namespace, "link", "set", INTERFACE, "up")
            self._finish_interface(namespace, INTERFACE, host)
            _run(
                "ip",
                "-n",
                namespace,
                "route",
                "replace",
                "10.77.0.0/24",
                "dev",
                INTERFACE,
                "src",
                address,
                "congctl",
                self.congestion,
            )

    def _build_hub(self) -> None:
        hub = self._namespace("hub")
        _run("ip", "netns", "add", hub)
        _run("ip", "-n", hub, "link", "add", "hub", "type", "bridge")
        _run("ip", "-n", hub, "link", "set", "hub", "mtu", self.mtu, "addrgenmode", "none")
        _run("ip", "-n", hub, "link", "set", "hub", "up")
        for host in range(self.hosts):
            port = f"port{host}"
            _run(
                "ip",
                "-n",
                self._namespace(host),
                "link",
                "add",
                INTERFACE,
                "type",
                "veth",
                "peer",
                "name",
                port,
                "netns",
                hub,
            )
            _run(
                "ip", "-n", hub, "link", "set", port, "mtu", self.mtu, "addrgenmode", "none", "master", "hub"
            )
            _run("ip", "-n", hub, "link", "set", port, "up")
            self._finish_interface(hub, port, host)

    def _finish_interface(self, namespace: str, interface: str, host: int) -> None:
        if not self.offload:
            ethtool = ["ip", "netns", "exec", namespace, "ethtool", "-K", interface]
            _run(*ethtool, "tso", "off", "gso", "off", "gro", "off")
            # Not every kernel lets this one be changed; where it does not, `gso off` covers it.
            subprocess.run([*ethtool, "tx-udp-segmentation", "off"], capture_output=True)
        place = ["root"]
        if self.delay_s and interface == INTERFACE:
            place = self._add_delay(namespace)
        if (rate_bps := self._rate_bps(host)) is not None:
            _run(
                "tc",
                "-n",
                namespace,
                "qdisc",
                "add",
                "dev",
                interface,
                *place,
                "tbf",
                "rate",
                f"{rate_bps}bit",
                "burst",
                BURST_BYTES,
                "limit",
                self.queue_bytes,
            )

    def _add_delay(self, namespace: str) -> list[str]:
        """Delays what leaves a host, and says where its rate is to be shaped: behind, as tc-netem(8) has it."""
        delay = [f"{round(self.delay_s * 1e6)}us", "limit", DELAYED_PACKETS_MAX]
        tc = ["tc", "-n", namespace, "qdisc", "add", "dev", INTERFACE]
        try:
            _run(*tc, "root", "handle", "1:", "netem", "delay", *delay)
        except LabError as error:
            if "kind is unknown" not in str(error):
                raise
            raise LabError(f"{error} This kernel has no netem (sch_netem): leave the delay out") from error
        return ["parent", "1:1", "handle", "2:"]

    def _tear_down(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
        for process in self._started:
            process.wait()
            for pipe in (process.stdout, process.stderr, process.stdin):
                if pipe is not None:
                    pipe.close()
        for host in (*range(self.hosts), "hub"):
            # One that was never made is not an error here.
            subprocess.run(["ip", "netns", "del", self._namespace(host)], capture_output=True)
        self._scratch.close()


def namespaces() -> Iterator[tuple[str, int]]:
    """Name and owning process id of every lab namespace on this machine."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    for line in listed.splitlines():
        if line and (match := _NAME.fullmatch(line.split()[0])):
            yield match[0], int(match[1])


def _remove_orphans() -> None:
    for name, owner in list(namespaces()):
        if not Path(f"/proc/{owner}").exists():
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _run(*words: object) -> str:
    line = [str(word) for word in words]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{' '.join(line)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
