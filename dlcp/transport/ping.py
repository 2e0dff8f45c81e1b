"""Sends messages between two hosts and reports time and loss: `python -m dlcp.transport.ping`.

One side listens (`--listen`), the other is given the listener's address. Every setting of an endpoint can be given as a
DLCP_* variable too. Exit status: 0 done, 2 an error, which is printed, 130 Ctrl-C or SIGTERM (0 for a listener), 141
the reader of the output is gone.

The protocol: the client sends a JSON offer under the control tag; the listener posts receives and answers. Message i
has tag i, and an empty message ends the run. For each message the listener posts another receive, then replies with an
empty message of the same tag. A client waits for replies before it has more messages outstanding than the listener
posted receives, so every message finds a receive. At the end the listener sends its counts.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dlcp.arguments import Parser, add_json, loss
from dlcp.errors import DlcpError, PeerTimeoutError, SettingsError
from dlcp.exit_status import exit_status
from dlcp.transport.endpoint import Endpoint, check_deadline, check_loss
from dlcp.transport.ping_report import PingSample, figures, report
from dlcp.transport.settings import Settings
from dlcp.transport.transfer import TransferFuture
from dlcp.units import parse_size

LISTENER_RANK = 0
CONTROL_TAG = 1 << 63
TALK_VERSION = 2
# Receives posted beyond the client's outstanding messages, so that the next message finds one.
RECEIVES_AHEAD = 2
OFFER_BYTES_MAX = 4096
# The client's offer comes from the network. It may ask for this much memory at most.
LISTENER_BYTES_MAX = 4 << 30


@dataclasses.dataclass(frozen=True)
class PingPlan:
    """What a client sends."""

    size_bytes: int = 1 << 20
    count: int | None = 200
    duration_s: float | None = None
    depth: int = 4
    """Messages outstanding at once."""
    delivery: str = "reliable"
    loss_ratio: float = 0.0
    deadline_s: float | None = None
    classes: tuple[int, ...] = (0,)
    """Traffic classes; messages take them in turn."""


def measure(endpoint: Endpoint, rank: int, plan: PingPlan, samples: list[PingSample]) -> dict[str, Any]:
    """Sends what the plan says to a listener and appends a sample per message.

    Returns what the listener counted. Blocks until the run is over. Raises DlcpError.
    """
    receives = plan.depth + RECEIVES_AHEAD
    offer = {"version": TALK_VERSION, "size_bytes": plan.size_bytes, "receives": receives}
    endpoint.send(rank, json.dumps(offer).encode(), tag=CONTROL_TAG)
    answer = _receive_json(endpoint, rank)
    if "error" in answer:
        raise SettingsError(f"the listener refuses: {answer['error']}")
    if answer.get("version") != TALK_VERSION:
        raise SettingsError("the listener is another version of ping; run the same dlcp on both sides")
    payload = np.random.default_rng(1).integers(0, 256, plan.size_bytes, np.uint8)
    under_way: deque[tuple[int, TransferFuture]] = deque()
    replies: deque[TransferFuture] = deque()
    nothing = bytearray(1)
    start = time.monotonic()

    def finish_oldest() -> None:
        traffic_class, future = under_way.popleft()
        outcome = future.result()  # blocks, so before the clock is read
        samples.append(PingSample(traffic_class, time.monotonic() - start, outcome))

    def goes_on(number: int) -> bool:
        if plan.duration_s is not None:
            return time.monotonic() - start < plan.duration_s
        return number < (plan.count or 0)

    number = 0
    while goes_on(number):
        if len(under_way) >= plan.depth:
            finish_oldest()
        if len(replies) >= receives:
            replies.popleft().result()
        replies.append(endpoint.ireceive(rank, nothing, tag=number))
        traffic_class = plan.classes[number % len(plan.classes)]
        future = endpoint.isend(
            rank,
            payload,
            tag=number,
            traffic_class=traffic_class,
            delivery=plan.delivery,
            loss_ratio=plan.loss_ratio,
            deadline_s=plan.deadline_s,
        )
        under_way.append((traffic_class, future))
        number += 1
    while under_way:
        finish_oldest()
    while replies:
        replies.popleft().result()
    endpoint.send(rank, b"", tag=number)
    return _receive_json(endpoint, rank)


def serve(endpoint: Endpoint) -> tuple[int, dict[str, Any]]:
    """Serves one client, the next to come: its rank, and what was counted.

    Blocks; raises DlcpError if the client is lost.
    After KeyboardInterrupt receives are posted still: close the endpoint.
    """
    offer = np.zeros(OFFER_BYTES_MAX, np.uint8)
    outcome = endpoint.receive(None, offer, tag=CONTROL_TAG)
    rank = outcome.rank
    assert rank is not None  # it has ended, so somebody sent it
    try:
        size_bytes, receives = _read_offer(offer[: outcome.message_bytes].tobytes())
    except ValueError as error:
        refusal = {"error": str(error)}
        endpoint.send(rank, json.dumps(refusal).encode(), tag=CONTROL_TAG)
        return rank, refusal
    buffers = np.zeros((receives, size_bytes), np.uint8)
    posted = deque((tag, endpoint.ireceive(rank, buffers[tag], tag=tag)) for tag in range(receives))
    held_before = endpoint.stats().engine.held_packets
    endpoint.send(rank, json.dumps({"version": TALK_VERSION}).encode(), tag=CONTROL_TAG)
    messages = message_bytes = abandoned_bytes = 0
    try:
        while True:
            tag, future = posted.popleft()
            outcome = future.result()
            if outcome.message_bytes == 0:
                break
            messages += 1
            message_bytes += outcome.message_bytes
            abandoned_bytes += outcome.abandoned_bytes
            later = tag + receives
            posted.append((later, endpoint.ireceive(rank, buffers[later % receives], tag=later)))
            endpoint.isend(rank, b"", tag=tag)
    except DlcpError:
        _cancel(posted)
        raise
    _cancel(posted)
    counted = {
        "messages": messages,
        "message_bytes": message_bytes,
        "abandoned_bytes": abandoned_bytes,
        "held_packets": endpoint.stats().engine.held_packets - held_before,
    }
    endpoint.send(rank, json.dumps(counted).encode(), tag=CONTROL_TAG)
    return rank, counted


def main(arguments: Sequence[str] | None = None, *, prog: str = "dlcp ping") -> int:
    """The command. Returns the exit status. `prog`: what it is called in help and complaints."""
    parser = _parser(prog)
    options = parser.parse_args(arguments)
    if sum((options.listen, options.demo, options.address is not None)) != 1:
        parser.error("give one of ADDRESS, --listen and --demo")
    if options.json and options.listen:
        parser.error("--json is of what the client measured; leave it out with --listen")
    if options.demo and not (options.bind is options.port is options.key_file is None):
        parser.error("--demo chooses address, port and key itself; leave out --bind, --port and --key-file")
    with _sigterm_like_ctrl_c():
        return exit_status(prog, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    plan = _plan(options)
    if options.demo:
        return _demo(options, plan)
    settings = _settings(options)
    return _listen(options, settings) if options.listen else _ping(options, settings, plan)


@contextlib.contextmanager
def _sigterm_like_ctrl_c() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what signals do
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        # One that comes just now finds a command that is ending anyway.
        with contextlib.suppress(KeyboardInterrupt):
            signal.signal(signal.SIGTERM, before)


# --- the three ways to run ------------------------------------------------------------------------------------


def _listen(options: argparse.Namespace, settings: Settings) -> int:
    with Endpoint(LISTENER_RANK, settings=settings) as endpoint:
        print(f"listening on {endpoint.address}", flush=True)
        try:
            while True:
                try:
                    rank, counted = serve(endpoint)
                except DlcpError as error:
                    if options.once:
                        raise
                    print(f"a client is lost: {error}", flush=True)
                    continue
                print(f"rank {rank} at {endpoint.peer_address(rank)}: {json.dumps(counted)}", flush=True)
                if options.once:
                    _await_goodbye(endpoint, rank)
                    return 0
        except KeyboardInterrupt:
            return 0


def _ping(options: argparse.Namespace, settings: Settings, plan: PingPlan) -> int:
    # A rank of its own for each client, so that several may call one listener.
    with Endpoint(random.SystemRandom().randrange(1, 1 << 32), settings=settings) as endpoint:
        try:
            endpoint.connect(LISTENER_RANK, options.address, timeout_s=options.timeout)
        except PeerTimeoutError as error:
            # Ranks are nothing that a user of ping chooses.
            text = str(error).replace(f"rank {LISTENER_RANK} at ", "the listener at ", 1)
            raise PeerTimeoutError(
                text.replace(f"it is started as rank {LISTENER_RANK}", "it is started", 1)
            ) from None
        samples: list[PingSample] = []
        counted: dict[str, Any] = {}
        failure: DlcpError | None = None
        ended = "done"
        before = endpoint.stats()
        try:
            counted = measure(endpoint, LISTENER_RANK, plan, samples)
        except KeyboardInterrupt:
            ended = "interrupted"
        except DlcpError as error:
            if not samples:
                raise
            failure, ended = error, "failed"
        found = figures(endpoint, LISTENER_RANK, before, samples, counted.get("held_packets", 0))
        if options.json:
            sent = dataclasses.asdict(plan)
            print(json.dumps({"address": options.address, "ended": ended, "plan": sent, **found}, indent=2))
        else:
            print(_headline(options.address, settings, plan))
            if ended != "done":
                print(f"{ended} after {len(samples)} messages")
            for line in report(found):
                print(line)
        if failure is not None:
            sys.stdout.flush()
            raise failure
        return 130 if ended == "interrupted" else 0


def _demo(options: argparse.Namespace, plan: PingPlan) -> int:
    """Both ends on this host, in two processes, with a job key made for the occasion."""
    with tempfile.TemporaryDirectory() as folder:
        key_file = Path(folder) / "key"
        key_file.touch(mode=0o600)
        key_file.write_bytes(secrets.token_bytes(32))
        options.key_file, options.bind, options.port = str(key_file), "127.0.0.1", 0
        settings = _settings(options)
        with _listener(str(key_file)) as address:
            options.address = address
            return _ping(options, settings, plan)


_LISTENER_END_S = 1.0
"""How long the demo's listener may take to end by itself."""


