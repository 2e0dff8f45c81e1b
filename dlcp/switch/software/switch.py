"""A software switch in this process: a policy between interfaces, in a thread of its own.

Ports and groups have names here and numbers in the compiled switch. A switch that fails to start leaves nothing behind.
Every method may be called from any thread.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from dlcp import _native
from dlcp.checks import boolean, integer, is_number, refusal
from dlcp.errors import ArgumentError, InterfaceError, ResourceError, SettingsError
from dlcp.switch.aggregation.entries import JobRequest
from dlcp.switch.policy import Policy
from dlcp.switch.software import native_jobs
from dlcp.switch.software.errors import PortNameError, SwitchError
from dlcp.switch.software.native_policy import format_mac, to_native

MAX_PORTS = 64
DIRECTIONS = ("out", "in")
_CATCH_UP = 2000  # samples answered at once


@dataclass(frozen=True)
class SwitchOptions:
    """What a switch is made with, besides policy and ports."""

    rate_bps: int = 0
    """Of ports to which the policy gives none; 0: as fast as the interface takes."""
    salt: int = 0
    """Of path choices. Switches behind each other need different ones, or they choose alike."""
    seed: int = 0
    """Of everything random. The switch treats the same frames at the same times alike."""
    port_names: Mapping[str, str] = field(default_factory=dict)
    """The policy's name of a port → its interface, where they differ. Holds for later policies too."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """MAC address → port or group. The switch knows these from the start and never learns them anew."""
    jobs: Sequence[JobRequest] = ()
    """That the switch adds for (p4/aggregation.md); ports are numbered in the order of the switch's."""
    ageing_s: float = 300.0
    """The switch forgets an address after so long without a frame (IEEE 802.1Q, table 8-6)."""
    max_addresses: int = 4096
    frames: int = 65536
    """How many frames may wait, all ports together. Each takes 2 KiB at an MTU of 1500 once it is used. The default
    holds the usual buffer of 4 MB in the smallest frames. With fewer, small frames of one class could use up all frames
    while the policy's buffer still has room."""
    ring_frames: int = 4096
    """How many frames per port the kernel may hold while the switch does something else."""
    samples: int = 100_000
    """How many samples of depths are kept."""
    busy_poll: bool = False
    """Never sleep. Takes a whole core, and saves some microseconds of delay."""

    def validate(self) -> None:
        """ArgumentError for what is out of range."""
        integer("rate_bps", self.rate_bps, 0, 10**13)
        integer("salt", self.salt, 0, 2**32 - 1)
        integer("seed", self.seed, 0, 2**64 - 1)
        integer("max_addresses", self.max_addresses, 1, 2**20)
        integer("frames", self.frames, 1, 2**20)
        integer("ring_frames", self.ring_frames, 64, 2**16)
        integer("samples", self.samples, 1, 10**7)
        if not 0.001 <= self.ageing_s <= 1e6:
            raise ArgumentError(f"ageing_s is {self.ageing_s!r}; accepted: 0.001 to 1000000")


