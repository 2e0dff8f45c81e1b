"""An endpoint: messages between ranks, over NumPy arrays and other memory of the CPU.

Any thread may use an endpoint. A blocking call drives the protocol itself, so that a small message waits for no
other thread; otherwise a thread of the endpoint's own does, which never holds the interpreter's lock. Ctrl-C ends a
blocking call: the message is given up before KeyboardInterrupt goes on.

Memory given to a message is not copied: it must not change (send) or be read (receive) before the message is over,
and is kept alive until then.
"""

from __future__ import annotations

import weakref
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dlcp import _native, checks, errors
from dlcp.checks import boolean, integer, is_integer, is_number
from dlcp.transport.call_options import TRAFFIC_CLASS_MAX
from dlcp.transport.closeable import Closeable
from dlcp.transport.driver_events import EventWatch
from dlcp.transport.interfaces import choose_bind_host
from dlcp.transport.key_warnings import key_warnings
from dlcp.transport.logger import RankLogger, set_level
from dlcp.transport.outcome import Outcome
from dlcp.transport.setting_rules import rules
from dlcp.transport.settings import Settings
from dlcp.transport.statistics import EndpointStatistics, LogEntry, PathStatistics, PeerStatistics
from dlcp.transport.transfer import Dispatcher, PeerLog, TransferFuture

# What the runtime refuses, by its kinds (native/io/io_error.hpp).
_native.register_errors(
    {
        "settings": errors.SettingsError,
        "address": errors.AddressError,
        "port_in_use": errors.PortInUseError,
        "interface": errors.InterfaceError,
        "permission": errors.ResourceError,
        "driver": errors.DriverError,
        "unauthenticated": errors.AuthenticationError,
        "system": errors.ResourceError,
        "closed": errors.ClosedError,
        "forked": errors.ForkError,
        "unknown_peer": errors.UnknownPeerError,
        "not_established": errors.NotEstablishedError,
        "duplicate_rank": errors.DuplicateRankError,
        "message_too_long": errors.MessageTooLongError,
        "traffic_class": errors.TrafficClassError,
        "loss_ratio": errors.BudgetError,
        "deadline": errors.DeadlineError,
        "importance": errors.ShapeError,
        "too_many": errors.LimitError,
        "no_key": errors.KeyEpochError,
        "buffer": errors.ShapeError,
    }
)

_DELIVERIES = {
    "reliable": _native.Delivery.reliable,
    "bounded": _native.Delivery.bounded,
    "deadline": _native.Delivery.deadline,
}
IMPORTANCE_CRITICAL = _native.IMPORTANCE_CRITICAL
# Of every block of a lossy message whose sender says nothing about importance: droppable, in the middle.
IMPORTANCE_DEFAULT = 127
_UINT32_MAX = 2**32 - 1
_UINT64_MAX = 2**64 - 1
# Some thirty years, which nanoseconds in 64 bits hold.
_DEADLINE_S_MAX = 1e9
_warned: set[str] = set()


class SupportsDLPack(Protocol):
    """Memory that is lent by DLPack, as CPU tensors of torch are."""

    def __dlpack__(self) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


# NumPy has many more; so has DLPack: torch tensors of the CPU.
Memory = npt.NDArray[Any] | bytes | bytearray | memoryview | SupportsDLPack
Importance = int | npt.NDArray[np.uint8]


