"""A job: the ranks of one run, that find each other through a store, and this rank's endpoint among them.

Rank 0 draws a job key, a job number and an incarnation and leaves them in the store (job_record.py); every rank leaves
a card with its address. Any process that can read the store can read the key. A store such as torch's listens on the
network without authentication, so that includes every process that can reach it. A key from the user (key_file,
DLCP_KEY_FILE) replaces the drawn key; the store then holds only a check value of it, so that an error can name
different keys. The incarnation enters all keys: ranks refuse the packets of a rank left over from an earlier start of
the job, whatever key and number it has. With allow_unauthenticated and without a key of one's own, packets carry no
tag.

A start is over when all ranks have come (meeting.py). A rank reads another's card, and names it to the endpoint, when
it first needs that peer. It then also reads the cards of the group's first few dozen members, so that errors can name
them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import os
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dlcp import __version__, _native, checks, errors
from dlcp.transport.adder_table import Opening, open_adders
from dlcp.transport.closeable import Closeable
from dlcp.transport.communicator import Communicator
from dlcp.transport.driver import BELOW_KERNEL
from dlcp.transport.endpoint import Endpoint
from dlcp.transport.flight_recorder import FlightRecorder
from dlcp.transport.flight_trace import dump_path
from dlcp.transport.hub.client import HubClient
from dlcp.transport.interfaces import choose_bind_host
from dlcp.transport.job_ranks import JobRanks
from dlcp.transport.job_record import JobRecord
from dlcp.transport.logger import RankLogger
from dlcp.transport.meeting import STALE_S, Meeting
from dlcp.transport.metrics import Metrics
from dlcp.transport.rank_card import RankCard, check_versions, describe_line_rate
from dlcp.transport.round_trip import asked_ranks, expect, give_up, round_trip_s
from dlcp.transport.settings import Settings
from dlcp.transport.store import PrefixStore, Store, asking, check_store, wait_for

if TYPE_CHECKING:
    from dlcp.transport.prometheus import PrometheusServer

SIZE_MAX = 1 << 20
"""Most ranks of a job: far more than any job has, far fewer than a mistaken value."""
# Closing: after this long, or so many round trips, without a packet, the peers have what they wait for. A peer that
# missed the last acknowledgement probes within a few of its probe timeouts, the first of which is far shorter.
_QUIET_S = 0.05
_QUIET_ROUND_TRIPS = 4
_QUIET_S_MAX = 2.0
# A collective posts its receives before the messages arrive, except those of ranks that are ahead. Such messages are
# kept up to this length; a longer one is held at its sender, which costs less than keeping and copying it.
_UNEXPECTED_MESSAGE_BYTES = 4 * 1024 * 1024
# Closing: after this long it says for whom it waits; and how long it waits at most while an exception is under way.
_DELIVERY_QUIET_S = 5.0
HURRIED_S = 1.0
# Ports tried for the metrics: no host runs more ranks than this.
_METRICS_PORTS = 256


class Job(JobRanks, Closeable):
    """This rank's membership of a run: one endpoint, the job key, the addresses of all. Open until close().

    `store`: the same for all ranks, empty or used by earlier jobs, of any size; `rank` of `size`.
    `settings`: None reads arguments, environment and file (Settings.load); `changes` are settings by name.
    `timeout_s`: bounds every wait for another rank's entry in the store, and operations that bring no timeout.
    `toward`: a host on the network to use, such as the store's; decides the interface where settings do not.

    Blocks until all ranks have come. Raises JobError: another version, key or job number, or a loopback address among
    hosts; StoreTimeoutError: ranks did not come; what Endpoint raises, and what the store raises.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        *,
        settings: Settings | None = None,
        timeout_s: float = 1800.0,
        toward: str | None = None,
        **changes: Any,
    ) -> None:
        size = checks.integer("size", size, 1, SIZE_MAX)
        rank = checks.integer("rank", rank, 0, size - 1)
        timeout_s = _seconds("timeout_s", timeout_s)
        if size > 1:
            check_store(store)
        if settings is not None and not isinstance(settings, Settings):
            raise errors.ArgumentError(
                f"settings is {settings!r}; accepted: a Settings, or None to read them"
            )
        if toward is not None:
            toward = checks.text("toward", toward, "the name or address of a host")
        super().__init__(rank, size, timeout_s)
        self._opened: dict[tuple[str, tuple[int, ...]], int] = {}
        self._communicators: weakref.WeakSet[Communicator] = weakref.WeakSet()
        self._closed = False
        self.metrics_server: PrometheusServer | None = None
        """Where Prometheus reads the metrics; None unless the setting metrics_port asks for it."""
        meeting = Meeting(store, rank, size, timeout_s)
        try:
            given = Settings.load(**changes) if settings is None else settings.replace(**changes)
            place, interface, self._why_interface = _choose_place(given, toward)
            while not self._take_part(meeting, given, place, interface):
                self._leave()
        except BaseException as error:
            self._leave()
            if size > 1 and isinstance(error, errors.DlcpError):
                # Whatever the store raises now says less than this error.
                with contextlib.suppress(Exception):
                    meeting.refuse(RankCard.of_this_process(rank, "", "", str(error)))
            raise
        self.store = meeting.store
        self._cards[rank] = self.card
        self._delivery_s = self.settings.timeout_s or timeout_s
        # Before the endpoint's own at the interpreter's end, since made after it.
        self._finalizer = weakref.finalize(
            self, _close_at_exit, self.endpoint, self.card.pid, self._delivery_s
        )
        self.hub_client = HubClient(self)
        """This rank's connections to hubs."""
        RankLogger(rank).info("%s", self._describe_start())

    def __repr__(self) -> str:
        return f"<Job rank {self.rank} of {self.size} at {self.endpoint.address}{', closed' if self.closed else ''}>"

    @property
    def closed(self) -> bool:
        """Whether it is closed, or belongs to the process that forked this one."""
        return self._closed or self.endpoint.closed

    # ---- groups ----

    def open_communicator(
        self,
        name: str,
        members: Sequence[int] | None = None,
        store: Store | None = None,
        timeout_s: float | None = None,
        *,
        adders: bool = True,
    ) -> Communicator:
        """A group of ranks for collectives. All members open it, with the same name and members.

        `members`: distinct ranks of the job, the group's rank i is members[i]; None: all of them in order.
        `store`: where they agree; None: the job's. Members that open several groups of the same name and members open
        them in the same order. `timeout_s`: of operations that bring none, and for the number (None: the job's); the
        setting of that name comes first. `adders`: whether the switch and the hub that settings name add for it
        (adder_table.py).

        Blocks for the group's first member, which draws its number. Raises ArgumentError, StoreTimeoutError,
        ClosedError, LimitError: 2^14 groups are open; HubError, SettingsError, AddressError: hub or switch cannot be
        used.
        """
        checks.text("name", name)
        ranks = self._members(members)
        if timeout_s is not None:
            timeout_s = _seconds("timeout_s", timeout_s)
        if self.closed:
            raise errors.ClosedError(f"{self!r} cannot open group {name!r}")
        timeout_s = self.settings.timeout_s or timeout_s or self.timeout_s
        with self._lock:
            times = self._opened[name, ranks] = self._opened.get((name, ranks), 0) + 1
        digest = hashlib.sha256(repr((name, ranks)).encode()).hexdigest()[:16]
        part = PrefixStore(f"group/{digest}.{times}", self.store if store is None else store)
        number = self._agree_on_number(name, ranks, part, timeout_s) if len(ranks) > 1 else None
        communicator = Communicator(self, name, ranks, number, part, timeout_s)
        self._communicators.add(communicator)
        if adders and len(ranks) > 1:
            try:
                opener = functools.partial(self.open_communicator, adders=False)
                opening = Opening(communicator, part, timeout_s, self.hub_client, opener)
                for adder in open_adders(opening):
                    communicator.adders += (adder,)
            except errors.DlcpError:
                communicator.close()
                raise
        return communicator

    def close(self, timeout_s: float | None = None) -> None:
        """Closes the groups, delivers what operations have left on its way, and closes the endpoint. Again: nothing.

        Blocks until every peer has that, has left, or is dead, at most `timeout_s` (None: the job's, but a second while
        an exception is handled). What was not delivered is logged as a warning, with ranks and bytes.

        This rank may have everything while a peer still misses the last acknowledgement: a goodbye then would fail the
        peer's message. So the endpoint answers until nothing has come for 50 ms (or four round trips), 2 s at most.
        """
        if self._closed:
            return
        self._closed = True
        # Adders agree on other communicators.
        for communicator in sorted(self._communicators, key=lambda each: not each.adders):
            communicator.close()
        self.hub_client.close()
        if self.metrics_server is not None:
            self.metrics_server.close()
        if timeout_s is None:
            timeout_s = self._delivery_s if sys.exc_info()[1] is None else HURRIED_S
        if self._finalizer.detach() is not None:
            _close(self.endpoint, self.card.pid, timeout_s)

    # ---- helpers ----

    def _take_part(
        self, meeting: Meeting, given: Settings, place: dict[str, str | None], interface: str | None
    ) -> bool:
        """Opens what the newest start of the job asks for, and waits for all ranks. False: there is a newer one."""
        record = self._agree(meeting, given)
        self.settings = for_collectives(record.apply(given).replace(**place))
        self.key_is_drawn = record.mode == "drawn"
        self.incarnation = record.incarnation
        self.endpoint = Endpoint(
            self.rank, settings=self.settings, has_groups=True, incarnation=record.incarnation
        )
        self.card = RankCard.of_this_process(
            self.rank,
            self.endpoint.address,
            interface,
            hub=self.settings.hub,
            line_rate_bps=self.settings.line_rate_bps,
        )
        path, own_folder = dump_path(self.rank, self.settings.flight_recorder_dir, self.settings.job)
        self.recorder = FlightRecorder(
            self.rank, entries=self.settings.flight_recorder_entries, path=path, own_folder=own_folder
        )
        self.metrics = Metrics(self)
        self.metrics_server = _serve_metrics(self.metrics, self.settings)
        if self.size == 1:
            return True
        first = RankCard.from_json(record.card.encode(), 0)
        asked = self.rank in asked_ranks(self.size) and self.card.where != first.where
        expected = expect(self.endpoint) if asked else []
        arrived = meeting.arrive(self.card, lambda: self._measure(meeting.store))
        give_up(expected)
        return arrived

    def _measure(self, store: Store) -> None:
        """Rank 0: leaves the round trip to other hosts in the store, if there are any."""
        cards = []
        for rank in asked_ranks(self.size):
            # A card that is none is reported by whoever needs that rank.
            with contextlib.suppress(errors.JobError):
                cards.append(RankCard.from_json(store.get(f"rank/{rank}"), rank))
        if (measured_s := round_trip_s(self.endpoint, self.card, cards)) is not None:
            store.set("round_trip_s", str(measured_s))

    def _leave(self) -> None:
        """Closes what `_take_part` opened."""
        if self.metrics_server is not None:
            self.metrics_server.close()
            self.metrics_server = None
        if (endpoint := self.__dict__.pop("endpoint", None)) is not None:
            endpoint.close()

    def _agree(self, meeting: Meeting, given: Settings) -> JobRecord:
        """The record of the newest start: rank 0 makes it, other ranks read it from the store."""
        if self.rank == 0:
            if self.size > 1:
                meeting.begin()
            record = JobRecord.draw(given, self.size)
            if self.size > 1:
                meeting.store.set("job", record.to_json())
            return record
        while True:
            text = meeting.find()
            try:
                record = JobRecord.from_json(text)
                check_versions(
                    RankCard.of_this_process(self.rank, "", ""), RankCard.from_json(record.card.encode(), 0)
                )
                record.check_rank(given, self.rank, self.size)
            except errors.JobError:
                if not meeting.superseded(STALE_S):
                    raise
            else:
                return record

    def _describe_start(self) -> str:
        """Logs what runs, where, over which driver, and how it is protected."""
        settings = self.settings
        on = f", interface {self.card.interface} ({self._why_interface})" if self.card.interface else ""
        if self.card.line_rate_bps or (on and not self.card.is_loopback):
            rate = describe_line_rate(self.card.line_rate_bps, is_set=bool(settings.line_rate_bps))
            on += f"{'' if on else ', link'} of {rate}"
        shared = "shared" if settings.driver.startswith("local") else "no shared"
        served = f"; metrics at {self.metrics_server.url}" if self.metrics_server is not None else ""
        why_driver = "default" if settings.network_driver == Settings.driver else "asked for"
        return (
            f"dlcp {__version__}, one of {self.size} ranks, at {self.card.place}{on}; driver"
            f" {settings.network_driver} ({why_driver}), {shared} memory with ranks of this host; packets are"
            f" {_describe_protection(settings)}{served}"
        )

    def _members(self, given: Sequence[int] | None) -> tuple[int, ...]:
        if given is None:
            return tuple(range(self.size))
        try:
            ranks = tuple(given)
        except TypeError:
            ranks = ()
        strange = [rank for rank in ranks if not checks.is_integer(rank, 0, self.size - 1)]
        if strange or len(set(ranks)) != len(ranks) or not ranks:
            raise errors.ArgumentError(
                f"members is {given!r}; accepted: distinct ranks from 0 to {self.size - 1}, at least one"
            )
        if self.rank not in ranks:
            raise errors.ArgumentError(
                f"members is {given!r}, without this rank, {self.rank}; only members open a group"
            )
        return tuple(int(rank) for rank in ranks)

    def _agree_on_number(self, name: str, ranks: tuple[int, ...], part: Store, timeout_s: float) -> int:
        """The group's number: drawn by its first member, read by the others."""
        with self._lock:
            released, self._released = self._released, []
        with asking(f"the number of group {name!r}"):
            for number in released:
                self.store.add(f"number/{number}", -1)
            if ranks[0] == self.rank:
                number = self.draw_number(len(ranks))
                part.set("number", str(number))
                return number
        what = f"the number of group {name!r} (rank {ranks[0]}, its first member, has not opened it)"
        return int(wait_for(part, "number", timeout_s, what))


