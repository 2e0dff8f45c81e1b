"""simple_switch_grpc between virtual cables, with raw frames in and out: the real thing beside the interpreter.

The switch is in a namespace of its own; the other ends of its cables are in a second one, where raw sockets send and
receive whole frames. Few are on their way at a time, since BMv2 loses what comes faster than it takes it, and so that
depths in the switch stay near what a test sets. Needs root.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Sequence

from dlcp.lab import simple_switch
from dlcp.lab.simple_switch import SimpleSwitch
from tests.support import namespaces
from tests.support.namespaces import Namespace

_ALL_PROTOCOLS = 3  # ETH_P_ALL
_OUTGOING = 4  # PACKET_OUTGOING: what this end sent itself
_PACKET_AUXDATA = 8
_SOL_PACKET = 263
_TAGGED = 1 << 4  # TP_STATUS_VLAN_VALID
_TAG_TYPE_KNOWN = 1 << 6  # TP_STATUS_VLAN_TPID_VALID
_BUFFER_BYTES = 1 << 22

# Frames sent before all their answers are awaited: libpcap's ring, as BMv2 opens it, has 32 places.
AT_ONCE = 16
ANSWER_S = 5.0  # a busy machine may take so long for one frame
QUIET_S = 0.05  # after all expected answers: for one that nobody expects


def missing() -> str | None:
    """Why there can be no bed here, or None."""
    return simple_switch.missing() or namespaces.missing()


class Bed:
    """A switch with ports 0, 1, …; a context manager."""

    def __init__(self, ports: int) -> None:
        self._count = ports
        self._sockets: list[socket.socket] = []
        self._exits = contextlib.ExitStack()

    def __enter__(self) -> Bed:
        with contextlib.ExitStack() as exits:
            inside, outside = exits.enter_context(Namespace()), exits.enter_context(Namespace())
            for port in range(self._count):
                inside.join(outside, f"sw{port}", f"out{port}")
                inside.ip(f"link set sw{port} mtu 3000 up")
                outside.ip(f"link set out{port} mtu 3000 up")
            for port in range(self._count):
                self._sockets.append(exits.enter_context(outside.run(lambda name=f"out{port}": _raw(name))))  # type: ignore[misc]
            names = {port: f"sw{port}" for port in range(self._count)}
            self.switch = exits.enter_context(SimpleSwitch(names, prefix=inside.command()))
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._exits.close()

    def exchange(self, port: int, frames: Sequence[tuple[bytes, int]]) -> list[tuple[int, bytes]]:
        """Sends frames into a port, each with the number of answers it should have; (port, frame) of all answers.

        Answers of one port are in their order. Of AT_ONCE frames in a row one should have an answer, since nothing else
        tells that the switch has taken them. It returns when there have been as many as there should be and some time
        has brought no more, or when one does not come.
        """
        answers: list[tuple[int, bytes]] = []
        expected = 0
        for i, (frame, more) in enumerate(frames, 1):
            self._sockets[port].send(frame)
            expected += more
            if i % AT_ONCE == 0 and not self._receive(answers, expected):
                return answers
        self._receive(answers, expected)
        self._receive(answers, expected + 1, QUIET_S)
        return answers

    def _receive(self, answers: list[tuple[int, bytes]], wanted: int, patience_s: float = ANSWER_S) -> bool:
        until = time.monotonic() + patience_s
        while len(answers) < wanted:
            ready, _, _ = select.select(self._sockets, [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return False
            for one in ready:
                frame = _receive(one)
                if frame is not None:
                    answers.append((self._sockets.index(one), frame))
        return True


def _raw(interface: str) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
    made.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    made.bind((interface, 0))
    return made


def _receive(one: socket.socket) -> bytes | None:
    """A frame as it was on the wire: the kernel takes a VLAN tag out and tells it beside."""
    frame, extra, _, address = one.recvmsg(4096, 128)
    if address[2] == _OUTGOING:
        return None
    for level, kind, content in extra:
        if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA):
            status, *_, tag, tag_type = struct.unpack("IIIHHHH", content[:20])
            if status & _TAGGED:
                known = tag_type if status & _TAG_TYPE_KNOWN else 0x8100
                frame = frame[:12] + struct.pack(">HH", known, tag) + frame[12:]
    return frame