class Endpoint(Closeable):
    """One rank's endpoint: its sessions and messages. Open until close(), the end of a `with` block, or of the process.

    `rank`: this endpoint's rank, unique in the job, 0 to 2^32 - 1. `settings`: None reads arguments, environment and
    file (Settings.load); `changes` are settings by name and come first. Blocks for a name lookup at most.

    `has_groups`: for Job: all tags belong to the collectives of groups. `incarnation`: enters the keys, so that only
    endpoints with the same one can talk (0 to 2^64 - 1); it does nothing without a job key.

    Raises SettingsError, AddressError, PortInUseError, InterfaceError, DriverError, ResourceError, and
    AuthenticationError: no key, and other hosts could reach the address.
    """

    def __init__(
        self,
        rank: int,
        *,
        settings: Settings | None = None,
        has_groups: bool = False,
        incarnation: int = 0,
        **changes: Any,
    ) -> None:
        integer("rank", rank, 0, _UINT32_MAX)
        integer("incarnation", incarnation, 0, 2**64 - 1)
        boolean("has_groups", has_groups)
        if settings is not None and not isinstance(settings, Settings):
            raise errors.SettingsError(
                f"settings is {settings!r}; accepted: a Settings, or None to read them"
            )
        settings = Settings.load(**changes) if settings is None else settings.replace(**changes)
        self._rank = rank
        self._settings = settings
        set_level(settings.log_level)
        self._key_warnings = key_warnings(settings)
        self._runtime = _open_runtime(rank, settings, has_groups, incarnation)
        self._dispatcher = Dispatcher(self._runtime, rank)
        self._log = PeerLog(self._runtime, rank)
        # The kernel's sockets have no events.
        watch = (
            EventWatch(rank, self._log, self._runtime.driver_statistics)
            if settings.network_driver != "udp"
            else None
        )
        # Also at the interpreter's end, when no thread of ours may be left inside.
        self._finalizer = weakref.finalize(self, _close, self._runtime, self._dispatcher, watch)
        for line in self.warnings:
            if line not in _warned:
                _warned.add(line)
                RankLogger(rank).warning("%s", line)

    def __repr__(self) -> str:
        return f"<Endpoint rank {self._rank} at {self.address}{', closed' if self.closed else ''}>"

    # ---- what it is ----

    @property
    def rank(self) -> int:
        """This endpoint's rank."""
        return self._rank

    @property
    def settings(self) -> Settings:
        """The settings it was opened with."""
        return self._settings

    @property
    def runtime(self) -> _native.Runtime:
        """The native runtime below, for groups; endpoints of a job share it with them."""
        return self._runtime

    @property
    def dispatcher(self) -> Dispatcher:
        """Calls the callbacks of this endpoint's futures and works."""
        return self._dispatcher

    @property
    def address(self) -> str:
        """Where peers send to: what they give to connect()."""
        return self._runtime.local_address

    @property
    def max_datagram_bytes(self) -> int:
        """Largest UDP payload that this side sends; a peer's path may carry less."""
        return self._runtime.max_datagram_bytes

    @property
    def warnings(self) -> tuple[str, ...]:
        """Weaknesses of the configuration found when opening, a sentence each. Also logged, once per process."""
        lines = [line for line in self._runtime.warnings.splitlines() if line] + self._key_warnings
        if (
            self._settings.key is None
            and self._settings.key_file is None
            and self._settings.allow_unauthenticated
        ):
            lines.append(
                f"no job key: whoever can send to {self.address} can forge what peers receive; set key_file"
            )
        return tuple(lines)

    @property
    def closed(self) -> bool:
        """Whether it is closed, or belongs to the process that forked this one."""
        return self._runtime.closed

    # ---- peers ----

    def connect(self, rank: int, address: str, *, wait: bool = True, timeout_s: float | None = None) -> None:
        """Names a peer and shakes hands with it. Both sides may; one is enough.

        `address`: "host:port", "a.b.c.d:port" or "[v6]:port". Blocks until the peer has answered, at most `timeout_s`
        (None: connect_timeout_s), or with `wait=False` for a name lookup only: then messages wait for the handshake.
        The same rank and address again is fine.

        Raises AddressError; DuplicateRankError: a rank of this endpoint's or at another address; LimitError;
        PeerTimeoutError: no answer; ClosedError, ForkError.
        """
        integer("rank", rank, 0, _UINT32_MAX)
        if not isinstance(address, str):
            raise errors.AddressError(f"address is {address!r}; accepted: a text like 127.0.0.1:7000")
        checks.timeout("timeout_s", timeout_s)
        timeout_s = self._settings.connect_timeout_s if timeout_s is None else timeout_s
        before = self._strangers() if wait else {}
        is_new = self._runtime.connect(rank, address)
        if not wait or self._runtime.wait_established(rank, timeout_s):
            return
        if is_new:
            self._runtime.disconnect(rank)
        raise errors.PeerTimeoutError(
            f"rank {rank} at {address} did not answer within {timeout_s:g} s; see that it is started as rank {rank},"
            f" that the address is right and UDP to it is not filtered, {_SAME}{self._hints(before)}"
        )

    def wait_for_peer(self, rank: int, *, timeout_s: float | None = None) -> None:
        """Blocks until the handshake with a rank is over, whoever began it; at most `timeout_s` (None: no limit).

        Raises PeerTimeoutError, ClosedError, ForkError.
        """
        integer("rank", rank, 0, _UINT32_MAX)
        checks.timeout("timeout_s", timeout_s)
        before = self._strangers()
        if not self._runtime.wait_established(rank, timeout_s):
            raise errors.PeerTimeoutError(
                f"rank {rank} did not come within {timeout_s:g} s; see that it is started, that it connects to"
                f" {self.address} and UDP to it is not filtered, {_SAME}{self._hints(before)}"
            )

    def disconnect(self, rank: int) -> None:
        """Tells the peer goodbye and fails every message with it. Raises UnknownPeerError."""
        integer("rank", rank, 0, _UINT32_MAX)
        self._runtime.disconnect(rank)

    @property
    def peers(self) -> tuple[int, ...]:
        """Ranks of all peers, in the order met."""
        return tuple(self._runtime.peers())

    def peer_address(self, rank: int) -> str:
        """The address of a peer. Raises UnknownPeerError."""
        integer("rank", rank, 0, _UINT32_MAX)
        return self._runtime.peer_address(rank)

    def block_bytes(self, rank: int) -> int:
        """Payload bytes of a full block of the next message to a peer. Raises UnknownPeerError.

        Known once the handshake is over. It shrinks if the path stops to carry so much.
        """
        integer("rank", rank, 0, _UINT32_MAX)
        return self._runtime.block_bytes(rank)

    def block_count(self, rank: int, message_bytes: int) -> int:
        """How many blocks a message to a peer has, so how long `importance` is. Raises UnknownPeerError."""
        integer("message_bytes", message_bytes, 0, _UINT32_MAX)
        return _native.block_count(message_bytes, self.block_bytes(rank))

    # ---- messages ----

    def isend(
        self,
        rank: int,
        data: Memory,
        *,
        tag: int = 0,
        traffic_class: int = 0,
        delivery: str = "reliable",
        loss_ratio: float = 0.0,
        deadline_s: float | None = None,
        importance: Importance | None = None,
    ) -> TransferFuture:
        """Starts to send one message; does not block. It pairs with the peer's receive of the same tag, in order.

        `data`: C-contiguous CPU memory of numbers, any shape and dtype, under 4 GiB: NumPy array, bytes, CPU tensor.
        `tag`: 0 to 2^64 - 1. `traffic_class`: 0 to 6, 6 leaves first.
        `delivery`: "reliable": all of it arrives. "bounded": droppable blocks may be abandoned, up to `loss_ratio`,
        in [0, 1), of the bytes. "deadline": bounded, and `deadline_s` after the receiver's first packet whatever is
        missing is abandoned, also beyond `loss_ratio`; only critical blocks (255) are still awaited.
        `importance`: uint8, shape (block_count,): 255 is critical and never abandoned, below that the lower go first;
        one number for all blocks; None: 255 for a reliable message, IMPORTANCE_DEFAULT otherwise.

        Raises ShapeError, MessageTooLongError, TrafficClassError, BudgetError, DeadlineError, UnknownPeerError,
        NotEstablishedError: importance before the handshake is over; LimitError, ClosedError, ForkError.
        """
        transfer = self._start_send(
            rank, data, tag, traffic_class, delivery, loss_ratio, deadline_s, importance, wait_follows=False
        )
        return TransferFuture(self._runtime, transfer, self._dispatcher, "send to", rank, tag, self._log)

    def send(
        self,
        rank: int,
        data: Memory,
        *,
        tag: int = 0,
        traffic_class: int = 0,
        delivery: str = "reliable",
        loss_ratio: float = 0.0,
        deadline_s: float | None = None,
        importance: Importance | None = None,
        timeout_s: float | None = None,
    ) -> Outcome:
        """Sends one message and blocks until the peer has it; the arguments are isend's.

        `timeout_s`: then the message is given up (None: no limit but the peer's silence, peer_timeout_s).
        Raises what isend raises, TransferTimeoutError, and the message's own TransferError.
        """
        checks.timeout("timeout_s", timeout_s)
        transfer = self._start_send(
            rank, data, tag, traffic_class, delivery, loss_ratio, deadline_s, importance, wait_follows=True
        )
        return self._finish(
            TransferFuture(self._runtime, transfer, self._dispatcher, "send to", rank, tag, self._log),
            timeout_s,
        )

    def ireceive(self, rank: int | None, buffer: Memory, *, tag: int = 0) -> TransferFuture:
        """Starts to receive one message into `buffer`; does not block.

        `rank`: the sender; None: any peer, the first message of this tag. `buffer`: C-contiguous writable CPU memory of
        numbers, at least as long as the message, under 4 GiB. What the sender and the network abandoned keeps its old
        content; after a failure so does whatever had not arrived.

        Raises ShapeError, MessageTooLongError, UnknownPeerError, LimitError, ClosedError, ForkError.
        """
        transfer = self._start_receive(rank, buffer, tag, wait_follows=False)
        return TransferFuture(self._runtime, transfer, self._dispatcher, "receive from", rank, tag, self._log)

    def receive(
        self, rank: int | None, buffer: Memory, *, tag: int = 0, timeout_s: float | None = None
    ) -> Outcome:
        """Receives one message and blocks until it is there; the arguments are ireceive's.

        `timeout_s`: then the message is given up (None: no limit but the silence of `rank`, peer_timeout_s).
        Raises what ireceive raises, TransferTimeoutError, and the message's own TransferError.
        """
        checks.timeout("timeout_s", timeout_s)
        transfer = self._start_receive(rank, buffer, tag, wait_follows=True)
        return self._finish(
            TransferFuture(self._runtime, transfer, self._dispatcher, "receive from", rank, tag, self._log),
            timeout_s,
        )

    def progress(self, timeout_s: float = 0.0) -> bool:
        """Drives the protocol from this thread for at most `timeout_s`; 0 does what is due and does not block.

        Never needed: the endpoint has a thread. True if a message became over. Raises ClosedError, ForkError.
        """
        checks.timeout("timeout_s", timeout_s)
        return self._runtime.progress(timeout_s)

    # ---- what happened ----

    def stats(self) -> EndpointStatistics:
        """Everything counted so far; the last values once closed. Raises ForkError."""
        return EndpointStatistics.from_native(self._runtime.statistics())

    def driver_statistics(self) -> dict[str, int]:
        """What this driver alone counts, by name with the unit last: of network cards, buffers, address resolution.

        {} of the kernel's sockets, and once closed. Asking the card may take some ms. Raises ForkError.
        """
        return self._runtime.driver_statistics()

    def peer_stats(self, rank: int) -> PeerStatistics:
        """The state of the connection with one peer. Raises UnknownPeerError."""
        integer("rank", rank, 0, _UINT32_MAX)
        return PeerStatistics(**self._runtime.peer_statistics(rank))

    def path_stats(self, rank: int) -> tuple[PathStatistics, ...]:
        """The paths to one peer. Raises UnknownPeerError."""
        integer("rank", rank, 0, _UINT32_MAX)
        return tuple(PathStatistics(**path) for path in self._runtime.path_statistics(rank))

    def drain_log(self) -> tuple[LogEntry, ...]:
        """What happened to peers, paths, bounds and the driver since the last call.

        The oldest go beyond 1024 entries.
        """
        return self._log.drain()

    def advance_key_epoch(self) -> None:
        """Signs with the next generation of the session keys from now on. Raises KeyEpochError: no job key."""
        self._runtime.advance_key_epoch()

    def close(self) -> None:
        """Tells the peers goodbye and fails what is under way with TransferClosedError. Again: nothing.

        Blocks until other threads have left their calls and callbacks have run. A peer that still waits for an answer
        sees PeerClosedError, so let both sides finish first.
        """
        self._finalizer()

    # ---- helpers ----

    def _start_send(
        self,
        rank: int,
        data: Memory,
        tag: int,
        traffic_class: int,
        delivery: str,
        loss_ratio: float,
        deadline_s: float | None,
        importance: Importance | None,
        *,
        wait_follows: bool,
    ) -> _native.Transfer:
        integer("rank", rank, 0, _UINT32_MAX)
        integer("tag", tag, 0, _UINT64_MAX)
        if not is_integer(traffic_class, 0, TRAFFIC_CLASS_MAX):
            raise errors.TrafficClassError(
                f"traffic_class is {traffic_class!r}; accepted: 0 to 6, 6 leaves first"
            )
        if not isinstance(delivery, str) or delivery not in _DELIVERIES:
            raise errors.ArgumentError(
                f"delivery is {delivery!r}; accepted: {', '.join(map(repr, _DELIVERIES))}"
            )
        check_loss(delivery, loss_ratio)
        check_deadline(delivery, deadline_s)
        memory = _memory(data, "data", writable=False)
        return self._runtime.send(
            rank,
            memory,
            tag,
            traffic_class,
            _DELIVERIES[delivery],
            loss_ratio,
            0.0 if deadline_s is None else deadline_s,
            _scores(delivery, importance),
            wait_follows,
        )

    def _start_receive(
        self, rank: int | None, buffer: Memory, tag: int, *, wait_follows: bool
    ) -> _native.Transfer:
        if rank is not None:
            integer("rank", rank, 0, _UINT32_MAX)
        integer("tag", tag, 0, _UINT64_MAX)
        return self._runtime.receive(_memory(buffer, "buffer", writable=True), rank, tag, wait_follows)

    def _finish(self, future: TransferFuture, timeout_s: float | None) -> Outcome:
        """The result of a blocking call. Whatever ends it early ends the message first, so the memory is free."""
        try:
            return future.result(timeout_s)
        except errors.TransferTimeoutError:
            if self._runtime.cancel(future._transfer):
                self._runtime.wait(future._transfer, None)
            if future._transfer.over and future._transfer.error is None:
                return future.outcome  # it ended in the meantime
            error = errors.TransferTimeoutError(
                f"{future._name()} was not over after {timeout_s:g} s (timeout) and was given up"
                f"{future._absence(timeout_s)}"
            )
            error.outcome = future.outcome
            raise error from None
        except KeyboardInterrupt:
            if self._runtime.cancel(future._transfer):
                self._runtime.wait(future._transfer, 1.0)
            raise

    def _hints(self, before: dict[str, int]) -> str:
        """What was seen since `before` of packets that could not be read, as the end of a sentence."""
        after = self._strangers()
        return "".join(
            f"; {hint}" for counter, hint in _STRANGER_HINTS.items() if after[counter] > before[counter]
        )

    def _strangers(self) -> dict[str, int]:
        engine = self.stats().engine
        return {counter: getattr(engine, counter) for counter in _STRANGER_HINTS}