def for_collectives(settings: Settings) -> Settings:
    """Shared memory with the ranks of this host, and bounds that suit collectives, where nothing else was asked for."""
    changes: dict[str, Any] = {}
    if settings.shm and settings.driver == "udp":
        changes["driver"] = "local"
    elif settings.shm and settings.driver in BELOW_KERNEL:
        changes["driver"] = f"local+{settings.driver}"
    if settings.max_unexpected_message_bytes == Settings().max_unexpected_message_bytes:
        changes["max_unexpected_message_bytes"] = _UNEXPECTED_MESSAGE_BYTES
    return settings.replace(**changes) if changes else settings


def _choose_place(settings: Settings, toward: str | None) -> tuple[dict[str, str | None], str | None, str]:
    """Settings of the place to bind, the interface's name where it is known, and why it is that one.

    A pattern of interfaces chooses an address, and no more: ranks of one host reach each other at it over loopback,
    which a socket bound to the interface would not hear. Below the kernel there is nothing to choose among: the kernel
    has no addresses and routes there. Raises SettingsError: nor do the settings say.
    """
    if settings.below_kernel:
        settings.need_own_address()
        return {}, next(iter(settings.devices), None), "asked for"
    if settings.bind_host is not None:
        return {}, settings.interface, "asked for"
    if settings.interface is None and toward is None:
        return {}, "lo", "default"  # as Endpoint does
    chosen = choose_bind_host(settings.interface, toward)
    why = f"on the route to {toward}" if settings.interface is None else "asked for"
    return {"bind_host": chosen.host, "interface": None}, chosen.interface, why