@contextlib.contextmanager
def _listener(key_file: str) -> Iterator[str]:
    """The address of a listener in a process of its own."""
    flags = ["-P"] if sys.flags.safe_path else []  # so that it finds this dlcp
    command = [
        sys.executable,
        *flags,
        "-m",
        "dlcp.transport.ping",
        "--listen",
        "--once",
        "--key-file",
        key_file,
        "--bind",
        "127.0.0.1",
        "--port",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("listening on "):
                raise SettingsError("the listener did not start; what it said stands above")
            yield line.removeprefix("listening on ").strip()
        finally:
            # It ends by itself once its client has said goodbye; a signal just then would find it half gone.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LISTENER_END_S)
            process.terminate()


# --- what is asked for ----------------------------------------------------------------------------------------


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=prog,
        description="Moves data between two hosts and says how it went.",
        epilog="Between hosts: `dlcp ping --listen --bind ADDRESS --port 7000 --key-file KEY` on one, and on the other"
        " `dlcp ping ADDRESS:7000 --key-file KEY`. Sizes may end in K, M or G (powers of 1024). All settings of an"
        " endpoint (dlcp.transport.Settings) can be given as DLCP_* variables.",
    )
    parser.add_argument("address", nargs="?", metavar="ADDRESS", help="of a listener: host:port")
    parser.add_argument("--listen", action="store_true", help="wait for clients")
    parser.add_argument("--once", action="store_true", help="with --listen: serve one client and end")
    parser.add_argument("--demo", action="store_true", help="both ends on this host")
    add_json(parser)
    run = parser.add_argument_group("what is sent")
    run.add_argument(
        "--size", type=_size, default=PingPlan.size_bytes, metavar="BYTES", help="of a message (1M)"
    )
    run.add_argument("--count", type=_positive(int), metavar="N", help="messages (200)")
    run.add_argument("--duration", type=_positive(float), metavar="S", help="seconds, in place of --count")
    run.add_argument(
        "--depth", type=_positive(int), default=PingPlan.depth, help="messages under way at once (4)"
    )
    run.add_argument("--delivery", choices=("reliable", "bounded", "deadline"), default=PingPlan.delivery)
    run.add_argument(
        "--loss-ratio",
        type=loss(),
        default=0.0,
        metavar="LOSS",
        help="of the bytes that may be abandoned, 0.01 or 1%%, below 1; past a deadline more may be",
    )
    run.add_argument(
        "--deadline",
        type=_positive(float),
        metavar="S",
        help="seconds, with --delivery deadline: what is missing then is abandoned, also beyond --loss-ratio",
    )
    run.add_argument(
        "--class",
        dest="classes",
        type=_classes,
        default=PingPlan.classes,
        metavar="C[,C…]",
        help="traffic classes 0 to 6; messages take turns (0)",
    )
    where = parser.add_argument_group("endpoint")
    where.add_argument("--bind", metavar="HOST", help="address to bind (loopback)")
    where.add_argument("--port", type=int, help="UDP port to bind (any free one)")
    where.add_argument("--interface", help="send and receive through this one only")
    where.add_argument("--paths", type=int, help="source ports to spray over (8; on loopback 1)")
    where.add_argument("--key-file", metavar="FILE", help="job key: 32 bytes or 64 hexadecimal digits")
    where.add_argument(
        "--timeout", type=_positive(float), default=10.0, metavar="S", help="to wait for the listener (10)"
    )
    where.add_argument("--encrypt", action="store_true", default=None)
    where.add_argument("--allow-unauthenticated", action="store_true", default=None)
    return parser


