"""The control connection of a hub: a TCP stream of requests and answers, authenticated by the key that admits a job.

    rank → hub    hello      name of the job, a number drawn by the rank
    hub → rank    challenge  a number drawn by the hub
    rank → hub    request    ┐ each with an HMAC (SHA-256) over direction, count and text, under a key
    hub → rank    answer     ┘ derived from that key, the job's name and both numbers

Neither side sends the key or takes a text whose code is wrong, so a recorded connection cannot be played again and
a stranger learns only whether the hub knows a name. Texts are not secret and not encrypted, but for the job key, which
a rank covers with an HMAC of its own: whoever has the key that admits may read it. Frames have a length of 32
bits in front and a bound on it, a smaller one until the other side has proved that it has the key.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from dlcp.errors import HubError

VERSION = 2
"""Of what the two sides say."""
FRAME_BYTES_MAX = 1 << 20
"""Of one text: addresses of some thousand ranks."""
_HELLO_BYTES_MAX = 1 << 10
_FIRST_BYTES_MAX = 1 << 14
"""Of the first request, before which a rank has proved nothing."""
_HEAD = struct.Struct(">I")
_CODE_BYTES = 32
_TO_HUB, _FROM_HUB = b"\0", b"\1"
_COVER = b"\2job key"
# Found dead within this time of silence: a host that lost its power says nothing.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 5))


class ControlError(Exception):
    """The other side said what does not belong here, has another key, or is gone. The text is for an error or a log."""


class HubControl:
    """One end of a control connection, after the handshake. One thread at a time."""

    def __init__(self, stream: socket.socket, key: bytes, own: bytes) -> None:
        self._stream = stream
        self._key = key
        self._own = own
        self._other = _FROM_HUB if own == _TO_HUB else _TO_HUB
        self._sent = self._received = 0
        # By when the other side has to have proved that it has the key; None: whenever it likes.
        self._end_s: float | None = None

    @classmethod
    def connect(cls, stream: socket.socket, key: bytes, name: str) -> HubControl:
        """The rank's side of the handshake. Raises ControlError, OSError."""
        _prepare(stream)
        own = secrets.token_bytes(16)
        _send(stream, json.dumps({"dlcp_hub": VERSION, "job": name, "number": own.hex()}).encode())
        said = _read_json(_receive(stream, _HELLO_BYTES_MAX))
        if "refusal" in said:
            raise ControlError(str(said["refusal"]))
        if said.get("dlcp_hub") != VERSION:
            raise ControlError(f"it is no hub of this version of dlcp: it says {str(said)[:80]}")
        return cls(stream, _derive(key, name, own, _bytes_of(said.get("number"))), _TO_HUB)

    @classmethod
    def accept(
        cls, stream: socket.socket, key_of: Callable[[str], bytes | None], timeout_s: float
    ) -> tuple[HubControl, str]:
        """The hub's side: the connection and the name of its job. Raises ControlError, OSError.

        `key_of`: the key that admits a job of a name; None: there is no such job. `timeout_s`: for all that the rank
        says, up to the end of its first request, which proves that it has the key.
        """
        _prepare(stream)
        end_s = time.monotonic() + timeout_s
        hello = _read_json(_receive(stream, _HELLO_BYTES_MAX, end_s=end_s))
        name = hello.get("job")
        if hello.get("dlcp_hub") != VERSION or not isinstance(name, str):
            raise ControlError(f"a stranger says {str(hello)[:80]}")
        key = key_of(name)
        if key is None:
            _send(stream, json.dumps({"refusal": f"it has no key for a job {name!r}"}).encode())
            raise ControlError(f"a rank of a job {name!r}, of which there is no key")
        other = _bytes_of(hello.get("number"))
        own = secrets.token_bytes(16)
        _send(stream, json.dumps({"dlcp_hub": VERSION, "number": own.hex()}).encode())
        control = cls(stream, _derive(key, name, other, own), _FROM_HUB)
        control._end_s = end_s
        return control, name

    def send(self, text: dict[str, Any]) -> None:
        """Sends one text. Raises ControlError: too long; OSError."""
        content = json.dumps(text).encode()
        if len(content) > FRAME_BYTES_MAX:
            raise ControlError(f"a text of {len(content)} bytes; accepted: up to {FRAME_BYTES_MAX}")
        _send(self._stream, self._code(self._own, self._sent, content) + content)
        self._sent += 1

    def receive(self) -> dict[str, Any] | None:
        """The next text; None: the other side has ended the connection. Raises ControlError, OSError."""
        bytes_max = FRAME_BYTES_MAX if self._end_s is None else _FIRST_BYTES_MAX
        frame = _receive(self._stream, bytes_max + _CODE_BYTES, may_end=True, end_s=self._end_s)
        if frame is None:
            return None
        code, content = frame[:_CODE_BYTES], frame[_CODE_BYTES:]
        if not hmac.compare_digest(code, self._code(self._other, self._received, content)):
            raise ControlError("the keys differ")
        self._received += 1
        if self._end_s is not None:
            self._end_s = None
            self._stream.settimeout(None)
        return _read_json(content)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Sends a request and returns the answer. Raises HubError: refused; ControlError, OSError."""
        self.send(request)
        answer = self.receive()
        if answer is None:
            # A hub that cannot read a request ends the connection: what it would say would have the wrong key too.
            raise ControlError(
                "it has ended the connection: its key of the job is another one (compare hub_key_file or else key_file"
                " here with --keys there), or it is stopping; its log says which"
            )
        if "refusal" in answer:
            raise HubError(str(answer["refusal"]))
        return answer

    def cover(self, key: bytes) -> bytes:
        """A key of 32 bytes as it travels in a request; covered again it is as it was. One key per connection."""
        pad = hmac.digest(self._key, _COVER, "sha256")
        return bytes(a ^ b for a, b in zip(key, pad, strict=True))

    def uncovered(self, text: object) -> bytes:
        """The key that came as hexadecimal digits. Raises HubError: it is none."""
        try:
            return self.cover(bytes.fromhex(str(text)))
        except ValueError:
            raise HubError("its job key is none: accepted: 64 hexadecimal digits") from None

    def close(self) -> None:
        """Ends the connection. Again: nothing."""
        self._stream.close()

    def _code(self, direction: bytes, count: int, content: bytes) -> bytes:
        return hmac.digest(self._key, direction + count.to_bytes(8, "big") + content, "sha256")


def _derive(key: bytes, name: str, rank_number: bytes, hub_number: bytes) -> bytes:
    said = name.encode()
    return hmac.digest(
        key,
        b"dlcp hub control %d" % VERSION + len(said).to_bytes(4, "big") + said + rank_number + hub_number,
        "sha256",
    )


def _prepare(stream: socket.socket) -> None:
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        stream.setsockopt(socket.IPPROTO_TCP, option, value)


def _send(stream: socket.socket, frame: bytes) -> None:
    stream.sendall(_HEAD.pack(len(frame)) + frame)


def _receive(
    stream: socket.socket, bytes_max: int, *, may_end: bool = False, end_s: float | None = None
) -> bytes | None:
    head = _read(stream, _HEAD.size, may_end=may_end, end_s=end_s)
    if head is None:
        return None
    (length,) = _HEAD.unpack(head)
    if length > bytes_max:
        raise ControlError(
            f"it announces a text of {length} bytes; accepted: up to {bytes_max}. Is it dlcp that speaks there?"
        )
    return _read(stream, length, end_s=end_s)


def _read(
    stream: socket.socket, length: int, *, may_end: bool = False, end_s: float | None = None
) -> bytes | None:
    """Exactly so many bytes; None: the stream ended before the first of them, and may.

    `end_s`: by when all have to be there, however they come; None: as the stream's own timeout says of each piece.
    """
    read = bytearray()
    while len(read) < length:
        if end_s is not None:
            if (left_s := end_s - time.monotonic()) <= 0:
                raise ControlError("it says too little in too long a time")
            stream.settimeout(left_s)
        piece = stream.recv(length - len(read))
        if not piece:
            if may_end and not read:
                return None
            raise ControlError("it has ended the connection")
        read += piece
    return bytes(read)


def _read_json(content: bytes | None) -> dict[str, Any]:
    try:
        said = json.loads(content or b"")
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise ControlError(f"it says {(content or b'')[:40]!r}, which is none of dlcp's")
    return said


def _bytes_of(number: object) -> bytes:
    try:
        found = bytes.fromhex(number) if isinstance(number, str) else b""
    except ValueError:
        found = b""
    if len(found) != 16:
        raise ControlError(f"it draws {str(number)[:40]!r}; accepted: 16 bytes in hexadecimal digits")
    return found
