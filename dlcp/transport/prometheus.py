"""Metrics for Prometheus: the text, and a small HTTP server for it.

The server runs only if the settings ask for it, and listens on loopback by default. It has no protection: any client
that reaches the port can read the metrics, which contain addresses, names of groups and counts, but no data. `/metrics`
is the text (exposition format 0.0.4), `/metrics.json` the snapshot that it is made of. Each client has a thread, at
most _CLIENTS_MAX of them, and two seconds for its request, of which _HEAD_BYTES_MAX are read; then, or when the server
closes, its connection is cut.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import math
import os
import re
import socket
import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dlcp import errors
from dlcp.transport.closeable import Closeable
from dlcp.transport.metrics import Metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# From a connection to the end of its answer.
_REQUEST_S = 2.0
# Connections at a time: Prometheus, its replica and a person or two. One more replaces the oldest.
_CLIENTS_MAX = 16
# Of a request's line and headers: what comes after them is not read.
_HEAD_BYTES_MAX = 8192
# How soon the server notices a stop, or a request whose time is up.
_POLL_S = 0.2

Labels = dict[str, str]


# ---- the text ----


class _Text:
    """Families of samples, being written. Every sample carries the labels in `common`."""

    def __init__(self, common: Labels) -> None:
        self._common = common
        self._lines: list[str] = []

    def family(self, name: str, kind: str, words: str, samples: Iterable[tuple[Labels, float]]) -> None:
        """One family; nothing is written if there are no samples."""
        rows = [self._sample(name, labels, value) for labels, value in samples]
        self._write(name, kind, words, rows)

    def histogram(
        self,
        name: str,
        words: str,
        bounds: list[float],
        samples: Iterable[tuple[Labels, list[int], float]],
    ) -> None:
        """Per sample its labels, how many lie up to each bound but above the one before, and above all; their sum."""
        rows = []
        for labels, counts, total in samples:
            below = 0
            for bound, count in zip([*bounds, float("inf")], counts, strict=True):
                below += count
                rows.append(self._sample(f"{name}_bucket", labels | {"le": _number(bound)}, below))
            rows.append(self._sample(f"{name}_sum", labels, total))
            rows.append(self._sample(f"{name}_count", labels, below))
        self._write(name, "histogram", words, rows)

    def text(self) -> str:
        """What has been written."""
        return "".join(line + "\n" for line in self._lines)

    def _write(self, name: str, kind: str, words: str, rows: list[str]) -> None:
        if rows:
            words = words.replace("\\", "\\\\").replace("\n", "\\n")
            self._lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}", *rows]

    def _sample(self, name: str, labels: Labels, value: float) -> str:
        pairs = ",".join(f'{label}="{_escape(text)}"' for label, text in (self._common | labels).items())
        return f"{name}{{{pairs}}} {_number(value)}"


def render(snapshot: Mapping[str, Any]) -> str:
    """A snapshot of Metrics as Prometheus reads it."""
    text = _Text({"rank": str(snapshot["rank"])})
    info = {"version": snapshot["version"], "size": str(snapshot["size"]), "address": snapshot["address"]}
    text.family("dlcp_info", "gauge", "What runs; always 1.", [(info, 1)])
    _render_groups(text, snapshot["groups"], snapshot["duration_bounds_s"])
    _render_peers(text, snapshot["peers"])
    _render_endpoint(text, snapshot["endpoint"])
    _render_driver(text, snapshot["driver"])
    _render_gradients(text, snapshot["gradients"])
    if snapshot["aggregation"] is not None:
        _render_aggregation(text, snapshot["aggregation"])
    return text.text()


def _render_groups(text: _Text, groups: Mapping[str, Any], bounds: list[float]) -> None:
    by_group = [({"group": name}, group) for name, group in groups.items()]
    by_operation = [
        (labels | {"operation": operation}, counts)
        for labels, group in by_group
        for operation, counts in group["operations"].items()
    ]
    for name, kind, words, value in (
        ("group_failed", "gauge", "1 if the group has failed.", lambda group: group["failure"] is not None),
        ("operations_under_way", "gauge", "Operations that are not over.", lambda group: group["under_way"]),
        (
            "operations_under_way_seconds_max",
            "gauge",
            "Age of the oldest operation that is not over.",
            lambda group: group["under_way_s_max"],
        ),
    ):
        text.family(f"dlcp_{name}", kind, words, [(labels, value(group)) for labels, group in by_group])
    for key, name, words in (
        ("started", "operations_started", "Operations started."),
        ("completed", "operations_completed", "Operations that succeeded."),
        ("failed", "operations_failed", "Operations that failed."),
        ("sent_bytes", "operation_sent_bytes", "Payload sent for operations, without repairs."),
        ("received_bytes", "operation_received_bytes", "Payload received for operations."),
    ):
        rows = [(labels, counts[key]) for labels, counts in by_operation]
        text.family(f"dlcp_{name}_total", "counter", words, rows)
    text.histogram(
        "dlcp_operation_duration_seconds",
        "From start to end, of operations that succeeded.",
        bounds,
        [(labels, counts["duration_counts"], counts["duration_s"]) for labels, counts in by_operation],
    )
    text.family(
        "dlcp_operations_failed_waiting_total",
        "counter",
        "Operations that failed while something of the peer was missing.",
        [
            (labels | {"peer": peer}, times)
            for labels, group in by_group
            for peer, times in group["waited_for"].items()
        ],
    )


_PACKETS = (
    ("packets_sent", "Packets sent, repairs included."),
    ("packets_acked", "Packets acknowledged."),
    ("packets_lost", "Packets declared lost, which are sent again."),
    ("ce_packets", "Packets marked by switches as having met a queue."),
)


def _render_peers(text: _Text, peers: Mapping[str, Any]) -> None:
    by_peer = [({"peer": rank}, peer) for rank, peer in peers.items()]
    for key, name, words in (
        ("rtt_s", "round_trip_seconds", "Smoothed round-trip time."),
        ("rtt_s_min", "round_trip_seconds_min", "Least round-trip time."),
        ("queue_delay_s", "queue_delay_seconds", "Delay in queues on the way there."),
        ("window_bytes", "window_bytes", "Bytes that may be in flight."),
        ("in_flight_bytes", "in_flight_bytes", "Bytes in flight."),
        ("credit_bytes", "credit_bytes", "Bytes that the peer says it can buffer."),
        ("paths_down", "paths_down", "Paths that are left alone because nothing gets through."),
    ):
        text.family(f"dlcp_peer_{name}", "gauge", words, [(labels, peer[key]) for labels, peer in by_peer])
    for key, words in _PACKETS:
        rows = [(labels, peer[key]) for labels, peer in by_peer]
        text.family(f"dlcp_peer_{key}_total", "counter", words, rows)
    by_path = [
        (labels | {"path": number}, path)
        for labels, peer in by_peer
        for number, path in peer["paths"].items()
    ]
    for key, name, words in (
        ("up", "up", "1 if packets get through."),
        ("loss_ratio", "loss_ratio", "Share of recent packets that were lost."),
        ("rtt_s", "round_trip_seconds", "Round-trip time."),
    ):
        text.family(f"dlcp_path_{name}", "gauge", words, [(labels, path[key]) for labels, path in by_path])
    for key, words in _PACKETS:
        rows = [(labels, path[key]) for labels, path in by_path]
        text.family(f"dlcp_path_{key}_total", "counter", words, rows)


# Of the endpoint as a whole, what is no count.
_GAUGES = {"outstanding_operations"}


def _render_endpoint(text: _Text, endpoint: Mapping[str, Any]) -> None:
    for part, values in (
        ("engine", endpoint["engine"]),
        ("io", endpoint["io"]),
        ("endpoint", endpoint),
    ):
        for key, value in values.items():
            words = f"{key.replace('_', ' ').capitalize()} of the whole {part}."
            if key == "malformed":
                rows = [({"reason": reason}, count) for reason, count in value.items()]
                text.family(
                    "dlcp_engine_malformed_total", "counter", "Datagrams that are no dlcp packets.", rows
                )
            elif key in _GAUGES:
                text.family(f"dlcp_{part}_{key}", "gauge", words, [({}, value)])
            elif isinstance(value, int):
                text.family(f"dlcp_{part}_{key}_total", "counter", words, [({}, value)])


# A driver's counter of one port: "port0_rx_missed_packets".
_OF_A_PORT = re.compile(r"port(\d+)_(.+)")
# Of dlcp's drivers what is no count: buffers in use now, and how XDP's queues and program run.
_LEVEL = re.compile(r".*_used_buffers|(zero_copy_)?queues|native_programs")
_NO_METRIC = re.compile(r"[^a-z0-9_]")


def _render_driver(text: _Text, counted: Mapping[str, int]) -> None:
    families: dict[str, list[tuple[Labels, float]]] = {}
    for name, count in counted.items():
        found = _OF_A_PORT.fullmatch(name)
        labels = {} if found is None else {"port": found[1]}
        name = _NO_METRIC.sub("_", name if found is None else found[2])
        families.setdefault(name, []).append((labels, count))
    for name, rows in families.items():
        words = f"{name.replace('_', ' ').capitalize()} of the driver."
        if _LEVEL.fullmatch(name):
            text.family(f"dlcp_driver_{name}", "gauge", words, rows)
        else:
            text.family(f"dlcp_driver_{name}_total", "counter", words, rows)


_GRADIENT_BYTES = (
    ("value_bytes", "Gradients sent, contributions and sums."),
    ("contributed_bytes", "Gradients sent to be added: what could be lost at all."),
    ("header_bytes", "Headers and tags of the packets that carried gradients."),
    ("retransmitted_bytes", "Gradients sent again."),
    ("received_bytes", "Gradients received."),
    ("critical_bytes", "Gradients sent that could not be abandoned."),
    ("budget_bytes", "Gradients sent that might have been abandoned."),
    ("abandoned_bytes", "Gradients sent that were abandoned."),
    ("missing_bytes", "Gradients to this rank that other ranks abandoned."),
)


def _render_gradients(text: _Text, accounts: Mapping[str, Any]) -> None:
    by_name = [({"gradients": name}, account) for name, account in accounts.items()]
    for key, name, words in (
        ("steps", "steps", "Steps of training that ended."),
        ("skipped", "steps_skipped", "Of these, steps that the optimizer skipped."),
    ):
        rows = [(labels, account[key]) for labels, account in by_name]
        text.family(f"dlcp_gradient_{name}_total", "counter", words, rows)
    for key, words in _GRADIENT_BYTES:
        rows = [(labels, account["total"][key]) for labels, account in by_name]
        text.family(f"dlcp_gradient_{key}_total", "counter", words, rows)
    keeping = [
        (labels, account["residual"]) for labels, account in by_name if account["residual"] is not None
    ]
    text.family(
        "dlcp_gradient_written_off_bytes_total",
        "counter",
        "Kept gradients that no step will get.",
        [(labels, residual["total"]["nbytes"]) for labels, residual in keeping],
    )
    for key, name, words in (
        ("nbytes", "residual_bytes", "Gradients that were abandoned and wait for the next step."),
        ("norm", "residual_norm", "L2 norm of what waits, unscaled."),
        ("age", "residual_age_steps", "Steps that the oldest of it has waited."),
    ):
        # A recipe that keeps every value does not count their norm.
        rows = [(labels, residual[key]) for labels, residual in keeping if residual[key] is not None]
        text.family(f"dlcp_gradient_{name}", "gauge", words, rows)


def _render_aggregation(text: _Text, counts: Mapping[str, Any]) -> None:
    by_ring = [({"by": "ring", "reason": reason}, count) for reason, count in counts["by_ring"].items()]
    for name, words, samples in (
        (
            "collectives",
            "All-reduces that a switch was asked for, by who summed them.",
            [({"by": "switch", "reason": ""}, counts["by_switch"]), *by_ring],
        ),
        ("bytes", "Payload that the switch summed.", [({}, counts["by_switch_bytes"])]),
        (
            "packets",
            "Packets of the aggregation worker, by kind.",
            [({"kind": kind}, count) for kind, count in counts["packets"].items()],
        ),
    ):
        text.family(f"dlcp_aggregation_{name}_total", "counter", words, samples)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


# ---- the server ----


class PrometheusServer(Closeable):
    """Serves one rank's metrics until close().

    `host`: an address of this host. `port`: 0: any free one; else the first free one of `tries` from there on, since
    ranks of one host are given the same setting. Raises AddressError, PortInUseError, ResourceError.
    """

    def __init__(self, metrics: Metrics, host: str = "127.0.0.1", port: int = 0, *, tries: int = 1) -> None:
        self._server = _bind(metrics, host, port, tries)
        self.address: tuple[str, int] = self._server.server_address[:2]  # type: ignore[assignment]
        """Host and port that it listens on."""
        thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="dlcp-metrics", daemon=True
        )
        _open_servers.add(self._server)
        thread.start()
        # At the interpreter's end as well, while threads still run.
        self._finalizer = weakref.finalize(self, _close, self._server, thread, os.getpid())

    @property
    def url(self) -> str:
        """Where the text is."""
        host, port = self.address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def close(self) -> None:
        """Stops listening and cuts connections. Again, or in a forked child: nothing."""
        self._finalizer()


class _Server(ThreadingHTTPServer):
    block_on_close = False  # a thread whose connection is cut ends by itself
    # A port that another process listens on must not be taken as well; one that was closed lately may.
    allow_reuse_address = True
    allow_reuse_port = False

    def __init__(self, metrics: Metrics, family: socket.AddressFamily, address: tuple[str, int]) -> None:
        self.address_family = family
        self.metrics = metrics
        self._lock = threading.Lock()
        self._ends_s: dict[Any, float] = {}  # by connection, oldest first: when its time is up, monotonic
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """As the base class does, without asking a name server for this host's name."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        """As the base class does, within the bound."""
        with self._lock:
            if len(self._ends_s) >= _CLIENTS_MAX:
                self._cut(next(iter(self._ends_s)))
            self._ends_s[request] = time.monotonic() + _REQUEST_S
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """The request is over."""
        with self._lock:
            self._ends_s.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Between requests: cuts connections whose time is up."""
        self.cut_until(time.monotonic())

    def cut_until(self, end_s: float) -> None:
        """Cuts the connections whose time ends until then."""
        with self._lock:
            for request in [request for request, its_end_s in self._ends_s.items() if its_end_s <= end_s]:
                self._cut(request)

    def _cut(self, request: Any) -> None:
        """Its thread then reads the end, and closes it."""
        del self._ends_s[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that disconnects is not an error."""