def _describe_protection(settings: Settings) -> str:
    """How packets are protected, and by this host's quickest cipher; another host may change it."""
    if settings.job_key() is None:
        return "not authenticated"
    how = "encrypted" if settings.encrypt else "authenticated"
    if settings.cipher != "any" or settings.crypto_library != "fastest":
        return f"{how} by {'aes_128_gcm' if settings.cipher == 'any' else settings.cipher}"
    costs_ns = _native.offered_ciphers()
    between = " between hosts like this one" if len(costs_ns) > 1 else ""
    return f"{how} by {min(costs_ns, key=costs_ns.__getitem__)}{between}"


def _seconds(name: str, value: object) -> float:
    """A timeout: more than 0 seconds, infinity too. Raises ArgumentError."""
    if value != math.inf and not checks.is_number(value, 0, above=True):
        raise errors.ArgumentError(checks.refusal(name, value, "more than 0 seconds"))
    return float(value)  # type: ignore[arg-type]


def _serve_metrics(metrics: Metrics, settings: Settings) -> PrometheusServer | None:
    """The Prometheus endpoint, if it is asked for. Ranks of one host share the setting and take the next free ports."""
    if settings.metrics_port is None:
        return None
    from dlcp.transport.prometheus import PrometheusServer  # http.server takes a while to import

    return PrometheusServer(metrics, settings.metrics_host, settings.metrics_port, tries=_METRICS_PORTS)


