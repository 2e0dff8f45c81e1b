"""Measures one rank pair: whether it is open, its goodput, round trip and loss, and how far apart the clocks are.

Every endpoint answers on a thread (`Responder`); `probe` asks. What is measured is the transport itself. A probe takes
about a third of a second where the pair is open, and `timeout_s` where it is not; every step is bounded.

The exchange: a JSON request under REQUEST_TAG names a tag, `base`. Under the tags that follow it come the answer, then
echoes, each with the answerer's clock, then one message to warm up, then as many more as pass in DURATION_S; the asker
first says how many. At the end the answerer says how many of them its driver dropped.
"""

from __future__ import annotations

import contextlib
import errno
import json
import secrets
import socket
import statistics
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from dlcp.doctor.files import lines
from dlcp.errors import ClosedError, DlcpError, ForkError, PeerTimeoutError
from dlcp.transport import Endpoint
from dlcp.transport.driver_events import MENDED, count_oversized

EXCHANGE_VERSION = 2
# It may go over the endpoint of a job, whose tags belong to its groups (native/collective/tag.hpp): these are of
# the kind "single message", with bits set that no user's tag of 32 bits sets.
_OWN_TAGS = 1 << 48 | 1 << 47
REQUEST_TAG = _OWN_TAGS | 1
JSON_BYTES_MAX = 1 << 20
ECHOES = 48
WARM_UP_BYTES = 256 << 10
MESSAGE_BYTES = 1 << 20
# Long enough for the window to open, short enough for a hundred pairs.
DURATION_S = 0.2
MESSAGES_MAX = 256
DEPTH = 4
# Of a step when the peer answers at all.
STEP_TIMEOUT_S = 10.0
_CLOCK = struct.Struct("=q")
# tcpmux (RFC 1078) has no UDP service.
_CLOSED_PORT = 1

