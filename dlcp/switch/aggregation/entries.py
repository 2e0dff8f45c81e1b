"""What an aggregating switch holds for its jobs: table entries and multicast groups, as pure data.

Names are those of p4/aggregation.p4, as its P4Info shortens them. `place_jobs` gives each job a range of slots that no
other has, a counter row and a multicast group; `job_entries` lists its entries. A job that is admitted again needs a
new generation. Its slots then count as empty, and nobody has to write registers, which P4Runtime cannot do on BMv2.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlcp.checks import integer
from dlcp.errors import SettingsError
from dlcp.switch.entries import Entry, Exact, MulticastGroup, TableEntry

LANES = 32  # values per packet of the P4 program, and the unit of what other switches have
MAX_LANES = 2208  # in a jumbo frame of 9000 bytes; 352 in one of 1500
MAX_WORKERS = 32  # bits of the bitmap
HUB = 255  # the hub's worker number
SLOTS = 2048  # AGGREGATION_SLOTS of p4/aggregation.p4
MAX_JOBS = 63  # AGGREGATION_JOBS, less row 0, which counts what is of no job
MAX_PORT = 510  # BMv2: 511 is "drop"
MAX_ADMITTED = (MAX_JOBS + 1) * 33  # entries of table participant
MAX_GENERATIONS = 16  # of a job at a time; each takes entries in the P4 program's table
NO_PORT = -1  # of a hub: its address is the switch's own
OUTCOMES = (
    "added",
    "completed",
    "flushed",
    "duplicate",
    "repeated",
    "released",
    "collision",
    "stale",
    "mismatch",
    "below_quorum",
    "absent",
    "refused",
    "to_hub",
    "damaged",
    "foreign",
)
"""Of a packet: cell 16 · row + position here of the counter `outcomes`."""


@dataclass(frozen=True)
class Participant:
    """A worker or the hub, where the switch finds it and where its socket is bound."""

    port: int
    """NO_PORT, of a hub only: no host has its address; the software switch answers for it itself."""
    mac: str
    ip: str
    udp_port: int

    def validate(self, where: str) -> None:
        """SettingsError unless everything is in range."""
        if self.port != NO_PORT:
            integer(f"{where}.port", self.port, 0, MAX_PORT, error=SettingsError)
        integer(f"{where}.udp_port", self.udp_port, 1, 2**16 - 1, error=SettingsError)
        if not isinstance(self.mac, str) or not re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", self.mac):
            raise SettingsError(f"{where}.mac is {self.mac!r}; accepted: six pairs of hexadecimal digits")
        try:
            if not isinstance(self.ip, str):
                raise ValueError
            ipaddress.IPv4Address(self.ip)
        except ValueError:
            accepted = "an IPv4 address (the program aggregates over IPv4 only)"
            raise SettingsError(f"{where}.ip is {self.ip!r}; accepted: {accepted}") from None

    def to_table(self, port_names: Mapping[int, str]) -> dict[str, Any]:
        """What a file of jobs has of it, the port by its name."""
        port = {} if self.port == NO_PORT else {"port": port_names[self.port]}
        return {**port, "mac": self.mac, "ip": self.ip, "udp_port": self.udp_port}

    @property
    def mac_number(self) -> int:
        """The MAC address as 48 bits."""
        return int(self.mac.replace(":", ""), 16)

    @property
    def ip_number(self) -> int:
        """The IPv4 address as 32 bits."""
        return int(ipaddress.IPv4Address(self.ip))


@dataclass(frozen=True)
class UpperSwitch:
    """The switch above: it adds what several switches have summed, and has the job with the same slots and lanes."""

    worker: int
    """This switch's number among its workers."""
    hub: Participant
    """Whom it is addressed by, and the port towards it."""
    own: Participant
    """This switch as its worker; the port is that of `hub`."""

    def validate(self, where: str) -> None:
        """SettingsError unless everything is in range."""
        integer(f"{where}.worker", self.worker, 0, MAX_WORKERS - 1, error=SettingsError)
        self.hub.validate(f"{where}.hub")
        self.own.validate(f"{where}.own")