_SAME = "and that both sides have the same job key, job number and version"
# Counters that rise while a handshake fails, and what that means.
_STRANGER_HINTS = {
    "bad_tag": "packets with a wrong tag came meanwhile: the job keys differ",
    "unauthenticated": "packets came with a tag and without a key here, or the reverse: give both sides the same key",
    "no_common_cipher": "the peer has none of the ciphers that are allowed here: see setting cipher at both ends",
    "foreign_job": "packets of another job came meanwhile: the job numbers differ",
}


def _close(runtime: _native.Runtime, dispatcher: Dispatcher, watch: EventWatch | None) -> None:
    if watch is not None:
        watch.stop()
    runtime.close()
    dispatcher.join()


def _open_runtime(rank: int, settings: Settings, has_groups: bool, incarnation: int) -> _native.Runtime:
    """The runtime, on the first free one of the ports that the settings name. Raises what Endpoint does."""
    key = settings.job_key()
    if settings.encrypt and key is None:
        raise errors.SettingsError("encrypt is set, but there is no job key; set key_file")
    options = _native.RuntimeOptions(rank, has_groups, key, incarnation)
    values = native_values(settings)
    for name, value in values.items():
        options.set(name, value)
    for port in settings.ports:
        options.set("port", port)
        try:
            return _native.Runtime(options)
        except errors.PortInUseError:
            if settings.port_range is None:
                raise
    raise errors.PortInUseError(
        f"port_range is {settings.port_range}, and every one of these UDP ports is in use on"
        f" {values['bind_host'] or '127.0.0.1'}: widen it, or stop what has them (ss -ulpn names the programs)"
    )


