"""What share of a shaped link one plain TCP stream fills: whoever sets dlcp beside TCP over it measures that first.

    python -m dlcp.lab.tcp_fill receive         says "ready", then the payload's bits per second
    python -m dlcp.lab.tcp_fill send ADDRESS    says which congestion control its socket has

A lab's rate, queue and bucket are ours, and one that keeps TCP from its link makes dlcp look good. Counted is what
the receiver's program got, after the time in which the window opens: lost and repeated packets are not in it.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlcp.lab.namespaces import LabError

if TYPE_CHECKING:
    from dlcp.lab.netlab import Lab
    from dlcp.lab.switched_lab import SwitchedLab

AT_LEAST = 0.97
PORT = 7702
# The window opens within the first; the second is counted.
SETTLE_S, COUNT_S = 1.0, 2.0
# Of a full packet: IP and TCP with its time stamps. Before it Ethernet's header, which queueing disciplines count.
_HEADER_BYTES, _ETHERNET_BYTES = 52, 14
# Preamble, checksum and gap: what dlcp's switches count besides.
_GAP_BYTES = 24
_WAIT_S = 20.0


@dataclass(frozen=True)
class TcpFill:
    """What one stream made of a link."""

    share: float
    """Of the link's rate, headers of full packets counted."""
    congestion: str
    """TCP's congestion control."""

    @property
    def is_fair(self) -> bool:
        """Whether TCP was let alone, so that figures beside it say something."""
        return self.share >= AT_LEAST

    def __str__(self) -> str:
        return f"TCP {self.congestion} fills {100 * self.share:.1f} % of the link"


def measure(lab: Lab | SwitchedLab, source: int = 0, target: int = 1) -> TcpFill:
    """One stream between two hosts whose links are as the lab's. Blocks for three seconds. LabError: it failed.

    To be called before loss is put on the links: what TCP makes of that is TCP's.
    """
    rate_bps, mtu, frame_bytes = _link(lab)
    words = [sys.executable, "-m", "dlcp.lab.tcp_fill"]
    receiver = lab.start(target, [*words, "receive"])
    assert receiver.stdout is not None
    if receiver.stdout.readline() != "ready\n":
        raise LabError(f"TCP beside dlcp: {receiver.communicate()[1].strip()}")
    sender = lab.start(source, [*words, "send", lab.addresses[target]])
    try:
        got_bps = float(receiver.communicate(timeout=_WAIT_S)[0])
        congestion = sender.communicate(timeout=_WAIT_S)[0].strip()
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise LabError(f"TCP beside dlcp, host {source} to {target}: {error}") from None
    finally:
        receiver.kill()
        sender.kill()
    return TcpFill(got_bps * frame_bytes / (mtu - _HEADER_BYTES) / rate_bps, congestion)


def _link(lab: Lab | SwitchedLab) -> tuple[int, int, int]:
    """Rate, MTU, and what of the rate a full packet takes, in bytes."""
    fabric = getattr(lab, "fabric", None)
    if fabric is None:
        assert lab.rate_bps is not None, "the lab's links have no rate"  # type: ignore[union-attr]
        return lab.rate_bps, lab.mtu, lab.mtu + _ETHERNET_BYTES  # type: ignore[union-attr]
    rate_bps = min(fabric.host_rate_bps, fabric.fabric_rate_bps) if fabric.spines else fabric.host_rate_bps
    gap_bytes = 0 if fabric.switch == "none" else _GAP_BYTES
    return rate_bps, fabric.mtu, fabric.mtu + _ETHERNET_BYTES + gap_bytes


def _receive() -> None:
    with socket.create_server(("", PORT)) as listening:
        listening.settimeout(_WAIT_S)
        print("ready", flush=True)
        connection = listening.accept()[0]
    with connection:
        connection.settimeout(_WAIT_S)
        room = bytearray(1 << 18)

        def receive(until_s: float) -> tuple[int, float]:
            nbytes = 0
            while (now_s := time.perf_counter()) < until_s:
                nbytes += connection.recv_into(room)
            return nbytes, now_s

        _, start_s = receive(time.perf_counter() + SETTLE_S)
        nbytes, end_s = receive(start_s + COUNT_S)
    print(8 * nbytes / (end_s - start_s))


def _send(address: str) -> None:
    with socket.create_connection((address, PORT), timeout=_WAIT_S) as connection:
        name = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        print(name.rstrip(b"\0").decode(), flush=True)
        with contextlib.suppress(OSError):  # the receiver has seen enough
            while True:
                connection.sendall(bytes(1 << 17))


if __name__ == "__main__":
    _receive() if sys.argv[1] == "receive" else _send(sys.argv[2])