def _close_at_exit(endpoint: Endpoint, pid: int, timeout_s: float) -> None:
    _close(endpoint, pid, timeout_s if uncaught() is None else HURRIED_S)


def uncaught() -> BaseException | None:
    """The exception that has ended the program, Ctrl-C among them: the interpreter sets it when it has printed it."""
    return getattr(sys, "last_value", None)


def _close(endpoint: Endpoint, pid: int, timeout_s: float) -> None:
    if os.getpid() != pid:
        return  # a forked child; what it has is the parent's
    try:
        with contextlib.suppress(errors.ClosedError, errors.ForkError):
            _deliver(endpoint.runtime, RankLogger(endpoint.rank), timeout_s)
            _settle(endpoint.runtime)
    finally:
        endpoint.close()


def _deliver(runtime: _native.Runtime, logger: RankLogger, timeout_s: float) -> None:
    """Waits until peers have what operations that are over have left on its way; logs what they do not get."""
    quiet_s = min(timeout_s, _DELIVERY_QUIET_S)
    try:
        if not runtime.wait_delivered(quiet_s) and quiet_s < timeout_s:
            logger.warning(
                "closing waits for up to %.0f s more, until the others have received what this rank has sent: %s",
                timeout_s - quiet_s,
                _bytes_by_rank(runtime),
            )
            runtime.wait_delivered(timeout_s - quiet_s)
    finally:
        if lost := _bytes_by_rank(runtime):
            logger.warning(
                "closed before all that this rank has sent was received, and what is missing is lost: %s. Those ranks"
                " have left or died, or did not receive it in time",
                lost,
            )