Handler = Callable[[int, dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPair:
    """What one rank measured towards another, in one direction. Numbers are None if the pair is not open."""

    source: int
    target: int
    error: str | None = None
    """Why it is not open."""
    silence: str | None = None
    """What else came back from there. refused: the host, but nobody has the port. unanswered: UDP reaches the host, and
    whoever has the port does not answer. no neighbour, unreachable: the network says so. silent: nothing came back."""
    rtt_s: float | None = None
    """Least round trip of a packet."""
    echo_s: float | None = None
    """Median round trip of a small message, programs included."""
    goodput_bps: float | None = None
    sent_packets: int = 0
    lost_packets: int = 0
    oversized_frames: int = 0
    """Dropped by the target meanwhile, from whomever: longer than its MTU."""
    datagram_bytes: int | None = None
    """Largest that the pair carries, as the handshake found."""
    datagram_bytes_own: int | None = None
    """Largest that the sender's interface carries."""
    path_mtu_bytes: int | None = None
    """What routers say, if the pair carries less than the interface."""
    clock_offset_s: float | None = None
    """How far the target's time of day is ahead."""


def probe(endpoint: Endpoint, own: int, target: int, rank: int, address: str, timeout_s: float) -> RankPair:
    """Measures the pair from this endpoint to another; raises nothing for a pair that is not open.

    `own` and `target`: how the report calls the two. `rank`, `address`: the target's endpoint.
    """
    with Knock(address) as knock:
        try:
            endpoint.connect(rank, address, timeout_s=timeout_s)
        except PeerTimeoutError as error:
            if endpoint.settings.below_kernel:
                # What the kernel's sockets hear from there took another route.
                entries = endpoint.drain_log()
                seen = {entry.text: None for entry in entries if entry.text and entry.kind not in MENDED}
                return RankPair(source=own, target=target, error="; ".join([str(error), *seen]))
            return RankPair(source=own, target=target, error=str(error), silence=knock.heard())
        except DlcpError as error:
            return RankPair(source=own, target=target, error=str(error))
    try:
        return _measure(endpoint, own, target, rank)
    except DlcpError as error:
        return RankPair(source=own, target=target, error=f"the handshake worked, then: {error}")


def ask(endpoint: Endpoint, rank: int, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """What a responder answers to a request of another kind. Raises DlcpError."""
    base = _draw_base()
    endpoint.send(rank, _pack({**request, "base": base}), tag=REQUEST_TAG, timeout_s=timeout_s)
    return _receive_json(endpoint, rank, base, timeout_s)


class Responder:
    """Answers probes on a thread, from `with` to its end or the endpoint's close.

    `handler`: answers requests of other kinds: from rank and request to answer.
    """

    def __init__(self, endpoint: Endpoint, handler: Handler | None = None) -> None:
        self._endpoint = endpoint
        self._handler = handler
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="dlcp doctor", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the endpoint, which ends the thread's wait."""
        self._stopping = True
        self._endpoint.close()
        self._thread.join()

    def join(self) -> None:
        """Blocks until the endpoint is closed."""
        self._thread.join()

    def _run(self) -> None:
        request = bytearray(JSON_BYTES_MAX)
        while True:
            try:
                outcome = self._endpoint.receive(None, request, tag=REQUEST_TAG)
                if outcome.rank is not None:
                    self._answer(outcome.rank, bytes(request[: outcome.message_bytes]))
            except (ClosedError, ForkError):
                return
            except (DlcpError, ValueError, KeyError, TypeError):
                # A peer that went away, or is no doctor of this version: its own side says so.
                if self._stopping:
                    return

    def _answer(self, rank: int, text: bytes) -> None:
        request = json.loads(text)
        base = int(request["base"])
        if request.get("version", EXCHANGE_VERSION) != EXCHANGE_VERSION:
            answer = {
                "error": f"this is version {EXCHANGE_VERSION} of the doctor's exchange; run one dlcp on all hosts"
            }
            self._endpoint.send(rank, _pack(answer), tag=base, timeout_s=STEP_TIMEOUT_S)
        elif "echoes" not in request:
            answer = (
                self._handler(rank, request) if self._handler is not None else {"error": "not asked here"}
            )
            self._endpoint.send(rank, _pack(answer), tag=base, timeout_s=STEP_TIMEOUT_S)
        else:
            self._serve(rank, base, min(int(request["echoes"]), ECHOES))

    def _serve(self, rank: int, base: int, echoes: int) -> None:
        endpoint = self._endpoint
        buffer = bytearray(MESSAGE_BYTES)
        endpoint.send(rank, _pack({"version": EXCHANGE_VERSION}), tag=base, timeout_s=STEP_TIMEOUT_S)
        for _ in range(echoes):
            endpoint.receive(rank, buffer, tag=base + 1, timeout_s=STEP_TIMEOUT_S)
            endpoint.send(rank, _CLOCK.pack(time.time_ns()), tag=base + 2, timeout_s=STEP_TIMEOUT_S)
        endpoint.receive(rank, buffer, tag=base + 3, timeout_s=STEP_TIMEOUT_S)
        messages = min(int(_receive_json(endpoint, rank, base + 4, STEP_TIMEOUT_S)["messages"]), MESSAGES_MAX)
        # All into one buffer: nobody looks at it.
        arriving = [endpoint.ireceive(rank, buffer, tag=base + 5) for _ in range(messages)]
        before = count_oversized(endpoint.driver_statistics())
        endpoint.send(rank, b"ready", tag=base + 6, timeout_s=STEP_TIMEOUT_S)
        for future in arriving:
            future.result(STEP_TIMEOUT_S)
        dropped = {"oversized_frames": count_oversized(endpoint.driver_statistics()) - before}
        endpoint.send(rank, _pack(dropped), tag=base + 7, timeout_s=STEP_TIMEOUT_S)


def _measure(endpoint: Endpoint, own: int, target: int, rank: int) -> RankPair:
    base = _draw_base()
    request = {"version": EXCHANGE_VERSION, "base": base, "echoes": ECHOES}
    endpoint.send(rank, _pack(request), tag=REQUEST_TAG, timeout_s=STEP_TIMEOUT_S)
    answer = _receive_json(endpoint, rank, base, STEP_TIMEOUT_S)
    if "error" in answer:
        return RankPair(source=own, target=target, error=str(answer["error"]))
    echoes = [_echo(endpoint, rank, base) for _ in range(ECHOES)]
    # The quickest echo says most of the clocks: half of it is the time to get there.
    least_s, offset_s = min(echoes)
    payload = bytearray(MESSAGE_BYTES)
    begin = time.monotonic()
    endpoint.send(rank, memoryview(payload)[:WARM_UP_BYTES], tag=base + 3, timeout_s=STEP_TIMEOUT_S)
    bytes_per_s = WARM_UP_BYTES / (time.monotonic() - begin)
    messages = max(DEPTH, min(int(bytes_per_s * DURATION_S / MESSAGE_BYTES), MESSAGES_MAX))
    endpoint.send(rank, _pack({"messages": messages}), tag=base + 4, timeout_s=STEP_TIMEOUT_S)
    endpoint.receive(rank, bytearray(8), tag=base + 6, timeout_s=STEP_TIMEOUT_S)
    before = endpoint.path_stats(rank)
    begin = time.monotonic()
    under_way = deque(endpoint.isend(rank, payload, tag=base + 5) for _ in range(DEPTH))
    for _ in range(messages - DEPTH):
        under_way.popleft().result(STEP_TIMEOUT_S)
        under_way.append(endpoint.isend(rank, payload, tag=base + 5))
    for future in under_way:
        future.result(STEP_TIMEOUT_S)
    elapsed_s = time.monotonic() - begin
    after = endpoint.path_stats(rank)
    dropped = _receive_json(endpoint, rank, base + 7, STEP_TIMEOUT_S)
    state = endpoint.peer_stats(rank)
    return RankPair(
        source=own,
        target=target,
        rtt_s=min(state.rtt_s_min, least_s),
        echo_s=statistics.median(one[0] for one in echoes),
        goodput_bps=messages * MESSAGE_BYTES * 8 / elapsed_s,
        sent_packets=sum(path.packets_sent for path in after) - sum(path.packets_sent for path in before),
        lost_packets=sum(path.packets_lost for path in after) - sum(path.packets_lost for path in before),
        oversized_frames=int(dropped.get("oversized_frames", 0)),
        datagram_bytes=state.max_datagram_bytes,
        datagram_bytes_own=endpoint.max_datagram_bytes,
        path_mtu_bytes=path_mtu_bytes(endpoint.peer_address(rank), endpoint.max_datagram_bytes)
        if state.max_datagram_bytes < endpoint.max_datagram_bytes
        else None,
        clock_offset_s=offset_s,
    )


def _echo(endpoint: Endpoint, rank: int, base: int) -> tuple[float, float]:
    """Round trip of a small message, and how far the other's clock is ahead, in seconds."""
    clock = bytearray(_CLOCK.size)
    arriving = endpoint.ireceive(rank, clock, tag=base + 2)
    began, began_ns = time.monotonic(), time.time_ns()
    endpoint.send(rank, b"echo", tag=base + 1, timeout_s=STEP_TIMEOUT_S)
    arriving.result(STEP_TIMEOUT_S)
    taken_s = time.monotonic() - began
    return taken_s, (_CLOCK.unpack(clock)[0] - began_ns) / 1e9 - taken_s / 2


class Knock:
    """Two datagrams that are not dlcp's, and what the kernel hears of them: why an address does not answer.

    One goes to the peer's port, one to a port of the same host that hardly anything listens on. A refusal of the second
    shows that UDP reaches the host. Both leave before the handshake, since routers and hosts limit how many refusals
    they send.
    """

    def __init__(self, address: str) -> None:
        self._host, self._port = split_address(address)
        self._sockets: dict[int, socket.socket] = {}
        self._codes: dict[int, int | None] = {}
        for port in (self._port, _CLOSED_PORT):
            try:
                self._sockets[port] = _connected_socket(self._host, port)
                self._sockets[port].setblocking(False)
                self._sockets[port].send(b"?")
            except OSError as error:
                self._codes[port] = error.errno

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._sockets.values():
            one.close()

    def heard(self) -> str:
        """What came back so far, one of the values of `RankPair.silence`. Does not block."""
        if _is_no_neighbour(self._host):
            return "no neighbour"
        code = self._error_code(self._port)
        if code is None:
            return "unanswered" if self._error_code(_CLOSED_PORT) == errno.ECONNREFUSED else "silent"
        return "refused" if code == errno.ECONNREFUSED else "unreachable"

    def _error_code(self, port: int) -> int | None:
        """The errno that sending met or that ICMP brought so far; None: nothing came, or data."""
        if port not in self._codes:
            try:
                self._sockets[port].recv(1)
            except BlockingIOError:
                pass
            except OSError as error:
                self._codes[port] = error.errno
        return self._codes.get(port)


def path_mtu_bytes(address: str, datagram_bytes: int) -> int | None:
    """The MTU of the route to an address, if routers have said that it is too small for a datagram; sends nothing.

    The handshake's first packets were as large as the interface carries; what routers answered, the kernel keeps.
    """
    host, port = split_address(address)
    level, option, headers = (socket.IPPROTO_IPV6, 24, 48) if ":" in host else (socket.IPPROTO_IP, 14, 28)
    with contextlib.suppress(OSError), _connected_socket(host, port) as probe:
        found = probe.getsockopt(level, option)  # IPV6_MTU, IP_MTU
        return found if found < datagram_bytes + headers else None
    return None


def _connected_socket(host: str, port: int) -> socket.socket:
    """A UDP socket that reports ICMP errors. Raises OSError."""
    is_ipv6 = ":" in host
    probe = socket.socket(
        socket.AF_INET6 if is_ipv6 else socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
    )
    try:
        # IPV6_RECVERR, IP_RECVERR: otherwise only refusals are reported.
        probe.setsockopt(*((socket.IPPROTO_IPV6, 25, 1) if is_ipv6 else (socket.IPPROTO_IP, 11, 1)))
        probe.connect((host, port))
    except OSError:
        probe.close()
        raise
    return probe


def _is_no_neighbour(host: str) -> bool:
    """Whether ARP was not answered for an address of this network."""
    found = next((words for words in lines("/proc/thread-self/net/arp") if words[0] == host), None)
    return found is not None and int(found[2], 16) & 0x2 == 0  # ATF_COM: complete


def split_address(address: str) -> tuple[str, int]:
    """Host and port of an endpoint's address, without what follows it for shared memory. Raises ValueError."""
    host, _, port = address.partition("+")[0].rpartition(":")
    return host.strip("[]"), int(port)


def _draw_base() -> int:
    """A tag whose followers nobody else uses."""
    return _OWN_TAGS | (secrets.randbits(30) + 1) << 16


def _pack(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _receive_json(endpoint: Endpoint, rank: int, tag: int, timeout_s: float) -> dict[str, Any]:
    buffer = bytearray(JSON_BYTES_MAX)
    length = endpoint.receive(rank, buffer, tag=tag, timeout_s=timeout_s).message_bytes
    answer = json.loads(buffer[:length])
    return answer if isinstance(answer, dict) else {}