class _Head(io.BufferedReader):
    """The bytes of a request up to the bound, and then its end."""

    left = _HEAD_BYTES_MAX

    def readline(self, size: int | None = -1, /) -> bytes:
        """As the base class does, within the bound."""
        line = super().readline(self.left if size is None or size < 0 else min(size, self.left))
        self.left -= len(line)
        return line


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "dlcp"
    sys_version = ""
    wbufsize = (
        io.DEFAULT_BUFFER_SIZE
    )  # a short answer is one segment: a server that closes cuts it before or after

    def setup(self) -> None:
        super().setup()
        self.rfile = _Head(self.rfile.detach())

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        try:
            if path == "/metrics":
                self._answer(HTTPStatus.OK, CONTENT_TYPE, render(self.server.metrics.snapshot()))
            elif path == "/metrics.json":
                content = json.dumps(self.server.metrics.snapshot())
                self._answer(HTTPStatus.OK, "application/json", content)
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", "here are /metrics and /metrics.json\n")
        except errors.DlcpError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n")

    def _answer(self, status: HTTPStatus, kind: str, content: str) -> None:
        body = content.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Requests are not logged: they come every few seconds."""


def _bind(metrics: Metrics, host: str, port: int, tries: int) -> _Server:
    try:
        family, _, _, _, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise errors.AddressError(
            f"metrics_host is {host!r}: {error.strerror}; accepted: an address of this host"
        ) from error
    last = min(port + max(tries, 1), 65536) if port else 1
    for number in range(port, last):
        try:
            return _Server(metrics, family, (str(found[0]), number))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
            if error.errno == errno.EADDRNOTAVAIL:
                raise errors.AddressError(
                    f"metrics_host is {host!r}, which is no address of this host"
                ) from error
            raise errors.ResourceError(f"cannot listen on {host}, port {number}: {error.strerror}") from error
    ports = f"port {port} is" if last == port + 1 else f"ports {port} to {last - 1} are"
    raise errors.PortInUseError(
        f"metrics_port: {ports} taken on {host}; choose another, or 0 for any free one"
    )


def _close(server: _Server, thread: threading.Thread, pid: int) -> None:
    if os.getpid() != pid:
        return
    server.shutdown()
    thread.join()
    server.cut_until(math.inf)
    server.server_close()


_open_servers: weakref.WeakSet[_Server] = weakref.WeakSet()


def _close_in_child() -> None:
    # A worker forked by a data loader would keep the port from the next run.
    for server in list(_open_servers):
        server.socket.close()


os.register_at_fork(after_in_child=_close_in_child)