def _bytes_by_rank(runtime: _native.Runtime) -> str:
    return ", ".join(
        f"{nbytes} bytes to rank {rank}" for rank, nbytes in sorted(runtime.undelivered().items())
    )


def _settle(
    runtime: _native.Runtime,
    sleep: Callable[[float], None] = time.sleep,
    clock_s: Callable[[], float] = time.monotonic,
) -> None:
    """Answers peers until they are quiet: each has what it waited for, or is gone."""
    established = [rank for rank in runtime.peers() if runtime.established(rank)]
    # Operations of this rank are pending, so this is no orderly end, and the peers should learn it now.
    if not established or runtime.statistics()["outstanding_operations"]:
        return
    rtt_s = max(runtime.peer_statistics(rank)["rtt_s"] for rank in established)
    quiet_s = min(max(_QUIET_S, _QUIET_ROUND_TRIPS * rtt_s), _QUIET_S_MAX / 2)
    end_s = clock_s() + _QUIET_S_MAX
    heard = -1
    while heard != (heard := _packets_received(runtime)) and clock_s() < end_s:
        sleep(quiet_s)


def _packets_received(runtime: _native.Runtime) -> int:
    counted = runtime.statistics()["engine"]
    return int(counted["data_packets_received"] + counted["control_packets_received"])