@dataclass(frozen=True)
class JobRequest:
    """A job that a switch shall aggregate for."""

    job: int
    workers: tuple[Participant, ...]
    hub: Participant
    slots: int = 128
    generation: int = 1
    generations: int = 1
    """So many are admitted, from `generation` on: a run takes one that the last one had not."""
    lanes: int = LANES
    """Values per packet: a multiple of 32 up to MAX_LANES; the P4 program has 32."""
    upper: UpperSwitch | None = None
    """Of two levels, the lower one: the switch above. The P4 program has none."""

    def validate(self, where: str) -> None:
        """SettingsError unless everything is in range and no two participants are one."""
        integer(f"{where}.lanes", self.lanes, LANES, MAX_LANES, error=SettingsError)
        if self.lanes % LANES:
            raise SettingsError(
                f"{where}.lanes is {self.lanes}; accepted: multiples of {LANES} up to {MAX_LANES}"
            )
        integer(f"{where}.job", self.job, 0, 2**32 - 1, error=SettingsError)
        integer(f"{where}.generation", self.generation, 0, 2**16 - 1, error=SettingsError)
        most = min(MAX_GENERATIONS, 2**16 - self.generation)
        integer(f"{where}.generations", self.generations, 1, most, error=SettingsError)
        integer(f"{where}.slots", self.slots, 2, SLOTS, error=SettingsError)
        if not 1 <= len(self.workers) <= MAX_WORKERS:
            raise SettingsError(
                f"{where}.worker has {len(self.workers)} entries; accepted: 1 to {MAX_WORKERS}"
            )
        for index, worker in enumerate(self.workers):
            worker.validate(f"{where}.worker[{index}]")
            if worker.port == NO_PORT:
                raise SettingsError(f"{where}.worker[{index}].port is missing")
        self.hub.validate(f"{where}.hub")
        if self.upper is not None:
            self.upper.validate(f"{where}.upper")
        addresses = [(p.ip, p.udp_port) for p in (*self.workers, self.hub)]
        for address in addresses:
            if addresses.count(address) > 1:
                raise SettingsError(f"{where}: {address[0]}:{address[1]} is there twice; accepted: once")
        if self.hub.ip in {worker.ip for worker in self.workers}:
            raise SettingsError(
                f"{where}.hub.ip is {self.hub.ip!r}, a worker's; accepted: an address of its own, since what that "
                "worker sends to it would not pass the switch"
            )

    @classmethod
    def from_table(
        cls, table: Mapping[str, Any], where: str = "job", port_numbers: Mapping[str, int] | None = None
    ) -> JobRequest:
        """A job from a table as `tomllib` gives it: [[job]] with [[job.worker]] and [job.hub].

        `port_numbers`: then ports go by these names.
        """
        known = {"job", "worker", "hub", "slots", "generation", "generations", "lanes", "upper"}
        _check_keys(table, known, {"job", "worker", "hub"}, where)
        if not isinstance(table["worker"], Sequence) or isinstance(table["worker"], str):
            raise SettingsError(f"{where}.worker is {table['worker']!r}; accepted: a list of tables")
        workers = tuple(
            _participant(worker, f"{where}.worker[{index}]", port_numbers)
            for index, worker in enumerate(table["worker"])
        )
        rest = {key: table[key] for key in ("slots", "generation", "generations", "lanes") if key in table}
        hub = _participant(table["hub"], f"{where}.hub", port_numbers, may_lack_port=True)
        upper = _upper(table["upper"], f"{where}.upper", port_numbers) if "upper" in table else None
        request = cls(table["job"], workers, hub, **rest, upper=upper)
        request.validate(where)
        return request

    def to_table(self, port_names: Mapping[int, str]) -> dict[str, Any]:
        """The table of which `from_table` makes the same job. `port_names`: by number."""
        table: dict[str, Any] = {"job": self.job, "slots": self.slots, "lanes": self.lanes}
        table |= {"generation": self.generation, "generations": self.generations}
        table["hub"] = self.hub.to_table(port_names)
        if (upper := self.upper) is not None:
            own = replace(upper.own, port=NO_PORT).to_table(port_names)
            table["upper"] = {"worker": upper.worker, "hub": upper.hub.to_table(port_names), "own": own}
        return table | {"worker": [worker.to_table(port_names) for worker in self.workers]}

    @property
    def ranks_setting(self) -> str:
        """The setting `aggregation` of this switch's workers, whose ports are as `in_a_row` has them."""
        words = f"job={self.job}&slots={self.slots}&lanes={self.lanes}"
        words += f"&generation={self.generation}" * (self.generation != 1)
        words += f"&generations={self.generations}" * (self.generations != 1)
        words += f"&port={self.workers[0].udp_port}" * (self.workers[0].udp_port != self.hub.udp_port)
        words += f"&workers={len(self.workers)}" * (self.upper is not None)
        return f"switch://{self.hub.ip}:{self.hub.udp_port}?{words}"


def in_a_row(workers: Iterable[Participant]) -> tuple[Participant, ...]:
    """Workers in order of rank, with the ports that ranks of one host take: the first its own, then the next ones."""
    of_host: Counter[str] = Counter()
    placed = []
    for worker in workers:
        placed.append(replace(worker, udp_port=worker.udp_port + of_host[worker.ip]))
        of_host[worker.ip] += 1
    return tuple(placed)