class SoftwareSwitch:
    """A switch between `ports`, interfaces of this host or `tap:NAME`. Forwards until `close()`."""

    def __init__(self, policy: Policy, ports: Sequence[str], options: SwitchOptions | None = None) -> None:
        self.options = options or SwitchOptions()
        self.options.validate()
        self.policy = policy = policy.renamed_ports(self.options.port_names)
        self._names = _check_ports(ports)
        self._warned: set[str] = set()
        self._told_links: dict[str, bool] = {}  # as they were at the last look
        self._lock = threading.Lock()  # of policy and jobs, which outlive a call
        self._jobs = tuple(self.options.jobs)
        try:
            self._native = _native.SoftSwitch(
                list(ports),
                self._configuration(policy, self._jobs),
                frames=self.options.frames,
                addresses=self.options.max_addresses,
                ageing_ns=round(self.options.ageing_s * 1e9),
                salt=self.options.salt,
                seed=self.options.seed,
                samples=self.options.samples,
                ring_frames=self.options.ring_frames,
                busy_poll=self.options.busy_poll,
            )
        except OSError as error:
            raise _opening_error(error) from None
        except ValueError as error:
            raise ArgumentError(str(error)) from None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="dlcp-switch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends forwarding and releases the interfaces. Waiting frames are lost; the counters stay readable."""
        self._native.stop()
        self._thread.join()
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def ports(self) -> tuple[str, ...]:
        """Their names, without `tap:`."""
        return self._names

    # ---- control ----

    def set_policy(self, policy: Policy) -> None:
        """Replaces the policy between two packets; queued packets stay. After an error the old policy holds."""
        policy = policy.renamed_ports(self.options.port_names)
        with self._lock:
            self._native.configure(self._configuration(policy, self._jobs))
            self.policy = policy

    def set_jobs(self, jobs: Sequence[JobRequest]) -> None:
        """Replaces the jobs that the switch adds for. Sums of a job that stays as it was stay too.

        SettingsError: something is wrong with them; then the old ones hold.
        """
        with self._lock:
            native_jobs.check_unchanged(self._jobs, jobs)
            try:
                self._native.configure(self._configuration(self.policy, jobs))
            except ValueError as error:
                raise SettingsError(str(error)) from None
            self._jobs = tuple(jobs)

    def set_faults(
        self,
        port: str,
        direction: str = "out",
        *,
        loss_ratio: float = 0.0,
        burst_packets: float = 0.0,
        down: bool = False,
        rate_bps: int = 0,
        seed: int = 0,
    ) -> None:
        """Replaces the faults of the frames that leave by a port (`out`) or arrive at it (`in`).

        `burst_packets`: mean length of a burst of losses, from 1; 0: losses are independent. `down`: all frames are
        lost, silently. `rate_bps`: limits the line, of `out` only; 0: no limit.
        """
        number = self._port(port)
        boolean("down", down)
        if direction not in DIRECTIONS:
            raise ArgumentError(f"direction is {direction!r}; accepted: {', '.join(DIRECTIONS)}")
        if rate_bps and direction == "in":
            raise ArgumentError(
                f"rate_bps is {rate_bps}; accepted: 0 for what comes in, only a line has a rate"
            )
        rate_bps = integer("rate_bps", rate_bps, 0, 10**13)
        seed = integer("seed", seed, 0, 2**64 - 1)
        for name, value in (("loss_ratio", loss_ratio), ("burst_packets", burst_packets)):
            if not is_number(value):
                raise ArgumentError(refusal(name, value, "a number"))
        try:
            self._native.set_faults(
                number,
                direction == "out",
                loss_ratio=loss_ratio,
                burst_packets=burst_packets,
                down=down,
                rate_bps=rate_bps,
                seed=seed,
            )
        except ValueError as error:
            raise ArgumentError(str(error)) from None

    def clear_faults(self) -> None:
        """Removes the faults of all ports."""
        for port in self._names:
            for direction in DIRECTIONS:
                self.set_faults(port, direction)

    def set_link(self, port: str, up: bool) -> None:
        """False holds a port's link down, so that its group chooses other ports; True follows the interface again."""
        boolean("up", up)
        self._native.set_link(self._port(port), up)

    def capture(self, port: str, path: str | os.PathLike[str] | None) -> None:
        """Writes the port's frames of both directions to a pcap file from now on. None ends it."""
        number = self._port(port)
        if path is not None and (not os.fspath(path) or "\0" in os.fspath(path)):
            raise ArgumentError(f"path is {os.fspath(path)!r}; accepted: that of a file")
        try:
            self._native.capture(number, "" if path is None else os.fspath(path))
        except OSError as error:
            raise ResourceError(f"capture of port {port}: {error.strerror}") from None

    def sample(self, interval_s: float) -> None:
        """Samples depths and counts at this interval from now on. 0 ends it."""
        if interval_s != 0 and not 1e-5 <= interval_s <= 1e6:
            raise ArgumentError(f"interval_s is {interval_s!r}; accepted: 0, or 0.00001 to 1000000")
        self._native.sample_every(round(interval_s * 1e9))

    # ---- what is seen ----

    def links(self) -> dict[str, bool]:
        """Port → whether its link is up: its interface exists and is up, and `set_link` does not hold it down."""
        return {name: port["link"] for name, port in self.status()["ports"].items()}

    def status(self) -> dict[str, Any]:
        """Ports with their counters, groups, addresses: plain values that JSON can hold."""
        found = self._native.status()
        ports = dict(zip(self._names, found.pop("ports"), strict=True))
        with self._lock:
            policy = self.policy
        groups = {
            group: {"members": {member: ports[member]["chosen"] for member in members}}
            for group, members in policy.path_groups.items()
        }
        return {"pid": os.getpid(), "policy": policy.name, **found, "ports": ports, "groups": groups}

    def samples(self, since: int = 0) -> list[dict[str, Any]]:
        """Samples from number `since` on that are still kept, oldest first; some thousands at most.

        `time_s` is of the monotonic clock; `sent` and `dropped` are packets since the start, by class.
        """
        integer("since", since, 0, 2**64 - 1)
        names = ("index", "time_s", "port", "waiting_bytes", "sent", "dropped")
        found = self._native.samples(since, _CATCH_UP * len(self._names))
        samples: list[dict[str, Any]] = [dict(zip(names, sample, strict=True)) for sample in found]
        return [{**sample, "port": self._names[sample["port"]]} for sample in samples]

    def macs(self) -> dict[str, str]:
        """MAC address → the port or group behind which it is."""
        groups = list(self.policy.path_groups)
        return {
            format_mac(mac): groups[index] if is_group else self._names[index]
            for mac, index, is_group, _ in self._native.addresses()
        }

    def warn(self) -> None:
        """Warns on standard error: once per port that drops super-packets, and at every change of a link."""
        for name, port in self.status()["ports"].items():
            if port["drops"]["oversize"] and name not in self._warned:
                self._warned.add(name)
                _say(
                    f"port {name}: super-packets are dropped, no switch could send them; on the hosts: ethtool -K "
                    "INTERFACE gso off tso off gro off tx-udp-segmentation off; here, if it is a network card: "
                    f"ethtool -K {name} gro off lro off"
                )
            if port["link"] != self._told_links.setdefault(name, port["link"]):
                self._told_links[name] = port["link"]
                _say(f"port {name} is {'up' if port['link'] else 'down or away'}")

    def check(self) -> None:
        """SwitchError: the forwarding loop has failed."""
        if self._failure is not None:
            raise SwitchError(f"the switch stopped: {self._failure}")

    # ---- inside ----

    def _configuration(self, policy: Policy, jobs: Sequence[JobRequest]) -> _native.SwitchConfiguration:
        out = to_native(policy, self._names, self.options.rate_bps, self.options.addresses)
        for job in native_jobs.to_native(jobs):
            out.add_aggregation_job(job)
        return out

    def _run(self) -> None:
        try:
            self._native.run()
        except BaseException as error:
            self._failure = error

    def _port(self, name: str) -> int:
        if name not in self._names:
            raise PortNameError(f"port {name!r}; accepted: {', '.join(self._names)}")
        return self._names.index(name)


def _check_ports(ports: Sequence[str]) -> tuple[str, ...]:
    if not 1 <= len(ports) <= MAX_PORTS:
        raise PortNameError(f"{len(ports)} ports; accepted: 1 to {MAX_PORTS}")
    names = tuple(port.removeprefix("tap:") for port in ports)
    for index, name in enumerate(names):
        if not name:
            raise PortNameError(f"port {ports[index]!r}; accepted: the name of an interface, or tap:NAME")
        if name in names[:index]:
            raise PortNameError(f"port {name!r} is named twice; accepted: each once")
    return names


def _opening_error(error: OSError) -> Exception:
    text = error.strerror or str(error)
    if error.errno in (errno.ENODEV, errno.EINVAL):
        return InterfaceError(text)
    return ResourceError(text)


def _say(sentence: str) -> None:
    print(f"dlcp switch: {sentence}", file=sys.stderr, flush=True)
