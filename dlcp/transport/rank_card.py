"""What a rank publishes about itself in the store: its address, and what it runs.

A card is JSON, so that another version of dlcp can read it and name the difference. Cards hold no secret: of a job key
only a check value, which does not reveal the key. Comparing two cards finds mismatches that would otherwise end in
silence: other versions, or a loopback address that is to be reached from another host.
"""

from __future__ import annotations

import functools
import hmac
import json
import os
import re
import socket
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self

from dlcp import __version__, _native
from dlcp.errors import JobError
from dlcp.transport.schedule.estimate import LINK_BPS

INTERFACES = Path("/sys/class/net")
_MBPS_MAX = 10_000_000
# An address anywhere in the driver's text that only its own host can reach.
_LOOPBACK = re.compile(r"(?<![\w.:])(127\.\d+\.\d+\.\d+|\[?::1\]?)(?=[:\]\s;,]|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCard:
    """One rank as other ranks see it."""

    rank: int
    address: str
    """What other ranks pass to Endpoint.connect; "" if the rank refused to start, for `refusal`."""
    host: str
    """The host's name, for people."""
    where: str
    """Equal for ranks that reach each other over loopback: one kernel, one network namespace."""
    interface: str
    """Of the address; "" if that is not known."""
    pid: int
    version: str
    wire_version: int
    refusal: str = ""
    hub: str = ""
    """The setting of that name: the hub of this rank's rack; "" without one."""
    processors: int = 0
    """How many this process may use; 0 if that is not known."""
    line_rate_bps: int = 0
    """Of the interface, as set or as its driver says; 0: neither."""
    role: str = ""
    """Words for a member that is no rank of the job, such as a hub's core; "" of a rank."""

    @classmethod
    def of_this_process(
        cls,
        rank: int,
        address: str,
        interface: str | None,
        refusal: str = "",
        *,
        hub: str | None = None,
        line_rate_bps: int = 0,
        role: str = "",
    ) -> Self:
        """This process's card. `line_rate_bps`: as set; 0: the driver is asked."""
        return cls(
            rank=rank,
            address=address,
            host=socket.gethostname(),
            where=this_place(),
            interface=interface or "",
            pid=os.getpid(),
            version=__version__,
            wire_version=_native.WIRE_VERSION,
            refusal=refusal,
            hub=hub or "",
            processors=len(os.sched_getaffinity(0)),
            line_rate_bps=line_rate_bps or _line_rate_bps(interface or ""),
            role=role,
        )

    def to_json(self) -> str:
        """As it stands in the store."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: bytes, rank: int) -> Self:
        """A card from the store. Raises JobError: it is none."""
        try:
            values = json.loads(text)
            card = cls(**{item.name: values[item.name] for item in fields(cls) if item.name in values})
        except (ValueError, TypeError, KeyError) as error:
            raise JobError(
                f"what rank {rank} left in the store is not dlcp's: {text[:80]!r}; see that all ranks use dlcp, and a"
                " store of their own"
            ) from error
        return card

    @property
    def is_loopback(self) -> bool:
        """Whether only its own host can reach the address."""
        return _LOOPBACK.search(self.address) is not None

    @property
    def machine(self) -> str:
        """Equal for ranks that share processors: one kernel, whatever the network namespace."""
        return self.where.partition("/")[0]

    @property
    def place(self) -> str:
        """The address for people: without alternatives such as shared memory and other ports."""
        return self.address.partition("+")[0]

    def describe(self) -> str:
        """Words for an error: rank, address, host, process."""
        at = f" at {self.place}" if self.address else ""
        on = f", {self.interface}" if self.interface else ""
        return f"{self.role or f'rank {self.rank}'}{at} (host {self.host}{on}, process {self.pid})"


def _line_rate_bps(interface: str) -> int:
    try:
        rate_mbps = int((INTERFACES / interface / "speed").read_text())
    except (OSError, ValueError):
        return 0
    # Drivers that do not know say -1, also as 32 bits without a sign.
    return rate_mbps * 1_000_000 if 0 < rate_mbps < _MBPS_MAX else 0


def describe_line_rate(rate_bps: int, *, is_set: bool) -> str:
    """A line's rate, and who says so. 0: nobody does."""
    if not rate_bps:
        return f"unknown rate ({LINK_BPS / 1e9:g} Gbit/s assumed; line_rate_bps sets it)"
    return f"{rate_bps / 1e9:g} Gbit/s {'as set' if is_set else 'by its driver'}"


def check_versions(own: RankCard, other: RankCard) -> None:
    """Raises JobError if the two ranks do not run the same dlcp: schedules and packets must be the same."""
    if (own.version, own.wire_version) == (other.version, other.wire_version):
        return
    raise JobError(
        f"{other.describe()} runs dlcp {other.version} (wire version {other.wire_version}), rank {own.rank} on host"
        f" {own.host} runs dlcp {own.version} (wire version {own.wire_version}); install one version on all hosts"
    )


def check_reach(own: RankCard, other: RankCard) -> None:
    """Raises JobError if one of the two has a loopback address and the other is not on its host."""
    if own.where == other.where or not (own.is_loopback or other.is_loopback):
        return
    stuck, far = (own, other) if own.is_loopback else (other, own)
    same_name = " in another network namespace" if own.host == other.host else ""
    raise JobError(
        f"rank {stuck.rank} on host {stuck.host} is at {stuck.place}, which only its own host can reach, but"
        f" rank {far.rank} is on host {far.host}{same_name}; name the interface between them on all hosts"
        " (DLCP_INTERFACE=eth0, or bind_host), see `dlcp doctor` for what there is"
    )


@functools.cache
def this_place() -> str:
    """What ranks that reach each other over loopback have in common: this boot of a kernel and this network namespace.

    Containers share the kernel's boot id, but not the namespace; virtual machines have a boot id each.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        return socket.gethostname()
    return f"{boot}/{namespace}"


def key_check_value(key: bytes | None, job: int) -> str:
    """What tells whether two ranks have the same job key, and nothing else; "" without a key."""
    if key is None:
        return ""
    return hmac.digest(key, b"dlcp job key check %d" % job, "sha256")[:8].hex()