def native_values(settings: Settings) -> dict[str, Any]:
    """The settings that the runtime takes, by name; the interface is one name here, and no pattern."""
    values = {name: getattr(settings, name) for name, rule in rules().items() if rule.entry.layer != "job"}
    values["driver_options"] = settings.driver_words
    if settings.below_kernel:
        settings.need_own_address()
        # A device, which the kernel need not know.
        values["interface"] = settings.device
    elif settings.interface is not None:
        # An own address to bind says which interface of several is meant.
        wildcard = settings.bind_host in {None, "", "0.0.0.0", "::"}
        chosen = choose_bind_host(settings.interface, None if wildcard else settings.bind_host)
        values["interface"] = chosen.interface
        values["bind_host"] = settings.bind_host or chosen.host
    return values


def check_loss(delivery: str, loss_ratio: float) -> None:
    """Raises BudgetError: a loss ratio out of range, or of no use to this delivery."""
    if not is_number(loss_ratio, 0, 1, below=True):
        raise errors.BudgetError(
            f"loss_ratio is {loss_ratio!r}; accepted: 0 to less than 1, the fraction of bytes that may be abandoned"
        )
    if delivery == "reliable" and loss_ratio != 0.0:
        raise errors.BudgetError(
            f"loss_ratio is {loss_ratio!r} with delivery 'reliable', which loses nothing; use 'bounded' or 'deadline'"
        )


