"""A rank's connections to hubs: it joins with its job, and opens and closes groups there.

Only the first member of a group talks to the hubs, for all of them; the others read from the store what came of it. A
job is at a hub while one of its ranks has a connection, so a job that dies is forgotten without having said anything.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from dlcp.errors import DlcpError, HubError, SettingsError
from dlcp.transport.hub.control import ControlError, HubControl
from dlcp.transport.hub.plan import HubShape
from dlcp.transport.rank_card import RankCard, check_reach, check_versions

if TYPE_CHECKING:
    from dlcp.transport.job_ranks import JobRanks

CORES_MAX = 256
"""Of one hub: its cores' ranks in a job follow one another, and leave room for so many."""
# An answer needs no more than this, even if a hub opens endpoints for it.
_ANSWER_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Opened:
    """A group that is open at its hubs, as it stands in the store for the group's members."""

    number: int
    """Of the group with the hubs' cores as members."""
    shape: HubShape
    cores: tuple[RankCard, ...]
    """Of the cores, rack by rank of rack."""
    listeners: tuple[tuple[int, ...], ...]
    """Per rack the cores to announce to, one of each hub, as an index of `cores`."""
    memory_bytes: int
    """That the poorest core has for the job."""

    def to_json(self) -> str:
        """As it stands in the store."""
        return json.dumps(asdict(self) | {"shape": [self.shape.racks, self.shape.cores]})

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """From the store. Raises HubError: the first member could not open it."""
        values = json.loads(text)
        if "refusal" in values:
            raise HubError(values["refusal"])
        racks, cores = values["shape"]
        return cls(
            values["number"],
            HubShape(tuple(racks), cores),
            tuple(RankCard(**card) for card in values["cores"]),
            tuple(map(tuple, values["listeners"])),
            values["memory_bytes"],
        )


@dataclass(frozen=True, slots=True)
class _Joined:
    """A hub that this rank has joined."""

    place: str
    control: HubControl
    cores: tuple[RankCard, ...]
    memory_bytes: int