def _settings(options: argparse.Namespace) -> Settings:
    given = {
        "bind_host": options.bind,
        "port": options.port,
        "interface": options.interface,
        "paths": options.paths,
        "key_file": options.key_file,
        "encrypt": options.encrypt,
        "allow_unauthenticated": options.allow_unauthenticated,
    }
    given = {name: value for name, value in given.items() if value is not None}
    settings = Settings.load(**given)
    unplaced = settings.bind_host is None and settings.interface is None and not settings.below_kernel
    if options.address is not None and unplaced:
        # To reach another host, be reachable: loopback only for a listener on loopback.
        settings = settings.replace(bind_host=_bind_for(options.address))
    return settings


def _bind_for(address: str) -> str | None:
    """Where to bind to reach an address: None, loopback, for what says so itself; otherwise every address."""
    host = address.rpartition(":")[0]
    if host.startswith("["):
        return "::1" if host == "[::1]" else "::"
    return None if host in {"", "localhost"} or host.startswith("127.") else "0.0.0.0"


def _plan(options: argparse.Namespace) -> PingPlan:
    if options.count is not None and options.duration is not None:
        raise SettingsError("--count and --duration are both given; give one of them")
    check_loss(options.delivery, options.loss_ratio)
    check_deadline(options.delivery, options.deadline)
    count = PingPlan.count if options.count is None and options.duration is None else options.count
    return PingPlan(
        size_bytes=options.size,
        count=count,
        duration_s=options.duration,
        depth=options.depth,
        delivery=options.delivery,
        loss_ratio=options.loss_ratio,
        deadline_s=options.deadline,
        classes=options.classes,
    )


