"""One job at a hub: cores of its own, memory of its own, and the ranks that are connected for it.

Nothing is shared with other jobs but the host: a core is an endpoint with the job's key and incarnation, so packets of
another job are not authentic to it.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Mapping
from typing import Any

from dlcp.errors import HubError
from dlcp.hub.core import Core
from dlcp.hub.group import ServedGroup
from dlcp.transport.hub.client import CORES_MAX
from dlcp.transport.hub.plan import HubShape
from dlcp.transport.job import for_collectives
from dlcp.transport.rank_card import RankCard, check_versions
from dlcp.transport.settings import Settings

# A job whose ranks have gone keeps its groups for this much longer than a peer may be silent: so that the ranks that
# are left learn from the cores who is missing.
GRACE_S = 5.0
# Of a group that its first member closes in good order: how long other ranks may still need what is under way.
_CLOSE_S = 5.0
# Open at a time in one job: each takes some memory.
_GROUPS_MAX = 1024


class ServedJob:
    """One job. `request`: what its first rank says when it joins; `key`: the job key.

    Raises HubError, and what Endpoint raises.
    """

    def __init__(
        self,
        name: str,
        request: Mapping[str, Any],
        key: bytes,
        settings: Settings,
        cores: int,
        memory_bytes: int,
        vml_square_root: int | None = None,
    ) -> None:
        self.name = name
        self.incarnation = int(request["incarnation"], 16)
        self.memory_bytes = memory_bytes
        self._job = int(request["job"])
        self._size = int(request["size"])
        self._encrypt = bool(request["encrypt"])
        self._first_rank = int(request["first_rank"])
        self._key = key
        if not 1 <= cores <= CORES_MAX or not 0 < self._size <= self._first_rank < 1 << 31:
            raise HubError(f"ranks from {self._first_rank} on are none for a hub of a job of {self._size}")
        self._lock = threading.Lock()
        self.ranks: set[int] = set()
        """Those with a connection, or whose groups are still being closed."""
        self.gone: set[int] = set()
        """Of them those without one."""
        self.groups: dict[int, tuple[int, ServedGroup]] = {}
        """By number: the rank that opened it, and the group."""
        own = for_collectives(settings.replace(key=key, key_file=None, job=self._job, encrypt=self._encrypt))
        self.cores: list[Core] = []
        try:
            for number in range(cores):
                rank = self._first_rank + number
                self.cores.append(
                    Core(rank, number, own, self.incarnation, memory_bytes // cores, vml_square_root)
                )
        except BaseException:
            self.close()
            raise
        self._grace_s = own.peer_timeout_s + GRACE_S

    @property
    def is_ending(self) -> bool:
        """Whether no rank of it has a connection."""
        return self.ranks <= self.gone

    def check(self, request: Mapping[str, Any], key: bytes) -> None:
        """Raises HubError: another job's rank, or one that is connected already; JobError: another version."""
        check_versions(self.cores[0].card, RankCard(**request["card"]))
        said = (
            int(request["job"]),
            int(request["size"]),
            bool(request["encrypt"]),
            int(request["first_rank"]),
        )
        if not hmac.compare_digest(key, self._key):
            raise HubError(
                f"a job {self.name!r} with this nonce is here with another job key; give all its ranks one (key_file)"
            )
        if said != (self._job, self._size, self._encrypt, self._first_rank):
            raise HubError(
                f"another job {self.name!r} with this nonce is here, of {self._size} ranks with job number"
                f" {self._job}; each start of a job draws a nonce of its own"
            )
        if (rank := int(request["rank"])) in self.ranks:
            raise HubError(
                f"rank {rank} of a job {self.name!r} with this nonce is connected already; each start of a job draws a"
                " nonce of its own"
            )

    def open(self, rank: int, request: Mapping[str, Any]) -> None:
        """Opens a group for the rank. Raises HubError: it does not fit together."""
        number, racks, workers = int(request["number"]), tuple(request["racks"]), list(request["workers"])
        cores, addresses = list(request["cores"]), list(request["core_addresses"])
        # Few racks, before anything is made of their number.
        few = 0 < len(workers) == len(racks) and max(racks) < len(racks)
        if (
            not few
            or set(racks) != set(range(max(racks) + 1))
            or len({*workers, *cores}) < len(workers) + len(cores)
        ):
            raise HubError(f"group {number} has racks {racks} for workers {workers} and cores {cores}")
        per_rack, left = divmod(len(cores), max(racks) + 1)
        if left or not per_rack or len(addresses) != len(cores):
            raise HubError(f"group {number} has {len(cores)} cores in {max(racks) + 1} racks")
        shape = HubShape(racks, per_rack)
        own = [(core, len(workers) + cores.index(core.rank)) for core in self.cores if core.rank in cores]
        listeners = [core for core, _ in own if core.rank in request["listeners"]]
        if not own:
            return  # other hubs of the rack have cores enough
        if not listeners:
            raise HubError(f"group {number} announces to no core of this hub")
        for core, place in own:
            index = place - len(workers)
            rack = index // per_rack
            for worker, address, where in zip(workers, request["addresses"], racks, strict=True):
                if where == rack:
                    core.connect(worker, address)
            for other in range(index % per_rack, len(cores), per_rack):
                if other != index:
                    core.connect(cores[other], addresses[other])
        with self._lock:
            if number in self.groups:
                raise HubError(f"group {number} of job {self.name!r} is open already")
            if len(self.groups) >= _GROUPS_MAX:
                raise HubError(f"job {self.name!r} has {_GROUPS_MAX} groups open here; accepted: no more")
            try:
                group = ServedGroup(number, str(request["name"]), shape, workers + cores, own, listeners[0])
            except ValueError as error:
                raise HubError(f"group {number} cannot be opened: {error}") from error
            self.groups[number] = rank, group

    def close_group(self, number: int, timeout_s: float = _CLOSE_S, *, orderly: bool = True) -> None:
        """Closes a group, as ServedGroup.close says. One that is not there: nothing."""
        with self._lock:
            found = self.groups.get(number)
        if found is not None:
            found[1].close(timeout_s, orderly=orderly)
            with self._lock:  # not before: close() ends what waits here
                self.groups.pop(number, None)

    def close_groups_of(self, rank: int, *, orderly: bool) -> None:
        """Closes the groups of a rank that has left, in good order or not. Blocks for what is under way in them."""
        with self._lock:
            numbers = [number for number, (opener, _) in self.groups.items() if opener == rank]
        end_s = time.monotonic() + (_CLOSE_S if orderly else self._grace_s)
        for number in numbers:
            self.close_group(number, max(0.0, end_s - time.monotonic()), orderly=orderly)

    def close(self) -> None:
        """Frees everything. Peers learn that the cores are gone. Again: nothing."""
        for number in list(self.groups):
            self.close_group(number, 0.0, orderly=False)
        for core in self.cores:
            core.close()