def check_deadline(delivery: str, deadline_s: float | None) -> None:
    """Raises DeadlineError: absent, out of range, or of no use to this delivery."""
    if delivery != "deadline":
        if deadline_s is not None:
            raise errors.DeadlineError(
                f"deadline_s is {deadline_s!r} with delivery {delivery!r}; leave it out or use delivery 'deadline'"
            )
        return
    if not is_number(deadline_s, 0, _DEADLINE_S_MAX, above=True):
        raise errors.DeadlineError(
            f"deadline_s is {deadline_s!r}; accepted: more than 0 seconds, up to {_DEADLINE_S_MAX:g}"
        )


def _check_plain(memory: object, name: str, *, writable: bool) -> None:
    """Raises ShapeError: no memory, or none to write to. The runtime checks its shape."""
    try:
        view = memoryview(memory)  # type: ignore[arg-type]
    except TypeError:
        raise errors.ShapeError(
            f"{name} is of type {type(memory).__name__}, which has no memory to {'fill' if writable else 'send'};"
            " accepted: a NumPy array, a bytes-like object or a CPU tensor"
        ) from None
    except (ValueError, BufferError):
        return
    if writable and view.readonly:
        raise errors.ShapeError(
            f"{name} of type {type(memory).__name__} is read-only; accepted: writable memory, such as a bytearray"
        )