def _size(text: str) -> int:
    size = parse_size(text)
    if size >= 1 << 32:
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: less than 4G, such as 1500, 64K, 16M")
    return size


def _positive(kind: type[int] | type[float]) -> Any:
    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = kind(0)
        if not 0 < value < 1e9:
            raise argparse.ArgumentTypeError(f"{text!r}; accepted: more than 0, less than a milliard")
        return value

    return read


def _classes(text: str) -> tuple[int, ...]:
    try:
        classes = tuple(int(word) for word in text.split(","))
    except ValueError:
        classes = ()
    if not classes or not all(0 <= one <= 6 for one in classes):
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: classes from 0 to 6, such as 0 or 0,3,6")
    return classes


# --- the talk -------------------------------------------------------------------------------------------------


def _cancel(posted: Iterable[tuple[int, TransferFuture]]) -> None:
    for _, future in posted:
        future.cancel()


def _receive_json(endpoint: Endpoint, rank: int) -> dict[str, Any]:
    buffer = np.zeros(OFFER_BYTES_MAX, np.uint8)
    length = endpoint.receive(rank, buffer, tag=CONTROL_TAG).message_bytes
    answer = json.loads(buffer[:length].tobytes())
    return answer if isinstance(answer, dict) else {}


def _read_offer(text: bytes) -> tuple[int, int]:
    """Message size and number of receives. Raises ValueError."""
    try:
        offer = json.loads(text)
        if offer["version"] != TALK_VERSION:
            raise ValueError("another version")
        size_bytes, receives = int(offer["size_bytes"]), int(offer["receives"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError("not an offer of this version of ping; run the same dlcp on both sides") from error
    if size_bytes < 1 or receives < 1 or size_bytes * receives > LISTENER_BYTES_MAX:
        raise ValueError(
            f"{receives} messages of {size_bytes} bytes at once; accepted: at most {LISTENER_BYTES_MAX} bytes together,"
            " so lower --size or --depth"
        )
    return size_bytes, receives


def _await_goodbye(endpoint: Endpoint, rank: int) -> None:
    """Stays until the client has closed, so that it gets its last answer. At most peer_timeout_s."""
    with contextlib.suppress(DlcpError):
        endpoint.receive(rank, bytearray(1), tag=CONTROL_TAG, timeout_s=endpoint.settings.peer_timeout_s)


def _headline(address: str, settings: Settings, plan: PingPlan) -> str:
    protection = "no key"
    if settings.key is not None or settings.key_file is not None:
        protection = "encrypted" if settings.encrypt else "authenticated"
    words = [
        f"dlcp ping {address}",
        f"messages of {plan.size_bytes} bytes",
        f"{plan.depth} at once",
        plan.delivery,
    ]
    if plan.delivery != "reliable":
        words.append(f"loss ratio {plan.loss_ratio:g}")
    if plan.deadline_s is not None:
        words.append(f"deadline {plan.deadline_s:g} s")
    return f"{words[0]},\n" + ", ".join([*words[1:], protection])


if __name__ == "__main__":
    sys.exit(main(prog="python -m dlcp.transport.ping"))