def _check_keys(table: Mapping[str, Any], known: set[str], needed: set[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise SettingsError(f"{where}.{key} is not known; accepted: {', '.join(sorted(known))}")
    for key in sorted(needed):
        if key not in table:
            raise SettingsError(f"{where}.{key} is missing")


def _participant(
    table: Any, where: str, port_numbers: Mapping[str, int] | None, *, may_lack_port: bool = False
) -> Participant:
    if not isinstance(table, Mapping):
        raise SettingsError(f"{where} is {table!r}; accepted: a table")
    names = {"port", "mac", "ip", "udp_port"}
    _check_keys(table, names, names - {"port"} if may_lack_port else names, where)
    values = {"port": NO_PORT, **table}
    if port_numbers is not None and "port" in table:
        if not isinstance(values["port"], str) or values["port"] not in port_numbers:
            known = ", ".join(port_numbers)
            raise SettingsError(
                f"{where}.port is {values['port']!r}; accepted: a port of the switch: {known}"
            )
        values["port"] = port_numbers[values["port"]]
    return Participant(**values)


def _upper(table: Any, where: str, port_numbers: Mapping[str, int] | None) -> UpperSwitch:
    if not isinstance(table, Mapping):
        raise SettingsError(f"{where} is {table!r}; accepted: a table")
    names = {"worker", "hub", "own"}
    _check_keys(table, names, names, where)
    hub = _participant(table["hub"], f"{where}.hub", port_numbers)
    own = _participant(table["own"], f"{where}.own", port_numbers, may_lack_port=True)
    return UpperSwitch(table["worker"], hub, replace(own, port=hub.port))


@dataclass(frozen=True)
class JobPlacement:
    """A job and what is its own on one switch."""

    request: JobRequest
    row: int
    """Of the counters, from 1."""
    first_slot: int
    group: int


def place_jobs(requests: Sequence[JobRequest], first_group: int = 1) -> list[JobPlacement]:
    """Ranges of slots one after the other; SettingsError if they do not fit, or a job is there twice.

    `first_group`: multicast groups from here on are free.
    """
    if len(requests) > MAX_JOBS:
        raise SettingsError(f"job has {len(requests)} entries; accepted: at most {MAX_JOBS}")
    placements: list[JobPlacement] = []
    next_slot = admitted = 0
    for index, request in enumerate(requests):
        request.validate(f"job[{index}]")
        if request.upper is not None:
            raise SettingsError(f"job[{index}].upper is there; accepted by the P4 program: none")
        if request.hub.port == NO_PORT or request.lanes != LANES:
            what = "hub.port is missing" if request.hub.port == NO_PORT else f"lanes is {request.lanes}"
            accepted = "a port" if request.hub.port == NO_PORT else str(LANES)
            raise SettingsError(f"job[{index}].{what}; accepted by the P4 program: {accepted}")
        if any(request.job == other.request.job for other in placements):
            raise SettingsError(
                f"job[{index}].job is {request.job}; accepted: a number that no other job has"
            )
        if next_slot + request.slots > SLOTS:
            left = SLOTS - next_slot
            raise SettingsError(
                f"job[{index}].slots is {request.slots}; accepted: at most {left}, what is left"
            )
        admitted += (len(request.workers) + 1) * request.generations
        if admitted > MAX_ADMITTED:
            raise SettingsError(
                f"job[{index}].generations is {request.generations}; accepted: fewer, since the program has "
                f"{MAX_ADMITTED} entries for participants of all jobs and generations"
            )
        placements.append(JobPlacement(request, index + 1, next_slot, first_group + index))
        next_slot += request.slots
    return placements


def job_entries(placement: JobPlacement) -> list[Entry]:
    """What the switch holds for one job.

    Workers behind one port are told apart by `instance`, from 1: such a port stands in the multicast group as often.
    """
    request = placement.request
    entries: list[Entry] = [MulticastGroup(placement.group, tuple(w.port for w in request.workers))]
    at_port: Counter[int] = Counter()
    for number, participant in [*enumerate(request.workers), (HUB, request.hub)]:
        at_port[participant.port] += 1
        instance = at_port[participant.port]
        entries += [
            exact_entry(
                "addressees",
                {"job": request.job, "port": participant.port, "instance": instance},
                "address",
                mac=participant.mac_number,
                ip=participant.ip_number,
                udp_port=participant.udp_port,
            ),
        ]
        entries += [
            exact_entry(
                "participant",
                {
                    "ingress_port": participant.port,
                    "job": request.job,
                    "generation": generation,
                    "worker": number,
                },
                "admit",
                index=placement.row,
                bit_of_worker=0 if number == HUB else 1 << number,
                everyone=2 ** len(request.workers) - 1,
                base=placement.first_slot,
                slots_of_job=request.slots,
                group=placement.group,
                instance=instance,
            )
            for generation in range(request.generation, request.generation + request.generations)
        ]
    return entries


def bridge_entries(ports_of_macs: Mapping[int, int]) -> list[Entry]:
    """Entries of the bridge: MAC address → port."""
    return [exact_entry("bridge", {"dst_mac": mac}, "to_port", port=p) for mac, p in ports_of_macs.items()]


def flood_entries(ports: Iterable[int], first_group: int) -> list[Entry]:
    """Broadcast and unknown frames go to all other ports: a multicast group for each input port that has others."""
    all_ports = sorted(ports)
    entries: list[Entry] = []
    for group, port in enumerate(all_ports, first_group):
        if others := tuple(other for other in all_ports if other != port):
            entries += [
                MulticastGroup(group, others),
                exact_entry("flood", {"ingress_port": port}, "set_mcast", group=group),
            ]
    return entries


def exact_entry(table: str, match: Mapping[str, int], action: str, **params: int) -> TableEntry:
    """An entry whose keys are all exact."""
    keys = tuple(sorted((name, Exact(value)) for name, value in match.items()))
    return TableEntry(table, keys, action, tuple(params.items()))