def _scores(delivery: str, importance: Importance | None) -> Importance:
    """Importance of all blocks, or of each."""
    if importance is None:
        return IMPORTANCE_CRITICAL if delivery == "reliable" else IMPORTANCE_DEFAULT
    if isinstance(importance, np.ndarray):
        if importance.dtype == np.uint8 and importance.ndim == 1:
            return np.ascontiguousarray(importance)
        shown = f"{importance.dtype} of shape {importance.shape}"
    else:
        if is_integer(importance, 0, IMPORTANCE_CRITICAL):
            return int(importance)
        shown = repr(importance)
    raise errors.ShapeError(
        f"importance is {shown}; accepted: a number from 0 to 255, or an array of uint8 of shape (block_count,)"
    )


def _memory(memory: Memory, name: str, *, writable: bool) -> Memory:
    """Memory in the runtime's form; arrays are checked here, where the error can name their shape."""
    if not isinstance(memory, np.ndarray):
        if not hasattr(memory, "__dlpack__"):
            _check_plain(memory, name, writable=writable)
        return memory
    if memory.dtype.hasobject:
        raise errors.ShapeError(f"{name} has dtype {memory.dtype}, Python objects; accepted: numbers")
    if not memory.flags.c_contiguous:
        raise errors.ShapeError(
            f"{name} of shape {memory.shape} and strides {memory.strides} is not C-contiguous; send"
            " numpy.ascontiguousarray of it, or receive into a contiguous array and copy"
        )
    if writable and not memory.flags.writeable:
        raise errors.ShapeError(f"{name} of shape {memory.shape} is read-only; accepted: a writable array")
    # The buffer protocol has no word for dates and for types of other packages; their bytes will do.
    return memory if memory.dtype.kind in "biufc" else memory.reshape(-1).view(np.uint8)