class HubClient:
    """The connections of one rank. Made by Job; any thread may use it."""

    def __init__(self, job: JobRanks) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._joined: dict[str, _Joined] = {}
        self._closed = False

    def open(self, workers: Sequence[int], number: int, name: str, hubs: Sequence[str]) -> Opened:
        """Opens a group at all hubs of its racks. `hubs`: per worker the setting of its rack.

        Blocks for the hubs. Raises HubError: one cannot be reached or refuses; SettingsError: no key of one's own.
        """
        named = [tuple(places_of(hub)) for hub in hubs]
        places = list(dict.fromkeys(named))
        everywhere = list(dict.fromkeys(place for rack in places for place in rack))
        _check_apart(named, everywhere)
        with self._lock:
            joined = [[self._join(place) for place in rack] for rack in places]
            count, cores, listeners = _choose_cores(joined)
            opened = Opened(
                number,
                HubShape(tuple(map(places.index, named)), count),
                tuple(cores),
                listeners,
                min(hub.memory_bytes for rack in joined for hub in rack),
            )
            request = {
                "do": "open",
                "number": number,
                "name": name,
                "workers": list(workers),
                "addresses": [self._job.address_of(rank) for rank in workers],
                "racks": opened.shape.racks,
                "cores": [core.rank for core in cores],
                "core_addresses": [core.address for core in cores],
                "listeners": [cores[index].rank for rack in listeners for index in rack],
            }
            for done, place in enumerate(everywhere):
                try:
                    self._ask(place, request)
                except HubError:
                    self._forget(number, everywhere[:done])
                    raise
        return opened

    def close_group(self, number: int, hubs: Sequence[str]) -> None:
        """Has the hubs forget a group that this rank opened. Does not fail: a hub that is gone has forgotten it."""
        with self._lock:
            self._forget(number, list(dict.fromkeys(place for rack in hubs for place in places_of(rack))))

    def close(self) -> None:
        """Leaves all hubs. Again: nothing."""
        with self._lock:
            self._closed = True
            for joined in self._joined.values():
                with contextlib.suppress(OSError, ControlError, HubError):
                    joined.control.ask({"do": "leave"})
                joined.control.close()
            self._joined.clear()

    # ---- helpers ----

    def _forget(self, number: int, places: Sequence[str]) -> None:
        for place in places:
            if place in self._joined:
                with contextlib.suppress(DlcpError):
                    self._ask(place, {"do": "close", "number": number})

    def _join(self, place: str) -> _Joined:
        """The connection to a hub; opened at first. With the lock held."""
        if (known := self._joined.get(place)) is not None:
            return known
        if self._closed:
            raise HubError(f"the hub at {place} is not asked: this rank's job is closed")
        job = self._job
        key = job.settings.job_key()
        admission = job.settings.hub_key() or (None if job.key_is_drawn else key)
        if key is None or admission is None:
            raise SettingsError(
                f"hub is {place}, and nothing admits this job there; set hub_key_file (DLCP_HUB_KEY_FILE) on all ranks"
                " to a file with the key that the hub has under the job's name (dlcp hub --keys)"
            )
        hubs = self._all_hubs()
        request: dict[str, Any] = {
            "do": "join",
            "rank": job.rank,
            "size": job.size,
            "job": job.settings.job,
            "incarnation": f"{job.incarnation:016x}",
            "encrypt": job.settings.encrypt,
            "first_rank": job.size + CORES_MAX * hubs.index(place),
            "card": asdict(RankCard.of_this_process(job.rank, job.card.address, job.card.interface)),
        }
        control = self._connect(place, admission)
        request["key"] = control.cover(key).hex()
        try:
            answer = control.ask(request)
            cores = tuple(RankCard(**card) for card in answer["cores"])
            for core in cores:
                check_versions(job.card, core)
                check_reach(job.card, core)
        except (OSError, ControlError, HubError) as error:
            control.close()
            raise _refusal(place, error) from error
        except (KeyError, TypeError) as error:
            control.close()
            raise HubError(
                f"the hub at {place} does not answer as this version of dlcp's ({error!r})"
            ) from error
        self._joined[place] = joined = _Joined(place, control, cores, int(answer["memory_bytes"]))
        return joined

    def _all_hubs(self) -> list[str]:
        """The hubs of all ranks, as host:port, in the order of the ranks that name them. Blocks as card_of."""
        named = [self._job.card_of(rank).hub for rank in range(self._job.size)]
        return list(dict.fromkeys(place for hub in named if hub for place in places_of(hub)))

    def _connect(self, place: str, key: bytes) -> HubControl:
        host, _, port = place.rpartition(":")
        timeout_s = self._job.settings.connect_timeout_s
        try:
            stream = socket.create_connection((host.strip("[]"), int(port)), timeout_s)
        except (OSError, ValueError) as error:
            raise HubError(
                f"the hub at {place} cannot be reached from rank {self._job.rank}: {error}; see that `dlcp hub` runs"
                " there and that TCP passes to its port, or leave the setting hub (DLCP_HUB) out"
            ) from error
        stream.settimeout(_ANSWER_TIMEOUT_S)
        try:
            return HubControl.connect(stream, key, self._job.settings.hub_job)
        except (OSError, ControlError) as error:
            stream.close()
            raise _refusal(place, error) from error

    def _ask(self, place: str, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._joined[place].control.ask(dict(request))
        except (OSError, ControlError) as error:
            self._joined.pop(place).control.close()
            raise _refusal(place, error) from error
        except HubError as error:
            raise _refusal(place, error) from error


def _choose_cores(
    joined: Sequence[Sequence[_Joined]],
) -> tuple[int, list[RankCard], tuple[tuple[int, ...], ...]]:
    """Of the hubs of each rack: how many cores a rack has, the cores rack by rack, and per rack the listeners.

    Racks have equally many cores, as many as the one with the fewest.
    """
    count = min(sum(len(hub.cores) for hub in rack) for rack in joined)
    cores: list[RankCard] = []
    listeners = []
    for rack in joined:
        first = len(cores)
        starts: list[int] = []
        taken: list[RankCard] = []
        for hub in rack:
            if len(taken) < count:
                starts.append(first + len(taken))
            taken += hub.cores
        listeners.append(tuple(starts))
        cores += taken[:count]
    return count, cores, tuple(listeners)


def _check_apart(named: Sequence[tuple[str, ...]], places: Sequence[str]) -> None:
    """Raises HubError: one of `places` is a hub of two racks. `named`: per worker its rack's hubs."""
    for place in places:
        racks = [rack for rack in dict.fromkeys(named) if place in rack]
        if len(racks) > 1:
            ranks = " and ".join(str(named.index(rack)) for rack in racks)
            raise HubError(
                f"the hub at {place} is named with other hubs, or in another order, by ranks {ranks} of the group; set"
                " hub (DLCP_HUB) alike on all ranks of a rack, and give each rack hubs of its own"
            )


def _refusal(place: str, error: Exception) -> HubError:
    said = str(error) or type(error).__name__
    return HubError(f"the hub at {place}: {said}")


def places_of(hub: str) -> list[str]:
    """The addresses of one rack's hubs. Raises HubError: not written as host:port, or twice."""
    found = [place.strip() for place in hub.split(",")]
    for place in found:
        host, colon, port = place.rpartition(":")
        if not (host and colon and port.isdigit() and 0 < int(port) < 1 << 16) or found.count(place) > 1:
            raise HubError(
                f"hub is {hub!r}; accepted: host:port, or several, each once, with commas between them"
            )
    return found
