"""Metrics of a job that has done something, and what Prometheus gets to read of them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from dlcp import errors
from dlcp.transport.communicator import Communicator, DataType, Span
from dlcp.transport.job import Job
from dlcp.transport.metrics import Metrics
from dlcp.transport.prometheus import CONTENT_TYPE, PrometheusServer, render
from dlcp.transport.store import MemoryStore

ELEMENTS = 5000


def run_ranks(size: int, rank_main: Callable[[Job, Communicator], None]) -> None:
    """Runs `rank_main` on threads, one per rank, each with a job of its own over loopback."""
    store = MemoryStore()
    raised: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            with Job(store, rank, size, timeout_s=30.0, shm=False) as job:
                group = job.open_communicator('odd "name" \\')
                rank_main(job, group)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


@pytest.fixture(scope="module")
def snapshots() -> list[dict[str, Any]]:
    """Of two ranks after 3 all-reduces, a barrier and a message from 0 to 1; while both are still there."""
    taken: list[dict[str, Any]] = [{}, {}]

    def rank_main(job: Job, group: Communicator) -> None:
        values = np.full(ELEMENTS, job.rank + 1.0, np.float32)
        for _ in range(3):
            group.all_reduce(Span.of(values), DataType.f32).wait()
        group.barrier().wait()
        note = np.zeros(10, np.uint8)
        (group.send(Span.of(note), 1) if job.rank == 0 else group.receive(Span.of(note), None)).wait()
        taken[job.rank] = Metrics(job).snapshot()
        group.barrier().wait()

    run_ranks(2, rank_main)
    return taken


# --- the snapshot -------------------------------------------------------------------------------------------


def test_operations_are_counted_by_kind(snapshots: list[dict[str, Any]]) -> None:
    for rank, snapshot in enumerate(snapshots):
        (group,) = snapshot["groups"].values()
        assert (group["rank"], group["members"], group["failure"]) == (rank, [0, 1], None)
        assert (group["collectives"], group["under_way"], group["waited_for"]) == (4, 0, {})
        message = "send" if rank == 0 else "receive"
        counted = {name: (each["started"], each["completed"]) for name, each in group["operations"].items()}
        assert counted == {"all_reduce": (3, 3), "barrier": (1, 1), message: (1, 1)}
        reduces = group["operations"]["all_reduce"]
        assert reduces["failed"] == 0
        # With two ranks every algorithm sends each value once.
        assert reduces["sent_bytes"] == reduces["received_bytes"] == 3 * 4 * ELEMENTS
        assert sum(reduces["duration_counts"]) == 3
        assert 0 < reduces["duration_s_max"] <= reduces["duration_s"]
        assert group["operations"][message]["sent_bytes" if rank == 0 else "received_bytes"] == 10


def test_peers_are_described(snapshots: list[dict[str, Any]]) -> None:
    for rank, snapshot in enumerate(snapshots):
        assert (snapshot["rank"], snapshot["size"]) == (rank, 2)
        (peer,) = snapshot["peers"].values()
        assert peer["rank"] == 1 - rank
        assert peer["address"] == snapshots[1 - rank]["address"]
        assert peer["rtt_s"] > 0
        assert peer["paths_down"] == 0
        assert peer["packets_sent"] == sum(path["packets_sent"] for path in peer["paths"].values()) > 0
        assert snapshot["endpoint"]["engine"]["data_bytes_placed"] >= 3 * 4 * ELEMENTS


def test_snapshot_is_json(snapshots: list[dict[str, Any]]) -> None:
    assert json.loads(json.dumps(snapshots[0], allow_nan=False)) == snapshots[0]


def test_operations_under_way_and_closed_jobs_are_described() -> None:
    before: list[dict[str, Any]] = []
    jobs = []

    def rank_main(job: Job, group: Communicator) -> None:
        note = Span.of(np.zeros(4, np.uint8))
        if job.rank == 0:
            work = group.receive(note, 1)
            before.extend(Metrics(job).snapshot()["groups"].values())
            jobs.append(job)
        group.barrier().wait()  # rank 1 sends after rank 0 has looked
        if job.rank == 0:
            work.wait()
        else:
            group.send(note, 0).wait()

    run_ranks(2, rank_main)
    (group,) = before
    assert (group["under_way"], group["operations"]["receive"]["started"]) == (1, 1)
    assert group["under_way_s_max"] >= 0
    closed = Metrics(jobs[0]).snapshot()
    assert (closed["groups"], closed["peers"]) == ({}, {})
    assert closed["endpoint"]["engine"]["data_packets_sent"] > 0


def test_groups_of_one_name_are_kept_apart() -> None:
    def rank_main(job: Job, group: Communicator) -> None:
        if job.rank == 0:
            job.recorder.open_group("pair", [0, 1])
            job.recorder.open_group("pair", [2, 0])
            assert list(Metrics(job).snapshot()["groups"])[1:] == ["pair", "pair #2"]
        group.barrier().wait()

    run_ranks(2, rank_main)


# --- the text -----------------------------------------------------------------------------------------------

LINE = re.compile(
    r'(?P<name>[a-zA-Z_:][\w:]*)\{(?P<labels>(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*)\} (?P<value>\S+)'
)
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"')


@dataclass
class Family:
    kind: str
    words: str
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)


def parse(text: str) -> dict[str, Family]:
    """A strict reader of the exposition format, as this project uses it."""
    families: dict[str, Family] = {}
    words = ""
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, words = line.split(" ", 3)
            assert name not in families, f"{name} is there twice"
        elif line.startswith("# TYPE "):
            _, _, typed, kind = line.split(" ")
            assert typed == name
            assert kind in ("counter", "gauge", "histogram")
            families[name] = Family(kind, words)
        else:
            found = LINE.fullmatch(line)
            assert found, line
            family = families[name]
            suffix = found["name"].removeprefix(name)
            assert suffix in (("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)), line
            unescaped = tuple(
                (label, re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], value))
                for label, value in LABEL.findall(found["labels"])
            )
            assert (suffix, unescaped) not in family.samples, f"twice: {line}"
            family.samples[suffix, unescaped] = float(found["value"])
    return families


def test_text_parses_and_types_are_right(snapshots: list[dict[str, Any]]) -> None:
    families = parse(render(snapshots[0]))
    for name, family in families.items():
        assert (family.kind == "counter") == name.endswith("_total"), name
        assert family.samples, name
        assert family.words.endswith("."), name
        for suffix, labels in family.samples:
            assert labels[0] == ("rank", "0"), (name, suffix)
    started = families["dlcp_operations_started_total"]
    labels = (("rank", "0"), ("group", 'odd "name" \\'), ("operation", "all_reduce"))
    assert started.samples["", labels] == 3
    path = (("rank", "0"), ("peer", "1"), ("path", "0"))
    assert families["dlcp_path_up"].samples["", path] == 1
    assert families["dlcp_path_packets_sent_total"].samples["", path] > 0
    engine = snapshots[0]["endpoint"]["engine"]
    for key in ("data_packets_sent", "repair_packets_sent", "ce_packets_received", "lost_packets"):
        assert families[f"dlcp_engine_{key}_total"].samples["", labels[:1]] == engine[key]
    assert families["dlcp_endpoint_outstanding_operations"].kind == "gauge"


def test_counters_of_a_driver_carry_the_port_as_a_label(snapshots: list[dict[str, Any]]) -> None:
    assert snapshots[0]["driver"] == {}
    counted = {
        "port0_rx_missed_packets": 7,
        "port1_rx_missed_packets": 0,
        "port0_tx_q0_bytes": 2**40,
        "arp_requests": 3,
        "port0_tx_used_buffers": 64,
    }
    families = parse(render(snapshots[0] | {"driver": counted}))
    rank = ("rank", "0")
    assert families["dlcp_driver_rx_missed_packets_total"].samples == {
        ("", (rank, ("port", "0"))): 7,
        ("", (rank, ("port", "1"))): 0,
    }
    assert families["dlcp_driver_tx_q0_bytes_total"].samples["", (rank, ("port", "0"))] == 2**40
    assert families["dlcp_driver_arp_requests_total"].samples["", (rank,)] == 3
    assert families["dlcp_driver_tx_used_buffers"].kind == "gauge"
    assert families["dlcp_driver_arp_requests_total"].words == "Arp requests of the driver."


def test_histogram_is_cumulative(snapshots: list[dict[str, Any]]) -> None:
    family = parse(render(snapshots[0]))["dlcp_operation_duration_seconds"]
    assert family.kind == "histogram"
    series: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    for (suffix, labels), value in family.samples.items():
        if suffix == "_bucket":
            assert labels[-1][0] == "le"
            series.setdefault(labels[:-1], []).append((float(labels[-1][1]), value))
    assert len(series) == 3
    for labels, buckets in series.items():
        assert buckets == sorted(buckets)
        assert [count for _, count in buckets] == sorted(count for _, count in buckets)
        assert buckets[-1] == (float("inf"), family.samples["_count", labels])
        assert family.samples["_sum", labels] >= 0


def test_failures_are_in_the_text(snapshots: list[dict[str, Any]]) -> None:
    snapshot = json.loads(json.dumps(snapshots[0]))
    (group,) = snapshot["groups"].values()
    group["failure"] = "timeout"
    group["operations"]["all_reduce"]["failed"] = 2
    group["waited_for"] = {"1": 2}
    snapshot["groups"]["two\nlines"] = group
    families = parse(render(snapshot))
    for name in ('odd "name" \\', "two\nlines"):
        labels = (("rank", "0"), ("group", name))
        assert families["dlcp_group_failed"].samples["", labels] == 1
        assert families["dlcp_operations_failed_waiting_total"].samples["", (*labels, ("peer", "1"))] == 2


# --- the server ---------------------------------------------------------------------------------------------


class Fixed(Metrics):
    """Metrics that stand still, or fail."""

    def __init__(self, snapshot: dict[str, Any] | None) -> None:
        self._snapshot = snapshot

    def snapshot(self) -> dict[str, Any]:
        if self._snapshot is None:
            raise errors.ForkError("forked")
        return self._snapshot


@pytest.fixture
def server(snapshots: list[dict[str, Any]]) -> Iterator[PrometheusServer]:
    with PrometheusServer(Fixed(snapshots[0])) as server:
        yield server


def ask(server: PrometheusServer, path: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection(*server.address, timeout=20)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read().decode()
    finally:
        connection.close()


def test_server_answers(server: PrometheusServer, snapshots: list[dict[str, Any]]) -> None:
    assert server.address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.address[1]}/metrics"
    assert ask(server, "/metrics") == (200, CONTENT_TYPE, render(snapshots[0]))
    assert ask(server, "/metrics?name=x")[0] == 200
    status, kind, body = ask(server, "/metrics.json")
    assert (status, kind, json.loads(body)) == (200, "application/json", snapshots[0])
    status, _, body = ask(server, "/")
    assert (status, body) == (404, "here are /metrics and /metrics.json\n")


def test_server_of_a_live_job_answers() -> None:
    def rank_main(job: Job, group: Communicator) -> None:
        group.barrier().wait()
        with PrometheusServer(Metrics(job)) as server:
            with urllib.request.urlopen(server.url, timeout=20) as response:
                families = parse(response.read().decode())
            assert len(families["dlcp_operations_completed_total"].samples) == 1
        group.barrier().wait()

    run_ranks(2, rank_main)


def test_job_serves_its_metrics_if_asked(server: PrometheusServer) -> None:
    port = server.address[1]  # which is taken
    with (
        Job(MemoryStore(), 0, 1) as silent,
        Job(MemoryStore(), 0, 1, metrics_port=0) as any_port,
        Job(MemoryStore(), 0, 1, metrics_port=port) as next_port,
    ):
        assert silent.metrics_server is None
        assert any_port.metrics_server is not None
        assert next_port.metrics_server is not None
        assert next_port.metrics_server.address[1] > port
        for job in (any_port, next_port):
            assert job.metrics_server is not None
            with urllib.request.urlopen(job.metrics_server.url, timeout=20) as response:
                assert f'address="{job.endpoint.address}"' in response.read().decode()
        address = next_port.metrics_server.address
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    with pytest.raises(errors.AddressError, match="metrics_host is '192.0.2.1'"):
        Job(MemoryStore(), 0, 1, metrics_port=0, metrics_host="192.0.2.1")


def test_server_says_why_it_cannot_answer() -> None:
    with PrometheusServer(Fixed(None)) as server:
        assert ask(server, "/metrics") == (503, "text/plain", "forked\n")


def test_client_that_goes_away_harms_nobody(server: PrometheusServer) -> None:
    for request in (b"", b"GET /met", b"\x00\xff\r\n\r\n", b"GET /metrics HTTP/1.0\r\n\r\n"):
        with socket.create_connection(server.address) as client:
            client.sendall(request)
    assert ask(server, "/metrics")[0] == 200


def test_silent_clients_keep_nobody_waiting(server: PrometheusServer) -> None:
    """More of them than are served at a time: the oldest goes."""
    with contextlib.ExitStack() as clients:
        for _ in range(20):
            clients.enter_context(socket.create_connection(server.address)).sendall(b"GET /met")
        assert ask(server, "/metrics")[0] == 200


def test_a_request_is_read_up_to_a_bound_and_answered(server: PrometheusServer) -> None:
    head = b"GET /metrics HTTP/1.0\r\nX: "
    with socket.create_connection(server.address, 20) as client:
        client.sendall(head + b"x" * (8192 - len(head)))  # and no end of the line
        assert client.recv(1000).startswith(b"HTTP/1.0 200 ")


def test_client_that_drips_is_cut_off_and_holds_up_no_close(server: PrometheusServer) -> None:
    """Each byte comes in time; the request as a whole does not."""
    cut = threading.Event()

    def drip(client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not cut.wait(0.05):
                client.sendall(b"a")
        cut.set()

    def start() -> socket.socket:
        client = socket.create_connection(server.address)
        client.sendall(b"GET /")
        threading.Thread(target=drip, args=(client,), daemon=True).start()
        return client

    with start():
        assert cut.wait(20), "the request has had its time"
    cut.clear()
    with start():
        closing = threading.Thread(target=server.close, daemon=True)
        closing.start()
        closing.join(20)
        assert not closing.is_alive()
        assert cut.wait(20)


def test_closed_server_is_gone(snapshots: list[dict[str, Any]]) -> None:
    server = PrometheusServer(Fixed(snapshots[0]))
    address = server.address
    server.close()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    assert not [thread for thread in threading.enumerate() if thread.name == "dlcp-metrics"]
    # The port is free again at once.
    PrometheusServer(Fixed(snapshots[0]), port=address[1]).close()


def test_forgotten_server_is_closed(snapshots: list[dict[str, Any]]) -> None:
    server = PrometheusServer(Fixed(snapshots[0]))
    address = server.address
    del server
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_child_does_not_hold_the_port(snapshots: list[dict[str, Any]]) -> None:
    server = PrometheusServer(Fixed(snapshots[0]))
    until, close = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(close)
        server.close()  # not the child's to close: must neither block nor raise
        os.read(until, 1)
        os._exit(0)
    try:
        assert ask(server, "/metrics")[0] == 200
        server.close()
        PrometheusServer(Fixed(snapshots[0]), port=server.address[1]).close()
    finally:
        os.close(until)
        os.close(close)
        assert os.waitpid(child, 0)[1] == 0


def test_ranks_of_one_host_take_the_next_port(
    server: PrometheusServer, snapshots: list[dict[str, Any]]
) -> None:
    port = server.address[1]
    with pytest.raises(errors.PortInUseError, match=f"metrics_port: port {port} is taken on 127.0.0.1"):
        PrometheusServer(Fixed(snapshots[0]), port=port)
    with PrometheusServer(Fixed(snapshots[0]), port=port, tries=64) as other:
        assert port < other.address[1] < port + 64


@pytest.mark.parametrize("host", ["no host of this name", "192.0.2.1"])
def test_host_that_is_not_here_is_refused(host: str, snapshots: list[dict[str, Any]]) -> None:
    with pytest.raises(errors.AddressError, match=f"metrics_host is '{host}'"):
        PrometheusServer(Fixed(snapshots[0]), host)
